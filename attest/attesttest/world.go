package attesttest

import (
	"context"
	"crypto"
	"errors"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/refusal"
)

// The machines of a [World]. The first two are members: [MachineOne] may be node-1, [MachineTwo]
// node-2. [Stranger] is not, although its evidence is as good.
const (
	MachineOne = "machine-1"
	MachineTwo = "machine-2"
	Stranger   = "machine-3"
)

// NodeName2 is the node that [MachineTwo] may be; [MachineOne] may be [NodeName].
const NodeName2 = "node-2"

// WorldOptions configure a [World]. Documents or Prove is required.
type WorldOptions struct {
	// Documents are the evidence of a kind whose platform signs documents.
	Documents *Documents
	// Provider is the name of any other provider in signer names, and Prove makes the evidence
	// of its honest machines.
	Provider string
	Prove    func(ctx context.Context, provider csr.Provider, a *Applicant) (*csr.Bundle, error)
	// Kind is the kind of evidence that Prove makes, for a provider that is an attest.Verifier:
	// World.Config.Kinds has it. Nil otherwise.
	Kind attest.Kind
	// ClientOnly says that the provider is for client certificates alone. The policy then has no
	// serving signer, and a request under it must be refused.
	ClientOnly bool
	// SkipBlind leaves out the attacks that change evidence without knowing its format, over a
	// thousand tries, for tests of many weak variants of one provider. A provider that passes
	// so has not been attacked on most of its evidence.
	SkipBlind bool
	// Attacks are further attacks, tried last. Each has Prove or Make.
	Attacks []Attack
}

// Applicant is an honest machine that requests a certificate, for WorldOptions.Prove.
type Applicant struct {
	// Machine is one of [MachineOne], [MachineTwo] and [Stranger].
	Machine string
	// Request is the PKCS#10 request, DER, and Key its key.
	Request []byte
	Key     crypto.Signer
	// Object is the request object, complete except for spec.request. A hello has the same
	// requester, usages and lifetime.
	Object csr.Request

	bundle func(*csr.Bundle) // changes provider and data
}

// World is the surroundings of a provider under test: two machines that are members of the cluster, one
// that is not, an inventory, a CA and a clock. Nothing in it needs a TPM or cgo. It is for one test at a
// time.
type World struct {
	// Config configures a verifier of WorldOptions.Documents. A provider of another kind uses its
	// policy and clock, and [World.Member] to decide about membership.
	Config attest.VerifierConfig

	options                     WorldOptions
	client, serving, challenges string // signer names
	now                         time.Time
	key, other                  crypto.Signer  // of requests
	watched                     watchedKind    // the kind in Config, if there is one
	ring, retired, later        attest.RingKey // the key in use, one no longer in use, and one not yet in use
	ca                          *csr.CA        // of the cluster

	inventory
}

// NewWorld makes a world for one provider.
func NewWorld(t testing.TB, opts WorldOptions) *World {
	t.Helper()
	return opened[*World](t)(OpenWorld(opts))
}

// OpenWorld is [NewWorld] for use outside tests. An error has refusal.CheckConfig, or is that of
// [csr.Purpose.SignerName] for the name of the provider.
func OpenWorld(opts WorldOptions) (_ *World, err error) {
	defer caught(&err)
	w := &World{options: opts, now: time.Now().Truncate(time.Second)}
	kind := opts.Kind
	switch d := opts.Documents; {
	case d != nil:
		kind = d.Kind
	case opts.Prove == nil:
		return nil, refusal.Config("Documents", "", "these, or Prove")
	}
	if kind != nil {
		w.options.Provider, w.watched.Kind = kind.Describe().Provider, kind
	}
	if slices.ContainsFunc(opts.Attacks, func(a Attack) bool { return (a.Make == nil) == (a.Prove == nil) }) {
		return nil, refusal.Config("Attacks", "one with neither Prove nor Make, or with both", "one of the two")
	}
	w.client, w.serving = must(csr.PurposeClient.SignerName(w.options.Provider)), must(csr.PurposeServing.SignerName(w.options.Provider))
	w.challenges = must(csr.SignerChallenge(w.options.Provider))
	w.key, w.other = newKey(), newKey()
	w.ring, w.retired, w.later = attest.NewRingKey(w.now.Add(-time.Hour)), attest.NewRingKey(w.now.Add(-48*time.Hour)), attest.NewRingKey(w.now.Add(time.Hour))
	w.retired.RetiredAt = w.now.Add(-time.Second)
	w.known = machines()
	signers := []string{w.client}
	if !opts.ClientOnly {
		signers = append(signers, w.serving)
	}
	w.Config = w.config(signers, w.Now, w.ring, w.retired)
	if kind != nil {
		w.Config.Kinds = []attest.Kind{&w.watched}
	}
	if d := opts.Documents; d != nil {
		w.admits = func(m *csr.Machine, r *attest.Result) bool {
			return d.identity(context.Background(), m.Name) == r.Machine
		}
		w.Config.Authorizer = &authority{&w.inventory}
	}
	w.ca, _ = newClusterCA(w.Config.Policy)
	return w, nil
}

// machines returns the inventory of a world, by node name.
func machines() map[string]*csr.Machine {
	return map[string]*csr.Machine{
		NodeName: {Name: MachineOne, NodeName: NodeName, ProviderID: ProviderID, BootstrapReady: true,
			DNSNames: []string{"node-1.example.com"}, IPAddresses: []netip.Addr{netip.MustParseAddr("192.0.2.1")}},
		NodeName2: {Name: MachineTwo, NodeName: NodeName2, BootstrapReady: true,
			DNSNames: []string{"node-2.example.com"}, IPAddresses: []netip.Addr{netip.MustParseAddr("192.0.2.2")}},
		"node-3": {Name: "machine-of-node-3", NodeName: "node-3"}, // not ready
		// The inventory knows these by something that no evidence of the world's machines shows.
		"node-7": {Name: MachineOne, NodeName: "node-7", BootstrapReady: true, Identity: "another:machine"},
		"node-8": {Name: MachineOne, NodeName: "node-8", BootstrapReady: true, Provider: "another"},
	}
}

// Now is the world's clock. It stands still, until [Run] moves it by one day.
func (w *World) Now() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.now
}

func (w *World) setDown(down bool) { w.locked(func() { w.down = down }) }

// answeredAt returns the time at which answers are filed, half a minute after the challenge.
func (w *World) answeredAt() time.Time { return w.Now().Add(-30 * time.Second) }

// Member returns nil if a machine may be a node, as a provider's own list would: machine is the name that
// the world's inventory has for the node. The error is csr.ErrNoMachine, or matches refusal.ErrRetry if
// the inventory does not answer.
func (w *World) Member(nodeName, machine string) error {
	m, err := w.machine(context.Background(), csr.Question{NodeName: nodeName})
	if errors.Is(err, errDown) {
		return refusal.Retry(err)
	}
	if err != nil || m.Name != machine {
		return csr.ErrNoMachine
	}
	return nil
}
