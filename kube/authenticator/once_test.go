package authenticator

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"

	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/refusal"
)

// withoutEvidence configures a machine that cannot attest.
func withoutEvidence(c *Config) { c.Kind, c.SignerName, c.Lifetime = nil, csr.SignerClientInsecure, 0 }

// signsInsecure has the control plane sign requests without evidence, and deny others.
func (f *fakeAPI) signsInsecure() {
	f.set(func() {
		f.decide = func(o *certificatesv1.CertificateSigningRequest) bool {
			block, rest := pem.Decode(o.Spec.Request)
			if o.Spec.SignerName != csr.SignerClientInsecure || block == nil || len(rest) != 0 || o.Spec.ExpirationSeconds != nil || o.Spec.Username != csr.BootstrapUserPrefix+"attest" {
				condition(o, csr.ConditionDenied, "NotInsecure", "")
				return true
			}
			condition(o, csr.ConditionApproved, csr.ReasonApproved, "")
			o.Status.Certificate = f.issue(o)
			return true
		}
	})
}

// TestWithoutEvidence: such a node asks once, by its bootstrap token, and renews nothing until its
// certificate has ended.
func TestWithoutEvidence(t *testing.T) {
	f := newFakeAPI(t)
	f.signsInsecure()
	a, _ := newNode(t, f, withoutEvidence)
	credential := testkit.Must(a.Credential(t.Context()))
	p := a.stored(ClientFile)
	if !credential.Status.ExpirationTimestamp.Time.Equal(p.Leaf.NotAfter) {
		t.Errorf("the kubelet asks again at %s, want %s", credential.Status.ExpirationTimestamp, p.Leaf.NotAfter)
	}
	next := func(daemon bool) step {
		v := a.snapshot(caller{daemon: daemon})
		return v.next(a.slots[0])
	}
	for _, left := range []time.Duration{30 * time.Minute, time.Minute, 3 * time.Second} {
		f.move(p.Leaf.NotAfter.Add(-left))
		for _, daemon := range []bool{false, true} {
			if s := next(daemon); s.do == renew || s.use == nil || !s.at.Equal(p.Leaf.NotAfter) {
				t.Errorf("%s before its end, daemon %t: %+v", left, daemon, s)
			}
		}
	}
	if n := f.calls("create "); n != 1 {
		t.Errorf("%d requests, want 1", n)
	}
	f.move(p.Leaf.NotAfter)
	testkit.Must(a.Credential(t.Context()))
	if as, node := f.calls("create "+csr.BootstrapUserPrefix), f.calls("create "+csr.NodeUserPrefix); as != 2 || node != 0 {
		t.Errorf("%d requests by the token and %d by the node, want 2 and none", as, node)
	}
}

// TestWithoutEvidenceRotates: who has the name released asks by the token, not as the node.
func TestWithoutEvidenceRotates(t *testing.T) {
	f := newFakeAPI(t)
	f.signsInsecure()
	a, _ := newNode(t, f, withoutEvidence)
	for range 2 {
		testkit.MustDo(a.Rotate(t.Context()))
	}
	f.set(func() { f.noToken = true })
	if err := a.Rotate(t.Context()); !errors.Is(err, checkCredential) {
		t.Errorf("without a token: %v", err)
	}
}

// TestPendingKey: a request that is not signed yet is not the node's last.
func TestPendingKey(t *testing.T) {
	f := newFakeAPI(t)
	f.signsInsecure()
	var keys []*ecdsa.PublicKey
	decide := f.decide
	f.set(func() {
		f.decide = func(o *certificatesv1.CertificateSigningRequest) bool {
			block, _ := pem.Decode(o.Spec.Request)
			request, err := x509.ParseCertificateRequest(block.Bytes)
			if err != nil {
				t.Error(err)
				return false
			}
			keys = append(keys, request.PublicKey.(*ecdsa.PublicKey))
			return len(keys) == 1 || decide(o) // the first is not signed
		}
	})
	a, _ := newNode(t, f, withoutEvidence)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		for f.calls("watch ") == 0 {
			time.Sleep(time.Millisecond)
		}
		cancel()
	}()
	if err := a.Rotate(ctx); err == nil {
		t.Fatal("it has a certificate that was not signed")
	}
	pending := a.store.Path(pendingFile)
	if info, err := os.Stat(pending); err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("%v, %v", info, err)
	}
	eventually(t, "another process gets it once the lock is free", func() bool { return again(t, a).Rotate(t.Context()) == nil })
	f.set(func() {
		if len(keys) != 2 || !keys[0].Equal(keys[1]) {
			t.Errorf("%d requests, and another key", len(keys))
		}
	})
	if _, err := os.Stat(pending); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the key is still there: %v", err)
	}
	if err := a.Rotate(t.Context()); err != nil || keys[2].Equal(keys[1]) {
		t.Errorf("then: %v, and the same key", err)
	}
}

// TestPendingKeyDamaged: a key that may have been used is not replaced.
func TestPendingKeyDamaged(t *testing.T) {
	f := newFakeAPI(t)
	f.signsInsecure()
	for name, text := range map[string]string{"nothing": "", "no key": "key", "another block": "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"} {
		t.Run(name, func(t *testing.T) {
			a, _ := newNode(t, f, withoutEvidence)
			path := filepath.Join(a.config.Dir, pendingFile)
			testkit.MustDo(os.WriteFile(path, []byte(text), 0o600))
			if err := a.Rotate(t.Context()); err == nil || !strings.Contains(err.Error(), pendingFile) {
				t.Errorf("got %v", err)
			}
			if got, err := os.ReadFile(path); err != nil || string(got) != text {
				t.Errorf("it is %q, %v", got, err)
			}
		})
	}
	if n := f.calls("create "); n != 0 {
		t.Errorf("%d requests", n)
	}
}

// TestWithoutEvidenceConfig changes one thing after the other in a good configuration.
func TestWithoutEvidenceConfig(t *testing.T) {
	f := newFakeAPI(t)
	for name, row := range map[string]struct {
		change func(*Config)
		ok     bool
	}{
		"as it is":               {func(*Config) {}, true},
		"Kubernetes' own signer": {func(c *Config) { c.SignerName = csr.SignerKubeAPIServerClientKubelet }, false},
		"no signer":              {func(c *Config) { c.SignerName = "" }, false},
		"the signer of TPMs":     {func(c *Config) { c.SignerName = csr.SignerClientTPM }, false},
		"a recovery signer":      {func(c *Config) { c.RecoverySigner = csr.SignerRecoveryTPM }, false},
		"a serving certificate":  {func(c *Config) { c.Serving = &Serving{SignerName: csr.SignerServingTPM, DNSNames: []string{testNode}} }, false},
		"a lifetime":             {func(c *Config) { c.Lifetime = time.Hour }, false},
		"a version":              {func(c *Config) { c.MinimumVersion = 1 }, false},
		"evidence":               {func(c *Config) { c.Kind = &documents{f: f} }, false},
	} {
		t.Run(name, func(t *testing.T) {
			c := Config{NodeName: testNode, Dir: t.TempDir(), API: f.config}
			withoutEvidence(&c)
			row.change(&c)
			if _, err := New(c); (err == nil) != row.ok || err != nil && !errors.Is(err, refusal.CheckConfig) {
				t.Errorf("got %v", err)
			}
		})
	}
}

// TestWithoutEvidenceStatus says that nothing is renewed, and early enough when it ends.
func TestWithoutEvidenceStatus(t *testing.T) {
	f := newFakeAPI(t)
	f.signsInsecure()
	a, _ := newNode(t, f, withoutEvidence)
	testkit.MustDo(a.Rotate(t.Context()))
	p := a.stored(ClientFile)
	status := func() (*Status, string) {
		s := a.Status()
		var text bytes.Buffer
		testkit.MustDo(s.Write(&text, f.now()))
		return s, text.String()
	}
	s, text := status()
	if len(s.Problems) != 0 || !s.Certificates[0].Renew.IsZero() || !strings.Contains(text, "evidence insecure") || !strings.Contains(text, "renewal:     not renewed") ||
		!strings.Contains(text, p.Leaf.NotAfter.UTC().Format(time.RFC3339)) {
		t.Errorf("%+v:\n%s", s, text)
	}
	f.move(p.Received.Add(p.Leaf.NotAfter.Sub(p.Received)/5*4 + time.Minute))
	if s, text = status(); len(s.Problems) != 1 || !strings.Contains(text, "is not renewed and ends "+p.Leaf.NotAfter.UTC().Format(time.RFC3339)+": after kubectl nodeattest release node-1") {
		t.Errorf("%+v:\n%s", s, text)
	}
}
