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
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	certificatesv1 "k8s.io/api/certificates/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/nodeattest/nodeattest/attest/attesttest"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/kube/controller"
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

// counting counts the certificates of a CA, and fails as a test says.
type counting struct {
	ca     *csr.CA
	issued int
	err    error
}

func (c *counting) Issue(ctx context.Context, _ *csr.CA, attested *csr.Attested) (*csr.Issued, error) {
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
	scheme := runtime.NewScheme()
	testkit.MustDo(certificatesv1.AddToScheme(scheme))
	w.api = fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&certificatesv1.CertificateSigningRequest{}).Build()
	w.ca = &counting{ca: w.plane.CA}
	var err error
	if w.reconciler, err = New(Config{Providers: controller.Of(w.plane.Verifier), CA: func() *csr.CA { return w.plane.CA }}); err != nil {
		t.Fatal(err)
	}
	w.reconciler.issue = w.ca.Issue
	w.reconciler.watched = &requests.Watched{Readers: map[string]requests.Reader{csr.SignerClientTPM: w.api}, Writer: w.api}
	return w
}

// answer is the node's answer as an object, with conditions.
func (w *world) answer(name string, conditions ...string) *certificatesv1.CertificateSigningRequest {
	w.Helper()
	challenge := testkit.Must(w.plane.Challenge(w.Context(), w.node))
	request := testkit.Must(w.node.Answer(w.Context(), challenge, w.plane.Now()))
	request.Metadata.Name, request.Metadata.UID = name, "uid-of-"+name
	text := testkit.Must(json.Marshal(request))
	o := new(certificatesv1.CertificateSigningRequest)
	testkit.MustDo(json.Unmarshal(text, o))
	for _, c := range conditions {
		o.Status.Conditions = append(o.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{Type: certificatesv1.RequestConditionType(c), Status: "True", Reason: "ByHand"})
	}
	return o
}

// sign has a stored object looked at once, and returns it as it is then.
func (w *world) sign(o *certificatesv1.CertificateSigningRequest) (*certificatesv1.CertificateSigningRequest, error) {
	w.Helper()
	status := o.Status
	testkit.MustDo(w.api.Create(w.Context(), o))
	if len(status.Conditions) != 0 {
		o.Status = status
		testkit.MustDo(w.api.Status().Update(w.Context(), o))
	}
	return w.again(o)
}

func (w *world) again(o *certificatesv1.CertificateSigningRequest) (*certificatesv1.CertificateSigningRequest, error) {
	w.Helper()
	_, err := w.reconciler.look(w.Context(), requests.Key{SignerName: o.Spec.SignerName, Name: o.Name})
	got := new(certificatesv1.CertificateSigningRequest)
	testkit.MustDo(w.api.Get(w.Context(), client.ObjectKeyFromObject(o), got))
	return got, err
}

// TestReconcile signs approved requests with good evidence, and nothing else.
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
		"by another user": {conditions: []string{"Approved"}, failed: "BindingRequester", change: func(o *certificatesv1.CertificateSigningRequest) {
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
			got := testkit.Must(w.sign(o))
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

// A request that has its certificate, or is being deleted, is not looked at, and
// neither is one with a condition of a type that is not known.
func TestApproved(t *testing.T) {
	condition := func(types ...certificatesv1.RequestConditionType) (list []certificatesv1.CertificateSigningRequestCondition) {
		for _, of := range types {
			list = append(list, certificatesv1.CertificateSigningRequestCondition{Type: of})
		}
		return list
	}
	for name, c := range map[string]struct {
		change func(o *certificatesv1.CertificateSigningRequest)
		want   bool
	}{
		"approved":      {func(*certificatesv1.CertificateSigningRequest) {}, true},
		"a certificate": {func(o *certificatesv1.CertificateSigningRequest) { o.Status.Certificate = []byte("x") }, false},
		"being deleted": {func(o *certificatesv1.CertificateSigningRequest) { o.DeletionTimestamp = &metav1.Time{} }, false},
		"denied": {func(o *certificatesv1.CertificateSigningRequest) {
			o.Status.Conditions = condition("Approved", "Denied")
		}, false},
		"failed before": {func(o *certificatesv1.CertificateSigningRequest) {
			o.Status.Conditions = condition("Failed", "Approved")
		}, false},
		"another condition": {func(o *certificatesv1.CertificateSigningRequest) { o.Status.Conditions = condition("Seen") }, false},
	} {
		o := &certificatesv1.CertificateSigningRequest{Status: certificatesv1.CertificateSigningRequestStatus{Conditions: condition("Approved")}}
		if c.change(o); approved(o) != c.want {
			t.Errorf("%s: %t", name, !c.want)
		}
	}
}

// gone is a cluster that answers each read with an error.
type gone struct {
	requests.Reader
	err error
}

func (g gone) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	return g.err
}

// A request that is not there any more is done, and one that cannot be read now is looked at again.
func TestUnread(t *testing.T) {
	w := newWorld(t)
	down := errors.New("down")
	for _, c := range []struct{ err, want error }{{apierrors.NewNotFound(requestResource, "r"), nil}, {down, down}} {
		w.reconciler.watched.Readers = map[string]requests.Reader{csr.SignerClientTPM: gone{err: c.err}}
		if _, err := w.reconciler.look(t.Context(), requests.Key{SignerName: csr.SignerClientTPM, Name: "r"}); !errors.Is(err, c.want) {
			t.Errorf("%v: %v", c.err, err)
		}
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
	if _, err := newReconciler(Config{CA: noCA}, nil).issue(t.Context(), nil, nil); csr.Decide(err).Verdict != csr.VerdictRetry {
		t.Errorf("without a CA: %v, want a retry", err)
	}
}

// refusing is an API server that answers each write of a status with an error, if there is one.
type refusing struct {
	client.SubResourceClientConstructor
	client.SubResourceClient
	err error
}

func (r *refusing) SubResource(name string) client.SubResourceClient {
	r.SubResourceClient = r.SubResourceClientConstructor.SubResource(name)
	return r
}

func (r *refusing) Update(ctx context.Context, o client.Object, options ...client.SubResourceUpdateOption) error {
	if r.err != nil {
		return r.err
	}
	return r.SubResourceClient.Update(ctx, o, options...)
}

var requestResource = certificatesv1.Resource("certificatesigningrequests")

// TestFailedEvent tells of a failure that was written, and of no other.
func TestFailedEvent(t *testing.T) {
	w := newWorld(t)
	told, writer := events.NewFakeRecorder(9), &refusing{SubResourceClientConstructor: w.api, err: apierrors.NewConflict(requestResource, "r", errors.New("changed"))}
	w.reconciler.watched.Events, w.reconciler.watched.Writer = told, writer
	o := w.answer("r", "Approved")
	o.Spec.Username = csr.BootstrapUserPrefix + "zyxwvu"
	if _, err := w.sign(o); err != nil || len(told.Events) != 0 {
		t.Errorf("after a conflict: %v, %d Events", err, len(told.Events))
	}
	writer.err = nil
	if _, err := w.again(o); err != nil || len(told.Events) != 1 {
		t.Errorf("written: %v, %d Events", err, len(told.Events))
	}
}

// TestEveryAttemptIsOneCertificate: while the status cannot be written, each attempt verifies the
// evidence again, and only the first makes a certificate.
func TestEveryAttemptIsOneCertificate(t *testing.T) {
	w := newWorld(t)
	// The right to sign is missing, or an admission policy or webhook is in the way.
	writer := &refusing{SubResourceClientConstructor: w.api, err: apierrors.NewForbidden(requestResource, "r", errors.New("not permitted to sign"))}
	w.reconciler.watched.Writer = writer
	o := w.answer("r", "Approved")
	if _, err := w.sign(o); err == nil {
		t.Fatal("written")
	}
	for range 40 {
		if got, err := w.again(o); err == nil || len(got.Status.Certificate) != 0 {
			t.Fatalf("written: %v", err)
		}
	}
	if w.ca.issued != 1 {
		t.Errorf("%d attempts made %d certificates", 41, w.ca.issued)
	}
	ca := w.plane.CA
	w.reconciler.c.CA = noCA // another one, since the first attempts
	if _, err := w.again(o); err == nil || w.ca.issued != 2 {
		t.Errorf("%v, and %d certificates, want one of the new CA", err, w.ca.issued)
	}
	w.reconciler.c.CA = func() *csr.CA { return ca }
	writer.err = nil
	got, err := w.again(o)
	if err != nil || len(got.Status.Certificate) == 0 || w.ca.issued != 3 || len(w.reconciler.unwritten.held) != 0 {
		t.Errorf("got %v and %d certificates, %d kept, want it written", err, w.ca.issued, len(w.reconciler.unwritten.held))
	}
}

// TestUnwritten: a certificate is used again only on the same grounds, and is recorded again.
func TestUnwritten(t *testing.T) {
	w := newWorld(t)
	o := w.answer("r", "Approved")
	verified := testkit.Must(w.reconciler.c.Providers.Verify(t.Context(), controller.Request(o)))
	ca, now := w.plane.CA, w.plane.Now()
	vouch := func(change func(g *csr.Grant)) *csr.Attested {
		g := verified.Grant()
		g.Record = nil
		change(&g)
		return verified.Checked().Vouch(verified.Machine(), g, nil)
	}
	same := vouch(func(*csr.Grant) {})
	issued, err := ca.Issue(t.Context(), same)
	if err != nil {
		t.Fatal(err)
	}
	var u unwritten
	u.keep(o, ca, same, issued)
	recorded, end := 0, issued.Certificate.NotAfter
	errRecord := errors.New("released")
	another := o.DeepCopy()
	another.UID = "another"
	for name, c := range map[string]struct {
		object   *certificatesv1.CertificateSigningRequest
		ca       *csr.CA
		attested *csr.Attested
		at       time.Time
		again    bool
		err      error
	}{
		"the same": {o, ca, same, now, true, nil},
		"recorded": {o, ca, vouch(func(g *csr.Grant) {
			g.Record = func(_ context.Context, r csr.IssuedRecord) error {
				recorded++
				if r != issued.Record {
					t.Errorf("recorded %+v", r)
				}
				return nil
			}
		}), now, true, nil},
		"not recorded":        {o, ca, vouch(func(g *csr.Grant) { g.Record = func(context.Context, csr.IssuedRecord) error { return errRecord } }), now, true, errRecord},
		"until its end":       {o, ca, vouch(func(g *csr.Grant) { g.NotAfter = end }), now, true, nil},
		"not so long":         {o, ca, vouch(func(g *csr.Grant) { g.NotAfter = end.Add(-time.Second) }), now, false, nil},
		"ended":               {o, ca, same, end, false, nil},
		"another CA":          {o, new(csr.CA), same, now, false, nil},
		"another machine":     {o, ca, verified.Checked().Vouch("test:other", same.Grant(), nil), now, false, nil},
		"another provider ID": {o, ca, vouch(func(g *csr.Grant) { g.ProviderID = "test://other" }), now, false, nil},
		"other names":         {o, ca, vouch(func(g *csr.Grant) { g.DNSNames = []string{"other"} }), now, false, nil},
		"another request":     {another, ca, same, now, false, nil},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := u.again(t.Context(), c.object, c.ca, c.attested, c.at)
			if (got != nil) != c.again || !errors.Is(err, c.err) || err != nil && c.err == nil {
				t.Errorf("got %v, %v", got, err)
			}
		})
	}
	if recorded != 1 {
		t.Errorf("recorded %d times", recorded)
	}
	for i := range 2 * maxUnwritten {
		another.UID = types.UID(strconv.Itoa(i))
		u.keep(another, ca, same, issued)
	}
	if len(u.held) > maxUnwritten {
		t.Errorf("%d are kept", len(u.held))
	}
}

// pair is a new CA in PEM.
func pair(t testing.TB) (certificate, key []byte) {
	t.Helper()
	return chainOf(t, 1, time.Now().Add(-time.Hour))
}

// chainOf is a new chain in PEM, the issuing CA first, and its key, valid for two hours.
func chainOf(t testing.TB, length int, from time.Time) (chain, key []byte) {
	t.Helper()
	var above *x509.Certificate
	var aboveKey *ecdsa.PrivateKey
	for i := range length {
		private := testkit.Must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
		template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ca " + strconv.Itoa(i)}, NotBefore: from, NotAfter: from.Add(2 * time.Hour),
			KeyUsage: x509.KeyUsageCertSign, IsCA: true, BasicConstraintsValid: true}
		if above == nil {
			above, aboveKey = template, private
		}
		der, err := x509.CreateCertificate(rand.Reader, template, above, private.Public(), aboveKey)
		if err == nil {
			above, err = x509.ParseCertificate(der)
		}
		pkcs8, keyErr := x509.MarshalPKCS8PrivateKey(private)
		testkit.MustDo(errors.Join(err, keyErr))
		aboveKey = private
		chain = append(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), chain...)
		key = pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8})
	}
	return chain, key
}

// TestHalfAChain cuts a chain of two at each byte: only where one certificate is whole and nothing
// else is there does it pass for a chain of one.
func TestHalfAChain(t *testing.T) {
	config := csr.CAConfig{ClusterIDs: []string{"a-cluster"}, SignerNames: []string{csr.SignerClientTPM}}
	chain, key := chainOf(t, 2, time.Now().Add(-time.Hour))
	taken := 0
	for at := range len(chain) - 1 { // the last line feed may be missing
		if _, _, err := (&FileCA{config: config}).parse(chain[:at], key); err == nil {
			taken++
		}
	}
	if taken != 2 { // with and without the line feed behind the first
		t.Errorf("%d of %d cuts are taken for a chain", taken, len(chain)-1)
	}
	if _, _, err := (&FileCA{config: config}).parse(chain[:len(chain)-1], key); err != nil {
		t.Errorf("without the last line feed: %v", err)
	}
	damaged := bytes.Clone(chain)
	damaged[len(damaged)-40] = '*'
	if _, _, err := (&FileCA{config: config}).parse(damaged, key); err == nil {
		t.Error("a damaged second certificate was left out")
	}
}

// TestCAOutsideItsTime: a CA that is not valid yet, or any more, does not replace one that is, and
// does as soon as it is valid; one that replaces none says so.
func TestCAOutsideItsTime(t *testing.T) {
	dir, now := t.TempDir(), time.Now()
	certificateFile, keyFile := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	config := csr.CAConfig{ClusterIDs: []string{"a-cluster"}, SignerNames: []string{csr.SignerClientTPM}, Now: func() time.Time { return now }}
	write := func(from time.Time) {
		chain, key := chainOf(t, 2, from)
		testkit.MustDo(errors.Join(os.WriteFile(certificateFile, chain, 0o600), os.WriteFile(keyFile, key, 0o600)))
	}
	write(now.Add(-time.Hour))
	f, err := OpenCA(certificateFile, keyFile, config)
	if err != nil || f.Check(nil) != nil {
		t.Fatal(err, f.Check(nil))
	}
	first, end := f.CA(), f.NotAfter()
	for name, from := range map[string]time.Duration{"ended": -24 * time.Hour, "not valid yet": 30 * time.Minute} {
		write(now.Add(from))
		for range 2 {
			if err := f.Reload(); err == nil || f.CA() != first || f.Check(nil) != nil || !f.NotAfter().Equal(end) {
				t.Errorf("%s: got %v, another CA: %t, ready: %v", name, err, f.CA() != first, f.Check(nil))
			}
		}
	}
	write(now.Add(30 * time.Minute))
	now = now.Add(31 * time.Minute)
	if err := f.Reload(); err != nil || f.CA() == first || f.Check(nil) != nil || f.NotAfter().Equal(end) {
		t.Errorf("valid now: %v, another CA: %t, ready: %v", err, f.CA() != first, f.Check(nil))
	}
	now = now.Add(24 * time.Hour)
	if f.Check(nil) == nil {
		t.Error("ready with a CA that has ended")
	}
	write(now.Add(time.Hour))
	if err := f.Reload(); err != nil || f.Check(nil) == nil {
		t.Errorf("neither is valid: %v, ready: %v", err, f.Check(nil))
	}
}

// TestFileCA checks that a CA follows its files, and stays while they do not fit.
func TestFileCA(t *testing.T) {
	dir := t.TempDir()
	certificateFile, keyFile := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	write := func(path string, text []byte) {
		t.Helper()
		testkit.MustDo(os.WriteFile(path, text, 0o600))
	}
	config := csr.CAConfig{ClusterIDs: []string{"a-cluster"}, SignerNames: []string{csr.SignerClientTPM}}
	certificate, key := pair(t)
	write(certificateFile, certificate)
	write(keyFile, key)
	f := testkit.Must(OpenCA(certificateFile, keyFile, config))
	first := f.ca
	if err := f.Reload(); err != nil || f.ca != first {
		t.Errorf("without a change: %v, another CA: %t", err, f.ca != first)
	}
	nextCertificate, nextKey := pair(t)
	encrypted := pem.EncodeToMemory(&pem.Block{Type: "ENCRYPTED PRIVATE KEY", Bytes: []byte{0x30, 0}})
	for name, broken := range map[string]struct {
		certificate, key []byte
		want             string // in the error
	}{
		"another key":       {certificate, nextKey, keyFile + ", for the first certificate of " + certificateFile},
		"another CA":        {nextCertificate, key, keyFile + ", for"},
		"no key":            {certificate, nil, keyFile + ", for"},
		"no certificate":    {nil, key, certificateFile + ": "},
		"too long":          {append(make([]byte, maxFileSize), certificate...), key, certificateFile + ": "},
		"a key that is cut": {certificate, key[:len(key)/2], keyFile + ", for"},
		"an encrypted key":  {certificate, encrypted, keyFile + ": configuration: got key an encrypted one, want one without a password"},
	} {
		t.Run(name, func(t *testing.T) {
			write(certificateFile, broken.certificate)
			write(keyFile, broken.key)
			err := f.Reload()
			if err == nil || f.ca != first || !strings.Contains(err.Error(), "signer: "+broken.want) {
				t.Errorf("%s: %v, want %s, another CA: %t", name, err, broken.want, f.ca != first)
			}
			if body := strings.Split(string(nextKey), "\n")[1]; err != nil && strings.Contains(err.Error(), body) {
				t.Errorf("%s: the error has the key", name)
			}
		})
	}
	write(certificateFile, nextCertificate)
	write(keyFile, append(pem.EncodeToMemory(&pem.Block{Type: "EC PARAMETERS", Bytes: []byte{6, 0}}), nextKey...)) // as OpenSSL writes it
	if err := f.Reload(); err != nil || f.ca == first {
		t.Errorf("a new CA: %v", err)
	}
	if _, err := OpenCA("", keyFile, config); !errors.Is(err, refusal.CheckConfig) {
		t.Errorf("no path: %v", err)
	}
	if _, err := OpenCA(certificateFile, "", config); !errors.Is(err, refusal.CheckConfig) {
		t.Errorf("no path of a key: %v", err)
	}
	if _, err := OpenCA(filepath.Join(dir, "none"), keyFile, config); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	if _, err := OpenCA(certificateFile, certificateFile, config); err == nil {
		t.Error("at first, a certificate was taken for a key")
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
	registry := prometheus.NewRegistry()
	for _, taken := range []bool{false, true} { // the name of a metric
		if _, err := New(Config{Providers: names{csr.SignerClientTPM}, CA: noCA, Metrics: registry}); (err != nil) != taken {
			t.Errorf("two of one name: %v", err)
		}
	}
	w := newWorld(t)
	w.reconciler.c.Providers = names{csr.SignerClientTPM} // which verify nothing and refuse nothing
	if o, err := w.sign(w.answer("r", "Approved")); err == nil || len(o.Status.Certificate) != 0 {
		t.Errorf("neither verified nor refused: %v, %+v", err, o.Status)
	}
}

// FuzzCA: no files make the reader panic, it accepts the same files again, and no error repeats
// the key.
func FuzzCA(f *testing.F) {
	testkit.BeginFuzz(f)
	config := csr.CAConfig{ClusterIDs: []string{"a-cluster"}, SignerNames: []string{csr.SignerClientTPM}}
	certificate, key := pair(f)
	f.Add(certificate, key)
	f.Add(append(bytes.Clone(certificate), certificate...), key)
	f.Add(key, certificate)
	f.Add([]byte{}, key)
	secret := string(bytes.Split(key, []byte("\n"))[1])
	f.Fuzz(func(t *testing.T, chain, key []byte) {
		ca, _, err := (&FileCA{config: config}).parse(chain, key)
		if err != nil {
			if ca != nil || strings.Contains(err.Error(), secret) {
				t.Fatalf("%v, %v", ca, err)
			}
			return
		}
		if _, _, err := (&FileCA{config: config}).parse(chain, key); err != nil {
			t.Fatalf("taken once: %v", err)
		}
	})
}
