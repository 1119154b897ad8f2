package csr

import (
	"bytes"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"fmt"
	"slices"
	"testing"

	"golang.org/x/crypto/cryptobyte"
	cryptobyteasn1 "golang.org/x/crypto/cryptobyte/asn1"

	"github.com/nodeattest/nodeattest/oid"
)

// requestDER is a request in parts, each with tag and length unless said otherwise.
type requestDER struct {
	version, subject, spki []byte
	attributes             [][]byte
	algorithm              []byte
	signature              []byte // content of the BIT STRING
	behindInfo, behind     []byte // after the last member of the info, of the request
}

// goodDER takes a good request apart.
func goodDER(t testing.TB) *requestDER {
	t.Helper()
	p, err := ParsePKCS10(clientRequest(t, keyP256()))
	if err != nil {
		t.Fatal(err)
	}
	extensions, ok := p.Attribute(oid.ExtensionRequest)
	if !ok {
		t.Fatal("no extensions")
	}
	return &requestDER{
		version:    []byte{2, 1, 0},
		subject:    p.CSR.RawSubject,
		spki:       p.CSR.RawSubjectPublicKeyInfo,
		attributes: [][]byte{attributeDER(oid.ExtensionRequest, extensions)},
		algorithm:  []byte("\x30\x0a\x06\x08\x2a\x86\x48\xce\x3d\x04\x03\x02"),
		signature:  append([]byte{0}, p.CSR.Signature...),
	}
}

func (r *requestDER) bytes() []byte {
	return sequence(
		sequence(r.version, r.subject, r.spki, element(0xa0, r.attributes...), r.behindInfo),
		r.algorithm, element(3, r.signature), r.behind)
}

// element writes a tag, a length and content; sequence the tag 0x30.
func element(tag uint8, content ...[]byte) []byte {
	var b cryptobyte.Builder
	b.AddASN1(cryptobyteasn1.Tag(tag), func(b *cryptobyte.Builder) {
		for _, c := range content {
			b.AddBytes(c)
		}
	})
	return b.BytesOrPanic()
}

func sequence(content ...[]byte) []byte { return element(0x30, content...) }

func oidDER(o oid.OID) []byte {
	var b cryptobyte.Builder
	oid.Add(&b, o)
	return b.BytesOrPanic()
}

func attributeDER(id oid.OID, values ...[]byte) []byte {
	return sequence(oidDER(id), element(0x31, values...))
}

// extensionDER writes an extension; between stands between identifier and value.
func extensionDER(id oid.OID, between, value []byte) []byte {
	return sequence(oidDER(id), between, element(4, value))
}

func providerIDValue(t testing.TB, id string) []byte {
	t.Helper()
	value, err := oid.MarshalProviderID(id)
	if err != nil {
		t.Fatal(err)
	}
	return value
}

func withExtensions(extensions ...[]byte) [][]byte {
	return [][]byte{attributeDER(oid.ExtensionRequest, sequence(extensions...))}
}

func nameDER(id oid.OID, text string) []byte {
	return sequence(oidDER(id), element(12, []byte(text)))
}

func providerIDAttribute(between, value []byte) [][]byte {
	return withExtensions(extensionDER(oid.KubernetesNodeProviderIdentifier, between, value))
}

// sameAsParts puts a parsed request together again from its fields, and
// fails the test where the bytes differ.
func sameAsParts(t *testing.T, der []byte, p *PKCS10) {
	t.Helper()
	spki, err := CanonicalSPKI(p.CSR.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	r := requestDER{version: []byte{2, 1, 0}, spki: spki, signature: append([]byte{0}, p.CSR.Signature...)}
	var sets [][][]byte
	for _, a := range p.subject {
		if a.RDN == len(sets) {
			sets = append(sets, nil)
		}
		sets[a.RDN] = append(sets[a.RDN], sequence(oidDER(a.Type), element(a.Tag, a.Value)))
	}
	var rdns [][]byte
	for _, set := range sets {
		rdns = append(rdns, element(0x31, set...))
	}
	r.subject = sequence(rdns...)
	for _, a := range p.attributes {
		r.attributes = append(r.attributes, sequence(oidDER(a.id), element(0x31, a.values)))
	}
	names := map[x509.SignatureAlgorithm]oid.OID{
		x509.SHA256WithRSA: oid.SHA256WithRSA, x509.SHA384WithRSA: oid.SHA384WithRSA, x509.SHA512WithRSA: oid.SHA512WithRSA,
		x509.ECDSAWithSHA256: oid.ECDSAWithSHA256, x509.ECDSAWithSHA384: oid.ECDSAWithSHA384, x509.ECDSAWithSHA512: oid.ECDSAWithSHA512,
		x509.PureEd25519: oid.Ed25519,
	}
	r.algorithm = sequence(oidDER(names[p.CSR.SignatureAlgorithm]))
	if p.CSR.PublicKeyAlgorithm == x509.RSA {
		r.algorithm = sequence(oidDER(names[p.CSR.SignatureAlgorithm]), []byte{5, 0})
	}
	if got := r.bytes(); !bytes.Equal(got, der) {
		t.Fatalf("the request\n%x\nreads as\n%x", der, got)
	}
}

// manyExtensions are n different ones, manyAttributes n different ones in order.
func manyExtensions(n int) [][]byte {
	var all [][]byte
	for i := range n {
		all = append(all, extensionDER(oid.OID([]byte{42, 3, byte(i / 128), byte(i % 128)}), nil, []byte{5, 0}))
	}
	return all
}

func manyAttributes(n int) [][]byte {
	var all [][]byte
	for i := range n {
		all = append(all, attributeDER(oid.OID([]byte{42, 3, byte(i / 128), byte(i % 128)}), []byte{5, 0}))
	}
	return all
}

var testFlag = asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 32473, 1} // RFC 5612: for documents

// hasFlag tries the rule about the flag on a request with these extensions, and reports whether it
// has the flag.
func hasFlag(extensions []pkix.Extension, id asn1.ObjectIdentifier) (bool, error) {
	request := &PKCS10{CSR: &x509.CertificateRequest{Extensions: extensions}}
	x := &run{policy: &Policy{Flag: id}, out: &Checked{pkcs10: request}, rule: checkFlag}
	if x.checkFlag(); x.err() != nil {
		return false, x.err()
	}
	x.policy.RequireFlag = true
	x.checkFlag()
	return x.err() == nil, nil
}

func TestFlag(t *testing.T) {
	flag, err := flagExtension(testFlag)
	if err != nil || flag.Critical || !flag.Id.Equal(testFlag) || !bytes.Equal(flag.Value, []byte{1, 1, 0xff}) {
		t.Fatalf("flagExtension = %+v, %v", flag, err)
	}
	flag.Value[2], flag.Id[0] = 0, 2 // the caller's own bytes
	flag, _ = flagExtension(testFlag)
	other := pkix.Extension{Id: asn1.ObjectIdentifier{2, 5, 29, 17}, Critical: true}
	for _, test := range []struct {
		extensions []pkix.Extension
		want       bool
	}{
		{nil, false},
		{[]pkix.Extension{other}, false},
		{[]pkix.Extension{other, flag}, true},
	} {
		t.Run(fmt.Sprint(test.want), func(t *testing.T) {
			if got, err := hasFlag(test.extensions, testFlag); err != nil || got != test.want {
				t.Errorf("hasFlag(%v) = %v, %v", test.extensions, got, err)
			}
		})
	}
	critical := flag
	critical.Critical = true
	with := func(value ...byte) []pkix.Extension { return []pkix.Extension{{Id: testFlag, Value: value}} }
	for name, extensions := range map[string][]pkix.Extension{
		"critical":       {critical},
		"FALSE":          with(1, 1, 0),
		"TRUE as 01":     with(1, 1, 1),
		"empty":          with(),
		"trailing byte":  with(1, 1, 0xff, 0),
		"long form":      with(1, 0x81, 1, 0xff),
		"text":           with([]byte("true")...),
		"integer":        with(2, 1, 1),
		"two bytes long": with(1, 2, 0xff, 0xff),
	} {
		t.Run(name, func(t *testing.T) {
			got, err := hasFlag(extensions, testFlag)
			if got {
				t.Error("hasFlag = true")
			}
			wantRule(t, name, err, checkFlag)
		})
	}
}

func TestFlagIdentifierMustFit(t *testing.T) {
	for _, id := range []asn1.ObjectIdentifier{nil, {1}, {3, 1}, {1, 40}, {1, 2, -1}, {1, 2, 1 << 31}, {2, 5, 29}, {2, 5, 29, 17}, {2, 5, 29, 19},
		{1, 3, 6, 1, 5, 5, 7, 1, 24}, {1, 3, 6, 1, 4, 1, 11129, 2, 1, 21}, make(asn1.ObjectIdentifier, 1000)} {
		_, err := flagExtension(id)
		wantRule(t, "flagExtension", err, checkFlag)
	}
	for _, id := range []asn1.ObjectIdentifier{{1, 2, 1<<31 - 1}, {2, 5, 30, 17}, {1, 3, 6, 1, 5, 5, 7}, {1, 3, 6, 1, 4, 1, 11129, 2, 1, 21, 1}} {
		if _, err := flagExtension(id); err != nil {
			t.Error(err)
		}
	}
}

// FuzzHasFlag reads two extensions, one at most under the flag's identifier.
func FuzzHasFlag(f *testing.F) {
	f.Add([]byte{1, 1, 0xff}, false, true, []byte{}, false, false)
	f.Add([]byte{1, 1, 0xff}, true, true, []byte{}, false, false)
	f.Add([]byte{1, 1, 0xff}, false, false, []byte{1, 1, 0xff}, false, true)
	f.Add([]byte{5, 0}, true, false, []byte{1, 1, 0}, false, true)
	f.Fuzz(func(t *testing.T, value []byte, critical, is bool, value2 []byte, critical2, is2 bool) {
		is2 = is2 && !is
		other := append(slices.Clone(testFlag), 1)
		id := map[bool]asn1.ObjectIdentifier{true: testFlag, false: other}
		extensions := []pkix.Extension{{Id: id[is], Critical: critical, Value: value}, {Id: id[is2], Critical: critical2, Value: value2}}
		good := func(value []byte, critical bool) bool { return !critical && bytes.Equal(value, []byte{1, 1, 0xff}) }
		bad := is && !good(value, critical) || is2 && !good(value2, critical2)
		got, err := hasFlag(extensions, testFlag)
		if got != (!bad && (is || is2)) || (err != nil) != bad {
			t.Errorf("hasFlag(%v) = %v, %v", extensions, got, err)
		}
	})
}
