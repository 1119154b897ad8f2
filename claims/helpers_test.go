package claims

import (
	"context"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

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
	claims  *Claims
	machine *RegisteredMachine
}

func newWorld(t testing.TB) *world {
	t.Helper()
	signer, err := jws.NewSigner(newECKey(t), jws.SignerOptions{})
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
			account: &Object{Name: "app", Namespace: "ns", UID: "app-uid"},
			secret:  &Object{Name: "secret", Namespace: "ns", UID: "secret-uid"},
			pod:     &Object{Name: "pod", Namespace: "ns", UID: "pod-uid", ServiceAccountName: "app", NodeName: "node-a"},
			node:    &Object{Name: "node-a", UID: "node-uid", ProviderID: "gce://p/z/a"},
		},
		claims: &Claims{
			Issuer: worldIssuer, Subject: "system:serviceaccount:ns:app", Audiences: []string{worldAudience},
			Expiry: NewNumericDate(now.Add(time.Hour)), NotBefore: NewNumericDate(now), IssuedAt: NewNumericDate(now),
			ID: "3f2f4f2e-5ab6-4a92-a0a6-7a6b1c4d9f10",
			Kubernetes: Private{
				Namespace: "ns", ServiceAccount: Ref{Name: "app", UID: "app-uid"},
				Pod: &Ref{Name: "pod", UID: "pod-uid"}, Node: &Ref{Name: "node-a", UID: "node-uid"},
			},
		},
		machine: &RegisteredMachine{Identity: "ek:sha256:aa", ProviderID: "gce://p/z/a", UID: "machine-uid"},
	}
}

func (w *world) clock() time.Time { return w.now }

// token signs the world's claims.
func (w *world) token(t testing.TB) string {
	t.Helper()
	return w.sign(t, w.payload(t))
}

func (w *world) sign(t testing.TB, payload []byte) string {
	t.Helper()
	signature, err := w.signer.Sign(context.Background(), payload)
	if err != nil {
		t.Fatal(err)
	}
	return signature.Token(payload)
}

func (w *world) strictConfig() ValidatorConfig {
	return ValidatorConfig{
		Issuers: map[string]jws.KeySet{worldIssuer: w.keys}, Audiences: []string{worldAudience}, Objects: w.objects,
		InsecureAllowReplay: true, Now: w.clock, Node: w.nodeCheck(),
	}
}

func (w *world) strict(t testing.TB) *Validator {
	t.Helper()
	return w.strictWith(t, w.strictConfig())
}

func (w *world) strictWith(t testing.TB, config ValidatorConfig) *Validator {
	t.Helper()
	v, err := NewValidator(config)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func (w *world) nodeCheck() NodeCheck {
	return NodeCheck{FindMachine: func(_ context.Context, name string) (*RegisteredMachine, error) {
		if w.machine == nil || name != "node-a" {
			return nil, ErrNotFound
		}
		return w.machine, nil
	}}
}

// worldObjects has at most one object of each kind.
type worldObjects struct {
	account, secret, pod, node *Object

	fail   error // for every question
	silent bool  // neither answers nor errors

	mu    sync.Mutex
	asked []string
}

func (o *worldObjects) Get(_ context.Context, resource, _, name string) (*Object, error) {
	o.mu.Lock()
	o.asked = append(o.asked, resource)
	o.mu.Unlock()
	if o.fail != nil || o.silent {
		return nil, o.fail
	}
	object := map[string]*Object{"serviceaccounts": o.account, "secrets": o.secret, "pods": o.pod, "nodes": o.node}[resource]
	if object == nil || object.Name != name {
		return nil, NewNotFound(resource, name)
	}
	return object, nil
}

// staleObjects answers out of a cache: its answers have an age, or should have.
type staleObjects struct{ Objects }

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

// deadHooks are objects of which the webhook configurations cannot be read.
type deadHooks struct{ *MemoryObjects }

func (o deadHooks) Get(ctx context.Context, resource, namespace, name string) (*Object, error) {
	if strings.HasSuffix(resource, "webhookconfigurations") {
		return nil, errDead
	}
	return o.MemoryObjects.Get(ctx, resource, namespace, name)
}

// ReadsLive: the rest is the API server.
func (deadHooks) ReadsLive() {}

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
		k.Pod = &Ref{Name: "pod", UID: "pod-uid"}
	}
	if slices.Contains(kinds, "secret") {
		k.Secret = &Ref{Name: "secret", UID: "secret-uid"}
	}
	if slices.Contains(kinds, "node") {
		k.Node = &Ref{Name: "node-a", UID: "node-uid"}
	}
}

// result is one that a validator which looks at no node returned.
func (w *world) result(t testing.TB) *Result {
	t.Helper()
	verified, err := jws.VerifySignature(t.Context(), w.token(t), w.keys)
	if err != nil {
		t.Fatal(err)
	}
	c, err := Parse(verified.Payload)
	if err != nil {
		t.Fatal(err)
	}
	return InsecureResult(Result{Claims: c, Audiences: c.Audiences, Key: verified.Key})
}

var testContext = context.Background()

// raw signs any header and payload with a key of its own, which the world then knows.
func (w *world) raw(t testing.TB, header string, payload []byte) string {
	t.Helper()
	private := newECKey(t)
	key, err := jws.NewKey(&private.PublicKey, jws.KeyOptions{KeyID: "raw"})
	if err != nil {
		t.Fatal(err)
	}
	if w.keys, err = jws.NewStaticKeySet(w.signer.Key(), key); err != nil {
		t.Fatal(err)
	}
	input := base64.RawURLEncoding.EncodeToString([]byte(header)) + "." + base64.RawURLEncoding.EncodeToString(payload)
	digest := sha256.Sum256([]byte(input))
	r, s, err := ecdsa.Sign(rand.Reader, private, digest[:])
	if err != nil {
		t.Fatal(err)
	}
	signature := make([]byte, 64)
	r.FillBytes(signature[:32])
	s.FillBytes(signature[32:])
	return input + "." + base64.RawURLEncoding.EncodeToString(signature)
}

func (w *world) payload(t testing.TB) []byte {
	t.Helper()
	payload, err := w.claims.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return payload
}

// nextLetter returns the letter whose lowest bit differs: an ES256 signature's last
// letter has four bits that mean nothing.
func nextLetter(c byte) byte {
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	return alphabet[strings.IndexByte(alphabet, c)^1]
}
