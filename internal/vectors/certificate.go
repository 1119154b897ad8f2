package main

import (
	"bytes"
	"crypto/x509"
	"crypto/x509/pkix"
	"slices"
	"time"

	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/forge"
	"github.com/nodeattest/nodeattest/internal/vector"
	"github.com/nodeattest/nodeattest/oid"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// refuseChain has the AK's certificates be these, in an answer and in a hello.
func (w *world) refuseChain(name, what, expect string, env *vector.Environment, chain ...[]byte) {
	for suffix, good := range map[string]*csr.Request{"": w.good, "-in-hello": w.goodHello} {
		p := forge.TakeApart(good)
		p.Evidence.Certificates = chain
		w.refuse(name+suffix, what, expect, p, env)
	}
}

func (w *world) certificates() {
	w.chainAttacks()
	w.leafAttacks()
	w.chainCosts()
}

// chainAttacks change which certificates are sent, all of them good ones.
func (w *world) chainAttacks() {
	ca, good := w.CA, w.tpm.AKCertificate(tpmsim.RSA2048).Raw
	middle := ca.AKIntermediate().Raw
	key := w.tpm.AKPublic(tpmsim.RSA2048)
	foreign := forge.Must(w.Stranger.IssueAK(key, tpmsim.AKCertificateOptions{OtherName: forge.MachineName("machine-1")}))
	old := forge.Must(tpmsim.NewCA(tpmsim.CAOptions{Name: "old", Seed: []byte(forge.Seed + " old"), Now: func() time.Time { return w.Now.AddDate(-60, 0, 0) }}))
	late := forge.Must(old.IssueAK(key, tpmsim.AKCertificateOptions{OtherName: forge.MachineName("machine-1"), NotBefore: w.Now.AddDate(0, -1, 0), NotAfter: w.Now.AddDate(1, 0, 0)}))
	broken := bytes.Clone(good)
	broken[len(broken)-1] ^= 1
	w.refuseChain("certificate-missing", "No certificate is sent.", "certificate-missing", nil)
	w.refuseChain("certificate-not-a-certificate", "The AK certificate is an empty SEQUENCE.", "certificate-encoding", nil,
		[]byte{0x30, 0}, middle)
	w.refuseChain("certificate-signature-changed", "The last byte of the AK certificate's signature was changed.", "certificate-chain", nil,
		broken, middle)
	w.refuseChain("certificate-of-another-ak", "The AK certificate is that of another AK of the same machine.", "ak-mismatch", nil,
		w.AKP256.Chain...)
	w.refuseChain("certificate-of-another-machines-ak", "The AK certificate is that of another machine's AK.", "ak-mismatch", nil,
		w.AKOther.Chain...)
	w.refuseChain("ek-certificate-of-the-tpm", "The certificate is that of the TPM's EK.", "ak-mismatch", nil,
		w.tpm.EKCertificate(tpmsim.RSA2048).Raw, ca.EKIntermediate().Raw)
	w.refuseChain("certificate-of-the-issuer", "The leaf is left out, and the issuer's own certificate comes first.", "ak-mismatch", nil,
		middle)
	w.refuseChain("unknown-root", "The AK certificate is for the right key and machine, by a CA that nobody trusts.", "certificate-chain", nil,
		foreign.Raw, w.Stranger.AKIntermediate().Raw)
	w.refuseChain("unknown-root-sent-along", "The certificates of a CA that nobody trusts are sent with its root.", "certificate-order", nil,
		foreign.Raw, w.Stranger.AKIntermediate().Raw, w.Stranger.Root().Raw)
	w.refuseChain("intermediate-missing", "The certificate between leaf and root is left out.", "certificate-chain", nil, good)
	w.refuseChain("intermediate-of-another-ca", "The certificate behind the leaf did not issue it.", "certificate-order", nil,
		good, ca.EKIntermediate().Raw)
	w.refuseChain("intermediate-twice", "The intermediate is sent twice.", "certificate-order", nil, good, middle, middle)
	w.refuseChain("certificate-too-many", "A certificate that the chain does not need is sent behind it.", "certificate-order", nil,
		good, middle, ca.EKIntermediate().Raw)
	w.refuseChain("root-sent-along", "The root is sent behind the chain.", "certificate-order", nil, good, middle, ca.Root().Raw)
	w.refuseChain("intermediate-expired", "The AK certificate is valid, the certificates above it have expired.", "certificate-expired",
		trusting(old.Root().Raw), late.Raw, old.AKIntermediate().Raw)
}

// leafAttacks have the right CA certify the right AK in a wrong way.
func (w *world) leafAttacks() {
	sign, encipher := x509.KeyUsageDigitalSignature, x509.KeyUsageKeyEncipherment
	google := w.issuersWith(func(p *vector.Profile) {
		*p = vector.Profile{Name: "Google Compute Engine AK", KeyUsage: []string{"digitalSignature"}, NoExtKeyUsage: true,
			ExtKeyUsage: []string{oid.TCGKpEKCertificate.String(), oid.TCGKpAIKCertificate.String()},
			Extensions:  []string{oid.KubernetesNodeProviderIdentifier.String()}, Identity: []string{"gce"}}
	})
	microsoft := w.issuersWith(func(p *vector.Profile) { p.Name, p.RequireDirectoryName = "Microsoft AIK", true })
	add := func(name, what, expect string, o tpmsim.AKCertificateOptions, issuers []vector.Issuer) {
		if o.Style == 0 && !o.NoSAN {
			o.OtherName = forge.MachineName("machine-1")
		}
		var env *vector.Environment
		if issuers != nil {
			env = &vector.Environment{Issuers: issuers}
		}
		w.refuseChain(name, what, expect, env, forge.Must(w.CA.IssueAK(w.tpm.AKPublic(tpmsim.RSA2048), o)).Raw, w.CA.AKIntermediate().Raw)
	}
	for _, a := range w.AKCertificates() {
		add(a.Name, a.What, a.Expect, a.Change, nil)
	}
	add("instance-extension-missing", "The issuer's profile asks for Google's instance extension, and the AK certificate has none.", "certificate-extension",
		tpmsim.AKCertificateOptions{}, google)
	add("ek-told-by-key-usage-alone", "Under Google's profile the key usage alone tells an EK certificate from an AK's.", "certificate-key-usage",
		tpmsim.AKCertificateOptions{Style: tpmsim.StyleGoogle, KeyUsage: &encipher}, google)
	add("instance-extension-malformed", "Google's instance extension in the AK certificate holds a provider ID.", "machine-identity",
		tpmsim.AKCertificateOptions{KeyUsage: &sign, Extra: []pkix.Extension{forge.Must(oid.ProviderIDExtension(providerID))}}, google)
	add("directory-name-missing", "The issuer's profile asks for a TCG directory name, and the AK certificate has no subjectAltName.", "certificate-subject-alt-name",
		tpmsim.AKCertificateOptions{NoSAN: true}, microsoft)
	add("two-machine-identities", "The subjectAltName of the AK certificate names two machines.", "machine-identity",
		tpmsim.AKCertificateOptions{Edit: func(c *x509.Certificate) { withSAN(c, otherName("machine-1"), otherName("machine-2")) }}, nil)
	add("subject-alt-name-form-unknown", "The critical subjectAltName of the AK certificate has an ediPartyName, a form that nobody reads.", "certificate-subject-alt-name",
		tpmsim.AKCertificateOptions{Edit: func(c *x509.Certificate) {
			withSAN(c, otherName("machine-1"), []byte{0xa5, 0x04, 0xa1, 0x02, 0x0c, 0x00})
		}}, nil)
	// The issuer of EK certificates certifies the AK's key as an EK.
	ek := func(name, what, expect string, o tpmsim.EKCertificateOptions) {
		w.refuseChain(name, what, expect, nil, forge.Must(w.CA.IssueEK(w.tpm.AKPublic(tpmsim.RSA2048), o)).Raw, w.CA.EKIntermediate().Raw)
	}
	ek("ek-certificate-as-ak-certificate", "The AK's key has an EK certificate, below the same root.", "certificate-key-usage", tpmsim.EKCertificateOptions{})
	ek("ek-certificate-with-an-aks-key-usage", "The AK's key has an EK certificate with the key usage of an AK's.", "certificate-ext-key-usage",
		tpmsim.EKCertificateOptions{KeyUsage: &sign})
}

// otherName is an otherName of a subjectAltName, with tag and length.
func otherName(machine string) []byte {
	return forge.TLV(0xa0, forge.TLV(6, []byte(forge.MachineType)), forge.TLV(0xa0, forge.MachineName(machine).Value))
}

// withSAN replaces the critical subjectAltName of a template.
func withSAN(c *x509.Certificate, names ...[]byte) {
	i := slices.IndexFunc(c.ExtraExtensions, func(e pkix.Extension) bool { return oid.SubjectAltName.Equal(e.Id) })
	c.ExtraExtensions[i].Value = forge.TLV(0x30, names...)
}
