package boltregistry

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nodeattest/nodeattest/attest/membership"
)

// maxRecordSize is how large a stored record may be, in bytes.
const maxRecordSize = 128 << 10

// encodeRecord returns what is stored under a record's node name: its JSON, as
// encoding/json writes it. There is one encoding for one record.
func encodeRecord(r *membership.Record) ([]byte, error) {
	value, err := json.Marshal(r)
	if err == nil {
		_, err = decodeRecord(r.NodeName, value) // nothing is stored that could not be read
	}
	return value, err
}

// storable reports whether a time that was read is one that a record can have: none, or a
// whole second since 1970, in UTC. JSON has no time after the year 9999.
func storable(t time.Time) bool {
	return t.Location() == time.UTC && (t.IsZero() || t.Nanosecond() == 0 && t.Unix() >= 0)
}

// decodeRecord reads the record that is stored under a node name. The error says what is
// wrong with it.
func decodeRecord(nodeName string, value []byte) (*membership.Record, error) {
	if len(value) > maxRecordSize {
		return nil, fmt.Errorf("got %d bytes, want at most %d", len(value), maxRecordSize)
	}
	r := new(membership.Record)
	if err := json.Unmarshal(value, r); err != nil {
		return nil, err
	}
	if again, err := json.Marshal(r); err != nil || !bytes.Equal(again, value) || r.NodeName != nodeName {
		return nil, errors.New("got another encoding, or the record of another node")
	}
	version, err := strconv.ParseUint(r.Version, 10, 64)
	if err != nil || version == 0 || strconv.FormatUint(version, 10) != r.Version {
		return nil, errors.New("got no version")
	}
	reserved, bound, resting := r.State == membership.StateReserved, r.State == membership.StateBound, r.State == membership.StateResting
	switch {
	case !reserved && !bound && !resting:
		return nil, errors.New("got no state")
	case !storable(r.Deadline) || !storable(r.LastEnd):
		return nil, errors.New("got a time that is no whole second of the years 1970 to 9999")
	case reserved == r.Deadline.IsZero() || reserved && !r.LastEnd.IsZero() || resting && r.LastEnd.IsZero() || !bound && len(r.Issued) > 0:
		return nil, fmt.Errorf("got times or certificates that a %s record does not have", r.State)
	}
	return r, r.Claim.Check()
}
