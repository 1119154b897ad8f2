package clusterapi

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/nodeattest/nodeattest/bootstraptoken"
	"github.com/nodeattest/nodeattest/refusal"
	"github.com/nodeattest/nodeattest/secret"
)

const (
	// tokensInterval is the longest time between two looks at the tokens of pools.
	tokensInterval = time.Minute
	// tokensShare is the share of the TTL after which they are looked at again: one of so many. A token is
	// extended when a sixth of its TTL has passed, and would be replaced when a half has.
	tokensShare = 6
	// tokenName followed by a token's ID is the name of its Secret.
	tokenName = "bootstrap-token-"
	// tokenExpiration is the key of a token's Secret with its end.
	tokenExpiration = "expiration"
)

// tokenRenewal is the manager's runnable that renews the tokens of pools: of the leader. Another process's may
// run at the same time for a moment.
type tokenRenewal struct {
	*Inventory
	now                func() time.Time
	extended, failures prometheus.Counter
	reported           string // in the log already
}

// newTokenRenewal makes one, and registers its metrics.
func newTokenRenewal(i *Inventory) (*tokenRenewal, error) {
	t := &tokenRenewal{Inventory: i, now: time.Now,
		extended: prometheus.NewCounter(prometheus.CounterOpts{Name: "nodeattest_cluster_api_pool_tokens_extended_total",
			Help: "Bootstrap tokens of MachinePools that were extended."}),
		failures: prometheus.NewCounter(prometheus.CounterOpts{Name: "nodeattest_cluster_api_pool_token_failures_total",
			Help: "Looks at a MachinePool's bootstrap token, or at all MachinePools, that failed. The log says why."}),
	}
	return t, errors.Join(i.pools.Metrics.Register(t.extended), i.pools.Metrics.Register(t.failures))
}

// Start renews until ctx ends.
func (t *tokenRenewal) Start(ctx context.Context) error { //goroutine: objects that Cluster API and its providers wrote
	wait.UntilWithContext(ctx, t.look, min(tokensInterval, t.pools.ttl()/tokensShare)) //goroutine: in this one; objects that Cluster API and its providers wrote
	return nil
}

// look looks at all tokens once, and reports each change of the reason why one is not extended.
func (t *tokenRenewal) look(ctx context.Context) {
	why := ""
	if err := t.run(ctx); err != nil {
		why = err.Error()
	}
	if ctx.Err() != nil || why == t.reported {
		return
	}
	t.reported = why
	logger := log.FromContext(ctx).WithValues("cluster", t.namespace+"/"+t.cluster)
	if why != "" {
		logger.Info("bootstrap tokens of MachinePools are not all extended; the next try is in a minute at most", "why", why)
		return
	}
	logger.Info("bootstrap tokens of MachinePools are extended again")
}

// run looks at the token of each pool once. It goes on after a pool that fails.
func (t *tokenRenewal) run(ctx context.Context) error {
	pools, err := t.all(ctx)
	if err != nil {
		t.failures.Inc()
		return err
	}
	attests := t.attests(ctx)
	failed := []error{attests}
	for _, p := range pools {
		if err := t.one(ctx, p, attests == nil); err != nil && !errors.Is(err, errTaken) {
			t.failures.Inc()
			failed = append(failed, fmt.Errorf("MachinePool %s: %w", p.GetName(), err))
		}
	}
	return errors.Join(failed...)
}

// all returns the pools of the Cluster, as the API server has them.
func (t *tokenRenewal) all(ctx context.Context) (pools []*unstructured.Unstructured, err error) {
	if t.kinds.pool.Empty() {
		return nil, errors.New("the management cluster served no MachinePools when this program started")
	}
	err = t.each(ctx, t.kinds.pool, func(p *unstructured.Unstructured) {
		if t.owns(p) {
			pools = append(pools, p.DeepCopy())
		}
	})
	if err != nil {
		return nil, fmt.Errorf("list of MachinePools: %w", err)
	}
	return pools, nil
}

// errTaken says that another writer was first. The next look decides about what it wrote.
var errTaken = errors.New("another writer was first")

// taken returns the error of a write.
func taken(err error) error {
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return errTaken
	}
	return err
}

// attests returns an error while no token of the Cluster's pools may be extended.
func (t *tokenRenewal) attests(ctx context.Context) error {
	allowed, err := t.attestors(ctx)
	switch {
	case err != nil:
		return err
	case !allowed.every && len(allowed.names) == 0:
		return fmt.Errorf("cluster %s/%s authorizes no kind of evidence", t.namespace, t.cluster)
	}
	_, err = (&sweep{Inventory: t.Inventory}).unpaused(ctx)
	return err
}

// one deletes the tokens of a pool that is shut, and else extends its token, if the Cluster's nodes attest.
func (t *tokenRenewal) one(ctx context.Context, pool *unstructured.Unstructured, attests bool) error {
	since, shut, err := t.shutSince(ctx, pool.GetName())
	switch {
	case err != nil:
		return err
	case shut:
		return t.remove(ctx, pool, since)
	case !attests || !renewed(pool):
		return nil
	}
	s, held, err := t.tokenOf(ctx, pool)
	if s == nil || err != nil { // without a Secret the bootstrap provider makes a new token
		return err
	}
	if s.Labels[LabelPoolUID] == "" {
		if err := t.label(ctx, pool, s); err != nil {
			return err
		}
	}
	renewal, err := bootstraptoken.Renew(bootstraptoken.RenewalState{Owner: bootstraptoken.OwnerMachinePool, KubeletAuthentication: true, Exists: true,
		Expiration: held.Expiration, TTL: t.pools.ttl()}, t.now())
	if err != nil || renewal.Action != bootstraptoken.RenewalExtend {
		return err
	}
	if err := t.still(ctx, pool); err != nil {
		return err
	}
	s.Data[tokenExpiration] = []byte(renewal.Expiration.Format(time.RFC3339))
	if err := taken(t.pools.Writer.Update(ctx, s)); err != nil { // over the version and the UID that were read
		return err
	}
	t.extended.Inc()
	log.FromContext(ctx).V(1).Info("extended the bootstrap token of a MachinePool", "pool", t.origin(pool).String(), "secret", s.Name, "until", renewal.Expiration)
	return nil
}

// renewed reports whether a pool lives, is not paused or being moved, and has machines that attest.
func renewed(pool *unstructured.Unstructured) bool {
	notes := pool.GetAnnotations()
	_, paused := notes[pausedAnnotation]
	_, moves := notes[deleteForMove]
	_, without := notes[AnnotationEvidence]
	return pool.GetDeletionTimestamp() == nil && !paused && !moves && !without
}

// still fails if the pool's token may not be extended any more, at a write.
func (t *tokenRenewal) still(ctx context.Context, pool *unstructured.Unstructured) error {
	if err := t.attests(ctx); err != nil {
		return err
	}
	pools, err := t.all(ctx)
	if err != nil {
		return err
	}
	shut, err := t.shut(ctx, pool.GetName())
	if err != nil {
		return err
	}
	if shut || !slices.ContainsFunc(pools, func(p *unstructured.Unstructured) bool { return p.GetUID() == pool.GetUID() && renewed(p) }) {
		return errors.New("it has been shut, paused, deleted or replaced meanwhile")
	}
	return nil
}

// tokenOf returns the Secret of a pool's token, and the token; nil if the pool has none. The error is that of a
// Secret that is not the pool's.
func (t *tokenRenewal) tokenOf(ctx context.Context, pool *unstructured.Unstructured) (*corev1.Secret, *bootstraptoken.Secret, error) {
	ref, _, _ := unstructured.NestedMap(pool.Object, "spec", "template", "spec", "bootstrap", "configRef")
	if text(ref, "kind") != t.kinds.config.Kind {
		return nil, nil, nil
	}
	config, err := t.get(ctx, t.kinds.config, text(ref, "name"))
	if err != nil {
		return nil, nil, err
	}
	if controllingPool(config) != pool.GetUID() {
		return nil, nil, fmt.Errorf("KubeadmConfig %s is not controlled by it", config.GetName())
	}
	whole := tokenText(config.Object)
	if whole == "" {
		return nil, nil, nil
	}
	token, err := bootstraptoken.Parse(whole)
	if err != nil {
		return nil, nil, fmt.Errorf("KubeadmConfig %s: %w", config.GetName(), err)
	}
	s, err := t.pools.tokenSecret(ctx, token.ID())
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil, nil
	case err != nil:
		return nil, nil, err
	}
	held, err := t.owned(pool, s)
	if err == nil && !held.Token.Equal(token) {
		err = fmt.Errorf("%s has another secret than KubeadmConfig %s", s.Name, config.GetName())
	}
	return s, held, err
}

// owned returns the token in a Secret that may be written for a pool: it is of a bootstrap token, has no
// owner, and is not of another pool.
func (t *tokenRenewal) owned(pool *unstructured.Unstructured, s *corev1.Secret) (*bootstraptoken.Secret, error) {
	label, labelled := s.Labels[LabelPoolUID]
	_, noted := s.Annotations[AnnotationPool]
	switch {
	case labelled && label != string(pool.GetUID()):
		return nil, fmt.Errorf("%s has the label %s of another pool, %s", s.Name, LabelPoolUID, refusal.Quote(label))
	case !labelled && noted:
		return nil, fmt.Errorf("%s has lost the label %s, so it is left as it is; remove the annotation %s too to have it extended again", s.Name, LabelPoolUID, AnnotationPool)
	}
	return tokenIn(s)
}

// tokenIn reads the bootstrap token in a Secret without an owner.
func tokenIn(s *corev1.Secret) (*bootstraptoken.Secret, error) {
	if len(s.OwnerReferences) != 0 {
		return nil, fmt.Errorf("%s has an owner, %s %s", s.Name, s.OwnerReferences[0].Kind, s.OwnerReferences[0].Name)
	}
	o := &bootstraptoken.Object{Namespace: s.Namespace, Name: s.Name, Type: string(s.Type), Data: secret.New(s.Data)}
	if s.DeletionTimestamp != nil {
		o.Deleted = &s.DeletionTimestamp.Time
	}
	return bootstraptoken.ParseSecretUnchecked(o)
}

// label writes the pool into a Secret, which has its new version afterwards.
func (t *tokenRenewal) label(ctx context.Context, pool *unstructured.Unstructured, s *corev1.Secret) error {
	metav1.SetMetaDataLabel(&s.ObjectMeta, LabelPoolUID, string(pool.GetUID()))
	metav1.SetMetaDataAnnotation(&s.ObjectMeta, AnnotationPool, t.origin(pool).String())
	metav1.SetMetaDataAnnotation(&s.ObjectMeta, annotationConfig, text(pool.Object, "spec", "template", "spec", "bootstrap", "configRef", "name"))
	return taken(t.pools.Writer.Update(ctx, s)) // over the version and the UID that were read
}

// remove deletes the tokens of a pool that is shut: those with its label, and the one of its KubeadmConfig if it is not
// newer than the mark. The bootstrap provider then makes a new one, which stays.
func (t *tokenRenewal) remove(ctx context.Context, pool *unstructured.Unstructured, since time.Time) error {
	s, _, failed := t.tokenOf(ctx, pool)
	if failed == nil && s != nil && s.Labels[LabelPoolUID] == "" && !s.CreationTimestamp.After(since) {
		if failed = t.label(ctx, pool, s); errors.Is(failed, errTaken) {
			failed = nil
		}
	}
	var all corev1.SecretList
	if err := t.pools.Reader.List(ctx, &all, client.InNamespace(bootstraptoken.Namespace), client.MatchingLabels{LabelPoolUID: string(pool.GetUID())}); err != nil {
		return errors.Join(failed, err)
	}
	for n := range all.Items {
		s := &all.Items[n]
		_, err := t.owned(pool, s)
		if err == nil {
			err = taken(t.pools.Writer.Delete(ctx, s, client.Preconditions{UID: &s.UID, ResourceVersion: &s.ResourceVersion}))
		}
		switch {
		case errors.Is(err, errTaken): // the next look finds what is left
			continue
		case err != nil:
			failed = errors.Join(failed, err)
			continue
		}
		log.FromContext(ctx).Info("deleted the bootstrap token of a MachinePool that is shut", "pool", t.origin(pool).String(), "secret", s.Name)
	}
	return failed
}
