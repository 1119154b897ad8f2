package csr

import (
	"bytes"
	"crypto/elliptic"
	"errors"
	"math/big"
	"strings"
	"testing"

	"golang.org/x/crypto/cryptobyte"
	cryptobyteasn1 "golang.org/x/crypto/cryptobyte/asn1"

	"github.com/nodeattest/nodeattest/oid"
)

func TestParsePKCS10KeyAndAlgorithm(t *testing.T) {
	rsaParts, err := ParsePKCS10(clientRequest(t, keyRSA2()))
	if err != nil {
		t.Fatal(err)
	}
	ec := goodDER(t).spki
	rsaKey := rsaParts.CSR.RawSubjectPublicKeyInfo
	var rsaBits []byte
	content := cryptobyte.String(rsaKey)
	content.ReadASN1(&content, cryptobyteasn1.SEQUENCE)
	content.ReadASN1((*cryptobyte.String)(&rsaBits), cryptobyteasn1.SEQUENCE)
	content.ReadASN1BitStringAsBytes(&rsaBits)
	rsaAlgorithm := func(parameters ...byte) []byte { return sequence(oidDER(oid.RSAEncryption), parameters) }
	rsaWith := func(algorithm, bits []byte) []byte { return sequence(algorithm, element(3, []byte{0}, bits)) }
	modulus := keyBytes(t, rsaParts)
	compressed := elliptic.MarshalCompressed(elliptic.P256(), xOf(ec), yOf(ec))
	ecAlgorithm := sequence(oidDER(oid.ECPublicKey), oidDER(oid.CurveP256))
	for name, test := range map[string]struct {
		spki, algorithm []byte
		want            Check
	}{
		"good RSA":                     {rsaKey, sequence(oidDER(oid.SHA256WithRSA), []byte{5, 0}), ""},
		"good RSA, SHA-512":            {rsaKey, sequence(oidDER(oid.SHA512WithRSA), []byte{5, 0}), ""},
		"good ECDSA":                   {ec, sequence(oidDER(oid.ECDSAWithSHA256)), ""},
		"RSA without NULL":             {rsaWith(rsaAlgorithm(), rsaBits), sequence(oidDER(oid.SHA256WithRSA), []byte{5, 0}), checkRequestKey},
		"RSA NULL in long form":        {rsaWith(rsaAlgorithm(5, 0x81, 0), rsaBits), sequence(oidDER(oid.SHA256WithRSA), []byte{5, 0}), checkRequestKey},
		"RSA as RSAES-OAEP":            {rsaWith(sequence(oidDER(oid.RSAESOAEP), sequence()), rsaBits), sequence(oidDER(oid.SHA256WithRSA), []byte{5, 0}), checkRequestKey},
		"RSA as RSASSA-PSS":            {rsaWith(sequence(oidDER(oid.RSASSAPSS)), rsaBits), sequence(oidDER(oid.SHA256WithRSA), []byte{5, 0}), checkRequestKey},
		"RSA with bytes after":         {rsaWith(rsaAlgorithm(5, 0), append(bytes.Clone(rsaBits), 0)), sequence(oidDER(oid.SHA256WithRSA), []byte{5, 0}), checkRequestKey},
		"RSA modulus with zeros":       {rsaWith(rsaAlgorithm(5, 0), sequence(element(2, []byte{0, 0}, modulus), []byte{2, 3, 1, 0, 1})), sequence(oidDER(oid.SHA256WithRSA), []byte{5, 0}), checkRequestKey},
		"RSA modulus negative":         {rsaWith(rsaAlgorithm(5, 0), sequence(element(2, modulus), []byte{2, 3, 1, 0, 1})), sequence(oidDER(oid.SHA256WithRSA), []byte{5, 0}), checkRequestKey},
		"RSA exponent zero":            {rsaWith(rsaAlgorithm(5, 0), sequence(element(2, []byte{0}, modulus), []byte{2, 1, 0})), sequence(oidDER(oid.SHA256WithRSA), []byte{5, 0}), checkRequestKey},
		"RSA with a third number":      {rsaWith(rsaAlgorithm(5, 0), sequence(element(2, []byte{0}, modulus), []byte{2, 3, 1, 0, 1, 2, 1, 1})), sequence(oidDER(oid.SHA256WithRSA), []byte{5, 0}), checkRequestKey},
		"RSA of 8200 bits":             {rsaWith(rsaAlgorithm(5, 0), sequence(element(2, []byte{1}, make([]byte, 1024)), []byte{2, 3, 1, 0, 1})), sequence(oidDER(oid.SHA256WithRSA), []byte{5, 0}), checkRequestKey},
		"EC point compressed":          {sequence(ecAlgorithm, element(3, []byte{0}, compressed)), sequence(oidDER(oid.ECDSAWithSHA256)), checkRequestKey},
		"EC point hybrid":              {sequence(ecAlgorithm, element(3, []byte{0, 6}, ec[len(ec)-64:])), sequence(oidDER(oid.ECDSAWithSHA256)), checkRequestKey},
		"EC point off the curve":       {sequence(ecAlgorithm, element(3, []byte{0, 4}, make([]byte, 63), []byte{1})), sequence(oidDER(oid.ECDSAWithSHA256)), checkRequestX509},
		"EC with NULL":                 {sequence(sequence(oidDER(oid.ECPublicKey), []byte{5, 0}), element(3, []byte{0, 4}, ec[len(ec)-64:])), sequence(oidDER(oid.ECDSAWithSHA256)), checkRequestKey},
		"EC with explicit parameters":  {sequence(sequence(oidDER(oid.ECPublicKey), sequence([]byte{2, 1, 1})), element(3, []byte{0, 4}, ec[len(ec)-64:])), sequence(oidDER(oid.ECDSAWithSHA256)), checkRequestKey},
		"EC with unused bits":          {sequence(ecAlgorithm, element(3, []byte{1, 4}, ec[len(ec)-64:])), sequence(oidDER(oid.ECDSAWithSHA256)), checkRequestKey},
		"EC on a curve unknown":        {sequence(sequence(oidDER(oid.ECPublicKey), oidDER("\x2b\x81\x04\x00\x0a")), element(3, []byte{0, 4}, ec[len(ec)-64:])), sequence(oidDER(oid.ECDSAWithSHA256)), checkRequestKey},
		"empty key":                    {sequence(), sequence(oidDER(oid.ECDSAWithSHA256)), checkRequestKey},
		"ECDSA with NULL":              {ec, sequence(oidDER(oid.ECDSAWithSHA256), []byte{5, 0}), ruleSignatureAlgorithm},
		"ECDSA with SHA-1":             {ec, sequence(oidDER(oid.ECDSAWithSHA1)), ruleSignatureAlgorithm},
		"RSA signature without NULL":   {rsaKey, sequence(oidDER(oid.SHA256WithRSA)), ruleSignatureAlgorithm},
		"RSA signature, other NULL":    {rsaKey, sequence(oidDER(oid.SHA256WithRSA), []byte{4, 0}), ruleSignatureAlgorithm},
		"RSA signature, more after":    {rsaKey, sequence(oidDER(oid.SHA256WithRSA), []byte{5, 0, 5, 0}), ruleSignatureAlgorithm},
		"RSA with SHA-1":               {rsaKey, sequence(oidDER(oid.SHA1WithRSA), []byte{5, 0}), ruleSignatureAlgorithm},
		"RSASSA-PSS":                   {rsaKey, sequence(oidDER(oid.RSASSAPSS), sequence()), ruleSignatureAlgorithm},
		"RSA signature for an EC key":  {ec, sequence(oidDER(oid.SHA256WithRSA), []byte{5, 0}), ruleSignatureAlgorithm},
		"ECDSA for an RSA key":         {rsaKey, sequence(oidDER(oid.ECDSAWithSHA256)), ruleSignatureAlgorithm},
		"Ed25519 for an EC key":        {ec, sequence(oidDER(oid.Ed25519)), ruleSignatureAlgorithm},
		"empty algorithm":              {ec, sequence(), ruleSignatureAlgorithm},
		"algorithm is the key's":       {ec, ecAlgorithm, ruleSignatureAlgorithm},
		"algorithm with a second byte": {ec, sequence(oidDER(oid.ECDSAWithSHA256), []byte{0}), ruleSignatureAlgorithm},
	} {
		t.Run(name, func(t *testing.T) {
			r := goodDER(t)
			r.spki, r.algorithm = test.spki, test.algorithm
			_, err := ParsePKCS10(r.bytes())
			if test.want == "" {
				if err != nil {
					t.Errorf("%v", err)
				}
				return
			}
			wantRule(t, name, err, test.want)
		})
	}
}

func TestParseForeignPKCS10(t *testing.T) {
	p, err := ParsePKCS10(clientRequest(t, keyRSA2()))
	if err != nil {
		t.Fatal(err)
	}
	ec := goodDER(t)
	for name, test := range map[string]struct {
		spki, algorithm []byte
		want            Check
	}{
		"RSA with NULL":           {p.CSR.RawSubjectPublicKeyInfo, sequence(oidDER(oid.SHA256WithRSA), []byte{5, 0}), ""},
		"RSA without parameters":  {p.CSR.RawSubjectPublicKeyInfo, sequence(oidDER(oid.SHA384WithRSA)), ""},
		"RSA with SHA-1":          {p.CSR.RawSubjectPublicKeyInfo, sequence(oidDER(oid.SHA1WithRSA)), ruleSignatureAlgorithm},
		"RSA with something else": {p.CSR.RawSubjectPublicKeyInfo, sequence(oidDER(oid.SHA256WithRSA), []byte{2, 0}), ruleSignatureAlgorithm},
		"EC with RSA's":           {ec.spki, sequence(oidDER(oid.SHA256WithRSA)), ruleSignatureAlgorithm},
		"EC with NULL":            {ec.spki, sequence(oidDER(oid.ECDSAWithSHA256), []byte{5, 0}), ruleSignatureAlgorithm},
		"nothing":                 {ec.spki, sequence(), ruleSignatureAlgorithm},
		"RSA with nothing":        {p.CSR.RawSubjectPublicKeyInfo, sequence(), ruleSignatureAlgorithm},
	} {
		t.Run(name, func(t *testing.T) {
			ec.spki, ec.algorithm = test.spki, test.algorithm
			_, err := ParseForeignPKCS10(ec.bytes())
			if test.want == "" {
				if err != nil {
					t.Errorf("%v", err)
				}
				return
			}
			wantRule(t, name, err, test.want)
		})
	}
}

func xOf(spki []byte) *big.Int { return new(big.Int).SetBytes(spki[len(spki)-64 : len(spki)-32]) }
func yOf(spki []byte) *big.Int { return new(big.Int).SetBytes(spki[len(spki)-32:]) }

// keyBytes are the bytes of an RSA modulus, the first of which is over 0x7f.
func keyBytes(t *testing.T, p *PKCS10) []byte {
	t.Helper()
	key, ok := p.CSR.PublicKey.(interface{ Size() int })
	if !ok || key.Size() != 256 {
		t.Fatalf("no RSA-2048 key: %T", p.CSR.PublicKey)
	}
	i := bytes.Index(p.CSR.RawSubjectPublicKeyInfo, []byte("\x02\x82\x01\x01\x00"))
	return p.CSR.RawSubjectPublicKeyInfo[i+5 : i+5+256]
}

// TestKeyRefusalsName says what people read of a key or signature that is not taken: its
// algorithm's name, not its bytes.
func TestKeyRefusalsName(t *testing.T) {
	point := element(3, []byte{0, 4}, make([]byte, 64))
	rsaSHA256 := sequence(oidDER(oid.SHA256WithRSA), []byte{5, 0})
	for name, c := range map[string]struct {
		spki, algorithm []byte
		rule            Check
		want            string // a part of the error's Got
	}{
		"secp256k1":             {sequence(sequence(oidDER(oid.ECPublicKey), oidDER("\x2b\x81\x04\x00\x0a")), point), rsaSHA256, checkRequestKey, "on 1.3.132.0.10"},
		"RSASSA-PSS":            {sequence(sequence(oidDER(oid.RSASSAPSS)), point), rsaSHA256, checkRequestKey, "1.2.840.113549.1.1.10 "},
		"RSA without NULL":      {sequence(sequence(oidDER(oid.RSAEncryption)), point), rsaSHA256, checkRequestKey, "1.2.840.113549.1.1.1 rsaEncryption"},
		"a curve written out":   {sequence(sequence(oidDER(oid.ECPublicKey), sequence([]byte{2, 1, 1})), point), rsaSHA256, checkRequestKey, "1.2.840.10045.2.1 "},
		"no algorithm":          {sequence(sequence(), point), rsaSHA256, checkRequestKey, "malformed algorithm 3000"},
		"nothing":               {sequence(), rsaSHA256, checkRequestKey, "malformed SubjectPublicKeyInfo"},
		"a signature's SHA-1":   {goodDER(t).spki, sequence(oidDER(oid.ECDSAWithSHA1)), ruleSignatureAlgorithm, "1.2.840.10045.4.1 "},
		"a signature with NULL": {goodDER(t).spki, sequence(oidDER(oid.ECDSAWithSHA256), []byte{5, 0}), ruleSignatureAlgorithm, "1.2.840.10045.4.3.2 ecdsa-with-SHA256 ("},
	} {
		t.Run(name, func(t *testing.T) {
			r := goodDER(t)
			r.spki, r.algorithm = c.spki, c.algorithm
			_, err := ParsePKCS10(r.bytes())
			v, ok := errors.AsType[*Error](err)
			if !ok || v.Check != c.rule || !strings.Contains(v.Got, c.want) {
				t.Errorf("got %v, want %s with %q", err, c.rule, c.want)
			}
			if ok && strings.ContainsAny(v.Got, "\\\"\x00\x03\x04") {
				t.Errorf("bytes as they came in %q", v.Got)
			}
		})
	}
}
