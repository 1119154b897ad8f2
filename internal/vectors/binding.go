package main

import (
	"crypto"
	"slices"
	"time"

	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/forge"
	"github.com/nodeattest/nodeattest/internal/vector"
)

// filed is an answer or hello that is filed where it does not belong: its change, the
// environment that it meets, and what its refusal has beside the check.
type filed struct {
	change func(*forge.Parts)
	env    *vector.Environment
	inCSR  bool     // the check is one of package csr
	also   []string // as in vector.Vector
	retry  bool
}

// addFiled keeps attacks on a good object.
func (w *world) addFiled(good *csr.Request, table []row[filed]) {
	for _, a := range table {
		p := forge.TakeApart(good)
		if a.in.change != nil {
			a.in.change(p)
		}
		v := w.refuse(a.name, a.what, a.expect, p, a.in.env)
		v.Package, v.Also, v.Retry = packageOf(a.in.inCSR), a.in.also, a.in.retry
	}
}

func (w *world) bindings() {
	for _, a := range slices.Concat(forge.EchoAttacks(), forge.FrameAttacks()) {
		w.addFiled(w.good, []row[filed]{{a.Name, a.What, a.Expect, filed{change: a.Change, inCSR: a.InCSR}}})
	}
	w.addFiled(w.good, append(w.circumstances(), w.timeAttacks()...))
}

func packageOf(inCSR bool) string {
	if inCSR {
		return vector.PackageCSR
	}
	return vector.PackageAttest
}

// circumstances file the good answer, untouched, where it does not belong.
func (w *world) circumstances() []row[filed] {
	hour := int32(3600)
	member := func(machine, id string) *vector.Environment {
		return &vector.Environment{Members: []vector.Member{{NodeName: forge.NodeName, Machine: forge.Identity(machine), ProviderID: id}}}
	}
	ring := func(change func(*vector.RingKey)) *vector.Environment {
		k := ringKey(w.Ring)
		change(&k)
		return &vector.Environment{RingKeys: []vector.RingKey{k}}
	}
	return []row[filed]{
		{"filed-by-another-requester", "Another bootstrap token files the answer.", "binding-requester",
			filed{change: func(p *forge.Parts) { p.Object.Spec.Username = "system:bootstrap:mallor" }}},
		{"filed-with-another-lifetime", "The answer is filed with an expirationSeconds that the challenge was not for.", "binding-expiration",
			filed{change: func(p *forge.Parts) { p.Object.Spec.ExpirationSeconds = &hour }}},
		{"filed-in-another-cluster", "The verifier serves another cluster, with the same challenge keys.", "binding-cluster",
			filed{env: &vector.Environment{ClusterIDs: []string{"other"}}}},
		{"ring-key-retired", "The challenge's key was retired at this very moment.", "ring-key",
			filed{env: ring(func(k *vector.RingKey) { k.RetiredAt = w.Now })}},
		{"ring-key-of-the-future", "The challenge's key becomes active in an hour.", "ring-key",
			filed{env: ring(func(k *vector.RingKey) { k.ActiveAt = w.Now.Add(time.Hour) })}},
		{"ring-key-active-in-a-moment", "The challenge's key becomes active in 30 seconds: a replica's clock may be ahead.", "ring-key",
			filed{retry: true, env: ring(func(k *vector.RingKey) { k.ActiveAt = w.Now.Add(30 * time.Second) })}},
		{"ring-of-another-control-plane", "The verifier has other challenge keys.", "ring-key",
			filed{env: ring(func(k *vector.RingKey) { k.ID, k.Secret = "0123456789abcdef", forge.Derive("another ring", 32) })}},
		{"ring-key-with-another-secret", "The verifier has another secret under the same identifier.", "qualifying-data",
			filed{env: ring(func(k *vector.RingKey) { k.Secret = forge.Derive("another secret", 32) })}},
		{"ring-stale", "The verifier has not read its challenge keys for over a minute.", "ring-stale",
			filed{retry: true, env: &vector.Environment{RingReadAt: w.Now.Add(-61 * time.Second)}}},
		{"name-given-to-another-machine", "The node's name has been given to another machine since the challenge.", "not-a-member",
			filed{env: member("machine-2", providerID)}},
		{"machine-gone-from-membership", "The machine of this AK certificate is no member any more.", "not-a-member",
			filed{env: &vector.Environment{Members: []vector.Member{}}}},
		{"machine-gone-from-inventory", "The machine is gone from the inventory.", "machine-unknown",
			filed{inCSR: true, env: &vector.Environment{Machines: []vector.Machine{}}}},
		{"provider-id-of-another-machine", "The authorizer vouches for another provider ID than the one claimed.", "provider-id",
			filed{env: member("machine-1", "sim://vectors/other")}},
		{"provider-id-not-vouched-for", "The authorizer vouches for no provider ID, and the request claims one.", "provider-id",
			filed{env: member("machine-1", "")}},
		{"issuer-no-longer-trusted", "The AK's issuer is not trusted any more, another one is.", "certificate-chain",
			filed{env: trusting(w.Stranger.Root().Raw)}},
		{"resident-key-demanded", "Keys must live in the TPM, and this one is in software and says so.", "key-residency",
			filed{env: &vector.Environment{RequireTPMResident: true}}},
	}
}

// timeAttacks file the good answer at another time.
func (w *world) timeAttacks() []row[filed] {
	issued := w.Now.Add(-time.Minute)
	at := func(created time.Duration) func(*forge.Parts) {
		return func(p *forge.Parts) { p.Object.Metadata.CreationTimestamp = issued.Add(created) }
	}
	now := func(d time.Duration) *vector.Environment { return &vector.Environment{Now: issued.Add(d)} }
	return []row[filed]{
		{"answer-before-its-challenge", "The answer was created 61 seconds before its challenge.", "answer-early",
			filed{change: at(-61 * time.Second)}},
		{"answer-filed-after-its-window", "The answer is filed again a second after its window.", "answer-late",
			filed{change: at(601 * time.Second), env: now(602 * time.Second)}},
		{"old-request-filed-again", "The answer is filed again a day later.", "answer-late",
			filed{change: at(24 * time.Hour), env: now(24*time.Hour + time.Second)}},
		{"answer-left-lying", "The answer was filed in time and is looked at more than an hour later.", "answer-old",
			filed{change: at(0), env: now(time.Hour + time.Second)}},
		{"answer-from-the-future", "The answer was created a second from now, by the API server's clock.", "request-in-the-future",
			filed{retry: true, change: at(61 * time.Second)}},
	}
}

// answersMixed are answers in which every signature, secret and field fits the
// others, made for something else than what they are used for.
func (w *world) answersMixed() {
	for _, a := range append(forge.BoundAttacks(), forge.StolenAttacks()...) {
		f := w.Forge(w.AKP256, forge.Join{})
		a.Change(f)
		w.refuse(a.Name, a.What, a.Expect, f, nil)
	}
	request := func(key crypto.Signer, node, id string) []byte {
		return forge.Must(csr.Create(csr.PurposeClient, key, node, csr.CreateOptions{ProviderID: id}))
	}
	second := request(w.TLS, forge.OtherNode, "")
	for _, a := range []row[[]byte]{
		{"answer-for-another-node-name", "The evidence stands behind a request for another node name, which the machine may not be either.", "binding-request", second},
		{"answer-for-another-key", "The evidence stands behind a request with another key.", "binding-request", request(w.TLS2, forge.NodeName, providerID)},
		{"answer-for-another-request-of-the-key", "The evidence stands behind another request with the same key and name.", "binding-request",
			request(w.TLS, forge.NodeName, "")},
	} {
		p := forge.TakeApart(w.good)
		p.Bundle.Request = a.in
		w.refuse(a.name, a.what, a.expect, p, nil)
	}
	w.refuse("second-machine-for-a-name", "Another machine, with an AK certificate of the same issuer, asks for the name of a node that has one.", "not-a-member",
		w.Forge(w.AKOther, forge.Join{}), nil)
	w.refuse("second-name-for-a-machine", "The machine asks for a second node name, which belongs to another machine.", "not-a-member",
		w.Forge(w.AKP256, forge.Join{Request: second, Key: w.TLS}), nil)
}
