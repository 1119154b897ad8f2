package keys

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/internal/testkit"
)

// TestRun rotates with the real clock, while tokens are signed and keys are read from many goroutines.
func TestRun(t *testing.T) {
	b := newBench(t)
	b.config.Now, b.config.Publish, b.config.ReloadInterval = nil, Duration(500*time.Millisecond), minInterval
	b.start()
	ctx, stop := context.WithCancel(t.Context())
	var all sync.WaitGroup
	all.Go(func() {
		if err := b.keys.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	for range 4 {
		all.Go(func() {
			for ctx.Err() == nil {
				s, err := b.keys.Sign(t.Context(), []byte("{}"))
				if err != nil {
					t.Error(err)
					return
				}
				if keys, err := b.keys.Keys(t.Context(), s.Key.KeyID()); err != nil || len(keys) != 1 {
					t.Errorf("a token is refused: %v", err)
				}
				_ = b.keys.Status()
			}
		})
	}
	began := time.Now()
	for _, n := range []int{4, 5} {
		b.write("key.pem", privatePEM(n))
		b.write("peers/p.pem", publicPEM(n+1))
		for b.signs() != id(n) {
			time.Sleep(10 * time.Millisecond)
			if time.Since(began) > time.Minute {
				t.Fatal(b.log)
			}
		}
	}
	stop()
	all.Wait()
	if keys := testkit.Must(b.keys.Keys(t.Context(), "")); len(keys) != 4 {
		t.Errorf("got %d keys", len(keys))
	}
	if time.Since(began) < time.Second {
		t.Error("a key signed before it was published for 500 ms")
	}
}
