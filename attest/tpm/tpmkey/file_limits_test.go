package tpmkey

import (
	"bytes"
	"encoding/pem"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-tpm/tpm2"
	"golang.org/x/crypto/cryptobyte/asn1"

	"github.com/nodeattest/nodeattest/attest/tpm/internal/tpmop"
	"github.com/nodeattest/nodeattest/attest/tpm/statement"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/internal/testkit/tpmlab"
	"github.com/nodeattest/nodeattest/internal/tpmwire"
)

// A key file is tried at each of its limits.
func TestTPMKeyFileAtItsLimits(t *testing.T) {
	ecc := tpm2.Marshal(softwareArea(t, nil))
	pcrs := keyPolicyStep{selections: []statement.PCRSelection{{Hash: tpm2.TPMAlgSHA256, Select: []byte{0x80, 0, 0}}}, digest: bytes.Repeat([]byte{7}, 32)}
	withSteps := func(n int) *File {
		var policy keyPolicy
		for range n {
			policy = append(policy, pcrs)
		}
		return &File{Policy: policy.statements(), Parent: tpm2.TPMRHOwner, Public: tpm2.Marshal(softwareArea(t, policy)), Private: []byte{1}}
	}
	file := func(change func(*File)) *File {
		f := &File{Parent: tpm2.TPMRHOwner, Public: ecc, Private: []byte{1}}
		change(f)
		return f
	}
	for name, c := range map[string]struct {
		f    *File
		good bool
	}{
		"a private part of 4096 bytes": {file(func(f *File) { f.Private = make([]byte, tpmop.MaxPrivateSize) }), true},
		"one of 4097":                  {file(func(f *File) { f.Private = make([]byte, tpmop.MaxPrivateSize+1) }), false},
		"none":                         {file(func(f *File) { f.Private = nil }), false},
		"a description of 1024 bytes":  {file(func(f *File) { f.Description = strings.Repeat("a", maxTPMKeyDescription) }), true},
		"one of 1025":                  {file(func(f *File) { f.Description = strings.Repeat("a", maxTPMKeyDescription+1) }), false},
		"eight statements":             {withSteps(maxTPMKeyPolicy), true},
		"nine statements":              {withSteps(maxTPMKeyPolicy + 1), false},
		"the first persistent handle":  {file(func(f *File) { f.Parent = 0x81000000 }), true},
		"the last persistent handle":   {file(func(f *File) { f.Parent = 0x81ffffff }), true},
		"one below":                    {file(func(f *File) { f.Parent = 0x80ffffff }), false},
		"one beyond":                   {file(func(f *File) { f.Parent = 0x82000000 }), false},
		"no parent":                    {file(func(f *File) { f.Parent = 0 }), false},
		"no public part":               {file(func(f *File) { f.Public = nil }), false},
		"all of the largest": {file(func(f *File) {
			f.Private, f.Description = make([]byte, tpmop.MaxPrivateSize), strings.Repeat("a", maxTPMKeyDescription)
		}), true},
	} {
		t.Run(name, func(t *testing.T) {
			b, err := c.f.Marshal()
			if c.good != (err == nil) || !c.good && !errors.Is(err, checkFile) {
				t.Errorf("got %d bytes, %v", len(b), err)
			}
			if len(b) > maxFileSize {
				t.Errorf("a file of %d bytes", len(b))
			}
			if _, err := Load(t.Context(), nil, c.f, LoadOptions{}); !c.good && !errors.Is(err, checkFile) {
				t.Errorf("load: got %v, want ErrTPMKeyFile", err)
			}
		})
	}
}

// Each element of a key file in another form.
func TestTPMKeyFileElements(t *testing.T) {
	good, err := keyFiles(t)["PCRs"].Marshal()
	testkit.NoError(t, err)
	block, _ := pem.Decode(good)
	const emptyAuth = "\xa0\x03\x01\x01\x00"
	statement := func(parts ...[]byte) string {
		return emptyAuth + string(tpmlab.Element(tagTPMKeyPolicy, tpmlab.Seq(tpmlab.Seq(parts...))))
	}
	code := tpmlab.Element(tagTPMKeyEmptyAuth, tpmlab.Element(asn1.INTEGER, []byte{1, 0x6b}))
	body := tpmlab.Element(tagTPMKeyPolicy, tpmlab.Octets(nil))
	plain, err := keyFiles(t)["no password"].Marshal()
	testkit.NoError(t, err)
	bare, _ := pem.Decode(plain)
	for name, form := range map[string]string{
		"a description in another string type": emptyAuth + string(tpmlab.Element(tagTPMKeyDescription, tpmlab.Element(asn1.PrintableString, []byte("a")))),
		"a description of two":                 emptyAuth + string(tpmlab.Element(tagTPMKeyDescription, append(tpmlab.Element(asn1.UTF8String, []byte("a")), tpmlab.Element(asn1.UTF8String, []byte("b"))...))),
		"a policy of no list":                  emptyAuth + string(tpmlab.Element(tagTPMKeyPolicy, tpmlab.Octets(code))),
		"a policy with something after":        emptyAuth + string(tpmlab.Element(tagTPMKeyPolicy, append(tpmlab.Seq(tpmlab.Seq(code, body)), 5, 0))),
		"a statement of no list":               emptyAuth + string(tpmlab.Element(tagTPMKeyPolicy, tpmlab.Seq(tpmlab.Octets(code)))),
		"a statement without its code":         statement(body),
		"a statement without its body":         statement(code),
		"a statement of three":                 statement(code, body, code),
		"a code that is no number":             statement(tpmlab.Element(tagTPMKeyEmptyAuth, tpmlab.Octets([]byte{1})), body),
		"two codes in one":                     statement(tpmlab.Element(tagTPMKeyEmptyAuth, append(tpmlab.Element(asn1.INTEGER, []byte{1}), tpmlab.Element(asn1.INTEGER, []byte{1})...)), body),
		"a body that is no string of octets":   statement(code, tpmlab.Element(tagTPMKeyPolicy, tpmlab.Element(asn1.INTEGER, []byte{1}))),
		"two bodies in one":                    statement(code, tpmlab.Element(tagTPMKeyPolicy, append(tpmlab.Octets(nil), tpmlab.Octets(nil)...))),
		"emptyAuth with something after":       "\xa0\x05\x01\x01\x00\x05\x00",
	} {
		t.Run(name, func(t *testing.T) {
			f, err := ParseFile(edited(t, bare.Bytes, "\xa0\x03\x01\x01\xff", form))
			if !errors.Is(err, checkFile) || f != nil {
				t.Errorf("got %v, want ErrTPMKeyFile", err)
			}
		})
	}
	// Around the very statement of the key's policy: a reader that ignored the extra elements would
	// accept the file.
	f, err := ParseFile(good)
	testkit.NoError(t, err)
	code = tpmlab.Element(tagTPMKeyEmptyAuth, tpmlab.Element(asn1.INTEGER, []byte{1, 0x7f}))
	parameters := tpmlab.Octets(f.Policy[0].Body)
	body = tpmlab.Element(tagTPMKeyPolicy, parameters)
	old := string(tpmlab.Element(tagTPMKeyPolicy, tpmlab.Seq(tpmlab.Seq(code, body))))
	null := []byte{5, 0}
	for name, form := range map[string][]byte{
		"a third in the statement": tpmlab.Element(tagTPMKeyPolicy, tpmlab.Seq(tpmlab.Seq(code, body, null))),
		"a second number":          tpmlab.Element(tagTPMKeyPolicy, tpmlab.Seq(tpmlab.Seq(tpmlab.Element(tagTPMKeyEmptyAuth, append(tpmlab.Element(asn1.INTEGER, []byte{1, 0x7f}), null...)), body))),
		"a second parameter":       tpmlab.Element(tagTPMKeyPolicy, tpmlab.Seq(tpmlab.Seq(code, tpmlab.Element(tagTPMKeyPolicy, append(bytes.Clone(parameters), null...))))),
		"something after the list": tpmlab.Element(tagTPMKeyPolicy, append(tpmlab.Seq(tpmlab.Seq(code, body)), null...)),
	} {
		t.Run(name, func(t *testing.T) {
			f, err := ParseFile(edited(t, block.Bytes, old, string(form)))
			if !errors.Is(err, checkFile) || f != nil {
				t.Errorf("got %v, want ErrTPMKeyFile", err)
			}
		})
	}
}

// The parameters of TPM2_PolicyPCR at each limit.
func TestKeyPolicyParameters(t *testing.T) {
	digest := "\x00\x20" + strings.Repeat("d", 32)
	selection := "\x00\x0b\x03\x80\x00\x00"
	list := func(n int, one string) string { return "\x00\x00\x00" + string(rune(n)) + strings.Repeat(one, n) }
	for name, c := range map[string]struct {
		command tpm2.TPMCC
		body    string
		good    bool
	}{
		"one bank":                     {tpm2.TPMCCPolicyPCR, digest + list(1, selection), true},
		"sixteen banks":                {tpm2.TPMCCPolicyPCR, digest + list(tpmwire.MaxPCRBanks, selection), true},
		"seventeen":                    {tpm2.TPMCCPolicyPCR, digest + list(tpmwire.MaxPCRBanks+1, selection), false},
		"none":                         {tpm2.TPMCCPolicyPCR, digest + list(0, selection), false},
		"one octet":                    {tpm2.TPMCCPolicyPCR, digest + list(1, "\x00\x0b\x01\x80"), true},
		"four octets":                  {tpm2.TPMCCPolicyPCR, digest + list(1, "\x00\x0b\x04\x80\x00\x00\x00"), true},
		"five octets":                  {tpm2.TPMCCPolicyPCR, digest + list(1, "\x00\x0b\x05\x80\x00\x00\x00\x00"), false},
		"no octet":                     {tpm2.TPMCCPolicyPCR, digest + list(1, "\x00\x0b\x00"), false},
		"a selection that ends":        {tpm2.TPMCCPolicyPCR, digest + list(1, "\x00\x0b\x03\x80"), false},
		"a bank that ends":             {tpm2.TPMCCPolicyPCR, digest + list(1, "\x00"), false},
		"one bank fewer than it says":  {tpm2.TPMCCPolicyPCR, digest + "\x00\x00\x00\x02" + selection, false},
		"a count that ends":            {tpm2.TPMCCPolicyPCR, digest + "\x00\x00\x00", false},
		"something after":              {tpm2.TPMCCPolicyPCR, digest + list(1, selection) + "\x00", false},
		"a digest of 64 bytes":         {tpm2.TPMCCPolicyPCR, "\x00\x40" + strings.Repeat("d", tpmwire.MaxDigestSize) + list(1, selection), true},
		"a digest of 65 bytes":         {tpm2.TPMCCPolicyPCR, "\x00\x41" + strings.Repeat("d", tpmwire.MaxDigestSize+1) + list(1, selection), false},
		"a digest that ends":           {tpm2.TPMCCPolicyPCR, "\x00\x20d", false},
		"nothing":                      {tpm2.TPMCCPolicyPCR, "", false},
		"a password":                   {tpm2.TPMCCPolicyAuthValue, "", true},
		"a password with parameters":   {tpm2.TPMCCPolicyAuthValue, "\x00", false},
		"another command":              {tpm2.TPMCCPolicySecret, "", false},
		"another command's parameters": {tpm2.TPMCCPolicySecret, digest + list(1, selection), false},
	} {
		t.Run(name, func(t *testing.T) {
			in := []PolicyCommand{{Command: c.command, Body: []byte(c.body)}}
			p, err := parseKeyPolicy(in)
			if c.good != (err == nil) || (p == nil) != (err != nil) {
				t.Fatalf("got %v, %v", p, err)
			}
			if !c.good {
				return
			}
			again := p.statements()
			if len(again) != 1 || again[0].Command != c.command || string(again[0].Body) != c.body {
				t.Errorf("again: %x, %v", again, err)
			}
		})
	}
}
