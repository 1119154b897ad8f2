package tpmkey

import (
	"bytes"

	"encoding/pem"
	"errors"

	"strings"
	"testing"

	"github.com/google/go-tpm/tpm2"
	"golang.org/x/crypto/cryptobyte/asn1"

	"github.com/nodeattest/nodeattest/internal/testkit/softak"
	"github.com/nodeattest/nodeattest/internal/testkit/tpmlab"
)

// Each way of spoiling a key file's form has a text of its own.
func TestParseTPMKeyFileSaysWhatIsWrong(t *testing.T) {
	good := otherKeyFile
	if _, err := ParseFile([]byte(good)); err != nil {
		t.Fatal(err)
	}
	lines := strings.SplitAfter(good, "\n")
	seen := map[string]string{}
	for name, c := range map[string]struct{ in, want string }{
		"CR LF":                  {strings.ReplaceAll(good, "\n", "\r\n"), "CR LF"},
		"a comment in front":     {"# key\n" + good, "text in front"},
		"an empty line in front": {"\n" + good, "empty lines in front"},
		"an empty line after":    {good + "\n", "empty lines after"},
		"text after":             {good + "# key\n", "text after"},
		"no line feed":           {strings.TrimSuffix(good, "\n"), "no line feed"},
		"a second block":         {good + good, "another block"},
		"a header":               {strings.Replace(good, "KEY-----\n", "KEY-----\nA: b\n\n", 1), "headers"},
		"an empty line inside":   {lines[0] + lines[1] + "\n" + strings.Join(lines[2:], ""), "empty line in it"},
		"other line lengths":     {lines[0] + strings.TrimSuffix(lines[1], "\n") + strings.Join(lines[2:], ""), "64 characters"},
		"no block":               {"# key\n", "no PEM block"},
	} {
		t.Run(name, func(t *testing.T) {
			f, err := ParseFile([]byte(c.in))
			if f != nil || !errors.Is(err, checkFile) || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("got %v, want ErrTPMKeyFile with %q", err, c.want)
			}
			if other := seen[err.Error()]; other != "" {
				t.Errorf("the same text as for %s: %v", other, err)
			}
			seen[err.Error()] = name
		})
	}
}

// A refusal names the faulty part of a key file.
func TestPartsOfTPMKeyFiles(t *testing.T) {
	public := softak.PublicArea(tpmlab.P256().Public(), softak.ResidentAttributes, softak.NoScheme).Raw
	sized := func(b []byte) []byte { return append([]byte{byte(len(b) >> 8), byte(len(b))}, b...) }
	keyType := tpmlab.Element(asn1.OBJECT_IDENTIFIER, []byte{0x67, 0x81, 0x05, 0x0a, 0x01, 0x03})
	parent := tpmlab.Element(asn1.INTEGER, []byte{0x40, 0, 0, 1})
	pub, priv := tpmlab.Octets(sized(public)), tpmlab.Octets(sized([]byte{1}))
	file := func(parts ...[]byte) []byte {
		return pem.EncodeToMemory(&pem.Block{Type: tpmKeyFileBlock, Bytes: tpmlab.Seq(parts...)})
	}
	explicit := func(tag asn1.Tag, parts ...[]byte) []byte { return tpmlab.Element(tag, bytes.Join(parts, nil)) }
	policy := func(statements ...[]byte) []byte {
		return file(keyType, explicit(tagTPMKeyPolicy, tpmlab.Seq(statements...)), parent, pub, priv)
	}
	number, null := tpmlab.Element(asn1.INTEGER, []byte{1}), []byte{5, 0}
	statement := func(code, body []byte) []byte { return tpmlab.Seq(code, body) }
	code, body := explicit(tagTPMKeyEmptyAuth, number), explicit(tagTPMKeyPolicy, tpmlab.Octets(nil))
	var nine [][]byte
	for range maxTPMKeyPolicy + 1 {
		nine = append(nine, statement(explicit(tagTPMKeyEmptyAuth, tpmlab.Element(asn1.INTEGER, []byte{1, 0x6b})), body))
	}
	const tail, badStatement = "it does not end with pubkey and privkey", "statement 1 is not a TPMPolicy"
	for name, c := range map[string]struct {
		in  []byte
		bad string
	}{
		"good":                          {file(keyType, parent, pub, priv), ""},
		"the largest":                   {make([]byte, maxFileSize), "no PEM block"},
		"one byte more":                 {make([]byte, maxFileSize+1), "it has 16385 bytes"},
		"something after":               {append(file(keyType, parent, pub, priv), "#\n"...), "there is text"},
		"no list":                       {pem.EncodeToMemory(&pem.Block{Type: tpmKeyFileBlock, Bytes: null}), "it is not one DER SEQUENCE"},
		"no private part":               {file(keyType, parent, pub), tail},
		"no part":                       {file(keyType, parent), tail},
		"a public part of no octets":    {file(keyType, parent, null, priv), tail},
		"a third part":                  {file(keyType, parent, pub, priv, priv), tail},
		"an empty public part":          {file(keyType, parent, tpmlab.Octets(nil), priv), "pubkey is not a TPM2B_PUBLIC"},
		"a public part without a size":  {file(keyType, parent, tpmlab.Octets(public), priv), "pubkey is not a TPM2B_PUBLIC"},
		"an empty private part":         {file(keyType, parent, pub, tpmlab.Octets(nil)), "privkey is not a TPM2B_PRIVATE"},
		"a private part of one byte":    {file(keyType, parent, pub, tpmlab.Octets([]byte{1})), "privkey is not a TPM2B_PRIVATE"},
		"emptyAuth that ends":           {file(keyType, []byte{byte(tagTPMKeyEmptyAuth), 100}), "emptyAuth is not a BOOLEAN"},
		"a description that ends":       {file(keyType, []byte{byte(tagTPMKeyDescription), 100}), "description is not a UTF8String"},
		"a policy that ends":            {file(keyType, []byte{byte(tagTPMKeyPolicy), 100}), "policy is not a SEQUENCE"},
		"a policy of no list":           {file(keyType, explicit(tagTPMKeyPolicy, null), parent, pub, priv), "policy is not a SEQUENCE"},
		"an empty policy":               {policy(), "policy is not a SEQUENCE"},
		"a statement of no list":        {policy(null), badStatement},
		"a statement of nothing":        {policy(tpmlab.Seq()), badStatement},
		"a statement without a code":    {policy(tpmlab.Seq(body)), badStatement},
		"a statement's code of no form": {policy(statement(explicit(tagTPMKeyEmptyAuth, null), body)), badStatement},
		"a statement without a body":    {policy(tpmlab.Seq(code)), badStatement},
		"a statement's body of no form": {policy(statement(code, explicit(tagTPMKeyPolicy, null))), badStatement},
		"a ninth statement":             {policy(nine...), "policy: more than 8 statements"},
		"eight statements":              {policy(nine[1:]...), "its commands have the digest"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := ParseFile(c.in)
			if c.bad == "" && err != nil || c.bad != "" && (!errors.Is(err, checkFile) || !strings.Contains(err.Error(), c.bad)) {
				t.Errorf("got %v, want %s", err, c.bad)
			}
		})
	}
	if _, err := (&File{Parent: tpm2.TPMRHOwner, Public: make([]byte, 1<<16), Private: []byte{1}}).Marshal(); !errors.Is(err, checkFile) {
		t.Errorf("over its size prefix: %v", err)
	}
}
