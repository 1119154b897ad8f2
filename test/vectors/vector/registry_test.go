package vector

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/attest/membership"
	"github.com/nodeattest/nodeattest/internal/testkit/mounttest"
)

// registryVectors are the vectors of the level registry: there must be some.
func registryVectors(t *testing.T) []*Vector {
	t.Helper()
	var out []*Vector
	for _, v := range loadAll(t).Vectors {
		if v.Level == LevelRegistry {
			out = append(out, v)
		}
	}
	if len(out) < 20 {
		t.Fatalf("%d vectors of registries", len(out))
	}
	return out
}

// The registry in a file comes to the same as the one in memory.
func TestReplayFileRegistry(t *testing.T) {
	ctx := context.Background()
	for _, v := range registryVectors(t) {
		t.Run(v.Name, func(t *testing.T) {
			dir := mounttest.Disk(t)
			if err := os.Chmod(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(dir, "registry")
			if err := membership.CreateFileRegistry(ctx, path, membership.Scope{Cluster: "cluster-1"}); err != nil {
				t.Fatal(err)
			}
			c := &clock{}
			r, err := membership.OpenFileRegistry(ctx, path, membership.Scope{Cluster: "cluster-1"}, membership.RegistryOptions{Now: c.now})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := r.Close(); err != nil {
					t.Error(err)
				}
			})
			if err := v.conclude(nil, Perform(ctx, r, c.set, v.Registry)); err != nil {
				t.Error(err)
			}
		})
	}
}

// Whatever is changed in the expectation of one call, the replay notices.
func TestReplayRegistryBites(t *testing.T) {
	ctx := context.Background()
	for _, v := range registryVectors(t) {
		for n := range v.Registry {
			for name, change := range map[string]func(*Operation){
				"another check":   func(o *Operation) { o.Expect, o.Found = "another-check", nil },
				"another verdict": func(o *Operation) { o.Retry = !o.Retry },
				"another record": func(o *Operation) {
					if o.Found == nil {
						o.Found = &RegistryFound{State: "bound"}
						return
					}
					o.Found = nil
				},
				"another state": func(o *Operation) { o.Found = &RegistryFound{State: "another"} },
				"another pair": func(o *Operation) {
					o.Found = &RegistryFound{NodeName: "another", Machine: "another", ProviderID: "another"}
				},
				"other times": func(o *Operation) {
					o.Found = &RegistryFound{Deadline: time.Unix(1, 0), LastEnd: time.Unix(1, 0)}
				},
			} {
				if n == len(v.Registry)-1 && v.Expect != "" {
					continue // the vector's own expectation counts: TestReplayBites
				}
				changed := *v
				changed.Registry = append([]Operation{}, v.Registry...)
				change(&changed.Registry[n])
				if changed.conclude(changed.run(ctx, &Environment{})) == nil {
					t.Errorf("%s, operation %d with %s: the replay does not notice", v.Name, n, name)
				}
			}
		}
	}
}

// A refusal in the middle is not the one that the vector is about.
func TestRefusalInTheMiddle(t *testing.T) {
	for _, v := range registryVectors(t) {
		if v.Expect == "" {
			continue
		}
		last := v.Registry[len(v.Registry)-1]
		last.Expect, last.Retry = "", false
		changed := *v
		changed.Registry = append(append(append([]Operation{}, v.Registry[:len(v.Registry)-1]...), last), last)
		err := changed.Replay(context.Background(), &Environment{})
		if err == nil || !strings.Contains(err.Error(), "refused: ") {
			t.Errorf("%s: %v", v.Name, err)
		}
	}
}

// Each member of a vector's own environment counts: some vector comes to another end
// without it.
func TestReplayReadsItsEnvironment(t *testing.T) {
	set := loadAll(t)
	for name, change := range map[string]func(*Environment){
		"EK issuers":     func(e *Environment) { e.EKIssuers = []EKIssuer{} },
		"EK profiles":    onIssuers(func(i *EKIssuer) { i.Profile = nil }),
		"intermediates":  onIssuers(func(i *EKIssuer) { i.Intermediates = nil }),
		"CRLs":           onIssuers(func(i *EKIssuer) { i.CRLs, i.RequireCRL = nil, false }),
		"demand of CRLs": onIssuers(func(i *EKIssuer) { i.RequireCRL = false }),
		"allowed EKs":    func(e *Environment) { e.AllowedEKs = []string{} },
		"denied TPMs":    func(e *Environment) { e.DeniedTPMs = nil },
		"good PCRs":      func(e *Environment) { e.GoodPCRs = nil },
		"first use":      func(e *Environment) { e.FirstUse = nil },
		"nodes":          onFirstUse(func(f *FirstUse) { f.Nodes = nil }),
		"history":        onFirstUse(func(f *FirstUse) { f.History = nil }),
		"EK algorithm":   onFirstUse(func(f *FirstUse) { f.EKAlgorithm = "" }),
		"machines":       func(e *Environment) { e.Machines = nil },
	} {
		t.Run(name, func(t *testing.T) {
			failed := 0
			for _, v := range set.Vectors {
				if v.Environment == nil {
					continue
				}
				changed, own := *v, *v.Environment
				change(&own)
				changed.Environment = &own
				if changed.Replay(context.Background(), &set.Environment) != nil {
					failed++
				}
			}
			if failed == 0 {
				t.Errorf("%s: all vectors come to the same", name)
			}
		})
	}
}

func onIssuers(change func(*EKIssuer)) func(*Environment) {
	return func(e *Environment) {
		e.EKIssuers = append([]EKIssuer(nil), e.EKIssuers...)
		for n := range e.EKIssuers {
			change(&e.EKIssuers[n])
		}
	}
}

func onFirstUse(change func(*FirstUse)) func(*Environment) {
	return func(e *Environment) {
		if e.FirstUse != nil {
			f := *e.FirstUse
			change(&f)
			e.FirstUse = &f
		}
	}
}
