package forge

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rsa"
	_ "crypto/sha1"
	"time"

	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/attest/tpm/statement"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/message"
	"github.com/nodeattest/nodeattest/internal/testkit/softak"
	"github.com/nodeattest/nodeattest/oid"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// SoftwareAttributes are the attributes of software keys that were loaded to be certified.
const SoftwareAttributes = statement.AttributeUserWithAuth | statement.AttributeSign

// SchemeECDSA384 is ECDSA with SHA-384.
var SchemeECDSA384 = statement.KeyScheme{Alg: tpm2.TPMAlgECDSA, Hash: tpm2.TPMAlgSHA384}

// SoftAK is an attestation key in software, whose signatures repeat as far as the scheme allows.
type SoftAK struct {
	softak.AK
	Chain [][]byte // its certificates, leaf first
}

// NewSoftAK has the CA certify a key in software as the AK of a machine.
func (w *Bench) NewSoftAK(private crypto.Signer, scheme statement.KeyScheme, machine string) *SoftAK {
	return &SoftAK{
		AK:    *softak.NewAK(Repeatable{private}, scheme),
		Chain: AKChain(w.CA, private.Public(), tpmsim.CertificateOptions{OtherName: MachineName(machine)}),
	}
}

// Signing is a statement of an AK before it is marshalled and signed.
type Signing struct {
	w         *Bench
	AK        *SoftAK                    // signs
	Attest    *statement.Attestation     // the statement
	Signature func(*statement.Signature) // changes the signature
	Scheme    statement.KeyScheme        // with which it signs
	patch     func(attest []byte) []byte
}

// signing returns a Signing by a primary key of the endorsement hierarchy.
func (w *Bench) signing(ak *SoftAK, kind tpm2.TPMST) Signing {
	return Signing{w: w, AK: ak, Scheme: ak.Public.Scheme, Attest: &statement.Attestation{Type: kind, QualifiedSigner: ak.Primary(),
		Clock: 600000, ResetCount: 1, Safe: true, FirmwareVersion: 0x2019102300163636}}
}

// Signed is the statement with its signature.
func (s *Signing) Signed() (raw, signature []byte) {
	raw = Change(Must(s.Attest.Marshal()), s.patch)
	v := s.AK.Sign(s.Scheme, raw)
	if s.Signature != nil {
		s.Signature(v)
	}
	return raw, Must(v.Marshal())
}

// patch changes the signed bytes.
func patch(how func([]byte) []byte) func(*Signing) { return func(s *Signing) { s.patch = how } }

// unsafe writes a 2 for the clock's safe flag.
func unsafe(s *Signing) {
	s.patch = func(b []byte) []byte { b[6+2+len(s.Attest.QualifiedSigner)+2+len(s.Attest.ExtraData)+16] = 2; return b }
}

// certifyInPlace turns a quote into a certify statement.
func certifyInPlace(s *Signing, certified *statement.CertifyInfo) {
	s.Attest.Type, s.Attest.Quote, s.Attest.Certified = tpm2.TPMSTAttestCertify, nil, certified
}

// Forgery is an answer before its statement is marshalled and signed. A good one is accepted;
// an attack changes one thing in it.
type Forgery struct {
	Join
	Signing                                  // the certify statement
	B       *message.Binding                 // of the challenge
	secret  []byte                           // S; nil for the one derived from the binding
	Public  *statement.Public                // the public area
	After   func(*statement.CertifyEvidence) // changes the evidence after it is signed

	AKPublic []byte   // as the node sends it, and as the statement is checked
	Sent     *Sources // what vouches for the AK; nil for the AK's certificates
	Options  []string // of a call of VerifyCertify

	quote *Quoting // nil without a quote
	// Behind changes what follows the proof.
	Behind  func([]message.Statement) []message.Statement
	onQuote func(der []byte) []byte
	onParts func(*Parts) // changes the answer last
	filed   time.Time    // zero for AnsweredAt
}

// Sources are the proofs that a node sends of its AK or EK: certificates, a bare key, or, as an attack,
// both or neither.
type Sources struct {
	Chain  [][]byte // its certificates, leaf first
	Public []byte   // the public area
}

// Forge makes a good forgery: ak says that the request's key lives in its TPM. It is on the
// road of the EK if j has one.
func (w *Bench) Forge(ak *SoftAK, j Join) *Forgery {
	f := &Forgery{Join: w.Defaults(j), Signing: w.signing(ak, tpm2.TPMSTAttestCertify), AKPublic: ak.Public.Raw}
	f.B = f.Binding(w, ak.Private.Public())
	if f.EK != nil {
		f.B.Road, f.B.MachineKey, f.B.AKName = message.RoadEK, Must(csr.SPKIHash(f.EK.Public)), ak.Public.Name()
		f.Sent = &Sources{Chain: f.EK.Chain}
	}
	f.derive()
	f.Certify(softak.PublicArea(w.certifiable(f.Key.Public()), softak.ResidentAttributes, softak.NoScheme))
	if w.Quoted {
		f.WithQuote()
	}
	return f
}

// certifiable is the key, or one that a TPM would certify if it is of another kind.
func (w *Bench) certifiable(key crypto.PublicKey) crypto.PublicKey {
	k, onCurve := key.(*ecdsa.PublicKey)
	if _, isRSA := key.(*rsa.PublicKey); isRSA || onCurve && k.Curve != elliptic.P224() {
		return key
	}
	return w.TLS.Public()
}

// derive makes the statements follow a changed binding.
func (f *Forgery) derive() {
	secret, _ := f.Secrets(f.B)
	if f.secret != nil {
		secret = f.secret
	}
	der := Must(f.B.Marshal())
	f.Attest.ExtraData = QualifyingData(secret, der)
	if f.quote != nil {
		f.quote.Attest.ExtraData = QuotedData(secret, der)
	}
}

// WithQuote adds a good quote for the same challenge.
func (f *Forgery) WithQuote() *Forgery {
	f.quote = f.w.QuoteBy(f.AK)
	f.derive()
	return f
}

// Certify makes the statement name a key under some parent.
func (f *Forgery) Certify(public *statement.Public) {
	parent := statement.QualifiedNameOfPrimary(tpm2.TPMRHOwner, f.AK.Public.Name()) // any will do
	f.CertifyExternal(public)
	f.Attest.Certified.QualifiedName = statement.QualifiedName(parent, public.Name())
}

// CertifyExternal makes it name a key that was loaded from outside.
func (f *Forgery) CertifyExternal(public *statement.Public) {
	f.Public = public
	f.Attest.Certified = &statement.CertifyInfo{Name: public.Name(), QualifiedName: public.Name()}
}

// useAK changes the AK's public area, with the same key. On the road of the EK the challenge
// is for this very AK.
func (f *Forgery) useAK(public *statement.Public) {
	f.AKPublic = public.Raw
	f.Attest.QualifiedSigner = statement.QualifiedNameOfPrimary(tpm2.TPMRHEndorsement, public.Name())
	if f.quote != nil {
		f.quote.Attest.QualifiedSigner = f.Attest.QualifiedSigner
	}
	if f.EK != nil {
		f.B.AKName = public.Name()
		f.derive()
	}
}

// changeAK is useAK with a change to its public area.
func (f *Forgery) changeAK(how func(*statement.Public)) { f.useAK(softak.Changed(f.AK.Public, how)) }

// Rescheme changes the AK's scheme, with which the statement is also signed.
func (f *Forgery) Rescheme(scheme statement.KeyScheme) {
	f.changeAK(func(p *statement.Public) { p.Scheme = scheme })
	f.Scheme = scheme
}

// SignedBy makes another AK sign, under the public area and certificates of this one.
func (f *Forgery) SignedBy(other *SoftAK) {
	f.AK = &SoftAK{AK: softak.AK{Private: other.Private, Public: f.AK.Public}, Chain: f.AK.Chain}
}

// Evidence signs the statement.
func (f *Forgery) Evidence() *statement.CertifyEvidence {
	raw, signature := f.Signed()
	e := &statement.CertifyEvidence{Attest: raw, Signature: signature, Public: f.Public.Raw}
	if f.After != nil {
		f.After(e)
	}
	return e
}

// Bundle is the answer after the request.
func (f *Forgery) Bundle() *csr.Bundle {
	s := f.sources()
	proof := Must((&message.Proof{Binding: Must(f.B.Marshal()), EKPublic: s.Public, AKPublic: f.AKPublic}).Marshal())
	statements := []message.Statement{
		{Type: oid.TCGAttestTPMCertify, Stmt: Must(statement.MarshalTCGAttestCertify(f.Evidence()))},
		{Type: oid.NodeAttestProof, Stmt: proof}}
	if f.quote != nil {
		behind := []message.Statement{{Type: oid.NodeAttestQuote, Stmt: Change(f.quote.statement(), f.onQuote)}}
		if f.Behind != nil {
			behind = f.Behind(behind)
		}
		statements = append(statements, behind...)
	}
	return bundleOf(f.Request, s.Chain, statements...)
}

// sources are the node's.
func (f *Forgery) sources() Sources {
	if f.Sent != nil {
		return *f.Sent
	}
	return Sources{Chain: f.AK.Chain}
}

// Answer is the whole request object.
func (f *Forgery) Answer() *csr.Request {
	filed := f.filed
	if filed.IsZero() {
		filed = f.w.AnsweredAt()
	}
	object := f.Object(f.Bundle(), f.Signer, filed)
	if f.onParts == nil {
		return object
	}
	p := TakeApart(object)
	f.onParts(p)
	return p.Together()
}
