package attesttest

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/json"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/document"
)

// PlatformProvider is the name of the kind of evidence of a [Platform], and the kind of
// identity of its machines: "platform:machine-1".
const PlatformProvider = "platform"

// checkPlatform: a document is not one that the [Platform] signed within the last
// 5 minutes.
const checkPlatform attest.Check = "platform-document"

// platformLifetime is how long a document is valid.
const platformLifetime = 5 * time.Minute

// Platform signs documents about machines, as a cloud does, for tests of joins by documents.
// Its key is the only thing that an attacker would have to forge. A document is JSON with the
// machine, the value, the time and an Ed25519 signature over the rest.
//
//	platform := attesttest.NewPlatform(t)
//	kind, err := platform.Kind() // for attest.VerifierConfig.Kinds
//	prover, err := document.NewProver(attesttest.PlatformProvider, 1, platform.Machine("machine-1"))
//
// A Platform is itself the [document.Platform] of its kind.
type Platform struct {
	// Now is the clock used to sign documents, at first time.Now. It must not be changed once
	// the Platform is in use.
	Now func() time.Time

	key ed25519.PrivateKey
}

// NewPlatform makes a platform with its own key.
func NewPlatform(t testing.TB) *Platform {
	t.Helper()
	return opened[*Platform](t)(OpenPlatform())
}

// OpenPlatform is [NewPlatform] for use outside tests.
func OpenPlatform() (*Platform, error) {
	_, key, err := ed25519.GenerateKey(nil)
	return &Platform{Now: time.Now, key: key}, err
}

// Kind is the kind of evidence that accepts this platform's documents. They cover all 32 bytes
// of qualifying data.
func (p *Platform) Kind() (*document.Kind, error) {
	return document.NewKind(document.KindConfig{Provider: PlatformProvider, Identities: []attest.Grammar{{Kind: PlatformProvider}},
		ValueSize: sha256.Size, Platform: p})
}

// Machine is a machine of the platform, which asks for documents about itself. The name is
// what follows "platform:" in its identity.
func (p *Platform) Machine(name string) document.Source { return &platformMachine{p, name} }

type platformMachine struct {
	platform *Platform
	name     string
}

func (m *platformMachine) Machine(context.Context) (attest.Identity, error) {
	return attest.Identity(PlatformProvider + ":" + m.name), nil
}

func (m *platformMachine) Document(_ context.Context, value []byte) ([]byte, error) {
	return m.platform.Sign(m.name, value)
}

// platformDocument is a document. The Time is Unix seconds.
type platformDocument struct {
	Machine   string
	Value     []byte
	Time      int64
	Signature []byte `json:",omitempty"`
}

// signed returns the bytes that the signature covers.
func (d platformDocument) signed() []byte {
	d.Signature = nil
	signed, _ := json.Marshal(d) // never fails
	return signed
}

// Sign returns a document about a machine over a value of any size: an attacker can have the
// platform sign such a document too.
func (p *Platform) Sign(machine string, value []byte) ([]byte, error) {
	d := platformDocument{Machine: machine, Value: value, Time: p.Now().Unix()}
	d.Signature = ed25519.Sign(p.key, d.signed())
	return json.Marshal(d)
}

// Read reads a document and verifies nothing. An error is an [*attest.Error] with
// "platform-document".
func (p *Platform) Read(data []byte) (*document.Claims, error) {
	d, err := readPlatformDocument(data)
	if err != nil {
		return nil, err
	}
	return d.claims(), nil
}

// Verify verifies the signature of a document, and that it was signed within the 5 minutes
// before q.Now. An error is an [*attest.Error] with "platform-document", or the budget's.
func (p *Platform) Verify(ctx context.Context, data []byte, q *attest.Inquiry) (*document.Claims, error) {
	d, err := readPlatformDocument(data)
	if err != nil {
		return nil, err
	}
	if age := q.Now.Sub(time.Unix(d.Time, 0)); age < 0 || age > platformLifetime {
		return nil, &attest.Error{Check: checkPlatform, Got: "a document that is " + age.String() + " old", Want: "one of the last " + platformLifetime.String()}
	}
	if err := q.Budget.Signature(ctx); err != nil {
		return nil, err
	}
	if !ed25519.Verify(p.key.Public().(ed25519.PublicKey), d.signed(), d.Signature) {
		return nil, &attest.Error{Check: checkPlatform, Got: "a signature by another key", Want: "the platform's"}
	}
	return d.claims(), nil
}

// readPlatformDocument reads a document, and refuses any encoding that json.Marshal does not write.
func readPlatformDocument(data []byte) (*platformDocument, error) {
	d := &platformDocument{}
	err := json.Unmarshal(data, d)
	if again, _ := json.Marshal(d); err == nil && bytes.Equal(again, data) {
		return d, nil
	}
	return nil, &attest.Error{Check: checkPlatform, Got: "another document", Want: "JSON as the platform writes it", Err: err}
}

func (d *platformDocument) claims() *document.Claims {
	return &document.Claims{Machine: attest.Identity(PlatformProvider + ":" + d.Machine), Value: d.Value,
		Facts: []attest.Fact{{Standing: attest.Asserted, Name: "document", Value: "of " + time.Unix(d.Time, 0).UTC().Format(time.RFC3339)}}}
}
