package boltregistry

import (
	"io/fs"
	"os"
	"sync"
)

// here maps each *file that this process has open to its fs.FileInfo. The file's lock excludes a second
// Registry of the same process too, but that one never releases it while Open waits.
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
