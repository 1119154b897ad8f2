package csr

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/x509"
	"errors"
	"math/big"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/cryptobyte"
	cryptobyteasn1 "golang.org/x/crypto/cryptobyte/asn1"

	"github.com/nodeattest/nodeattest/internal/der"
	"github.com/nodeattest/nodeattest/oid"
)

// TestParsePKCS10NamesTheFirstFault changes the tag or shape of one part, in ways that a
// later part of the parser, or crypto/x509, would stumble over as well.
func TestParsePKCS10NamesTheFirstFault(t *testing.T) {
	challenge := oid.OID("\x2a\x86\x48\x86\xf7\x0d\x01\x09\x07") // challengePassword
	value := element(12, []byte("x"))
	// An attribute, and the list of extensions, in other shapes.
	attribute := func(content ...[]byte) []byte { return sequence(content...) }
	extensions := func(content ...[]byte) [][]byte {
		return [][]byte{sequence(oidDER(oid.ExtensionRequest), element(0x31, sequence(content...)))}
	}
	providerID := element(4, providerIDValue(t, "test://1"))
	for name, c := range map[string]struct {
		attributes [][]byte
		want       Check
	}{
		"attribute":                       {[][]byte{attribute(oidDER(challenge), element(0x31, value))}, ""},
		"attribute a SET":                 {[][]byte{element(0x31, oidDER(challenge), element(0x31, value))}, checkRequestAttributes},
		"attribute truncated":             {[][]byte{{0x30, 9, 6, 1}}, checkRequestAttributes},
		"attribute of no type":            {[][]byte{attribute(element(0x31, value))}, checkRequestAttributes},
		"attribute of a number":           {[][]byte{attribute([]byte{2, 1, 1}, element(0x31, value))}, checkRequestAttributes},
		"attribute of a malformed type":   {[][]byte{attribute([]byte{6, 1, 0x80}, element(0x31, value))}, checkRequestAttributes},
		"attribute's values a SEQUENCE":   {[][]byte{attribute(oidDER(challenge), sequence(value))}, checkRequestAttributes},
		"attribute without values":        {[][]byte{attribute(oidDER(challenge))}, checkRequestAttributes},
		"attribute with values twice":     {[][]byte{attribute(oidDER(challenge), element(0x31, value), element(0x31, value))}, checkRequestAttributes},
		"attribute with a NULL after":     {[][]byte{attribute(oidDER(challenge), element(0x31, value), []byte{5, 0})}, checkRequestAttributes},
		"attribute's value truncated":     {[][]byte{attribute(oidDER(challenge), element(0x31, []byte{12, 9, 'x'}))}, checkRequestAttributes},
		"attribute twice":                 {[][]byte{attribute(oidDER(challenge), element(0x31, value)), attribute(oidDER(challenge), element(0x31, value))}, checkRequestAttributes},
		"extension":                       {extensions(sequence(oidDER(oid.KubernetesNodeProviderIdentifier), providerID)), ""},
		"extension a SET":                 {extensions(element(0x31, oidDER(oid.KubernetesNodeProviderIdentifier), providerID)), checkRequestExtensions},
		"extension of no type":            {extensions(sequence(providerID)), checkRequestExtensions},
		"extension of a number":           {extensions(sequence([]byte{2, 1, 1}, providerID)), checkRequestExtensions},
		"extension truncated":             {extensions([]byte{0x30, 9, 6, 1}), checkRequestExtensions},
		"extension with BOOLEAN 1":        {extensions(sequence(oidDER(oid.KubernetesNodeProviderIdentifier), []byte{1, 1, 1}, providerID)), checkRequestExtensions},
		"extension with BOOLEAN of two":   {extensions(sequence(oidDER(oid.KubernetesNodeProviderIdentifier), []byte{1, 2, 255, 255}, providerID)), checkRequestExtensions},
		"extension with a NULL after":     {extensions(sequence(oidDER(oid.KubernetesNodeProviderIdentifier), providerID, []byte{5, 0})), checkRequestExtensions},
		"extension without a value":       {extensions(sequence(oidDER(oid.KubernetesNodeProviderIdentifier))), checkRequestExtensions},
		"extension's value a BIT STRING":  {extensions(sequence(oidDER(oid.KubernetesNodeProviderIdentifier), element(3, []byte{0}))), checkRequestExtensions},
		"provider ID of another encoding": {extensions(sequence(oidDER(oid.KubernetesNodeProviderIdentifier), element(4, []byte{0x13, 1, 'x'}))), checkProviderID},
	} {
		t.Run(name, func(t *testing.T) {
			r := goodDER(t)
			r.attributes = c.attributes
			checkFault(t, r.bytes(), c.want)
		})
	}
}

// checkFault parses a request and wants the one rule, "" for none.
func checkFault(t *testing.T, der []byte, want Check) {
	t.Helper()
	_, err := ParsePKCS10(der)
	switch {
	case want == "" && err != nil:
		t.Errorf("refused: %v", err)
	case want != "" && !errors.Is(err, want):
		t.Errorf("got %v, want %v", err, want)
	}
}

// TestParsePKCS10TagsOfTheParts gives one part of a CertificationRequestInfo another tag,
// with its content as it was.
func TestParsePKCS10TagsOfTheParts(t *testing.T) {
	good, err := ParsePKCS10(clientRequest(t, keyP256()))
	if err != nil {
		t.Fatal(err)
	}
	parts := func() [][]byte {
		s := good.CSR
		return [][]byte{bytes.Clone(versionV1), bytes.Clone(s.RawSubject), bytes.Clone(s.RawSubjectPublicKeyInfo), {0xa0, 0}}
	}
	algorithm := sequence(oidDER(oid.ECDSAWithSHA256))
	request := func(parts [][]byte) []byte {
		return sequence(sequence(parts...), algorithm, element(3, []byte{0}, []byte{0x30, 0}))
	}
	checkFault(t, request(parts()), "")
	for i, tags := range [][]byte{{1, 10, 0x22}, {0x31, 4}, {0x31, 4}, {0xa1, 0x80, 0x31}} {
		for _, tag := range tags {
			p := parts()
			p[i][0] = tag
			checkFault(t, request(p), checkRequestDER)
		}
		checkFault(t, request(slices.Delete(parts(), i, i+1)), checkRequestDER)
	}
	p := parts()
	p[0] = []byte{2, 1, 1}
	checkFault(t, request(p), checkRequestVersion)
	checkFault(t, request(append(parts(), []byte{5, 0})), checkRequestDER)
	withoutAlgorithm := sequence(sequence(parts()...), element(3, []byte{0}, []byte{0x30, 0}))
	checkFault(t, withoutAlgorithm, checkRequestDER)
	if _, err := (&Bundle{Request: withoutAlgorithm, Provider: "tpm/v1", Data: []byte{0x30, 0}}).Marshal(); !errors.Is(err, checkRequestDER) {
		t.Errorf("in a bundle: got %v, want %v", err, checkRequestDER)
	}
}

// spkiRSA is the AlgorithmIdentifier of RSA keys.
var spkiRSA = []byte("\x30\x0d\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x01\x01\x05\x00")

// TestIsCanonicalSPKIOfRSA changes one thing of an encoding that is taken.
func TestIsCanonicalSPKIOfRSA(t *testing.T) {
	modulus, exponent := element(2, []byte{0, 0xc5}), element(2, []byte{1, 0, 1})
	key := sequence(modulus, exponent)
	bits := func(content []byte) []byte { return element(3, []byte{0}, content) }
	good := sequence(spkiRSA, bits(key))
	if !IsCanonicalSPKI(good) {
		t.Fatal("the good encoding is refused")
	}
	for name, spki := range map[string][]byte{
		"nothing":                     nil,
		"truncated":                   good[:len(good)-1],
		"a SET":                       append([]byte{0x31}, good[1:]...),
		"bytes after it":              append(bytes.Clone(good), 5, 0),
		"no algorithm":                sequence(bits(key)),
		"algorithm a SET":             sequence(append([]byte{0x31}, spkiRSA[1:]...), bits(key)),
		"another algorithm":           sequence(sequence(oidDER(oid.RSASSAPSS), []byte{5, 0}), bits(key)),
		"no key":                      sequence(spkiRSA),
		"key an OCTET STRING":         sequence(spkiRSA, element(4, []byte{0}, key)),
		"key with unused bits":        sequence(spkiRSA, element(3, []byte{1}, key)),
		"two keys":                    sequence(spkiRSA, bits(key), bits(key)),
		"NULL after the key":          sequence(spkiRSA, bits(key), []byte{5, 0}),
		"empty key":                   sequence(spkiRSA, bits(nil)),
		"numbers in a SET":            sequence(spkiRSA, bits(element(0x31, modulus, exponent))),
		"numbers without a SEQUENCE":  sequence(spkiRSA, bits(slices.Concat(modulus, exponent))),
		"NULL after the numbers":      sequence(spkiRSA, bits(append(bytes.Clone(key), 5, 0))),
		"no numbers":                  sequence(spkiRSA, bits(sequence())),
		"one number":                  sequence(spkiRSA, bits(sequence(modulus))),
		"three numbers":               sequence(spkiRSA, bits(sequence(modulus, exponent, exponent))),
		"modulus an ENUMERATED":       sequence(spkiRSA, bits(sequence(element(10, []byte{0, 0xc5}), exponent))),
		"modulus negative":            sequence(spkiRSA, bits(sequence(element(2, []byte{0xc5}), exponent))),
		"modulus zero":                sequence(spkiRSA, bits(sequence(element(2, []byte{0}), exponent))),
		"modulus not the shortest":    sequence(spkiRSA, bits(sequence(element(2, []byte{0, 0, 0xc5}), exponent))),
		"exponent an OCTET STRING":    sequence(spkiRSA, bits(sequence(modulus, element(4, []byte{1, 0, 1})))),
		"exponent zero":               sequence(spkiRSA, bits(sequence(modulus, element(2, []byte{0})))),
		"exponent zero, as no number": sequence(spkiRSA, bits(sequence(modulus, element(2, nil)))),
	} {
		t.Run(name, func(t *testing.T) {
			if IsCanonicalSPKI(spki) {
				t.Error("taken")
			}
		})
	}
}

// TestKeyIdentifierRefuses: an SPKI of another shape has no identifier.
func TestKeyIdentifierRefuses(t *testing.T) {
	bits := element(3, []byte{0, 1, 2})
	for name, spki := range map[string][]byte{
		"nothing":               nil,
		"a SET":                 element(0x31, sequence(), bits),
		"truncated":             {0x30, 9, 0x30, 0},
		"algorithm a SET":       sequence(element(0x31), bits),
		"no algorithm":          sequence(bits),
		"key an OCTET STRING":   sequence(sequence(), element(4, []byte{0, 1})),
		"no key":                sequence(sequence()),
		"key in part of a byte": sequence(sequence(), element(3, []byte{1, 2})),
	} {
		t.Run(name, func(t *testing.T) {
			if id, err := der.KeyIdentifier(spki); err == nil {
				t.Errorf("got %x, want an error", id)
			}
		})
	}
	if id, err := der.KeyIdentifier(sequence(sequence(), bits)); err != nil || len(id) != 20 {
		t.Errorf("good: got %x, %v", id, err)
	}
}

// TestTemplateNeedsACheckedRequest gives the last stage before the signature what no
// policy could have passed.
func TestTemplateNeedsACheckedRequest(t *testing.T) {
	good, err := ParsePKCS10(clientRequest(t, keyP256()))
	if err != nil {
		t.Fatal(err)
	}
	bad := &PKCS10{CSR: &x509.CertificateRequest{}}
	for name, c := range map[string]*Checked{
		"no purpose":   {pkcs10: good, nodeName: "node-1"},
		"no node name": {pkcs10: good, purpose: PurposeClient},
		"no key":       {pkcs10: bad, purpose: PurposeClient, nodeName: "node-1"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := new(CA).template(&Attested{checked: c}, time.Unix(0, 0)); !errors.Is(err, checkNotChecked) {
				t.Errorf("got %v, want %v", err, checkNotChecked)
			}
		})
	}
}

// TestCanonicalSPKIExponents: any positive exponent has an encoding; whether it is a good
// one is the policy's affair.
func TestCanonicalSPKIExponents(t *testing.T) {
	for exponent, ok := range map[int]bool{-1: false, 0: false, 1: true, 2: true} {
		if _, err := CanonicalSPKI(&rsa.PublicKey{N: big.NewInt(15), E: exponent}); ok != (err == nil) {
			t.Errorf("exponent %d: got %v", exponent, err)
		}
	}
}

func TestCanonicalSPKINeedsBothCoordinates(t *testing.T) {
	for name, key := range map[string]*ecdsa.PublicKey{
		"no x": {Curve: elliptic.P256(), Y: big.NewInt(1)},
		"no y": {Curve: elliptic.P256(), X: big.NewInt(1)},
	} {
		if _, err := CanonicalSPKI(key); !errors.Is(err, checkUnsupportedKey) {
			t.Errorf("%s: got %v, want %v", name, err, checkUnsupportedKey)
		}
	}
}

// TestProviderAlphabets tries every byte in a provider's name and version.
func TestProviderAlphabets(t *testing.T) {
	for b := range 256 {
		_, _, name := (&Bundle{Provider: "a" + string([]byte{byte(b)}) + "a/v1"}).ProviderVersion()
		if want := strings.IndexByte("abcdefghijklmnopqrstuvwxyz0123456789-", byte(b)) >= 0; (name == nil) != want {
			t.Errorf("byte %#x in a name: %v", b, name)
		}
		_, _, version := (&Bundle{Provider: "tpm/v1" + string([]byte{byte(b)})}).ProviderVersion()
		if want := strings.IndexByte("0123456789", byte(b)) >= 0; (version == nil) != want {
			t.Errorf("byte %#x in a version: %v", b, version)
		}
	}
}

// TestIsCanonicalSPKISizes gives keys of a fixed size a byte less and a byte more.
func TestIsCanonicalSPKISizes(t *testing.T) {
	for name, key := range map[string]crypto.PublicKey{"P-256": keyP256().Public(), "P-384": keyP384().Public(), "P-224": newECDSA(elliptic.P224()).Public(),
		"P-521": newECDSA(elliptic.P521()).Public(), "Ed25519": ed25519.PublicKey(make([]byte, 32))} {
		t.Run(name, func(t *testing.T) {
			good, err := CanonicalSPKI(key)
			if err != nil {
				t.Fatal(err)
			}
			whole := cryptobyte.String(good)
			var content, algorithm cryptobyte.String
			var bits []byte
			if !whole.ReadASN1(&content, cryptobyteasn1.SEQUENCE) || !content.ReadASN1Element(&algorithm, cryptobyteasn1.SEQUENCE) || !content.ReadASN1BitStringAsBytes(&bits) {
				t.Fatal("no SubjectPublicKeyInfo")
			}
			for size, ok := range map[int]bool{0: false, 1: false, len(bits) - 1: false, len(bits): true, len(bits) + 1: false} {
				again := append(bytes.Clone(bits), 0)[:size]
				if got := IsCanonicalSPKI(sequence(algorithm, element(3, []byte{0}, again))); got != ok {
					t.Errorf("%d bytes: %t", size, got)
				}
			}
		})
	}
}
