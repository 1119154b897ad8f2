// Package files reads files that change while a program runs, such as the files of a ConfigMap or a
// Secret.
package files

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/nodeattest/nodeattest/refusal"
)

// Read reads a file of at most limit bytes.
func Read(path string, limit int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return ReadAll(f, path, limit)
}

// ReadForeign is [Read] for a file that another user may have created. It refuses a pipe or a device
// without waiting.
func ReadForeign(path string, limit int64) ([]byte, error) {
	f, err := openRegular(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return ReadAll(f, path, limit)
}

// ReadChanged is [ReadForeign] for a file that is read again and again: it returns its SHA-256, and no text if
// that is known. A file that changes while it is read is an error.
func ReadChanged(path string, limit int64, known [sha256.Size]byte) (text []byte, sum [sha256.Size]byte, err error) {
	f, err := openRegular(path)
	if err != nil {
		return nil, sum, err
	}
	defer f.Close()
	hash := sha256.New()
	size, err := io.Copy(hash, io.LimitReader(f, limit+1)) // which allocates nothing of the file's size
	if err == nil && size > limit {
		err = tooLong(path, limit)
	}
	if sum = [sha256.Size]byte(hash.Sum(nil)); err != nil || sum == known {
		return nil, sum, err
	}
	text = make([]byte, size+1) // one more than there were
	n, err := f.ReadAt(text, 0)
	if text = text[:n]; errors.Is(err, io.EOF) {
		err = nil
	}
	if err == nil && sha256.Sum256(text) != sum {
		err = fmt.Errorf("%s changed while it was read", refusal.Text(path))
	}
	return text, sum, err
}

// openRegular opens a regular file, and refuses a pipe or a device without waiting.
func openRegular(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, errors.Join(err, refusal.Config("file", refusal.Quote(path), "a regular file"), f.Close())
	}
	return f, nil
}

func tooLong(name string, limit int64) error {
	return fmt.Errorf("%s: more than %d bytes", refusal.Text(name), limit)
}

// ReadAll reads an open file of at most limit bytes; name is what errors call it.
func ReadAll(from io.Reader, name string, limit int64) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(from, limit+1))
	if err == nil && int64(len(text)) > limit {
		err = tooLong(name, limit)
	}
	return text, err
}

// Follow calls reload after each interval until ctx ends. While that fails, the caller keeps the last
// version; each new error is logged once, with what, the name of the files.
func Follow(ctx context.Context, interval time.Duration, what string, reload func() error) {
	failed := ""
	_ = wait.PollUntilContextCancel(ctx, interval, false, func(context.Context) (bool, error) { //goroutine: runs in this one
		switch err := reload(); {
		case err == nil:
			failed = ""
		case err.Error() != failed:
			failed = err.Error()
			log.FromContext(ctx).Error(err, "cannot read "+what+"; the last version stays in use")
		}
		return false, nil
	})
}

// FollowConfiguration follows a program's configuration in the file of that path until ctx ends. Once
// changed reports that it has changed, it calls end: the program is then restarted with it. A configuration
// that changed refuses is logged, and changes nothing.
func FollowConfiguration(ctx context.Context, path string, changed func() (bool, error), end func()) {
	Follow(ctx, configurationInterval, "the configuration", func() error {
		is, err := changed()
		if is {
			log.FromContext(ctx).Info("configuration changed: the program exits, to be restarted with the new one", "file", path)
			end()
		}
		return err
	})
}

// configurationInterval is how often a configuration is read.
const configurationInterval = 10 * time.Second
