package boltregistry

import "os"

// unlock does nothing: on Windows a lock ends with its handle.
func unlock(*os.File) {}
