package main

import (
	"encoding/hex"
	"slices"
	"time"

	"github.com/nodeattest/nodeattest/internal/forge"
	"github.com/nodeattest/nodeattest/internal/vector"
)

// answerAttack is one change to the good answer.
type answerAttack struct {
	name, what, expect string
	change             func(*forge.Parts)
	env                *vector.Environment
	pkg                string // attest unless given
	also               []string
	retry              bool
}

func (w *world) bindings() {
	for _, a := range slices.Concat(forge.EchoAttacks(), forge.FrameAttacks()) {
		w.addAnswerAttack("binding", &answerAttack{name: a.Name, what: a.What, expect: a.Expect, change: a.Change, pkg: packageOf(a.InCSR)})
	}
	for _, a := range slices.Concat(w.circumstances(), w.timeAttacks()) {
		w.addAnswerAttack("binding", &a)
	}
}

func packageOf(inCSR bool) string {
	if inCSR {
		return vector.PackageCSR
	}
	return vector.PackageAttest
}

func (w *world) addAnswerAttack(class string, a *answerAttack) {
	p := forge.TakeApart(w.good)
	a.change(p)
	v := &vector.Vector{Name: a.name, Class: class, Level: vector.LevelVerify, Description: a.what, Expect: a.expect,
		Package: a.pkg, Also: a.also, Retry: a.retry, Environment: a.env, Object: p.Together()}
	if v.Package == "" {
		v.Package = vector.PackageAttest
	}
	w.add(v)
}

// circumstances file the good answer, untouched, where it does not belong.
func (w *world) circumstances() []answerAttack {
	nothing := func(*forge.Parts) {}
	hour := int32(3600)
	e := &w.set.Environment
	taken := []vector.Member{{NodeName: forge.NodeName, Machine: forge.Identity("machine-2"), ProviderID: providerID}}
	retiredRing := []vector.RingKey{ringKey(w.Ring)}
	retiredRing[0].RetiredAt = w.Now
	laterRing := []vector.RingKey{ringKey(w.Ring)}
	laterRing[0].ActiveAt = w.Now.Add(time.Hour)
	soon := []vector.RingKey{ringKey(w.Ring)}
	soon[0].ActiveAt = w.Now.Add(30 * time.Second)
	return []answerAttack{
		{name: "filed-by-another-requester", what: "Another bootstrap token files the answer.", expect: "binding-requester",
			change: func(p *forge.Parts) { p.Object.Spec.Username = "system:bootstrap:mallor" }},
		{name: "filed-with-another-lifetime", what: "The answer is filed with an expirationSeconds that the challenge was not for.", expect: "binding-expiration",
			change: func(p *forge.Parts) { p.Object.Spec.ExpirationSeconds = &hour }},
		{name: "filed-in-another-cluster", what: "The verifier serves another cluster, with the same challenge keys.", expect: "binding-cluster",
			change: nothing, env: &vector.Environment{ClusterIDs: []string{"other"}}},
		{name: "ring-key-retired", what: "The challenge's key was retired at this very moment.", expect: "ring-key", change: nothing, env: &vector.Environment{RingKeys: retiredRing}},
		{name: "ring-key-of-the-future", what: "The challenge's key becomes active in an hour.", expect: "ring-key", change: nothing, env: &vector.Environment{RingKeys: laterRing}},
		{name: "ring-key-active-in-a-moment", what: "The challenge's key becomes active in 30 seconds: a replica's clock may be ahead.", expect: "ring-key", retry: true,
			change: nothing, env: &vector.Environment{RingKeys: soon}},
		{name: "ring-of-another-control-plane", what: "The verifier has other challenge keys.", expect: "ring-key", change: nothing,
			env: &vector.Environment{RingKeys: []vector.RingKey{{ID: "0123456789abcdef", Secret: forge.Derive("another ring", 32), ActiveAt: w.Now.Add(-time.Hour)}}}},
		{name: "ring-key-with-another-secret", what: "The verifier has another secret under the same identifier.", expect: "qualifying-data", change: nothing,
			env: &vector.Environment{RingKeys: []vector.RingKey{{ID: hex.EncodeToString(w.Ring.ID[:]), Secret: forge.Derive("another secret", 32), ActiveAt: w.Now.Add(-time.Hour)}}}},
		{name: "ring-stale", what: "The verifier has not read its challenge keys for over a minute.", expect: "ring-stale", retry: true, change: nothing,
			env: &vector.Environment{RingReadAt: w.Now.Add(-61 * time.Second)}},
		{name: "name-given-to-another-machine", what: "The node's name has been given to another machine since the challenge.", expect: "not-a-member",
			change: nothing, env: &vector.Environment{Members: taken}},
		{name: "machine-gone-from-membership", what: "The machine of this AK certificate is no member any more.", expect: "not-a-member",
			change: nothing, env: &vector.Environment{Members: []vector.Member{}}},
		{name: "machine-gone-from-inventory", what: "The machine is gone from the inventory.", expect: "machine-unknown", pkg: vector.PackageCSR,
			change: nothing, env: &vector.Environment{Machines: []vector.Machine{}}},
		{name: "provider-id-of-another-machine", what: "The authorizer vouches for another provider ID than the one claimed.", expect: "provider-id",
			change: nothing, env: &vector.Environment{Members: []vector.Member{{NodeName: forge.NodeName, Machine: forge.Identity("machine-1"), ProviderID: "sim://vectors/other"}}}},
		{name: "provider-id-not-vouched-for", what: "The authorizer vouches for no provider ID, and the request claims one.", expect: "provider-id",
			change: nothing, env: &vector.Environment{Members: []vector.Member{{NodeName: forge.NodeName, Machine: forge.Identity("machine-1")}}}},
		{name: "issuer-no-longer-trusted", what: "The AK's issuer is not trusted any more, another one is.", expect: "certificate-chain",
			change: nothing, env: &vector.Environment{Issuers: []vector.Issuer{{Roots: [][]byte{w.Stranger.Root().Raw}, Profile: e.Issuers[0].Profile}}}},
		{name: "resident-key-demanded", what: "Keys must live in the TPM, and this one is in software and says so.", expect: "key-residency",
			change: nothing, env: &vector.Environment{RequireTPMResident: true}},
	}
}

// timeAttacks file the good answer at another time.
func (w *world) timeAttacks() []answerAttack {
	issued := w.Now.Add(-time.Minute)
	at := func(created time.Duration) func(*forge.Parts) {
		return func(p *forge.Parts) { p.Object.Metadata.CreationTimestamp = issued.Add(created) }
	}
	now := func(d time.Duration) *vector.Environment { return &vector.Environment{Now: issued.Add(d)} }
	return []answerAttack{
		{name: "answer-before-its-challenge", what: "The answer was created 61 seconds before its challenge.", expect: "answer-early", change: at(-61 * time.Second)},
		{name: "answer-filed-after-its-window", what: "The answer is filed again a second after its window.", expect: "answer-late",
			change: at(601 * time.Second), env: now(602 * time.Second)},
		{name: "old-request-filed-again", what: "The answer is filed again a day later.", expect: "answer-late", change: at(24 * time.Hour), env: now(24*time.Hour + time.Second)},
		{name: "answer-left-lying", what: "The answer was filed in time and is looked at more than an hour later.", expect: "answer-old",
			change: at(0), env: now(time.Hour + time.Second)},
		{name: "answer-from-the-future", what: "The answer was created a second from now, by the API server's clock.", expect: "request-in-the-future", retry: true,
			change: at(61 * time.Second)},
	}
}
