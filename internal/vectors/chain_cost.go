package main

import (
	"bytes"
	"crypto"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"fmt"
	"math/big"
	"time"

	"github.com/nodeattest/nodeattest/internal/forge"
	"github.com/nodeattest/nodeattest/internal/vector"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// strangersChains are chains for a leaf on that key that a stranger made up, below the
// name of a trusted root: no signature in them need be checked to refuse them. The leaf is
// an AK's or EK's by its extended key usage and key usage.
func (v *ekVendor) strangersChains(root *x509.Certificate, key crypto.PublicKey, edit func(*x509.Certificate)) []row[[][]byte] {
	const giant = 60000                                                                    // bits
	root = &x509.Certificate{RawSubject: root.RawSubject, SubjectKeyId: root.SubjectKeyId} // whose key the stranger has not
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
	return []row[[][]byte]{
		{"chain-of-rsa-8192", "Seven CAs have RSA keys of 8192 bits.", "key-strength", with(good, above(7, 8192, false))},
		{"chain-of-oaep-keys", "Three CAs have RSA keys of 60000 bits, encoded as id-RSAES-OAEP.", "key-strength", with(oldSHA1(good), above(3, giant, true))},
		{"chain-of-oaep-keys-below-sha1", "Seven CAs have RSA keys of 8192 bits, encoded as id-RSAES-OAEP, and the leaf is signed over SHA-1.", "key-strength",
			with(oldSHA1(good), above(7, 8192, true))},
		{"chain-of-one-name", "Seven CAs have one name.", "certificate-order", with(good, flood)},
		{"expired-below-giant-keys", "The leaf has expired, and three CAs above it have RSA keys of 60000 bits.", "key-strength", with(expired, above(3, giant, true))},
	}
}

// withKey puts another key into a certificate, whose signature then is of nobody.
func withKey(der, spki []byte) []byte {
	return forge.Replaced(0, forge.Replaced(6, forge.With(spki...)))(der)
}

// giantKey is an RSA key that nobody has, with exponent 2^31 - 1.
func giantKey(name string, bits int, oaep bool) []byte {
	modulus := bytes.Clone(forge.Derive(name+" modulus", bits/8))
	modulus[0] |= 0x80
	modulus[len(modulus)-1] |= 1
	key := forge.Must(asn1.Marshal(struct {
		N *big.Int
		E int
	}{new(big.Int).SetBytes(modulus), 1<<31 - 1}))
	algorithm := plainRSA
	if oaep {
		algorithm = rsaOAEP
	}
	return forge.TLV(0x30, algorithm, forge.TLV(3, []byte{0}, key))
}

// chainCosts are chains that would cost a lot, in hellos and answers on the road of the
// AK certificate.
func (w *world) chainCosts() {
	v := w.newEKVendor()
	for _, c := range v.strangersChains(w.CA.Root(), w.tpm.AKPublic(tpmsim.RSA2048), asAK) {
		if c.name == "expired-below-giant-keys" { // here the leaf's own validity comes first
			c.expect = "certificate-expired"
		}
		w.refuseChain(c.name, c.what, c.expect, nil, c.in...)
	}
	limited := v.newCA(v.root, "CA for EKs", v.intermediate.key, limitedTo(idEK))
	w.refuseChain("intermediate-for-eks-alone", "The CA's own extended key usage limits it to EK certificates.", "certificate-ext-key-usage",
		trusting(v.root.cert.Raw), v.issue(limited, w.tpm.AKPublic(tpmsim.RSA2048), asAK).Raw, limited.cert.Raw)
}

// limitedTo is the template of a CA whose own extended key usage is these.
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
		r.both("ek-"+c.name, c.what, c.expect, r.p256, forge.Sources{Chain: c.in}, env)
	}
}

// usagesOfCAs are CAs whose own extended key usage does not allow EK certificates.
func (v *ekVendor) usagesOfCAs() {
	below := func(name string, edit func(*x509.Certificate)) *vector.EK {
		ca := v.newCA(v.root, name, v.intermediate.key, edit)
		return &vector.EK{Certificates: [][]byte{v.issue(ca, v.p256, nil).Raw, ca.cert.Raw}}
	}
	for _, a := range []row[func(*x509.Certificate)]{
		{"intermediate-for-web-servers", "The CA's own extended key usage limits it to TLS servers.", "certificate-ext-key-usage",
			func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth} }},
		{"intermediate-for-aks-alone", "The CA's own extended key usage limits it to AK certificates.", "certificate-ext-key-usage", limitedTo(idAIK)},
	} {
		v.refuse(a.name, a.what, a.expect, below(a.name, a.in), v.environment())
	}
	v.accept("intermediate-for-eks", "The CA's own extended key usage lists that of EK certificates.", below("CA for EKs", limitedTo(idAIK, idEK)),
		v.environment(), trusted(v.p256))
}
