package csr

import (
	"context"
	"net/netip"
	"slices"
	"sync"
	"time"
)

// Checked is a request that keeps every rule of a [Policy], as returned by [Policy.Check]
// and [Policy.CheckUnsigned]. It cannot be made in any other way; [CA.Issue] refuses the
// zero value. Everything that determines a certificate was copied when the request was
// checked, so changing the request afterwards has no effect. It is safe for concurrent use.
type Checked struct {
	request   *Request
	bundle    *Bundle
	pkcs10    *PKCS10
	machine   *Machine
	requester Requester

	nodeName        string
	signerName      string // of the certificate
	filedUnder      string // of the object: for a hello the challenge signer
	purpose         Purpose
	keyEncipherment bool
	lifetime        time.Duration // asked for, in whole seconds; 0 if none is
	username        string        // spec.username
	dnsNames        []string      // lower case
	ipAddresses     []netip.Addr  // IPv4 unmapped
	uid             string        // metadata.uid of the object
	credentialID    string        // that the requester used, "" if there is none
	own             ownMachine    // what the inventory said about the machine
	record          *IssuedRecord // of that credential, if it can be inherited from

	signatureOnce sync.Once
	signatureErr  error
}

// ownMachine is what the inventory said about the machine when the request was checked; a
// field that it did not state is "".
type ownMachine struct {
	uid, identity, providerID string
	nodeUID                   string // of the Node under the machine's node name
}

// Request returns the object that was checked.
func (c *Checked) Request() *Request { return c.request }

// Bundle returns what spec.request holds: the request and the evidence after it.
func (c *Checked) Bundle() *Bundle { return c.bundle }

// PKCS10 returns the request inside the bundle.
func (c *Checked) PKCS10() *PKCS10 { return c.pkcs10 }

// NodeName returns the node that the certificate is for.
func (c *Checked) NodeName() string { return c.nodeName }

// Purpose returns what the certificate is for.
func (c *Checked) Purpose() Purpose { return c.purpose }

// SignerName returns the signer of the certificate. For a hello it differs from the one that
// the object is filed under.
func (c *Checked) SignerName() string { return c.signerName }

// Username returns spec.username of the request, as it was when it was checked.
func (c *Checked) Username() string { return c.username }

// ExpirationSeconds returns the lifetime that the request asks for, in seconds, or 0 if it
// asks for none.
func (c *Checked) ExpirationSeconds() int32 { return int32(c.lifetime / time.Second) }

// Requester returns who filed the request.
func (c *Checked) Requester() Requester { return c.requester }

// Machine returns what [Policy.Machines] returned.
func (c *Checked) Machine() *Machine { return c.machine }

// ClaimedProviderID returns the provider ID that the request claims, or "" if it claims
// none. It is only a claim: nothing has proven it.
func (c *Checked) ClaimedProviderID() string {
	if c.pkcs10 == nil {
		return ""
	}
	return c.pkcs10.ProviderID
}

// Usages returns the key usages that were asked for, in the order of [Usages].
func (c *Checked) Usages() []string { return Usages(c.purpose, c.keyEncipherment) }

// DNSNames returns the DNS names that a serving request asks for: all in lower case, each
// belonging to the machine.
func (c *Checked) DNSNames() []string { return slices.Clone(c.dnsNames) }

// IPAddresses returns the addresses that a serving request asks for, each belonging to the
// machine. IPv4 addresses are not mapped into IPv6.
func (c *Checked) IPAddresses() []netip.Addr { return slices.Clone(c.ipAddresses) }

// CheckSignature verifies the request's own signature, which shows that whoever made it has
// the private key. The work is done once, however many calls and callers there are. The
// error is a [*Error] of [CheckSignature].
func (c *Checked) CheckSignature() error {
	if c.pkcs10 == nil {
		return &Error{Check: CheckNotChecked, Got: "no request"}
	}
	c.signatureOnce.Do(func() { c.signatureErr = c.pkcs10.CheckSignature() })
	return c.signatureErr
}

// Verified is what a provider has found out about a request by verifying its evidence, and
// what the authorizer vouches for. [CA.Issue] takes it together with the [Checked] request,
// compares the two, and writes into the certificate what is both vouched for and asked for.
//
// RequestHash, NodeName, SignerName, Requester and Machine are always required: an empty one
// is refused, and so is the zero value.
type Verified struct {
	// RequestHash is the SHA-256 of the CertificationRequestInfo that was verified,
	// as received: [PKCS10].InfoHash.
	RequestHash [32]byte
	// NodeName is the node that the machine is allowed to be.
	NodeName string
	// SignerName is the signer of the certificate that this was verified for.
	SignerName string
	// Requester is the user for whom this was verified: spec.username of the object. It must
	// be that of the request that was checked, so that two objects with the same PKCS#10
	// request are not mistaken for each other.
	Requester string
	// ExpirationSeconds is the lifetime that the object asked for when this was verified, in
	// seconds; 0 if it asked for none. It must be that of the request that was checked.
	ExpirationSeconds int32
	// ProviderID is the provider ID that is vouched for. It is written even if the request
	// claims none; a request that claims another is refused. "" vouches for none: a request
	// that claims one is refused.
	ProviderID string
	// DNSNames are the DNS names that are vouched for, in upper or lower case. Those that a
	// serving request asks for are written, in lower case. The others are not, and a name
	// that is asked for but not vouched for is refused.
	DNSNames []string
	// IPAddresses are the addresses that are vouched for, under the same rule. An IPv4
	// address may be mapped into IPv6.
	IPAddresses []netip.Addr
	// Machine is the canonical identity of the machine, such as
	// "ek:sha256:<hex>". It is recorded, not written into the certificate.
	Machine string
	// NotAfter is the latest end of the certificate, truncated to whole seconds. The zero
	// time sets no bound.
	NotAfter time.Time
	// Record is called by [CA.Issue] with the record of the new certificate before the
	// certificate is returned; nil if there is nothing to do. It is for registries that
	// record a machine and its certificate together.
	Record func(ctx context.Context, issued IssuedRecord) error
}

// Vouch returns a Verified for this very request, bound to what was checked and to a
// machine, given by its canonical identity. It vouches for no provider ID and no SAN; the
// caller adds those.
func (c *Checked) Vouch(machine string) *Verified {
	return &Verified{
		RequestHash:       c.pkcs10.InfoHash,
		NodeName:          c.nodeName,
		SignerName:        c.signerName,
		Requester:         c.Username(),
		ExpirationSeconds: c.ExpirationSeconds(),
		Machine:           machine,
	}
}
