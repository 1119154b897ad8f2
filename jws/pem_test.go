package jws

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"strings"
	"testing"
)

// block is a public key in PEM.
func block(t testing.TB, public any) string {
	t.Helper()
	der, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
}

func TestParsePEM(t *testing.T) {
	all := ""
	algorithms := []Algorithm{RS256, ES256, ES384, ES512, EdDSA}
	for _, algorithm := range algorithms {
		public := forgers()[algorithm].signer.Public()
		text := block(t, public)
		all += text
		for _, text := range []string{text, strings.TrimSpace(text), "\n \r\n" + text + "\n\n"} {
			keys, err := ParsePEM([]byte(text))
			if err != nil || len(keys) != 1 {
				t.Fatalf("%s: %v", text, err)
			}
			want, err := deriveKeyID(public)
			if err != nil || keys[0].KeyID() != want || keys[0].Algorithm() != algorithm {
				t.Errorf("got %s %s, want %s %s (%v)", keys[0].Algorithm(), keys[0].KeyID(), algorithm, want, err)
			}
		}
	}
	keys, err := ParsePEM([]byte(all))
	if err != nil || len(keys) != len(algorithms) {
		t.Fatalf("%d keys, %v", len(keys), err)
	}
	for i, k := range keys {
		if k.Algorithm() != algorithms[i] {
			t.Errorf("key %d: got %s", i, k.Algorithm())
		}
	}
}

// withElement adds NULL to a SEQUENCE, at its end, where crypto/x509 passes over it.
func withElement(der []byte) []byte {
	longer := append(bytes.Clone(der), 5, 0)
	longer[1] += 2
	return longer
}

func TestParsePEMRefused(t *testing.T) {
	good := block(t, forgers()[ES256].signer.Public())
	rsaPublic := forgers()[RS256].signer.Public().(*rsa.PublicKey)
	encode := func(kind string, der []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
	}
	p224, err := ecdsa.GenerateKey(elliptic.P224(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	weak, err := x509.MarshalPKIXPublicKey(&rsa.PublicKey{N: rocaModulus(t), E: 3})
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(forgers()[ES256].signer)
	if err != nil {
		t.Fatal(err)
	}
	der, _ := pem.Decode([]byte(good))
	lines := strings.SplitAfter(good, "\n")
	for name, test := range map[string]struct {
		text string
		want Check
	}{
		"nothing":             {"", checkPEM},
		"white space":         {" \n", checkPEM},
		"text":                {"a key", checkPEM},
		"DER":                 {string(der.Bytes), checkPEM},
		"cut off":             {good[:len(good)-9], checkPEM},
		"text before":         {"a key\n" + good, checkPEM},
		"text after":          {good + "a key\n", checkPEM},
		"text between":        {good + "a key\n" + block(t, rsaPublic), checkPEM},
		"broken before":       {"-----BEGIN PUBLIC KEY-----\n" + good, checkPEM},
		"broken after":        {good + "-----BEGIN PUBLIC KEY-----\n", checkPEM},
		"a header":            {lines[0] + "A: b\n\n" + strings.Join(lines[1:], ""), checkPEM},
		"a header of nothing": {lines[0] + "\n" + strings.Join(lines[1:], ""), checkPEM},
		"CR LF":               {strings.ReplaceAll(good, "\n", "\r\n"), checkPEM},
		"other lines":         {lines[0] + lines[1][:10] + "\n" + lines[1][10:] + strings.Join(lines[2:], ""), checkPEM},
		"trailing space":      {strings.Replace(good, "\n", " \n", 1), checkPEM},
		"no public key":       {encode("PUBLIC KEY", []byte{0x30, 0}), checkPEM},
		"empty":               {encode("PUBLIC KEY", nil), checkPEM},
		"bytes after DER":     {encode("PUBLIC KEY", append(bytes.Clone(der.Bytes), 0)), checkPEM},
		"an element too many": {encode("PUBLIC KEY", withElement(der.Bytes)), checkPEM},
		"PKCS 1":              {encode("RSA PUBLIC KEY", x509.MarshalPKCS1PublicKey(rsaPublic)), checkPEM},
		"a certificate":       {encode("CERTIFICATE", der.Bytes), checkPEM},
		"a private key":       {encode("PRIVATE KEY", private), checkPrivate},
		"an EC private key":   {encode("EC PRIVATE KEY", private), checkPrivate},
		"an RSA private key":  {good + encode("RSA PRIVATE KEY", private), checkPrivate},
		"P-224":               {block(t, p224.Public()), checkKeyType},
		"a weak key":          {encode("PUBLIC KEY", weak), checkKey},
		"one key twice":       {good + good, checkKeySet},
		"too long":            {good + strings.Repeat("\n", MaxPEMSize), checkPEM},
	} {
		t.Run(name, func(t *testing.T) {
			keys, err := ParsePEM([]byte(test.text))
			refusedFor(t, name, err, test.want)
			if keys != nil {
				t.Errorf("%s: keys beside the error", name)
			}
		})
	}
}

func TestParsePEMTooMany(t *testing.T) {
	var text strings.Builder
	for i := range MaxJWKSKeys + 1 {
		public := make([]byte, 32)
		copy(public, fmt.Sprint(i))
		if i == MaxJWKSKeys {
			if keys, err := ParsePEM([]byte(text.String())); err != nil || len(keys) != i {
				t.Errorf("%d keys: %v", i, err)
			}
		}
		text.WriteString(block(t, ed25519.PublicKey(public)))
	}
	_, err := ParsePEM([]byte(text.String()))
	refusedFor(t, "too many", err, checkPEM)
}

// FuzzParsePEM: what is accepted is, but for white space around blocks, what one would
// write.
func FuzzParsePEM(f *testing.F) {
	for _, algorithm := range []Algorithm{RS256, ES256, ES512, EdDSA} {
		f.Add([]byte(block(f, forgers()[algorithm].signer.Public())))
	}
	f.Add([]byte(block(f, forgers()[ES256].signer.Public()) + "\n" + block(f, forgers()[EdDSA].signer.Public())))
	f.Add([]byte("-----BEGIN PUBLIC KEY-----\n-----END PUBLIC KEY-----\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		keys, err := ParsePEM(text)
		if err != nil {
			if keys != nil {
				t.Fatal("keys beside the error")
			}
			return
		}
		rest := bytes.TrimSpace(text)
		for _, k := range keys {
			want := []byte(strings.TrimSpace(block(t, k.Public())))
			if !bytes.HasPrefix(rest, want) {
				t.Fatalf("%q is not %q", rest, want)
			}
			rest = bytes.TrimSpace(rest[len(want):])
		}
		if len(rest) > 0 || len(keys) == 0 {
			t.Fatalf("%d keys and %q", len(keys), rest)
		}
	})
}
