package boltregistry

import (
	"io/fs"
	"os"
	"sync"
)

// here are the files that this process has open. The lock on a file keeps a second Registry
// of the same process out as it does another process, but only the latter will ever let go of
// it while Open waits.
var here struct {
	sync.Mutex
	open map[*file]fs.FileInfo
}

// noteOpen notes whether f is open.
func (f *file) noteOpen(open bool) {
	here.Lock()
	defer here.Unlock()
	if !open {
		delete(here.open, f)
		return
	}
	if here.open == nil {
		here.open = map[*file]fs.FileInfo{}
	}
	here.open[f] = f.info
}

// openHere reports whether this process has the file open.
func openHere(path string) bool {
	info, err := os.Lstat(path)
	if err != nil {
		return false
	}
	here.Lock()
	defer here.Unlock()
	for _, open := range here.open {
		if os.SameFile(info, open) {
			return true
		}
	}
	return false
}
