package join_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/x509"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/cryptobyte"
	"golang.org/x/crypto/cryptobyte/asn1"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/join"
	"github.com/nodeattest/nodeattest/attest/membership"
	"github.com/nodeattest/nodeattest/attest/tpm"
	"github.com/nodeattest/nodeattest/attest/tpm/tpmcert"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// element is a DER element: a tree where its content reads as DER elements, a leaf otherwise.
type element struct {
	tag      asn1.Tag
	children []*element
	value    []byte // of a leaf
}

// parseElements returns the elements that in consists of, or false.
func parseElements(in cryptobyte.String) (all []*element, ok bool) {
	for !in.Empty() {
		var content cryptobyte.String
		e := new(element)
		if !in.ReadAnyASN1(&content, &e.tag) {
			return nil, false
		}
		e.value = content
		if e.tag&0x20 != 0 || e.tag == asn1.OCTET_STRING {
			e.children, _ = parseElements(content)
		}
		all = append(all, e)
	}
	return all, true
}

func (e *element) marshal(b *cryptobyte.Builder) {
	b.AddASN1(e.tag, func(b *cryptobyte.Builder) {
		if e.children == nil {
			b.AddBytes(e.value)
		}
		for _, c := range e.children {
			c.marshal(b)
		}
	})
}

// splice returns a with parts of b in the same places.
func splice(r *rand.Rand, a, b *element) *element {
	switch {
	case r.IntN(8) == 0:
		return b
	case a.children == nil || b.children == nil || a.tag != b.tag:
		if r.IntN(4) == 0 {
			return b
		}
		return a
	}
	out := &element{tag: a.tag}
	for n := range max(len(a.children), len(b.children)) {
		switch {
		case n >= len(a.children) && r.IntN(2) == 0:
			out.children = append(out.children, b.children[n])
		case n >= len(b.children) && r.IntN(2) == 0:
			out.children = append(out.children, a.children[n])
		case n < len(a.children) && n < len(b.children):
			out.children = append(out.children, splice(r, a.children[n], b.children[n]))
		}
	}
	return out
}

// splicePlane is the control plane of one cluster, for one road.
type splicePlane struct {
	*join.Plane
	clusterID string
	road      attest.Road
}

// recorded is a message that a machine sent to a plane.
type recorded struct {
	plane   int
	machine string // its node name
	signer  string
	bundle  *csr.Bundle
	answer  bool
	data    *element
}

// spliceWorld has the planes, and all messages of all machines to them.
type spliceWorld struct {
	vendor  *tpmsim.CA
	digests map[string][]string // of each machine's EK and AK
	planes  []splicePlane
	sent    []recorded
}

func (w *spliceWorld) open(machine string) *tpmsim.TPM {
	return must(tpmsim.Open(tpmsim.Options{CA: w.vendor, Seed: []byte("the seed of the TPM of machine " + machine)}))
}

// newSpliceWorld has two machines join three planes twice: two clusters by RoadEK and one by
// RoadAK, all with one key ring.
func newSpliceWorld(t *testing.T) *spliceWorld {
	t.Helper()
	w := &spliceWorld{vendor: must(tpmsim.NewCA(tpmsim.CAOptions{})), digests: map[string][]string{}}
	machines := []string{"node-1", "node-2"}
	members := map[attest.Road][]membership.Member{}
	for _, name := range machines {
		m := w.open(name)
		for road, public := range map[attest.Road]any{attest.RoadEK: m.EKPublic(tpmsim.RSA2048), attest.RoadAK: m.AKPublic(tpmsim.RSA2048)} {
			digest := fmt.Sprintf("%x", sha256.Sum256(must(x509.MarshalPKIXPublicKey(public))))
			w.digests[name] = append(w.digests[name], digest)
			class := map[attest.Road]string{attest.RoadEK: "ek", attest.RoadAK: "ak"}[road]
			members[road] = append(members[road], membership.Member{NodeName: name, Machine: attest.Identity(class + ":sha256:" + digest)})
		}
		_ = m.Close()
	}
	ring := must(attest.NewStaticKeyRing(attest.NewRingKey(time.Now())))
	kind := must(tpm.NewKind(tpm.KindConfig{
		EKs: must(tpmcert.NewEKVerifier(tpmcert.EKVerifierConfig{Issuers: []tpmcert.EKIssuer{
			{Roots: []*x509.Certificate{w.vendor.Root()}, Profile: tpmcert.EKProfileTCG()}}})),
		AKIssuers: []tpmcert.Issuer{{Roots: []*x509.Certificate{w.vendor.Root()}, Profile: tpmcert.ProfileTCG()}},
	}))
	for _, road := range []attest.Road{attest.RoadEK, attest.RoadEK, attest.RoadAK} {
		caCert, caKey := clusterCA()
		plane := must(join.NewPlane(join.Config{Chain: []*x509.Certificate{caCert}, Key: caKey,
			Kinds: []attest.Kind{kind}, Members: must(membership.NewStaticList(members[road])), KeyRing: ring}))
		w.planes = append(w.planes, splicePlane{plane, must(attest.ClusterID(caCert)), road})
	}
	for _, name := range machines {
		m := w.open(name)
		for p := range w.planes {
			w.join(t, m, name, p)
			w.join(t, m, name, p)
		}
		_ = m.Close()
	}
	return w
}

// join has a machine join a plane, and records its messages.
func (w *spliceWorld) join(t *testing.T, m *tpmsim.TPM, machine string, p int) {
	t.Helper()
	plane := w.planes[p]
	origin := tpm.EKRSA2048()
	source, options := tpm.AKSource{Template: tpm.AKTemplateECDSAP256()}, tpm.ProverOptions{EK: &origin, Intermediates: [][]byte{w.vendor.EKIntermediate().Raw}}
	if plane.road == attest.RoadAK {
		source, options = tpm.GCERSA(), tpm.ProverOptions{Intermediates: [][]byte{w.vendor.AKIntermediate().Raw}}
	}
	node := join.Node{Name: machine, ClusterID: plane.clusterID, Key: newKey(), Prover: must(tpm.NewProver(m, source, options))}
	answer := false
	_, err := node.Join(t.Context(), func(ctx context.Context, spec *csr.Spec) (*csr.Request, error) {
		bundle := must(csr.Parse(spec.Request))
		data, ok := parseElements(bundle.Data)
		if !ok || len(data) != 1 {
			t.Fatalf("evidence is no DER element: %x", bundle.Data)
		}
		w.sent = append(w.sent, recorded{p, machine, spec.SignerName, bundle, answer, data[0]})
		answer = true
		return join.InMemory(plane.Plane, bootstrapper)(ctx, spec)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestSplices splices all messages of two machines, on both roads and to two clusters, with each
// other and with requests for an attacker's key. A plane approves nothing but an answer that was
// sent to it, whole. A denial is printable, and names no key of a machine that is in neither
// message. 170,000 tries with NODEATTEST_LONG=1, a tenth otherwise.
func TestSplices(t *testing.T) {
	w := newSpliceWorld(t)
	var requests [][]byte
	for _, s := range w.sent {
		requests = append(requests, s.bundle.Request)
	}
	honest, attacker := len(requests), newKey()
	for _, name := range []string{"node-1", "node-2"} {
		requests = append(requests, must(csr.Create(csr.PurposeClient, attacker, name, csr.CreateOptions{})))
	}
	tries := 17_000
	if os.Getenv("NODEATTEST_LONG") == "1" {
		tries = 170_000
	}
	r := rand.New(rand.NewPCG(1, 2))
	replays, challenges := 0, 0
	for range tries {
		a, b := w.sent[r.IntN(len(w.sent))], w.sent[r.IntN(len(w.sent))]
		p, request := a.plane, requests[r.IntN(len(requests))]
		if r.IntN(3) == 0 {
			request = requests[honest+r.IntN(2)]
		}
		if r.IntN(3) == 0 {
			p = r.IntN(len(w.planes))
		}
		data := a.bundle.Data
		if r.IntN(8) > 0 {
			var out cryptobyte.Builder
			splice(r, a.data, b.data).marshal(&out)
			data = out.BytesOrPanic()
		}
		text := must((&csr.Bundle{Request: request, Provider: a.bundle.Provider, Data: data}).Marshal())
		reply := w.planes[p].Handle(t.Context(), csr.Filed(&csr.Spec{Request: text, SignerName: a.signer, Usages: csr.PurposeClient.Usages(false)}, bootstrapper, time.Now()))
		w.checkMessage(t, reply, a, b)
		switch whole := slices.ContainsFunc(w.sent, func(s recorded) bool {
			return s.plane == p && s.answer && bytes.Equal(s.bundle.Data, data) && bytes.Equal(s.bundle.Request, request)
		}); {
		case reply.Decision.Verdict == csr.VerdictApprove || reply.Issued != nil:
			replays++
			if !whole {
				t.Errorf("plane %d approves a splice of messages of %s to plane %d and of %s to plane %d", p, a.machine, a.plane, b.machine, b.plane)
			}
		case whole && a.signer == csr.SignerClientTPM:
			t.Errorf("an answer that is filed again is refused: %v", reply.Err)
		case reply.Err == nil:
			challenges++
		}
	}
	if replays == 0 || challenges == 0 {
		t.Error("no message was accepted: the test proves nothing")
	}
	t.Logf("%d tries, %d whole answers, %d challenges", tries, replays, challenges)
}

// checkMessage checks the text of a denial.
func (w *spliceWorld) checkMessage(t *testing.T, reply *join.Reply, a, b recorded) {
	t.Helper()
	message := reply.Decision.Reason + reply.Decision.Message
	if i := strings.IndexFunc(message, func(c rune) bool { return (c < ' ' && c != '\n') || c > '~' }); i >= 0 {
		t.Errorf("a denial that cannot be printed: %q", message)
	}
	for machine, digests := range w.digests {
		for _, digest := range digests {
			if a.machine != machine && b.machine != machine && strings.Contains(message, digest) {
				t.Errorf("a denial names a key of %s: %s", machine, message)
			}
		}
	}
}
