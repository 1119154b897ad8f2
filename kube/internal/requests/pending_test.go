package requests

import (
	"errors"
	"strconv"
	"strings"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodeattest/nodeattest/internal/testkit"
)

const (
	builtIn = certificatesv1.KubeAPIServerClientKubeletSignerName
	ours    = "example.com/signer"
)

// newTestPending makes what follows the requests to a signer, with a backlog of its own.
func newTestPending(signer string) *pending { return newPending(signer, newTestBacklog(Options{})) }

func request(name, signer, certificate string, conditions ...certificatesv1.RequestConditionType) *certificatesv1.CertificateSigningRequest {
	o := &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{
		Name: name, UID: "u", Annotations: map[string]string{"a": "b"}, ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "m"}}}}
	o.Spec = certificatesv1.CertificateSigningRequestSpec{SignerName: signer, Request: []byte("request"), Username: "user"}
	o.Status.Certificate = []byte(certificate)
	for _, c := range conditions {
		o.Status.Conditions = append(o.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{Type: c, Status: corev1.ConditionTrue})
	}
	return o
}

// found says whether a request waits.
func (p *pending) found(t *testing.T, name string) bool {
	t.Helper()
	var o certificatesv1.CertificateSigningRequest
	err := p.Get(t.Context(), client.ObjectKey{Name: name}, &o)
	if err != nil && !apierrors.IsNotFound(err) {
		t.Errorf("got %v, want NotFound", err)
	}
	if err == nil && (o.Name != name || string(o.Spec.Request) != "request" || o.Annotations["a"] != "b" || o.ManagedFields != nil) {
		t.Errorf("got %+v", &o)
	}
	return err == nil
}

// TestPending checks which requests wait for a decision: they are queued and can be read, and
// the others are not kept.
func TestPending(t *testing.T) {
	const approved, denied, failed = certificatesv1.CertificateApproved, certificatesv1.CertificateDenied, certificatesv1.CertificateFailed
	for name, row := range map[string]struct {
		signer      string
		conditions  []certificatesv1.RequestConditionType
		certificate string
		waits       bool
	}{
		"not decided":                       {signer: ours, waits: true},
		"approved":                          {signer: ours, conditions: []certificatesv1.RequestConditionType{approved}, waits: true},
		"denied":                            {signer: ours, conditions: []certificatesv1.RequestConditionType{denied}},
		"approved, failed":                  {signer: ours, conditions: []certificatesv1.RequestConditionType{approved, failed}},
		"signed":                            {signer: ours, conditions: []certificatesv1.RequestConditionType{approved}, certificate: "c"},
		"signed by Kubernetes'":             {signer: builtIn, conditions: []certificatesv1.RequestConditionType{approved}, certificate: "c", waits: true},
		"signed by Kubernetes', to serve":   {signer: certificatesv1.KubeletServingSignerName, conditions: []certificatesv1.RequestConditionType{approved}, certificate: "c", waits: true},
		"signed by Kubernetes', then fails": {signer: builtIn, conditions: []certificatesv1.RequestConditionType{approved, failed}, certificate: "c"},
	} {
		t.Run(name, func(t *testing.T) {
			for how, see := range map[string]func(p *pending, o any) error{
				"added":   (*pending).Add,
				"updated": (*pending).Update,
				"was not decided": func(p *pending, o any) error {
					return errors.Join(p.Add(request("n", row.signer, "")), p.Update(o))
				},
			} {
				p := newTestPending(row.signer)
				testkit.MustDo(see(p, request("n", row.signer, row.certificate, row.conditions...)))
				if got := p.found(t, "n"); got != row.waits {
					t.Errorf("%s: found is %t, want %t", how, got, row.waits)
				}
			}
		})
	}
}

// TestPendingCopies hands out copies, which a reader may change.
func TestPendingCopies(t *testing.T) {
	p := newTestPending(ours)
	testkit.MustDo(p.Add(request("n", ours, "")))
	var o certificatesv1.CertificateSigningRequest
	testkit.MustDo(p.Get(t.Context(), client.ObjectKey{Name: "n"}, &o))
	o.Annotations["a"], o.Spec.Request[0] = "c", 'R'
	if !p.found(t, "n") {
		t.Error("it is gone")
	}
}

// TestPendingOtherObjects refuses objects of other kinds.
func TestPendingOtherObjects(t *testing.T) {
	p := newTestPending(ours)
	for name, see := range map[string]func(o any) error{
		"added": p.Add, "updated": p.Update, "deleted": p.Delete,
	} {
		if err := see(new(corev1.Node)); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if err := p.Resync(); err != nil {
		t.Error(err)
	}
}

// TestPendingUnasked leaves out requests that are done and, with Approved, unapproved requests.
func TestPendingUnasked(t *testing.T) {
	done := NewRecent()
	p := newPending(ours, newTestBacklog(Options{Approved: true, Done: done}))
	approved := request("approved", ours, "", certificatesv1.CertificateApproved)
	for range 2 {
		for _, o := range []*certificatesv1.CertificateSigningRequest{request("plain", ours, ""), approved} {
			testkit.MustDo(p.Add(o))
		}
		if p.found(t, "plain") || p.found(t, "approved") == done.Has(approved) {
			t.Errorf("done: %t, approved is found: %t, plain: %t", done.Has(approved), p.found(t, "approved"), p.found(t, "plain"))
		}
		done.Add(approved)
	}
}

// TestDecode reads a list as an API server writes it, one object at a time.
func TestDecode(t *testing.T) {
	for text, names := range map[string]int{
		`{"kind":"L","items":[{"metadata":{"name":"a"}},{"metadata":{"name":"b"}}],"metadata":{"resourceVersion":"7"}}`: 2,
		`{"metadata":{"resourceVersion":"7"},"items":[]}`:                                                               0,
		`{"metadata":{"resourceVersion":"7"},"items":null}`:                                                             0,
		`[]`: -1, `{`: -1, ``: -1, `{"items":{}}`: -1, `{"items":[{"metadata":7}]}`: -1, `{"items":[{}`: -1, `{"metadata":[]}`: -1, `{"items":`: -1, `{7`: -1, `{"kind":`: -1,
	} {
		n := 0
		page, err := decode(strings.NewReader(text), func(*certificatesv1.CertificateSigningRequest) { n++ })
		if (err != nil) != (names < 0) || err == nil && (n != names || page.ResourceVersion != "7") {
			t.Errorf("%s: %d, %q, %v", text, n, page.ResourceVersion, err)
		}
	}
}

// TestLean keeps the fields that a decision reads, and of a large request little else.
func TestLean(t *testing.T) {
	for name, row := range map[string]struct{ label, glass int }{"little": {10, 10}, "much": {maxMetadata, 10}, "no reason": {maxMetadata, 0}, "a long reason": {0, 10 * maxMetadata}} {
		o := request("n", ours, "c")
		o.Labels, o.Annotations = map[string]string{"l": strings.Repeat("l", row.label)}, map[string]string{BreakGlass: strings.Repeat("g", row.glass), "a": "b"}
		lean(o)
		small := row.label+row.glass < maxMetadata
		if (o.Labels != nil) != small || (o.Annotations["a"] == "b") != small || len(o.Annotations[BreakGlass]) != min(row.glass, maxMetadata) || o.ManagedFields != nil || o.Status.Certificate == nil {
			t.Errorf("%s: %d labels, %d annotations", name, len(o.Labels), len(o.Annotations))
		}
	}
}

// TestRecent remembers the last ones, and a certificate as another thing than the decision.
func TestRecent(t *testing.T) {
	r := NewRecent()
	first := request("n", builtIn, "")
	r.Add(first)
	for i := range 2 * recentSize {
		if !r.Has(first) && i < recentSize {
			t.Fatalf("forgotten after %d others", i)
		}
		o := request("n", builtIn, "")
		o.UID = types.UID(strconv.Itoa(i))
		r.Add(o)
	}
	signed := request("n", builtIn, "c")
	if r.Has(first) || r.Has(signed) {
		t.Error("too many are remembered")
	}
	r.Add(first)
	if r.Has(signed) {
		t.Error("the certificate is remembered, and only the decision was made")
	}
}
