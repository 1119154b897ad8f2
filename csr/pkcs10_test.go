package csr

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nodeattest/nodeattest/internal/der"
	"github.com/nodeattest/nodeattest/oid"
)

func TestParsePKCS10(t *testing.T) {
	for name, der := range map[string][]byte{
		"P-256":   clientRequest(t, keyP256()),
		"P-384":   clientRequest(t, keyP384()),
		"RSA":     clientRequest(t, keyRSA2()),
		"serving": servingRequest(t, keyP256()),
	} {
		t.Run(name, func(t *testing.T) {
			p, err := ParsePKCS10(der)
			if err != nil {
				t.Fatalf("%v", err)
			}
			if !bytes.Equal(p.Raw, der) || !bytes.Equal(p.Info, p.CSR.RawTBSCertificateRequest) || p.InfoHash != sha256.Sum256(p.Info) {
				t.Error("the received bytes are wrong")
			}
			if err := p.CheckSignature(); err != nil {
				t.Errorf("%v", err)
			}
			want := []nameAttribute{
				{RDN: 0, Type: oid.Organization, Tag: 19, Value: []byte("system:nodes")},
				{RDN: 1, Type: oid.CommonName, Tag: 19, Value: []byte("system:node:node-1")},
			}
			if diff := cmp.Diff(want, p.subject); diff != "" {
				t.Errorf("subject: %s", diff)
			}
			id := "aws:///eu-west-1a/i-0123456789abcdef0"
			if name == "serving" {
				id = ""
			}
			if p.ProviderID != id || len(p.OtherAttributes) != 0 {
				t.Errorf("provider ID %q, other attributes %v", p.ProviderID, p.OtherAttributes)
			}
			sameAsParts(t, der, p)
		})
	}
}

// TestParsePKCS10TakesTheParts shows that the parts which TestParsePKCS10Refuses
// changes are good by themselves.
func TestParsePKCS10TakesTheParts(t *testing.T) {
	for name, change := range map[string]func(*requestDER){
		"unchanged":          func(r *requestDER) {},
		"no attributes":      func(r *requestDER) { r.attributes = nil },
		"one other":          func(r *requestDER) { r.attributes = [][]byte{attributeDER(oid.IDAAAttestation, sequence())} },
		"SHA-384 with P-256": func(r *requestDER) { r.algorithm[11] = 3 },
		"empty subject":      func(r *requestDER) { r.subject = sequence() },
		"32 extensions":      func(r *requestDER) { r.attributes = withExtensions(manyExtensions(32)...) },
		"16 attributes":      func(r *requestDER) { r.attributes = manyAttributes(16) },
		"an extension more":  func(r *requestDER) { r.attributes = withExtensions(extensionDER(oid.KeyUsage, nil, nil)) },
		"a critical extension": func(r *requestDER) {
			r.attributes = withExtensions(extensionDER(oid.KeyUsage, []byte{1, 1, 0xff}, nil))
		},
		"two in one RDN": func(r *requestDER) {
			r.subject = sequence(element(0x31, nameDER(oid.CommonName, "a"), nameDER(oid.CommonName, "b")))
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := goodDER(t)
			change(r)
			der := r.bytes()
			p, err := ParsePKCS10(der)
			if err != nil {
				t.Errorf("%v", err)
				return
			}
			sameAsParts(t, der, p)
		})
	}
}

// TestParsePKCS10Refuses has the smallest changes of a good request.
func TestParsePKCS10Refuses(t *testing.T) {
	extension := extensionDER(oid.KeyUsage, nil, []byte{3, 2, 7, 0x80})
	long := func(tag byte, content []byte) []byte {
		return append([]byte{tag, 0x81, byte(len(content))}, content...)
	}
	for name, test := range map[string]struct {
		change func(*requestDER)
		want   Check
	}{
		"member after the signature":  {func(r *requestDER) { r.behind = []byte{5, 0} }, checkRequestDER},
		"member after the attributes": {func(r *requestDER) { r.behindInfo = []byte{5, 0} }, checkRequestDER},
		"signature with unused bits":  {func(r *requestDER) { r.signature = []byte{4, 0xf0} }, checkRequestDER},
		"no signature":                {func(r *requestDER) { r.signature = []byte{0} }, checkRequestDER},
		"empty bit string":            {func(r *requestDER) { r.signature = nil }, checkRequestDER},
		"version 1":                   {func(r *requestDER) { r.version = []byte{2, 1, 1} }, checkRequestVersion},
		"version of two bytes":        {func(r *requestDER) { r.version = []byte{2, 2, 0, 0} }, checkRequestVersion},
		"version in long form":        {func(r *requestDER) { r.version = []byte{2, 0x81, 1, 0} }, checkRequestDER},
		"no version":                  {func(r *requestDER) { r.version = nil }, checkRequestDER},
		"subject a SET":               {func(r *requestDER) { r.subject = element(0x31) }, checkRequestDER},
		"empty RDN":                   {func(r *requestDER) { r.subject = sequence(element(0x31)) }, checkRequestSubject},
		"RDN a SEQUENCE":              {func(r *requestDER) { r.subject = sequence(sequence(nameDER(oid.CommonName, "a"))) }, checkRequestSubject},
		"RDN out of order": {func(r *requestDER) {
			r.subject = sequence(element(0x31, nameDER(oid.CommonName, "b"), nameDER(oid.CommonName, "a")))
		}, checkRequestSubject},
		"attribute twice in an RDN": {func(r *requestDER) {
			r.subject = sequence(element(0x31, nameDER(oid.CommonName, "a"), nameDER(oid.CommonName, "a")))
		}, checkRequestSubject},
		"name attribute without value": {func(r *requestDER) { r.subject = sequence(element(0x31, sequence(oidDER(oid.CommonName)))) }, checkRequestSubject},
		"name attribute with two": {func(r *requestDER) {
			r.subject = sequence(element(0x31, sequence(oidDER(oid.CommonName), []byte{5, 0, 5, 0})))
		}, checkRequestSubject},
		"name type not minimal": {func(r *requestDER) {
			r.subject = sequence(element(0x31, sequence([]byte{6, 3, 0x2a, 0x80, 3}, element(12, []byte("a")))))
		}, checkRequestSubject},
		"name value in long form": {func(r *requestDER) {
			r.subject = sequence(element(0x31, sequence(oidDER(oid.CommonName), long(12, []byte("a")))))
		}, checkRequestSubject},
		"UTF8String not UTF-8": {func(r *requestDER) { r.subject = sequence(element(0x31, nameDER(oid.CommonName, "\xff"))) }, checkRequestX509},
		"attribute malformed":  {func(r *requestDER) { r.attributes = [][]byte{{5, 0}} }, checkRequestAttributes},
		"attribute without values": {func(r *requestDER) {
			r.attributes = [][]byte{attributeDER(oid.ChallengePassword)}
		}, checkRequestAttributes},
		"attribute values out of order": {func(r *requestDER) {
			r.attributes = [][]byte{attributeDER(oid.ChallengePassword, element(12, []byte("b")), element(12, []byte("a")))}
		}, checkRequestAttributes},
		"attribute value twice": {func(r *requestDER) {
			r.attributes = [][]byte{attributeDER(oid.ChallengePassword, element(12, []byte("a")), element(12, []byte("a")))}
		}, checkRequestAttributes},
		"attribute value malformed": {func(r *requestDER) {
			r.attributes = [][]byte{attributeDER(oid.ChallengePassword, []byte{12, 2, 'a'})}
		}, checkRequestAttributes},
		"attributes out of order": {func(r *requestDER) {
			r.attributes = append(r.attributes, attributeDER(oid.ChallengePassword, element(12, []byte("a"))))
		}, checkRequestAttributes},
		"attribute type twice": {func(r *requestDER) {
			r.attributes = [][]byte{attributeDER(oid.ChallengePassword, element(12, []byte("a"))), attributeDER(oid.ChallengePassword, element(12, []byte("b")))}
		}, checkRequestAttributes},
		"two extension requests": {func(r *requestDER) {
			r.attributes = append(withExtensions(extension), r.attributes...)
		}, checkRequestAttributes},
		"two lists of extensions": {func(r *requestDER) {
			r.attributes = [][]byte{attributeDER(oid.ExtensionRequest, sequence(extension), sequence(extension, extensionDER(oid.SubjectKeyIdentifier, nil, nil)))}
		}, checkRequestAttributes},
		"empty list of extensions": {func(r *requestDER) { r.attributes = withExtensions() }, checkRequestAttributes},
		"extensions not a SEQUENCE": {func(r *requestDER) {
			r.attributes = [][]byte{attributeDER(oid.ExtensionRequest, element(0x31, extension))}
		}, checkRequestAttributes},
		"extension twice": {func(r *requestDER) { r.attributes = withExtensions(extension, extension) }, checkRequestExtensions},
		"extension twice, apart": {func(r *requestDER) {
			r.attributes = withExtensions(extension, extensionDER(oid.BasicConstraints, nil, []byte{0x30, 0}), extension)
		}, checkRequestExtensions},
		"critical FALSE written": {func(r *requestDER) { r.attributes = withExtensions(extensionDER(oid.KeyUsage, []byte{1, 1, 0}, nil)) }, checkRequestExtensions},
		"critical TRUE as 01":    {func(r *requestDER) { r.attributes = withExtensions(extensionDER(oid.KeyUsage, []byte{1, 1, 1}, nil)) }, checkRequestExtensions},
		"critical twice": {func(r *requestDER) {
			r.attributes = withExtensions(extensionDER(oid.KeyUsage, []byte{1, 1, 0xff, 1, 1, 0xff}, nil))
		}, checkRequestExtensions},
		"extension without value": {func(r *requestDER) { r.attributes = withExtensions(sequence(oidDER(oid.KeyUsage))) }, checkRequestExtensions},
		"extension value a BIT STRING": {func(r *requestDER) {
			r.attributes = withExtensions(sequence(oidDER(oid.KeyUsage), element(3, []byte{0})))
		}, checkRequestExtensions},
		"extension with more after": {func(r *requestDER) {
			r.attributes = withExtensions(sequence(oidDER(oid.KeyUsage), element(4), []byte{5, 0}))
		}, checkRequestExtensions},
		"extension not a SEQUENCE": {func(r *requestDER) { r.attributes = withExtensions([]byte{5, 0}) }, checkRequestExtensions},
		"provider ID twice": {func(r *requestDER) {
			e := extensionDER(oid.KubernetesNodeProviderIdentifier, nil, providerIDValue(t, "a"))
			r.attributes = withExtensions(e, e)
		}, checkRequestExtensions},
		"provider ID empty":     {func(r *requestDER) { r.attributes = providerIDAttribute(nil, []byte{12, 0}) }, checkProviderID},
		"provider ID not UTF-8": {func(r *requestDER) { r.attributes = providerIDAttribute(nil, []byte{12, 1, 0xff}) }, checkProviderID},
		"provider ID critical": {func(r *requestDER) {
			r.attributes = providerIDAttribute([]byte{1, 1, 0xff}, providerIDValue(t, "a"))
		}, checkProviderID},
		"provider ID bare": {func(r *requestDER) { r.attributes = providerIDAttribute(nil, []byte("a")) }, checkProviderID},
		"SAN with bytes after the names": {func(r *requestDER) {
			r.attributes = withExtensions(extensionDER(oid.SubjectAltName, nil, append(sequence([]byte("\x82\x01a")), 0)))
		}, checkRequestExtensions},
		"SAN with a second list": {func(r *requestDER) {
			r.attributes = withExtensions(extensionDER(oid.SubjectAltName, nil, append(sequence([]byte("\x82\x01a")), sequence([]byte("\x82\x01b"))...)))
		}, checkRequestExtensions},
		"SAN truncated": {func(r *requestDER) {
			r.attributes = withExtensions(extensionDER(oid.SubjectAltName, nil, []byte{0x30, 2, 0x82}))
		}, checkRequestExtensions},
		"SAN with half a name": {func(r *requestDER) {
			r.attributes = withExtensions(extensionDER(oid.SubjectAltName, nil, []byte{0x30, 1, 0x82}))
		}, checkRequestExtensions},
		"SAN a SET": {func(r *requestDER) {
			r.attributes = withExtensions(extensionDER(oid.SubjectAltName, nil, element(0x31, []byte("\x82\x01a"))))
		}, checkRequestExtensions},
		"SAN empty": {func(r *requestDER) {
			r.attributes = withExtensions(extensionDER(oid.SubjectAltName, nil, nil))
		}, checkRequestExtensions},
		"SAN with an address of five bytes": {func(r *requestDER) {
			r.attributes = withExtensions(extensionDER(oid.SubjectAltName, nil, sequence([]byte("\x87\x05abcde"))))
		}, checkRequestX509},
		"33 extensions": {func(r *requestDER) { r.attributes = withExtensions(manyExtensions(33)...) }, checkRequestExtensions},
		"17 attributes": {func(r *requestDER) { r.attributes = manyAttributes(17) }, checkRequestAttributes},
	} {
		t.Run(name, func(t *testing.T) {
			r := goodDER(t)
			test.change(r)
			p, err := ParsePKCS10(r.bytes())
			if p != nil {
				t.Error("ParsePKCS10 returns a request")
			}
			wantRule(t, name, err, test.want)
		})
	}
}

// The time to refuse a request grows with its length alone, however many parts it has.
func TestParsePKCS10CountsBeforeItCompares(t *testing.T) {
	for name, attributes := range map[string][][]byte{
		"extensions": withExtensions(manyExtensions(4000)...),
		"attributes": manyAttributes(4000),
	} {
		r := goodDER(t)
		r.attributes = attributes
		der := r.bytes()
		for parser, parse := range map[string]func([]byte) (*PKCS10, error){"ParsePKCS10": ParsePKCS10, "ParseForeignPKCS10": ParseForeignPKCS10} {
			var err error
			allocs := testing.AllocsPerRun(5, func() { _, err = parse(der) })
			if v := (*Error)(nil); !errors.As(err, &v) || !strings.HasPrefix(v.Got, "over ") || allocs > 200 {
				t.Errorf("%d %s, %d bytes, %s: %v, %v allocations", 4000, name, len(der), parser, err, allocs)
			}
		}
	}
}

// A subject, a list of names and an attribute of another's can be as long as the request may be:
// their elements are counted before anything is made of each.
func TestElementsOfRequests(t *testing.T) {
	for name, fill := range map[string]func(r *requestDER, n int){
		"attribute": func(r *requestDER, n int) { // SEQUENCE { OBJECT IDENTIFIER, SET { SEQUENCE { NULL … } } }
			r.attributes = [][]byte{attributeDER(oid.OID("\x2a\x03"), sequence(bytes.Repeat([]byte{5, 0}, n-4)))}
		},
		"names": func(r *requestDER, n int) { // and SEQUENCE { SEQUENCE { OBJECT IDENTIFIER, OCTET STRING { SEQUENCE { … } } } }
			r.attributes = withExtensions(extensionDER(oid.SubjectAltName, nil, sequence(bytes.Repeat([]byte("\x82\x01a"), n-8))))
		},
	} {
		for _, over := range []int{0, 1} {
			r := goodDER(t)
			r.attributes = nil
			bare, err := der.CountElements("a request", r.bytes(), maxElements)
			if err != nil {
				t.Fatal(err)
			}
			fill(r, maxElements-bare+over)
			if _, err := ParsePKCS10(r.bytes()); (over == 0) != (err == nil) || err != nil && !errors.Is(err, checkRequestSize) {
				t.Errorf("%s, %d over: %v", name, over, err)
			}
			if _, err := ParseForeignPKCS10(r.bytes()); err != nil {
				t.Errorf("%s, %d over, with evidence in it: %v", name, over, err)
			}
		}
	}
	r := goodDER(t)
	r.subject = sequence(bytes.Repeat(element(0x31, sequence([]byte("\x06\x03\x55\x04\x0a\x0c\x01a"))), 300))
	if _, err := ParsePKCS10(r.bytes()); !errors.Is(err, checkRequestSize) {
		t.Errorf("300 organizations: %v", err)
	}
}

func TestParsePKCS10RefusesOtherOuterForms(t *testing.T) {
	good := goodDER(t).bytes()
	if good[0] != 0x30 || good[1] != 0x82 {
		t.Fatalf("the request begins with %x", good[:2])
	}
	info, _, err := splitRequest(good)
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		der  []byte
		want Check
	}{
		"nothing":              {nil, checkRequestSize},
		"too long":             {append(bytes.Clone(good), make([]byte, maxRequestSize)...), checkRequestSize},
		"trailing byte":        {append(bytes.Clone(good), 0), checkRequestDER},
		"two requests":         {append(bytes.Clone(good), good...), checkRequestDER},
		"truncated":            {good[:len(good)-1], checkRequestDER},
		"indefinite length":    {append(append([]byte{0x30, 0x80}, good[4:]...), 0, 0), checkRequestDER},
		"length of four bytes": {append([]byte{0x30, 0x84, 0, 0}, good[2:]...), checkRequestDER},
		"huge length":          {append([]byte{0x30, 0x84, 0xff, 0xff, 0xff, 0xff}, good[4:]...), checkRequestDER},
		"length over 63 bits":  {append([]byte{0x30, 0x88, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, good[4:]...), checkRequestDER},
		"PEM":                  {block(BlockRequest, good), checkRequestDER},
		"info alone":           {info, checkRequestDER},
		"zeros":                {make([]byte, 1000), checkRequestDER},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := ParsePKCS10(test.der)
			wantRule(t, name, err, test.want)
		})
	}
}

func TestCheckSignature(t *testing.T) {
	r := goodDER(t)
	r.signature[len(r.signature)-1] ^= 1
	p, err := ParsePKCS10(r.bytes())
	if err != nil {
		t.Fatal(err)
	}
	wantRule(t, "signature changed", p.CheckSignature(), CheckSignature)
	wantRule(t, "zero request", new(PKCS10).CheckSignature(), CheckSignature)
	wantRule(t, "no request", (*PKCS10)(nil).CheckSignature(), CheckSignature)
}

func TestEd25519IsLeftToPolicy(t *testing.T) {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: "a"}}, key)
	if err != nil {
		t.Fatal(err)
	}
	p, err := ParsePKCS10(der)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.CheckSignature(); err != nil {
		t.Error(err)
	}
	sameAsParts(t, der, p)
}

func TestAttribute(t *testing.T) {
	r := goodDER(t)
	value := sequence([]byte{2, 1, 7})
	one := attributeDER(oid.IDAAAttestation, value)
	two := attributeDER(oid.ChallengePassword, element(12, []byte("a")), element(12, []byte("b")))
	r.attributes = append(r.attributes, one, two)
	slices.SortFunc(r.attributes, bytes.Compare)
	p, err := ParsePKCS10(r.bytes())
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(p.OtherAttributes)
	if diff := cmp.Diff([]oid.OID{oid.ChallengePassword, oid.IDAAAttestation}, p.OtherAttributes); diff != "" {
		t.Error(diff)
	}
	if got, ok := p.Attribute(oid.IDAAAttestation); !ok || !bytes.Equal(got, value) {
		t.Errorf("value %x, %v", got, ok)
	}
	for _, id := range []oid.OID{oid.ChallengePassword, oid.KeyUsage, ""} {
		if got, ok := p.Attribute(id); ok {
			t.Errorf("%v has value %x", id, got)
		}
	}
	if p.ProviderID == "" {
		t.Error("the provider ID is gone")
	}
}

func TestParsePKCS10OfTheDraftsSample(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(corpus(t), "lamps/tcg-attest-certify-csr.pem"))
	if err != nil {
		t.Fatal(err)
	}
	der, _ := pem.Decode(text)
	if der == nil {
		t.Fatal("no PEM")
	}
	_, err = ParsePKCS10(der.Bytes)
	wantRule(t, "RSA without parameters", err, ruleSignatureAlgorithm)
	p, err := ParseForeignPKCS10(der.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.CheckSignature(); err != nil {
		t.Error(err)
	}
	value, ok := p.Attribute(oid.IDAAAttestation)
	if !ok || len(value) != 2649 || len(p.OtherAttributes) != 1 {
		t.Errorf("attribute of %d bytes, %v; %v", len(value), ok, p.OtherAttributes)
	}
	var names []string
	for i := range p.subject {
		names = append(names, string(p.subject[i].Value))
	}
	if got := strings.Join(names, ","); got != "ZZ,Province,Locality,ietf-lamps,ietf-lamps-csr,test-key1" {
		t.Errorf("subject %s", got)
	}
}
