package membership

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/message"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/refusal"
)

// countingRegistry counts the calls of a registry.
type countingRegistry struct {
	Registry
	lookups, others, reserves, binds int
}

func (c *countingRegistry) Lookup(ctx context.Context, nodeName string) (*Record, error) {
	c.lookups++
	return c.Registry.Lookup(ctx, nodeName)
}

func (c *countingRegistry) LookupMachine(ctx context.Context, machine attest.Identity) (*Record, error) {
	c.others++
	return c.Registry.LookupMachine(ctx, machine)
}

func (c *countingRegistry) LookupMachineUID(ctx context.Context, uid string) (*Record, error) {
	c.others++
	return c.Registry.LookupMachineUID(ctx, uid)
}

func (c *countingRegistry) Reserve(ctx context.Context, claim Claim, deadline time.Time) (*Record, error) {
	c.reserves++
	return c.Registry.Reserve(ctx, claim, deadline)
}

func (c *countingRegistry) Bind(ctx context.Context, r *Record, end time.Time, issued *csr.IssuedRecord) (*Record, error) {
	c.binds++
	return c.Registry.Bind(ctx, r, end, issued)
}

func (c *countingRegistry) calls() [4]int {
	calls := [4]int{c.lookups, c.others, c.reserves, c.binds}
	c.lookups, c.others, c.reserves, c.binds = 0, 0, 0, 0
	return calls
}

func (f *firstUse) record(t *testing.T, nodeName string) *Record {
	t.Helper()
	r, err := f.registry.Lookup(t.Context(), nodeName)
	if err != nil || r == nil {
		t.Fatalf("node %s: got %v, %v", nodeName, r, err)
	}
	return r
}

// A join costs a registry one Reserve and one Bind; the same answer again writes nothing as
// long as it can be verified, and a second later it does.
func TestFirstUseCalls(t *testing.T) {
	f := newFirstUse(t, Scope{})
	count := &countingRegistry{Registry: f.registry}
	f.c.Registry = count
	r := answerOf(t, "node-1", "gce:p/1")
	f.admit(t, r)
	if got := count.calls(); got != [4]int{1, 0, 1, 1} {
		t.Errorf("a newcomer: got %v look-ups by name and others, Reserve and Bind", got)
	}
	bound := f.record(t, "node-1")
	if len(bound.Issued) != 1 || bound.Issued[0].RequestUID != "u" || bound.Issued[0].CredentialID != "" {
		t.Errorf("got %+v, want the record of the request", bound.Issued)
	}
	f.at = f.at.Add(message.MaxAnswerAge)
	f.admit(t, r)
	if got := count.calls(); got != [4]int{1, 0, 0, 1} || f.record(t, "node-1").Version != bound.Version {
		t.Errorf("again: got %v calls, record %+v, want %+v", got, f.record(t, "node-1"), bound)
	}
	f.at = f.at.Add(time.Second)
	f.admit(t, r)
	if now := f.record(t, "node-1"); now.Version == bound.Version || !now.LastEnd.Equal(f.at.Add(testLifetime+2*message.MaxAnswerAge)) {
		t.Errorf("later: got record %+v", now)
	}
}

// A record that changes between the look and the write is looked at again, once.
func TestFirstUseBindsAgain(t *testing.T) {
	f := newFirstUse(t, Scope{})
	r := answerOf(t, "node-1", "gce:p/1")
	f.admit(t, r)
	f.at = f.at.Add(2 * time.Hour)
	result := *r
	wrapped := attest.AuthorizerFunc(func(ctx context.Context, r *attest.Result) (*attest.Authorization, error) {
		a, err := f.Authorize(ctx, r)
		if err == nil { // meanwhile another replica has verified it
			_, err = f.registry.Bind(ctx, f.record(t, "node-1"), f.at.Add(1000*time.Hour), nil)
		}
		return a, err
	})
	if err := attest.AskMembership(t.Context(), wrapped, &result); err != nil {
		t.Error(err)
	}
	// A reservation whose maker died is bound by the same machine at once.
	testkit.Must(f.registry.Reserve(t.Context(), Claim{NodeName: "node-2", Machine: "gce:p/2", MachineUID: "uid-2", ProviderID: "test://2"}, f.at.Add(time.Minute)))
	second := answerOf(t, "node-2", "gce:p/2")
	f.admit(t, inventoried(t, second, csr.RequesterBootstrap, csr.Machine{UID: "uid-2", ProviderID: "test://2"}))
	if got := f.record(t, "node-2"); got.State != StateBound || len(got.Issued) != 1 {
		t.Errorf("got %+v", got)
	}
}

// No name rests for a recovery certificate, and only as a recovery certificate it lasts
// longer.
func TestFirstUseRecovery(t *testing.T) {
	const recovery = 90 * 24 * time.Hour
	for _, own := range [][]string{nil, {csr.SignerClientTPM}} {
		f := newFirstUse(t, Scope{})
		f.c.MaxRecoveryLifetime, f.own = recovery, own
		r := answerOf(t, "node-1", "gce:p/1")
		r.Purpose = csr.PurposeRecovery
		f.refuse(t, r, checkRegistryRequester) // no newcomer
		f.own = nil
		f.admit(t, answerOf(t, "node-1", "gce:p/1"))
		f.own = own
		before := f.record(t, "node-1")
		a := f.admit(t, r)
		if want := f.at.Add(recovery + message.MaxAnswerAge); !a.NotAfter.Equal(want) || f.record(t, "node-1").Version != before.Version {
			t.Errorf("got an end at %v, want %v; record %+v", a.NotAfter, want, f.record(t, "node-1"))
		}
		r.Purpose = csr.PurposeServing
		if a := f.admit(t, r); !a.NotAfter.Equal(f.at.Add(testLifetime + message.MaxAnswerAge)) {
			t.Errorf("a serving certificate: got an end at %v", a.NotAfter)
		}
	}
	c := newFirstUse(t, Scope{}).c
	c.MaxRecoveryLifetime = -1
	if _, err := NewFirstUse(c); !errors.Is(err, refusal.CheckConfig) {
		t.Errorf("got %v", err)
	}
}

// A cache decides about hellos, and about free names of answers. Its errors are found by the write, and it
// refuses no machine.
func TestFirstUseStale(t *testing.T) {
	f := newFirstUse(t, Scope{})
	live, stale := &countingRegistry{Registry: f.registry}, newFirstUse(t, Scope{})
	cache := &countingRegistry{Registry: stale.registry}
	f.c.Registry, f.c.Stale = live, cache
	hello := func(r *attest.Result) *attest.Result {
		h := *r
		h.Stage = attest.StageHello
		return &h
	}
	r := answerOf(t, "node-1", "gce:p/1")
	f.nodesErr = errors.New("NodeExists was called")
	f.admit(t, hello(r))
	if live.calls() != [4]int{} || cache.calls() != [4]int{1, 2, 0, 0} {
		t.Error("a hello was looked up in the registry")
	}
	if _, err := asked(t, f, r); !errors.Is(err, f.nodesErr) {
		t.Errorf("an answer: got %v, want the error of NodeExists", err)
	}
	f.nodesErr = nil
	live.calls()
	cache.calls()
	f.admit(t, r)
	if live.calls() != [4]int{0, 0, 1, 1} || cache.calls() != [4]int{1, 0, 0, 0} {
		t.Error("an answer for a name that is free was looked up in the registry")
	}
	f.admit(t, r)
	if live.calls() != [4]int{0, 0, 1, 1} || cache.calls() != [4]int{1, 0, 0, 0} {
		t.Error("again, where the cache is behind: it was looked up in the registry")
	}
	// The cache does not know of the first machine yet.
	second := answerOf(t, "node-1", "gce:p/2")
	f.admit(t, hello(second))
	f.refuse(t, second, checkRegistryName)
	// The cache still has a machine that is gone.
	stale.admit(t, answerOf(t, "node-2", "gce:p/9"))
	third := inventoried(t, answerOf(t, "node-2", "gce:p/3"), csr.RequesterBootstrap, csr.Machine{UID: "uid-3"})
	f.admit(t, hello(third))
	f.admit(t, third)
	f.refuse(t, hello(second), checkRegistryName) // it has caught up
}

// snapshot is a cache that never follows.
type snapshot map[string]*Record

func (s snapshot) Lookup(_ context.Context, nodeName string) (*Record, error) {
	if r := s[nodeName]; r != nil {
		c := *r
		return &c, nil
	}
	return nil, nil
}

func (s snapshot) LookupMachine(context.Context, attest.Identity) (*Record, error) { return nil, nil }

func (s snapshot) LookupMachineUID(context.Context, string) (*Record, error) { return nil, nil }

// A cache's record is only used if a write follows that fails if the record has changed, for every signer.
func TestFirstUseStaleAnswers(t *testing.T) {
	ctx := t.Context()
	mine := Claim{NodeName: "node-1", Machine: "gce:p/1", MachineUID: "uid-1", ProviderID: "test://1"}
	other := Claim{NodeName: "node-1", Machine: "gce:p/2", MachineUID: "uid-2", ProviderID: "test://2"}
	reserved := func(t *testing.T, f *firstUse, c Claim) *Record {
		t.Helper()
		r := testkit.Must(f.registry.Reserve(ctx, c, f.at.Add(time.Minute)))
		return r
	}
	bound := func(t *testing.T, f *firstUse, c Claim) *Record {
		t.Helper()
		r := testkit.Must(f.registry.Bind(ctx, reserved(t, f, c), f.at.Add(time.Hour), nil))
		return r
	}
	released := func(t *testing.T, f *firstUse, c Claim) {
		t.Helper()
		testkit.Must(f.registry.Release(ctx, c.NodeName, c.MachineUID))
	}
	for name, row := range map[string]struct {
		prepare func(t *testing.T, f *firstUse) *Record // which the cache has
		want    attest.Check                            // none: it is admitted
		looks   int                                     // in the registry, for its name
	}{
		"free":              {func(*testing.T, *firstUse) *Record { return nil }, "", 0},
		"free, with a Node": {func(_ *testing.T, f *firstUse) *Record { f.nodes["node-1"] = true; return nil }, checkRegistryNode, 1},
		"free, and another's now": {func(t *testing.T, f *firstUse) *Record {
			bound(t, f, other)
			return nil
		}, checkRegistryName, 0},
		"free, and bound by it now": {func(t *testing.T, f *firstUse) *Record {
			bound(t, f, mine)
			return nil
		}, "", 0},
		"free, and resting now": {func(t *testing.T, f *firstUse) *Record {
			bound(t, f, mine)
			released(t, f, mine)
			return nil
		}, CheckRegistryResting, 0},
		"its machine has another name now": {func(t *testing.T, f *firstUse) *Record {
			elsewhere := mine
			elsewhere.NodeName = "node-2"
			bound(t, f, elsewhere)
			return nil
		}, checkRegistryMachine, 0},
		"reserved for it": {func(t *testing.T, f *firstUse) *Record { return reserved(t, f, mine) }, "", 0},
		"reserved for it, and another's now": {func(t *testing.T, f *firstUse) *Record {
			seen := reserved(t, f, mine)
			released(t, f, mine)
			bound(t, f, other)
			return seen
		}, checkRegistryName, 1},
		"reserved for it, and bound by it now": {func(t *testing.T, f *firstUse) *Record {
			seen := reserved(t, f, mine)
			bound(t, f, mine)
			return seen
		}, "", 1},
		"bound by it": {func(t *testing.T, f *firstUse) *Record { return bound(t, f, mine) }, "", 1},
		"bound by it, and resting now": {func(t *testing.T, f *firstUse) *Record {
			seen := bound(t, f, mine)
			released(t, f, mine)
			return seen
		}, CheckRegistryResting, 1},
		"bound by it, and another's now": {func(t *testing.T, f *firstUse) *Record {
			seen := bound(t, f, mine)
			testkit.Must(f.registry.Rebind(ctx, seen, other.Machine))
			return seen
		}, checkRegistryName, 1},
		"another's, and free now": {func(t *testing.T, f *firstUse) *Record {
			seen := reserved(t, f, other)
			released(t, f, other)
			return seen
		}, "", 1},
	} {
		for signs, own := range map[string][]string{"Kubernetes' own signer": nil, "our signer": {csr.SignerClientTPM}} {
			t.Run(name+", "+signs, func(t *testing.T) {
				f := newFirstUse(t, Scope{})
				f.own = own
				seen := row.prepare(t, f)
				live := &countingRegistry{Registry: f.registry}
				f.c.Registry, f.c.Stale = live, snapshot{"node-1": seen}
				r := answerOf(t, "node-1", "gce:p/1")
				err := attest.AskMembership(ctx, f, r)
				if own != nil && err == nil {
					issued := testkit.Must(r.Attested().Record(nil))
					issued.CredentialID = "X509SHA256=00"
					err = r.Attested().Grant().Record(ctx, issued)
				}
				if row.want == "" {
					if err != nil {
						t.Fatal(err)
					}
					if record := f.record(t, "node-1"); record.State != StateBound || record.Claim != mine || len(record.Issued) != 1 {
						t.Errorf("got %+v", record)
					}
				} else if !errors.Is(err, row.want) || !errors.Is(err, attest.CheckMembership) {
					t.Errorf("got %v, want %s", err, row.want)
				}
				if live.lookups != row.looks {
					t.Errorf("looked %d times in the registry, want %d", live.lookups, row.looks)
				}
			})
		}
	}
}

// A reservation that only a cache still has, of a name that has a Node by now: NodeExists is called before
// the machine is admitted.
func TestFirstUseStaleReservationWithNode(t *testing.T) {
	for signs, own := range map[string][]string{"Kubernetes' own signer": nil, "our signer": {csr.SignerClientTPM}} {
		for behind, stale := range map[string]bool{"the cache is behind": true, "without a cache": false} {
			t.Run(signs+", "+behind, func(t *testing.T) {
				f := newFirstUse(t, Scope{})
				mine := Claim{NodeName: "node-1", Machine: "gce:p/1", MachineUID: "uid-1", ProviderID: "test://1"}
				seen := testkit.Must(f.registry.Reserve(t.Context(), mine, f.at.Add(time.Minute)))
				testkit.Must(f.registry.Release(t.Context(), "node-1", "uid-1"))
				f.nodes["node-1"] = true
				f.own = own
				if stale {
					f.c.Stale = snapshot{"node-1": seen}
				}
				r := answerOf(t, "node-1", "gce:p/1")
				err := attest.AskMembership(t.Context(), f, r)
				if own != nil && err == nil {
					issued := testkit.Must(r.Attested().Record(nil))
					issued.CredentialID = "X509SHA256=00"
					err = r.Attested().Grant().Record(t.Context(), issued)
				}
				if !errors.Is(err, checkRegistryNode) {
					record, _ := f.registry.Lookup(t.Context(), "node-1")
					t.Errorf("got %v, want %s; record %+v", err, checkRegistryNode, record)
				}
			})
		}
	}
}

// A bound record that went between look and write, of a name that has a Node by then, is not
// made again, whether it is to be written as it was or with a provider ID.
func TestFirstUseGoneWithNode(t *testing.T) {
	for name, provider := range map[string]string{"as it was": "test://1", "with a provider ID": ""} {
		t.Run(name, func(t *testing.T) {
			f := newFirstUse(t, Scope{})
			seen, err := f.registry.Reserve(t.Context(), Claim{NodeName: "node-1", Machine: "gce:p/1", MachineUID: "uid-1", ProviderID: provider}, f.at.Add(time.Minute))
			if err == nil {
				_, err = f.registry.Bind(t.Context(), seen, time.Time{}, nil)
			}
			if err != nil {
				t.Fatal(err)
			}
			wrapped := attest.AuthorizerFunc(func(ctx context.Context, r *attest.Result) (*attest.Authorization, error) {
				a, err := f.Authorize(ctx, r)
				if err == nil {
					_, err = f.registry.Release(ctx, "node-1", "uid-1")
					f.nodes["node-1"] = true
				}
				return a, err
			})
			if err := attest.AskMembership(t.Context(), wrapped, answerOf(t, "node-1", "gce:p/1")); !errors.Is(err, checkRegistryNode) {
				t.Errorf("got %v, want %s", err, checkRegistryNode)
			}
			if record, err := f.registry.Lookup(t.Context(), "node-1"); err != nil || record != nil && record.State == StateBound {
				t.Errorf("got %+v, %v", record, err)
			}
		})
	}
}

// IssuedRecords finds the certificate that a kubelet presents.
func TestIssuedRecords(t *testing.T) {
	f := newFirstUse(t, Scope{})
	find := IssuedRecords(f.registry)
	ask := func(nodeName, credential string) (*csr.IssuedRecord, error) {
		return find(t.Context(), credential, &csr.Request{User: csr.User{Username: csr.NodeUserPrefix + nodeName}})
	}
	if _, err := ask("node-1", "c"); !errors.Is(err, csr.ErrNoRecord) || errors.Is(err, refusal.ErrRetry) {
		t.Errorf("no node: got %v", err)
	}
	f.admit(t, answerOf(t, "node-1", "gce:p/1"))
	if _, err := ask("node-1", "c"); !errors.Is(err, refusal.ErrRetry) {
		t.Errorf("while its certificate is not recorded: got %v, want a retry", err)
	}
	r := f.record(t, "node-1")
	issued := r.Issued[0]
	issued.CredentialID = "c"
	testkit.Must(f.registry.Bind(t.Context(), r, time.Time{}, &issued))
	if got, err := ask("node-1", "c"); err != nil || got.Machine != "gce:p/1" {
		t.Errorf("got %+v, %v", got, err)
	}
	broken := errors.New("disk full")
	find = IssuedRecords(stubRegistry{Registry: f.registry, lookup: func() error { return broken }})
	if _, err := ask("node-1", "c"); !errors.Is(err, broken) {
		t.Errorf("a registry that cannot look: got %v", err)
	}
	find = IssuedRecords(f.registry)
	for _, c := range [][2]string{{"node-1", "d"}, {"node-2", "c"}} {
		if _, err := ask(c[0], c[1]); !errors.Is(err, csr.ErrNoRecord) || errors.Is(err, refusal.ErrRetry) {
			t.Errorf("%v: got %v", c, err)
		}
	}
}

// A requester learns which check refuses it, and no other node or machine.
func TestFirstUseRefusalsHide(t *testing.T) {
	f := newFirstUse(t, Scope{})
	f.admit(t, answerOf(t, "node-1", "gce:p/1"))
	claimed := answerOf(t, "node-1", "gce:p/1")
	claimed.ClaimedProviderID = csr.NewClaimed("test://2")
	for _, c := range []struct {
		r           *attest.Result
		check, hide string
	}{
		{answerOf(t, "node-1", "gce:p/2"), string(checkRegistryName), "gce:p/1"},
		{inventoried(t, answerOf(t, "node-2", "gce:p/1"), csr.RequesterBootstrap, csr.Machine{UID: "uid-2"}), string(checkRegistryMachine), "node-1"},
		{answerOf(t, "node-2", "gce:p/2"), string(checkRegistryUID), "node-1"},
		{claimed, string(refusal.Check("provider-id")), "test://1"},
	} {
		t.Run(c.hide, func(t *testing.T) {
			_, err := asked(t, f, c.r)
			d := csr.Decide(err)
			if d.Verdict != csr.VerdictDeny || !strings.Contains(d.Message, c.check) || strings.Contains(d.Message, c.hide) || !strings.Contains(d.Detail, c.hide) {
				t.Errorf("%s: got %+v", c.check, d)
			}
		})
	}
	if d := csr.Decide(attest.NotMember("the machine of node-1")); d.Verdict != csr.VerdictDeny || strings.Contains(d.Message, "node-1") || !strings.Contains(d.Detail, "node-1") {
		t.Errorf("got %+v", d)
	}
}

// The location of the key is in the record of its certificate.
func TestFirstUseKeyResidence(t *testing.T) {
	for want, result := range map[string]attest.Result{
		"TPM":      {TPMResident: true, ResidenceStanding: attest.Proven},
		"Software": {ResidenceStanding: attest.Asserted},
		"":         {},
	} {
		f, r := newFirstUse(t, Scope{}), answerOf(t, "node-1", "gce:p/1")
		r.TPMResident, r.ResidenceStanding = result.TPMResident, result.ResidenceStanding
		f.admit(t, r)
		if issued := f.record(t, "node-1").Issued; len(issued) != 1 || issued[0].KeyResidence != want {
			t.Errorf("%q: recorded %+v", want, issued)
		}
	}
}
