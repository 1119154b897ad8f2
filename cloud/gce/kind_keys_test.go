package gce_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/cloud/cloudtest"
	"github.com/nodeattest/nodeattest/cloud/gce"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/jws"
	"github.com/nodeattest/nodeattest/refusal"
)

// keyServer serves the keys of a cloud as Google does, until they are replaced.
type keyServer struct {
	mu      sync.Mutex
	keys    []*jws.Key
	fetches int
	down    bool
}

func (s *keyServer) set(down bool, keys ...*jws.Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down, s.keys = down, keys
}

func (s *keyServer) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fetches++
	set, err := jws.MarshalJWKS(s.keys)
	if err != nil || s.down {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Cache-Control", "public, max-age=20000")
	_, _ = w.Write(set)
}

// Fetched keys: they are kept, one that is new is fetched, one that is withdrawn ends, and
// where nothing can be fetched nothing is decided.
func TestFetchedKeys(t *testing.T) {
	older, newer := google(t), cloudtest.NewGCE(t)
	newer.Now = older.Now
	served := &keyServer{}
	served.set(false, older.Keys()...)
	server := httptest.NewTLSServer(served)
	defer server.Close()
	clock := now
	set := testkit.Must(jws.NewRemoteKeySet(jws.RemoteConfig{Client: server.Client(), JWKSURL: server.URL + "/oauth2/v3/certs", Now: func() time.Time { return clock }}))
	verify := func(cloud *cloudtest.GCE) error {
		_, err := gce.VerifyToken(t.Context(), tokenOf(t, cloud.Token, audience), audience, gce.KindConfig{Keys: set, Projects: []string{project}}, now)
		return err
	}
	for range 3 {
		if err := verify(older); err != nil {
			t.Fatal(err)
		}
	}
	if served.fetches != 1 {
		t.Errorf("%d fetches", served.fetches)
	}
	if err := verify(newer); !errors.Is(err, jws.CheckKeyID) || errors.Is(err, refusal.ErrRetry) {
		t.Error(err)
	}
	served.set(false, newer.Keys()...)
	clock = clock.Add(2 * time.Minute) // an unknown ID is remembered for a minute
	if err := verify(newer); err != nil {
		t.Error(err)
	}
	if err := verify(older); !errors.Is(err, jws.CheckKeyID) && !errors.Is(err, refusal.ErrRetry) {
		t.Error(err)
	}
	served.set(true)
	clock = clock.Add(100 * time.Hour)
	if err := verify(newer); !errors.Is(err, refusal.ErrRetry) {
		t.Error(err)
	}
}
