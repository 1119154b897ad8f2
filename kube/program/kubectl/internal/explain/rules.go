package explain

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/membership"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/kube/internal/remedies"
	"github.com/nodeattest/nodeattest/refusal"
)

// isChallenge reports whether a signer is a challenge signer, to which hellos are sent.
func isChallenge(signer string) bool {
	name, err := csr.SignerChallenge("tpm")
	prefix := strings.TrimSuffix(name, "tpm")
	return err == nil && strings.HasPrefix(signer, prefix)
}

// nodeNameOf returns the node in a common name.
func nodeNameOf(commonName string) string {
	for _, prefix := range []string{csr.NodeUserPrefix, csr.RecoveryUserPrefix} {
		if name, ok := strings.CutPrefix(commonName, prefix); ok {
			return name
		}
	}
	return ""
}

// ofMachine are the rules about the inventory.
var ofMachine = [...]csr.Check{csr.CheckMachineUnknown, csr.CheckMachineNotReady, csr.CheckMachineOtherNode, csr.CheckProviderIDMismatch, csr.CheckSANNotOwn}

// addPolicy adds the rules of the policy, and returns the inventory's machine, or nil if it is unknown.
func (x *Explanation) addPolicy(ctx context.Context, f *Facts, parsed *csr.Parsed) *csr.Machine {
	if x.unread != "" && x.Message == MessageHello {
		x.Rules = append(x.Rules, Rule{Name: string(csr.CheckSignerName), State: Unknown, Want: "the signer that the hello names"})
		return nil
	}
	if _, err := csr.PurposeOf(x.Signer); err != nil {
		x.Rules = append(x.Rules, broken(err, csr.CheckSignerName))
		return nil
	}
	var machine *csr.Machine
	policy := x.policy(f, &machine)
	checked, err := policy.CheckUnsigned(ctx, parsed, x.Signer)
	if errors.Is(err, refusal.CheckConfig) {
		x.Rules = append(x.Rules, Rule{Name: string(csr.CheckSignerName), State: Unknown, Want: "a valid policy: " + err.Error()})
		return nil
	}
	if errors.Is(err, csr.ErrOtherSigner) {
		x.Rules = append(x.Rules, Rule{Name: string(csr.CheckSignerName), State: Broken, Got: x.Signer, Want: refusal.Quotes(policy.SignerNames)})
		return nil
	}
	var all csr.Errors
	errors.As(err, &all)
	if bundle, err := parsed.Bundle(); err == nil && bundle.Provider == "" && x.Signer == csr.SignerKubeAPIServerClientKubelet {
		// The policy of Kubernetes' own signers selects no kind of evidence: the providers do.
		all = append(all, &csr.Error{Check: csr.CheckAttestationProvider, Got: "a request without evidence", Want: "evidence of a machine"})
	}
	x.addTable(all, errors.Is(err, refusal.ErrRetry), f.Policy != nil)
	signature := Rule{Name: string(csr.CheckSignature), State: Unknown, Want: "the rules before it come first"}
	if checked != nil {
		signature = Rule{Name: signature.Name, State: Kept}
		if err := checked.CheckSignature(); err != nil {
			signature = broken(err, csr.CheckSignature)
		}
	}
	x.Rules = append(x.Rules, signature)
	return machine
}

// policy returns the policy to check the request against. It stores the inventory's machine in found.
func (x *Explanation) policy(f *Facts, found **csr.Machine) *csr.Policy {
	policy := &csr.Policy{ClusterIDs: []string{"unknown"}, SignerNames: []string{x.Signer}, BuiltInSignerDuration: csr.DefaultMaxLifetime,
		Machines: func(_ context.Context, q csr.Question) (*csr.Machine, error) {
			return &csr.Machine{Name: q.NodeName, NodeName: q.NodeName, BootstrapReady: true}, nil
		}}
	if f.Policy != nil {
		policy = f.Policy.Clone()
		inventory := policy.Machines
		policy.Machines = func(ctx context.Context, q csr.Question) (*csr.Machine, error) {
			m, err := inventory(ctx, q)
			*found = m
			return m, err
		}
	}
	if policy.IssuedRecord == nil {
		policy.IssuedRecord = func(context.Context, string, *csr.Request) (*csr.IssuedRecord, error) {
			return nil, errors.New("explain has no records of certificates")
		}
	}
	return policy
}

// addTable adds a row for each rule of the policy and, before the rules about the request's content, one
// for each broken rule of its encoding.
func (x *Explanation) addTable(all csr.Errors, undecided, inventory bool) {
	object, request := csr.PolicyChecks()
	for _, check := range object {
		x.Rules = append(x.Rules, tableRow(check, all, undecided, inventory))
	}
	unreadable := false
	for _, e := range all {
		if !slices.Contains(object, e.Check) && !slices.Contains(request, e.Check) && e.Check != csr.CheckSignature {
			unreadable = true
			x.Rules = append(x.Rules, broken(e, e.Check))
		}
	}
	for _, check := range request {
		row := tableRow(check, all, undecided, inventory)
		if unreadable && row.State == Kept {
			row.State, row.Want = Unknown, "a request that can be read"
		}
		x.Rules = append(x.Rules, row)
	}
}

// tableRow returns the row of one rule of the table.
func tableRow(check csr.Check, all csr.Errors, undecided, inventory bool) Rule {
	row := Rule{Name: string(check), State: Kept}
	ofInventory := slices.Contains(ofMachine[:], check)
	switch n := slices.IndexFunc(all, func(e *csr.Error) bool { return e.Check == check }); {
	case ofInventory && !inventory:
		row.State, row.Want = Unknown, machineUnknown
	case n >= 0:
		row.State, row.Got, row.Want = Broken, all[n].Got, all[n].Want
	case undecided && (ofInventory || check == csr.CheckCredential):
		row.State, row.Want = Unknown, "an answer from the inventory or the records, which failed"
	}
	return row
}

// ofBinding are the rules that compare an answer with the challenge that it repeats.
var ofBinding = [...]refusal.Check{attest.CheckBindingSigner, attest.CheckBindingRequester, attest.CheckBindingExpiration, attest.CheckBindingMachineKey,
	attest.CheckBindingRequest, attest.CheckAnswerLate}

// addEcho adds the rules about the message's cluster and, for an answer, about the repeated challenge.
func (x *Explanation) addEcho(f *Facts) {
	if x.Reading == nil {
		return
	}
	cluster := Rule{Name: string(attest.CheckBindingCluster), State: Kept}
	switch {
	case f.ClusterIDs == nil:
		cluster.State, cluster.Want = Unknown, "the controller's configuration; the message is for cluster "+x.Reading.ClusterID
	case !slices.Contains(f.ClusterIDs, x.Reading.ClusterID):
		cluster.State, cluster.Got, cluster.Want = Broken, x.Reading.ClusterID, strings.Join(f.ClusterIDs, " or ")
	}
	x.Rules = append(x.Rules, cluster)
	if len(x.Reading.KeyID) == 0 {
		return
	}
	for _, check := range ofBinding {
		if !slices.ContainsFunc(x.Reading.Differences, func(e *attest.Error) bool { return e.Check == check }) {
			x.Rules = append(x.Rules, Rule{Name: string(check), State: Kept})
		}
	}
	for _, e := range x.Reading.Differences {
		x.Rules = append(x.Rules, broken(e, e.Check))
	}
}

// addMembership checks the claim against the registry's records.
func (x *Explanation) addMembership(ctx context.Context, f *Facts, inventory *csr.Machine) (*membership.Held, error) {
	row := Rule{Name: string(attest.CheckMembership), State: Unknown, Want: "the controller decides which machine may be which node"}
	defer func() { x.Rules = append(x.Rules, row) }()
	if f.Held == nil || x.NodeName == "" || x.Message == MessageServing {
		return nil, nil
	}
	claim := membership.Claim{NodeName: x.NodeName}
	if x.Reading != nil {
		claim.Machine = x.Reading.Machine
	}
	held, err := f.Held(ctx, claim)
	if err != nil {
		return nil, err
	}
	if held.Name != nil {
		claim.MachineUID, claim.ProviderID = held.Name.MachineUID, held.Name.ProviderID
	}
	if inventory != nil { // where it has no provider ID, the evidence may have stated the recorded one
		claim.MachineUID, claim.ProviderID = inventory.UID, cmp.Or(inventory.ProviderID, claim.ProviderID)
	}
	if inventory != nil && inventory.Provider != "" && x.Reading != nil && x.Reading.Provider != inventory.Provider {
		x.byOther = inventory.Provider
		row = Rule{Name: string(attest.CheckMembership), State: Broken, Got: "evidence of " + x.Reading.Provider, Want: "evidence of " + x.byOther + ", by which the inventory knows node " + x.NodeName}
		return &held, nil
	}
	if claim.Machine == "" && held.Name != nil { // only a verifier that trusts the evidence can tell
		row.Want = "whether it is " + string(held.Name.Machine)
		return &held, nil
	}
	var refused error
	if claim.Machine != "" {
		refused = held.Admit(&claim, f.Now)
	}
	switch {
	case refused != nil:
		row = broken(refused, attest.CheckMembership)
	case held.Name != nil && held.Name.State == membership.StateBound:
		row = Rule{Name: string(attest.CheckMembership), State: Kept}
		x.admitted = true
	default:
		row.Want = "the controller's mode decides, as neither the node nor the machine has a record"
	}
	return &held, nil
}

// addDecision marks the rule that the controller named as broken, even if it looks kept here.
func (x *Explanation) addDecision() {
	d := x.Decision
	switch {
	case d != nil && d.Type == csr.ConditionApproved && d.Reason == csr.ReasonApproved:
		x.addVerification(Kept)
		return
	case d == nil || d.Reason == attest.ReasonChallenge || d.Type == csr.ConditionApproved: // by another account
		x.addVerification(Unknown)
		return
	}
	got := d.Message
	if len(x.Notes) != 0 {
		got = cmp.Or(x.Notes[len(x.Notes)-1], got)
	}
	for i := range x.Rules {
		r := &x.Rules[i]
		if remedies.Reason(r.Name) == d.Reason {
			if r.State != Broken {
				r.State, r.Got, r.Want = Broken, got, ""
			}
			return
		}
	}
	if !slices.ContainsFunc(x.Rules, func(r Rule) bool { return r.State == Broken }) {
		x.Rules = append(x.Rules, Rule{Name: d.Reason, State: Broken, Got: got})
	}
}

// addVerification adds the rule of the evidence's verification, which only the controller can do.
func (x *Explanation) addVerification(s State) {
	if x.Reading == nil {
		return
	}
	row := Rule{Name: string(attest.CheckQualifyingData), State: s}
	if x.Message == MessageHello {
		row.Name = string(attest.CheckIdentity)
	}
	if s == Unknown {
		row.Want = "the controller verifies the evidence, with the key ring and its roots"
		if x.Message == MessageHello && x.Decision != nil {
			row.State, row.Want = Kept, ""
		}
	}
	x.Rules = append(x.Rules, row)
}
