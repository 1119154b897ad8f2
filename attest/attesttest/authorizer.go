package attesttest

import (
	"cmp"
	"context"
	"crypto"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/membership"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/refusal"
)

// RunAuthorizer tries an authorizer that knows its machines: by a list, an inventory or a database. Each
// of the members, of which there must be at least one, has to be admitted as its node. What must be
// refused for good, with [attest.CheckMembership], is a machine that is no member, as a member's node and
// as an unknown one, and a member as another node. A provider ID that a request claims must not be granted
// for that reason. Each try is a subtest.
//
// Requests are for client certificates with a bootstrap token, and each machine is presented on the road
// of its kind. The inventory has a machine for every name, without a provider ID, so it refuses nothing.
// Trust on first use admits machines that it does not know, and is not for this.
func RunAuthorizer(t *testing.T, a attest.Authorizer, members ...membership.Member) {
	t.Helper()
	tries, err := authorizerTries(members)
	if err != nil {
		t.Fatalf("attesttest: %v", err)
	}
	for _, try := range tries {
		t.Run(try.name, func(t *testing.T) {
			if fault, err := try.faultOf(t.Context(), a); fault != "" {
				t.Errorf("machine %s as node %s: %s\nThe authorizer's error: %v", try.member.Machine, try.member.NodeName, fault, err)
			}
		})
	}
}

// authorizerTry is one question to an authorizer.
type authorizerTry struct {
	name    string
	member  membership.Member // or another machine, or node
	stage   attest.Stage
	claims  string // a provider ID that must not be granted
	honest  bool
	request crypto.Signer // the same in all tries
}

// claimedID is a provider ID that no member has.
const claimedID = "sim://attesttest/claimed"

func authorizerTries(members []membership.Member) (tries []authorizerTry, err error) {
	if len(members) == 0 {
		return nil, refusal.Config("members", "", "one or more")
	}
	key := newKey()
	try := func(name string, m membership.Member, node string, honest bool) {
		m.NodeName = node
		for _, stage := range []attest.Stage{attest.StageHello, attest.StageAnswer} {
			tries = append(tries, authorizerTry{name: name + "-at-" + stage.String() + "/" + m.NodeName, member: m, stage: stage, honest: honest, request: key})
		}
	}
	const unknown = "attesttest-unknown"
	for n, m := range members {
		stranger := m
		stranger.Machine = strangerTo(m.Machine, members)
		try("member", m, m.NodeName, true)
		try("stranger", stranger, m.NodeName, false)
		try("member-as-unknown-node", m, unknown, false)
		if other := members[(n+1)%len(members)]; other.NodeName != m.NodeName {
			try("member-as-another-node", m, other.NodeName, false)
		}
		if n == 0 {
			try("stranger-as-unknown-node", stranger, unknown, false)
		}
		tries = append(tries, authorizerTry{name: "provider-id-claimed/" + m.NodeName, member: m, stage: attest.StageAnswer, claims: claimedID, request: key})
	}
	return tries, nil
}

// strangerTo returns the identity of a machine of the same kind that is no member: its last character is
// another one.
func strangerTo(machine attest.Identity, members []membership.Member) attest.Identity {
	rest := machine[:max(len(machine)-1, 0)]
	for _, c := range "0123456789abcdefghij" {
		stranger := rest + attest.Identity(c)
		if !slices.ContainsFunc(members, func(m membership.Member) bool { return m.Machine == stranger }) {
			return stranger
		}
	}
	return machine + "0"
}

// faultOf asks the authorizer as a verifier does, and returns its fault, or "".
func (y *authorizerTry) faultOf(ctx context.Context, a attest.Authorizer) (fault string, err error) {
	r, err := y.result(ctx)
	if err != nil {
		return "the request could not be made: a fault of the runner or of the member", err
	}
	err = attest.AskMembership(ctx, a, r)
	switch {
	case y.claims != "" && err == nil && r.Granted.ProviderID == y.claims:
		return "the provider ID that the request claims was granted, and nothing else says that it is the machine's", nil
	case y.claims != "":
	case y.honest && err != nil:
		return "a member was refused, or not decided about", err
	case y.honest:
	case err == nil && y.stage == attest.StageHello: // the answer decides
	case err == nil:
		return "it was admitted", nil
	case !errors.Is(err, attest.CheckMembership) || errors.Is(err, refusal.ErrRetry):
		return "the error is not a refusal by attest.NotMember: the request is tried again and again", err
	}
	return "", err
}

// result is the result of a verification of the machine.
func (y *authorizerTry) result(ctx context.Context) (r *attest.Result, err error) {
	defer caught(&err)
	m, provider := y.member, cmp.Or(y.member.Provider, "tpm")
	signer := must(csr.PurposeClient.SignerName(provider))
	policy := &csr.Policy{ClusterIDs: []string{ClusterID}, SignerNames: []string{signer}, Machines: func(_ context.Context, q csr.Question) (*csr.Machine, error) {
		return &csr.Machine{Name: "machine-of-" + q.NodeName, UID: "uid-of-" + q.NodeName, NodeName: q.NodeName, BootstrapReady: true}, nil
	}}
	pkcs10 := must(csr.Create(csr.PurposeClient, y.request, m.NodeName, csr.CreateOptions{ProviderID: y.claims}))
	text := must((&csr.Bundle{Request: pkcs10, Provider: provider + "/v1", Data: []byte{0}}).Marshal())
	spec := &csr.Spec{Request: text, SignerName: signer, Usages: csr.PurposeClient.Usages(false)}
	by := csr.User{Username: csr.BootstrapUserPrefix + TokenID, Groups: []string{"system:bootstrappers", "system:authenticated"}}
	checked := must(policy.Check(ctx, csr.Filed(spec, by, time.Now()).Parsed()))
	r = attest.NewResult(y.stage, checked)
	r.Provider, r.Machine, r.MachineStanding, r.ClusterID = provider, m.Machine, attest.Proven, ClusterID
	r.ClaimedProviderID = checked.ClaimedProviderID()
	switch {
	case m.Machine.Kind() == "ek":
		r.Road, r.IdentityClass = attest.RoadEK, "RSA-2048"
	case provider != "tpm":
		r.Road, r.MachineStanding = attest.RoadDocument, attest.Asserted
	}
	return r, nil
}
