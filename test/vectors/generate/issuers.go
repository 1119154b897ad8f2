package main

import (
	"crypto"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"fmt"
	"math/big"

	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/oid"
	"github.com/nodeattest/nodeattest/test/vectors/forge"
	"github.com/nodeattest/nodeattest/test/vectors/vector"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// issuers are chains as makers build them: names in several spellings, trust anchors that are
// not self-signed, CAs that may certify for some usages only.
func (w *world) issuers() {
	v := w.newEKVendor()
	v.spelledIssuers()
	v.anchors()
	v.azure()
}

// spelledIssuers spell the name of the root in the intermediate, and that of the intermediate
// in the leaf.
func (v *ekVendor) spelledIssuers() {
	chain := func(root, intermediate *ekCA) *vector.EK {
		middle := v.newCA(root, "EK intermediate", v.intermediate.key, nil)
		return &vector.EK{Certificates: [][]byte{v.issue(intermediate, v.p256, nil).Raw, middle.cert.Raw}}
	}
	for _, s := range []struct {
		name, what         string
		root, intermediate *ekCA
	}{
		{"utf8", "a UTF8String", v.root.spelt(12, "EK root"), v.intermediate.spelt(12, "EK intermediate")},
		{"capitals", "capitals", v.root.spelt(19, "EK ROOT"), v.intermediate.spelt(12, "EK INTERMEDIATE")},
		{"other-white-space", "other white space", v.root.spelt(19, " EK  root"), v.intermediate.spelt(19, "EK   intermediate ")},
	} {
		v.acceptAs("issuers-in-"+s.name, "The certificates of the chain spell the names of their issuers with "+s.what+".", chain(s.root, s.intermediate), v.environment(), trusted(v.p256))
	}
	v.refuseAs("issuer-of-another-name", "The leaf spells the name of its issuer without the space, which makes it another name.", "certificate-order",
		chain(v.root, v.intermediate.spelt(19, "EKintermediate")), v.environment())
	v.refuseAs("root-of-another-name", "The intermediate names a root with a letter that only looks like that of the trusted one.", "certificate-chain",
		chain(v.root.spelt(12, "E\u041a root"), v.intermediate), v.environment())
}

// anchors trust the intermediate, which the root has certified.
func (v *ekVendor) anchors() {
	trusting := &vector.Environment{EKIssuers: []vector.EKIssuer{{Roots: [][]byte{v.intermediate.cert.Raw}}}}
	lower := v.newCA(v.intermediate, "EK intermediate below an anchor", v.root.key, nil)
	leaf, next := v.issue(lower, v.p256, nil).Raw, v.issue(v.intermediate, v.p256, nil).Raw
	send := func(certificates ...[]byte) *vector.EK { return &vector.EK{Certificates: certificates} }
	v.acceptAs("below-an-anchor", "The trust anchor is not self-signed.", send(leaf, lower.cert.Raw), trusting, trusted(v.p256))
	v.acceptAs("anchor-sent", "The trust anchor is not self-signed, and the node sends it.", send(leaf, lower.cert.Raw, v.intermediate.cert.Raw), trusting, trusted(v.p256))
	v.acceptAs("anchor-sent-and-next", "The trust anchor has issued the leaf, and the node sends it.", send(next, v.intermediate.cert.Raw), trusting, trusted(v.p256))
	other := v.newCA(v.root, "EK intermediate", v.root.key, nil)
	v.refuseAs("anchor-of-another-key", "The node sends a CA with the trust anchor's name and another key.", "certificate-chain",
		send(v.issue(other, v.p256, nil).Raw, other.cert.Raw), trusting)
	v.refuseAs("intermediate-sent-as-an-anchor", "The node sends a CA whose issuer is not trusted.", "certificate-chain",
		send(next, v.intermediate.cert.Raw), &vector.Environment{EKIssuers: []vector.EKIssuer{{Roots: [][]byte{other.cert.Raw}}}})
}

// azure has AK certificates as Azure issues them today, below CAs of its two hierarchies.
func (v *ekVendor) azure() {
	idAzure := asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 311, 10, 3, 12}
	profile := v.issuersWith(func(p *vector.Profile) {
		p.Name, p.ExtKeyUsage, p.Identity, p.AllowAKBelowOtherKeys = "Azure vTPM AK", []string{oid.AzureKpAK.String()}, []string{"ak"}, true
	})
	profile[0].Roots = [][]byte{v.root.cert.Raw}
	chain := func(key crypto.PublicKey, ofCA []asn1.ObjectIdentifier, ofLeaf ...asn1.ObjectIdentifier) [][]byte {
		ca := v.newCA(v.root, "Virtual TPM CA", v.intermediate.key, func(c *x509.Certificate) { c.UnknownExtKeyUsage, c.MaxPathLenZero = ofCA, true })
		leaf := issuedBy(ca, &x509.Certificate{SerialNumber: big.NewInt(78), Subject: pkix.Name{CommonName: "0123.TrustedVM.Azure.windows.net"},
			NotBefore: v.Now.AddDate(0, -1, 0), NotAfter: v.Now.AddDate(1, 0, 0), BasicConstraintsValid: true,
			KeyUsage: x509.KeyUsageDigitalSignature, UnknownExtKeyUsage: ofLeaf}, key)
		return [][]byte{leaf.Raw, ca.cert.Raw}
	}
	cloud, global := []asn1.ObjectIdentifier{idAzure, idEK, idAIK}, []asn1.ObjectIdentifier{idEK, idAIK}
	ak := fmt.Sprintf("ak:sha256:%x", forge.Must(csr.SPKIHash(v.AKP256.Private.Public())))
	members := []vector.Member{{NodeName: forge.NodeName, Machine: ak, ProviderID: providerID}}
	for _, c := range []struct {
		name, what string
		ofCA       []asn1.ObjectIdentifier
	}{
		{"azure-certificate-of-the-cloud-ca", "The AK certificate has Microsoft's usage and an AK's, and so may its CA certify.", cloud},
		{"azure-certificate-of-the-global-ca", "The AK certificate has Microsoft's usage and an AK's, and its CA may certify for the latter only.", global},
	} {
		f := v.Forge(v.AKP256, forge.Join{})
		f.Sent = &forge.Sources{Chain: chain(f.AK.Private.Public(), c.ofCA, idAzure, idAIK)}
		v.world.acceptAs(c.name, c.what, f, &vector.Environment{Issuers: profile, Members: members}, &vector.Result{Machine: ak, Profile: "Azure vTPM AK"})
	}
	key := v.tpm.AKPublic(tpmsim.RSA2048)
	for _, c := range []struct {
		name, what   string
		ofCA, ofLeaf []asn1.ObjectIdentifier
	}{
		{"azure-certificate-below-a-ca-of-eks", "The CA may certify for EKs only.", global[:1], cloud[:1]},
		{"azure-certificate-without-microsofts-usage", "The AK certificate has an AK's usage only, which is not Azure's.", global, global[1:]},
		{"azure-certificate-of-an-ek", "The AK certificate has Microsoft's usage and an EK's.", cloud, cloud[:2]},
	} {
		v.refuseChainAs(c.name, c.what, "certificate-ext-key-usage", &vector.Environment{Issuers: profile}, chain(key, c.ofCA, c.ofLeaf...)...)
	}
}
