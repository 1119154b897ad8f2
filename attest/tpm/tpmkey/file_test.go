package tpmkey

import (
	"bytes"
	"encoding/pem"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/google/go-tpm/tpm2"
	"golang.org/x/crypto/cryptobyte"
	"golang.org/x/crypto/cryptobyte/asn1"

	"github.com/nodeattest/nodeattest/attest/tpm/internal/tpmop"
	"github.com/nodeattest/nodeattest/attest/tpm/statement"
	"github.com/nodeattest/nodeattest/internal/der"
	"github.com/nodeattest/nodeattest/internal/message"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/internal/testkit/tpmlab"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// otherKeyFile was written by OpenSSL 3.0 with tpm2-openssl 1.1.1 on swtpm: P-256
// under the owner's storage key, with an emptyAuth of 01.
const otherKeyFile = `-----BEGIN TSS2 PRIVATE KEY-----
MIHwBgZngQUKAQOgAwEBAQIEQAAAAQRYAFYAIwALAAYAcgAAABAAEAADABAAID8i
v02k3nfpw4PoYR5M07D/26ApyNLDFIdfe1cfw7uJACChae3HCSa1idyyapZlUFan
FvGhknO4uwQbcqwqpbKrbQSBgAB+ACAQYAdtbnsPQHZvlqj9rKbCq4DgH4K7yS8s
JyCQ+8ZPvAAQqcad9AOw1VxaErKfpeMMFk4TZJpOqFhG64I8hzbG8rbzc3DE8BMV
dvSBaHfEAQF6NT5l6t/FcTOkhTxjYvNpIzuXu49IPSHUi2uv74wL6b2xDN/vWO/L
POx+
-----END TSS2 PRIVATE KEY-----
`

// keyFiles are good ones, of each form.
func keyFiles(t testing.TB) map[string]*File {
	t.Helper()
	ecc := tpm2.Marshal(softwareArea(t, nil))
	pcrs := keyPolicyStep{selections: []statement.PCRSelection{{Hash: tpm2.TPMAlgSHA256, Select: []byte{0x80, 0, 0}}}, digest: bytes.Repeat([]byte{7}, 32)}
	withPolicy := func(steps ...keyPolicyStep) *File {
		policy := keyPolicy(steps)
		return &File{Policy: policy.statements(), Parent: tpm2.TPMRHOwner, Public: tpm2.Marshal(softwareArea(t, policy)), Private: []byte{1}}
	}
	other, err := ParseFile([]byte(otherKeyFile))
	testkit.NoError(t, err)
	return map[string]*File{
		"no password":     {EmptyAuth: true, Parent: tpm2.TPMRHOwner, Public: ecc, Private: []byte{1, 2, 3}},
		"password":        {Parent: 0x81000001, Public: ecc, Private: []byte{1, 2, 3}, Description: "kubelet's"},
		"PCRs":            withPolicy(pcrs),
		"PCRs, password":  withPolicy(pcrs, keyPolicyStep{}),
		"another program": other,
	}
}

// softwareArea is a key's public area, with a policy or without.
func softwareArea(t testing.TB, policy keyPolicy) *tpm2.TPMTPublic {
	t.Helper()
	area, err := ECDSAP256.area()
	testkit.NoError(t, err)
	point, err := tpmlab.NewECDSA(t, p256).PublicKey.Bytes()
	testkit.NoError(t, err)
	area.Unique = tpmop.ECCKeyArea(tpm2.TPMSECCParms{}, area.ObjectAttributes, point[1:33], point[33:]).Unique
	if policy != nil {
		area.ObjectAttributes.UserWithAuth = false
		digest, err := policy.digest(area.NameAlg)
		testkit.NoError(t, err)
		area.AuthPolicy = tpm2.TPM2BDigest{Buffer: digest}
	}
	return area
}

func TestTPMKeyFileRoundTrip(t *testing.T) {
	for name, f := range keyFiles(t) {
		b, err := f.Marshal()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		got, err := ParseFile(b)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if diff := cmp.Diff(f, got, cmpopts.EquateEmpty(), cmp.AllowUnexported(File{})); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		if name == "another program" && string(b) != otherKeyFile {
			t.Errorf("%s: encoded again it is another file", name)
		}
	}
}

// The three ways to state no password and the two to state one (section 3.1.2 of
// the draft, and what OpenSSL writes).
func TestTPMKeyFileEmptyAuth(t *testing.T) {
	b, err := keyFiles(t)["no password"].Marshal()
	testkit.NoError(t, err)
	block, _ := pem.Decode(b)
	forms := map[string]bool{
		"\xa0\x03\x01\x01\xff": true, "\xa0\x03\x01\x01\x01": true, "\xa0\x03\x01\x01\x00": false, "": false,
	}
	for form, want := range forms {
		f, err := ParseFile(edited(t, block.Bytes, "\xa0\x03\x01\x01\xff", form))
		if err != nil || f.EmptyAuth != want {
			t.Fatalf("%x: got %+v, %v", form, f, err)
		}
		again, err := f.Marshal()
		if err != nil || !bytes.Equal(again, edited(t, block.Bytes, "\xa0\x03\x01\x01\xff", form)) {
			t.Errorf("%x: encoded again it is another file, %v", form, err)
		}
		f.EmptyAuth = !want // the form of the other value does not matter then
		if again, err = f.Marshal(); err != nil {
			t.Fatal(err)
		}
		if f, err = ParseFile(again); err != nil || f.EmptyAuth == want {
			t.Errorf("%x: changed, it is %v, %v", form, f.EmptyAuth, err)
		}
	}
	for _, form := range []string{"\xa0\x03\x01\x01\x02", "\xa0\x04\x01\x02\x00\x00", "\xa0\x02\x01\x00", "\xa0\x03\x02\x01\x01", "\xa0\x03\x01\x01\xff\xa0\x03\x01\x01\xff"} {
		if f, err := ParseFile(edited(t, block.Bytes, "\xa0\x03\x01\x01\xff", form)); !errors.Is(err, checkFile) {
			t.Errorf("%x: got %+v, %v", form, f, err)
		}
	}
}

// edited is the PEM of a file in which one part stands in place of another.
func edited(t testing.TB, der []byte, old, new string) []byte {
	t.Helper()
	in, body := cryptobyte.String(der), cryptobyte.String(nil)
	if !in.ReadASN1(&body, asn1.SEQUENCE) || bytes.Count(body, []byte(old)) != 1 {
		t.Fatalf("%x is not in it once", old)
	}
	var b cryptobyte.Builder
	b.AddASN1(asn1.SEQUENCE, func(b *cryptobyte.Builder) { b.AddBytes(bytes.Replace(body, []byte(old), []byte(new), 1)) })
	return pem.EncodeToMemory(&pem.Block{Type: tpmKeyFileBlock, Bytes: b.BytesOrPanic()})
}

func TestTPMKeyFileRefuses(t *testing.T) {
	good, err := keyFiles(t)["no password"].Marshal()
	testkit.NoError(t, err)
	block, _ := pem.Decode(good)
	edit := func(old, new string) []byte { return edited(t, block.Bytes, old, new) }
	const loadable, emptyAuth = "\x06\x06\x67\x81\x05\x0a\x01\x03", "\xa0\x03\x01\x01\xff"
	for name, tt := range map[string]struct {
		file []byte
		want string
	}{
		"nothing":             {nil, "no PEM block"},
		"another block":       {bytes.ReplaceAll(good, []byte("TSS2 "), nil), "no PEM block"},
		"text in front":       {append([]byte("# key\n"), good...), "canonical"},
		"text after":          {append(slices.Clone(good), "x\n"...), "canonical"},
		"CRLF":                {bytes.ReplaceAll(good, []byte("\n"), []byte("\r\n")), "canonical"},
		"two":                 {append(slices.Clone(good), good...), "canonical"},
		"too large":           {bytes.Repeat(good, 100), "at most"},
		"trailing DER":        {pem.EncodeToMemory(&pem.Block{Type: tpmKeyFileBlock, Bytes: append(slices.Clone(block.Bytes), 5, 0)}), "one DER SEQUENCE"},
		"importable":          {edit(loadable, "\x06\x06\x67\x81\x05\x0a\x01\x04"), "loadable"},
		"no type":             {edit(loadable, ""), "OBJECT IDENTIFIER"},
		"secret":              {edit(emptyAuth, emptyAuth+"\xa2\x03\x04\x01\x00"), "secret"},
		"alternatives":        {edit(emptyAuth, emptyAuth+"\xa3\x02\x30\x00"), "alternative"},
		"RSA parent":          {edit(emptyAuth, emptyAuth+"\xa5\x03\x01\x01\xff"), "rsaParent"},
		"unknown field":       {edit(emptyAuth, emptyAuth+"\xa6\x03\x01\x01\xff"), "parent is not"},
		"wrong order":         {edit(emptyAuth, "\xa4\x03\x0c\x01a"+emptyAuth), "parent is not"},
		"empty description":   {edit(emptyAuth, emptyAuth+"\xa4\x02\x0c\x00"), "description"},
		"not UTF-8":           {edit(emptyAuth, emptyAuth+"\xa4\x03\x0c\x01\xff"), "description"},
		"empty policy":        {edit(emptyAuth, emptyAuth+"\xa1\x02\x30\x00"), "policy"},
		"policy of bytes":     {edit(emptyAuth, emptyAuth+"\xa1\x04\x30\x02\x05\x00"), "statement 1"},
		"policy in a SET":     {edit(emptyAuth, emptyAuth+"\xa1\x0e\x30\x0c\x31\x0a\xa0\x04\x02\x02\x01\x6b\xa1\x02\x04\x00"), "statement 1"},
		"tag of the command":  {edit(emptyAuth, emptyAuth+"\xa1\x0e\x30\x0c\x30\x0a\xa2\x04\x02\x02\x01\x6b\xa1\x02\x04\x00"), "statement 1"},
		"tag of parameters":   {edit(emptyAuth, emptyAuth+"\xa1\x0e\x30\x0c\x30\x0a\xa0\x04\x02\x02\x01\x6b\xa2\x02\x04\x00"), "statement 1"},
		"needless policy":     {edit(emptyAuth, emptyAuth+"\xa1\x0f\x30\x0d\x30\x0b\xa0\x04\x02\x02\x01\x6b\xa1\x03\x04\x01\x00"), "policy"},
		"unknown policy":      {edit(emptyAuth, emptyAuth+"\xa1\x0e\x30\x0c\x30\x0a\xa0\x04\x02\x02\x01\x6c\xa1\x02\x04\x00"), "0x0000016c"},
		"negative parent":     {edit("\x02\x04\x40\x00\x00\x01", "\x02\x04\x81\x00\x00\x01"), "parent is not"},
		"transient parent":    {edit("\x02\x04\x40\x00\x00\x01", "\x02\x05\x00\x80\x00\x00\x01"), "parent: got 0x80000001"},
		"another hierarchy":   {edit("\x02\x04\x40\x00\x00\x01", "\x02\x04\x40\x00\x00\x0b"), "parent: got 0x4000000b"},
		"parent with a zero":  {edit("\x02\x04\x40\x00\x00\x01", "\x02\x05\x00\x40\x00\x00\x01"), "parent is not"},
		"no private part":     {edit("\x04\x05\x00\x03\x01\x02\x03", ""), "privkey"},
		"empty private part":  {edit("\x04\x05\x00\x03\x01\x02\x03", "\x04\x02\x00\x00"), "privkey"},
		"long private part":   {edit("\x04\x05\x00\x03\x01\x02\x03", "\x04\x05\x00\x02\x01\x02\x03"), "TPM2B_PRIVATE"},
		"something after":     {edit("\x04\x05\x00\x03\x01\x02\x03", "\x04\x05\x00\x03\x01\x02\x03\x05\x00"), "two OCTET STRINGs"},
		"public part of none": {edit("\x04\x58\x00\x56", "\x04\x58\x00\x55"), "TPM2B_PUBLIC"},
	} {
		t.Run(name, func(t *testing.T) {
			if f, err := ParseFile(tt.file); !errors.Is(err, checkFile) || f != nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%s: got %v, want %q", name, err, tt.want)
			}
		})
	}
}

// Each public area is refused with its own fault.
func TestTPMKeyFileRefusesOtherKeys(t *testing.T) {
	for name, change := range map[string]func(*tpm2.TPMTPublic){
		"restricted": func(p *tpm2.TPMTPublic) { p.ObjectAttributes.Restricted = true },
		"x509sign":   func(p *tpm2.TPMTPublic) { p.ObjectAttributes.X509Sign = true },
		"no signing": func(p *tpm2.TPMTPublic) { p.ObjectAttributes.SignEncrypt = false },
		"policy untold": func(p *tpm2.TPMTPublic) {
			p.ObjectAttributes.UserWithAuth = false
			p.AuthPolicy.Buffer = make([]byte, 32)
		},
		"off the curve":    func(p *tpm2.TPMTPublic) { p.Unique = tpmop.StorageRootKey().Unique },
		"a storage parent": func(p *tpm2.TPMTPublic) { *p = *tpmop.StorageRootKey() },
	} {
		t.Run(name, func(t *testing.T) {
			area := softwareArea(t, nil)
			change(area)
			f := &File{Parent: tpm2.TPMRHOwner, Public: tpm2.Marshal(area), Private: []byte{1}}
			if _, err := f.Marshal(); !errors.Is(err, checkFile) {
				t.Errorf("%s: encode: got %v, want ErrTPMKeyFile", name, err)
			}
			if _, err := Load(t.Context(), nil, f, LoadOptions{}); !errors.Is(err, checkFile) {
				t.Errorf("%s: load: got %v, want ErrTPMKeyFile", name, err)
			}
		})
	}
	if _, err := Load(t.Context(), nil, nil, LoadOptions{}); !errors.Is(err, checkFile) {
		t.Errorf("no file: got %v", err)
	}
}

func FuzzTPMKeyFile(f *testing.F) {
	for _, file := range keyFiles(f) {
		b, err := file.Marshal()
		testkit.NoError(f, err)
		block, _ := pem.Decode(b)
		f.Add(block.Bytes)
	}
	f.Fuzz(func(t *testing.T, der []byte) {
		b := pem.EncodeToMemory(&pem.Block{Type: tpmKeyFileBlock, Bytes: der})
		file, err := ParseFile(b)
		if err != nil {
			return
		}
		again, err := file.Marshal()
		if err != nil || !bytes.Equal(again, b) {
			t.Fatalf("%x became %x, %v", b, again, err)
		}
	})
}

func FuzzTPMKeyFilePEM(f *testing.F) {
	for _, file := range keyFiles(f) {
		b, err := file.Marshal()
		testkit.NoError(f, err)
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		file, err := ParseFile(b)
		if err != nil {
			return
		}
		again, err := file.Marshal()
		if err != nil || !bytes.Equal(again, b) {
			t.Fatalf("%q became %q, %v", b, again, err)
		}
	})
}

// PEM instead of DER is refused as PEM.
func TestPEMWhereDERIsWanted(t *testing.T) {
	text := []byte(pemOf(tpmlab.CertificateOf(t, 10)))
	_, hello := message.ParseHello(text)
	_, bundle := message.ParseBundle(text)
	_, evidence := (&message.Bundle{Statements: []message.Statement{{Type: "\x2a", Stmt: []byte{5, 0}}}, Certificates: [][]byte{text}}).Marshal()
	for name, err := range map[string]error{"hello": hello, "bundle": bundle, "certificate of a bundle": evidence, "certificate for NV": checkNVCertificate(text)} {
		t.Run(name, func(t *testing.T) {
			if err == nil || !strings.Contains(err.Error(), "PEM") {
				t.Errorf("%s: got %v, want one that says PEM", name, err)
			}
		})
	}
	for _, err := range []error{hello, bundle, evidence} {
		tpmlab.ExpectCheck(t, err, der.CheckEncoding)
	}
}

func TestFilesOnDisk(t *testing.T) {
	key, err := Create(t.Context(), tpmsim.New(t, tpmsim.Options{}), ECDSAP256, Options{})
	testkit.NoError(t, err)
	defer key.Close()
	file := key.File()
	dir := t.TempDir()
	path := filepath.Join(dir, "key")
	if _, err := ReadFile(path); !errors.Is(err, fs.ErrNotExist) || errors.Is(err, checkFile) {
		t.Errorf("no file: %v", err)
	}
	for _, description := range []string{"first", "second"} {
		file.Description = description
		testkit.NoError(t, file.WriteFile(path))
		read, err := ReadFile(path)
		testkit.NoError(t, err)
		if diff := cmp.Diff(file, read, cmpopts.EquateEmpty(), cmpopts.IgnoreUnexported(File{})); diff != "" {
			t.Errorf("written, read:\n%s", diff)
		}
	}
	if err := file.WriteFile(filepath.Join(dir, "absent", "key")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no directory: %v", err)
	}
	if err := (&File{}).WriteFile(path); !errors.Is(err, checkFile) {
		t.Errorf("no key: %v", err)
	}
	if read, err := ReadFile(path); err != nil || read.Description != "second" {
		t.Errorf("after what could not be written: %+v, %v", read, err)
	}
	large := filepath.Join(dir, "large")
	testkit.NoError(t, os.WriteFile(large, make([]byte, maxFileSize+1), 0o600))
	if _, err := ReadFile(large); !errors.Is(err, checkFile) {
		t.Errorf("a large file: %v", err)
	}
	if runtime.GOOS == "windows" {
		return
	}
	testkit.NoError(t, os.Chmod(path, 0o640))
	if _, err := ReadFile(path); !errors.Is(err, checkFile) {
		t.Errorf("a file for a group: %v", err)
	}
}
