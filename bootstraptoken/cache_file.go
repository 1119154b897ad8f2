package bootstraptoken

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// WriteFile stores the cache in a file of mode 0600, in the place of the one that was
// there: a reader, also one after a loss of power, finds the old one or the new one whole.
// The directory must exist. Errors are those of [Cache.Marshal] and the file system's.
func (c *Cache) WriteFile(path string) (err error) {
	data, err := c.Marshal()
	if err != nil {
		return err
	}
	dir, base := filepath.Split(path)
	dir = filepath.Clean(dir)
	f, err := os.CreateTemp(dir, "."+base+".*.tmp") // mode 0600
	if err != nil {
		return fmt.Errorf("bootstraptoken: %w", err)
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return fmt.Errorf("bootstraptoken: %w", errors.Join(err, os.Remove(f.Name())))
	}
	if err := syncDirectory(dir); err != nil {
		return fmt.Errorf("bootstraptoken: %w", err)
	}
	return nil
}

// ReadCacheFile reads a file that [Cache.WriteFile] wrote. On Unix the file must be this
// user's or root's, and nobody else may be able to write it; it is no symbolic link. The
// error is [CheckCache], or the file system's: errors.Is finds [io/fs.ErrNotExist].
func ReadCacheFile(path string) (*Cache, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|openNoFollow, 0) // not waiting for a FIFO's writer
	if err != nil {
		return nil, fmt.Errorf("bootstraptoken: %w", err)
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("bootstraptoken: %w", err)
	}
	if !info.Mode().IsRegular() {
		return nil, &Error{Check: CheckCache, Got: "a file of the type " + info.Mode().Type().String(), Want: "a regular file"}
	}
	if err := checkTrusted(info); err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(f, MaxCacheSize+1))
	if err != nil {
		return nil, fmt.Errorf("bootstraptoken: %w", err)
	}
	return ParseCache(data)
}
