package main

import (
	"encoding/asn1"
	"net/netip"

	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/attest/tpm/statement"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/forge"
	"github.com/nodeattest/nodeattest/internal/vector"
)

// acceptedStatements show what each option of the lower function lets through.
func (w *world) acceptedStatements() {
	add := func(name, what string, ak *forge.SoftAK, change func(*forge.Forgery), last func(*vector.Statement)) {
		f := w.Forge(ak, forge.Join{})
		if change != nil {
			change(f)
		}
		s := w.statementOf(f)
		last(s)
		w.accept(name, what, s, nil, nil)
	}
	option := func(name string) func(*vector.Statement) {
		return func(s *vector.Statement) { s.Options = []string{name} }
	}
	w.accept("tpm-statement", "The statement of a good answer, which the simulator's AK made about a software key.",
		w.statementIn(forge.TakeApart(w.good)), nil, &vector.Result{TPMResident: new(false)})
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
	}, option("insecureAllowSHA1Signature"))
	add("sha1-name-by-option", "The caller accepts a Name over SHA-1.", w.AKP256, func(f *forge.Forgery) {
		f.Certify(forge.Changed(f.Public, func(p *statement.Public) { p.NameAlg = tpm2.TPMAlgSHA1 }))
	}, option("insecureAllowSHA1Name"))
	add("restricted-key-by-option", "The caller accepts that a restricted key was certified.", w.AKP256, func(f *forge.Forgery) {
		f.Certify(forge.PublicArea(f.Key.Public(), forge.AKAttributes, forge.NoScheme))
	}, option("allowRestrictedKey"))
}

// acceptedRequests are good requests of each class of requester.
func (w *world) acceptedRequests() {
	add := func(name, what string, a *forge.Asked, env *vector.Environment) {
		w.accept("request-"+name, what, a, env, &vector.Result{NodeName: forge.NodeName})
	}
	changed := func(name, what string, a *forge.Asked, change func(a *forge.Asked)) {
		change(a)
		add(name, what, a, nil)
	}
	add("by-a-bootstrap-token", "A bootstrap token asks for a client certificate.", w.BootstrapAsks(), nil)
	add("by-a-node", "A node asks for its next client certificate.", w.NodeAsks(), nil)
	add("for-serving", "A node asks for a serving certificate with its own name and address.", w.NodeServes(), nil)
	add("by-a-kubelet-for-serving", "A kubelet asks Kubernetes' own signer, with a client certificate that was issued through attestation.", w.KubeletServes(), nil)
	changed("by-a-recovery-user", "A node's recovery user asks for a client certificate.", w.NodeAsks(), func(a *forge.Asked) {
		a.Username, a.Groups = "nodeattest:recovery:"+forge.NodeName, []string{"nodeattest:recovery", "system:authenticated"}
	})
	changed("for-recovery", "A node asks for its recovery certificate.", w.NodeAsks(), (*forge.Asked).ForRecovery)
	changed("as-a-hello", "The same request is filed under the challenge signer, for the client signer.", w.BootstrapAsks(),
		func(a *forge.Asked) { a.Target, a.Signer = csr.SignerClientTPM, csr.SignerChallengeTPM })
	changed("with-an-rsa-key", "The key is RSA with 2048 bits, and the usages have key encipherment.", w.BootstrapAsks(), func(a *forge.Asked) {
		a.Usages, a.PKCS10.Key = csr.Usages(csr.PurposeClient, true), forge.Repeatable{Signer: w.RSATLS}
	})
	changed("without-a-provider-id", "The request claims no provider ID, and the policy does not ask for one.", w.BootstrapAsks(),
		func(a *forge.Asked) { a.Extensions = nil })
	a := w.BootstrapAsks()
	a.Extensions = append(a.Extensions, forge.Must(csr.FlagExtension(asn1.ObjectIdentifier{2, 999, 3})))
	add("with-the-flag", "The request has the flag extension under the identifier that the policy knows.", a, w.under(forge.UnderFlag))

	serving := renewal
	serving.Key, serving.Signer = w.TLS, csr.SignerServingTPM
	serving.Request = forge.Must(csr.Create(csr.PurposeServing, w.TLS, forge.NodeName, csr.CreateOptions{DNSNames: []string{"node-1.example.com"},
		IPAddresses: []netip.Addr{netip.MustParseAddr("192.0.2.1")}, ProviderID: providerID}))
	w.accept("serving", "A node attests itself for a serving certificate.", w.Forge(w.AKP256, serving), nil, resultOf(true))
}

// acceptedBundles are good texts in each format.
func (w *world) acceptedBundles() {
	text := func(provider string, data []byte) string {
		return string(forge.Must((&csr.Bundle{Request: w.Request, Provider: provider, Data: data}).Marshal()))
	}
	proposal := forge.PEMBlock(csr.BlockRequest, w.Request) + forge.PEMBlock(csr.BlockProposalData, forge.Derive("evidence", 100))
	for _, b := range []struct{ name, what, format, text string }{
		{"bundle", "A request with evidence behind it.", "", text("tpm/v1", forge.Derive("evidence", 100))},
		{"bundle-plain", "A request without evidence, as kubelets file it.", "", text("", nil)},
		{"bundle-whole-lines", "The evidence fills its last line.", "", text("tpm/v1", forge.Derive("evidence", 96))},
		{"bundle-of-another-provider", "The evidence is for another provider.", "", text("example-1/v12", []byte{0})},
		{"bundle-of-the-proposal", "The proposal's example: request and data, without a provider.", "proposal", proposal},
		{"bundle-of-gke", "GKE's dialect.", "gke", w.gkePEM(gkeIdentity)},
	} {
		w.accept(b.name, b.what, &vector.Bundle{Format: b.format, PEM: []byte(b.text)}, nil, nil)
	}
}
