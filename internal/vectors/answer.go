package main

import (
	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/tpm"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/vector"
)

// answersMixed are answers in which every signature, secret and field fits the
// others, made for something else than what they are used for.
func (w *world) answersMixed() {
	add := func(name, what, expect string, object *csr.Request, env *vector.Environment) {
		w.add(&vector.Vector{Name: name, Class: "binding", Level: vector.LevelVerify, Description: what,
			Expect: expect, Package: vector.PackageAttest, Object: object, Environment: env})
	}
	add("answer-for-another-cluster", "The node answered a challenge of another cluster that has the same challenge keys.", "binding-cluster",
		w.forge(w.akP256, join{cluster: "other"}).answer(w), nil)
	add("answer-under-a-retired-key", "The challenge was made with a key that is retired.", "ring-key",
		w.forge(w.akP256, join{ring: w.retired}).answer(w), nil)
	add("answer-under-a-later-key", "The challenge was made with a key that is not active yet.", "ring-key",
		w.forge(w.akP256, join{ring: w.later}).answer(w), nil)
	add("answer-with-a-window-of-two-hours", "The challenge itself gave a window of two hours.", "binding-window",
		w.forge(w.akP256, join{window: 2 * attest.MaxWindow}).answer(w), nil)

	// The proof is for another signer, requester, lifetime or request.
	f := w.forge(w.akP256, join{})
	f.b.SignerName = csr.SignerServingTPM
	add("answer-for-another-signer", "The node answered a challenge for the serving signer and files under the client one.", "binding-signer", f.resigned(w), nil)
	f = w.forge(w.akP256, join{})
	f.b.Requester = "system:bootstrap:other1"
	add("answer-of-another-requester", "The node answered a challenge that was given to another requester.", "binding-requester", f.resigned(w), nil)
	f = w.forge(w.akP256, join{})
	f.b.ExpirationSeconds = 86400
	add("answer-for-another-lifetime", "The node answered a challenge for a longer lifetime.", "binding-expiration", f.resigned(w), nil)

	second := must(csr.Create(csr.PurposeClient, w.tls, otherNode, csr.CreateOptions{}))
	add("answer-for-another-node-name", "The evidence stands behind a request for another node name, which the machine may not be either.", "binding-request",
		w.moved(w.good, second), nil)
	rekeyed := must(csr.Create(csr.PurposeClient, w.tls2, nodeName, csr.CreateOptions{ProviderID: providerID}))
	add("answer-for-another-key", "The evidence stands behind a request with another key.", "binding-request", w.moved(w.good, rekeyed), nil)
	again := repeatable{w.tls.(repeatable).Signer}
	plain := must(csr.Create(csr.PurposeClient, again, nodeName, csr.CreateOptions{}))
	add("answer-for-another-request-of-the-key", "The evidence stands behind another request with the same key and name.", "binding-request", w.moved(w.good, plain), nil)

	f = w.forge(w.akOther, join{})
	own := w.forge(w.akP256, join{}).b
	_, qd := f.secrets(own)
	f.b, f.attest.ExtraData = own, qd
	add("answer-by-another-machine", "Another machine's AK, with its own certificate, answers the node's challenge.", "binding-machine-key", f.answer(w), nil)
	f = w.forge(w.akP256, join{})
	f.attest.QualifiedSigner = tpm.QualifiedNameOfPrimary(tpm2.TPMRHEndorsement, w.akOther.public.Name())
	f.ak = &softAK{private: w.akOther.private, public: f.ak.public, chain: f.ak.chain}
	add("answer-signed-by-another-machine", "Another machine's AK signs, under the node's AK public area and certificate.", "signature", f.answer(w), nil)

	add("second-machine-for-a-name", "Another machine, with an AK certificate of the same issuer, asks for the name of a node that has one.", "not-a-member",
		w.forge(w.akOther, join{}).answer(w), nil)
	add("second-name-for-a-machine", "The machine asks for a second node name, which belongs to another machine.", "not-a-member",
		w.forge(w.akP256, join{request: second, key: w.tls}).answer(w), nil)
}

// resigned makes the statement follow a changed binding.
func (f *forgery) resigned(w *world) *csr.Request {
	_, f.attest.ExtraData = f.secrets(f.b)
	return f.answer(w)
}

// moved puts the evidence of an object behind another request.
func (w *world) moved(object *csr.Request, request []byte) *csr.Request {
	p := takeApart(object)
	p.bundle.Request = request
	return p.together()
}
