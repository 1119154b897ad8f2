package tpmcert

import (
	"bytes"
	"crypto/ed25519"
	"crypto/x509"
	"crypto/x509/pkix"
	encoding "encoding/asn1"
	"strings"
	"testing"

	"golang.org/x/crypto/cryptobyte/asn1"

	"github.com/nodeattest/nodeattest/internal/der"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/internal/testkit/tpmlab"
	"github.com/nodeattest/nodeattest/oid"
	"github.com/nodeattest/nodeattest/refusal"
)

// A malformed list of each form: nothing is left out or added, and the refusal names the fault,
// whether it is crypto/x509's or ours.
func TestFormOfLists(t *testing.T) {
	root := tpmlab.Sign(t, nil, "root", crlSigner)
	der := crlOf(t, root, nil, 1)
	if _, err := parseCRL(der); err != nil {
		t.Fatal(err)
	}
	outer := elements(t, der)
	tbs := elements(t, outer[0])
	if len(outer) != 3 || len(tbs) != 7 {
		t.Fatalf("%d and %d elements", len(outer), len(tbs))
	}
	list := func(tbs ...[]byte) []byte { return tpmlab.Seq(tpmlab.Seq(tbs...), outer[1], outer[2]) }
	generalized := tpmlab.Element(asn1.GeneralizedTime, []byte("20260101000000Z"))
	entry := func(parts ...[]byte) []byte {
		return list(tbs[0], tbs[1], tbs[2], tbs[3], tbs[4], tpmlab.Seq(tpmlab.Seq(parts...)), tbs[6])
	}
	serial, null := tpmlab.Element(asn1.INTEGER, []byte{7}), []byte{5, 0}
	const noList, noTBS, noSignature = "no DER, or bytes after the list", "no TBSCertList", "no signature, or bytes after it"
	for name, c := range map[string]struct {
		der []byte
		bad string
	}{
		"nothing":                      {nil, noList},
		"no list":                      {tpmlab.Octets(der), noList},
		"an empty list":                {tpmlab.Seq(), noList},
		"a byte after":                 {append(bytes.Clone(der), 0), noList},
		"no TBSCertList":               {tpmlab.Seq(tpmlab.Octets(outer[0]), outer[1], outer[2]), noList},
		"no algorithm":                 {tpmlab.Seq(outer[0]), noTBS},
		"an algorithm of no list":      {tpmlab.Seq(outer[0], tpmlab.Octets(nil), outer[2]), noTBS},
		"no signature":                 {tpmlab.Seq(outer[0], outer[1]), noSignature},
		"a signature of octets":        {tpmlab.Seq(outer[0], outer[1], tpmlab.Octets(nil)), noSignature},
		"a second signature":           {tpmlab.Seq(outer[0], outer[1], outer[2], outer[2]), noSignature},
		"nothing in it":                {list(), noTBS},
		"three elements":               {list(tbs[:3]...), noTBS},
		"a nextUpdate that ends":       {list(tbs[0], tbs[1], tbs[2], tbs[3], []byte{byte(asn1.UTCTime), 100}), noTBS},
		"entries that end":             {list(tbs[0], tbs[1], tbs[2], tbs[3], tbs[4], []byte{0x30, 100}), noTBS},
		"extensions that end":          {list(tbs[0], tbs[1], tbs[2], tbs[3], tbs[4], tbs[5], []byte{byte(tagCRLExtensions), 100}), noTBS},
		"something for the extensions": {list(tbs[0], tbs[1], tbs[2], tbs[3], tbs[4], tbs[5], null), noTBS},
		"something after them":         {list(tbs[0], tbs[1], tbs[2], tbs[3], tbs[4], tbs[5], tbs[6], null), noTBS},
		"extensions twice":             {list(tbs[0], tbs[1], tbs[2], tbs[3], tbs[4], tbs[5], tbs[6], tbs[6]), noTBS},
		"no nextUpdate":                {list(tbs[0], tbs[1], tbs[2], tbs[3], tbs[5], tbs[6]), "no nextUpdate"},
		"an entry of a later time":     {entry(serial, generalized), ""},
		"an entry of no time":          {entry(serial, tpmlab.Element(asn1.Tag(22), []byte("20260101000000Z"))), errEntry.Error()},
		"an entry of graphic text":     {entry(serial, tpmlab.Element(asn1.Tag(25), []byte("20260101000000Z"))), errEntry.Error()},
		"an entry that is no list":     {list(tbs[0], tbs[1], tbs[2], tbs[3], tbs[4], tpmlab.Seq(tpmlab.Octets(nil)), tbs[6]), errEntry.Error()},
		"an entry without a time":      {entry(serial), errEntry.Error()},
		"an entry without a number":    {entry(generalized), errEntry.Error()},
		"empty extensions of an entry": {entry(serial, generalized, tpmlab.Seq()), errEntry.Error()},
		"an extension of no list":      {entry(serial, generalized, tpmlab.Seq(tpmlab.Octets(nil))), errEntry.Error()},
		"extensions of no list":        {entry(serial, generalized, tpmlab.Octets(nil)), errEntry.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := parseCRL(c.der)
			if (c.bad == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), c.bad) {
				t.Errorf("got %v, want %s", err, c.bad)
			}
		})
	}
}

// A name that ends within itself, of a form that is passed over, and attributes without
// a value.
func TestNamesThatEnd(t *testing.T) {
	id := func(v string) []byte {
		var oidBytes encoding.ObjectIdentifier
		for part := range strings.SplitSeq(v, ".") {
			n := 0
			for _, digit := range part {
				n = 10*n + int(digit-'0')
			}
			oidBytes = append(oidBytes, n)
		}
		der, err := encoding.Marshal(oidBytes)
		testkit.NoError(t, err)
		return der
	}
	directory := func(attribute []byte) []byte {
		return tpmlab.Seq(tpmlab.Element(tagDirectoryName, tpmlab.Seq(tpmlab.Element(asn1.SET, attribute))))
	}
	for name, value := range map[string][]byte{
		"a DNS name":                {0x30, 3, byte(tagDNSName), 100, 'a'},
		"a tag alone":               {0x30, 1, byte(tagDNSName)},
		"an unknown form":           {0x30, 3, 0x8f, 100, 'a'},
		"another attribute's value": directory(tpmlab.Seq(id("2.5.4.3"))),
		"a maker's value":           directory(tpmlab.Seq(id("2.23.133.2.1"))),
		"an attribute's end":        directory(tpmlab.Seq(id("2.5.4.3"), []byte{12, 100})),
		"two values":                directory(tpmlab.Seq(id("2.5.4.3"), utf8String("a"), utf8String("b"))),
		"no type":                   directory(tpmlab.Seq(utf8String("a"))),
		"no attribute":              directory(utf8String("a")),
	} {
		t.Run(name, func(t *testing.T) {
			_, err := parseSubjectAltName(withSAN(false, value))
			tpmlab.ExpectCheck(t, err, checkSubjectAltName)
		})
	}
	if _, err := parseSubjectAltName(withSAN(false, directory(tpmlab.Seq(id("2.5.4.3"), utf8String("a"))))); err != nil {
		t.Errorf("a common name: %v", err)
	}
}

// A bare EK is a SubjectPublicKeyInfo in its one encoding: what crypto/x509 passes over
// is refused, since the same key would have a second digest.
func TestEncodingsOfBareEKs(t *testing.T) {
	key := tpmlab.P256().Public()
	spki, err := x509.MarshalPKIXPublicKey(key)
	testkit.NoError(t, err)
	parts := elements(t, spki)
	algorithm := elements(t, parts[0])
	null := []byte{5, 0}
	ed, err := x509.MarshalPKIXPublicKey(ed25519.PublicKey(make([]byte, 32)))
	testkit.NoError(t, err)
	rsa, err := x509.MarshalPKIXPublicKey(tpmlab.RSA2048().Public())
	testkit.NoError(t, err)
	for name, c := range map[string]struct {
		der  []byte
		want refusal.Check
	}{
		"P-256":                       {spki, ""},
		"RSA":                         {rsa, ""},
		"nothing":                     {nil, checkEKKeyEncoding},
		"no key":                      {tpmlab.Seq(), checkEKKeyEncoding},
		"a byte after":                {append(bytes.Clone(spki), 0), checkEKKeyEncoding},
		"something after the key":     {tpmlab.Seq(parts[0], parts[1], null), checkEKKeyEncoding},
		"something after the curve":   {tpmlab.Seq(tpmlab.Seq(algorithm[0], algorithm[1], null), parts[1]), checkEKKeyEncoding},
		"Ed25519":                     {ed, refusal.Check("tpm-key-strength")},
		"the largest, no key in it":   {make([]byte, der.MaxPublicSize), checkEKKeyEncoding},
		"one byte more than may come": {make([]byte, der.MaxPublicSize+1), refusal.Check("message-size")},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := parseEKPublic(c.der)
			tpmlab.ExpectCheck(t, err, c.want)
		})
	}
}

func TestNumbersOfSpecifications(t *testing.T) {
	number := func(v byte) []byte { return tpmlab.Element(asn1.INTEGER, []byte{v}) }
	attributes := func(values ...[]byte) *x509.Certificate {
		id, err := encoding.Marshal(encoding.ObjectIdentifier{2, 23, 133, 2, 16})
		testkit.NoError(t, err)
		return &x509.Certificate{Extensions: []pkix.Extension{{Id: encoding.ObjectIdentifier{2, 5, 29, 9}, Value: tpmlab.Seq(tpmlab.Seq(id, tpmlab.Element(asn1.SET, tpmlab.Seq(values...))))}}}
	}
	family := utf8String("2.0")
	for name, c := range map[string]struct {
		cert *x509.Certificate
		want refusal.Check
	}{
		"as it should be":         {attributes(family, number(0), number(0)), ""},
		"a level of -1":           {attributes(family, number(0xff), number(1)), checkSpecification},
		"a revision of -1":        {attributes(family, number(0), number(0xff)), checkSpecification},
		"no revision":             {attributes(family, number(0)), checkSpecification},
		"a fourth":                {attributes(family, number(0), number(1), number(2)), checkSpecification},
		"no family":               {attributes(utf8String(""), number(0), number(1)), checkSpecification},
		"a family of 16 bytes":    {attributes(utf8String(strings.Repeat("2", 16)), number(0), number(1)), ""},
		"a family of 17 bytes":    {attributes(utf8String(strings.Repeat("2", 17)), number(0), number(1)), checkSpecification},
		"a family that is octets": {attributes(tpmlab.Octets([]byte("2.0")), number(0), number(1)), checkSpecification},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := parseSpecification(c.cert)
			tpmlab.ExpectCheck(t, err, c.want)
			if (s == nil) != (c.want != "") {
				t.Errorf("got %v", s)
			}
		})
	}
	if !oid.TCGAtTPMSpecification.Equal(encoding.ObjectIdentifier{2, 23, 133, 2, 16}) {
		t.Error("another attribute")
	}
}
