package bootstraptoken

import (
	"errors"
	"fmt"

	"github.com/nodeattest/nodeattest/internal/safefile"
)

// WriteFile stores the cache in a file of mode 0600, in the place of the one that was
// there: a reader, also one after a loss of power, finds the old one or the new one whole.
// The directory must exist. Errors are those of [Cache.Marshal] and the file system's.
func (c *Cache) WriteFile(path string) error {
	data, err := c.Marshal()
	if err != nil {
		return err
	}
	if err := safefile.Replace(path, safefile.Content(data)); err != nil {
		return fmt.Errorf("bootstraptoken: %w", err)
	}
	return nil
}

// ReadCacheFile reads a file that [Cache.WriteFile] wrote. On Unix the file must be this
// user's or root's, and nobody else may be able to write it; it is no symbolic link. The
// error is [CheckCache], or the file system's: errors.Is finds [io/fs.ErrNotExist].
func ReadCacheFile(path string) (*Cache, error) {
	data, err := safefile.Read(path, MaxCacheSize, safefile.Trusted)
	switch {
	case errors.Is(err, safefile.CheckFile):
		return nil, &Error{Check: CheckCache, Err: err}
	case err != nil:
		return nil, fmt.Errorf("bootstraptoken: %w", err)
	}
	return ParseCache(data)
}
