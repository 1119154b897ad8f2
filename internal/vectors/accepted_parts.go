package main

import (
	"bytes"
	"encoding/asn1"
	"encoding/hex"
	"net/netip"

	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/attest/tpm/statement"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/forge"
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
	add := func(name, what string, ak *forge.SoftAK, change func(*forge.Forgery), last func(*vector.Statement)) {
		f := w.Forge(ak, forge.Join{})
		if change != nil {
			change(f)
		}
		v := &vector.Vector{Name: name, Class: "accepted", Description: what}
		w.addStatement(f, v)
		if last != nil {
			last(v.Statement)
		}
	}
	p := forge.TakeApart(w.good)
	_, qd := (&forge.Join{Ring: w.Ring}).Secrets(p.Binding)
	w.add(&vector.Vector{Name: "tpm-statement", Class: "accepted", Level: vector.LevelStatement,
		Description: "The statement of a good answer, which the simulator's AK made about a software key.", Result: &vector.Result{TPMResident: new(false)},
		Statement: &vector.Statement{Attest: p.Certify.Attest, Signature: p.Certify.Signature, Public: p.Certify.Public, AKPublic: p.Proof.AKPublic,
			QualifyingData: qd, Key: forge.SPKI(w.TLS.Public())}})
	add("ak-known-by-its-key-alone", "The AK is known by its key, without a public area.", w.AKP256, nil, func(s *vector.Statement) {
		s.AKPublic, s.AKKey = nil, forge.SPKI(w.AKP256.Private.Public())
	})
	add("raw-rsassa-signature", "The signature is bare, and the caller knows that it is RSASSA with SHA-256.", w.AKRSA, nil, func(s *vector.Statement) {
		s.RawSignature, s.Signature = &vector.RawSignature{Scheme: "rsassa", Hash: "sha256"}, s.Signature[6:]
	})
	add("raw-ecdsa-signature", "The signature is bare, ECDSA in DER.", w.AKP256, nil, func(s *vector.Statement) {
		v := forge.Must(statement.ParseSignature(s.Signature))
		s.RawSignature, s.Signature = &vector.RawSignature{Scheme: "ecdsa", Hash: "sha256"}, forge.Must(v.MarshalECDSA())
	})
	add("empty-qualifying-data", "The caller asks for empty qualifying data, as GKE's statements have.", w.AKP256,
		func(f *forge.Forgery) { f.Attest.ExtraData = nil }, func(s *vector.Statement) {
			s.QualifyingData, s.Options = []byte{}, []string{"insecureEmptyQualifyingData"}
		})
	add("any-qualifying-data", "The caller accepts a recorded statement with any qualifying data.", w.AKP256, nil, func(s *vector.Statement) {
		s.QualifyingData, s.Options = nil, []string{"insecureAllowAnyQualifyingData"}
	})
	add("any-key", "The caller accepts a statement about any key.", w.AKP256, nil, func(s *vector.Statement) {
		s.Key, s.Options = nil, []string{"insecureAllowAnyKey"}
	})
	add("sha1-signature-by-option", "The caller accepts a signature over SHA-1.", w.AKRSA, func(f *forge.Forgery) {
		f.Rescheme(statement.KeyScheme{Alg: tpm2.TPMAlgRSASSA, Hash: tpm2.TPMAlgSHA1})
	}, func(s *vector.Statement) { s.Options = []string{"insecureAllowSHA1Signature"} })
	add("sha1-name-by-option", "The caller accepts a Name over SHA-1.", w.AKP256, func(f *forge.Forgery) {
		f.Certify(forge.Changed(f.Public, func(p *statement.Public) { p.NameAlg = tpm2.TPMAlgSHA1 }))
	}, func(s *vector.Statement) { s.Options = []string{"insecureAllowSHA1Name"} })
	add("restricted-key-by-option", "The caller accepts that a restricted key was certified.", w.AKP256, func(f *forge.Forgery) {
		f.Certify(forge.PublicArea(f.Key.Public(), forge.AKAttributes, forge.NoScheme))
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
		w.addStatement(w.Forge(w.AKP256, forge.Join{}), v)
		a.change(v.Statement)
	}
}

// acceptedRequests are good requests of each class of requester.
func (w *world) acceptedRequests() {
	add := func(name, what string, a *forge.Asked, env *vector.Environment) {
		w.add(&vector.Vector{Name: name, Class: "accepted", Level: vector.LevelRequest, Description: what, TargetSigner: a.Target,
			Environment: env, Object: a.Encode(), Result: &vector.Result{NodeName: forge.NodeName}})
	}
	add("request-by-a-bootstrap-token", "A bootstrap token asks for a client certificate.", w.BootstrapAsks(), nil)
	add("request-by-a-node", "A node asks for its next client certificate.", w.NodeAsks(), nil)
	a := w.NodeAsks()
	a.Username, a.Groups = "nodeattest:recovery:"+forge.NodeName, []string{"nodeattest:recovery", "system:authenticated"}
	add("request-by-a-recovery-user", "A node's recovery user asks for a client certificate.", a, nil)
	a = w.NodeAsks()
	a.Signer, a.Usages = csr.SignerRecoveryTPM, csr.Usages(csr.PurposeRecovery, false)
	a.Subject = []forge.Rdn{forge.Text(oid.Organization, "nodeattest:recovery"), forge.Text(oid.CommonName, "nodeattest:recovery:"+forge.NodeName)}
	add("request-for-recovery", "A node asks for its recovery certificate.", a, nil)
	add("request-for-serving", "A node asks for a serving certificate with its own name and address.", w.NodeServes(), nil)
	add("request-by-a-kubelet-for-serving", "A kubelet asks Kubernetes' own signer, with a client certificate that was issued through attestation.", w.KubeletServes(), nil)
	a = w.BootstrapAsks()
	a.Target, a.Signer = csr.SignerClientTPM, csr.SignerChallengeTPM
	add("request-as-a-hello", "The same request is filed under the challenge signer, for the client signer.", a, nil)
	a = w.BootstrapAsks()
	a.Usages = csr.Usages(csr.PurposeClient, true)
	a.PKCS10.Key = forge.Repeatable{Signer: w.RSATLS}
	add("request-with-an-rsa-key", "The key is RSA with 2048 bits, and the usages have key encipherment.", a, nil)
	a = w.BootstrapAsks()
	a.Extensions = append(a.Extensions, forge.Must(csr.FlagExtension(asn1.ObjectIdentifier{2, 999, 3})))
	add("request-with-the-flag", "The request has the flag extension under the identifier that the policy knows.", a, &vector.Environment{Policy: w.flagPolicy()})
	a = w.BootstrapAsks()
	a.Extensions = nil
	add("request-without-a-provider-id", "The request claims no provider ID, and the policy does not ask for one.", a, nil)

	created := forge.Must(csr.Create(csr.PurposeServing, w.TLS, forge.NodeName, csr.CreateOptions{DNSNames: []string{"node-1.example.com"},
		IPAddresses: []netip.Addr{netip.MustParseAddr("192.0.2.1")}, ProviderID: providerID}))
	serving := forge.Join{Request: created, Key: w.TLS, Signer: csr.SignerServingTPM, Username: "system:node:" + forge.NodeName,
		Groups: []string{"system:nodes", "system:authenticated"}}
	w.addGood("serving", "A node attests itself for a serving certificate.", w.Forge(w.AKP256, serving).Answer(), nil, resultOf(true))
}

// acceptedBundles are good texts in each format.
func (w *world) acceptedBundles() {
	add := func(name, what, format string, text []byte) {
		w.add(&vector.Vector{Name: name, Class: "accepted", Level: vector.LevelBundle, Description: what, Bundle: &vector.Bundle{Format: format, PEM: text}})
	}
	add("bundle", "A request with evidence behind it.", "", forge.Must((&csr.Bundle{Request: w.Request, Provider: "tpm/v1", Data: forge.Derive("evidence", 100)}).Marshal()))
	add("bundle-plain", "A request without evidence, as kubelets file it.", "", forge.Must((&csr.Bundle{Request: w.Request}).Marshal()))
	add("bundle-whole-lines", "The evidence fills its last line.", "", forge.Must((&csr.Bundle{Request: w.Request, Provider: "tpm/v1", Data: forge.Derive("evidence", 96)}).Marshal()))
	add("bundle-of-another-provider", "The evidence is for another provider.", "", forge.Must((&csr.Bundle{Request: w.Request, Provider: "example-1/v12", Data: []byte{0}}).Marshal()))
	proposal := bytes.Join([][]byte{[]byte(forge.PEMBlock(csr.BlockRequest, w.Request)), []byte(forge.PEMBlock(csr.BlockProposalData, forge.Derive("evidence", 100)))}, nil)
	add("bundle-of-the-proposal", "The proposal's example: request and data, without a provider.", "proposal", proposal)
	add("bundle-of-gke", "GKE's dialect.", "gke", []byte(w.gkePEM(gkeIdentity)))
}
