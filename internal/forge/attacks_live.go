package forge

import (
	"bytes"
	"crypto"
	"crypto/elliptic"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"slices"
	"time"

	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/tpm/statement"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/message"
	"github.com/nodeattest/nodeattest/oid"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// liveAlone are the attacks that are in no vector, or there in another form.
func (w *Bench) liveAlone(road attest.Road) []Live {
	out := slices.Concat(challengeAttacks(), signedAttacks(), chainAttacks(), w.certificateAttacks(road))
	if road == attest.RoadEK {
		return slices.Concat(out, ekAttacks(), credentialAttacks())
	}
	return append(out, forged(ClassBinding, "answer-on-another-road", "The challenge was given on the road of the EK, the answer has an AK certificate.", func(f *Forgery) {
		f.B.Road, f.B.AKName = message.RoadEK, f.AK.Public.Name()
		f.derive()
	}))
}

// bound is an answer to a challenge that was given for something else.
func bound(name, what string, change func(*Forgery)) Live {
	return forged(ClassBinding, name, what, func(f *Forgery) { change(f); f.derive() })
}

func challengeAttacks() []Live {
	return []Live{
		bound("answer-of-another-machine-key", "The challenge was given to another machine.", func(f *Forgery) { f.B.MachineKey[0]++ }),
		bound("answer-for-another-request", "The challenge was given for another PKCS#10 request.", func(f *Forgery) { f.B.RequestHash[0]++ }),
		bound("challenge-secret-made-up", "Nobody gave the challenge: its secret is zeros.", func(f *Forgery) { f.secret = make([]byte, message.SecretSize) }),
		forged(ClassBinding, "challenge-window-moved", "The times in the echoed binding were moved on by a minute.", func(f *Forgery) {
			f.B.IssuedAt += 60
			f.B.NotAfter += 60
		}),
		bound("challenge-window-reversed", "The challenge's window ends before it begins.", func(f *Forgery) {
			created := f.w.AnsweredAt().Unix()
			f.B.IssuedAt, f.B.NotAfter = created+30, created
		}),
		bound("answer-late", "The answer was filed a second after the challenge's window.", func(f *Forgery) { f.B.NotAfter = f.w.AnsweredAt().Unix() - 1 }),
		bound("answer-early", "The answer was filed two minutes before its challenge was given.", func(f *Forgery) {
			f.B.IssuedAt = f.w.AnsweredAt().Unix() + 120
			f.B.NotAfter = f.B.IssuedAt + 600
		}),
		bound("answer-old", "The answer was filed two hours ago.", func(f *Forgery) {
			f.filed = f.w.Now.Add(-2 * time.Hour)
			f.B.IssuedAt, f.B.NotAfter = f.filed.Unix()-30, f.filed.Unix()+570
		}),
	}
}

// signedAttacks are about the AK and its signature.
func signedAttacks() []Live {
	rs := func(name, what string, how func(*statement.Signature)) Live {
		return forged(ClassStatement, name, what, func(f *Forgery) { f.Signature = how })
	}
	return []Live{
		forged(ClassStatement, "ak-not-fixed", "The AK can leave its TPM.", akWith(AKAttributes&^(statement.AttributeFixedTPM|statement.AttributeFixedParent))),
		forged(ClassStatement, "certificate-of-another-machines-ak", "The certificate, of the AK or the EK, is another machine's.", func(f *Forgery) {
			two := f.w.Machines[MachineTwo]
			f.Sent = &Sources{Chain: two.AK.Chain}
			if f.EK != nil {
				f.Sent.Chain = two.EK.Chain
			}
		}),
		forged(ClassStatement, "ak-public-of-another-ak", "The AK public area is another machine's.", func(f *Forgery) { f.AKPublic = f.w.AKOther.Public.Raw }),
		forged(ClassStatement, "two-certify-statements", "There are two certify statements.", func(f *Forgery) {
			f.onParts = evidence(Replaced(0, doubled))
		}),
		forged(ClassStatement, "signature-sha1", "The statement is signed with SHA-1.", func(f *Forgery) { f.scheme.Hash = tpm2.TPMAlgSHA1 }),
		rs("signature-of-zeros", "R and s of the signature are zero.", func(s *statement.Signature) { s.R, s.S = make([]byte, 32), make([]byte, 32) }),
		rs("signature-r-over-order", "R of the signature is over the curve's order.", func(s *statement.Signature) { s.R = bytes.Repeat([]byte{0xff}, 32) }),
	}
}

// reissue has a CA certify the key that carries the trust.
func (f *Forgery) reissue(ca *tpmsim.CA, o tpmsim.CertificateOptions) {
	if f.EK != nil {
		f.Sent = &Sources{Chain: EKChain(ca, f.EK.Public, o)}
		return
	}
	if !o.NoSAN && o.Style == 0 {
		o.OtherName = MachineName(MachineOne)
	}
	f.Sent = &Sources{Chain: AKChain(ca, f.AK.Private.Public(), o)}
}

// chainAttacks change which certificates are sent.
func chainAttacks() []Live {
	chain := func(name, what string, change func([][]byte) [][]byte) Live {
		return forged(ClassStatement, name, what, func(f *Forgery) {
			s := f.sources()
			s.Chain = change(slices.Clone(s.Chain))
			f.Sent = &s
		})
	}
	return []Live{
		chain("certificate-missing", "There is no certificate.", func([][]byte) [][]byte { return nil }),
		chain("certificate-signature-changed", "The certificate was changed after it was signed.", func(c [][]byte) [][]byte {
			c[0] = bytes.Clone(c[0])
			c[0][len(c[0])-1] ^= 1
			return c
		}),
		chain("certificate-of-the-issuer", "The issuer's own certificate stands in place of the leaf.", func(c [][]byte) [][]byte { return c[1:] }),
		chain("certificate-order", "The certificates are in the wrong order.", func(c [][]byte) [][]byte { return [][]byte{c[1], c[0]} }),
		forged(ClassStatement, "certificate-self-made", "The certificate is by a CA of the attacker's own.", func(f *Forgery) {
			f.reissue(Must(tpmsim.NewCA(tpmsim.CAOptions{Now: func() time.Time { return f.w.Now }})), tpmsim.CertificateOptions{})
		}),
	}
}

// CertificateAttack has the right CA certify the right AK or EK in a wrong way, by the
// options of an AK's or EK's certificate.
type CertificateAttack = Attack[tpmsim.CertificateOptions]

func (w *Bench) certificateAttacks(road attest.Road) []Live {
	var out []Live
	for i, a := range w.certificates(road) {
		// The clock may have moved since this list was made.
		out = append(out, forged(ClassStatement, a.Live(), a.What, func(f *Forgery) { f.reissue(f.w.CA, f.w.certificates(road)[i].Change) }))
	}
	return out
}

func (w *Bench) certificates(road attest.Road) []CertificateAttack {
	certSign, none := x509.KeyUsageKeyAgreement|x509.KeyUsageCertSign, x509.KeyUsage(0)
	if road == attest.RoadAK {
		return append(w.AKCertificates(), CertificateAttack{Name: "certificate-without-a-machine",
			What: "The AK certificate names no machine, so its own key is the identity.", Change: tpmsim.CertificateOptions{NoSAN: true}})
	}
	return append(w.EKCertificates(), []CertificateAttack{
		{Name: "ext-key-usage-of-an-ak", What: "The EK certificate has the extended key usage of an AK's.",
			Change: tpmsim.CertificateOptions{ExtKeyUsage: []oid.OID{oid.TCGKpAIKCertificate}}},
		{Name: "key-usage-missing", What: "The EK certificate has no key usage.", Change: tpmsim.CertificateOptions{KeyUsage: &none}},
		{Name: "key-usage-of-a-ca", What: "The EK certificate may sign certificates.", Change: tpmsim.CertificateOptions{KeyUsage: &certSign}},
	}...)
}

// present has the answer be of another EK, and the challenge too.
func (f *Forgery) present(key crypto.PublicKey, s Sources) {
	f.Sent = &s
	f.B.MachineKey = Must(csr.SPKIHash(key))
}

// ekAttacks are what there is on the road of the EK alone.
func ekAttacks() []Live {
	weak := func(name, what string) Live {
		return bound(name, what, func(f *Forgery) {
			ek := f.w.WeakEKs[name]
			f.present(ek.Public, Sources{Chain: ek.Chain})
		})
	}
	return []Live{
		bound("challenge-of-the-ak-road", "The challenge was given on the road of the AK certificate, where its secret is no secret.", func(f *Forgery) {
			f.B.Road, f.B.AKName = message.RoadAK, nil
		}),
		bound("answer-of-another-ak", "The challenge's credential was made for another AK.", func(f *Forgery) { f.B.AKName = f.w.AKOther.Public.Name() }),
		bound("answer-of-another-ek", "The challenge's credential was made for another EK of the same TPM.", func(f *Forgery) {
			f.B.MachineKey = Must(csr.SPKIHash(f.w.Machines[MachineOne].Second.Public))
		}),
		bound("second-ek-of-one-tpm", "Everything is for another EK of machine-1's TPM, which is not the one that is expected.", func(f *Forgery) {
			second := f.w.Machines[MachineOne].Second
			f.present(second.Public, Sources{Chain: second.Chain})
		}),
		bound("two-sources-of-the-ek", "The EK certificate is machine-1's; an EK beside it, for which the challenge was given, is a stranger's.", func(f *Forgery) {
			stranger := f.w.Machines[MachineThree].EK.Public
			f.present(stranger, Sources{Chain: f.EK.Chain, Public: SPKI(stranger)})
		}),
		bound("ek-without-certificate", "The EK comes without a certificate, and is on no list.", func(f *Forgery) { f.Sent = &Sources{Public: SPKI(f.EK.Public)} }),
		bound("ak-certificate-as-ek-certificate", "An AK and its certificate stand in place of the EK's.", func(f *Forgery) {
			f.present(f.AK.Private.Public(), Sources{Chain: f.AK.Chain})
		}),
		weak(WeakROCA, "The expected EK is one of Infineon's whose private keys can be computed."),
		weak(WeakSize, "The expected EK has 1024 bits."),
		weak(WeakExponent, "The expected EK has the exponent 3, as no TPM makes them."),
	}
}

// credentialAttacks want the secret of a credential that is not for them.
func credentialAttacks() []Live {
	stolen := func(name, what string, change func(*Forgery) *thief) Live {
		return Live{name, ClassBinding, what, func(t *Try) (*csr.Request, error) {
			f := t.On(MachineOne, Join{})
			if err := t.follow(f, change(f)); err != nil {
				return nil, err
			}
			return f.Answer(), nil
		}}
	}
	// A stranger's AK stands in the place of machine-1's. The certificates stay.
	standIn := func(f *Forgery) *thief {
		stranger := f.w.Machines[MachineThree]
		*f = *f.w.Forge(stranger.AK, f.Join)
		return &thief{eks: []*SoftEK{stranger.EK}, names: [][]byte{stranger.AK.Public.Name()}}
	}
	return []Live{
		stolen("credential-of-another-machine", "A stranger with a TPM of its own shows machine-1's EK certificate.", standIn),
		stolen("credential-for-an-ek-beside-the-certificate", "A stranger shows machine-1's EK certificate, and its own EK beside it.", func(f *Forgery) *thief {
			t := standIn(f)
			f.Sent = &Sources{Chain: f.EK.Chain, Public: SPKI(t.eks[0].Public)}
			return t
		}),
		stolen("credential-for-an-ak-in-software", "Who has machine-1's TPM says of a key in software that it is an AK in it.", func(f *Forgery) *thief {
			key := ECKey(elliptic.P256(), "AK that is none", nil)
			// What the TPM would load of it, and so open a credential for.
			loaded := PublicArea(key.Public(), SoftwareAttributes|statement.AttributeSensitiveDataOrigin, schemeECDSA256)
			t := &thief{eks: []*SoftEK{f.EK}, names: [][]byte{f.AK.Public.Name(), loaded.Name()}}
			*f = *f.w.Forge(&SoftAK{Private: Repeatable{key}, Public: PublicArea(key.Public(), AKAttributes, schemeECDSA256)}, f.Join)
			return t
		}),
	}
}

// bootAttacks are machines that booted something else, or do not show what they booted,
// where the policy asks for PCRs 0 to 7 with the values of PCRValue.
func bootAttacks() []Live {
	quote := func(name, what string, change func(*Quoting)) Live {
		return forged(ClassStatement, name, what, onQuoting(change))
	}
	bad := bytes.Repeat([]byte{0xbd}, sha256.Size) // PCR 4 of a machine that booted something else
	measured := func(q *Quoting) (good statement.PCR) {
		good = q.PCRs[4]
		q.PCRs[4].Value = bad
		q.Digest()
		return good
	}
	half := func(q *Quoting) []statement.PCR { // PCR 4 is outside
		good := q.PCRs
		q.SelectPCRs(SelectionOf(BankSHA256, 0x0f, 0, 0))
		return good
	}
	return []Live{
		quote("quote-value-changed", "The machine booted something else; a good value stands in place of the quoted one.", func(q *Quoting) { q.PCRs[4] = measured(q) }),
		quote("quote-value-outside-the-selection", "The quote leaves the changed PCR out; a good value of it stands beside the quote.", func(q *Quoting) { q.PCRs = half(q) }),
		quote("quote-of-nothing", "The quote selects no PCR; good values stand beside it.", func(q *Quoting) {
			good := q.PCRs
			q.SelectPCRs()
			q.PCRs = good
		}),
		quote("quote-value-missing", "The value of a quoted PCR is not given.", func(q *Quoting) { q.PCRs = slices.Delete(q.PCRs, 4, 5) }),
		quote("quote-value-twice-good-last", "One PCR is listed twice: the quoted value, and after it a good one.", func(q *Quoting) { good := measured(q); q.PCRs = slices.Insert(q.PCRs, 5, good) }),
		quote("quote-value-twice-good-first", "One PCR is listed twice: a good value, and after it the quoted one.", func(q *Quoting) { good := measured(q); q.PCRs = slices.Insert(q.PCRs, 4, good) }),
		quote("quote-signature-sha1", "The quote is signed with SHA-1.", func(q *Quoting) { q.scheme.Hash = tpm2.TPMAlgSHA1 }),
		forged(ClassStatement, "quote-signature-truncated", "The quote's signature lacks its last byte.", func(f *Forgery) {
			f.onQuote = Replaced(1, func(e []byte) []byte { body := Content(e); return TLV(4, body[:len(body)-1]) })
		}),
	}
}

// unknownCritical is an extension that nobody knows.
var unknownCritical = []pkix.Extension{{Id: asn1.ObjectIdentifier{2, 999, 2}, Critical: true, Value: []byte{5, 0}}}

// AKCertificates have the issuer of AK certificates certify the right AK in a wrong way.
func (w *Bench) AKCertificates() []CertificateAttack {
	none, encipher := x509.KeyUsage(0), x509.KeyUsageKeyEncipherment
	both, certSign := x509.KeyUsageDigitalSignature|encipher, x509.KeyUsageDigitalSignature|x509.KeyUsageCertSign
	return []CertificateAttack{
		{Name: "certificate-expired", What: "The AK certificate ended an hour ago.", Expect: "certificate-expired", Change: tpmsim.CertificateOptions{NotBefore: w.Now.Add(-2 * time.Hour), NotAfter: w.Now.Add(-time.Hour)}},
		{Name: "certificate-expired-by-a-second", What: "The AK certificate ended a second ago.", Expect: "certificate-expired", Change: tpmsim.CertificateOptions{NotBefore: w.Now.Add(-2 * time.Hour), NotAfter: w.Now.Add(-time.Second)}},
		{Name: "certificate-not-yet-valid", What: "The AK certificate begins in a second.", Expect: "certificate-not-yet-valid", Change: tpmsim.CertificateOptions{NotBefore: w.Now.Add(time.Second), NotAfter: w.Now.Add(time.Hour)}},
		{Name: "ca-certificate-as-ak-certificate", What: "The AK certificate says that it is a CA's.", Expect: "certificate-is-ca", Change: tpmsim.CertificateOptions{IsCA: true}},
		{Name: "unknown-critical-extension", live: "certificate-unknown-critical-extension", What: "The AK certificate has a critical extension that nobody knows.", Expect: "certificate-extension", Change: tpmsim.CertificateOptions{Extra: unknownCritical}},
		{Name: "ext-key-usage-missing", What: "The AK certificate has no extended key usage, which the issuer's profile asks for.", Expect: "certificate-ext-key-usage", Change: tpmsim.CertificateOptions{ExtKeyUsage: []oid.OID{}}},
		{Name: "ext-key-usage-of-an-ek", What: "The AK certificate has the extended key usage of EK certificates.", Expect: "certificate-ext-key-usage", Change: tpmsim.CertificateOptions{ExtKeyUsage: []oid.OID{oid.TCGKpEKCertificate}}},
		{Name: "ext-key-usage-of-ak-and-ek", What: "The AK certificate has the extended key usages of AK and EK certificates.", Expect: "certificate-ext-key-usage", Change: tpmsim.CertificateOptions{ExtKeyUsage: []oid.OID{oid.TCGKpAIKCertificate, oid.TCGKpEKCertificate}}},
		{Name: "ext-key-usage-any", What: "The AK certificate has anyExtendedKeyUsage and not the AK's.", Expect: "certificate-ext-key-usage", Change: tpmsim.CertificateOptions{ExtKeyUsage: []oid.OID{oid.AnyExtendedKeyUsage}}},
		{Name: "key-usage-missing", What: "The AK certificate has no key usage.", Expect: "certificate-key-usage", Change: tpmsim.CertificateOptions{KeyUsage: &none}},
		{Name: "key-usage-of-an-ek", What: "The AK certificate has the key usage of an RSA EK's.", Expect: "certificate-key-usage", Change: tpmsim.CertificateOptions{KeyUsage: &encipher}},
		{Name: "key-usage-of-ak-and-ek", What: "The AK certificate has the key usages of an AK and of an RSA EK.", Expect: "certificate-key-usage", Change: tpmsim.CertificateOptions{KeyUsage: &both}},
		{Name: "key-usage-of-a-ca", What: "The AK certificate may sign certificates.", Expect: "certificate-key-usage", Change: tpmsim.CertificateOptions{KeyUsage: &certSign}},
		{Name: "google-certificate-under-the-tcg-profile", What: "The AK certificate has the form of another issuer, without extended key usage.", Expect: "certificate-ext-key-usage", Change: tpmsim.CertificateOptions{Style: tpmsim.StyleGoogle}},
	}
}

// EKCertificates have a vendor certify the right EK in a wrong way.
func (w *Bench) EKCertificates() []CertificateAttack {
	sign, none := x509.KeyUsageDigitalSignature, []oid.OID{}
	return []CertificateAttack{

		{Name: "ek-certificate-expired", live: "certificate-expired", What: "The EK certificate ended a second ago.", Expect: "certificate-expired", Change: tpmsim.CertificateOptions{NotAfter: w.Now.Add(-time.Second)}},
		{Name: "ek-certificate-not-yet-valid", live: "certificate-not-yet-valid", What: "The EK certificate begins in a second.", Expect: "certificate-not-yet-valid", Change: tpmsim.CertificateOptions{NotBefore: w.Now.Add(time.Second)}},
		{Name: "ek-certificate-without-ext-key-usage", live: "ext-key-usage-missing", What: "The EK certificate has no extended key usage.", Expect: "certificate-ext-key-usage", Change: tpmsim.CertificateOptions{ExtKeyUsage: none}},
		{Name: "ek-certificate-for-platforms-too", What: "The extended key usage of the EK certificate lists a platform certificate's too.", Expect: "certificate-ext-key-usage", Change: tpmsim.CertificateOptions{ExtKeyUsage: []oid.OID{oid.TCGKpEKCertificate, oid.TCGKpPlatformCertificate}}},
		{Name: "ek-certificate-with-the-key-usage-of-an-ak", live: "key-usage-of-an-ak", What: "The key usage of the EK certificate is digitalSignature.", Expect: "certificate-key-usage", Change: tpmsim.CertificateOptions{KeyUsage: &sign}},
		{Name: "ek-certificate-is-ca", live: "ca-certificate-as-ek-certificate", What: "The EK certificate is a CA's.", Expect: "certificate-is-ca", Change: tpmsim.CertificateOptions{IsCA: true}},
		{Name: "ek-certificate-without-directory-name", live: "certificate-without-a-directory-name", What: "The EK certificate names no manufacturer, model and version.", Expect: "certificate-subject-alt-name", Change: tpmsim.CertificateOptions{NoSAN: true}},
		{Name: "ek-certificate-without-basic-constraints", What: "The EK certificate has no basic constraints.", Expect: "certificate-extension", Change: tpmsim.CertificateOptions{Edit: func(c *x509.Certificate) { c.BasicConstraintsValid = false }}},
		{Name: "ek-certificate-with-an-unknown-critical-extension", live: "certificate-unknown-critical-extension", What: "The EK certificate has a critical extension that nobody knows.", Expect: "certificate-extension", Change: tpmsim.CertificateOptions{Extra: unknownCritical}},
	}
}
