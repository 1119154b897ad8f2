package apiserver

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/claims"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/jws"
	"github.com/nodeattest/nodeattest/refusal"
)

var testContext = context.Background()

func issuerConfig(t testing.TB, objects claims.Objects) IssuerConfig {
	return IssuerConfig{
		Issuer: testIssuer, APIAudiences: []string{"api"},
		Signer:  newECDSA(t),
		Objects: objects,
		Now:     func() time.Time { return time.Unix(1700000000, 0) },
	}
}

func newIssuer(t testing.TB, config IssuerConfig) *Issuer {
	t.Helper()
	i, err := NewIssuer(config)
	if err != nil {
		t.Fatal(err)
	}
	return i
}

func TestIssueLikeKubernetes(t *testing.T) {
	cases, objects := recordedRequests(t)
	config := issuerConfig(t, objects)
	keys, err := jws.NewStaticKeySet(config.Signer.(*jws.CryptoSigner).Key())
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range cases {
		t.Run(r.What, func(t *testing.T) {
			config := config
			r.limit(&config)
			issued, err := newIssuer(t, config).Issue(testContext, r.request())
			if err != nil {
				r.check(t, nil, err, config.Now())
				return
			}
			r.check(t, issued, nil, config.Now())
			verified, err := jws.VerifySignature(testContext, issued.Token.Reveal(), keys)
			if err != nil {
				t.Fatal(err)
			}
			want, err := issued.Claims.Marshal()
			if err != nil || string(verified.Payload) != string(want) {
				t.Errorf("signed %s, want %s, %v", verified.Payload, want, err)
			}
		})
	}
}

func TestNewIssuerRefuses(t *testing.T) {
	for what, change := range map[string]func(*IssuerConfig){
		"no issuer":         func(c *IssuerConfig) { c.Issuer = "" },
		"no audience":       func(c *IssuerConfig) { c.APIAudiences = nil },
		"an empty audience": func(c *IssuerConfig) { c.APIAudiences = []string{"api", ""} },
		"no signer":         func(c *IssuerConfig) { c.Signer = nil },
		"no objects":        func(c *IssuerConfig) { c.Objects = nil },
	} {
		t.Run(what, func(t *testing.T) {
			config := issuerConfig(t, &claims.MemoryObjects{})
			change(&config)
			if i, err := NewIssuer(config); i != nil || !errors.Is(err, refusal.CheckConfig) {
				t.Errorf("%s: %v", what, err)
			}
		})
	}
}

// failingObjects answers as its fields say, and from the embedded objects else.
type failingObjects struct {
	claims.Objects
	pod, node, account error
	nothing            bool
}

func (f *failingObjects) Get(ctx context.Context, resource, namespace, name string) (*claims.Object, error) {
	err := map[string]error{"serviceaccounts": f.account, "pods": f.pod, "nodes": f.node}[resource]
	if err != nil || f.nothing {
		return nil, err
	}
	return f.Objects.Get(ctx, resource, namespace, name)
}

// ReadsLive: it passes on the world's answers unless it fails them.
func (f *failingObjects) ReadsLive() {}

// What could not be read is neither granted nor refused.
func TestIssueRetry(t *testing.T) {
	_, objects := recordedRequests(t)
	down := errors.New("down")
	request := &TokenRequest{Namespace: "ns", Name: "sa", BoundObject: &BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: "pod"}}
	for what, f := range map[string]failingObjects{
		"service account": {account: down},
		"pod":             {pod: down},
		"node":            {node: down},
		"nothing":         {nothing: true},
	} {
		t.Run(what, func(t *testing.T) {
			f.Objects = objects
			issued, err := newIssuer(t, issuerConfig(t, &f)).Issue(testContext, request)
			if issued != nil || !errors.Is(err, refusal.ErrRetry) || !errors.Is(err, reasonInternalError) || errors.Is(err, claims.ErrNotFound) {
				t.Errorf("%s: %v", what, err)
			}
			if !f.nothing && (!errors.Is(err, down) || err.Error() != "Internal error occurred: down") {
				t.Errorf("%s: %v", what, err)
			}
		})
	}
	// An error that wraps ErrNotFound is an answer.
	f := failingObjects{Objects: objects, node: fmt.Errorf("wrapped: %w", claims.ErrNotFound)}
	issued, err := newIssuer(t, issuerConfig(t, &f)).Issue(testContext, request)
	if err != nil || issued.Claims.Kubernetes.Node == nil || *issued.Claims.Kubernetes.Node != (claims.Ref{Name: "node"}) {
		t.Errorf("got %+v, %v", issued, err)
	}
}

type signerFunc func(ctx context.Context, payload []byte) (*jws.Signature, error)

func (f signerFunc) Sign(ctx context.Context, payload []byte) (*jws.Signature, error) {
	return f(ctx, payload)
}

func TestIssueSignerFails(t *testing.T) {
	_, objects := recordedRequests(t)
	config := issuerConfig(t, objects)
	config.Signer = signerFunc(func(context.Context, []byte) (*jws.Signature, error) { return nil, errors.New("no power") })
	_, err := newIssuer(t, config).Issue(testContext, &TokenRequest{Namespace: "ns", Name: "sa"})
	if !errors.Is(err, refusal.ErrRetry) || err.Error() != "Internal error occurred: failed to generate token: no power" {
		t.Error(err)
	}
	config.Signer = signerFunc(func(context.Context, []byte) (*jws.Signature, error) { return nil, nil })
	if _, err := newIssuer(t, config).Issue(testContext, &TokenRequest{Namespace: "ns", Name: "sa"}); !errors.Is(err, refusal.ErrRetry) {
		t.Error(err)
	}
	if _, err := newIssuer(t, config).Issue(testContext, nil); !errors.Is(err, reasonBadRequest) {
		t.Error(err)
	}
	config = issuerConfig(t, objects)
	long := &TokenRequest{Namespace: "ns", Name: "sa", Audiences: []string{strings.Repeat("a", claims.MaxClaimsSize)}}
	if _, err := newIssuer(t, config).Issue(testContext, long); !errors.Is(err, claims.CheckSize) {
		t.Error(err)
	}
}

func TestNewID(t *testing.T) {
	form := regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)
	seen := make(map[string]bool)
	for range 1000 {
		id := newID()
		if !form.MatchString(id) || seen[id] {
			t.Fatalf("%q, seen %v", id, seen[id])
		}
		seen[id] = true
	}
}

func BenchmarkIssue(b *testing.B) {
	_, objects := recordedRequests(b)
	config := issuerConfig(b, objects)
	issuer := newIssuer(b, config)
	request := &TokenRequest{Namespace: "ns", Name: "sa", BoundObject: &BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: "pod"}}
	payload := []byte(strings.Repeat("a", 450))
	b.Run("raw", func(b *testing.B) {
		for b.Loop() {
			_, _ = config.Signer.Sign(testContext, payload)
		}
	})
	b.Run("issue", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := issuer.Issue(testContext, request); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// TestIssuedShowsNoToken: a token is a bearer's secret, and nothing that prints or encodes
// an Issued shows it, wherever the Issued stands.
func TestIssuedShowsNoToken(t *testing.T) {
	_, objects := recordedRequests(t)
	issued, err := newIssuer(t, issuerConfig(t, objects)).Issue(testContext, &TokenRequest{Namespace: "ns", Name: "sa"})
	if err != nil {
		t.Fatal(err)
	}
	token := issued.Token.Reveal()
	testkit.CheckSecrets(t, *issued, []byte(token[strings.LastIndexByte(token, '.')+1:]))
}

// TestErrorsShowNoToken: no error holds the refused token.
func TestErrorsShowNoToken(t *testing.T) {
	w := newWorld(t)
	token := w.token(t)
	signature := token[strings.LastIndexByte(token, '.')+1:]
	w.objects.account.UID = "another"
	_, strict := w.strict(t).Validate(t.Context(), token)
	_, kubernetes := w.kubernetes(t).Validate(t.Context(), token)
	_, malformed := w.strict(t).Validate(t.Context(), token+".")
	for _, err := range []error{strict, kubernetes, malformed} {
		if err == nil {
			t.Error("accepted")
		}
		for _, leak := range testkit.SecretLeaks(err, []byte(signature)) {
			t.Errorf("%v: %s", fmt.Sprintf("%T", err), leak)
		}
	}
}
