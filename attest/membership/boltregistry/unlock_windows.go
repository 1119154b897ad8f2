package boltregistry

import "os"

// unlock does nothing: a lock on Windows is its handle's, and is gone with it.
func unlock(*os.File) {}
