package claims

import (
	"errors"
	"slices"
	"testing"
	"time"
	"unsafe"

	"github.com/nodeattest/nodeattest/refusal"
)

// TestStaleAnswers: an answer that is too old, or does not say how old it is, is refused by
// everybody who asks for it, whatever the object says.
func TestStaleAnswers(t *testing.T) {
	const most = 5 * time.Second
	for name, tt := range map[string]struct {
		asOf  func(w *world)
		stale bool
	}{
		"as old as it may be":    {func(w *world) { w.objects.age(w.now, most) }, false},
		"new":                    {func(w *world) { w.objects.age(w.now, 0) }, false},
		"too old":                {func(w *world) { w.objects.age(w.now, most+1) }, true},
		"of a time to come":      {func(w *world) { w.objects.age(w.now, -1) }, true},
		"without its age":        {func(*world) {}, true},
		"the account's too old":  {func(w *world) { w.objects.age(w.now, 0); w.objects.account.AsOf = *w.ago(most + 1) }, true},
		"the pod's too old":      {func(w *world) { w.objects.age(w.now, 0); w.objects.pod.AsOf = *w.ago(most + 1) }, true},
		"the node's without age": {func(w *world) { w.objects.age(w.now, 0); w.objects.node.AsOf = time.Time{} }, true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			tt.asOf(w)
			want := func(who string, err error) {
				t.Helper()
				if !tt.stale && err != nil {
					t.Errorf("%s: %v", who, err)
				}
				if tt.stale && (!errors.Is(err, checkStaleAnswer) || !errors.Is(err, refusal.ErrRetry)) {
					t.Errorf("%s: got %v, want %v and %v", who, err, checkStaleAnswer, refusal.ErrRetry)
				}
			}
			strict := w.strictConfig()
			strict.Objects, strict.MaxStaleness = staleObjects{w.objects}, most
			v := w.strictWith(t, strict)
			_, err := v.Validate(t.Context(), w.token(t))
			want("Validator", err)
			_, _, err = v.ValidateOnNode(t.Context(), w.token(t), attested())
			want("ValidateOnNode", err)
		})
	}
}

func TestStaleAnswersOfNodeCheck(t *testing.T) {
	w := newWorld(t)
	r, err := w.strict(t).Validate(t.Context(), w.token(t))
	if err != nil {
		t.Fatal(err)
	}
	c := w.nodeCheck()
	objects := FreshObjects{From: staleObjects{w.objects}, MaxStaleness: time.Second, Now: w.clock}
	w.objects.node.AsOf = *w.ago(time.Second)
	if _, err := c.Check(t.Context(), objects, r, attested(), w.now); err != nil {
		t.Error(err)
	}
	w.objects.node.AsOf = *w.ago(time.Second + 1)
	_, err = c.Check(t.Context(), objects, r, attested(), w.now)
	if wantCheck(t, err, refusal.ErrRetry); !errors.Is(err, checkStaleAnswer) {
		t.Errorf("an old Node: %v", err)
	}
}

// TestValidateOnNodeReadsOnce: every object is read once, so that no two answers about one
// can differ.
func TestValidateOnNodeReadsOnce(t *testing.T) {
	w := newWorld(t)
	if _, _, err := w.strict(t).ValidateOnNode(t.Context(), w.token(t), attested()); err != nil {
		t.Fatal(err)
	}
	if want := []string{"serviceaccounts", "pods", "nodes"}; !slices.Equal(w.objects.asked, want) {
		t.Errorf("asked for %v, want %v", w.objects.asked, want)
	}
}

// TestFreshObjects: what no configuration allows is refused, and the age
// counts by the system's clock where there is no other.
func TestFreshObjects(t *testing.T) {
	w := newWorld(t)
	fresh := FreshObjects{From: staleObjects{w.objects}, MaxStaleness: time.Hour}
	w.objects.age(time.Now(), time.Minute)
	if _, err := fresh.Get(t.Context(), "secrets", "ns", "secret"); err != nil {
		t.Error(err)
	}
	w.objects.age(time.Now(), 2*time.Hour)
	_, err := fresh.Get(t.Context(), "pods", "ns", "pod")
	wantCheck(t, err, checkStaleAnswer)
	_, err = FreshObjects{}.Get(t.Context(), "pods", "ns", "pod")
	wantCheck(t, err, refusal.CheckConfig)
}

// An answer from before a machine slept is as old as the wall clock says; one from before the wall
// clock was set back, as old as the monotonic one says.
func TestAgeAsleep(t *testing.T) {
	now := time.Now()
	slept, back := now.Add(time.Hour), now
	(*[2]int64)(unsafe.Pointer(&slept))[1] -= int64(time.Hour) // where package time keeps the monotonic reading
	(*[2]int64)(unsafe.Pointer(&back))[1] += int64(time.Hour)
	var objects MemoryObjects
	objects.Put("secrets", Object{Name: "secret", AsOf: now})
	for name, then := range map[string]time.Time{"slept": slept, "set back": back} {
		fresh := FreshObjects{From: &objects, MaxStaleness: time.Hour - 1, Now: func() time.Time { return then }}
		_, err := fresh.Get(t.Context(), "secrets", "", "secret")
		wantCheck(t, err, checkStaleAnswer)
		fresh.MaxStaleness = time.Hour
		if _, err := fresh.Get(t.Context(), "secrets", "", "secret"); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
