//go:build !cgo

package tpmsim_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/nodeattest/nodeattest/tpmsim"
)

func TestWithoutCGO(t *testing.T) {
	for range 2 { // the second must not say that the first is in use
		_, err := tpmsim.Open(tpmsim.Options{})
		if !errors.Is(err, tpmsim.ErrNoCGO) {
			t.Fatalf("Open: %v, want ErrNoCGO", err)
		}
		for _, want := range []string{"gcc", "libssl-dev", "CGO_ENABLED=1"} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("error %q does not name %s", err, want)
			}
		}
	}
	rec := &recorder{TB: t}
	rec.run(func() { tpmsim.New(rec, tpmsim.Options{}) })
	if !rec.fatal || !strings.Contains(rec.text, "libssl-dev") {
		t.Errorf("New: fatal %v, %q", rec.fatal, rec.text)
	}
}
