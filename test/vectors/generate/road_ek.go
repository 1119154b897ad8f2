package main

import (
	"crypto"
	"crypto/elliptic"
	"crypto/rsa"
	"time"

	"github.com/nodeattest/nodeattest/internal/message"
	"github.com/nodeattest/nodeattest/oid"
	"github.com/nodeattest/nodeattest/test/vectors/forge"
	"github.com/nodeattest/nodeattest/test/vectors/vector"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// roadEK is the road of the EK certificate: a vendor of TPMs, the EKs of one TPM, and the
// environment that trusts the vendor. Answers are made without opening a credential: the
// generator knows the challenge key, as the verifier does.
type roadEK struct {
	*world
	vendor  *tpmsim.CA
	p256    *forge.SoftEK
	rsa     *forge.SoftEK
	foreign *forge.SoftEK // of an unknown TPM, by the same vendor
}

func (w *world) roadEK() {
	r := &roadEK{world: w, vendor: forge.Must(tpmsim.NewCA(tpmsim.CAOptions{Name: "TPM vendor", Seed: []byte(forge.Seed + " TPM vendor"), Now: func() time.Time { return w.Now }}))}
	r.p256 = r.certified(forge.ECKey(elliptic.P256(), "EK P-256", nil).Public(), tpmsim.CertificateOptions{})
	r.rsa = r.certified(rsaKey(2048, "EK RSA").Public(), tpmsim.CertificateOptions{})
	r.foreign = r.certified(forge.ECKey(elliptic.P256(), "EK of another TPM", nil).Public(), tpmsim.CertificateOptions{})
	r.accepted()
	r.class = "certificate"
	r.certificates()
	r.costs()
	r.class = "binding"
	r.bindings()
	r.aks()
}

// certified makes the vendor certify an EK.
func (r *roadEK) certified(public crypto.PublicKey, o tpmsim.CertificateOptions) *forge.SoftEK {
	return &forge.SoftEK{Public: public, Chain: forge.EKChain(r.vendor, public, o)}
}

// environment trusts the vendor in addition to the issuer of AK certificates, and treats the
// given EKs as members.
func (r *roadEK) environment(eks ...*forge.SoftEK) *vector.Environment {
	return &vector.Environment{EKIssuers: []vector.EKIssuer{{Roots: [][]byte{r.vendor.Root().Raw}}}, Members: members(eks...)}
}

// forge makes a good answer of the TPM with that EK.
func (r *roadEK) forge(ek *forge.SoftEK) *forge.Forgery {
	return r.Forge(r.AKP256, forge.Join{EK: ek})
}

// answer sends a forgery with the node's proof of its EK.
func (r *roadEK) answer(f *forge.Forgery, s forge.Sources) *forge.Forgery {
	f.Sent = &s
	return f
}

// hello is the hello of a node with an EK.
func (r *roadEK) hello(akPublic []byte, s forge.Sources) hello {
	return hello{r.Hello(forge.Join{EK: r.p256}, akPublic, s)}
}

func (r *roadEK) accepted() {
	both := func(name, what string, ek *forge.SoftEK, s forge.Sources, env *vector.Environment, answer, hello *vector.Result) {
		r.acceptAs(name+"-in-answer", what, r.answer(r.forge(ek), s), env, answer)
		r.acceptAs(name+"-in-hello", what, r.hello(r.AKP256.Public.Raw, s), env, hello)
	}
	for _, k := range []struct {
		name, what string
		ek         *forge.SoftEK
	}{
		{"ek-p256", "A TPM that is known by the certificate of its EK on P-256.", r.p256},
		{"ek-rsa2048", "A TPM that is known by the certificate of its RSA EK.", r.rsa},
	} {
		both(k.name, k.what, k.ek, forge.Sources{Chain: k.ek.Chain}, r.environment(k.ek),
			&vector.Result{NodeName: forge.NodeName, Machine: k.ek.Identity(), Profile: "TCG EK", ProviderID: providerID, TPMResident: new(true)},
			&vector.Result{Binding: forge.Must(r.forge(k.ek).B.Marshal())})
	}
	both("ek-without-certificate", "A TPM whose EK has no certificate and is on the list.", r.p256, forge.Sources{Public: forge.SPKI(r.p256.Public)},
		listing(r.p256), &vector.Result{Machine: r.p256.Identity()}, nil)
}

// members turns EKs into members.
func members(eks ...*forge.SoftEK) []vector.Member {
	out := []vector.Member{}
	for _, ek := range eks {
		out = append(out, vector.Member{NodeName: forge.NodeName, Machine: ek.Identity(), ProviderID: providerID})
	}
	return out
}

// listing is an environment whose only member and trusted EK is this one.
func listing(ek *forge.SoftEK) *vector.Environment {
	return &vector.Environment{AllowedEKs: []string{ek.Identity()}, Members: members(ek)}
}

// both refuses an EK, in an answer and in a hello.
func (r *roadEK) both(name, what, expect string, ek *forge.SoftEK, s forge.Sources, env *vector.Environment) {
	r.refuseAs(name, what, expect, r.answer(r.forge(ek), s), env)
	r.refuseAs(name+"-in-hello", what, expect, r.hello(r.AKP256.Public.Raw, s), env)
}

// certificates are invalid EK certificates and chains.
func (r *roadEK) certificates() {
	good := r.p256.Chain
	send := func(name string, chain ...[]byte) {
		what, expect := r.single(name)
		r.both(name, what, expect, r.p256, forge.Sources{Chain: chain}, r.environment(r.p256))
	}
	send("ek-intermediate-missing", good[0])
	send("ek-intermediate-twice", good[0], good[1], good[1])
	send("ek-certificate-of-another-vendor", forge.EKChain(r.Stranger, r.p256.Public, tpmsim.CertificateOptions{})...)
	send("ek-with-the-certificate-of-an-ak", forge.AKChain(r.vendor, r.p256.Public, tpmsim.CertificateOptions{ExtKeyUsage: []oid.OID{oid.TCGKpAIKCertificate}})...)

	for _, a := range r.EKCertificates() {
		r.both(a.Name, a.What, a.Expect, r.p256, forge.Sources{Chain: r.certified(r.p256.Public, a.Change).Chain}, r.environment(r.p256))
	}
	for _, k := range listed("EKs on the road of the EK", map[string]*forge.SoftEK{
		"ek-p521":                r.certified(forge.ECKey(elliptic.P521(), "EK P-521", nil).Public(), tpmsim.CertificateOptions{}),
		"ek-weak-rsa":            r.certified(r.RSA1024.Public(), tpmsim.CertificateOptions{}),
		"ek-with-a-roca-modulus": r.certified(&rsa.PublicKey{N: forge.ROCAModulus(), E: 65537}, tpmsim.CertificateOptions{}),
	}) {
		r.both(k.Name, k.What, k.Expect, k.Change, forge.Sources{Chain: k.Change.Chain}, r.environment(k.Change))
	}
}

// bindings are attacks on which EK, AK and road an answer is for.
func (r *roadEK) bindings() {
	one, ek := r.environment(r.p256), r.p256
	cert, bare := forge.Sources{Chain: ek.Chain}, forge.Sources{Public: forge.SPKI(ek.Public)}
	r.both("ek-from-two-sources", "The node sends an EK certificate, and an EK without one beside it.", "ek-sources", ek,
		forge.Sources{Chain: ek.Chain, Public: forge.SPKI(r.foreign.Public)}, one)
	r.both("ek-absent", "The node sends neither an EK certificate nor an EK.", "ek-sources", ek, forge.Sources{}, one)
	r.both("ek-without-certificate", "The node leaves the certificate of its EK out, and the EK is on no list.", "ek-untrusted", ek, bare, one)
	r.both("ek-of-another-tpm", "Another TPM of the same vendor asks for the node's name.", "not-a-member", r.foreign, forge.Sources{Chain: r.foreign.Chain}, one)
	r.both("ek-of-another-kind", "The machine comes with its RSA EK, and is known by the one on P-256.", "not-a-member", r.rsa, forge.Sources{Chain: r.rsa.Chain}, one)
	closed := &vector.Environment{Members: one.Members}
	r.both("ek-road-closed", "The verifier trusts no EKs.", "binding-road", ek, cert, closed)

	forged := func(name string, how func(*forge.Forgery)) {
		f := r.forge(ek)
		how(f)
		r.refuse(name, f, one)
	}
	echo := func(name string, how func(*message.Binding)) {
		forged(name, func(f *forge.Forgery) { how(f.B) })
	}
	echo("ek-ak-name", func(b *message.Binding) { b.AKName = r.AKOther.Public.Name() })
	echo("ek-machine-key", func(b *message.Binding) { b.MachineKey[0] ^= 1 })
	echo("ek-nonce", func(b *message.Binding) { b.Nonce[0] ^= 1 })
	echo("ek-echo-of-the-other-road", func(b *message.Binding) { b.Road, b.AKName = message.RoadAK, nil })
	forged("ek-ak-public-area-changed", func(f *forge.Forgery) { f.AKPublic = otherPolicy(f.AK) })
	forged("ek-answer-by-another-ak", func(f *forge.Forgery) {
		f.AK, f.AKPublic, f.Attest.QualifiedSigner = r.AKOther, r.AKOther.Public.Raw, r.AKOther.Primary()
	})
	forged("ek-answer-signed-by-another-ak", func(f *forge.Forgery) { f.SignedBy(r.AKOther) })
	forged("ek-answer-with-the-other-ek", func(f *forge.Forgery) { f.Sent = &forge.Sources{Chain: r.rsa.Chain} })

	// Answers on one road where only the other is open or is meant.
	only := r.environment(ek)
	only.Issuers = []vector.Issuer{}
	r.refuse("ek-road-alone-open", r.good, only)
	r.refuse("ek-road-alone-open-in-hello", hello{r.goodHello}, only)
	p := forge.TakeApart(r.forge(ek).Answer())
	p.OnProof = forge.Replaced(0, forge.Replaced(11, forge.With(forge.TLV(4)...)))
	r.refuse("ek-ak-name-absent", p, one)
	r.refuse("ek-certificate-of-the-ak", r.answer(r.forge(ek), forge.Sources{Chain: r.AKP256.Chain}), r.environment(&forge.SoftEK{Public: r.AKP256.Private.Public()}))
}

// aks are keys that are not AKs. On this road no certificate vouches for the AK: its
// attributes are proven by its Name, which the credential was for.
func (r *roadEK) aks() {
	for _, a := range forge.AKAttacks() {
		f := r.forge(r.p256)
		a.Change(f)
		cert, what := forge.Sources{Chain: r.p256.Chain}, a.What+" There is no certificate for it."
		r.refuseAs("ek-"+a.Name, what, a.Expect, r.answer(f, cert), r.environment(r.p256))
		if a.Expect != "qualified-signer" { // a hello has no statement
			r.refuseAs("ek-hello-"+a.Name, what, a.Expect, r.hello(f.AKPublic, cert), r.environment(r.p256))
		}
	}
}
