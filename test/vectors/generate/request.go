package main

import (
	"bytes"
	"crypto/x509/pkix"
	"encoding/asn1"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/oid"
	"github.com/nodeattest/nodeattest/test/vectors/forge"
	"github.com/nodeattest/nodeattest/test/vectors/vector"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// requests are attacks on requests that the node policy sees.
func (w *world) requests() {
	for _, t := range append(w.RequestTables(), forge.RequestTable{Good: w.BootstrapAsks, Attacks: w.ownRequests()}) {
		for _, attack := range t.Attacks {
			a := t.Good()
			attack.Change(a)
			v := w.refuseAs(attack.Name, attack.What, attack.Expect, a, nil)
			v.Also, v.Retry = attack.Also, attack.Retry
		}
	}
	w.policies()
	w.kubelets()
	const check = "provider-id-mismatch"
	w.refuseAs("provider-id-of-another-machine-of-azure", "The provider ID is that of the next machine of a scale set of Azure's, in other letters than the inventory's.",
		check, w.asksAs("azure:///subscriptions/S/resourceGroups/mc_group/vm/1"), machinesOf("azure:///subscriptions/s/resourcegroups/MC_Group/vm/0"))
	w.refuseAs("provider-id-in-other-letters", "The provider ID differs from the inventory's by the case of a letter, and is not Azure's.",
		check, w.asksAs("gce://project/zone/Vm-1"), machinesOf("gce://project/zone/vm-1"))
	w.refuseAs("provider-id-with-a-letter-that-folds", "The provider ID is Azure's, with a Kelvin sign for a k: only ASCII letters have no case.",
		check, w.asksAs("azure:///subscriptions/s/vm/\u212a"), machinesOf("azure:///subscriptions/s/vm/k"))
}

// ownRequests are attacks on requests that are not tried on a running verifier: they need RSA
// keys, or a hello.
func (w *world) ownRequests() []forge.RequestAttack {
	rsa, weak, flawed := forge.Repeatable{Signer: w.RSATLS}, forge.Repeatable{Signer: w.RSA1024}, forge.Repeatable{Signer: flawedKey("flawed RSA key")}
	algorithm := func(id oid.OID, parameters ...byte) []byte {
		return forge.TLV(0x30, forge.TLV(6, []byte(id)), parameters)
	}
	key := func(algorithm []byte) func(*forge.Asked) {
		return func(a *forge.Asked) {
			a.PKCS10.Key, a.SPKI = rsa, forge.Replaced(0, forge.With(algorithm...))(forge.SPKI(rsa.Public()))
		}
	}
	signed := func(algorithm []byte) func(*forge.Asked) {
		return func(a *forge.Asked) { a.PKCS10.Key, a.Algorithm = rsa, algorithm }
	}
	return listed("requests, in vectors only", map[string]func(*forge.Asked){
		"filed-under-a-third-signer":       func(a *forge.Asked) { a.Target, a.Signer = csr.SignerClientTPM, csr.SignerServingTPM },
		"key-weak-rsa":                     func(a *forge.Asked) { a.PKCS10.Key = weak },
		"key-with-a-roca-modulus":          func(a *forge.Asked) { a.PKCS10.Key = flawed },
		"key-rsa-without-null":             key(algorithm(oid.RSAEncryption)),
		"key-rsa-oaep":                     key(algorithm(oid.RSAESOAEP, 0x30, 0)),
		"signature-algorithm-without-null": signed(algorithm(oid.SHA256WithRSA)),
		"signature-algorithm-pss":          signed(algorithm(oid.RSASSAPSS, 0x30, 0)),
		"everything-at-once": func(a *forge.Asked) {
			a.Usages, a.Groups, a.Expiration, a.PKCS10.Key = nil, nil, 1, weak
			a.Subject = append(a.Subject[1:], forge.Text(oid.OrganizationalUnit, "x"))
			a.Extensions = append(a.Extensions, pkix.Extension{Id: asn1.ObjectIdentifier{2, 5, 29, 19}, Value: forge.TLV(0x30, []byte{1, 1, 0xff})},
				pkix.Extension{Id: asn1.ObjectIdentifier{2, 5, 29, 17}, Value: forge.TLV(0x30, forge.TLV(0x82, []byte("x")))})
			a.OnBundle(func(b *csr.Bundle) { b.Provider, b.Data = "", nil })
			a.OnObject(func(r *csr.Request) { r.Status.Certificate = []byte("x") })
		},
	})
}

// policies are requests that another policy refuses than the common one.
func (w *world) policies() {
	type attack struct {
		env    *vector.Environment
		change func(*forge.Asked)
	}
	for _, a := range listed("requests under other policies", map[string]attack{
		"flag-false":           {w.under(withFlag), func(a *forge.Asked) { a.Extensions = append(a.Extensions, flag(0)) }},
		"flag-missing":         {w.under(withFlag), func(*forge.Asked) {}},
		"provider-id-required": {w.under(func(p *vector.Policy) { p.RequireProviderID = true }), func(a *forge.Asked) { a.Extensions = nil }},
		"machine-unknown":      {&vector.Environment{Machines: []vector.Machine{}}, func(*forge.Asked) {}},
	}) {
		asked := w.BootstrapAsks()
		a.Change.change(asked)
		w.refuseAs(a.Name, a.What, a.Expect, asked, a.Change.env)
	}
}

// flag is the flag extension, with that BOOLEAN.
func flag(value byte) pkix.Extension {
	return pkix.Extension{Id: asn1.ObjectIdentifier{2, 999, 3}, Value: []byte{1, 1, value}}
}

// withFlag has a policy know the flag, and require it.
func withFlag(p *vector.Policy) { p.Flag, p.RequireFlag = "2.999.3", true }

// under is the common environment with a changed policy.
func (w *world) under(change func(*vector.Policy)) *vector.Environment {
	p := *w.set.Environment.Policy
	change(&p)
	return &vector.Environment{Policy: &p}
}

// kubeletServes is a kubelet's own serving request, which inherits the attestation of the
// client certificate that it is made with.
func (w *world) kubeletServes() *csr.Request {
	a := w.NodeServes()
	a.Signer, a.Expiration, a.Extensions = csr.SignerKubeletServing, 86400, a.Extensions[1:]
	r := a.Encode()
	r.Spec.Request = forge.Must((&csr.Bundle{Request: forge.Must(csr.Parse(r.Spec.Request)).Request}).Marshal())
	r.User.Extra = map[string][]string{csr.ExtraCredentialID: {forge.CredentialOne}}
	return r
}

// kubelets are attacks on a kubelet's own requests.
func (w *world) kubelets() {
	by := func(credentials ...string) func(*csr.Request) {
		return func(r *csr.Request) { r.User.Extra = map[string][]string{csr.ExtraCredentialID: credentials} }
	}
	for _, a := range listed("kubelets' own requests", map[string]func(*csr.Request){
		"serving-by-a-certificate-that-was-not-attested": by("X509SHA256=3333333333333333333333333333333333333333333333333333333333333333"),
		"serving-by-another-nodes-certificate":           by(forge.CredentialTwo),
		"serving-without-a-credential":                   func(r *csr.Request) { r.User.Extra = nil },
		"serving-by-two-credentials":                     by(forge.CredentialOne, forge.CredentialTwo),
		"kubelet-serving-for-too-long":                   func(r *csr.Request) { r.Spec.ExpirationSeconds = new(int32(86401)) },
		"kubelet-serving-without-expiration":             func(r *csr.Request) { r.Spec.ExpirationSeconds = nil },
	}) {
		r := w.kubeletServes()
		a.Change(r)
		w.refuseAs(a.Name, a.What, a.Expect, asked{r}, nil)
	}
}

// pems are attacks on the PEM of a request.
func (w *world) pems() {
	good := string(forge.Must((&csr.Bundle{Request: w.Request, Provider: "tpm/v1", Data: forge.Derive("evidence", 94)}).Marshal()))
	end := "==\n-----END KUBELET AUTHENTICATOR ATTESTATION DATA-----\n"
	before, _, _ := strings.Cut(good, end)
	last := len(before) - 1
	for _, a := range append(forge.PEMAttacks(), listed("PEM of that size", map[string]func(string) string{
		"base64-unused-bits":     func(string) string { return before[:last] + string(before[last]+1) + end },
		"base64-padding-missing": func(string) string { return before + end[2:] },
		"base64-padding-inside":  func(string) string { return before + "==\nAAAA" + end[2:] },
	})...) {
		text := a.Change(good)
		if text == good {
			forge.Check(fmt.Errorf("%s changes nothing", a.Name))
		}
		w.refuseAs(a.Name, a.What, a.Expect, &vector.Bundle{PEM: []byte(text)}, nil)
	}
}

// extensions are attacks on the extensions that carry a machine's identity.
func (w *world) extensions() {
	id := oid.KubernetesNodeProviderIdentifier.String()
	one := func(value []byte) []vector.Extension { return []vector.Extension{{ID: id, Value: value}} }
	good := forge.Must(oid.MarshalProviderID(providerID))
	instance := forge.Must(tpmsim.DefaultInstance().Marshal())
	for _, a := range listed("provider IDs", map[string][]vector.Extension{
		"provider-id-alone-missing":           []vector.Extension{{ID: "2.999.2", Value: good}},
		"provider-id-alone-in-no-extension":   []vector.Extension{},
		"provider-id-alone-twice":             append(one(good), one(good)...),
		"provider-id-alone-critical":          []vector.Extension{{ID: id, Critical: true, Value: good}},
		"provider-id-alone-empty":             one([]byte{12, 0}),
		"provider-id-alone-too-long":          one(forge.TLV(12, []byte(strings.Repeat("x", 1025)))),
		"provider-id-alone-not-utf8":          one([]byte{12, 2, 0xc3, 0x28}),
		"provider-id-alone-overlong-utf8":     one([]byte{12, 2, 0xc0, 0xaf}),
		"provider-id-alone-with-nul":          one([]byte{12, 3, 'a', 0, 'b'}),
		"provider-id-alone-with-line-feed":    one([]byte{12, 3, 'a', 10, 'b'}),
		"provider-id-alone-printable-string":  one([]byte{19, 1, 'a'}),
		"provider-id-alone-trailing-bytes":    one(append(slices.Clone(good), 0)),
		"provider-id-alone-with-long-length":  one(forge.LongLength(good)),
		"provider-id-alone-with-huge-length":  one(forge.HugeLength(good)),
		"provider-id-alone-constructed":       one(forge.TLV(0x2c, good)),
		"provider-id-alone-is-a-gce-instance": one(instance),
	}) {
		w.refuseAs(a.Name, a.What, a.Expect, a.Change, nil)
	}
	w.accept("provider-id-alone", append(one(good), vector.Extension{ID: "2.999.2", Critical: true, Value: []byte{5, 0}}), nil, &vector.Result{ProviderID: providerID})
	w.instances(instance)
}

// instances are Google's instance identities.
func (w *world) instances(good []byte) {
	e := forge.Elements(good)
	number := forge.TLV(2, []byte{0x3a, 0xe5, 0x2c, 0x6d, 0x0e, 0x92, 0x1a, 0x00})
	for _, a := range listed("instances", map[string][]byte{
		"instance-in-gkes-order":               forge.TLV(0x30, e[0], number, e[2], e[1], e[4]),
		"instance-with-a-zero-number":          forge.TLV(0x30, e[0], e[1], e[2], []byte{2, 1, 0}, e[4], e[5]),
		"instance-with-a-negative-number":      forge.TLV(0x30, e[0], []byte{2, 1, 0x80}, e[2], e[3], e[4], e[5]),
		"instance-with-a-slash-in-the-project": forge.TLV(0x30, e[0], e[1], forge.TLV(12, []byte("a/b")), e[3], e[4], e[5]),
		"instance-trailing-bytes":              append(slices.Clone(good), 0),
		"instance-with-a-trailing-field":       forge.Appended(5, 0)(good),
		"instance-without-a-name":              forge.TLV(0x30, e[:4]...),
		"instance-too-long":                    forge.TLV(0x30, e[0], e[1], e[2], e[3], forge.TLV(12, []byte(strings.Repeat("x", 4096)))),
		"instance-is-a-provider-id":            forge.Must(oid.MarshalProviderID(providerID)),
	}) {
		w.refuseAs(a.Name, a.What, a.Expect, a.Change, nil)
	}
	w.accept("instance", good, nil, &vector.Result{Machine: "gce:tpmsim-project/4242424242424242424"})
}

// acceptedRequests are good requests of each class of requester.
func (w *world) acceptedRequests() {
	add := func(name string, a *forge.Asked, env *vector.Environment) {
		w.accept("request-"+name, a, env, &vector.Result{NodeName: forge.NodeName})
	}
	changed := func(name string, a *forge.Asked, change func(a *forge.Asked)) {
		change(a)
		add(name, a, nil)
	}
	add("by-a-bootstrap-token", w.BootstrapAsks(), nil)
	add("by-a-node", w.NodeAsks(), nil)
	add("for-serving", w.NodeServes(), nil)
	changed("for-serving-in-capitals", w.NodeServes(), func(a *forge.Asked) {
		for i, e := range a.Extensions {
			a.Extensions[i].Value = bytes.ReplaceAll(e.Value, []byte("node-1.example.com"), []byte("NODE-1.Example.com"))
		}
	})
	w.accept("request-by-a-kubelet-for-serving", asked{w.kubeletServes()}, nil, &vector.Result{NodeName: forge.NodeName})
	changed("by-a-recovery-user", w.NodeAsks(), func(a *forge.Asked) { a.ByRecoveryUser(forge.NodeName) })
	changed("for-recovery", w.NodeAsks(), (*forge.Asked).ForRecovery)
	changed("as-a-hello", w.BootstrapAsks(), func(a *forge.Asked) { a.Target, a.Signer = csr.SignerClientTPM, csr.SignerChallengeTPM })
	changed("with-an-rsa-key", w.BootstrapAsks(), func(a *forge.Asked) {
		a.Usages, a.PKCS10.Key = csr.PurposeClient.Usages(true), forge.Repeatable{Signer: w.RSATLS}
	})
	changed("without-a-provider-id", w.BootstrapAsks(), func(a *forge.Asked) { a.Extensions = nil })
	a := w.BootstrapAsks()
	a.Extensions = append(a.Extensions, flag(0xff))
	add("with-the-flag", a, w.under(withFlag))
	w.acceptAs("request-by-a-machine-of-azure", "The provider ID is Azure's, and the inventory spells it in other letters: they have no case.",
		w.asksAs("azure:///subscriptions/S/resourceGroups/mc_group/vm/0"), machinesOf("azure:///subscriptions/s/resourcegroups/MC_Group/vm/0"), &vector.Result{NodeName: forge.NodeName})

	serving := renewal
	serving.Key, serving.Signer = w.TLS, csr.SignerServingTPM
	serving.Request = forge.Must(csr.Create(csr.PurposeServing, w.TLS, forge.NodeName, csr.CreateOptions{DNSNames: []string{"node-1.example.com"},
		IPAddresses: []netip.Addr{netip.MustParseAddr("192.0.2.1")}, ProviderID: providerID}))
	w.accept("serving", w.Forge(w.AKP256, serving), nil, resultOf(true))
}

// asksAs is a request by a bootstrap token with this provider ID.
func (w *world) asksAs(providerID string) *forge.Asked {
	a := w.BootstrapAsks()
	a.Extensions = []pkix.Extension{forge.Must(oid.ProviderIDExtension(providerID))}
	return a
}

// machinesOf is an inventory that has the good node with this provider ID.
func machinesOf(providerID string) *vector.Environment {
	return &vector.Environment{Machines: []vector.Machine{{Asked: forge.NodeName, Name: "machine-1", NodeName: forge.NodeName, ProviderID: providerID, BootstrapReady: true}}}
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
	} {
		w.acceptAs(b.name, b.what, &vector.Bundle{Format: b.format, PEM: []byte(b.text)}, nil, nil)
	}
}
