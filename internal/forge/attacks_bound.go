package forge

import (
	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/message"
)

// BoundAttacks are answers in which every signature, secret and field fits the others,
// to a challenge that was given for something else.
func BoundAttacks() []Forged {
	bound := func(change func(*message.Binding)) func(*Forgery) {
		return func(f *Forgery) { change(f.B); f.derive() }
	}
	under := func(key func(*Bench) attest.RingKey) func(*Forgery) {
		return func(f *Forgery) { f.Ring = key(f.w); f.B.KeyID = f.Ring.ID; f.derive() }
	}
	return []Forged{
		{Name: "answer-for-another-cluster", What: "The node answered a challenge of another cluster that has the same challenge keys.", Expect: "binding-cluster",
			Change: bound(func(b *message.Binding) { b.ClusterID = "other" })},
		{Name: "answer-under-a-retired-key", What: "The challenge was made with a key that is retired.", Expect: "ring-key", live: "challenge-key-retired",
			Change: under(func(w *Bench) attest.RingKey { return w.Retired })},
		{Name: "answer-under-a-later-key", What: "The challenge was made with a key that is not active yet.", Expect: "ring-key", live: "challenge-key-unknown",
			Change: under(func(w *Bench) attest.RingKey { return w.Later })},
		{Name: "answer-with-a-window-of-two-hours", What: "The challenge itself gave a window of two hours.", Expect: "binding-window", live: "challenge-window-stretched",
			Change: bound(func(b *message.Binding) { b.NotAfter = b.IssuedAt + 7200 })},
		{Name: "answer-for-another-signer", What: "The node answered a challenge for the serving signer and files under the client one.", Expect: "binding-signer",
			Change: bound(func(b *message.Binding) { b.SignerName = csr.SignerServingTPM })},
		{Name: "answer-of-another-requester", What: "The node answered a challenge that was given to another requester.", Expect: "binding-requester",
			Change: bound(func(b *message.Binding) { b.Requester = "system:bootstrap:other1" })},
		{Name: "answer-for-another-lifetime", What: "The node answered a challenge for a longer lifetime.", Expect: "binding-expiration",
			Change: bound(func(b *message.Binding) { b.ExpirationSeconds = 86400 })},
	}
}

// StolenAttacks have another machine's AK do what the node's should.
func StolenAttacks() []Forged {
	return []Forged{
		{Name: "answer-by-another-machine", What: "Another machine's AK, with its own certificate, answers the node's challenge.", Expect: "binding-machine-key",
			Change: func(f *Forgery) {
				own := f.B
				*f = *f.w.Forge(f.w.AKOther, f.Join)
				f.B = own
				f.derive()
			}},
		{Name: "answer-signed-by-another-machine", What: "Another machine's AK signs, under the node's AK public area and certificate.", Expect: "signature",
			Change: func(f *Forgery) {
				f.Attest.QualifiedSigner = f.w.AKOther.Primary()
				f.SignedBy(f.w.AKOther)
			}},
	}
}
