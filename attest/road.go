package attest

import "github.com/nodeattest/nodeattest/internal/message"

// Road says how trust gets from a machine to a decision. The numbers are those of the wire
// format; the zero value is [RoadAK].
type Road int

const (
	// RoadAK is the road of the AK certificate: the certificate of a TPM's attestation
	// key chains to roots that the control plane chose. That the key is restricted and
	// lives in a TPM is its issuer's word.
	RoadAK = Road(message.RoadAK)
	// RoadEK is the road of a TPM's endorsement key and of a credential that only the TPM
	// of that key opens.
	RoadEK = Road(message.RoadEK)
	// RoadDocument is the road of a document that a platform signs about one of its
	// machines.
	RoadDocument = Road(message.RoadDocument)
)

// String returns "ak", "ek", "document" or "road(<number>)".
func (r Road) String() string { return message.Road(r).String() }
