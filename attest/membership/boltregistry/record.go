package boltregistry

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
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

// head is the part of a record that has one size.
type head struct {
	Format, State              uint8
	Version, Deadline, LastEnd uint64
}

// encodeRecord returns what decodeRecord reads.
func encodeRecord(r *membership.Record) ([]byte, error) {
	version, err := strconv.ParseUint(r.Version, 10, 64)
	if err != nil {
		return nil, err
	}
	state := uint8(max(0, slices.Index(states[:], r.State)))
	value, err := binary.Append(nil, binary.BigEndian, head{recordFormat, state, version, encodeTime(r.Deadline), encodeTime(r.LastEnd)})
	for _, text := range []string{string(r.Machine), r.MachineUID, r.ProviderID} {
		value = append(binary.BigEndian.AppendUint16(value, uint16(len(text))), text...)
	}
	if err == nil {
		_, err = decodeRecord(r.NodeName, value) // nothing is stored that could not be read
	}
	return value, err
}

// decodeRecord reads the record that is stored under a node name. The error says what is
// wrong with it.
func decodeRecord(nodeName string, value []byte) (*membership.Record, error) {
	if len(value) > maxRecordSize {
		return nil, fmt.Errorf("got %d bytes, want at most %d", len(value), maxRecordSize)
	}
	if len(value) == 0 || value[0] != recordFormat {
		return nil, fmt.Errorf("got another format than %d", recordFormat)
	}
	var h head
	n, err := binary.Decode(value, binary.BigEndian, &h)
	s := cryptobyte.String(value[n:])
	var machine, uid, providerID cryptobyte.String
	if err != nil || !s.ReadUint16LengthPrefixed(&machine) || !s.ReadUint16LengthPrefixed(&uid) || !s.ReadUint16LengthPrefixed(&providerID) || !s.Empty() {
		return nil, errors.New("got too few or too many bytes")
	}
	if h.State == 0 || int(h.State) >= len(states) || h.Version == 0 {
		return nil, fmt.Errorf("got state %d and version %d, want a state from 1 to 3 and a version", h.State, h.Version)
	}
	r := &membership.Record{
		Claim:   membership.Claim{NodeName: nodeName, Machine: attest.Identity(machine), MachineUID: string(uid), ProviderID: string(providerID)},
		State:   states[h.State],
		Version: strconv.FormatUint(h.Version, 10),
	}
	var ok1, ok2 bool
	r.Deadline, ok1 = decodeTime(h.Deadline)
	r.LastEnd, ok2 = decodeTime(h.LastEnd)
	if !ok1 || !ok2 {
		return nil, errors.New("got a time outside the years 1970 to 9999")
	}
	reserved, resting := r.State == membership.StateReserved, r.State == membership.StateResting
	if reserved == r.Deadline.IsZero() || reserved && !r.LastEnd.IsZero() || resting && r.LastEnd.IsZero() {
		return nil, fmt.Errorf("got times that a %s record does not have", r.State)
	}
	return r, r.Claim.Check()
}
