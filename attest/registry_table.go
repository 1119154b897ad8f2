package attest

import (
	"errors"
	"fmt"
	"github.com/nodeattest/nodeattest/refusal"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nodeattest/nodeattest/csr"
)

// registryTable holds the records of a registry and changes them by its rules. It
// knows no locks and no storage: both registries of this package are made of it.
// Records in it are never changed, only replaced.
type registryTable struct {
	last     uint64 // the last version given
	names    map[string]*RegistryRecord
	machines map[Identity]string // node names of what is reserved or bound
}

func newRegistryTable() *registryTable {
	return &registryTable{names: map[string]*RegistryRecord{}, machines: map[Identity]string{}}
}

// live reports whether a record still counts.
func (r *RegistryRecord) live(now time.Time) bool {
	switch r.State {
	case RecordReserved:
		return now.Before(r.Deadline)
	case RecordResting:
		return now.Before(r.LastEnd.Add(time.Second))
	}
	return true
}

// lookup returns the record of a name, nil where there is none that counts.
func (t *registryTable) lookup(nodeName string, now time.Time) *RegistryRecord {
	if r := t.names[nodeName]; r != nil && r.live(now) {
		return r
	}
	return nil
}

// lookupMachine returns the reserved or bound record of a machine.
func (t *registryTable) lookupMachine(machine Identity, now time.Time) *RegistryRecord {
	name, ok := t.machines[machine]
	if !ok {
		return nil
	}
	return t.lookup(name, now)
}

// put stores a new version of a record, and drops what counts no more.
func (t *registryTable) put(r RegistryRecord, now time.Time) *RegistryRecord {
	for _, old := range t.names {
		if !old.live(now) {
			t.drop(old)
		}
	}
	if old := t.names[r.NodeName]; old != nil {
		t.drop(old)
	}
	t.last++
	r.Version = strconv.FormatUint(t.last, 10)
	t.add(&r)
	return &r
}

// add takes a record in as it is.
func (t *registryTable) add(r *RegistryRecord) {
	t.names[r.NodeName] = r
	if r.State != RecordResting {
		t.machines[r.Machine] = r.NodeName
	}
}

func (t *registryTable) drop(r *RegistryRecord) {
	delete(t.names, r.NodeName)
	if t.machines[r.Machine] == r.NodeName {
		delete(t.machines, r.Machine)
	}
}

// reserve is [Registry].Reserve. Like all that follow it returns the record, and
// whether anything has changed.
func (t *registryTable) reserve(c RegistryClaim, deadline, now time.Time) (*RegistryRecord, bool, error) {
	deadline = deadline.Truncate(time.Second).UTC()
	if err := c.check(); err != nil {
		return nil, false, err
	}
	if length := deadline.Sub(now); length <= 0 || length > MaxReservation {
		return nil, false, fmt.Errorf("attest: registry: a deadline of %s is not within the next %s", deadline.Format(time.RFC3339), MaxReservation)
	}
	old, err := t.admit(&c, now)
	switch {
	case err != nil:
		return nil, false, err
	case old == nil || old.State == RecordReserved:
		return t.put(RegistryRecord{RegistryClaim: c, State: RecordReserved, Deadline: deadline}, now), true, nil
	case old.ProviderID == "" && c.ProviderID != "":
		r := *old
		r.ProviderID = c.ProviderID
		return t.put(r, now), true, nil
	}
	return old, false, nil
}

// admit says whether a claim may be made, and returns the record of its pair if
// there is one.
func (t *registryTable) admit(c *RegistryClaim, now time.Time) (*RegistryRecord, error) {
	byName := t.lookup(c.NodeName, now)
	if err := admitName(byName, c); err != nil {
		return nil, err
	}
	return byName, admitMachine(t.lookupMachine(c.Machine, now), c.NodeName)
}

// admitName holds a claim against the record of its name, which may be nil.
func admitName(r *RegistryRecord, c *RegistryClaim) error {
	switch {
	case r == nil:
		return nil
	case r.State == RecordResting:
		return &Error{Check: CheckRegistryResting, Got: "a claim to node " + r.NodeName,
			Want: "one after " + r.LastEnd.Format(time.RFC3339) + ", when its last certificate has expired"}
	case r.Machine != c.Machine && r.State == RecordReserved:
		return reservedElsewhere(r)
	case r.Machine != c.Machine:
		return &Error{Check: CheckRegistryName, Got: "machine " + string(c.Machine), Want: "that of node " + r.NodeName + ", " + string(r.Machine)}
	case r.MachineUID != c.MachineUID:
		return &Error{Check: CheckRegistryUID, Got: refusal.OrNothing(c.MachineUID), Want: refusal.OrNothing(r.MachineUID)}
	case r.ProviderID != c.ProviderID && r.ProviderID != "":
		return &Error{Check: CheckRegistryProviderID, Got: refusal.OrNothing(c.ProviderID), Want: r.ProviderID}
	}
	return nil
}

// admitMachine refuses a machine that has a record under another name. The record
// may be nil.
func admitMachine(r *RegistryRecord, nodeName string) error {
	switch {
	case r == nil || r.NodeName == nodeName:
		return nil
	case r.State == RecordReserved:
		return reservedElsewhere(r)
	}
	return &Error{Check: CheckRegistryMachine, Got: "node " + nodeName, Want: "that of machine " + string(r.Machine) + ", " + r.NodeName}
}

func reservedElsewhere(r *RegistryRecord) error {
	return &Error{Check: CheckRegistryReserved, Got: "a claim beside that of machine " + string(r.Machine) + " to node " + r.NodeName,
		Want: "one after " + r.Deadline.Format(time.RFC3339), Err: csr.ErrRetry}
}

var errNoRegistryRecord = errors.New("attest: registry: no record was given")

// current returns the stored record if it still has the version that the caller
// saw.
func (t *registryTable) current(seen *RegistryRecord, now time.Time) (*RegistryRecord, error) {
	if seen == nil {
		return nil, errNoRegistryRecord
	}
	r := t.lookup(seen.NodeName, now)
	if r == nil || r.Version != seen.Version {
		return nil, conflict("a record of node "+seen.NodeName+" that has changed", "the one that was read")
	}
	return r, nil
}

func conflict(got, want string) error {
	return &Error{Check: CheckRegistryConflict, Got: got, Want: want, Err: csr.ErrRetry}
}

// bound is current for operations on bound records.
func (t *registryTable) bound(seen *RegistryRecord, now time.Time) (*RegistryRecord, error) {
	r, err := t.current(seen, now)
	if err == nil && r.State != RecordBound {
		return nil, conflict("a "+string(r.State)+" record of node "+r.NodeName, "a bound one")
	}
	return r, err
}

func (t *registryTable) bind(seen *RegistryRecord, now time.Time) (*RegistryRecord, bool, error) {
	old, err := t.current(seen, now)
	if err != nil || old.State == RecordBound {
		return old, false, err
	}
	if old.State != RecordReserved {
		return nil, false, conflict("a "+string(old.State)+" record of node "+old.NodeName, "a reserved one")
	}
	return t.put(RegistryRecord{RegistryClaim: old.RegistryClaim, State: RecordBound}, now), true, nil
}

// maxUnix is the last second that a certificate can state.
const maxUnix = 253402300799

func (t *registryTable) raise(seen *RegistryRecord, lastEnd, now time.Time) (*RegistryRecord, bool, error) {
	if whole := lastEnd.Truncate(time.Second); !whole.Equal(lastEnd) {
		lastEnd = whole.Add(time.Second)
	}
	lastEnd = lastEnd.UTC()
	if s := lastEnd.Unix(); s < 0 || s > maxUnix {
		return nil, false, errors.New("attest: registry: the last end is outside the years 1970 to 9999")
	}
	old, err := t.bound(seen, now)
	if err != nil || !lastEnd.After(old.LastEnd) {
		return old, false, err
	}
	r := *old
	r.LastEnd = lastEnd
	return t.put(r, now), true, nil
}

func (t *registryTable) rebind(seen *RegistryRecord, machine Identity, now time.Time) (*RegistryRecord, bool, error) {
	if err := checkIdentityText(machine); err != nil {
		return nil, false, err
	}
	old, err := t.bound(seen, now)
	if err != nil || old.Machine == machine {
		return old, false, err
	}
	if err := admitMachine(t.lookupMachine(machine, now), old.NodeName); err != nil {
		return nil, false, err
	}
	r := *old
	r.Machine = machine
	return t.put(r, now), true, nil
}

func (t *registryTable) release(nodeName, machineUID string, now time.Time) bool {
	old := t.lookup(nodeName, now)
	if old == nil || old.MachineUID != machineUID || old.State == RecordResting {
		return false
	}
	r := *old
	r.State, r.Deadline = RecordResting, time.Time{}
	if old.State == RecordBound && r.live(now) {
		t.put(r, now)
	} else {
		t.drop(old)
	}
	return true
}

// sorted returns the records by node name.
func (t *registryTable) sorted() []*RegistryRecord {
	records := make([]*RegistryRecord, 0, len(t.names))
	for _, r := range t.names {
		records = append(records, r)
	}
	slices.SortFunc(records, func(a, b *RegistryRecord) int { return strings.Compare(a.NodeName, b.NodeName) })
	return records
}

// snapshot returns copies of the records that count.
func (t *registryTable) snapshot(now time.Time) []RegistryRecord {
	var records []RegistryRecord
	for _, r := range t.sorted() {
		if r.live(now) {
			records = append(records, *r)
		}
	}
	return records
}
