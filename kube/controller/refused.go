package controller

import (
	"context"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/kube/internal/recent"
	"github.com/nodeattest/nodeattest/kube/internal/remedies"
)

// refused has the newest refused request of each node whose machine an operator may yet admit. Once the node's record
// changes, the reconciler changes the time of the refusal (lastUpdateTime of the condition Denied), and nothing else of
// it: the node watches its request, and files another one. It is a hint, kept in memory: without it, after a restart for
// example, the node files another one at the end of its pause, within five minutes.
type refused struct {
	requests *recent.Map[string, *certificatesv1.CertificateSigningRequest] // by node; without their specs
	changes  *recent.Map[string, time.Time]                                 // of records, by node
	queue    chan string                                                    // of nodes whose records have changed
}

// refusedSize is the size of the maps of a refused (recent.New), and of its queue.
const refusedSize = 1024

func newRefused() *refused {
	return &refused{recent.New[string, *certificatesv1.CertificateSigningRequest](refusedSize), recent.New[string, time.Time](refusedSize), make(chan string, refusedSize)}
}

// put takes a request that was denied by a decision that began at a time, as it was written.
func (f *refused) put(object *certificatesv1.CertificateSigningRequest, request *csr.Request, d *csr.Decision, began time.Time) {
	switch remedies.Of(d.Reason, d.Message) {
	case remedies.AdmitMachine, remedies.ReleaseName, remedies.AddMachine, remedies.MatchMachine:
	default:
		return
	}
	name := claimedNode(request)
	if name == "" || d.Verdict != csr.VerdictDeny {
		return
	}
	f.requests.Put(name, &certificatesv1.CertificateSigningRequest{ObjectMeta: object.ObjectMeta, Status: object.Status})
	if at, ok := f.changes.Get(name); ok && !at.Before(began) { // while it was decided
		f.enqueue(name)
	}
}

// claimedNode returns the node that a request names, which proves nothing, or "".
func claimedNode(request *csr.Request) string {
	pkcs10, err := request.Parsed().PKCS10()
	if err != nil {
		return ""
	}
	name, ok := strings.CutPrefix(pkcs10.CSR.Subject.CommonName, csr.NodeUserPrefix)
	if !ok {
		return ""
	}
	return name
}

// change takes the name of a node whose record has changed. It does not wait.
func (f *refused) change(node string, now time.Time) {
	f.changes.Put(node, now)
	if o, ok := f.requests.Get(node); ok && o != nil {
		f.enqueue(node)
	}
}

func (f *refused) enqueue(node string) {
	select {
	case f.queue <- node:
	default: // the node's pause ends without it
	}
}

// hint changes the refused requests of nodes whose records have changed, until ctx ends.
func (r *Reconciler) hint(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case node := <-r.refused.queue:
			r.touch(ctx, node)
		}
	}
}

// touch changes the time of a node's refused request, once.
func (r *Reconciler) touch(ctx context.Context, node string) {
	object, ok := r.refused.requests.Get(node)
	if !ok || object == nil {
		return
	}
	r.refused.requests.Put(node, nil)
	object = object.DeepCopy()
	for n := range object.Status.Conditions {
		if c := &object.Status.Conditions[n]; c.Type == certificatesv1.CertificateDenied {
			c.LastUpdateTime = metav1.NewTime(r.c.Now())
		}
	}
	logger := log.FromContext(ctx).WithValues("request", object.Name, "uid", object.UID, "node", node)
	if err := r.watched.Writer.SubResource("approval").Update(ctx, object); err != nil {
		logger.Info("the node was not told that its record has changed; it files another request within five minutes", "why", err.Error())
		return
	}
	logger.Info("the record of a refused node has changed; the node was told to file another request")
}
