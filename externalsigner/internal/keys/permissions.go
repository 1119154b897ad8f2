package keys

import (
	"io"
	"os"
	"path/filepath"
	"strconv"

	"github.com/nodeattest/nodeattest/internal/safefile"
)

// readPublic reads a file that only root or this user can have written.
func readPublic(path string, maxSize int) ([]byte, error) {
	if err := safefile.CheckWay(filepath.Dir(path)); err != nil {
		return nil, err
	}
	return safefile.Read(path, maxSize, safefile.Trusted)
}

// readPrivate is readPublic for a file that other users cannot read.
func readPrivate(path string, maxSize int) (content []byte, err error) {
	if err := safefile.CheckWay(filepath.Dir(path)); err != nil {
		return nil, err
	}
	f, info, err := safefile.Open(path, os.O_RDONLY, safefile.Trusted)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if err := checkUnread(info); err != nil {
		return nil, err
	}
	content, err = io.ReadAll(io.LimitReader(f, int64(maxSize)+1))
	if err == nil && len(content) > maxSize {
		err = safefile.CheckFile.Refuse("a larger file", "at most "+strconv.Itoa(maxSize)+" bytes")
	}
	return content, err
}
