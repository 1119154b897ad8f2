package attest

import (
	"bytes"

	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/message"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/refusal"
	"github.com/nodeattest/nodeattest/secret"
)

// A fake kind on each road is let in, and asked in the order that the interfaces promise.
func TestFakeJoin(t *testing.T) {
	for _, road := range []Road{RoadAK, RoadEK, RoadDocument} {
		t.Run(road.String(), func(t *testing.T) {
			k, p := &fakeKind{describe: allRoads}, newFakeProver()
			p.road = road
			r := testkit.Must(joinFake(t, newFakeVerifier(t, k), newFakeNode(t, p)))
			if r.Provider != "fake" || r.Road != road || r.Machine != "fake:m1" || r.MachineStanding != Asserted || r.TPMResident || r.NodeName != "node-1" || r.Attested() == nil ||
				r.MachineKey != hashOf([]byte("key of fake:m1")) || !r.IssuedAt.Equal(fakeNow) {
				t.Errorf("%+v", r)
			}
			if want := []string{"Read hello", "Present", "Trust", "Seal", "Read answer", "Present", "Check", "Verify"}; !slices.Equal(k.asked, want) {
				t.Errorf("asked for %q, want %q", k.asked, want)
			}
		})
	}
}

// Whatever method of a kind fails, its error is the verifier's, and no other is called.
func TestFailingKinds(t *testing.T) {
	for _, method := range []string{"Read hello", "Present", "Trust", "Seal", "Read answer", "Check", "Verify"} {
		t.Run(method, func(t *testing.T) {
			k, n := &fakeKind{fails: method}, newFakeNode(t, newFakeProver())
			v := newFakeVerifier(t, k)
			challenge, err := v.Challenge(t.Context(), n.hello(t))
			var r *Result
			if err == nil && !slices.Contains([]string{"Read hello", "Present", "Trust", "Seal"}, method) {
				r, err = v.Verify(t.Context(), n.answer(t, challenge))
			}
			if !errors.Is(err, errFake.Check) || r != nil {
				t.Errorf("got %v, %v", r, err)
			}
			if last := k.asked[len(k.asked)-1]; last != method {
				t.Errorf("then asked for %s", last)
			}
		})
	}
	t.Run("Present of an answer", func(t *testing.T) {
		k, n := &fakeKind{}, newFakeNode(t, newFakeProver())
		v := newFakeVerifier(t, k)
		challenge := testkit.Must(v.Challenge(t.Context(), n.hello(t)))
		k.fails = "Present"
		_, err := v.Verify(t.Context(), n.answer(t, challenge))
		expectRefusal(t, err, errFake.Check)
	})
}

// A kind that contradicts its own description is a fault of the control plane's program: no machine is
// admitted, and none is refused for good.
func TestFaultsOfKinds(t *testing.T) {
	at := func(stage Stage, change func(*Presented)) func(Stage, *Presented) *Presented {
		return func(s Stage, p *Presented) *Presented {
			if s == stage {
				change(p)
			}
			return p
		}
	}
	found := func(stage Stage, f *Findings) func(Stage, *Inquiry, *Findings) *Findings {
		return func(s Stage, _ *Inquiry, good *Findings) *Findings {
			if s == stage {
				return f
			}
			return good
		}
	}
	credential := func([]byte) *Credential { return fakeCredential([]byte{1}) }
	no := func([]byte) *Credential { return nil }
	const none = Road(-1)
	for name, c := range map[string]struct {
		road   Road
		kind   fakeKind
		answer bool // it is the answer that fails
	}{
		"no hello":                    {RoadAK, fakeKind{hello: func(*fakeEvidence) HelloEvidence { return nil }}, false},
		"no answer":                   {RoadAK, fakeKind{answer: func(*fakeEvidence) AnswerEvidence { return nil }}, true},
		"no machine in a hello":       {RoadAK, fakeKind{present: func(Stage, *Presented) *Presented { return nil }}, false},
		"no machine in an answer":     {RoadAK, fakeKind{present: func(s Stage, p *Presented) *Presented { return map[Stage]*Presented{StageHello: p}[s] }}, true},
		"a hello of another road":     {RoadAK, fakeKind{present: at(StageHello, func(p *Presented) { p.Road = RoadDocument })}, false},
		"a hello of no road":          {RoadAK, fakeKind{present: at(StageHello, func(p *Presented) { p.Road = none })}, false},
		"a hello of no key":           {RoadAK, fakeKind{present: at(StageHello, func(p *Presented) { p.MachineKey = nil })}, false},
		"an answer of no key":         {RoadAK, fakeKind{present: at(StageAnswer, func(p *Presented) { p.MachineKey = nil })}, true},
		"an AK name on road AK":       {RoadAK, fakeKind{present: at(StageHello, func(p *Presented) { p.AKName = make([]byte, 34) })}, false},
		"an AK name with a document":  {RoadDocument, fakeKind{present: at(StageAnswer, func(p *Presented) { p.AKName = make([]byte, 34) })}, true},
		"no AK name on road EK":       {RoadEK, fakeKind{present: at(StageHello, func(p *Presented) { p.AKName = nil })}, false},
		"no AK name in its answer":    {RoadEK, fakeKind{present: at(StageAnswer, func(p *Presented) { p.AKName = nil })}, true},
		"a credential on road AK":     {RoadAK, fakeKind{seal: credential}, false},
		"a credential and a document": {RoadDocument, fakeKind{seal: credential}, false},
		"no credential on road EK":    {RoadEK, fakeKind{seal: no}, false},
		"no findings of a hello":      {RoadAK, fakeKind{find: found(StageHello, nil)}, false},
		"no findings of an answer":    {RoadAK, fakeKind{find: found(StageAnswer, nil)}, true},
		"an identity of another road": {RoadEK, fakeKind{find: found(StageHello, &Findings{Machine: "other:m1", MachineStanding: Claimed})}, false},
		"an identity of no road":      {RoadAK, fakeKind{find: found(StageAnswer, &Findings{Machine: "fak:m1", MachineStanding: Asserted})}, true},
	} {
		t.Run(name, func(t *testing.T) {
			p := newFakeProver()
			p.road = c.road
			c.kind.describe = allRoads
			v, n := newFakeVerifier(t, &c.kind), newFakeNode(t, p)
			challenge, err := v.Challenge(t.Context(), n.hello(t))
			if !c.answer {
				expectRefusal(t, err, CheckKind)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			r, err := v.Verify(t.Context(), n.answer(t, challenge))
			expectRefusal(t, err, CheckKind)
			if r != nil || csr.Decide(err).Verdict != csr.VerdictRetry {
				t.Errorf("got %v, %v", r, csr.Decide(err))
			}
		})
	}
}

// The road of an answer must be the challenge's, and open: another one is the requester's fault.
func TestRoadsOfAnswers(t *testing.T) {
	for name, c := range map[string]struct {
		presented Road
		want      Check
	}{
		"the challenge's": {RoadDocument, ""},
		"another":         {RoadAK, CheckBindingRoad},
		"a closed one":    {Road(7), CheckBindingRoad},
	} {
		t.Run(name, func(t *testing.T) {
			k := &fakeKind{describe: allRoads, present: func(s Stage, p *Presented) *Presented {
				if s == StageAnswer {
					p.Road = c.presented
				}
				return p
			}}
			_, err := joinFake(t, newFakeVerifier(t, k), newFakeNode(t, newFakeProver()))
			expectRefusal(t, err, c.want)
		})
	}
	t.Run("a hello on a closed one", func(t *testing.T) {
		p := newFakeProver()
		p.road = RoadAK
		k := &fakeKind{}
		_, err := newFakeVerifier(t, k).Challenge(t.Context(), newFakeNode(t, p).hello(t))
		expectRefusal(t, err, CheckBindingRoad)
		if slices.Contains(k.asked, "Present") {
			t.Error("Present was called")
		}
	})
}

// A refusal of qualifying data does not show the expected value: that would be an answer.
func TestCoversKeepsTheSecret(t *testing.T) {
	q := goodFinding().inquiry
	want := q.challenged.QualifyingData("document")
	err := q.Covers("document", make([]byte, 32))
	if err == nil || strings.Contains(err.Error(), hexOf(want[:8])) {
		t.Errorf("got %v", err)
	}
	if err := q.Covers("document", want); err != nil {
		t.Error(err)
	}
	if err := (&Inquiry{}).Covers("document", nil); !errors.Is(err, CheckKind) || !errors.Is(err, refusal.ErrRetry) {
		t.Errorf("an Inquiry without a challenge: %v", err)
	}
}

// Qualifying data is of one provider and version, one label, one secret and one binding.
func TestQualifyingDataOfOthers(t *testing.T) {
	data := func(format, label string, s, binding []byte) string {
		return string((&Challenged{format: format, secret: secret.New(s), binding: binding}).QualifyingData(label))
	}
	s, binding := bytes.Repeat([]byte{7}, 32), []byte{1, 2}
	seen := map[string]string{}
	for name, v := range map[string]string{
		"as it is":       data("fake/v1", "document", s, binding),
		"of a label":     data("fake/v1", "quote", s, binding),
		"of the secret":  data("fake/v1", "secret", s, binding),
		"of a provider":  data("fake-b/v1", "document", s, binding),
		"of a version":   data("fake/v2", "document", s, binding),
		"version 11":     data("fake/v11", "document", s, binding),
		"of a binding":   data("fake/v1", "document", s, []byte{1, 3}),
		"of a shorter":   data("fake/v1", "document", s, []byte{1}),
		"of a secret":    data("fake/v1", "document", bytes.Repeat([]byte{8}, 32), binding),
		"a label's part": data("fake/v1", "documen", s, append([]byte("t"), binding...)),
		"a provider's":   data("fak/v1", "document", s, binding),
	} {
		t.Run(name, func(t *testing.T) {
			if other, ok := seen[v]; ok || len(v) != message.HashSize {
				t.Errorf("%s: %d bytes, the same as %s", name, len(v), other)
			}
			seen[v] = name
		})
	}
}

// twoKinds are two kinds of one verifier that differ in their name alone, and a node of
// each.
func twoKinds(t *testing.T) (v *Verifier, kinds [2]*fakeKind, nodes [2]*fakeNode) {
	t.Helper()
	for n, name := range []string{"fake", "fake-b"} {
		kinds[n] = &fakeKind{describe: func(d *Description) { d.Provider = name }}
		p := newFakeProver()
		p.provider = name
		nodes[n] = newFakeNode(t, p)
	}
	return newFakeVerifier(t, kinds[0], kinds[1]), kinds, nodes
}

// The signer name selects the kind, and under Kubernetes' own signer the block of the
// provider does.
func TestSelectionAmongKinds(t *testing.T) {
	for n, name := range []string{"fake", "fake-b"} {
		for _, signer := range []string{"", csr.SignerKubeAPIServerClientKubelet} {
			t.Run(name+" under "+signer, func(t *testing.T) {
				v, kinds, nodes := twoKinds(t)
				if signer != "" {
					nodes[n].subject.SignerName = signer
				}
				r := testkit.Must(joinFake(t, v, nodes[n]))
				if r.Provider != name || len(kinds[1-n].asked) != 0 || r.SignerName != nodes[n].subject.SignerName {
					t.Errorf("provider %s under %s, and the other kind was asked for %q", r.Provider, r.SignerName, kinds[1-n].asked)
				}
			})
		}
	}
}

// Evidence of one kind is refused under the signer of another.
func TestOtherKindsEvidence(t *testing.T) {
	v, kinds, nodes := twoKinds(t)
	hello := nodes[0].hello(t)
	challenge := testkit.Must(v.Challenge(t.Context(), hello))
	answer := nodes[0].answer(t, challenge)
	other := testkit.Must(csr.SignerChallenge("fake-b"))
	under := func(r *csr.Request, signer string) *csr.Request {
		again := *r
		again.Spec.SignerName = signer
		return &again
	}
	t.Run("a hello under the other's signer", func(t *testing.T) {
		_, err := v.Challenge(t.Context(), under(hello, other))
		expectRefusal(t, err, csr.CheckAttestationProvider)
	})
	t.Run("a hello under an unknown signer", func(t *testing.T) {
		_, err := v.Challenge(t.Context(), under(hello, "example.com/x"))
		if !errors.Is(err, refusal.Check("provider-unknown")) || !errors.Is(err, csr.ErrOtherSigner) || !errors.Is(err, refusal.ErrRetry) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("a hello under the signer of certificates", func(t *testing.T) {
		_, err := v.Challenge(t.Context(), under(hello, nodes[0].subject.SignerName))
		if !errors.Is(err, refusal.Check("hello-signer")) || !errors.Is(err, csr.ErrOtherSigner) || !errors.Is(err, refusal.ErrRetry) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("an answer under the signer of hellos", func(t *testing.T) {
		own := testkit.Must(csr.SignerChallenge("fake"))
		_, err := v.Verify(t.Context(), under(answer, own))
		expectRefusal(t, err, csr.CheckSignerName)
	})
	t.Run("an answer under the other's signer", func(t *testing.T) {
		_, err := v.Verify(t.Context(), under(answer, nodes[1].subject.SignerName))
		expectRefusal(t, err, csr.CheckAttestationProvider)
	})
	t.Run("an answer under Kubernetes' signer", func(t *testing.T) {
		_, err := v.Verify(t.Context(), under(answer, csr.SignerKubeAPIServerClientKubelet))
		expectRefusal(t, err, CheckBindingSigner)
	})
	for name, block := range map[string]string{"the other": "fake-b/v1", "no kind": "unknown/v1", "no provider": ""} {
		t.Run("an answer that says it is of "+name, func(t *testing.T) {
			r, err := v.Verify(t.Context(), relabelled(t, answer, block))
			expectRefusal(t, err, csr.CheckAttestationProvider)
			if r != nil {
				t.Error("accepted")
			}
			_, err = v.Challenge(t.Context(), relabelled(t, hello, block))
			expectRefusal(t, err, csr.CheckAttestationProvider)
		})
	}
	t.Run("an answer of another version", func(t *testing.T) {
		_, err := v.Verify(t.Context(), relabelled(t, answer, "fake/v2"))
		expectRefusal(t, err, csr.CheckProviderVersion)
	})
	for block, want := range map[string]Check{"unknown/v1": csr.CheckAttestationProvider, "fake/v2": csr.CheckProviderVersion, "": csr.CheckAttestationProvider} {
		t.Run("under Kubernetes' signer, as "+block, func(t *testing.T) {
			_, err := v.Verify(t.Context(), relabelled(t, under(answer, csr.SignerKubeAPIServerClientKubelet), block))
			expectRefusal(t, err, want)
		})
	}
	if len(kinds[1].asked) != 0 {
		t.Errorf("the other kind was asked for %q", kinds[1].asked)
	}
}

// relabelled is the request with another provider in its block; none with "".
func relabelled(t *testing.T, r *csr.Request, block string) *csr.Request {
	t.Helper()
	bundle := testkit.Must(csr.Parse(r.Spec.Request))
	bundle.Provider = block
	if block == "" {
		bundle.Data = nil
	}
	again := *r
	again.Spec.Request = testkit.Must(bundle.Marshal())
	return &again
}

// Under Kubernetes' own signer the same bytes can be filed for either kind: the qualifying
// data of one never covers the other's.
func TestOneKindsValuesForAnother(t *testing.T) {
	v, kinds, nodes := twoKinds(t)
	n := nodes[0]
	n.subject.SignerName = csr.SignerKubeAPIServerClientKubelet
	challenge := testkit.Must(v.Challenge(t.Context(), n.hello(t)))
	answer := n.answer(t, challenge)
	testkit.Must(v.Verify(t.Context(), answer))
	_, err := v.Verify(t.Context(), relabelled(t, answer, "fake-b/v1"))
	expectRefusal(t, err, CheckQualifyingData)
	if want := []string{"Read answer", "Present", "Check"}; !slices.Equal(kinds[1].asked, want) {
		t.Errorf("asked for %q, want %q", kinds[1].asked, want)
	}
	t.Run("nor under the other's derived from its secret", func(t *testing.T) {
		c := testkit.Must(message.ParseChallenge(challenge))
		nodes[1].subject, nodes[1].key = n.subject, n.key
		_, err := v.Verify(t.Context(), nodes[1].answer(t, challenge))
		expectRefusal(t, err, CheckQualifyingData)
		if bytes.Equal(c.Clear, message.QualifyingData(c.Clear, "fake/v1", "document", nil)) {
			t.Error("the secret is its own qualifying data")
		}
	})
}

// The join's own checks of an answer with a kind that checks nothing: they do not rest on
// it.
func TestKindThatChecksNothing(t *testing.T) {
	careless := func(m *fakeEvidence) AnswerEvidence { return carelessAnswer{m} }
	stale := func(p *fakeProver) {
		p.evidence = func(stage Stage, e *Evidence) *Evidence {
			if stage == StageAnswer {
				m := p.message()
				m.Binding, m.Values = p.challenged.Binding(), []fakeValue{{"document", make([]byte, 32)}}
				e, _ = m.evidence()
			}
			return e
		}
	}
	for name, c := range map[string]struct {
		change func(*fakeProver)
		want   Check
	}{
		"good evidence":            {func(*fakeProver) {}, ""},
		"no value":                 {func(p *fakeProver) { p.labels = nil }, CheckKind},
		"one of another label":     {func(p *fakeProver) { p.labels = []string{"quote"} }, CheckKind},
		"one of another challenge": {stale, CheckQualifyingData},
	} {
		t.Run(name, func(t *testing.T) {
			n := newFakeNode(t, newFakeProver())
			c.change(n.prover)
			r, err := joinFake(t, newFakeVerifier(t, &fakeKind{answer: careless}), n)
			expectRefusal(t, err, c.want)
			if c.want != "" && r != nil {
				t.Error("accepted")
			}
		})
	}
}

// carelessAnswer compares no qualifying data itself.
type carelessAnswer struct{ *fakeEvidence }

func (carelessAnswer) Check(*Inquiry) error { return nil }

// An answer that is good for one request, machine and time is good for no other.
func TestAnswersElsewhere(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*csr.Request)
		later  time.Duration
		want   Check
	}{
		"as it is":            {func(*csr.Request) {}, 0, ""},
		"another requester":   {func(r *csr.Request) { r.User.Username = csr.BootstrapUserPrefix + "mallor" }, 0, CheckBindingRequester},
		"another lifetime":    {func(r *csr.Request) { s := int32(7200); r.Spec.ExpirationSeconds = &s }, 0, CheckBindingExpiration},
		"no lifetime":         {func(r *csr.Request) { r.Spec.ExpirationSeconds = nil }, 0, CheckBindingExpiration},
		"filed too late":      {func(r *csr.Request) { r.Metadata.CreationTimestamp = fakeNow.Add(11 * time.Minute) }, time.Hour, CheckAnswerLate},
		"looked at too late":  {func(*csr.Request) {}, 2 * time.Hour, CheckAnswerOld},
		"filed in the future": {func(r *csr.Request) { r.Metadata.CreationTimestamp = fakeNow.Add(time.Second) }, 0, checkFuture},
	} {
		t.Run(name, func(t *testing.T) {
			now := fakeNow
			config := fakeConfig(t, &fakeKind{})
			config.Now = func() time.Time { return now }
			v := testkit.Must(NewVerifier(config))
			n := newFakeNode(t, newFakeProver())
			challenge := testkit.Must(v.Challenge(t.Context(), n.hello(t)))
			answer := n.answer(t, challenge)
			c.change(answer)
			now = now.Add(c.later)
			r, err := v.Verify(t.Context(), answer)
			if (err == nil) != (c.want == "") || c.want != "" && !errors.Is(err, c.want) || (r != nil) != (err == nil) {
				t.Errorf("got %v, %v, want %q", r, err, c.want)
			}
		})
	}
}
