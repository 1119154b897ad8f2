package attest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// osRegistryDisk is the file system of the operating system.
type osRegistryDisk struct {
	path, temporary, lockPath string
}

func newOSRegistryDisk(path string) *osRegistryDisk {
	return &osRegistryDisk{path: path, temporary: path + ".tmp", lockPath: path + ".lock"}
}

// osRegistryFile is a file and what is known of it since it was read or published.
type osRegistryFile struct {
	*os.File
	info fs.FileInfo
}

func (d *osRegistryDisk) open() (registryFile, error) {
	// Not through a symbolic link, and not waiting for a FIFO's writer.
	f, err := os.OpenFile(d.path, os.O_RDONLY|openNoFollow, 0)
	if err != nil {
		if info, lerr := os.Lstat(d.path); lerr == nil && info.Mode().Type() == fs.ModeSymlink {
			return nil, badRegistryFile("it is a symbolic link")
		}
		return nil, err
	}
	info, err := f.Stat()
	if err == nil {
		err = checkRegistryFile(info)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &osRegistryFile{f, info}, nil
}

func checkRegistryFile(info fs.FileInfo) error {
	if !info.Mode().IsRegular() {
		return badRegistryFile("it is no regular file but %s", info.Mode().Type())
	}
	return checkOnlyOwnerWrites(info)
}

func (d *osRegistryDisk) current(f registryFile) (bool, error) {
	info, err := os.Lstat(d.path)
	if err != nil {
		return false, err
	}
	own := f.(*osRegistryFile).info
	return os.SameFile(info, own) && info.Size() == own.Size() && info.ModTime().Equal(own.ModTime()) && info.Mode() == own.Mode(), nil
}

func (d *osRegistryDisk) create() (registryFile, error) {
	if err := d.discard(); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	f, err := os.OpenFile(d.temporary, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	return &osRegistryFile{File: f}, nil
}

func (d *osRegistryDisk) publish(f registryFile) error {
	own := f.(*osRegistryFile)
	info, err := own.Stat()
	if err != nil {
		return err
	}
	own.info = info
	return os.Rename(d.temporary, d.path)
}

func (d *osRegistryDisk) link() error    { return os.Link(d.temporary, d.path) }
func (d *osRegistryDisk) discard() error { return os.Remove(d.temporary) }

func (d *osRegistryDisk) syncDirectory() error { return syncDirectory(filepath.Dir(d.path)) }

// lockPause is how often a lock that is taken is tried again: a change takes a few
// syncs of the disk.
const lockPause = 2 * time.Millisecond

// lock takes an exclusive flock on the lock file, which is never renamed or
// removed. The end of a process, however it comes, gives the lock back.
func (d *osRegistryDisk) lock(ctx context.Context) (func(), error) {
	for {
		f, err := os.OpenFile(d.lockPath, os.O_RDWR|os.O_CREATE|openNoFollow, 0o600)
		if err != nil {
			return nil, err
		}
		if err := waitForLock(ctx, f); err != nil {
			return nil, errors.Join(fmt.Errorf("%s: %w", d.lockPath, err), f.Close())
		}
		// Somebody may have removed the file: then this lock keeps nobody out.
		held, err := f.Stat()
		if err != nil {
			return nil, errors.Join(err, f.Close())
		}
		if named, err := os.Lstat(d.lockPath); err == nil && os.SameFile(held, named) {
			return func() { _ = f.Close() }, nil
		}
		_ = f.Close()
	}
}

func waitForLock(ctx context.Context, f *os.File) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-timer.C:
		}
		if ok, err := tryLock(f); ok || err != nil {
			return err
		}
		timer.Reset(lockPause)
	}
}
