package tpmcert

import (
	"bytes"
	"context"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/internal/testkit/tpmlab"
	"github.com/nodeattest/nodeattest/internal/tpmwire"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/internal/der"
	"github.com/nodeattest/nodeattest/oid"
	"github.com/nodeattest/nodeattest/refusal"
)

// lab is a control plane with ten issuers on each road.
type lab struct {
	roots []*tpmlab.Cert
	certs []*x509.Certificate
	aks   *AKVerifier
	eks   *EKVerifier
}

// newLab makes issuers whose roots have the given keys. edit may change an issuer.
func newLab(t testing.TB, profile EKProfile, roots ...*tpmlab.Cert) *lab {
	t.Helper()
	l := &lab{roots: roots, aks: &AKVerifier{}}
	var c EKVerifierConfig
	known := newLinkMemory()
	for _, r := range roots {
		cert := tpmlab.Parsed(t, r.Sign(t, r.Key))
		l.certs = append(l.certs, cert)
		c.Issuers = append(c.Issuers, EKIssuer{Roots: []*x509.Certificate{cert}, Profile: profile})
		i, err := newIssuer(&Issuer{Roots: []*x509.Certificate{cert}, Profile: ProfileTCG()}, known)
		testkit.NoError(t, err)
		l.aks.issuers = append(l.aks.issuers, i)
	}
	l.eks = ekVerifierOf(t, c)
	return l
}

// verify verifies a chain, leaf first, on one road, and returns the cost.
func (l *lab) verify(ctx context.Context, road attest.Road, chain [][]byte) (*links, []*x509.Certificate, error) {
	w := newTestLinks(5 + 4)
	if road == attest.RoadAK {
		p, err := ParseAKPresented(chain)
		if err != nil {
			return w, nil, err
		}
		c, err := l.aks.verify(ctx, w, p, tpmlab.Time)
		if err != nil {
			return w, nil, err
		}
		return w, c.Chain, nil
	}
	p, err := ParseEKPresented(chain, nil)
	if err != nil {
		return w, nil, err
	}
	facts, err := l.eks.verifyEK(ctx, w, p, nil, tpmlab.Time)
	if err != nil {
		return w, nil, err
	}
	return w, facts.Chain, nil
}

// tenRoots are roots of different names; all have fast keys.
func tenRoots(t testing.TB) []*tpmlab.Cert {
	t.Helper()
	var roots []*tpmlab.Cert
	for n := range 10 {
		roots = append(roots, tpmlab.CACert(fmt.Sprint("root ", n), fmt.Sprint("root ", n), tpmlab.NewP256(t)))
	}
	return roots
}

func leafOn(road attest.Road, issuer string, t testing.TB) *tpmlab.Cert {
	if road == attest.RoadAK {
		return tpmlab.AKCert(issuer, tpmlab.NewP256(t).Public())
	}
	return tpmlab.EKCert(issuer, tpmlab.NewP256(t).Public())
}

// What strangers send costs no signature under their own keys, whatever the key, the
// hash and the name, and one under a root at most.
func TestStrangersChainsCostNothing(t *testing.T) {
	l := newLab(t, allowingSHA1(), tenRoots(t)...)
	rsaKey, ecKey := rsaTestKeys()[0], tpmlab.NewP256(t)
	expired := func(c *tpmlab.Cert) { c.To = tpmlab.Time.Add(-time.Hour) }
	type stranger struct {
		edit      func(leaf, lower, upper *tpmlab.Cert)
		signs     *tpmlab.Cert // signs upper; nil: unsigned
		want      refusal.Check
		wantLinks int
	}
	cases := map[string]stranger{
		"an expired leaf":         {func(leaf, _, _ *tpmlab.Cert) { expired(leaf) }, l.roots[0], checkCertificateExpired, 0},
		"an expired intermediate": {func(_, _, upper *tpmlab.Cert) { expired(upper) }, l.roots[0], checkCertificateExpired, 0},
		"no root's name":          {func(_, _, upper *tpmlab.Cert) { upper.Issuer = "absent" }, nil, CheckCertificateChain, 0},
		"a root's name alone":     {func(_, _, upper *tpmlab.Cert) {}, nil, CheckCertificateChain, 1},
		"same names": {func(leaf, lower, upper *tpmlab.Cert) {
			leaf.Issuer, lower.Subject, lower.Issuer = "upper", "upper", "upper"
		}, l.roots[0], checkCertificateOrder, 0},
		"a loop":                 {func(leaf, lower, upper *tpmlab.Cert) { upper.Issuer = "lower" }, nil, CheckCertificateChain, 0},
		"over MD5":               {func(leaf, _, _ *tpmlab.Cert) { leaf.Algorithm = []byte(md5RSA) }, l.roots[0], CheckCertificateChain, 0},
		"over SHA-1, ECDSA":      {func(leaf, _, _ *tpmlab.Cert) { leaf.Algorithm = []byte(ecdsaSHA1) }, l.roots[0], CheckCertificateChain, 0},
		"an unknown algorithm":   {func(leaf, _, _ *tpmlab.Cert) { leaf.Algorithm = []byte(unknown) }, l.roots[0], CheckCertificateChain, 0},
		"Ed25519":                {func(leaf, _, _ *tpmlab.Cert) { leaf.Algorithm = []byte(withEd25519) }, l.roots[0], CheckCertificateChain, 0},
		"RSA under an EC key":    {func(leaf, _, _ *tpmlab.Cert) { leaf.Algorithm = []byte(tpmlab.SHA256RSA) }, l.roots[0], CheckCertificateChain, 0},
		"RSA, SHA-1, EC key":     {func(leaf, _, _ *tpmlab.Cert) { leaf.Algorithm = []byte(tpmlab.SHA1RSA) }, l.roots[0], CheckCertificateChain, 0},
		"ECDSA under an RSA key": {func(_, lower, upper *tpmlab.Cert) { lower.SPKI = tpmlab.SPKI(2048, 65537, false) }, l.roots[0], CheckCertificateChain, 0},
		"OAEP without SHA-1": {func(leaf, lower, _ *tpmlab.Cert) {
			leaf.Algorithm, lower.SPKI = []byte(tpmlab.SHA256RSA), tpmlab.SPKI(2048, 65537, true)
		}, l.roots[0], CheckCertificateChain, 0},
		"no CA":       {func(_, _, upper *tpmlab.Cert) { upper.Extensions[0] = tpmlab.IsNoCA }, l.roots[0], CheckCertificateChain, 0},
		"path length": {func(_, _, upper *tpmlab.Cert) { upper.Extensions[0] = noDepth }, l.roots[0], CheckCertificateChain, 0},
		"for web servers": {func(_, _, upper *tpmlab.Cert) {
			upper.Extensions = append(upper.Extensions, tpmlab.Usages(oid.KpServerAuth))
		}, l.roots[0], checkCertificateExtKeyUsage, 0},
		"another key's id": {func(leaf, lower, _ *tpmlab.Cert) {
			leaf.Extensions = append(leaf.Extensions, authority(1, 2))
			lower.Extensions = append(lower.Extensions, keyID(3, 4)...)
		}, l.roots[0], CheckCertificateChain, 0},
	}
	for name, spki := range tpmlab.StrangeSPKIs() {
		cases["a CA's key is "+name] = stranger{func(_, lower, _ *tpmlab.Cert) { lower.SPKI = spki }, l.roots[0], refusal.Check("tpm-key-strength"), 0}
	}
	for name, c := range cases {
		for _, road := range []attest.Road{attest.RoadAK, attest.RoadEK} {
			t.Run(name+"/"+road.String(), func(t *testing.T) {
				leaf, lower, upper := leafOn(road, "lower", t), tpmlab.CACert("lower", "upper", ecKey), tpmlab.CACert("upper", "root 0", ecKey)
				leaf.Algorithm = tpmlab.AlgorithmOf(ecKey.Public())
				c.edit(leaf, lower, upper)
				der := [][]byte{leaf.Sign(t, ecKey), lower.Sign(t, ecKey), upper.Sign(t, nil)}
				if c.signs != nil {
					der[2] = upper.Sign(t, c.signs.Key)
				}
				w, _, err := l.verify(t.Context(), road, der)
				if !errors.Is(err, c.want) || errors.Is(err, refusal.ErrRetry) {
					t.Errorf("got %v, want %s", err, c.want)
				}
				if w.Signatures() != c.wantLinks {
					t.Errorf("%d signatures checked, want %d", w.Signatures(), c.wantLinks)
				}
			})
		}
	}
	_ = rsaKey
}

// A good chain costs its links the first time, and nothing from then on.
func TestGoodChainsCostTheirLinks(t *testing.T) {
	for _, road := range []attest.Road{attest.RoadAK, attest.RoadEK} {
		t.Run(road.String(), func(t *testing.T) {
			l := newLab(t, EKProfileTCG(), tenRoots(t)...)
			key := tpmlab.NewP256(t)
			leaf := leafOn(road, "CA 1", t)
			leaf.Algorithm = tpmlab.AlgorithmOf(key.Public())
			der := [][]byte{leaf.Sign(t, key)}
			for n := 1; n < 5; n++ {
				issuer, signer := fmt.Sprint("CA ", n+1), key
				if n == 5-1 {
					issuer = "root 9"
					der = append(der, tpmlab.CACert(fmt.Sprint("CA ", n), issuer, key).Sign(t, l.roots[9].Key))
					break
				}
				der = append(der, tpmlab.CACert(fmt.Sprint("CA ", n), issuer, key).Sign(t, signer))
			}
			for _, want := range []int{5, 0, 0} {
				w, chain, err := l.verify(t.Context(), road, der)
				if err != nil || len(chain) != 5+1 || w.Signatures() != want {
					t.Errorf("chain of %d, %v; %d signatures checked, want %d", len(chain), err, w.Signatures(), want)
				}
			}
			ended, end := context.WithCancel(t.Context())
			end()
			if _, _, err := l.verify(ended, road, der); !errors.Is(err, refusal.ErrRetry) {
				t.Errorf("after the context's end: %v", err)
			}
			for _, n := range []int{0, len(der) - 1} {
				changed := der[n]
				changed[len(changed)-1] ^= 1
				if w, _, err := l.verify(t.Context(), road, der); !errors.Is(err, CheckCertificateChain) || w.Signatures() != 1 {
					t.Errorf("a changed signature of certificate %d: %v after %d signatures", n, err, w.Signatures())
				}
				changed[len(changed)-1] ^= 1
			}
			der = append(der[:len(der)-1], tpmlab.CACert(fmt.Sprint("CA ", 5-1), "one more", key).Sign(t, key),
				tpmlab.CACert("one more", "root 9", key).Sign(t, l.roots[9].Key))
			if w, _, err := l.verify(t.Context(), road, der); !errors.Is(err, CheckCertificateChain) || w.Signatures() != 0 {
				t.Errorf("one link more: %v after %d signatures", err, w.Signatures())
			}
		})
	}
}

// Where CAs share a name and nothing tells which is meant, the wrong ones are counted.
func TestWrongTurnsAreCounted(t *testing.T) {
	for _, road := range []attest.Road{attest.RoadAK, attest.RoadEK} {
		for position, ok := range map[int]bool{4 - 1: true, 4: false} {
			t.Run(fmt.Sprintf("%s/%d", road, position), func(t *testing.T) {
				var roots []*tpmlab.Cert
				for range 10 {
					roots = append(roots, tpmlab.CACert("root", "root", tpmlab.NewP256(t)))
				}
				l := newLab(t, EKProfileTCG(), roots...)
				leaf := leafOn(road, "root", t)
				leaf.Algorithm = tpmlab.AlgorithmOf(roots[0].Key.Public())
				w, _, err := l.verify(t.Context(), road, [][]byte{leaf.Sign(t, roots[position].Key)})
				if ok && err != nil || !ok && !errors.Is(err, attest.CheckBudget) || len(w.failed) != min(position, 4) {
					t.Errorf("%v after %d wrong signatures", err, len(w.failed))
				}
				// The same root under many issuers is one root.
				again := newLab(t, EKProfileTCG(), slices.Repeat(roots[:1], 10)...)
				if w, _, err = again.verify(t.Context(), road, [][]byte{leaf.Sign(t, nil)}); !errors.Is(err, CheckCertificateChain) || w.Signatures() != 1 {
					t.Errorf("one root ten times: %v after %d signatures", err, w.Signatures())
				}
			})
		}
	}
}

// Each limit of the budget ends a request, at the limit and not before.
func TestBudgetEnds(t *testing.T) {
	ctx := t.Context()
	w := newTestLinks(2)
	for n, want := range []error{nil, nil, attest.CheckBudget, attest.CheckBudget} {
		if err := w.Signature(ctx); !errors.Is(err, want) && (err != nil || want != nil) {
			t.Errorf("signature %d: %v, want %v", n, err, want)
		}
	}
	w = newTestLinks(10)
	w.links = 5 + 4
	cert := &certificate{Certificate: &x509.Certificate{}}
	if err := w.link(ctx, newLinkMemory(), cert, cert, false); !errors.Is(err, attest.CheckBudget) {
		t.Errorf("links: %v", err)
	}
	if tpmwire.MaxRSABits != 4096 {
		t.Error("docs/threat-model.md states this figure")
	}
}

// A link that failed fails again without a signature, and stands for no other certificate of
// its issuer.
func TestFailedLinks(t *testing.T) {
	root := tpmlab.CACert("root", "root", tpmlab.NewP256(t))
	issuer := caOf(tpmlab.Parsed(t, root.Sign(t, root.Key)), true)
	der := leafUnder(t, root)
	good := &certificate{Certificate: tpmlab.Parsed(t, der)}
	der = bytes.Clone(der)
	der[len(der)-1] ^= 1
	bad := &certificate{Certificate: tpmlab.Parsed(t, der)}
	w, known := newTestLinks(2), newLinkMemory()
	for range 2 {
		if err := w.link(t.Context(), known, bad, issuer, true); !errors.Is(err, CheckCertificateChain) || w.Signatures() != 1 {
			t.Errorf("a changed signature: %v after %d signatures", err, w.Signatures())
		}
	}
	for range 2 {
		if err := w.link(t.Context(), known, good, issuer, true); err != nil || w.Signatures() != 2 {
			t.Errorf("the good one: %v after %d signatures", err, w.Signatures())
		}
	}
}

// A caller who has gone is not worked for.
func TestGivenUpContexts(t *testing.T) {
	l := newLab(t, EKProfileTCG(), tenRoots(t)...)
	for _, road := range []attest.Road{attest.RoadAK, attest.RoadEK} {
		leaf := leafOn(road, "root 0", t)
		leaf.Algorithm = tpmlab.AlgorithmOf(l.roots[0].Key.Public())
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		w, _, err := l.verify(ctx, road, [][]byte{leaf.Sign(t, l.roots[0].Key)})
		if !errors.Is(err, refusal.ErrRetry) || !errors.Is(err, context.Canceled) || w.Signatures() != 0 {
			t.Errorf("%s: %v after %d signatures", road, err, w.Signatures())
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	w := newTestLinks(10)
	if err := w.Signature(ctx); !errors.Is(err, refusal.ErrRetry) || w.Signatures() != 0 {
		t.Errorf("a signature: %v", err)
	}
	if err := w.Encryption(ctx); !errors.Is(err, refusal.ErrRetry) {
		t.Errorf("an encryption: %v", err)
	}
}

// An extended key usage in a CA certificate limits the leaf's, all the way up.
func TestUsagesOfCAs(t *testing.T) {
	ek, ak, tls, other := oid.TCGKpEKCertificate, oid.TCGKpAIKCertificate, oid.KpServerAuth, oid.OID("\x2a\x03")
	for name, c := range map[string]struct {
		lower, upper []oid.OID
		ek, ak       bool
	}{
		"none":                 {nil, nil, true, true},
		"any":                  {[]oid.OID{oid.AnyExtendedKeyUsage}, []oid.OID{tls, oid.AnyExtendedKeyUsage}, true, true},
		"the EK's":             {[]oid.OID{ek}, nil, true, false},
		"the EK's, further up": {nil, []oid.OID{other, ek}, true, false},
		"the AK's":             {[]oid.OID{other, ak}, []oid.OID{ak}, false, true},
		"both":                 {[]oid.OID{ek, ak}, []oid.OID{ak, ek}, true, true},
		"one each":             {[]oid.OID{ek}, []oid.OID{ak}, false, false},
		"a web server's":       {[]oid.OID{tls}, nil, false, false},
		"a web server's above": {nil, []oid.OID{tls}, false, false},
	} {
		for road, ok := range map[attest.Road]bool{attest.RoadEK: c.ek, attest.RoadAK: c.ak} {
			t.Run(name+"/"+road.String(), func(t *testing.T) {
				l := newLab(t, EKProfileTCG(), tenRoots(t)[:1]...)
				key := tpmlab.NewP256(t)
				leaf, lower, upper := leafOn(road, "lower", t), tpmlab.CACert("lower", "upper", key), tpmlab.CACert("upper", "root 0", key)
				leaf.Algorithm = tpmlab.AlgorithmOf(key.Public())
				if c.lower != nil {
					lower.Extensions = append(lower.Extensions, tpmlab.Usages(c.lower...))
				}
				if c.upper != nil {
					upper.Extensions = append(upper.Extensions, tpmlab.Usages(c.upper...))
				}
				_, _, err := l.verify(t.Context(), road, [][]byte{leaf.Sign(t, key), lower.Sign(t, key), upper.Sign(t, l.roots[0].Key)})
				if ok && err != nil || !ok && !errors.Is(err, checkCertificateExtKeyUsage) {
					t.Errorf("got %v, want accepted: %t", err, ok)
				}
			})
		}
	}
}

// The one certificate of a profile that asks for no usage is an AK's, and one that has
// several may be certified by CAs of each.
func TestUsagesOfProfiles(t *testing.T) {
	none := ProfileGoogle()
	none.ExtKeyUsage = nil
	key := tpmlab.NewP256(t)
	with := func(ids ...oid.OID) *x509.Certificate {
		leaf := tpmlab.AKCert("root", key.Public())
		leaf.Extensions, leaf.Algorithm = leaf.Extensions[:2], tpmlab.AlgorithmOf(key.Public())
		if ids != nil {
			leaf.Extensions = append(leaf.Extensions, tpmlab.Usages(ids...))
		}
		return tpmlab.Parsed(t, leaf.Sign(t, key))
	}
	two := Profile{ExtKeyUsage: []oid.OID{oid.TCGKpAIKCertificate, oid.AzureKpAK}}
	for name, c := range map[string]struct {
		profile Profile
		cert    *x509.Certificate
		want    []oid.OID
	}{
		"nothing asked":                {none, with(), []oid.OID{oid.TCGKpAIKCertificate}},
		"one of two":                   {two, with(oid.AzureKpAK), []oid.OID{oid.AzureKpAK}},
		"one and another":              {two, with(oid.KpServerAuth, oid.AzureKpAK), []oid.OID{oid.AzureKpAK}},
		"both":                         {two, with(oid.AzureKpAK, oid.TCGKpAIKCertificate), []oid.OID{oid.AzureKpAK, oid.TCGKpAIKCertificate}},
		"an AK's, which is not listed": {Profile{ExtKeyUsage: []oid.OID{oid.AzureKpAK, oid.KpServerAuth}}, with(oid.KpServerAuth, oid.TCGKpAIKCertificate), []oid.OID{oid.KpServerAuth}},
		"none in the leaf":             {two, with(), two.ExtKeyUsage},
		"another's usage":              {two, with(oid.KpServerAuth), two.ExtKeyUsage},
		"the profile's own":            {ProfileTCG(), with(oid.TCGKpAIKCertificate), []oid.OID{oid.TCGKpAIKCertificate}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := c.profile.usagesOf(c.cert); !slices.Equal(got, c.want) {
				t.Errorf("got %s, want %s", usagesText(got), usagesText(c.want))
			}
		})
	}
}

// The limits of a bundle hold for certificates from elsewhere too.
func TestNumberOfCertificates(t *testing.T) {
	l := newLab(t, EKProfileTCG(), tenRoots(t)[:1]...)
	leaf := tpmlab.AKCert("root 0", tpmlab.NewP256(t).Public())
	leaf.Algorithm = tpmlab.AlgorithmOf(l.roots[0].Key.Public())
	good := leaf.Sign(t, l.roots[0].Key)
	issuers := []Issuer{{Roots: l.certs, Profile: ProfileTCG()}}
	large := func(size int) []byte { return bytes.Repeat([]byte{0xff}, size) }
	for name, c := range map[string]struct {
		certificates [][]byte
		want         refusal.Check
	}{
		"good":              {[][]byte{good}, ""},
		"as many as may be": {append([][]byte{good}, slices.Repeat([][]byte{{1}}, der.MaxCertificates-1)...), CheckCertificateEncoding},
		"one more":          {append([][]byte{good}, slices.Repeat([][]byte{{1}}, der.MaxCertificates)...), der.CheckSize},
		"as large":          {[][]byte{good, large(der.MaxCertificateSize)}, CheckCertificateEncoding},
		"larger":            {[][]byte{good, large(der.MaxCertificateSize + 1)}, der.CheckSize},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := VerifyAKCertificate(issuers, c.certificates, tpmlab.Time)
			if c.want == "" && err != nil || c.want != "" && !errors.Is(err, c.want) {
				t.Errorf("got %v, want %s", err, c.want)
			}
		})
	}
}

// Fetchers are asked once for a URL and no more often than they are told, however many
// issuers there are, and what one gets is there for all.
func TestFetchesOfARequest(t *testing.T) {
	root, key := tpmlab.CACert("root 9", "root 9", tpmlab.NewP256(t)), tpmlab.NewP256(t)
	middle := tpmlab.CACert("middle", "root 9", key).Sign(t, root.Key)
	leaf := tpmlab.EKCertificate(t, &tpmlab.CA{Cert: tpmlab.Parsed(t, middle), Key: key}, tpmlab.NewP256(t).Public(), func(c *x509.Certificate) {
		c.IssuingCertificateURL = []string{"a", "b", "c", "http://ca.example/middle", "e"}
	})
	for name, c := range map[string]struct {
		fetcher func(calls *[]string) IssuerFetcher
		same    bool
		want    int
	}{
		"one for all":     {func(calls *[]string) IssuerFetcher { return &countingFetcher{calls, middle} }, true, maxIssuerURLs},
		"one each":        {func(calls *[]string) IssuerFetcher { return &countingFetcher{calls, middle} }, false, maxIssuerURLs},
		"one each, empty": {func(calls *[]string) IssuerFetcher { return &countingFetcher{calls, nil} }, false, maxIssuerFetches},
		"not comparable": {func(calls *[]string) IssuerFetcher {
			return fetcherFunc(func(url string) ([]byte, error) { *calls = append(*calls, url); return nil, nil })
		}, true, maxIssuerFetches},
	} {
		t.Run(name, func(t *testing.T) {
			var calls []string
			shared := c.fetcher(&calls)
			var config EKVerifierConfig
			for n := range 10 {
				r := root
				if n < 9 {
					r = tpmlab.CACert(fmt.Sprint("root ", n), fmt.Sprint("root ", n), tpmlab.NewP256(t))
				}
				f := shared
				if !c.same {
					f = c.fetcher(&calls)
				}
				config.Issuers = append(config.Issuers, EKIssuer{Roots: []*x509.Certificate{tpmlab.Parsed(t, r.Sign(t, r.Key))}, Profile: EKProfileTCG(), Fetcher: f})
			}
			_, err := verifyAt(ekVerifierOf(t, config), tpmlab.Time, leaf)
			if found := c.want == maxIssuerURLs; found && err != nil || !found && !errors.Is(err, attest.CheckBudget) {
				t.Errorf("%v", err)
			}
			if len(calls) != c.want {
				t.Errorf("%d calls, want %d: %v", len(calls), c.want, calls)
			}
		})
	}
}

type countingFetcher struct {
	calls  *[]string
	middle []byte
}

func (f *countingFetcher) FetchIssuer(_ context.Context, url string) ([]byte, error) {
	*f.calls = append(*f.calls, url)
	if url == "http://ca.example/middle" {
		return f.middle, nil
	}
	return nil, nil
}

// A key on each accepted curve, and RSA keys of both ends, certify.
func TestCanonicalKeys(t *testing.T) {
	for name, key := range map[string]any{
		"P-256": elliptic.P256(), "P-384": elliptic.P384(), "P-521": elliptic.P521(),
		"RSA of 2048 bits": &rsa.PublicKey{}, "RSA of 4096 bits": tpmlab.SPKI(4096, 65537, false), "OAEP of 4096 bits": tpmlab.SPKI(4096, 65537, true),
	} {
		t.Run(name, func(t *testing.T) {
			ca := tpmlab.CACert("CA", "root", tpmlab.NewP256(t))
			switch k := key.(type) {
			case elliptic.Curve:
				ca = tpmlab.CACert("CA", "root", tpmlab.NewECDSA(t, k))
			case *rsa.PublicKey:
				ca = tpmlab.CACert("CA", "root", rsaTestKeys()[0])
			case []byte:
				ca.SPKI = k
			}
			if c := caOf(tpmlab.Parsed(t, ca.Sign(t, nil)), false); c.unfit != nil || c.key == nil {
				t.Error(c.unfit)
			}
		})
	}
}
