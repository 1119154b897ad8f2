package attest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"testing"
	"time"
)

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
