package program

import (
	"context"
	"crypto/ed25519"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/membership"
	"github.com/nodeattest/nodeattest/kube/internal/settings"
)

// fetching is a kind whose keys are fetched.
type fetching struct {
	attest.Kind
	err error
}

func (f *fetching) Ready(context.Context) error { return f.err }

// TestEvidence is not ready before the keys of a kind have been fetched, and while they cannot be,
// and logs each change once.
func TestEvidence(t *testing.T) {
	kind := rackKind()
	open, fetches := kind.Open, &fetching{err: errors.New("unknown authority")}
	kind.Open = func(decode func(into any) error) (attest.Kind, error) {
		var err error
		fetches.Kind, err = open(decode)
		return fetches, err
	}
	s, err := settings.Read(write(t, strings.ReplaceAll(configuration, "KEY", strings.Repeat("ab", ed25519.PublicKeySize))), settings.Kind(kind))
	if err != nil {
		t.Fatal(err)
	}
	machines, err := s.OpenInventory()
	if err != nil {
		t.Fatal(err)
	}
	admits, err := s.NewMembers(func(scope membership.Scope) (membership.Registry, membership.Lookups, error) {
		r, err := membership.NewMemoryRegistry(scope, membership.RegistryOptions{})
		return r, nil, err
	}, func(context.Context, string) (bool, error) { return false, nil })
	if err != nil {
		t.Fatal(err)
	}
	providers, err := s.Providers(new(attest.KeyRing), machines, admits)
	if err != nil {
		t.Fatal(err)
	}
	if len(providers.Ready()) != 1 {
		t.Fatalf("%d kinds can say whether they work, want 1", len(providers.Ready()))
	}
	e := &evidence{kind: "rack", ready: providers.Ready()["rack"], err: errNotAsked}
	synctest.Test(t, func(t *testing.T) {
		var logged []string
		ctx, cancel := context.WithCancel(logr.NewContext(t.Context(), funcr.New(func(_, line string) { logged = append(logged, line) }, funcr.Options{})))
		if err := e.check(nil); !errors.Is(err, errNotAsked) {
			t.Errorf("before it is asked: %v", err)
		}
		ended := make(chan error, 1)
		go func() { ended <- e.Start(ctx) }()
		for _, want := range []error{fetches.err, fetches.err, nil, nil, errors.New("gone")} {
			fetches.err = want
			time.Sleep(evidenceInterval + time.Second)
			synctest.Wait()
			if err := e.check(nil); !errors.Is(err, want) {
				t.Errorf("got %v, want %v", err, want)
			}
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if len(logged) != 3 {
			t.Errorf("logged %q, want each change once", logged)
		}
	})
}
