//go:build !unix

package tpm

import "io/fs"

const openNoFollow = 0

// checkPrivate: modes say nothing here; access lists are the administrator's.
func checkPrivate(fs.FileInfo) error { return nil }

// syncDirectory: directories cannot be synced here; NTFS journals its names.
func syncDirectory(string) error { return nil }
