package tpmkey

import (
	"context"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"math/big"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-tpm/tpm2"
	"github.com/google/go-tpm/tpm2/transport"

	"github.com/nodeattest/nodeattest/attest/tpm/internal/tpmop"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/internal/testkit/tpmlab"
	"github.com/nodeattest/nodeattest/tpmsim"
)

func TestTPMKeyPublicArea(t *testing.T) {
	tpm := tpmlab.NewTPM(t)
	for kind, want := range map[Algorithm]string{ECDSAP256: "ECDSA P-256", ECDSAP384: "ECDSA P-384", RSA2048: "RSA-2048"} {
		k := mustTPMKey(t, tpm, kind)
		if kind.String() != want {
			t.Errorf("got %v, want %s", kind, want)
		}
		if got, want := k.public.Attributes.String(), "fixedTPM|fixedParent|sensitiveDataOrigin|userWithAuth|noDA|sign"; got != want {
			t.Errorf("%v: attributes: got %s, want %s", kind, got, want)
		}
		if k.public.Scheme.String() != "NULL" || !k.public.SameKey(k.Public()) {
			t.Errorf("%v: scheme %v, or Public is another key", kind, k.public.Scheme)
		}
		tpmlab.CheckNothingLoaded(t, tpm)
	}
}

func TestCreateTPMKeyRefuses(t *testing.T) {
	tpm := tpmlab.NewTPM(t)
	for name, f := range map[string]func() (*Key, error){
		"no algorithm":      func() (*Key, error) { return Create(t.Context(), tpm, 0, Options{}) },
		"unknown algorithm": func() (*Key, error) { return Create(t.Context(), tpm, 99, Options{}) },
		"no TPM":            func() (*Key, error) { return Create(t.Context(), nil, ECDSAP256, Options{}) },
		"not in there":      func() (*Key, error) { return Create(t.Context(), tpm, RSA3072, Options{}) },
		"strange parent": func() (*Key, error) {
			return Create(t.Context(), tpm, ECDSAP256, Options{Parent: 0x80000000})
		},
		"absent parent": func() (*Key, error) {
			return Create(t.Context(), tpm, ECDSAP256, Options{Parent: 0x81000001})
		},
	} {
		t.Run(name, func(t *testing.T) {
			if k, err := f(); err == nil || k != nil || !strings.HasPrefix(err.Error(), "tpmkey: ") {
				t.Errorf("%s: got %v, %v", name, k, err)
			}
		})
	}
	tpmlab.CheckNothingLoaded(t, tpm)
}

func TestCreateTPMKeyWithOwnerPassword(t *testing.T) {
	tpm := tpmlab.NewTPM(t)
	tpmlab.Persist(t, tpm, tpm2.TPMRHOwner, tpmop.StorageRootKey(), 0x81000001)
	secret := []byte("owner's")
	tpmlab.SetHierarchyPassword(t, tpm, tpm2.TPMRHOwner, nil, secret)
	for _, password := range [][]byte{nil, []byte("guess")} {
		_, err := Create(t.Context(), tpm, ECDSAP256, Options{OwnerPassword: hidden(password)})
		if !errors.Is(err, tpmop.ErrHierarchyPassword) || !errors.Is(err, tpm2.TPMRCBadAuth) || !strings.Contains(err.Error(), "owner") {
			t.Errorf("password %q: got %v, want ErrHierarchyPassword", password, err)
		}
	}
	for _, opts := range []Options{{OwnerPassword: hidden(secret)}, {Parent: 0x81000001}} {
		k, err := Create(t.Context(), tpm, ECDSAP256, opts)
		testkit.NoError(t, err)
		tpmlab.CheckSignature(t, k, crypto.SHA256)
		if err := k.Close(); err != nil {
			t.Error(err)
		}
	}
	tpmlab.CheckNothingLoaded(t, tpm)
}

func TestTPMKeySigns(t *testing.T) {
	tpm := tpmlab.NewTPM(t)
	ec, ec384, rsaKey := mustTPMKey(t, tpm, ECDSAP256), mustTPMKey(t, tpm, ECDSAP384), mustTPMKey(t, tpm, RSA2048)
	for _, hash := range []crypto.Hash{crypto.SHA256, crypto.SHA384, crypto.SHA512} {
		tpmlab.CheckSignature(t, ec, hash)
		tpmlab.CheckSignature(t, ec384, hash)
		tpmlab.CheckSignature(t, rsaKey, hash)
		tpmlab.CheckSignature(t, rsaKey, &rsa.PSSOptions{SaltLength: rsa.PSSSaltLengthEqualsHash, Hash: hash})
		tpmlab.CheckSignature(t, rsaKey, &rsa.PSSOptions{SaltLength: hash.Size(), Hash: hash})
	}
	tpmlab.CheckNothingLoaded(t, tpm)
}

func TestTPMKeyRefusesToSign(t *testing.T) {
	tpm := tpmlab.NewTPM(t)
	ec, rsaKey := mustTPMKey(t, tpm, ECDSAP256), mustTPMKey(t, tpm, RSA2048)
	sum := sha256.Sum256(nil)
	long := sha512.Sum512(nil)
	for name, tt := range map[string]struct {
		key    *Key
		digest []byte
		opts   crypto.SignerOpts
	}{
		"no options":           {ec, sum[:], nil},
		"no hash":              {ec, sum[:], crypto.Hash(0)},
		"SHA-1":                {ec, sum[:20], crypto.SHA1},
		"MD5 and SHA-1":        {rsaKey, long[:36], crypto.MD5SHA1},
		"short digest":         {ec, sum[:31], crypto.SHA256},
		"long digest":          {rsaKey, long[:], crypto.SHA256},
		"no digest":            {rsaKey, nil, crypto.SHA256},
		"PSS for ECDSA":        {ec, sum[:], &rsa.PSSOptions{SaltLength: rsa.PSSSaltLengthEqualsHash, Hash: crypto.SHA256}},
		"automatic salt":       {rsaKey, sum[:], &rsa.PSSOptions{SaltLength: rsa.PSSSaltLengthAuto, Hash: crypto.SHA256}},
		"salt of other length": {rsaKey, sum[:], &rsa.PSSOptions{SaltLength: 20, Hash: crypto.SHA256}},
	} {
		t.Run(name, func(t *testing.T) {
			if sig, err := tt.key.Sign(rand.Reader, tt.digest, tt.opts); err == nil || sig != nil {
				t.Errorf("%s: got %x, %v", name, sig, err)
			}
		})
	}
}

func TestTPMKeyNoticesABadSignature(t *testing.T) {
	tpm := tpmlab.NewTPM(t)
	sum := sha256.Sum256(nil)
	for _, kind := range []Algorithm{ECDSAP256, RSA2048} {
		k := mustTPMKey(t, &tpmlab.Altered{TPM: tpm, Code: tpm2.TPMCCSign, Alter: func(rsp []byte) { rsp[len(rsp)-20] ^= 1 }}, kind)
		if sig, err := k.Sign(nil, sum[:], crypto.SHA256); err == nil || sig != nil {
			t.Errorf("%v: got %x, %v", kind, sig, err)
		}
	}
}

// CSRs by crypto/x509, checked by crypto/x509 and by OpenSSL.
func TestTPMKeyMakesRequests(t *testing.T) {
	tpm := tpmlab.NewTPM(t)
	template := &x509.CertificateRequest{Subject: pkix.Name{CommonName: "system:node:a", Organization: []string{"system:nodes"}}}
	for _, kind := range []Algorithm{ECDSAP256, ECDSAP384, RSA2048} {
		der, err := x509.CreateCertificateRequest(rand.Reader, template, mustTPMKey(t, tpm, kind))
		testkit.NoError(t, err)
		csr, err := x509.ParseCertificateRequest(der)
		testkit.NoError(t, err)
		if err := csr.CheckSignature(); err != nil {
			t.Errorf("%v: %v", kind, err)
		}
		openSSL(t, der, "req", "-inform", "DER", "-noout", "-verify")
	}
}

// A TLS client and server, both with keys in the TPM, in every version and with
// both kinds of key.
func TestTPMKeyInTLS(t *testing.T) {
	tpm := Share(tpmlab.NewTPM(t))
	for _, kind := range []Algorithm{ECDSAP256, RSA2048} {
		cert, roots := selfSigned(t, mustTPMKey(t, tpm, kind))
		for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
			client, server := net.Pipe()
			deadline := time.Now().Add(30 * time.Second)
			client.SetDeadline(deadline)
			server.SetDeadline(deadline)
			s := tls.Server(server, &tls.Config{Certificates: []tls.Certificate{cert}, ClientCAs: roots, ClientAuth: tls.RequireAndVerifyClientCert, MaxVersion: version})
			c := tls.Client(client, &tls.Config{Certificates: []tls.Certificate{cert}, RootCAs: roots, ServerName: "node", MaxVersion: version})
			done := make(chan error, 1)
			go func() { done <- s.HandshakeContext(t.Context()) }()
			if err := c.HandshakeContext(t.Context()); err != nil {
				t.Errorf("%v, %s, client: %v", kind, tls.VersionName(version), err)
			}
			if err := <-done; err != nil {
				t.Errorf("%v, %s, server: %v", kind, tls.VersionName(version), err)
			}
			client.Close()
			server.Close()
		}
	}
}

func selfSigned(t testing.TB, k *Key) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "node"}, DNSNames: []string{"node"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true,
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, k.Public(), k)
	testkit.NoError(t, err)
	leaf, err := x509.ParseCertificate(der)
	testkit.NoError(t, err)
	roots := x509.NewCertPool()
	roots.AddCert(leaf)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: k, Leaf: leaf}, roots
}

// A held key's handle can be another object's after another program flushed it.
func TestTPMKeyHeldAndReplaced(t *testing.T) {
	tpm := tpmlab.NewTPM(t)
	shared := Share(tpmsim.Faulty(tpm, tpmsim.FailEvery(tpm2.TPMCCContextSave, tpm2.TPMRCCommandCode)))
	k, err := Create(t.Context(), shared, ECDSAP256, Options{})
	testkit.NoError(t, err)
	testkit.NoError(t, tpmop.FlushContext(tpm, k.held))
	for range 2 { // the key was in the second slot
		other, err := tpm2.CreatePrimary{PrimaryHandle: tpm2.TPMRHOwner, InPublic: tpm2.New2B(*tpmop.StorageRootKey())}.Execute(tpm)
		testkit.NoError(t, err)
		defer tpmop.FlushContext(tpm, other.ObjectHandle)
	}
	sum := sha256.Sum256(nil)
	if _, err := k.Sign(nil, sum[:], crypto.SHA256); err == nil || !strings.Contains(err.Error(), "another key now") {
		t.Errorf("got %v, want an error that the handle is another key's", err)
	}
	before := tpmlab.LoadedHandles(t, tpm)
	if err := k.Close(); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff(before, tpmlab.LoadedHandles(t, tpm)); diff != "" {
		t.Errorf("closing flushed another program's object: %s", diff)
	}
}

func TestTPMKeyFlushesWhateverFails(t *testing.T) {
	tpm := tpmlab.NewTPM(t)
	faulty := tpmsim.Faulty(tpm, nil)
	sum := sha256.Sum256(nil)
	life := func(tpm transport.TPM) (*Key, error) {
		k, err := Create(t.Context(), tpm, ECDSAP256, Options{})
		if err != nil {
			return nil, err
		}
		_, err = k.Sign(nil, sum[:], crypto.SHA256)
		return k, errors.Join(err, k.Close())
	}
	if _, err := life(faulty); err != nil {
		t.Fatal(err)
	}
	for n := 1; n <= len(faulty.Commands()); n++ {
		for name, faults := range map[string]tpmsim.Faults{
			"not sent": tpmsim.FailAt(n, nil), "response lost": tpmsim.LoseAt(n),
			"refused": tpmsim.AnswerAt(n, tpm2.TPMRCFailure), "connection lost": tpmsim.DropAt(n),
		} {
			f := tpmsim.Faulty(tpm, faults)
			shared := Share(f)
			k, err := life(shared)
			if err == nil && f.Commands()[n-1] != tpm2.TPMCCContextSave {
				t.Errorf("command %d %s: no error", n, name)
			}
			f.SetFaults(nil)
			if k != nil {
				if err := k.Close(); err != nil {
					t.Errorf("command %d %s, then Close: %v", n, name, err)
				}
			}
			if err := tpmop.Share(shared).FlushLeft(t.Context()); err != nil {
				t.Errorf("command %d %s, then flushing again: %v", n, name, err)
			}
			tpmlab.CheckNothingLoaded(t, tpm)
		}
	}
}

// freezer is a TPM that answers late, or not before it thaws.
type freezer struct {
	transport.TPM
	delay time.Duration
	thaw  chan struct{} // nil for one that is not frozen
}

func (f *freezer) Send(command []byte) ([]byte, error) {
	time.Sleep(f.delay)
	if f.thaw != nil {
		<-f.thaw
	}
	return f.TPM.Send(command)
}

// Nothing that a key does without a context waits for ever for a TPM that has stopped answering,
// and everything works again when it answers. One that is only slow is waited for.
func TestFrozenTPM(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tpm := &freezer{TPM: tpmlab.NewTPM(t)}
		k, err := Create(t.Context(), tpm, ECDSAP256, Options{})
		testkit.NoError(t, err)
		sum := make([]byte, 32)
		sign := func() error { _, err := k.Sign(nil, sum, crypto.SHA256); return err }
		tpm.delay = limit / 10
		if err := sign(); err != nil {
			t.Errorf("a slow TPM: %v", err)
		}
		tpm.delay, tpm.thaw = 0, make(chan struct{})
		for n, use := range []func() error{sign, sign, k.Close} { // the first has the TPM's turn, the others wait for it
			began := time.Now()
			if err := use(); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != limit {
				t.Errorf("use %d: %v after %s", n, err, time.Since(began))
			}
		}
		close(tpm.thaw)
		synctest.Wait()
		if err := errors.Join(sign(), k.Close()); err != nil {
			t.Error(err)
		}
	})
}
