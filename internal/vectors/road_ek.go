package main

import (
	"crypto"
	"crypto/elliptic"
	"math/big"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/vector"
	"github.com/nodeattest/nodeattest/oid"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// roadEK is the road of the EK certificate: a vendor of TPMs, the EKs of one TPM, and
// the environment that trusts the vendor. Answers are made without a credential being
// opened: the generator knows the challenge key, as the verifier does.
type roadEK struct {
	*world
	vendor  *tpmsim.CA
	p256    *softEK
	rsa     *softEK
	foreign *softEK // of a TPM that nobody knows, by the same vendor
}

// softEK is the public part of an EK with its certificates.
type softEK struct {
	public crypto.PublicKey
	chain  [][]byte
}

// sources are what a node sends of its EK: certificates, a bare key, or, which is an
// attack, both or neither.
type sources struct {
	chain  [][]byte
	public []byte
}

func (w *world) roadEK() {
	r := &roadEK{world: w, vendor: must(tpmsim.NewCA(&tpmsim.CAOptions{Name: "TPM vendor", Seed: []byte(seed + " TPM vendor"), Now: func() time.Time { return w.now }}))}
	r.p256 = r.certified(ecKey(elliptic.P256(), "EK P-256", nil).Public(), nil)
	r.rsa = r.certified(rsaKey(2048, "EK RSA").Public(), nil)
	r.foreign = r.certified(ecKey(elliptic.P256(), "EK of another TPM", nil).Public(), nil)
	r.accepted()
	r.certificates()
	r.costs()
	r.bindings()
	r.aks()
}

// certified has the vendor certify an EK.
func (r *roadEK) certified(public crypto.PublicKey, o *tpmsim.EKCertificateOptions) *softEK {
	return &softEK{public: public, chain: [][]byte{must(r.vendor.IssueEK(public, o)).Raw, r.vendor.EKIntermediate().Raw}}
}

func (k *softEK) identity() string {
	sum := must(csr.SPKIHash(k.public))
	return "ek:sha256:" + hexOf(sum[:])
}

// environment trusts the vendor beside the issuer of AK certificates, and takes the
// given EKs for members.
func (r *roadEK) environment(members ...*softEK) *vector.Environment {
	e := &vector.Environment{EKIssuers: []vector.EKIssuer{{Roots: [][]byte{r.vendor.Root().Raw}}}, Members: []vector.Member{}}
	for _, ek := range members {
		e.Members = append(e.Members, vector.Member{NodeName: nodeName, Machine: ek.identity(), ProviderID: providerID})
	}
	return e
}

// forge makes a good answer of the TPM with that EK.
func (r *roadEK) forge(ek *softEK) *forgery {
	f := r.world.forge(r.akP256, join{})
	f.b.Road, f.b.MachineKey, f.b.AKName = attest.RoadEK, must(csr.SPKIHash(ek.public)), f.ak.public.Name()
	_, f.attest.ExtraData = f.secrets(f.b)
	return f
}

// answer sends a forgery with what the node says of its EK.
func (r *roadEK) answer(f *forgery, s sources) *csr.Request {
	p := takeApart(r.answerOf(f.join, f.b, f.evidence(), f.akPublic, nil))
	p.proof.EKPublic, p.evidence.Certificates = s.public, s.chain
	return p.together()
}

// hello is the hello of a node with that EK.
func (r *roadEK) hello(akPublic []byte, s sources) *csr.Request {
	p := takeApart(r.helloOf(join{}, akPublic, s.chain))
	p.hello.Road, p.hello.EKPublic = attest.RoadEK, s.public
	return p.together()
}

func (r *roadEK) accepted() {
	for _, k := range []struct {
		name, what string
		ek         *softEK
	}{
		{"ek-p256", "A TPM that is known by the certificate of its EK on P-256.", r.p256},
		{"ek-rsa2048", "A TPM that is known by the certificate of its RSA EK.", r.rsa},
	} {
		r.addGood(k.name+"-in-answer", k.what, r.answer(r.forge(k.ek), sources{chain: k.ek.chain}), r.environment(k.ek),
			&vector.Result{NodeName: nodeName, Machine: k.ek.identity(), Profile: "TCG EK", ProviderID: providerID, TPMResident: new(true)})
		b := *r.forge(k.ek).b
		r.add(&vector.Vector{Name: k.name + "-in-hello", Class: "accepted", Level: vector.LevelChallenge, Description: k.what,
			Object: r.hello(r.akP256.public.Raw, sources{chain: k.ek.chain}), Environment: r.environment(k.ek), Result: &vector.Result{Binding: must(b.Marshal())}})
	}
	env := &vector.Environment{AllowedEKs: []string{r.p256.identity()}, Members: r.environment(r.p256).Members}
	const what = "A TPM whose EK has no certificate and is on the list."
	bare := sources{public: spki(r.p256.public)}
	r.addGood("ek-without-certificate-in-answer", what, r.answer(r.forge(r.p256), bare), env, &vector.Result{Machine: r.p256.identity()})
	r.add(&vector.Vector{Name: "ek-without-certificate-in-hello", Class: "accepted", Level: vector.LevelChallenge, Description: what,
		Object: r.hello(r.akP256.public.Raw, bare), Environment: env})
}

// both adds an attack on the EK as two vectors, in an answer and in a hello.
func (r *roadEK) both(class, name, what, expect string, ek *softEK, s sources, env *vector.Environment) {
	r.add(&vector.Vector{Name: name, Class: class, Level: vector.LevelVerify, Description: what, Expect: expect,
		Package: vector.PackageAttest, Object: r.answer(r.forge(ek), s), Environment: env})
	r.add(&vector.Vector{Name: name + "-in-hello", Class: class, Level: vector.LevelChallenge, Description: what, Expect: expect,
		Package: vector.PackageAttest, Object: r.hello(r.akP256.public.Raw, s), Environment: env})
}

// rocaModulus is a modulus of 2048 bits with the fingerprint of CVE-2017-15361: 1
// modulo each small prime that the flawed library's moduli give away. Nobody knows its
// factors.
func rocaModulus() *big.Int {
	m := big.NewInt(2)
	for _, p := range []int64{11, 13, 17, 19, 37, 53, 61, 71, 73, 79, 97, 103, 107, 109, 127, 151, 157} {
		m.Mul(m, big.NewInt(p))
	}
	raw := derive("ROCA modulus", 256)
	raw[0] = 0xc0
	n := new(big.Int).SetBytes(raw)
	n.Sub(n, new(big.Int).Mod(n, m))
	return n.Add(n, big.NewInt(1))
}

// asAK has the vendor certify the EK as an AK.
func (r *roadEK) asAK(ek *softEK) [][]byte {
	leaf := must(r.vendor.IssueAK(ek.public, &tpmsim.AKCertificateOptions{ExtKeyUsage: []oid.OID{oid.TCGKpAIKCertificate}}))
	return [][]byte{leaf.Raw, r.vendor.AKIntermediate().Raw}
}
