package authenticator

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/kube/authenticator/certstore"
)

// authority is a CA that the API server does not know.
func authority(t testing.TB, name string) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	key := testkit.Must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	return &x509.Certificate{SerialNumber: big.NewInt(9), Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true}, key
}

// signs has the control plane answer with a CA's certificate, once it has challenged.
func (f *fakeAPI) signs(ca *x509.Certificate, key *ecdsa.PrivateKey, change func(*x509.Certificate)) {
	f.set(func() {
		f.decide = func(o *certificatesv1.CertificateSigningRequest) bool {
			if strings.HasPrefix(o.Spec.SignerName, "cluster.x-k8s.io/kubelet-attestation-challenge-") {
				return false
			}
			condition(o, csr.ConditionApproved, "x", "y")
			block, _ := pem.Decode(o.Spec.Request)
			request, err := x509.ParseCertificateRequest(block.Bytes)
			if err != nil {
				f.t.Error(err)
				return true
			}
			usage := x509.ExtKeyUsageClientAuth
			if len(request.DNSNames) != 0 {
				usage = x509.ExtKeyUsageServerAuth
			}
			leaf := &x509.Certificate{SerialNumber: big.NewInt(7), Subject: request.Subject, DNSNames: request.DNSNames, KeyUsage: x509.KeyUsageDigitalSignature,
				ExtKeyUsage: []x509.ExtKeyUsage{usage}, NotBefore: f.now().Add(-5 * time.Minute), NotAfter: f.now().Add(time.Hour)}
			if change != nil {
				change(leaf)
			}
			der, err := x509.CreateCertificate(rand.Reader, leaf, ca, request.PublicKey, key)
			if err != nil {
				f.t.Error(err)
			}
			o.Status.Certificate = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
			return true
		}
	})
}

// TestWrongCertificate: whatever comes in answer to a request, a good certificate stays until a
// better one has worked, and such a one is installed once the control plane is sound again.
func TestWrongCertificate(t *testing.T) {
	const foreign, own = true, false
	for name, c := range map[string]struct {
		foreign bool // of a CA that the API server does not know
		change  func(f *fakeAPI, c *x509.Certificate)
		want    string
	}{
		"another CA":                  {foreign, nil, "Unauthorized"},
		"another CA, a hundred years": {foreign, func(f *fakeAPI, c *x509.Certificate) { c.NotAfter = f.now().AddDate(100, 0, 0) }, "Unauthorized"},
		"another CA, the year 9999": {foreign, func(_ *fakeAPI, c *x509.Certificate) {
			c.NotAfter = time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)
		}, "Unauthorized"},
		"not valid for 50 years": {own, func(f *fakeAPI, c *x509.Certificate) {
			c.NotBefore, c.NotAfter = f.now().AddDate(50, 0, 0), f.now().AddDate(60, 0, 0)
		}, "Unauthorized"},
		"a CA itself": {own, func(_ *fakeAPI, c *x509.Certificate) {
			c.IsCA, c.BasicConstraintsValid, c.KeyUsage = true, true, x509.KeyUsageCertSign
		}, "a CA"},
		"an unknown critical extension": {own, func(_ *fakeAPI, c *x509.Certificate) {
			c.ExtraExtensions = []pkix.Extension{{Id: []int{1, 2, 3, 4}, Critical: true, Value: []byte{5, 0}}}
		}, "1.2.3.4"},
		"four seconds":        {own, func(f *fakeAPI, c *x509.Certificate) { c.NotAfter = f.now().Add(4 * time.Second) }, "at least 6m0s"},
		"a twentieth":         {own, func(f *fakeAPI, c *x509.Certificate) { c.NotAfter = f.now().Add(3 * time.Minute) }, "of the requested 1h0m0s"},
		"it would end before": {own, func(f *fakeAPI, c *x509.Certificate) { c.NotAfter = f.now().Add(8 * time.Minute) }, "does not expire before the current certificate"},
		"ended":               {own, func(f *fakeAPI, c *x509.Certificate) { c.NotAfter = f.now().Add(-time.Minute) }, "this machine's clock"},
		"another node":        {own, func(_ *fakeAPI, c *x509.Certificate) { c.Subject.CommonName = "system:node:other" }, "node-1"},
		"administrators":      {own, func(_ *fakeAPI, c *x509.Certificate) { c.Subject.Organization = []string{"system:masters"} }, "system:nodes"},
		"two groups": {own, func(_ *fakeAPI, c *x509.Certificate) {
			c.Subject.Organization = append(c.Subject.Organization, "system:masters")
		}, "system:nodes"},
		"for servers": {own, func(_ *fakeAPI, c *x509.Certificate) { c.ExtKeyUsage[0] = x509.ExtKeyUsageServerAuth }, "another use"},
		"for servers also": {own, func(_ *fakeAPI, c *x509.Certificate) {
			c.ExtKeyUsage = append(c.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
		}, "another use"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFakeAPI(t)
			a, _ := joined(t, f, nil)
			good := a.stored(ClientFile)
			ca, key := f.caCert, f.caKey
			if c.foreign {
				ca, key = authority(t, "an unknown CA")
			}
			f.signs(ca, key, func(leaf *x509.Certificate) {
				if c.change != nil {
					c.change(f, leaf)
				}
			})
			got := obtained(t, a)
			if got.Status.ClientKeyData != string(good.Key) || got.Status.ExpirationTimestamp.After(f.now().Add(time.Minute)) {
				t.Errorf("the good one is gone, or asked for again only at %s", got.Status.ExpirationTimestamp)
			}
			if noted := a.onDisk(ClientFile); noted.Failures != 1 || !strings.Contains(noted.Error, c.want) {
				t.Errorf("state %+v, want %q", noted, c.want)
			}
			f.set(func() { f.decide = nil })
			f.move(a.onDisk(ClientFile).Next)
			got = obtained(t, a)
			if got.Status.ClientKeyData == string(good.Key) {
				t.Error("it was not renewed when the control plane was sound again")
			}
			if p := a.stored(previousFile); p == nil || !bytes.Equal(p.Key, good.Key) {
				t.Error("the one before is not kept")
			}
		})
	}
}

// TestWrongServing: a serving certificate is replaced by one for exactly the names asked for.
func TestWrongServing(t *testing.T) {
	for name, c := range map[string]struct {
		change func(f *fakeAPI, c *x509.Certificate)
		want   string // "": it is installed
	}{
		"the same names": {func(*fakeAPI, *x509.Certificate) {}, ""},
		"other names": {func(f *fakeAPI, c *x509.Certificate) {
			c.DNSNames, c.IPAddresses, c.NotAfter = []string{"another.example"}, []net.IP{{192, 0, 2, 9}}, f.now().AddDate(30, 0, 0)
		}, "another.example"},
		"one more":       {func(_ *fakeAPI, c *x509.Certificate) { c.IPAddresses = []net.IP{{192, 0, 2, 9}} }, "192.0.2.9"},
		"an address too": {func(_ *fakeAPI, c *x509.Certificate) { c.EmailAddresses = []string{"root@example"} }, "root@example"},
		"none":           {func(_ *fakeAPI, c *x509.Certificate) { c.DNSNames = nil }, testNode},
		"it begins later": {func(f *fakeAPI, c *x509.Certificate) {
			c.NotBefore, c.NotAfter = f.now().Add(time.Hour), f.now().Add(3*time.Hour)
		}, "already valid"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFakeAPI(t)
			a, _ := newNode(t, f, func(c *Config) { c.Serving = &Serving{DNSNames: []string{testNode}} })
			testkit.MustDo(a.Rotate(t.Context()))
			good := a.stored(ServingFile)
			f.set(func() {
				f.sign = func(leaf *x509.Certificate) {
					if len(leaf.DNSNames) != 0 {
						c.change(f, leaf)
					}
				}
			})
			err := a.Rotate(t.Context())
			if (err == nil) != (c.want == "") || err != nil && (!errors.Is(err, certstore.CheckPair) || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("got %v, want %q", err, c.want)
			}
			if p := a.stored(ServingFile); bytes.Equal(p.Key, good.Key) != (c.want != "") {
				t.Errorf("in place is one for %v", p.Leaf.DNSNames)
			}
		})
	}
}

// TestUntrusted: a new certificate that the API server does not trust is unfit, and is not asked for
// again as after a failure that passes. The one that works stays.
func TestUntrusted(t *testing.T) {
	f := newFakeAPI(t)
	as := caller{daemon: true}
	a, _, _, _ := steps(t, f, 0, as, nil)
	testkit.MustDo(a.Rotate(t.Context()))
	good := a.stored(ClientFile)
	ca, key := authority(t, "a new CA")
	f.signs(ca, key, nil)
	began := good.Renew.Add(time.Second)
	a.config.Now = f.now
	f.move(began)
	tries := 0
	for f.now().Before(began.Add(10 * time.Minute)) {
		s, err := a.snapshot(as).runStep(t.Context(), a.slots[0])
		if err != nil {
			tries++
		}
		if err != nil && (!errors.Is(err, certstore.CheckPair) || !apierrors.IsUnauthorized(err)) {
			t.Fatal(err)
		}
		if s.use == nil || !bytes.Equal(s.use.Key, good.Key) {
			t.Fatal("the one that works is gone")
		}
		f.move(f.now().Add(max(s.at.Sub(f.now()), minSleep)))
	}
	if tries < 5 || tries > 25 {
		t.Errorf("%d tries in ten minutes", tries)
	}
	f.set(func() { f.decide = nil })
	f.move(f.now().Add(lastUnfit))
	if s, err := a.snapshot(as).runStep(t.Context(), a.slots[0]); err != nil || bytes.Equal(s.use.Key, good.Key) {
		t.Errorf("once it is trusted: %v", err)
	}
}

// TestPreviousCannotBeKept: the new certificate is stored even if the one before it cannot be.
func TestPreviousCannotBeKept(t *testing.T) {
	f := newFakeAPI(t)
	log := &lines{t: t}
	a, _ := newNode(t, f, func(c *Config) { c.Log = slog.New(slog.NewTextHandler(log, nil)) })
	testkit.MustDo(errors.Join(a.Rotate(t.Context()), os.Mkdir(a.store.Path(previousFile), 0o700)))
	first, before := a.stored(ClientFile), log.count()
	if err := a.Rotate(t.Context()); err != nil || a.stored(ClientFile).Leaf.Equal(first.Leaf) {
		t.Errorf("got %v", err)
	}
	if n := log.count() - before; n != 3 {
		t.Errorf("%d lines, want one that it cannot be read, one that it cannot be written, and one about the new one", n)
	}
}

// TestNotAllowedToAsk: an API server that knows the node, but does not tell it so.
func TestNotAllowedToAsk(t *testing.T) {
	for name, c := range map[string]struct {
		answer func(w http.ResponseWriter)
		works  bool
	}{
		"forbidden": {func(w http.ResponseWriter) { fail(w, http.StatusForbidden, metav1.StatusReasonForbidden) }, true},
		"no answer": {func(w http.ResponseWriter) { fail(w, http.StatusInternalServerError, metav1.StatusReasonInternalError) }, false},
		"not found": {func(w http.ResponseWriter) { fail(w, http.StatusNotFound, metav1.StatusReasonNotFound) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFakeAPI(t)
			f.set(func() { f.review = c.answer })
			a, _ := newNode(t, f, nil)
			if err := a.Rotate(t.Context()); (err == nil) != c.works || (a.stored(ClientFile) != nil) != c.works {
				t.Errorf("got %v, want it to be installed: %t", err, c.works)
			}
		})
	}
}

// TestRefused: a certificate that the API server rejects, such as another cluster's,
// is renewed at once, and until then the one before is used if that works.
func TestRefused(t *testing.T) {
	for name, c := range map[string]struct {
		before            bool // a certificate before it
		noToken           bool
		daemon            bool // runs
		previous, renewed bool
	}{
		"with a token":                      {renewed: true},
		"with the one before":               {before: true, noToken: true, renewed: true},
		"with neither":                      {noToken: true},
		"with a daemon, which is to do it":  {daemon: true},
		"with a daemon, and the one before": {before: true, daemon: true, previous: true},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFakeAPI(t)
			a, _ := newNode(t, f, nil)
			testkit.MustDo(a.Rotate(t.Context()))
			first := a.stored(ClientFile)
			if !c.before {
				testkit.MustDo(os.Remove(a.store.Path(ClientFile)))
			}
			testkit.MustDo(a.Rotate(t.Context()))
			second := a.stored(ClientFile)
			f.set(func() { f.unknown, f.noToken = second.Leaf, c.noToken })
			f.move(f.now().Add(askPause))
			if c.daemon {
				_, release, err := a.store.Hold(daemonName)
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = release() }()
			}
			got := obtained(t, again(t, a))
			switch key := got.Status.ClientKeyData; {
			case c.renewed == (key == string(first.Key) || key == string(second.Key)), c.previous != (key == string(first.Key)):
				t.Errorf("got the first %t, the second %t", key == string(first.Key), key == string(second.Key))
			case !c.renewed && len(a.onDisk(ClientFile).Refused) != 1:
				t.Errorf("not noted for others: %+v", a.onDisk(ClientFile))
			case c.renewed && len(a.onDisk(ClientFile).Refused) != 0:
				t.Errorf("noted of the new one: %+v", a.onDisk(ClientFile))
			}
			if c.renewed && c.before {
				if p := a.stored(previousFile); p == nil || !bytes.Equal(p.Key, first.Key) {
					t.Error("kept is one that does not work")
				}
			}
			if !c.renewed { // nothing better came: it was the API server's mistake
				f.set(func() { f.unknown = nil })
				f.move(f.now().Add(lastPause))
				if !c.daemon {
					got := obtained(t, again(t, a))
					if got.Status.ClientKeyData == string(second.Key) {
						t.Error("it is not renewed with the one that works again")
					}
				}
			}
		})
	}
}

// TestKeyDir: keys are in KeyDir, and a pair in the other folder is used until the renewal.
func TestKeyDir(t *testing.T) {
	f := newFakeAPI(t)
	a, _ := joined(t, f, func(c *Config) { c.Serving = &Serving{DNSNames: []string{testNode}} })
	testkit.MustDo(a.Rotate(t.Context()))
	before := a.stored(ClientFile)
	c := a.config
	c.KeyDir = t.TempDir()
	b := testkit.Must(New(c))
	if p := b.stored(ClientFile); p == nil || !bytes.Equal(p.Key, before.Key) {
		t.Error("the one from before is not used")
	}
	testkit.MustDo(b.Rotate(t.Context()))
	for dir, want := range map[string]string{c.Dir: ".lock state.json", c.KeyDir: "client.pem client.previous.pem serving.pem"} {
		entries, err := os.ReadDir(dir)
		var names []string
		for _, e := range entries {
			names = append(names, e.Name())
		}
		if got := strings.Join(names, " "); err != nil || got != want {
			t.Errorf("got %s, %v, want %s", got, err, want)
		}
	}
	if s := b.Status(); s.Certificates[0].File != c.KeyDir+"/"+ClientFile || !s.Usable {
		t.Errorf("status %+v", s.Certificates[0])
	}
	c.API = func() (*rest.Config, error) { return f.config() }
	c.KeyDir = t.TempDir() // after the machine was started again
	b = testkit.Must(New(c))
	f.move(f.now().Add(lastPause))
	obtained(t, b)
	if f.calls("create "+csr.BootstrapUserPrefix) < 4 {
		t.Errorf("calls %q", f.log)
	}
}

// TestRotateShorter: an operator may have a certificate replaced by one that ends before it.
func TestRotateShorter(t *testing.T) {
	f := newFakeAPI(t)
	a, _ := joined(t, f, nil)
	before := a.stored(ClientFile)
	f.set(func() { f.lifetime = 30 * time.Minute })
	testkit.MustDo(a.Rotate(t.Context()))
	if p := a.stored(ClientFile); !p.Leaf.NotAfter.Before(before.Leaf.NotAfter) {
		t.Errorf("in place is one until %s", p.Leaf.NotAfter)
	}
}

// TestDaemonAsks: the daemon checks by itself that the API server accepts its certificate.
func TestDaemonAsks(t *testing.T) {
	f := newFakeAPI(t)
	a, _ := newNode(t, f, nil)
	testkit.MustDo(a.Rotate(t.Context()))
	before := a.stored(ClientFile)
	take := func() *certstore.Pair {
		t.Helper()
		s := testkit.Must(a.snapshot(caller{daemon: true}).runStep(t.Context(), a.slots[0]))
		return s.use
	}
	f.move(f.now().Add(askPause))
	if p := take(); !bytes.Equal(p.Key, before.Key) || f.calls("review") != 2 {
		t.Errorf("renewed, or not asked: %q", f.log)
	}
	if take(); f.calls("review") != 2 {
		t.Errorf("asked again: %q", f.log)
	}
	f.set(func() { f.unknown = before.Leaf })
	f.move(f.now().Add(askPause))
	if p := take(); bytes.Equal(p.Key, before.Key) {
		t.Error("not renewed")
	}
	for name, breaks := range map[string]func(){ // nothing is known then
		"away":      func() { f.down = true },
		"no answer": func() { f.review = func(w http.ResponseWriter) { fail(w, http.StatusInternalServerError, "") } },
	} {
		t.Run(name, func(t *testing.T) {
			p := a.stored(ClientFile)
			f.set(breaks)
			f.move(f.now().Add(askPause))
			if got := take(); !bytes.Equal(got.Key, p.Key) || len(a.onDisk(ClientFile).Refused) != 0 {
				t.Errorf("state %+v", a.onDisk(ClientFile))
			}
		})
	}
}
