package membership

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/message"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/oid"
)

// lastSecond is the last one that a certificate can state.
var lastSecond = time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)

func testRecords() map[string]*Record {
	at := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	longest := Claim{NodeName: "node-1", Machine: attest.Identity("test:" + strings.Repeat("m", message.MaxIdentitySize-5)),
		MachineUID: strings.Repeat("u", 253), ProviderID: strings.Repeat("p", oid.MaxProviderIDSize)}
	shortest := Claim{NodeName: "n", Machine: "t:1"}
	return map[string]*Record{
		"reserved":          {Claim: fileClaim("node-1"), State: StateReserved, Deadline: at, Version: "1"},
		"bound":             {Claim: fileClaim("node-1"), State: StateBound, Version: "2"},
		"bound with an end": {Claim: longest, State: StateBound, LastEnd: at, Version: "18446744073709551615"},
		"with certificates": {Claim: longest, State: StateBound, LastEnd: at, Version: "2", Issued: []csr.IssuedRecord{
			{CredentialID: "X509SHA256=00", KeyResidence: "TPM", SPKIHash: [32]byte{31: 1}, NotBefore: at.Add(-time.Hour), NotAfter: at}, {RequestUID: "u", NotAfter: at}}},
		"resting":             {Claim: shortest, State: StateResting, LastEnd: at, Version: "3"},
		"at the last second":  {Claim: shortest, State: StateResting, LastEnd: lastSecond, Version: "3"},
		"at the first second": {Claim: shortest, State: StateBound, LastEnd: time.Unix(0, 0).UTC(), Version: "3"},
	}
}

func encodeStored(r *Record) ([]byte, error) { return encodeChanges([]change{{Put: r}}) }

func decodeStored(text []byte) (*Record, error) {
	changes, err := decodeChanges(text)
	if err != nil {
		return nil, err
	}
	return changes[0].Put, nil
}

func TestRecordRoundTrip(t *testing.T) {
	for name, r := range testRecords() {
		t.Run(name, func(t *testing.T) {
			value := testkit.Must(encodeStored(r))
			if got, err := decodeStored(value); err != nil || !cmp.Equal(got, r) {
				t.Errorf("got %v, %v", got, err)
			}
			for n := range value {
				if got, err := decodeStored(value[:n]); err == nil {
					t.Fatalf("cut off at %d: got %v", n, got)
				}
			}
			if got, err := decodeStored(append(value, 0)); err == nil {
				t.Errorf("a byte too many: got %v", got)
			}
		})
	}
}

func TestRecordRefuses(t *testing.T) {
	at := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	for name, change := range map[string]func(r *Record){
		"no state":                    func(r *Record) { r.State = "" },
		"another state":               func(r *Record) { r.State = "gone" },
		"no version":                  func(r *Record) { r.Version = "" },
		"version 0":                   func(r *Record) { r.Version = "0" },
		"reserved without a deadline": func(r *Record) { r.State = StateReserved },
		"reserved with a last end":    func(r *Record) { r.State, r.Deadline, r.LastEnd = StateReserved, at, at },
		"bound with a deadline":       func(r *Record) { r.Deadline = at },
		"resting without a last end":  func(r *Record) { r.State = StateResting },
		"resting with a deadline":     func(r *Record) { r.State, r.Deadline, r.LastEnd = StateResting, at, at },
		"a last end too late":         func(r *Record) { r.LastEnd = lastSecond.Add(time.Second) },
		"a last end too early":        func(r *Record) { r.LastEnd = time.Unix(-2, 0) },
		"no node name":                func(r *Record) { r.NodeName = "" },
		"no machine":                  func(r *Record) { r.Machine = "" },
		"a long machine": func(r *Record) {
			r.Machine = attest.Identity("t:" + strings.Repeat("m", message.MaxIdentitySize-1))
		},
		"a long UID":         func(r *Record) { r.MachineUID = strings.Repeat("u", 253+1) },
		"a long provider ID": func(r *Record) { r.ProviderID = strings.Repeat("p", oid.MaxProviderIDSize+1) },
		"certificates of a reservation": func(r *Record) {
			r.State, r.Deadline, r.Issued = StateReserved, at, []csr.IssuedRecord{{NotAfter: at}}
		},
		"more certificates than fit": func(r *Record) {
			r.Issued = []csr.IssuedRecord{{SignerName: strings.Repeat("s", maxLineSize)}}
		},
		"more than fits": func(r *Record) { r.ProviderID = strings.Repeat("p", 1<<16) },
	} {
		t.Run(name, func(t *testing.T) {
			r := &Record{Claim: fileClaim("node-1"), State: StateBound, Version: "1"}
			change(r)
			if value, err := encodeStored(r); err == nil {
				t.Errorf("got %x", value)
			}
		})
	}
	good := testkit.Must(encodeStored(testRecords()["bound"]))
	for name, change := range map[string][2]string{
		"another state":   {`"State":"bound"`, `"State":"Bound"`},
		"a version of 0":  {`"Version":"2"`, `"Version":"02"`},
		"a part second":   {`"LastEnd":"0001-01-01T00:00:00Z"`, `"LastEnd":"2030-01-01T00:00:00.5Z"`},
		"the year 10000":  {`"LastEnd":"0001-01-01T00:00:00Z"`, `"LastEnd":"10000-01-01T00:00:00Z"`},
		"another zone":    {`"LastEnd":"0001-01-01T00:00:00Z"`, `"LastEnd":"2030-01-01T00:00:00+01:00"`},
		"a member twice":  {`"Version":"2"`, `"Version":"2","Version":"2"`},
		"one member more": {`"Version":"2"`, `"Version":"2","A":1`},
	} {
		t.Run(name, func(t *testing.T) {
			bad := bytes.Replace(good, []byte(change[0]), []byte(change[1]), 1)
			if got, err := decodeStored(bad); err == nil || bytes.Equal(bad, good) {
				t.Errorf("got %v", got)
			}
		})
	}
}

// A record of exactly the largest size is written and read, one of a byte more is not.
func TestSizeOfRecords(t *testing.T) {
	r := testRecords()["with certificates"]
	small := testkit.Must(encodeStored(r))
	r.Issued[0].SignerName = strings.Repeat("s", maxLineSize-checksumSize-len(small))
	if value, err := encodeStored(r); err != nil || len(value) != maxLineSize-checksumSize {
		t.Errorf("got %d bytes, %v", len(value), err)
	}
	r.Issued[0].SignerName += "s"
	if value, err := encodeStored(r); err == nil {
		t.Errorf("got %d bytes and no error", len(value))
	}
	s := openFile(t, newRegistryFile(t), nil).store
	r.Issued[0].SignerName = r.Issued[0].SignerName[1:]
	testkit.NoError(t, s.save([]change{{Put: r}}))
	testkit.NoError(t, s.journal.file.Close())
	if err := s.open(); err != nil || s.journal.lines != 2 {
		t.Errorf("read again: got %d lines, %v", s.journal.lines, err)
	}
}

func FuzzDecodeChanges(f *testing.F) {
	for _, r := range testRecords() {
		f.Add(testkit.Must(encodeStored(r)))
	}
	for _, seed := range []string{``, `[]`, `[{}]`, `[{"Drop":"a"},{"Drop":"b"}]`, `[{"Put":{"NodeName":"node-1"}}]`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		changes, err := decodeChanges(text)
		if err != nil {
			return
		}
		if again, err := encodeChanges(changes); err != nil || !bytes.Equal(again, text) {
			t.Errorf("%s was read as %+v, which is written as %s, %v", text, changes, again, err)
		}
	})
}

// Records of certificates have one encoding, too.
func TestIssuedRefuses(t *testing.T) {
	r := testRecords()["with certificates"]
	good := testkit.Must(encodeStored(r))
	for name, change := range map[string][2]string{
		"a space":     {`"CredentialID":"X509SHA256=00"`, `"CredentialID": "X509SHA256=0"`},
		"other cases": {`"CredentialID"`, `"credentialID"`},
		"no JSON":     {`[{"`, `[{'`},
	} {
		t.Run(name, func(t *testing.T) {
			bad := bytes.Replace(good, []byte(change[0]), []byte(change[1]), 1)
			if got, err := decodeStored(bad); err == nil || bytes.Equal(bad, good) {
				t.Errorf("got %v", got)
			}
		})
	}
}

// A time outside its range is refused in a record that needs none, too.
func TestDeadlineOutOfRange(t *testing.T) {
	for _, name := range []string{"bound", "reserved"} {
		r := testRecords()[name]
		value := testkit.Must(encodeStored(r))
		own := r.Deadline.Format(time.RFC3339)
		for deadline, good := range map[string]bool{own: true, "1969-12-31T23:59:59Z": false, "1970-01-01T00:00:00Z": r.State == StateReserved, "10000-01-01T00:00:00Z": false} {
			changed := bytes.Replace(value, []byte(`"Deadline":"`+own), []byte(`"Deadline":"`+deadline), 1)
			if got, err := decodeStored(changed); good != (err == nil) {
				t.Errorf("%s, %s: %v, %v", r.State, deadline, got, err)
			}
		}
	}
}
