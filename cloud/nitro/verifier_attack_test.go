package nitro

import (
	"bytes"
	"context"
	"crypto/elliptic"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/cloud/internal/chain"
	"github.com/nodeattest/nodeattest/refusal"
)

// attack is a forged document.
type attack struct {
	name  string
	make  func(b *bench, p *parts) // changes a good one
	bytes func([]byte) []byte      // changes the whole
	want  refusal.Check
}

func attacks() []attack {
	return slices.Concat(envelopeAttacks(), payloadAttacks(), machineAttacks(), chainAttacks())
}

// signedBy has a certificate of the platform's instance sign, as a template for it is
// changed.
func signedBy(change func(*x509.Certificate)) func(*bench, *parts) {
	return func(b *bench, p *parts) {
		template := leafTemplate()
		change(template)
		p.by(issue(template, newKey(elliptic.P384()), b.instance), b.bundle()...)
	}
}

// envelopeAttacks are about the COSE_Sign1.
func envelopeAttacks() []attack {
	protect := func(name string, header []byte) attack {
		return attack{name: name, want: checkAlgorithm, make: func(_ *bench, p *parts) { p.protected = bstr(header) }}
	}
	return []attack{
		protect("algorithm-es256", []byte{0xa1, 1, 0x26}),
		protect("algorithm-hmac", []byte{0xa1, 1, 5}),
		protect("algorithm-absent", nil),
		protect("algorithm-and-more", []byte{0xa2, 1, 0x38, 0x22, 4, 0x41, 0}),
		protect("algorithm-and-critical", []byte{0xa2, 1, 0x38, 0x22, 2, 0x81, 4}),
		protect("algorithm-with-a-long-head", []byte{0xa1, 1, 0x39, 0, 0x22}),
		{name: "algorithm-unprotected", want: checkAlgorithm, make: func(_ *bench, p *parts) {
			p.protected, p.unprotected = bstr(nil), []byte{0xa1, 1, 0x38, 0x22}
		}},
		{name: "unprotected-header", want: checkAlgorithm, make: func(_ *bench, p *parts) { p.unprotected = []byte{0xa1, 4, 0x41, 0} }},
		{name: "tagged", want: checkEncoding, make: func(_ *bench, p *parts) { p.array = []byte{0xd2, 0x84} }},
		{name: "array-without-a-length", want: checkEncoding, make: func(_ *bench, p *parts) { p.array, p.behind = []byte{0x9f}, []byte{0xff} }},
		{name: "array-with-a-long-head", want: checkEncoding, make: func(_ *bench, p *parts) { p.array = []byte{0x98, 4} }},
		{name: "array-of-five", want: checkEncoding, make: func(_ *bench, p *parts) { p.array, p.behind = []byte{0x85}, []byte{0xf6} }},
		{name: "trailing-bytes", want: checkEncoding, make: func(_ *bench, p *parts) { p.behind = []byte{0} }},
		{name: "payload-in-chunks", want: checkEncoding, make: func(_ *bench, p *parts) {
			payload := p.payloadBytes()
			p.payload = slices.Concat([]byte{0x5f}, bstr(payload[:100]), bstr(payload[100:]), []byte{0xff})
		}},
		{name: "payload-with-a-long-head", want: checkEncoding, make: func(_ *bench, p *parts) {
			payload := p.payloadBytes()
			p.payload = append([]byte{0x5a, 0, 0, byte(len(payload) >> 8), byte(len(payload))}, payload...)
		}},
		{name: "payload-detached", want: checkEncoding, make: func(_ *bench, p *parts) { p.payload = []byte{0xf6} }},
		{name: "payload-empty", want: checkEncoding, make: func(_ *bench, p *parts) { p.payload = []byte{0x40} }},
		{name: "signature-never-checked", want: checkSignature, make: func(b *bench, p *parts) { p.leaf = b.attacker.leaf }},
		{name: "signature-zero", want: checkSignature, make: func(_ *bench, p *parts) { p.signature = make([]byte, 96) }},
		{name: "signature-over-the-order", want: checkSignature, make: func(_ *bench, p *parts) { p.signature = bytes.Repeat([]byte{0xff}, 96) }},
		{name: "signature-of-95-bytes", want: checkEncoding, make: func(_ *bench, p *parts) { p.signature = make([]byte, 95) }},
		{name: "signature-in-der", want: checkEncoding, make: func(_ *bench, p *parts) {
			p.signature = append([]byte{0x30, 0x64, 2, 0x30}, bytes.Repeat([]byte{1}, 98)...)
		}},
		{name: "machine-edited", want: checkModule, bytes: func(b []byte) []byte {
			return bytes.Replace(b, []byte(testModule), []byte(strings.Replace(testModule, "i-0", "i-1", 1)), 1)
		}},
		{name: "nonce-edited", want: checkSignature, bytes: func(b []byte) []byte {
			return bytes.Replace(b, testNonce, bytes.Repeat([]byte{7}, 32), 1)
		}},
		{name: "pcr-edited", want: checkSignature, bytes: func(b []byte) []byte {
			return bytes.Replace(b, pcr(4), pcr(5), 1)
		}},
		{name: "cut", want: checkEncoding, bytes: func(b []byte) []byte { return b[:len(b)-1] }},
		{name: "empty", want: checkEncoding, bytes: func([]byte) []byte { return nil }},
	}
}

// payloadAttacks are about the CBOR, signed by the platform so that nothing else is wrong.
func payloadAttacks() []attack {
	change := func(name string, want refusal.Check, how func(*parts)) attack {
		return attack{name: name, want: want, make: func(_ *bench, p *parts) { how(p) }}
	}
	set := func(name, key string, value []byte) attack {
		return change(name, checkEncoding, func(p *parts) { p.set(key, value) })
	}
	another := bstr(bytes.Repeat([]byte{7}, 32))
	return []attack{
		change("nonce-twice", checkEncoding, func(p *parts) { p.add("nonce", another) }),
		change("machine-twice", checkEncoding, func(p *parts) { p.add("module_id", tstr(testModule)) }),
		change("nonce-in-other-letters", checkEncoding, func(p *parts) { p.rename("nonce", "Nonce") }),
		change("unknown-key", checkEncoding, func(p *parts) { p.add("account", tstr("1")) }),
		change("key-in-chunks", checkEncoding, func(p *parts) {
			p.members[0].key = slices.Concat([]byte{0x7f}, tstr("module"), tstr("_id"), []byte{0xff})
		}),
		change("key-in-bytes", checkEncoding, func(p *parts) { p.members[0].key = bstr([]byte("module_id")) }),
		change("map-in-an-array", checkEncoding, func(p *parts) { p.mapHead, p.mapEnd = []byte{0x92}, nil }),
		change("map-with-a-long-head", checkEncoding, func(p *parts) { p.mapHead, p.mapEnd = []byte{0xb8, 9}, nil }),
		change("map-of-one-more", checkEncoding, func(p *parts) { p.mapHead, p.mapEnd = []byte{0xaa}, nil }),
		change("map-of-one-less", checkEncoding, func(p *parts) { p.mapHead, p.mapEnd = []byte{0xa8}, nil }),
		change("map-without-an-end", checkEncoding, func(p *parts) { p.mapEnd = nil }),
		change("trailing-bytes-after-the-map", checkEncoding, func(p *parts) { p.mapEnd = []byte{0xff, 0} }),
		change("tagged-payload", checkEncoding, func(p *parts) { p.mapHead = []byte{0xd9, 0xd9, 0xf7, 0xbf} }),
		set("nonce-in-chunks", "nonce", slices.Concat([]byte{0x5f}, bstr(testNonce[:16]), bstr(testNonce[16:]), []byte{0xff})),
		set("nonce-in-an-array", "nonce", append([]byte{0x98, 32}, bytes.Repeat([]byte{7}, 32)...)),
		set("nonce-in-text", "nonce", tstr("0123456789abcdef0123456789abcdef")),
		set("nonce-with-a-long-head", "nonce", append([]byte{0x59, 0, 32}, testNonce...)),
		set("nonce-tagged", "nonce", append([]byte{0xc2}, bstr(testNonce)...)),
		set("nonce-undefined", "nonce", []byte{0xf7}),
		set("nonce-of-1025-bytes", "nonce", bstr(make([]byte, 1025))),
		set("machine-null", "module_id", []byte{0xf6}),
		set("machine-in-chunks", "module_id", slices.Concat([]byte{0x7f}, tstr(testModule[:10]), tstr(testModule[10:]), []byte{0xff})),
		set("machine-not-in-utf8", "module_id", append(head(3, 2), 0xff, 0xfe)),
		set("time-with-a-long-head", "timestamp", append([]byte{0x1b, 0, 0, 0, 0}, 1, 2, 3, 4)),
		set("time-negative", "timestamp", []byte{0x20}),
		set("time-a-float", "timestamp", []byte{0xfb, 0x42, 0x79, 0x9c, 0x22, 0xfc, 0xdb, 0, 0}),
		set("time-too-large", "timestamp", bytes.Repeat([]byte{0x1b}, 9)),
		change("digest-sha256", checkAlgorithm, func(p *parts) { p.set("digest", tstr("SHA256")) }),
		change("no-machine", checkEncoding, func(p *parts) { p.drop("module_id") }),
		change("no-time", checkEncoding, func(p *parts) { p.drop("timestamp") }),
		change("no-certificate", checkEncoding, func(p *parts) { p.drop("certificate") }),
		change("no-cabundle", checkEncoding, func(p *parts) { p.drop("cabundle") }),
		change("no-pcrs", checkEncoding, func(p *parts) { p.drop("nitrotpm_pcrs") }),
		set("cabundle-empty", "cabundle", []byte{0x80}),
		set("cabundle-of-six", "cabundle", array(bstr([]byte{1}), bstr([]byte{1}), bstr([]byte{1}), bstr([]byte{1}), bstr([]byte{1}), bstr([]byte{1}))),
		change("cabundle-without-a-length", checkEncoding, func(p *parts) {
			n := slices.IndexFunc(p.members, func(m member) bool { return string(m.key) == string(tstr("cabundle")) })
			p.members[n].value = slices.Concat([]byte{0x9f}, p.members[n].value[1:], []byte{0xff})
		}),
		set("certificate-that-is-none", "certificate", bstr([]byte("certificate"))),
		set("pcrs-empty", "nitrotpm_pcrs", []byte{0xa0}),
		set("pcrs-null", "nitrotpm_pcrs", []byte{0xf6}),
		set("pcrs-without-a-length", "nitrotpm_pcrs", slices.Concat([]byte{0xbf}, pcrs(24)[2:], []byte{0xff})),
		set("pcr-twice", "nitrotpm_pcrs", slices.Concat([]byte{0xa2, 4}, bstr(pcr(4)), []byte{4}, bstr(pcr(5)))),
		set("pcr-32", "nitrotpm_pcrs", slices.Concat([]byte{0xa1, 0x18, 32}, bstr(pcr(4)))),
		set("pcr-with-a-long-head", "nitrotpm_pcrs", slices.Concat([]byte{0xa1, 0x18, 4}, bstr(pcr(4)))),
		set("pcr-minus-one", "nitrotpm_pcrs", slices.Concat([]byte{0xa1, 0x20}, bstr(pcr(4)))),
		set("pcr-of-32-bytes", "nitrotpm_pcrs", slices.Concat([]byte{0xa1, 4}, bstr(make([]byte, 32)))),
		set("pcr-null", "nitrotpm_pcrs", []byte{0xa1, 4, 0xf6}),
		set("pcr-empty", "nitrotpm_pcrs", []byte{0xa1, 4, 0x40}),
	}
}

// machineAttacks are about whose document it is.
func machineAttacks() []attack {
	return []attack{
		{name: "enclave", want: checkEnclave, make: func(b *bench, p *parts) { *p = *b.enclave() }},
		{name: "enclave-called-tpm", want: checkEnclave, make: func(_ *bench, p *parts) { p.rename("nitrotpm_pcrs", "pcrs") }},
		{name: "enclave-with-both", want: checkEncoding, make: func(_ *bench, p *parts) { p.add("pcrs", pcrs(16)) }},
		{name: "enclave-with-pcrs-of-a-tpm", want: checkModule, make: func(b *bench, p *parts) {
			*p = *b.enclave()
			p.rename("pcrs", "nitrotpm_pcrs")
		}},
		{name: "machine-of-another-certificate", want: checkModule, make: func(_ *bench, p *parts) {
			p.set("module_id", tstr(strings.Replace(testModule, "i-0", "i-1", 1)))
		}},
		{name: "certificate-of-another-module", want: checkModule, make: signedBy(func(c *x509.Certificate) {
			c.Subject = named(testInstance + "-tpm0000000000000001." + testRegion + ".aws")
		})},
		{name: "certificate-of-another-cloud", want: checkModule, make: signedBy(func(c *x509.Certificate) {
			c.Subject = named(testModule + "." + testRegion + ".example")
		})},
		{name: "certificate-without-a-region", want: checkModule, make: signedBy(func(c *x509.Certificate) { c.Subject = named(testModule + ".aws") })},
		{name: "certificate-of-another-region", want: checkModule, make: signedBy(func(c *x509.Certificate) {
			c.Subject = named(testModule + ".us-west-1.aws")
		})},
		{name: "issued-by-another-instance", want: checkModule, make: func(b *bench, p *parts) {
			other := issue(caTemplate("i-1123456789abcdef0."+testRegion+".aws.nitro-enclaves", 0), newKey(elliptic.P384()), b.zonal)
			p.by(issue(leafTemplate(), newKey(elliptic.P384()), other), b.root, b.regional, b.zonal, other)
		}},
	}
}

// chainAttacks are about the certificates and times.
func chainAttacks() []attack {
	return []attack{
		{name: "another-root", want: chain.CheckChain, make: func(b *bench, p *parts) {
			a := b.attacker
			p.by(a.leaf, a.instance, a.zonal, a.regional, a.root)
		}},
		{name: "another-root-first", want: chain.CheckChain, make: func(b *bench, p *parts) { p.by(b.attacker.leaf, b.attacker.bundle()...) }},
		{name: "last-of-cabundle-for-the-root", want: chain.CheckChain, make: func(b *bench, p *parts) {
			own := issue(caTemplate(testInstance+"."+testRegion+".aws.nitro-enclaves", 0), newKey(elliptic.P384()), nil)
			p.by(issue(leafTemplate(), newKey(elliptic.P384()), own), b.root, b.regional, b.zonal, own)
		}},
		{name: "our-root-before-anothers", want: chain.CheckChain, make: func(b *bench, p *parts) {
			a := b.attacker
			p.by(a.leaf, b.root, a.regional, a.zonal, a.instance)
		}},
		{name: "cabundle-backwards", want: chain.CheckChain, make: func(b *bench, p *parts) {
			p.by(b.leaf, b.instance, b.zonal, b.regional, b.root)
		}},
		{name: "cabundle-with-something-else", want: checkEncoding, make: func(b *bench, p *parts) {
			p.set("cabundle", array(bstr(b.root.Raw), bstr([]byte("certificate")), bstr(b.instance.Raw)))
		}},
		{name: "cabundle-without-the-root", want: chain.CheckChain, make: func(b *bench, p *parts) { p.by(b.leaf, b.regional, b.zonal, b.instance) }},
		{name: "cabundle-lacks-one", want: chain.CheckChain, make: func(b *bench, p *parts) { p.by(b.leaf, b.root, b.regional, b.instance) }},
		{name: "root-alone", want: chain.CheckChain, make: func(b *bench, p *parts) { p.by(b.attacker.leaf, b.root) }},
		{name: "issued-by-a-leaf", want: chain.CheckChain, make: func(b *bench, p *parts) {
			template := leafTemplate()
			template.Subject = named(testInstance + "." + testRegion + ".aws.nitro-enclaves")
			below := issue(template, newKey(elliptic.P384()), b.zonal)
			p.by(issue(leafTemplate(), newKey(elliptic.P384()), below), b.root, b.regional, b.zonal, below)
		}},
		{name: "path-too-long", want: chain.CheckChain, make: func(b *bench, p *parts) {
			own := issue(caTemplate(testInstance+"."+testRegion+".aws.nitro-enclaves", 0), newKey(elliptic.P384()), b.instance)
			p.by(issue(leafTemplate(), newKey(elliptic.P384()), own), b.root, b.regional, b.zonal, b.instance, own)
		}},
		{name: "a-ca-signs", want: checkCertificate, make: signedBy(func(c *x509.Certificate) { c.IsCA, c.MaxPathLenZero = true, true })},
		{name: "usage-no-signatures", want: checkCertificate, make: signedBy(func(c *x509.Certificate) { c.KeyUsage = x509.KeyUsageKeyAgreement })},
		{name: "usage-absent", want: checkCertificate, make: signedBy(func(c *x509.Certificate) { c.KeyUsage = 0 })},
		{name: "key-on-p256", want: checkCertificate, make: func(b *bench, p *parts) {
			p.by(issue(leafTemplate(), newKey(elliptic.P256()), b.instance), b.bundle()...)
		}},
		{name: "ca-on-p521", want: checkCertificate, make: func(b *bench, p *parts) { // whose signatures take four times as long
			own := issue(caTemplate(testInstance+"."+testRegion+".aws.nitro-enclaves", 0), newKey(elliptic.P521()), b.zonal)
			p.by(issue(leafTemplate(), newKey(elliptic.P384()), own), b.root, b.regional, b.zonal, own)
		}},
		{name: "one-ca-four-times", want: chain.CheckChain, make: func(b *bench, p *parts) { // 64 signatures
			key, bundle := newKey(elliptic.P384()), []*authority{b.root}
			own := &authority{caTemplate(testInstance+"."+testRegion+".aws.nitro-enclaves", 0), key}
			for range maxCertificates - 1 {
				template := *own.Certificate
				template.DNSNames = []string{fmt.Sprint(len(bundle), ".example")}
				bundle = append(bundle, issue(&template, key, own))
			}
			p.by(issue(leafTemplate(), newKey(elliptic.P384()), own), bundle...)
		}},
		{name: "document-of-yesterday", want: chain.CheckExpired, make: func(b *bench, p *parts) {
			signedBy(func(c *x509.Certificate) {
				c.NotBefore, c.NotAfter = testTime.Add(-4*time.Hour), testTime.Add(-time.Second)
			})(b, p)
			p.set("timestamp", uint64Of(testTime.Add(-time.Minute).UnixMilli()))
		}},
		{name: "certificate-of-tomorrow", want: chain.CheckNotYetValid, make: func(b *bench, p *parts) {
			signedBy(func(c *x509.Certificate) { c.NotBefore = testTime.Add(maxSkew + time.Second) })(b, p)
			p.set("timestamp", uint64Of(testTime.Add(maxSkew+time.Second).UnixMilli()))
		}},
		{name: "instance-certificate-expired", want: chain.CheckExpired, make: func(b *bench, p *parts) {
			template := caTemplate(testInstance+"."+testRegion+".aws.nitro-enclaves", 0)
			template.NotAfter = testTime.Add(-time.Second)
			old := issue(template, newKey(elliptic.P384()), b.zonal)
			p.by(issue(leafTemplate(), newKey(elliptic.P384()), old), b.root, b.regional, b.zonal, old)
		}},
		{name: "time-in-the-future", want: checkTime, make: func(_ *bench, p *parts) {
			p.set("timestamp", uint64Of(testTime.Add(maxSkew+time.Second).UnixMilli()))
		}},
		{name: "time-before-the-certificate", want: checkTime, make: func(_ *bench, p *parts) {
			p.set("timestamp", uint64Of(testTime.Add(-5*time.Second).UnixMilli()))
		}},
	}
}

// forged is the attack's document.
func (a *attack) forged(b *bench) []byte {
	p := b.good()
	if a.make != nil {
		a.make(b, p)
	}
	data := p.marshal()
	if a.bytes != nil {
		data = a.bytes(data)
	}
	return data
}

// goodForms are forms of a document that are all good: NitroTPMs write the first.
func goodForms(b *bench) map[string][]byte {
	form := func(how func(*parts)) []byte {
		p := b.good()
		how(p)
		return p.marshal()
	}
	return map[string][]byte{
		"as a NitroTPM writes it": form(func(*parts) {}),
		"with a length":           form(func(p *parts) { p.mapHead, p.mapEnd = []byte{0xa9}, nil }),
		"in another order":        form(func(p *parts) { slices.Reverse(p.members) }),
		"what is null left out":   form(func(p *parts) { p.drop("public_key") }),
		"a minute ahead": form(func(p *parts) {
			signedBy(func(c *x509.Certificate) { c.NotBefore = testTime.Add(maxSkew) })(b, p)
			p.set("timestamp", uint64Of(testTime.Add(maxSkew).UnixMilli()))
		}),
	}
}

// TestAttacks: a good document is good, and each forgery fails on its own check. That
// each is the attack that its name says is shown in test/clouds, by plain verifiers that forget
// one check.
func TestAttacks(t *testing.T) {
	b := newBench()
	v := b.verifier(t)
	for name, data := range goodForms(b) {
		d, err := v.Verify(context.Background(), data, testTime)
		if err != nil || d.InstanceID != testInstance || d.Region != testRegion || d.ModuleID != testModule || !bytes.Equal(d.Nonce, testNonce) ||
			string(d.UserData) != userData || d.PublicKey != nil || len(d.Chain) != 5 || !d.Timestamp.Equal(testTime) && name != "a minute ahead" || !bytes.Equal(d.PCRs[23], pcr(23)) {
			t.Fatalf("%s: %+v, %v", name, d, err)
		}
	}
	for _, a := range attacks() {
		t.Run(a.name, func(t *testing.T) {
			data := a.forged(b)
			d, err := v.Verify(context.Background(), data, testTime)
			e, ok := errors.AsType[*refusal.Error](err)
			if d != nil || !ok || e.Check != a.want || errors.Is(err, refusal.ErrRetry) {
				t.Errorf("got %v, want %s", err, a.want)
			}
		})
	}
}
