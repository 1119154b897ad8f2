package nitro

import (
	"bytes"
	"crypto/x509"
	"slices"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/cloud/internal/kindtest"
	"github.com/nodeattest/nodeattest/cloud/internal/vectors"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/refusal"
)

// environment is what all vectors have in common: with these roots and at this time a
// document is verified, and then its nonce, user data and PCRs are looked at.
type environment struct {
	Time  time.Time      `json:"time"`
	Roots [][]byte       `json:"roots"`
	PCRs  map[int][]byte `json:"pcrs"`
}

// claimAttacks are good documents of another purpose, or of another machine's boot.
func claimAttacks() []attack {
	change := func(name string, want refusal.Check, how func(*parts)) attack {
		return attack{name: name, want: want, make: func(_ *bench, p *parts) { how(p) }}
	}
	return []attack{
		change("no-nonce", checkNonce, func(p *parts) { p.drop("nonce") }),
		change("nonce-null", checkNonce, func(p *parts) { p.set("nonce", []byte{0xf6}) }),
		change("nonce-of-31-bytes", checkNonce, func(p *parts) { p.set("nonce", bstr(testNonce[:31])) }),
		change("user-data-null", checkUserData, func(p *parts) { p.set("user_data", []byte{0xf6}) }),
		change("user-data-of-another-purpose", checkUserData, func(p *parts) { p.set("user_data", bstr([]byte("login"))) }),
		change("public-key", checkUserData, func(p *parts) { p.set("public_key", bstr([]byte{4})) }),
		change("pcr-absent", checkPCRs, func(p *parts) { p.set("nitrotpm_pcrs", pcrs(12)) }),
		change("pcr-of-another-image", checkPCRs, func(p *parts) {
			p.set("nitrotpm_pcrs", bytes.Replace(pcrs(24), pcr(4), pcr(5), 1))
		}),
	}
}

// TestVectors replays the vectors that are kept: one for each case here, and no other.
func TestVectors(t *testing.T) {
	b := newBench()
	var cases vectors.Cases
	for name, data := range goodForms(b) {
		cases.Add(vectors.Vector{Name: name, Machine: "aws:aws/us-east-2/" + testInstance, Document: data})
	}
	for _, a := range slices.Concat(attacks(), claimAttacks()) {
		cases.Add(vectors.Vector{Name: a.name, Expect: string(a.want), Document: a.forged(b)})
	}
	var e environment
	list := testkit.Must(cases.Files(testkit.VectorFolder(t, "cloud", "nitro"), environment{testTime, [][]byte{b.root.Raw}, map[int][]byte{4: pcr(4), 12: pcr(12)}}, &e))
	var c VerifierConfig
	for _, der := range e.Roots {
		root := testkit.Must(x509.ParseCertificate(der))
		c.Roots = append(c.Roots, root)
	}
	verifier := testkit.Must(NewVerifier(c))
	p := &platform{verifier, []map[int][]byte{e.PCRs}}
	kindtest.Replay(t, p, e.Time, list)
}
