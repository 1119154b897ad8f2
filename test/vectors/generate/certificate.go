package main

import (
	"crypto"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"fmt"
	"math/big"
	"slices"
	"time"

	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/oid"
	"github.com/nodeattest/nodeattest/test/vectors/forge"
	"github.com/nodeattest/nodeattest/test/vectors/vector"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// refuseChain makes these the AK's certificates, in an answer and in a hello, as a single
// input; refuseChainAs does so as any other input.
func (w *world) refuseChain(name string, env *vector.Environment, chain ...[]byte) {
	what, expect := w.single(name)
	w.refuseChainAs(name, what, expect, env, chain...)
}

func (w *world) refuseChainAs(name, what, expect string, env *vector.Environment, chain ...[]byte) {
	for suffix, good := range map[string]*csr.Request{"": w.good, "-in-hello": w.goodHello} {
		p := forge.TakeApart(good)
		p.Evidence.Certificates = chain
		w.refuseAs(name+suffix, what, expect, p, env)
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
	foreign := forge.Must(w.Stranger.IssueAK(key, tpmsim.CertificateOptions{OtherName: forge.MachineName("machine-1")}))
	old := forge.Must(tpmsim.NewCA(tpmsim.CAOptions{Name: "old", Seed: []byte(forge.Seed + " old"), Now: func() time.Time { return w.Now.AddDate(-60, 0, 0) }}))
	late := forge.Must(old.IssueAK(key, tpmsim.CertificateOptions{OtherName: forge.MachineName("machine-1"), NotBefore: w.Now.AddDate(0, -1, 0), NotAfter: w.Now.AddDate(1, 0, 0)}))
	w.refuseChain("certificate-missing", nil)
	w.refuseChain("certificate-not-a-certificate", nil, []byte{0x30, 0}, middle)
	w.refuseChain("certificate-signature-changed", nil, damaged(good), middle)
	w.refuseChain("certificate-of-another-ak", nil, w.AKP256.Chain...)
	w.refuseChain("certificate-of-another-machines-ak", nil, w.AKOther.Chain...)
	w.refuseChain("ek-certificate-of-the-tpm", nil, w.tpm.EKCertificate(tpmsim.RSA2048).Raw, ca.EKIntermediate().Raw)
	w.refuseChain("certificate-of-the-issuer", nil, middle)
	w.refuseChain("unknown-root", nil, foreign.Raw, w.Stranger.AKIntermediate().Raw)
	w.refuseChain("unknown-root-sent-along", nil, foreign.Raw, w.Stranger.AKIntermediate().Raw, w.Stranger.Root().Raw)
	w.refuseChain("intermediate-missing", nil, good)
	w.refuseChain("intermediate-of-another-ca", nil, good, ca.EKIntermediate().Raw)
	w.refuseChain("intermediate-twice", nil, good, middle, middle)
	w.refuseChain("certificate-too-many", nil, good, middle, ca.EKIntermediate().Raw)
	w.refuseChain("root-sent-along", nil, good, middle, ca.Root().Raw)
	w.refuseChain("intermediate-expired", trusting(old.Root().Raw), late.Raw, old.AKIntermediate().Raw)
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
	add := func(name, what, expect string, o tpmsim.CertificateOptions, issuers []vector.Issuer) {
		if o.Style == 0 && !o.NoSAN {
			o.OtherName = forge.MachineName("machine-1")
		}
		var env *vector.Environment
		if issuers != nil {
			env = &vector.Environment{Issuers: issuers}
		}
		w.refuseChainAs(name, what, expect, env, forge.AKChain(w.CA, w.tpm.AKPublic(tpmsim.RSA2048), o)...)
	}
	for _, a := range w.AKCertificates() {
		add(a.Name, a.What, a.Expect, a.Change, nil)
	}
	add("instance-extension-missing", "The issuer's profile asks for Google's instance extension, and the AK certificate has none.", "certificate-extension",
		tpmsim.CertificateOptions{}, google)
	add("ek-told-by-key-usage-alone", "Under Google's profile the key usage alone tells an EK certificate from an AK's.", "certificate-key-usage",
		tpmsim.CertificateOptions{Style: tpmsim.StyleGoogle, KeyUsage: &encipher}, google)
	add("instance-extension-malformed", "Google's instance extension in the AK certificate holds a provider ID.", "machine-identity",
		tpmsim.CertificateOptions{KeyUsage: &sign, Extra: []pkix.Extension{forge.Must(oid.ProviderIDExtension(providerID))}}, google)
	add("directory-name-missing", "The issuer's profile asks for a TCG directory name, and the AK certificate has no subjectAltName.", "certificate-subject-alt-name",
		tpmsim.CertificateOptions{NoSAN: true}, microsoft)
	add("two-machine-identities", "The subjectAltName of the AK certificate names two machines.", "machine-identity",
		tpmsim.CertificateOptions{Edit: func(c *x509.Certificate) { withSAN(c, otherName("machine-1"), otherName("machine-2")) }}, nil)
	add("subject-alt-name-form-unknown", "The critical subjectAltName of the AK certificate has an ediPartyName, a form that nobody reads.", "certificate-subject-alt-name",
		tpmsim.CertificateOptions{Edit: func(c *x509.Certificate) {
			withSAN(c, otherName("machine-1"), []byte{0xa5, 0x04, 0xa1, 0x02, 0x0c, 0x00})
		}}, nil)
	// The issuer of EK certificates certifies the AK's key as an EK.
	ek := func(name, what, expect string, o tpmsim.CertificateOptions) {
		w.refuseChainAs(name, what, expect, nil, forge.EKChain(w.CA, w.tpm.AKPublic(tpmsim.RSA2048), o)...)
	}
	ek("ek-certificate-as-ak-certificate", "The AK's key has an EK certificate, below the same root.", "certificate-key-usage", tpmsim.CertificateOptions{})
	ek("ek-certificate-with-an-aks-key-usage", "The AK's key has an EK certificate with the key usage of an AK's.", "certificate-ext-key-usage",
		tpmsim.CertificateOptions{KeyUsage: &sign})
}

// otherName is an otherName in a subjectAltName, with tag and length.
func otherName(machine string) []byte {
	return forge.TLV(0xa0, forge.TLV(6, []byte(forge.MachineType)), forge.TLV(0xa0, forge.MachineName(machine).Value))
}

// withSAN replaces the critical subjectAltName of a template.
func withSAN(c *x509.Certificate, names ...[]byte) {
	i := slices.IndexFunc(c.ExtraExtensions, func(e pkix.Extension) bool { return oid.SubjectAltName.Equal(e.Id) })
	c.ExtraExtensions[i].Value = forge.TLV(0x30, names...)
}

// strangersChains are chains for a leaf with that key that a stranger made up, below the name
// of a trusted root: no signature in them need be checked to refuse them. The leaf is an AK's
// or EK's by its extended key usage and key usage.
func (v *ekVendor) strangersChains(root *x509.Certificate, key crypto.PublicKey, edit func(*x509.Certificate)) []forge.Attack[[][]byte] {
	const giant = 60000                                                                    // bits
	root = &x509.Certificate{RawSubject: root.RawSubject, SubjectKeyId: root.SubjectKeyId} // whose key the stranger does not have
	leaf := func(more func(*x509.Certificate)) []byte {
		by := &ekCA{&x509.Certificate{Subject: pkix.Name{CommonName: "stranger 1"}}, v.intermediate.key}
		return v.issue(by, key, func(c *x509.Certificate) { edit(c); more(c) }).Raw
	}
	good := leaf(func(*x509.Certificate) {})
	oldSHA1 := func(der []byte) []byte { return signedAnew(der, v.intermediate.key, true, unchanged) }
	expired := oldSHA1(leaf(func(c *x509.Certificate) { c.NotAfter = v.Now.Add(-time.Second) }))
	above := func(count, bits int, oaep bool) [][]byte {
		var out [][]byte
		for n := 1; n <= count; n++ {
			name, issuer := fmt.Sprint("stranger ", n), pkix.Name{CommonName: fmt.Sprint("stranger ", n+1)}
			below := &ekCA{&x509.Certificate{Subject: issuer}, v.intermediate.key}
			if n == count {
				below.cert = root
			}
			out = append(out, withKey(v.newCA(below, name, v.intermediate.key, nil).cert.Raw, giantKey(name, bits, oaep)))
		}
		return out
	}
	var flood [][]byte
	for n := range 7 {
		flood = append(flood, v.newCA(&ekCA{root, v.intermediate.key}, "stranger 1", v.intermediate.key,
			func(c *x509.Certificate) { c.SerialNumber = big.NewInt(int64(n + 1)) }).cert.Raw)
	}
	with := func(leaf []byte, above [][]byte) [][]byte { return append([][]byte{leaf}, above...) }
	return listed("strangers' chains", map[string][][]byte{
		"chain-of-rsa-8192":             with(good, above(7, 8192, false)),
		"chain-of-oaep-keys":            with(oldSHA1(good), above(3, giant, true)),
		"chain-of-oaep-keys-below-sha1": with(oldSHA1(good), above(7, 8192, true)),
		"chain-of-one-name":             with(good, flood),
		"expired-below-giant-keys":      with(expired, above(3, giant, true)),
	})
}

// withKey puts another key into a certificate, whose signature is then invalid.
func withKey(der, spki []byte) []byte {
	return forge.Replaced(0, forge.Replaced(6, forge.With(spki...)))(der)
}

// giantKey is an RSA public key without a private one, with exponent 2^31 - 1.
func giantKey(name string, bits int, oaep bool) []byte {
	key := x509.MarshalPKCS1PublicKey(&rsa.PublicKey{N: forge.OddNumber(name+" modulus", bits), E: 1<<31 - 1})
	algorithm := plainRSA
	if oaep {
		algorithm = rsaOAEP
	}
	return forge.TLV(0x30, algorithm, forge.TLV(3, []byte{0}, key))
}

// chainCosts are chains that would be expensive, in hellos and answers on the road of the AK
// certificate.
func (w *world) chainCosts() {
	v := w.newEKVendor()
	for _, c := range v.strangersChains(w.CA.Root(), w.tpm.AKPublic(tpmsim.RSA2048), asAK) {
		if c.Name == "expired-below-giant-keys" { // here the leaf's own validity comes first
			c.Expect = "certificate-expired"
		}
		w.refuseChainAs(c.Name, c.What, c.Expect, nil, c.Change...)
	}
	limited := v.newCA(v.root, "CA for EKs", v.intermediate.key, limitedTo(idEK))
	w.refuseChain("intermediate-for-eks-alone", trusting(v.root.cert.Raw), v.issue(limited, w.tpm.AKPublic(tpmsim.RSA2048), asAK).Raw, limited.cert.Raw)
}

// limitedTo is the template for a CA that has these extended key usages itself.
func limitedTo(usages ...asn1.ObjectIdentifier) func(*x509.Certificate) {
	return func(c *x509.Certificate) { c.UnknownExtKeyUsage = usages }
}

// asAK turns the template of an EK certificate into an AK's.
func asAK(c *x509.Certificate) {
	c.KeyUsage, c.UnknownExtKeyUsage = x509.KeyUsageDigitalSignature, []asn1.ObjectIdentifier{idAIK}
}

// costs are the same on the road of the EK certificate.
func (r *roadEK) costs() {
	v := r.newEKVendor()
	env := r.environment(r.p256)
	for _, c := range v.strangersChains(r.vendor.Root(), r.p256.Public, func(*x509.Certificate) {}) {
		r.both("ek-"+c.Name, c.What, c.Expect, r.p256, forge.Sources{Chain: c.Change}, env)
	}
}

// usagesOfCAs are CAs whose own extended key usage does not allow EK certificates.
func (v *ekVendor) usagesOfCAs() {
	below := func(name string, edit func(*x509.Certificate)) *vector.EK {
		ca := v.newCA(v.root, name, v.intermediate.key, edit)
		return &vector.EK{Certificates: [][]byte{v.issue(ca, v.p256, nil).Raw, ca.cert.Raw}}
	}
	for _, a := range listed("usages of CAs", map[string]func(*x509.Certificate){
		"intermediate-for-web-servers": func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth} },
		"intermediate-for-aks-alone":   limitedTo(idAIK),
	}) {
		v.refuseAs(a.Name, a.What, a.Expect, below(a.Name, a.Change), v.environment())
	}
	v.accept("intermediate-for-eks", below("CA for EKs", limitedTo(idAIK, idEK)), v.environment(), trusted(v.p256))
}
