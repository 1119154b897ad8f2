package clusterapi

import (
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/refusal"
)

// attestors are the kinds of evidence that a Cluster authorizes.
type attestors struct {
	every bool
	names []string
}

func (a attestors) has(kind string) bool { return a.every || slices.Contains(a.names, kind) }

func (a attestors) String() string { return refusal.OrNothing(refusal.Quotes(a.names)) }

// attestors reads the annotations of the Cluster.
func (i *Inventory) attestors(ctx context.Context) (attestors, error) {
	o := object(i.kinds.cluster)
	err := i.cached.Get(ctx, client.ObjectKey{Namespace: i.namespace, Name: i.cluster}, o)
	switch {
	case apierrors.IsNotFound(err):
		return attestors{}, refusal.Retry(fmt.Errorf("the management cluster has no Cluster %s/%s: create it, or correct the controller's configuration", i.namespace, i.cluster))
	case err != nil:
		return attestors{}, err
	}
	notes := o.GetAnnotations()
	switch on, stated := notes[AnnotationAuthentication]; {
	case on == "false":
		return attestors{}, fmt.Errorf("%w: Cluster %s has %s: false", csr.ErrOtherSigner, i.cluster, AnnotationAuthentication)
	case stated && on != "true":
		return attestors{}, refusal.Retry(refusal.Config("Cluster "+i.cluster+" "+AnnotationAuthentication, refusal.Quote(on), `"true" or "false"`))
	}
	list, stated := notes[AnnotationAttestors]
	a := attestors{every: !stated}
	for name := range strings.SplitSeq(list, ",") {
		if name = strings.TrimSpace(name); name != "" {
			a.names = append(a.names, name)
		}
	}
	return a, nil
}

// Authorizer returns an authorizer that asks next about machines whose kind of evidence the Cluster
// authorizes. While the evidence states a provider ID that the Machine does not have yet, the
// request is retried: the infrastructure provider writes spec.providerID. Another provider ID is refused
// by the verifier. If records follow Machines ([Follow]), the record of the machine is adopted first, where
// its Machine was replaced by the one of the request: at the answer, once the evidence has been verified.
func (i *Inventory) Authorizer(next attest.Authorizer) attest.Authorizer {
	return &authorizer{i, next}
}

type authorizer struct {
	inventory *Inventory
	next      attest.Authorizer
}

// CheckAuthorizer checks next.
func (a *authorizer) CheckAuthorizer(open attest.Opening) error {
	if a == nil || a.inventory == nil {
		return refusal.Config("Authorizer", "", "that of an Inventory")
	}
	return attest.CheckAuthorizer(a.next, open)
}

// AuthorizeHello refuses what Authorize refuses, as far as it is known.
func (a *authorizer) AuthorizeHello(ctx context.Context, r *attest.Result) error {
	if err := a.check(ctx, r); err != nil {
		return err
	}
	if former, err := a.inventory.former(ctx, r); err != nil || former != nil {
		return err // the record is adopted at the answer
	}
	return r.AskAtHello(ctx, a.next)
}

// Authorize asks next about a machine that its Machine does not contradict.
func (a *authorizer) Authorize(ctx context.Context, r *attest.Result) (*attest.Authorization, error) {
	if err := a.check(ctx, r); err != nil {
		return nil, err
	}
	former, err := a.inventory.former(ctx, r)
	if err == nil && former != nil {
		err = a.inventory.adopt(ctx, former, r.Checked().Machine().UID)
	}
	if err != nil {
		return nil, err
	}
	return a.next.Authorize(ctx, r)
}

func (a *authorizer) check(ctx context.Context, r *attest.Result) error {
	if a == nil || a.inventory == nil || a.inventory.cached == nil {
		return errNotMade
	}
	if r == nil || r.Checked() == nil || r.Checked().Machine() == nil {
		return attest.NotMember("a result without a Machine")
	}
	machine := r.Checked().Machine()
	allowed, err := a.inventory.attestors(ctx)
	switch {
	case err != nil:
		return err
	case !allowed.has(r.Provider):
		return attest.NotMember("evidence of kind " + refusal.Quote(r.Provider) + ", where Cluster " + a.inventory.cluster + " authorizes " + allowed.String())
	}
	pool, err := a.inventory.poolOf(ctx, r)
	switch {
	case err != nil:
		return refuseSlot(err)
	case pool != nil:
		return checkListed(pool, r)
	case machine.ProviderID == "" && r.Granted.ProviderID != "":
		return refusal.Retry(fmt.Errorf("Machine %s has no spec.providerID yet, and the evidence states one", machine.Name))
	}
	return nil
}

// clusterNow returns the Cluster as the API server has it; nil without one. It is found in a list, which takes no
// right of its own: the programs may list Clusters and not get one.
func (i *Inventory) clusterNow(ctx context.Context) (c *unstructured.Unstructured, err error) {
	err = i.each(ctx, i.kinds.cluster, func(o *unstructured.Unstructured) {
		if o.GetName() == i.cluster {
			c = o.DeepCopy()
		}
	})
	if err != nil {
		return nil, fmt.Errorf("list of Clusters: %w", err)
	}
	return c, nil
}

// pausedAnnotation is Cluster API's annotation of an object that its controllers leave alone.
const pausedAnnotation = "cluster.x-k8s.io/paused"

// paused reports whether a Cluster is paused, or has been moved to another management cluster.
func paused(c *unstructured.Unstructured) (bool, error) {
	is, _, err := unstructured.NestedBool(c.Object, "spec", "paused")
	if err != nil {
		return false, fmt.Errorf("spec.paused of cluster %s/%s: %w", c.GetNamespace(), c.GetName(), err)
	}
	_, moves := c.GetAnnotations()[deleteForMove]
	_, noted := c.GetAnnotations()[pausedAnnotation]
	return is || noted || moves, nil
}

// unlessPaused returns why a node that has joined has no Machine, or an error to be retried while the Cluster is
// paused: clusterctl move deletes Machines that are on another management cluster.
func (i *Inventory) unlessPaused(ctx context.Context, why error) error {
	c, err := i.clusterNow(ctx)
	switch {
	case err != nil:
		return refusal.Retry(err)
	case c == nil:
		return refusal.Retry(fmt.Errorf("the management cluster has no Cluster %s/%s: %w", i.namespace, i.cluster, why))
	}
	switch stays, err := paused(c); {
	case err != nil:
		return refusal.Retry(err)
	case stays:
		return refusal.Retry(fmt.Errorf("the Cluster %s/%s is paused: %w", i.namespace, i.cluster, why))
	}
	return why
}
