package statement

import (
	"testing"

	"github.com/nodeattest/nodeattest/internal/message"
	"github.com/nodeattest/nodeattest/internal/testkit/tpmlab"
	"github.com/nodeattest/nodeattest/refusal"
)

// A statement under a key that only the sender names proves neither where a key lives nor whose
// clock it shows. The evidence is the same in each row.
func TestAKTrust(t *testing.T) {
	ak := newForger(t, tpmlab.RSA2048(), schemeRSASSA)
	key, public := ak.private.Public(), ak.public.Raw
	for name, c := range map[string]struct {
		ak                        AK
		trust                     AKTrust
		resident, clock, withArea bool
	}{
		"credential":                 {AKFromCredential(public), AKByCredential, true, true, true},
		"issuer, with a public area": {AKFromIssuer(key, public), AKByIssuer, true, true, true},
		"issuer, key alone":          {AKFromIssuer(key, nil), AKByIssuer, true, false, false},
		"sender, public area":        {InsecureAKFromSender(nil, public), AKBySender, false, false, true},
		"sender, key alone":          {InsecureAKFromSender(key, nil), AKBySender, false, false, false},
		"sender, both":               {InsecureAKFromSender(key, public), AKBySender, false, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			f := goodForgery(t, ak, tpmlab.P256b().Public())
			f.options.AK = c.ak
			got := f.verify(t, "")
			if got.AKTrust != c.trust || got.TPMResident != c.resident || got.ClockTrusted != c.clock || (got.AKPublic != nil) != c.withArea {
				t.Errorf("certify: got %+v", got)
			}
			q := goodQuoteForgery(t, ak)
			q.options.AK = c.ak
			quoted := q.verify(t, "")
			if quoted.AKTrust != c.trust || quoted.ClockTrusted != c.clock || (quoted.AKPublic != nil) != c.withArea {
				t.Errorf("quote: got %+v", quoted)
			}
			f.options.RequireTPMResident = true
			if c.resident {
				f.verify(t, "")
			} else {
				f.verify(t, checkCertifyOptions)
			}
			// The statement is verified by the key, in each way of trusting it.
			f = goodForgery(t, newForger(t, tpmlab.RSA2048b(), schemeRSASSA), tpmlab.P256b().Public())
			f.options.AK = c.ak
			f.verify(t, checkSignature)
		})
	}
}

// A statement without qualifying data passes for a caller who asks for that by name, and not for
// one whose nonce was lost.
func TestEmptyQualifyingData(t *testing.T) {
	ak := newForger(t, tpmlab.P256(), schemeECDSA)
	for name, c := range map[string]struct {
		in     []byte // in the statement
		wanted []byte
		empty  bool
		want   refusal.Check
	}{
		"asked for by name":               {nil, nil, true, ""},
		"asked for by name, empty slice":  {nil, []byte{}, true, ""},
		"a lost nonce":                    {nil, []byte{}, false, checkCertifyOptions},
		"no nonce":                        {nil, nil, false, checkCertifyOptions},
		"a nonce, and none is there":      {nil, []byte{0}, false, message.CheckQualifyingData},
		"none, and one is there":          {[]byte{0}, nil, true, message.CheckQualifyingData},
		"a nonce, and empty asked for":    {nil, []byte{0}, true, checkCertifyOptions},
		"a lost nonce where one is there": {testQualifyingData, []byte{}, false, checkCertifyOptions},
	} {
		t.Run(name, func(t *testing.T) {
			f := goodForgery(t, ak, tpmlab.P256b().Public())
			f.attest.ExtraData = c.in
			f.options.QualifyingData, f.options.InsecureEmptyQualifyingData = c.wanted, c.empty
			f.verify(t, c.want)
			q := goodQuoteForgery(t, ak)
			q.attest.ExtraData = c.in
			q.options.QualifyingData, q.options.InsecureEmptyQualifyingData = c.wanted, c.empty
			if c.want == checkCertifyOptions {
				c.want = checkQuoteOptions
			}
			q.verify(t, c.want)
		})
	}
}
