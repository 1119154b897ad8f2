package apiserver

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/claims"
	"github.com/nodeattest/nodeattest/jws"
)

const (
	worldIssuer   = "https://kubernetes.default.svc"
	worldAudience = "https://vault.example"
)

// A world is a cluster in which one token is good: a pod of ns/app runs on node-a.
type world struct {
	now     time.Time
	signer  *jws.CryptoSigner
	keys    jws.KeySet
	objects *worldObjects
	claims  *claims.Claims
}

func newWorld(t testing.TB) *world {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := jws.NewSigner(private, jws.SignerOptions{})
	if err != nil {
		t.Fatal(err)
	}
	keys, err := jws.NewStaticKeySet(signer.Key())
	if err != nil {
		t.Fatal(err)
	}
	now := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	return &world{
		now: now, signer: signer, keys: keys,
		objects: &worldObjects{
			account: &claims.Object{Name: "app", Namespace: "ns", UID: "app-uid"},
			secret:  &claims.Object{Name: "secret", Namespace: "ns", UID: "secret-uid"},
			pod:     &claims.Pod{Object: claims.Object{Name: "pod", Namespace: "ns", UID: "pod-uid"}, ServiceAccountName: "app", NodeName: "node-a"},
			node:    &claims.Node{Object: claims.Object{Name: "node-a", UID: "node-uid"}, ProviderID: "gce://p/z/a"},
		},
		claims: &claims.Claims{
			Issuer: worldIssuer, Subject: "system:serviceaccount:ns:app", Audiences: []string{worldAudience},
			Expiry: claims.NewNumericDate(now.Add(time.Hour)), NotBefore: claims.NewNumericDate(now), IssuedAt: claims.NewNumericDate(now),
			ID: "3f2f4f2e-5ab6-4a92-a0a6-7a6b1c4d9f10",
			Kubernetes: claims.Private{
				Namespace: "ns", ServiceAccount: claims.Ref{Name: "app", UID: "app-uid"},
				Pod: &claims.Ref{Name: "pod", UID: "pod-uid"}, Node: &claims.Ref{Name: "node-a", UID: "node-uid"},
			},
		},
	}
}

func (w *world) clock() time.Time { return w.now }

// token signs the world's claims.
func (w *world) token(t testing.TB) string {
	t.Helper()
	payload, err := w.claims.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return w.sign(t, payload)
}

func (w *world) sign(t testing.TB, payload []byte) string {
	t.Helper()
	signature, err := w.signer.Sign(context.Background(), payload)
	if err != nil {
		t.Fatal(err)
	}
	return signature.Token(payload)
}

func (w *world) kubernetesConfig() ValidatorConfig {
	return ValidatorConfig{Issuers: []string{worldIssuer}, Keys: w.keys, Objects: w.objects, Audiences: []string{worldIssuer, worldAudience}, Now: w.clock}
}

func (w *world) kubernetes(t testing.TB) *Validator {
	t.Helper()
	return w.kubernetesWith(t, w.kubernetesConfig())
}

func (w *world) kubernetesWith(t testing.TB, config ValidatorConfig) *Validator {
	t.Helper()
	v, err := NewValidator(config)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func (w *world) strictConfig() claims.ValidatorConfig {
	return claims.ValidatorConfig{
		Issuer: worldIssuer, Keys: w.keys, Audiences: []string{worldAudience}, Objects: w.objects,
		InsecureAllowReplay: true, Now: w.clock,
	}
}

func (w *world) strict(t testing.TB) *claims.Validator {
	t.Helper()
	return w.strictWith(t, w.strictConfig())
}

func (w *world) strictWith(t testing.TB, config claims.ValidatorConfig) *claims.Validator {
	t.Helper()
	v, err := claims.NewValidator(config)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// worldObjects has at most one object of each kind.
type worldObjects struct {
	account *claims.Object
	secret  *claims.Object
	pod     *claims.Pod
	node    *claims.Node
	fail    error // for every question
	silent  bool  // neither answers nor errors

	mu    sync.Mutex
	asked []string
}

func answer[T any](o *worldObjects, resource, name string, object *T, of func(*T) string) (*T, error) {
	o.mu.Lock()
	o.asked = append(o.asked, resource)
	o.mu.Unlock()
	switch {
	case o.fail != nil:
		return nil, o.fail
	case o.silent:
		return nil, nil
	case object == nil || of(object) != name:
		return nil, claims.NewNotFound(resource, name)
	}
	return object, nil
}

func (o *worldObjects) ServiceAccount(_ context.Context, _, name string) (*claims.Object, error) {
	return answer(o, "serviceaccounts", name, o.account, func(x *claims.Object) string { return x.Name })
}

func (o *worldObjects) Secret(_ context.Context, _, name string) (*claims.Object, error) {
	return answer(o, "secrets", name, o.secret, func(x *claims.Object) string { return x.Name })
}

func (o *worldObjects) Pod(_ context.Context, _, name string) (*claims.Pod, error) {
	return answer(o, "pods", name, o.pod, func(x *claims.Pod) string { return x.Name })
}

func (o *worldObjects) Node(_ context.Context, name string) (*claims.Node, error) {
	return answer(o, "nodes", name, o.node, func(x *claims.Node) string { return x.Name })
}

// staleObjects answers out of a cache: what it answers has an age, or should have.
type staleObjects struct{ claims.Objects }

// ReadsLive: the world is the API server.
func (o *worldObjects) ReadsLive() {}

// age makes all answers as old as that.
func (o *worldObjects) age(now time.Time, age time.Duration) {
	asOf := now.Add(-age)
	o.account.AsOf, o.secret.AsOf, o.pod.AsOf, o.node.AsOf = asOf, asOf, asOf, asOf
}

// deadKeys is a key set that does not answer.
type deadKeys struct{}

var errDead = errors.New("connection refused")

func (deadKeys) Keys(context.Context, string) ([]*jws.Key, error) { return nil, errDead }

// wantCheck fails the test unless err is a refusal by that check.
func wantCheck(t testing.TB, err error, want Check) {
	t.Helper()
	e, ok := errors.AsType[*Error](err)
	if !ok || e.Check != want || !errors.Is(err, want) {
		t.Errorf("got %v, want the check %s", err, string(want))
	}
}

// ago returns a pointer to a time before now.
func (w *world) ago(d time.Duration) *time.Time {
	then := w.now.Add(-d)
	return &then
}

// bind makes the world's token one that is bound to the given kinds.
func (w *world) bind(kinds ...string) {
	k := &w.claims.Kubernetes
	k.Pod, k.Secret, k.Node = nil, nil, nil
	if slices.Contains(kinds, "pod") {
		k.Pod = &claims.Ref{Name: "pod", UID: "pod-uid"}
	}
	if slices.Contains(kinds, "secret") {
		k.Secret = &claims.Ref{Name: "secret", UID: "secret-uid"}
	}
	if slices.Contains(kinds, "node") {
		k.Node = &claims.Ref{Name: "node-a", UID: "node-uid"}
	}
}

// extend makes the token one of a year, with a warning where it was to end.
func (w *world) extend() {
	w.claims.Kubernetes.WarnAfter = claims.NewNumericDate(w.now.Add(3607 * time.Second))
	w.claims.Expiry = claims.NewNumericDate(w.now.AddDate(1, 0, 0))
}

// encode is base64url without padding.
func encode(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) }

// recording reads a file of testdata.
func recording(t testing.TB, name string, into any) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, into); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}
