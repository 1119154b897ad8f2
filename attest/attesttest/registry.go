package attesttest

import (
	"cmp"
	"context"
	"crypto/sha256"
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

// A RegistryMaker makes a new and empty registry with the given clock, and returns one or more
// handles to it, like those of several replicas of a control plane. It fails the test itself if it
// cannot.
type RegistryMaker func(t testing.TB, now func() time.Time) []membership.Registry

// RunRegistry checks an implementation of membership.Registry against the contract documented
// there. Each check is a subtest with a registry of its own, named after the rule; calls go through
// the handles in turn. Every call is made of a reference registry in memory as well: results, and
// all records that can be looked up afterwards, must be the same. A failure names the call, and lists
// the steps of the check. Whether records survive the end of a process is not checked: that needs a
// test that ends one.
func RunRegistry(t *testing.T, newRegistry RegistryMaker) {
	t.Helper()
	for _, check := range registryChecks {
		t.Run(check.name, func(t *testing.T) {
			if err := check.try(t, newRegistry); err != nil {
				t.Errorf("%v\nThe steps of this check, as registryStep documents them: %s", err, cmp.Or(check.steps, "none"))
			}
		})
	}
}

func (c *registryCheck) try(t testing.TB, newRegistry RegistryMaker) (err error) {
	defer caught(&err)
	r := &registryRun{keys: map[registryKey]bool{}, records: map[string]recordPair{}, versions: map[string]string{}}
	r.handles = newRegistry(t, r.now)
	if len(r.handles) == 0 {
		r.failf("no registry was made")
	}
	r.reference = must(membership.NewMemoryRegistry(r.handles[0].Scope(), membership.RegistryOptions{Now: r.now}))
	r.steps(c.steps)
	if c.then != nil {
		c.then(r)
		r.compareAll()
	}
	return nil
}

// recordPair is a record of the registry under test, and the same one of the reference registry.
type recordPair [2]*membership.Record

// The two registries that each call is made of, as indexes of a recordPair.
const (
	tested = iota
	reference
)

// registryRun is one check under way.
type registryRun struct {
	handles   []membership.Registry // of the registry under test
	reference membership.Registry   // in memory
	turn      int
	keys      map[registryKey]bool  // names, machines and UIDs of all steps so far
	records   map[string]recordPair // by their labels in the steps
	versions  map[string]string     // of the registry under test, by those of the reference

	passed atomic.Int64 // nanoseconds since the clock began
}

func (r *registryRun) now() time.Time {
	return time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC).Add(time.Duration(r.passed.Load()))
}

// in returns now + d.
func (r *registryRun) in(d time.Duration) time.Time { return r.now().Add(d) }

// next returns the handle for the next call.
func (r *registryRun) next() membership.Registry {
	r.turn++
	return r.handles[r.turn%len(r.handles)]
}

// failf ends the check with an error.
func (r *registryRun) failf(format string, args ...any) {
	panic(failure{fmt.Errorf(format, args...)})
}

// registryCall is a call of one of the two registries, tested or reference.
type registryCall func(registry membership.Registry, side int) (*membership.Record, error)

// do makes a call of both registries. want is the check that must refuse it, nil for success. Results,
// and all records afterwards, must be the same, except for the error of a bad argument.
func (r *registryRun) do(what string, want error, call registryCall) (out recordPair) {
	var errs [2]error
	for side, registry := range []membership.Registry{r.next(), r.reference} {
		out[side], errs[side] = call(registry, side)
	}
	got, ruled := errs[tested], errs[reference]
	badArgument := errors.Is(want, errAny) || errors.Is(want, attest.Check("registry-claim"))
	if errors.Is(want, errAny) && ruled != nil {
		want = ruled
	}
	retry := errors.Is(got, refusal.ErrRetry)
	switch {
	case !errors.Is(ruled, want):
		r.failf("%s: the reference registry returned error %v, want %v: a fault of this check", what, ruled, want)
	case (got == nil) != (ruled == nil):
		r.failf("%s: got error %v, want %v", what, got, ruled)
	case want == nil:
		r.same(what, out)
	case !badArgument && !errors.Is(got, want), retry != errors.Is(ruled, refusal.ErrRetry):
		r.failf("%s: got error %v (wraps refusal.ErrRetry: %t), want %v (%t)", what, got, retry, ruled, !retry)
	}
	r.compareAll()
	return out
}

// same compares a record with the reference. Versions differ: where the reference has a new one, the
// registry must have one that it never gave before, and nowhere else.
func (r *registryRun) same(what string, record recordPair) {
	got, ruled := record[tested], record[reference]
	if got == nil || ruled == nil {
		if got != ruled {
			r.failf("%s: got record %+v, want %+v", what, got, ruled)
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
		r.failf("%s: got another record (- want, + got):\n%s", what, gocmp.Diff(&want, got))
	}
}

// registryKey is a key of a look-up, by name, machine or uid.
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

// compareAll compares all records of the two registries, in a list and by each known key, through
// every handle.
func (r *registryRun) compareAll() {
	ruled := r.list(r.reference)
	for _, h := range r.handles {
		got := r.list(h)
		for name := range ruled {
			r.same("node "+name+" in Records", recordPair{got[name], ruled[name]})
			delete(got, name)
		}
		if len(got) > 0 {
			r.failf("Records: got %d records too many", len(got))
		}
	}
	for key := range r.keys {
		ruled, _ := key.find(context.Background(), r.reference)
		for _, h := range r.handles {
			what := fmt.Sprintf("look-up by %s %q", key.by, key.key)
			got, err := key.find(context.Background(), h)
			if err != nil {
				r.failf("%s: got error %v", what, err)
			}
			r.same(what, recordPair{got, ruled})
		}
	}
}

// registryClaim returns the claim of machine "test:<machine>" to "node-<node>".
func registryClaim(node, machine string) membership.Claim {
	return membership.Claim{
		NodeName:   "node-" + node,
		Machine:    attest.Identity("test:" + machine),
		MachineUID: "uid-of-node-" + node,
		ProviderID: "test://node-" + node,
	}
}

// registryStep is one call in the text of a check. The text is "operation arguments options", for
// example "b=bind a 1h cert=1 !conflict": call Bind for the record labelled a, with a last end in one
// hour and the record of certificate 1. It must be refused by registry-conflict. The result is b.
//
//	reserve 1 2       Reserve node-1 for machine test:2, with a deadline in one minute
//	bind a 1h         Bind record a, with a last end in one hour; without a time, with none
//	rebind a 2        Rebind record a to machine test:2
//	adopt a           Adopt another Machine UID for record a
//	release 1         Release node-1
//	name 1            Lookup node-1; "machine 1" is LookupMachine, "uid 1" LookupMachineUID
//	first 1           read the first record of Records
//	join 1 2          reserve 1 2, then bind the result
//	stale a           bind, rebind and adopt record a, which are all refused by registry-conflict
//	wait 1m           move the clock
//
// Options of a claim are node=, machine=, uid=, pid= (provider ID), over= (a label) and, for the
// deadline, for=. Options of bind are cert=, the number of a certificate to record, or request=, that
// of a request; ends=, its end instead of the last end; with=, the certificate that the request was
// filed with; and nodeuid=. "!name" expects a refusal by registry-name, "!any" any error. "nil" is a
// record that is nil.
type registryStep struct {
	text  string
	label string // of the result
	op    string
	args  []string
	set   map[string]string
	want  error // nil if it succeeds
}

// errAny as the wanted error accepts any error.
var errAny = errors.New("any error")

func parseRegistryStep(text string) *registryStep {
	words := strings.Fields(text)
	s := &registryStep{text: strings.TrimSpace(text), op: words[0], set: map[string]string{}}
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

// steps runs the steps in a text, separated by semicolons or line feeds.
func (r *registryRun) steps(text string) {
	for step := range strings.FieldsFuncSeq(text, func(c rune) bool { return c == ';' || c == '\n' }) {
		switch s := parseRegistryStep(step); s.op {
		case "wait":
			r.passed.Add(int64(duration(s.args[0])))
			r.compareAll()
		case "stale":
			a := s.args[0]
			r.steps(fmt.Sprintf("bind %s !conflict; bind %s 1h !conflict; rebind %s spare !conflict; adopt %s uid=spare !conflict", a, a, a, a))
		case "join":
			_, claim, _ := strings.Cut(step, "join")
			r.steps("joined=reserve" + claim + ";" + s.label + "=bind joined")
		default:
			what, call := r.call(context.Background(), s)
			r.records[s.label] = r.do(what, s.want, call)
		}
	}
}

// call returns the call of a step, and its description for errors.
func (r *registryRun) call(ctx context.Context, s *registryStep) (what string, call registryCall) {
	of, c := r.records[s.args[0]], registryClaim(s.args[0], s.args[len(s.args)-1])
	switch {
	case of[reference] != nil && s.op == "bind":
		c = of[reference].Claim
	case of[reference] != nil:
		c.NodeName = of[reference].NodeName
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
	what = fmt.Sprintf("step %q, about node %q, machine %q, UID %q", s.text, c.NodeName, c.Machine, c.MachineUID)
	return what, func(registry membership.Registry, side int) (*membership.Record, error) {
		switch s.op {
		case "reserve":
			claim := c
			if label, set := s.set["over"]; set {
				claim.Over = r.records[label][side].Version
			}
			return registry.Reserve(ctx, claim, deadline)
		case "bind":
			return registry.Bind(ctx, of[side], lastEnd, issued)
		case "rebind":
			return registry.Rebind(ctx, of[side], c.Machine)
		case "adopt":
			return registry.Adopt(ctx, of[side], c.MachineUID)
		case "release":
			var err error
			released[side], err = registry.Release(ctx, c.NodeName, c.MachineUID)
			if side == reference && released[tested] != released[reference] {
				r.failf("%s: got released %t, want %t", what, released[tested], released[reference])
			}
			return nil, err
		case "first":
			return first(ctx, registry)
		}
		n := slices.IndexFunc(keys, func(k registryKey) bool { return k.by == s.op })
		return keys[n].find(ctx, registry)
	}
}

// issued returns the record of a certificate or request for Bind; nil for none.
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
	credentialID := func(cert string) string { return fmt.Sprintf("X509SHA256=%x", sha256.Sum256([]byte(cert))) }
	if s.set["cert"] != "" {
		issued.CredentialID, issued.NotBefore = credentialID(n), now
	}
	if s.set["with"] != "" {
		issued.FiledWith = credentialID(s.set["with"])
	}
	return issued
}

func duration(s string) time.Duration { return must(time.ParseDuration(s)) }
