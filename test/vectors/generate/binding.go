package main

import (
	"cmp"
	"crypto"
	"slices"
	"time"

	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/message"
	"github.com/nodeattest/nodeattest/test/vectors/forge"
	"github.com/nodeattest/nodeattest/test/vectors/vector"
)

// filed is an answer or hello that is filed where it does not belong: its change, and the
// environment that it meets.
type filed struct {
	change func(*forge.Parts)
	env    *vector.Environment
}

// refuseFiled adds an attack on a good object.
func refuseFiled[F any](w *world, good *csr.Request, a forge.Attack[F], how filed) {
	p := forge.TakeApart(good)
	if how.change != nil {
		how.change(p)
	}
	v := w.refuseAs(a.Name, a.What, a.Expect, p, how.env)
	v.Also, v.Retry = a.Also, a.Retry
}

func (w *world) bindings() {
	for _, a := range slices.Concat(forge.EchoAttacks(), forge.FrameAttacks()) {
		refuseFiled(w, w.good, a, filed{change: a.Change})
	}
	for _, a := range append(w.circumstances(), w.timeAttacks()...) {
		refuseFiled(w, w.good, a, a.Change)
	}
}

// circumstances file the good answer, untouched, where it does not belong.
func (w *world) circumstances() []forge.Attack[filed] {
	hour := int32(3600)
	member := func(machine, id string) *vector.Environment {
		return &vector.Environment{Members: []vector.Member{{NodeName: forge.NodeName, Machine: forge.Identity(machine), ProviderID: id}}}
	}
	ring := func(change func(*vector.RingKey)) *vector.Environment {
		k := ringKey(w.Ring)
		change(&k)
		return &vector.Environment{RingKeys: []vector.RingKey{k}}
	}
	return listed("circumstances", map[string]filed{
		"filed-by-another-requester":     {change: func(p *forge.Parts) { p.Object.User.Username = "system:bootstrap:mallor" }},
		"filed-with-another-lifetime":    {change: func(p *forge.Parts) { p.Object.Spec.ExpirationSeconds = &hour }},
		"filed-in-another-cluster":       {env: &vector.Environment{ClusterIDs: []string{"other"}}},
		"ring-key-retired":               {env: ring(func(k *vector.RingKey) { k.RetiredAt = w.Now })},
		"ring-key-of-the-future":         {env: ring(func(k *vector.RingKey) { k.ActiveAt = w.Now.Add(time.Hour) })},
		"ring-key-active-in-a-moment":    {env: ring(func(k *vector.RingKey) { k.ActiveAt = w.Now.Add(30 * time.Second) })},
		"ring-of-another-control-plane":  {env: ring(func(k *vector.RingKey) { k.ID, k.Secret = "0123456789abcdef", forge.Derive("another ring", 32) })},
		"ring-key-with-another-secret":   {env: ring(func(k *vector.RingKey) { k.Secret = forge.Derive("another secret", 32) })},
		"ring-stale":                     {env: &vector.Environment{RingReadAt: w.Now.Add(-61 * time.Second)}},
		"name-given-to-another-machine":  {env: member("machine-2", providerID)},
		"machine-gone-from-membership":   {env: &vector.Environment{Members: []vector.Member{}}},
		"machine-gone-from-inventory":    {env: &vector.Environment{Machines: []vector.Machine{}}},
		"provider-id-of-another-machine": {env: member("machine-1", "sim://vectors/other")},
		"provider-id-not-vouched-for":    {env: member("machine-1", "")},
		"issuer-no-longer-trusted":       {env: trusting(w.Stranger.Root().Raw)},
		"resident-key-demanded":          {env: &vector.Environment{RequireTPMResident: true}},
	})
}

// timeAttacks file the good answer at another time.
func (w *world) timeAttacks() []forge.Attack[filed] {
	issued := w.Now.Add(-time.Minute)
	at := func(created time.Duration) func(*forge.Parts) {
		return func(p *forge.Parts) { p.Object.Metadata.CreationTimestamp = issued.Add(created) }
	}
	now := func(d time.Duration) *vector.Environment { return &vector.Environment{Now: issued.Add(d)} }
	return listed("times of answers", map[string]filed{
		"answer-before-its-challenge":   {change: at(-61 * time.Second)},
		"answer-filed-after-its-window": {change: at(601 * time.Second), env: now(602 * time.Second)},
		"old-request-filed-again":       {change: at(24 * time.Hour), env: now(24*time.Hour + time.Second)},
		"answer-left-lying":             {change: at(0), env: now(time.Hour + time.Second)},
		"answer-from-the-future":        {change: at(61 * time.Second)},
	})
}

// answersMixed are answers in which every signature, secret and field fits the others, but
// which were made for something other than their use.
func (w *world) answersMixed() {
	for _, a := range append(forge.BoundAttacks(), forge.StolenAttacks()...) {
		f := w.Forge(w.AKP256, forge.Join{})
		a.Change(f)
		w.refuseAs(a.Name, a.What, a.Expect, f, nil)
	}
	request := func(key crypto.Signer, node, id string) []byte {
		return forge.Must(csr.Create(csr.PurposeClient, key, node, csr.CreateOptions{ProviderID: id}))
	}
	second := request(w.TLS, forge.OtherNode, "")
	for _, a := range listed("requests of other answers", map[string][]byte{
		"answer-for-another-node-name":          second,
		"answer-for-another-key":                request(w.TLS2, forge.NodeName, providerID),
		"answer-for-another-request-of-the-key": request(w.TLS, forge.NodeName, ""),
	}) {
		p := forge.TakeApart(w.good)
		p.Bundle.Request = a.Change
		w.refuseAs(a.Name, a.What, a.Expect, p, nil)
	}
	w.refuse("second-machine-for-a-name", w.Forge(w.AKOther, forge.Join{}), nil)
	w.refuse("second-name-for-a-machine", w.Forge(w.AKP256, forge.Join{Request: second, Key: w.TLS}), nil)
}

// challenges are attacks on the verifier's side of a hello, other than those on certificates.
func (w *world) challenges() {
	for _, a := range w.helloAttacks() {
		refuseFiled(w, w.goodHello, a, a.Change)
	}
	answer := forge.Clone(w.good)
	answer.Spec.SignerName = csr.SignerChallengeTPM
	w.refuse("answer-as-hello", hello{answer}, nil)
	say := func(name, what, expect string, akPublic []byte, chain [][]byte) {
		w.refuseAs(name, what, expect, hello{w.Hello(forge.Join{}, akPublic, forge.Sources{Chain: chain})}, nil)
	}
	say("hello-of-another-machine", "A stranger's machine, certified by the same issuer, says hello under the node's name.", "not-a-member",
		w.AKOther.Public.Raw, w.AKOther.Chain)
	// Keys that are not AKs, each certified by the right CA.
	for _, a := range forge.AKAttacks() {
		f := w.Forge(w.AKP256, forge.Join{})
		a.Change(f)
		if a.Expect != "qualified-signer" { // a hello has no statement
			say("hello-"+a.Name, a.What, cmp.Or(a.InAnswer, a.Expect), f.AKPublic, f.AK.Chain)
		}
	}
}

func (w *world) helloAttacks() []forge.Attack[filed] {
	return listed("hellos", map[string]filed{
		"hello-for-another-cluster":         {change: func(p *forge.Parts) { p.Hello.ClusterID = "other" }},
		"hello-for-an-unknown-signer":       {change: func(p *forge.Parts) { p.Hello.TargetSigner = csr.SignerClientInsecure }},
		"hello-with-the-proposals-spelling": {change: func(p *forge.Parts) { p.Hello.TargetSigner = "cluster-x-k8s-io/kube-apiserver-client-kubelet-tpm" }},
		"hello-for-the-other-road":          {change: func(p *forge.Parts) { p.Hello.Road = message.RoadEK }},
		"hello-with-two-sources-of-the-ek": {change: func(p *forge.Parts) {
			p.OnHello = forge.Edited(func(e [][]byte) [][]byte {
				return [][]byte{e[0], e[1], e[2], e[3], forge.TLV(0x80, p.Hello.AKPublic), e[4]}
			})
		}},
		"hello-version":                 {change: func(p *forge.Parts) { p.OnHello = forge.Replaced(0, forge.With(2, 1, 2)) }},
		"hello-trailing-bytes":          {change: func(p *forge.Parts) { p.OnHello = forge.Appended(5, 0) }},
		"hello-under-the-target-signer": {change: func(p *forge.Parts) { p.Object.Spec.SignerName = csr.SignerClientTPM }},
		"hello-expired":                 {change: func(p *forge.Parts) { p.Object.Metadata.CreationTimestamp = w.Now.Add(-301 * time.Second) }},
		"hello-from-the-future":         {change: func(p *forge.Parts) { p.Object.Metadata.CreationTimestamp = w.Now.Add(time.Second) }},
		"hello-without-evidence":        {change: func(p *forge.Parts) { p.Plain = true }},
		"hello-of-another-version":      {change: func(p *forge.Parts) { p.Bundle.Provider = "tpm/v2" }},
		"hello-twice": {change: func(p *forge.Parts) {
			p.OnEvidence = forge.Replaced(0, forge.Edited(func(e [][]byte) [][]byte { return append(e, e[0]) }))
		}},
		"hello-with-another-aks-public-area": {change: func(p *forge.Parts) { p.Hello.AKPublic = w.AKRSA.Public.Raw }},
		"hello-with-a-bad-self-signature": {change: func(p *forge.Parts) {
			bad := w.NewPKCS10()
			bad.Corrupt = true
			p.Bundle.Request = bad.DER()
		}},
		"hello-of-an-unknown-machine":   {env: &vector.Environment{Machines: []vector.Machine{}}},
		"hello-with-no-usable-ring-key": {env: &vector.Environment{RingKeys: []vector.RingKey{ringKey(w.Retired), ringKey(w.Later)}}},
		"hello-with-a-stale-ring":       {env: &vector.Environment{RingReadAt: w.Now.Add(-61 * time.Second)}},
	})
}

// nodes are challenges that a node must not answer.
func (w *world) nodes() {
	p := forge.TakeApart(w.good)
	good := forge.Must(message.ParseChallenge(w.goodTPMChallenge))
	node := func() *vector.Node {
		return &vector.Node{Challenge: w.goodTPMChallenge, Request: w.Request, SignerName: csr.SignerClientTPM, ClusterID: clusterID,
			AKPublic: p.Proof.AKPublic, Key: pkcs8(w.TLS)}
	}
	w.accept("node-answers", node(), nil, nil)
	add := func(name string, change func(*vector.Node)) {
		n := node()
		change(n)
		w.refuse("node-"+name, n, nil)
	}
	type challenge = message.Challenge
	bound := func(how func(*challenge)) func(*vector.Node) {
		return func(n *vector.Node) {
			c := *good
			how(&c)
			n.Challenge = forge.Must(c.Marshal())
		}
	}
	encoded := func(how func([]byte) []byte) func(*vector.Node) {
		return func(n *vector.Node) { n.Challenge = forge.Change(n.Challenge, how) }
	}
	add("for-another-cluster", bound(func(c *challenge) { c.Binding.ClusterID = "other" }))
	add("for-another-signer", bound(func(c *challenge) { c.Binding.SignerName = csr.SignerServingTPM }))
	add("for-another-lifetime", bound(func(c *challenge) { c.Binding.ExpirationSeconds = 86400 }))
	add("for-another-machine", bound(func(c *challenge) { c.Binding.MachineKey[0] ^= 1 }))
	add("for-another-request", bound(func(c *challenge) { c.Binding.RequestHash[0] ^= 1 }))
	add("for-a-window-over-an-hour", bound(func(c *challenge) { c.Binding.NotAfter = c.Binding.IssuedAt + 3601 }))
	add("for-the-other-road", bound(func(c *challenge) {
		c.Binding.Road, c.Binding.AKName, c.Clear = message.RoadEK, append([]byte{0, 0x0b}, make([]byte, 32)...), nil
		c.Credential = &message.Credential{IDObject: make([]byte, 68), EncryptedSecret: make([]byte, 256)}
	}))
	credential := forge.TLV(0xa1, forge.TLV(4, make([]byte, 68)), forge.TLV(4, make([]byte, 256)))
	add("with-the-other-roads-secret", encoded(forge.Replaced(1, forge.With(credential...))))
	add("with-a-short-secret", encoded(forge.Replaced(1, forge.With(forge.TLV(0x80, make([]byte, 31))...))))
	add("challenge-version", encoded(forge.Replaced(0, forge.Replaced(0, forge.With(2, 1, 2)))))
	add("challenge-trailing-bytes", encoded(forge.Behind(0)))
	add("certifies-another-key", func(n *vector.Node) { n.Key = pkcs8(w.TLS2) })
}
