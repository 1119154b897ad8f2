package tpm_test

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/attesttest"
	"github.com/nodeattest/nodeattest/attest/tpm"
	"github.com/nodeattest/nodeattest/attest/tpm/tpmcert"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/der"
	"github.com/nodeattest/nodeattest/internal/message"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/internal/testkit/tpmlab"
)

// workBench is a hello or an answer of a node, with a control plane of ten issuers whose keys
// are on the curve that was asked for.
type workBench struct {
	road     attest.Road
	request  *csr.Request
	leaf     crypto.PublicKey
	roots    [10]*tpmlab.Cert
	lower    *ecdsa.PrivateKey // of the good chain's intermediate
	stranger *rsa.PrivateKey
	verifier *attest.Verifier
	kind     *countingKind
	verify   func(*csr.Request) error
	now      time.Time
}

// ca is a CA certificate that is valid now.
func (w *workBench) ca(subject, issuer string, key crypto.Signer) *tpmlab.Cert {
	return w.valid(tpmlab.CACert(subject, issuer, key))
}

func (w *workBench) valid(c *tpmlab.Cert) *tpmlab.Cert {
	c.From, c.To = w.now.AddDate(0, 0, -1), w.now.AddDate(0, 0, 1)
	return c
}

func newWorkBench(t testing.TB, road attest.Road, answer bool, curve elliptic.Curve) *workBench {
	t.Helper()
	s := newStage(t, attesttest.NodeOptions{Road: road, EK: tpm.EKRSA2048()})
	w := &workBench{road: road, request: s.good, now: s.plane.Now()}
	if !answer {
		var err error
		if w.request, err = s.node.Hello(t.Context(), s.plane.Now()); err != nil {
			t.Fatal(err)
		}
	}
	_, evidence := w.open(t)
	leaf, err := tpmcert.ParseEK(evidence.Certificates[0])
	testkit.NoError(t, err)
	w.leaf = leaf.PublicKey
	key := func() *ecdsa.PrivateKey {
		k, err := ecdsa.GenerateKey(curve, rand.Reader)
		testkit.NoError(t, err)
		return k
	}
	w.lower = key()
	if w.stranger, err = rsa.GenerateKey(rand.Reader, 2048); err != nil {
		t.Fatal(err)
	}
	config := s.plane.Config
	var kind tpm.KindConfig
	var eks tpmcert.EKVerifierConfig
	for n := range w.roots {
		name := fmt.Sprint("root ", n)
		w.roots[n] = w.ca(name, name, key())
		root, err := x509.ParseCertificate(w.roots[n].Sign(t, w.roots[n].Key))
		testkit.NoError(t, err)
		profile := tpmcert.EKProfileTCG()
		profile.InsecureAllowSHA1Links = true
		aks := tpmcert.ProfileTCG()
		aks.Identity = []tpmcert.IdentitySource{tpmcert.AKIdentity{}}
		kind.AKIssuers = append(kind.AKIssuers, tpmcert.Issuer{Roots: []*x509.Certificate{root}, Profile: aks})
		eks.Issuers = append(eks.Issuers, tpmcert.EKIssuer{Roots: []*x509.Certificate{root}, Profile: profile})
	}
	if kind.EKs, err = tpmcert.NewEKVerifier(eks); err != nil {
		t.Fatal(err)
	}
	config.Now = func() time.Time { return w.now } // a search outlasts the age of a hello
	config.Authorizer = attest.AuthorizerFunc(func(_ context.Context, r *attest.Result) (*attest.Authorization, error) {
		a := as(r.ClaimedProviderID.Unproven())(r)
		a.NotAfter = w.now.AddDate(0, 0, 1)
		return a, nil
	})
	w.verifier, w.kind = verifierOf(t, config, kind)
	w.verify = func(r *csr.Request) error { _, err := w.verifier.Challenge(context.Background(), r); return err }
	if answer {
		w.verify = func(r *csr.Request) error { _, err := w.verifier.Verify(context.Background(), r); return err }
	}
	return w
}

func (w *workBench) open(t testing.TB) (*csr.Bundle, *message.Bundle) {
	t.Helper()
	bundle, err := csr.Parse(w.request.Spec.Request)
	testkit.NoError(t, err)
	evidence, err := message.ParseBundle(bundle.Data)
	testkit.NoError(t, err)
	return bundle, evidence
}

// with is the request with other certificates.
func (w *workBench) with(t testing.TB, certificates ...[]byte) *csr.Request {
	t.Helper()
	bundle, evidence := w.open(t)
	evidence.Certificates = certificates
	var err error
	if bundle.Data, err = evidence.Marshal(); err != nil {
		t.Fatal(err)
	}
	out := *w.request
	if out.Spec.Request, err = bundle.Marshal(); err != nil {
		t.Fatal(err)
	}
	return &out
}

// newLeaf is a certificate for the node's AK or EK.
func (w *workBench) newLeaf(issuer string) *tpmlab.Cert {
	if w.road == attest.RoadAK {
		return w.valid(tpmlab.AKCert(issuer, w.leaf))
	}
	return w.valid(tpmlab.EKCert(issuer, w.leaf))
}

// good is a chain of one intermediate, with the costliest keys.
func (w *workBench) good(t testing.TB) [][]byte {
	leaf := w.newLeaf("lower")
	leaf.Algorithm = []byte(tpmlab.ECDSASHA256)
	return [][]byte{leaf.Sign(t, w.lower), w.ca("lower", "root 9", w.lower).Sign(t, w.roots[9].Key)}
}

// attacks are requests that a stranger can file and a control plane must refuse.
func (w *workBench) attacks(t testing.TB) map[string]*csr.Request {
	good := w.good(t)
	out := map[string]*csr.Request{"a leaf's signature changed": w.with(t, damaged(good[0]), good[1]),
		"an intermediate's signature changed": w.with(t, good[0], damaged(good[1]))}
	for name, spki := range tpmlab.StrangeSPKIs() {
		for _, expired := range []bool{false, true} {
			leaf := w.newLeaf("CA 1")
			leaf.Algorithm = []byte(tpmlab.SHA1RSA)
			if expired {
				leaf.To = leaf.From
				name += ", expired"
			}
			certificates := [][]byte{leaf.Sign(t, w.stranger)}
			for n := 1; n < der.MaxCertificates; n++ {
				issuer := fmt.Sprint("CA ", n+1)
				if n == der.MaxCertificates-1 {
					issuer = "root 9"
				}
				ca := w.ca(fmt.Sprint("CA ", n), issuer, w.stranger)
				ca.SPKI, ca.Key, ca.Algorithm = spki, nil, []byte(tpmlab.SHA1RSA)
				certificates = append(certificates, ca.Sign(t, w.stranger))
			}
			out["seven CAs, "+name] = w.with(t, certificates...)
		}
	}
	flood := [][]byte{good[0]}
	deep := [][]byte{good[0]}
	for n := 1; n < der.MaxCertificates; n++ {
		ca := w.ca("lower", "root 9", w.lower)
		ca.Serial = int64(n)
		flood = append(flood, ca.Sign(t, w.lower))
	}
	for n := 1; n < 5; n++ {
		issuer, subject := fmt.Sprint("deep ", n), fmt.Sprint("deep ", n-1)
		if n == 1 {
			subject = "lower"
		}
		if n == 5-1 {
			issuer = "root 9"
		}
		deep = append(deep, w.ca(subject, issuer, w.lower).Sign(t, w.lower))
	}
	out["one name seven times"] = w.with(t, flood...)
	out["a deep chain of P-521 that no root signed"] = w.with(t, deep...)
	large := *w.request
	large.Spec.Request = append(bytes.Clone(large.Spec.Request), bytes.Repeat([]byte("-----BEGIN X-----\n"), (1<<20-len(large.Spec.Request))/18)...)
	out["1 MiB of PEM"] = &large
	return out
}

func damaged(der []byte) []byte {
	der = bytes.Clone(der)
	der[len(der)-1] ^= 1
	return der
}

// A good request of the benchmark passes, each other is refused, and their cost in signatures and
// in all work is bounded. The times are BenchmarkWork's.
func TestWorkOfRequests(t *testing.T) {
	for _, road := range []attest.Road{attest.RoadAK, attest.RoadEK} {
		for _, answer := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/answer %t", road, answer), func(t *testing.T) {
				w := newWorkBench(t, road, answer, elliptic.P521())
				limit, good, encryptions := 10, 3, 0
				if answer {
					limit, good = 12, 4
				} else if road == attest.RoadEK {
					encryptions = 1
				}
				request, work := w.with(t, w.good(t)...), 0
				for time, want := range []int{good, good - 2, good - 1} { // the second time both certificates are remembered
					if time == 2 {
						w.kind.ForgetSignatures(false)
					}
					cost := w.kind.costOf(func() {
						testkit.NoError(t, w.verify(request))
					})
					if [2]int(cost[:2]) != [2]int{want, encryptions} {
						t.Errorf("a good request: %d signatures and encryptions, want %d and %d", cost, want, encryptions)
					}
					work = max(work, cost[2])
				}
				w.kind.ForgetSignatures(true)
				cost := w.kind.costOf(func() {
					if err := w.verify(w.longest(t)); err != nil {
						t.Error(err)
					}
				})
				if want := good - 3 + 5 + 1; cost[0] != want {
					t.Errorf("the longest chain: %d signatures, want %d", cost[0], want)
				}
				for name, request := range w.attacks(t) {
					w.kind.ForgetSignatures(true)
					var err error
					cost := w.kind.costOf(func() { err = w.verify(request) })
					if err == nil || csr.Decide(err).Verdict == csr.VerdictRetry {
						t.Errorf("%s: %v", name, err)
					}
					if cost[0] > limit || cost[0] > good || cost[1] != 0 {
						t.Errorf("%s: %d signatures and encryptions, a good one has %d", name, cost, good)
					}
					if cost[2] > 2*work {
						t.Errorf("%s: work of %d, a good one costs %d", name, cost[2], work)
					}
				}
			})
		}
	}
}

// longest is the longest chain that is accepted, of the costliest keys.
func (w *workBench) longest(t testing.TB) *csr.Request {
	leaf := w.newLeaf("long 1")
	leaf.Algorithm = []byte(tpmlab.ECDSASHA256)
	chain := [][]byte{leaf.Sign(t, w.lower)}
	for n := 1; n < 5-1; n++ {
		chain = append(chain, w.ca(fmt.Sprint("long ", n), fmt.Sprint("long ", n+1), w.lower).Sign(t, w.lower))
	}
	return w.with(t, append(chain, w.ca(fmt.Sprint("long ", 5-1), "root 9", w.lower).Sign(t, w.roots[9].Key))...)
}

// BenchmarkWork gives, by turns, the time of the costliest requests as a multiple of a good one
// (x-good) whose chain is a leaf, an intermediate and a root with the costliest keys, and the
// signatures and work that are counted for both. The verifier knows no intermediate. All but the
// one with the longest chain are refused.
func BenchmarkWork(b *testing.B) {
	for _, road := range []attest.Road{attest.RoadAK, attest.RoadEK} {
		for _, answer := range []bool{false, true} {
			b.Run(fmt.Sprintf("%s/answer=%t", road, answer), func(b *testing.B) {
				w := newWorkBench(b, road, answer, elliptic.P521())
				good, requests := w.with(b, w.good(b)...), w.attacks(b)
				requests["accepted, with the longest chain"] = w.longest(b)
				report := func(b *testing.B, r *csr.Request, suffix string) {
					w.kind.ForgetSignatures(true)
					cost := w.kind.costOf(func() { _ = w.verify(r) })
					b.ReportMetric(float64(cost[0]), "signatures"+suffix)
					b.ReportMetric(float64(cost[2]), "work"+suffix)
				}
				for _, name := range slices.Sorted(maps.Keys(requests)) {
					b.Run(name, func(b *testing.B) {
						tpmlab.ByTurns(b, func() { w.kind.ForgetSignatures(true) }, []string{"x-good"},
							func() { _ = w.verify(requests[name]) }, func() { _ = w.verify(good) })
						report(b, requests[name], "")
						report(b, good, "-good")
					})
				}
			})
		}
	}
}
