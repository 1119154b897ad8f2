package tpmcert

import (
	"crypto/elliptic"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/internal/der"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/internal/testkit/tpmlab"
	"github.com/nodeattest/nodeattest/oid"
	"github.com/nodeattest/nodeattest/refusal"
)

// chainForger makes chains as a stranger might send them: good ones below one of the
// lab's roots, with some things changed.
type chainForger struct {
	*rand.Rand
	t     testing.TB
	roots []*tpmlab.Cert
	keys  []*tpmlab.Cert // CAs whose private keys the stranger has
	spkis [][]byte       // keys without a private part
}

// forgedChain is a chain, leaf first, before it is signed; parents say what signs each.
type forgedChain struct {
	certs   []*tpmlab.Cert
	parents []*tpmlab.Cert
}

func (f *chainForger) chain(road attest.Road) [][]byte {
	root := f.roots[f.IntN(len(f.roots))]
	depth := f.IntN(der.MaxCertificates + 2)
	g := &forgedChain{}
	above := root
	for n := depth; n > 0; n-- {
		key := f.keys[f.IntN(len(f.keys))].Key
		ca := tpmlab.CACert(fmt.Sprint("CA ", n), above.Subject, key)
		ca.Algorithm = tpmlab.AlgorithmOf(above.Key.Public())
		g.certs, g.parents = append(g.certs, ca), append(g.parents, above)
		above = ca
	}
	leaf := tpmlab.EKCert(above.Subject, f.keys[0].Key.Public())
	if road == attest.RoadAK {
		leaf = tpmlab.AKCert(above.Subject, f.keys[0].Key.Public())
	}
	leaf.Algorithm = tpmlab.AlgorithmOf(above.Key.Public())
	g.certs, g.parents = append(g.certs, leaf), append(g.parents, above)
	slices.Reverse(g.certs)
	slices.Reverse(g.parents)
	for range f.IntN(4) {
		f.mutate(g)
	}
	return f.sign(g)
}

// mutate changes one thing.
func (f *chainForger) mutate(g *forgedChain) {
	n := f.IntN(len(g.certs))
	c := g.certs[n]
	rename := func(name string) { // together with the certificates that it signed
		if n > 0 {
			g.certs[n-1].Issuer = name
		}
		c.Subject = name
	}
	changes := []func(){
		func() { c.SPKI, c.Key = f.spkis[f.IntN(len(f.spkis))], nil },
		func() { c.Algorithm = []byte(f.pick(labAlgorithms)) },
		func() { c.Algorithm = []byte(tpmlab.SHA1RSA) },
		func() { c.To = tpmlab.Time.Add(-time.Hour) },
		func() { g.certs[0].To = tpmlab.Time.Add(-time.Hour) },
		func() { c.From = tpmlab.Time.Add(time.Hour) },
		func() { rename("X") },
		func() { rename(f.roots[f.IntN(len(f.roots))].Subject) },
		func() { c.Issuer = f.roots[f.IntN(len(f.roots))].Subject },
		func() { c.Issuer = c.Subject },
		func() { c.Issuer = "absent" },
		func() { c.Issuer = g.certs[f.IntN(len(g.certs))].Subject },
		func() { g.parents[n] = f.keys[f.IntN(len(f.keys))] }, // signed by another
		func() { g.parents[n] = f.roots[f.IntN(len(f.roots))] },
		func() { g.parents[n] = &tpmlab.Cert{} },
		func() { c.Extensions = c.Extensions[min(1, len(c.Extensions)):] },
		func() { c.Extensions = append(c.Extensions, tpmlab.Usages(oid.KpServerAuth)) },
		func() { c.Extensions = append(c.Extensions, tpmlab.Usages(oid.TCGKpEKCertificate)) },
		func() { c.Extensions = append(c.Extensions, criticalExtension()) },
		func() { c.Extensions = append(slices.Clip(c.Extensions), keyID(byte(n))...) },
		func() { c.Extensions = append(slices.Clip(c.Extensions), authority(byte(n+1))) },
		func() {
			c.Extensions = slices.Concat([]pkix.Extension{noDepth}, c.Extensions[min(1, len(c.Extensions)):])
		},
		func() {
			c.Extensions = slices.Concat([]pkix.Extension{tpmlab.IsNoCA}, c.Extensions[min(1, len(c.Extensions)):])
		},
		func() {
			c.Extensions = append(c.Extensions, pkix.Extension{Id: []int{2, 5, 29, 30}, Critical: true, Value: []byte("\x30\x0b\xa0\x09\x30\x07\x82\x05a.com")})
		},
		func() { // a cross-sign: the same CA below another root
			again := *c
			again.Issuer, again.Serial = f.roots[f.IntN(len(f.roots))].Subject, 1
			g.certs, g.parents = slices.Insert(g.certs, n, &again), slices.Insert(g.parents, n, f.roots[f.IntN(len(f.roots))])
		},
		func() { m := f.IntN(len(g.certs)); g.certs[n], g.certs[m] = g.certs[m], g.certs[n] },
		func() {
			g.certs, g.parents = append(g.certs, g.certs[n]), append(g.parents, g.parents[n])
		},
		func() { // a flood of one name
			for k := range 6 {
				again := *c
				again.Serial = int64(k)
				g.certs, g.parents = append(g.certs, &again), append(g.parents, g.parents[n])
			}
		},
		func() {
			if len(g.certs) > 1 {
				g.certs, g.parents = slices.Delete(g.certs, n, n+1), slices.Delete(g.parents, n, n+1)
			}
		},
	}
	changes[f.IntN(len(changes))]()
}

var labAlgorithms = []string{tpmlab.SHA1RSA, tpmlab.SHA256RSA, md5RSA, ecdsaSHA1, tpmlab.ECDSASHA256, withEd25519, unknown, tpmlab.PSSSHA256}

func (f *chainForger) pick(from []string) string { return from[f.IntN(len(from))] }

func (f *chainForger) sign(g *forgedChain) [][]byte {
	var out [][]byte
	for n, c := range g.certs {
		out = append(out, c.Sign(f.t, g.parents[n].Key))
	}
	switch f.IntN(40) {
	case 0: // cut, or with bytes changed
		last := len(out) - 1
		out[last] = out[last][:f.IntN(len(out[last]))]
	case 1:
		der := out[f.IntN(len(out))]
		der[f.IntN(len(der))] ^= byte(1 + f.IntN(255))
	}
	return out
}

// numberOfChains is how many chains are tried: 1,000, ten times as many with
// NODEATTEST_LONG=1, and what NODEATTEST_CHAINS says.
func numberOfChains(t *testing.T) int {
	t.Helper()
	if text := os.Getenv("NODEATTEST_CHAINS"); text != "" {
		n, err := strconv.Atoi(text)
		testkit.NoError(t, err)
		return n
	}
	if os.Getenv("NODEATTEST_LONG") == "1" {
		return 10001
	}
	return 1001
}

// Whatever chain is sent, to ten issuers on either road: it costs no more signatures
// than the budget, a refused one at most three times as many as a good one of as many
// certificates, and crypto/x509 agrees with each that is accepted.
func TestForgedChainsCostLittle(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv("NODEATTEST_SEED"); text != "" {
		seed, _ = strconv.ParseUint(text, 10, 64)
	}
	t.Logf("NODEATTEST_SEED=%d", seed)
	f := &chainForger{Rand: rand.New(rand.NewPCG(seed, 0)), t: t}
	rsaKeys := rsaTestKeys()
	f.roots = append(tenRoots(t)[:6], tpmlab.CACert("RSA", "RSA", rsaKeys[0]), tpmlab.CACert("P-384", "P-384", tpmlab.NewECDSA(t, elliptic.P384())),
		tpmlab.CACert("twice", "twice", tpmlab.NewP256(t)), tpmlab.CACert("twice", "twice", tpmlab.NewP256(t)))
	f.keys = []*tpmlab.Cert{tpmlab.CACert("K", "K", tpmlab.NewP256(t)), tpmlab.CACert("L", "L", tpmlab.NewP256(t)), tpmlab.CACert("M", "M", rsaKeys[1])}
	for _, name := range slices.Sorted(maps.Keys(tpmlab.StrangeSPKIs())) {
		f.spkis = append(f.spkis, tpmlab.StrangeSPKIs()[name])
	}
	strict, tolerant := newLab(t, EKProfileTCG(), f.roots...), newLab(t, allowingSHA1(), f.roots...)
	accepted, most, mostRefused := 0, 0, 0
	refusals := map[refusal.Check]int{}
	costs := map[int]int{}
	for range numberOfChains(t) {
		l := strict
		if f.IntN(2) == 0 {
			l = tolerant
		}
		if f.IntN(20) == 0 {
			l.eks.known.forget(true)
			l.aks.issuers[0].known.forget(true)
		}
		road := []attest.Road{attest.RoadAK, attest.RoadEK}[f.IntN(2)]
		chain := f.chain(road)
		w, verified, err := l.verify(t.Context(), road, chain)
		cost := 1 + w.Signatures()
		costs[cost]++
		most = max(most, cost)
		if cost > 10 || len(w.failed) > 4 {
			t.Errorf("%d signatures, %d of them wrong", cost, len(w.failed))
		}
		if err == nil {
			accepted++
			agrees(t, verified)
			continue
		}
		var e *refusal.Error
		if !errors.As(err, &e) || errors.Is(err, refusal.ErrRetry) {
			t.Errorf("no refusal: %v", err)
			continue
		}
		refusals[e.Check]++
		mostRefused = max(mostRefused, cost)
		if good := 1 + len(chain); cost > 3*good { // the request's own signature, and as many links
			t.Errorf("refused after %d signatures, of a chain of %d: %v", cost, len(chain), err)
		}
	}
	t.Logf("%d chains: %d accepted, %d refused; at most %d signatures, %d where refused; by cost %v; refusals %v",
		numberOfChains(t), accepted, numberOfChains(t)-accepted, most, mostRefused, costs, refusals)
	if accepted < numberOfChains(t)/20 || len(refusals) < 8 {
		t.Error("the chains are not what they should be")
	}
}

// agrees asks crypto/x509 about a chain without SHA-1.
func agrees(t *testing.T, chain []*x509.Certificate) {
	t.Helper()
	roots, intermediates := x509.NewCertPool(), x509.NewCertPool()
	roots.AddCert(chain[len(chain)-1])
	for _, c := range chain[:len(chain)-1] {
		if c.SignatureAlgorithm == x509.SHA1WithRSA {
			return
		}
	}
	for _, c := range chain[1 : len(chain)-1] {
		intermediates.AddCert(c)
	}
	if _, err := chain[0].Verify(x509.VerifyOptions{Roots: roots, Intermediates: intermediates, CurrentTime: tpmlab.Time,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}}); err != nil {
		t.Errorf("crypto/x509 refuses a chain of %d: %v", len(chain), err)
	}
}

// FuzzChains feeds bytes for certificates to both roads.
func FuzzChains(f *testing.F) {
	testkit.BeginFuzz(f)
	root := tpmlab.CACert("root", "root", tpmlab.NewP256(f))
	l := newLab(f, allowingSHA1(), slices.Repeat([]*tpmlab.Cert{root}, 10)...)
	for _, road := range []attest.Road{attest.RoadAK, attest.RoadEK} {
		leaf, lower := leafOn(road, "lower", f), tpmlab.CACert("lower", "root", tpmlab.NewP256(f))
		leaf.Algorithm = tpmlab.AlgorithmOf(lower.Key.Public())
		f.Add(joined(leaf.Sign(f, lower.Key), lower.Sign(f, root.Key)))
	}
	for _, spki := range tpmlab.StrangeSPKIs() {
		leaf, lower := leafOn(attest.RoadEK, "lower", f), tpmlab.CACert("lower", "root", tpmlab.NewP256(f))
		leaf.Algorithm, lower.SPKI = []byte(tpmlab.SHA1RSA), spki
		f.Add(joined(leaf.Sign(f, nil), lower.Sign(f, root.Key)))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var chain [][]byte
		for len(data) >= 2 {
			size := min(int(binary.BigEndian.Uint16(data)), len(data)-2)
			chain, data = append(chain, data[2:2+size]), data[2+size:]
		}
		if len(chain) == 0 {
			return
		}
		for _, road := range []attest.Road{attest.RoadAK, attest.RoadEK} {
			w, verified, err := l.verify(t.Context(), road, chain)
			if w.Signatures() > 5+4 || len(w.failed) > 4 {
				t.Errorf("%d signatures, %d of them wrong", w.Signatures(), len(w.failed))
			}
			if err == nil {
				agrees(t, verified)
			}
		}
	})
}

func joined(parts ...[]byte) (out []byte) {
	for _, p := range parts {
		out = append(binary.BigEndian.AppendUint16(out, uint16(len(p))), p...)
	}
	return out
}
