package controller

import (
	"cmp"
	"context"
	"crypto"
	"errors"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/kube/internal/requests"
	"github.com/nodeattest/nodeattest/refusal"
)

// message says which of a node's messages a request is.
type message string

const (
	messageHello   message = "hello"
	messageAnswer  message = "answer"
	messageServing message = "serving"
)

// Reconciler decides the requests of nodes. [New] makes one, and [Reconciler.SetupWithManager]
// starts it.
type Reconciler struct {
	c       Config
	signers map[string]message
	serving *csr.Policy
	limits  *limits
	done    *requests.Recent
	metrics *metrics
	refused *refused
	watched *requests.Watched // set by SetupWithManager
}

// conflictPause is how long after a lost write the request is looked at again, if no event
// comes first.
const conflictPause = 2 * time.Second

// look looks at one request. If it returns an error, the request is looked at again, at
// growing intervals.
func (r *Reconciler) look(ctx context.Context, key requests.Key) (reconcile.Result, error) {
	object, err := r.watched.Get(ctx, key)
	if err != nil || object == nil {
		return reconcile.Result{}, err
	}
	if len(object.Status.Certificate) != 0 {
		switch {
		case r.c.Registry == nil || r.done.Has(object):
			return reconcile.Result{}, nil
		case key.SignerName == csr.SignerKubeAPIServerClientKubelet:
			return reconcile.Result{}, r.recordSigned(ctx, object)
		case key.SignerName == csr.SignerKubeletServing:
			return reconcile.Result{}, r.countServing(ctx, object)
		}
		return reconcile.Result{}, nil
	}
	if r.done.Has(object) {
		return reconcile.Result{}, nil
	}
	request := Request(object)
	if csr.Decide(nil).For(request).Verdict == csr.VerdictIgnore { // it is finished
		return reconcile.Result{}, nil
	}
	return r.decide(ctx, object, request)
}

// limit takes one look from the requester's rate and returns zero, or returns how long to wait.
func (r *Reconciler) limit(requester string) time.Duration {
	wait := r.limits.wait(requester, r.c.Now())
	if wait > 0 {
		r.metrics.limited.Inc()
	}
	return wait
}

// decide decides a request, and writes the decision.
func (r *Reconciler) decide(ctx context.Context, object *certificatesv1.CertificateSigningRequest, request *csr.Request) (reconcile.Result, error) {
	what := r.signers[object.Spec.SignerName]
	began := r.c.Now()
	unplaced, proven, err := r.ask(ctx, what, request)
	decision := unplaced.For(request)
	took := r.c.Now().Sub(began)
	kind := r.kindOf(request)
	r.metrics.decided(what, kind, object.Spec.SignerName, &decision, err, took)
	logger := log.FromContext(ctx).WithValues("request", object.Name, "uid", object.UID, "signer", object.Spec.SignerName,
		"requester", object.Spec.Username, "message", string(what), "kind", kind, "node", proven.nodeName,
		"verdict", decision.Verdict.String(), "reason", decision.Reason, "took", took.String())
	switch decision.Verdict {
	case csr.VerdictRetry:
		if err == nil {
			err = refusal.Retry(errors.New(decision.Message))
		}
		return reconcile.Result{}, err // the error is logged
	case csr.VerdictIgnore:
		return reconcile.Result{}, nil
	}
	if r.leaves(ctx, object, request, proven.nodeName, &decision) {
		return reconcile.Result{}, nil
	}
	if decision.Condition == "" { // already approved: the rest is its signer's job
		r.done.Add(object)
		return reconcile.Result{}, nil
	}
	reason := cmp.Or(decision.Detail, decision.Message)
	written, err := r.write(ctx, object, &decision, proven.ek, err)
	if err != nil {
		if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
			r.metrics.conflicts.Inc()
			logger.Info("request changed or deleted before its decision was written; it is decided again if it still exists")
			return reconcile.Result{RequeueAfter: conflictPause}, nil
		}
		return reconcile.Result{}, err
	}
	r.done.Add(object)
	if decision.Reason == attest.ReasonChallenge {
		r.metrics.challenges.WithLabelValues(kind, "issued").Inc()
		logger.Info("hello challenged")
		return reconcile.Result{}, nil
	}
	r.refused.put(written, request, &decision, began)
	logger.Info("request decided", "why", reason)
	r.event(object, &decision, reason)
	return reconcile.Result{}, nil
}

// proven is what the evidence of an approved request has shown.
type proven struct {
	nodeName string
	ek       crypto.PublicKey // nil without an EK
}

// ask has the request decided. The decision is based on the error.
func (r *Reconciler) ask(ctx context.Context, what message, request *csr.Request) (d csr.UnplacedDecision, p proven, err error) {
	switch what {
	case messageHello:
		challenge, err := r.c.Providers.Challenge(ctx, request)
		return attest.ChallengeDecision(challenge, err), p, err
	case messageServing:
		attested, err := r.inherit(ctx, request)
		return decided(attested, err)
	}
	attested, err := r.c.Providers.Verify(ctx, request)
	return decided(attested, err)
}

// decided approves a verified request. Without a result and an error, the request is retried.
func decided(attested *csr.Attested, err error) (csr.UnplacedDecision, proven, error) {
	checked := attested.Checked()
	if err != nil || checked == nil {
		return csr.Decide(err), proven{}, err
	}
	return attested.Decision(), proven{checked.NodeName(), endorsementKey(attested)}, nil
}

// write puts the decision on exactly the object that it is about, with the EK of an approved machine, and returns it.
// If the evidence has a version that is not supported here, it adds the supported ones, for the node
// (csr.Metadata.ChooseVersion).
func (r *Reconciler) write(ctx context.Context, object *certificatesv1.CertificateSigningRequest, d *csr.Decision, ek crypto.PublicKey, why error) (*certificatesv1.CertificateSigningRequest, error) {
	object = object.DeepCopy()
	annotateEndorsementKey(object, ek)
	if unsupported, ok := errors.AsType[*csr.UnsupportedVersionError](why); ok {
		key, value := unsupported.Annotation()
		metav1.SetMetaDataAnnotation(&object.ObjectMeta, key, value)
	}
	object.UID, object.ResourceVersion = types.UID(d.UID), d.ResourceVersion
	now := metav1.NewTime(r.c.Now())
	object.Status.Conditions = append(object.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
		Type: certificatesv1.RequestConditionType(d.Condition), Status: corev1.ConditionTrue,
		Reason: d.Reason, Message: d.Message, LastUpdateTime: now, LastTransitionTime: now,
	})
	return object, r.watched.Writer.SubResource(d.Subresource).Update(ctx, object)
}

// event reports a refusal to people. An approval is in the request, which says everything: an
// Event would be one more write for each join.
func (r *Reconciler) event(object *certificatesv1.CertificateSigningRequest, d *csr.Decision, note string) {
	if action := map[csr.Verdict]string{csr.VerdictDeny: "Deny", csr.VerdictFail: "Fail"}[d.Verdict]; action != "" {
		r.watched.Warn(object, d.Reason, action, note)
	}
}
