//go:build !unix

package safefile

import (
	"io/fs"
	"os"
)

const openNoFollow = 0

func checkFile(fs.FileInfo, Access) error { return nil }

// CheckDirectory has nothing to check here.
func CheckDirectory(string) error { return nil }

// CheckWay has nothing to check here.
func CheckWay(string) error { return nil }

// syncDirectory: directories cannot be synced here; NTFS journals its names.
func syncDirectory(*os.Root) error { return nil }
