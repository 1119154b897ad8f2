// Package files reads files that are rewritten while a program runs, such as those of a
// ConfigMap or a Secret.
package files

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

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
	return read(f, limit)
}

// ReadForeign is [Read] for a file that a stranger may have put there. What is no regular file,
// such as a pipe, is an error at once.
func ReadForeign(path string, limit int64) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, errors.Join(err, refusal.Config("file", refusal.Quote(path), "a regular file"))
	}
	return read(f, limit)
}

func read(f *os.File, limit int64) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(text)) > limit {
		err = fmt.Errorf("%s: more than %d bytes", refusal.Text(f.Name()), limit)
	}
	return text, err
}

// Follow calls reload after each interval until ctx ends. While that fails, the caller keeps
// what was read last; each new error is logged once, with what could not be read.
func Follow(ctx context.Context, interval time.Duration, what string, reload func() error) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	failed := ""
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		switch err := reload(); {
		case err == nil:
			failed = ""
		case err.Error() != failed:
			failed = err.Error()
			log.FromContext(ctx).Error(err, what+" was not read; the last one stays")
		}
	}
}
