package safefile

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/nodeattest/nodeattest/refusal"
)

// Types of file systems (statfs(2)).
const (
	tmpfsType   = 0x01021994 // devtmpfs, too
	ramfsType   = 0x858458f6
	overlayType = 0x794c7630
)

// maxLayers bounds how many file systems lie under one another: the upper directory of an overlay
// and the file of a loop device are on another one.
const maxLayers = 8

// CheckLasting refuses the path of a file or a directory whose content is lost when the machine
// restarts: on a tmpfs, on a ramfs, on a block device in memory, or on an overlay or a loop
// device of such a file system. If the path does not exist, the directory above it decides. The
// error is [CheckFile], with [ErrUnknown] if what lies under an overlay or a loop device is out of
// sight, as in a container; or it is the file system's.
func CheckLasting(path string) error {
	at, err := filepath.Abs(path)
	if err != nil {
		return err
	}
	info, err := os.Stat(at)
	for ; errors.Is(err, fs.ErrNotExist) && at != filepath.Dir(at); info, err = os.Stat(at) {
		at = filepath.Dir(at)
	}
	if err == nil && !info.IsDir() { // it may be a mount of its own
		err = lasting(at, maxLayers)
		at = filepath.Dir(at)
	}
	if err == nil {
		err = lasting(at, maxLayers)
	}
	if err != nil {
		return fmt.Errorf("%s must outlast a restart of the machine: %w", path, err)
	}
	return nil
}

// lasting looks at the file system of a path that exists.
func lasting(path string, layers int) error {
	s, err := statfs(path)
	if err != nil {
		return err
	}
	switch uint32(s.Type) {
	case tmpfsType:
		return inMemory(path, "a tmpfs")
	case ramfsType:
		return inMemory(path, "a ramfs")
	}
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	device := deviceNumber(info)
	if uint32(s.Type) != overlayType {
		return lastingDevice(path, device, layers)
	}
	if !info.IsDir() { // its device need not be the overlay's
		return nil
	}
	upper, err := upperDirectory(device)
	if err != nil {
		return unknown(path, "an overlay", "its upper directory", err)
	}
	// In another mount namespace the name may be that of another directory. An overlay has the size of
	// its upper file system.
	if u, err := statfs(upper); err != nil || layers == 0 || u.Blocks != s.Blocks {
		return unknown(path, "an overlay", "its upper directory "+upper, err)
	}
	return lasting(upper, layers-1)
}

func statfs(path string) (*syscall.Statfs_t, error) {
	s := new(syscall.Statfs_t)
	if err := syscall.Statfs(path, s); err != nil {
		return nil, &fs.PathError{Op: "statfs", Path: path, Err: err}
	}
	return s, nil
}

func inMemory(path, what string) error {
	return CheckFile.Refuse(path+" on "+what+", in memory", "a directory on a disk")
}

func unknown(path, what, behind string, err error) error {
	return &refusal.Error{Check: CheckFile, Got: path + " on " + what, Want: "a directory on a disk; " + behind + " is out of sight here", Err: errors.Join(ErrUnknown, err)}
}

// deviceNumber is the file system's, major:minor.
func deviceNumber(info fs.FileInfo) string {
	d := uint64(info.Sys().(*syscall.Stat_t).Dev) //nolint:unconvert // 32 bits on some architectures
	return fmt.Sprintf("%d:%d", d>>8&0xfff|d>>32&^0xfff, d&0xff|d>>12&^0xff)
}

// lastingDevice looks at a block device: a RAM disk, or a loop device, whose file is on another file
// system. Other devices, and file systems with none, are taken for disks.
func lastingDevice(path, device string, layers int) error {
	sys := "/sys/dev/block/" + device
	name, err := os.Readlink(sys)
	if err != nil {
		return nil //nolint:nilerr // no block device
	}
	if name = filepath.Base(name); ramDisk(name) {
		return inMemory(path, name)
	}
	file, err := os.ReadFile(sys + "/loop/backing_file")
	if err != nil {
		return nil //nolint:nilerr // no loop device
	}
	backing := string(bytes.TrimSuffix(file, []byte("\n")))
	if _, err := statfs(backing); err != nil || layers == 0 {
		return unknown(path, name, "its file "+backing, err)
	}
	return lasting(backing, layers-1)
}

// ramDisk reports whether a block device's name is that of one in memory.
func ramDisk(name string) bool {
	return strings.HasPrefix(name, "ram") || strings.HasPrefix(name, "zram")
}

// escapes has the escapes of mount options in /proc, where a backslash may itself be an escape: of mount(8).
var escapes = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\054`, ",", `\134\134`, `\`, `\134`, "")

// upperDirectory returns that of an overlay, as its mount had it (proc_pid_mountinfo(5)).
func upperDirectory(device string) (string, error) {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return "", err
	}
	for mount := range strings.Lines(string(mounts)) {
		head, tail, _ := strings.Cut(mount, " - ")
		fields, options := strings.Fields(head), strings.Fields(tail)
		if len(fields) < 3 || fields[2] != device || len(options) == 0 {
			continue
		}
		for option := range strings.SplitSeq(options[len(options)-1], ",") {
			if upper, ok := strings.CutPrefix(option, "upperdir="); ok && filepath.IsAbs(upper) {
				return escapes.Replace(upper), nil
			}
		}
	}
	return "", errors.New("no mount names it in full")
}
