package attest

import (
	"crypto"
	"encoding/hex"
	"slices"
	"time"

	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/message"
)

// Result is what a verification found out about a node: what every kind of evidence shows, and
// the kind's own findings in Details.
type Result struct {
	// Stage says whether the node has answered a challenge yet.
	Stage Stage
	// Provider is the kind of the evidence, "tpm" for example, and Road the road that the
	// trust took.
	Provider string
	Road     Road
	// Machine is the machine's identity, and MachineStanding how it is known. MachineKey is
	// how the challenge refers to the machine: SHA-256 of [Presented.MachineKey].
	Machine         Identity
	MachineStanding Standing
	MachineKey      [message.HashSize]byte
	// ClusterID is the cluster that the node means to join, one of the verifier's.
	ClusterID string
	// IdentityClass and ManyIdentities are those of [Findings].
	IdentityClass  string
	ManyIdentities string
	// NodeName, SignerName and Purpose are what the request asks for, checked by
	// the policy.
	NodeName   string
	SignerName string
	Purpose    csr.Purpose
	// RequestHash is SHA-256 of the CertificationRequestInfo.
	RequestHash [message.HashSize]byte
	// ClaimedProviderID is the provider ID in the request, empty if there is none. It is the
	// node's claim; Granted.ProviderID is what was vouched for.
	//
	// Not: to be vouched for because it is claimed.
	ClaimedProviderID csr.Claimed
	// Granted is a copy of what the [Authorizer] vouched for. Changing it changes nothing in
	// what [Result.Attested] returns. While the authorizer decides, ProviderID alone is set: the
	// machine's, as the inventory or else the evidence has it.
	Granted csr.Grant

	// Key is the request's key. TPMResident says that it lives in a TPM and cannot leave it,
	// and ResidenceStanding says how that is known: "" if it is not. Neither is set at
	// [StageHello].
	Key               crypto.PublicKey
	TPMResident       bool
	ResidenceStanding Standing
	// IssuedAt and NotAfter are the challenge's window, zero at [StageHello].
	IssuedAt, NotAfter time.Time
	// Details is what else the kind of evidence found out; its package documents the type. If it has
	// the method ProviderID() string, that is the whole provider ID of the machine as the evidence
	// shows it, or "". An inventory or an authorizer that has another is refused; package membership
	// vouches for it where the inventory has none.
	Details any

	facts       func() []Fact
	factsAtMost Standing
	residence   func() string
	checked     *csr.Checked
	pending     *pendingWrites // nil before the membership decision
}

// Checked is the request as the policy passed it, for [csr.CA.Issue].
func (r *Result) Checked() *csr.Checked { return r.checked }

// Standing says how far a fact can be relied on.
type Standing string

const (
	// Proven by a signature over this challenge.
	Proven Standing = "proven"
	// Asserted by the issuer of a certificate or document, or by anyone else who vouches for
	// the machine.
	Asserted Standing = "asserted"
	// Vouched for by the control plane's own Authorizer.
	Vouched Standing = "vouched"
	// Claimed by the node and checked against nothing.
	Claimed Standing = "claimed"
)

// rank orders the standings that evidence can give. No evidence is the control plane's own
// word.
func (s Standing) rank() int {
	return slices.Index([]Standing{Claimed, Asserted, Proven}, s)
}

func (s Standing) above(o Standing) bool { return s.rank() > o.rank() }

// atMost lowers a standing to the most that a kind declared.
func (s Standing) atMost(most Standing) Standing {
	if s.above(most) {
		return most
	}
	if s.rank() < 0 {
		return ""
	}
	return s
}

// Fact is one statement about a node with its standing: Name says what it is about and Value
// what it says, both for human readers.
type Fact struct {
	Standing Standing `json:"standing"`
	Name     string   `json:"name"`
	Value    string   `json:"value"`
}

// String returns the fact in one line, for example "proven: request 3f0a…".
func (f Fact) String() string { return string(f.Standing) + ": " + f.Name + " " + f.Value }

// Facts lists what is known, with its standing, in a fixed order. It shows what was proven,
// what an issuer asserts, what the authorizer vouched for and what the node claims.
func (r *Result) Facts() []Fact {
	facts := []Fact{{r.MachineStanding, "machine", string(r.Machine)}}
	if r.facts != nil {
		for _, f := range r.facts() {
			f.Standing = f.Standing.atMost(r.factsAtMost)
			facts = append(facts, f)
		}
	}
	if r.Stage == StageAnswer {
		facts = append(facts,
			Fact{Proven, "challenge", "of " + r.IssuedAt.UTC().Format(time.RFC3339) + ", answered"},
			Fact{Proven, "request", hex.EncodeToString(r.RequestHash[:])})
		if r.ResidenceStanding != "" && r.residence != nil {
			facts = append(facts, Fact{r.ResidenceStanding, "key residence", r.residence()})
		}
		facts = append(facts, Fact{Vouched, "node", r.NodeName})
		if id := r.Granted.ProviderID; id != "" {
			facts = append(facts, Fact{Vouched, "provider ID", id})
		}
	}
	if id := string(r.ClaimedProviderID); id != "" && id != r.Granted.ProviderID {
		facts = append(facts, Fact{Claimed, "provider ID", id})
	}
	return facts
}

// Attested returns what a certificate and an approval are made from ([csr.CA.Issue],
// [csr.Attested.Decision]). It returns nil until the [Authorizer] has decided (and so inside
// Authorize; what was handed to [Result.WhenAdmitted] sees it), at [StageHello], since nothing may be issued for a hello, and for a Result that
// no [Verifier] made. Its Details are the Result; changing that changes nothing in it.
func (r *Result) Attested() *csr.Attested {
	if r.pending == nil {
		return nil
	}
	return r.pending.attested
}

// NewResult returns a Result for a request that the policy has passed, with nothing known
// about the machine yet, so that an [Authorizer] can be tested: fill in the fields that it
// looks at and call [AskMembership].
func NewResult(stage Stage, checked *csr.Checked) *Result {
	r := &Result{Stage: stage, checked: checked}
	if checked != nil {
		r.NodeName, r.SignerName, r.Purpose = checked.NodeName(), checked.SignerName(), checked.Purpose()
	}
	return r
}

// Road says how trust gets from a machine to a decision. The numbers are those of the wire
// format; the zero value is [RoadAK].
type Road int

const (
	// RoadAK is the road of the AK certificate: the certificate of a TPM's attestation key
	// chains to roots that the control plane chose. That the key is restricted and lives in a
	// TPM is its issuer's word.
	RoadAK = Road(message.RoadAK)
	// RoadEK is the road of a TPM's endorsement key and of a credential that only the TPM with
	// that key can open.
	RoadEK = Road(message.RoadEK)
	// RoadDocument is the road of a document that a platform signs about one of its
	// machines.
	RoadDocument = Road(message.RoadDocument)
)

// String returns "ak", "ek", "document" or "road(<number>)".
func (r Road) String() string { return message.Road(r).String() }
