package forge

import (
	"bytes"
	"crypto/sha256"
	"slices"
	"time"

	"github.com/nodeattest/nodeattest/attest/tpm/statement"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/message"
	"github.com/nodeattest/nodeattest/oid"
)

// Documents make evidence that a platform signs about its machines, instead of a TPM's.
type Documents struct {
	// Format is the kind's name and the version of its data format, such as "cloud/v1".
	Format string
	// Identity is the identity that a machine claims.
	Identity func(machine string) string
	// Sign is a document about a machine over a value, signed by the platform at a time, or by
	// an attacker with their own key.
	Sign func(machine string, at time.Time, value []byte, attacker bool) []byte
}

// documented is the document of a forgery.
type documented struct {
	*Documents
	claim, machine string // who the proof claims to be, and whose document it is
	at             time.Time
	value          []byte // what the document is over
	attacker       bool   // the attacker signs
	after          func([]byte) []byte
}

// document replaces the certify statement with a document about a machine.
func (f *Forgery) document(d *Documents, machine string) {
	f.doc = &documented{Documents: d, claim: machine, machine: machine, at: f.w.AnsweredAt()}
	f.B.Road, f.B.AKName, f.B.MachineKey = message.RoadDocument, nil, d.machineKey(machine)
	f.derive()
}

func (d *Documents) machineKey(machine string) [message.HashSize]byte {
	return sha256.Sum256([]byte("nodeattest machine\x00" + d.Identity(machine)))
}

// cover makes the document cover the qualifying data of a binding.
func (d *documented) cover(f *Forgery) {
	label, der, secret := "nodeattest/"+d.Format+" ", Must(f.B.Marshal()), f.secret
	if secret == nil {
		key := f.Ring.Secret.Reveal()
		secret = labelled(key[:], label+"secret", der)
	}
	d.value = labelled(secret, label+"document", der)
}

// bundle is the answer after the request. Code that changes an answer that was taken apart
// finds the binding and what encloses it, and nothing of a TPM.
func (d *documented) bundle(f *Forgery) *csr.Bundle {
	binding := *f.B
	p := &Parts{Binding: &binding, Proof: &message.Proof{}, Certify: &statement.CertifyEvidence{}}
	if f.onParts != nil {
		f.onParts(p)
	}
	proof := TLV(0x30, Must(p.Binding.Marshal()), TLV(0x0c, []byte(d.Identity(d.claim))))
	evidence := message.Bundle{Statements: []message.Statement{
		{Type: oid.NodeAttestDocumentProof, Stmt: Change(proof, p.OnProof)},
		{Type: oid.NodeAttestDocument, Stmt: TLV(4, Change(d.Sign(d.machine, d.at, d.value, d.attacker), d.after))}}}
	return &csr.Bundle{Request: f.Request, Provider: d.Format, Data: Change(Must(evidence.Marshal()), p.OnEvidence)}
}

// documentAttacks are those of the other roads that concern the challenge and what encloses
// it, and those on the document.
func documentAttacks() []Live {
	echoes := slices.DeleteFunc(EchoAttacks(), func(a PartsAttack) bool { return a.Name == "road-unknown" }) // here that road is this one
	frames := []string{"statements-swapped", "unknown-statement", "proof-trailing-bytes", "binding-with-long-length",
		"evidence-trailing-bytes", "evidence-with-indefinite-length", "evidence-with-huge-length"}
	around := slices.DeleteFunc(FrameAttacks(), func(a PartsAttack) bool { return !slices.Contains(frames, a.Name) })
	return slices.Concat(
		lived(ClassBinding, "", append(challengeAttacks(), BoundAttacks()...), same),
		lived(ClassBinding, "echo-", echoes, onParts),
		lived(ClassStatement, "", around, onParts),
		lived(ClassStatement, "", signedDocumentAttacks(), same))
}

func signedDocumentAttacks() []Forged {
	document := func(change func(*documented)) func(*Forgery) { return func(f *Forgery) { change(f.doc) } }
	frame := func(how func([][]byte) [][]byte) func(*Forgery) { return onParts(evidence(Replaced(0, Edited(how)))) }
	day := 24 * time.Hour
	return listed("documents, live alone", map[string]func(*Forgery){
		"document-forged":               document(func(d *documented) { d.attacker = true }),
		"document-of-another-machine":   document(func(d *documented) { d.machine = MachineTwo }),
		"proof-of-another-machine":      document(func(d *documented) { d.claim = MachineTwo }),
		"answer-by-another-machine":     document(func(d *documented) { d.claim, d.machine = MachineTwo, MachineTwo }),
		"document-over-another-value":   document(func(d *documented) { d.value = Derive("other qualifying data", 32) }),
		"document-over-zeros":           document(func(d *documented) { d.value = make([]byte, 32) }),
		"document-over-the-first-bytes": document(func(d *documented) { d.value = append(bytes.Clone(d.value[:8]), make([]byte, 24)...) }),
		"document-of-yesterday":         document(func(d *documented) { d.at = d.at.Add(-day) }),
		"document-of-tomorrow":          document(func(d *documented) { d.at = d.at.Add(day) }),
		"document-truncated":            document(func(d *documented) { d.after = func(b []byte) []byte { return b[:len(b)-1] } }),
		"document-extended":             document(func(d *documented) { d.after = Behind(0) }),
		"document-missing":              frame(func(e [][]byte) [][]byte { return e[:1] }),
		"document-twice":                frame(func(e [][]byte) [][]byte { return append(e, e[1]) }),
	})
}
