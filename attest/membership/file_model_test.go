package membership

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/internal/testkit"
)

// model is a naive store: it looks at every record.
type model map[string]*Record

func (m model) first(is func(r *Record) bool) *Record {
	for _, r := range m {
		if is(r) {
			return r
		}
	}
	return nil
}

// names returns the first limit of the node names, in the order of a key.
func (m model) names(limit int, is func(r *Record) bool, key func(r *Record) string) []string {
	var keys []string
	for _, r := range m {
		if is(r) {
			keys = append(keys, key(r)+r.NodeName)
		}
	}
	slices.Sort(keys)
	keys = keys[:min(limit, len(keys))]
	for i, key := range keys {
		keys[i] = key[len(key)-1:]
	}
	return keys
}

// differs compares every answer of a transaction with those of the model. Names are one letter.
func (m model) differs(t Tx, limit int) string {
	for n := range byte(10) {
		name := string('a' + n)
		if got, err := t.ByName(name); err != nil || !cmp.Equal(got, m[name]) {
			return fmt.Sprintf("by name %s: got %v, %v, want %v", name, got, err, m[name])
		}
		machine := attest.Identity("test:" + name)
		want := m.first(func(r *Record) bool { return r.HoldsMachine() && r.Machine == machine })
		if got, err := t.ByMachine(machine); err != nil || !cmp.Equal(got, want) {
			return fmt.Sprintf("by machine %s: got %v, %v, want %v", machine, got, err, want)
		}
		want = m.first(func(r *Record) bool { return r.MachineUID == name })
		if got, err := t.ByMachineUID(name); err != nil || !cmp.Equal(got, want) {
			return fmt.Sprintf("by UID %s: got %v, %v, want %v", name, got, err, want)
		}
		var got []string
		after, err := t.After(name, limit)
		for _, r := range after {
			if got = append(got, r.NodeName); r != m[r.NodeName] && !cmp.Equal(r, m[r.NodeName]) {
				return fmt.Sprintf("after %s: got %v, want %v", name, r, m[r.NodeName])
			}
		}
		wantNames := m.names(limit, func(r *Record) bool { return r.NodeName > name }, func(*Record) string { return "" })
		if err != nil || !slices.Equal(got, wantNames) {
			return fmt.Sprintf("after %s: got %v, %v, want %v", name, got, err, wantNames)
		}
		now := modelTime(int(n))
		due, err := t.Due(now, limit)
		wantNames = m.names(limit, func(r *Record) bool { return !r.Until().IsZero() && !r.Until().After(now) },
			func(r *Record) string { return r.Until().Format(time.RFC3339) })
		if err != nil || !slices.Equal(due, wantNames) {
			return fmt.Sprintf("due at %s: got %v, %v, want %v", now, due, err, wantNames)
		}
	}
	return ""
}

func modelTime(n int) time.Time { return time.Unix(1900000000+int64(n), 0).UTC() }

// randomRecord returns a record whose machine and UID no other record of the model has, as in a registry;
// false if it happens to have one.
func (m model) randomRecord(random *rand.Rand) (Record, bool) {
	letter := func() string { return string('a' + byte(random.IntN(10))) }
	r := Record{Claim: Claim{NodeName: letter(), Machine: attest.Identity("test:" + letter())}}
	if random.IntN(3) > 0 {
		r.MachineUID = letter()
	}
	r.State = []State{StateReserved, StateBound, StateResting}[random.IntN(3)]
	switch {
	case r.State == StateReserved:
		r.Deadline = modelTime(random.IntN(10))
	case r.State == StateResting || random.IntN(2) > 0:
		r.LastEnd = modelTime(random.IntN(10))
	}
	return r, m.first(func(o *Record) bool {
		return o.NodeName != r.NodeName &&
			(r.HoldsMachine() && o.HoldsMachine() && o.Machine == r.Machine || r.MachineUID != "" && o.MachineUID == r.MachineUID)
	}) == nil
}

// Random transactions, kept and refused, find in a file what a naive store finds, also after the file was
// opened again or written anew. No version is given twice.
func TestFileModel(t *testing.T) {
	refused := errors.New("refused")
	for seed := range uint64(40) {
		random, m, versions := rand.New(rand.NewPCG(seed, 7)), model{}, map[string]bool{}
		path := newRegistryFile(t)
		s := testkit.Must(OpenFileRegistry(t.Context(), path, fileScope, RegistryOptions{})).store
		for step := range 60 {
			next := maps.Clone(m)
			keep := random.IntN(4) > 0
			err := s.Update(t.Context(), func(w Tx) error {
				if what := m.differs(w, random.IntN(12)); what != "" {
					t.Errorf("seed %d, step %d: before its writes: %s", seed, step, what)
				}
				for range random.IntN(5) {
					if random.IntN(3) == 0 {
						name := string('a' + byte(random.IntN(10)))
						delete(next, name)
						testkit.NoError(t, w.Drop(name))
						continue
					}
					if r, free := next.randomRecord(random); free {
						next[r.NodeName] = testkit.Must(w.Put(r))
					}
				}
				if !keep {
					return refused
				}
				return nil
			})
			if keep != (err == nil) || !keep && !errors.Is(err, refused) {
				t.Fatalf("seed %d, step %d: kept: %t: got %v", seed, step, keep, err)
			}
			if keep {
				for name, r := range next {
					if m[name] != r && versions[r.Version] {
						t.Errorf("seed %d, step %d: version %s once more", seed, step, r.Version)
					}
					versions[r.Version] = true
				}
				m = next
			}
			switch random.IntN(8) {
			case 0:
				testkit.NoError(t, s.exclusive(t.Context(), s.rewrite))
			case 1:
				testkit.NoError(t, s.exclusive(t.Context(), s.close))
				s = testkit.Must(OpenFileRegistry(t.Context(), path, fileScope, RegistryOptions{})).store
			}
			testkit.NoError(t, s.View(t.Context(), func(r Tx) error {
				if what := m.differs(r, random.IntN(12)); what != "" {
					t.Errorf("seed %d, step %d: %s", seed, step, what)
				}
				return nil
			}))
			if t.Failed() {
				return
			}
		}
		testkit.NoError(t, s.exclusive(t.Context(), s.close))
	}
}

// Look-ups, writes, new files and closing at the same time: each write that was acknowledged is there
// afterwards, and a call fails only because the registry is closed.
func TestFileCallsAtOnce(t *testing.T) {
	path := newRegistryFile(t)
	r := testkit.Must(OpenFileRegistry(t.Context(), path, fileScope, RegistryOptions{}))
	const writers = 4
	acknowledged, readers, stop := make(chan string, 10000), make(chan error, 2), make(chan bool)
	done := make(chan error, writers)
	for w := range writers {
		go func() {
			var err error
			for i := 0; err == nil; i++ {
				name := "node-" + strconv.Itoa(w) + "-" + strconv.Itoa(i)
				if _, err = r.Reserve(t.Context(), fileClaim(name), time.Now().Add(time.Hour)); err == nil {
					acknowledged <- name
				}
			}
			done <- err
		}()
	}
	for range cap(readers) {
		go func() {
			var err error
			for err == nil {
				if _, err = r.Lookup(t.Context(), "node-0-0"); err == nil {
					for _, err = range r.Records(t.Context()) {
						if err != nil {
							break
						}
					}
				}
			}
			readers <- err
		}()
	}
	go func() {
		defer close(stop)
		for range 20 {
			if err := r.store.exclusive(t.Context(), func() error { r.store.journal.most = 0; return nil }); err != nil {
				t.Error(err)
			}
			time.Sleep(2 * time.Millisecond)
		}
	}()
	<-stop
	testkit.NoError(t, r.Close())
	for range writers {
		if err := <-done; !errors.Is(err, fs.ErrClosed) {
			t.Errorf("a write: got %v", err)
		}
	}
	for range cap(readers) {
		if err := <-readers; !errors.Is(err, fs.ErrClosed) {
			t.Errorf("a look-up: got %v", err)
		}
	}
	close(acknowledged)
	again, n := openFile(t, path, nil), 0
	for name := range acknowledged {
		n++
		if got, err := again.Lookup(t.Context(), name); err != nil || got == nil {
			t.Errorf("%s: got %v, %v", name, got, err)
		}
	}
	if n != len(again.store.records.byName) {
		t.Errorf("%d writes acknowledged, %d records", n, len(again.store.records.byName))
	}
}
