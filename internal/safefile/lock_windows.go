package safefile

import (
	"errors"
	"os"

	"golang.org/x/sys/windows"
)

// Lock locks an open file, without waiting. The error is [ErrLocked] if it is locked already. The
// lock belongs to the open file: it ends when that is closed, or with the process.
func Lock(f *os.File) error {
	// A lock on Windows is mandatory, so it lies behind the content: other processes read that.
	at := &windows.Overlapped{OffsetHigh: 1 << 30}
	err := windows.LockFileEx(windows.Handle(f.Fd()), windows.LOCKFILE_FAIL_IMMEDIATELY|windows.LOCKFILE_EXCLUSIVE_LOCK, 0, 1, 0, at)
	if errors.Is(err, windows.ERROR_LOCK_VIOLATION) {
		return ErrLocked
	}
	return err
}
