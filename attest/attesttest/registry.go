package attesttest

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/membership"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/refusal"
)

// A RegistryMaker makes one new and empty registry with the given clock, and returns one or
// more handles to it, all on the same records: what two replicas of a control plane would
// have. It fails the test itself if it cannot.
type RegistryMaker func(t testing.TB, now func() time.Time) []membership.Registry

// RunRegistry checks an implementation of membership.Registry against the contract documented
// there. Each check is a subtest with a registry of its own, named after what must hold; calls
// go through the handles in turn. What is returned, and what can be looked up afterwards, is
// compared with the rules ([membership.Held]), in memory. It does not see whether records
// survive the end of a process: that needs a test that ends one.
func RunRegistry(t *testing.T, newRegistry RegistryMaker) {
	t.Helper()
	for _, check := range registryChecks {
		t.Run(check.name, func(t *testing.T) {
			if err := check.try(t, newRegistry); err != nil {
				t.Error(err)
			}
		})
	}
}

func (c *registryCheck) try(t testing.TB, newRegistry RegistryMaker) (err error) {
	defer caught(&err)
	r := &registryRun{keys: map[registryKey]bool{}, seen: map[string]twin{}, versions: map[string]string{}}
	r.handles = newRegistry(t, r.now)
	if len(r.handles) == 0 {
		r.failf("no registry was made")
	}
	r.rules = must(membership.NewMemoryRegistry(r.handles[0].Scope(), membership.RegistryOptions{Now: r.now}))
	r.steps(c.steps)
	if c.then != nil {
		c.then(r)
		r.lookUp()
	}
	return nil
}

// twin is a record of the registry under test, and the same record as the rules have it.
type twin [2]*membership.Record

// registryRun is one check under way.
type registryRun struct {
	handles []membership.Registry
	rules   membership.Registry // in memory
	turn    int
	keys    map[registryKey]bool // what was named, to be looked up
	seen    map[string]twin      // by their labels in the steps
	// versions maps the versions that the rules have to those that the registry has given.
	versions map[string]string

	passed atomic.Int64 // nanoseconds since the clock began
}

func (r *registryRun) now() time.Time {
	return time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC).Add(time.Duration(r.passed.Load()))
}

// in is the time that far from now.
func (r *registryRun) in(d time.Duration) time.Time { return r.now().Add(d) }

// next is the handle whose turn it is.
func (r *registryRun) next() membership.Registry {
	r.turn++
	return r.handles[r.turn%len(r.handles)]
}

// failf ends a check at its first fault.
func (r *registryRun) failf(format string, args ...any) {
	panic(failure{fmt.Errorf(format, args...)})
}

// registryCall is a call of the registry under test or, for side 1, of the rules.
type registryCall func(registry membership.Registry, side int) (*membership.Record, error)

// do makes a call of the registry and of the rules, which must be refused by a check, or
// succeed if want is nil. Both must agree, in their results and when everything is looked up.
// Which error a bad argument gives does not matter.
func (r *registryRun) do(what string, want error, call registryCall) (out twin) {
	var errs [2]error
	for side, registry := range []membership.Registry{r.next(), r.rules} {
		out[side], errs[side] = call(registry, side)
	}
	got, ruled := errs[0], errs[1]
	whatever := errors.Is(want, errAny) || errors.Is(want, attest.Check("registry-claim"))
	if errors.Is(want, errAny) && ruled != nil {
		want = ruled
	}
	switch {
	case !errors.Is(ruled, want):
		r.failf("%s: the rules say %v, want %v", what, ruled, want)
	case (got == nil) != (ruled == nil):
		r.failf("%s: got error %v, want %v", what, got, ruled)
	case want == nil:
		r.same(what, out)
	case !whatever && !errors.Is(got, want), errors.Is(got, refusal.ErrRetry) != errors.Is(ruled, refusal.ErrRetry):
		r.failf("%s: got error %v, to be tried again: %t; want %v", what, got, errors.Is(got, refusal.ErrRetry), ruled)
	}
	r.lookUp()
	return out
}

// same compares a record with that of the rules. A change that has a new version there must
// have one here that was never given before, and no other change may have one.
func (r *registryRun) same(what string, record twin) {
	got, ruled := record[0], record[1]
	if got == nil || ruled == nil {
		if got != ruled {
			r.failf("%s: got %+v, want %+v", what, got, ruled)
		}
		return
	}
	if _, known := r.versions[ruled.Version]; !known {
		if got.Version == "" || slices.Contains(slices.Collect(maps.Values(r.versions)), got.Version) {
			r.failf("%s: got version %q, want one that was not given before", what, got.Version)
		}
		r.versions[ruled.Version] = got.Version
	}
	want := *ruled
	want.Version = r.versions[ruled.Version]
	if !gocmp.Equal(got, &want) {
		r.failf("%s: got another record:\n%s", what, gocmp.Diff(&want, got))
	}
}

// registryKey is what records are looked up by.
type registryKey struct{ by, key string }

func (k registryKey) find(ctx context.Context, registry membership.Registry) (*membership.Record, error) {
	switch k.by {
	case "name":
		return registry.Lookup(ctx, k.key)
	case "machine":
		return registry.LookupMachine(ctx, attest.Identity(k.key))
	}
	return registry.LookupMachineUID(ctx, k.key)
}

// lookUp compares the list and everything that can be looked up, through every handle.
func (r *registryRun) lookUp() {
	ruled := r.list(r.rules)
	for _, h := range r.handles {
		got := r.list(h)
		for name := range ruled {
			r.same("node "+name+" in a list", twin{got[name], ruled[name]})
			delete(got, name)
		}
		if len(got) > 0 {
			r.failf("a list: got %d records that do not count", len(got))
		}
	}
	for key := range r.keys {
		ruled, _ := key.find(context.Background(), r.rules)
		for _, h := range r.handles {
			what := fmt.Sprintf("a look-up by %s %q", key.by, key.key)
			got, err := key.find(context.Background(), h)
			if err != nil {
				r.failf("%s: got error %v", what, err)
			}
			r.same(what, twin{got, ruled})
		}
	}
}

// registryClaim is the claim of a machine to a node.
func registryClaim(node, machine string) membership.Claim {
	return membership.Claim{
		NodeName:   "node-" + node,
		Machine:    attest.Identity("test:" + machine),
		MachineUID: "uid-of-node-" + node,
		ProviderID: "test://node-" + node,
	}
}

// registryStep is one step of a check:
//
//	reserve 1 2       node-1 for machine test:2, for a minute
//	join 1 2          the same, and bind
//	bind a 1h         the record that was labelled a, with its last end from now; without
//	                  one with none. None is labelled nil
//	rebind a 2        to test:2
//	adopt a           the UID
//	release 1         node-1
//	name 1            look it up, or by its "machine" or "uid"
//	first 1           begin a list
//	wait 1m
//	stale a           bind, rebind and adopt, all refused: a is not the record of now
//
// A step that begins with "a=" labels what it returns. "node=", "machine=", "uid=" and "pid="
// replace what a claim has by default, "for=" the minute. "cert=1" makes bind record the
// certificate 1 of the claim, until the last end or what "ends=" says; "request=1" sets the
// request that the certificate is for, "nodeuid=" its Node UID, and "with=1" that it was filed with
// the certificate 1. "!name" says that the step is refused by the check registry-name, "!any" that
// it is refused somehow.
type registryStep struct {
	label, op string
	args      []string
	set       map[string]string
	want      error // nil if it succeeds
}

// errAny stands for a refusal by any error.
var errAny = errors.New("any error")

func parseRegistryStep(text string) *registryStep {
	words := strings.Fields(text)
	s := &registryStep{op: words[0], set: map[string]string{}}
	if label, op, labelled := strings.Cut(words[0], "="); labelled {
		s.label, s.op = label, op
	}
	for _, w := range words[1:] {
		name, value, isSet := strings.Cut(w, "=")
		switch check, refused := strings.CutPrefix(w, "!"); {
		case w == "!any":
			s.want = errAny
		case refused:
			s.want = attest.Check("registry-" + check)
		case isSet:
			s.set[name] = value
		default:
			s.args = append(s.args, w)
		}
	}
	return s
}

// steps runs the steps in text, one after the other.
func (r *registryRun) steps(text string) {
	for step := range strings.FieldsFuncSeq(text, func(c rune) bool { return c == ';' || c == '\n' }) {
		switch s := parseRegistryStep(step); s.op {
		case "wait":
			r.passed.Add(int64(duration(s.args[0])))
			r.lookUp()
		case "stale":
			a := s.args[0]
			r.steps(fmt.Sprintf("bind %s !conflict; bind %s 1h !conflict; rebind %s spare !conflict; adopt %s uid=spare !conflict", a, a, a, a))
		case "join":
			_, claim, _ := strings.Cut(step, "join")
			r.steps("joined=reserve" + claim + ";" + s.label + "=bind joined")
		default:
			r.seen[s.label] = r.do(step, s.want, r.call(context.Background(), s))
		}
	}
}

// call is one call of a registry, about a record as the registry or the rules have it.
func (r *registryRun) call(ctx context.Context, s *registryStep) registryCall {
	seen, c := r.seen[s.args[0]], registryClaim(s.args[0], s.args[len(s.args)-1])
	switch {
	case seen[1] != nil && s.op == "bind":
		c = seen[1].Claim
	case seen[1] != nil:
		c.NodeName = seen[1].NodeName
	}
	for name, field := range map[string]*string{"node": &c.NodeName, "machine": (*string)(&c.Machine), "uid": &c.MachineUID, "pid": &c.ProviderID} {
		if value, set := s.set[name]; set {
			*field = value
		}
	}
	keys := []registryKey{{"name", c.NodeName}, {"machine", string(c.Machine)}, {"uid", c.MachineUID}}
	if c.Check() == nil {
		for _, key := range keys {
			r.keys[key] = true
		}
	}
	deadline := r.in(duration(cmp.Or(s.set["for"], "1m")))
	var lastEnd time.Time
	if s.op == "bind" && len(s.args) > 1 {
		lastEnd = r.in(duration(s.args[1]))
	}
	issued := s.issued(&c, lastEnd, r.now())
	var released [2]bool
	return func(registry membership.Registry, side int) (*membership.Record, error) {
		switch s.op {
		case "reserve":
			claim := c
			if label, set := s.set["over"]; set {
				claim.Over = r.seen[label][side].Version
			}
			return registry.Reserve(ctx, claim, deadline)
		case "bind":
			return registry.Bind(ctx, seen[side], lastEnd, issued)
		case "rebind":
			return registry.Rebind(ctx, seen[side], c.Machine)
		case "adopt":
			return registry.Adopt(ctx, seen[side], c.MachineUID)
		case "release":
			var err error
			released[side], err = registry.Release(ctx, c.NodeName, c.MachineUID)
			if side == 1 && released[0] != released[1] {
				r.failf("Release of node %s: got released %t, want %t", c.NodeName, released[0], released[1])
			}
			return nil, err
		case "first":
			return first(ctx, registry)
		}
		n := slices.IndexFunc(keys, func(k registryKey) bool { return k.by == s.op })
		return keys[n].find(ctx, registry)
	}
}

// issued is the record that a step gives to bind, or nil if it gives none.
func (s *registryStep) issued(c *membership.Claim, lastEnd, now time.Time) *csr.IssuedRecord {
	n := s.set["cert"] + s.set["request"]
	if n == "" {
		return nil
	}
	issued := &csr.IssuedRecord{NodeName: c.NodeName, SignerName: csr.SignerClientTPM, Machine: string(c.Machine), MachineUID: c.MachineUID,
		NodeUID: s.set["nodeuid"], ProviderID: c.ProviderID, RequestUID: "request-" + n, KeyResidence: "Software", SPKIHash: sha256.Sum256([]byte(n)), NotAfter: lastEnd}
	if s.set["ends"] != "" {
		issued.NotAfter = now.Add(duration(s.set["ends"]))
	}
	credentialID := func(cert string) string {
		digest := sha256.Sum256([]byte(cert))
		return "X509SHA256=" + hex.EncodeToString(digest[:])
	}
	if s.set["cert"] != "" {
		issued.CredentialID, issued.NotBefore = credentialID(n), now
	}
	if s.set["with"] != "" {
		issued.FiledWith = credentialID(s.set["with"])
	}
	return issued
}

func duration(s string) time.Duration { return must(time.ParseDuration(s)) }
