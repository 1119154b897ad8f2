package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"text/tabwriter"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/membership"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/kube/explain"
	"github.com/nodeattest/nodeattest/kube/internal/settings"
	"github.com/nodeattest/nodeattest/refusal"
)

// explain shows what became of a request.
func (p *plugin) explain(ctx context.Context, name string) error {
	request, err := p.getRequest(ctx, name)
	if err != nil {
		return err
	}
	f := explain.Facts{Request: request, Kinds: p.kinds, Records: p.held, Now: p.now()}
	c, err := p.configuration(ctx)
	if err != nil {
		return err
	}
	if c != nil {
		f.Policy = p.policy(c, request)
		if len(c.settings.Cluster.IDs) != 0 {
			f.ClusterIDs = c.settings.Cluster.IDs
		}
	}
	if f.Related, err = p.related(ctx, request); err != nil {
		return err
	}
	if f.Notes, err = p.notes(ctx, request); err != nil {
		return err
	}
	x, err := explain.Explain(ctx, f)
	if err != nil {
		return err
	}
	return x.WriteText(p.out)
}

// policy returns the controller's policy according to its configuration; nil if the inventory
// is not known.
func (p *plugin) policy(c *configuration, request *csr.Request) *csr.Policy {
	if c.machines == nil {
		return nil
	}
	policy := c.settings.Policy(new(settings.Machines))
	policy.Machines = func(_ context.Context, q csr.Question) (*csr.Machine, error) {
		nodeName := q.NodeName
		m, ok := c.machines[nodeName]
		if !ok {
			return nil, csr.ErrNoMachine
		}
		return &m, nil
	}
	if request.Spec.SignerName == csr.SignerKubeletServing && policy.BuiltInSignerDuration != 0 {
		policy.SignerNames = []string{csr.SignerKubeletServing}
	}
	node, _ := csr.RequesterOf(request.User.Username, request.User.Groups)
	policy.Records = func(ctx context.Context, credentialID string, request *csr.Request) (*csr.IssuedRecord, error) {
		_, r, err := p.record(ctx, node.NodeName)
		if err != nil {
			return nil, err
		}
		if r == nil {
			return nil, csr.ErrNoRecord
		}
		return membership.IssuedRecords(r)(ctx, credentialID, request)
	}
	return policy
}

// related returns the other requests with the same PKCS#10 request.
func (p *plugin) related(ctx context.Context, request *csr.Request) ([]*csr.Request, error) {
	bundle, err := request.Parsed().Bundle()
	if err != nil {
		return nil, nil //nolint:nilerr // the explanation says so
	}
	all, err := p.listRequests(ctx, "")
	if apierrors.IsForbidden(err) {
		return nil, nil
	}
	return slices.DeleteFunc(all, func(other *csr.Request) bool {
		b, err := other.Parsed().Bundle()
		return err != nil || other.Metadata.UID == request.Metadata.UID || !bytes.Equal(b.Request, bundle.Request)
	}), err
}

// notes returns the notes of the Events about a request, which are in namespace "default".
func (p *plugin) notes(ctx context.Context, request *csr.Request) ([]string, error) {
	var list corev1.EventList
	err := p.client.List(ctx, &list, client.InNamespace(metav1.NamespaceDefault),
		client.MatchingFieldsSelector{Selector: fields.OneTermEqualSelector("involvedObject.uid", request.Metadata.UID)})
	if apierrors.IsForbidden(err) {
		return nil, nil
	}
	slices.SortFunc(list.Items, func(a, b corev1.Event) int {
		return cmp.Or(a.EventTime.Compare(b.EventTime.Time), a.CreationTimestamp.Compare(b.CreationTimestamp.Time))
	})
	var notes []string
	for i := range list.Items {
		notes = append(notes, list.Items[i].Message)
	}
	return notes, err
}

// pending lists the machines that were refused because no record admits them, with the newest
// request of each. For a TPM that is a hello; the machine of a document is not known before
// the answer.
func (p *plugin) pending(ctx context.Context, _ string) error {
	signers := []string{csr.SignerKubeAPIServerClientKubelet}
	for _, kind := range p.kinds {
		for _, name := range []func(string) (string, error){csr.SignerChallenge, csr.SignerClient} {
			signer, err := name(kind.Describe().Provider)
			if err != nil {
				return err
			}
			signers = append(signers, signer)
		}
	}
	newest := map[candidate]*csr.Request{}
	for _, signer := range signers {
		all, err := p.listRequests(ctx, signer)
		if err != nil {
			return err
		}
		for _, request := range all {
			c, err := p.candidateOf(request)
			if err != nil || !refused(request) {
				continue
			}
			if old := newest[*c]; old == nil || old.Metadata.CreationTimestamp.Before(request.Metadata.CreationTimestamp) {
				newest[*c] = request
			}
		}
	}
	candidates := make([]candidate, 0, len(newest))
	for c := range newest {
		candidates = append(candidates, c)
	}
	slices.SortFunc(candidates, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(a.nodeName, b.nodeName), cmp.Compare(a.machine, b.machine))
	})
	w := tabwriter.NewWriter(p.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "REQUEST\tNODE\tMACHINE\tREQUESTER\tAGE\tRECORDS")
	for _, c := range candidates {
		r := newest[c]
		state, err := p.state(ctx, &c)
		if err != nil {
			return err
		}
		age := p.now().Sub(r.Metadata.CreationTimestamp).Round(time.Second)
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", r.Metadata.Name, refusal.Text(c.nodeName), refusal.Text(string(c.machine)), refusal.Text(r.User.Username), age, state)
	}
	return w.Flush()
}

// state says what records there are about a candidate.
func (p *plugin) state(ctx context.Context, c *candidate) (string, error) {
	recorded, r, err := p.record(ctx, c.nodeName)
	if err != nil {
		return "", err
	}
	if recorded != nil && r.Scope().String() != c.scope.String() {
		return string(membership.CheckRegistryScope) + ": recorded by " + r.Scope().String() + "; to admit it by " + c.scope.String() +
			", an operator releases the node first: kubectl nodeattest release " + refusal.Text(c.nodeName), nil
	}
	held, err := p.held(ctx, membership.Claim{NodeName: c.nodeName, Machine: c.machine})
	if err != nil {
		return "", err
	}
	claim := membership.Claim{NodeName: c.nodeName, Machine: c.machine}
	if held.Name != nil {
		claim.MachineUID, claim.ProviderID = held.Name.MachineUID, held.Name.ProviderID
	}
	err = held.Admit(&claim, p.now())
	switch e, ok := errors.AsType[*attest.Error](err); {
	case ok:
		return string(e.Check), nil
	case held.Name != nil:
		return "approved", nil
	}
	return "none", nil
}
