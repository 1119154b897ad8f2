//go:build unix

package safefile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

const openNoFollow = syscall.O_NOFOLLOW | syscall.O_NONBLOCK

func checkFile(info fs.FileInfo, access Access) error {
	mode := info.Mode()
	bad, want := mode != 0o600, "0600"
	if access == Trusted {
		bad, want = mode.Perm()&0o022 != 0, "a file that others cannot write"
	}
	if bad {
		return CheckFile.Refuse("mode "+mode.String(), want)
	}
	return checkOwner(info, access == Trusted)
}

// CheckDirectory refuses a directory in which others could replace a file: it must be this
// user's or root's, and no other user may be able to write to it. The error is [CheckFile] or
// the file system's.
func CheckDirectory(dir string) error {
	_, err := checkOpen(dir, "", 0)
	return err
}

// checkOpen refuses a directory that others own or, unless its mode has a certain bit, can write to.
func checkOpen(dir, where string, unless fs.FileMode) (fs.FileInfo, error) {
	info, err := os.Stat(dir)
	if err != nil {
		return nil, err
	}
	if mode := info.Mode(); mode.Perm()&0o022 != 0 && mode&unless == 0 {
		return nil, CheckFile.Refuse("directory "+dir+" of mode "+mode.String()+where, "one that only its owner can write to")
	}
	return info, checkOwner(info, true)
}

// CheckWay is [CheckDirectory], and refuses a directory that others could replace by another
// one: every directory on the way to it, by its name and by where it is, must be this
// user's or root's, and no other user may be able to write to it, unless it is one such as /tmp,
// where a user may remove only their own files.
func CheckWay(dir string) error {
	name, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	for at := name; ; at = filepath.Dir(at) {
		info, err := os.Lstat(at)
		if err == nil {
			err = checkOwner(info, true) // of a symbolic link, which its folder's writers may change
		}
		if err == nil && at != name {
			_, err = checkAbove(at)
		}
		if err != nil {
			return err
		}
		if at == filepath.Dir(at) {
			break
		}
	}
	below, err := os.Stat(name)
	for at := name + "/.."; err == nil; at += "/.." { // the directory that it is in, whatever links led to it
		var above fs.FileInfo
		if above, err = checkAbove(at); err == nil && os.SameFile(above, below) {
			break
		}
		below = above
	}
	return errors.Join(err, CheckDirectory(dir))
}

func checkAbove(dir string) (fs.FileInfo, error) { return checkOpen(dir, " on the way", fs.ModeSticky) }

func checkOwner(info fs.FileInfo, rootToo bool) error {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return CheckFile.Refuse("a file whose owner is not known", "")
	}
	uid := os.Geteuid()
	if int(stat.Uid) == uid || rootToo && stat.Uid == 0 {
		return nil
	}
	want := strconv.Itoa(uid)
	if rootToo {
		want += " or 0"
	}
	return CheckFile.Refuse("owner "+strconv.Itoa(int(stat.Uid)), want)
}

// syncDirectory makes a new name in a directory survive a power failure.
func syncDirectory(dir *os.Root) error {
	d, err := dir.Open(".")
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
