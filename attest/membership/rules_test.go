package membership

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/der"
	"github.com/nodeattest/nodeattest/internal/message"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/oid"
	"github.com/nodeattest/nodeattest/refusal"
)

func TestClaimCheck(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(c *Claim)
		ok     bool
	}{
		{"good", func(*Claim) {}, true},
		{"without UID and provider ID", func(c *Claim) { c.MachineUID, c.ProviderID = "", "" }, true},
		{"longest machine", func(c *Claim) { c.Machine = attest.Identity("t:" + strings.Repeat("m", message.MaxIdentitySize-2)) }, true},
		{"longer machine", func(c *Claim) { c.Machine = attest.Identity("t:" + strings.Repeat("m", message.MaxIdentitySize-1)) }, false},
		{"longest UID", func(c *Claim) { c.MachineUID = strings.Repeat("u", maxMachineUIDSize) }, true},
		{"longer UID", func(c *Claim) { c.MachineUID = strings.Repeat("u", maxMachineUIDSize+1) }, false},
		{"longest provider ID", func(c *Claim) { c.ProviderID = strings.Repeat("p", oid.MaxProviderIDSize) }, true},
		{"longer provider ID", func(c *Claim) { c.ProviderID = strings.Repeat("p", oid.MaxProviderIDSize+1) }, false},
		{"no node name", func(c *Claim) { c.NodeName = "" }, false},
		{"bad node name", func(c *Claim) { c.NodeName = "Node_1" }, false},
		{"no machine", func(c *Claim) { c.Machine = "" }, false},
		{"UID of two lines", func(c *Claim) { c.MachineUID = "a\nb" }, false},
		{"provider ID with NUL", func(c *Claim) { c.ProviderID = "a\x00" }, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			claim := testClaim(1)
			c.change(&claim)
			if err := claim.Check(); (err == nil) != c.ok || err != nil && !errors.Is(err, checkRegistryClaim) {
				t.Errorf("got %v, want accepted %t", err, c.ok)
			}
		})
	}
}

// An inventory that has lost a provider ID for a moment is asked again; one with another is not.
func TestProviderIDThatIsNotKnownJustNow(t *testing.T) {
	held := Held{Name: &Record{Claim: testClaim(1), State: StateBound}}
	for id, retry := range map[string]bool{"": true, "test://2": false} {
		c := testClaim(1)
		c.ProviderID = id
		if err := held.Admit(&c, testTime()); !errors.Is(err, checkRegistryProviderID) || errors.Is(err, refusal.ErrRetry) != retry {
			t.Errorf("%q: got %v, want to be tried again: %t", id, err, retry)
		}
	}
}

// A machine of Azure is the same however its provider ID is spelt, for the record, the list and
// the inventory. The record keeps the spelling that it has, and nothing is written.
func TestProviderIDsOfAzure(t *testing.T) {
	const recorded, now = "azure:///subscriptions/s/resourceGroups/MC_Group/vm/0", "azure:///subscriptions/s/resourcegroups/mc_group/vm/0"
	c := testClaim(1)
	c.ProviderID = recorded
	held := Held{Name: &Record{Claim: c, State: StateBound}}
	c.ProviderID = now
	change, err := held.Reserve(c, testTime().Add(time.Minute), testTime())
	if err != nil || change.Put || change.Drop || change.Record.ProviderID != recorded {
		t.Errorf("got %+v, %v", change, err)
	}
	c.ProviderID = now[:len(now)-1] + "1"
	if _, err := held.Reserve(c, testTime().Add(time.Minute), testTime()); !errors.Is(err, checkRegistryProviderID) || !strings.Contains(err.Error(), "vm/1") || !strings.Contains(err.Error(), "vm/0") {
		t.Errorf("got %v, want both machines of the set", err)
	}

	l := testkit.Must(NewStaticList([]Member{{Machine: "rack:1", NodeName: "node-1", ProviderID: recorded}}))
	for inventory, ok := range map[string]bool{now: true, recorded: true, c.ProviderID: false} {
		a, err := asked(t, l, inventoried(t, answerOf(t, "node-1", "rack:1"), csr.RequesterBootstrap, csr.Machine{ProviderID: inventory}))
		if (err == nil) != ok || ok && a.ProviderID != recorded {
			t.Errorf("%s: got %+v, %v", inventory, a, err)
		}
	}
}

// A request that is signed again and again keeps no other's certificate out of the record.
func TestIssuedAgainAndAgain(t *testing.T) {
	now := testTime()
	record := &Record{Claim: testClaim(1), State: StateBound, LastEnd: now.Add(time.Hour)}
	issue := func(request string, n int) {
		c := csr.IssuedRecord{CredentialID: request + strconv.Itoa(n), RequestUID: request, NodeName: "node-1", Machine: string(record.Machine),
			MachineUID: record.MachineUID, NotAfter: now.Add(time.Minute + time.Duration(n)*time.Second)}
		change := testkit.Must(Held{Name: record}.Bind(record, time.Time{}, &c, now))
		record = change.Record
	}
	issue("used", 0)
	issue("other", 1)
	for n := range 3 * MaxIssued {
		issue("refused", n+2)
	}
	ids := ""
	for _, c := range record.Issued {
		ids += c.CredentialID + " "
	}
	if len(record.Issued) != MaxIssued || !strings.HasPrefix(ids, "used0 other1 ") || !strings.HasSuffix(ids, "refused"+strconv.Itoa(3*MaxIssued+1)+" ") {
		t.Errorf("got %s, want the first two and the last of the third", ids)
	}
}

// TestIssuedInUseIsKept: whatever is issued to the node in addition, the certificate in use stays.
func TestIssuedInUseIsKept(t *testing.T) {
	const tries = 50
	now, token := testTime(), func(int) string { return "" }
	previous := func(n int) string { return "other" + strconv.Itoa(n-1) }
	for name, c := range map[string]struct {
		before []string           // in the record, each filed with the one before it; the last is in use
		filed  func(n int) string // the credential with which the n-th other is filed
		kept   []string
		lost   string
	}{
		"a node loses its new certificates":        {[]string{"used"}, func(int) string { return "used" }, []string{"used"}, ""},
		"the same, renewed before":                 {[]string{"old", "used"}, func(int) string { return "used" }, []string{"used"}, ""},
		"others come with bootstrap tokens":        {[]string{"used"}, token, []string{"used"}, ""},
		"the same, renewed before, with tokens":    {[]string{"old", "used"}, token, []string{"used"}, ""},
		"others use each new certificate once":     {[]string{"used"}, previous, []string{"used"}, ""},
		"the same, renewed before, each used once": {[]string{"old", "used"}, previous, []string{"used"}, ""},
		"others come with a recovery certificate":  {[]string{"old", "used"}, func(int) string { return "recovery" }, []string{"used"}, ""},
		"others use each certificate twice":        {[]string{"old", "used"}, func(n int) string { return "other" + strconv.Itoa(n/2) }, []string{"used"}, ""},
		"a node renews again and again":            {[]string{"used"}, func(n int) string { return []string{"used", previous(n)}[min(n, 1)] }, []string{previous(tries)}, "used"},
		"a node throws away, and renews with the last": {[]string{"used"}, func(n int) string {
			if n == tries-1 {
				return previous(n)
			}
			return "used"
		}, []string{previous(tries - 1)}, "used"},
	} {
		t.Run(name, func(t *testing.T) {
			record := &Record{Claim: testClaim(1), State: StateBound, LastEnd: now.Add(24 * time.Hour)}
			at := now
			issue := func(id, filedWith string, lifetime time.Duration) {
				issued := csr.IssuedRecord{CredentialID: id, RequestUID: "request of " + id, FiledWith: filedWith, NodeName: "node-1", Machine: string(record.Machine),
					MachineUID: record.MachineUID, NotBefore: at, NotAfter: now.Add(lifetime)}
				at = at.Add(time.Second)
				change := testkit.Must(Held{Name: record}.Bind(record, time.Time{}, &issued, now))
				record = change.Record
			}
			with := ""
			for _, id := range c.before {
				issue(id, with, 6*time.Hour) // it ends first
				with = id
			}
			for n := range tries {
				issue("other"+strconv.Itoa(n), c.filed(n), 24*time.Hour)
				for _, id := range append(slices.Clone(c.kept), "other"+strconv.Itoa(n)) {
					if (!strings.HasPrefix(id, "other") || n >= tries-1) && !hasIssued(record, id) {
						t.Fatalf("after %d others, %s is forgotten", n+1, id)
					}
				}
			}
			if len(record.Issued) > MaxIssued || c.lost != "" && hasIssued(record, c.lost) {
				t.Errorf("%d records: %+v", len(record.Issued), record.Issued)
			}
		})
	}
}

func hasIssued(r *Record, id string) bool {
	return slices.ContainsFunc(r.Issued, func(c csr.IssuedRecord) bool { return c.CredentialID == id })
}

// TestIssuedRequestsAreNewest: a request without a certificate so far is newer than each certificate,
// and the certificate that has filed one stays in the middle of others.
func TestIssuedRequestsAreNewest(t *testing.T) {
	now := testTime()
	record := &Record{Claim: testClaim(1), State: StateBound, LastEnd: now.Add(time.Hour)}
	at := now
	issue := func(id, request, filedWith string) {
		at = at.Add(time.Second)
		c := csr.IssuedRecord{CredentialID: id, RequestUID: request, FiledWith: filedWith, NodeName: "node-1", Machine: string(record.Machine), MachineUID: record.MachineUID, NotAfter: at.Add(time.Minute)}
		if id != "" {
			c.NotBefore = at
		}
		change := testkit.Must(Held{Name: record}.Bind(record, time.Time{}, &c, now))
		record = change.Record
	}
	request := func(n int) { issue("", "request"+strconv.Itoa(n), "") }
	certificate := func(n int) { issue("certificate"+strconv.Itoa(n), strconv.Itoa(n), "") }
	requested := func(n int) bool {
		return slices.ContainsFunc(record.Issued, func(c csr.IssuedRecord) bool { return c.RequestUID == "request"+strconv.Itoa(n) })
	}
	for n := range MaxIssued + 1 { // requests alone
		request(n)
	}
	if len(record.Issued) != MaxIssued || !requested(0) || requested(MaxIssued/2) || !requested(MaxIssued) {
		t.Errorf("%d requests, the first is kept: %t", len(record.Issued), requested(0))
	}
	record.Issued = nil
	for n := range 4 {
		request(n)
	}
	for n := range 7 {
		certificate(n)
	}
	issue("used", "used", "")
	issue("next", "next", "used")
	for n := range 2 * MaxIssued {
		certificate(100 + n)
	}
	for n := range 4 {
		if !requested(n) {
			t.Errorf("request %d is forgotten", n)
		}
	}
	for n := range 6 {
		if !hasIssued(record, "certificate"+strconv.Itoa(n)) {
			t.Errorf("certificate %d is forgotten", n)
		}
	}
	if !hasIssued(record, "used") || !hasIssued(record, "next") || len(record.Issued) != MaxIssued {
		t.Errorf("the certificate that has filed is forgotten, of %d", len(record.Issued))
	}
}

// TestIssuedByHand: a record that a person has edited, in which one certificate stands again and
// again, is bounded all the same.
func TestIssuedByHand(t *testing.T) {
	now := testTime()
	record := &Record{Claim: testClaim(1), State: StateBound, LastEnd: now.Add(time.Hour)}
	of := func(id, with string) csr.IssuedRecord {
		return csr.IssuedRecord{CredentialID: id, FiledWith: with, NodeName: "node-1", Machine: string(record.Machine), MachineUID: record.MachineUID, NotAfter: now.Add(time.Hour)}
	}
	for range MaxIssued {
		record.Issued = append(record.Issued, of("same", ""))
	}
	c := of("new", "same")
	if change, err := (Held{Name: record}).Bind(record, time.Time{}, &c, now); err != nil || len(change.Record.Issued) != MaxIssued || !hasIssued(change.Record, "new") {
		t.Errorf("got %+v, %v", change, err)
	}
}

// TestIssuedNewestIsKept: of many requests what ends first makes room, but not the certificate that
// is being handed out, which may be the shortest.
func TestIssuedNewestIsKept(t *testing.T) {
	now := testTime()
	record := &Record{Claim: testClaim(1), State: StateBound, LastEnd: now.Add(time.Hour)}
	for n := range MaxIssued + 1 {
		id := "request" + strconv.Itoa(n)
		c := csr.IssuedRecord{CredentialID: id, RequestUID: id, NodeName: "node-1", Machine: string(record.Machine), MachineUID: record.MachineUID,
			NotAfter: now.Add(time.Hour - time.Duration(n)*time.Minute)}
		change := testkit.Must(Held{Name: record}.Bind(record, time.Time{}, &c, now))
		record = change.Record
	}
	if first := record.Issued[0].CredentialID; len(record.Issued) != MaxIssued || first != "request"+strconv.Itoa(MaxIssued) {
		t.Errorf("%d records, the first is %s", len(record.Issued), first)
	}
}

// The rules by themselves, on records as a store of any kind may have them.
func TestRules(t *testing.T) {
	now := testTime()
	bound := &Record{Claim: testClaim(1), State: StateBound, LastEnd: now.Add(time.Hour), Version: "7"}
	with := func(change func(r *Record)) *Record {
		r := *bound
		change(&r)
		return &r
	}
	reserved := with(func(r *Record) { r.State, r.LastEnd, r.Deadline = StateReserved, time.Time{}, now.Add(time.Minute) })
	resting := with(func(r *Record) { r.State = StateResting })
	other := with(func(r *Record) { r.Claim = testClaim(2) })
	otherReserved := with(func(r *Record) { r.Claim, r.State, r.Deadline = testClaim(2), StateReserved, now.Add(time.Minute) })
	reserve := func(h Held, d time.Duration) error { _, err := h.Reserve(testClaim(1), now.Add(d), now); return err }
	raise := func(end time.Time) error { _, err := Held{Name: bound}.Bind(bound, end, nil, now); return err }
	rebind := func(h Held, seen *Record, m attest.Identity) error { _, err := h.Rebind(seen, m, now); return err }
	adopt := func(h Held, seen *Record, uid string) error { _, err := h.Adopt(seen, uid, now); return err }
	bind := func(h Held, seen *Record) error { _, err := h.Bind(seen, time.Time{}, nil, now); return err }
	otherVersion := with(func(r *Record) { r.Version = "6" })
	otherName := with(func(r *Record) { r.NodeName = "node-9" })
	for _, c := range []struct {
		name string
		got  error
		want error
	}{
		{"no records", reserve(Held{}, time.Minute), nil},
		{"longest reservation", reserve(Held{}, maxReservation), nil},
		{"longer reservation", reserve(Held{}, maxReservation+time.Second), checkRegistryClaim},
		{"shortest reservation", reserve(Held{}, time.Second), nil},
		{"deadline now", reserve(Held{}, 0), checkRegistryClaim},
		{"deadline over", reserve(Held{}, -time.Second), checkRegistryClaim},
		{"bound pair", reserve(Held{Name: bound, Machine: bound, MachineUID: bound}, time.Minute), nil},
		{"resting name", reserve(Held{Name: resting}, time.Minute), CheckRegistryResting},
		{"name of another", reserve(Held{Name: with(func(r *Record) { r.Machine = "t:2" })}, time.Minute), checkRegistryName},
		{"name reserved", reserve(Held{Name: with(func(r *Record) { r.Machine, r.State, r.Deadline = "t:2", StateReserved, now.Add(1) })}, time.Minute), checkRegistryReserved},
		{"name reserved as long as a clock a minute ahead may", reserve(Held{Name: with(func(r *Record) {
			r.Machine, r.State, r.Deadline = "t:2", StateReserved, now.Add(maxReservation+time.Minute)
		})}, time.Minute), checkRegistryReserved},
		{"name reserved by a clock a year ahead", reserve(Held{Name: with(func(r *Record) { r.Machine, r.State, r.Deadline = "t:2", StateReserved, now.AddDate(1, 0, 0) })}, time.Minute), nil},
		{"name that rests for a year", reserve(Held{Name: with(func(r *Record) { r.State, r.LastEnd = StateResting, now.AddDate(1, 0, 0) })}, time.Minute), CheckRegistryResting},
		{"name reserved until now", reserve(Held{Name: with(func(r *Record) { r.Machine, r.State, r.Deadline = "t:2", StateReserved, now })}, time.Minute), nil},
		{"machine elsewhere", reserve(Held{Machine: other}, time.Minute), checkRegistryMachine},
		{"machine reserved elsewhere", reserve(Held{Machine: otherReserved}, time.Minute), checkRegistryReserved},
		{"machine that rests elsewhere", reserve(Held{Machine: with(func(r *Record) { r.Claim, r.State = testClaim(2), StateResting })}, time.Minute), nil},
		{"UID elsewhere", reserve(Held{MachineUID: other}, time.Minute), checkRegistryUID},
		{"UID reserved elsewhere", reserve(Held{MachineUID: otherReserved}, time.Minute), checkRegistryReserved},
		{"UID that rests elsewhere", reserve(Held{MachineUID: with(func(r *Record) { r.Claim, r.State = testClaim(2), StateResting })}, time.Minute), checkRegistryUID},
		{"UID that rested until now", reserve(Held{MachineUID: with(func(r *Record) { r.Claim, r.State, r.LastEnd = testClaim(2), StateResting, now.Add(-time.Second) })}, time.Minute), nil},

		{"bind", bind(Held{Name: reserved}, reserved), nil},
		{"bind nothing", bind(Held{Name: reserved}, nil), errNoRecord},
		{"bind a removed record", bind(Held{}, reserved), CheckRegistryConflict},
		{"bind a changed record", bind(Held{Name: reserved}, otherVersion), CheckRegistryConflict},
		{"bind by a record of another name", bind(Held{Name: reserved}, otherName), CheckRegistryConflict},
		{"bind what rests", bind(Held{Name: resting}, resting), CheckRegistryConflict},

		{"raise to the last second", raise(time.Unix(der.MaxUnixSeconds, 0)), nil},
		{"raise over the last second", raise(time.Unix(der.MaxUnixSeconds, 1)), checkRegistryClaim},
		{"raise to the first second", raise(time.Unix(0, 0)), nil},
		{"raise to before", raise(time.Unix(-1, 0)), checkRegistryClaim},

		{"rebind", rebind(Held{Name: bound}, bound, "t:2"), nil},
		{"rebind to nothing", rebind(Held{Name: bound}, bound, ""), checkRegistryClaim},
		{"rebind a reservation", rebind(Held{Name: reserved}, reserved, "t:2"), CheckRegistryConflict},
		{"rebind to a machine elsewhere", rebind(Held{Name: bound, Machine: other}, bound, "t:2"), checkRegistryMachine},
		{"rebind a changed record", rebind(Held{Name: bound}, otherVersion, bound.Machine), CheckRegistryConflict},

		{"adopt", adopt(Held{Name: bound}, bound, "uid-2"), nil},
		{"adopt nothing", adopt(Held{Name: bound}, bound, ""), checkRegistryClaim},
		{"adopt too much", adopt(Held{Name: bound}, bound, strings.Repeat("u", maxMachineUIDSize+1)), checkRegistryClaim},
		{"adopt for a reservation", adopt(Held{Name: reserved}, reserved, "uid-2"), CheckRegistryConflict},
		{"adopt a UID elsewhere", adopt(Held{Name: bound, MachineUID: other}, bound, "uid-2"), checkRegistryUID},
		{"adopt for a changed machine", adopt(Held{Name: bound}, with(func(r *Record) { r.Machine = "t:2" }), "uid-2"), CheckRegistryConflict},
		{"adopt for a resting record", adopt(Held{Name: resting, Machine: resting}, resting, "uid-2"), nil},
		{"adopt for a resting record, by its UID", adopt(Held{Name: resting}, resting, resting.MachineUID), checkRegistryUID},
		{"adopt for a resting record whose machine is elsewhere", adopt(Held{Name: resting, Machine: other}, resting, "uid-2"), checkRegistryMachine},
		{"adopt for a record that rested until now", adopt(Held{Name: with(func(r *Record) { r.State, r.LastEnd = StateResting, now.Add(-time.Second) })}, with(func(r *Record) { r.State, r.LastEnd = StateResting, now.Add(-time.Second) }), "uid-2"), CheckRegistryConflict},
		{"adopt for a changed record", adopt(Held{Name: bound}, otherVersion, bound.MachineUID), CheckRegistryConflict},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.want == nil && c.got != nil || !errors.Is(c.got, c.want) {
				t.Errorf("got %v, want %v", c.got, c.want)
			}
			if again := errors.Is(c.want, checkRegistryReserved) || errors.Is(c.want, CheckRegistryConflict); again != errors.Is(c.got, refusal.ErrRetry) {
				t.Errorf("to be tried again %t, want %t", !again, again)
			}
		})
	}
}

// Which records of certificates a bound record keeps when one is added.
func TestRulesOfIssuedRecords(t *testing.T) {
	now := testTime()
	record := func(credential, request string, key byte, left time.Duration) csr.IssuedRecord {
		c := testClaim(1)
		return csr.IssuedRecord{CredentialID: credential, NodeName: c.NodeName, Machine: string(c.Machine), MachineUID: c.MachineUID,
			RequestUID: request, SPKIHash: [32]byte{key}, NotAfter: now.Add(left)}
	}
	pending := record("", "r1", 1, time.Hour)
	for _, c := range []struct {
		name       string
		has, given csr.IssuedRecord
		later      time.Duration
		want       []string // credential ID, request UID, key
	}{
		{"the same request", pending, record("", "r1", 1, 2*time.Hour), 0, []string{" r1 1"}},
		{"another request of the key", pending, record("", "r2", 1, 2*time.Hour), 0, []string{" r1 1", " r2 1"}},
		{"the request with another key", pending, record("", "r1", 2, 2*time.Hour), 0, []string{" r1 1", " r1 2"}},
		{"its certificate", pending, record("c", "r1", 1, 2*time.Hour), 0, []string{"c r1 1"}},
		{"a certificate of another request", pending, record("c", "r2", 1, 2*time.Hour), 0, []string{" r1 1", "c r2 1"}},
		{"a certificate of another key", pending, record("c", "r1", 2, 2*time.Hour), 0, []string{" r1 1", "c r1 2"}},
		{"a request after its certificate", record("c", "r1", 1, time.Hour), record("", "r1", 1, 2*time.Hour), 0, []string{"c r1 1"}},
		{"in the last second of the first", pending, record("c", "r2", 2, 2*time.Hour), time.Hour, []string{" r1 1", "c r2 2"}},
		{"after the last second of the first", pending, record("c", "r2", 2, 2*time.Hour), time.Hour + 1, []string{"c r2 2"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := &Record{Claim: testClaim(1), State: StateBound, LastEnd: now.Add(2 * time.Hour), Issued: []csr.IssuedRecord{c.has}}
			change := testkit.Must(Held{Name: r}.Bind(r, time.Time{}, &c.given, now.Add(c.later)))
			var got []string
			for _, i := range change.Record.Issued {
				got = append(got, i.CredentialID+" "+i.RequestUID+" "+strconv.Itoa(int(i.SPKIHash[0])))
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
	for _, c := range []struct {
		name   string
		change func(r *csr.IssuedRecord)
	}{
		{"another node", func(r *csr.IssuedRecord) { r.NodeName = "node-2" }},
		{"another machine", func(r *csr.IssuedRecord) { r.Machine = "t:2" }},
		{"another Machine UID", func(r *csr.IssuedRecord) { r.MachineUID = "other" }},
		{"a second beyond the last end", func(r *csr.IssuedRecord) { r.NotAfter = now.Add(2*time.Hour + time.Second) }},
		{"no end", func(r *csr.IssuedRecord) { r.NotAfter = time.Time{} }},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := &Record{Claim: testClaim(1), State: StateBound, LastEnd: now.Add(2 * time.Hour)}
			given := record("c", "r1", 1, 2*time.Hour)
			testkit.Must((Held{Name: r}).Bind(r, time.Time{}, &given, now))
			c.change(&given)
			if _, err := (Held{Name: r}).Bind(r, time.Time{}, &given, now); !errors.Is(err, checkRegistryClaim) {
				t.Errorf("got %v, want %s", err, checkRegistryClaim)
			}
		})
	}
}
