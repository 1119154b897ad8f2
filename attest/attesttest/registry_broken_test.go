package attesttest

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nodeattest/nodeattest/attest/membership"
	"github.com/nodeattest/nodeattest/csr"
)

func TestPlainRegistry(t *testing.T) {
	RunRegistry(t, func(_ testing.TB, now func() time.Time) []membership.Registry {
		return []membership.Registry{&plainRegistry{now: now}}
	})
}

// registryFaults are all the things that plainRegistry can get wrong, each with a
// check that must see it.
var registryFaults = map[string]string{
	"no scope":                                "an empty registry has no records",
	"context ignored":                         "a context that is over changes nothing",
	"reservations without end":                "a reservation holds until its deadline",
	"deadline a second late":                  "a machine is free at the deadline",
	"deadline a second early":                 "a reservation holds until its deadline",
	"rests a second too short":                "a name rests until its last certificate has expired",
	"rests for ever":                          "a name rests until its last certificate has expired",
	"bound records end":                       "a bound record stays, and the same pair passes",
	"nothing is over":                         "a record that is over makes room for another machine",
	"any version is over":                     "a record that is over makes room for another machine",
	"over before the end":                     "a record that is over makes room for another machine",
	"over without certificates":               "a record without certificates is never over",
	"provider IDs have case":                  "the provider ID of a machine of Azure has no case",
	"no provider ID has case":                 "the provider ID of a machine of Azure has no case",
	"versions of content":                     "a version is never given again",
	"no versions":                             "a claim is reserved, then bound",
	"versions ignored":                        "of two changes to one version one succeeds",
	"no copies":                               "returned records are copies",
	"arguments unchecked":                     "bad arguments are errors",
	"deadline unchecked":                      "bad arguments are errors",
	"refused claims stay":                     "a second name is not given to a machine",
	"bound records are reserved again":        "a bound record stays, and the same pair passes",
	"provider ID not filled in":               "a record is of one provider ID",
	"deadline not renewed":                    "the same pair reserves again at once",
	"rest for others alone":                   "a name rests until its last certificate has expired",
	"reservations are taken over":             "a reservation holds until its deadline",
	"reservations are for good":               "a reservation holds until its deadline",
	"names are taken over":                    "a second machine does not get the name",
	"UID ignored":                             "a record is of one Machine UID",
	"provider ID ignored":                     "a record is of one provider ID",
	"machines have many names":                "a second name is not given to a machine",
	"bound without a last end":                "a name is bound with its last end",
	"bound without a certificate":             "certificates are recorded when a name is bound",
	"certificates of others":                  "a certificate is of the record and ends by its last end",
	"certificates beyond the last end":        "a certificate is of the record and ends by its last end",
	"certificates for ever":                   "certificates are recorded when a name is bound",
	"certificates without number":             "a record has so many certificates",
	"forgets what ends first":                 "the certificate in use stays",
	"forgets what has filed":                  "the certificate in use stays",
	"forgets nothing replaced":                "the certificate in use stays",
	"forgets whatever it was filed with":      "the certificate in use stays",
	"forgets what came first":                 "the certificate in use stays",
	"forgets the oldest":                      "the certificate in use stays",
	"requests are recorded again":             "a request is recorded until its certificate is",
	"requests stay":                           "a request is recorded until its certificate is",
	"Node UIDs change":                        "a certificate gets its Node's UID once",
	"Node UIDs stay out":                      "a certificate gets its Node's UID once",
	"rebind keeps certificates":               "certificates go with their machine",
	"rebind keeps the provider ID":            "rebind replaces the machine and nothing else",
	"last end rounded down":                   "the last end is raised and never lowered",
	"last end lowered":                        "the last end is raised and never lowered",
	"rebind takes others' machines":           "rebind refuses a machine of another name",
	"rebind forgets the last end":             "rebind replaces the machine and nothing else",
	"release twice fails":                     "release is of one Machine UID",
	"release of any UID":                      "release is of one Machine UID",
	"release of no UID":                       "release is of one Machine UID",
	"releases nothing and says so not":        "release is of one Machine UID",
	"releases in silence":                     "what had no certificate is free when released",
	"lists one piece":                         "a list is whole while it is written to",
	"lists twice":                             "a list is whole while it is written to",
	"lists what is bound":                     "a claim is reserved, then bound",
	"lists what has ended":                    "a machine is free at the deadline",
	"lists nil":                               "an empty registry has no records",
	"lists its own":                           "returned records are copies",
	"Machines have many names":                "a second name is not given to a Machine UID",
	"Machine UIDs do not rest":                "a Machine UID is not used again while its name rests",
	"no UID is one UID":                       "a second name is not given to a Machine UID",
	"adopts nothing":                          "adopt takes another Machine UID and nothing else",
	"adopt forgets the last end":              "adopt takes another Machine UID and nothing else",
	"adopt takes others' Machines":            "adopt refuses the Machine UID of another name",
	"adopt takes nothing back":                "adopt takes back a machine whose name rests",
	"adopt takes back a Machine that is gone": "adopt takes back a machine whose name rests",
	"adopt takes back others' machines":       "adopt takes back no machine that has another name",
	"no rest":                                 "a name rests until its last certificate has expired",
}

func TestRegistryRunnerCatches(t *testing.T) {
	for fault, check := range registryFaults {
		t.Run(fault, func(t *testing.T) {
			for _, c := range registryChecks {
				if c.name != check {
					continue
				}
				err := c.try(t, func(_ testing.TB, now func() time.Time) []membership.Registry {
					return []membership.Registry{&plainRegistry{now: now, fault: fault}}
				})
				if err == nil {
					t.Errorf("%q did not see it", check)
				}
				return
			}
			t.Errorf("no check is called %q", check)
		})
	}
}

// oneByOne is an implementation that looks and then writes, each under its lock, as
// one over a store without compare-and-swap does.
type oneByOne struct{ plainRegistry }

func (o *oneByOne) Reserve(ctx context.Context, c membership.Claim, deadline time.Time) (*membership.Record, error) {
	o.mu.Lock()
	err := errors.Join(o.nameTaken(o.named(c.NodeName), c), o.machineTaken(c), o.uidTaken(c))
	o.mu.Unlock()
	if err != nil {
		return nil, err
	}
	time.Sleep(time.Millisecond)
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.store(c.NodeName, &membership.Record{Claim: c, State: membership.StateReserved, Deadline: deadline}), nil
}

func (o *oneByOne) Bind(_ context.Context, seen *membership.Record, end time.Time, _ *csr.IssuedRecord) (*membership.Record, error) {
	o.mu.Lock()
	_, err := o.current(seen)
	o.mu.Unlock()
	if err != nil {
		return nil, err
	}
	time.Sleep(time.Millisecond)
	o.mu.Lock()
	defer o.mu.Unlock()
	r := *seen
	r.State, r.Deadline, r.LastEnd = membership.StateBound, time.Time{}, end
	return o.store(seen.NodeName, &r), nil
}

// TestRegistryRunnerCatchesRaces: each step of this registry is atomic, and no call is.
func TestRegistryRunnerCatchesRaces(t *testing.T) {
	for _, c := range registryChecks {
		switch c.name {
		case "of two changes to one version one succeeds", "one machine wins a race for a name", "one name wins a race for a machine", "one name wins a race for a Machine UID":
			synctest.Test(t, func(t *testing.T) { // in which all callers read before the first one writes
				err := c.try(t, func(_ testing.TB, now func() time.Time) []membership.Registry {
					return []membership.Registry{&oneByOne{plainRegistry{now: now}}}
				})
				if err == nil {
					t.Errorf("%q did not see it", c.name)
				}
			})
		}
	}
}

func TestRegistryRunnerNeedsARegistry(t *testing.T) {
	if err := registryChecks[0].try(t, func(testing.TB, func() time.Time) []membership.Registry { return nil }); err == nil {
		t.Error("no registry passed")
	}
}
