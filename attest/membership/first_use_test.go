package membership

import (
	"cmp"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/message"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/refusal"
)

// checkedRequest is a request that passed a policy.
func checkedRequest(t testing.TB, nodeName string, class csr.RequesterClass, purpose csr.Purpose, machine csr.Machine) *csr.Checked {
	t.Helper()
	key := testkit.Must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	options := csr.CreateOptions{}
	signer := csr.SignerClientTPM
	if purpose == csr.PurposeServing {
		options.DNSNames, signer = machine.DNSNames, csr.SignerServingTPM
	}
	der := testkit.Must(csr.Create(purpose, key, nodeName, options))
	pem := testkit.Must((&csr.Bundle{Request: der, Provider: "tpm/v1", Data: []byte{0x30, 0}}).Marshal())
	by := csr.User{Username: "system:bootstrap:abcdef", Groups: []string{"system:bootstrappers", "system:authenticated"}}
	if class == csr.RequesterNode {
		by = csr.User{Username: "system:node:" + nodeName, Groups: []string{"system:nodes", "system:authenticated"}}
	}
	r := csr.Filed(&csr.Spec{Request: pem, SignerName: signer, Usages: purpose.Usages(false)}, by, time.Now().Add(-time.Second))
	r.Metadata.Name, r.Metadata.UID = "csr", "u"
	machine.NodeName, machine.BootstrapReady = nodeName, true
	policy := &csr.Policy{SignerNames: []string{signer}, ClusterIDs: []string{"another name", testCluster},
		Machines: func(context.Context, csr.Question) (*csr.Machine, error) { return &machine, nil }}
	checked := testkit.Must(policy.CheckUnsigned(context.Background(), r.Parsed(), signer))
	return checked
}

// firstUse is a FirstUse over a registry in memory, with a clock and the Nodes that
// exist.
type firstUse struct {
	*FirstUse
	registry Registry
	at       time.Time
	nodes    map[string]bool
	nodesErr error
}

const testLifetime = 24 * time.Hour

// newFirstUse makes one for a scope of the test's cluster.
func newFirstUse(t testing.TB, scope Scope) *firstUse {
	t.Helper()
	scope.Cluster = testCluster
	f := &firstUse{at: time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC), nodes: map[string]bool{}}
	now := func() time.Time { return f.at }
	f.registry = testkit.Must(NewMemoryRegistry(scope, RegistryOptions{Now: now}))
	f.FirstUse = testkit.Must(NewFirstUse(FirstUseConfig{Registry: f.registry, MaxLifetime: testLifetime, Now: now,
		NodeExists: func(_ context.Context, nodeName string) (bool, error) { return f.nodes[nodeName], f.nodesErr }}))
	return f
}

// answerOf returns the result of a machine's answer.
func answerOf(t testing.TB, nodeName string, machine attest.Identity) *attest.Result {
	r := attest.NewResult(attest.StageAnswer, checkedRequest(t, nodeName, csr.RequesterBootstrap, csr.PurposeClient, csr.Machine{Name: "m", UID: "uid-1", ProviderID: "test://1",
		DNSNames: []string{"a.example", "b.example"}, IPAddresses: []netip.Addr{netip.MustParseAddr("192.0.2.1")}}))
	r.Machine, r.Provider = machine, "tpm"
	return r
}

// inventoried is a machine's answer to another requester or with another inventory.
func inventoried(t testing.TB, r *attest.Result, class csr.RequesterClass, machine csr.Machine) *attest.Result {
	out := attest.NewResult(r.Stage, checkedRequest(t, r.NodeName, class, csr.PurposeClient, machine))
	out.Machine, out.Provider, out.Road, out.IdentityClass = r.Machine, r.Provider, r.Road, r.IdentityClass
	return out
}

func (f *firstUse) admit(t testing.TB, r *attest.Result) *attest.Authorization {
	t.Helper()
	a := testkit.Must(asked(t, f, r))
	return a
}

// refuse expects a refusal of membership, for the registry's reason.
func (f *firstUse) refuse(t testing.TB, r *attest.Result, check attest.Check) {
	t.Helper()
	before := recordsOf(t, f.registry)
	_, err := asked(t, f, r)
	if !errors.Is(err, check) || !errors.Is(err, attest.CheckMembership) {
		t.Errorf("got %v, want %s as a refusal of membership", err, check)
	}
	if d := csr.Decide(err); d.Verdict != csr.VerdictDeny {
		t.Errorf("%v decides %v, want deny", err, d.Verdict)
	}
	if after := recordsOf(t, f.registry); len(before) != len(after) {
		t.Errorf("a refusal left %d records where there were %d", len(after), len(before))
	}
}

func TestFirstUse(t *testing.T) {
	f := newFirstUse(t, Scope{})
	ctx := context.Background()
	first := answerOf(t, "node-1", "gce:p/1")
	hello := *first
	hello.Stage = attest.StageHello
	f.admit(t, &hello)
	if records := recordsOf(t, f.registry); len(records) != 0 {
		t.Fatalf("a hello was recorded: %+v", records)
	}
	a := f.admit(t, first)
	end := f.at.Add(testLifetime + message.MaxAnswerAge)
	last := end.Add(message.MaxAnswerAge)
	if a.ProviderID != "test://1" || len(a.DNSNames) != 2 || len(a.IPAddresses) != 1 || !a.NotAfter.Equal(end) {
		t.Errorf("got authorization %+v", a)
	}
	r, err := f.registry.Lookup(ctx, "node-1")
	if err != nil || r.State != StateBound || r.Machine != "gce:p/1" || r.MachineUID != "uid-1" || r.ProviderID != "test://1" || !r.LastEnd.Equal(last) {
		t.Errorf("got record %+v, %v", r, err)
	}
	f.nodes["node-1"] = true // it has joined
	f.at = f.at.Add(2 * time.Hour)
	f.admit(t, first) // the same machine again, re-imaged perhaps
	if r, _ := f.registry.Lookup(ctx, "node-1"); !r.LastEnd.Equal(last.Add(2 * time.Hour)) {
		t.Errorf("got last end %v, want %v", r.LastEnd, last.Add(2*time.Hour))
	}
	f.admit(t, inventoried(t, first, csr.RequesterNode, *first.Checked().Machine()))

	f.refuse(t, answerOf(t, "node-1", "gce:p/2"), checkRegistryName)
	f.refuse(t, inventoried(t, answerOf(t, "node-2", "gce:p/1"), csr.RequesterBootstrap, csr.Machine{UID: "uid-2"}), checkRegistryMachine)
	f.refuse(t, answerOf(t, "node-2", "gce:p/2"), checkRegistryUID) // a copy of the first Machine's bootstrap data
	f.refuse(t, inventoried(t, first, csr.RequesterBootstrap, csr.Machine{UID: "uid-2", ProviderID: "test://1"}), checkRegistryUID)
	f.refuse(t, inventoried(t, first, csr.RequesterBootstrap, csr.Machine{UID: "uid-1", ProviderID: "test://2"}), checkRegistryProviderID)

	testkit.Must(f.registry.Release(ctx, "node-1", "uid-1"))
	f.refuse(t, first, CheckRegistryResting) // an answer that is filed again
	f.at = f.at.Add(testLifetime + 2*message.MaxAnswerAge + 2*time.Second)
	f.refuse(t, first, checkRegistryNode) // its Node is still there
	delete(f.nodes, "node-1")
	f.admit(t, answerOf(t, "node-1", "gce:p/2"))
	f.refuse(t, first, checkRegistryName) // the name is another machine's now
}

func TestFirstUseNewcomers(t *testing.T) {
	f := newFirstUse(t, Scope{})
	f.nodes["old"] = true
	f.refuse(t, answerOf(t, "old", "gce:p/1"), checkRegistryNode)
	f.refuse(t, inventoried(t, answerOf(t, "new", "gce:p/1"), csr.RequesterNode, csr.Machine{}), checkRegistryRequester)
	serving := answerOf(t, "new", "gce:p/1")
	serving.Purpose = csr.PurposeServing
	f.refuse(t, serving, checkRegistryRequester)
	wrongClaim := answerOf(t, "new", "gce:p/1")
	wrongClaim.ClaimedProviderID = csr.NewClaimed("test://another")
	if _, err := asked(t, f, wrongClaim); !errors.Is(err, refusal.Check("provider-id")) || len(recordsOf(t, f.registry)) != 0 {
		t.Errorf("a claim to another provider ID: got %v, %d records", err, len(recordsOf(t, f.registry)))
	}

	f.nodesErr = errors.New("the API server is away")
	_, err := asked(t, f, answerOf(t, "new", "gce:p/1"))
	if !errors.Is(err, f.nodesErr) || errors.Is(err, attest.CheckMembership) {
		t.Errorf("got %v, want the error of NodeExists and no refusal", err)
	}
}

// A node whose certificate is in no record gets its record by its own request while its name is reserved for
// its machine; no other machine does.
func TestFirstUseOfPlainNodes(t *testing.T) {
	f := newFirstUse(t, Scope{})
	f.nodes["node-1"] = true
	asNode := func(machine attest.Identity) *attest.Result {
		return inventoried(t, answerOf(t, "node-1", machine), csr.RequesterNode, csr.Machine{UID: "uid-1"})
	}
	f.refuse(t, asNode("gce:p/1"), checkRegistryRequester)
	reserve := func() {
		t.Helper()
		testkit.Must(f.registry.Reserve(t.Context(), Claim{NodeName: "node-1", Machine: "gce:p/1", MachineUID: "uid-1"}, f.at.Add(time.Minute)))
	}
	reserve()
	if _, err := asked(t, f, asNode("gce:p/2")); !errors.Is(err, refusal.ErrRetry) {
		t.Errorf("another machine: %v", err)
	}
	f.at = f.at.Add(2 * time.Minute)
	f.refuse(t, asNode("gce:p/1"), checkRegistryRequester)
	reserve()
	f.admit(t, asNode("gce:p/1"))
	if r := f.record(t, "node-1"); r.State != StateBound || r.Machine != "gce:p/1" {
		t.Errorf("recorded %+v", r)
	}
}

func TestFirstUseScope(t *testing.T) {
	ek := func(class string, machine attest.Identity) *attest.Result {
		r := answerOf(t, "node-1", machine)
		r.Road, r.IdentityClass = attest.RoadEK, class
		return r
	}
	f := newFirstUse(t, Scope{Road: attest.RoadEK, IdentityClass: "P-256"})
	f.admit(t, ek("P-256", "ek:sha256:1"))
	f.refuse(t, ek("RSA-2048", "ek:sha256:2"), CheckRegistryScope) // another EK of the same machine
	f.refuse(t, ek("P-256", "gce:p/1"), CheckRegistryScope)
	f.refuse(t, ek("", "ek:sha256:1"), CheckRegistryScope)
	f.refuse(t, answerOf(t, "node-1", "gce:p/1"), CheckRegistryScope) // the other road
	other := ek("P-256", "ek:sha256:1")
	for _, provider := range []string{"other", ""} {
		other.Provider = provider
		f.refuse(t, other, CheckRegistryScope) // the same machine by another kind of evidence
	}

	f = newFirstUse(t, Scope{Road: attest.RoadEK, IdentityClass: "RSA-2048"})
	f.admit(t, ek("RSA-2048", "ek:sha256:2"))

	f = newFirstUse(t, Scope{Road: attest.RoadAK})
	f.refuse(t, answerOf(t, "node-1", "ek:sha256:1"), CheckRegistryScope)
	ak := answerOf(t, "node-1", "ak:sha256:1")
	ak.ManyIdentities = "an issuer that promises nothing"
	if _, err := asked(t, f, ak); !errors.Is(err, CheckRegistryScope) || errors.Is(err, attest.CheckMembership) || csr.Decide(err).Verdict != csr.VerdictRetry {
		t.Errorf("an issuer without the promise, which is not the node's fault: got %v, want a retry", err)
	}
	ak.ManyIdentities = ""
	f.admit(t, ak)
}

// Without a call of CheckAuthorizer, a machine that is to join another cluster is a retry.
func TestFirstUseOfAnotherCluster(t *testing.T) {
	f := newFirstUse(t, Scope{})
	f.admit(t, answerOf(t, "node-1", "gce:p/1")) // "another name" is its first
	registry := testkit.Must(NewMemoryRegistry(Scope{Cluster: "cluster-2"}, RegistryOptions{}))
	f.c.Registry = registry
	for _, stage := range []attest.Stage{attest.StageHello, attest.StageAnswer} {
		r := answerOf(t, "node-1", "gce:p/1")
		r.Stage = stage
		_, err := asked(t, attest.AuthorizerFunc(f.Authorize), r)
		if stage == attest.StageHello {
			_, err = asked(t, f, r)
		}
		if !errors.Is(err, CheckRegistryScope) || csr.Decide(err).Verdict != csr.VerdictRetry {
			t.Errorf("%v: got %v, want a retry", stage, err)
		}
	}
	if n := len(recordsOf(t, registry)); n != 0 {
		t.Errorf("got %d records", n)
	}
}

// stubRegistry answers in place of a registry in one call.
type stubRegistry struct {
	Registry
	reserve func() (*Record, error)
	bind    func() error
	lookup  func() error
}

func (s stubRegistry) Lookup(ctx context.Context, nodeName string) (*Record, error) {
	if s.lookup != nil {
		return nil, s.lookup()
	}
	return s.Registry.Lookup(ctx, nodeName)
}

func (s stubRegistry) Reserve(ctx context.Context, c Claim, deadline time.Time) (*Record, error) {
	if s.reserve != nil {
		return s.reserve()
	}
	return s.Registry.Reserve(ctx, c, deadline)
}

func (s stubRegistry) Bind(ctx context.Context, r *Record, end time.Time, issued *csr.IssuedRecord) (*Record, error) {
	if s.bind != nil {
		return nil, s.bind()
	}
	return s.Registry.Bind(ctx, r, end, issued)
}

// An error of the registry is a retry, and never admits.
func TestFirstUseUndecided(t *testing.T) {
	broken := errors.New("disk full")
	for name, stub := range map[string]stubRegistry{
		"lookup fails":      {lookup: func() error { return broken }},
		"reserve fails":     {reserve: func() (*Record, error) { return nil, broken }},
		"reserved by other": {reserve: func() (*Record, error) { return nil, reservedElsewhere(&Record{}) }},
		"bind conflicts":    {reserve: func() (*Record, error) { return &Record{State: StateReserved, Version: "?"}, nil }},
		"bind fails":        {bind: func() error { return broken }},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFirstUse(t, Scope{})
			stub.Registry = f.registry
			f.c.Registry = stub
			a, err := asked(t, f, answerOf(t, "node-1", "gce:p/1"))
			if a != nil || err == nil || errors.Is(err, attest.CheckMembership) {
				t.Errorf("%s: got %+v, %v, want an error that is no refusal", name, a, err)
			}
			if d := csr.Decide(refusal.Retry(err)); d.Verdict != csr.VerdictRetry {
				t.Errorf("%s: decides %v", name, d.Verdict)
			}
		})
	}
	// The record goes between the look and the write, and a Node comes.
	f := newFirstUse(t, Scope{})
	r := answerOf(t, "node-1", "gce:p/1")
	f.admit(t, r)
	binds := 0
	f.c.Registry = stubRegistry{Registry: f.registry, bind: func() error {
		binds++
		_, err := f.registry.Release(t.Context(), "node-1", "uid-1")
		f.at = f.at.Add(testLifetime + 2*message.MaxAnswerAge + 2*time.Second)
		f.nodes["node-1"] = true
		return errors.Join(err, conflict("a record that was released", "the one that was read"))
	}}
	if _, err := asked(t, f, r); !errors.Is(err, checkRegistryNode) || binds != 1 {
		t.Errorf("got %v after %d calls of Bind, want %s after one", err, binds, checkRegistryNode)
	}
}

func TestNewFirstUse(t *testing.T) {
	m := testkit.Must(NewMemoryRegistry(testScope, RegistryOptions{}))
	good := FirstUseConfig{Registry: m, MaxLifetime: time.Hour, NodeExists: func(context.Context, string) (bool, error) { return false, nil }}
	if _, err := NewFirstUse(good); err != nil {
		t.Error(err)
	}
	for name, change := range map[string]func(c *FirstUseConfig){
		"no registry": func(c *FirstUseConfig) { c.Registry = nil },
		"no nodes":    func(c *FirstUseConfig) { c.NodeExists = nil },
		"no lifetime": func(c *FirstUseConfig) { c.MaxLifetime = 0 },
		"recovery":    func(c *FirstUseConfig) { c.MaxRecoveryLifetime = -1 },
		"scope": func(c *FirstUseConfig) {
			c.Registry = &storeRegistry{scope: Scope{Cluster: testCluster, Road: attest.RoadEK}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := good
			change(&c)
			want := refusal.CheckConfig
			if name == "scope" {
				want = CheckRegistryScope
			}
			if _, err := NewFirstUse(c); !errors.Is(err, want) {
				t.Errorf("%s: got %v, want %v", name, err, want)
			}
		})
	}
	if _, err := NewRegistry(testScope, nil, RegistryOptions{}); !errors.Is(err, refusal.CheckConfig) {
		t.Errorf("no store: got %v", err)
	}
	for _, scope := range []Scope{{}, {Cluster: "\xff"}, {Cluster: strings.Repeat("c", 129)}, {Cluster: testCluster, Road: attest.RoadEK},
		{Cluster: testCluster, Road: attest.RoadEK, IdentityClass: "RSA-1024"}, {Cluster: testCluster, IdentityClass: "P-256"}, {Cluster: testCluster, Road: 7}} {
		if _, err := NewMemoryRegistry(scope, RegistryOptions{}); !errors.Is(err, CheckRegistryScope) {
			t.Errorf("scope %s of cluster %q: got %v", scope, scope.Cluster, err)
		}
	}
}

// Limits of the configuration, at the limit and one over it.
func TestNewFirstUseLimits(t *testing.T) {
	registry := testkit.Must(NewMemoryRegistry(testScope, RegistryOptions{}))
	for name, c := range map[string]struct {
		lifetime, recovery time.Duration
		ok                 bool
	}{
		"shortest lifetime":  {time.Minute, 0, true},
		"shorter lifetime":   {time.Minute - 1, 0, false},
		"nanoseconds":        {24, 0, false},
		"no lifetime":        {0, 0, false},
		"negative lifetime":  {-1, 0, false},
		"longest lifetime":   {90 * 24 * time.Hour, 0, true},
		"longer lifetime":    {90*24*time.Hour + 1, 0, false},
		"shortest recovery":  {time.Hour, time.Minute, true},
		"shorter recovery":   {time.Hour, time.Minute - 1, false},
		"a year of recovery": {time.Hour, 365 * 24 * time.Hour, true},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := NewFirstUse(FirstUseConfig{Registry: registry, MaxLifetime: c.lifetime, MaxRecoveryLifetime: c.recovery,
				NodeExists: func(context.Context, string) (bool, error) { return false, nil }})
			if (err == nil) != c.ok || err != nil && !errors.Is(err, refusal.CheckConfig) {
				t.Errorf("got %v, want accepted %t", err, c.ok)
			}
		})
	}
}

// A machine that was replaced under its name, as a scale set or a rack does it: the name is free once
// the former machine's last certificate has ended and its Node is gone, and until then the refusal
// says who does what. A document's name is free when an operator releases it.
func TestFirstUseAfterTheMachine(t *testing.T) {
	for name, c := range map[string]struct {
		scope Scope
		frees bool
	}{"TPM": {Scope{}, true}, "document": {documentScope, false}} {
		t.Run(name, func(t *testing.T) {
			f := newFirstUse(t, c.scope)
			of := func(machine attest.Identity, uid string, stage attest.Stage) *attest.Result {
				r := inventoried(t, answerOf(t, "node-1", machine), csr.RequesterBootstrap, csr.Machine{Name: "m", UID: uid, ProviderID: "test://" + uid})
				r.Provider, r.Road, r.Stage = cmp.Or(c.scope.Provider, "tpm"), c.scope.Road, stage
				return r
			}
			former := of("test:1", "uid-1", attest.StageAnswer)
			f.admit(t, former)
			end := f.record(t, "node-1").LastEnd
			says := func(want ...string) {
				t.Helper()
				for _, stage := range []attest.Stage{attest.StageHello, attest.StageAnswer} {
					_, err := asked(t, f, of("test:2", "uid-2", stage))
					if !errors.Is(err, attest.CheckMembership) || !errors.Is(err, checkRegistryName) {
						t.Errorf("%s: got %v", stage, err)
					}
					for _, text := range want {
						if !strings.Contains(err.Error(), text) {
							t.Errorf("%s: got %v, want %q in it", stage, err, text)
						}
					}
				}
			}
			const release = "an operator releases node node-1"
			f.nodes["node-1"] = true
			says(release)
			f.at = end.Add(time.Second)
			says(release) // its Node is there
			if f.nodes["node-1"], f.at = false, end; c.frees {
				says(release, "free after "+end.Format(time.RFC3339)) // its last second
			}
			f.at = end.Add(time.Second)
			if !c.frees {
				says(release)
				f.at = f.at.Add(365 * 24 * time.Hour)
				says(release)
				return
			}
			f.nodesErr = errors.New("API server away")
			if _, err := asked(t, f, of("test:2", "uid-2", attest.StageAnswer)); !errors.Is(err, refusal.ErrRetry) {
				t.Errorf("Nodes are not known: got %v", err)
			}
			f.nodesErr = nil
			f.admit(t, of("test:2", "uid-2", attest.StageHello))
			if r := f.record(t, "node-1"); r.Machine != "test:1" {
				t.Errorf("a hello wrote %+v", r)
			}
			f.refuse(t, inventoried(t, of("test:2", "uid-2", attest.StageAnswer), csr.RequesterNode, csr.Machine{UID: "uid-2", ProviderID: "test://uid-2"}), checkRegistryRequester)
			f.admit(t, of("test:2", "uid-2", attest.StageAnswer))
			if r := f.record(t, "node-1"); r.State != StateBound || r.Claim != (Claim{NodeName: "node-1", Machine: "test:2", MachineUID: "uid-2", ProviderID: "test://uid-2"}) {
				t.Errorf("got %+v", r)
			}
			f.refuse(t, former, checkRegistryName) // its turn is over
		})
	}
}

// A machine that comes back before another has taken its name is still the node, whatever has ended.
func TestFirstUseComesBack(t *testing.T) {
	f := newFirstUse(t, Scope{})
	r := answerOf(t, "node-1", "gce:p/1")
	f.admit(t, r)
	f.at = f.at.Add(365 * 24 * time.Hour)
	f.admit(t, r)
	f.refuse(t, answerOf(t, "node-1", "gce:p/2"), checkRegistryName)
}
