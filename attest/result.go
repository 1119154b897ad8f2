package attest

import (
	"crypto"
	"encoding/hex"
	"slices"
	"time"

	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/message"
)

// Result holds the findings of a verification: those of every kind of evidence, and the kind's own in
// Details.
type Result struct {
	// Stage says whether the node has answered a challenge yet.
	Stage Stage
	// Provider is the kind of the evidence, "tpm" for example, and Road the road that the
	// trust took.
	Provider string
	Road     Road
	// Machine is the machine's identity with its standing. MachineKey identifies the machine in
	// the challenge: SHA-256 of [Presented.MachineKey].
	Machine         Identity
	MachineStanding Standing
	MachineKey      [message.HashSize]byte
	// ClusterID is the cluster that the node means to join, one of the verifier's.
	ClusterID string
	// IdentityClass and ManyIdentities are as in [Findings].
	IdentityClass  string
	ManyIdentities string
	// NodeName, SignerName and Purpose are the request's, checked by the policy.
	NodeName   string
	SignerName string
	Purpose    csr.Purpose
	// RequestHash is SHA-256 of the CertificationRequestInfo.
	RequestHash [message.HashSize]byte
	// ClaimedProviderID is the provider ID in the request, or "". It is only the node's claim:
	// never vouch for it because it is claimed. Granted.ProviderID is the authorizer's.
	ClaimedProviderID csr.Claimed
	// Granted is a copy of the [Authorizer]'s grant; [Result.Attested] has its own. While the
	// authorizer decides, only ProviderID is set: the inventory's, or else the evidence's.
	Granted csr.Grant

	// Key is the request's key. TPMResident says that it is in a TPM and cannot leave it, and
	// ResidenceStanding is the standing of that, "" for unknown. Neither is set at [StageHello].
	Key               crypto.PublicKey
	TPMResident       bool
	ResidenceStanding Standing
	// IssuedAt and NotAfter are the challenge's window, zero at [StageHello].
	IssuedAt, NotAfter time.Time
	// Details are the kind's own findings; its package documents the type. A method ProviderID()
	// string returns the machine's whole provider ID according to the evidence, or "". Another one
	// in the inventory or the grant is refused; package membership vouches for it if the inventory
	// has none. A method EndorsementKey() crypto.PublicKey returns the verified EK, or nil: the
	// controller of module kube annotates the request with it (csr.EndorsementKeyAnnotation).
	Details any

	facts       func() []Fact
	factsAtMost Standing
	residence   func() string
	checked     *csr.Checked
	pending     *pendingWrites // nil before the membership decision
}

// Checked returns the request that passed the policy, for [csr.CA.Issue].
func (r *Result) Checked() *csr.Checked { return r.checked }

// Standing says how far a fact can be relied on.
type Standing string

const (
	// Proven by a signature over this challenge.
	Proven Standing = "proven"
	// Asserted by the issuer of a certificate or document about the machine.
	Asserted Standing = "asserted"
	// Vouched for by the control plane's own Authorizer.
	Vouched Standing = "vouched"
	// Claimed by the node and checked against nothing.
	Claimed Standing = "claimed"
)

// standings are the standings that evidence can give, the lowest first. Vouched is not one of them.
var standings = [...]Standing{"", Claimed, Asserted, Proven}

// rank returns the place of a standing in standings, 0 for any other.
func (s Standing) rank() int { return max(0, slices.Index(standings[:], s)) }

// atMost lowers a standing to the most that a kind declared. It returns "" for one that evidence
// cannot give.
func (s Standing) atMost(most Standing) Standing { return standings[min(s.rank(), most.rank())] }

// Fact is one statement about a node with its standing. Name and Value are for human readers.
type Fact struct {
	Standing Standing `json:"standing"`
	Name     string   `json:"name"`
	Value    string   `json:"value"`
}

// String returns the fact in one line, for example "proven: request 3f0a…".
func (f Fact) String() string { return string(f.Standing) + ": " + f.Name + " " + f.Value }

// Facts lists all findings in a fixed order, each with its standing.
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
			Fact{Proven, "challenge", "of " + rfc3339(r.IssuedAt) + ", answered"},
			Fact{Proven, "request", hex.EncodeToString(r.RequestHash[:])})
		if r.ResidenceStanding != "" && r.residence != nil {
			facts = append(facts, Fact{r.ResidenceStanding, "key residence", r.residence()})
		}
		facts = append(facts, Fact{Vouched, "node", r.NodeName})
		if id := r.Granted.ProviderID; id != "" {
			facts = append(facts, Fact{Vouched, "provider ID", id})
		}
	}
	if id := r.ClaimedProviderID.Unproven(); id != "" && id != r.Granted.ProviderID {
		facts = append(facts, Fact{Claimed, "provider ID", id})
	}
	return facts
}

// rfc3339 returns a time as facts and errors show it.
func rfc3339(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// Attested returns the value from which a certificate and an approval are made ([csr.CA.Issue],
// [csr.Attested.Decision]). It is nil until the [Authorizer] has decided, so also inside Authorize, but
// not in the writes of [Result.WhenAdmitted]; at [StageHello]; and for a Result that no [Verifier] made.
// Its Details are the Result, which can be changed without effect on it.
func (r *Result) Attested() *csr.Attested {
	if r.pending == nil {
		return nil
	}
	return r.pending.attested
}

// NewResult returns a Result without a machine for a request that passed the policy, to test an
// [Authorizer]: fill in the fields that it reads and call [AskMembership].
func NewResult(stage Stage, checked *csr.Checked) *Result {
	r := &Result{Stage: stage, checked: checked}
	if checked != nil {
		r.NodeName, r.SignerName, r.Purpose = checked.NodeName(), checked.SignerName(), checked.Purpose()
	}
	return r
}

// Road is the way by which a machine is trusted. The numbers are those of the wire format; the zero
// value is [RoadAK].
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
