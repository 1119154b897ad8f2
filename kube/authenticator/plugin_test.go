package authenticator

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	clientauthenticationv1 "k8s.io/client-go/pkg/apis/clientauthentication/v1"
	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/nodeattest/nodeattest/attest/attesttest"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/kube/authenticator/certstore"
	"github.com/nodeattest/nodeattest/kube/authenticator/internal/apiclient"
	"github.com/nodeattest/nodeattest/oid"
	"github.com/nodeattest/nodeattest/refusal"
)

// checkIsCredential checks the output of a plugin.
func checkIsCredential(t *testing.T, c *clientauthenticationv1.ExecCredential, err error) *x509.Certificate {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	pair := testkit.Must(tls.X509KeyPair([]byte(c.Status.ClientCertificateData), []byte(c.Status.ClientKeyData)))
	if c.Kind != "ExecCredential" || c.APIVersion != "client.authentication.k8s.io/v1" || c.Status.Token != "" ||
		pair.Leaf.Subject.CommonName != csr.NodeUserPrefix+testNode || strings.Contains(c.Status.ClientCertificateData, "#") {
		t.Errorf("%+v for %s", c.TypeMeta, pair.Leaf.Subject)
	}
	return pair.Leaf
}

// obtained runs the plugin, and checks its output.
func obtained(t *testing.T, a *Authenticator) *clientauthenticationv1.ExecCredential {
	t.Helper()
	c, err := a.Credential(t.Context())
	checkIsCredential(t, c, err)
	return c
}

// TestCredential: the first run attests, the next prints the stored certificate.
func TestCredential(t *testing.T) {
	f := newFakeAPI(t)
	a, kind := newNode(t, f, nil)
	c, err := a.Credential(t.Context())
	leaf := checkIsCredential(t, c, err)
	left := time.Until(leaf.NotAfter)
	if in := time.Until(c.Status.ExpirationTimestamp.Time); in < left*64/100 || in > left*81/100 {
		t.Errorf("it asks again in %s of %s, want the time of renewal", in, left)
	}
	if f.calls("create "+csr.BootstrapUserPrefix) != 2 || f.calls("watch") != 2 || f.calls("review "+csr.NodeUserPrefix+testNode) != 1 || len(f.log) != 5 {
		t.Errorf("calls %q, want two creates and two watches, and a review", f.log)
	}
	for range 3 {
		next := obtained(t, again(t, a))
		if next.Status.ClientKeyData != c.Status.ClientKeyData || !next.Status.ExpirationTimestamp.Equal(c.Status.ExpirationTimestamp) {
			t.Error("another credential")
		}
	}
	if kind.opened.Load() != 1 || len(f.log) != 5 {
		t.Errorf("the machine was asked %d times, and the server %d", kind.opened.Load(), len(f.log))
	}
	if s := a.readState()[ClientFile]; s.Failures != 0 || s.Error != "" || s.Next.Sub(s.Last) < firstPause || s.Last.IsZero() {
		t.Errorf("state %+v", s)
	}
}

// TestOneFlight: parallel runs without a certificate attest once.
func TestOneFlight(t *testing.T) {
	f := newFakeAPI(t)
	a, kind := newNode(t, f, nil)
	var all sync.WaitGroup
	keys := make([]string, 10)
	for n := range keys {
		all.Go(func() {
			c, err := again(t, a).Credential(t.Context())
			if err != nil {
				t.Error(err)
				return
			}
			keys[n] = c.Status.ClientKeyData
		})
	}
	all.Wait()
	for _, key := range keys {
		if key != keys[0] {
			t.Error("two keys")
		}
	}
	if kind.opened.Load() != 1 || f.calls("create") != 2 {
		t.Errorf("the machine was asked %d times, %d requests", kind.opened.Load(), f.calls("create"))
	}
}

// old makes the stored certificate one that is to be renewed.
func old(t *testing.T, a *Authenticator) *certstore.Pair {
	t.Helper()
	p := *a.stored(ClientFile)
	p.Received = a.config.Now().Add(-time.Minute).UTC().Truncate(time.Second)
	p.Renew = p.Received.Add(30 * time.Second)
	l, err := a.store.Lock(t.Context())
	if err == nil {
		err = errors.Join(l.WritePair(ClientFile, &p), a.note(l, ClientFile, func(t *attempts, _ time.Time) { *t = attempts{} }), l.Unlock())
	}
	if err != nil {
		t.Fatal(err)
	}
	return a.stored(ClientFile)
}

// joined makes a node that has a certificate to be renewed.
func joined(t *testing.T, f *fakeAPI, change func(*Config)) (*Authenticator, *documents) {
	t.Helper()
	a, kind := newNode(t, f, change)
	testkit.Must(a.Credential(t.Context()))
	old(t, a)
	return a, kind
}

// TestRenewal: the plugin renews as the node itself, with a new key.
func TestRenewal(t *testing.T) {
	f := newFakeAPI(t)
	a, _ := joined(t, f, nil)
	before := a.stored(ClientFile)
	c := obtained(t, a)
	if c.Status.ClientKeyData == string(before.Key) || f.calls("create "+csr.NodeUserPrefix+testNode) != 2 {
		t.Errorf("not renewed as the node: %q", f.log)
	}
}

// TestProviderID: the node says what its machine says, in each of its messages, and nothing at all
// while the machine says nothing that a request can carry.
func TestProviderID(t *testing.T) {
	away := refusal.Retry(errors.New("the metadata server is away"))
	for name, c := range map[string]struct {
		id   string
		err  error
		want error
	}{
		"good":                  {testProviderID, nil, nil},
		"away":                  {"", away, away},
		"away, with half an ID": {testProviderID, away, away},
		"empty":                 {"", nil, refusal.Check("provider-id-size")},
		"a line's end":          {testProviderID + "\n", nil, refusal.Check("provider-id-text")},
		"a space in front":      {" " + testProviderID, nil, refusal.Check("provider-id-text")},
		"a NUL":                 {testProviderID + "\x00", nil, refusal.Check("provider-id-text")},
		"longer than any":       {strings.Repeat("x", oid.MaxProviderIDSize+1), nil, refusal.Check("provider-id-size")},
		"another machine's":     {"test://node-2", nil, checkDenied},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFakeAPI(t)
			a, kind := newNode(t, f, func(config *Config) {
				config.ProviderID = func(context.Context) (string, error) { return c.id, c.err }
			})
			_, err := a.snapshot(caller{plugin: true}).requestAnyVersion(t.Context(), nil, a.slots[0])
			if !errors.Is(err, c.want) {
				t.Fatalf("got %v, want %v", err, c.want)
			}
			if err == nil || isDenied(err) {
				for name, o := range f.objects {
					block, _ := pem.Decode(o.Spec.Request)
					request := testkit.Must(x509.ParseCertificateRequest(block.Bytes))
					if got, err := oid.ParseProviderID(request.Extensions); err != nil || got != c.id {
						t.Errorf("%s has %q, %v", name, got, err)
					}
				}
				return
			}
			if !strings.HasPrefix(err.Error(), "providerID: ") || len(f.log) != 0 || kind.opened.Load() != 0 {
				t.Errorf("%v after %q, and the machine's evidence was opened %d times", err, f.log, kind.opened.Load())
			}
		})
	}
}

// TestRenewalFails: a certificate that works is printed whatever happens, and it is asked
// again later.
func TestRenewalFails(t *testing.T) {
	for name, breaks := range map[string]func(f *fakeAPI, kind *documents, a *Authenticator) func(){
		"no API server": func(f *fakeAPI, _ *documents, _ *Authenticator) func() { f.set(func() { f.down = true }); return nil },
		"no machine": func(_ *fakeAPI, kind *documents, _ *Authenticator) func() {
			kind.fails = errors.New("no device")
			return nil
		},
		"no decision": func(f *fakeAPI, _ *documents, _ *Authenticator) func() { f.set(func() { f.away = true }); return nil },
		"denied": func(f *fakeAPI, kind *documents, _ *Authenticator) func() {
			kind.machine = attesttest.MachineTwo
			return nil
		},
		"another attempt": func(_ *fakeAPI, _ *documents, a *Authenticator) func() {
			l, err := a.store.TryLock()
			if err != nil {
				panic(err)
			}
			return func() { _ = l.Unlock() }
		},
		"a daemon": func(_ *fakeAPI, _ *documents, a *Authenticator) func() {
			_, release, err := a.store.Hold(daemonName)
			if err != nil {
				panic(err)
			}
			return func() { _ = release() }
		},
		"no configuration": func(_ *fakeAPI, _ *documents, a *Authenticator) func() {
			a.config.API = func() (*rest.Config, error) { return nil, errors.New("no kubeconfig") }
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFakeAPI(t)
			began := time.Now()
			a, kind := joined(t, f, func(c *Config) { c.Now = func() time.Time { return began } }) // so no pause ends
			before := a.stored(ClientFile)
			if undo := breaks(f, kind, a); undo != nil {
				defer undo()
			}
			for range 2 {
				c := obtained(t, a)
				if c.Status.ClientKeyData != string(before.Key) {
					t.Error("another key")
				}
				if at := c.Status.ExpirationTimestamp.Time; at.Before(began.Add(time.Second)) || at.After(began.Add(lastDenied)) {
					t.Errorf("it asks again in %s", at.Sub(began))
				}
			}
			if attempts, opened := a.readState()[ClientFile], kind.opened.Load(); attempts.Failures > 1 || opened > 2 {
				t.Errorf("state %+v, want one failure, and %d attempts, want one after that to join", attempts, opened-1)
			}
			if kind.opened.Load() == 2 && kind.left > maxWait {
				t.Errorf("the kubelet waits for up to %s", kind.left)
			}
		})
	}
}

// TestWithout: where nothing is stored it tries until its context is over, with pauses that
// outlast the process, and says how the last attempt ended.
func TestWithout(t *testing.T) {
	for name, c := range map[string]struct {
		breaks func(f *fakeAPI, kind *documents)
		want   error
		text   string
	}{
		"denied":        {func(_ *fakeAPI, kind *documents) { kind.machine = attesttest.MachineTwo }, checkDenied, "NotAMember"},
		"no API server": {func(f *fakeAPI, _ *documents) { f.down = true }, nil, "ServiceUnavailable"},
		"no token":      {func(f *fakeAPI, _ *documents) { f.noToken = true }, checkCredential, "bootstrap token"},
		"no machine":    {func(_ *fakeAPI, kind *documents) { kind.fails = os.ErrNotExist }, os.ErrNotExist, ""},
		"no decision":   {func(f *fakeAPI, _ *documents) { f.away = true }, context.Canceled, "waiting for the challenge"},
		"another node's": {func(f *fakeAPI, _ *documents) {
			f.sign = func(c *x509.Certificate) { c.Subject.CommonName = csr.NodeUserPrefix + "node-2" }
		}, certstore.CheckPair, "node-2"},
		"ended": {func(f *fakeAPI, _ *documents) {
			f.sign = func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-4 * time.Minute) }
		}, certstore.CheckPair, "this machine's clock"},
		"for servers": {func(f *fakeAPI, _ *documents) {
			f.sign = func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth} }
		}, certstore.CheckPair, "another use"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFakeAPI(t)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			began := time.Now()
			var a *Authenticator
			a, kind := newNode(t, f, func(c *Config) {
				c.Now = func() time.Time { // which stands still, so that no pause ends
					if a != nil && a.onDisk(ClientFile).failed() {
						cancel()
					}
					return began
				}
			})
			c.breaks(f, kind)
			if f.away {
				go func() {
					for f.calls("watch") == 0 {
						time.Sleep(time.Millisecond)
					}
					cancel()
				}()
			}
			_, err := a.Credential(ctx)
			if err == nil || c.want != nil && !errors.Is(err, c.want) || !f.away && !strings.Contains(err.Error(), c.text) {
				t.Errorf("got %v, want %v", err, c.want)
			}
			eventually(t, "the end of the attempt", func() bool { return a.readState()[ClientFile].failed() })
			before := a.readState()[ClientFile]
			if before.Failures != 1 || !strings.Contains(before.Error, c.text) || !before.Next.After(before.Last) {
				t.Fatalf("state %+v", before)
			}
			opened := kind.opened.Load()
			cancelled, stop := context.WithCancel(t.Context())
			stop()
			// As another process, which finds the pause on disk.
			if _, err := again(t, a).Credential(cancelled); err == nil || !strings.Contains(err.Error(), strings.SplitN(before.Error, "\n", 2)[0][:20]) {
				t.Errorf("got %v, want %s", err, before.Error)
			}
			if kind.opened.Load() != opened {
				t.Error("it tried before its time")
			}
		})
	}
}

// TestPauses: without a certificate, a long pause is not waited for, since each of the kubelet's requests would be. The
// attempt of another process is.
func TestPauses(t *testing.T) {
	f := newFakeAPI(t)
	a, kind := newNode(t, f, nil)
	kind.machine = attesttest.MachineTwo // denied: the first pause is 2.5 s at least
	for range 2 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		if _, err := a.Credential(ctx); err == nil || ctx.Err() != nil {
			t.Errorf("got %v, and %v", err, ctx.Err())
		}
		cancel()
	}
	if n := kind.opened.Load(); n != 1 {
		t.Errorf("%d attempts", n)
	}
	l := testkit.Must(a.store.TryLock())
	defer func() { testkit.NoError(t, l.Unlock()) }()
	for range 6 { // of which the last has a pause of 15 s at least
		testkit.NoError(t, a.begin(l, a.slots[0]))
	}
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	if _, err := a.Credential(ctx); err == nil || ctx.Err() == nil {
		t.Errorf("it does not wait for the other process: %v", err)
	}
}

// TestWaits: a run without a certificate ends well once the API server is back.
func TestWaits(t *testing.T) {
	f := newFakeAPI(t)
	f.down = true
	a, _ := newNode(t, f, nil)
	go func() {
		time.Sleep(700 * time.Millisecond)
		f.set(func() { f.down = false })
	}()
	obtained(t, a)
}

// TestRequests has requests decided in all possible ways.
func TestRequests(t *testing.T) {
	hellos := 0
	hello := func(o *certificatesv1.CertificateSigningRequest) bool {
		return strings.Contains(o.Spec.SignerName, "challenge")
	}
	for name, c := range map[string]struct {
		decide func(f *fakeAPI) func(*certificatesv1.CertificateSigningRequest) bool
		cut    int
		want   error
		text   string
		gets   int
	}{
		"a hello too old is filed again": {decide: func(*fakeAPI) func(*certificatesv1.CertificateSigningRequest) bool {
			return func(o *certificatesv1.CertificateSigningRequest) bool {
				if hello(o) && hellos < 2 {
					hellos++
					condition(o, "Denied", "HelloExpired", "of yesterday")
					return true
				}
				return false
			}
		}},
		"a hello that was approved by hand is filed again": {decide: func(*fakeAPI) func(*certificatesv1.CertificateSigningRequest) bool {
			first := true
			return func(o *certificatesv1.CertificateSigningRequest) bool {
				if hello(o) && first {
					first = false
					condition(o, "Approved", "ByHand", "")
					return true
				}
				return false
			}
		}},
		"but not for ever": {decide: func(*fakeAPI) func(*certificatesv1.CertificateSigningRequest) bool {
			return func(o *certificatesv1.CertificateSigningRequest) bool {
				condition(o, "Approved", "ByHand", "")
				return hello(o)
			}
		}, want: refusal.Check("no-challenge"), text: "ByHand"},
		"an invalid challenge": {decide: func(*fakeAPI) func(*certificatesv1.CertificateSigningRequest) bool {
			return func(o *certificatesv1.CertificateSigningRequest) bool {
				condition(o, "Denied", "AttestationChallenge", "AAAA")
				return hello(o)
			}
		}, want: refusal.Check("message-encoding")},
		"an answer that failed": {decide: func(*fakeAPI) func(*certificatesv1.CertificateSigningRequest) bool {
			return func(o *certificatesv1.CertificateSigningRequest) bool {
				if !hello(o) {
					condition(o, "Failed", "SignerValidationFailure", "no")
				}
				return !hello(o)
			}
		}, want: checkDenied, text: "SignerValidationFailure"},
		"deleted": {decide: func(f *fakeAPI) func(*certificatesv1.CertificateSigningRequest) bool {
			return func(o *certificatesv1.CertificateSigningRequest) bool {
				go f.set(func() { delete(f.objects, o.Name) })
				return true
			}
		}, want: apiclient.CheckGone, gets: 1}, // where the watch comes after it
		"watches that end": {cut: 3, gets: 3},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFakeAPI(t)
			f.cutWatch = c.cut
			if c.cut != 0 {
				f.decide = func(*certificatesv1.CertificateSigningRequest) bool { return false }
				f.away = true
				go func() {
					time.Sleep(500 * time.Millisecond)
					f.set(func() { f.away = false })
				}()
			}
			if c.decide != nil {
				f.decide = c.decide(f)
			}
			a, _ := newNode(t, f, nil)
			l := testkit.Must(a.store.Lock(t.Context()))
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			_, err := a.renew(ctx, l, a.slots[0], caller{plugin: true})
			if !errors.Is(err, c.want) || err != nil && !strings.Contains(err.Error(), c.text) {
				t.Errorf("got %v, want %v", err, c.want)
			}
			if n := f.calls("get"); n > c.gets || f.calls("list") != 0 {
				t.Errorf("%d gets, %d lists", n, f.calls("list"))
			}
		})
	}
}

// TestFullDiskCredential: with a certificate that works nothing is tried; without one it is
// printed from memory.
func TestFullDiskCredential(t *testing.T) {
	f := newFakeAPI(t)
	a, _ := newNode(t, f, nil)
	breakDisk := func(a *Authenticator) { // a folder in place of each file cannot be replaced
		for _, name := range []string{stateFile, ClientFile} {
			testkit.MustDo(os.MkdirAll(a.store.Path(name)+"/x", 0o700))
		}
	}
	breakDisk(a)
	obtained(t, a)
	if a.stored(ClientFile) != nil {
		t.Error("it is stored")
	}

	a, kind := joined(t, f, nil)
	testkit.MustDo(os.Remove(a.store.Path(stateFile)))
	testkit.MustDo(os.MkdirAll(a.store.Path(stateFile)+"/x", 0o700))
	opened := kind.opened.Load()
	obtained(t, a)
	if kind.opened.Load() != opened {
		t.Error("it attested, and could not have stored it")
	}
}

// TestDamaged: a stored file that cannot be used counts as missing.
func TestDamaged(t *testing.T) {
	f := newFakeAPI(t)
	a, _ := newNode(t, f, nil)
	testkit.Must(a.Credential(t.Context()))
	text := testkit.Must(os.ReadFile(a.store.Path(ClientFile)))
	for name, change := range map[string]func() error{
		"half of it":    func() error { return os.WriteFile(a.store.Path(ClientFile), text[:len(text)/2], 0o600) },
		"for everybody": func() error { return os.Chmod(a.store.Path(ClientFile), 0o644) },
		"state":         func() error { return os.WriteFile(a.store.Path(stateFile), []byte("{"), 0o600) },
	} {
		t.Run(name, func(t *testing.T) {
			before := f.calls("create")
			testkit.MustDo(change())
			obtained(t, a)
			if got := f.calls("create") - before; got != 2 && name != "state" {
				t.Errorf("%s: %d requests", name, got)
			}
		})
	}
	other, _ := newNode(t, f, func(c *Config) { c.Dir, c.NodeName = a.config.Dir, "node-2" })
	if other.stored(ClientFile) != nil {
		t.Error("another node's certificate is used")
	}
}

// serving has a node ask for a serving certificate with names and addresses.
func serving(names ...string) func(*Config) {
	s := new(Serving)
	for _, name := range names {
		if ip, err := netip.ParseAddr(name); err == nil {
			s.IPAddresses = append(s.IPAddresses, ip)
		} else {
			s.DNSNames = append(s.DNSNames, name)
		}
	}
	return func(c *Config) { c.Serving = s }
}

func TestConfig(t *testing.T) {
	f := newFakeAPI(t)
	for name, change := range map[string]func(*Config){
		"NodeName":        func(c *Config) { c.NodeName = "" },
		"a bad name":      func(c *Config) { c.NodeName = "Node_1" },
		"Dir":             func(c *Config) { c.Dir = "" },
		"API":             func(c *Config) { c.API = nil },
		"Kind":            func(c *Config) { c.Kind = nil },
		"insecure":        func(c *Config) { c.Kind = insecureKind{} },
		"no prover":       func(c *Config) { c.Kind = EvidenceOf(attesttest.PlatformProvider) },
		"half a prover":   func(c *Config) { c.Kind = EvidenceOf(attesttest.PlatformProvider, c.Kind.Open, nil) },
		"MinimumVersion":  func(c *Config) { c.MinimumVersion = -1 },
		"Lifetime":        func(c *Config) { c.Lifetime = time.Minute },
		"half seconds":    func(c *Config) { c.Lifetime = time.Hour + time.Millisecond },
		"negative":        func(c *Config) { c.Lifetime = -time.Hour },
		"SignerName":      func(c *Config) { c.SignerName = csr.SignerServingTPM },
		"unknown signer":  func(c *Config) { c.SignerName = "example.org/x" },
		"RecoverySigner":  func(c *Config) { c.RecoverySigner = csr.SignerClientTPM },
		"serving nothing": func(c *Config) { c.Serving = &Serving{} },
		"serving signer":  func(c *Config) { c.Serving = &Serving{SignerName: csr.SignerClientTPM, DNSNames: []string{"x"}} },
		// What no attempt can get is an error of the start, not of every attempt.
		"68 years and more": func(c *Config) { c.Lifetime = 1 << 31 * time.Second },
		"a hundred years":   func(c *Config) { c.Lifetime = 876000 * time.Hour }, // a common --cluster-signing-duration
		"capitals":          serving("Node-1.EXAMPLE"),
		"a number":          serving("666"),
		"a trailing dot":    serving("node-1.example."),
		"a name of all":     serving("node-1", "kubernetes"),
		"101 names":         serving(slices.Repeat([]string{"node-1"}, 101)...),
		"the loopback":      serving("127.0.0.1"),
		"an address's zone": serving("fe80::1%eth0"),
		"every cluster's":   func(c *Config) { c.ClusterID = "kubernetes" },
		"a long cluster":    func(c *Config) { c.ClusterID = strings.Repeat("c", 1<<12) },
		"no pattern":        func(c *Config) { c.Kubelet.FlagFiles = []string{"/etc/default/kubelet", "/etc/[kubelet"} },
		"a TPM's signer":    func(c *Config) { c.SignerName = csr.SignerClientTPM },
		"a TPM's serving": func(c *Config) {
			c.Serving = &Serving{SignerName: csr.SignerServingTPM, DNSNames: []string{"x"}}
		},
		"a name of a node's": func(c *Config) { c.NodeName = strings.Repeat("a", 254) },
	} {
		t.Run(name, func(t *testing.T) {
			c := Config{NodeName: testNode, Dir: t.TempDir(), API: f.config, Kind: &documents{f: f}}
			change(&c)
			if a, err := New(c); !errors.Is(err, refusal.CheckConfig) || a != nil {
				t.Errorf("%s: got %v", name, err)
			}
		})
	}
	for name, change := range map[string]func(*Config){
		"68 years":    func(c *Config) { c.Lifetime = (1<<31 - 1) * time.Second },
		"a number":    func(c *Config) { c.NodeName = "666" },
		"a cluster":   func(c *Config) { c.ClusterID = "cluster-1" },
		"a pattern":   func(c *Config) { c.Kubelet.FlagFiles = []string{"/etc/[k]ubelet"} },
		"all of them": serving("node-1", "666.example", "192.0.2.7", "2001:db8::7"),
	} {
		c := Config{NodeName: testNode, Dir: t.TempDir(), API: f.config, Kind: &documents{f: f}}
		change(&c)
		if a, err := New(c); err != nil || c.Lifetime != 0 && a.slots[0].Lifetime != c.Lifetime {
			t.Errorf("%s: got %v", name, err)
		}
	}
	for name, change := range map[string]func(*rest.Config){
		"a plugin":   func(c *rest.Config) { c.ExecProvider = &clientcmdapi.ExecConfig{Command: "kubelet-authenticator"} },
		"insecure":   func(c *rest.Config) { c.Insecure = true; c.CAData = nil },
		"no scheme":  func(c *rest.Config) { c.Host = strings.TrimPrefix(c.Host, "https://") },
		"http":       func(c *rest.Config) { c.Host = strings.Replace(c.Host, "https", "http", 1) },
		"no CA":      func(c *rest.Config) { c.CAData = nil },
		"no real CA": func(c *rest.Config) { c.CAData = []byte("x") },
	} {
		t.Run(name, func(t *testing.T) {
			a, _ := newNode(t, f, func(c *Config) {
				c.API = func() (*rest.Config, error) {
					r, err := f.config()
					change(r)
					return r, err
				}
			})
			if _, err := a.snapshot(caller{plugin: true}).requestAnyVersion(t.Context(), nil, a.slots[0]); !errors.Is(err, refusal.CheckConfig) {
				t.Errorf("%s: got %v", name, err)
			}
		})
	}
}

type insecureKind struct{ Evidence }

func (insecureKind) Provider() string { return "insecure" }

func TestExecInfo(t *testing.T) {
	const good = `{"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1","spec":{"interactive":false}}` + "\n"
	if err := errors.Join(CheckExecInfoVariable(good), CheckExecInfoVariable("")); err != nil {
		t.Error(err)
	}
	for _, bad := range []string{"x", "{}", strings.Replace(good, "/v1", "/v1beta1", 1), strings.Replace(good, "ExecC", "C", 1)} {
		if err := CheckExecInfoVariable(bad); !errors.Is(err, checkExecInfo) {
			t.Errorf("got %v", err)
		}
	}
}

func FuzzExecInfo(f *testing.F) {
	testkit.BeginFuzz(f)
	f.Add(`{"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1"}`)
	f.Fuzz(func(t *testing.T, value string) {
		if err := CheckExecInfoVariable(value); err != nil && !errors.Is(err, checkExecInfo) {
			t.Error(err)
		}
	})
}
