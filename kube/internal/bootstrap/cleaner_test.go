package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func (w *world) cleaner() *cleaner { return &cleaner{client: w, now: w.clock, reporter: w.reporter} }

// TestCleaner: a token's Secret goes at its end, and no other. One whose end cannot be read stays, and is
// reported once.
func TestCleaner(t *testing.T) {
	w := newWorld(t, Cleaner)
	c := w.cleaner()
	looks(t, w, c, 0)
	bad := w.token(t, "aaaaaa", "tomorrow")
	forever, soon, late := w.token(t, "bbbbbb", ""), w.token(t, "cccccc", after(time.Minute)), w.token(t, "dddddd", after(3*time.Hour))
	past := w.token(t, "eeeeee", after(-time.Minute))
	misnamed := w.token(t, "ffffff", after(-time.Minute), func(s *corev1.Secret) { s.Name = "another-name" })
	foreign := w.token(t, "gggggg", after(-time.Minute), func(s *corev1.Secret) { s.Type = corev1.SecretTypeOpaque })
	elsewhere := w.token(t, "hhhhhh", after(-time.Minute), func(s *corev1.Secret) { s.Namespace = "default" })
	leaving := w.token(t, "iiiiii", after(-time.Minute), func(s *corev1.Secret) { s.Finalizers = []string{"example.com/kept"} })
	if err := w.Delete(t.Context(), leaving); err != nil {
		t.Fatal(err)
	}
	w.writes()
	looks(t, w, c, time.Minute)
	looks(t, w, c, time.Minute)
	if n := w.writes(); n != 2 || w.has(t, past) || w.has(t, misnamed) {
		t.Errorf("%d deletions", n)
	}
	w.now = epoch.Add(time.Minute)
	looks(t, w, c, maxWait)
	for _, s := range []*corev1.Secret{bad, forever, late, foreign, elsewhere, leaving} {
		if !w.has(t, s) {
			t.Errorf("%s is gone", s.Name)
		}
	}
	if w.has(t, soon) {
		t.Error("an expired token is there")
	}
	told := w.told()
	if len(told) != 1 || !strings.Contains(told[0], "bootstrap-token-expiration") || w.value(t, "nodeattest_bootstrap_refused", "") != 1 ||
		strings.Count(w.log.String(), "object=bootstrap-token-aaaaaa") != 1 || w.value(t, "nodeattest_bootstrap_writes_total", "done") != 3 {
		t.Errorf("told %q, logged\n%s", told, w.log.String())
	}
}

// behind is a client whose lists are older than the rest.
type behind struct {
	client.Client
	list corev1.SecretList
}

func (b *behind) List(_ context.Context, into client.ObjectList, _ ...client.ListOption) error {
	b.list.DeepCopyInto(into.(*corev1.SecretList))
	return nil
}

// TestCleanerDeletesWhatItRead: a token that was given more time, or made again, stays.
func TestCleanerDeletesWhatItRead(t *testing.T) {
	w := newWorld(t, Cleaner)
	renewed, again, gone := w.token(t, "aaaaaa", after(0)), w.token(t, "bbbbbb", after(0)), w.token(t, "cccccc", after(0))
	old := &behind{Client: w}
	if err := w.Client.List(t.Context(), &old.list); err != nil {
		t.Fatal(err)
	}
	renewed.Data["expiration"] = []byte(after(time.Hour))
	if err := w.Update(t.Context(), renewed); err != nil {
		t.Fatal(err)
	}
	for _, s := range []*corev1.Secret{again, gone} {
		if err := w.Delete(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	again = w.token(t, "bbbbbb", after(time.Hour))
	c := w.cleaner()
	c.client = old
	looks(t, w, c, conflictPause)
	if !w.has(t, renewed) || !w.has(t, again) || w.value(t, "nodeattest_bootstrap_writes_total", "conflict") != 2 {
		t.Error("it deleted what it had not read")
	}
}

// TestCleanerTriesAgain: each deletion is tried, and an error has it look again.
func TestCleanerTriesAgain(t *testing.T) {
	w := newWorld(t, Cleaner)
	first, second := w.token(t, "aaaaaa", after(0)), w.token(t, "bbbbbb", after(0))
	c, away := w.cleaner(), errors.New("no connection")
	w.Fault(func(write int) (before, after error) {
		if write == 1 {
			return away, nil
		}
		return nil, nil
	})
	if _, err := c.look(w.ctx, everything{}); !errors.Is(err, away) || !strings.Contains(err.Error(), first.Name) || !w.has(t, first) || w.has(t, second) {
		t.Errorf("got %v", err)
	}
	looks(t, w, c, 0)
	if w.has(t, first) {
		t.Error("it is still there")
	}
}

// TestCleanerLogsLittle: an API server that takes no deletion does not fill the log, and each Secret is still tried.
func TestCleanerLogsLittle(t *testing.T) {
	w := newWorld(t, Cleaner)
	const n = 200
	for i := range n {
		w.token(t, fmt.Sprintf("a%05d", i), after(0))
	}
	away := errors.New(strings.Repeat("x", 200))
	w.Fault(func(int) (before, after error) { return away, nil })
	if _, err := w.cleaner().look(w.ctx, everything{}); !errors.Is(err, away) || len(err.Error()) > 2000 || !strings.Contains(err.Error(), "197 more") {
		t.Errorf("an error of %d bytes", len(err.Error()))
	}
	if failed := w.value(t, "nodeattest_bootstrap_writes_total", "failed"); failed != n {
		t.Errorf("%v were tried", failed)
	}
}
