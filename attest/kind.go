package attest

import (
	"context"
	"crypto"
	"crypto/subtle"
	"slices"
	"time"

	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/message"
	"github.com/nodeattest/nodeattest/refusal"
)

// Kind is one kind of evidence on the control plane's side: a TPM's (package attest/tpm), or a
// document that a platform signs (package attest/document). A [Verifier] is given the kinds
// that it accepts.
//
// The kind reads its statements and says which machine they are about and whether they hold.
// The join does the rest: the request and its policy, the challenge's key, times and contents,
// what has to be compared, and membership. A kind never sees a challenge key, and what it
// returns is checked against what it declared ([Description]). It is called from many
// goroutines.
type Kind interface {
	// Describe says what the kind is. [NewVerifier] calls it once.
	Describe() Description
	// ReadHello and ReadAnswer read the evidence of one message. They parse, and decide
	// nothing; they must not change the evidence. A refusal is an [*Error].
	ReadHello(e *Evidence) (HelloEvidence, error)
	ReadAnswer(e *Evidence) (AnswerEvidence, error)
}

// HelloEvidence is the evidence of one hello. Its methods are called in the order given, each
// at most once, and none after one has failed.
type HelloEvidence interface {
	// Head is what the hello states about itself.
	Head() Head
	// Present checks what can be checked without a public-key operation.
	Present() (*Presented, error)
	// Trust decides whether the machine that presents itself can be trusted to be what it
	// claims, as far as that can be known before an answer.
	Trust(ctx context.Context, q *Inquiry) (*Findings, error)
	// Seal returns a credential that only this machine can open, with the secret of a
	// challenge inside, or nil where the secret travels in the clear. On [RoadEK] there must
	// be one, on the other roads none. The secret must not be kept.
	Seal(ctx context.Context, q *Inquiry, secret []byte) (*Credential, error)
}

// AnswerEvidence is the evidence of one answer. Its methods are called in the order given,
// each at most once, and none after one has failed.
type AnswerEvidence interface {
	// Binding is the echo of the challenge's Binding, DER.
	Binding() []byte
	// Present checks what can be checked without a public-key operation and without the
	// challenge.
	Present() (*Presented, error)
	// Check checks everything else that costs no public-key operation, cheapest first.
	// Qualifying data, which is not verified yet, goes through [Inquiry.Covers], so that a
	// request that answers another challenge costs no signature.
	Check(q *Inquiry) error
	// Verify verifies the statements and the trust in the machine. The values of the Findings
	// are the qualifying data of the statements that were verified, and of no others.
	Verify(ctx context.Context, q *Inquiry) (*Findings, error)
}

// Description says what a kind is, and how far its word goes.
type Description struct {
	// Provider is the kind's name in signer names and in the block KUBELET AUTHENTICATOR
	// ATTESTATION PROVIDER, where "/v" and the version follow it: 1 to 63 bytes of a-z, 0-9
	// and inner hyphens. Both are part of every label, so that no other kind, and no other
	// version, can use a challenge of this one.
	Provider string
	// Versions are the versions of the data format that the kind reads, each 1 or more, at
	// least one. Each kind counts for itself, and reads [Evidence.Version] to tell them apart.
	Versions []int
	// Roads are the roads that the kind opens, at least one, each once.
	Roads []OpenRoad
	// Statements names the statements of an answer that must cover qualifying data.
	Statements []Label
}

// OpenRoad is one road of a kind, and the most that evidence on it can show. Anything beyond
// that which a kind states is lowered to it.
type OpenRoad struct {
	// Provider is the kind's name. [NewVerifier] fills it in.
	Provider string
	Road     Road
	// Identities are the kinds of [Identity] that are found on this road, with the grammar of
	// each.
	Identities []Grammar
	// Machine is the most that is known of the machine's identity after an answer, [Proven] or
	// [Asserted], and Residence of where its key is: these, [Claimed], or "" where nothing is
	// known.
	Machine   Standing
	Residence Standing
	// ManyIdentities says why one machine may have several identities on this road, so that
	// trust on first use cannot count machines by them; "" where it has only one.
	ManyIdentities string
}

// Label names a statement of an answer: "certify", "quote", "document". The qualifying
// data for it is HMAC-SHA256 under the challenge's secret over
// "nodeattest/<provider>/v<version> <label>", one zero byte and the DER of the Binding.
type Label struct {
	Name string
	// Size is how many bytes of the qualifying data, from the front, the statement
	// covers: 16 to 32.
	Size int
	// Optional statements may be absent.
	Optional bool
}

// Head is what a hello states in the clear.
type Head struct {
	Road Road
	// ClusterID is the cluster that the node means to join.
	ClusterID string
	// TargetSigner is the signer name under which the answer will be filed.
	TargetSigner string
}

// Presented is what a message says about its machine: read and consistent in itself, but not
// trusted.
type Presented struct {
	Road Road
	// MachineKey is what the Binding identifies a machine by: its SHA-256 is machineKey. For a
	// TPM it is the canonical SubjectPublicKeyInfo of the key that carries the trust; for a
	// document it is the label "nodeattest machine", one zero byte and the identity.
	MachineKey []byte
	// AKName is the TPM Name of the AK on [RoadEK], empty on the other roads.
	AKName []byte
	// Machine is the identity that the message claims; "" if only the trust in it will tell.
	Machine Identity
}

// Credential is a secret sent so that only one TPM can open it, with TPM2_ActivateCredential;
// both parts are without the outer TPM2B size.
type Credential struct {
	// IDObject is TPM2B integrityHMAC and encIdentity, at most 256 bytes.
	IDObject []byte
	// EncryptedSecret is the RSA ciphertext, or a full-width TPMS_ECC_POINT; at most 1024
	// bytes.
	EncryptedSecret []byte
}

// Inquiry is what a kind is given to decide with. It is valid for one request.
type Inquiry struct {
	// Now is the time at which the verifier looks.
	Now time.Time
	// Version is the version of the evidence's data format.
	Version int
	// Machine is what the policy found in the inventory for the node's name, or nil if it did
	// not ask.
	Machine *csr.Machine
	// Key is the public key of the request.
	Key crypto.PublicKey
	// RequireTPMResident refuses a key that is not shown to live in a TPM. The join checks
	// this again.
	RequireTPMResident bool
	// Budget counts what is spent.
	Budget *Budget

	challenged *Challenged
	statements []Label
	derived    [2][]byte // qualifying data of the first statements, valid only for this answer
}

// Covers compares, in constant time, qualifying data that has not been verified yet with what
// the statement with that label must cover. It returns nil, or an [*Error] with
// [CheckQualifyingData]. It also returns an error for a hello, and for a label that the kind
// did not declare.
func (q *Inquiry) Covers(label string, value []byte) error {
	n := -1
	if q != nil && q.challenged != nil {
		n = slices.IndexFunc(q.statements, func(l Label) bool { return l.Name == label })
	}
	if n < 0 {
		return &Error{Check: CheckKind, Got: "qualifying data for a statement " + refusal.Quote(label), Want: "a statement of an answer", Err: refusal.ErrRetry}
	}
	want := q.expected(n)
	if subtle.ConstantTimeCompare(value, want) != 1 {
		// The expected value is a secret of the evidence's maker and the verifier.
		return &Error{Check: CheckQualifyingData, Got: refusal.Hex(value), Want: "the qualifying data of this challenge"}
	}
	return nil
}

// expected is the qualifying data of statement n.
func (q *Inquiry) expected(n int) []byte {
	l := q.statements[n]
	if n >= len(q.derived) {
		return q.challenged.QualifyingData(l.Name)[:l.Size]
	}
	if q.derived[n] == nil {
		q.derived[n] = q.challenged.QualifyingData(l.Name)[:l.Size]
	}
	return q.derived[n]
}

// Findings is what a kind has found out.
type Findings struct {
	// Machine is the machine's identity, and MachineStanding how it is known.
	Machine         Identity
	MachineStanding Standing
	// IdentityClass divides the identities of a road where one machine has one in each class:
	// on [RoadEK] it is the EK's algorithm, "RSA-2048" for example. Empty elsewhere.
	IdentityClass string
	// ManyIdentities says why this machine may have other identities of the same class, as in
	// [OpenRoad]; "" if it has none.
	ManyIdentities string
	// TPMResident says that the request's key lives in a TPM and cannot leave it.
	// ResidenceStanding is how that is known, "" if it is not. Residence describes it for
	// human readers; nil says nothing.
	TPMResident       bool
	ResidenceStanding Standing
	Residence         func() string
	// Values are the qualifying data of the verified statements, by label name; none for a
	// hello.
	Values map[string][]byte
	// Facts returns what else is known, for human readers, each with its standing; nil for
	// nothing.
	Facts func() []Fact
	// Details are the kind's own, for [Result.Details].
	Details any
}

// More checks of what a kind finds; the others are exported.
const (
	// checkKeyMismatch: the key to be certified is not that of the request.
	checkKeyMismatch = message.CheckKeyMismatch
	// checkNotResident: the verifier requires a key that lives in a TPM, and the evidence does
	// not show one.
	checkNotResident Check = "key-not-resident"
)

// accept checks what a kind has found against what it declared and what the message claims,
// and fills in the result.
func (r *Result) accept(k *openKind, p *Presented, q *Inquiry, f *Findings) error {
	if f == nil {
		return k.fault("no findings", "some")
	}
	road := k.road(p.Road)
	if kind := f.Machine.Kind(); kind != "" && len(kind) < len(f.Machine) && !slices.Contains(road.kinds(), kind) {
		return k.fault("an identity "+string(f.Machine), "one of kind "+refusal.Quotes(road.kinds()))
	}
	if spelt, err := road.ParseIdentity(f.Machine); err != nil || spelt != f.Machine {
		return &Error{Check: CheckIdentity, Got: string(f.Machine), Want: "an identity as the kind spells them", Err: err}
	}
	if p.Machine != "" && p.Machine != f.Machine {
		return &Error{Check: CheckMachineClaim, Got: string(f.Machine), Want: string(p.Machine)}
	}
	if err := k.checkValues(r.Stage, q, f.Values); err != nil {
		return err
	}
	standing := f.MachineStanding.atMost(road.Machine)
	if standing == "" || r.Stage == StageAnswer && standing == Claimed {
		return k.fault("an identity that is "+refusal.OrNothing(string(f.MachineStanding)), "one that an answer proves or somebody asserts")
	}
	r.MachineStanding = standing
	r.Machine = f.Machine
	r.IdentityClass, r.ManyIdentities = f.IdentityClass, f.ManyIdentities
	r.residence = f.Residence
	r.ResidenceStanding = f.ResidenceStanding.atMost(road.Residence)
	r.TPMResident = f.TPMResident && r.Stage == StageAnswer && r.ResidenceStanding != "" && r.ResidenceStanding != Claimed
	if q.RequireTPMResident && (r.Stage == StageAnswer && !r.TPMResident || road.Residence == "") {
		return &Error{Check: checkNotResident, Got: "evidence of " + k.Provider + " that shows none", Want: "a key in a TPM"}
	}
	most := road.Machine
	if road.Residence.above(most) {
		most = road.Residence
	}
	r.facts, r.factsAtMost = f.Facts, most
	r.Details = f.Details
	return nil
}

// checkValues checks that every required statement is there and covers the challenge.
func (k *openKind) checkValues(stage Stage, q *Inquiry, values map[string][]byte) error {
	if stage == StageHello {
		return nil
	}
	for label, value := range values {
		if err := q.Covers(label, value); err != nil {
			return err
		}
	}
	for _, l := range k.Statements {
		if _, there := values[l.Name]; !there && !l.Optional {
			return k.fault("no statement "+l.Name, "one")
		}
	}
	return nil
}
