package csr

import (
	"bytes"
	"context"
	"net/netip"
	"time"

	"github.com/nodeattest/nodeattest/refusal"
)

// Attested is a checked request together with what the evidence in it has shown and what the
// authorizer vouches for. [Checked.Vouch] makes it, for that one request, and it stays bound to
// it: [CA.Issue] writes into the certificate what is both vouched for here and asked for there.
//
// Machine is always required; the zero value, and one that Vouch did not make, are refused.
type Attested struct {
	// Machine is the canonical identity of the machine, such as
	// "ek:sha256:<hex>". It is recorded, not written into the certificate.
	Machine string
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
	// NotAfter is the latest end of the certificate, truncated to whole seconds. The zero
	// time sets no bound.
	NotAfter time.Time
	// Record is called by [CA.Issue] with the record of the new certificate before the
	// certificate is returned; nil if there is nothing to do. It is for registries that
	// record a machine and its certificate together.
	Record func(ctx context.Context, issued IssuedRecord) error
	// Details is the kind's own result, such as an *attest.Result with its facts and its
	// quote; nil if a kind has none. Nothing in this package reads it.
	Details any
	// Provider is the provider's name, and MachineName the machine's name in the
	// operator's inventory. [Providers.Verify] sets both, whatever a provider says.
	Provider, MachineName string

	checked *Checked
}

// Vouch returns an Attested for this very request and a machine, given by its canonical
// identity. It vouches for no provider ID and no SAN; the caller adds those.
func (c *Checked) Vouch(machine string) *Attested { return &Attested{Machine: machine, checked: c} }

// Checked returns the request that this is for, or nil if there is none.
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
// that request, signer, requester and object, and names a machine. [Providers.Verify] does
// this. The error is an [*Error] of [CheckProviderResult].
func (a *Attested) Check(request *Parsed) error {
	r, c := request.Request(), a.sound()
	if r == nil {
		return noRequest()
	}
	if c == nil {
		return noResult()
	}
	const check = CheckProviderResult
	return faults{
		{c.signerName != r.Spec.SignerName, check, "signer " + refusal.Quote(c.signerName), r.Spec.SignerName},
		{c.username != r.Spec.Username, check, "requester " + refusal.Quote(c.username), refusal.Quote(r.Spec.Username)},
		{c.uid != r.Metadata.UID, check, "object " + refusal.Quote(c.uid), refusal.Quote(r.Metadata.UID)},
		{!bytes.Equal(request.der(), c.pkcs10.Raw), check, "another PKCS#10 request", "the one in the object"},
		{a.Machine == "", check, "no machine", "the machine's identity"},
	}.first()
}

// InventoryName returns the name that the policy's inventory has for the machine
// ([Machine]), which is what most providers return from [Provider.MachineName]. An empty
// result, or a machine without a name, gives a [*Error].
func (a *Attested) InventoryName() (string, error) {
	switch c := a.sound(); {
	case c == nil || c.machine == nil:
		return "", noResult()
	case c.machine.Name == "":
		return "", &Error{Check: CheckMachineUnknown, Got: "a machine without a name", Want: "its name in the inventory"}
	default:
		return c.machine.Name, nil
	}
}

func noResult() error {
	return &Error{Check: CheckProviderResult, Got: "no result", Want: "a checked and verified request"}
}
