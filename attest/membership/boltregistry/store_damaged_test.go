package boltregistry

import (
	"bytes"
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/membership"
	"github.com/nodeattest/nodeattest/internal/testkit"
)

// withDB edits a registry's file with bbolt only, past the registry's rules.
func withDB(t *testing.T, path string, change func(b *bbolt.Tx) error) {
	t.Helper()
	db := testkit.Must(bbolt.Open(path, 0o600, &bbolt.Options{Timeout: time.Second}))
	testkit.NoError(t, errors.Join(db.Update(change), db.Close()))
}

// A database that is no registry, or lacks a part of one, is not opened.
func TestOpenRefusesDatabases(t *testing.T) {
	without := func(name []byte) func(*bbolt.Tx) error {
		return func(b *bbolt.Tx) error { return b.DeleteBucket(name) }
	}
	for name, c := range map[string]struct {
		change func(*bbolt.Tx) error
		want   error
	}{
		"good":            {func(*bbolt.Tx) error { return nil }, nil},
		"no head":         {without(bucketMeta), checkFile},
		"no names":        {without(bucketNames), checkFile},
		"no machines":     {without(bucketMachines), checkFile},
		"no UIDs":         {without(bucketUIDs), checkFile},
		"no ends":         {without(bucketEnds), checkFile},
		"no format":       {func(b *bbolt.Tx) error { return b.Bucket(bucketMeta).Delete(metaFormat) }, checkFile},
		"another version": {func(b *bbolt.Tx) error { return b.Bucket(bucketMeta).Put(metaFormat, []byte("nodeattest registry 1")) }, checkFile},
		"no scope":        {func(b *bbolt.Tx) error { return b.Bucket(bucketMeta).Delete(metaScope) }, checkFile},
		"no cluster":      {func(b *bbolt.Tx) error { return b.Bucket(bucketMeta).Delete(metaCluster) }, checkFile},
		"another cluster": {func(b *bbolt.Tx) error { return b.Bucket(bucketMeta).Put(metaCluster, []byte("cluster-2")) }, checkFile},
	} {
		t.Run(name, func(t *testing.T) {
			path := newFile(t)
			withDB(t, path, c.change)
			r, err := Open(t.Context(), path, testScope, membership.RegistryOptions{})
			if !errors.Is(err, c.want) || (err == nil) != (c.want == nil) {
				t.Errorf("got %v, want %v", err, c.want)
			}
			if r != nil {
				if err := r.Close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for name, c := range map[string]struct {
		change func(*bbolt.Tx) error
		want   string
	}{
		"of no cluster":      {func(b *bbolt.Tx) error { return b.Bucket(bucketMeta).Delete(metaCluster) }, `cluster "", want "cluster-1"`},
		"of another cluster": {func(b *bbolt.Tx) error { return b.Bucket(bucketMeta).Put(metaCluster, []byte("cluster-2")) }, `cluster "cluster-2", want "cluster-1"`},
	} {
		path := newFile(t)
		withDB(t, path, c.change)
		if _, err := Open(t.Context(), path, testScope, membership.RegistryOptions{}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("a file %s: got %v, want both clusters", name, err)
		}
	}
	for _, cause := range []error{bolterrors.ErrInvalid, bolterrors.ErrVersionMismatch, bolterrors.ErrChecksum} {
		if err := explainOpen("path", cause); !errors.Is(err, checkFile) || !errors.Is(err, cause) {
			t.Errorf("%v: %v", cause, err)
		}
	}
	if err := explainOpen("path", os.ErrPermission); errors.Is(err, checkFile) || !errors.Is(err, os.ErrPermission) {
		t.Errorf("another error: %v", err)
	}
}

func TestCancelledBeforeItBegins(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	path := newFile(t)
	if r, err := Open(ctx, path, testScope, membership.RegistryOptions{}); !errors.Is(err, context.Canceled) || r != nil {
		t.Errorf("open: %v", err)
	}
	r := open(t, path, nil)
	if err := r.file.View(ctx, func(membership.Tx) error { t.Error("asked"); return nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("view: %v", err)
	}
}

// An index that says otherwise than the record that it names, and a record that cannot be
// read, are errors wherever they are met, and nothing is done with them.
func TestDamagedRecords(t *testing.T) {
	at := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	bound := membership.Record{Claim: claim("node-1"), State: membership.StateBound}
	bound.MachineUID = "u"
	resting := membership.Record{Claim: claim("node-2"), State: membership.StateResting, LastEnd: at}
	put := func(bucket func(*tx) *bbolt.Bucket, key, value string) func(*tx) error {
		return func(w *tx) error { return bucket(w).Put([]byte(key), []byte(value)) }
	}
	names := func(w *tx) *bbolt.Bucket { return w.names }
	machines := func(w *tx) *bbolt.Bucket { return w.machines }
	uids := func(w *tx) *bbolt.Bucket { return w.uids }
	ends := func(w *tx) *bbolt.Bucket { return w.ends }
	byMachine := func(id attest.Identity) func(*tx) error {
		return func(w *tx) error { _, err := w.ByMachine(id); return err }
	}
	for name, c := range map[string]struct {
		damage, use func(*tx) error
		bad         bool
	}{
		"nothing":                        {func(*tx) error { return nil }, byMachine(bound.Machine), false},
		"a machine without a record":     {put(machines, "test:x", "node-9"), byMachine("test:x"), true},
		"a machine of another":           {put(machines, "test:x", "node-1"), byMachine("test:x"), true},
		"a machine that has been left":   {put(machines, string(resting.Machine), "node-2"), byMachine(resting.Machine), true},
		"a UID without a record":         {put(uids, "x", "node-9"), func(w *tx) error { _, err := w.ByMachineUID("x"); return err }, true},
		"a UID of another":               {put(uids, "x", "node-1"), func(w *tx) error { _, err := w.ByMachineUID("x"); return err }, true},
		"a record by its name":           {put(names, "node-1", "x"), func(w *tx) error { _, err := w.ByName("node-1"); return err }, true},
		"a record by its machine":        {put(names, "node-1", "x"), byMachine(bound.Machine), true},
		"a record in the list":           {put(names, "node-1", "x"), func(w *tx) error { _, err := w.After("", 10); return err }, true},
		"a record that is written over":  {put(names, "node-1", "x"), func(w *tx) error { _, err := w.Put(bound); return err }, true},
		"a record that is dropped":       {put(names, "node-1", "x"), func(w *tx) error { return w.Drop("node-1") }, true},
		"an end without a record":        {put(ends, "\x00\x00\x00\x00\x00\x00\x00\x01", ""), func(w *tx) error { _, err := w.Due(at, 10); return err }, true},
		"half an end":                    {put(ends, "\x00\x00", ""), func(w *tx) error { _, err := w.Due(at, 10); return err }, true},
		"an end of a name of one letter": {put(ends, "\x00\x00\x00\x00\x00\x00\x00\x01n", ""), func(w *tx) error { _, err := w.Due(at, 10); return err }, false},
		"a record that cannot be written": {func(*tx) error { return nil }, func(w *tx) error {
			_, err := w.Put(membership.Record{Claim: claim("n")})
			return err
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			withDB(t, newFile(t), func(b *bbolt.Tx) error {
				w, err := newTx(b)
				if err != nil {
					return err
				}
				for _, r := range []membership.Record{bound, resting} {
					if _, err := w.Put(r); err != nil {
						return err
					}
				}
				if err := c.damage(w); err != nil {
					return err
				}
				if err := c.use(w); c.bad != (err != nil) {
					t.Errorf("got %v", err)
				}
				return nil
			})
		})
	}
	t.Run("remains of a record", func(t *testing.T) {
		withDB(t, newFile(t), func(b *bbolt.Tx) error {
			w, err := newTx(b)
			if err != nil {
				return err
			}
			if _, err := w.Put(bound); err != nil {
				return err
			}
			if key, _ := w.ends.Cursor().First(); key != nil {
				t.Errorf("an end of a record that has none: %x", key)
			}
			if err := w.Drop("node-1"); err != nil {
				return err
			}
			for name, bucket := range map[string]*bbolt.Bucket{"names": w.names, "machines": w.machines, "UIDs": w.uids, "ends": w.ends} {
				if key, _ := bucket.Cursor().First(); key != nil {
					t.Errorf("%s: %q is left", name, key)
				}
			}
			return nil
		})
	})
}

// Records and indexes that say different things are not opened, nor is a record in which a byte
// has changed.
func TestOpenReadsTheRecords(t *testing.T) {
	at := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	records := []membership.Record{
		{Claim: claim("node-1"), State: membership.StateBound},
		{Claim: claim("node-2"), State: membership.StateResting, LastEnd: at},
		{Claim: membership.Claim{NodeName: "node-3", Machine: "test:3"}, State: membership.StateReserved, Deadline: at},
	}
	end := func(w *tx, name string) []byte {
		r := testkit.Must(w.ByName(name))
		e := w.entries(r)
		return e[len(e)-1].key
	}
	for name, damage := range map[string]func(w *tx) error{
		"":                              func(*tx) error { return nil },
		"a machine is missing":          func(w *tx) error { return w.machines.Delete([]byte("test:3")) },
		"a machine of another":          func(w *tx) error { return w.machines.Put([]byte("test:3"), []byte("node-1")) },
		"a machine too many":            func(w *tx) error { return w.machines.Put([]byte("test:4"), []byte("node-1")) },
		"a machine that has been left":  func(w *tx) error { return w.machines.Put([]byte("test:node-2"), []byte("node-2")) },
		"a UID is missing":              func(w *tx) error { return w.uids.Delete([]byte("uid-node-2")) },
		"a UID of another":              func(w *tx) error { return w.uids.Put([]byte("uid-node-1"), []byte("node-2")) },
		"a UID too many":                func(w *tx) error { return w.uids.Put([]byte("uid-node-3"), []byte("node-3")) },
		"an end is missing":             func(w *tx) error { return w.ends.Delete(end(w, "node-3")) },
		"an end with a value":           func(w *tx) error { return w.ends.Put(end(w, "node-3"), []byte("x")) },
		"an end too many":               func(w *tx) error { return w.ends.Put([]byte("12345678node-1"), nil) },
		"a counter that goes back":      func(w *tx) error { return w.names.SetSequence(2) },
		"a record is missing":           func(w *tx) error { return w.names.Delete([]byte("node-1")) },
		"a record under another name":   func(w *tx) error { return w.names.Put([]byte("node-4"), w.names.Get([]byte("node-1"))) },
		"a record without its checksum": func(w *tx) error { return w.names.Put([]byte("node-1"), []byte("{}")) },
		"an earlier last end": func(w *tx) error {
			return w.names.Put([]byte("node-2"), bytes.Replace(w.names.Get([]byte("node-2")), []byte(`"LastEnd":"2030`), []byte(`"LastEnd":"2029`), 1))
		},
		"another provider ID": func(w *tx) error {
			return w.names.Put([]byte("node-1"), bytes.Replace(w.names.Get([]byte("node-1")), []byte("test://node-1"), []byte("test://node-9"), 1))
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := newFile(t)
			withDB(t, path, func(b *bbolt.Tx) error {
				w, err := newTx(b)
				for _, r := range records {
					if err == nil {
						_, err = w.Put(r)
					}
				}
				if err != nil {
					return err
				}
				return damage(w)
			})
			if r := opened(t, path); r != nil {
				if err := r.Close(); err != nil {
					t.Error(err)
				}
				if name != "" {
					t.Error("it was opened")
				}
			} else if name == "" {
				t.Error("it was not opened")
			}
		})
	}
}

// A time outside its range is refused in a record that needs none, too.
func TestDeadlineOutOfRange(t *testing.T) {
	for _, name := range []string{"bound", "reserved"} {
		checkDeadlines(t, testRecords()[name])
	}
}

func checkDeadlines(t *testing.T, r *membership.Record) {
	t.Helper()
	value := testkit.Must(encodeRecord(r))
	own := r.Deadline.Format(time.RFC3339)
	for deadline, good := range map[string]bool{own: true, "1969-12-31T23:59:59Z": false, "1970-01-01T00:00:00Z": r.State == membership.StateReserved, "10000-01-01T00:00:00Z": false} {
		changed := bytes.Replace(value, []byte(`"Deadline":"`+own), []byte(`"Deadline":"`+deadline), 1)
		if got, err := decodeRecord(r.NodeName, changed); good != (err == nil) {
			t.Errorf("%s, %s: %v, %v", r.State, deadline, got, err)
		}
	}
}
