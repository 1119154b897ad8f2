package clusterapi

import (
	"errors"
	"fmt"
	"reflect"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodeattest/nodeattest/internal/testkit"
)

// TestRenewPoolTokensOtherWriters: an edit before a write is not overwritten, and the next look decides about it.
func TestRenewPoolTokensOtherWriters(t *testing.T) {
	for name, row := range map[string]struct {
		edit func(s *corev1.Secret)
		want time.Duration // the end after the next look
	}{
		"a description": {func(s *corev1.Secret) { s.Data["description"] = []byte("theirs") }, 15 * time.Minute},
		"a later end": {func(s *corev1.Secret) {
			s.Data["expiration"] = []byte(time.Date(2026, 1, 2, 4, 4, 5, 0, time.UTC).Format(time.RFC3339))
		}, time.Hour},
		"another half":       {func(s *corev1.Secret) { s.Data["token-secret"] = []byte("fedcba9876543210") }, time.Minute},
		"an owner":           {func(s *corev1.Secret) { s.OwnerReferences = ownedBy("v1", "Tool", "mine") }, time.Minute},
		"another pool":       {func(s *corev1.Secret) { s.Labels = map[string]string{LabelPoolUID: "uid-of-others"} }, time.Minute},
		"without the label":  {func(s *corev1.Secret) { s.Labels, s.Annotations = nil, map[string]string{AnnotationPool: "x"} }, time.Minute},
		"an end in the past": {func(s *corev1.Secret) { s.Data["expiration"] = []byte("2026-01-01T00:00:00Z") }, 15 * time.Minute},
	} {
		for at := 1; at <= 2; at++ {
			t.Run(fmt.Sprint(name, ", write ", at), func(t *testing.T) {
				p, writes := newRenewed(t, time.Minute), 0
				r := p.renewer(t)
				p.before = func(*corev1.Secret) {
					if writes++; writes == at {
						p.edit(t, "aaaaaa", row.edit)
					}
				}
				testkit.NoError(t, r.run(t.Context()))
				theirs := p.get(t, "aaaaaa")
				edited := theirs.DeepCopy()
				if row.edit(edited); !reflect.DeepEqual(theirs, edited) || writes != at || counted(r.extended) != 0 {
					t.Errorf("their edit was overwritten: %v", theirs)
				}
				r.look(t.Context())
				if end := p.end(t, "aaaaaa"); end != row.want {
					t.Errorf("it ends in %v, want %v", end, row.want)
				}
			})
		}
	}
}

// TestRenewPoolTokensAgain: a Secret that was made again between read and write, with the same name, is not written.
func TestRenewPoolTokensAgain(t *testing.T) {
	p := newRenewed(t, time.Minute)
	p.before = func(*corev1.Secret) {
		p.before = nil
		testkit.NoError(t, p.nodes.Delete(t.Context(), p.get(t, "aaaaaa")))
		p.secret(t, "aaaaaa", time.Hour)
	}
	testkit.NoError(t, p.renewer(t).run(t.Context()))
	if s := p.get(t, "aaaaaa"); len(s.Labels) != 0 || p.end(t, "aaaaaa") != time.Hour {
		t.Errorf("got %v", s)
	}
}

// TestRenewPoolTokensMeanwhile: a pool that is shut, deleted, paused or moved between the two writes keeps the end
// of its token.
func TestRenewPoolTokensMeanwhile(t *testing.T) {
	for name, change := range map[string]func(t *testing.T, p *renewing){
		"shut": func(t *testing.T, p *renewing) { p.mark(t, "workers", true) },
		"paused": func(t *testing.T, p *renewing) {
			p.change(t, poolOf("v1beta2", "workers", 5), withNote(pausedAnnotation, ""))
		},
		"deleted": poolDeleted,
		"the Cluster": func(t *testing.T, p *renewing) {
			p.change(t, clusterOf("v1beta2", nil), withNote(pausedAnnotation, ""))
		},
		"no more there": func(t *testing.T, p *renewing) {
			testkit.NoError(t, p.home.Delete(t.Context(), poolOf("v1beta2", "workers", 5)))
		},
		"made again": func(t *testing.T, p *renewing) {
			testkit.NoError(t, p.home.Delete(t.Context(), poolOf("v1beta2", "workers", 5)))
			again := poolOf("v1beta2", "workers", 5)
			again.SetUID("another")
			testkit.NoError(t, p.home.Create(t.Context(), again))
		},
		"another Cluster's": func(t *testing.T, p *renewing) {
			p.change(t, poolOf("v1beta2", "workers", 5), func(o client.Object) { o.SetLabels(map[string]string{clusterLabel: "other"}) })
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newRenewed(t, time.Minute)
			p.before = func(*corev1.Secret) {
				p.before = nil
				change(t, p)
			}
			r := p.renewer(t)
			if err := r.run(t.Context()); err == nil || p.end(t, "aaaaaa") != time.Minute || counted(r.failures) != 1 {
				t.Errorf("got %v, and it ends in %v", err, p.end(t, "aaaaaa"))
			}
		})
	}
}

// TestRenewPoolTokensKilled: a process that is killed before or after any of its writes leaves what the next one
// finishes.
func TestRenewPoolTokensKilled(t *testing.T) {
	killed := errors.New("killed")
	for at := 1; at <= 2; at++ {
		for _, done := range []bool{false, true} {
			p := newRenewed(t, time.Minute)
			p.nodes.Fault(func(write int) (before, after error) {
				if write == at && !done {
					return killed, nil
				} else if write == at {
					return nil, killed
				}
				return nil, nil
			})
			if err := p.renewer(t).run(t.Context()); !errors.Is(err, killed) {
				t.Errorf("write %d: %v", at, err)
			}
			p.nodes.Fault(nil)
			testkit.NoError(t, p.renewer(t).run(t.Context()))
			if s := p.get(t, "aaaaaa"); p.end(t, "aaaaaa") != 15*time.Minute || s.Labels[LabelPoolUID] != "uid-of-workers" {
				t.Errorf("write %d, done %t: it ends in %v, %v", at, done, p.end(t, "aaaaaa"), s.Labels)
			}
		}
	}
}

// provider does what the bootstrap provider does for a complete pool: it replaces a token that ends within half its TTL.
func (p *renewing) provider(t *testing.T, n int) (replaced bool) {
	t.Helper()
	config := configOf("v1beta2", "workers", "")
	testkit.NoError(t, p.home.Get(t.Context(), client.ObjectKeyFromObject(config), config))
	if s := p.get(t, tokenID(config.Object)); s != nil && p.end(t, tokenID(config.Object)) >= 15*time.Minute/2 {
		return false
	}
	id := fmt.Sprintf("b%05d", n)
	p.secret(t, id, 15*time.Minute)
	p.change(t, config, func(o client.Object) {
		set(t, o.(*unstructured.Unstructured), id+"."+tokenHalf, "spec", "joinConfiguration", "discovery", "bootstrapToken", "token")
	})
	return true
}

// TestRenewPoolTokensForADay: the bootstrap provider never replaces the token of a complete pool while it is
// renewed, by one process or two, also if their clock is ten minutes ahead; and always does if it is not.
func TestRenewPoolTokensForADay(t *testing.T) {
	for name, row := range map[string]struct {
		processes int
		ahead     time.Duration
		replaced  bool
	}{"none": {0, 0, true}, "one": {1, 0, false}, "two": {2, 0, false}, "ahead": {1, 10 * time.Minute, false}} {
		t.Run(name, func(t *testing.T) {
			p := newRenewed(t, 15*time.Minute)
			p.ahead = row.ahead
			var all []*tokenRenewal
			for range row.processes {
				all = append(all, p.renewer(t))
			}
			replaced, extended := 0, 0
			for minute := range 24 * 60 {
				p.clock = p.clock.Add(time.Minute)
				for _, r := range all {
					testkit.NoError(t, r.run(t.Context()))
				}
				if minute%5 == 0 && p.provider(t, minute) {
					replaced++
				}
				if row.processes > 0 && (p.end(t, "aaaaaa") <= 0 || p.end(t, "aaaaaa") > 15*time.Minute+row.ahead) {
					t.Fatalf("after %d minutes it ends in %v", minute, p.end(t, "aaaaaa"))
				}
			}
			for _, r := range all {
				extended += counted(r.extended)
			}
			if (replaced > 0) != row.replaced || extended > 24*60/2 || row.processes > 0 && extended < 24*60/3 {
				t.Errorf("replaced %d times, extended %d times", replaced, extended)
			}
		})
	}
}
