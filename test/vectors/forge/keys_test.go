package forge

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/sha256"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/csr"
)

// Keys and signatures follow from their labels.
func TestKeysFollowFromLabels(t *testing.T) {
	digest := sha256.Sum256([]byte("message"))
	for _, curve := range []elliptic.Curve{elliptic.P224(), elliptic.P256(), elliptic.P384(), elliptic.P521()} {
		a, b := ECKey(curve, "a", nil), ECKey(curve, "a", nil)
		if !a.Equal(b) || a.Equal(ECKey(curve, "b", nil)) {
			t.Errorf("%s: keys do not follow from their labels", curve.Params().Name)
		}
		first, err := Repeatable{a}.Sign(nil, digest[:], crypto.SHA256)
		if err != nil {
			t.Fatal(err)
		}
		second, err := Repeatable{b}.Sign(nil, digest[:], crypto.SHA256)
		if err != nil || !bytes.Equal(first, second) || !ecdsa.VerifyASN1(&a.PublicKey, digest[:], first) {
			t.Errorf("%s: the signature differs or is bad, %v", curve.Params().Name, err)
		}
	}
	odd := ECKey(elliptic.P256(), "a", func(k *ecdsa.PublicKey) bool { return k.Equal(k) && Must(k.Bytes())[64]&1 == 1 })
	if Must(odd.PublicKey.Bytes())[64]&1 != 1 {
		t.Error("the condition was not kept")
	}
}

// Taking apart and putting together changes nothing; the other helpers do.
func TestDER(t *testing.T) {
	good := TLV(0x30, []byte{2, 1, 0}, TLV(4, []byte("x")))
	if got := Edited(func(e [][]byte) [][]byte { return e })(good); !bytes.Equal(got, good) {
		t.Errorf("got %x", got)
	}
	for name, c := range map[string]struct {
		got  []byte
		want []byte
	}{
		"replaced":   {Replaced(0, With(5, 0))(good), []byte{0x30, 5, 5, 0, 4, 1, 'x'}},
		"appended":   {Appended(5, 0)(good), []byte{0x30, 8, 2, 1, 0, 4, 1, 'x', 5, 0}},
		"behind":     {Behind(0)(bytes.Clone(good)), append(bytes.Clone(good), 0)},
		"long":       {LongLength(good), append([]byte{0x30, 0x84, 0, 0, 0, 6}, good[2:]...)},
		"indefinite": {indefinite(good), append(append([]byte{0x30, 0x80}, good[2:]...), 0, 0)},
		"huge":       {HugeLength(good), append([]byte{0x30, 0x84, 0xff, 0xff, 0xff, 0xff}, good[2:]...)},
	} {
		t.Run(name, func(t *testing.T) {
			if !bytes.Equal(c.got, c.want) {
				t.Errorf("%s: got %x, want %x", name, c.got, c.want)
			}
		})
	}
	err := func() (err error) {
		defer Caught(&err)
		Elements([]byte{0x30, 5, 1})
		return nil
	}()
	if err == nil {
		t.Error("no DER: no error")
	}
}

func TestInfoHash(t *testing.T) {
	w := &Bench{ProviderID: "test://1", Now: time.Unix(0, 0)}
	w.TLS = Repeatable{ECKey(elliptic.P256(), "a", nil)}
	request := w.NewPKCS10().DER()
	p, err := csr.ParsePKCS10(request)
	if err != nil {
		t.Fatal(err)
	}
	if got := infoHash(request); got != p.InfoHash {
		t.Errorf("got %x", got)
	}
	if got := infoHash([]byte{5, 0}); got != sha256.Sum256([]byte{5, 0}) {
		t.Errorf("no request: %x", got)
	}
}
