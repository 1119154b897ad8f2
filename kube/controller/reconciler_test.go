package controller

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"errors"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/attesttest"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/kube/internal/requests"
	"github.com/nodeattest/nodeattest/refusal"
)

const builtIn = csr.SignerKubeAPIServerClientKubelet

// fakeProviders give a test's answers, and count.
type fakeProviders struct {
	signers   []string
	challenge func() ([]byte, error)
	verify    func(ctx context.Context) (*csr.Attested, error)
	asked     int
}

func (f *fakeProviders) SignerNames() []string { return f.signers }

func (f *fakeProviders) ChallengeSigners() []string { return []string{csr.SignerChallengeTPM} }

func (f *fakeProviders) Challenge(context.Context, *csr.Request) ([]byte, error) {
	f.asked++
	return f.challenge()
}

func (f *fakeProviders) Verify(ctx context.Context, request *csr.Request) (*csr.Attested, error) {
	f.asked++
	return f.verify(context.WithValue(ctx, uidOf{}, request.Metadata.UID))
}

// uidOf is the key of a context's value: the UID of the request that is verified.
type uidOf struct{}

// approve vouches for a machine's request that a policy has passed.
func approve(ctx context.Context) (*csr.Attested, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	request, err := csr.Create(csr.PurposeClient, key, "node-1", csr.CreateOptions{})
	if err != nil {
		return nil, err
	}
	spec, err := (&csr.Bundle{Request: request}).Spec(builtIn, 3600)
	if err != nil {
		return nil, err
	}
	policy := &csr.Policy{ClusterIDs: []string{"a-cluster"}, SignerNames: []string{builtIn}, Machines: func(context.Context, csr.Question) (*csr.Machine, error) {
		return &csr.Machine{Name: "machine-1", UID: "uid-1", NodeName: "node-1", BootstrapReady: true}, nil
	}}
	user := csr.User{Username: csr.BootstrapUserPrefix + "abcdef", Groups: []string{csr.BootstrappersGroup, csr.AuthenticatedGroup}}
	filed := csr.Filed(spec, user, time.Now())
	filed.Metadata.UID, _ = ctx.Value(uidOf{}).(string)
	checked, err := policy.Check(ctx, filed.Parsed())
	if err != nil {
		return nil, err
	}
	return checked.Vouch("ek:1", csr.Grant{}, nil), nil
}

func refuse(err error) func(context.Context) (*csr.Attested, error) {
	return func(context.Context) (*csr.Attested, error) { return nil, err }
}

// world is an API server of requests, with a reconciler.
type world struct {
	*testing.T
	api        client.WithWatch
	providers  *fakeProviders
	reconciler *Reconciler
	events     *recorder
	writes     map[string]int // by subresource
	// annotations are the last write's, which an API server takes there as well.
	annotations map[string]string
	now         time.Time
}

// recorder keeps the Events.
type recorder struct{ notes []string }

func (r *recorder) Eventf(_, _ runtime.Object, kind, reason, action, note string, args ...any) {
	text := note
	if len(args) == 1 {
		text, _ = args[0].(string)
	}
	r.notes = append(r.notes, strings.Join([]string{kind, reason, action, text}, " "))
}

func newWorld(t *testing.T, change func(c *Config)) *world {
	t.Helper()
	w := &world{T: t, writes: map[string]int{}, events: new(recorder), now: time.Now(),
		providers: &fakeProviders{signers: []string{builtIn}, verify: approve, challenge: func() ([]byte, error) { return []byte("challenge"), nil }}}
	scheme := runtime.NewScheme()
	testkit.MustDo(certificatesv1.AddToScheme(scheme))
	w.api = fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&certificatesv1.CertificateSigningRequest{}).
		WithInterceptorFuncs(interceptor.Funcs{
			SubResourceUpdate: func(ctx context.Context, c client.Client, name string, o client.Object, options ...client.SubResourceUpdateOption) error {
				w.writes[name]++
				w.annotations = o.GetAnnotations()
				return c.SubResource(name).Update(ctx, o, options...)
			},
		}).Build()
	config := Config{Providers: w.providers, Now: func() time.Time { return w.now }}
	if change != nil {
		change(&config)
	}
	var err error
	if w.reconciler, err = New(config); err != nil {
		t.Fatal(err)
	}
	w.reconciler.watched = &requests.Watched{Readers: map[string]requests.Reader{}, Writer: w.api, Events: w.events}
	for _, signer := range w.reconciler.Signers() {
		w.reconciler.watched.Readers[signer] = w.api
	}
	return w
}

func (w *world) create(name, signer string, change func(o *certificatesv1.CertificateSigningRequest)) *certificatesv1.CertificateSigningRequest {
	w.Helper()
	o := &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-of-" + name)},
		Spec:       certificatesv1.CertificateSigningRequestSpec{SignerName: signer, Username: csr.BootstrapUserPrefix + "abcdef", Request: []byte("request")},
	}
	if change != nil {
		change(o)
	}
	status := o.Status
	testkit.MustDo(w.api.Create(w.Context(), o))
	if len(status.Conditions) != 0 || len(status.Certificate) != 0 {
		o.Status = status
		testkit.MustDo(w.api.Status().Update(w.Context(), o))
	}
	clear(w.writes)
	return o
}

func (w *world) get(name string) *certificatesv1.CertificateSigningRequest {
	w.Helper()
	o := new(certificatesv1.CertificateSigningRequest)
	testkit.MustDo(w.api.Get(w.Context(), client.ObjectKey{Name: name}, o))
	return o
}

// reconcile looks at a request once.
func (w *world) reconcile(name, signer string) (time.Duration, error) {
	w.Helper()
	result, err := w.reconciler.look(w.Context(), requests.Key{SignerName: signer, Name: name})
	return result.RequeueAfter, err
}

func (w *world) mustReconcile(name, signer string) *certificatesv1.CertificateSigningRequest {
	w.Helper()
	if again, err := w.reconcile(name, signer); err != nil || again != 0 {
		w.Fatalf("Reconcile: again in %s, error %v", again, err)
	}
	return w.get(name)
}

func approvedBy(o *certificatesv1.CertificateSigningRequest) {
	o.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateApproved, Status: "True", Reason: "ByHand"}}
}

// TestVersions refuses evidence of an unsupported version: the node finds the supported ones, in
// place of the requester's annotation. Other refusals have no annotation.
func TestVersions(t *testing.T) {
	unsupported := &csr.Error{Check: csr.CheckProviderVersion, Got: "tpm/v1", Want: "tpm/v3 or tpm/v2",
		Err: &csr.UnsupportedVersionError{Supported: []string{"tpm/v3", "tpm/v2"}}}
	for name, row := range map[string]struct {
		err    error
		speaks []string
		want   string // that the node files next
	}{
		"a newer one is read":      {unsupported, []string{"tpm/v1", "tpm/v2"}, "tpm/v2"},
		"the node speaks none":     {unsupported, []string{"tpm/v1"}, ""},
		"it was refused otherwise": {&attest.Error{Check: attest.CheckQualifyingData}, []string{"tpm/v1", "tpm/v2"}, "tpm/v1"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nil)
			w.providers.verify = refuse(row.err)
			w.create("r", builtIn, func(o *certificatesv1.CertificateSigningRequest) {
				o.Annotations = map[string]string{"cluster.x-k8s.io/kubelet-authenticator-attestation-versions": "tpm/v1"} // the requester's
			})
			w.mustReconcile("r", builtIn)
			got, err := (&csr.Metadata{Annotations: w.annotations}).ChooseVersion(row.speaks)
			if got != row.want || row.want == "" && !errors.Is(err, csr.CheckProviderVersion) {
				t.Errorf("got %q, %v, want %q", got, err, row.want)
			}
		})
	}
}

func TestReconcile(t *testing.T) {
	denial := &attest.Error{Check: attest.CheckQualifyingData, Got: "others", Want: "these"}
	member := &attest.Error{Check: attest.CheckMembership, Err: &attest.Error{Check: "registry-name", Got: "machine ek:1", Want: "that of node n, ek:2"}}
	for name, c := range map[string]struct {
		signer  string
		verify  func(context.Context) (*csr.Attested, error)
		before  func(o *certificatesv1.CertificateSigningRequest)
		want    []string // types and reasons of the conditions
		message string
		writes  map[string]int
		events  []string
		asked   int
	}{
		"a hello is challenged": {signer: csr.SignerChallengeTPM, want: []string{"Denied AttestationChallenge"}, message: "Y2hhbGxlbmdl", writes: map[string]int{"approval": 1}, asked: 1},
		"an answer is approved": {signer: builtIn, verify: approve, want: []string{"Approved RequestAccepted"}, writes: map[string]int{"approval": 1},
			asked: 1},
		"an answer is denied": {signer: builtIn, verify: refuse(denial), want: []string{"Denied QualifyingData"}, writes: map[string]int{"approval": 1},
			message: denial.Error(), events: []string{"Warning QualifyingData Deny " + denial.Error()}, asked: 1},
		"a machine is no member": {signer: builtIn, verify: refuse(member), want: []string{"Denied NotAMember"}, writes: map[string]int{"approval": 1},
			message: csr.Decide(member).Message, events: []string{"Warning NotAMember Deny " + member.Error()}, asked: 1},
		"another approved false evidence": {signer: builtIn, verify: refuse(denial), before: approvedBy, want: []string{"Approved ByHand", "Failed QualifyingData"},
			writes: map[string]int{"status": 1}, events: []string{"Warning QualifyingData Fail " + denial.Error()}, asked: 1},
		"another approved right evidence": {signer: builtIn, verify: approve, before: approvedBy, want: []string{"Approved ByHand"}, asked: 1},
		"it is denied": {signer: builtIn, before: func(o *certificatesv1.CertificateSigningRequest) {
			o.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateDenied, Status: "True", Reason: "ByHand"}}
		}, want: []string{"Denied ByHand"}},
		"it has a certificate":                 {signer: builtIn, before: func(o *certificatesv1.CertificateSigningRequest) { approvedBy(o); o.Status.Certificate = []byte("pem") }, want: []string{"Approved ByHand"}},
		"it is another signer's":               {signer: csr.SignerClientTPM},
		"a policy says it is another signer's": {signer: builtIn, verify: refuse(refusal.Retry(csr.ErrOtherSigner)), asked: 1},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nil)
			if c.verify != nil {
				w.providers.verify = c.verify
			}
			w.create("r", c.signer, c.before)
			object := w.mustReconcile("r", c.signer)
			var got []string
			for _, condition := range object.Status.Conditions {
				got = append(got, string(condition.Type)+" "+condition.Reason)
				if c.message != "" && condition.Message != c.message {
					t.Errorf("message %q, want %q", condition.Message, c.message)
				}
			}
			if !slices.Equal(got, c.want) || !maps.Equal(w.writes, c.writes) || !slices.Equal(w.events.notes, c.events) {
				t.Errorf("got %q, writes %v, events %q, want %q, %v, %q", got, w.writes, w.events.notes, c.want, c.writes, c.events)
			}
			w.mustReconcile("r", c.signer) // which changes nothing
			if w.providers.asked > c.asked && name != "a policy says it is another signer's" {
				t.Errorf("%d verifications, want %d", w.providers.asked, c.asked)
			}
		})
	}
}

// TestRetry checks that what could not be decided is written nowhere and comes again.
func TestRetry(t *testing.T) {
	for name, err := range map[string]error{
		"could not decide": refusal.Retry(errors.New("the inventory does not answer")),
		"unknown":          errors.New("disk full"),
		"a stale ring":     &attest.Error{Check: "ring-stale", Err: refusal.ErrRetry},
		"context is over":  context.DeadlineExceeded,
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nil)
			w.create("r", builtIn, nil)
			w.providers.verify = refuse(err)
			if _, got := w.reconcile("r", builtIn); !errors.Is(got, err) {
				t.Errorf("Reconcile: %v, want %v", got, err)
			}
			if len(w.writes) != 0 || len(w.events.notes) != 0 {
				t.Errorf("writes %v, Events %q, want none", w.writes, w.events.notes)
			}
			w.providers.verify = approve
			if o := w.mustReconcile("r", builtIn); len(o.Status.Conditions) != 1 {
				t.Errorf("conditions %+v, want one", o.Status.Conditions)
			}
		})
	}
}

// TestNothingVerified has providers that neither refuse nor show a machine: nothing is
// written, and the request comes again.
func TestNothingVerified(t *testing.T) {
	verified := testkit.Must(approve(t.Context()))
	for name, attested := range map[string]*csr.Attested{
		"nothing":                         nil,
		"the zero value":                  new(csr.Attested),
		"a request that no policy passed": new(csr.Checked).Vouch("ek:1", csr.Grant{}, nil),
		"a request without a machine":     verified.Checked().Vouch("", csr.Grant{}, nil),
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nil)
			w.create("r", builtIn, nil)
			w.providers.verify = func(context.Context) (*csr.Attested, error) { return attested, nil }
			if _, err := w.reconcile("r", builtIn); !errors.Is(err, refusal.ErrRetry) || len(w.writes) != 0 {
				t.Errorf("Reconcile: %v and writes %v, want %v and none", err, w.writes, refusal.ErrRetry)
			}
		})
	}
}

// stale answers with an object as it was.
type stale struct {
	client.Reader
	object *certificatesv1.CertificateSigningRequest
}

func (s stale) Get(_ context.Context, _ client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	s.object.DeepCopyInto(into.(*certificatesv1.CertificateSigningRequest))
	return nil
}

// TestStaleCache has the cache lag behind the decision: nothing is verified twice.
func TestStaleCache(t *testing.T) {
	w := newWorld(t, nil)
	before := w.create("r", builtIn, nil)
	w.mustReconcile("r", builtIn)
	w.reconciler.watched.Readers[builtIn] = stale{object: before}
	w.mustReconcile("r", builtIn)
	if w.providers.asked != 1 || w.writes["approval"] != 1 {
		t.Errorf("%d verifications and %v writes, want one of each", w.providers.asked, w.writes)
	}
}

// TestChangedMeanwhile has the object change, or be made again under its name, between the
// look and the write: nothing is written, and it is looked at again.
func TestChangedMeanwhile(t *testing.T) {
	for name, change := range map[string]func(w *world){
		"changed": func(w *world) {
			o := w.get("r")
			o.Annotations = map[string]string{"a": "b"}
			testkit.MustDo(w.api.Update(w.Context(), o))
		},
		"deleted": func(w *world) {
			testkit.MustDo(w.api.Delete(w.Context(), w.get("r")))
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nil)
			w.create("r", builtIn, nil)
			w.providers.verify = func(ctx context.Context) (*csr.Attested, error) {
				change(w)
				return approve(ctx)
			}
			if again, err := w.reconcile("r", builtIn); err != nil || again != conflictPause {
				t.Errorf("Reconcile: again in %s, error %v, want in %s", again, err, conflictPause)
			}
			var o certificatesv1.CertificateSigningRequest
			if err := w.api.Get(t.Context(), client.ObjectKey{Name: "r"}, &o); err == nil && len(o.Status.Conditions) != 0 {
				t.Errorf("conditions %+v, want none", o.Status.Conditions)
			}
		})
	}
	t.Run("made again for another signer", func(t *testing.T) {
		w := newWorld(t, nil)
		w.create("r", csr.SignerClientTPM, nil)
		w.mustReconcile("r", builtIn)
		if w.providers.asked != 0 {
			t.Error("it was looked at")
		}
	})
	t.Run("gone", func(t *testing.T) {
		w := newWorld(t, nil)
		if again, err := w.reconcile("r", builtIn); err != nil || again != 0 {
			t.Errorf("again in %s, error %v", again, err)
		}
	})
}

// TestRate checks that one requester waits, and another does not.
func TestRate(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.RequesterRate, c.RequesterBurst = 1, 2 })
	for _, row := range []struct {
		requester string
		later     time.Duration
		waits     bool
	}{{"a", 0, false}, {"a", 0, false}, {"a", 0, true}, {"b", 0, false}, {"a", time.Second, false}} {
		w.now = w.now.Add(row.later)
		if wait := w.reconciler.limit(row.requester); (wait > 0) != row.waits || wait > time.Second {
			t.Errorf("%s waits %s, want it to: %t", row.requester, wait, row.waits)
		}
	}
}

// TestRequest holds the view of an object against its JSON, which is the SDK's form.
func TestRequest(t *testing.T) {
	seconds, now := int32(3600), metav1.NewTime(time.Now().UTC().Truncate(time.Second))
	object := &certificatesv1.CertificateSigningRequest{
		TypeMeta: metav1.TypeMeta{APIVersion: "certificates.k8s.io/v1", Kind: "CertificateSigningRequest"},
		ObjectMeta: metav1.ObjectMeta{Name: "n", GenerateName: "g", UID: "u", ResourceVersion: "7", CreationTimestamp: now, DeletionTimestamp: &now,
			Labels: map[string]string{"l": "1"}, Annotations: map[string]string{"a": "1"}},
		Spec: certificatesv1.CertificateSigningRequestSpec{Request: []byte("r"), SignerName: "s/n", ExpirationSeconds: &seconds,
			Usages: []certificatesv1.KeyUsage{"digital signature", "client auth"}, Username: "user", UID: "uid", Groups: []string{"g1", "g2"},
			Extra: map[string]certificatesv1.ExtraValue{csr.ExtraCredentialID: {"X509SHA256=1"}}},
		Status: certificatesv1.CertificateSigningRequestStatus{Certificate: []byte("c"), Conditions: []certificatesv1.CertificateSigningRequestCondition{
			{Type: "Approved", Status: "True", Reason: "R", Message: "M", LastUpdateTime: now, LastTransitionTime: now}}},
	}
	for name, o := range map[string]*certificatesv1.CertificateSigningRequest{"whole": object,
		"bare": {TypeMeta: object.TypeMeta, Spec: certificatesv1.CertificateSigningRequestSpec{Request: []byte("r")}}} {
		text := testkit.Must(json.Marshal(o))
		want := testkit.Must(csr.ParseServerObject(text))
		if got := Request(o); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got\n%+v, want\n%+v", name, got, want)
		}
	}
}

// TestMetrics checks the counters, and that a second reconciler cannot register there.
func TestMetrics(t *testing.T) {
	r := prometheus.NewRegistry()
	w := newWorld(t, func(c *Config) { c.Metrics = r })
	w.create("r", builtIn, nil)
	w.mustReconcile("r", builtIn)
	families := testkit.Must(r.Gather())
	found := map[string]float64{}
	for _, f := range families {
		for _, m := range f.Metric {
			found[f.GetName()] += m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	want := map[string]float64{"nodeattest_decisions_total": 1, "nodeattest_decision_seconds": 1, "nodeattest_write_conflicts_total": 0, "nodeattest_rate_limited_total": 0, "nodeattest_requests_left_out_total": 0}
	if !maps.Equal(found, want) {
		t.Errorf("got %v, want %v", found, want)
	}
	if _, err := New(Config{Providers: w.providers, Metrics: r}); err == nil {
		t.Error("the same counters were registered twice")
	}
}

// file creates the object of a node's request.
func (w *world) file(name string, request *csr.Request, change func(r *csr.Request)) string {
	w.Helper()
	request.Metadata.Name, request.Metadata.UID = name, "uid-of-"+name
	if change != nil {
		change(request)
	}
	text := testkit.Must(json.Marshal(request))
	o := new(certificatesv1.CertificateSigningRequest)
	testkit.MustDo(json.Unmarshal(text, o))
	testkit.MustDo(w.api.Create(w.Context(), o))
	return name
}

// TestJoin has a node with a TPM join: hello, challenge, answer, approval; and the same
// answer by another requester is denied.
func TestJoin(t *testing.T) {
	node := attesttest.NewNode(t, attesttest.NodeOptions{})
	verifier := attesttest.NewControlPlane(t, node).Verifier
	w := newWorld(t, func(c *Config) { c.Providers = Of(verifier) })
	hello := testkit.Must(node.Hello(t.Context(), time.Now()))
	challenge := testkit.Must(attest.ChallengeOf(Request(w.mustReconcile(w.file("hello", hello, nil), csr.SignerChallengeTPM))))
	answer := testkit.Must(node.Answer(t.Context(), challenge, time.Now()))
	o := w.mustReconcile(w.file("answer", answer, nil), csr.SignerClientTPM)
	if len(o.Status.Conditions) != 1 || o.Status.Conditions[0].Type != certificatesv1.CertificateApproved {
		t.Errorf("conditions %+v, want Approved", o.Status.Conditions)
	}
	o = w.mustReconcile(w.file("stolen", answer, func(r *csr.Request) { r.User.Username = csr.BootstrapUserPrefix + "zyxwvu" }), csr.SignerClientTPM)
	if len(o.Status.Conditions) != 1 || o.Status.Conditions[0].Reason != "BindingRequester" {
		t.Errorf("conditions %+v, want Denied BindingRequester", o.Status.Conditions)
	}
}
