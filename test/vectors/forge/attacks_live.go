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
	"github.com/nodeattest/nodeattest/internal/testkit/softak"
	"github.com/nodeattest/nodeattest/oid"
	"github.com/nodeattest/nodeattest/refusal"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// liveAlone are the attacks that are in no vector, or are there in another form.
func (w *Bench) liveAlone(road attest.Road) []Live {
	out := slices.Concat(lived(ClassBinding, "", challengeAttacks(), same),
		lived(ClassStatement, "", append(signedAttacks(), chainAttacks()...), same), w.certificateAttacks(road))
	if road == attest.RoadEK {
		return slices.Concat(out, lived(ClassBinding, "", ekAttacks(), same), credentialAttacks())
	}
	return append(out, lived(ClassBinding, "", listed("roads, live alone", map[string]func(*Forgery){
		"answer-on-another-road": bound(func(f *Forgery) { f.B.Road, f.B.AKName = message.RoadEK, f.AK.Public.Name() }),
	}), same)...)
}

// bound is an answer to a challenge that was issued for something else.
func bound(change func(*Forgery)) func(*Forgery) {
	return func(f *Forgery) { change(f); f.derive() }
}

func challengeAttacks() []Forged {
	return listed("challenges, live alone", map[string]func(*Forgery){
		"answer-of-another-machine-key": bound(func(f *Forgery) { f.B.MachineKey[0]++ }),
		"answer-for-another-request":    bound(func(f *Forgery) { f.B.RequestHash[0]++ }),
		"challenge-secret-made-up":      bound(func(f *Forgery) { f.secret = make([]byte, message.SecretSize) }),
		"challenge-window-moved": func(f *Forgery) {
			f.B.IssuedAt += 60
			f.B.NotAfter += 60
		},
		"challenge-window-reversed": bound(func(f *Forgery) {
			created := f.w.AnsweredAt().Unix()
			f.B.IssuedAt, f.B.NotAfter = created+30, created
		}),
		"answer-late": bound(func(f *Forgery) { f.B.NotAfter = f.w.AnsweredAt().Unix() - 1 }),
		"answer-early": bound(func(f *Forgery) {
			f.B.IssuedAt = f.w.AnsweredAt().Unix() + 120
			f.B.NotAfter = f.B.IssuedAt + 600
		}),
		"answer-old": bound(func(f *Forgery) {
			f.filed = f.w.Now.Add(-2 * time.Hour)
			f.B.IssuedAt, f.B.NotAfter = f.filed.Unix()-30, f.filed.Unix()+570
		}),
	})
}

// signedAttacks are about the AK and its signature.
func signedAttacks() []Forged {
	return listed("AKs and signatures, live alone", map[string]func(*Forgery){
		"ak-not-fixed": akWith(softak.AKAttributes &^ (statement.AttributeFixedTPM | statement.AttributeFixedParent)),
		"certificate-of-another-machines-ak": func(f *Forgery) {
			two := f.w.Machines[MachineTwo]
			f.Sent = &Sources{Chain: two.AK.Chain}
			if f.EK != nil {
				f.Sent.Chain = two.EK.Chain
			}
		},
		"ak-public-of-another-ak": func(f *Forgery) { f.AKPublic = f.w.AKOther.Public.Raw },
		"two-certify-statements":  func(f *Forgery) { f.onParts = evidence(Replaced(0, doubled)) },
		"signature-sha1":          func(f *Forgery) { f.Scheme.Hash = tpm2.TPMAlgSHA1 },
		"signature-of-zeros":      rs(func(s *statement.Signature) { s.R, s.S = make([]byte, 32), make([]byte, 32) }),
		"signature-r-over-order":  rs(func(s *statement.Signature) { s.R = bytes.Repeat([]byte{0xff}, 32) }),
	})
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
func chainAttacks() []Forged {
	chain := func(change func([][]byte) [][]byte) func(*Forgery) {
		return func(f *Forgery) {
			s := f.sources()
			s.Chain = change(slices.Clone(s.Chain))
			f.Sent = &s
		}
	}
	return listed("chains, live alone", map[string]func(*Forgery){
		"certificate-missing": chain(func([][]byte) [][]byte { return nil }),
		"certificate-signature-changed": chain(func(c [][]byte) [][]byte {
			c[0] = bytes.Clone(c[0])
			c[0][len(c[0])-1] ^= 1
			return c
		}),
		"certificate-of-the-issuer": chain(func(c [][]byte) [][]byte { return c[1:] }),
		"certificate-order":         chain(func(c [][]byte) [][]byte { return [][]byte{c[1], c[0]} }),
		"certificate-self-made": func(f *Forgery) {
			f.reissue(Must(tpmsim.NewCA(tpmsim.CAOptions{Now: func() time.Time { return f.w.Now }})), tpmsim.CertificateOptions{})
		},
	})
}

// CertificateAttack has the right CA certify the right AK or EK in a wrong way, through the
// options of an AK or EK certificate.
type CertificateAttack = Attack[tpmsim.CertificateOptions]

func (w *Bench) certificateAttacks(road attest.Road) []Live {
	var out []Live
	for i, a := range w.certificates(road) {
		// The clock may have moved since this list was made.
		out = append(out, forged(ClassStatement, a.Live(), a.What, func(f *Forgery) { f.reissue(f.w.CA, f.w.certificates(road)[i].Change) }, a.Checks()...))
	}
	return out
}

func (w *Bench) certificates(road attest.Road) []CertificateAttack {
	certSign, none := x509.KeyUsageKeyAgreement|x509.KeyUsageCertSign, x509.KeyUsage(0)
	if road == attest.RoadAK {
		return append(w.AKCertificates(), CertificateAttack{Name: "certificate-without-a-machine", Expect: "not-a-member",
			What: "The AK certificate names no machine, so its own key is the identity.", Change: tpmsim.CertificateOptions{NoSAN: true}})
	}
	return append(w.EKCertificates(), listed("EK certificates, live alone", map[string]tpmsim.CertificateOptions{
		"ext-key-usage-of-an-ak": tpmsim.CertificateOptions{ExtKeyUsage: []oid.OID{oid.TCGKpAIKCertificate}},
		"key-usage-missing":      tpmsim.CertificateOptions{KeyUsage: &none},
		"key-usage-of-a-ca":      tpmsim.CertificateOptions{KeyUsage: &certSign},
	})...)
}

// present gives the answer, and the challenge too, another EK.
func (f *Forgery) present(key crypto.PublicKey, s Sources) {
	f.Sent = &s
	f.B.MachineKey = Must(csr.SPKIHash(key))
}

// ekAttacks are the attacks that exist only on the road of the EK.
func ekAttacks() []Forged {
	weak := func(name string) func(*Forgery) {
		return bound(func(f *Forgery) {
			ek := f.w.WeakEKs[name]
			f.present(ek.Public, Sources{Chain: ek.Chain})
		})
	}
	return listed("EKs, live alone", map[string]func(*Forgery){
		"challenge-of-the-ak-road": bound(func(f *Forgery) { f.B.Road, f.B.AKName = message.RoadAK, nil }),
		"answer-of-another-ak":     bound(func(f *Forgery) { f.B.AKName = f.w.AKOther.Public.Name() }),
		"answer-of-another-ek":     bound(func(f *Forgery) { f.B.MachineKey = Must(csr.SPKIHash(f.w.Machines[MachineOne].Second.Public)) }),
		"second-ek-of-one-tpm": bound(func(f *Forgery) {
			second := f.w.Machines[MachineOne].Second
			f.present(second.Public, Sources{Chain: second.Chain})
		}),
		"two-sources-of-the-ek": bound(func(f *Forgery) {
			stranger := f.w.Machines[MachineThree].EK.Public
			f.present(stranger, Sources{Chain: f.EK.Chain, Public: SPKI(stranger)})
		}),
		"ek-without-certificate":           bound(func(f *Forgery) { f.Sent = &Sources{Public: SPKI(f.EK.Public)} }),
		"ak-certificate-as-ek-certificate": bound(func(f *Forgery) { f.present(f.AK.Private.Public(), Sources{Chain: f.AK.Chain}) }),
		WeakROCA:                           weak(WeakROCA),
		WeakSize:                           weak(WeakSize),
		WeakExponent:                       weak(WeakExponent),
	})
}

// credentialAttacks try to get the secret of a credential that is not for them.
func credentialAttacks() (out []Live) {
	// A stranger's AK takes the place of machine-1's. The certificates stay.
	standIn := func(f *Forgery) *thief {
		stranger := f.w.Machines[MachineThree]
		*f = *f.w.Forge(stranger.AK, f.Join)
		return &thief{eks: []*SoftEK{stranger.EK}, names: [][]byte{stranger.AK.Public.Name()}}
	}
	for _, a := range listed("credentials, live alone", map[string]func(*Forgery) *thief{
		"credential-of-another-machine": standIn,
		"credential-for-an-ek-beside-the-certificate": func(f *Forgery) *thief {
			t := standIn(f)
			f.Sent = &Sources{Chain: f.EK.Chain, Public: SPKI(t.eks[0].Public)}
			return t
		},
		"credential-for-an-ak-in-software": func(f *Forgery) *thief {
			key := ECKey(elliptic.P256(), "AK that is none", nil)
			// The part that the TPM would load, and therefore open a credential for.
			loaded := softak.PublicArea(key.Public(), SoftwareAttributes|statement.AttributeSensitiveDataOrigin, softak.ECDSA)
			t := &thief{eks: []*SoftEK{f.EK}, names: [][]byte{f.AK.Public.Name(), loaded.Name()}}
			*f = *f.w.Forge(&SoftAK{AK: *softak.NewAK(Repeatable{key}, softak.ECDSA)}, f.Join)
			return t
		},
	}) {
		out = append(out, Live{a.Name, ClassBinding, a.What, func(t *Try) (*csr.Request, error) {
			f := t.On(MachineOne, Join{})
			if err := t.follow(f, a.Change(f)); err != nil {
				return nil, err
			}
			return f.Answer(), nil
		}, a.Checks(), []refusal.Check{CheckShut, "ek-sources"}})
	}
	return out
}

// bootAttacks are machines that booted something else, or do not prove their boot, when
// the policy requires PCRs 0 to 7 with the values of PCRValue.
func bootAttacks() []Forged {
	bad := bytes.Repeat([]byte{0xbd}, sha256.Size) // PCR 4 of a machine that booted something else
	measured := func(q *Quoting) (good statement.PCR) {
		good = q.PCRs[4]
		q.PCRs[4].Value = bad
		q.Digest()
		return good
	}
	half := func(q *Quoting) []statement.PCR { // without PCR 4
		good := q.PCRs
		q.SelectPCRs(SelectionOf(BankSHA256, 0x0f, 0, 0))
		return good
	}
	return listed("boots, live alone", map[string]func(*Forgery){
		"quote-value-changed":               onQuoting(func(q *Quoting) { q.PCRs[4] = measured(q) }),
		"quote-value-outside-the-selection": onQuoting(func(q *Quoting) { q.PCRs = half(q) }),
		"quote-of-nothing": onQuoting(func(q *Quoting) {
			good := q.PCRs
			q.SelectPCRs()
			q.PCRs = good
		}),
		"quote-value-missing":          onQuoting(func(q *Quoting) { q.PCRs = slices.Delete(q.PCRs, 4, 5) }),
		"quote-value-twice-good-last":  onQuoting(func(q *Quoting) { good := measured(q); q.PCRs = slices.Insert(q.PCRs, 5, good) }),
		"quote-value-twice-good-first": onQuoting(func(q *Quoting) { good := measured(q); q.PCRs = slices.Insert(q.PCRs, 4, good) }),
		"quote-signature-sha1":         onQuoting(func(q *Quoting) { q.Scheme.Hash = tpm2.TPMAlgSHA1 }),
		"quote-signature-truncated": func(f *Forgery) {
			f.onQuote = Replaced(1, func(e []byte) []byte { body := Content(e); return TLV(4, body[:len(body)-1]) })
		},
	})
}

// unknownCritical is an unknown critical extension.
var unknownCritical = []pkix.Extension{{Id: asn1.ObjectIdentifier{2, 999, 2}, Critical: true, Value: []byte{5, 0}}}

// AKCertificates have the issuer of AK certificates certify the right AK in a wrong way.
func (w *Bench) AKCertificates() []CertificateAttack {
	none, encipher := x509.KeyUsage(0), x509.KeyUsageKeyEncipherment
	both, certSign := x509.KeyUsageDigitalSignature|encipher, x509.KeyUsageDigitalSignature|x509.KeyUsageCertSign
	return listed("AK certificates", map[string]tpmsim.CertificateOptions{
		"certificate-expired":                      tpmsim.CertificateOptions{NotBefore: w.Now.Add(-2 * time.Hour), NotAfter: w.Now.Add(-time.Hour)},
		"certificate-expired-by-a-second":          tpmsim.CertificateOptions{NotBefore: w.Now.Add(-2 * time.Hour), NotAfter: w.Now.Add(-time.Second)},
		"certificate-not-yet-valid":                tpmsim.CertificateOptions{NotBefore: w.Now.Add(time.Second), NotAfter: w.Now.Add(time.Hour)},
		"ca-certificate-as-ak-certificate":         tpmsim.CertificateOptions{IsCA: true},
		"unknown-critical-extension":               tpmsim.CertificateOptions{Extra: unknownCritical},
		"ext-key-usage-missing":                    tpmsim.CertificateOptions{ExtKeyUsage: []oid.OID{}},
		"ext-key-usage-of-an-ek":                   tpmsim.CertificateOptions{ExtKeyUsage: []oid.OID{oid.TCGKpEKCertificate}},
		"ext-key-usage-of-ak-and-ek":               tpmsim.CertificateOptions{ExtKeyUsage: []oid.OID{oid.TCGKpAIKCertificate, oid.TCGKpEKCertificate}},
		"ext-key-usage-any":                        tpmsim.CertificateOptions{ExtKeyUsage: []oid.OID{oid.AnyExtendedKeyUsage}},
		"key-usage-missing":                        tpmsim.CertificateOptions{KeyUsage: &none},
		"key-usage-of-an-ek":                       tpmsim.CertificateOptions{KeyUsage: &encipher},
		"key-usage-of-ak-and-ek":                   tpmsim.CertificateOptions{KeyUsage: &both},
		"key-usage-of-a-ca":                        tpmsim.CertificateOptions{KeyUsage: &certSign},
		"google-certificate-under-the-tcg-profile": tpmsim.CertificateOptions{Style: tpmsim.StyleGoogle},
	})
}

// EKCertificates have a vendor certify the right EK in a wrong way.
func (w *Bench) EKCertificates() []CertificateAttack {
	sign, none := x509.KeyUsageDigitalSignature, []oid.OID{}
	return listed("EK certificates", map[string]tpmsim.CertificateOptions{

		"ek-certificate-expired":                            tpmsim.CertificateOptions{NotAfter: w.Now.Add(-time.Second)},
		"ek-certificate-not-yet-valid":                      tpmsim.CertificateOptions{NotBefore: w.Now.Add(time.Second)},
		"ek-certificate-without-ext-key-usage":              tpmsim.CertificateOptions{ExtKeyUsage: none},
		"ek-certificate-for-platforms-too":                  tpmsim.CertificateOptions{ExtKeyUsage: []oid.OID{oid.TCGKpEKCertificate, oid.TCGKpPlatformCertificate}},
		"ek-certificate-with-the-key-usage-of-an-ak":        tpmsim.CertificateOptions{KeyUsage: &sign},
		"ek-certificate-is-ca":                              tpmsim.CertificateOptions{IsCA: true},
		"ek-certificate-without-directory-name":             tpmsim.CertificateOptions{NoSAN: true},
		"ek-certificate-without-basic-constraints":          tpmsim.CertificateOptions{Edit: func(c *x509.Certificate) { c.BasicConstraintsValid = false }},
		"ek-certificate-with-an-unknown-critical-extension": tpmsim.CertificateOptions{Extra: unknownCritical},
	})
}
