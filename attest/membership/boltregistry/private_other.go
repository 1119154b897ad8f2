//go:build !unix

package boltregistry

import "io/fs"

const openNoFollow = 0

// checkFile: modes say nothing here; access lists are the administrator's.
func checkFile(fs.FileInfo) error { return nil }

// checkDirectory: likewise.
func checkDirectory(string) error { return nil }

// syncDirectory: directories cannot be synced here; NTFS journals its names.
func syncDirectory(string) error { return nil }
