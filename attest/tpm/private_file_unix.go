//go:build unix

package tpm

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

const openNoFollow = syscall.O_NOFOLLOW | syscall.O_NONBLOCK

// checkPrivate refuses a file that others could have written or can read.
func checkPrivate(info fs.FileInfo) error {
	if mode := info.Mode(); mode.Perm() != 0o600 || mode&(fs.ModeSetuid|fs.ModeSetgid|fs.ModeSticky) != 0 {
		return fmt.Errorf("%w: got mode %v, want 0600", ErrPasswordFile, mode)
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return fmt.Errorf("%w: its owner is not known", ErrPasswordFile)
	}
	if uid := os.Geteuid(); int(stat.Uid) != uid {
		return fmt.Errorf("%w: got owner %d, want %d", ErrPasswordFile, stat.Uid, uid)
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
