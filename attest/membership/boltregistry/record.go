package boltregistry

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nodeattest/nodeattest/internal/message"

	"golang.org/x/crypto/cryptobyte"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/membership"
	"github.com/nodeattest/nodeattest/oid"
)

// A record is stored under its node name as, all numbers big-endian:
//
//	format   1 byte, 1
//	state    1 byte: 1 reserved, 2 bound, 3 resting
//	version  8 bytes, not zero
//	deadline 8 bytes, Unix seconds, all bits set where there is none
//	lastEnd  8 bytes, likewise
//	machine, machineUID, providerID: 2 bytes of length, then the text
//
// There is one encoding for one record.
const recordFormat = 1

// maxRecordSize is the size of the longest record.
const maxRecordSize = 1 + 1 + 8 + 8 + 8 + 3*2 + message.MaxIdentitySize + membership.MaxMachineUIDSize + oid.MaxProviderIDSize

// maxUnix is the last second that a certificate can state.
const maxUnix = 253402300799

const noTime = -1 // all bits set

var states = [...]membership.State{1: membership.StateReserved, 2: membership.StateBound, 3: membership.StateResting}

func encodeTime(t time.Time) uint64 {
	seconds := int64(noTime)
	if !t.IsZero() {
		seconds = t.Unix()
	}
	return uint64(seconds)
}

// decodeTime reports whether n is one that encodeTime can have written.
func decodeTime(n uint64) (t time.Time, ok bool) {
	if int64(n) == noTime {
		return time.Time{}, true
	}
	return time.Unix(int64(n), 0).UTC(), n <= maxUnix
}

// encodeRecord returns what decodeRecord reads.
func encodeRecord(r *membership.Record) ([]byte, error) {
	version, err := strconv.ParseUint(r.Version, 10, 64)
	if err != nil {
		return nil, err
	}
	var state uint8
	for n, s := range states {
		if s == r.State && s != "" {
			state = uint8(n)
		}
	}
	var b cryptobyte.Builder
	b.AddUint8(recordFormat)
	b.AddUint8(state)
	b.AddUint64(version)
	b.AddUint64(encodeTime(r.Deadline))
	b.AddUint64(encodeTime(r.LastEnd))
	for _, text := range []string{string(r.Machine), r.MachineUID, r.ProviderID} {
		b.AddUint16LengthPrefixed(func(b *cryptobyte.Builder) { b.AddBytes([]byte(text)) })
	}
	value, err := b.Bytes()
	if err != nil {
		return nil, err
	}
	if _, err := decodeRecord(r.NodeName, value); err != nil { // nothing is stored that could not be read
		return nil, err
	}
	return value, nil
}

// decodeRecord reads the record that is stored under a node name. The error says what is
// wrong with it.
func decodeRecord(nodeName string, value []byte) (*membership.Record, error) {
	if len(value) > maxRecordSize {
		return nil, fmt.Errorf("got %d bytes, want at most %d", len(value), maxRecordSize)
	}
	var (
		s                          = cryptobyte.String(value)
		format, state              uint8
		version, deadline, lastEnd uint64
		machine, uid, providerID   cryptobyte.String
	)
	if !s.ReadUint8(&format) || format != recordFormat {
		return nil, fmt.Errorf("got format %d, want %d", format, recordFormat)
	}
	if !s.ReadUint8(&state) || !s.ReadUint64(&version) || !s.ReadUint64(&deadline) || !s.ReadUint64(&lastEnd) ||
		!s.ReadUint16LengthPrefixed(&machine) || !s.ReadUint16LengthPrefixed(&uid) || !s.ReadUint16LengthPrefixed(&providerID) || !s.Empty() {
		return nil, errors.New("got too few or too many bytes")
	}
	if state == 0 || int(state) >= len(states) || version == 0 {
		return nil, fmt.Errorf("got state %d and version %d, want a state from 1 to 3 and a version", state, version)
	}
	r := &membership.Record{
		Claim:   membership.Claim{NodeName: nodeName, Machine: attest.Identity(machine), MachineUID: string(uid), ProviderID: string(providerID)},
		State:   states[state],
		Version: strconv.FormatUint(version, 10),
	}
	var ok1, ok2 bool
	r.Deadline, ok1 = decodeTime(deadline)
	r.LastEnd, ok2 = decodeTime(lastEnd)
	if !ok1 || !ok2 {
		return nil, errors.New("got a time outside the years 1970 to 9999")
	}
	reserved, resting := r.State == membership.StateReserved, r.State == membership.StateResting
	if reserved == r.Deadline.IsZero() || reserved && !r.LastEnd.IsZero() || resting && r.LastEnd.IsZero() {
		return nil, fmt.Errorf("got times that a %s record does not have", r.State)
	}
	return r, r.Claim.Check()
}
