package tpm

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// ErrPasswordFile says that a file with a secret is not one to trust: others may
// read it, another user owns it, or it has another form than this package writes.
var ErrPasswordFile = errors.New("password file refused")

var (
	errNoPrivateFile     = errors.New("no such file")
	errPrivateFileExists = errors.New("file exists")
)

// readPrivateFile reads a file of at most maxSize bytes that only its owner, this
// process's user, can read. One that is not there is errNoPrivateFile.
func readPrivateFile(path string, maxSize int) ([]byte, error) {
	// Not through a symbolic link, and not waiting for a FIFO's writer.
	f, err := os.OpenFile(path, os.O_RDONLY|openNoFollow, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errNoPrivateFile
	}
	if err != nil {
		if info, lerr := os.Lstat(path); lerr == nil && info.Mode().Type() == fs.ModeSymlink {
			return nil, fmt.Errorf("%w: it is a symbolic link", ErrPasswordFile)
		}
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%w: it is no regular file but %s", ErrPasswordFile, info.Mode().Type())
	}
	if err := checkPrivate(info); err != nil {
		return nil, err
	}
	if info.Size() > int64(maxSize) {
		return nil, fmt.Errorf("%w: got %d bytes, want %d", ErrPasswordFile, info.Size(), maxSize)
	}
	return io.ReadAll(io.LimitReader(f, int64(maxSize)+1))
}

// writePrivateFile makes a file of mode 0600 that is there either whole or not at
// all, and is on disk when the function returns. A file that exists is left alone:
// errPrivateFileExists.
func writePrivateFile(path string, content []byte) (err error) {
	dir, base := filepath.Split(path)
	if base == "" {
		return fmt.Errorf("%q names no file", path)
	}
	f, err := os.CreateTemp(filepath.Clean(dir), "."+base+".*.tmp") // mode 0600
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.Remove(f.Name())) }()
	_, err = f.Write(content)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := os.Link(f.Name(), path); err != nil { // unlike a rename, never over another file
		if errors.Is(err, fs.ErrExist) {
			return errPrivateFileExists
		}
		return err
	}
	return syncDirectory(filepath.Clean(dir))
}

// syncPrivateFile brings a file that another process wrote to disk.
func syncPrivateFile(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR|openNoFollow, 0)
	if err != nil {
		return err
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return err
	}
	return syncDirectory(filepath.Dir(path))
}
