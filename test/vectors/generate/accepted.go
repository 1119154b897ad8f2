package main

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/x509"
	"fmt"
	"math/big"
	"time"

	"github.com/google/go-tpm/tpm2"

	tpmkind "github.com/nodeattest/nodeattest/attest/tpm"
	"github.com/nodeattest/nodeattest/attest/tpm/statement"
	"github.com/nodeattest/nodeattest/attest/tpm/tpmkey"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/message"
	"github.com/nodeattest/nodeattest/internal/testkit/softak"
	"github.com/nodeattest/nodeattest/oid"
	"github.com/nodeattest/nodeattest/test/vectors/forge"
	"github.com/nodeattest/nodeattest/test/vectors/vector"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// resultOf is the result for the good node's machine.
func resultOf(resident bool) *vector.Result {
	return &vector.Result{NodeName: forge.NodeName, Machine: forge.Identity("machine-1"), Profile: "TCG AK", ProviderID: providerID, TPMResident: &resident}
}

// accepted are good inputs.
func (w *world) accepted() {
	w.acceptedPairs()
	w.acceptedForgeries()
	w.acceptedCircumstances()
	w.acceptedIssuers()
	w.accept("hello", hello{w.goodHello}, nil, &vector.Result{Binding: forge.TakeApart(w.good).Proof.Binding})
	w.acceptedStatements()
	w.acceptedRequests()
	w.acceptedBundles()
}

// acceptedPairs are AKs of each kind in the simulator, with different keys.
func (w *world) acceptedPairs() {
	w.accept("rsassa-ak-software-p256", w.good, nil, resultOf(false))
	p384 := forge.Repeatable{Signer: forge.ECKey(elliptic.P384(), "TLS key P-384", nil)}
	for _, pair := range []struct {
		name, what string
		source     tpmkind.AKSource
		software   crypto.Signer
		kind       tpmkey.Algorithm
	}{
		{"ecdsa-p256-ak-software-rsa2048", "An AK on P-256, whose template is in NV, certifies a software RSA key.", tpmkind.GCEECC(), forge.Repeatable{Signer: w.RSATLS}, 0},
		{"ecdsa-p384-ak-software-p384", "An AK on P-384 certifies a software key on P-384.", tpmkind.AKSource{Template: tpmkind.AKTemplateECDSAP384()}, p384, 0},
		{"rsapss-ak-tpm-p256", "An RSA AK with RSAPSS certifies a key on P-256 that the TPM made.", tpmkind.AKSource{Template: tpmkind.AKTemplateRSA2048PSS()}, nil, tpmkey.ECDSAP256},
		{"ecdsa-p256-ak-tpm-rsa2048", "An AK on P-256 certifies an RSA key that the TPM made.", tpmkind.AKSource{Template: tpmkind.AKTemplateECDSAP256()}, nil, tpmkey.RSA2048},
	} {
		j := forge.Join{Key: pair.software}
		env := (*vector.Environment)(nil)
		var resident *tpmkey.Key
		if pair.software == nil {
			resident = forge.Must(tpmkey.Create(w.ctx, w.shared, pair.kind, tpmkey.Options{}))
			j.Key, env = resident, &vector.Environment{RequireTPMResident: true}
		}
		j.Request = forge.Must(csr.Create(csr.PurposeClient, j.Key, forge.NodeName, csr.CreateOptions{ProviderID: providerID}))
		n := w.tpmNode(pair.source, &j)
		w.acceptAs(pair.name, pair.what, n.answer(w, n.challenge(w)), env, resultOf(resident != nil))
		if resident != nil {
			forge.Check(resident.Close())
		}
	}
}

// acceptedForgeries are good statements by AKs in software: the baselines for the forged ones.
func (w *world) acceptedForgeries() {
	ak := func(key crypto.Signer, scheme statement.KeyScheme) *forge.SoftAK {
		return w.NewSoftAK(key, scheme, "machine-1")
	}
	p384, p521 := forge.ECKey(elliptic.P384(), "AK P-384", nil), forge.ECKey(elliptic.P521(), "AK P-521", nil)
	for _, k := range []struct {
		name string
		ak   *forge.SoftAK
	}{
		{"ecdsa-p256", w.AKP256}, {"rsassa", w.AKRSA}, {"rsapss", ak(rawKey(w.AKRSA.Private), rsaPSS)},
		{"ecdsa-p384", ak(p384, forge.SchemeECDSA384)}, {"ecdsa-p521", ak(p521, statement.KeyScheme{Alg: tpm2.TPMAlgECDSA, Hash: tpm2.TPMAlgSHA512})},
	} {
		f := w.Forge(k.ak, forge.Join{})
		const what = "The statement of an AK in software that the CA certified: what the forged statements differ from."
		w.acceptAs("baseline-"+k.name+"-in-answer", what, f, nil, resultOf(true))
		w.acceptAs("baseline-"+k.name, what, w.statementOf(f), nil, &vector.Result{TPMResident: new(true)})
	}
	f := w.Forge(w.AKP256, forge.Join{})
	f.CertifyExternal(softak.PublicArea(f.Key.Public(), forge.SoftwareAttributes|statement.AttributeSensitiveDataOrigin, softak.NoScheme))
	w.accept("software-key-with-sensitive-data-origin", f, nil, resultOf(false))
	f = w.Forge(w.AKP256, forge.Join{})
	f.Signature = func(v *statement.Signature) {
		s := new(big.Int).SetBytes(v.S)
		v.S = s.Sub(elliptic.P256().Params().N, s).FillBytes(make([]byte, 32))
	}
	w.accept("ecdsa-other-s", f, nil, resultOf(true))
	w.acceptedWidths()
}

// acceptedWidths certify a key whose X begins with a zero byte, which some TPMs omit.
func (w *world) acceptedWidths() {
	key := forge.ECKey(elliptic.P256(), "TLS key with a zero byte", func(k *ecdsa.PublicKey) bool { return forge.Must(k.Bytes())[1] == 0 })
	for _, width := range []struct {
		name, what         string
		hashFull, sendFull bool
	}{
		{"coordinate-short", "X of the certified key lacks its leading zero byte, in the public area and under its Name.", false, false},
		{"coordinate-short-under-the-name", "X of the certified key lacks its leading zero byte under the Name, and has it in the public area.", false, true},
		{"coordinate-full-under-the-name", "X of the certified key has its leading zero byte under the Name, and lacks it in the public area.", true, false},
	} {
		f := w.Forge(w.AKP256, forge.Join{}.WithKey(w.Bench, forge.Repeatable{Signer: key}))
		public := map[bool]*statement.Public{true: f.Public, false: softak.Changed(f.Public, func(p *statement.Public) { p.X = p.X[1:] })}
		f.Certify(public[width.hashFull])
		f.Public = public[width.sendFull]
		w.acceptAs(width.name, width.what, f, nil, resultOf(true))
	}
}

// acceptedCircumstances are good answers under other circumstances.
func (w *world) acceptedCircumstances() {
	issued := w.Now.Add(-time.Minute)
	edited := func(name string, env *vector.Environment, how func(*csr.Request)) {
		r := forge.Clone(w.good)
		how(r)
		w.accept(name, r, env, resultOf(false))
	}
	edited("filed-again", &vector.Environment{Now: issued.Add(message.DefaultWindow)}, func(r *csr.Request) {
		r.Metadata.CreationTimestamp, r.Metadata.Name = issued.Add(message.DefaultWindow), "csr-2"
	})
	edited("verified-late", &vector.Environment{Now: issued.Add(time.Hour)}, func(r *csr.Request) { r.Metadata.CreationTimestamp = issued })
	edited("filed-early", nil, func(r *csr.Request) { r.Metadata.CreationTimestamp = issued.Add(-time.Minute) })
	edited("approved-by-somebody-else", nil, func(r *csr.Request) {
		r.Status.Conditions = []csr.Condition{{Type: csr.ConditionApproved, Status: "True", Reason: "SomebodyElse"}}
	})
	edited("annotations-set", nil, func(r *csr.Request) {
		r.Metadata.Annotations = map[string]string{"cluster-x-k8s-io/tpm-endorsement-key": "AAAA", "cluster-x-k8s-io/tpm-version": "v2"}
	})
	retiring := ringKey(w.Ring)
	retiring.RetiredAt = w.Now.Add(time.Second)
	for _, a := range listed("circumstances of good answers", map[string]*vector.Environment{
		"second-cluster-id":            &vector.Environment{ClusterIDs: []string{"new", clusterID}},
		"ring-key-retired-in-a-second": &vector.Environment{RingKeys: []vector.RingKey{retiring}},
		"ring-read-a-minute-ago":       &vector.Environment{RingReadAt: w.Now.Add(-time.Minute)},
	}) {
		w.acceptAs(a.Name, a.What, w.good, a.Change, resultOf(false))
	}
	w.accept("with-a-lifetime", w.Forge(w.AKP256, forge.Join{Expiration: 86400}), nil, resultOf(true))
	w.accept("renewal", w.Forge(w.AKP256, renewal), nil, resultOf(true))
}

// google is the issuer of AK certificates in Google's form.
func (w *world) google() []vector.Issuer {
	return w.issuersWith(func(p *vector.Profile) {
		p.Name, p.ExtKeyUsage, p.NoExtKeyUsage, p.Identity = "Google Compute Engine AK", []string{oid.TCGKpEKCertificate.String()}, true, []string{"gce"}
		p.Extensions = []string{oid.KubernetesNodeProviderIdentifier.String()}
	})
}

// googlesMachines come with Google's certificates, whatever provider ID the list has for the node.
func (w *world) googlesMachines() {
	w.class = "binding"
	const machine, own = "gce:tpmsim-project/4242424242424242424", "gce://tpmsim-project/us-central1-a/tpmsim-instance"
	unknown := []vector.Machine{{Asked: forge.NodeName, Name: "machine-1", NodeName: forge.NodeName, BootstrapReady: true}}
	asked := func(claimed, listed string) (*forge.Forgery, *vector.Environment) {
		request := forge.Must(csr.Create(csr.PurposeClient, w.TLS, forge.NodeName, csr.CreateOptions{ProviderID: claimed}))
		f := w.Forge(w.AKP256, forge.Join{Request: request, Key: w.TLS})
		f.Sent = &forge.Sources{Chain: forge.AKChain(w.CA, f.AK.Private.Public(), tpmsim.CertificateOptions{Style: tpmsim.StyleGoogle})}
		return f, &vector.Environment{Issuers: w.google(), Machines: unknown, Members: []vector.Member{{NodeName: forge.NodeName, Machine: machine, ProviderID: listed}}}
	}
	f, env := asked("", own)
	w.accept("google-certificate-of-the-machine", f, env, &vector.Result{Machine: machine, Profile: "Google Compute Engine AK", ProviderID: own})
	f, env = asked("", own+"-2")
	w.refuse("google-certificate-of-another-machine", f, env)
	f, env = asked(own+"-2", own+"-2")
	w.refuse("google-certificate-of-another-machine-claimed", f, env)
	f, env = asked("", "aws:///us-central1-a/i-0123456789abcdef0")
	w.refuse("google-certificate-of-another-cloud", f, env)
	w.refuse("provider-id-not-known-yet", forge.Clone(w.good), &vector.Environment{Machines: unknown,
		Members: []vector.Member{{NodeName: forge.NodeName, Machine: forge.Identity("machine-1")}}}).Retry = true
}

// renewal is the join of a node that has a certificate.
var renewal = forge.Join{Username: "system:node:" + forge.NodeName, Groups: []string{"system:nodes", "system:authenticated"}}

// acceptedIssuers are AK certificates in other forms.
func (w *world) acceptedIssuers() {
	members := func(machine string) []vector.Member {
		return []vector.Member{{NodeName: forge.NodeName, Machine: machine, ProviderID: providerID}}
	}
	answer := func(o tpmsim.CertificateOptions) *forge.Forgery {
		f := w.Forge(w.AKP256, forge.Join{})
		f.Sent = &forge.Sources{Chain: forge.AKChain(w.CA, f.AK.Private.Public(), o)}
		return f
	}
	google := w.google()
	gce := "gce:tpmsim-project/4242424242424242424"
	for _, form := range []struct {
		name  string
		style tpmsim.Style
	}{{"google-certificate", tpmsim.StyleGoogle}, {"google-certificate-of-the-older-form", tpmsim.StyleGoogleOld}} {
		w.acceptAs(form.name, "The AK certificate names a Compute Engine instance, in Google's form.", answer(tpmsim.CertificateOptions{Style: form.style}),
			&vector.Environment{Issuers: google, Members: members(gce)}, &vector.Result{Machine: gce, Profile: "Google Compute Engine AK", ProviderID: providerID})
	}
	ak := fmt.Sprintf("ak:sha256:%x", forge.Must(csr.SPKIHash(w.AKP256.Private.Public())))
	w.accept("machine-named-by-its-ak", answer(tpmsim.CertificateOptions{}), &vector.Environment{Members: members(ak)}, &vector.Result{Machine: ak})
	azure := w.issuersWith(func(p *vector.Profile) {
		p.Name, p.ExtKeyUsage, p.Identity, p.AllowAKBelowOtherKeys = "Azure vTPM AK", []string{oid.AzureKpAK.String()}, []string{"ak"}, true
	})
	w.accept("azure-certificate", answer(tpmsim.CertificateOptions{Style: tpmsim.StyleAzure}),
		&vector.Environment{Issuers: azure, Members: members(ak)}, &vector.Result{Machine: ak, Profile: "Azure vTPM AK"})
	usage := x509.KeyUsageDigitalSignature | x509.KeyUsageContentCommitment
	w.accept("key-usage-content-commitment", answer(tpmsim.CertificateOptions{KeyUsage: &usage, OtherName: forge.MachineName("machine-1")}), nil, resultOf(true))

	profiled := func(how func(*vector.Profile)) *vector.Environment {
		return &vector.Environment{Issuers: w.issuersWith(how)}
	}
	w.accept("sha1-signature-by-profile", w.overSHA1(), profiled(func(p *vector.Profile) { p.InsecureAllowSHA1Signature = true }), resultOf(true))
	w.accept("ak-below-another-key-by-profile", w.below(w.Forge(w.AKP256, forge.Join{})),
		profiled(func(p *vector.Profile) { p.AllowAKBelowOtherKeys = true }), resultOf(true))
}
