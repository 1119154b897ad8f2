package csr

import (
	"net/netip"
	"time"
)

// Verified is what a provider has found out about a request by verifying its
// evidence, and what the authorizer behind it vouches for. [CA.Issue] takes it
// together with the [Checked] request, holds one against the other, and writes
// into the certificate what is vouched for and asked for.
//
// RequestHash, NodeName, SignerName, Requester and Machine are always needed: an empty
// one is refused, so the zero value is too.
type Verified struct {
	// RequestHash is the SHA-256 of the CertificationRequestInfo that was verified,
	// as received: [PKCS10].InfoHash.
	RequestHash [32]byte
	// NodeName is the node that the machine may be.
	NodeName string
	// SignerName is the signer for whose certificates this was verified.
	SignerName string
	// Requester is the user for whom this was verified: spec.username of the object.
	// It must be the one of the request that was checked, so that two objects with
	// one PKCS#10 request are not taken for each other.
	Requester string
	// ExpirationSeconds is the lifetime that the object asked for when this was
	// verified, in seconds; 0 where it asked for none. It must be that of the request
	// that was checked.
	ExpirationSeconds int32
	// ProviderID is the provider ID that is vouched for. It is written even where
	// the request claims none; a request that claims another is refused. "" vouches
	// for none, and refuses a request that claims one.
	ProviderID string
	// DNSNames are the DNS names that are vouched for, in any case of letters.
	// Those that a serving request asks for are written, in lower case. The others
	// are not, and a name that is asked for and not vouched for is refused.
	DNSNames []string
	// IPAddresses are the addresses that are vouched for, under the same rule. An
	// IPv4 address may be given as such or mapped into IPv6.
	IPAddresses []netip.Addr
	// Machine is the canonical identity of the machine, such as
	// "ek:sha256:<hex>". It is recorded, not written into the certificate.
	Machine string
	// NotAfter is the latest end of the certificate, in whole seconds, cut where it
	// is not. The zero time bounds nothing.
	NotAfter time.Time
}

// Vouch returns a Verified for this very request: bound to what was checked and to a
// machine, given in its canonical identity. It vouches for no provider ID and for no
// SAN; the caller adds those.
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
