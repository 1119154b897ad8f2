package csr

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"net/netip"
	"slices"
	"time"

	"github.com/nodeattest/nodeattest/internal/names"
	"github.com/nodeattest/nodeattest/oid"
	"github.com/nodeattest/nodeattest/refusal"
)

// Grant holds the facts that are vouched for about a machine in addition to its identity. The issuer of a certificate
// writes the provider ID, and the granted names and addresses that the request asks for.
type Grant struct {
	// ProviderID is the provider ID. It is written even if the request claims none; a request
	// that claims another is refused. "" vouches for none: a request that claims one is
	// refused.
	ProviderID string
	// DNSNames are DNS names, in upper or lower case. The names that a serving request asks for
	// are written, in lower case. The others are not, and a name that is asked for but not
	// vouched for is refused.
	DNSNames []string
	// IPAddresses are addresses, under the same rule. An IPv4 address may be mapped into
	// IPv6.
	IPAddresses []netip.Addr
	// MachineUID is the UID of the machine where the inventory could not tell which one it is
	// before its identity was known, such as that of a slot in a pool. It is recorded as
	// [Machine.UID] is, and may not differ from it. "" leaves it to the inventory, which must
	// have it when a serving certificate is asked for.
	MachineUID string
	// NotAfter is the latest end of any certificate, truncated to whole seconds, for every signer
	// it ([Attested.Decision]). The zero time sets no bound.
	NotAfter time.Time
	// Record is called by [CA.Issue] with the record of the new certificate before the
	// certificate is returned; nil if there is nothing to do. It is for registries that
	// record a machine and its certificate together.
	Record func(ctx context.Context, issued IssuedRecord) error
}

func (g Grant) clone() Grant {
	g.DNSNames, g.IPAddresses = slices.Clone(g.DNSNames), slices.Clone(g.IPAddresses)
	return g
}

// Attested is a checked request together with the machine that its evidence has shown and the
// grant. [Checked.Vouch] alone makes it, for that one request. Nothing in it can be set:
// it can only be narrowed, by [Attested.Until]. It is what an approval and a certificate are
// made from ([Attested.Decision], [CA.Issue]), and it does not last: neither takes one whose
// request was checked over an hour ago, since a machine may have left the inventory since.
type Attested struct {
	checked     *Checked
	machine     string
	grant       Grant
	details     any
	fault       error // of the machine
	machineName string
}

// Vouch returns an Attested for this very request and a machine, given by its canonical
// identity, such as "ek:sha256:<hex>", with the grant. details is the kind's own
// result, such as an *attest.Result, and nil if it has none; nothing in this package reads it.
//
// A machine that [Checked.CheckMachine] refuses, and one that is vouched for by another UID or
// provider ID than the inventory has, gives an Attested that is denied, and of which nothing is
// issued or recorded.
func (c *Checked) Vouch(machine string, grant Grant, details any) *Attested {
	grant.ProviderID = names.KnownProviderID(grant.ProviderID)
	fault := c.CheckMachine(machine)
	if fault == nil {
		fault = c.machine.checkGrant(&grant, c.nodeName)
	}
	return &Attested{checked: c, machine: machine, grant: grant.clone(), details: details, fault: fault}
}

// checkGrant compares the UID and the provider ID of a grant with the machine's, where both have one.
func (m *Machine) checkGrant(g *Grant, nodeName string) error {
	if g.MachineUID != "" && m.UID != "" && g.MachineUID != m.UID {
		return checkInventoryMachine.Refuse("the machine with UID "+refusal.Quote(g.MachineUID), refusal.Quote(m.UID)+" for node "+nodeName)
	}
	return m.sameProviderID(g.ProviderID)
}

// sameProviderID compares a provider ID that is claimed or granted with the machine's, if both are known.
func (m *Machine) sameProviderID(id string) error {
	if id == "" || m.ProviderID == "" {
		return nil
	}
	if same, got, want := oid.SameProviderID(id, m.ProviderID); !same {
		return CheckProviderIDMismatch.Refuse(got, "the machine's, "+want)
	}
	return nil
}

// CheckMachine compares a machine, given by its canonical identity, with the inventory's entry
// for the machine that is to be the node: the identity must be the same, if the inventory has
// one, and so must the provider of the evidence. The insecure provider has only the machines
// that the inventory gives it by its name. A fault of the weaker of two providers
// thus admits no machine of the other. [Checked.Vouch] does this for every
// provider. The error is an [*Error] of "inventory-machine".
func (c *Checked) CheckMachine(machine string) error {
	if c == nil || !c.found {
		return noResult()
	}
	own := &c.machine
	other := own.Identity != "" && own.Identity != machine
	otherProvider := own.Provider != c.provider && (own.Provider != "" || c.provider == providerInsecure) && c.signerName != SignerKubeletServing
	if !other && !otherProvider {
		return nil
	}
	got, want := refusal.QuoteApart(machine, own.Identity, nil)
	if !other {
		want = "one by " + refusal.OrNothing(own.Provider)
	}
	return checkInventoryMachine.Refuse("machine "+got+" by "+refusal.OrNothing(c.provider), want+" for node "+c.nodeName)
}

// checkInventoryMachine: the machine that was verified is the one that the inventory has for the
// node, by the evidence that the inventory states.
const checkInventoryMachine Check = "inventory-machine"

// Machine returns the canonical identity of the machine. It is recorded, and not written into
// the certificate.
func (a *Attested) Machine() string { return a.machine }

// Grant returns a copy of the grant.
func (a *Attested) Grant() Grant { return a.grant.clone() }

// Details returns the kind's own result.
func (a *Attested) Details() any { return a.details }

// MachineName returns the name that the machine has in the operator's inventory. [Verify] sets it;
// it is "" before.
func (a *Attested) MachineName() string { return a.machineName }

// Until returns a copy whose certificate ends at end, if that is earlier. The zero time changes
// nothing, and of nil there is no copy.
func (a *Attested) Until(end time.Time) *Attested {
	if a == nil {
		return nil
	}
	narrowed := *a
	if !end.IsZero() && (a.grant.NotAfter.IsZero() || end.Before(a.grant.NotAfter)) {
		narrowed.grant.NotAfter = end
	}
	return &narrowed
}

// Checked returns the request, or nil if a has no request.
func (a *Attested) Checked() *Checked {
	if a == nil {
		return nil
	}
	return a.checked
}

// sound is Checked, or nil if no policy has checked it.
func (a *Attested) sound() *Checked {
	if c := a.Checked(); c != nil && c.pkcs10 != nil {
		return c
	}
	return nil
}

// Check compares a provider's result with the request that the provider was given: it is for
// that request, signer, requester and object, and names a machine. [Verify] does
// this. The error is an [*Error] of [CheckProviderResult].
func (a *Attested) Check(request *Parsed) error {
	r, c := request.Request(), a.sound()
	if r == nil {
		return noRequest()
	}
	if c == nil {
		return noResult()
	}
	if a.fault != nil {
		return a.fault
	}
	const check = CheckProviderResult
	return faults{
		{c.signerName != r.Spec.SignerName, check, "signer " + refusal.Quote(c.signerName), r.Spec.SignerName},
		{c.username != r.User.Username, check, "requester " + refusal.Quote(c.username), refusal.Quote(r.User.Username)},
		{c.uid != r.Metadata.UID, check, "object " + refusal.Quote(c.uid), refusal.Quote(r.Metadata.UID)},
		{!bytes.Equal(request.der(), c.pkcs10.Raw), check, "another PKCS#10 request", "the one in the object"},
		{a.machine == "", check, "no machine", "the machine's identity"},
	}.first()
}

// InventoryName returns the name that the policy's inventory has for the machine
// ([Machine]), which is what most providers return from [Provider.MachineName]. An empty
// result, or a machine without a name, gives a [*Error].
func (a *Attested) InventoryName() (string, error) {
	switch c := a.sound(); {
	case c == nil || !c.found:
		return "", noResult()
	case c.machine.Name == "":
		return "", &Error{Check: CheckMachineUnknown, Got: "a machine without a name", Want: "its name in the inventory"}
	default:
		return c.machine.Name, nil
	}
}

// Decision approves the object that was verified: it is the only way to an approval, which
// needs a value that was verified and never just the absence of an error.
// [UnplacedDecision.For] makes what can be written of it, for this object and no other. A nil or incomplete
// Attested gives a retry, and so does one for a hello, which gets a challenge and no
// certificate, one that was checked over an hour ago by the clock of its policy, and one for an
// object without a UID, which could be another. A request whose own signature does not verify is
// denied.
//
// Nothing is approved that would outlast the NotAfter of the [Grant]. A [CA] shortens certificates;
// Kubernetes' own signers give the requested lifetime, or else [Policy.BuiltInSignerDuration], and get a
// minute to sign. Any other signer has to shorten certificates itself. What would end too late is
// denied as "expiration", except a kubelet's request for a serving certificate without
// expirationSeconds, which gives a retry.
func (a *Attested) Decision() UnplacedDecision {
	c := a.sound()
	if c == nil || a.machine == "" || c.filedUnder != c.signerName {
		return Decide(nil)
	}
	now := c.now()
	if err := cmp.Or(a.fault, c.CheckSignature(), c.fresh(now), a.checkEnd(now)); err != nil {
		return Decide(err)
	}
	if c.uid == "" {
		return Decide(errors.New("csr: the request has no UID, want the one that the API server or Filed gave it"))
	}
	return UnplacedDecision{Verdict: VerdictApprove, Reason: ReasonApproved, Message: "every check passed", uid: c.uid}
}

func noResult() error {
	return &Error{Check: CheckProviderResult, Got: "no result", Want: "a checked and verified request"}
}
