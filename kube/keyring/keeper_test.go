package keyring_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/kube/keyring"
	"github.com/nodeattest/nodeattest/refusal"
)

func store(t testing.TB) client.Client {
	t.Helper()
	scheme := runtime.NewScheme()
	testkit.MustDo(corev1.AddToScheme(scheme))
	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(empty("kube-system", "keys")).Build()
}

func empty(namespace, name string) *corev1.Secret {
	secret := new(corev1.Secret)
	secret.Namespace, secret.Name = namespace, name
	return secret
}

func config(c client.Client) keyring.Config {
	return keyring.Config{Reader: c, Writer: c, Secret: client.ObjectKey{Namespace: "kube-system", Name: "keys"}, Ring: new(attest.KeyRing)}
}

func keysIn(t *testing.T, c client.Client) []attest.RingKey {
	t.Helper()
	var secret corev1.Secret
	testkit.MustDo(c.Get(t.Context(), config(c).Secret, &secret))
	keys := testkit.Must(attest.ParseRingKeys(secret.Data))
	return keys
}

// TestRefresh checks that keys are made, kept, rotated and dropped in time.
func TestRefresh(t *testing.T) {
	c := store(t)
	now := began
	conf := config(c)
	conf.Now = func() time.Time { return now }
	keeper := testkit.Must(keyring.New(conf))
	for _, step := range []struct {
		name  string
		after time.Duration
		want  int
	}{
		{"the first key", 0, 1},
		{"the same key", time.Hour, 1},
		{"a second key, after its time", 30 * 24 * time.Hour, 2},
		{"no third one", 30*24*time.Hour + time.Hour, 2},
		{"the third, without the first", 2*30*24*time.Hour + time.Hour, 2},
	} {
		t.Run(step.name, func(t *testing.T) {
			now = began.Add(step.after)
			if err := keeper.Refresh(t.Context()); err != nil {
				t.Fatal(step.name, err)
			}
			if got := len(keysIn(t, c)); got != step.want {
				t.Errorf("%s: %d keys, want %d", step.name, got, step.want)
			}
		})
	}
}

// TestForeignEntries has entries in the Secret that are no keys: they stay, keys are made, kept and
// rotated next to them, and the log names them once. An entry that may have been a key stops the
// keeper.
func TestForeignEntries(t *testing.T) {
	c := store(t)
	var secret corev1.Secret
	change := func(change func(data map[string][]byte)) {
		t.Helper()
		testkit.MustDo(c.Get(t.Context(), config(c).Secret, &secret))
		if secret.Data == nil {
			secret.Data = map[string][]byte{}
		}
		change(secret.Data)
		testkit.MustDo(c.Update(t.Context(), &secret))
	}
	var logged []string
	ctx := log.IntoContext(t.Context(), funcr.New(func(_, args string) { logged = append(logged, args) }, funcr.Options{}))
	keeper, now := timed(t, config(c), began)
	foreign := map[string][]byte{"README": []byte("do not edit"), "note": bytes.Repeat([]byte("n"), 48)}
	change(func(data map[string][]byte) { maps.Copy(data, foreign) })
	for _, after := range []time.Duration{0, time.Hour, 30 * 24 * time.Hour} {
		*now = began.Add(after)
		if err := errors.Join(keeper.Refresh(ctx), keeper.Check(nil)); err != nil {
			t.Fatalf("after %s: %v", after, err)
		}
	}
	if keys := keysIn(t, c); len(keys) != 2 {
		t.Errorf("%d keys, want the first and the next", len(keys))
	}
	change(func(data map[string][]byte) {
		for name, value := range foreign {
			if !bytes.Equal(data[name], value) {
				t.Errorf("%s is %q", name, data[name])
			}
		}
	})
	if len(logged) != 1 || !strings.Contains(logged[0], "README") || !strings.Contains(logged[0], "note") || strings.Contains(logged[0], "do not edit") {
		t.Errorf("logged %q, want the names once", logged)
	}
	conf := config(c)
	conf.ReadOnly, conf.Writer = true, nil
	reader, _ := timed(t, conf, *now)
	refresh(t, reader)
	for name, value := range map[string][]byte{"0011223344556677": []byte("do not edit"), "00112233AABBCCDD": bytes.Repeat([]byte{1}, 48), "00112233": bytes.Repeat([]byte{1}, 48)} {
		change(func(data map[string][]byte) { data[name] = value })
		if err := keeper.Refresh(ctx); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s, which may be a key: %v", name, err)
		}
		change(func(data map[string][]byte) { delete(data, name) })
	}
	refresh(t, keeper)
}

// timed is a keeper with a clock of its own, which can be set.
func timed(t *testing.T, conf keyring.Config, at time.Time) (*keyring.Keeper, *time.Time) {
	t.Helper()
	now := at
	conf.Now = func() time.Time { return now }
	k := testkit.Must(keyring.New(conf))
	return k, &now
}

// refresh expects a keeper to read the Secret and to be ready.
func refresh(t *testing.T, k *keyring.Keeper) {
	t.Helper()
	testkit.MustDo(errors.Join(k.Refresh(t.Context()), k.Check(nil)))
}

var began = time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)

const month = 30 * 24 * time.Hour // how long a key is used by default

// noUpdates is an API server that refuses updates: the Secret is immutable, the right was taken
// away, a webhook is down, etcd is full.
type noUpdates struct{ client.Client }

func (noUpdates) Update(context.Context, client.Object, ...client.UpdateOption) error {
	return errors.New("the API server refuses the update")
}

// TestRotationThatCannotBeWritten: the ring goes on with the keys that were read, and after
// another month the replica says that it is not well. A metric shows it all the while.
func TestRotationThatCannotBeWritten(t *testing.T) {
	c, metrics := store(t), prometheus.NewRegistry()
	conf := config(c)
	first, _ := timed(t, conf, began)
	refresh(t, first)
	conf.Writer, conf.Metrics = noUpdates{c}, metrics
	k, now := timed(t, conf, began)
	refresh(t, k)
	ring := conf.Ring
	for _, step := range []struct {
		after       time.Duration
		wrote, good bool
	}{{month - time.Second, true, true}, {month, false, true}, {2 * month, false, true}, {2*month + time.Second, false, false}} {
		*now = began.Add(step.after)
		if err := k.Refresh(t.Context()); (err == nil) != step.wrote {
			t.Errorf("after %s: got %v", step.after, err)
		}
		if err := k.Check(nil); (err == nil) != step.good {
			t.Errorf("after %s: ready: %v", step.after, err)
		}
		if err := ring.Refresh(keysIn(t, c), now.Add(-time.Second)); err == nil {
			t.Errorf("after %s: the ring was not refreshed", step.after)
		}
	}
	reads := config(c)
	reads.ReadOnly, reads.Writer = true, nil
	reader, _ := timed(t, reads, *now)
	refresh(t, reader) // which does not know how long a key is used
	found, err := metrics.Gather()
	if err != nil || len(found) != 1 || found[0].GetMetric()[0].GetGauge().GetValue() != float64(began.Unix()) {
		t.Errorf("got %v, %v, want the time of the first key", found, err)
	}
}

// TestFirstKeyOfAFastClock: replicas whose clocks are right make a key of their own, and until it
// is active they say that they are not ready.
func TestFirstKeyOfAFastClock(t *testing.T) {
	c := store(t)
	fast, _ := timed(t, config(c), began.AddDate(1, 0, 0))
	refresh(t, fast)
	k, now := timed(t, config(c), began)
	testkit.MustDo(k.Refresh(t.Context()))
	if err := k.Check(nil); err == nil {
		t.Error("ready without a key in use")
	}
	*now = began.Add(2 * attest.MaxRingAge)
	refresh(t, k)
	if keys := keysIn(t, c); len(keys) != 2 || keys[1].ActiveAt.Before(began.AddDate(1, 0, 0)) {
		t.Errorf("got %v, want the key of the fast clock kept", keys)
	}
	refresh(t, fast) // whose key is as good as it was
}

// TestOneLookOfAFastClock: keys rotate as before, and none of them lives for ten years.
func TestOneLookOfAFastClock(t *testing.T) {
	c := store(t)
	k, now := timed(t, config(c), began)
	refresh(t, k)
	fast, _ := timed(t, config(c), began.AddDate(10, 0, 0))
	testkit.MustDo(fast.Refresh(t.Context()))
	for n := range 24 {
		*now = began.Add(time.Duration(n) * month)
		refresh(t, k)
		*now = now.Add(time.Hour)
		refresh(t, k)
	}
	for _, key := range keysIn(t, c) {
		if age := now.Sub(key.ActiveAt); age > month+3*time.Hour || age > 0 && key.RetiredAt.After(now.Add(month)) {
			t.Errorf("a key that is active since %s is retired at %s", key.ActiveAt, key.RetiredAt)
		}
	}
}

// TestClockSetBack: nothing is verified until the clock has caught up, and no keeper is ready.
func TestClockSetBack(t *testing.T) {
	k, now := timed(t, config(store(t)), began)
	refresh(t, k)
	for *now = range times(began.Add(-time.Hour), began, 20*time.Second) {
		if err := k.Refresh(t.Context()); err == nil {
			t.Fatal("the ring took an older reading")
		}
		if k.Check(nil) == nil {
			t.Fatalf("ready at %s", now)
		}
	}
	*now = began
	refresh(t, k)
}

// TestCheckLimits: a reading counts from its instant for as long as the ring takes it, and without
// a key in use no keeper is ready, whether it rotates keys or not.
func TestCheckLimits(t *testing.T) {
	c := store(t)
	k, now := timed(t, config(c), began)
	refresh(t, k)
	*now = began.Add(time.Hour)
	refresh(t, k)
	for after, ready := range map[time.Duration]bool{-1: false, 0: true, attest.MaxRingAge: true, attest.MaxRingAge + 1: false} {
		if *now = began.Add(time.Hour + after); (k.Check(nil) == nil) != ready {
			t.Errorf("%s after the reading: %v", after, k.Check(nil))
		}
	}
	conf := config(c)
	conf.ReadOnly = true
	early, _ := timed(t, conf, began.Add(-time.Hour)) // when the only key is not active yet
	if err := early.Refresh(t.Context()); err != nil || early.Check(nil) == nil {
		t.Errorf("without a key in use: read: %v, ready: %v", err, early.Check(nil))
	}
}

// unreadable is an API server that answers no read, and whose objects can be written.
type unreadable struct {
	client.Client
	updates int
}

var errUnreadable = errors.New("the API server does not answer")

func (*unreadable) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	return errUnreadable
}

func (u *unreadable) Update(context.Context, client.Object, ...client.UpdateOption) error {
	u.updates++
	return nil
}

// TestUnreadable: nothing is written over a Secret that could not be read.
func TestUnreadable(t *testing.T) {
	c := &unreadable{}
	k, _ := timed(t, config(c), began)
	if err := k.Refresh(t.Context()); !errors.Is(err, errUnreadable) || c.updates != 0 || k.Check(nil) == nil {
		t.Errorf("%v, after %d updates; ready: %v", err, c.updates, k.Check(nil))
	}
}

// times are from, and so on, before to.
func times(from, to time.Time, step time.Duration) iter.Seq[time.Time] {
	return func(yield func(time.Time) bool) {
		for at := from; at.Before(to) && yield(at); at = at.Add(step) {
		}
	}
}

// TestReplicas has several replicas make the first key at once: they end with the same.
func TestReplicas(t *testing.T) {
	c := store(t)
	errs := make(chan error)
	for range 8 {
		keeper := testkit.Must(keyring.New(config(c)))
		go func() { errs <- keeper.Refresh(context.Background()) }()
	}
	for range 8 {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	if got := len(keysIn(t, c)); got != 1 {
		t.Errorf("%d keys, want 1", got)
	}
}

// TestDamaged gives a Secret without usable keys, or no Secret: the error shows no value, and no key is
// made.
func TestDamaged(t *testing.T) {
	for name, change := range map[string]func(c client.Client, secret *corev1.Secret, conf *keyring.Config) error{
		"no key under the name of one": func(c client.Client, secret *corev1.Secret, _ *keyring.Config) error {
			secret.Data = map[string][]byte{"0123456789abcdef": []byte("hunter2")}
			return c.Update(t.Context(), secret)
		},
		"empty, for who only reads": func(_ client.Client, _ *corev1.Secret, conf *keyring.Config) error {
			conf.ReadOnly = true
			return nil
		},
		"not there": func(c client.Client, secret *corev1.Secret, _ *keyring.Config) error {
			return c.Delete(t.Context(), secret)
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := store(t)
			conf := config(c)
			testkit.MustDo(change(c, empty("kube-system", "keys"), &conf))
			keeper, err := keyring.New(conf)
			if err != nil {
				t.Fatal(err)
			}
			err = keeper.Refresh(t.Context())
			if err == nil {
				t.Fatal("was taken")
			}
			if text := err.Error(); len(text) == 0 || strings.Contains(text, "hunter2") {
				t.Errorf("the error shows a value: %s", text)
			}
		})
	}
}

// TestRetired takes all keys out of the Secret, as an operator does whose key has leaked: a new
// one is made, and the old one verifies nothing.
func TestRetired(t *testing.T) {
	c := store(t)
	conf := config(c)
	keeper := testkit.Must(keyring.New(conf))
	testkit.MustDo(keeper.Refresh(t.Context()))
	leaked := keysIn(t, c)
	patch := client.RawPatch(types.JSONPatchType, []byte(`[{"op":"remove","path":"/data"}]`))
	testkit.MustDo(c.Patch(t.Context(), empty(conf.Secret.Namespace, conf.Secret.Name), patch))
	testkit.MustDo(keeper.Refresh(t.Context()))
	if now := keysIn(t, c); len(now) != 1 || reflect.DeepEqual(now, leaked) {
		t.Errorf("%d keys, the leaked one among them: %t", len(now), reflect.DeepEqual(now, leaked))
	}
}

func TestStartEndsWithItsContext(t *testing.T) {
	keeper := testkit.Must(keyring.New(config(store(t))))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := keeper.Start(ctx); err != nil {
		t.Error(err)
	}
	if keeper.NeedLeaderElection() {
		t.Error("a replica that does not lead would not read the ring")
	}
}

// unread is a reader that notes when it was asked, and fails for the first times.
type unread struct {
	client.Reader
	fails int
	at    []time.Time
}

func (u *unread) Get(ctx context.Context, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
	u.at = append(u.at, time.Now())
	if len(u.at) <= u.fails {
		return errors.New("not yet")
	}
	return u.Reader.Get(ctx, key, o, options...)
}

// TestStartRetries reads a ring that could not be read after a second, then later and later,
// and one that was read in its time.
func TestStartRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := store(t)
		reader := &unread{Reader: c, fails: 7}
		k := config(c)
		k.Reader = reader
		keeper := testkit.Must(keyring.New(k))
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		if err := keeper.Start(ctx); err != nil {
			t.Error(err)
		}
		want := []time.Duration{1, 2, 4, 8, 16, 20, 20, 20, 20}
		for i, seconds := range want {
			if i+1 >= len(reader.at) || reader.at[i+1].Sub(reader.at[i]) != seconds*time.Second {
				t.Fatalf("read at %v, want pauses of %v seconds", reader.at, want)
			}
		}
		if err := keeper.Check(nil); err != nil {
			t.Error(err)
		}
	})
}

func TestConfig(t *testing.T) {
	for name, change := range map[string]func(c *keyring.Config){
		"no reader":            func(c *keyring.Config) { c.Reader = nil },
		"no writer":            func(c *keyring.Config) { c.Writer = nil },
		"no namespace":         func(c *keyring.Config) { c.Secret.Namespace = "" },
		"no name":              func(c *keyring.Config) { c.Secret.Name = "" },
		"no ring":              func(c *keyring.Config) { c.Ring = nil },
		"rotation too often":   func(c *keyring.Config) { c.RotateAfter = time.Hour },
		"a little too often":   func(c *keyring.Config) { c.RotateAfter = 24*time.Hour - 1 },
		"rotation in the past": func(c *keyring.Config) { c.RotateAfter = -48 * time.Hour },
	} {
		t.Run(name, func(t *testing.T) {
			c := config(store(t))
			change(&c)
			if _, err := keyring.New(c); !errors.Is(err, refusal.CheckConfig) {
				t.Errorf("%s: %v, want %s", name, err, refusal.CheckConfig)
			}
		})
	}
	daily := config(store(t))
	daily.RotateAfter = 24 * time.Hour
	if _, err := keyring.New(daily); err != nil {
		t.Errorf("once a day: %v", err)
	}
}

func ExampleKeeper_Refresh() {
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		fmt.Println(err)
		return
	}
	// In a program, the manager's clients.
	api := fake.NewClientBuilder().WithScheme(scheme).WithObjects(empty("nodeattest-system", "challenge-keys")).Build()
	ring := new(attest.KeyRing) // goes into attest.VerifierConfig
	keeper, err := keyring.New(keyring.Config{
		Reader: api, Writer: api, Ring: ring,
		Secret: client.ObjectKey{Namespace: "nodeattest-system", Name: "challenge-keys"},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(keeper.Refresh(context.Background())) // manager.Add(keeper) does it over and over
	// Output: <nil>
}

// stored is a cluster with one Secret.
type stored struct {
	client.Reader
	data map[string][]byte
}

func (s stored) Get(_ context.Context, _ client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	secret, ok := o.(*corev1.Secret)
	if !ok {
		return errors.New("no Secret")
	}
	secret.Data = s.data
	return nil
}

// FuzzSecret: whatever a Secret holds, the ring is refreshed with all of its keys, or there
// is an error and nothing can be verified. A keeper that only reads takes a key of any age.
func FuzzSecret(f *testing.F) {
	for _, active := range []time.Time{began, began.Add(-12 * month), began.Add(month)} {
		data := testkit.Must(attest.MarshalRingKeys([]attest.RingKey{attest.NewRingKey(active)}))
		for name, value := range data {
			f.Add(name, value)
			f.Add(name, value[1:])
			f.Add("key", value)
		}
	}
	f.Fuzz(func(t *testing.T, name string, value []byte) {
		conf := config(nil)
		conf.Reader, conf.Writer, conf.ReadOnly = stored{data: map[string][]byte{name: value}}, nil, true
		conf.Now = func() time.Time { return began }
		keeper := testkit.Must(keyring.New(conf))
		refreshed, checked := keeper.Refresh(t.Context()), keeper.Check(nil)
		if refreshed != nil && checked == nil {
			t.Fatalf("refreshed: %v, ready: %v", refreshed, checked)
		}
		inUse := false
		if keys, err := attest.ParseRingKeys(map[string][]byte{name: value}); err == nil && len(keys) == 1 {
			inUse = !keys[0].ActiveAt.After(began) && (keys[0].RetiredAt.IsZero() || keys[0].RetiredAt.After(began))
		}
		if inUse != (checked == nil) {
			t.Fatalf("a key in use: %t, ready: %v", inUse, checked)
		}
	})
}
