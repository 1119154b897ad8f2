package boltregistry

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"strconv"
	"time"

	"go.etcd.io/bbolt"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/membership"
)

// The buckets of the file. The indexes are changed in the transaction that changes the record.
var (
	bucketMeta     = []byte("meta")     // format, scope and cluster
	bucketNames    = []byte("names")    // node name: record and checksum
	bucketMachines = []byte("machines") // machine: node name of the record that holds it
	bucketUIDs     = []byte("uids")     // Machine UID: node name
	bucketEnds     = []byte("ends")     // end in Unix seconds, 8 bytes, and node name: nothing
)

var buckets = [][]byte{bucketMeta, bucketNames, bucketMachines, bucketUIDs, bucketEnds}

var (
	metaFormat  = []byte("format")
	metaScope   = []byte("scope")
	metaCluster = []byte("cluster")
	fileFormat  = []byte("nodeattest registry 2")
)

// tx is one transaction: a membership.Tx.
type tx struct {
	names, machines, uids, ends *bbolt.Bucket
	changed                     bool
}

func newTx(b *bbolt.Tx) (*tx, error) {
	t := &tx{names: b.Bucket(bucketNames), machines: b.Bucket(bucketMachines), uids: b.Bucket(bucketUIDs), ends: b.Bucket(bucketEnds)}
	if t.names == nil || t.machines == nil || t.uids == nil || t.ends == nil {
		return nil, damaged("a bucket is missing")
	}
	return t, nil
}

// ByName returns the record of a name.
func (t *tx) ByName(nodeName string) (*membership.Record, error) {
	value := t.names.Get([]byte(nodeName))
	if value == nil {
		return nil, nil
	}
	end := max(0, len(value)-crc32.Size)
	if !bytes.Equal(checksum(nodeName, value[:end]), value[end:]) {
		return nil, damaged("the record of a node: its checksum")
	}
	r, err := decodeRecord(nodeName, value[:end])
	if err != nil {
		return nil, damaged("the record of a node: %w", err)
	}
	return r, nil
}

// checksum returns the checksum that is stored after a record: bbolt does not notice corrupt bytes.
func checksum(nodeName string, record []byte) []byte {
	table := crc32.MakeTable(crc32.Castagnoli)
	return binary.BigEndian.AppendUint32(nil, crc32.Update(crc32.Checksum([]byte(nodeName), table), table, record))
}

// entry is an index entry of a record.
type entry struct {
	index      *bbolt.Bucket
	key, value []byte
}

// entries returns the index entries of a record.
func (t *tx) entries(r *membership.Record) (all []entry) {
	name := []byte(r.NodeName)
	if r.HoldsMachine() {
		all = append(all, entry{t.machines, []byte(r.Machine), name})
	}
	if r.MachineUID != "" {
		all = append(all, entry{t.uids, []byte(r.MachineUID), name})
	}
	if until := r.Until(); !until.IsZero() {
		all = append(all, entry{t.ends, append(binary.BigEndian.AppendUint64(nil, uint64(until.Unix())), name...), nil})
	}
	return all
}

// by returns the record that an index has for a key. The record must have that key.
func (t *tx) by(index *bbolt.Bucket, key string) (*membership.Record, error) {
	name := index.Get([]byte(key))
	if name == nil {
		return nil, nil
	}
	r, err := t.ByName(string(name))
	has := func(e entry) bool { return e.index == index && string(e.key) == key }
	if err == nil && (r == nil || !slices.ContainsFunc(t.entries(r), has)) {
		return nil, damaged("an index names a record that says otherwise")
	}
	return r, err
}

// ByMachine returns the record that holds a machine.
func (t *tx) ByMachine(machine attest.Identity) (*membership.Record, error) {
	return t.by(t.machines, string(machine))
}

// ByMachineUID returns the record of a Machine UID.
func (t *tx) ByMachineUID(uid string) (*membership.Record, error) { return t.by(t.uids, uid) }

// After returns records in the order of their names.
func (t *tx) After(nodeName string, limit int) (records []*membership.Record, err error) {
	c := t.names.Cursor()
	for key, _ := c.Seek([]byte(nodeName)); key != nil && len(records) < limit; key, _ = c.Next() {
		if string(key) == nodeName {
			continue
		}
		r, err := t.ByName(string(key))
		if err != nil {
			return nil, err
		}
		records = append(records, r)
	}
	return records, nil
}

// Put stores a record with a new version.
func (t *tx) Put(r membership.Record) (*membership.Record, error) {
	if err := t.Drop(r.NodeName); err != nil {
		return nil, err
	}
	version, err := t.names.NextSequence()
	if err != nil {
		return nil, err
	}
	r.Version = strconv.FormatUint(version, 10)
	value, err := encodeRecord(&r)
	if err != nil {
		return nil, err
	}
	t.changed = true
	err = t.names.Put([]byte(r.NodeName), append(value, checksum(r.NodeName, value)...))
	for _, e := range t.entries(&r) {
		if err == nil {
			err = e.index.Put(e.key, e.value)
		}
	}
	return &r, err
}

// Drop removes a record and its index entries.
func (t *tx) Drop(nodeName string) error {
	r, err := t.ByName(nodeName)
	if r == nil || err != nil {
		return err
	}
	t.changed = true
	err = t.names.Delete([]byte(nodeName))
	for _, e := range t.entries(r) {
		// Another record may have taken over the machine and UID since this one ended.
		if err == nil && bytes.Equal(e.index.Get(e.key), e.value) {
			err = e.index.Delete(e.key)
		}
	}
	return err
}

// Due returns the names of records that have ended, the earliest first.
func (t *tx) Due(now time.Time, limit int) ([]string, error) {
	var names []string
	c := t.ends.Cursor()
	for key, _ := c.First(); key != nil && len(names) < limit; key, _ = c.Next() {
		if len(key) <= 8 {
			return nil, damaged("an end without a node name")
		}
		if binary.BigEndian.Uint64(key) > uint64(max(0, now.Unix())) {
			break
		}
		names = append(names, string(key[8:]))
	}
	return names, nil
}

// checkRecords reads every record, and compares the indexes with them.
func (t *tx) checkRecords() error {
	want := map[*bbolt.Bucket]int{t.machines: 0, t.uids: 0, t.ends: 0}
	err := t.names.ForEach(func(name, _ []byte) error {
		r, err := t.ByName(string(name))
		if err != nil {
			return err
		}
		if version, _ := strconv.ParseUint(r.Version, 10, 64); version > t.names.Sequence() {
			return damaged("the counter of its records")
		}
		for _, e := range t.entries(r) {
			want[e.index]++
			if found := e.index.Get(e.key); found == nil || !bytes.Equal(found, e.value) {
				return damaged("a record that is not in its indexes")
			}
		}
		return nil
	})
	for index, records := range want {
		if err == nil {
			err = index.ForEach(func(_, _ []byte) error { records--; return nil })
		}
		if err == nil && records != 0 {
			err = damaged("an index of %d records more or less than there are", records)
		}
	}
	return err
}

// errUnchanged ends a transaction without changes, which needs no sync.
var errUnchanged = errors.New("boltregistry: unchanged")

// View calls f with the records as they are at one moment.
func (f *file) View(ctx context.Context, use func(membership.Tx) error) error {
	return f.with(ctx, func(db *bbolt.DB) (refused, err error) {
		done := f.done.Load()
		err = db.View(func(b *bbolt.Tx) error {
			t, err := f.begin(b, b.ID(), done)
			if err == nil {
				refused = use(t)
			}
			return err
		})
		return refused, err
	})
}

// Update calls f, one call at a time, and syncs its changes.
func (f *file) Update(ctx context.Context, use func(membership.Tx) error) error {
	select { // waiting for a writer can be given up
	case f.writer <- struct{}{}:
		defer func() { <-f.writer }()
	case <-ctx.Done():
		return ctx.Err()
	}
	err := f.with(ctx, func(db *bbolt.DB) (refused, err error) {
		err = db.Update(func(b *bbolt.Tx) error {
			t, err := f.begin(b, b.ID()-1, f.done.Load())
			if err != nil {
				return err
			}
			f.begun.Store(int64(b.ID()))
			refused = use(t)
			if refused == nil && !t.changed {
				refused = errUnchanged
			}
			if refused == nil {
				refused = ctx.Err()
			}
			return refused
		})
		if err == nil {
			f.done.Store(f.begun.Load()) // there is no other writer
		}
		return refused, err
	})
	if errors.Is(err, errUnchanged) {
		return nil
	}
	return err
}

// begin returns a transaction, unless the file's newest one is older than done or newer than begun.
func (f *file) begin(b *bbolt.Tx, newest int, done int64) (*tx, error) {
	if int64(newest) < done || int64(newest) > f.begun.Load() {
		return nil, errOverwritten
	}
	return newTx(b)
}

// maxRecordSize is how large a stored record may be, in bytes.
const maxRecordSize = 128 << 10

// encodeRecord returns the stored form of a record: its JSON by encoding/json. Each record has exactly
// one encoding.
func encodeRecord(r *membership.Record) ([]byte, error) {
	value, err := json.Marshal(r)
	if err == nil {
		_, err = decodeRecord(r.NodeName, value) // never store what could not be read back
	}
	return value, err
}

// storable reports whether a stored record can have a time: zero, or a whole second since 1970, in UTC.
// JSON has no time after the year 9999.
func storable(t time.Time) bool {
	return t.Location() == time.UTC && (t.IsZero() || t.Nanosecond() == 0 && t.Unix() >= 0)
}

// decodeRecord reads the record that is stored under a node name.
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
	version, _ := strconv.ParseUint(r.Version, 10, 64)
	reserved, bound, resting := r.State == membership.StateReserved, r.State == membership.StateBound, r.State == membership.StateResting
	switch {
	case version == 0 || strconv.FormatUint(version, 10) != r.Version:
		return nil, errors.New("got no version")
	case !reserved && !bound && !resting:
		return nil, errors.New("got no state")
	case !storable(r.Deadline) || !storable(r.LastEnd):
		return nil, errors.New("got a time that is no whole second of the years 1970 to 9999")
	case reserved == r.Deadline.IsZero() || reserved && !r.LastEnd.IsZero() || resting && r.LastEnd.IsZero() || !bound && len(r.Issued) > 0:
		return nil, fmt.Errorf("got times or certificates that a %s record does not have", r.State)
	}
	return r, r.Claim.Check()
}
