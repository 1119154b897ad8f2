package keyfiles

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"io"
	"testing"

	keyfile "github.com/foxboron/go-tpm-keyfiles"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/google/go-tpm/tpm2"
	"github.com/google/go-tpm/tpm2/transport"

	"github.com/nodeattest/nodeattest/attest/tpm"
	"github.com/nodeattest/nodeattest/attest/tpm/tpmkey"
	"github.com/nodeattest/nodeattest/internal/testkit/tpmlab"
	"github.com/nodeattest/nodeattest/secret"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// notOurs is a TPM that the other package may not close.
type notOurs struct {
	transport.TPM
	io.Closer
}

func (notOurs) Close() error { return nil }

func openTPM(t *testing.T) (*tpmsim.TPM, transport.TPMCloser) {
	t.Helper()
	tpm := tpmsim.New(t, tpmsim.Options{EKs: []tpmsim.Algorithm{}, AKs: []tpmsim.AK{}})
	return tpm, notOurs{TPM: tpm}
}

// fields are what both packages call the same.
type fields struct {
	EmptyAuth       bool
	Policy          []tpmkey.PolicyCommand
	Description     string
	Parent          tpm2.TPMHandle
	Public, Private []byte
}

func ours(f *tpmkey.File) fields {
	return fields{f.EmptyAuth, f.Policy, f.Description, f.Parent, f.Public, f.Private}
}

func theirs(t *testing.T, k *keyfile.TPMKey) fields {
	t.Helper()
	if !k.Keytype.Equal(keyfile.OIDLoadableKey) || len(k.AuthPolicy) != 0 || len(k.Secret.Buffer) != 0 {
		t.Errorf("type %v, %d alternative policies, secret of %d bytes", k.Keytype, len(k.AuthPolicy), len(k.Secret.Buffer))
	}
	f := fields{EmptyAuth: k.EmptyAuth, Description: k.Description, Parent: k.Parent, Public: k.Pubkey.Bytes(), Private: k.Privkey.Buffer}
	for _, p := range k.Policy {
		f.Policy = append(f.Policy, tpmkey.PolicyCommand{Command: tpm2.TPMCC(p.CommandCode), Body: p.CommandPolicy})
	}
	return f
}

// signs has a key sign, and checks the signature in software.
func signs(t *testing.T, key crypto.Signer) {
	t.Helper()
	digest := sha256.Sum256([]byte("message"))
	sig, err := key.Sign(rand.Reader, digest[:], crypto.SHA256)
	if err != nil {
		t.Fatal(err)
	}
	good := false
	switch k := key.Public().(type) {
	case *ecdsa.PublicKey:
		good = ecdsa.VerifyASN1(k, digest[:], sig)
	case *rsa.PublicKey:
		good = rsa.VerifyPKCS1v15(k, crypto.SHA256, digest[:], sig) == nil
	}
	if !good {
		t.Error("the signature does not verify")
	}
}

// Files of ours have the same fields there; without a policy, which that package does
// not follow, their keys sign there. Written again there and read here, nothing has
// changed.
func TestOursThere(t *testing.T) {
	simulated, closer := openTPM(t)
	for name, c := range map[string]struct {
		kind tpmkey.Algorithm
		opts tpmkey.Options
	}{
		"P-256":              {tpmkey.ECDSAP256, tpmkey.Options{}},
		"P-384":              {tpmkey.ECDSAP384, tpmkey.Options{}},
		"RSA-2048":           {tpmkey.RSA2048, tpmkey.Options{}},
		"P-256, password":    {tpmkey.ECDSAP256, tpmkey.Options{Password: secret.New([]byte("secret"))}},
		"RSA-2048, password": {tpmkey.RSA2048, tpmkey.Options{Password: secret.New([]byte("secret"))}},
		"P-256, PCRs":        {tpmkey.ECDSAP256, tpmkey.Options{PCRs: tpm.DefaultPCRs()}},
		"P-256, both":        {tpmkey.ECDSAP256, tpmkey.Options{PCRs: tpm.DefaultPCRs(), Password: secret.New([]byte("secret"))}},
	} {
		t.Run(name, func(t *testing.T) {
			key, err := tpmkey.Create(t.Context(), simulated, c.kind, c.opts)
			if err != nil {
				t.Fatal(err)
			}
			file := key.File()
			file.Description = "a key of " + name
			pem, err := file.Marshal()
			if err != nil {
				t.Fatal(err)
			}
			read, err := keyfile.Decode(pem)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(ours(file), theirs(t, read), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("here, there:\n%s", diff)
			}
			if len(file.Policy) == 0 {
				signer, err := read.Signer(closer, nil, c.opts.Password.Reveal())
				if err != nil {
					t.Fatal(err)
				}
				signs(t, signer)
			}
			again, err := tpmkey.ParseFile(read.Bytes())
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(ours(file), ours(again), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("here, and back:\n%s", diff)
			}
			if err := key.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// Files of theirs have the same fields here, and their keys sign here.
func TestTheirsHere(t *testing.T) {
	simulated, closer := openTPM(t)
	for name, c := range map[string]struct {
		alg      tpm2.TPMAlgID
		bits     int
		password []byte
	}{
		"P-256":              {tpm2.TPMAlgECC, 256, nil},
		"P-384":              {tpm2.TPMAlgECC, 384, nil},
		"RSA-2048":           {tpm2.TPMAlgRSA, 2048, nil},
		"P-256, password":    {tpm2.TPMAlgECC, 256, []byte("secret")},
		"RSA-2048, password": {tpm2.TPMAlgRSA, 2048, []byte("secret")},
	} {
		t.Run(name, func(t *testing.T) {
			made, err := keyfile.NewLoadableKey(closer, c.alg, c.bits, nil, keyfile.WithDescription("a key of "+name), keyfile.WithUserAuth(c.password))
			if err != nil {
				t.Fatal(err)
			}
			pem := made.Bytes()
			file, err := tpmkey.ParseFile(pem)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(theirs(t, made), ours(file)); diff != "" {
				t.Errorf("there, here:\n%s", diff)
			}
			if again, err := file.Marshal(); err != nil || !bytes.Equal(again, pem) {
				t.Errorf("written again: %v\n%s%s", err, again, pem)
			}
			key, err := tpmkey.Load(t.Context(), simulated, file, tpmkey.LoadOptions{Password: secret.New(c.password)})
			if err != nil {
				t.Fatal(err)
			}
			signs(t, key)
			if err := key.Close(); err != nil {
				t.Error(err)
			}
			if len(c.password) == 0 {
				return
			}
			wrong, err := tpmkey.Load(t.Context(), simulated, file, tpmkey.LoadOptions{Password: secret.New([]byte("wrong"))})
			if err != nil {
				t.Fatal(err)
			}
			digest := sha256.Sum256(nil)
			if _, err := wrong.Sign(rand.Reader, digest[:], crypto.SHA256); err == nil {
				t.Error("signed with another password")
			}
			if err := wrong.Close(); err != nil {
				t.Error(err)
			}
			tpmlab.ForgetPasswords(t, simulated) // which a further one would come close to locking
		})
	}
}
