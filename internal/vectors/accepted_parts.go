package main

import (
	"bytes"
	"encoding/asn1"
	"encoding/hex"
	"net/netip"

	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/attest/tpm"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/vector"
	"github.com/nodeattest/nodeattest/oid"
)

func hexOf(b []byte) string { return hex.EncodeToString(b) }

// acceptedParts are good inputs of the lower functions.
func (w *world) acceptedParts() {
	w.acceptedStatements()
	w.acceptedRequests()
	w.acceptedBundles()
}

// acceptedStatements show what each option of the lower function lets through.
func (w *world) acceptedStatements() {
	add := func(name, what string, ak *softAK, change func(*forgery), last func(*vector.Statement)) {
		f := w.forge(ak, join{})
		if change != nil {
			change(f)
		}
		v := &vector.Vector{Name: name, Class: "accepted", Description: what}
		w.addStatement(f, v)
		if last != nil {
			last(v.Statement)
		}
	}
	p := takeApart(w.good)
	_, qd := (&join{ring: w.ring}).secrets(p.binding)
	w.add(&vector.Vector{Name: "tpm-statement", Class: "accepted", Level: vector.LevelStatement,
		Description: "The statement of a good answer, which the simulator's AK made about a software key.", Result: &vector.Result{TPMResident: new(false)},
		Statement: &vector.Statement{Attest: p.certify.Attest, Signature: p.certify.Signature, Public: p.certify.Public, AKPublic: p.proof.AKPublic,
			QualifyingData: qd, Key: spki(w.tls.Public())}})
	add("ak-known-by-its-key-alone", "The AK is known by its key, without a public area.", w.akP256, nil, func(s *vector.Statement) {
		s.AKPublic, s.AKKey = nil, spki(w.akP256.private.Public())
	})
	add("raw-rsassa-signature", "The signature is bare, and the caller knows that it is RSASSA with SHA-256.", w.akRSA, nil, func(s *vector.Statement) {
		s.RawSignature, s.Signature = &vector.RawSignature{Scheme: "rsassa", Hash: "sha256"}, s.Signature[6:]
	})
	add("raw-ecdsa-signature", "The signature is bare, ECDSA in DER.", w.akP256, nil, func(s *vector.Statement) {
		v := must(tpm.ParseSignature(s.Signature))
		s.RawSignature, s.Signature = &vector.RawSignature{Scheme: "ecdsa", Hash: "sha256"}, must(v.MarshalECDSA())
	})
	add("empty-qualifying-data", "The caller asks for empty qualifying data, as GKE's statements have.", w.akP256,
		func(f *forgery) { f.attest.ExtraData = nil }, func(s *vector.Statement) {
			s.QualifyingData, s.Options = []byte{}, []string{"insecureEmptyQualifyingData"}
		})
	add("any-qualifying-data", "The caller accepts a recorded statement with any qualifying data.", w.akP256, nil, func(s *vector.Statement) {
		s.QualifyingData, s.Options = nil, []string{"insecureAllowAnyQualifyingData"}
	})
	add("any-key", "The caller accepts a statement about any key.", w.akP256, nil, func(s *vector.Statement) {
		s.Key, s.Options = nil, []string{"insecureAllowAnyKey"}
	})
	add("sha1-signature-by-option", "The caller accepts a signature over SHA-1.", w.akRSA, func(f *forgery) {
		f.rescheme(tpm.KeyScheme{Alg: tpm2.TPMAlgRSASSA, Hash: tpm2.TPMAlgSHA1})
	}, func(s *vector.Statement) { s.Options = []string{"insecureAllowSHA1Signature"} })
	add("sha1-name-by-option", "The caller accepts a Name over SHA-1.", w.akP256, func(f *forgery) {
		f.certify(changed(f.public, func(p *tpm.Public) { p.NameAlg = tpm2.TPMAlgSHA1 }))
	}, func(s *vector.Statement) { s.Options = []string{"insecureAllowSHA1Name"} })
	add("restricted-key-by-option", "The caller accepts that a restricted key was certified.", w.akP256, func(f *forgery) {
		f.certify(publicArea(f.key.Public(), akAttributes, noScheme))
	}, func(s *vector.Statement) { s.Options = []string{"allowRestrictedKey"} })
	w.refusedOptions()
}

// refusedOptions are callers that give the lower function too little to decide.
func (w *world) refusedOptions() {
	for _, a := range []struct {
		name, what string
		change     func(*vector.Statement)
	}{
		{"caller-gives-no-ak", "The caller gives no AK.", func(s *vector.Statement) { s.AKPublic = nil }},
		{"caller-gives-no-qualifying-data", "The caller gives no qualifying data, and does not say that any will do.", func(s *vector.Statement) { s.QualifyingData = nil }},
		{"caller-gives-no-key", "The caller gives no key, and does not say that any will do.", func(s *vector.Statement) { s.Key = nil }},
		{"caller-gives-qualifying-data-and-takes-any", "The caller gives qualifying data and says that any will do.", func(s *vector.Statement) { s.Options = []string{"insecureAllowAnyQualifyingData"} }},
	} {
		v := &vector.Vector{Name: a.name, Class: "statement", Description: a.what, Expect: "certify-options"}
		w.addStatement(w.forge(w.akP256, join{}), v)
		a.change(v.Statement)
	}
}

// acceptedRequests are good requests of each class of requester.
func (w *world) acceptedRequests() {
	add := func(name, what string, a *asked, env *vector.Environment) {
		w.add(&vector.Vector{Name: name, Class: "accepted", Level: vector.LevelRequest, Description: what, TargetSigner: a.target,
			Environment: env, Object: a.encode(w), Result: &vector.Result{NodeName: nodeName}})
	}
	add("request-by-a-bootstrap-token", "A bootstrap token asks for a client certificate.", w.bootstrapAsks(), nil)
	add("request-by-a-node", "A node asks for its next client certificate.", w.nodeAsks(), nil)
	a := w.nodeAsks()
	a.username, a.groups = "nodeattest:recovery:"+nodeName, []string{"nodeattest:recovery", "system:authenticated"}
	add("request-by-a-recovery-user", "A node's recovery user asks for a client certificate.", a, nil)
	a = w.nodeAsks()
	a.signer, a.usages = csr.SignerRecoveryTPM, csr.Usages(csr.PurposeRecovery, false)
	a.subject = []rdn{text(oid.Organization, "nodeattest:recovery"), text(oid.CommonName, "nodeattest:recovery:"+nodeName)}
	add("request-for-recovery", "A node asks for its recovery certificate.", a, nil)
	add("request-for-serving", "A node asks for a serving certificate with its own name and address.", w.nodeServes(), nil)
	add("request-by-a-kubelet-for-serving", "A kubelet asks Kubernetes' own signer, with a client certificate that was issued through attestation.", w.kubeletServes(), nil)
	a = w.bootstrapAsks()
	a.target, a.signer = csr.SignerClientTPM, csr.SignerChallengeTPM
	add("request-as-a-hello", "The same request is filed under the challenge signer, for the client signer.", a, nil)
	a = w.bootstrapAsks()
	a.usages = csr.Usages(csr.PurposeClient, true)
	a.pkcs10.key = repeatable{w.rsaTLS}
	add("request-with-an-rsa-key", "The key is RSA with 2048 bits, and the usages have key encipherment.", a, nil)
	a = w.bootstrapAsks()
	a.extensions = append(a.extensions, must(csr.FlagExtension(asn1.ObjectIdentifier{2, 999, 3})))
	add("request-with-the-flag", "The request has the flag extension under the identifier that the policy knows.", a, &vector.Environment{Policy: w.flagPolicy()})
	a = w.bootstrapAsks()
	a.extensions = nil
	add("request-without-a-provider-id", "The request claims no provider ID, and the policy does not ask for one.", a, nil)

	created := must(csr.Create(csr.PurposeServing, w.tls, nodeName, csr.CreateOptions{DNSNames: []string{"node-1.example.com"},
		IPAddresses: []netip.Addr{netip.MustParseAddr("192.0.2.1")}, ProviderID: providerID}))
	serving := join{request: created, key: w.tls, signer: csr.SignerServingTPM, username: "system:node:" + nodeName,
		groups: []string{"system:nodes", "system:authenticated"}}
	w.addGood("serving", "A node attests itself for a serving certificate.", w.forge(w.akP256, serving).answer(w), nil, resultOf(true))
}

// acceptedBundles are good texts in each format.
func (w *world) acceptedBundles() {
	add := func(name, what, format string, text []byte) {
		w.add(&vector.Vector{Name: name, Class: "accepted", Level: vector.LevelBundle, Description: what, Bundle: &vector.Bundle{Format: format, PEM: text}})
	}
	add("bundle", "A request with evidence behind it.", "", must((&csr.Bundle{Request: w.request, Provider: "tpm/v1", Data: derive("evidence", 100)}).Marshal()))
	add("bundle-plain", "A request without evidence, as kubelets file it.", "", must((&csr.Bundle{Request: w.request}).Marshal()))
	add("bundle-whole-lines", "The evidence fills its last line.", "", must((&csr.Bundle{Request: w.request, Provider: "tpm/v1", Data: derive("evidence", 96)}).Marshal()))
	add("bundle-of-another-provider", "The evidence is for another provider.", "", must((&csr.Bundle{Request: w.request, Provider: "example-1/v12", Data: []byte{0}}).Marshal()))
	proposal := bytes.Join([][]byte{[]byte(pemBlock(csr.BlockRequest, w.request)), []byte(pemBlock(csr.BlockProposalData, derive("evidence", 100)))}, nil)
	add("bundle-of-the-proposal", "The proposal's example: request and data, without a provider.", "proposal", proposal)
	add("bundle-of-gke", "GKE's dialect.", "gke", []byte(w.gkePEM(gkeIdentity)))
}
