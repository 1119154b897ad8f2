package files

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
)

// TestFollow: each new error is logged once, until ctx ends.
func TestFollow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var logged []string
		log := funcr.New(func(_, args string) { logged = append(logged, args) }, funcr.Options{})
		ctx, cancel := context.WithTimeout(logr.NewContext(t.Context(), log), 6500*time.Millisecond)
		defer cancel()
		a, b := errors.New("a"), errors.New("b")
		results := []error{nil, a, a, b, nil, b}
		n := 0
		Follow(ctx, time.Second, "the list", func() error { n++; return results[n-1] })
		const says = `"msg"="cannot read the list; the last version stays in use" "error"=`
		if want := []string{says + `"a"`, says + `"b"`, says + `"b"`}; n != len(results) || !slices.Equal(logged, want) {
			t.Errorf("%d reads, got %q, want %q", n, logged, want)
		}
	})
}
