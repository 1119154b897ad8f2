package boltregistry

import (
	"io/fs"
	"os"
	"sync"
)

// here are the files that this process has open, as *file, each with its fs.FileInfo. The lock on a
// file keeps a second Registry of the same process out as it does another process, but only the
// latter will ever let go of it while Open waits.
var here sync.Map

// openHere reports whether this process has the file open.
func openHere(path string) (found bool) {
	info, err := os.Lstat(path)
	here.Range(func(_, open any) bool {
		found = err == nil && os.SameFile(info, open.(fs.FileInfo))
		return !found
	})
	return found
}
