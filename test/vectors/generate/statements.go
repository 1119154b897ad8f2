package main

import (
	"cmp"
	"crypto"
	"crypto/rsa"

	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/attest/tpm/statement"
	"github.com/nodeattest/nodeattest/internal/testkit/softak"
	"github.com/nodeattest/nodeattest/test/vectors/forge"
	"github.com/nodeattest/nodeattest/test/vectors/vector"
	"github.com/nodeattest/nodeattest/tpmsim"
)

func (w *world) statements() {
	w.statementsBy(w.AKP256, append(forge.StatementAttacks(), w.aboutRSAKeys()...))
	w.statementsBy(w.AKRSA, rsaSignatures())
	unsigned := func(f *forge.Forgery) { f.After = func(e *statement.CertifyEvidence) { e.Signature = nil } }
	w.refuse("signature-absent", w.heldStatement(w.AKP256, unsigned, func(*vector.Statement) {}), nil)
	w.wholeAnswers()
	w.refusedOptions()
}

// statementsBy makes two vectors of each attack: the statement by itself, and in an answer.
func (w *world) statementsBy(ak *forge.SoftAK, attacks []forge.Forged) {
	for _, a := range attacks {
		f := w.Forge(ak, forge.Join{})
		a.Change(f)
		alone := w.refuseAs(a.Name, a.What, a.Expect, w.statementOf(f), nil)
		v := w.refuseAs(a.Name+"-in-answer", a.What, cmp.Or(a.InAnswer, a.Expect), f, nil)
		if a.Resident {
			alone.Statement.Options = append(alone.Statement.Options, "requireTPMResident")
			v.Environment = &vector.Environment{RequireTPMResident: true}
		}
	}
}

// aboutRSAKeys are attacks on a statement of an AK on P-256 that need an RSA key.
func (w *world) aboutRSAKeys() []forge.Forged {
	resident := func(key crypto.PublicKey) *statement.Public {
		return softak.PublicArea(key, softak.ResidentAttributes, softak.NoScheme)
	}
	return listed("statements about an RSA key", map[string]func(*forge.Forgery){
		"request-key-of-another-kind": func(f *forge.Forgery) { f.Certify(resident(w.RSATLS.Public())) },
		"weak-rsa":                    func(f *forge.Forgery) { *f = *w.Forge(f.AK, f.WithKey(w.Bench, forge.Repeatable{Signer: w.RSA1024})) },
		"weak-rsa-says-2048": func(f *forge.Forgery) {
			f.Certify(softak.Changed(resident(w.RSA1024.Public()), func(p *statement.Public) { p.KeyBits = 2048 }))
		},
		"rsa-exponent-3": func(f *forge.Forgery) { f.Certify(resident(&rsa.PublicKey{N: w.RSATLS.N, E: 3})) },
		"signature-of-another-kind-of-key": func(f *forge.Forgery) {
			f.After = func(e *statement.CertifyEvidence) {
				e.Signature = forge.Must(w.AKRSA.Sign(softak.RSASSA, e.Attest).Marshal())
			}
		},
	})
}

// rsaSignatures are attacks on a statement of an RSA AK.
func rsaSignatures() []forge.Forged {
	signature := func(how func([]byte) []byte) func(*forge.Forgery) {
		return func(f *forge.Forgery) { f.Signature = func(v *statement.Signature) { v.RSA = how(v.RSA) } }
	}
	return listed("statements by an RSA key", map[string]func(*forge.Forgery){
		"signature-bit-flipped":          signature(flipped),
		"signature-truncated":            signature(truncated),
		"signature-extended":             signature(func(b []byte) []byte { return append([]byte{0}, b...) }),
		"sha1-signature":                 func(f *forge.Forgery) { f.Rescheme(sha1RSASSA) },
		"signature-with-another-scheme":  func(f *forge.Forgery) { f.Scheme = rsaPSS },
		"signature-sha1-for-a-sha256-ak": func(f *forge.Forgery) { f.Scheme = sha1RSASSA },
		"signature-raw": func(f *forge.Forgery) {
			f.After = func(e *statement.CertifyEvidence) { e.Signature = e.Signature[6:] }
		},
	})
}

// Schemes of RSA keys.
var (
	rsaPSS     = statement.KeyScheme{Alg: tpm2.TPMAlgRSAPSS, Hash: tpm2.TPMAlgSHA256}
	sha1RSASSA = statement.KeyScheme{Alg: tpm2.TPMAlgRSASSA, Hash: tpm2.TPMAlgSHA1}
)

func flipped(b []byte) []byte { b[100] ^= 1; return b }

func truncated(b []byte) []byte { return b[:len(b)-1] }

// statementOf is the statement of a forgery, and the expectations of it.
func (w *world) statementOf(f *forge.Forgery) *vector.Statement {
	e := f.Evidence()
	_, qd := f.Secrets(f.B)
	return &vector.Statement{Attest: e.Attest, Signature: e.Signature, Public: e.Public, AKPublic: f.AKPublic,
		QualifyingData: qd, Key: forge.SPKI(f.Key.Public()), Options: f.Options}
}

// heldStatement is a statement that change, if not nil, changes before it is signed. Then last
// changes it, or the expectations of it.
func (w *world) heldStatement(ak *forge.SoftAK, change func(*forge.Forgery), last func(*vector.Statement)) *vector.Statement {
	f := w.Forge(ak, forge.Join{})
	if change != nil {
		change(f)
	}
	s := w.statementOf(f)
	last(s)
	return s
}

// wholeAnswers are attacks that only a node's answer shows.
func (w *world) wholeAnswers() {
	answer := func(name string, change func(*forge.Forgery)) {
		f := w.Forge(w.AKP256, forge.Join{})
		change(f)
		w.refuse(name, f, nil)
	}
	answer("ak-public-area-changed", func(f *forge.Forgery) { f.AKPublic = otherPolicy(f.AK) })
	answer("ak-below-another-key", func(f *forge.Forgery) { w.below(f) })
	answer("ak-in-the-null-hierarchy", func(f *forge.Forgery) {
		f.Attest.QualifiedSigner = statement.QualifiedNameOfPrimary(tpm2.TPMRHNull, f.AK.Public.Name())
	})
	tolerant := profileTCG()
	tolerant.Name, tolerant.InsecureAllowSHA1Signature = "another issuer", true
	w.refuse("sha1-signature-allowed-to-another-issuer", w.overSHA1(),
		&vector.Environment{Issuers: []vector.Issuer{w.set.Environment.Issuers[0], {Roots: [][]byte{w.Stranger.Root().Raw}, Profile: tolerant}}})
}

// otherPolicy is the public area of an AK with a policy that it does not have.
func otherPolicy(ak *forge.SoftAK) []byte {
	return softak.Changed(ak.Public, func(p *statement.Public) { p.AuthPolicy = make([]byte, 32) }).Raw
}

// below puts the AK below another key.
func (w *world) below(f *forge.Forgery) *forge.Forgery {
	f.Attest.QualifiedSigner = statement.QualifiedName(w.AKOther.Primary(), f.AK.Public.Name())
	return f
}

// overSHA1 is an answer whose AK has a SHA-1 scheme.
func (w *world) overSHA1() *forge.Forgery {
	f := w.Forge(w.AKRSA, forge.Join{})
	f.Rescheme(sha1RSASSA)
	return f
}

// refusedOptions are callers that give the lower function too little to decide.
func (w *world) refusedOptions() {
	for _, a := range listed("callers' options", map[string]func(*vector.Statement){
		"caller-gives-no-ak":                         func(s *vector.Statement) { s.AKPublic = nil },
		"caller-gives-no-qualifying-data":            func(s *vector.Statement) { s.QualifyingData = nil },
		"caller-gives-no-key":                        func(s *vector.Statement) { s.Key = nil },
		"caller-gives-qualifying-data-and-takes-any": func(s *vector.Statement) { s.Options = []string{"insecureAllowAnyQualifyingData"} },
	}) {
		w.refuseAs(a.Name, a.What, "certify-options", w.heldStatement(w.AKP256, nil, a.Change), nil)
	}
}

// akTrusts are callers whose AK no issuer vouches for, or whose qualifying data was lost on the
// way: good evidence, and its use.
func (w *world) akTrusts() {
	s := func(change func(*forge.Forgery), last func(*vector.Statement)) *vector.Statement {
		return w.heldStatement(w.AKP256, change, last)
	}
	resident := func(f *forge.Forgery) {
		f.Certify(softak.PublicArea(f.Key.Public(), softak.ResidentAttributes, softak.NoScheme))
	}
	empty := func(f *forge.Forgery) { f.Attest.ExtraData = nil }
	w.accept("resident-key-by-an-ak-of-the-sender", s(resident, func(s *vector.Statement) { s.AKTrust = "sender" }), nil, &vector.Result{TPMResident: new(false)})
	w.accept("resident-key-by-an-ak-of-an-issuer", s(resident, func(s *vector.Statement) { s.AKTrust, s.AKKey = "issuer", forge.SPKI(w.AKP256.Private.Public()) }), nil, &vector.Result{TPMResident: new(true)})
	w.refuse("resident-key-demanded-by-an-ak-of-the-sender", s(resident, func(s *vector.Statement) { s.AKTrust, s.Options = "sender", []string{"requireTPMResident"} }), nil)
	w.refuse("caller-gives-empty-qualifying-data", s(empty, func(s *vector.Statement) { s.QualifyingData = []byte{} }), nil)
	w.refuse("caller-gives-qualifying-data-and-wants-none", s(empty, func(s *vector.Statement) { s.Options = []string{"insecureEmptyQualifyingData"} }), nil)

	quote := func(data []byte, after func(*vector.Quote)) *vector.Quote {
		q := w.hold(w.AKP256)
		q.Attest.ExtraData, q.hold = data, after
		return q.vector()
	}
	w.accept("quote-by-an-ak-of-the-sender", quote(forge.LoneQuoteData, func(q *vector.Quote) { q.AKTrust = "sender" }), nil, &vector.Result{ClockTrusted: new(false)})
	w.accept("quote-without-qualifying-data-by-option", quote(nil, func(q *vector.Quote) {
		q.QualifyingData, q.Options = []byte{}, []string{"insecureEmptyQualifyingData"}
	}), nil, &vector.Result{ClockTrusted: new(true)})
	w.refuse("quote-for-a-caller-with-empty-qualifying-data", quote(nil, func(q *vector.Quote) { q.QualifyingData = []byte{} }), nil)
}

// tpmStatements are the statements that the simulator's AK really signs, each with the right qualifying data,
// passed off as a certify statement.
func (w *world) tpmStatements() {
	ak := forge.Must(tpm2.CreatePrimary{
		PrimaryHandle: tpm2.TPMRHEndorsement,
		InPublic:      tpm2.BytesAs2B[tpm2.TPMTPublic](w.tpm.AKTemplate(tpmsim.RSA2048)),
	}.Execute(w.shared))
	defer func() { forge.Must(tpm2.FlushContext{FlushHandle: ak.ObjectHandle}.Execute(w.shared)) }()
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

// certifiedNV certifies 16 bytes of the index with the AK's template.
func (w *world) certifiedNV(signer tpm2.NamedHandle, qd tpm2.TPM2BData, own tpm2.TPMTSigScheme) (name, what string, raw []byte, sig tpm2.TPMTSignature) {
	public := forge.Must(tpm2.NVReadPublic{NVIndex: tpm2.TPMHandle(0x01c10001)}.Execute(w.shared))
	index := tpm2.NamedHandle{Handle: 0x01c10001, Name: public.NVName}
	nv := forge.Must(tpm2.NVCertify{SignHandle: signer, AuthHandle: index, NVIndex: index, QualifyingData: qd, InScheme: own, Size: 16}.Execute(w.shared))
	return "nv-certify", "A TPM2_NV_Certify by the node's AK", nv.CertifyInfo.Bytes(), nv.Signature
}

// sessionAudit makes a session audit one command and the AK sign its digest.
func (w *world) sessionAudit(signer tpm2.NamedHandle, qd tpm2.TPM2BData, own tpm2.TPMTSigScheme) (name, what string, raw []byte, sig tpm2.TPMTSignature) {
	session, done, err := tpm2.HMACSession(w.shared, tpm2.TPMAlgSHA256, 16, tpm2.Audit())
	forge.Check(err)
	defer func() { forge.Check(done()) }()
	forge.Must(tpm2.GetCapability{Capability: tpm2.TPMCapTPMProperties, Property: uint32(tpm2.TPMPTManufacturer), PropertyCount: 1}.
		Execute(w.shared, session))
	audit := forge.Must(tpm2.GetSessionAuditDigest{PrivacyAdminHandle: tpm2.TPMRHEndorsement, SignHandle: signer, SessionHandle: session.Handle(),
		QualifyingData: qd, InScheme: own}.Execute(w.shared))
	return "session-audit", "A TPM2_GetSessionAuditDigest by the node's AK", audit.AuditInfo.Bytes(), audit.Signature
}

// addTPMStatement replaces the certify statement of the good node's AK with another statement
// of the same AK.
func (w *world) addTPMStatement(name, what string, raw []byte, sig tpm2.TPMTSignature) {
	what += ", with the right qualifying data stands in place of the certify statement."
	p := forge.TakeApart(w.good)
	p.Certify.Attest, p.Certify.Signature = raw, tpm2.Marshal(sig)
	w.refuseAs(name, what, "attest-type", w.statementIn(p), nil)
	w.refuseAs(name+"-in-answer", what, "attest-type", p, nil)
}

// statementIn is the statement in an answer, and the expectations of it.
func (w *world) statementIn(p *forge.Parts) *vector.Statement {
	_, qd := (&forge.Join{Ring: w.Ring}).Secrets(p.Binding)
	return &vector.Statement{Attest: p.Certify.Attest, Signature: p.Certify.Signature, Public: p.Certify.Public,
		AKPublic: p.Proof.AKPublic, QualifyingData: qd, Key: forge.SPKI(w.TLS.Public())}
}

// acceptedStatements show what each option of the lower function tolerates.
func (w *world) acceptedStatements() {
	add := func(name string, ak *forge.SoftAK, change func(*forge.Forgery), last func(*vector.Statement)) {
		w.accept(name, w.heldStatement(ak, change, last), nil, nil)
	}
	option := func(name string) func(*vector.Statement) {
		return func(s *vector.Statement) { s.Options = []string{name} }
	}
	w.accept("tpm-statement", w.statementIn(forge.TakeApart(w.good)), nil, &vector.Result{TPMResident: new(false)})
	add("ak-known-by-its-key-alone", w.AKP256, nil, func(s *vector.Statement) {
		s.AKPublic, s.AKKey = nil, forge.SPKI(w.AKP256.Private.Public())
	})
	add("raw-rsassa-signature", w.AKRSA, nil, func(s *vector.Statement) {
		s.RawSignature, s.Signature = &vector.RawSignature{Scheme: "rsassa", Hash: "sha256"}, s.Signature[6:]
	})
	add("raw-ecdsa-signature", w.AKP256, nil, func(s *vector.Statement) {
		v := forge.Must(statement.ParseSignature(s.Signature))
		s.RawSignature, s.Signature = &vector.RawSignature{Scheme: "ecdsa", Hash: "sha256"}, forge.Must(v.MarshalECDSA())
	})
	add("empty-qualifying-data", w.AKP256,
		func(f *forge.Forgery) { f.Attest.ExtraData = nil }, func(s *vector.Statement) {
			s.QualifyingData, s.Options = []byte{}, []string{"insecureEmptyQualifyingData"}
		})
	add("any-qualifying-data", w.AKP256, nil, func(s *vector.Statement) {
		s.QualifyingData, s.Options = nil, []string{"insecureAllowAnyQualifyingData"}
	})
	add("any-key", w.AKP256, nil, func(s *vector.Statement) {
		s.Key, s.Options = nil, []string{"insecureAllowAnyKey"}
	})
	add("sha1-signature-by-option", w.AKRSA, func(f *forge.Forgery) {
		f.Rescheme(sha1RSASSA)
	}, option("insecureAllowSHA1Signature"))
	add("sha1-name-by-option", w.AKP256, func(f *forge.Forgery) {
		f.Certify(softak.Changed(f.Public, func(p *statement.Public) { p.NameAlg = tpm2.TPMAlgSHA1 }))
	}, option("insecureAllowSHA1Name"))
	add("restricted-key-by-option", w.AKP256, func(f *forge.Forgery) {
		f.Certify(softak.PublicArea(f.Key.Public(), softak.AKAttributes, softak.NoScheme))
	}, option("allowRestrictedKey"))
}
