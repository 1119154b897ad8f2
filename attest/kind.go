package attest

import (
	"context"
	"crypto"
	"crypto/subtle"
	"slices"
	"time"

	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/refusal"
)

// Kind is one kind of evidence on the control plane's side: a TPM's (package attest/tpm), or a
// document that a platform signs (package attest/document). A [Verifier] is given the kinds
// that it accepts.
//
// A kind reads and verifies its statements and finds the machine that they are about. The Verifier
// checks request, policy, challenge and membership. A kind never sees a challenge key, and its findings
// are checked against its own [Description]. It is called from many goroutines.
type Kind interface {
	// Describe returns the kind's name, versions and roads. [NewVerifier] calls it once.
	Describe() Description
	// ReadHello and ReadAnswer parse the evidence of one message. They must not change it. A
	// refusal is an [*Error].
	ReadHello(e *Evidence) (HelloEvidence, error)
	ReadAnswer(e *Evidence) (AnswerEvidence, error)
}

// HelloEvidence is the evidence of one hello. Its methods are called in the order given, each
// at most once, and none after one has failed.
type HelloEvidence interface {
	// Head returns road, cluster and target signer.
	Head() Head
	// Present checks what can be checked without a public-key operation.
	Present() (*Presented, error)
	// Trust decides whether the presented machine can be trusted, as far as that is possible
	// before an answer.
	Trust(ctx context.Context, q *Inquiry) (*Findings, error)
	// Seal returns a credential that only this machine can open, with the secret of a
	// challenge inside, or nil where the secret travels in the clear. On [RoadEK] there must
	// be one, on the other roads none. The secret must not be kept.
	Seal(ctx context.Context, q *Inquiry, secret []byte) (*Credential, error)
}

// AnswerEvidence is the evidence of one answer. Its methods are called in the order given,
// each at most once, and none after one has failed.
type AnswerEvidence interface {
	// Binding returns the answer's copy of the challenge's Binding, DER.
	Binding() []byte
	// Present checks what can be checked without a public-key operation and without the
	// challenge.
	Present() (*Presented, error)
	// Check checks everything else that costs no public-key operation, cheapest first.
	// Qualifying data, which is not verified yet, goes through [Inquiry.Covers], so that a
	// request that answers another challenge costs no signature.
	Check(q *Inquiry) error
	// Verify verifies the statements and the trust in the machine. The values of the Findings
	// are the qualifying data of the verified statements alone.
	Verify(ctx context.Context, q *Inquiry) (*Findings, error)
}

// Description declares a kind, and the most that its evidence can show.
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

// OpenRoad is one road of a kind, and the most that evidence on it can show. Findings beyond it are
// lowered to it.
type OpenRoad struct {
	// Provider is the kind's name. [NewVerifier] fills it in.
	Provider string
	Road     Road
	// Identities are the kinds of [Identity] that are found on this road, with the grammar of
	// each.
	Identities []Grammar
	// Machine is the highest standing of the machine's identity after an answer, [Proven] or
	// [Asserted]. Residence is that of the location of its key: these, [Claimed], or "" for
	// unknown.
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

// Head is the part of a hello that every kind has.
type Head struct {
	Road Road
	// ClusterID is the cluster that the node means to join.
	ClusterID string
	// TargetSigner is the signer name under which the answer will be filed.
	TargetSigner string
}

// Presented is the machine that a message claims to come from: read and consistent, but not trusted.
type Presented struct {
	Road Road
	// MachineKey identifies the machine in the Binding, as its SHA-256 (machineKey). For a TPM it
	// is the canonical SubjectPublicKeyInfo of the trusted key; for a document it is the label
	// "nodeattest machine", one zero byte and the identity.
	MachineKey []byte
	// AKName is the TPM Name of the AK on [RoadEK], empty on the other roads.
	AKName []byte
	// Machine is the identity that the message claims; "" if it is found later, by its certificate.
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

// Inquiry holds a kind's inputs for one request.
type Inquiry struct {
	// Now is the time at which the verifier looks.
	Now time.Time
	// Version is the version of the evidence's data format.
	Version int
	// Machine is the inventory's machine for the node's name; nil if the policy did not
	// ask for one.
	Machine *csr.Machine
	// Key is the public key of the request.
	Key crypto.PublicKey
	// RequireTPMResident refuses a key that is not shown to be in a TPM. The Verifier checks this
	// again.
	RequireTPMResident bool
	// Budget limits public-key operations and other work.
	Budget *Budget

	challenged *Challenged
	statements []Label
}

// Covers compares, in constant time, unverified qualifying data with the value that the statement with
// that label must cover. A difference is an [*Error] with [CheckQualifyingData]. It also returns an
// error for a hello, and for a label that the kind did not declare.
func (q *Inquiry) Covers(label string, value []byte) error {
	n := -1
	if q != nil && q.challenged != nil {
		n = slices.IndexFunc(q.statements, func(l Label) bool { return l.Name == label })
	}
	if n < 0 {
		return &Error{Check: CheckKind, Got: "qualifying data for a statement " + refusal.Quote(label), Want: "a statement of an answer", Err: refusal.ErrRetry}
	}
	l := q.statements[n]
	want := q.challenged.QualifyingData(l.Name)[:l.Size]
	if subtle.ConstantTimeCompare(value, want) != 1 {
		// The expected value is a secret of the evidence's maker and the verifier.
		return &Error{Check: CheckQualifyingData, Got: refusal.Hex(value), Want: "the qualifying data of this challenge"}
	}
	return nil
}

// Findings are a kind's results.
type Findings struct {
	// Machine is the machine's identity with its standing.
	Machine         Identity
	MachineStanding Standing
	// IdentityClass divides the identities of a road where one machine has one in each class:
	// on [RoadEK] it is the EK's algorithm, "RSA-2048" for example. Empty elsewhere.
	IdentityClass string
	// ManyIdentities says why this machine may have other identities of the same class, as in
	// [OpenRoad]; "" if it has none.
	ManyIdentities string
	// TPMResident says that the request's key is in a TPM and cannot leave it. ResidenceStanding
	// is the standing of that, "" for unknown. Residence describes it for human readers; nil is
	// no description.
	TPMResident       bool
	ResidenceStanding Standing
	Residence         func() string
	// Values are the qualifying data of the verified statements, by label name; none for a
	// hello.
	Values map[string][]byte
	// Facts returns further findings for human readers, each with its standing; nil adds nothing.
	Facts func() []Fact
	// Details are the kind's own, for [Result.Details].
	Details any
}

// checkNotResident: the verifier requires a key in a TPM, and the evidence does not show one.
const checkNotResident Check = "key-not-resident"

// accept checks a kind's findings against its Description and the message's claim, and fills in the
// result.
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
		return k.fault("an identity that is "+refusal.OrNothing(string(f.MachineStanding)), "one that is proven or asserted")
	}
	r.MachineStanding = standing
	r.Machine = f.Machine
	r.IdentityClass, r.ManyIdentities = f.IdentityClass, f.ManyIdentities
	r.residence = f.Residence
	r.ResidenceStanding = f.ResidenceStanding.atMost(road.Residence)
	r.TPMResident = f.TPMResident && r.Stage == StageAnswer && r.ResidenceStanding != "" && r.ResidenceStanding != Claimed
	if q.RequireTPMResident && (r.Stage == StageAnswer && !r.TPMResident || road.Residence == "") {
		return &Error{Check: checkNotResident, Got: "evidence of " + k.Provider + " without a TPM-resident key", Want: "a key in a TPM"}
	}
	r.facts, r.factsAtMost = f.Facts, standings[max(road.Machine.rank(), road.Residence.rank())]
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
