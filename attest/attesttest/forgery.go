package attesttest

import (
	"crypto/ecdsa"
	"crypto/sha256"
	"errors"
	"time"

	"github.com/google/go-tpm/tpm2"
	"golang.org/x/crypto/cryptobyte"
	"golang.org/x/crypto/cryptobyte/asn1"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/tpm"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/oid"
)

// forgery is an answer before it is put together: a good one, until an attack
// changes one thing of it.
type forgery struct {
	world     *World
	road      attest.Road
	machine   *machine
	applicant *Applicant

	binding *attest.Binding
	secret  []byte // S; nil derives it from the binding with the world's own key
	ring    *attest.RingKey

	attest    *tpm.Attestation
	public    *tpm.Public // of the certified key
	akPublic  []byte
	ekPublic  []byte // of an EK without a certificate
	chain     [][]byte
	quote     *quoteForgery                     // nil where none is wanted
	hash      tpm2.TPMAlgID                     // of the signature
	patch     func(attest []byte) []byte        // before signing
	signature func(*tpm.Signature)              // after signing
	after     func(*tpm.CertifyEvidence)        // last
	echo      func(binding []byte) []byte       // the binding in the proof
	pem       func(pem []byte) []byte           // the whole bundle
	wrap      func(*csr.Bundle)                 // before it is encoded
	evidence  func(b *attest.AttestationBundle) // before it is marshalled
	err       error                             // what went wrong in making it
}

// errForgery says that an attack could not be made.
var errForgery = errors.New("attesttest: an attack could not be made")

// forge makes a good answer of a machine, as if the challenge had been given half a
// minute ago. what changes applicant or binding; everything that follows from them is
// made afterwards, with the right challenge key: as far as cryptography can tell the
// control plane itself gave this challenge.
func (a *attempt) forge(applicant *Applicant, what func(*forgery)) (*forgery, error) {
	f := a.newForgery(a.machines[applicant.Machine], applicant)
	hash, err := infoHash(applicant.Request)
	if err != nil {
		return nil, err
	}
	spki, err := csr.SPKIHash(f.machine.carrier(a.road))
	if err != nil {
		return nil, errors.Join(errForgery, err)
	}
	object := &applicant.Object
	issued := object.Metadata.CreationTimestamp.Add(-30 * time.Second)
	f.binding = &attest.Binding{Road: a.road, IssuedAt: issued.Unix(), NotAfter: issued.Add(attest.DefaultWindow).Unix(),
		ClusterID: ClusterID, SignerName: object.Spec.SignerName, Requester: object.Spec.Username, MachineKey: spki, RequestHash: hash}
	if a.road == attest.RoadEK {
		f.binding.AKName = f.machine.public.Name()
	}
	if s := object.Spec.ExpirationSeconds; s != nil {
		f.binding.ExpirationSeconds = *s
	}
	f.binding.Nonce = [attest.NonceSize]byte{1, 2, 3}
	if what != nil {
		what(f)
	}
	f.binding.KeyID = f.ring.ID
	return f, f.prepare()
}

// newForgery is an answer of a machine on the attempt's road, without a challenge yet.
func (a *attempt) newForgery(m *machine, applicant *Applicant) *forgery {
	return &forgery{world: a.World, road: a.road, machine: m, applicant: applicant, ring: &a.ring,
		akPublic: m.public.Raw, chain: m.certificates(a.road), hash: tpm2.TPMAlgSHA256}
}

// infoHash is the SHA-256 of the CertificationRequestInfo, of requests too that
// package csr refuses.
func infoHash(request []byte) ([sha256.Size]byte, error) {
	var body, info cryptobyte.String
	s := cryptobyte.String(request)
	if !s.ReadASN1(&body, asn1.SEQUENCE) || !body.ReadASN1Element(&info, asn1.SEQUENCE) {
		return [sha256.Size]byte{}, errForgery
	}
	return sha256.Sum256(info), nil
}

// prepare fills in what follows from machine, applicant and binding.
func (f *forgery) prepare() error {
	f.attest = &tpm.Attestation{
		Type:            tpm2.TPMSTAttestCertify,
		QualifiedSigner: tpm.QualifiedNameOfPrimary(tpm2.TPMRHEndorsement, f.machine.public.Name()),
		Clock:           600000, ResetCount: 1, Safe: true, FirmwareVersion: 0x2019102300163636,
	}
	if f.world.options.RequireQuote {
		f.quote = newQuoteForgery(f.machine, f.attest)
	}
	if err := f.derive(); err != nil {
		return err
	}
	key, ok := f.applicant.Key.Public().(*ecdsa.PublicKey)
	if !ok {
		return errForgery
	}
	resident, err := publicArea(key, residentAttributes, noScheme)
	if err != nil {
		return errors.Join(errForgery, err)
	}
	f.certify(resident)
	return nil
}

// derive makes the qualifying data of the binding.
func (f *forgery) derive() error {
	b, err := f.binding.Marshal()
	if err != nil {
		return errors.Join(errForgery, err)
	}
	if f.secret == nil {
		key := f.ring.Secret.Reveal()
		f.secret = derive(key[:], labelSecret, b)
	}
	f.attest.ExtraData = derive(f.secret, labelCertify, b)
	if f.quote != nil {
		f.quote.attest.ExtraData = derive(f.secret, labelQuote, b)
	}
	return nil
}

// certify makes the statement name a key under some parent.
func (f *forgery) certify(public *tpm.Public) {
	f.public = public
	parent := tpm.QualifiedNameOfPrimary(tpm2.TPMRHOwner, f.machine.public.Name()) // any will do
	f.tpm.Certified = &tpm.CertifyInfo{Name: public.Name(), QualifiedName: tpm.QualifiedName(parent, public.Name())}
}

// certifyAs is certify with the applicant's key under other attributes; external
// makes it a key that was loaded from outside.
func (f *forgery) certifyAs(attributes tpm.Attributes, external bool) {
	public, err := publicArea(f.applicant.Key.Public().(*ecdsa.PublicKey), attributes, noScheme)
	if err != nil {
		return // prepare has done the same with this key
	}
	f.certify(public)
	if external {
		f.tpm.Certified.QualifiedName = public.Name()
	}
}

// changeAK changes the public area of the AK, and everything that follows from it.
func (f *forgery) changeAK(change func(*tpm.Public)) {
	again := *f.machine.public
	change(&again)
	public, err := reparsed(&again)
	if err != nil {
		f.err = err
		return
	}
	f.akPublic = public.Raw
	f.attest.QualifiedSigner = tpm.QualifiedNameOfPrimary(tpm2.TPMRHEndorsement, public.Name())
	if f.quote != nil {
		f.quote.attest.QualifiedSigner = f.attest.QualifiedSigner
	}
	if f.road == attest.RoadEK { // the challenge was given for this very AK
		f.binding.AKName, f.secret = public.Name(), nil
		f.err = f.derive()
	}
}

// bundle puts the answer together.
func (f *forgery) bundle() (*csr.Bundle, error) {
	raw, err := f.attest.Marshal()
	if err := errors.Join(err, f.err); err != nil {
		return nil, errors.Join(errForgery, err)
	}
	if f.patch != nil {
		raw = f.patch(raw)
	}
	v, err := f.machine.sign(f.hash, raw)
	if err != nil {
		return nil, errors.Join(errForgery, err)
	}
	if f.signature != nil {
		f.signature(v)
	}
	sig, err := v.Marshal()
	if err != nil {
		return nil, errors.Join(errForgery, err)
	}
	e := &tpm.CertifyEvidence{Attest: raw, Signature: sig, Public: f.public.Raw}
	if f.after != nil {
		f.after(e)
	}
	stmt, err := tpm.MarshalTCGAttestCertify(e)
	if err != nil {
		return nil, errors.Join(errForgery, err)
	}
	echo, err := f.binding.Marshal()
	if err != nil {
		return nil, errors.Join(errForgery, err)
	}
	if f.echo != nil {
		echo = f.echo(echo)
	}
	proof, err := (&attest.Proof{Binding: echo, EKPublic: f.ekPublic, AKPublic: f.akPublic}).Marshal()
	if err != nil {
		return nil, errors.Join(errForgery, err)
	}
	b := &attest.AttestationBundle{Certificates: f.chain, Statements: []attest.AttestationStatement{
		{Type: oid.TCGAttestTPMCertify, Stmt: stmt}, {Type: oid.NodeAttestProof, Stmt: proof}}}
	if f.quote != nil {
		stmt, err := f.quote.statement()
		if err != nil {
			return nil, err
		}
		b.Statements = append(b.Statements, attest.AttestationStatement{Type: oid.NodeAttestQuote, Stmt: stmt})
	}
	if f.evidence != nil {
		f.evidence(b)
	}
	data, err := b.Marshal()
	if err != nil {
		return nil, errors.Join(errForgery, err)
	}
	return &csr.Bundle{Request: f.applicant.Request, Provider: tpm.Provider, Data: data}, nil
}

// object is the request object of the answer.
func (f *forgery) object() (*csr.Request, error) {
	bundle, err := f.bundle()
	if err != nil {
		return nil, err
	}
	return file(f.applicant, bundle, f.wrap, f.pem)
}

// file puts a bundle into the applicant's object.
func file(a *Applicant, bundle *csr.Bundle, wrap func(*csr.Bundle), pem func([]byte) []byte) (*csr.Request, error) {
	if wrap != nil {
		wrap(bundle)
	}
	object := a.Object
	var err error
	if object.Spec.Request, err = bundle.Marshal(); err != nil {
		return nil, errors.Join(errForgery, err)
	}
	if pem != nil {
		object.Spec.Request = pem(object.Spec.Request)
	}
	return &object, nil
}
