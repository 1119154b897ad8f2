package boltregistry

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/internal/message"

	"github.com/google/go-cmp/cmp"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/membership"
	"github.com/nodeattest/nodeattest/oid"
)

func testRecords() map[string]*membership.Record {
	at := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	longest := membership.Claim{NodeName: "node-1", Machine: attest.Identity("test:" + strings.Repeat("m", message.MaxIdentitySize-5)),
		MachineUID: strings.Repeat("u", membership.MaxMachineUIDSize), ProviderID: strings.Repeat("p", oid.MaxProviderIDSize)}
	shortest := membership.Claim{NodeName: "n", Machine: "t:1"}
	return map[string]*membership.Record{
		"reserved":            {Claim: claim("node-1"), State: membership.StateReserved, Deadline: at, Version: "1"},
		"bound":               {Claim: claim("node-1"), State: membership.StateBound, Version: "2"},
		"bound with an end":   {KeyHash: [32]byte{1}, Claim: longest, State: membership.StateBound, LastEnd: at, Version: "18446744073709551615"},
		"resting":             {Claim: shortest, State: membership.StateResting, LastEnd: at, Version: "3"},
		"at the last second":  {Claim: shortest, State: membership.StateResting, LastEnd: time.Unix(maxUnix, 0).UTC(), Version: "3"},
		"at the first second": {Claim: shortest, State: membership.StateBound, LastEnd: time.Unix(0, 0).UTC(), Version: "3"},
	}
}

func TestRecordRoundTrip(t *testing.T) {
	for name, r := range testRecords() {
		t.Run(name, func(t *testing.T) {
			value, err := encodeRecord(r)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := decodeRecord(r.NodeName, value); err != nil || !cmp.Equal(got, r) {
				t.Errorf("got %v, %v", got, err)
			}
			if name == "bound with an end" && len(value) != maxRecordSize {
				t.Errorf("the longest record has %d bytes, want %d", len(value), maxRecordSize)
			}
			for n := range value {
				if got, err := decodeRecord(r.NodeName, value[:n]); err == nil {
					t.Fatalf("cut off at %d: got %v", n, got)
				}
			}
			if got, err := decodeRecord(r.NodeName, append(value, 0)); err == nil {
				t.Errorf("a byte too many: got %v", got)
			}
		})
	}
}

func TestRecordRefuses(t *testing.T) {
	at := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	for name, change := range map[string]func(r *membership.Record){
		"no state":                    func(r *membership.Record) { r.State = "" },
		"another state":               func(r *membership.Record) { r.State = "gone" },
		"no version":                  func(r *membership.Record) { r.Version = "" },
		"version 0":                   func(r *membership.Record) { r.Version = "0" },
		"reserved without a deadline": func(r *membership.Record) { r.State = membership.StateReserved },
		"reserved with a last end":    func(r *membership.Record) { r.State, r.Deadline, r.LastEnd = membership.StateReserved, at, at },
		"reserved with a key": func(r *membership.Record) {
			r.State, r.Deadline, r.LastEnd, r.KeyHash = membership.StateReserved, at, time.Time{}, [32]byte{1}
		},
		"bound with a deadline":      func(r *membership.Record) { r.Deadline = at },
		"resting without a last end": func(r *membership.Record) { r.State = membership.StateResting },
		"resting with a deadline":    func(r *membership.Record) { r.State, r.Deadline, r.LastEnd = membership.StateResting, at, at },
		"a last end too late":        func(r *membership.Record) { r.LastEnd = time.Unix(maxUnix+1, 0) },
		"a last end too early":       func(r *membership.Record) { r.LastEnd = time.Unix(-2, 0) },
		"no node name":               func(r *membership.Record) { r.NodeName = "" },
		"no machine":                 func(r *membership.Record) { r.Machine = "" },
		"a long machine": func(r *membership.Record) {
			r.Machine = attest.Identity("t:" + strings.Repeat("m", message.MaxIdentitySize-1))
		},
		"a long UID":         func(r *membership.Record) { r.MachineUID = strings.Repeat("u", membership.MaxMachineUIDSize+1) },
		"a long provider ID": func(r *membership.Record) { r.ProviderID = strings.Repeat("p", oid.MaxProviderIDSize+1) },
		"more than fits":     func(r *membership.Record) { r.ProviderID = strings.Repeat("p", 1<<16) },
	} {
		t.Run(name, func(t *testing.T) {
			r := &membership.Record{Claim: claim("node-1"), State: membership.StateBound, Version: "1"}
			change(r)
			if value, err := encodeRecord(r); err == nil {
				t.Errorf("got %x", value)
			}
		})
	}
	good, err := encodeRecord(testRecords()["bound"])
	if err != nil {
		t.Fatal(err)
	}
	for name, at := range map[string]struct {
		index int
		value byte
	}{"format 0": {0, 0}, "format 2": {0, 2}, "state 0": {1, 0}, "state 4": {1, 4}} {
		t.Run(name, func(t *testing.T) {
			bad := bytes.Clone(good)
			bad[at.index] = at.value
			if got, err := decodeRecord("node-1", bad); err == nil {
				t.Errorf("got %v", got)
			}
		})
	}
}

func FuzzDecodeRecord(f *testing.F) {
	for _, r := range testRecords() {
		value, err := encodeRecord(r)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(r.NodeName, value)
	}
	f.Add("", []byte{})
	f.Add("node-1", []byte{1, 2})
	f.Fuzz(func(t *testing.T, nodeName string, value []byte) {
		r, err := decodeRecord(nodeName, value)
		if err != nil {
			return
		}
		again, err := encodeRecord(r)
		if err != nil || !bytes.Equal(again, value) {
			t.Errorf("%x was read as %+v, which is written as %x, %v", value, r, again, err)
		}
	})
}
