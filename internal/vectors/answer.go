package main

import (
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/forge"
	"github.com/nodeattest/nodeattest/internal/vector"
)

// answersMixed are answers in which every signature, secret and field fits the
// others, made for something else than what they are used for.
func (w *world) answersMixed() {
	add := func(name, what, expect string, object *csr.Request, env *vector.Environment) {
		w.add(&vector.Vector{Name: name, Class: "binding", Level: vector.LevelVerify, Description: what,
			Expect: expect, Package: vector.PackageAttest, Object: object, Environment: env})
	}
	for _, a := range forge.BoundAttacks() {
		f := w.Forge(w.AKP256, forge.Join{})
		a.Change(f)
		add(a.Name, a.What, a.Expect, f.Answer(), nil)
	}

	second := forge.Must(csr.Create(csr.PurposeClient, w.TLS, forge.OtherNode, csr.CreateOptions{}))
	add("answer-for-another-node-name", "The evidence stands behind a request for another node name, which the machine may not be either.", "binding-request",
		w.moved(w.good, second), nil)
	rekeyed := forge.Must(csr.Create(csr.PurposeClient, w.TLS2, forge.NodeName, csr.CreateOptions{ProviderID: providerID}))
	add("answer-for-another-key", "The evidence stands behind a request with another key.", "binding-request", w.moved(w.good, rekeyed), nil)
	again := forge.Repeatable{Signer: w.TLS.(forge.Repeatable).Signer}
	plain := forge.Must(csr.Create(csr.PurposeClient, again, forge.NodeName, csr.CreateOptions{}))
	add("answer-for-another-request-of-the-key", "The evidence stands behind another request with the same key and name.", "binding-request", w.moved(w.good, plain), nil)

	for _, a := range forge.StolenAttacks() {
		f := w.Forge(w.AKP256, forge.Join{})
		a.Change(f)
		add(a.Name, a.What, a.Expect, f.Answer(), nil)
	}

	add("second-machine-for-a-name", "Another machine, with an AK certificate of the same issuer, asks for the name of a node that has one.", "not-a-member",
		w.Forge(w.AKOther, forge.Join{}).Answer(), nil)
	add("second-name-for-a-machine", "The machine asks for a second node name, which belongs to another machine.", "not-a-member",
		w.Forge(w.AKP256, forge.Join{Request: second, Key: w.TLS}).Answer(), nil)
}

// moved puts the evidence of an object behind another request.
func (w *world) moved(object *csr.Request, request []byte) *csr.Request {
	p := forge.TakeApart(object)
	p.Bundle.Request = request
	return p.Together()
}
