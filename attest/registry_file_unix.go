//go:build unix

package attest

import (
	"io/fs"
	"os"
	"syscall"
)

// checkOnlyOwnerWrites refuses a file that somebody else could have written.
func checkOnlyOwnerWrites(info fs.FileInfo) error {
	if mode := info.Mode().Perm(); mode&0o022 != 0 {
		return badRegistryFile("got mode %v, want one that lets nobody but its owner write", mode)
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return badRegistryFile("its owner is not known")
	}
	if uid := os.Geteuid(); int(stat.Uid) != uid {
		return badRegistryFile("got owner %d, want %d", stat.Uid, uid)
	}
	return nil
}
