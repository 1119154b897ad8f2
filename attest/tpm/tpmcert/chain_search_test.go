package tpmcert

import (
	"bytes"
	"context"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/internal/testkit/tpmlab"
	"github.com/nodeattest/nodeattest/oid"
	"github.com/nodeattest/nodeattest/refusal"
)

// akIssuerOf is an issuer with these roots and intermediates.
func akIssuerOf(t testing.TB, known *linkMemory, roots []*tpmlab.Cert, intermediates ...*x509.Certificate) *issuer {
	t.Helper()
	made := Issuer{Profile: ProfileTCG(), Intermediates: intermediates}
	for _, r := range roots {
		made.Roots = append(made.Roots, tpmlab.Parsed(t, r.Sign(t, r.Key)))
	}
	i, err := newIssuer(&made, known)
	testkit.NoError(t, err)
	return i
}

func presentedBytes(t testing.TB, chain ...[]byte) *AKPresented {
	t.Helper()
	p, err := ParseAKPresented(chain)
	testkit.NoError(t, err)
	return p
}

// leafUnder is an AK's certificate by the CA.
func leafUnder(t testing.TB, ca *tpmlab.Cert) []byte {
	t.Helper()
	leaf := tpmlab.AKCert(ca.Subject, tpmlab.NewP256(t).Public())
	leaf.Algorithm = tpmlab.AlgorithmOf(ca.Key.Public())
	return leaf.Sign(t, ca.Key)
}

// sameNamed are CAs of one name and different keys.
func sameNamed(t testing.TB, n int) (roots []*tpmlab.Cert) {
	t.Helper()
	for range n {
		roots = append(roots, tpmlab.CACert("root", "root", tpmlab.NewP256(t)))
	}
	return roots
}

// givingUp is a context whose caller goes away after so many questions.
type givingUp struct {
	context.Context
	left int
}

func (c *givingUp) Err() error {
	if c.left--; c.left < 0 {
		return context.Canceled
	}
	return nil
}

// Roots of one name in one issuer: the error is the one that ended the search, not an earlier one,
// and results before it are not computed again.
func TestSearchesThatAreStopped(t *testing.T) {
	roots := sameNamed(t, 4+2)
	leaf := leafUnder(t, roots[4+1])
	t.Run("by the budget", func(t *testing.T) {
		w := newTestLinks(10)
		_, err := akIssuerOf(t, newLinkMemory(), roots).verify(t.Context(), w, presentedBytes(t, leaf), tpmlab.Time)
		if !errors.Is(err, attest.CheckBudget) || w.Signatures() != 4 {
			t.Errorf("%v after %d signatures", err, w.Signatures())
		}
	})
	t.Run("by the caller", func(t *testing.T) {
		w := newTestLinks(10)
		_, err := akIssuerOf(t, newLinkMemory(), roots).verify(&givingUp{t.Context(), 2 + 2*2}, w, presentedBytes(t, leaf), tpmlab.Time)
		if !errors.Is(err, refusal.ErrRetry) || !errors.Is(err, context.Canceled) || w.Signatures() != 2 {
			t.Errorf("%v after %d signatures", err, w.Signatures())
		}
	})
	for left, want := range map[int]refusal.Check{0: "", -1: attest.CheckBudget} {
		t.Run(fmt.Sprint("work left: ", left), func(t *testing.T) {
			chain, all := presentedBytes(t, leafUnder(t, roots[0])), newTestLinks(10)
			if _, err := akIssuerOf(t, newLinkMemory(), roots[:1]).verify(t.Context(), all, presentedBytes(t, chain.Leaf().Raw), tpmlab.Time); err != nil {
				t.Fatal(err)
			}
			w := newTestLinks(10)
			_, _, work := all.Spent()
			testkit.NoError(t, w.Work(t.Context(), 4<<20-work-left))
			_, err := akIssuerOf(t, newLinkMemory(), roots[:1]).verify(t.Context(), w, chain, tpmlab.Time)
			tpmlab.ExpectCheck(t, err, want)
			if w.Signatures() != 1+left {
				t.Errorf("%d signatures", w.Signatures())
			}
		})
	}
	t.Run("the last link of the budget", func(t *testing.T) {
		w := newTestLinks(10)
		w.links = 5 + 4 - 1
		_, err := akIssuerOf(t, newLinkMemory(), roots[:1]).verify(t.Context(), w, presentedBytes(t, leafUnder(t, roots[0])), tpmlab.Time)
		tpmlab.ExpectCheck(t, err, "")
	})
	t.Run("between two issuers", func(t *testing.T) {
		l := newLab(t, EKProfileTCG(), roots[0])
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		for _, road := range []attest.Road{attest.RoadAK, attest.RoadEK} {
			if _, _, err := l.verify(ctx, road, [][]byte{leafOnLab(t, road, "absent")}); !errors.Is(err, refusal.ErrRetry) {
				t.Errorf("%s: %v", road, err)
			}
		}
	})
}

func leafOnLab(t testing.TB, road attest.Road, issuer string) []byte {
	t.Helper()
	leaf := leafOn(road, issuer, t)
	leaf.Algorithm = []byte(tpmlab.ECDSASHA256)
	return leaf.Sign(t, nil)
}

// CAs that certify each other are walked through once, and a root is no chain to itself.
func TestSearchesThatLeadBack(t *testing.T) {
	root, key := tpmlab.CACert("root", "root", tpmlab.NewP256(t)), tpmlab.NewP256(t)
	a, b := tpmlab.CACert("a", "b", key), tpmlab.CACert("b", "a", key)
	loop := akIssuerOf(t, newLinkMemory(), []*tpmlab.Cert{root}, tpmlab.Parsed(t, a.Sign(t, key)), tpmlab.Parsed(t, b.Sign(t, key)))
	w := newTestLinks(10)
	if _, err := loop.verify(t.Context(), w, presentedBytes(t, leafUnder(t, a)), tpmlab.Time); !errors.Is(err, CheckCertificateChain) || w.Signatures() != 0 {
		t.Errorf("%v after %d signatures", err, w.Signatures())
	}
	itself := akIssuerOf(t, newLinkMemory(), []*tpmlab.Cert{root})
	w = newTestLinks(10)
	if _, err := itself.verify(t.Context(), w, presentedBytes(t, root.Sign(t, nil)), tpmlab.Time); !errors.Is(err, CheckCertificateChain) {
		t.Errorf("another certificate of the root's name: %v", err)
	}
	der := root.Sign(t, root.Key)
	own, err := newIssuer(&Issuer{Roots: []*x509.Certificate{tpmlab.Parsed(t, der)}, Profile: ProfileTCG()}, newLinkMemory())
	testkit.NoError(t, err)
	w = newTestLinks(10)
	if _, err := own.verify(t.Context(), w, presentedBytes(t, der), tpmlab.Time); !errors.Is(err, CheckCertificateChain) || w.Signatures() != 0 {
		t.Errorf("the root itself: %v after %d signatures", err, w.Signatures())
	}
}

// A key identifier decides where both certificates have one, and nowhere else.
func TestKeyIdentifiers(t *testing.T) {
	for name, c := range map[string]struct {
		authority, subject []pkix.Extension
		want               refusal.Check
	}{
		"the same":                  {[]pkix.Extension{authority(1, 2)}, keyID(1, 2), ""},
		"another":                   {[]pkix.Extension{authority(1, 2)}, keyID(1, 3), CheckCertificateChain},
		"the leaf's alone":          {[]pkix.Extension{authority(1, 2)}, nil, ""},
		"the issuer's alone":        {nil, keyID(1, 2), ""},
		"the beginning of the same": {[]pkix.Extension{authority(1, 2)}, keyID(1), CheckCertificateChain},
	} {
		t.Run(name, func(t *testing.T) {
			root := tpmlab.CACert("root", "root", tpmlab.NewP256(t))
			root.Extensions = append(root.Extensions, c.subject...)
			leaf := tpmlab.AKCert("root", tpmlab.NewP256(t).Public())
			leaf.Algorithm, leaf.Extensions = tpmlab.AlgorithmOf(root.Key.Public()), append(leaf.Extensions, c.authority...)
			_, err := akIssuerOf(t, newLinkMemory(), []*tpmlab.Cert{root}).verify(t.Context(), newTestLinks(1), presentedBytes(t, leaf.Sign(t, root.Key)), tpmlab.Time)
			tpmlab.ExpectCheck(t, err, c.want)
		})
	}
}

// What one issuer has had verified counts for another under the same key alone.
func TestMemoryOfTwoIssuers(t *testing.T) {
	roots, key, known := sameNamed(t, 2), tpmlab.NewP256(t), newLinkMemory()
	middle := tpmlab.CACert("middle", "root", key)
	first, second := akIssuerOf(t, known, roots[:1]), akIssuerOf(t, known, roots[1:])
	for _, chain := range [][][]byte{{leafUnder(t, middle), middle.Sign(t, roots[0].Key)}, {leafUnder(t, roots[0])}} {
		for range 2 {
			if _, err := first.holds(presentedBytes(t, chain...), tpmlab.Time); err != nil {
				t.Fatal(err)
			}
			if _, err := second.holds(presentedBytes(t, chain...), tpmlab.Time); !errors.Is(err, CheckCertificateChain) {
				t.Errorf("%d certificates, under another key of that name: %v", len(chain), err)
			}
		}
	}
}

// What crypto/x509 checks again is counted again.
func TestConstrainedChainsAreCounted(t *testing.T) {
	root, key := tpmlab.CACert("root", "root", tpmlab.NewP256(t)), tpmlab.NewP256(t)
	root.Extensions = append(root.Extensions, pkix.Extension{Id: asn1.ObjectIdentifier{2, 5, 29, 30}, Critical: true, Value: []byte("\x30\x0b\xa0\x09\x30\x07\x82\x05a.com")})
	middle := tpmlab.CACert("middle", "root", key)
	chain := [][]byte{leafUnder(t, middle), middle.Sign(t, root.Key)}
	for limit, want := range map[int]refusal.Check{3: "", 2: attest.CheckBudget, 1: attest.CheckBudget} {
		t.Run(fmt.Sprint(limit), func(t *testing.T) {
			_, err := akIssuerOf(t, newLinkMemory(), []*tpmlab.Cert{root}).verify(t.Context(), newTestLinks(limit), presentedBytes(t, chain...), tpmlab.Time)
			tpmlab.ExpectCheck(t, err, want)
		})
	}
	for name, c := range map[string]struct {
		id   asn1.ObjectIdentifier
		want bool
	}{
		"nameConstraints": {asn1.ObjectIdentifier{2, 5, 29, 30}, true}, "policyMappings": {asn1.ObjectIdentifier{2, 5, 29, 33}, true},
		"policyConstraints": {asn1.ObjectIdentifier{2, 5, 29, 36}, true}, "inhibitAnyPolicy": {asn1.ObjectIdentifier{2, 5, 29, 54}, true},
		"cRLDistributionPoints": {asn1.ObjectIdentifier{2, 5, 29, 31}, false}, "certificatePolicies": {asn1.ObjectIdentifier{2, 5, 29, 32}, false},
		"authorityKeyIdentifier": {asn1.ObjectIdentifier{2, 5, 29, 35}, false}, "freshestCRL": {asn1.ObjectIdentifier{2, 5, 29, 46}, false},
		"issuerAltName": {asn1.ObjectIdentifier{2, 5, 29, 18}, false}, "2.5.29.53": {asn1.ObjectIdentifier{2, 5, 29, 53}, false},
		"2.5.29.55": {asn1.ObjectIdentifier{2, 5, 29, 55}, false}, "2.5.29.34": {asn1.ObjectIdentifier{2, 5, 29, 34}, false},
		"1.5.29.30": {asn1.ObjectIdentifier{1, 5, 29, 30}, false}, "2.4.29.30": {asn1.ObjectIdentifier{2, 4, 29, 30}, false},
		"2.5.28.30": {asn1.ObjectIdentifier{2, 5, 28, 30}, false}, "longer": {asn1.ObjectIdentifier{2, 5, 29, 30, 1}, false},
		"shorter": {asn1.ObjectIdentifier{2, 5, 29}, false}, "2.5.29.37": {asn1.ObjectIdentifier{2, 5, 29, 37}, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := looksAtLeaves(pkix.Extension{Id: c.id}); got != c.want {
				t.Errorf("got %t", got)
			}
		})
	}
}

// An extended key usage that is followed by other bytes is refused, though crypto/x509 takes it.
func TestMalformedUsages(t *testing.T) {
	bad := func(id oid.OID) pkix.Extension {
		e := tpmlab.Usages(id)
		e.Value = append(bytes.Clone(e.Value), 5, 0)
		return e
	}
	for _, road := range []attest.Road{attest.RoadAK, attest.RoadEK} {
		usage := map[attest.Road]oid.OID{attest.RoadAK: oid.TCGKpAIKCertificate, attest.RoadEK: oid.TCGKpEKCertificate}[road]
		for name, inCA := range map[string]bool{"in the CA": true, "in the leaf": false} {
			t.Run(name+"/"+road.String(), func(t *testing.T) {
				root := tpmlab.CACert("root", "root", tpmlab.NewP256(t))
				leaf := leafOn(road, "root", t)
				leaf.Algorithm = tpmlab.AlgorithmOf(root.Key.Public())
				if inCA {
					root.Extensions = append(root.Extensions, bad(usage))
				} else {
					leaf.Extensions[2] = bad(usage)
				}
				_, _, err := newLab(t, EKProfileTCG(), root).verify(t.Context(), road, [][]byte{leaf.Sign(t, root.Key)})
				tpmlab.ExpectCheck(t, err, checkCertificateExtKeyUsage)
			})
		}
	}
}

// A CA whose key stands as RSAES-OAEP certifies over SHA-1, where that is let through.
func TestOAEPCAOverSHA1(t *testing.T) {
	keys := rsaTestKeys()
	root, middle := tpmlab.CACert("root", "root", keys[0]), tpmlab.CACert("middle", "root", keys[1])
	middle.SPKI = oaepCert(t, keys[1].Public().(*rsa.PublicKey)).RawSubjectPublicKeyInfo
	leaf := tpmlab.EKCert("middle", tpmlab.NewP256(t).Public())
	leaf.Algorithm = []byte(tpmlab.SHA1RSA)
	l := newLab(t, allowingSHA1(), root)
	_, _, err := l.verify(t.Context(), attest.RoadEK, [][]byte{leaf.Sign(t, keys[1]), middle.Sign(t, keys[0])})
	tpmlab.ExpectCheck(t, err, "")
	_, _, err = l.verify(t.Context(), attest.RoadEK, [][]byte{leaf.Sign(t, keys[0]), middle.Sign(t, keys[0])})
	tpmlab.ExpectCheck(t, err, CheckCertificateChain)
}

// An expired EK certificate that leads to no root is refused for the missing root.
func TestExpiredEKOfNobody(t *testing.T) {
	root := tpmlab.CACert("root", "root", tpmlab.NewP256(t))
	l := newLab(t, EKProfileTCG(), root)
	for issuer, want := range map[string]refusal.Check{"root": checkCertificateExpired, "absent": CheckCertificateChain} {
		leaf := tpmlab.EKCert(issuer, tpmlab.NewP256(t).Public())
		leaf.Algorithm, leaf.To = tpmlab.AlgorithmOf(root.Key.Public()), tpmlab.Time.Add(-time.Hour)
		_, _, err := l.verify(t.Context(), attest.RoadEK, [][]byte{leaf.Sign(t, root.Key)})
		tpmlab.ExpectCheck(t, err, want)
	}
}
