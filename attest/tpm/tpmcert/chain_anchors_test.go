package tpmcert

import (
	"crypto/x509"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/internal/message"
	"github.com/nodeattest/nodeattest/internal/testkit/tpmlab"
	"github.com/nodeattest/nodeattest/refusal"
)

// A trust anchor need not be self-signed, and the node may send it, with certificates above it: the
// chain ends at the anchor. No sent certificate becomes an anchor.
func TestAnchorsThatAreNotSelfSigned(t *testing.T) {
	type chain = []*x509.Certificate
	ended := func(c *x509.Certificate) { c.NotAfter = tpmlab.Time.Add(-time.Hour) }
	top := tpmlab.Sign(t, nil, "top", nil)
	above := tpmlab.Sign(t, top, "above", nil)
	weak := tpmlab.Sign(t, top, "above", func(c *x509.Certificate) { c.IsCA, c.KeyUsage = false, x509.KeyUsageDigitalSignature })
	anchor := tpmlab.Sign(t, above, "anchor", nil)
	again := &tpmlab.CA{Cert: tpmlab.Issued(t, anchor.Cert, above, anchor.Key.Public()), Key: anchor.Key}   // another certificate for it
	itself := &tpmlab.CA{Cert: tpmlab.Issued(t, anchor.Cert, anchor, anchor.Key.Public()), Key: anchor.Key} // a self-signed one
	middle := tpmlab.Sign(t, anchor, "middle", nil)
	expired := tpmlab.Sign(t, above, "anchor", ended)
	belowExpired := tpmlab.Sign(t, expired, "middle", nil)
	stranger := tpmlab.Sign(t, tpmlab.Sign(t, nil, "above", nil), "anchor", nil)
	belowStranger := tpmlab.Sign(t, stranger, "middle", nil)
	rolled := tpmlab.Sign(t, top, "top", nil) // self-issued, by the old key for the new one
	for _, road := range []attest.Road{attest.RoadAK, attest.RoadEK} {
		leaf, next := leafOf(t, road, middle), leafOf(t, road, anchor)
		for name, c := range map[string]struct {
			roots, sent chain
			want        refusal.Check
			length      int
			got         string // in the error
		}{
			"without it":                         {chain{anchor.Cert}, chain{leaf, middle.Cert}, "", 3, ""},
			"with it":                            {chain{anchor.Cert}, chain{leaf, middle.Cert, anchor.Cert}, "", 3, ""},
			"with what is above it":              {chain{anchor.Cert}, chain{leaf, middle.Cert, anchor.Cert, above.Cert}, "", 3, ""},
			"with another certificate of it":     {chain{anchor.Cert}, chain{leaf, middle.Cert, again.Cert}, "", 3, ""},
			"self-signed, and sent certified":    {chain{itself.Cert}, chain{leaf, middle.Cert, again.Cert}, "", 3, ""},
			"an anchor that is next":             {chain{anchor.Cert}, chain{next, anchor.Cert}, "", 2, ""},
			"an intermediate as the anchor":      {chain{middle.Cert}, chain{leaf, middle.Cert, anchor.Cert, above.Cert}, "", 2, ""},
			"two anchors: the lower one":         {chain{anchor.Cert, top.Cert}, chain{leaf, middle.Cert, anchor.Cert, above.Cert}, "", 3, ""},
			"one above":                          {chain{top.Cert}, chain{leaf, middle.Cert, anchor.Cert, above.Cert}, "", 5, ""},
			"something unfit above it":           {chain{anchor.Cert}, chain{leaf, middle.Cert, anchor.Cert, weak.Cert}, "", 3, ""},
			"something unfit below it":           {chain{top.Cert}, chain{leaf, middle.Cert, anchor.Cert, weak.Cert}, CheckCertificateChain, 0, ""},
			"only its issuer is trusted":         {chain{above.Cert}, chain{leaf, middle.Cert}, CheckCertificateChain, 0, "CN=anchor"},
			"sent, and not trusted":              {chain{top.Cert}, chain{leafOf(t, road, belowStranger), belowStranger.Cert, stranger.Cert}, CheckCertificateChain, 0, "CN=above"},
			"of the anchor's name":               {chain{anchor.Cert}, chain{leafOf(t, road, belowStranger), belowStranger.Cert, stranger.Cert}, CheckCertificateChain, 0, ""},
			"one that has ended":                 {chain{expired.Cert}, chain{leafOf(t, road, belowExpired), belowExpired.Cert, expired.Cert}, checkCertificateExpired, 0, "CN=anchor"},
			"self-issued, below its own old key": {chain{top.Cert}, chain{leafOf(t, road, rolled), rolled.Cert}, checkCertificateOrder, 0, "CN=top"},
			"self-issued, as the anchor":         {chain{rolled.Cert}, chain{leafOf(t, road, rolled)}, "", 2, ""},
			"one that has ended, and one above":  {chain{expired.Cert, top.Cert}, chain{leaf, middle.Cert, anchor.Cert, above.Cert}, "", 5, ""},
		} {
			t.Run(name+"/"+road.String(), func(t *testing.T) {
				got, err := underRoots(road, c.roots, nil, c.sent...)
				tpmlab.ExpectCheck(t, err, c.want)
				if len(got) != c.length || err != nil && !strings.Contains(err.Error(), c.got) {
					t.Errorf("a chain of %d, want %d, %v", len(got), c.length, err)
				}
			})
		}
	}
}

// The search for a root below the top costs its verifications, and no more: a root
// of the name with another key is asked once for each certificate that names it.
func TestAnchorsCost(t *testing.T) {
	root := tpmlab.Sign(t, nil, "root", nil)
	upper := tpmlab.Sign(t, root, "upper", nil)
	lower := tpmlab.Sign(t, upper, "lower", nil)
	p := presentedOf(t, tpmlab.Sign(t, lower, "leaf", leafTemplate), lower, upper)
	others := []*tpmlab.CA{root, tpmlab.Sign(t, nil, "upper", nil), tpmlab.Sign(t, nil, "lower", nil)}
	for _, ca := range others[1:] { // so that no key identifier tells them from the chain's
		ca.Cert.SubjectKeyId = nil
	}
	w := newTestLinks(10)
	if chain, err := issuerOf(t, others...).verify(t.Context(), w, p, tpmlab.Time); err != nil || len(chain) != 4 || w.Signatures() != 2+3 || len(w.failed) != 2 {
		t.Errorf("a chain of %d, %v after %d signatures, %d of them wrong", len(chain), err, w.Signatures(), len(w.failed))
	}
}

// TestLinksBelowAnAnchor: certificates above an anchor make no chain longer than it may be.
func TestLinksBelowAnAnchor(t *testing.T) {
	for _, cas := range []int{message.MaxChainLinks - 1, message.MaxChainLinks, message.MaxChainLinks + 1} {
		root := tpmlab.Sign(t, nil, "root", nil)
		top, sent := root, []*x509.Certificate{}
		for n := range cas {
			top = tpmlab.Sign(t, top, fmt.Sprint("CA ", n), nil)
			sent = append([]*x509.Certificate{top.Cert}, sent...)
		}
		junk := tpmlab.Sign(t, tpmlab.Sign(t, nil, "absent", nil), "root", nil).Cert
		for _, road := range []attest.Road{attest.RoadAK, attest.RoadEK} {
			leaf := leafOf(t, road, top)
			for _, above := range [][]*x509.Certificate{sent, append(slices.Clip(sent), junk)} {
				if _, err := underRoots(road, []*x509.Certificate{root.Cert}, nil, append([]*x509.Certificate{leaf}, above...)...); (err == nil) != (cas < message.MaxChainLinks) {
					t.Errorf("%v, %d CAs below the root, %d sent: %v", road, cas, len(above), err)
				}
			}
		}
	}
}
