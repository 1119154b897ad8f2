package main

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/x509"
	"math/big"
	"time"

	"github.com/nodeattest/nodeattest/internal/message"

	"github.com/google/go-tpm/tpm2"

	tpmkind "github.com/nodeattest/nodeattest/attest/tpm"
	"github.com/nodeattest/nodeattest/attest/tpm/statement"
	"github.com/nodeattest/nodeattest/attest/tpm/tpmkey"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/forge"
	"github.com/nodeattest/nodeattest/internal/vector"
	"github.com/nodeattest/nodeattest/oid"
	"github.com/nodeattest/nodeattest/tpmsim"
)

func (w *world) addGood(name, what string, object *csr.Request, env *vector.Environment, result *vector.Result) {
	w.add(&vector.Vector{Name: name, Class: "accepted", Level: vector.LevelVerify, Description: what,
		Object: object, Environment: env, Result: result})
}

// resultOf is what the good node's machine is found to be.
func resultOf(resident bool) *vector.Result {
	return &vector.Result{NodeName: forge.NodeName, Machine: forge.Identity("machine-1"), Profile: "TCG AK", ProviderID: providerID, TPMResident: &resident}
}

// accepted are good answers and hellos.
func (w *world) accepted() {
	w.acceptedPairs()
	w.acceptedForgeries()
	w.acceptedCircumstances()
	p := forge.TakeApart(w.good)
	w.add(&vector.Vector{Name: "hello", Class: "accepted", Level: vector.LevelChallenge, Object: w.goodHello,
		Description: "The hello of a good node; the challenge must be bound to what is here, with a nonce of its own.",
		Result:      &vector.Result{Binding: forge.Must(p.Binding.Marshal())}})
}

// acceptedPairs are an AK of each kind in the simulator, with different keys.
func (w *world) acceptedPairs() {
	w.addGood("rsassa-ak-software-p256", "An RSA AK with RSASSA, whose template is in NV, certifies a software key on P-256.", w.good, nil, resultOf(false))
	p384 := forge.Repeatable{Signer: forge.ECKey(elliptic.P384(), "TLS key P-384", nil)}
	for _, pair := range []struct {
		name, what string
		source     tpmkind.AKSource
		software   crypto.Signer
		kind       tpmkey.Kind
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
		w.addGood(pair.name, pair.what, n.answer(w, n.challenge(w)), env, resultOf(resident != nil))
		if resident != nil {
			forge.Check(resident.Close())
		}
	}
}

// acceptedForgeries are good statements by AKs in software: the baselines of the
// forged ones.
func (w *world) acceptedForgeries() {
	ak := func(curve elliptic.Curve, scheme statement.KeyScheme) *forge.SoftAK {
		return w.NewSoftAK(forge.ECKey(curve, "AK "+curve.Params().Name, nil), scheme, "machine-1")
	}
	pss := w.NewSoftAK(forge.RawKey(w.AKRSA.Private), forge.SchemeRSAPSS, "machine-1")
	for _, f := range []struct {
		name string
		ak   *forge.SoftAK
	}{
		{"baseline-ecdsa-p256", w.AKP256}, {"baseline-rsassa", w.AKRSA}, {"baseline-rsapss", pss},
		{"baseline-ecdsa-p384", ak(elliptic.P384(), forge.SchemeECDSA384)}, {"baseline-ecdsa-p521", ak(elliptic.P521(), forge.SchemeECDSA512)},
	} {
		forged := w.Forge(f.ak, forge.Join{})
		what := "The statement of an AK in software that the CA certified: what the forged statements differ from."
		w.addGood(f.name+"-in-answer", what, forged.Answer(), nil, resultOf(true))
		w.addStatement(forged, &vector.Vector{Name: f.name, Class: "accepted", Description: what, Result: &vector.Result{TPMResident: new(true)}})
	}
	f := w.Forge(w.AKP256, forge.Join{})
	f.CertifyExternal(forge.PublicArea(f.Key.Public(), forge.SoftwareAttributes|statement.AttributeSensitiveDataOrigin, forge.NoScheme))
	w.addGood("software-key-with-sensitive-data-origin", "A software key that was loaded with sensitiveDataOrigin is accepted where keys may be in software, and is not called resident.",
		f.Answer(), nil, resultOf(false))
	f = w.Forge(w.AKP256, forge.Join{})
	f.Signature = func(v *statement.Signature) {
		s := new(big.Int).SetBytes(v.S)
		v.S = s.Sub(elliptic.P256().Params().N, s).FillBytes(make([]byte, 32))
	}
	w.addGood("ecdsa-other-s", "The ECDSA signature's s is replaced by the order less s: both are good, TPMs make either.", f.Answer(), nil, resultOf(true))
	w.acceptedWidths()
}

// acceptedWidths certify a key whose X begins with a zero byte, which some TPMs
// leave out.
func (w *world) acceptedWidths() {
	key := forge.ECKey(elliptic.P256(), "TLS key with a zero byte", func(k *ecdsa.PublicKey) bool { return forge.Must(k.Bytes())[1] == 0 })
	for _, width := range []struct {
		name, what           string
		hashShort, sendShort bool
	}{
		{"coordinate-short", "X of the certified key lacks its leading zero byte, in the public area and under its Name.", true, true},
		{"coordinate-short-under-the-name", "X of the certified key lacks its leading zero byte under the Name, and has it in the public area.", true, false},
		{"coordinate-full-under-the-name", "X of the certified key has its leading zero byte under the Name, and lacks it in the public area.", false, true},
	} {
		f := w.Forge(w.AKP256, forge.Join{}.WithKey(w.Bench, forge.Repeatable{Signer: key}))
		full := f.Public
		short := forge.Changed(full, func(p *statement.Public) { p.X = p.X[1:] })
		if width.hashShort {
			f.Certify(short)
		}
		f.Public = full
		if width.sendShort {
			f.Public = short
		}
		w.addGood(width.name, width.what, f.Answer(), nil, resultOf(true))
	}
}

// acceptedCircumstances are good answers under other circumstances.
func (w *world) acceptedCircumstances() {
	issued := w.Now.Add(-time.Minute)
	edit := func(how func(*csr.Request)) *csr.Request {
		r := forge.Clone(w.good)
		how(r)
		return r
	}
	w.addGood("filed-again", "The answer is filed again at the last second of its window, and gets a certificate for the same key and request once more.",
		edit(func(r *csr.Request) {
			r.Metadata.CreationTimestamp, r.Metadata.Name = issued.Add(message.DefaultWindow), "csr-2"
		}),
		&vector.Environment{Now: issued.Add(message.DefaultWindow)}, resultOf(false))
	w.addGood("verified-late", "The answer is looked at an hour after it was filed.",
		edit(func(r *csr.Request) { r.Metadata.CreationTimestamp = issued }), &vector.Environment{Now: issued.Add(time.Hour)}, resultOf(false))
	w.addGood("filed-early", "The answer was created 60 seconds before its challenge, by another API server's clock.",
		edit(func(r *csr.Request) { r.Metadata.CreationTimestamp = issued.Add(-time.Minute) }), nil, resultOf(false))
	w.addGood("approved-by-somebody-else", "Somebody else approved the request, which changes nothing.", edit(func(r *csr.Request) {
		r.Status.Conditions = []csr.Condition{{Type: csr.ConditionApproved, Status: "True", Reason: "SomebodyElse"}}
	}), nil, resultOf(false))
	w.addGood("annotations-set", "The requester set annotations with another EK and version, which nobody reads.", edit(func(r *csr.Request) {
		r.Metadata.Annotations = map[string]string{"cluster-x-k8s-io/tpm-endorsement-key": "AAAA", "cluster-x-k8s-io/tpm-version": "v2"}
	}), nil, resultOf(false))
	w.addGood("second-cluster-id", "The verifier has two cluster IDs while its CA is rotated, and the challenge is for the older one.", w.good,
		&vector.Environment{ClusterIDs: []string{"new", clusterID}}, resultOf(false))
	retiring := ringKey(w.Ring)
	retiring.RetiredAt = w.Now.Add(time.Second)
	w.addGood("ring-key-retired-in-a-second", "The challenge's key is retired in a second.", w.good, &vector.Environment{RingKeys: []vector.RingKey{retiring}}, resultOf(false))
	w.addGood("ring-read-a-minute-ago", "The challenge keys were read exactly a minute ago.", w.good, &vector.Environment{RingReadAt: w.Now.Add(-time.Minute)}, resultOf(false))
	day := w.Forge(w.AKP256, forge.Join{Expiration: 86400})
	w.addGood("with-a-lifetime", "The node asks for a day.", day.Answer(), nil, resultOf(true))
	renewal := forge.Join{Username: "system:node:" + forge.NodeName, Groups: []string{"system:nodes", "system:authenticated"}}
	w.addGood("renewal", "A node renews its certificate with evidence.", w.Forge(w.AKP256, renewal).Answer(), nil, resultOf(true))
	w.acceptedIssuers()
}

// acceptedIssuers are AK certificates of other forms.
func (w *world) acceptedIssuers() {
	members := func(machine string) []vector.Member {
		return []vector.Member{{NodeName: forge.NodeName, Machine: machine, ProviderID: providerID}}
	}
	answer := func(o tpmsim.AKCertificateOptions) *csr.Request {
		f := w.Forge(w.AKP256, forge.Join{})
		leaf := forge.Must(w.CA.IssueAK(f.AK.Private.Public(), o))
		f.AK = &forge.SoftAK{Private: f.AK.Private, Public: f.AK.Public, Chain: [][]byte{leaf.Raw, w.tpm.CA().AKIntermediate().Raw}}
		return f.Answer()
	}
	google := w.issuersWith(func(p *vector.Profile) {
		p.Name, p.ExtKeyUsage, p.NoExtKeyUsage, p.Identity = "Google Compute Engine AK", []string{oid.TCGKpEKCertificate.String()}, true, []string{"gce"}
		p.Extensions = []string{oid.KubernetesNodeProviderIdentifier.String()}
	})
	gce := "gce:tpmsim-project/4242424242424242424"
	for _, form := range []struct {
		name  string
		style tpmsim.Style
	}{{"google-certificate", tpmsim.StyleGoogle}, {"google-certificate-of-the-older-form", tpmsim.StyleGoogleOld}} {
		w.addGood(form.name, "The AK certificate names a Compute Engine instance, in Google's form.", answer(tpmsim.AKCertificateOptions{Style: form.style}),
			&vector.Environment{Issuers: google, Members: members(gce)}, &vector.Result{Machine: gce, Profile: "Google Compute Engine AK", ProviderID: providerID})
	}
	sum := forge.Must(csr.SPKIHash(w.AKP256.Private.Public()))
	ak := "ak:sha256:" + hexOf(sum[:])
	w.addGood("machine-named-by-its-ak", "The AK certificate names no machine, so the digest of its key does.", answer(tpmsim.AKCertificateOptions{}),
		&vector.Environment{Members: members(ak)}, &vector.Result{Machine: ak})
	azure := w.issuersWith(func(p *vector.Profile) {
		p.Name, p.ExtKeyUsage, p.Identity, p.AllowAKBelowOtherKeys = "Azure vTPM AK", []string{oid.AzureKpAK.String()}, []string{"ak"}, true
	})
	w.addGood("azure-certificate", "The AK certificate has Azure's form.", answer(tpmsim.AKCertificateOptions{Style: tpmsim.StyleAzure}),
		&vector.Environment{Issuers: azure, Members: members(ak)}, &vector.Result{Machine: ak, Profile: "Azure vTPM AK"})
	usage := x509.KeyUsageDigitalSignature | x509.KeyUsageContentCommitment
	w.addGood("key-usage-content-commitment", "The AK certificate has contentCommitment too.",
		answer(tpmsim.AKCertificateOptions{KeyUsage: &usage, OtherName: forge.MachineName("machine-1")}), nil, resultOf(true))

	f := w.Forge(w.AKRSA, forge.Join{})
	f.Rescheme(statement.KeyScheme{Alg: tpm2.TPMAlgRSASSA, Hash: tpm2.TPMAlgSHA1})
	w.addGood("sha1-signature-by-profile", "The statement is signed with SHA-1, which the issuer's profile allows.", f.Answer(),
		&vector.Environment{Issuers: w.issuersWith(func(p *vector.Profile) { p.InsecureAllowSHA1Signature = true })}, resultOf(true))
	f = w.Forge(w.AKP256, forge.Join{})
	ek := statement.QualifiedNameOfPrimary(tpm2.TPMRHEndorsement, w.AKOther.Public.Name())
	f.Attest.QualifiedSigner = statement.QualifiedName(ek, f.AK.Public.Name())
	w.addGood("ak-below-another-key-by-profile", "The AK stands below another key, which the issuer's profile allows.", f.Answer(),
		&vector.Environment{Issuers: w.issuersWith(func(p *vector.Profile) { p.AllowAKBelowOtherKeys = true })}, resultOf(true))
}
