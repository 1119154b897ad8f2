// Package files reads files that are rewritten while a program runs, such as those of a
// ConfigMap or a Secret.
package files

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/log"
)

// Read reads a file of at most limit bytes.
func Read(path string, limit int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(text)) > limit {
		err = fmt.Errorf("%s: more than %d bytes", path, limit)
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
