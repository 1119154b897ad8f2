//go:build unix

package bootstraptoken

import (
	"errors"
	"io/fs"
	"os"
	"strconv"
	"syscall"
)

const openNoFollow = syscall.O_NOFOLLOW | syscall.O_NONBLOCK

// checkTrusted refuses a file that somebody else could have written.
func checkTrusted(info fs.FileInfo) error {
	if mode := info.Mode(); mode.Perm()&0o022 != 0 {
		return &Error{Check: CheckCache, Got: "mode " + mode.String(), Want: "a file that others cannot write"}
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return &Error{Check: CheckCache, Got: "a file without an owner"}
	}
	if uid := os.Geteuid(); stat.Uid != 0 && int(stat.Uid) != uid {
		return &Error{Check: CheckCache, Got: "owner " + strconv.Itoa(int(stat.Uid)), Want: strconv.Itoa(uid) + " or 0"}
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
