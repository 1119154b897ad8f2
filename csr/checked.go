package csr

import (
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/nodeattest/nodeattest/refusal"
)

// Checked is a request that keeps every rule of a [Policy], as returned by [Policy.Check]
// and [Policy.CheckUnsigned]. It cannot be made in any other way; [CA.Issue] refuses the
// zero value. Everything that determines a certificate was copied when the request was
// checked, so changing the request afterwards has no effect. It is safe for concurrent use.
type Checked struct {
	bundle    *Bundle
	pkcs10    *PKCS10
	machine   Machine // as the inventory had it then; its slices are the inventory's
	found     bool    // that there is a machine
	requester Requester
	at        time.Time // when it was checked
	now       func() time.Time
	clusters  []string // of the policy

	nodeName        string
	signerName      string // of the certificate
	filedUnder      string // of the object: for a hello the challenge signer
	purpose         Purpose
	keyEncipherment bool
	lifetime        time.Duration // asked for, in whole seconds; 0 if none is
	given           time.Duration // by one of Kubernetes' own signers; 0 under others, which shorten certificates
	longest         time.Duration // of the policy, for Kubernetes' own signers
	username        string        // spec.username
	dnsNames        []string      // lower case
	ipAddresses     []netip.Addr  // IPv4 unmapped
	uid             string        // metadata.uid of the object
	credentialID    string        // that the requester used, or ""
	provider        string        // that the signer name selects or, under Kubernetes' own signers, of the evidence; or ""
	record          *IssuedRecord // of that credential, if it can be inherited from

	signatureOnce sync.Once
	signatureErr  error
}

// Bundle returns what spec.request holds: the request and the evidence after it.
func (c *Checked) Bundle() *Bundle { return c.bundle }

// PKCS10 returns a copy of the request inside the bundle. A Checked that no policy made has
// none.
func (c *Checked) PKCS10() PKCS10 {
	if c.pkcs10 == nil {
		return PKCS10{}
	}
	return *c.pkcs10.clone()
}

// NodeName returns the node that the certificate is for.
func (c *Checked) NodeName() string { return c.nodeName }

// Purpose returns the purpose of the certificate.
func (c *Checked) Purpose() Purpose { return c.purpose }

// SignerName returns the signer of the certificate. For a hello it differs from the one that
// the object is filed under.
func (c *Checked) SignerName() string { return c.signerName }

// Requester returns who filed the request.
func (c *Checked) Requester() Requester { return c.requester }

// Machine returns a copy of what [Policy.Machines] returned, or nil if it was not asked.
func (c *Checked) Machine() *Machine {
	if !c.found {
		return nil
	}
	m := c.machine
	m.DNSNames, m.IPAddresses = slices.Clone(m.DNSNames), slices.Clone(m.IPAddresses)
	return &m
}

// ClusterIDs returns the names of the cluster that the policy serves ([Policy.ClusterIDs]).
func (c *Checked) ClusterIDs() []string { return slices.Clone(c.clusters) }

// ClaimedProviderID returns the provider ID that the request claims, or the zero value if it claims
// none. It is only a claim: nothing has proven it.
func (c *Checked) ClaimedProviderID() Claimed {
	if c.pkcs10 == nil {
		return Claimed{}
	}
	return Claimed{c.pkcs10.ProviderID}
}

// BuiltInLifetime returns the lifetime that one of Kubernetes' own signers gives the certificate:
// the one asked for, or else [Policy.BuiltInSignerDuration]. Nothing can shorten it once the request
// is approved. It is 0 under other signers, whose [CA] shortens certificates.
func (c *Checked) BuiltInLifetime() time.Duration { return c.given }

// Claimed is a node's statement about itself; the zero value is no claim. It is no string, and no conversion
// makes one of it, so that no provider or authorizer puts it into a [Grant] without a call of
// [Claimed.Unproven], which a reader sees.
type Claimed struct{ text string }

// NewClaimed returns a claim, for tests of its readers.
func NewClaimed(text string) Claimed { return Claimed{text} }

// Unproven returns the text of the claim, for logs and for comparison with the inventory; "" without
// a claim. A machine may claim another one's provider ID: never grant it, write it into a certificate or
// look a machine up by it.
func (c Claimed) Unproven() string { return c.text }

// DNSNames returns the DNS names that a serving request asks for: all in lower case, each
// belonging to the machine.
func (c *Checked) DNSNames() []string { return slices.Clone(c.dnsNames) }

// IPAddresses returns the addresses that a serving request asks for, each belonging to the
// machine. IPv4 addresses are not mapped into IPv6.
func (c *Checked) IPAddresses() []netip.Addr { return slices.Clone(c.ipAddresses) }

// maxAge is how long the check of a request stays valid.
const maxAge = time.Hour

// fresh checks how long before or after now the request was checked; the error matches
// refusal.ErrRetry.
func (c *Checked) fresh(now time.Time) error {
	if now.Sub(c.at).Abs() <= maxAge {
		return nil
	}
	return refusal.Retry(fmt.Errorf("csr: the request was checked at %s, and now is %s, want at most %s between: verify it again",
		rfc3339(c.at), rfc3339(now), maxAge))
}

// CheckSignature verifies the request's own signature, which shows that the requester has
// the private key. The work is done once, however many calls and callers there are. The
// error is a [*Error] of [CheckSignature].
func (c *Checked) CheckSignature() error {
	if c == nil || c.pkcs10 == nil {
		return &Error{Check: checkNotChecked, Got: "no request"}
	}
	c.signatureOnce.Do(func() { c.signatureErr = c.pkcs10.CheckSignature() })
	return c.signatureErr
}
