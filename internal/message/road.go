package message

import "strconv"

// Road says how trust gets from a TPM to a decision. The zero value is
// [RoadAK]: the numbers are those of the wire format.
type Road int

const (
	// RoadAK is the road of the AK certificate: the certificate of the
	// attestation key chains to roots that the control plane chose. That the key
	// is restricted and lives in a TPM is its issuer's word.
	RoadAK Road = 0
	// RoadEK is the road of the EK certificate and a credential that only the
	// TPM of that EK opens.
	RoadEK Road = 1
	// RoadDocument is the road of a document that a platform signed.
	RoadDocument Road = 2
)

// String returns "ak", "ek", "document" or the number.
func (r Road) String() string {
	switch r {
	case RoadAK:
		return "ak"
	case RoadEK:
		return "ek"
	case RoadDocument:
		return "document"
	}
	return "road(" + strconv.Itoa(int(r)) + ")"
}

// ofTPM: the roads that a TPM's messages know.
func (r Road) ofTPM() bool { return r == RoadAK || r == RoadEK }
