// Package insecure decides about nodes that cannot attest: a holder of a bootstrap token is the
// node that it says it is, once. What remembers this is the registry of the nodes that attest, in a
// scope of its own.
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

// Names of what serves nodes without evidence: Signer is that of the service account too.
const (
	Signer   = "node-attestation-insecure-signer"
	Approver = Signer + "-approval"
)

// Config is the configuration of [Providers]. All fields but the last two have no default.
type Config struct {
	// Policy is for csr.SignerClientInsecure only.
	Policy *csr.Policy
	// Registry remembers the names that were used. Its scope is [Scope]'s.
	Registry membership.Registry
	// NodeExists is that of membership.FirstUseConfig.
	NodeExists func(ctx context.Context, nodeName string) (bool, error)
	// Used is told of each name that has got a certificate, until when; nil is not called.
	Used func(nodeName string, end time.Time)
	// Now is the clock; nil means time.Now.
	Now func() time.Time
}

// Scope is that of the registry of a cluster's nodes without evidence. Registries of other scopes
// refuse its records, and it refuses theirs.
func Scope(cluster string) membership.Scope {
	return membership.Scope{Cluster: cluster, Provider: csr.ProviderOf(csr.SignerClientInsecure), Road: attest.RoadDocument}
}

// Providers decide the requests to csr.SignerClientInsecure, as controller.Providers. A name gets
// one certificate: not one that has a record, by evidence or not, until an operator releases it, and
// not one that has a Node.
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
		return nil, refusal.Config("Registry", "", "one of the nodes without evidence")
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
	// checkUsed: the name has got its certificate. Only an operator says that another machine, or
	// a new installation, is to have it.
	checkUsed refusal.Check = "insecure-name-used"
	// checkAttested: the name is recorded for a machine that has attested.
	checkAttested refusal.Check = "insecure-name-attested"
	// checkNode: there is a Node of that name, which came in another way.
	checkNode refusal.Check = "insecure-node-exists"
)

// Verify checks the request and that its name was not used. The result records the use when a
// certificate is issued on it, before the certificate is published. The same key may have another
// certificate, since the first may have been lost on its way; it ends when the first does.
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

// unused refuses a name that has a Node, or a record of another key. It returns the end of what was
// issued for this one, or the zero time.
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
		return end, &refusal.Error{Check: checkNode, Got: "a request for node " + nodeName + ", of which there is a Node", Want: "a name without one: an operator deletes the Node of a machine that is gone"}
	}
	return end, nil
}

// usedBy refuses a record of another key.
func usedBy(record *membership.Record, key [sha256.Size]byte) error {
	own := func(i csr.IssuedRecord) bool { return i.SPKIHash == key }
	if slices.ContainsFunc(record.Issued, own) { // which only a bound record has
		return nil
	}
	return &refusal.Error{Check: checkUsed, Got: "another key for node " + record.NodeName, Want: "one for each name, until an operator says kubectl nodeattest release " + record.NodeName}
}

// known says of which kind the record is that the registry refuses.
func known(nodeName string, err error) error {
	if errors.Is(err, membership.CheckRegistryScope) && !errors.Is(err, refusal.ErrRetry) {
		return &refusal.Error{Check: checkAttested, Got: "no evidence for node " + nodeName, Want: "that of the machine that is recorded for it", Err: err}
	}
	return err
}

// reservation is how long a name is reserved before it is bound, which is at once.
const reservation = time.Minute

// use records that a name has got its certificate. Of two requests at once, the one whose write
// comes second fails, and is then refused.
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
