package authenticator

import (
	"context"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/internal/testkit"
)

// TestPluginSeesDaemon: while the daemon attests, the plugin waits, and knows the result at once.
func TestPluginSeesDaemon(t *testing.T) {
	f := newFakeAPI(t)
	other, _ := newNode(t, f, nil)
	testkit.MustDo(other.Rotate(t.Context()))
	pair := other.stored(ClientFile)
	for name, c := range map[string]struct {
		change func(*Config)
		fails  bool
	}{
		"one folder":      {},
		"keys in another": {change: func(c *Config) { c.KeyDir = t.TempDir() }},
		"a failure":       {fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			a, kind := newNode(t, f, c.change)
			l := testkit.Must(a.store.Lock(t.Context()))
			defer func() { testkit.NoError(t, l.Unlock()) }()
			testkit.MustDo(a.note(l, ClientFile, func(t *attempts, now time.Time) { // as at the beginning of an attempt
				*t = attempts{Failures: 1, Last: now, Next: now.Add(lastPause), Error: unfinished}
			}))
			written := make(chan time.Time, 1)
			go func() {
				time.Sleep(200 * time.Millisecond)
				at := time.Now()
				if c.fails {
					testkit.MustDo(a.end(l, a.slots[0], "", &deniedError{}))
				} else {
					testkit.MustDo(a.snapshot(caller{daemon: true}).install(l, a.slots[0], pair))
				}
				written <- at
			}()
			_, err := again(t, a).Credential(t.Context())
			if late := time.Since(<-written); late > time.Second { // the pause is 30 s
				t.Errorf("the plugin returned %s after the daemon's result", late)
			}
			if (err != nil) != c.fails || kind.opened.Load() != 0 {
				t.Errorf("got %v after %d attempts of its own", err, kind.opened.Load())
			}
		})
	}
}

// TestSleep: a sleep ends with its time, with its context and, for the plugin, with a write of another process.
func TestSleep(t *testing.T) {
	a, _ := newNode(t, newFakeAPI(t), nil)
	v := a.snapshot(caller{plugin: true})
	if err := v.sleep(t.Context(), 3*lookPause); err != nil {
		t.Error(err)
	}
	l := testkit.Must(a.store.Lock(t.Context()))
	for range 2 { // a missing file, then one that is there
		testkit.MustDo(l.Write(stateFile, []byte("{}\n")))
		began := time.Now()
		if err := v.sleep(t.Context(), time.Minute); err != nil || time.Since(began) > 30*time.Second {
			t.Errorf("got %v after %s", err, time.Since(began))
		}
		v.refresh()
	}
	testkit.NoError(t, l.Unlock())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := v.sleep(ctx, time.Minute); err == nil {
		t.Error("it slept on")
	}
}
