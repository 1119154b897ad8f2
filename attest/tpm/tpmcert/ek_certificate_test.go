package tpmcert

import (
	"bytes"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"math/big"
	"testing"

	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/der"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/internal/testkit/tpmlab"
	"github.com/nodeattest/nodeattest/oid"
	"github.com/nodeattest/nodeattest/refusal"
	"golang.org/x/crypto/cryptobyte"
	cbasn1 "golang.org/x/crypto/cryptobyte/asn1"
)

// storedCertificate puts the TCG's header in front of a certificate.
func storedCertificate(der []byte, inner bool) []byte {
	content := bytes.Clone(der)
	if inner {
		content = append([]byte{0x10, 0x02}, content...)
	}
	out := binary.BigEndian.AppendUint16([]byte{0x10, 0x01, 0x00}, uint16(len(content)))
	return append(out, content...)
}

// Each fault of encoding is let through by its own tolerance and by no other.
func TestEKEncoding(t *testing.T) {
	root := tpmlab.Sign(t, nil, "root", nil)
	stored := tpmlab.EKCertificate(t, root, tpmlab.NewP256(t).Public(), nil).Raw
	oaep := oaepCert(t, rsaTestKeys()[0].Public().(*rsa.PublicKey)).Raw
	header, padding, key := EKEncoding{TCGHeader: true}, EKEncoding{NVPadding: true}, EKEncoding{RSAESOAEPKey: true}
	for name, c := range map[string]struct {
		data []byte
		need EKEncoding
		want refusal.Check
	}{
		"plain":                  {stored, EKEncoding{}, ""},
		"zeros":                  {append(bytes.Clone(stored), 0, 0, 0), padding, checkEKEncoding},
		"ones":                   {append(bytes.Clone(stored), 0xff), padding, checkEKEncoding},
		"header":                 {storedCertificate(stored, true), header, checkEKEncoding},
		"short header":           {storedCertificate(stored, false), header, checkEKEncoding},
		"header, padding":        {append(storedCertificate(stored, true), 0xff), EKEncoding{TCGHeader: true, NVPadding: true}, checkEKEncoding},
		"header, padding inside": {storedCertificate(append(bytes.Clone(stored), 0), true), EKEncoding{TCGHeader: true, NVPadding: true}, checkEKEncoding},
		"RSAES-OAEP":             {oaep, key, checkEKKeyEncoding},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := parseTolerating(c.data, c.need)
			if err != nil || got.Encoding != c.need {
				t.Errorf("%s: %+v, %v", name, got, err)
			}
			for _, other := range []EKEncoding{{}, header, padding, key} {
				_, err := parseTolerating(c.data, other)
				if other == c.need && err != nil || other != c.need && c.want != "" && !errors.Is(err, c.want) {
					t.Errorf("%s under %+v: %v", name, other, err)
				}
			}
			if _, err := ParseEK(c.data); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
	for name, data := range map[string][]byte{
		"nothing": nil, "garbage after": append(bytes.Clone(stored), 1), "cut": stored[:len(stored)-1], "header alone": {0x10, 1, 0, 0, 0},
		"header too long": storedCertificate(stored, true)[:len(stored)], "no certificate": {0x30, 0},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := ParseEK(data); !errors.Is(err, CheckCertificateEncoding) {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
	if _, err := ParseEK(make([]byte, maxEKCertificateSize+1)); !errors.Is(err, der.CheckSize) {
		t.Errorf("size: %v", err)
	}
}

// oaepSPKI is the SubjectPublicKeyInfo of an RSA key as id-RSAES-OAEP.
func oaepSPKI(key *rsa.PublicKey, parameters []byte) []byte {
	var b cryptobyte.Builder
	b.AddASN1(cbasn1.SEQUENCE, func(b *cryptobyte.Builder) {
		b.AddASN1(cbasn1.SEQUENCE, func(b *cryptobyte.Builder) {
			oid.Add(b, oid.RSAESOAEP)
			b.AddBytes(parameters)
		})
		b.AddASN1BitString(x509.MarshalPKCS1PublicKey(key))
	})
	return b.BytesOrPanic()
}

// oaepCert is an EK certificate whose SubjectPublicKeyInfo says RSAES-OAEP.
func oaepCert(t testing.TB, key *rsa.PublicKey) *x509.Certificate {
	t.Helper()
	keys := rsaTestKeys()
	root := rsaCA(t, nil, "root", keys[1], nil)
	good := tpmlab.EKCertificate(t, root, key, nil)
	var tbs, body, rest cryptobyte.String = good.RawTBSCertificate, nil, nil
	if !tbs.ReadASN1(&body, cbasn1.SEQUENCE) {
		t.Fatal("no SEQUENCE")
	}
	n := bytes.Index(body, good.RawSubjectPublicKeyInfo)
	rest = body[n+len(good.RawSubjectPublicKeyInfo):]
	var b cryptobyte.Builder
	b.AddASN1(cbasn1.SEQUENCE, func(b *cryptobyte.Builder) { // unsigned: it is parsed, and not verified
		b.AddASN1(cbasn1.SEQUENCE, func(b *cryptobyte.Builder) {
			b.AddBytes(body[:n])
			b.AddBytes(oaepSPKI(key, nil))
			b.AddBytes(rest)
		})
		b.AddBytes([]byte("\x30\x0d\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x01\x0b\x05\x00"))
		b.AddASN1BitString(good.Signature)
	})
	cert, err := x509.ParseCertificate(b.BytesOrPanic())
	testkit.NoError(t, err)
	return cert
}

// One key has one digest, however its certificate spells it.
func TestRSAESOAEPKeyHasOneDigest(t *testing.T) {
	key := rsaTestKeys()[0].Public().(*rsa.PublicKey)
	want, err := csr.SPKIHash(key)
	testkit.NoError(t, err)
	ek, err := ParseEK(oaepCert(t, key).Raw)
	if err != nil || ek.Digest != want || !key.Equal(ek.PublicKey) || ek.Certificate.PublicKey != nil {
		t.Fatalf("%+v, %v", ek, err)
	}
	if ek.Identity() != digestIdentity("ek", want) {
		t.Errorf("%s", ek.Identity())
	}
	null, sequence := []byte{5, 0}, []byte("\x30\x15\xa2\x13\x30\x11\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x01\x09\x04\x04TCPA")
	for _, parameters := range [][]byte{nil, null, sequence} {
		if got, err := oaepKey(oaepSPKI(key, parameters)); err != nil || !got.Equal(key) {
			t.Errorf("parameters %x: %v", parameters, err)
		}
	}
	good := oaepSPKI(key, null)
	for name, spki := range map[string][]byte{
		"other parameters": oaepSPKI(key, []byte{2, 1, 0}), "two parameters": oaepSPKI(key, append(null, null...)),
		"trailing": append(bytes.Clone(good), 0), "cut": good[:len(good)-1], "nothing": nil,
		"rsaEncryption": mustSPKI(t, key),
		"negative":      oaepSPKI(&rsa.PublicKey{N: new(big.Int).Neg(key.N), E: key.E}, nil),
		"exponent 0":    oaepSPKI(&rsa.PublicKey{N: key.N}, nil),
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := oaepKey(spki); !errors.Is(err, checkEKKeyEncoding) {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
}

func mustSPKI(t *testing.T, key *rsa.PublicKey) []byte {
	t.Helper()
	spki, err := csr.CanonicalSPKI(key)
	testkit.NoError(t, err)
	return spki
}

// Keys that can be computed or are too weak are refused, in certificates and without.
func TestWeakEKs(t *testing.T) {
	roca := &rsa.PublicKey{N: tpmlab.FlawedModulus(), E: 65537}
	good := rsaTestKeys()[0].Public().(*rsa.PublicKey)
	small, err := rsa.GenerateKey(rand.Reader, 1024)
	testkit.NoError(t, err)
	root := tpmlab.Sign(t, nil, "root", nil)
	for name, c := range map[string]struct {
		key  *rsa.PublicKey
		want refusal.Check
	}{
		"ROCA":             {roca, checkROCA},
		"1024 bits":        {&small.PublicKey, refusal.Check("tpm-key-strength")},
		"exponent 3":       {&rsa.PublicKey{N: good.N, E: 3}, refusal.Check("tpm-key-strength")},
		"another exponent": {&rsa.PublicKey{N: good.N, E: 65539}, refusal.Check("tpm-key-strength")},
	} {
		t.Run(name, func(t *testing.T) {
			cert := tpmlab.EKCertificate(t, root, c.key, nil)
			if _, err := parseTolerating(cert.Raw, EKEncoding{}); !errors.Is(err, c.want) {
				t.Errorf("%s: %v", name, err)
			}
			if _, err := ParseEKPresented(nil, mustSPKI(t, c.key)); !errors.Is(err, c.want) {
				t.Errorf("%s without a certificate: %v", name, err)
			}
		})
	}
}

func TestSpecification(t *testing.T) {
	parse := func(exts ...pkix.Extension) (*TPMSpecification, error) {
		return parseSpecification(&x509.Certificate{Extensions: exts})
	}
	good := tpmlab.Specification("2.0", 0, 138)
	if s, err := parse(good); err != nil || *s != (TPMSpecification{"2.0", 0, 138}) {
		t.Errorf("%v, %v", s, err)
	}
	if s, err := parse(); s != nil || err != nil {
		t.Errorf("none: %v, %v", s, err)
	}
	other := pkix.Extension{Id: good.Id, Value: bytes.Replace(good.Value, []byte("\x02\x10"), []byte("\x02\x12"), 1)} // securityAssertions
	if s, err := parse(other); s != nil || err != nil {
		t.Errorf("another attribute: %v, %v", s, err)
	}
	for name, exts := range map[string][]pkix.Extension{
		"negative level":    {tpmlab.Specification("2.0", -1, 138)},
		"negative revision": {tpmlab.Specification("2.0", 0, -138)},
		"no family":         {tpmlab.Specification("", 0, 138)},
		"long family":       {tpmlab.Specification("2.0000000000000000", 0, 138)},
		"trailing":          {{Id: good.Id, Value: append(bytes.Clone(good.Value), 0)}},
		"cut":               {{Id: good.Id, Value: good.Value[:len(good.Value)-1]}},
		"no attribute":      {{Id: good.Id, Value: []byte{0x30, 2, 5, 0}}},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := parse(exts...); !errors.Is(err, checkSpecification) {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
}

// FuzzParseEK: no bytes make the reader panic; an accepted certificate has a digest, and its DER
// alone reads the same.
func FuzzParseEK(f *testing.F) {
	testkit.BeginFuzz(f)
	root := tpmlab.Sign(f, nil, "root", nil)
	der := tpmlab.EKCertificate(f, root, tpmlab.NewP256(f).Public(), nil).Raw
	f.Add(der)
	f.Add(storedCertificate(der, true))
	f.Add(append(storedCertificate(der, false), 0xff, 0xff))
	f.Add(oaepCert(f, rsaTestKeys()[0].Public().(*rsa.PublicKey)).Raw)
	f.Add([]byte{0x10, 0x01, 0x00, 0x00, 0x02, 0x10, 0x02})
	f.Fuzz(func(t *testing.T, data []byte) {
		ek, err := ParseEK(data)
		if err != nil {
			if !hasCheck(err) {
				t.Fatalf("%v is no check", err)
			}
			return
		}
		again, err := parseTolerating(ek.Certificate.Raw, EKEncoding{RSAESOAEPKey: true})
		if err != nil || again.Digest != ek.Digest || again.Encoding.NVPadding || again.Encoding.TCGHeader {
			t.Fatalf("%+v, %v", again, err)
		}
		if !bytes.Equal(ek.Certificate.Raw, data) && ek.Encoding == (EKEncoding{RSAESOAEPKey: ek.Encoding.RSAESOAEPKey}) {
			t.Fatal("something was taken off, and it is not said")
		}
		if id := ek.Identity(); string(id) != "ek:sha256:"+hex.EncodeToString(ek.Digest[:]) {
			t.Fatal(id)
		}
	})
}

// FuzzParseEKChain: the certificates that are read are the ones that were written.
func FuzzParseEKChain(f *testing.F) {
	testkit.BeginFuzz(f)
	root := tpmlab.Sign(f, nil, "root", nil)
	a, b := tpmlab.Sign(f, root, "a", nil).Cert.Raw, tpmlab.Sign(f, root, "b", nil).Cert.Raw
	f.Add(a, b)
	f.Add(append(bytes.Clone(a), b...), []byte{0xff})
	f.Add(a[:100], append(bytes.Clone(a[100:]), 0, 0))
	f.Add([]byte{}, []byte{0x30, 0x80})
	f.Fuzz(func(t *testing.T, first, second []byte) {
		certs, err := ParseEKChain([][]byte{first, second})
		if err != nil {
			if !hasCheck(err) {
				t.Fatalf("%v is no check", err)
			}
			return
		}
		joined := append(bytes.Clone(first), second...)
		for _, c := range certs {
			if !bytes.Contains(joined, c.Raw) {
				t.Fatal("a certificate that was not there")
			}
		}
	})
}
