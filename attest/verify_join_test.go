package attest

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/der"
	"github.com/nodeattest/nodeattest/internal/message"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/oid"
	"github.com/nodeattest/nodeattest/refusal"
	"github.com/nodeattest/nodeattest/secret"
)

// The node finds its challenge in the status of its hello, or gets the decision as an error.
func TestChallengeOf(t *testing.T) {
	good := csr.Condition{Type: csr.ConditionDenied, Reason: message.ReasonChallenge, Message: challengeMessage([]byte{1, 2, 3})}
	with := func(conditions ...csr.Condition) *csr.Request {
		return &csr.Request{Status: csr.Status{Conditions: conditions}}
	}
	under := func(kind, reason string) csr.Condition {
		c := good
		c.Type, c.Reason = kind, reason
		return c
	}
	for name, c := range map[string]struct {
		hello *csr.Request
		want  error // nil for a challenge
		retry bool
	}{
		"a challenge":               {with(good), nil, false},
		"after something else":      {with(under("Seen", "x"), good), nil, false},
		"after another denial":      {with(under(csr.ConditionDenied, "x"), good), nil, false},
		"no request":                {nil, errNotMade, false},
		"no condition":              {with(), checkNoChallenge, true},
		"a condition of no meaning": {with(under("Seen", message.ReasonChallenge)), checkNoChallenge, true},
		"denied":                    {with(under(csr.ConditionDenied, "x")), checkNoChallenge, false},
		"approved":                  {with(under(csr.ConditionApproved, message.ReasonChallenge)), checkNoChallenge, false},
		"failed":                    {with(under(csr.ConditionFailed, message.ReasonChallenge)), checkNoChallenge, false},
		"not a challenge":           {with(csr.Condition{Type: csr.ConditionDenied, Reason: message.ReasonChallenge, Message: "%"}), der.CheckEncoding, false},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := ChallengeOf(c.hello)
			if c.want == nil && (err != nil || string(got) != "\x01\x02\x03") || c.want != nil && (!errors.Is(err, c.want) || got != nil) {
				t.Errorf("got %x, %v, want %v", got, err, c.want)
			}
			if errors.Is(err, refusal.ErrRetry) != c.retry {
				t.Errorf("%v: to be tried again: %t", err, !c.retry)
			}
		})
	}
}

// A hello has an age, a cluster, a signature and a bundle, and the verifier a ring.
func TestHellos(t *testing.T) {
	at := func(age time.Duration) func(*csr.Request) {
		return func(r *csr.Request) { r.Metadata.CreationTimestamp = fakeNow.Add(-age) }
	}
	for name, c := range map[string]struct {
		change func(*csr.Request)
		node   func(*fakeNode)
		plane  func(*VerifierConfig)
		want   Check
		retry  bool
	}{
		"as it is":             {},
		"as old as may be":     {change: at(message.MaxHelloAge)},
		"older":                {change: at(message.MaxHelloAge + 1), want: CheckHelloExpired},
		"of the future":        {change: at(-1), want: checkFuture, retry: true},
		"without a time":       {change: func(r *csr.Request) { r.Metadata.CreationTimestamp = time.Time{} }},
		"no PEM":               {change: func(r *csr.Request) { r.Spec.Request = nil }, want: refusal.Check("bundle-size")},
		"of another cluster":   {node: func(n *fakeNode) { n.subject.ClusterID = "cluster-2" }, want: CheckBindingCluster},
		"with a bad signature": {node: badSignature, want: csr.CheckSignature},
		"a signer that the policy does not have": {plane: func(c *VerifierConfig) {
			c.Policy.SignerNames = []string{csr.SignerKubeAPIServerClientKubelet}
		}, want: csr.CheckSignerName},
		"a ring not read": {plane: func(c *VerifierConfig) { c.KeyRing = new(KeyRing) }, want: checkRingStale, retry: true},
		"malformed evidence": {change: func(r *csr.Request) {
			b, _ := csr.Parse(r.Spec.Request)
			b.Data = []byte{1}
			r.Spec.Request, _ = b.Marshal()
		}, want: der.CheckEncoding},
	} {
		t.Run(name, func(t *testing.T) {
			config := fakeConfig(t, &fakeKind{})
			if c.plane != nil {
				c.plane(&config)
			}
			v := testkit.Must(NewVerifier(config))
			n := newFakeNode(t, newFakeProver())
			if c.node != nil {
				c.node(n)
			}
			hello := n.hello(t)
			if c.change != nil {
				c.change(hello)
			}
			challenge, err := v.Challenge(t.Context(), hello)
			if (err == nil) != (c.want == "") || (challenge != nil) != (err == nil) || c.want != "" && !errors.Is(err, c.want) || errors.Is(err, refusal.ErrRetry) != c.retry {
				t.Errorf("got %v, want %q, to be tried again: %t", err, c.want, c.retry)
			}
		})
	}
}

// badSignature changes the request's own signature, which the binding does not cover.
func badSignature(n *fakeNode) {
	n.subject.Request = slices.Clone(n.subject.Request)
	n.subject.Request[len(n.subject.Request)-1] ^= 1
}

// Faults that the Binding does not show are found by later checks.
func TestAnswersBesideTheBinding(t *testing.T) {
	echo := func(binding []byte) func(*fakeNode) {
		return func(n *fakeNode) {
			n.prover.evidence = func(stage Stage, e *Evidence) *Evidence {
				if stage == StageAnswer {
					m := n.prover.message()
					m.Binding = binding
					e, _ = m.evidence()
				}
				return e
			}
		}
	}
	for name, c := range map[string]struct {
		node  func(*fakeNode)
		plane func(*VerifierConfig) // of the verifier that is asked about the answer
		want  Check
	}{
		"as it is":         {},
		"another cluster":  {plane: func(c *VerifierConfig) { c.Policy.ClusterIDs = []string{"cluster-2"} }, want: CheckBindingCluster},
		"one more cluster": {plane: func(c *VerifierConfig) { c.Policy.ClusterIDs = []string{"cluster-2", "cluster-1"} }},
		"another ring":     {plane: func(c *VerifierConfig) { c.KeyRing, _ = NewStaticKeyRing(NewRingKey(fakeNow)) }, want: checkRingKey},
		"no member": {plane: func(c *VerifierConfig) {
			c.Authorizer = AuthorizerFunc(func(context.Context, *Result) (*Authorization, error) { return nil, nil })
		}, want: CheckMembership},
		"a bad signature":      {node: badSignature, want: csr.CheckSignature},
		"a binding of nothing": {node: echo(nil), want: der.CheckEncoding},
	} {
		t.Run(name, func(t *testing.T) {
			config := fakeConfig(t, &fakeKind{})
			v := testkit.Must(NewVerifier(config))
			n := newFakeNode(t, newFakeProver())
			challenge := testkit.Must(v.Challenge(t.Context(), n.hello(t)))
			if c.node != nil {
				c.node(n)
			}
			answer := n.answer(t, challenge)
			if c.plane != nil {
				c.plane(&config)
			}
			v = testkit.Must(NewVerifier(config))
			r, err := v.Verify(t.Context(), answer)
			expectRefusal(t, err, c.want)
			if (r != nil) != (err == nil) {
				t.Errorf("got %v", r)
			}
		})
	}
}

// A request has a budget, of signatures and in time, whatever the kind does.
func TestBudgetsOfRequests(t *testing.T) {
	spend := func(more int) func(Stage, *Inquiry, *Findings) *Findings {
		return func(s Stage, q *Inquiry, f *Findings) *Findings {
			n := map[Stage]int{StageHello: helloSignatures - 1, StageAnswer: answerSignatures - 1}[s]
			for range n {
				if err := q.Budget.Signature(context.Background()); err != nil {
					f.Machine = ""
				}
			}
			if more == 0 && q.Budget.Signature(context.Background()) == nil {
				f.Machine = ""
			}
			return f
		}
	}
	if _, err := joinFake(t, newFakeVerifier(t, &fakeKind{find: spend(0)}), newFakeNode(t, newFakeProver())); err != nil {
		t.Errorf("exactly the budget: %v", err)
	}
	for _, stage := range []Stage{StageHello, StageAnswer} {
		t.Run("over in a "+stage.String(), func(t *testing.T) {
			over, cancel := context.WithCancel(t.Context())
			defer cancel()
			k, n := &fakeKind{}, newFakeNode(t, newFakeProver())
			k.present = func(s Stage, p *Presented) *Presented {
				if s == stage {
					cancel()
				}
				return p
			}
			v := newFakeVerifier(t, k)
			challenge, err := v.Challenge(over, n.hello(t))
			if stage == StageAnswer && err == nil {
				_, err = v.Verify(over, n.answer(t, challenge))
			}
			if !errors.Is(err, context.Canceled) || !errors.Is(err, refusal.ErrRetry) {
				t.Errorf("got %v", err)
			}
			if slices.Contains(k.asked, map[Stage]string{StageHello: "Trust", StageAnswer: "Verify"}[stage]) {
				t.Errorf("asked for %q", k.asked)
			}
		})
	}
}

// A credential that no challenge can carry is an error, not a cut one.
func TestCredentialsOverTheirSize(t *testing.T) {
	for name, c := range map[string]struct {
		credential Credential
		good       bool
	}{
		"the largest":     {Credential{make([]byte, 256), make([]byte, 1024)}, true},
		"a larger object": {Credential{make([]byte, 257), make([]byte, 1024)}, false},
		"a larger secret": {Credential{make([]byte, 256), make([]byte, 1025)}, false},
		"nothing":         {Credential{}, false},
	} {
		t.Run(name, func(t *testing.T) {
			p := newFakeProver()
			p.road = RoadEK
			k := &fakeKind{describe: allRoads, seal: func([]byte) *Credential { return &c.credential }}
			challenge, err := newFakeVerifier(t, k).Challenge(t.Context(), newFakeNode(t, p).hello(t))
			if c.good != (err == nil) || c.good != (challenge != nil) || !c.good && !errors.Is(err, der.CheckEncoding) {
				t.Errorf("got %v", err)
			}
		})
	}
	t.Run("the secret in it is the challenge's alone", func(t *testing.T) {
		p := newFakeProver()
		p.road = RoadEK
		challenge := testkit.Must(newFakeVerifier(t, &fakeKind{describe: allRoads}).Challenge(t.Context(), newFakeNode(t, p).hello(t)))
		if c, err := message.ParseChallenge(challenge); err != nil || c.Clear != nil || c.Credential == nil {
			t.Errorf("%v, %v", c, err)
		}
	})
}

func TestEvidenceTypes(t *testing.T) {
	e := &Evidence{Statements: []Statement{{Type: oid.NodeAttestHello}, {Type: oid.NodeAttestProof}}}
	for name, c := range map[string]struct {
		types []oid.OID
		want  bool
	}{
		"these":               {[]oid.OID{oid.NodeAttestHello, oid.NodeAttestProof}, true},
		"the other way round": {[]oid.OID{oid.NodeAttestProof, oid.NodeAttestHello}, false},
		"the first alone":     {[]oid.OID{oid.NodeAttestHello}, false},
		"one more":            {[]oid.OID{oid.NodeAttestHello, oid.NodeAttestProof, oid.NodeAttestQuote}, false},
		"none":                {nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			if e.Is(c.types...) != c.want {
				t.Errorf("got %t", !c.want)
			}
		})
	}
	if got := e.Types(); got != "nodeattest-hello, nodeattest-proof" {
		t.Errorf("types %q", got)
	}
	if got := (&Evidence{Statements: []Statement{{Type: "\x2a\x03"}}}).Types(); !strings.Contains(got, "1.2.3") {
		t.Errorf("a type without a name: %q", got)
	}
}

// Values that no constructor made return errors, and an undecided result has no Attested.
func TestWhatWasNotMade(t *testing.T) {
	n := newFakeNode(t, newFakeProver())
	hello := n.hello(t)
	for name, v := range map[string]*Verifier{"no verifier": nil, "a zero verifier": {}} {
		t.Run(name, func(t *testing.T) {
			_, err1 := v.Challenge(t.Context(), hello)
			_, err2 := v.Verify(t.Context(), hello)
			if !errors.Is(err1, errNotMade) || !errors.Is(err2, errNotMade) {
				t.Errorf("%v, %v", err1, err2)
			}
		})
	}
	for name, c := range map[string]*Challenged{
		"nothing":    {},
		"no secret":  {format: "fake/v1", binding: []byte{1}},
		"no binding": {format: "fake/v1", secret: secret.New([]byte{1})},
	} {
		t.Run(name, func(t *testing.T) {
			if c.QualifyingData("document") != nil {
				t.Errorf("a Challenged of %s has qualifying data", name)
			}
		})
	}
	if NewResult(StageAnswer, nil).Attested() != nil {
		t.Error("a result without a decision is attested")
	}
	if a, err := AuthorizerFunc(nil).Authorize(t.Context(), nil); a != nil || err == nil {
		t.Errorf("a nil function: %v, %v", a, err)
	}
	v := newFakeVerifier(t, &fakeKind{})
	if a, err := v.VerifyClientAttestationData(t.Context(), n.object(&csr.Spec{SignerName: n.subject.SignerName}).Parsed()); a != nil || err == nil {
		t.Errorf("a request of nothing: %v, %v", a, err)
	}
}
