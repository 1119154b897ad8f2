package authenticator

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/pem"
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"

	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/kube/authenticator/certstore"
)

// run starts a daemon, and stops it when the test ends or before.
func run(t *testing.T, a *Authenticator) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(stop)
	return stop
}

// TestDaemon renews at each certificate's time: two requests for each, and no others.
func TestDaemon(t *testing.T) {
	t.Parallel()
	f := newFakeAPI(t)
	ready, got := make(chan struct{}), 0
	renewalOfTwo := func(_ []string, attr slog.Attr) slog.Attr {
		if attr.Key == "renew" { // it has just been stored
			if got++; got < 3 {
				f.move(attr.Value.Time())
			}
		}
		return attr
	}
	a, kind := newNode(t, f, func(c *Config) {
		c.Ready = func() { close(ready) }
		c.Log = slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{ReplaceAttr: renewalOfTwo}))
	})
	stop := run(t, a)
	<-ready
	if !a.Status().Daemon {
		t.Error("it does not show")
	}
	var first []byte
	eventually(t, "the first certificate", func() bool {
		if p := a.stored(ClientFile); p != nil {
			first = p.Key
		}
		return first != nil
	})
	if err := again(t, a).Run(t.Context()); !errors.Is(err, certstore.ErrLocked) {
		t.Errorf("a second one: got %v", err)
	}
	eventually(t, "three certificates", func() bool {
		obtained(t, again(t, a))
		return f.calls("create") == 6 && a.stored(ClientFile).Renew.After(f.now())
	})
	stop()
	if n := kind.opened.Load(); f.calls("create") != 6 || n != 3 || bytes.Equal(a.stored(ClientFile).Key, first) {
		t.Errorf("%d requests in %d attempts for three certificates", f.calls("create"), n)
	}
	if f.calls("create "+csr.BootstrapUserPrefix) != 2 {
		t.Error("the bootstrap token was used again")
	}
}

// TestReady: the kubelet can start at once, but not without its serving certificate.
func TestReady(t *testing.T) {
	t.Parallel()
	f := newFakeAPI(t)
	f.set(func() { f.down = true })
	ready := make(chan struct{}, 2)
	never := func(when string) {
		t.Helper()
		select {
		case <-ready:
			t.Errorf("ready %s", when)
		default:
		}
	}
	tell := func(c *Config) { c.Ready = func() { ready <- struct{}{} } }
	a, _ := newNode(t, f, tell)
	stop := run(t, a)
	<-ready
	if a.Status().Usable {
		t.Error("a certificate without a server")
	}
	stop()
	never("twice")

	a, _ = newNode(t, f, func(c *Config) {
		tell(c)
		c.Serving = &Serving{DNSNames: []string{testNode}}
	})
	stop = run(t, a)
	eventually(t, "a failure", func() bool { return a.readState()[ClientFile].failed() })
	never("without a serving certificate")
	stop()
	f.set(func() { f.down = false })
	again := again(t, a)
	stop = run(t, again)
	<-ready
	if again.stored(ServingFile) == nil {
		t.Error("ready before there is a serving certificate")
	}
	stop()
	never("twice")
	f.set(func() { f.down = true })
	run(t, again)
	<-ready
}

// TestRecovery: the control plane is away until all has ended, and the bootstrap token is
// gone: the node comes back by its recovery certificate. Until then it keeps its certificates.
func TestRecovery(t *testing.T) {
	t.Parallel()
	f := newFakeAPI(t)
	a, _ := newNode(t, f, func(c *Config) { c.RecoverySigner = csr.SignerRecoveryTPM })
	giveRecovery(t, f, a)
	run(t, a)
	eventually(t, "the certificates", func() bool { s := a.Status(); return s.Usable && s.Recoverable })
	f.set(func() { f.down, f.noToken = true, true })
	before, recovered := a.stored(ClientFile), f.calls("create "+csr.RecoveryUserPrefix)
	f.move(before.Renew)
	eventually(t, "a failure", func() bool { return a.readState()[ClientFile].failed() })
	c := obtained(t, again(t, a))
	if c.Status.ClientKeyData != string(before.Key) {
		t.Error("it was replaced")
	}
	if f.calls("create "+csr.RecoveryUserPrefix) != recovered {
		t.Error("it recovered too early")
	}
	f.set(func() {
		f.down = false
		f.move(before.Leaf.NotAfter)
	})
	obtained(t, again(t, a)) // it waits
	if f.calls("create "+csr.RecoveryUserPrefix+testNode) != recovered+2 {
		t.Errorf("requests: %q", f.log)
	}
}

// giveRecovery stores a recovery certificate: this kind of evidence shows no key to be
// resident, so that no verifier would give it one.
func giveRecovery(t *testing.T, f *fakeAPI, a *Authenticator) {
	t.Helper()
	key := testkit.Must((&keeping{}).CreateKey(t.Context()))
	request := testkit.Must(csr.Create(csr.PurposeRecovery, key, testNode, csr.CreateOptions{}))
	chain := f.issue(&certificatesv1.CertificateSigningRequest{Spec: certificatesv1.CertificateSigningRequestSpec{
		SignerName: csr.SignerRecoveryTPM, Request: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: request})}})
	file := testkit.Must(key.File())
	p := testkit.Must(certstore.NewSealedPair(chain, file, key.Public(), f.now(), a.slots[len(a.slots)-1].RenewAt))
	l, err := a.store.Lock(t.Context())
	if err == nil {
		err = errors.Join(l.WritePair(recoveryFile, p), l.Unlock())
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestFreshToken: without a recovery certificate a new token is what brings a node back,
// put in its place while the daemon runs.
func TestFreshToken(t *testing.T) {
	t.Parallel()
	f := newFakeAPI(t)
	f.noToken = true
	a, _ := newNode(t, f, nil)
	run(t, a)
	eventually(t, "a failure", func() bool { return a.readState()[ClientFile].Failures > 0 })
	if s := a.Status(); s.Usable || len(s.Problems) != 1 || !strings.Contains(s.Problems[0], "token") {
		t.Errorf("status %+v", s)
	}
	f.set(func() { f.noToken = false })
	eventually(t, "a certificate", func() bool { return a.Status().Usable })
}

// TestServing has the daemon write a serving certificate where the kubelet reads it, which
// it asks for as the node.
func TestServing(t *testing.T) {
	t.Parallel()
	f := newFakeAPI(t)
	a, _ := newNode(t, f, serving(testNode, testAddress().String()))
	run(t, a)
	eventually(t, "a serving certificate", func() bool { return a.stored(ServingFile) != nil })
	pair, err := tls.LoadX509KeyPair(filepath.Join(a.config.Dir, ServingFile), filepath.Join(a.config.Dir, ServingFile))
	if err != nil || pair.Leaf.VerifyHostname(testNode) != nil || pair.Leaf.VerifyHostname(testAddress().String()) != nil {
		t.Errorf("got %v, %v", pair.Leaf, err)
	}
	if f.calls("create "+csr.BootstrapUserPrefix) != 2 || f.calls("create "+csr.NodeUserPrefix) != 2 {
		t.Errorf("calls %q", f.log)
	}
	var text strings.Builder
	testkit.MustDo(a.Status().Write(&text, time.Now()))
	for _, want := range []string{testNode, "running", "valid until", "X509SHA256=", ServingFile, "in ", f.server.URL} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no %q in\n%s", want, &text)
		}
	}
	if strings.Contains(text.String(), "PRIVATE") || strings.Contains(text.String(), testToken) {
		t.Errorf("a secret in\n%s", &text)
	}
}

// TestServingRefused: a name that the control plane does not know is refused, and the
// client certificate stays usable.
func TestServingRefused(t *testing.T) {
	t.Parallel()
	f := newFakeAPI(t)
	a, _ := newNode(t, f, func(c *Config) { c.Serving = &Serving{DNSNames: []string{"another.example"}} })
	stop := run(t, a)
	eventually(t, "a refusal", func() bool { return a.readState()[ServingFile].Failures > 0 })
	stop()
	if s := a.Status(); !s.Usable || s.Certificates[1].Usable || s.Certificates[1].LastError == "" {
		t.Errorf("status %+v", s)
	}
}

// TestRotate renews whatever is stored and has failed.
func TestRotate(t *testing.T) {
	t.Parallel()
	f := newFakeAPI(t)
	f.down = true
	a, kind := newNode(t, f, func(c *Config) { c.Serving = &Serving{DNSNames: []string{testNode}} })
	if err := a.Rotate(t.Context()); err == nil || !strings.Contains(err.Error(), "client") {
		t.Errorf("got %v", err)
	}
	f.set(func() { f.down = false })
	for n := range 2 {
		testkit.MustDo(a.Rotate(t.Context()))
		if got := kind.opened.Load(); int(got) != 4+2*n {
			t.Errorf("%d attempts", got)
		}
	}
	l := testkit.Must(a.store.TryLock())
	defer func() { _ = l.Unlock() }()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := a.Rotate(ctx); !errors.Is(err, certstore.ErrLocked) {
		t.Errorf("during another attempt: got %v", err)
	}
}
