package main

import (
	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/attest/tpm/statement"
	"github.com/nodeattest/nodeattest/internal/forge"
	"github.com/nodeattest/nodeattest/internal/vector"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// tpmStatements are what the simulator's AK really signs, each with the right
// qualifying data, passed off as a certify statement.
func (w *world) tpmStatements() {
	ak := forge.Must(tpm2.CreatePrimary{
		PrimaryHandle: tpm2.TPMRHEndorsement,
		InPublic:      tpm2.BytesAs2B[tpm2.TPMTPublic](w.tpm.AKTemplate(tpmsim.RSA2048)),
	}.Execute(w.shared))
	defer w.flush(ak.ObjectHandle)
	good := forge.TakeApart(w.good)
	signer := tpm2.NamedHandle{Handle: ak.ObjectHandle, Name: ak.Name}
	qd := tpm2.TPM2BData{Buffer: forge.Must(statement.ParseAttestation(good.Certify.Attest)).ExtraData}
	own := tpm2.TPMTSigScheme{Scheme: tpm2.TPMAlgNull}

	quote := forge.Must(tpm2.Quote{SignHandle: signer, QualifyingData: qd, InScheme: own, PCRSelect: tpm2.TPMLPCRSelection{
		PCRSelections: []tpm2.TPMSPCRSelection{{Hash: tpm2.TPMAlgSHA256, PCRSelect: tpm2.PCClientCompatible.PCRs(0, 7)}}}}.Execute(w.shared))
	w.addTPMStatement("quote", "A quote of two PCRs by the node's AK", quote.Quoted.Bytes(), quote.Signature)

	creation := forge.Must(tpm2.CertifyCreation{SignHandle: signer, ObjectHandle: signer, QualifyingData: qd, InScheme: own,
		CreationHash: ak.CreationHash, CreationTicket: ak.CreationTicket}.Execute(w.shared))
	w.addTPMStatement("certify-creation", "A TPM2_CertifyCreation of the AK by itself",
		creation.CertifyInfo.Bytes(), creation.Signature)

	time := forge.Must(tpm2.GetTime{PrivacyAdminHandle: tpm2.TPMRHEndorsement, SignHandle: signer, QualifyingData: qd, InScheme: own}.Execute(w.shared))
	w.addTPMStatement("get-time", "A TPM2_GetTime by the node's AK", time.TimeInfo.Bytes(), time.Signature)

	w.addTPMStatement(w.certifiedNV(signer, qd, own))
	w.addTPMStatement(w.sessionAudit(signer, qd, own))
}

func (w *world) flush(h tpm2.TPMHandle) {
	_, err := tpm2.FlushContext{FlushHandle: h}.Execute(w.shared)
	forge.Check(err)
}

// certifiedNV certifies 16 bytes of the index with the AK's template.
func (w *world) certifiedNV(signer tpm2.NamedHandle, qd tpm2.TPM2BData, own tpm2.TPMTSigScheme) (name, what string, raw []byte, sig tpm2.TPMTSignature) {
	public := forge.Must(tpm2.NVReadPublic{NVIndex: tpmsim.AKTemplateIndexRSA}.Execute(w.shared))
	index := tpm2.NamedHandle{Handle: tpmsim.AKTemplateIndexRSA, Name: public.NVName}
	nv := forge.Must(tpm2.NVCertify{SignHandle: signer, AuthHandle: index, NVIndex: index, QualifyingData: qd, InScheme: own, Size: 16}.Execute(w.shared))
	return "nv-certify", "A TPM2_NV_Certify by the node's AK", nv.CertifyInfo.Bytes(), nv.Signature
}

// sessionAudit has a session audit one command and the AK sign its digest.
func (w *world) sessionAudit(signer tpm2.NamedHandle, qd tpm2.TPM2BData, own tpm2.TPMTSigScheme) (name, what string, raw []byte, sig tpm2.TPMTSignature) {
	session, done, err := tpm2.HMACSession(w.shared, tpm2.TPMAlgSHA256, 16, tpm2.Audit())
	forge.Check(err)
	defer func() { forge.Check(done()) }()
	_, err = tpm2.GetCapability{Capability: tpm2.TPMCapTPMProperties, Property: uint32(tpm2.TPMPTManufacturer), PropertyCount: 1}.Execute(w.shared, session)
	forge.Check(err)
	audit := forge.Must(tpm2.GetSessionAuditDigest{PrivacyAdminHandle: tpm2.TPMRHEndorsement, SignHandle: signer, SessionHandle: session.Handle(),
		QualifyingData: qd, InScheme: own}.Execute(w.shared))
	return "session-audit", "A TPM2_GetSessionAuditDigest by the node's AK", audit.AuditInfo.Bytes(), audit.Signature
}

// addTPMStatement puts another statement of the good node's AK in the place of its
// certify statement.
func (w *world) addTPMStatement(name, what string, raw []byte, sig tpm2.TPMTSignature) {
	what += ", with the right qualifying data stands in place of the certify statement."
	p := forge.TakeApart(w.good)
	p.Certify.Attest, p.Certify.Signature = raw, tpm2.Marshal(sig)
	w.refuse(name, what, "attest-type", w.statementIn(p), nil)
	w.refuse(name+"-in-answer", what, "attest-type", p, nil)
}

// statementIn is the statement of an answer, and what it is held against.
func (w *world) statementIn(p *forge.Parts) *vector.Statement {
	_, qd := (&forge.Join{Ring: w.Ring}).Secrets(p.Binding)
	return &vector.Statement{Attest: p.Certify.Attest, Signature: p.Certify.Signature, Public: p.Certify.Public,
		AKPublic: p.Proof.AKPublic, QualifyingData: qd, Key: forge.SPKI(w.TLS.Public())}
}
