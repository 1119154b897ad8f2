package attesttest

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"time"

	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/oid"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// keyAttacks change the public area of the AK that the node sends. On the road of the
// AK certificate it is a claim, which must not contradict what an AK is.
func keyAttacks() []Attack {
	ak := func(name, what string, change func(*attest.Public)) Attack {
		return statement(name, what, func(f *forgery) { f.changeAK(change) })
	}
	set := func(a attest.Attributes) func(*attest.Public) {
		return func(p *attest.Public) { p.Attributes |= a }
	}
	clearing := func(a attest.Attributes) func(*attest.Public) {
		return func(p *attest.Public) { p.Attributes &^= a }
	}
	return []Attack{
		ak("ak-not-restricted", "The AK is not restricted, so it signs whatever it is given.", clearing(attest.AttributeRestricted)),
		ak("ak-not-fixed", "The AK can leave its TPM.", clearing(attest.AttributeFixedTPM|attest.AttributeFixedParent)),
		ak("ak-made-elsewhere", "The AK was not made by its TPM.", clearing(attest.AttributeSensitiveDataOrigin)),
		ak("ak-decrypts", "The AK can decrypt.", set(attest.AttributeDecrypt)),
		ak("ak-x509sign", "The AK can sign certificates.", set(attest.AttributeX509Sign)),
		ak("ak-null-scheme", "The AK has no scheme of its own.", func(p *attest.Public) { p.Scheme = noScheme }),
		ak("ak-sha1-name", "The AK's Name is a SHA-1 digest.", func(p *attest.Public) { p.NameAlg = tpm2.TPMAlgSHA1 }),
		statement("ak-public-of-another-ak", "The AK public area is another machine's.", func(f *forgery) { f.akPublic = f.world.machines[MachineTwo].public.Raw }),
		statement("certificate-of-another-machines-ak", "The AK certificate is that of machine-1, the AK that of another machine.", func(f *forgery) {
			f.chain = f.world.machines[MachineTwo].chain
		}),
	}
}

// certificateAttacks have the wrong CA certify the right AK, or the right one in a
// wrong way.
func certificateAttacks() []Attack {
	leaf := func(name, what string, o tpmsim.AKCertificateOptions) Attack {
		return statement(name, what, func(f *forgery) {
			if o.Style == 0 {
				o.OtherName = machineName(MachineOne)
			}
			f.chain, _ = certify(f.world.issuer, f.machine.key.Public(), &o)
		})
	}
	relative := func(name, what string, from, to time.Duration) Attack {
		return statement(name, what, func(f *forgery) {
			now := f.world.Now()
			f.chain, _ = certify(f.world.issuer, f.machine.key.Public(), &tpmsim.AKCertificateOptions{
				OtherName: machineName(MachineOne), NotBefore: now.Add(from), NotAfter: now.Add(to)})
		})
	}
	none, certSign := x509.KeyUsage(0), x509.KeyUsageDigitalSignature|x509.KeyUsageCertSign
	unknown := pkix.Extension{Id: asn1.ObjectIdentifier{2, 999, 2}, Critical: true, Value: []byte{5, 0}}
	return []Attack{
		statement("certificate-missing", "There is no AK certificate.", func(f *forgery) { f.chain = nil }),
		statement("certificate-self-made", "The AK certificate is by a CA of the attacker's own.", func(f *forgery) {
			f.chain = nil
			if ca, err := tpmsim.NewCA(&tpmsim.CAOptions{Now: f.world.Now}); err == nil {
				f.chain, _ = certify(ca, f.machine.key.Public(), &tpmsim.AKCertificateOptions{OtherName: machineName(MachineOne)})
			}
		}),
		statement("certificate-signature-changed", "The AK certificate was changed after it was signed.", func(f *forgery) {
			broken := append([]byte(nil), f.chain[0]...)
			broken[len(broken)-1] ^= 1
			f.chain = [][]byte{broken, f.chain[1]}
		}),
		statement("certificate-of-the-issuer", "The issuer's own certificate stands in place of the AK's.", func(f *forgery) { f.chain = f.chain[1:] }),
		statement("certificate-order", "The certificates are in the wrong order.", func(f *forgery) { f.chain = [][]byte{f.chain[1], f.chain[0]} }),
		relative("certificate-expired", "The AK certificate has ended.", -2*time.Hour, -time.Second),
		relative("certificate-not-yet-valid", "The AK certificate has not begun.", time.Second, time.Hour),
		leaf("ca-certificate-as-ak-certificate", "The AK certificate is a CA's.", tpmsim.AKCertificateOptions{IsCA: true}),
		leaf("certificate-unknown-critical-extension", "The AK certificate has a critical extension that nobody knows.", tpmsim.AKCertificateOptions{Extra: []pkix.Extension{unknown}}),
		leaf("ext-key-usage-of-an-ek", "The AK certificate has the extended key usage of an EK's.", tpmsim.AKCertificateOptions{ExtKeyUsage: []oid.OID{oid.TCGKpEKCertificate}}),
		leaf("ext-key-usage-missing", "The AK certificate has no extended key usage.", tpmsim.AKCertificateOptions{ExtKeyUsage: []oid.OID{}}),
		leaf("key-usage-missing", "The AK certificate has no key usage.", tpmsim.AKCertificateOptions{KeyUsage: &none}),
		leaf("key-usage-of-a-ca", "The AK certificate may sign certificates.", tpmsim.AKCertificateOptions{KeyUsage: &certSign}),
		leaf("certificate-without-a-machine", "The AK certificate names no machine, so its own key is the identity.", tpmsim.AKCertificateOptions{NoSAN: true, Style: tpmsim.StyleTCG}),
	}
}
