package signer

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/kube/controller"
	"github.com/nodeattest/nodeattest/kube/internal/requests"
)

// DefaultName is the name of a signer whose Config has none.
const DefaultName = "node-attestation-signer"

// Reconciler signs requests. [New] makes one, and [Reconciler.SetupWithManager] starts it.
type Reconciler struct {
	c         Config
	done      *requests.Recent
	unwritten unwritten
	metrics   *prometheus.CounterVec
	issue     func(ctx context.Context, ca *csr.CA, attested *csr.Attested) (*csr.Issued, error)
	watched   *requests.Watched // set by SetupWithManager
}

func newReconciler(config Config, metrics *prometheus.CounterVec) *Reconciler {
	return &Reconciler{c: config, done: requests.NewRecent(), metrics: metrics,
		issue: func(ctx context.Context, ca *csr.CA, attested *csr.Attested) (*csr.Issued, error) {
			if ca == nil {
				return nil, errNoCA
			}
			return ca.Issue(ctx, attested)
		}}
}

// errNoCA says that [Config].CA has returned none.
var errNoCA = errors.New("signer: no CA is loaded")

func newMetrics(r prometheus.Registerer, name string) (*prometheus.CounterVec, error) {
	signed := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "nodeattest_signatures_total",
		Help: "Approved requests by signer and result: signed, failed, or retry.",
	}, []string{"signer", "result"})
	if r == nil {
		return signed, nil
	}
	return signed, prometheus.WrapRegistererWith(prometheus.Labels{"controller": name}, r).Register(signed)
}

// SetupWithManager adds the reconciler to a manager. The scheme of the cluster
// (Config.Cluster, or the manager) must have certificates.k8s.io/v1.
//
// It needs these rights in the API server: list and watch on certificatesigningrequests,
// update on certificatesigningrequests/status, and sign on the signers.
func (r *Reconciler) SetupWithManager(m manager.Manager) (err error) {
	if r == nil || r.c.Providers == nil {
		return errNotMade
	}
	r.watched, err = requests.Watch(m, r.c.Providers.SignerNames(), requests.Options{
		Name: r.c.Name, Cluster: r.c.Cluster, Events: r.c.Events, Workers: r.c.Workers, EveryReplica: r.c.EveryReplica, Approved: true, Done: r.done, Metrics: r.c.Metrics,
	}, r.look)
	return err
}

// Check fails until the requests have been listed, and while they cannot be: for the manager's
// readiness. On a replica that does not lead it never fails.
func (r *Reconciler) Check(request *http.Request) error {
	if r == nil {
		return errNotMade
	}
	return r.watched.Check(request)
}

var errNotMade = errors.New("signer: a reconciler that New did not make")

// conflictPause is how long after a lost write the request is looked at again, if no event
// comes first.
const conflictPause = 2 * time.Second

// look looks at one request. If it returns an error, the request is looked at again, at
// growing intervals.
func (r *Reconciler) look(ctx context.Context, key requests.Key) (reconcile.Result, error) {
	seen, err := r.watched.Get(ctx, key)
	if err != nil || seen == nil || !approved(seen) || r.done.Has(seen) {
		return reconcile.Result{}, err
	}
	object := seen.DeepCopy()
	err = r.sign(ctx, object)
	if err == nil {
		return r.write(ctx, seen, object, "signed")
	}
	decision := csr.Decide(err).For(controller.Request(object))
	switch decision.Verdict {
	case csr.VerdictIgnore:
		return reconcile.Result{}, nil
	case csr.VerdictFail:
		now := metav1.NewTime(r.c.Now())
		object.Status.Certificate = nil
		object.Status.Conditions = append(object.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
			Type: certificatesv1.CertificateFailed, Status: corev1.ConditionTrue, Reason: decision.Reason, Message: decision.Message,
			LastUpdateTime: now, LastTransitionTime: now,
		})
		why := cmp.Or(decision.Detail, decision.Message)
		log.FromContext(ctx).Info("request marked as failed", "request", object.Name, "uid", object.UID, "signer", object.Spec.SignerName, "reason", decision.Reason, "why", why)
		result, written := r.write(ctx, seen, object, "failed")
		if written == nil && result.RequeueAfter == 0 {
			r.watched.Warn(object, decision.Reason, "Fail", why)
		}
		return result, written
	}
	r.metrics.WithLabelValues(object.Spec.SignerName, "retry").Inc()
	return reconcile.Result{}, err
}

// approved reports whether a request is waiting for its certificate.
func approved(object *certificatesv1.CertificateSigningRequest) bool {
	return len(object.Status.Certificate) == 0 && object.DeletionTimestamp == nil && requests.Has(object, certificatesv1.CertificateApproved) &&
		!requests.Has(object, certificatesv1.CertificateDenied, certificatesv1.CertificateFailed)
}

// errNothing says that a provider returned neither a result nor an error.
var errNothing = errors.New("signer: the evidence was neither verified nor refused")

// sign verifies the evidence, has the certificate made and recorded, and puts it into the
// object. A certificate that could not be written before is put there again.
func (r *Reconciler) sign(ctx context.Context, object *certificatesv1.CertificateSigningRequest) error {
	attested, err := r.c.Providers.Verify(ctx, controller.Request(object))
	if err != nil {
		return err
	}
	if attested == nil {
		return errNothing
	}
	ca := r.c.CA()
	issued, err := r.unwritten.again(ctx, object, ca, attested, r.c.Now())
	if issued == nil && err == nil {
		if issued, err = r.issue(ctx, ca, attested); err == nil {
			r.unwritten.keep(object, ca, attested, issued)
		}
	}
	if err != nil {
		return err
	}
	object.Status.Certificate = issued.PEM
	log.FromContext(ctx).Info("signed", "request", object.Name, "uid", object.UID, "signer", object.Spec.SignerName, "node", issued.Record.NodeName,
		"credential", issued.Record.CredentialID, "serial", strings.ToLower(issued.Certificate.SerialNumber.Text(16)), "notAfter", issued.Record.NotAfter)
	return nil
}

// write puts the result on exactly the object that was verified: it has the same UID and resource
// version.
func (r *Reconciler) write(ctx context.Context, seen, object *certificatesv1.CertificateSigningRequest, result string) (reconcile.Result, error) {
	err := r.watched.Writer.SubResource("status").Update(ctx, object)
	switch {
	case apierrors.IsNotFound(err):
		r.unwritten.forget(object.UID)
		fallthrough
	case apierrors.IsConflict(err):
		log.FromContext(ctx).Info("request changed or deleted before its status was written; it is handled again if it still exists", "request", object.Name)
		return reconcile.Result{RequeueAfter: conflictPause}, nil
	case err != nil:
		return reconcile.Result{}, err
	}
	r.done.Add(seen)
	r.unwritten.forget(object.UID)
	r.metrics.WithLabelValues(object.Spec.SignerName, result).Inc()
	return reconcile.Result{}, nil
}
