package main

import (
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/tpm"
	"github.com/nodeattest/nodeattest/internal/vector"
	"github.com/nodeattest/nodeattest/oid"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// certificates are EK certificates and chains that are none.
func (r *roadEK) certificates() {
	good := r.p256.chain
	send := func(name, what, expect string, chain ...[]byte) {
		r.both("certificate", name, what, expect, r.p256, sources{chain: chain}, r.environment(r.p256))
	}
	send("ek-intermediate-missing", "The EK certificate comes without the one above it.", "certificate-chain", good[0])
	send("ek-intermediate-twice", "The vendor's intermediate stands there twice.", "certificate-order", good[0], good[1], good[1])
	send("ek-certificate-of-another-vendor", "A vendor that is not trusted certified the EK.", "certificate-chain",
		must(r.stranger.IssueEK(r.p256.public, nil)).Raw, r.stranger.EKIntermediate().Raw)
	send("ek-with-the-certificate-of-an-ak", "The vendor certified the EK as an AK.", "certificate-ext-key-usage", r.asAK(r.p256)...)

	sign, none := x509.KeyUsageDigitalSignature, []oid.OID{}
	for _, a := range []struct {
		name, what, expect string
		o                  tpmsim.EKCertificateOptions
	}{
		{"ek-certificate-expired", "The EK certificate ended a second ago.", "certificate-expired", tpmsim.EKCertificateOptions{NotAfter: r.now.Add(-time.Second)}},
		{"ek-certificate-not-yet-valid", "The EK certificate begins in a second.", "certificate-not-yet-valid", tpmsim.EKCertificateOptions{NotBefore: r.now.Add(time.Second)}},
		{"ek-certificate-without-ext-key-usage", "The EK certificate has no extended key usage.", "certificate-ext-key-usage", tpmsim.EKCertificateOptions{ExtKeyUsage: none}},
		{"ek-certificate-for-platforms-too", "The extended key usage of the EK certificate lists a platform certificate's too.", "certificate-ext-key-usage",
			tpmsim.EKCertificateOptions{ExtKeyUsage: []oid.OID{oid.TCGKpEKCertificate, oid.TCGKpPlatformCertificate}}},
		{"ek-certificate-with-the-key-usage-of-an-ak", "The key usage of the EK certificate is digitalSignature.", "certificate-key-usage", tpmsim.EKCertificateOptions{KeyUsage: &sign}},
		{"ek-certificate-is-ca", "The EK certificate is a CA's.", "certificate-is-ca", tpmsim.EKCertificateOptions{IsCA: true}},
		{"ek-certificate-without-directory-name", "The EK certificate names no manufacturer, model and version.", "certificate-subject-alt-name", tpmsim.EKCertificateOptions{NoSAN: true}},
		{"ek-certificate-without-basic-constraints", "The EK certificate has no basic constraints.", "certificate-extension",
			tpmsim.EKCertificateOptions{Edit: func(c *x509.Certificate) { c.BasicConstraintsValid = false }}},
		{"ek-certificate-with-an-unknown-critical-extension", "The EK certificate has a critical extension that nobody knows.", "certificate-extension",
			tpmsim.EKCertificateOptions{Extra: []pkix.Extension{{Id: asn1.ObjectIdentifier{2, 999, 2}, Critical: true, Value: []byte{5, 0}}}}},
	} {
		send(a.name, a.what, a.expect, r.certified(r.p256.public, &a.o).chain...)
	}
	for _, k := range []struct {
		name, what, expect string
		ek                 *softEK
	}{
		{"ek-p521", "The EK is on P-521, a kind for which no credential is made.", "ek-type", r.certified(ecKey(elliptic.P521(), "EK P-521", nil).Public(), nil)},
		{"ek-weak-rsa", "The EK is RSA with 1024 bits.", "key-strength", r.certified(r.rsa1024.Public(), nil)},
		{"ek-with-a-roca-modulus", "The EK's modulus has the fingerprint of CVE-2017-15361: its primes can be found.", "ek-roca",
			r.certified(&rsa.PublicKey{N: rocaModulus(), E: 65537}, nil)},
	} {
		r.both("certificate", k.name, k.what, k.expect, k.ek, sources{chain: k.ek.chain}, r.environment(k.ek))
	}
}

// bindings are attacks on which EK, AK and road an answer is for.
func (r *roadEK) bindings() {
	one, ek := r.environment(r.p256), r.p256
	cert, bare := sources{chain: ek.chain}, sources{public: spki(ek.public)}
	r.both("binding", "ek-from-two-sources", "The node sends an EK certificate, and an EK without one beside it.", "ek-sources", ek,
		sources{chain: ek.chain, public: spki(r.foreign.public)}, one)
	r.both("binding", "ek-absent", "The node sends neither an EK certificate nor an EK.", "ek-sources", ek, sources{}, one)
	r.both("binding", "ek-without-certificate", "The node leaves the certificate of its EK out, and the EK is on no list.", "ek-untrusted", ek, bare, one)
	r.both("binding", "ek-of-another-tpm", "Another TPM of the same vendor asks for the node's name.", "not-a-member", r.foreign, sources{chain: r.foreign.chain}, one)
	r.both("binding", "ek-of-another-kind", "The machine comes with its RSA EK, and is known by the one on P-256.", "not-a-member", r.rsa, sources{chain: r.rsa.chain}, one)
	closed := &vector.Environment{Members: one.Members}
	r.both("binding", "ek-road-closed", "The verifier trusts no EKs.", "binding-road", ek, cert, closed)

	add := func(name, what, expect string, f *forgery, s sources) {
		r.add(&vector.Vector{Name: name, Class: "binding", Level: vector.LevelVerify, Description: what, Expect: expect,
			Package: vector.PackageAttest, Object: r.answer(f, s), Environment: one})
	}
	echo := func(name, what, expect string, how func(*attest.Binding)) {
		f := r.forge(ek)
		how(f.b)
		add(name, what, expect, f, cert)
	}
	echo("ek-ak-name", "The echoed binding is for the Name of another AK.", "binding-ak-name", func(b *attest.Binding) { b.AKName = r.akOther.public.Name() })
	echo("ek-machine-key", "The echoed binding is for another EK.", "binding-machine-key", func(b *attest.Binding) { b.MachineKey[0] ^= 1 })
	echo("ek-nonce", "The echoed binding has another nonce.", "qualifying-data", func(b *attest.Binding) { b.Nonce[0] ^= 1 })
	echo("ek-echo-of-the-other-road", "The echoed binding is for the road of the AK certificate.", "ak-mismatch",
		func(b *attest.Binding) { b.Road, b.AKName = attest.RoadAK, nil })

	f := r.forge(ek)
	f.akPublic = changed(f.ak.public, func(p *tpm.Public) { p.AuthPolicy = make([]byte, 32) }).Raw
	add("ek-ak-public-area-changed", "The node sends another public area of the AK's key than the one that the credential was for.", "binding-ak-name", f, cert)
	f = r.forge(ek)
	f.ak = r.akOther
	f.useAK(r.akOther.public)
	add("ek-answer-by-another-ak", "Another AK answers, in a TPM or not, than the one that the credential was for.", "binding-ak-name", f, cert)
	f = r.forge(ek)
	f.ak = &softAK{private: r.akOther.private, public: f.ak.public}
	add("ek-answer-signed-by-another-ak", "Another AK signs under the public area of the one that the credential was for.", "signature", f, cert)
	add("ek-answer-with-the-other-ek", "The machine's RSA EK stands in an answer to a credential for the one on P-256.", "binding-machine-key", r.forge(ek), sources{chain: r.rsa.chain})
	r.mixed(ek)
}

// mixed are answers of one road where only the other is open or is meant.
func (r *roadEK) mixed(ek *softEK) {
	only := r.environment(ek)
	only.Issuers = []vector.Issuer{}
	r.add(&vector.Vector{Name: "ek-road-alone-open", Class: "binding", Level: vector.LevelVerify, Expect: "binding-road", Package: vector.PackageAttest,
		Description: "An answer with an AK certificate, where EKs alone are trusted.", Object: r.good, Environment: only})
	r.add(&vector.Vector{Name: "ek-road-alone-open-in-hello", Class: "binding", Level: vector.LevelChallenge, Expect: "binding-road", Package: vector.PackageAttest,
		Description: "A hello with an AK certificate, where EKs alone are trusted.", Object: r.goodHello, Environment: only})
	p := takeApart(r.answer(r.forge(ek), sources{chain: ek.chain}))
	p.onProof = replaced(0, replaced(11, with(tlv(4)...)))
	r.add(&vector.Vector{Name: "ek-ak-name-absent", Class: "binding", Level: vector.LevelVerify, Expect: "message-encoding", Package: vector.PackageAttest,
		Description: "The echoed binding has no AK Name, which this road must have.", Object: p.together(), Environment: r.environment(ek)})
	answer := must(tpm.ParsePublic(r.akP256.public.Raw))
	r.add(&vector.Vector{Name: "ek-certificate-of-the-ak", Class: "binding", Level: vector.LevelVerify, Expect: "binding-machine-key", Package: vector.PackageAttest,
		Description: "The AK's own certificate stands in place of the EK's.", Object: r.answer(r.forge(&softEK{public: ek.public}), sources{chain: r.akP256.chain}),
		Environment: r.environment(&softEK{public: must(answer.Key())})})
}

// aks are AKs that are none. On this road no certificate vouches for the AK: its
// attributes are proven by its Name, which the credential was for.
func (r *roadEK) aks() {
	for _, a := range r.akAttacks() {
		f := r.forge(r.p256)
		a.change(r.world, f)
		if public, err := tpm.ParsePublic(f.akPublic); err == nil {
			f.b.Road, f.b.AKName = attest.RoadEK, public.Name()
			copy(f.b.MachineKey[:], r.forge(r.p256).b.MachineKey[:])
		}
		_, f.attest.ExtraData = f.secrets(f.b)
		cert := sources{chain: r.p256.chain}
		r.add(&vector.Vector{Name: "ek-" + a.name, Class: "binding", Level: vector.LevelVerify, Description: a.what + " There is no certificate for it.", Expect: a.expect,
			Package: vector.PackageAttest, Object: r.answer(f, cert), Environment: r.environment(r.p256)})
		if a.expect != "qualified-signer" { // a hello has no statement
			r.add(&vector.Vector{Name: "ek-hello-" + a.name, Class: "binding", Level: vector.LevelChallenge, Description: a.what + " There is no certificate for it.", Expect: a.expect,
				Package: vector.PackageAttest, Object: r.hello(f.akPublic, cert), Environment: r.environment(r.p256)})
		}
	}
}
