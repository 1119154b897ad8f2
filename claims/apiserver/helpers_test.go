package apiserver

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/claims"
	"github.com/nodeattest/nodeattest/jws"
	"github.com/nodeattest/nodeattest/refusal"
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

// newWorld takes its token's claims from the Issuer.
func newWorld(t testing.TB) *world {
	t.Helper()
	w := &world{now: time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC), objects: &worldObjects{
		account: &claims.Object{Namespace: "ns", Name: "app", UID: "app-uid"},
		secret:  &claims.Object{Namespace: "ns", Name: "secret", UID: "secret-uid"},
		pod: &claims.Object{Namespace: "ns", Name: "pod", UID: "pod-uid",
			ServiceAccountName: "app", NodeName: "node-a"},
		node: &claims.Object{Name: "node-a", UID: "node-uid", ProviderID: "gce://p/z/a"},
	}}
	w.useSigner(t, newECDSA(t))
	issued, err := newIssuer(t, IssuerConfig{
		Issuer: worldIssuer, APIAudiences: []string{worldIssuer}, Signer: w.signer, Objects: w.objects, Now: w.clock,
		NewID: func() string { return "3f2f4f2e-5ab6-4a92-a0a6-7a6b1c4d9f10" },
	}).Issue(t.Context(), &TokenRequest{Namespace: "ns", Name: "app", Audiences: []string{worldAudience},
		BoundObject: &BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: "pod"}})
	if err != nil {
		t.Fatal(err)
	}
	w.claims, w.objects.asked = issued.Claims, nil
	return w
}

// newRSA makes an RSA key.
func newRSA(t testing.TB) *rsa.PrivateKey {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// newSigner makes a signer with a private key.
func newSigner(t testing.TB, private crypto.Signer) *jws.CryptoSigner {
	t.Helper()
	signer, err := jws.NewSigner(private, jws.SignerOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return signer
}

// newECDSA makes a signer with a new P-256 key.
func newECDSA(t testing.TB) *jws.CryptoSigner {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return newSigner(t, private)
}

// useSigner gives the world another signer.
func (w *world) useSigner(t testing.TB, signer *jws.CryptoSigner) {
	t.Helper()
	keys, err := jws.NewStaticKeySet(signer.Key())
	if err != nil {
		t.Fatal(err)
	}
	w.signer, w.keys = signer, keys
}

func (w *world) clock() time.Time { return w.now }

// token signs the world's claims.
func (w *world) token(t testing.TB) string {
	t.Helper()
	return w.sign(t, w.payload(t))
}

func (w *world) payload(t testing.TB) []byte {
	t.Helper()
	payload, err := w.claims.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return payload
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
		Issuers: map[string]jws.KeySet{worldIssuer: w.keys}, Audiences: []string{worldAudience}, Objects: w.objects,
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
	account, secret, pod, node *claims.Object

	fail   error // for every question
	silent bool  // neither answers nor errors
	asked  []string
}

func (o *worldObjects) Get(_ context.Context, resource, _, name string) (*claims.Object, error) {
	o.asked = append(o.asked, resource)
	if o.fail != nil || o.silent {
		return nil, o.fail
	}
	object := map[string]*claims.Object{"serviceaccounts": o.account, "secrets": o.secret, "pods": o.pod, "nodes": o.node}[resource]
	if object == nil || object.Name != name {
		return nil, claims.NewNotFound(resource, name)
	}
	return object, nil
}

// ReadsLive: the world is the API server.
func (o *worldObjects) ReadsLive() {}

// staleObjects answers out of a cache: its answers have an age, or should have.
type staleObjects struct{ claims.Objects }

var errDead = errors.New("connection refused")

// deadKeys is a key set that does not answer.
type deadKeys struct{}

func (deadKeys) Keys(context.Context, string) ([]*jws.Key, error) { return nil, errDead }

// wantCheck fails the test unless err is a refusal by that check.
func wantCheck(t testing.TB, err error, want refusal.Check) {
	t.Helper()
	if e, ok := errors.AsType[*refusal.Error](err); !ok || e.Check != want || !errors.Is(err, want) {
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
	refs := map[string]*claims.Ref{}
	for _, kind := range kinds {
		refs[kind] = &claims.Ref{Name: kind, UID: kind + "-uid"}
	}
	if node := refs["node"]; node != nil {
		node.Name = w.objects.node.Name
	}
	w.claims.Kubernetes.Pod, w.claims.Kubernetes.Secret, w.claims.Kubernetes.Node = refs["pod"], refs["secret"], refs["node"]
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

type keySetFunc func(context.Context, string) ([]*jws.Key, error)

func (f keySetFunc) Keys(ctx context.Context, keyID string) ([]*jws.Key, error) {
	return f(ctx, keyID)
}
