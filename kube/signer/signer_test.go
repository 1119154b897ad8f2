package signer

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/nodeattest/nodeattest/attest/attesttest"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/fuzzing"
	"github.com/nodeattest/nodeattest/kube/internal/requests"
	"github.com/nodeattest/nodeattest/refusal"
)

// world is an API server of requests with a signer, a node and its control plane.
type world struct {
	*testing.T
	api        client.Client
	node       *attesttest.Node
	plane      *attesttest.ControlPlane
	reconciler *Reconciler
	ca         *counting
}

// noCA is where there is no CA.
func noCA() *csr.CA { return nil }

// counting counts what a CA issues, and fails as a test says.
type counting struct {
	ca     *csr.CA
	issued int
	err    error
}

func (c *counting) Issue(ctx context.Context, attested *csr.Attested) (*csr.Issued, error) {
	c.issued++
	if c.err != nil {
		return nil, c.err
	}
	return c.ca.Issue(ctx, attested)
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{T: t, node: attesttest.NewNode(t, attesttest.NodeOptions{})}
	w.plane = attesttest.NewControlPlane(t, w.node)
	providers, err := csr.NewProviders(csr.ProvidersConfig{Providers: w.plane.Verifier.Registrations(), AuthorizedAttestors: []string{"tpm"}})
	if err != nil {
		t.Fatal(err)
	}
	scheme := runtime.NewScheme()
	if err := certificatesv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	w.api = fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&certificatesv1.CertificateSigningRequest{}).Build()
	w.ca = &counting{ca: w.plane.CA}
	if w.reconciler, err = New(Config{Providers: providers, CA: func() *csr.CA { return w.plane.CA }}); err != nil {
		t.Fatal(err)
	}
	w.reconciler.issue = w.ca.Issue
	w.reconciler.writer, w.reconciler.readers = w.api, map[string]requests.Reader{csr.SignerClientTPM: w.api}
	return w
}

// answer is the node's answer as an object, with conditions.
func (w *world) answer(name string, conditions ...string) *certificatesv1.CertificateSigningRequest {
	w.Helper()
	challenge, err := w.plane.Challenge(w.Context(), w.node)
	if err != nil {
		w.Fatal(err)
	}
	request, err := w.node.Answer(w.Context(), challenge, w.plane.Now())
	if err != nil {
		w.Fatal(err)
	}
	request.Metadata.Name, request.Metadata.UID = name, "uid-of-"+name
	text, err := json.Marshal(request)
	if err != nil {
		w.Fatal(err)
	}
	o := new(certificatesv1.CertificateSigningRequest)
	if err := json.Unmarshal(text, o); err != nil {
		w.Fatal(err)
	}
	for _, c := range conditions {
		o.Status.Conditions = append(o.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{Type: certificatesv1.RequestConditionType(c), Status: "True", Reason: "ByHand"})
	}
	return o
}

// sign has a stored object looked at once, and returns it as it is then.
func (w *world) sign(o *certificatesv1.CertificateSigningRequest) (*certificatesv1.CertificateSigningRequest, error) {
	w.Helper()
	status := o.Status
	if err := w.api.Create(w.Context(), o); err != nil {
		w.Fatal(err)
	}
	if len(status.Conditions) != 0 {
		o.Status = status
		if err := w.api.Status().Update(w.Context(), o); err != nil {
			w.Fatal(err)
		}
	}
	return w.again(o)
}

func (w *world) again(o *certificatesv1.CertificateSigningRequest) (*certificatesv1.CertificateSigningRequest, error) {
	w.Helper()
	_, err := w.reconciler.look(w.Context(), requests.Key{SignerName: o.Spec.SignerName, Name: o.Name})
	got := new(certificatesv1.CertificateSigningRequest)
	if err := w.api.Get(w.Context(), client.ObjectKeyFromObject(o), got); err != nil {
		w.Fatal(err)
	}
	return got, err
}

// TestReconcile signs what is approved and right, and nothing else.
func TestReconcile(t *testing.T) {
	w := newWorld(t)
	for name, c := range map[string]struct {
		conditions []string
		change     func(o *certificatesv1.CertificateSigningRequest)
		signed     bool
		failed     string // the reason
	}{
		"approved":            {conditions: []string{"Approved"}, signed: true},
		"not approved":        {},
		"denied":              {conditions: []string{"Denied"}},
		"approved and failed": {conditions: []string{"Approved", "Failed"}},
		"by somebody else": {conditions: []string{"Approved"}, failed: "BindingRequester", change: func(o *certificatesv1.CertificateSigningRequest) {
			o.Spec.Username = csr.BootstrapUserPrefix + "zyxwvu"
		}},
		"without evidence": {conditions: []string{"Approved"}, failed: "AttestationProvider", change: func(o *certificatesv1.CertificateSigningRequest) {
			text := string(o.Spec.Request)
			o.Spec.Request = []byte(text[:strings.Index(text, "-----BEGIN KUBELET")])
		}},
		"of another signer": {conditions: []string{"Approved"}, change: func(o *certificatesv1.CertificateSigningRequest) { o.Spec.SignerName = csr.SignerServingTPM }},
	} {
		t.Run(name, func(t *testing.T) {
			w.T = t
			o := w.answer(strings.ReplaceAll(name, " ", "-"), c.conditions...)
			if c.change != nil {
				c.change(o)
			}
			got, err := w.sign(o)
			if err != nil {
				t.Fatal(err)
			}
			if signed := len(got.Status.Certificate) != 0; signed != c.signed {
				t.Errorf("signed: %t, conditions %+v", signed, got.Status.Conditions)
			}
			last := ""
			if n := len(got.Status.Conditions); n > len(c.conditions) {
				last = got.Status.Conditions[n-1].Reason
			}
			if last != c.failed {
				t.Errorf("failed with %q, want %q", last, c.failed)
			}
		})
	}
}

// TestRetry checks that what cannot be signed now is signed later, and once.
func TestRetry(t *testing.T) {
	w := newWorld(t)
	w.ca.err = refusal.Retry(errors.New("the HSM does not answer"))
	o, err := w.sign(w.answer("r", "Approved"))
	if !errors.Is(err, refusal.ErrRetry) || len(o.Status.Certificate) != 0 || len(o.Status.Conditions) != 1 {
		t.Errorf("got %v and %+v, want a retry", err, o.Status)
	}
	w.ca.err = nil
	for range 2 {
		if o, err = w.again(o); err != nil || len(o.Status.Certificate) == 0 {
			t.Errorf("got %v and %+v, want a certificate", err, o.Status)
		}
	}
	if w.ca.issued != 2 {
		t.Errorf("the CA was asked %d times, want 2", w.ca.issued)
	}
	if _, err := newReconciler(Config{CA: noCA}, nil).issue(t.Context(), nil); csr.Decide(err).Verdict != csr.VerdictRetry {
		t.Errorf("without a CA: %v, want a retry", err)
	}
}

// pair is a new CA in PEM.
func pair(t testing.TB) (certificate, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ca"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageCertSign, IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8})
}

// TestFileCA checks that a CA follows its files, and stays while they do not fit.
func TestFileCA(t *testing.T) {
	dir := t.TempDir()
	certificateFile, keyFile := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	write := func(path string, text []byte) {
		t.Helper()
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	config := csr.CAConfig{ClusterIDs: []string{"a-cluster"}, SignerNames: []string{csr.SignerClientTPM}}
	certificate, key := pair(t)
	write(certificateFile, certificate)
	write(keyFile, key)
	f, err := OpenCA(certificateFile, keyFile, config)
	if err != nil {
		t.Fatal(err)
	}
	first := f.ca
	if err := f.Reload(); err != nil || f.ca != first {
		t.Errorf("without a change: %v, another CA: %t", err, f.ca != first)
	}
	nextCertificate, nextKey := pair(t)
	for name, broken := range map[string]struct{ certificate, key []byte }{
		"another key":       {certificate, nextKey},
		"another CA":        {nextCertificate, key},
		"no key":            {certificate, nil},
		"no certificate":    {nil, key},
		"too long":          {append(make([]byte, maxFileSize), certificate...), key},
		"a key that is cut": {certificate, key[:len(key)/2]},
	} {
		t.Run(name, func(t *testing.T) {
			write(certificateFile, broken.certificate)
			write(keyFile, broken.key)
			err := f.Reload()
			if err == nil || f.ca != first {
				t.Errorf("%s: %v, another CA: %t", name, err, f.ca != first)
			}
			if body := strings.Split(string(nextKey), "\n")[1]; err != nil && strings.Contains(err.Error(), body) {
				t.Errorf("%s: the error has the key", name)
			}
		})
	}
	write(certificateFile, nextCertificate)
	write(keyFile, nextKey)
	if err := f.Reload(); err != nil || f.ca == first {
		t.Errorf("a new CA: %v", err)
	}
	if _, err := OpenCA("", keyFile, config); !errors.Is(err, refusal.CheckConfig) {
		t.Errorf("no path: %v", err)
	}
	if _, err := OpenCA(filepath.Join(dir, "none"), keyFile, config); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
}

// names are providers for signers.
type names []string

func (n names) SignerNames() []string    { return n }
func (names) ChallengeSigners() []string { return nil }
func (names) Challenge(context.Context, *csr.Request) ([]byte, error) {
	return nil, errors.New("none")
}
func (names) Verify(context.Context, *csr.Request) (*csr.Attested, error) { return nil, nil }

func TestConfig(t *testing.T) {
	for name, c := range map[string]Config{
		"no providers":      {CA: noCA},
		"for no signer":     {Providers: names{}, CA: noCA},
		"Kubernetes' own":   {Providers: names{csr.SignerClientTPM, csr.SignerKubeAPIServerClientKubelet}, CA: noCA},
		"no CA":             {Providers: names{csr.SignerClientTPM}},
		"a negative number": {Providers: names{csr.SignerClientTPM}, CA: noCA, Workers: -1},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := New(c); !errors.Is(err, refusal.CheckConfig) {
				t.Errorf("%s: %v, want %s", name, err, refusal.CheckConfig)
			}
		})
	}
	w := newWorld(t)
	w.reconciler.c.Providers = names{csr.SignerClientTPM} // which verify nothing and refuse nothing
	if o, err := w.sign(w.answer("r", "Approved")); err == nil || len(o.Status.Certificate) != 0 {
		t.Errorf("neither verified nor refused: %v, %+v", err, o.Status)
	}
}

// FuzzCA: no files make the reader panic, what it takes it takes again, and no error repeats
// the key.
func FuzzCA(f *testing.F) {
	fuzzing.Begin(f)
	config := csr.CAConfig{ClusterIDs: []string{"a-cluster"}, SignerNames: []string{csr.SignerClientTPM}}
	certificate, key := pair(f)
	f.Add(certificate, key)
	f.Add(append(bytes.Clone(certificate), certificate...), key)
	f.Add(key, certificate)
	f.Add([]byte{}, key)
	secret := string(bytes.Split(key, []byte("\n"))[1])
	f.Fuzz(func(t *testing.T, chain, key []byte) {
		ca, err := parseCA(chain, key, config)
		if err != nil {
			if ca != nil || strings.Contains(err.Error(), secret) {
				t.Fatalf("%v, %v", ca, err)
			}
			return
		}
		if _, err := parseCA(chain, key, config); err != nil {
			t.Fatalf("taken once: %v", err)
		}
	})
}
