package document

import (
	"cmp"
	"context"
	"slices"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/oid"
	"github.com/nodeattest/nodeattest/refusal"
)

// labelDocument names the one statement that covers qualifying data.
const labelDocument = "document"

// Platform reads and verifies the documents of one platform, for the control plane. It is
// called from many goroutines.
type Platform interface {
	// Read reads an untrusted document of at most [MaxDocumentSize] bytes, without verifying it:
	// a document for another challenge or machine is then refused without a signature check. A
	// refusal is an [*attest.Error].
	Read(document []byte) (*Claims, error)
	// Verify verifies a document that Read has read, at the time q.Now: the platform's signature,
	// times and issuer, everything else that makes it valid, such as audience and revocation, and that
	// it agrees with the inventory (q.Machine). It calls q.Budget.Signature before each signature that it checks. The claims that it returns are read
	// only from the signed bytes.
	Verify(ctx context.Context, document []byte, q *attest.Inquiry) (*Claims, error)
}

// Claims are the contents of a document.
type Claims struct {
	// Machine is the machine's identity, of a kind that [KindConfig] names.
	Machine attest.Identity
	// Value is the value that the document covers: KindConfig.ValueSize bytes.
	Value []byte
	// Facts are its other contents, for human readers; their standing is at most
	// [attest.Asserted].
	Facts []attest.Fact
	// Details become Result.Details.
	Details any
}

// KindConfig configures a [Kind]. Provider, Identities, ValueSize and Platform are required.
type KindConfig struct {
	// Provider is the kind's name, as in [attest.Description].
	Provider string
	// Identities are the kinds of identity that its documents name machines by, each with its
	// grammar.
	Identities []attest.Grammar
	// Versions are as in [attest.Description]; nil means only version 1.
	Versions []int
	// ValueSize is how many bytes of the qualifying data a document covers, 16 to 32.
	ValueSize int
	Platform  Platform
	// OwnMachines says that Verify accepts documents only of the operator's own machines: of
	// projects, subscriptions or accounts that the operator has listed. Without it, every
	// customer of the platform has good documents for as many machines as they start, and
	// trust on first use does not accept the kind.
	OwnMachines bool
	// ManyIdentities is as in [attest.OpenRoad].
	ManyIdentities string
}

// Kind is a platform's documents on the control plane's side, an [attest.Kind].
type Kind struct{ c KindConfig }

// NewKind makes a kind. An error matches [refusal.CheckConfig]. The names are checked by
// [attest.NewVerifier].
func NewKind(c KindConfig) (*Kind, error) {
	if c.Platform == nil {
		return nil, refusal.Config("Platform", "", "one")
	}
	if c.Versions = slices.Clone(c.Versions); c.Versions == nil {
		c.Versions = []int{1}
	}
	if c.ManyIdentities == "" && !c.OwnMachines { // trust on first use cannot count the kind's machines
		c.ManyIdentities = "documents of every customer's machines"
	}
	return &Kind{c}, nil
}

// Describe opens the road of documents.
func (k *Kind) Describe() attest.Description {
	return attest.Description{
		Provider:   k.c.Provider,
		Versions:   k.c.Versions,
		Statements: []attest.Label{{Name: labelDocument, Size: k.c.ValueSize}},
		Roads: []attest.OpenRoad{{Road: attest.RoadDocument, Identities: k.c.Identities,
			Machine: attest.Asserted, ManyIdentities: k.c.ManyIdentities}},
	}
}

// present returns a machine by its identity, which must be of one of the kind's Identities.
func (k *Kind) present(machine string) (*attest.Presented, error) {
	kind := attest.Identity(machine).Kind()
	if !slices.ContainsFunc(k.c.Identities, func(g attest.Grammar) bool { return g.Kind == kind }) {
		return nil, &attest.Error{Check: attest.CheckIdentity, Got: machine, Want: "an identity of a kind that " + k.c.Provider + " has"}
	}
	return presented(machine), nil
}

func presented(machine string) *attest.Presented {
	return &attest.Presented{Road: attest.RoadDocument, Machine: attest.Identity(machine),
		MachineKey: []byte("nodeattest machine\x00" + machine)}
}

// hello is a hello: it only claims a machine.
type hello struct {
	kind    *Kind
	message *Hello
}

// ReadHello reads the one statement of a document hello, and no certificates.
func (k *Kind) ReadHello(e *attest.Evidence) (attest.HelloEvidence, error) {
	if err := only(e, oid.NodeAttestDocumentHello); err != nil {
		return nil, err
	}
	m, err := ParseHello(e.Statements[0].DER)
	if err != nil {
		return nil, err
	}
	return &hello{k, m}, nil
}

func only(e *attest.Evidence, types ...oid.OID) error {
	if e.Is(types...) && len(e.Certificates) == 0 {
		return nil
	}
	got, want := e.Types(), attest.Evidence{}
	if e != nil && len(e.Certificates) > 0 {
		got += " with certificates"
	}
	for _, t := range types {
		want.Statements = append(want.Statements, attest.Statement{Type: t})
	}
	return &attest.Error{Check: attest.CheckStatements, Got: got, Want: want.Types()}
}

func (h *hello) Head() attest.Head {
	return attest.Head{Road: attest.RoadDocument, ClusterID: h.message.ClusterID, TargetSigner: h.message.TargetSigner}
}

func (h *hello) Present() (*attest.Presented, error) { return h.kind.present(h.message.Machine) }

// Trust returns the claimed machine: a hello has no document.
func (h *hello) Trust(context.Context, *attest.Inquiry) (*attest.Findings, error) {
	return &attest.Findings{Machine: attest.Identity(h.message.Machine), MachineStanding: attest.Claimed}, nil
}

// Seal leaves the secret in the clear: the platform vouches for the machine, not for any of
// its keys.
func (h *hello) Seal(context.Context, *attest.Inquiry, []byte) (*attest.Credential, error) {
	return nil, nil
}

// answer holds the proof and the document of an answer.
type answer struct {
	kind     *Kind
	proof    *Proof
	document []byte
}

// ReadAnswer reads a document proof and a document. The evidence has no certificates: a platform's are
// in its document.
func (k *Kind) ReadAnswer(e *attest.Evidence) (attest.AnswerEvidence, error) {
	if err := only(e, oid.NodeAttestDocumentProof, oid.NodeAttestDocument); err != nil {
		return nil, err
	}
	proof, err1 := ParseProof(e.Statements[0].DER)
	document, err2 := ParseStatement(e.Statements[1].DER)
	if err := cmp.Or(err1, err2); err != nil {
		return nil, err
	}
	return &answer{k, proof, document}, nil
}

func (a *answer) Binding() []byte { return a.proof.Binding }

func (a *answer) Present() (*attest.Presented, error) { return a.kind.present(a.proof.Machine) }

// Check reads the document: one for another machine or challenge goes no further.
func (a *answer) Check(q *attest.Inquiry) error {
	claims, err := a.kind.c.Platform.Read(a.document)
	if err != nil {
		return err
	}
	if claims == nil {
		return &attest.Error{Check: attest.CheckKind, Got: "no claims from the platform", Want: "some", Err: refusal.ErrRetry}
	}
	if string(claims.Machine) != a.proof.Machine {
		return &attest.Error{Check: attest.CheckMachineClaim, Got: string(claims.Machine), Want: a.proof.Machine}
	}
	return q.Covers(labelDocument, claims.Value)
}

// Verify has the platform verify the document. The join compares machine and value again, now from
// the signed bytes.
func (a *answer) Verify(ctx context.Context, q *attest.Inquiry) (*attest.Findings, error) {
	claims, err := a.kind.c.Platform.Verify(ctx, a.document, q)
	if err != nil {
		return nil, err
	}
	if claims == nil {
		return nil, nil // which the join refuses
	}
	return &attest.Findings{
		Machine: claims.Machine, MachineStanding: attest.Asserted, ManyIdentities: a.kind.c.ManyIdentities,
		Values: map[string][]byte{labelDocument: claims.Value},
		Facts:  func() []attest.Fact { return claims.Facts }, Details: claims.Details,
	}, nil
}
