package attest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"testing"
	"time"
)

// crashDisk is a model of a file system that loses what was not synced. Every call
// is a step; at the step that is chosen the process dies, or the call fails.
type crashDisk struct {
	names   map[string]*crashFile // what programs see
	durable map[string]*crashFile // what is left after a loss of power
	pending []func(map[string]*crashFile)

	steps int
	dieAt int // the process dies before this step; 0 for never
	fail  int // this step fails; 0 for none
	held  bool
}

type crashFile struct {
	data   []byte
	synced []byte
}

type crashHandle struct {
	disk *crashDisk
	file *crashFile
	read *bytes.Reader
}

// died is what the model panics with: no code of the process runs on.
type died struct{}

var errDisk = errors.New("model: the disk failed")

func newCrashDisk() *crashDisk {
	return &crashDisk{names: map[string]*crashFile{}, durable: map[string]*crashFile{}}
}

func (d *crashDisk) step() error {
	d.steps++
	if d.steps == d.dieAt {
		panic(died{})
	}
	if d.steps == d.fail {
		return errDisk
	}
	return nil
}

// rename changes a name now, and on disk once the directory is synced.
func (d *crashDisk) rename(change func(map[string]*crashFile)) {
	change(d.names)
	d.pending = append(d.pending, change)
}

func (d *crashDisk) lock(context.Context) (func(), error) {
	if err := d.step(); err != nil {
		return nil, err
	}
	if d.held {
		return nil, errors.New("model: the lock is taken")
	}
	d.held = true
	return func() { d.held = false }, nil
}

func (d *crashDisk) open() (registryFile, error) {
	if err := d.step(); err != nil {
		return nil, err
	}
	f := d.names["registry"]
	if f == nil {
		return nil, fs.ErrNotExist
	}
	return &crashHandle{d, f, bytes.NewReader(f.data)}, nil
}

func (d *crashDisk) current(f registryFile) (bool, error) {
	if err := d.step(); err != nil {
		return false, err
	}
	return d.names["registry"] == f.(*crashHandle).file, nil
}

func (d *crashDisk) create() (registryFile, error) {
	if err := d.step(); err != nil {
		return nil, err
	}
	f := &crashFile{}
	d.rename(func(names map[string]*crashFile) { names["temporary"] = f })
	return &crashHandle{d, f, nil}, nil
}

func (d *crashDisk) publish(registryFile) error {
	if err := d.step(); err != nil {
		return err
	}
	f := d.names["temporary"]
	d.rename(func(names map[string]*crashFile) {
		names["registry"] = f
		delete(names, "temporary")
	})
	return nil
}

func (d *crashDisk) link() error {
	if err := d.step(); err != nil {
		return err
	}
	if d.names["registry"] != nil {
		return fs.ErrExist
	}
	f := d.names["temporary"]
	d.rename(func(names map[string]*crashFile) { names["registry"] = f })
	return nil
}

func (d *crashDisk) discard() error {
	if err := d.step(); err != nil {
		return err
	}
	d.rename(func(names map[string]*crashFile) { delete(names, "temporary") })
	return nil
}

func (d *crashDisk) syncDirectory() error {
	if err := d.step(); err != nil {
		return err
	}
	for _, change := range d.pending {
		change(d.durable)
	}
	d.pending = nil
	return nil
}

func (h *crashHandle) Read(b []byte) (int, error) { return h.read.Read(b) }
func (h *crashHandle) Close() error               { return nil }

// Write takes its bytes in two steps: a process can die in the middle.
func (h *crashHandle) Write(b []byte) (int, error) {
	half := len(b) / 2
	for _, part := range [][]byte{b[:half], b[half:]} {
		if err := h.disk.step(); err != nil {
			return 0, err
		}
		h.file.data = append(h.file.data, part...)
	}
	return len(b), nil
}

func (h *crashHandle) Sync() error {
	if err := h.disk.step(); err != nil {
		return err
	}
	h.file.synced = bytes.Clone(h.file.data)
	return nil
}

// losePower leaves what was synced, and of the rest what luck decides: each change
// of a name up to some point, each file up to some byte.
func (d *crashDisk) losePower(random *rand.Rand) {
	for _, change := range d.pending[:random.IntN(len(d.pending)+1)] {
		change(d.durable)
	}
	d.pending = nil
	for _, f := range d.durable {
		if !bytes.Equal(f.synced, f.data) {
			f.data = f.data[:random.IntN(len(f.data)+1)]
			f.synced = f.data
		}
	}
	d.names = maps.Clone(d.durable)
}

// reboot ends the process that held the lock.
func (d *crashDisk) reboot() { d.steps, d.dieAt, d.fail, d.held = 0, 0, 0, false }

var crashNow = time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)

var crashScope = RegistryScope{Road: RoadEK, EKAlgorithm: "P-384"}

func crashClock() time.Time { return crashNow }

// crashRun lets a process do a few changes and returns those acknowledged.
func crashRun(t *testing.T, d *crashDisk, node string, acknowledged map[string]RegistryRecord) (completed bool) {
	t.Helper()
	defer func() {
		if p := recover(); p != nil {
			if _, ok := p.(died); !ok {
				panic(p)
			}
		}
	}()
	f, err := openRegistry(d, crashScope, crashClock)
	if err != nil {
		return false
	}
	err = crashChanges(f, node, acknowledged)
	if err != nil && d.fail != 0 { // the same process tries again
		err = crashChanges(f, node, acknowledged)
	}
	return err == nil
}

func crashChanges(f *FileRegistry, node string, acknowledged map[string]RegistryRecord) error {
	ctx := context.Background()
	claim := RegistryClaim{NodeName: node, Machine: Identity("test:" + node), MachineUID: "uid"}
	note := func(r *RegistryRecord, err error) (*RegistryRecord, error) {
		if err == nil {
			acknowledged[r.NodeName] = *r
		}
		return r, err
	}
	r, err := note(f.Reserve(ctx, claim, crashNow.Add(time.Minute)))
	if err == nil {
		r, err = note(f.Bind(ctx, r))
	}
	if err == nil {
		_, err = note(f.Raise(ctx, r, crashNow.Add(time.Hour)))
	}
	if err == nil {
		_, err = note(f.Reserve(ctx, claim, crashNow.Add(time.Minute))) // unchanged
	}
	return err
}

// checkCrash opens the registry again and looks for what was acknowledged. Each
// record may have gone further, not back.
func checkCrash(t *testing.T, d *crashDisk, acknowledged map[string]RegistryRecord) {
	t.Helper()
	d.reboot()
	f, err := openRegistry(d, crashScope, crashClock)
	if err != nil {
		t.Fatalf("torn: %v", err)
	}
	for node, want := range acknowledged {
		got, err := f.Lookup(context.Background(), node)
		if err != nil || got == nil || got.Machine != want.Machine || rank(got) < rank(&want) {
			t.Errorf("node %s: got %+v, %v, acknowledged was %+v", node, got, err, want)
		}
	}
}

func rank(r *RegistryRecord) int {
	switch {
	case r.State == RecordReserved:
		return 1
	case r.LastEnd.IsZero():
		return 2
	}
	return 3
}

// TestRegistryCrash ends the process at every step, by kill or by a loss of power,
// and lets a step fail, at every step too.
func TestRegistryCrash(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, how := range []string{"kill", "power", "failure", "failure, then power", "kill, another process, power"} {
		for step := 1; ; step++ {
			for range 20 { // what luck decides
				if done := crashAt(t, how, step, random); done {
					step = -1
					break
				}
			}
			if t.Failed() {
				t.Fatalf("%s at step %d", how, step)
			}
			if step < 0 {
				break
			}
		}
	}
}

func crashAt(t *testing.T, how string, step int, random *rand.Rand) (done bool) {
	d := newCrashDisk()
	if err := createRegistry(context.Background(), d, crashScope); err != nil {
		t.Fatal(err)
	}
	acknowledged := map[string]RegistryRecord{}
	if !crashRun(t, d, "before", acknowledged) {
		t.Fatal("the model fails by itself")
	}
	d.reboot()
	if how == "failure" || how == "failure, then power" {
		d.fail = step
	} else {
		d.dieAt = step
	}
	crashRun(t, d, "during", acknowledged)
	done = d.steps < step
	switch how {
	case "power", "failure, then power":
		d.losePower(random)
	case "kill, another process, power":
		d.reboot()
		crashRun(t, d, "during", acknowledged) // what it is told must last as well
		d.losePower(random)
	}
	checkCrash(t, d, acknowledged)
	if !crashRun(t, d, "after", acknowledged) { // and life goes on
		t.Error("no process can write any more")
	}
	checkCrash(t, d, acknowledged)
	return done
}

// TestRegistryCreateCrash: either there is a registry, or one can be made.
func TestRegistryCreateCrash(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for step := 1; ; step++ {
		d := newCrashDisk()
		create := func() (err error) {
			defer func() {
				if p := recover(); p != nil {
					err = fmt.Errorf("%v", p)
				}
			}()
			return createRegistry(context.Background(), d, crashScope)
		}
		d.dieAt = step
		err := create()
		done := d.steps < step
		d.reboot()
		d.losePower(random)
		if err == nil && d.names["registry"] == nil {
			t.Fatalf("step %d: lost", step)
		}
		if d.names["registry"] == nil {
			if err := create(); err != nil {
				t.Fatalf("step %d: %v", step, err)
			}
		}
		checkCrash(t, d, nil)
		if err := create(); !errors.Is(err, fs.ErrExist) {
			t.Fatalf("step %d: made over another: %v", step, err)
		}
		checkCrash(t, d, nil)
		if done {
			break
		}
	}
}

// lazyDisk leaves one kind of sync out.
type lazyDisk struct {
	*crashDisk
	skip string
}

func (l lazyDisk) syncDirectory() error {
	if l.skip == "directory" {
		return nil
	}
	return l.crashDisk.syncDirectory()
}

func (l lazyDisk) create() (registryFile, error) {
	f, err := l.crashDisk.create()
	if err == nil && l.skip == "file" {
		return lazyFile{f.(*crashHandle)}, nil
	}
	return f, err
}

type lazyFile struct{ *crashHandle }

func (lazyFile) Sync() error { return nil }

func (l lazyDisk) publish(f registryFile) error { return l.crashDisk.publish(f) }

func (l lazyDisk) current(f registryFile) (bool, error) {
	if lazy, ok := f.(lazyFile); ok {
		f = lazy.crashHandle
	}
	return l.crashDisk.current(f)
}

// The model is worth something: a registry that leaves a sync out loses records.
func TestRegistryCrashModelBites(t *testing.T) {
	for _, skip := range []string{"directory", "file"} {
		lost := 0
		for seed := range uint64(200) {
			d := newCrashDisk()
			if err := createRegistry(context.Background(), d, crashScope); err != nil {
				t.Fatal(err)
			}
			f, err := openRegistry(lazyDisk{d, skip}, crashScope, crashClock)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := f.Reserve(context.Background(), RegistryClaim{NodeName: "n", Machine: "test:n"}, crashNow.Add(time.Minute)); err != nil {
				t.Fatal(err)
			}
			d.losePower(rand.New(rand.NewPCG(seed, 5)))
			d.reboot()
			again, err := openRegistry(d, crashScope, crashClock)
			if err != nil {
				lost++
				continue
			}
			if r, _ := again.Lookup(context.Background(), "n"); r == nil {
				lost++
			}
		}
		if lost == 0 {
			t.Errorf("without syncing the %s nothing was lost", skip)
		}
	}
}
