package bootstrap

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/nodeattest/nodeattest/bootstraptoken"
)

func (w *world) signer() *signer { return &signer{client: w, now: w.clock, reporter: w.reporter} }

// looks has a controller look once, and wants when it is to look again.
func looks(t *testing.T, w *world, l looker, again time.Duration) {
	t.Helper()
	if result, err := l.look(w.ctx, everything{}); err != nil || result != (reconcile.Result{RequeueAfter: again}) {
		t.Fatalf("got %+v, %v, want to look again after %s", result, err, again)
	}
}

// signed wants what bootstraptoken.Sign gives.
func (w *world) signed(t *testing.T, ids ...string) {
	t.Helper()
	objects, err := tokens(t.Context(), w.Client)
	if err != nil {
		t.Fatal(err)
	}
	data := w.data(t)
	signing, err := bootstraptoken.Sign(data, objects, w.now)
	if err != nil || signing.Changed {
		t.Errorf("Sign would change %v, %v", slices.Sorted(maps.Keys(data)), err)
	}
	var got []string
	for _, key := range slices.Sorted(maps.Keys(data)) {
		if id, ok := strings.CutPrefix(key, "jws-kubeconfig-"); ok {
			got = append(got, id)
		}
	}
	if !slices.Equal(got, ids) || data["kubeconfig"] != "a kubeconfig" || data["other"] != "kept" {
		t.Errorf("signed for %q, want %q; the data: %v", got, ids, data)
	}
}

// TestSigner: each token with the usage signing signs until its end, and nothing else changes.
func TestSigner(t *testing.T) {
	w := newWorld(t, Signer)
	s := w.signer()
	looks(t, w, s, 0) // there is no ConfigMap
	w.info(t, map[string]string{"kubeconfig": "a kubeconfig", "other": "kept", "jws-kubeconfig-stale0": "from a token that is gone"})
	w.token(t, "aaaaaa", "")
	w.token(t, "bbbbbb", after(time.Minute))
	w.token(t, "cccccc", after(3*time.Hour))
	w.token(t, "dddddd", after(-time.Minute))
	w.token(t, "eeeeee", "", func(s *corev1.Secret) { delete(s.Data, "usage-bootstrap-signing") })
	w.token(t, "ffffff", "", func(s *corev1.Secret) { s.Type = corev1.SecretTypeOpaque })
	w.writes()
	looks(t, w, s, time.Minute)
	if n := w.writes(); n != 1 {
		t.Errorf("%d writes", n)
	}
	w.signed(t, "aaaaaa", "bbbbbb", "cccccc")
	looks(t, w, s, time.Minute)
	w.now = epoch.Add(time.Minute - time.Second)
	looks(t, w, s, time.Second)
	if n := w.writes(); n != 0 {
		t.Errorf("%d writes at rest", n)
	}
	w.now = epoch.Add(time.Minute)
	looks(t, w, s, maxWait)
	w.signed(t, "aaaaaa", "cccccc")
	w.now = epoch.Add(3 * time.Hour)
	looks(t, w, s, 0)
	w.signed(t, "aaaaaa")
	if n := w.value(t, "nodeattest_bootstrap_writes_total", "done"); n != 3 || len(w.told()) != 0 {
		t.Errorf("%v writes counted", n)
	}
}

// TestSignerReports: a Secret that cannot be read is reported once, and signs again once it can be.
func TestSignerReports(t *testing.T) {
	w := newWorld(t, Signer)
	s := w.signer()
	w.info(t, map[string]string{"other": "kept"})
	looks(t, w, s, 0)
	looks(t, w, s, 0)
	if told := w.told(); len(told) != 1 || !strings.Contains(told[0], "cluster-info-kubeconfig") {
		t.Errorf("without a kubeconfig: %q", told)
	}
	w.change(t, func(data map[string]string) { data["kubeconfig"] = "a kubeconfig" })
	bad := w.token(t, "aaaaaa", "", func(s *corev1.Secret) { s.Data["expiration"] = []byte("soon") })
	w.token(t, "bbbbbb", "")
	looks(t, w, s, 0)
	looks(t, w, s, 0)
	w.signed(t, "bbbbbb")
	told := w.told()
	if len(told) != 1 || !strings.Contains(told[0], "bootstrap-token-expiration") || w.value(t, "nodeattest_bootstrap_refused", "") != 1 {
		t.Errorf("told %q, %v refused", told, w.value(t, "nodeattest_bootstrap_refused", ""))
	}
	if n := strings.Count(w.log.String(), "object=bootstrap-token-aaaaaa"); n != 1 {
		t.Errorf("logged %d times:\n%s", n, w.log.String())
	}
	delete(bad.Data, "expiration")
	if err := w.Update(t.Context(), bad); err != nil {
		t.Fatal(err)
	}
	looks(t, w, s, 0)
	w.signed(t, "aaaaaa", "bbbbbb")
	if w.value(t, "nodeattest_bootstrap_refused", "") != 0 {
		t.Error("it still counts as refused")
	}
}

// change is another program's write.
func (w *world) change(t *testing.T, f func(data map[string]string)) {
	t.Helper()
	var object corev1.ConfigMap
	if err := w.Client.Get(t.Context(), client.ObjectKey{Namespace: "kube-public", Name: "cluster-info"}, &object); err != nil {
		t.Fatal(err)
	}
	f(object.Data)
	if err := w.Client.Update(t.Context(), &object); err != nil {
		t.Fatal(err)
	}
}

// cached is a cache that does not move.
type cached struct {
	client.Client
	info corev1.ConfigMap
}

func (c *cached) Get(_ context.Context, _ client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	c.info.DeepCopyInto(into.(*corev1.ConfigMap))
	return nil
}

// TestSignerOverwritesNothing: it writes over the ConfigMap that it read and no other, and over none twice.
func TestSignerOverwritesNothing(t *testing.T) {
	w := newWorld(t, Signer)
	w.info(t, map[string]string{"kubeconfig": "a kubeconfig"})
	w.token(t, "aaaaaa", "")
	old := &cached{Client: w}
	if err := w.Client.Get(t.Context(), client.ObjectKey{Namespace: "kube-public", Name: "cluster-info"}, &old.info); err != nil {
		t.Fatal(err)
	}
	s := w.signer()
	s.client = old
	w.change(t, func(data map[string]string) { data["other"] = "kept" })
	looks(t, w, s, conflictPause)
	if w.data(t)["other"] != "kept" || w.value(t, "nodeattest_bootstrap_writes_total", "conflict") != 1 {
		t.Errorf("it wrote over another's: %v", w.data(t))
	}
	s.client = w
	looks(t, w, s, 0)
	w.signed(t, "aaaaaa")
	if err := w.Client.Get(t.Context(), client.ObjectKey{Namespace: "kube-public", Name: "cluster-info"}, &old.info); err != nil {
		t.Fatal(err)
	}
	w.change(t, func(data map[string]string) { delete(data, "jws-kubeconfig-aaaaaa") })
	looks(t, w, s, 0)
	w.writes()
	s.client = old // the cache is behind the last write
	old.info.ResourceVersion = s.replaced
	looks(t, w, s, conflictPause)
	if n := w.writes(); n != 0 {
		t.Errorf("%d writes over what it has replaced", n)
	}
}

// TestSignerTriesAgain: a write that fails is an error, which has it look again.
func TestSignerTriesAgain(t *testing.T) {
	w := newWorld(t, Signer)
	w.info(t, map[string]string{"kubeconfig": "a kubeconfig", "other": "kept"})
	w.token(t, "aaaaaa", "")
	s, away := w.signer(), errors.New("no connection")
	w.Fault(func(int) (before, after error) { return away, nil })
	if _, err := s.look(w.ctx, everything{}); !errors.Is(err, away) {
		t.Errorf("got %v", err)
	}
	w.Fault(func(int) (before, after error) {
		return apierrors.NewNotFound(schema.GroupResource{}, "cluster-info"), nil
	})
	looks(t, w, s, conflictPause)
	w.Fault(nil)
	looks(t, w, s, 0)
	w.signed(t, "aaaaaa")
}
