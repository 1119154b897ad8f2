package requests

import (
	"context"
	"errors"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	builtIn = certificatesv1.KubeAPIServerClientKubeletSignerName
	ours    = "example.com/signer"
)

// newTestPending makes what holds requests, with a queue in place of a controller's.
func newTestPending(t *testing.T, signer string) *pending {
	t.Helper()
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[Key]())
	t.Cleanup(queue.ShutDown)
	p := newPending(signer)
	p.queue = queue
	return p
}

// queued takes the names out of the queue.
func (p *pending) queued(t *testing.T) []string {
	t.Helper()
	var names []string
	for p.queue.Len() != 0 {
		key, _ := p.queue.Get()
		p.queue.Done(key)
		if key.SignerName != p.signer {
			t.Errorf("queued for %s, want %s", key.SignerName, p.signer)
		}
		names = append(names, key.Name)
	}
	return names
}

func request(name, signer, certificate string, conditions ...certificatesv1.RequestConditionType) *certificatesv1.CertificateSigningRequest {
	o := &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{
		Name: name, UID: "u", Annotations: map[string]string{"a": "b"}, ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "m"}}}}
	o.Spec = certificatesv1.CertificateSigningRequestSpec{SignerName: signer, Request: []byte("request"), Username: "somebody"}
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

// TestPending checks which requests wait for somebody: they are queued and can be read, and
// the others are not kept.
func TestPending(t *testing.T) {
	const approved, denied, failed = certificatesv1.CertificateApproved, certificatesv1.CertificateDenied, certificatesv1.CertificateFailed
	for name, row := range map[string]struct {
		signer      string
		conditions  []certificatesv1.RequestConditionType
		certificate string
		waits, once bool // once: until it was looked at
	}{
		"not decided":                       {signer: ours, waits: true},
		"approved":                          {signer: ours, conditions: []certificatesv1.RequestConditionType{approved}, waits: true},
		"denied":                            {signer: ours, conditions: []certificatesv1.RequestConditionType{denied}},
		"approved, failed":                  {signer: ours, conditions: []certificatesv1.RequestConditionType{approved, failed}},
		"signed":                            {signer: ours, conditions: []certificatesv1.RequestConditionType{approved}, certificate: "c"},
		"signed by Kubernetes'":             {signer: builtIn, conditions: []certificatesv1.RequestConditionType{approved}, certificate: "c", waits: true, once: true},
		"signed by Kubernetes', then fails": {signer: builtIn, conditions: []certificatesv1.RequestConditionType{approved, failed}, certificate: "c"},
	} {
		t.Run(name, func(t *testing.T) {
			for how, see := range map[string]func(p *pending, o any) error{
				"listed":  func(p *pending, o any) error { return p.Replace([]any{o}, "7") },
				"added":   (*pending).Add,
				"updated": (*pending).Update,
				"was not decided": func(p *pending, o any) error {
					err := p.Add(request("n", row.signer, ""))
					p.queued(t)
					return errors.Join(err, p.Update(o))
				},
			} {
				p := newTestPending(t, row.signer)
				if err := see(p, request("n", row.signer, row.certificate, row.conditions...)); err != nil {
					t.Fatal(err)
				}
				if queued := len(p.queued(t)) == 1; queued != row.waits || p.found(t, "n") != row.waits {
					t.Errorf("%s: queued is %t, found %t, want %t", how, queued, p.found(t, "n"), row.waits)
				}
				p.looked("n", p.get("n"))
				if got, want := p.found(t, "n"), row.waits && !row.once; got != want {
					t.Errorf("%s: found after it was looked at: %t, want %t", how, got, want)
				}
			}
		})
	}
}

// TestPendingLooked leaves alone what has changed since it was seen.
func TestPendingLooked(t *testing.T) {
	p := newTestPending(t, builtIn)
	if err := p.Add(request("n", builtIn, "")); err != nil {
		t.Fatal(err)
	}
	seen := p.get("n")
	if err := p.Update(request("n", builtIn, "c")); err != nil {
		t.Fatal(err)
	}
	p.looked("n", seen) // it had no certificate then
	p.looked("n", request("n", builtIn, "c"))
	p.looked("n", nil)
	p.looked("m", nil)
	if !p.found(t, "n") {
		t.Error("a certificate was dropped that nobody has looked at")
	}
}

// TestPendingReplaced drops what is gone from a list, and says once that it has come.
func TestPendingReplaced(t *testing.T) {
	p := newTestPending(t, ours)
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if err := p.WaitForSync(over); !errors.Is(err, context.Canceled) {
		t.Errorf("before the list: got %v", err)
	}
	for _, list := range [][]any{{request("a", ours, ""), request("b", ours, "")}, {request("b", ours, "")}} {
		if err := p.Replace(list, "7"); err != nil {
			t.Fatal(err)
		}
		if err := p.WaitForSync(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if p.found(t, "a") || !p.found(t, "b") {
		t.Errorf("a is found: %t, b: %t", p.found(t, "a"), p.found(t, "b"))
	}
	if err := p.Delete(request("b", ours, "")); err != nil || p.found(t, "b") {
		t.Errorf("deleted: %v, and found: %t", err, p.found(t, "b"))
	}
}

// TestPendingCopies hands out copies, which a reader may change.
func TestPendingCopies(t *testing.T) {
	p := newTestPending(t, ours)
	if err := p.Add(request("n", ours, "")); err != nil {
		t.Fatal(err)
	}
	var o certificatesv1.CertificateSigningRequest
	if err := p.Get(t.Context(), client.ObjectKey{Name: "n"}, &o); err != nil {
		t.Fatal(err)
	}
	o.Annotations["a"], o.Spec.Request[0] = "c", 'R'
	if !p.found(t, "n") {
		t.Error("it is gone")
	}
}

// TestPendingOtherObjects refuses what is no request.
func TestPendingOtherObjects(t *testing.T) {
	p := newTestPending(t, ours)
	for name, see := range map[string]func(o any) error{
		"added": p.Add, "updated": p.Update, "deleted": p.Delete, "listed": func(o any) error { return p.Replace([]any{o}, "7") },
	} {
		if err := see(new(corev1.Node)); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if err := p.Resync(); err != nil {
		t.Error(err)
	}
}
