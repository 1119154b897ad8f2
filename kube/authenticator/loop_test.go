package authenticator

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/internal/testkit"
)

// lines is a log that counts.
type lines struct {
	t  testing.TB
	mu sync.Mutex
	n  int
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.n += bytes.Count(p, []byte("\n"))
	return l.t.Output().Write(p)
}

func (l *lines) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.n
}

// steps has the clock stand still, and move on only from one thing to do to the next: so many
// of them are the daemon's whole life. It returns the attempts that were made, the lines that
// were logged and the clock's way.
func steps(t *testing.T, f *fakeAPI, rounds int, as caller, change func(*Config)) (a *Authenticator, attempts, logged int, took time.Duration) {
	t.Helper()
	log := &lines{t: t}
	at := f.now()
	a, kind := newNode(t, f, func(c *Config) {
		c.Log, c.Now = slog.New(slog.NewTextHandler(log, nil)), func() time.Time { return at.Add(took) }
		if change != nil {
			change(c)
		}
	})
	began, before := took, kind.opened.Load()
	for range rounds {
		for _, i := range a.slots {
			s, err := a.snapshot(as).runStep(t.Context(), i)
			if end := (fatal{}); errors.As(err, &end) {
				t.Fatal(err)
			}
			if wait := s.at.Sub(at.Add(took)); i == a.slots[0] {
				took += max(wait, minSleep)
			}
			f.move(at.Add(took))
		}
	}
	return a, int(kind.opened.Load() - before), log.count(), took - began
}

// relog is the same node in another process with another log.
func relog(t *testing.T, a *Authenticator, log *lines) *Authenticator {
	t.Helper()
	c := a.config
	c.Log = slog.New(slog.NewTextHandler(log, nil))
	b := testkit.Must(New(c))
	return b
}

// TestShortCertificates: certificates that end at once are failures, with their pauses.
func TestShortCertificates(t *testing.T) {
	for _, lifetime := range []time.Duration{1500 * time.Millisecond, 4 * time.Second, 20 * time.Second, 5 * time.Minute} {
		for name, as := range map[string]caller{"daemon": {daemon: true}, "plugin": {plugin: true}} {
			t.Run(lifetime.String()+", "+name, func(t *testing.T) {
				f := newFakeAPI(t)
				f.lifetime = lifetime
				a, attempts, logged, took := steps(t, f, 5, as, nil)
				if took < 10*time.Second || attempts != 5 || logged != 5 {
					t.Errorf("%d attempts and %d lines in %s", attempts, logged, took)
				}
				if noted := a.onDisk(ClientFile); noted.Failures != 5 || !strings.Contains(noted.Error, "at least 6m0s") {
					t.Errorf("state %+v", noted)
				}
			})
		}
	}
}

// TestClocks: records of a wrong clock do not keep a node from its certificate.
func TestClocks(t *testing.T) {
	for name, c := range map[string]struct {
		set      time.Duration // the clock, once there is a certificate
		attempts int           // at most, in ten seconds after it was set
		none     bool          // it has no certificate until the clock is right
	}{
		"right":            {0, 0, false},
		"a day back":       {-24 * time.Hour, 1, false},
		"thirty days back": {-30 * 24 * time.Hour, 1, false},
		"seconds back":     {-5 * time.Second, 0, false},
		"half an hour on":  {30 * time.Minute, 0, false},
		"past its end":     {61 * time.Minute, 5, true},
		"ten years on":     {10 * 365 * 24 * time.Hour, 5, true},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFakeAPI(t)
			a, kind := newNode(t, f, nil)
			testkit.MustDo(a.Rotate(t.Context()))
			before := kind.opened.Load()
			var set time.Duration
			a.config.Now = func() time.Time { return f.now().Add(set) } // the API server's stays
			set = c.set
			for range 10 {
				if _, err := a.snapshot(caller{daemon: true}).runStep(t.Context(), a.slots[0]); err != nil && !c.none {
					t.Fatal(err)
				}
				set += time.Second
			}
			if got := int(kind.opened.Load() - before); got > c.attempts || got == 0 && c.attempts != 0 {
				t.Errorf("%d attempts, want %d", got, c.attempts)
			}
			if (a.snapshot(caller{}).next(a.slots[0]).use == nil) != c.none {
				t.Errorf("it has a certificate: %t", c.none)
			}
			set = 0
			if s, err := a.snapshot(caller{daemon: true}).runStep(t.Context(), a.slots[0]); err != nil || s.use == nil {
				t.Errorf("it has no certificate once the clock is right: %v", err)
			}
		})
	}
}

// TestClockAhead: a failure of the year 2036 is left on disk.
func TestClockAhead(t *testing.T) {
	for name, try := range map[string]func(t *testing.T, a *Authenticator){
		"plugin": func(t *testing.T, a *Authenticator) {
			obtained(t, a)
		},
		"daemon": func(t *testing.T, a *Authenticator) {
			run(t, a)
			eventually(t, "a certificate", func() bool { return a.stored(ClientFile) != nil && a.onDisk(ClientFile).Failures == 0 })
		},
	} {
		t.Run(name, func(t *testing.T) {
			a, _ := newNode(t, newFakeAPI(t), nil)
			text := `{"client.pem":{"failures":3,"last":"2036-01-01T00:00:00Z","next":"2036-01-01T00:00:04Z","error":"dial tcp: connection refused"}}`
			testkit.MustDo(os.WriteFile(a.store.Path(stateFile), []byte(text), 0o600))
			try(t, a)
			if noted := a.onDisk(ClientFile); noted.Failures != 0 || noted.Next.After(time.Now().Add(time.Minute)) {
				t.Errorf("state %+v", noted)
			}
		})
	}
}

// TestDaemonRemovedFolder: a daemon whose folder is removed ends, so that it is started again.
func TestDaemonRemovedFolder(t *testing.T) {
	f := newFakeAPI(t)
	log := &lines{t: t}
	a, _ := newNode(t, f, func(c *Config) {
		c.Dir, c.Log = filepath.Join(c.Dir, "state"), slog.New(slog.NewTextHandler(log, nil))
	})
	done := make(chan error, 1)
	go func() { done <- a.Run(t.Context()) }()
	eventually(t, "the certificate", func() bool { return a.stored(ClientFile) != nil })
	eventually(t, "the folder removed", func() bool { return os.RemoveAll(a.config.Dir) == nil }) // while the daemon may write there
	if err := <-done; !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "removed") {
		t.Errorf("got %v", err)
	}
	if log.count() > 5 {
		t.Errorf("%d lines", log.count())
	}
	b := again(t, a) // which makes the folder
	obtained(t, b)
}

// TestSilentDaemon: the plugin renews in spite of a daemon that holds its lock and shows no life.
func TestSilentDaemon(t *testing.T) {
	f := newFakeAPI(t)
	a, kind := joined(t, f, nil)
	beat, release, err := a.store.Hold(daemonName)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = release() }()
	before := a.stored(ClientFile)
	for range 2 {
		got := obtained(t, again(t, a))
		if got.Status.ClientKeyData != string(before.Key) || kind.opened.Load() != 1 {
			t.Error("renewed in spite of a daemon")
		}
	}
	if !a.Status().Daemon {
		t.Error("it does not show")
	}
	past := time.Now().Add(-5 * time.Minute)
	testkit.MustDo(os.Chtimes(a.store.Path(daemonName+".held"), past, past))
	if a.Status().Daemon {
		t.Error("it shows")
	}
	got := obtained(t, again(t, a))
	if got.Status.ClientKeyData == string(before.Key) || kind.opened.Load() != 2 {
		t.Error("not renewed after a daemon showed no life")
	}
	if err := beat(); err != nil || !a.Status().Daemon {
		t.Errorf("it shows no life again: %v", err)
	}
}

// TestDaemonShowsLife: also while it waits for a machine to be admitted.
func TestDaemonShowsLife(t *testing.T) {
	f := newFakeAPI(t)
	f.away = true
	a, _ := newNode(t, f, nil)
	shown := 0
	as := caller{daemon: true, beat: func() error { shown++; return nil }}
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		for f.calls("watch") == 0 {
			time.Sleep(time.Millisecond)
		}
		cancel()
	}()
	if _, err := a.snapshot(as).runStep(ctx, a.slots[0]); err == nil || shown == 0 {
		t.Errorf("got %v after %d signs of life", err, shown)
	}
}

// TestMemory: a record counts without a disk, and of two records the later one.
func TestMemory(t *testing.T) {
	f := newFakeAPI(t)
	a, _ := newNode(t, f, nil)
	write := func(l *Authenticator, failures int, after time.Duration) {
		t.Helper()
		lock := testkit.Must(l.store.TryLock())
		if err := errors.Join(l.note(lock, ClientFile, func(t *attempts, now time.Time) { t.Failures, t.Last = failures, now.Add(after) }), lock.Unlock()); err != nil {
			t.Error(err)
		}
	}
	write(a, 1, 0)
	write(again(t, a), 2, time.Second) // another process
	if got := a.readState()[ClientFile].Failures; got != 2 {
		t.Errorf("another process noted something later: got %d", got)
	}
	if err := a.note(nil, ClientFile, func(t *attempts, now time.Time) { t.Failures, t.Last = 3, now.Add(2*time.Second) }); err != nil {
		t.Error(err)
	}
	if got, other := a.readState()[ClientFile].Failures, again(t, a).readState()[ClientFile].Failures; got != 3 || other != 2 {
		t.Errorf("noted without a disk: got %d, and another process %d", got, other)
	}
	write(again(t, a), 4, 24*time.Hour) // of a clock that was ahead
	if got := a.readState()[ClientFile].Failures; got != 3 {
		t.Errorf("from the future: got %d", got)
	}
	testkit.MustDo(os.Remove(a.store.Path(stateFile)))
	if got := a.readState()[ClientFile].Failures; got != 3 {
		t.Errorf("once the disk is empty: got %d", got)
	}
}
