package nitro

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha512"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/binary"
	"math/big"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/internal/testkit"
)

// The instance of the documents here, and the time.
const (
	testInstance = "i-0123456789abcdef0"
	testModule   = testInstance + "-tpm0000000000000000"
	testRegion   = "us-east-2"
)

var (
	testTime  = time.Date(2026, 11, 22, 9, 0, 0, 0, time.UTC)
	testNonce = sha512.New512_256().Sum(nil)
)

// authority is a certificate and its key.
type authority struct {
	*x509.Certificate
	key crypto.Signer
}

func newKey(c elliptic.Curve) crypto.Signer { return testkit.Must(ecdsa.GenerateKey(c, rand.Reader)) }

// issue makes a certificate for a key; issuer nil is the certificate itself.
func issue(template *x509.Certificate, key crypto.Signer, issuer *authority) *authority {
	template.SerialNumber = testkit.Must(rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120)))
	template.BasicConstraintsValid = true
	if issuer == nil {
		issuer = &authority{template, key}
	}
	return &authority{testkit.Must(x509.ParseCertificate(testkit.Must(x509.CreateCertificate(rand.Reader, template, issuer.Certificate, key.Public(), issuer.key)))), key}
}

func named(cn string) pkix.Name {
	return pkix.Name{Country: []string{"US"}, Organization: []string{"Amazon"}, OrganizationalUnit: []string{"AWS"}, CommonName: cn}
}

// caTemplate is that of a CA with so many CAs below it.
func caTemplate(cn string, below int) *x509.Certificate {
	return &x509.Certificate{Subject: named(cn), NotBefore: testTime.AddDate(0, 0, -1), NotAfter: testTime.AddDate(0, 0, 1), IsCA: true,
		MaxPathLen: below, MaxPathLenZero: below == 0, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign}
}

func leafTemplate() *x509.Certificate {
	return &x509.Certificate{Subject: named(testModule + "." + testRegion + ".aws"), NotBefore: testTime.Add(-3 * time.Second), NotAfter: testTime.Add(3 * time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageContentCommitment}
}

// platformOf is the root and the certificates below it: regional, zonal, instance, leaf.
type platformOf struct{ root, regional, zonal, instance, leaf *authority }

func newPlatform() *platformOf {
	p, key := &platformOf{}, elliptic.P384()
	p.root = issue(caTemplate("aws.nitro-enclaves", -1), newKey(key), nil)
	p.regional = issue(caTemplate("0123456789abcdef."+testRegion+".aws.nitro-enclaves", 2), newKey(key), p.root)
	p.zonal = issue(caTemplate("fedcba9876543210.zonal."+testRegion+".aws.nitro-enclaves", 1), newKey(key), p.regional)
	p.instance = issue(caTemplate(testInstance+"."+testRegion+".aws.nitro-enclaves", 0), newKey(key), p.zonal)
	p.leaf = issue(leafTemplate(), newKey(key), p.instance)
	return p
}

func (p *platformOf) bundle() []*authority {
	return []*authority{p.root, p.regional, p.zonal, p.instance}
}

// bench is a platform, and an attacker's.
type bench struct {
	*platformOf
	attacker *platformOf
}

var newBench = sync.OnceValue(func() *bench { return &bench{newPlatform(), newPlatform()} })

func (b *bench) roots() []*x509.Certificate { return []*x509.Certificate{b.root.Certificate} }

func (b *bench) verifier(t testing.TB) *Verifier {
	t.Helper()
	return testkit.Must(NewVerifier(VerifierConfig{Roots: b.roots()}))
}

// member is a pair of the payload, both parts CBOR.
type member struct{ key, value []byte }

// parts are the parts of a document, each of which an attacker may change.
type parts struct {
	array, protected, unprotected []byte // CBOR; array is the head of the whole
	members                       []member
	mapHead, mapEnd               []byte
	payload                       []byte // CBOR, in place of the members as a byte string
	leaf                          *authority
	signature                     []byte // raw, in place of a good one
	behind                        []byte
}

func head(major byte, n int) []byte {
	switch {
	case n < 24:
		return []byte{major<<5 | byte(n)}
	case n < 1<<8:
		return []byte{major<<5 | 24, byte(n)}
	}
	return []byte{major<<5 | 25, byte(n >> 8), byte(n)}
}

func bstr(b []byte) []byte    { return append(head(2, len(b)), b...) }
func tstr(s string) []byte    { return append(head(3, len(s)), s...) }
func uint64Of(n int64) []byte { return binary.BigEndian.AppendUint64([]byte{0x1b}, uint64(n)) }

func array(items ...[]byte) []byte { return append(head(4, len(items)), slices.Concat(items...)...) }

// pcr is the value of a PCR.
func pcr(i int) []byte {
	value := make([]byte, 48)
	value[0] = byte(i)
	return value
}

func pcrs(n int) []byte {
	b := head(5, n)
	for i := range n {
		b = append(append(b, head(0, i)...), bstr(pcr(i))...)
	}
	return b
}

func cabundle(list ...*authority) []byte {
	items := make([][]byte, len(list))
	for n, c := range list {
		items[n] = bstr(c.Raw)
	}
	return array(items...)
}

// good is a good document.
func (p *platformOf) good() *parts {
	return &parts{array: []byte{0x84}, protected: bstr([]byte(protected)), unprotected: []byte{0xa0}, mapHead: []byte{0xbf}, mapEnd: []byte{0xff}, leaf: p.leaf, members: []member{
		{tstr("module_id"), tstr(testModule)}, {tstr("digest"), tstr("SHA384")}, {tstr("timestamp"), uint64Of(testTime.UnixMilli())},
		{tstr("nitrotpm_pcrs"), pcrs(24)}, {tstr("certificate"), bstr(p.leaf.Raw)}, {tstr("cabundle"), cabundle(p.bundle()...)},
		{tstr("public_key"), []byte{0xf6}}, {tstr("user_data"), bstr([]byte(userData))}, {tstr("nonce"), bstr(testNonce)}}}
}

// set changes the value of a key.
func (p *parts) set(key string, value []byte) {
	n := slices.IndexFunc(p.members, func(m member) bool { return string(m.key) == string(tstr(key)) })
	p.members[n].value = value
}

func (p *parts) rename(key, to string) {
	n := slices.IndexFunc(p.members, func(m member) bool { return string(m.key) == string(tstr(key)) })
	p.members[n].key = tstr(to)
}

func (p *parts) drop(key string) {
	p.members = slices.DeleteFunc(p.members, func(m member) bool { return string(m.key) == string(tstr(key)) })
}

func (p *parts) add(key string, value []byte) {
	p.members = append(p.members, member{tstr(key), value})
}

// by has another leaf sign, with certificates that lead to a root.
func (p *parts) by(leaf *authority, bundle ...*authority) {
	p.leaf = leaf
	p.set("certificate", bstr(leaf.Raw))
	p.set("cabundle", cabundle(bundle...))
}

// marshal signs and writes a document.
func (p *parts) marshal() []byte {
	payload := p.payloadBytes()
	signature := p.signature
	if signature == nil {
		hash, signed := crypto.SHA384, append([]byte("\x84\x6aSignature1"), p.protected...)
		signed = append(append(append(signed, 0x40), head(2, len(payload))...), payload...)
		sum := hash.New()
		sum.Write(signed)
		r, s, err := ecdsa.Sign(rand.Reader, p.leaf.key.(*ecdsa.PrivateKey), sum.Sum(nil))
		if err != nil {
			panic(err)
		}
		signature = append(r.FillBytes(make([]byte, 48)), s.FillBytes(make([]byte, 48))...)
	}
	body := p.payload
	if body == nil {
		body = bstr(payload)
	}
	return slices.Concat(p.array, p.protected, p.unprotected, body, bstr(signature), p.behind)
}

// payloadBytes is the payload as it is.
func (p *parts) payloadBytes() []byte {
	payload := slices.Clone(p.mapHead)
	for _, m := range p.members {
		payload = append(append(payload, m.key...), m.value...)
	}
	return append(payload, p.mapEnd...)
}

// enclave is the genuine document of an enclave of the attacker's, on the same platform.
func (b *bench) enclave() *parts {
	p := b.good()
	module := strings.Replace(testModule, "-tpm", "-enc", 1)
	template := leafTemplate()
	template.Subject = named(module + "." + testRegion + ".aws")
	p.by(issue(template, newKey(elliptic.P384()), b.instance), b.bundle()...)
	p.set("module_id", tstr(module))
	p.rename("nitrotpm_pcrs", "pcrs")
	p.set("pcrs", pcrs(16))
	p.mapHead, p.mapEnd = []byte{0xa9}, nil
	return p
}
