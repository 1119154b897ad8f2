package boltregistry

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/membership"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/message"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/oid"
)

// lastSecond is the last one that a certificate can state.
var lastSecond = time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)

func testRecords() map[string]*membership.Record {
	at := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	longest := membership.Claim{NodeName: "node-1", Machine: attest.Identity("test:" + strings.Repeat("m", message.MaxIdentitySize-5)),
		MachineUID: strings.Repeat("u", 253), ProviderID: strings.Repeat("p", oid.MaxProviderIDSize)}
	shortest := membership.Claim{NodeName: "n", Machine: "t:1"}
	return map[string]*membership.Record{
		"reserved":          {Claim: claim("node-1"), State: membership.StateReserved, Deadline: at, Version: "1"},
		"bound":             {Claim: claim("node-1"), State: membership.StateBound, Version: "2"},
		"bound with an end": {Claim: longest, State: membership.StateBound, LastEnd: at, Version: "18446744073709551615"},
		"with certificates": {Claim: longest, State: membership.StateBound, LastEnd: at, Version: "2", Issued: []csr.IssuedRecord{
			{CredentialID: "X509SHA256=00", KeyResidence: "TPM", SPKIHash: [32]byte{31: 1}, NotBefore: at.Add(-time.Hour), NotAfter: at}, {RequestUID: "u", NotAfter: at}}},
		"resting":             {Claim: shortest, State: membership.StateResting, LastEnd: at, Version: "3"},
		"at the last second":  {Claim: shortest, State: membership.StateResting, LastEnd: lastSecond, Version: "3"},
		"at the first second": {Claim: shortest, State: membership.StateBound, LastEnd: time.Unix(0, 0).UTC(), Version: "3"},
	}
}

func TestRecordRoundTrip(t *testing.T) {
	for name, r := range testRecords() {
		t.Run(name, func(t *testing.T) {
			value := testkit.Must(encodeRecord(r))
			if got, err := decodeRecord(r.NodeName, value); err != nil || !cmp.Equal(got, r) {
				t.Errorf("got %v, %v", got, err)
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
		"bound with a deadline":       func(r *membership.Record) { r.Deadline = at },
		"resting without a last end":  func(r *membership.Record) { r.State = membership.StateResting },
		"resting with a deadline":     func(r *membership.Record) { r.State, r.Deadline, r.LastEnd = membership.StateResting, at, at },
		"a last end too late":         func(r *membership.Record) { r.LastEnd = lastSecond.Add(time.Second) },
		"a last end too early":        func(r *membership.Record) { r.LastEnd = time.Unix(-2, 0) },
		"no node name":                func(r *membership.Record) { r.NodeName = "" },
		"no machine":                  func(r *membership.Record) { r.Machine = "" },
		"a long machine": func(r *membership.Record) {
			r.Machine = attest.Identity("t:" + strings.Repeat("m", message.MaxIdentitySize-1))
		},
		"a long UID":         func(r *membership.Record) { r.MachineUID = strings.Repeat("u", 253+1) },
		"a long provider ID": func(r *membership.Record) { r.ProviderID = strings.Repeat("p", oid.MaxProviderIDSize+1) },
		"certificates of a reservation": func(r *membership.Record) {
			r.State, r.Deadline, r.Issued = membership.StateReserved, at, []csr.IssuedRecord{{NotAfter: at}}
		},
		"more certificates than fit": func(r *membership.Record) {
			r.Issued = []csr.IssuedRecord{{SignerName: strings.Repeat("s", maxRecordSize)}}
		},
		"more than fits": func(r *membership.Record) { r.ProviderID = strings.Repeat("p", 1<<16) },
	} {
		t.Run(name, func(t *testing.T) {
			r := &membership.Record{Claim: claim("node-1"), State: membership.StateBound, Version: "1"}
			change(r)
			if value, err := encodeRecord(r); err == nil {
				t.Errorf("got %x", value)
			}
		})
	}
	good := testkit.Must(encodeRecord(testRecords()["bound"]))
	for name, change := range map[string][2]string{
		"another state":   {`"State":"bound"`, `"State":"Bound"`},
		"a version of 0":  {`"Version":"2"`, `"Version":"02"`},
		"another node":    {`"NodeName":"node-1"`, `"NodeName":"node-2"`},
		"a part second":   {`"LastEnd":"0001-01-01T00:00:00Z"`, `"LastEnd":"2030-01-01T00:00:00.5Z"`},
		"the year 10000":  {`"LastEnd":"0001-01-01T00:00:00Z"`, `"LastEnd":"10000-01-01T00:00:00Z"`},
		"another zone":    {`"LastEnd":"0001-01-01T00:00:00Z"`, `"LastEnd":"2030-01-01T00:00:00+01:00"`},
		"a member twice":  {`"Version":"2"`, `"Version":"2","Version":"2"`},
		"one member more": {`"Version":"2"`, `"Version":"2","A":1`},
	} {
		t.Run(name, func(t *testing.T) {
			bad := bytes.Replace(good, []byte(change[0]), []byte(change[1]), 1)
			if got, err := decodeRecord("node-1", bad); err == nil || bytes.Equal(bad, good) {
				t.Errorf("got %v", got)
			}
		})
	}
}

// A record of exactly the largest size is written and read, one of a byte more is not.
func TestSizeOfRecords(t *testing.T) {
	r := testRecords()["with certificates"]
	small := testkit.Must(encodeRecord(r))
	r.Issued[0].SignerName = strings.Repeat("s", maxRecordSize-len(small))
	if value, err := encodeRecord(r); err != nil || len(value) != maxRecordSize {
		t.Errorf("got %d bytes, %v", len(value), err)
	}
	r.Issued[0].SignerName += "s"
	if value, err := encodeRecord(r); err == nil {
		t.Errorf("got %d bytes and no error", len(value))
	}
}

func FuzzDecodeRecord(f *testing.F) {
	for _, r := range testRecords() {
		value := testkit.Must(encodeRecord(r))
		f.Add(r.NodeName, value)
	}
	f.Add("", []byte{})
	f.Add("node-1", []byte(`{"NodeName":"node-1"}`))
	f.Fuzz(func(t *testing.T, nodeName string, value []byte) {
		r, err := decodeRecord(nodeName, value)
		if err != nil {
			return
		}
		again, err := encodeRecord(r)
		if err != nil || !bytes.Equal(again, value) {
			t.Errorf("%s was read as %+v, which is written as %s, %v", value, r, again, err)
		}
	})
}

// Records of certificates have one encoding, too.
func TestIssuedRefuses(t *testing.T) {
	r := testRecords()["with certificates"]
	good := testkit.Must(encodeRecord(r))
	for name, change := range map[string][2]string{
		"a space":     {`"CredentialID":"X509SHA256=00"`, `"CredentialID": "X509SHA256=0"`},
		"other cases": {`"CredentialID"`, `"credentialID"`},
		"no JSON":     {`[{"`, `[{'`},
	} {
		t.Run(name, func(t *testing.T) {
			bad := bytes.Replace(good, []byte(change[0]), []byte(change[1]), 1)
			if got, err := decodeRecord(r.NodeName, bad); err == nil || bytes.Equal(bad, good) {
				t.Errorf("got %v", got)
			}
		})
	}
}
