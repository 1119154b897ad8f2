package attesttest

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/membership"
	"github.com/nodeattest/nodeattest/internal/message"
	"github.com/nodeattest/nodeattest/recovered"
	"github.com/nodeattest/nodeattest/refusal"
)

// longUID is one byte longer than a Machine UID may be.
var longUID = strings.Repeat("u", 254)

// manyCertificates returns steps that issue more certificates than a record holds. The one that ends
// first is in the middle.
func manyCertificates() (steps string) {
	for i := range membership.MaxIssued + 1 {
		steps += fmt.Sprintf("; a=bind a 24h cert=%d ends=%dm", i, 100+(i+membership.MaxIssued/2)%membership.MaxIssued)
	}
	return steps
}

// certificateInUse returns steps that issue more certificates than a record holds, to a node that keeps
// using its first one, which ends first. They are requested with that one, with bootstrap tokens, and
// each with the one before it.
func certificateInUse() (steps string) {
	for i := range 2 * membership.MaxIssued {
		steps += fmt.Sprintf("; wait 1s; a=bind a 24h cert=%d with=used", i)
	}
	for i := range membership.MaxIssued {
		steps += fmt.Sprintf("; wait 1s; a=bind a 24h cert=token-%d", i)
	}
	for i := range membership.MaxIssued {
		steps += fmt.Sprintf("; wait 1s; a=bind a 24h cert=link-%d with=link-%d", i+1, i)
	}
	for i := range membership.MaxIssued {
		steps += fmt.Sprintf("; wait 1s; a=bind a 24h cert=again-%d with=link-1", i)
	}
	return steps
}

// registryCheck is one rule: steps, and a function that runs after them.
type registryCheck struct {
	name, steps string
	then        func(*registryRun)
}

// registryChecks are the checks of RunRegistry. The names are stable.
var registryChecks = []registryCheck{
	{"an empty registry has no records", "name 1; machine 1; uid 1", checkRegistryScope},
	{"a claim is reserved, then bound", "a=reserve 1 1; b=bind a; bind b; join 2 2", nil},
	{"a second machine does not get the name", "join 1 1; reserve 1 2 !name; join 2 2", nil},
	// At once, because a refused claim reserves nothing.
	{"a second name is not given to a machine", "join 1 1; reserve 2 1 !machine; join 2 2", nil},
	// The loser is free to take another name.
	{"a reservation holds until its deadline", `a=reserve 1 1; reserve 1 2 !reserved; reserve 2 1 !reserved; wait 59s; reserve 1 2 !reserved
		wait 1s; b=reserve 1 2; stale a; reserve 1 1 !reserved; bind b; join 3 1`, nil},
	{"a machine is free at the deadline", "a=reserve 1 1; wait 1m; b=reserve 2 1; stale a; bind b; join 1 2", nil},
	// The second wait is past the first deadline.
	{"the same pair reserves again at once", "a=reserve 1 1; wait 50s; b=reserve 1 1; stale a; wait 50s; reserve 1 2 !reserved; bind b", nil},
	{"a reservation cannot be bound after its deadline", `a=reserve 1 1
		rebind a spare !conflict; adopt a uid=spare !conflict; wait 1m; stale a; join 1 1`, nil},
	{"a bound record stays, and the same pair passes", "join 1 1; wait 87600h; reserve 1 2 !name; reserve 1 1", nil},
	{"a record is of one Machine UID", `a=reserve 1 1; reserve 1 1 uid=other !machine-uid; bind a
		reserve 1 1 uid=other !machine-uid; reserve 1 1 uid= !machine-uid`, nil},
	{"a record is of one provider ID", `a=reserve 1 1; reserve 1 1 pid=other !provider-id; bind a
		reserve 1 1 pid=other !provider-id; reserve 1 1 pid= !provider-id
		b=join 2 2 pid=; bind b 1h; reserve 2 2 pid=; reserve 2 2`, nil},
	{"the provider ID of a machine of Azure has no case", `a=reserve 1 1 pid=azure:///A; bind a; reserve 1 1 pid=azure:///a; reserve 1 1 pid=azure:///b !provider-id
		join 2 2 pid=test:///A; reserve 2 2 pid=test:///a !provider-id`, nil},
	// Over is that version alone, whose last certificate has ended.
	{"a record that is over makes room for another machine", `a=join 1 1; b=bind a 1h cert=1 ends=1h; reserve 1 2 over=b !name; wait 1h; reserve 1 2 over=b !name; wait 1s
		reserve 1 2 !name; reserve 1 2 over=a !name; c=reserve 1 2 over=b; stale b; reserve 1 3 over=b !reserved; bind c; join 2 1`, nil},
	{"a record that is over makes room for another Machine", `a=join 1 1; b=bind a 1h; wait 1h1s; reserve 1 1 uid=new pid=test://new !machine-uid
		c=reserve 1 1 uid=new pid=test://new over=b; bind c`, nil},
	{"a record without certificates is never over", "a=join 1 1; wait 87600h; reserve 1 2 over=a !name", nil},
	{"a machine of another name is not free because that record is over", `a=join 1 1; b=bind a 1h; join 2 2; wait 1h1s; reserve 1 2 over=b !machine
		reserve 2 1 over=b !name; reserve 3 1 over=b !machine; reserve 1 3 over=b`, nil},
	{"a name that rests or is reserved is not over", `a=join 1 1; b=bind a 1h; release 1; reserve 1 2 over=b !resting; wait 1h1s; join 1 2; d=reserve 2 3; reserve 2 4 over=d !reserved`, nil},
	{"the last end is raised and never lowered", "a=join 1 1; b=bind a 24h; stale a; bind b 23h; bind b 24h0m0.000000001s; reserve 1 1", nil},
	{"a name is bound with its last end", `a=reserve 1 1; bind a 1h; release 1; wait 1h; reserve 1 2 !resting; wait 1s; join 1 2`, nil},
	{"certificates are recorded when a name is bound", `a=reserve 1 1; b=bind a 2h cert=1; stale a; bind b cert=1 ends=2h; wait 1h
		c=bind b cert=2 ends=30m; stale b; bind c cert=1 ends=1h; wait 30m1s; d=bind c cert=3 ends=1m; release 1; stale d`, nil},
	{"a request is recorded until its certificate is", `a=reserve 1 1; b=bind a 2h request=1; wait 1m; bind b request=1 ends=1h; c=bind b cert=1 ends=1h
		stale b; bind c request=1 ends=1h; bind c request=2 ends=1h`, nil},
	{"a certificate gets its Node's UID once", `a=reserve 1 1; b=bind a 2h cert=1; c=bind b cert=1 ends=2h nodeuid=n; stale b
		bind c cert=1 ends=2h nodeuid=m; bind c cert=1 ends=2h`, nil},
	{"a certificate is of the record and ends by its last end", `a=reserve 1 1; bind a 1h cert=1 ends=1h0m1s !claim; b=bind a 1h
		bind b cert=1 ends=1h0m1s !claim; bind b cert=1 !claim; bind b 1h cert=1 node=node-2 !claim
		bind b 1h cert=1 machine=test:2 !claim; bind b 1h cert=1 uid=other !claim; bind b cert=1 ends=1h`, nil},
	{"certificates go with their machine", `a=reserve 1 1; b=bind a 1h cert=1; c=adopt b uid=moved; d=rebind c 2; bind d 1h cert=1`, nil},
	{"a record has so many certificates", "a=join 1 1" + manyCertificates(), nil},
	{"the certificate in use stays", "a=join 1 1; a=bind a 2h cert=used" + certificateInUse(), nil},
	{"of two changes to one version one succeeds", "a=join 1 1", checkRegistrySwap},
	{"what had no certificate is free when released", `reserve 1 1; release 1; join 1 2; release 1
		a=join 1 3; bind a 1h; wait 1h0m1s; release 1; join 1 1`, nil},
	// The machine is free at once, the name after the last second of its last certificate.
	{"a name rests until its last certificate has expired", `a=join 1 1; bind a 1h; release 1; reserve 1 1 !resting; reserve 1 2 !resting
		join 2 1; wait 1h; reserve 1 3 !resting; b=name 1; bind b !conflict; bind b 1h !conflict; rebind b spare !conflict; wait 1s; stale b; join 1 3`, nil},
	// Even if it is released twice, it rests.
	{"release is of one Machine UID", `a=join 1 1; bind a 1h; release 1 uid=other; release 1 uid=; release 2 uid=uid-of-node-1
		release 1; release 1; reserve 1 1 !resting; join 3 3 uid=; release 3 uid=uid-of-node-3; release 3 uid=`, nil},
	{"a record that was released changes nothing", "a=join 1 1; b=bind a 1h; c=reserve 2 2; release 1; release 2; stale b; stale c", nil},
	{"a version is never given again", strings.Repeat("a=reserve 1 1; b=bind a; release 1; c=reserve 1 1; stale b; stale a; release 1\n", 5), nil},
	{"rebind replaces the machine and nothing else", `a=join 1 1; b=bind a 1h; c=rebind b 2; stale b; reserve 1 1 !name; reserve 2 2 !machine
		join 3 1; rebind c 2`, nil},
	{"rebind refuses a machine of another name", `a=join 1 1; join 2 2; reserve 3 3; rebind a 2 !machine; rebind a 3 !reserved
		wait 1m; rebind a 3`, nil},
	// Anyone who has a copy of a Machine's bootstrap data gets no second name with another
	// machine. Two Machines without a UID are two.
	{"a second name is not given to a Machine UID", `a=reserve 1 1; reserve 2 2 uid=uid-of-node-1 !reserved; bind a
		reserve 2 2 uid=uid-of-node-1 !machine-uid; join 2 2; join 3 3 uid=; join 4 4 uid=
		reserve 5 5; wait 1m; join 6 6 uid=uid-of-node-5`, nil},
	// The Machine is gone, so no claim can have its UID.
	{"a Machine UID is not used again while its name rests", `a=join 1 1; bind a 1h; release 1; reserve 2 1 uid=uid-of-node-1 !machine-uid
		wait 1h0m1s; join 2 1 uid=uid-of-node-1`, nil},
	// The Machine that it was moved from can go.
	{"adopt takes another Machine UID and nothing else", `a=join 1 1; b=bind a 1h; c=adopt b uid=moved; stale b; reserve 1 1 !machine-uid
		release 1; adopt c uid=moved; adopt c uid= !claim`, nil},
	{"adopt refuses the Machine UID of another name", `a=join 1 1; join 2 2; c=reserve 3 3
		adopt a uid=uid-of-node-2 !machine-uid; adopt a uid=uid-of-node-3 !reserved; adopt c uid=own !conflict`, nil},
	{"adopt takes back a machine whose name rests", `a=join 1 1; bind a 1h; release 1; b=name 1; adopt b uid=uid-of-node-1 !machine-uid; c=adopt b uid=back; stale b
		reserve 1 1 !machine-uid; reserve 1 2 !name; reserve 2 1 !machine; reserve 2 2 uid=back !machine-uid; bind c 30m; release 1 uid=back
		reserve 1 1 !resting; wait 1h; d=name 1; wait 1s; stale d; join 1 2`, nil},
	{"adopt takes back no machine that has another name", `a=join 1 1; bind a 1h; release 1; b=name 1; c=reserve 2 1; adopt b uid=back !reserved; bind c
		adopt b uid=back !machine; join 3 3; adopt b uid=uid-of-node-3 !any; adopt b uid= !claim`, nil},
	{"returned records are copies", "a=join 1 1", checkRegistryCopies},
	{"bad arguments are errors", `reserve 1 1 node= !claim; reserve 1 1 node=Node_1 !claim
		reserve 1 1 machine= !claim; reserve 1 1 machine=1 !claim; reserve 1 1 machine=:1 !claim; reserve 1 1 machine=test: !claim
		reserve 1 1 machine=test:` + "1\x00 !claim; reserve 1 1 pid=test://\x00 !claim; reserve 1 1 uid=\xff !claim" + `
		reserve 1 1 machine=test:` + strings.Repeat("1", message.MaxIdentitySize) + ` !claim; reserve 1 1 uid=` + longUID + ` !claim
		reserve 1 1 for=-1s !claim; reserve 1 1 for=0s !claim; reserve 1 1 for=1h0m1s !claim
		a=join 1 1; adopt a uid= !claim; adopt a uid=` + longUID + ` !claim; rebind a machine=1 !claim; uid 9 uid=
		bind nil !any; bind nil 1m !any; rebind nil 2 !any; adopt nil uid=2 !any`, nil},
	{"a context that is over changes nothing", "a=join 1 1", checkRegistryContext},
	{"a list is whole while it is written to", "", checkRegistryList},
	{"one machine wins a race for a name", "", raceFor("name", "node=node-all")},
	{"one name wins a race for a machine", "", raceFor("machine", "machine=test:all")},
	{"one name wins a race for a Machine UID", "", raceFor("machine-uid", "uid=uid-of-all")},
}

func checkRegistryScope(r *registryRun) {
	for _, h := range r.handles {
		if h.Scope() != r.reference.Scope() {
			r.failf("Scope: got %s and %s through two handles", r.reference.Scope(), h.Scope())
		}
	}
}

func checkRegistryCopies(r *registryRun) {
	*r.records["a"][tested] = membership.Record{}
	for _, h := range r.handles {
		for _, record := range r.list(h) {
			*record = membership.Record{}
		}
		for key := range r.keys {
			if got := must(key.find(context.Background(), h)); got != nil {
				*got = membership.Record{}
			}
		}
	}
}

func checkRegistryContext(r *registryRun) {
	over, cancel := context.WithCancel(context.Background())
	cancel()
	for _, step := range []string{"reserve 2 2", "bind a", "bind a 1h", "rebind a 2", "adopt a uid=2", "release 1", "name 1", "machine 1", "uid 1", "first 1"} {
		what, call := r.call(over, parseRegistryStep(step))
		r.do(what+", with a context that is over", context.Canceled, call)
	}
}

// list returns all Records of a registry, by node name.
func (r *registryRun) list(registry membership.Registry) map[string]*membership.Record {
	all := map[string]*membership.Record{}
	for record, err := range registry.Records(context.Background()) {
		switch {
		case err != nil:
			r.failf("Records: got error %v", err)
		case record == nil:
			r.failf("Records: got nil without an error")
		case all[record.NodeName] != nil:
			r.failf("Records: got node %s twice", record.NodeName)
		}
		all[record.NodeName] = record
	}
	return all
}

// first returns the first of Records.
func first(ctx context.Context, registry membership.Registry) (*membership.Record, error) {
	for record, err := range registry.Records(ctx) {
		return record, err
	}
	return nil, nil
}

// checkRegistryList lists many records while another goroutine writes, and then releases each inside
// the loop.
func checkRegistryList(r *registryRun) {
	const many = 300
	ctx, h := context.Background(), r.next()
	for i := range many {
		c := registryClaim(strconv.Itoa(i), strconv.Itoa(i))
		for _, registry := range []membership.Registry{h, r.reference} {
			must(registry.Reserve(ctx, c, r.in(time.Minute)))
		}
	}
	fault := recovered.Go(func() error {
		var faults []error
		for i := range registryRacers {
			c := registryClaim("x"+strconv.Itoa(i), "x"+strconv.Itoa(i))
			_, err := h.Reserve(ctx, c, r.in(time.Minute))
			_, failed := h.Release(ctx, c.NodeName, c.MachineUID)
			faults = append(faults, err, failed)
		}
		return errors.Join(faults...)
	})
	for i, handle := range r.handles {
		all := r.list(handle)
		for i := range many {
			if all["node-"+strconv.Itoa(i)] == nil {
				r.failf("Records while others write: got no node-%d", i)
			}
		}
		if got, err := first(ctx, handle); got == nil || err != nil {
			r.failf("Records, stopped after one: got %v, %v through handle %d", got, err, i)
		}
	}
	if err := <-fault; err != nil {
		r.failf("a write during Records: got error %v", err)
	}
	for _, registry := range []membership.Registry{h, r.reference} {
		for record, err := range registry.Records(ctx) {
			if err != nil || !must(registry.Release(ctx, record.NodeName, record.MachineUID)) {
				r.failf("Release of each of Records: got error %v, or nothing released", err)
			}
		}
	}
}

const registryRacers = 16

// race makes many calls at once, each through one handle, and returns the number of the one that
// succeeded. lost reports whether an error is a right one for all others.
func (r *registryRun) race(call func(int) registryCall, lost func(error) bool) (winner int) {
	var records [registryRacers]*membership.Record
	var running [registryRacers]<-chan error
	start := make(chan struct{})
	for i := range running {
		run := call(i)
		running[i] = recovered.Go(func() (err error) {
			<-start
			records[i], err = run(r.handles[i%len(r.handles)], tested)
			return err
		})
	}
	close(start)
	winner = -1
	for i, ended := range running {
		switch err := <-ended; {
		case err == nil && winner >= 0:
			r.failf("a race: number %d and number %d succeeded", winner, i)
		case err == nil:
			winner = i
		case !lost(err):
			r.failf("a race: a loser got error %v", err)
		}
	}
	if winner < 0 {
		r.failf("a race: no call succeeded")
	}
	r.same("a race", recordPair{records[winner], must(call(winner)(r.reference, reference))})
	return winner
}

// retried matches a refusal by the check that wraps refusal.ErrRetry.
func retried(check attest.Check) func(error) bool {
	return func(err error) bool { return errors.Is(err, check) && errors.Is(err, refusal.ErrRetry) }
}

// checkRegistrySwap lets many callers bind one record from one version.
func checkRegistrySwap(r *registryRun) {
	r.race(func(i int) registryCall {
		_, bind := r.call(context.Background(), parseRegistryStep(fmt.Sprintf("bind a %dm", 60+i)))
		return bind
	}, retried(membership.CheckRegistryConflict))
}

// raceFor makes many claims at once for the same name, machine or UID. Each loser can then join as
// another node.
func raceFor(lost, common string) func(*registryRun) {
	claim := func(i int) string { return fmt.Sprintf("reserve %d %d %s", i, i, common) }
	return func(r *registryRun) {
		ctx := context.Background()
		winner := r.race(func(i int) registryCall {
			_, reserve := r.call(ctx, parseRegistryStep(claim(i)))
			return func(registry membership.Registry, side int) (*membership.Record, error) {
				reserved, err := reserve(registry, side)
				if err != nil {
					return nil, err
				}
				return registry.Bind(ctx, reserved, r.in(time.Hour), nil)
			}
		}, func(err error) bool {
			return errors.Is(err, attest.Check("registry-"+lost)) || retried(attest.Check("registry-reserved"))(err)
		})
		for i := range registryRacers {
			if i != winner {
				r.steps(fmt.Sprintf("%s !%s; join %d %d", claim(i), lost, i, i))
			}
		}
	}
}
