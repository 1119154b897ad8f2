package controlplane

import (
	"errors"
	"net/http"
	"slices"
	"testing"

	"github.com/go-logr/logr/funcr"
)

// A check that fails is named in the log, with its reason: once, and not at each probe.
func TestLogged(t *testing.T) {
	var lines []string
	log := funcr.New(func(_, args string) { lines = append(lines, args) }, funcr.Options{})
	var now error
	check := logged(log, "key-ring", func(*http.Request) error { return now })
	first, second := errors.New("no key"), errors.New("no clock")
	for _, now = range []error{nil, first, first, second, nil, nil} {
		if err := check(nil); !errors.Is(err, now) {
			t.Errorf("got %v, want %v", err, now)
		}
	}
	want := []string{
		`"level"=0 "msg"="not ready" "check"="key-ring" "why"="no key"`,
		`"level"=0 "msg"="not ready" "check"="key-ring" "why"="no clock"`,
		`"level"=0 "msg"="readiness check passes again" "check"="key-ring"`,
	}
	if !slices.Equal(lines, want) {
		t.Errorf("logged %q, want %q", lines, want)
	}
}
