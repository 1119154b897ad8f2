package main

import (
	"crypto"
	"crypto/elliptic"
	"time"

	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/forge"
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
	p256    *forge.SoftEK
	rsa     *forge.SoftEK
	foreign *forge.SoftEK // of a TPM that nobody knows, by the same vendor
}

func (w *world) roadEK() {
	r := &roadEK{world: w, vendor: forge.Must(tpmsim.NewCA(tpmsim.CAOptions{Name: "TPM vendor", Seed: []byte(forge.Seed + " TPM vendor"), Now: func() time.Time { return w.Now }}))}
	r.p256 = r.certified(forge.ECKey(elliptic.P256(), "EK P-256", nil).Public(), tpmsim.EKCertificateOptions{})
	r.rsa = r.certified(forge.RSAKey(2048, "EK RSA").Public(), tpmsim.EKCertificateOptions{})
	r.foreign = r.certified(forge.ECKey(elliptic.P256(), "EK of another TPM", nil).Public(), tpmsim.EKCertificateOptions{})
	r.accepted()
	r.certificates()
	r.costs()
	r.bindings()
	r.aks()
}

// certified has the vendor certify an EK.
func (r *roadEK) certified(public crypto.PublicKey, o tpmsim.EKCertificateOptions) *forge.SoftEK {
	return &forge.SoftEK{Public: public, Chain: [][]byte{forge.Must(r.vendor.IssueEK(public, o)).Raw, r.vendor.EKIntermediate().Raw}}
}

// environment trusts the vendor beside the issuer of AK certificates, and takes the
// given EKs for members.
func (r *roadEK) environment(members ...*forge.SoftEK) *vector.Environment {
	e := &vector.Environment{EKIssuers: []vector.EKIssuer{{Roots: [][]byte{r.vendor.Root().Raw}}}, Members: []vector.Member{}}
	for _, ek := range members {
		e.Members = append(e.Members, vector.Member{NodeName: forge.NodeName, Machine: ek.Identity(), ProviderID: providerID})
	}
	return e
}

// forge makes a good answer of the TPM with that EK.
func (r *roadEK) forge(ek *forge.SoftEK) *forge.Forgery {
	return r.world.Forge(r.AKP256, forge.Join{EK: ek})
}

// answer sends a forgery with what the node says of its EK.
func (r *roadEK) answer(f *forge.Forgery, s forge.Sources) *csr.Request {
	f.Sent = &s
	return f.Answer()
}

// hello is the hello of a node with an EK.
func (r *roadEK) hello(akPublic []byte, s forge.Sources) *csr.Request {
	return r.world.Hello(forge.Join{EK: r.p256}, akPublic, s)
}

func (r *roadEK) accepted() {
	for _, k := range []struct {
		name, what string
		ek         *forge.SoftEK
	}{
		{"ek-p256", "A TPM that is known by the certificate of its EK on P-256.", r.p256},
		{"ek-rsa2048", "A TPM that is known by the certificate of its RSA EK.", r.rsa},
	} {
		r.addGood(k.name+"-in-answer", k.what, r.answer(r.forge(k.ek), forge.Sources{Chain: k.ek.Chain}), r.environment(k.ek),
			&vector.Result{NodeName: forge.NodeName, Machine: k.ek.Identity(), Profile: "TCG EK", ProviderID: providerID, TPMResident: new(true)})
		b := *r.forge(k.ek).B
		r.add(&vector.Vector{Name: k.name + "-in-hello", Class: "accepted", Level: vector.LevelChallenge, Description: k.what,
			Object: r.hello(r.AKP256.Public.Raw, forge.Sources{Chain: k.ek.Chain}), Environment: r.environment(k.ek), Result: &vector.Result{Binding: forge.Must(b.Marshal())}})
	}
	env := &vector.Environment{AllowedEKs: []string{r.p256.Identity()}, Members: r.environment(r.p256).Members}
	const what = "A TPM whose EK has no certificate and is on the list."
	bare := forge.Sources{Public: forge.SPKI(r.p256.Public)}
	r.addGood("ek-without-certificate-in-answer", what, r.answer(r.forge(r.p256), bare), env, &vector.Result{Machine: r.p256.Identity()})
	r.add(&vector.Vector{Name: "ek-without-certificate-in-hello", Class: "accepted", Level: vector.LevelChallenge, Description: what,
		Object: r.hello(r.AKP256.Public.Raw, bare), Environment: env})
}

// both adds an attack on the EK as two vectors, in an answer and in a hello.
func (r *roadEK) both(class, name, what, expect string, ek *forge.SoftEK, s forge.Sources, env *vector.Environment) {
	r.add(&vector.Vector{Name: name, Class: class, Level: vector.LevelVerify, Description: what, Expect: expect,
		Package: vector.PackageAttest, Object: r.answer(r.forge(ek), s), Environment: env})
	r.add(&vector.Vector{Name: name + "-in-hello", Class: class, Level: vector.LevelChallenge, Description: what, Expect: expect,
		Package: vector.PackageAttest, Object: r.hello(r.AKP256.Public.Raw, s), Environment: env})
}

// asAK has the vendor certify the EK as an AK.
func (r *roadEK) asAK(ek *forge.SoftEK) [][]byte {
	leaf := forge.Must(r.vendor.IssueAK(ek.Public, tpmsim.AKCertificateOptions{ExtKeyUsage: []oid.OID{oid.TCGKpAIKCertificate}}))
	return [][]byte{leaf.Raw, r.vendor.AKIntermediate().Raw}
}
