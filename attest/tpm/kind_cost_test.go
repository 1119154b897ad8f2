package tpm_test

import (
	"bytes"
	"cmp"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509/pkix"
	"encoding/asn1"
	"fmt"
	"math"
	mathrand "math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strconv"
	"testing"
	"time"

	cbasn1 "golang.org/x/crypto/cryptobyte/asn1"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/der"
	"github.com/nodeattest/nodeattest/internal/message"
	"github.com/nodeattest/nodeattest/internal/tpmlab"
)

// What a request costs: bytes of memory, the work that is counted, and nanoseconds.
const (
	memory = iota
	counted
	duration
	goals
)

var goalNames = [goals]string{"memory", "counted work", "time"}

// costly is a request that a search has made: its statements, the signed part of its PKCS#10
// request and those of its certificates, with what is changed when they are put together.
type costly struct {
	statements, request *tpmlab.Tree
	certificates        []*tpmlab.Tree
	rooted, signed      bool // the last certificate names a root; the signatures verify

	filed *csr.Request
	cost  [goals]float64
}

func (c *costly) clone() *costly {
	d := &costly{statements: c.statements.Clone(), request: c.request.Clone(), rooted: c.rooted, signed: c.signed}
	for _, e := range c.certificates {
		d.certificates = append(d.certificates, e.Clone())
	}
	return d
}

// costSearch looks for the request that costs most beside a good one of its size. Everything in
// it that can repeat is found in its DER: no list of attacks says what to repeat.
type costSearch struct {
	*workBench
	t   testing.TB
	r   *mathrand.Rand
	key *ecdsa.PrivateKey // of the PKCS#10 requests in hellos, which anyone can sign; nil for answers

	timed bool                               // time is a goal
	good  [message.MaxChainLinks][goals]line // what good requests cost, by the number of certificates
}

// line is what good requests of one length of chain cost, by their size.
type line struct{ at, value, slope float64 }

func newCostSearch(t testing.TB, road attest.Road, answer bool, seed uint64, timed bool) *costSearch {
	s := &costSearch{workBench: newWorkBench(t, road, answer, elliptic.P256()), t: t, timed: timed, r: mathrand.New(mathrand.NewPCG(seed, 0))}
	if !answer {
		s.key = tpmlab.NewECDSA(t, elliptic.P256())
	}
	for n := range s.good {
		small, large := s.goodOf(n+1, 0), s.goodOf(n+1, der.MaxEvidenceSize)
		first, last := len(small.filed.Spec.Request), len(large.filed.Spec.Request)
		for goal := range goals {
			s.good[n][goal] = line{float64(first), small.cost[goal], (large.cost[goal] - small.cost[goal]) / float64(last-first)}
		}
	}
	return s
}

// excess is what a request costs as a multiple of a good one of its size, and of as many
// certificates as a chain can have.
func (s *costSearch) excess(c *costly, goal int) float64 {
	good := s.good[min(len(c.certificates), len(s.good))-1][goal]
	return c.cost[goal] / (good.value + good.slope*max(0, float64(len(c.filed.Spec.Request))-good.at))
}

// lists are extensions with a list of each sort that crypto/x509 or package tpmcert reads; a
// subjectAltName and the constraints of a CA come first.
func lists() []pkix.Extension {
	seq, element := tpmlab.Seq, tpmlab.Element
	object := []byte{6, 3, 0x2a, 3, 4}
	names := seq(element(0x82, []byte("a.b")), element(0x81, []byte("a@b.c")), element(0x86, []byte("http://a/b")), element(0x87, []byte{1, 2, 3, 4}),
		element(0xa0, slices.Concat(object, element(0xa0, []byte{5, 0}))), element(0xa4, tpmlab.NameOf("a")))
	trees := bytes.Join([][]byte{seq(element(0x82, []byte("c.d"))), seq(element(0x81, []byte("c.d"))), seq(element(0x86, []byte(".c.d"))),
		seq(element(0x87, []byte{5, 2, 3, 0, 255, 255, 255, 0}))}, nil)
	id := func(arc ...int) asn1.ObjectIdentifier { return arc }
	return []pkix.Extension{
		{Id: id(2, 5, 29, 17), Value: names},
		{Id: id(2, 5, 29, 30), Critical: true, Value: seq(element(0xa1, trees))},
		{Id: id(2, 5, 29, 31), Value: seq(seq(element(0xa0, element(0xa0, element(0x86, []byte("http://a/b"))))))},
		{Id: id(2, 5, 29, 32), Value: seq(seq(object), seq([]byte{6, 3, 0x2a, 3, 5}))},
		{Id: id(2, 5, 29, 33), Value: seq(seq(object, object))},
		{Id: id(2, 5, 29, 9), Value: seq(seq(object, element(0x31, seq(object))))},
		{Id: id(1, 3, 6, 1, 5, 5, 7, 1, 1), Value: seq(seq([]byte("\x06\x08\x2b\x06\x01\x05\x05\x07\x30\x02"), element(0x86, []byte("http://a/b"))))},
		{Id: id(2, 999, 1), Value: seq(object)},
	}
}

// start is a good request with a chain of so many certificates, with lists in them or without.
func (s *costSearch) start(certificates int, rich bool) *costly {
	bundle, evidence := s.open(s.t)
	c := &costly{statements: &tpmlab.Tree{Tag: cbasn1.SEQUENCE}, rooted: true, signed: true}
	for _, one := range evidence.Statements {
		c.statements.Members = append(c.statements.Members, tpmlab.Trees(one.Stmt)...)
	}
	if s.key != nil {
		parsed, err := s.request.Parsed().PKCS10()
		if err != nil {
			s.t.Fatal(err)
		}
		if bundle.Request, err = csr.Create(csr.PurposeClient, s.key, parsed.CSR.Subject.CommonName[len("system:node:"):], csr.CreateOptions{}); err != nil {
			s.t.Fatal(err)
		}
	}
	c.request = tpmlab.Trees(bundle.Request)[0].Members[0]
	for n := range certificates {
		cert, extra := s.newLeaf("CA 1"), lists()
		cert.Algorithm = []byte(tpmlab.ECDSASHA256)
		if n > 0 {
			cert = s.ca(fmt.Sprint("CA ", n), fmt.Sprint("CA ", n+1), s.lower)
			extra = append(extra, tpmlab.Usages("\x2a\x03\x04", "\x67\x81\x05\x08\x03", "\x67\x81\x05\x08\x01"))
		} else {
			names := slices.Concat(tpmlab.Trees(cert.Extensions[3].Value)[0].Members, tpmlab.Trees(extra[0].Value)[0].Members)
			if extra = extra[2:]; rich {
				cert.Extensions[3].Value = (&tpmlab.Tree{Tag: cbasn1.SEQUENCE, Members: names}).Marshal()
			}
		}
		if rich {
			cert.Extensions = append(cert.Extensions, extra...)
		}
		c.certificates = append(c.certificates, tpmlab.Trees(cert.Sign(s.t, s.lower))[0].Members[0])
	}
	return c
}

// largest is the largest signed part that certificate n can have.
func (s *costSearch) largest(n int) int {
	if n == 0 && s.road == attest.RoadEK {
		return 8<<10 - 512
	}
	return der.MaxCertificateSize - 512
}

// change makes another request of this one.
func (s *costSearch) change(c *costly) *costly {
	c = c.clone()
	for range 1 + s.r.IntN(4) {
		n := s.r.IntN(len(c.certificates))
		switch op := s.r.IntN(20); {
		case op == 0:
			c.rooted = !c.rooted
		case op == 1:
			c.signed = !c.signed
		case op < 5 && s.key != nil:
			c.request.Mutate(s.r, 64<<10)
		case op == 5:
			c.statements.Mutate(s.r, 128<<10)
		case op == 6 && n > 0:
			c.certificates = slices.Delete(c.certificates, n, n+1)
		case op == 7 && n > 0 && len(c.certificates) < der.MaxCertificates:
			again := c.certificates[n].Clone()
			if name := again.Members[5].Last(); len(name.Content) > 0 {
				name.Content = bytes.Clone(name.Content)
				name.Content[s.r.IntN(len(name.Content))] = byte('a' + s.r.IntN(26))
			}
			c.certificates = slices.Insert(c.certificates, n, again)
		default:
			before := c.certificates[n].Clone()
			if c.certificates[n].Mutate(s.r, s.largest(n)); len(c.certificates[n].Members) < 8 {
				c.certificates[n] = before // issuer and subject are found by their place
			}
			for m := 1; op > 15 && n > 0 && m < len(c.certificates); m++ { // what one CA gains all gain
				subject := c.certificates[m].Members[5]
				c.certificates[m] = c.certificates[n].Clone()
				c.certificates[m].Members[5] = subject
			}
		}
	}
	return c
}

// file puts the request together: each certificate names the next as its issuer. It reports
// whether the result can be written.
func (s *costSearch) file(c *costly) bool {
	bundle, evidence := s.open(s.t)
	evidence.Certificates = nil
	for n, tbs := range c.certificates {
		issuer, signer := tpmlab.Trees(tpmlab.NameOf("nobody"))[0], s.lower
		switch {
		case n < len(c.certificates)-1:
			issuer = c.certificates[n+1].Members[5]
		case c.rooted:
			issuer, signer = tpmlab.Trees(tpmlab.NameOf("root 9"))[0], s.roots[9].Key.(*ecdsa.PrivateKey)
		}
		tbs.Members[3] = issuer
		evidence.Certificates = append(evidence.Certificates, signedBy(tbs.Marshal(), signer, c.signed))
	}
	for n := range min(len(evidence.Statements), len(c.statements.Members)) {
		evidence.Statements[n].Stmt = c.statements.Members[n].Marshal()
	}
	if s.key != nil {
		bundle.Request = signedBy(c.request.Marshal(), s.key, true)
	}
	var err error
	if bundle.Data, err = evidence.Marshal(); err != nil {
		return false
	}
	filed := *s.request
	filed.Spec.Request, err = bundle.Marshal()
	c.filed = &filed
	return err == nil
}

func signedBy(signed []byte, key *ecdsa.PrivateKey, right bool) []byte {
	digest := sha256.Sum256(signed)
	if !right {
		digest[0] ^= 1
	}
	signature, err := ecdsa.SignASN1(rand.Reader, key, digest[:])
	if err != nil {
		panic(err)
	}
	return tpmlab.Seq(signed, []byte(tpmlab.ECDSASHA256), tpmlab.Element(cbasn1.BIT_STRING, append([]byte{0}, signature...)))
}

// measure runs a request, which the verifier sees for the first time, and notes what it costs.
func (s *costSearch) measure(c *costly) (err error) {
	var before, after runtime.MemStats
	s.kind.ForgetSignatures(true)
	runtime.ReadMemStats(&before)
	cost := s.kind.costOf(func() { err = s.verify(c.filed) })
	runtime.ReadMemStats(&after)
	c.cost[memory], c.cost[counted] = float64(after.TotalAlloc-before.TotalAlloc), float64(max(cost[2], len(c.filed.Spec.Request)))
	c.cost[duration] = math.Inf(1)
	for n := 0; s.timed && n < 3; n++ {
		c.cost[duration] = min(c.cost[duration], s.took(c))
	}
	return err
}

// took is how long a request takes, in nanoseconds.
func (s *costSearch) took(c *costly) float64 {
	s.kind.ForgetSignatures(true)
	start := time.Now()
	_ = s.verify(c.filed)
	return float64(time.Since(start))
}

// goodOf is a good request with so many certificates, of about so many bytes of DER as far as
// there is room for them, in which nothing repeats.
func (s *costSearch) goodOf(certificates, size int) *costly {
	c := s.start(certificates, false)
	for n, tbs := range c.certificates {
		if fill := min(size/certificates, s.largest(n)) - len(tbs.Marshal()) - 64; fill > 0 {
			extensions := tbs.Members[len(tbs.Members)-1].Members[0]
			extensions.Members = append(extensions.Members, tpmlab.Trees(tpmlab.Seq([]byte{6, 3, 0x88, 0x37, 2}, tpmlab.Octets(bytes.Repeat([]byte{0xff}, fill))))...)
		}
	}
	if !s.file(c) {
		s.t.Fatal("a good request that cannot be written")
	}
	for fastest := math.Inf(1); ; {
		if err := s.measure(c); err != nil {
			s.t.Fatalf("a good request of %d bytes: %v", len(c.filed.Spec.Request), err)
		}
		if c.cost[duration] >= fastest {
			return c
		}
		fastest = c.cost[duration]
	}
}

// run tries so many requests: of all, the few that cost most by each goal are changed again.
func (s *costSearch) run(turns int) (best [goals]*costly) {
	var kept [goals][]*costly
	keep := func(c *costly) {
		if s.file(c) {
			_ = s.measure(c)
			for goal := range kept {
				all := append(kept[goal], c)
				slices.SortStableFunc(all, func(a, b *costly) int { return cmp.Compare(s.excess(b, goal), s.excess(a, goal)) })
				kept[goal] = all[:min(len(all), 6)]
			}
		}
	}
	for _, certificates := range []int{1, 2, message.MaxChainLinks, der.MaxCertificates} {
		keep(s.start(certificates, true))
	}
	for range turns {
		goal := s.r.IntN(goals)
		if goal == duration && !s.timed {
			goal = counted
		}
		from := kept[goal]
		keep(s.change(from[s.r.IntN(len(from))]))
	}
	for goal := range best {
		best[goal] = kept[goal][0]
	}
	return best
}

// most is how often the memory and the counted work of a good request a request may take. Parsing
// makes the more memory of a certificate, the more elements it has, and each issuer that refuses a
// cheap request names the certificate.
var most = [...]float64{memory: 6, counted: 3}

// Of the requests that a search tries, none takes much more memory or counted work than a good one of its
// size that is seen for the first time. SEARCH sets how many are tried, and SEED where the search
// begins; then time is looked for, too.
func TestCostliestRequests(t *testing.T) {
	turns, seed := 150, uint64(1)
	long, err := strconv.Atoi(os.Getenv("SEARCH"))
	if err == nil {
		turns = long
	}
	if n, err := strconv.ParseUint(os.Getenv("SEED"), 10, 64); err == nil {
		seed = n
	}
	for _, road := range []attest.Road{attest.RoadAK, attest.RoadEK} {
		for _, answer := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/answer %t", road, answer), func(t *testing.T) {
				s := newCostSearch(t, road, answer, seed, long > 0)
				for goal, c := range s.run(turns) {
					err := s.measure(c)
					for one := range duration {
						if x := s.excess(c, one); x > most[one] {
							t.Errorf("%.1f times the %s of a good one: %d bytes, %d certificates, %v", x, goalNames[one], len(c.filed.Spec.Request), len(c.certificates), err)
						}
					}
					if s.timed {
						good := s.goodOf(min(len(c.certificates), len(s.good)), len(c.filed.Spec.Request)*3/4)
						var times, ratios []float64
						for range 101 { // by turns, on a machine that others use, too
							times = append(times, s.took(c))
							ratios = append(ratios, times[len(times)-1]/s.took(good))
						}
						slices.Sort(times)
						slices.Sort(ratios)
						t.Logf("most %s: %.1f x memory, %.1f x counted work, %.1f x time (%.0f µs) of a good one: %d bytes, %d certificates, %.200v", goalNames[goal],
							s.excess(c, memory), s.excess(c, counted), ratios[50], times[50]/1000, len(c.filed.Spec.Request), len(c.certificates), err)
					}
				}
			})
		}
	}
}
