package main

import (
	"time"

	"github.com/nodeattest/nodeattest/internal/message"

	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/forge"
	"github.com/nodeattest/nodeattest/internal/vector"
)

// helloAttack is one change to the good hello, or another hello.
type helloAttack struct {
	name, what, expect, pkg string
	also                    []string
	change                  func(*forge.Parts)
	object                  *csr.Request
	env                     *vector.Environment
	retry                   bool
}

// challenges are attacks on the verifier's side of a hello, beside those on
// certificates.
func (w *world) challenges() {
	for _, a := range append(w.helloAttacks(), w.helloAKs()...) {
		object := a.object
		if object == nil {
			p := forge.TakeApart(w.goodHello)
			if a.change != nil {
				a.change(p)
			}
			object = p.Together()
		}
		if a.pkg == "" {
			a.pkg = vector.PackageAttest
		}
		w.add(&vector.Vector{Name: a.name, Class: "binding", Level: vector.LevelChallenge, Description: a.what, Expect: a.expect,
			Package: a.pkg, Also: a.also, Retry: a.retry, Object: object, Environment: a.env})
	}
}

func (w *world) helloAttacks() []helloAttack {
	stale := w.Now.Add(-61 * time.Second)
	return []helloAttack{
		{name: "hello-for-another-cluster", what: "The hello is for another cluster.", expect: "binding-cluster", change: func(p *forge.Parts) { p.Hello.ClusterID = "other" }},
		{name: "hello-for-an-unknown-signer", what: "The hello states a target signer that this control plane does not serve.", expect: "signer-name", pkg: vector.PackageCSR,
			also: []string{"attestation-provider"}, change: func(p *forge.Parts) { p.Hello.TargetSigner = csr.SignerClientInsecure }},
		{name: "hello-with-the-proposals-spelling", what: "The target signer is spelt with the prefix cluster-x-k8s-io/, which the API server refuses.", expect: "signer-name", pkg: vector.PackageCSR,
			change: func(p *forge.Parts) { p.Hello.TargetSigner = "cluster-x-k8s-io/kube-apiserver-client-kubelet-tpm" }},
		{name: "hello-for-the-other-road", what: "The hello is for the road of the EK certificate, which is not configured.", expect: "binding-road",
			change: func(p *forge.Parts) { p.Hello.Road = message.RoadEK }},
		{name: "hello-with-two-sources-of-the-ek", what: "A hello with an AK certificate also has an EK of its own.", expect: "message-encoding",
			change: func(p *forge.Parts) {
				p.OnHello = forge.Edited(func(e [][]byte) [][]byte {
					return [][]byte{e[0], e[1], e[2], e[3], forge.TLV(0x80, p.Hello.AKPublic), e[4]}
				})
			}},
		{name: "hello-version", what: "The hello has version 2.", expect: "message-version", change: func(p *forge.Parts) { p.OnHello = forge.Replaced(0, forge.With(2, 1, 2)) }},
		{name: "hello-with-bytes-behind", what: "A field stands behind the last one of the hello.", expect: "message-encoding",
			change: func(p *forge.Parts) { p.OnHello = forge.Appended(5, 0) }},
		{name: "hello-under-the-target-signer", what: "The hello is filed under the signer of the certificate, where somebody could approve it.", expect: "hello-signer", retry: true,
			change: func(p *forge.Parts) { p.Object.Spec.SignerName = csr.SignerClientTPM }},
		{name: "hello-expired", what: "The hello is five minutes and a second old.", expect: "hello-expired",
			change: func(p *forge.Parts) { p.Object.Metadata.CreationTimestamp = w.Now.Add(-301 * time.Second) }},
		{name: "hello-from-the-future", what: "The hello was created a second from now, by the API server's clock.", expect: "request-in-the-future", retry: true,
			change: func(p *forge.Parts) { p.Object.Metadata.CreationTimestamp = w.Now.Add(time.Second) }},
		{name: "hello-without-evidence", what: "The hello is a request without evidence.", expect: "provider", change: func(p *forge.Parts) { p.Plain = true }},
		{name: "hello-of-another-version", what: "The provider block says tpm/v2.", expect: "provider", change: func(p *forge.Parts) { p.Bundle.Provider = "tpm/v2" }},
		{name: "hello-twice", what: "There are two hellos in the evidence.", expect: "bundle-statements",
			change: func(p *forge.Parts) {
				p.OnEvidence = forge.Replaced(0, forge.Edited(func(e [][]byte) [][]byte { return append(e, e[0]) }))
			}},
		{name: "answer-as-hello", what: "An answer is filed as a hello.", expect: "bundle-statements", object: w.asHello(w.good)},
		{name: "hello-with-another-aks-public-area", what: "The AK's public area is that of another AK than its certificate.", expect: "ak-mismatch",
			change: func(p *forge.Parts) { p.Hello.AKPublic = w.AKRSA.Public.Raw }},
		{name: "hello-with-a-bad-self-signature", what: "The request's own signature does not verify.", expect: "request-signature", pkg: vector.PackageCSR,
			change: func(p *forge.Parts) {
				bad := w.NewPKCS10()
				bad.Corrupt = true
				p.Bundle.Request = bad.DER()
			}},
		{name: "hello-of-an-unknown-machine", what: "The inventory has no machine for this node name.", expect: "machine-unknown", pkg: vector.PackageCSR,
			env: &vector.Environment{Machines: []vector.Machine{}}},
		{name: "hello-of-another-machine", what: "A stranger's machine, certified by the same issuer, says hello under the node's name.", expect: "not-a-member",
			object: w.Hello(forge.Join{}, w.AKOther.Public.Raw, forge.Sources{Chain: w.AKOther.Chain})},
		{name: "hello-with-no-usable-ring-key", what: "The verifier has only a retired challenge key and one of the future.", expect: "ring-empty", retry: true,
			env: &vector.Environment{RingKeys: []vector.RingKey{ringKey(w.Retired), ringKey(w.Later)}}},
		{name: "hello-with-a-stale-ring", what: "The verifier has not read its challenge keys for over a minute.", expect: "ring-stale", retry: true,
			env: &vector.Environment{RingReadAt: stale}},
	}
}

// asHello files an answer under the challenge signer.
func (w *world) asHello(object *csr.Request) *csr.Request {
	object = forge.Clone(object)
	object.Spec.SignerName = csr.SignerChallengeTPM
	return object
}

// helloAKs are hellos of AKs that are none, each certified by the right CA.
func (w *world) helloAKs() []helloAttack {
	var out []helloAttack
	for _, a := range forge.AKAttacks() {
		f := w.Forge(w.AKP256, forge.Join{})
		a.Change(f)
		expect := a.Expect
		if a.InAnswer != "" {
			expect = a.InAnswer
		}
		if expect == "qualified-signer" {
			continue // a hello has no statement
		}
		out = append(out, helloAttack{name: "hello-" + a.Name, what: a.What, expect: expect, object: w.Hello(forge.Join{}, f.AKPublic, forge.Sources{Chain: f.AK.Chain})})
	}
	return out
}

// nodes are challenges that a node must not answer.
func (w *world) nodes() {
	p := forge.TakeApart(w.good)
	good := forge.Must(message.ParseChallenge(w.goodTPMChallenge))
	node := func() *vector.Node {
		return &vector.Node{Challenge: w.goodTPMChallenge, Request: w.Request, SignerName: csr.SignerClientTPM, ClusterID: clusterID,
			AKPublic: p.Proof.AKPublic, Key: forge.PKCS8(w.TLS)}
	}
	w.add(&vector.Vector{Name: "node-answers", Class: "accepted", Level: vector.LevelNode,
		Description: "A challenge for this very node, request, cluster and signer: the node goes on to certify its key.", Node: node()})
	add := func(name, what, expect string, change func(*vector.Node, *message.Challenge)) {
		n, c := node(), *good
		change(n, &c)
		if string(n.Challenge) == string(w.goodTPMChallenge) {
			n.Challenge = forge.Must(c.Marshal())
		}
		w.add(&vector.Vector{Name: name, Class: "binding", Level: vector.LevelNode, Description: what, Expect: expect,
			Package: vector.PackageAttest, Node: n})
	}
	add("node-for-another-cluster", "The challenge is for another cluster.", "binding-cluster", func(_ *vector.Node, c *message.Challenge) { c.Binding.ClusterID = "other" })
	add("node-for-another-signer", "The challenge is for another signer.", "binding-signer", func(_ *vector.Node, c *message.Challenge) { c.Binding.SignerName = csr.SignerServingTPM })
	add("node-for-another-lifetime", "The challenge is for another lifetime.", "binding-expiration", func(_ *vector.Node, c *message.Challenge) { c.Binding.ExpirationSeconds = 86400 })
	add("node-for-another-machine", "The challenge is for another machine.", "binding-machine-key", func(_ *vector.Node, c *message.Challenge) { c.Binding.MachineKey[0] ^= 1 })
	add("node-for-another-request", "The challenge is for another request.", "binding-request", func(_ *vector.Node, c *message.Challenge) { c.Binding.RequestHash[0] ^= 1 })
	add("node-for-a-window-over-an-hour", "The challenge's window is an hour and a second long.", "binding-window",
		func(_ *vector.Node, c *message.Challenge) { c.Binding.NotAfter = c.Binding.IssuedAt + 3601 })
	add("node-for-the-other-road", "The challenge is for the road of the EK certificate, with a credential in place of the secret.", "binding-road",
		func(_ *vector.Node, c *message.Challenge) {
			c.Binding.Road, c.Binding.AKName, c.Clear = message.RoadEK, append([]byte{0, 0x0b}, make([]byte, 32)...), nil
			c.Credential = &message.Credential{IDObject: make([]byte, 68), EncryptedSecret: make([]byte, 256)}
		})
	add("node-with-the-other-roads-secret", "The challenge is for the road of the AK certificate, with a credential in place of the secret.", "message-encoding",
		func(n *vector.Node, _ *message.Challenge) {
			n.Challenge = forge.Replaced(1, forge.With(forge.TLV(0xa1, forge.TLV(4, make([]byte, 68)), forge.TLV(4, make([]byte, 256)))...))(n.Challenge)
		})
	add("node-with-a-short-secret", "The challenge's secret has 31 bytes.", "message-encoding",
		func(n *vector.Node, _ *message.Challenge) {
			n.Challenge = forge.Replaced(1, forge.With(forge.TLV(0x80, make([]byte, 31))...))(n.Challenge)
		})
	add("node-challenge-version", "The binding in the challenge has version 2.", "message-version",
		func(n *vector.Node, _ *message.Challenge) {
			n.Challenge = forge.Replaced(0, forge.Replaced(0, forge.With(2, 1, 2)))(n.Challenge)
		})
	add("node-challenge-with-bytes-behind", "A byte stands behind the challenge.", "message-encoding",
		func(n *vector.Node, _ *message.Challenge) {
			n.Challenge = append(append([]byte(nil), n.Challenge...), 0)
		})
	add("node-certifies-another-key", "The key to certify is not that of the request.", "key-mismatch",
		func(n *vector.Node, _ *message.Challenge) { n.Key = forge.PKCS8(w.TLS2) })
}
