// Package insecure decides the requests of nodes that cannot attest: a holder of a bootstrap token gets the
// node name that it asks for, once. The names are recorded in the registry of attested nodes, in a scope
// of their own.
package insecure

import (
	"context"
	"crypto/sha256"
	"errors"
	"slices"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/membership"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/refusal"
)

// Signer is the controller name of the signer for nodes without evidence, and of its service account;
// Approver is that of the approver.
const (
	Signer   = "node-attestation-insecure-signer"
	Approver = Signer + "-approval"
)

// Config is the configuration of [Providers]. All fields but the last two have no default.
type Config struct {
	// Policy is for csr.SignerClientInsecure only.
	Policy *csr.Policy
	// Registry records the used names. Its scope is [Scope]'s.
	Registry membership.Registry
	// NodeExists reports whether a Node exists (membership.FirstUseConfig).
	NodeExists func(ctx context.Context, nodeName string) (bool, error)
	// Used is called with each name that got a certificate, and its end; it may be nil.
	Used func(nodeName string, end time.Time)
	// Now is the clock; nil means time.Now.
	Now func() time.Time
}

// Scope returns the registry scope of a cluster's nodes without evidence. Registries of other scopes
// refuse its records, and it refuses theirs.
func Scope(cluster string) membership.Scope {
	return membership.Scope{Cluster: cluster, Provider: csr.ProviderOf(csr.SignerClientInsecure), Road: attest.RoadDocument}
}

// Providers decide the requests to csr.SignerClientInsecure, as controller.Providers. A name gets
// one certificate, unless it has a Node or an unreleased record, with evidence or without.
type Providers struct {
	provider csr.Provider
	c        Config
}

// SignerNames is csr.SignerClientInsecure.
func (*Providers) SignerNames() []string { return []string{csr.SignerClientInsecure} }

// ChallengeSigners returns no names: a node without evidence is not challenged.
func (*Providers) ChallengeSigners() []string { return nil }

// Challenge refuses.
func (*Providers) Challenge(context.Context, *csr.Request) ([]byte, error) {
	return nil, refusal.Retry(csr.ErrOtherSigner)
}

// New checks the configuration. The error is refusal.CheckConfig.
func New(c Config) (*Providers, error) {
	provider, err := csr.NewInsecureProvider(c.Policy)
	switch {
	case err != nil:
		return nil, err
	case c.Registry == nil || c.Registry.Scope() != Scope(c.Registry.Scope().Cluster):
		return nil, refusal.Config("Registry", "", "a registry of the scope of nodes without evidence")
	case !slices.Contains(c.Policy.ClusterIDs, c.Registry.Scope().Cluster):
		return nil, refusal.Config("Registry", "of cluster "+refusal.Quote(c.Registry.Scope().Cluster), "one of "+refusal.Quotes(c.Policy.ClusterIDs))
	case c.NodeExists == nil:
		return nil, refusal.Config("NodeExists", "", "a look-up of Nodes")
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	return &Providers{provider, c}, nil
}

// The checks of a name.
const (
	// checkUsed: the name got its certificate. Only an operator can release it for another machine or
	// a new installation.
	checkUsed refusal.Check = "insecure-name-used"
	// checkAttested: the name is recorded for a machine that has attested.
	checkAttested refusal.Check = "insecure-name-attested"
	// checkNode: a Node of that name exists, which joined in another way.
	checkNode refusal.Check = "insecure-node-exists"
)

// Verify checks the request and that its name was not used. Issuing a certificate for the result records the
// use before the certificate is published. The same key may get another certificate, since the first may
// have been lost in transit; it ends when the first does.
func (p *Providers) Verify(ctx context.Context, request *csr.Request) (*csr.Attested, error) {
	attested, err := csr.Verify(ctx, p.provider, request)
	if err != nil {
		return nil, err
	}
	checked := attested.Checked()
	key := sha256.Sum256(checked.PKCS10().CSR.RawSubjectPublicKeyInfo)
	end, err := p.unused(ctx, checked.NodeName(), key)
	if err != nil {
		return nil, err
	}
	grant := attested.Grant()
	// No Machine UID: a record without evidence keeps no machine of the inventory from its node.
	claim := membership.Claim{NodeName: checked.NodeName(), Machine: attest.Identity(attested.Machine()), ProviderID: grant.ProviderID}
	grant.Record = func(ctx context.Context, issued csr.IssuedRecord) error { return p.use(ctx, claim, issued) }
	return checked.Vouch(attested.Machine(), grant, nil).Until(end), nil
}

// unused refuses a name that has a Node, or a record of another key. It returns the end of this key's
// certificate, or the zero time.
func (p *Providers) unused(ctx context.Context, nodeName string, key [sha256.Size]byte) (end time.Time, err error) {
	record, err := p.c.Registry.Lookup(ctx, nodeName)
	switch {
	case err != nil:
		return end, known(nodeName, err)
	case record != nil && record.State != membership.StateReserved:
		return record.LastEnd, usedBy(record, key)
	}
	switch exists, err := p.c.NodeExists(ctx, nodeName); {
	case err != nil:
		return end, err
	case exists:
		return end, &refusal.Error{Check: checkNode, Got: "a request for node " + nodeName + ", and a Node of that name exists", Want: "a name without a Node: an operator has to delete the Node of a machine that is gone"}
	}
	return end, nil
}

// usedBy refuses a record of another key.
func usedBy(record *membership.Record, key [sha256.Size]byte) error {
	own := func(i csr.IssuedRecord) bool { return i.SPKIHash == key }
	if slices.ContainsFunc(record.Issued, own) { // which only a bound record has
		return nil
	}
	return &refusal.Error{Check: checkUsed, Got: "another key for node " + record.NodeName, Want: "one key for each name, until an operator runs kubectl nodeattest release " + record.NodeName}
}

// known turns the registry's refusal of a record with evidence into checkAttested.
func known(nodeName string, err error) error {
	if errors.Is(err, membership.CheckRegistryScope) && !errors.Is(err, refusal.ErrRetry) {
		return &refusal.Error{Check: checkAttested, Got: "no evidence for node " + nodeName, Want: "evidence of the machine that is recorded for it", Err: err}
	}
	return err
}

// reservation is how long a name is reserved before it is bound, at once.
const reservation = time.Minute

// use records that a name got its certificate. Of two concurrent requests, the second write fails, and its
// request is then refused.
func (p *Providers) use(ctx context.Context, claim membership.Claim, issued csr.IssuedRecord) error {
	issued.MachineUID = claim.MachineUID
	record, err := p.c.Registry.Reserve(ctx, claim, p.c.Now().Add(reservation))
	if err != nil {
		return known(claim.NodeName, err)
	}
	if record.State != membership.StateReserved {
		if err := usedBy(record, issued.SPKIHash); err != nil {
			return err
		}
	}
	if record, err = p.c.Registry.Bind(ctx, record, issued.NotAfter, &issued); err == nil && p.c.Used != nil {
		p.c.Used(record.NodeName, record.LastEnd)
	}
	return err
}
