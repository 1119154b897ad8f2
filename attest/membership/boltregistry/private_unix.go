//go:build unix

package boltregistry

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

const openNoFollow = syscall.O_NOFOLLOW | syscall.O_NONBLOCK

// checkFile refuses a file that others could have written, or can read.
func checkFile(info fs.FileInfo) error {
	if mode := info.Mode(); mode != 0o600 {
		return fmt.Errorf("%w: got mode %v, want a regular file of mode 0600", ErrFile, mode)
	}
	if uid, err := owner(info); err != nil || uid != os.Geteuid() {
		return fmt.Errorf("%w: got owner %d, want %d", ErrFile, uid, os.Geteuid())
	}
	return nil
}

func owner(info fs.FileInfo) (int, error) {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return -1, errors.New("its owner is not known")
	}
	return int(stat.Uid), nil
}

// checkDirectory refuses a directory in which others could put another file in the place
// of ours.
func checkDirectory(dir string) error {
	info, err := os.Stat(dir)
	if err != nil {
		return err
	}
	uid, err := owner(info)
	if err != nil || uid != os.Geteuid() && uid != 0 {
		return fmt.Errorf("%w: directory %s: got owner %d, want %d or root", ErrFile, dir, uid, os.Geteuid())
	}
	if info.Mode().Perm()&0o022 != 0 {
		return fmt.Errorf("%w: directory %s: got mode %v, want one that nobody else can write to", ErrFile, dir, info.Mode())
	}
	return nil
}

// syncDirectory makes a new name in a directory survive a loss of power.
func syncDirectory(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
