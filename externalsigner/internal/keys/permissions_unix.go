//go:build unix

package keys

import (
	"io/fs"
	"os"
	"syscall"

	"github.com/nodeattest/nodeattest/internal/safefile"
)

// checkUnread refuses a file that other users can read. The group of a file of root may read it for a
// program that runs as another user.
func checkUnread(info fs.FileInfo) error {
	others := fs.FileMode(0o077)
	if stat, ok := info.Sys().(*syscall.Stat_t); ok && stat.Uid == 0 && os.Geteuid() != 0 {
		others = 0o037
	}
	if mode := info.Mode(); mode.Perm()&others != 0 {
		return safefile.CheckFile.Refuse("mode "+mode.String(), "a file that other users cannot read, such as one of mode 0600")
	}
	return nil
}
