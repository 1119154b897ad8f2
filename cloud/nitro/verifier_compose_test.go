package nitro

import (
	"bytes"
	"context"
	"crypto/elliptic"
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestComposed puts documents together at random out of an attacker's parts: a real document
// and its signature, the platform's certificates without their keys, and a platform of their own
// with the same names. The platform signs nothing here, so nothing gets in but the real document.
func TestComposed(t *testing.T) {
	b := newBench()
	v := b.verifier(t)
	key := b.attacker.leaf.key
	theirs := b.attacker.bundle()
	pool := []*authority{b.leaf, b.attacker.leaf}
	for _, a := range append(b.bundle(), theirs...) {
		pool = append(pool, &authority{a.Certificate, key})
	}
	forged := *b.instance.Certificate
	forged.PublicKey = b.attacker.instance.key.Public()
	pool = append(pool, issue(leafTemplate(), key, &authority{&forged, b.attacker.instance.key}))
	real := b.good().marshal()
	signature := real[len(real)-signatureSize:]
	half := signatureSize / 2
	r := rand.New(rand.NewPCG(1, 2))
	good := 0
	for range 1500 {
		p := b.good()
		bundle := b.bundle()
		switch r.IntN(5) {
		case 0:
			bundle = append([]*authority{b.root}, theirs[1:]...)
		case 1:
			bundle = theirs
		case 2:
			bundle = nil
			for range 1 + r.IntN(5) {
				bundle = append(bundle, pool[r.IntN(len(pool))])
			}
		}
		p.by(pool[r.IntN(len(pool))], bundle...)
		if r.IntN(2) == 0 {
			p.set("nonce", bstr(bytes.Repeat([]byte{2}, 32)))
		}
		p.leaf = &authority{p.leaf.Certificate, key} // no other key is the attacker's
		switch r.IntN(4) {
		case 0, 1:
			p.signature = signature
		case 2: // another signature that is as good
			own := p.marshal()
			s := new(big.Int).SetBytes(own[len(own)-half:])
			new(big.Int).Sub(elliptic.P384().Params().N, s).FillBytes(own[len(own)-half:])
			p.signature = own[len(own)-signatureSize:]
		}
		document := p.marshal()
		if _, err := v.Verify(context.Background(), document, testTime); err == nil {
			if good++; !slices.Equal(document, real) {
				t.Errorf("taken: %+v", p)
			}
		}
	}
	if good == 0 {
		t.Error("the real document was never put together")
	}
}
