package explain

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/membership"
	"github.com/nodeattest/nodeattest/attest/tpm"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/refusal"
)

// example is a hello and its answer, as the core's worked example has them.
type example struct {
	NodeName, ClusterID, SignerName, ChallengeSigner, Requester string
	Groups, Usages                                              []string
	ExpirationSeconds                                           int32
	HelloCreated, AnswerCreated, Verified                       time.Time
	MachineKey, RequestHash                                     string // hexadecimal
	RingKey                                                     struct{ ID string }
	IssuedAt, NotAfter                                          int64
	hello, answer                                               []byte
}

func load(t testing.TB) *example {
	t.Helper()
	dir := filepath.Join("..", "..", "..", "..", "..", "attest", "testdata", "messages")
	file := func(name string) []byte {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	e := &example{hello: file("hello.pem"), answer: file("answer.pem")}
	if err := json.Unmarshal(file("example.json"), e); err != nil {
		t.Fatal(err)
	}
	return e
}

// object is a message as the API server would have it.
func (e *example) object(signer string, text []byte, created time.Time, conditions ...csr.Condition) *csr.Request {
	seconds := e.ExpirationSeconds
	r := &csr.Request{Spec: csr.Spec{Request: text, SignerName: signer, Usages: e.Usages, ExpirationSeconds: &seconds}, User: csr.User{Username: e.Requester, Groups: e.Groups}}
	r.Metadata.Name, r.Metadata.UID, r.Metadata.CreationTimestamp = "request-1", "uid", created
	r.Status.Conditions = conditions
	return r
}

func denied(check attest.Check) csr.Condition {
	return csr.Condition{Type: csr.ConditionDenied, Status: "True", Reason: (&attest.Error{Check: check}).Reason(), Message: string(check) + ": got this, want that"}
}

func challenge(at time.Time) csr.Condition {
	d := attest.ChallengeDecision([]byte{1}, nil).For(&csr.Request{})
	return csr.Condition{Type: d.Condition, Status: "True", Reason: d.Reason, Message: d.Message, LastUpdateTime: at}
}

// A node got another address, or the cloud spells its provider ID in another way: nothing on the
// node is wrong, and the inventory has not heard of it.
func TestExplainAnotherAddress(t *testing.T) {
	e := load(t)
	for check, who := range map[refusal.Check]string{csr.CheckSANNotOwn: operator, csr.CheckProviderIDMismatch: operator,
		"provider-id": operator, "san-not-vouched": operator, "provider-id-not-vouched": operator, "san-form": owner, "san-reserved": owner} {
		x, err := Explain(t.Context(), Facts{Request: e.object(csr.SignerServingTPM, e.answer, e.AnswerCreated, denied(check)),
			Kinds: []attest.Kind{new(tpm.Kind)}, Now: e.AnswerCreated})
		if err != nil {
			t.Fatal(err)
		}
		if x.Next.Who != who || strings.Contains(x.Next.What, "inventory") != (who == operator) {
			t.Errorf("%s: %s: %s", check, x.Next.Who, x.Next.What)
		}
	}
}

// A provider ID that the evidence has stated is in the record, and not in the inventory.
func TestExplainStatedProviderID(t *testing.T) {
	now := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	held := membership.Held{Name: &membership.Record{State: membership.StateBound,
		Claim: membership.Claim{NodeName: "node-1", Machine: "gce:p/1", MachineUID: "uid-1", ProviderID: "gce://p/z/vm-1"}}}
	for id, want := range map[string]State{"": Kept, "gce://p/z/vm-1": Kept, "gce://p/z/vm-2": Broken} {
		x := &Explanation{NodeName: "node-1", Message: MessageAnswer, Reading: &attest.Message{Provider: "gce", Machine: "gce:p/1"}}
		_, err := x.addMembership(t.Context(), &Facts{Now: now, Held: func(context.Context, membership.Claim) (membership.Held, error) { return held, nil }},
			&csr.Machine{UID: "uid-1", ProviderID: id})
		if err != nil || x.Rules[0].State != want {
			t.Errorf("the inventory has %q: %+v, %v", id, x.Rules, err)
		}
	}
}

// brokenOf are the names of the rules that are broken.
func brokenOf(x *Explanation) []string {
	var names []string
	for _, r := range x.Rules {
		if r.State == Broken {
			names = append(names, r.Name)
		}
	}
	return names
}

// TestExplain explains hellos and answers in each state.
func TestExplain(t *testing.T) {
	e := load(t)
	bound := membership.Record{Claim: membership.Claim{NodeName: e.NodeName, Machine: "ak:sha256:" + attest.Identity(strings.Repeat("0", 64))}, State: membership.StateBound}
	resting := bound
	resting.State, resting.LastEnd = membership.StateResting, e.Verified.Add(time.Hour)
	soon, late := e.HelloCreated.Add(time.Second), e.AnswerCreated.Add(time.Hour)
	for name, row := range map[string]struct {
		text       []byte // the hello where it is nil
		change     func(r *csr.Request)
		conditions []csr.Condition
		held       membership.Held
		related    []*csr.Request
		now        time.Time
		broken     []string
		who, what  string
	}{
		"a hello that is new":                 {now: soon, who: controller},
		"an undecided hello":                  {now: late, who: operator, what: "undecided for"},
		"a challenge":                         {conditions: []csr.Condition{challenge(soon)}, now: soon, who: node, what: "within ten minutes"},
		"a challenge that is over":            {conditions: []csr.Condition{challenge(soon)}, now: late.Add(2 * time.Hour), who: node, what: "will file a new request"},
		"a challenge that was met":            {conditions: []csr.Condition{challenge(soon)}, related: []*csr.Request{e.object(e.SignerName, e.answer, e.AnswerCreated)}, now: late, who: noAction, what: "has answered"},
		"a hello that came too late":          {conditions: []csr.Condition{denied(attest.CheckHelloExpired)}, now: late, broken: []string{"HelloExpired"}, who: node},
		"a machine that is unknown":           {conditions: []csr.Condition{denied(attest.CheckMembership)}, now: soon, broken: []string{"not-a-member"}, who: operator, what: "kubectl nodeattest approve node-1 --machine IDENTITY, with the identity in the controller's log and Event"},
		"a name that rests":                   {conditions: []csr.Condition{denied(attest.CheckMembership)}, held: membership.Held{Name: &resting}, now: soon, broken: []string{"not-a-member"}, who: noAction, what: "rests until"},
		"a machine under a name":              {conditions: []csr.Condition{denied(attest.CheckMembership)}, held: membership.Held{Machine: &membership.Record{Claim: membership.Claim{NodeName: "other"}, State: membership.StateBound}}, now: soon, who: operator, what: "kubectl nodeattest release other", broken: []string{"not-a-member"}},
		"a node that is not in the inventory": {conditions: []csr.Condition{denied(csr.CheckMachineUnknown)}, now: soon, broken: []string{"machine-unknown"}, who: operator, what: "add it there"},
		"an unknown machine under a name":     {conditions: []csr.Condition{denied(attest.CheckMembership)}, held: membership.Held{Name: &bound}, now: soon, broken: []string{"not-a-member"}, who: operator, what: "cannot tell whether that machine"},
		"another user":                        {change: func(r *csr.Request) { r.User.Username = "eve" }, conditions: []csr.Condition{denied(refusal.Check("request-username"))}, now: soon, broken: []string{"request-username"}, who: owner},
		"a usage too many":                    {change: func(r *csr.Request) { r.Spec.Usages = append(slices.Clone(r.Spec.Usages), "server auth") }, now: soon, broken: []string{"usages"}, who: controller},
		"a byte too few":                      {change: func(r *csr.Request) { r.Spec.Request = r.Spec.Request[:len(r.Spec.Request)-1] }, now: soon, who: controller, broken: []string{"signer-name"}},
		"an answer":                           {text: e.answer, now: late.Add(-59 * time.Minute), who: operator},
		"an answer that is approved":          {text: e.answer, conditions: []csr.Condition{{Type: csr.ConditionApproved, Reason: csr.ReasonApproved}}, held: membership.Held{Name: &bound}, now: e.AnswerCreated.Add(time.Second), who: signer},
		"one that is not signed":              {text: e.answer, conditions: []csr.Condition{{Type: csr.ConditionApproved, Reason: csr.ReasonApproved}}, now: late, who: operator, what: "but not signed"},
		"one that is signed":                  {text: e.answer, change: func(r *csr.Request) { r.Status.Certificate = []byte("x") }, conditions: []csr.Condition{{Type: csr.ConditionApproved, Reason: csr.ReasonApproved}}, now: late, who: noAction},
		"one that has failed":                 {text: e.answer, conditions: []csr.Condition{{Type: csr.ConditionFailed, Reason: "X"}}, now: late, broken: []string{"X"}, who: operator, what: "find out which account approves"},
		"another requester's answer":          {text: e.answer, change: func(r *csr.Request) { r.User.Username = csr.BootstrapUserPrefix + "zzzzzz" }, now: late, broken: []string{"binding-requester"}, who: operator},
		"another lifetime":                    {text: e.answer, change: func(r *csr.Request) { r.Spec.ExpirationSeconds = new(e.ExpirationSeconds + 1) }, now: late, broken: []string{"binding-expiration"}, who: operator},
		"an answer after its window":          {text: e.answer, change: func(r *csr.Request) { r.Metadata.CreationTimestamp = late.Add(time.Hour) }, conditions: []csr.Condition{denied(attest.CheckAnswerLate)}, now: late, broken: []string{"answer-late"}, who: node},
		"one before its challenge":            {text: e.answer, change: func(r *csr.Request) { r.Metadata.CreationTimestamp = e.HelloCreated.Add(-time.Hour) }, now: late, broken: []string{"answer-early"}, who: operator},
	} {
		t.Run(name, func(t *testing.T) {
			r := e.object(e.ChallengeSigner, e.hello, e.HelloCreated, row.conditions...)
			if row.text != nil {
				r = e.object(e.SignerName, row.text, e.AnswerCreated, row.conditions...)
			}
			if row.change != nil {
				row.change(r)
			}
			x, err := Explain(t.Context(), Facts{Request: r, Kinds: []attest.Kind{new(tpm.Kind)}, ClusterIDs: []string{e.ClusterID}, Related: row.related, Now: row.now,
				Held: func(context.Context, membership.Claim) (membership.Held, error) { return row.held, nil }})
			if err != nil {
				t.Fatal(err)
			}
			var text bytes.Buffer
			if err := x.WriteText(&text); err != nil {
				t.Fatal(err)
			}
			if got := brokenOf(x); !slices.Equal(got, row.broken) {
				t.Errorf("broken: %v, want %v\n%s", got, row.broken, &text)
			}
			if x.Next.Who != row.who || !strings.Contains(x.Next.What, row.what) {
				t.Errorf("next: %+v, want %s, %q", x.Next, row.who, row.what)
			}
			for _, want := range []string{r.Metadata.Name, x.Message, x.Next.Who} {
				if !strings.Contains(text.String(), want) {
					t.Errorf("the text does not have %q:\n%s", want, &text)
				}
			}
		})
	}
}

var update = flag.Bool("update", false, "write the golden outputs anew")

// TestGolden shows explanations whole: the broken rules come first, in the order in which they are tried.
func TestGolden(t *testing.T) {
	e := load(t)
	bound := membership.Record{State: membership.StateBound, Claim: membership.Claim{NodeName: e.NodeName, Machine: "othername:2.999.1:DAltYWNoaW5lLTI"}}
	for name, r := range map[string]*csr.Request{
		"broken":    e.object(e.SignerName, e.answer, e.AnswerCreated, denied("usages")),
		"challenge": e.object(e.ChallengeSigner, e.hello, e.HelloCreated, challenge(e.HelloCreated)),
	} {
		if name == "broken" {
			r.Spec.Usages, r.User.Username = append(slices.Clone(r.Spec.Usages), "server auth"), csr.BootstrapUserPrefix+"zzzzzz"
		}
		x, err := Explain(t.Context(), Facts{Request: r, Kinds: []attest.Kind{new(tpm.Kind)}, ClusterIDs: []string{e.ClusterID}, Now: e.AnswerCreated.Add(time.Minute),
			Held: func(context.Context, membership.Claim) (membership.Held, error) {
				return membership.Held{Name: &bound}, nil
			}})
		if err != nil {
			t.Fatal(err)
		}
		var got bytes.Buffer
		if err := x.WriteText(&got); err != nil {
			t.Fatal(err)
		}
		golden := filepath.Join("testdata", name+".txt")
		if *update {
			if err := os.WriteFile(golden, got.Bytes(), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if want, err := os.ReadFile(golden); err != nil || got.String() != string(want) {
			t.Errorf("%v: the output differs from %s (run with -update if that is meant):\n%s", err, golden, &got)
		}
	}
}

// TestExplainWithoutEvidence: a request without evidence, to its own signer, waits for that one, and
// a name that was used for an operator.
func TestExplainWithoutEvidence(t *testing.T) {
	e := load(t)
	block, _ := pem.Decode(e.hello)
	for what, conditions := range map[string][]csr.Condition{
		"the component insecure":            nil,
		"kubectl nodeattest release":        {denied("insecure-name-used")},
		"kubectl delete node " + e.NodeName: {denied("insecure-node-exists")},
	} {
		r := e.object(csr.SignerClientInsecure, pem.EncodeToMemory(block), e.HelloCreated, conditions...)
		x, err := Explain(t.Context(), Facts{Request: r, Kinds: []attest.Kind{new(tpm.Kind)}, ClusterIDs: []string{e.ClusterID}, Now: e.HelloCreated.Add(time.Hour)})
		if err != nil {
			t.Fatal(err)
		}
		if x.Next.Who != operator || !strings.Contains(x.Next.What, what) {
			t.Errorf("next: %+v, want %q", x.Next, what)
		}
		if broken := brokenOf(x); len(conditions) == 0 && len(broken) != 0 {
			t.Errorf("broken: %v", broken)
		}
	}
}

// With the controller's policy its inventory answers, and its cluster is held against the
// message's.
func TestExplainWithPolicy(t *testing.T) {
	e := load(t)
	policy := &csr.Policy{ClusterIDs: []string{e.ClusterID}, SignerNames: []string{e.SignerName}, Machines: func(context.Context, csr.Question) (*csr.Machine, error) { return nil, csr.ErrNoMachine }}
	x, err := Explain(t.Context(), Facts{Request: e.object(e.ChallengeSigner, e.hello, e.HelloCreated), Kinds: []attest.Kind{new(tpm.Kind)},
		Policy: policy, ClusterIDs: []string{"another"}, Now: e.HelloCreated})
	if err != nil {
		t.Fatal(err)
	}
	if got := brokenOf(x); !slices.Equal(got, []string{"machine-unknown", "binding-cluster"}) {
		t.Errorf("broken: %v", got)
	}
	policy.SignerNames = []string{csr.SignerServingTPM}
	if x, err = Explain(t.Context(), Facts{Request: e.object(e.ChallengeSigner, e.hello, e.HelloCreated), Kinds: []attest.Kind{new(tpm.Kind)}, Policy: policy, Now: e.HelloCreated}); err != nil {
		t.Fatal(err)
	}
	if got := brokenOf(x); !slices.Equal(got, []string{"signer-name", "machine-unknown"}) {
		t.Errorf("broken: %v", got)
	}
}

// TestExplainStrangers: evidence that no kind reads is named as such, with no rule of it broken and no advice.
func TestExplainStrangers(t *testing.T) {
	e := load(t)
	stranger := func(text []byte, provider string) []byte {
		bundle, err := csr.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		bundle.Provider = provider
		if text, err = bundle.Marshal(); err != nil {
			t.Fatal(err)
		}
		return text
	}
	bound := membership.Record{Claim: membership.Claim{NodeName: e.NodeName, Machine: "acme:1"}, State: membership.StateBound}
	for name, row := range map[string]struct {
		signer     string
		text       []byte
		conditions []csr.Condition
		broken     []string
		who, what  string
	}{
		"a hello":                {"cluster.x-k8s.io/kubelet-attestation-challenge-acme", stranger(e.hello, "acme/v3"), nil, nil, controller, ""},
		"an answer":              {"cluster.x-k8s.io/kube-apiserver-client-kubelet-acme", stranger(e.answer, "acme/v3"), nil, nil, controller, ""},
		"a hello that is denied": {"cluster.x-k8s.io/kubelet-attestation-challenge-acme", stranger(e.hello, "acme/v3"), []csr.Condition{denied(attest.CheckMembership)}, []string{"not-a-member"}, operator, "cannot read evidence of acme/v3"},
		"one denied by its kind": {"cluster.x-k8s.io/kube-apiserver-client-kubelet-acme", stranger(e.answer, "acme/v3"), []csr.Condition{denied("acme-seal")}, []string{"AcmeSeal"}, operator, "cannot read evidence of acme/v3"},
	} {
		t.Run(name, func(t *testing.T) {
			x, err := Explain(t.Context(), Facts{Request: e.object(row.signer, row.text, e.HelloCreated, row.conditions...), Kinds: []attest.Kind{new(tpm.Kind)}, Now: e.HelloCreated,
				Held: func(context.Context, membership.Claim) (membership.Held, error) {
					return membership.Held{Name: &bound}, nil
				}})
			if err != nil {
				t.Fatal(err)
			}
			if got := brokenOf(x); !slices.Equal(got, row.broken) {
				t.Errorf("broken: %v, want %v", got, row.broken)
			}
			if x.Next.Who != row.who || !strings.Contains(x.Next.What, row.what) || strings.Contains(x.Next.What, "kubectl") {
				t.Errorf("next: %+v, want %s, %q, and no advice", x.Next, row.who, row.what)
			}
			if !slices.ContainsFunc(x.Rules, func(r Rule) bool {
				return r.Name == "bundle-statements" && r.State == Unknown && strings.Contains(r.Want, "acme/v3")
			}) {
				t.Errorf("it does not say whose evidence it is: %+v", x.Rules)
			}
		})
	}
}

// TestExplainOthers: requests for other signers are ignored, and a failed read of the records is an error.
func TestExplainOthers(t *testing.T) {
	e := load(t)
	x, err := Explain(t.Context(), Facts{Request: e.object("example.com/signer", e.answer, e.AnswerCreated), Now: e.AnswerCreated})
	if err != nil || x.Message != MessageOther || len(x.Rules) != 0 {
		t.Errorf("got %+v, %v", x, err)
	}
	lost := errors.New("the API server is gone")
	_, err = Explain(t.Context(), Facts{Request: e.object(e.ChallengeSigner, e.hello, e.HelloCreated), Kinds: []attest.Kind{new(tpm.Kind)},
		Held: func(context.Context, membership.Claim) (membership.Held, error) { return membership.Held{}, lost }})
	if !errors.Is(err, lost) {
		t.Errorf("got %v", err)
	}
}

// FuzzExplain explains arbitrary requests.
func FuzzExplain(f *testing.F) {
	e := load(f)
	f.Add(e.hello, e.ChallengeSigner, e.Requester, "note")
	f.Add(e.answer, e.SignerName, e.Requester, "\x1b[2J")
	f.Add([]byte("-----BEGIN CERTIFICATE REQUEST-----\n"), csr.SignerKubeletServing, "system:node:a", "")
	f.Add(pem.EncodeToMemory(&pem.Block{Type: csr.BlockRequest, Bytes: []byte(hex.EncodeToString(e.hello))}), csr.SignerKubeAPIServerClientKubelet, "", "")
	f.Fuzz(func(t *testing.T, text []byte, signer, user, note string) {
		r := e.object(signer, text, e.HelloCreated, denied(attest.CheckMembership))
		r.User.Username, r.Metadata.Name = user, "request-1"
		x, err := Explain(t.Context(), Facts{Request: r, Kinds: []attest.Kind{new(tpm.Kind)}, Notes: []string{note}, Now: e.HelloCreated})
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		if err := x.WriteText(&out); err != nil {
			t.Fatal(err)
		}
		if x.Next.Who == "" || bytes.ContainsAny(out.Bytes(), "\x1b\x00\r") {
			t.Errorf("%q", out.Bytes())
		}
	})
}
