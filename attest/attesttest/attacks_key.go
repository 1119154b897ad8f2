package attesttest

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"time"

	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/tpm"
	"github.com/nodeattest/nodeattest/oid"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// keyAttacks change the public area of the AK that the node sends. On the road of the
// AK certificate it is a claim, which must not contradict what an AK is; on that of the
// EK the challenge was given for this very area.
func keyAttacks() []Attack {
	ak := func(name, what string, change func(*tpm.Public)) Attack {
		return statement(name, what, func(f *forgery) { f.changeAK(change) })
	}
	set := func(a tpm.Attributes) func(*tpm.Public) {
		return func(p *tpm.Public) { p.Attributes |= a }
	}
	clearing := func(a tpm.Attributes) func(*tpm.Public) {
		return func(p *tpm.Public) { p.Attributes &^= a }
	}
	return []Attack{
		ak("ak-not-restricted", "The AK is not restricted, so it signs whatever it is given.", clearing(tpm.AttributeRestricted)),
		ak("ak-not-fixed", "The AK can leave its TPM.", clearing(tpm.AttributeFixedTPM|tpm.AttributeFixedParent)),
		ak("ak-made-elsewhere", "The AK was not made by its TPM.", clearing(tpm.AttributeSensitiveDataOrigin)),
		ak("ak-decrypts", "The AK can decrypt.", set(tpm.AttributeDecrypt)),
		ak("ak-x509sign", "The AK can sign certificates.", set(tpm.AttributeX509Sign)),
		ak("ak-null-scheme", "The AK has no scheme of its own.", func(p *tpm.Public) { p.Scheme = noScheme }),
		ak("ak-sha1-name", "The AK's Name is a SHA-1 digest.", func(p *tpm.Public) { p.NameAlg = tpm2.TPMAlgSHA1 }),
		statement("ak-public-of-another-ak", "The AK public area is another machine's.", func(f *forgery) { f.akPublic = f.world.machines[MachineTwo].public.Raw }),
		statement("certificate-of-another-machines-ak", "The certificate, of the AK or the EK, is another machine's.", func(f *forgery) {
			f.chain = f.world.machines[MachineTwo].certificates(f.road)
		}),
	}
}

// reissue has an issuer certify the key that carries the trust.
func (f *forgery) reissue(issuer *tpmsim.CA, o tpmsim.AKCertificateOptions) {
	if f.road == attest.RoadEK {
		ek := tpmsim.EKCertificateOptions(o)
		f.chain, f.err = certifyEK(issuer, f.machine.ek.Public(), &ek)
		return
	}
	if !o.NoSAN {
		o.OtherName = machineName(MachineOne)
	}
	f.chain, f.err = certify(issuer, f.machine.key.Public(), &o)
}

// certificateAttacks have the wrong CA certify the right AK or EK, or the right one in
// a wrong way.
func certificateAttacks(road attest.Road) []Attack {
	leaf := func(name, what string, o tpmsim.AKCertificateOptions) Attack {
		return statement(name, what, func(f *forgery) { f.reissue(f.world.issuer, o) })
	}
	relative := func(name, what string, from, to time.Duration) Attack {
		return statement(name, what, func(f *forgery) {
			now := f.world.Now()
			f.reissue(f.world.issuer, tpmsim.AKCertificateOptions{NotBefore: now.Add(from), NotAfter: now.Add(to)})
		})
	}
	none := x509.KeyUsage(0)
	unknown := pkix.Extension{Id: asn1.ObjectIdentifier{2, 999, 2}, Critical: true, Value: []byte{5, 0}}
	return append(usageAttacks(road, leaf),
		statement("certificate-missing", "There is no certificate.", func(f *forgery) { f.chain = nil }),
		statement("certificate-self-made", "The certificate is by a CA of the attacker's own.", func(f *forgery) {
			ca, err := tpmsim.NewCA(&tpmsim.CAOptions{Now: f.world.Now})
			if f.err = err; err == nil {
				f.reissue(ca, tpmsim.AKCertificateOptions{})
			}
		}),
		statement("certificate-signature-changed", "The certificate was changed after it was signed.", func(f *forgery) {
			broken := append([]byte(nil), f.chain[0]...)
			broken[len(broken)-1] ^= 1
			f.chain = [][]byte{broken, f.chain[1]}
		}),
		statement("certificate-of-the-issuer", "The issuer's own certificate stands in place of the leaf.", func(f *forgery) { f.chain = f.chain[1:] }),
		statement("certificate-order", "The certificates are in the wrong order.", func(f *forgery) { f.chain = [][]byte{f.chain[1], f.chain[0]} }),
		relative("certificate-expired", "The certificate has ended.", -2*time.Hour, -time.Second),
		relative("certificate-not-yet-valid", "The certificate has not begun.", time.Second, time.Hour),
		leaf("certificate-unknown-critical-extension", "The certificate has a critical extension that nobody knows.", tpmsim.AKCertificateOptions{Extra: []pkix.Extension{unknown}}),
		leaf("ext-key-usage-missing", "The certificate has no extended key usage.", tpmsim.AKCertificateOptions{ExtKeyUsage: []oid.OID{}}),
		leaf("key-usage-missing", "The certificate has no key usage.", tpmsim.AKCertificateOptions{KeyUsage: &none}),
	)
}

// usageAttacks are certificates for something else than the road's key.
func usageAttacks(road attest.Road, leaf func(name, what string, o tpmsim.AKCertificateOptions) Attack) []Attack {
	signs := x509.KeyUsageDigitalSignature
	if road == attest.RoadEK {
		certSign := x509.KeyUsageKeyAgreement | x509.KeyUsageCertSign
		return []Attack{
			leaf("ca-certificate-as-ek-certificate", "The EK certificate is a CA's.", tpmsim.AKCertificateOptions{IsCA: true}),
			leaf("ext-key-usage-of-an-ak", "The EK certificate has the extended key usage of an AK's.", tpmsim.AKCertificateOptions{ExtKeyUsage: []oid.OID{oid.TCGKpAIKCertificate}}),
			leaf("key-usage-of-an-ak", "The EK certificate is for signatures.", tpmsim.AKCertificateOptions{KeyUsage: &signs}),
			leaf("key-usage-of-a-ca", "The EK certificate may sign certificates.", tpmsim.AKCertificateOptions{KeyUsage: &certSign}),
			leaf("certificate-without-a-directory-name", "The EK certificate does not say what TPM it is of.", tpmsim.AKCertificateOptions{NoSAN: true}),
		}
	}
	certSign := signs | x509.KeyUsageCertSign
	return []Attack{
		leaf("ca-certificate-as-ak-certificate", "The AK certificate is a CA's.", tpmsim.AKCertificateOptions{IsCA: true}),
		leaf("ext-key-usage-of-an-ek", "The AK certificate has the extended key usage of an EK's.", tpmsim.AKCertificateOptions{ExtKeyUsage: []oid.OID{oid.TCGKpEKCertificate}}),
		leaf("key-usage-of-a-ca", "The AK certificate may sign certificates.", tpmsim.AKCertificateOptions{KeyUsage: &certSign}),
		leaf("certificate-without-a-machine", "The AK certificate names no machine, so its own key is the identity.", tpmsim.AKCertificateOptions{NoSAN: true, Style: tpmsim.StyleTCG}),
	}
}
