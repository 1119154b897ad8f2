package main

import (
	"crypto/elliptic"
	"crypto/rsa"

	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/attest/tpm/statement"
	"github.com/nodeattest/nodeattest/internal/forge"
	"github.com/nodeattest/nodeattest/internal/message"
	"github.com/nodeattest/nodeattest/internal/vector"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// certificates are EK certificates and chains that are none.
func (r *roadEK) certificates() {
	good := r.p256.Chain
	send := func(name, what, expect string, chain ...[]byte) {
		r.both("certificate", name, what, expect, r.p256, forge.Sources{Chain: chain}, r.environment(r.p256))
	}
	send("ek-intermediate-missing", "The EK certificate comes without the one above it.", "certificate-chain", good[0])
	send("ek-intermediate-twice", "The vendor's intermediate stands there twice.", "certificate-order", good[0], good[1], good[1])
	send("ek-certificate-of-another-vendor", "A vendor that is not trusted certified the EK.", "certificate-chain",
		forge.Must(r.Stranger.IssueEK(r.p256.Public, tpmsim.EKCertificateOptions{})).Raw, r.Stranger.EKIntermediate().Raw)
	send("ek-with-the-certificate-of-an-ak", "The vendor certified the EK as an AK.", "certificate-ext-key-usage", r.asAK(r.p256)...)

	for _, a := range r.EKCertificates() {
		o := tpmsim.EKCertificateOptions(a.Options)
		send(a.Name, a.What, a.Expect, r.certified(r.p256.Public, o).Chain...)
	}
	for _, k := range []struct {
		name, what, expect string
		ek                 *forge.SoftEK
	}{
		{"ek-p521", "The EK is on P-521, a kind for which no credential is made.", "ek-type", r.certified(forge.ECKey(elliptic.P521(), "EK P-521", nil).Public(), tpmsim.EKCertificateOptions{})},
		{"ek-weak-rsa", "The EK is RSA with 1024 bits.", "key-strength", r.certified(r.RSA1024.Public(), tpmsim.EKCertificateOptions{})},
		{"ek-with-a-roca-modulus", "The EK's modulus has the fingerprint of CVE-2017-15361: its primes can be found.", "ek-roca",
			r.certified(&rsa.PublicKey{N: forge.ROCAModulus(), E: 65537}, tpmsim.EKCertificateOptions{})},
	} {
		r.both("certificate", k.name, k.what, k.expect, k.ek, forge.Sources{Chain: k.ek.Chain}, r.environment(k.ek))
	}
}

// bindings are attacks on which EK, AK and road an answer is for.
func (r *roadEK) bindings() {
	one, ek := r.environment(r.p256), r.p256
	cert, bare := forge.Sources{Chain: ek.Chain}, forge.Sources{Public: forge.SPKI(ek.Public)}
	r.both("binding", "ek-from-two-sources", "The node sends an EK certificate, and an EK without one beside it.", "ek-sources", ek,
		forge.Sources{Chain: ek.Chain, Public: forge.SPKI(r.foreign.Public)}, one)
	r.both("binding", "ek-absent", "The node sends neither an EK certificate nor an EK.", "ek-sources", ek, forge.Sources{}, one)
	r.both("binding", "ek-without-certificate", "The node leaves the certificate of its EK out, and the EK is on no list.", "ek-untrusted", ek, bare, one)
	r.both("binding", "ek-of-another-tpm", "Another TPM of the same vendor asks for the node's name.", "not-a-member", r.foreign, forge.Sources{Chain: r.foreign.Chain}, one)
	r.both("binding", "ek-of-another-kind", "The machine comes with its RSA EK, and is known by the one on P-256.", "not-a-member", r.rsa, forge.Sources{Chain: r.rsa.Chain}, one)
	closed := &vector.Environment{Members: one.Members}
	r.both("binding", "ek-road-closed", "The verifier trusts no EKs.", "binding-road", ek, cert, closed)

	add := func(name, what, expect string, f *forge.Forgery, s forge.Sources) {
		r.add(&vector.Vector{Name: name, Class: "binding", Level: vector.LevelVerify, Description: what, Expect: expect,
			Package: vector.PackageAttest, Object: r.answer(f, s), Environment: one})
	}
	echo := func(name, what, expect string, how func(*message.Binding)) {
		f := r.forge(ek)
		how(f.B)
		add(name, what, expect, f, cert)
	}
	echo("ek-ak-name", "The echoed binding is for the Name of another AK.", "binding-ak-name", func(b *message.Binding) { b.AKName = r.AKOther.Public.Name() })
	echo("ek-machine-key", "The echoed binding is for another EK.", "binding-machine-key", func(b *message.Binding) { b.MachineKey[0] ^= 1 })
	echo("ek-nonce", "The echoed binding has another nonce.", "qualifying-data", func(b *message.Binding) { b.Nonce[0] ^= 1 })
	echo("ek-echo-of-the-other-road", "The echoed binding is for the road of the AK certificate.", "ak-mismatch",
		func(b *message.Binding) { b.Road, b.AKName = message.RoadAK, nil })

	f := r.forge(ek)
	f.AKPublic = forge.Changed(f.AK.Public, func(p *statement.Public) { p.AuthPolicy = make([]byte, 32) }).Raw
	add("ek-ak-public-area-changed", "The node sends another public area of the AK's key than the one that the credential was for.", "binding-ak-name", f, cert)
	f = r.forge(ek)
	f.AK, f.AKPublic = r.AKOther, r.AKOther.Public.Raw
	f.Attest.QualifiedSigner = statement.QualifiedNameOfPrimary(tpm2.TPMRHEndorsement, r.AKOther.Public.Name())
	add("ek-answer-by-another-ak", "Another AK answers, in a TPM or not, than the one that the credential was for.", "binding-ak-name", f, cert)
	f = r.forge(ek)
	f.SignedBy(r.AKOther)
	add("ek-answer-signed-by-another-ak", "Another AK signs under the public area of the one that the credential was for.", "signature", f, cert)
	add("ek-answer-with-the-other-ek", "The machine's RSA EK stands in an answer to a credential for the one on P-256.", "binding-machine-key", r.forge(ek), forge.Sources{Chain: r.rsa.Chain})
	r.mixed(ek)
}

// mixed are answers of one road where only the other is open or is meant.
func (r *roadEK) mixed(ek *forge.SoftEK) {
	only := r.environment(ek)
	only.Issuers = []vector.Issuer{}
	r.add(&vector.Vector{Name: "ek-road-alone-open", Class: "binding", Level: vector.LevelVerify, Expect: "binding-road", Package: vector.PackageAttest,
		Description: "An answer with an AK certificate, where EKs alone are trusted.", Object: r.good, Environment: only})
	r.add(&vector.Vector{Name: "ek-road-alone-open-in-hello", Class: "binding", Level: vector.LevelChallenge, Expect: "binding-road", Package: vector.PackageAttest,
		Description: "A hello with an AK certificate, where EKs alone are trusted.", Object: r.goodHello, Environment: only})
	p := forge.TakeApart(r.answer(r.forge(ek), forge.Sources{Chain: ek.Chain}))
	p.OnProof = forge.Replaced(0, forge.Replaced(11, forge.With(forge.TLV(4)...)))
	r.add(&vector.Vector{Name: "ek-ak-name-absent", Class: "binding", Level: vector.LevelVerify, Expect: "message-encoding", Package: vector.PackageAttest,
		Description: "The echoed binding has no AK Name, which this road must have.", Object: p.Together(), Environment: r.environment(ek)})
	answer := forge.Must(statement.ParsePublic(r.AKP256.Public.Raw))
	r.add(&vector.Vector{Name: "ek-certificate-of-the-ak", Class: "binding", Level: vector.LevelVerify, Expect: "binding-machine-key", Package: vector.PackageAttest,
		Description: "The AK's own certificate stands in place of the EK's.", Object: r.answer(r.forge(&forge.SoftEK{Public: ek.Public}), forge.Sources{Chain: r.AKP256.Chain}),
		Environment: r.environment(&forge.SoftEK{Public: forge.Must(answer.Key())})})
}

// aks are AKs that are none. On this road no certificate vouches for the AK: its
// attributes are proven by its Name, which the credential was for.
func (r *roadEK) aks() {
	for _, a := range forge.AKAttacks() {
		f := r.forge(r.p256)
		a.Change(f)
		cert := forge.Sources{Chain: r.p256.Chain}
		r.add(&vector.Vector{Name: "ek-" + a.Name, Class: "binding", Level: vector.LevelVerify, Description: a.What + " There is no certificate for it.", Expect: a.Expect,
			Package: vector.PackageAttest, Object: r.answer(f, cert), Environment: r.environment(r.p256)})
		if a.Expect != "qualified-signer" { // a hello has no statement
			r.add(&vector.Vector{Name: "ek-hello-" + a.Name, Class: "binding", Level: vector.LevelChallenge, Description: a.What + " There is no certificate for it.", Expect: a.Expect,
				Package: vector.PackageAttest, Object: r.hello(f.AKPublic, cert), Environment: r.environment(r.p256)})
		}
	}
}
