package main

import (
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/vector"
	"github.com/nodeattest/nodeattest/oid"
)

// answerAttack is one change to the good answer.
type answerAttack struct {
	name, what, expect string
	change             func(*parts)
	env                *vector.Environment
	pkg                string // attest unless given
	also               []string
	retry              bool
}

func (w *world) bindings() {
	for _, table := range [][]answerAttack{echoAttacks(), frameAttacks(), w.circumstances(), w.timeAttacks()} {
		for _, a := range table {
			w.addAnswerAttack("binding", &a)
		}
	}
}

func (w *world) addAnswerAttack(class string, a *answerAttack) {
	p := takeApart(w.good)
	a.change(p)
	v := &vector.Vector{Name: a.name, Class: class, Level: vector.LevelVerify, Description: a.what, Expect: a.expect,
		Package: a.pkg, Also: a.also, Retry: a.retry, Environment: a.env, Object: p.together()}
	if v.Package == "" {
		v.Package = vector.PackageAttest
	}
	w.add(v)
}

// echoAttacks change one field of the binding in the proof, and nothing else.
func echoAttacks() []answerAttack {
	akName := append([]byte{0, 0x0b}, make([]byte, 32)...)
	field := func(i int, how func([]byte) []byte) func(*parts) {
		return func(p *parts) { p.onProof = replaced(0, replaced(i, how)) }
	}
	return []answerAttack{
		{name: "version", what: "The echoed binding has version 2.", expect: "message-version", change: field(0, with(2, 1, 2))},
		{name: "road", what: "The echoed binding is for the road of the EK certificate.", expect: "binding-road",
			change: func(p *parts) { p.binding.Road, p.binding.AKName = attest.RoadEK, akName }},
		{name: "road-unknown", what: "The echoed binding is for a road 2.", expect: "message-encoding", change: field(1, with(0x0a, 1, 2))},
		{name: "roads-mixed-ak-name", what: "The echoed binding has an AK Name, which only the other road has.", expect: "message-encoding",
			change: field(11, with(tlv(4, akName)...))},
		{name: "roads-mixed-ek-public", what: "The proof has an EK beside the AK, which only the other road has.", expect: "message-encoding",
			change: func(p *parts) {
				p.onProof = edited(func(e [][]byte) [][]byte { return [][]byte{e[0], tlv(0x80, p.proof.AKPublic), e[1]} })
			}},
		{name: "key-id-unknown", what: "The echoed binding names a challenge key that nobody has.", expect: "ring-key",
			change: func(p *parts) { p.binding.KeyID[0] ^= 1 }},
		{name: "nonce", what: "The echoed binding has another nonce.", expect: "qualifying-data", change: func(p *parts) { p.binding.Nonce[0] ^= 1 }},
		{name: "nonce-short", what: "The echoed binding has a nonce of 15 bytes.", expect: "message-encoding", change: field(3, with(tlv(4, make([]byte, 15))...))},
		{name: "issued-at", what: "The echoed binding was issued a second later.", expect: "qualifying-data", change: func(p *parts) { p.binding.IssuedAt++ }},
		{name: "not-after", what: "The echoed window ends a second later.", expect: "qualifying-data", change: func(p *parts) { p.binding.NotAfter++ }},
		{name: "not-after-stretched", what: "The echoed window is stretched to an hour and a second.", expect: "binding-window",
			change: func(p *parts) { p.binding.NotAfter = p.binding.IssuedAt + 3601 }},
		{name: "not-after-stretched-within-an-hour", what: "The echoed window is stretched to an hour.", expect: "qualifying-data",
			change: func(p *parts) { p.binding.NotAfter = p.binding.IssuedAt + 3600 }},
		{name: "not-after-before-issued-at", what: "The echoed window ends before it begins.", expect: "binding-window",
			change: func(p *parts) { p.binding.NotAfter = p.binding.IssuedAt - 1 }},
		{name: "cluster", what: "The echoed binding names another cluster.", expect: "binding-cluster", change: func(p *parts) { p.binding.ClusterID = "other" }},
		{name: "signer", what: "The echoed binding names another signer.", expect: "binding-signer", change: func(p *parts) { p.binding.SignerName = csr.SignerServingTPM }},
		{name: "requester", what: "The echoed binding names another requester.", expect: "binding-requester", change: func(p *parts) { p.binding.Requester = "system:bootstrap:mallor" }},
		{name: "requester-empty", what: "The echoed binding names no requester.", expect: "binding-requester", change: func(p *parts) { p.binding.Requester = "" }},
		{name: "expiration", what: "The echoed binding is for another lifetime.", expect: "binding-expiration", change: func(p *parts) { p.binding.ExpirationSeconds = 600 }},
		{name: "machine-key", what: "The echoed binding is for another machine's key.", expect: "binding-machine-key", change: func(p *parts) { p.binding.MachineKey[0] ^= 1 }},
		{name: "request-hash", what: "The echoed binding is for another request.", expect: "binding-request", change: func(p *parts) { p.binding.RequestHash[31] ^= 1 }},
		{name: "field-behind", what: "A field stands behind the last one of the binding.", expect: "message-encoding",
			change: func(p *parts) { p.onProof = replaced(0, appended(5, 0)) }},
	}
}

// frameAttacks change what stands around the binding.
func frameAttacks() []answerAttack {
	return []answerAttack{
		{name: "statements-swapped", what: "Proof and certify statement change places.", expect: "bundle-statements",
			change: func(p *parts) {
				p.onEvidence = replaced(0, edited(func(e [][]byte) [][]byte { return [][]byte{e[1], e[0]} }))
			}},
		{name: "proof-missing", what: "There is a certify statement and no proof.", expect: "bundle-statements",
			change: func(p *parts) {
				p.onEvidence = replaced(0, edited(func(e [][]byte) [][]byte { return e[:1] }))
			}},
		{name: "proof-twice", what: "The proof stands there twice.", expect: "bundle-statements",
			change: func(p *parts) {
				p.onEvidence = replaced(0, edited(func(e [][]byte) [][]byte { return append(e, e[1]) }))
			}},
		{name: "hello-as-answer", what: "A hello is filed as an answer.", expect: "bundle-statements",
			change: func(p *parts) {
				p.evidence.Statements = []attest.AttestationStatement{{Type: oid.NodeAttestHello, Stmt: must((&attest.Hello{
					ClusterID: clusterID, TargetSigner: csr.SignerClientTPM, AKPublic: p.proof.AKPublic}).Marshal())}}
			}},
		{name: "unknown-statement", what: "A third statement of a type that nobody knows stands behind the two.", expect: "bundle-statements",
			change: func(p *parts) {
				p.onEvidence = replaced(0, appended(tlv(0x30, []byte{6, 3, 0x88, 0x37, 3}, []byte{5, 0})...))
			}},
		{name: "evidence-missing", what: "The answer is a request without evidence.", expect: "attestation-provider", pkg: vector.PackageCSR,
			change: func(p *parts) { p.plain = true }},
		{name: "evidence-of-the-insecure-provider", what: "The evidence is filed as the insecure provider's.", expect: "attestation-provider", pkg: vector.PackageCSR,
			change: func(p *parts) { p.bundle.Provider = "insecure/v1" }},
		{name: "evidence-of-another-version", what: "The provider block says tpm/v2, which this verifier does not speak.", expect: "provider",
			change: func(p *parts) { p.bundle.Provider = "tpm/v2" }},
		{name: "ak-public-of-another-key", what: "The proof holds the public area of the TLS key in place of the AK's.", expect: "ak-mismatch",
			change: func(p *parts) { p.proof.AKPublic = p.certify.Public }},
		{name: "certified-key-is-the-ak-public", what: "The AK's public area stands in place of the certified key's.", expect: "certified-name",
			change: func(p *parts) { p.certify.Public = p.proof.AKPublic }},
		{name: "proof-with-bytes-behind", what: "Bytes stand behind the fields of the proof.", expect: "message-encoding",
			change: func(p *parts) { p.onProof = appended(4, 0) }},
		{name: "binding-with-long-length", what: "The length of the binding is in BER's long form, which DER does not allow.", expect: "message-encoding",
			change: func(p *parts) { p.onProof = replaced(0, longLength) }},
		{name: "evidence-with-bytes-behind", what: "A byte stands behind the evidence.", expect: "message-encoding",
			change: func(p *parts) { p.onEvidence = behind(0) }},
		{name: "evidence-with-indefinite-length", what: "The evidence has the indefinite length of BER.", expect: "message-encoding",
			change: func(p *parts) { p.onEvidence = indefinite }},
		{name: "evidence-with-huge-length", what: "The evidence says that it is 4 GiB long.", expect: "message-encoding",
			change: func(p *parts) { p.onEvidence = hugeLength }},
		{name: "certify-with-huge-length", what: "The certify statement says that it is 4 GiB long.", expect: "message-encoding",
			change: func(p *parts) {
				p.onEvidence = replaced(0, replaced(0, replaced(1, hugeLength)))
			}},
		{name: "certificates-empty", what: "The list of certificates is there and empty, which DER writes as absent.", expect: "message-encoding",
			change: func(p *parts) { p.onEvidence = replaced(1, with(0x30, 0)) }},
	}
}

// circumstances file the good answer, untouched, where it does not belong.
func (w *world) circumstances() []answerAttack {
	nothing := func(*parts) {}
	hour := int32(3600)
	e := &w.set.Environment
	taken := []vector.Member{{NodeName: nodeName, Machine: identity("machine-2"), ProviderID: providerID}}
	retiredRing := []vector.RingKey{w.ring}
	retiredRing[0].RetiredAt = w.now
	laterRing := []vector.RingKey{w.ring}
	laterRing[0].ActiveAt = w.now.Add(time.Hour)
	soon := []vector.RingKey{w.ring}
	soon[0].ActiveAt = w.now.Add(30 * time.Second)
	return []answerAttack{
		{name: "filed-by-another-requester", what: "Another bootstrap token files the answer.", expect: "binding-requester",
			change: func(p *parts) { p.object.Spec.Username = "system:bootstrap:mallor" }},
		{name: "filed-with-another-lifetime", what: "The answer is filed with an expirationSeconds that the challenge was not for.", expect: "binding-expiration",
			change: func(p *parts) { p.object.Spec.ExpirationSeconds = &hour }},
		{name: "filed-in-another-cluster", what: "The verifier serves another cluster, with the same challenge keys.", expect: "binding-cluster",
			change: nothing, env: &vector.Environment{ClusterIDs: []string{"other"}}},
		{name: "ring-key-retired", what: "The challenge's key was retired at this very moment.", expect: "ring-key", change: nothing, env: &vector.Environment{RingKeys: retiredRing}},
		{name: "ring-key-of-the-future", what: "The challenge's key becomes active in an hour.", expect: "ring-key", change: nothing, env: &vector.Environment{RingKeys: laterRing}},
		{name: "ring-key-active-in-a-moment", what: "The challenge's key becomes active in 30 seconds: a replica's clock may be ahead.", expect: "ring-key", retry: true,
			change: nothing, env: &vector.Environment{RingKeys: soon}},
		{name: "ring-of-another-control-plane", what: "The verifier has other challenge keys.", expect: "ring-key", change: nothing,
			env: &vector.Environment{RingKeys: []vector.RingKey{{ID: "0123456789abcdef", Secret: derive("another ring", 32), ActiveAt: w.now.Add(-time.Hour)}}}},
		{name: "ring-key-with-another-secret", what: "The verifier has another secret under the same identifier.", expect: "qualifying-data", change: nothing,
			env: &vector.Environment{RingKeys: []vector.RingKey{{ID: w.ring.ID, Secret: derive("another secret", 32), ActiveAt: w.now.Add(-time.Hour)}}}},
		{name: "ring-stale", what: "The verifier has not read its challenge keys for over a minute.", expect: "ring-stale", retry: true, change: nothing,
			env: &vector.Environment{RingReadAt: w.now.Add(-61 * time.Second)}},
		{name: "name-given-to-another-machine", what: "The node's name has been given to another machine since the challenge.", expect: "not-a-member",
			change: nothing, env: &vector.Environment{Members: taken}},
		{name: "machine-gone-from-membership", what: "The machine of this AK certificate is no member any more.", expect: "not-a-member",
			change: nothing, env: &vector.Environment{Members: []vector.Member{}}},
		{name: "machine-gone-from-inventory", what: "The machine is gone from the inventory.", expect: "machine-unknown", pkg: vector.PackageCSR,
			change: nothing, env: &vector.Environment{Machines: []vector.Machine{}}},
		{name: "provider-id-of-another-machine", what: "The authorizer vouches for another provider ID than the one claimed.", expect: "provider-id",
			change: nothing, env: &vector.Environment{Members: []vector.Member{{NodeName: nodeName, Machine: identity("machine-1"), ProviderID: "sim://vectors/other"}}}},
		{name: "provider-id-not-vouched-for", what: "The authorizer vouches for no provider ID, and the request claims one.", expect: "provider-id",
			change: nothing, env: &vector.Environment{Members: []vector.Member{{NodeName: nodeName, Machine: identity("machine-1")}}}},
		{name: "issuer-no-longer-trusted", what: "The AK's issuer is not trusted any more, another one is.", expect: "certificate-chain",
			change: nothing, env: &vector.Environment{Issuers: []vector.Issuer{{Roots: [][]byte{w.stranger.Root().Raw}, Profile: e.Issuers[0].Profile}}}},
		{name: "resident-key-demanded", what: "Keys must live in the TPM, and this one is in software and says so.", expect: "key-residency",
			change: nothing, env: &vector.Environment{RequireTPMResident: true}},
	}
}

// timeAttacks file the good answer at another time.
func (w *world) timeAttacks() []answerAttack {
	issued := w.now.Add(-time.Minute)
	at := func(created time.Duration) func(*parts) {
		return func(p *parts) { p.object.Metadata.CreationTimestamp = issued.Add(created) }
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
