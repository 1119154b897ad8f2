//go:build !unix

package keys

import "io/fs"

// checkUnread accepts every file: there, the access lists are the administrator's.
func checkUnread(fs.FileInfo) error { return nil }
