package attest

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"maps"
	"math/rand/v2"
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
