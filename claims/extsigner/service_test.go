package extsigner

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/claims"
	"github.com/nodeattest/nodeattest/claims/apiserver"
	"github.com/nodeattest/nodeattest/jws"
	"github.com/nodeattest/nodeattest/refusal"
)

func serviceConfig(t testing.TB, clock *testClock) ServiceConfig {
	t.Helper()
	rotating, err := jws.NewRotatingSigner(newECDSA(t, jws.TypeJWT), jws.RotationConfig{
		Publish: time.Minute, Retain: kubeletLifetime + claims.DefaultLeeway, Now: clock.Now,
	})
	if err != nil {
		t.Fatal(err)
	}
	return ServiceConfig{
		Issuer: testIssuer, Signer: rotating, Keys: rotating,
		RefreshHint: time.Minute, Now: clock.Now,
	}
}

func newService(t testing.TB, config ServiceConfig) *Service {
	t.Helper()
	s, err := NewService(config)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// The issuer and the service together, across a rotation.
func TestService(t *testing.T) {
	clock := newClock()
	config := serviceConfig(t, clock)
	config.VerifyOnly = []*jws.Key{newECDSA(t, "").Key()}
	service := newService(t, config)
	objects := &claims.MemoryObjects{}
	objects.Put("serviceaccounts", claims.Object{Namespace: "ns", Name: "sa", UID: "sa-uid"})
	objects.Put("pods", claims.Object{Namespace: "ns", Name: "pod", UID: "pod-uid", ServiceAccountName: "sa"})
	issuer, err := apiserver.NewIssuer(apiserver.IssuerConfig{
		Issuer: testIssuer, APIAudiences: []string{"api"}, Objects: objects, Now: clock.Now,
		Signer: signerFunc(func(ctx context.Context, payload []byte) (*jws.Signature, error) {
			signed, err := service.Sign(ctx, encode(string(payload)))
			if err != nil {
				return nil, err
			}
			return &jws.Signature{Header: signed.Header, Value: signed.Signature}, nil
		}),
	})
	if err != nil {
		t.Fatal(err)
	}
	request := &apiserver.TokenRequest{Namespace: "ns", Name: "sa", BoundObject: &apiserver.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: "pod"}}
	issue := func() *jws.Signed {
		t.Helper()
		issued, err := issuer.Issue(t.Context(), request)
		if err != nil {
			t.Fatal(err)
		}
		verified, err := jws.VerifySignature(t.Context(), issued.Token.Reveal(), config.Keys)
		if err != nil {
			t.Fatal(err)
		}
		return verified
	}
	first := issue()
	if _, err := config.Signer.(*jws.RotatingSigner).Rotate(newECDSA(t, jws.TypeJWT)); err != nil {
		t.Fatal(err)
	}
	clock.Add(time.Minute)
	if second := issue(); first.Key.KeyID() == second.Key.KeyID() || first.Token.Type() != "JWT" {
		t.Error("no rotation")
	}
	answer, err := service.FetchKeys(t.Context())
	if err != nil || len(answer.Keys) != 3 || answer.Keys[1].ExcludeFromOIDCDiscovery || !answer.Keys[2].ExcludeFromOIDCDiscovery {
		t.Errorf("%+v, %v", answer, err)
	}
}

// goodClaims are claims that the service signs, at the time of newClock.
func goodClaims() *claims.Claims {
	return &claims.Claims{
		Issuer: testIssuer, Subject: claims.MakeSubject("ns", "sa"), Audiences: []string{"api"}, ID: "0b3f3f0e-5ab6-4a92-a0a6-7a6b1c4d9f10",
		IssuedAt: claims.NumericDate{Unix: 1700000000, Present: true}, NotBefore: claims.NumericDate{Unix: 1700000000, Present: true}, Expiry: claims.NumericDate{Unix: 1700003607, Present: true},
		Kubernetes: claims.Private{Namespace: "ns", ServiceAccount: claims.Ref{Name: "sa", UID: "u"}},
	}
}

// webhookClaims are what kube-apiserver 1.37 writes for an admission webhook.
func webhookClaims() *claims.Claims {
	c := goodClaims()
	c.Expiry.Unix = c.IssuedAt.Unix + 600
	c.Kubernetes.ValidatingWebhookConfiguration = &claims.Ref{Name: "hook", UID: "h"}
	c.Kubernetes.Attestations = &claims.Attestations{AdmissionReviewAPIGroups: []string{"*"}}
	return c
}

// TestServiceBindings signs each kind of bound token that an API server issues.
func TestServiceBindings(t *testing.T) {
	s := newService(t, serviceConfig(t, newClock()))
	ref := func(name string) *claims.Ref { return &claims.Ref{Name: name, UID: name + "-uid"} }
	for what, change := range map[string]func(*claims.Private){
		"an account alone":               func(*claims.Private) {},
		"a pod":                          func(k *claims.Private) { k.Pod = ref("p") },
		"a pod on a node":                func(k *claims.Private) { k.Pod, k.Node = ref("p"), ref("n") },
		"a pod on a node without a Node": func(k *claims.Private) { k.Pod, k.Node = ref("p"), &claims.Ref{Name: "n"} },
		"a node":                         func(k *claims.Private) { k.Node = ref("n") },
		"a Secret":                       func(k *claims.Private) { k.Secret = ref("s") },
		"a validating webhook":           func(k *claims.Private) { *k = webhookClaims().Kubernetes },
		"a mutating webhook": func(k *claims.Private) {
			*k = webhookClaims().Kubernetes
			k.MutatingWebhookConfiguration, k.ValidatingWebhookConfiguration = k.ValidatingWebhookConfiguration, nil
		},
	} {
		t.Run(what, func(t *testing.T) {
			c := webhookClaims()
			c.Kubernetes = goodClaims().Kubernetes
			change(&c.Kubernetes)
			payload, err := c.Marshal()
			if err != nil {
				t.Fatal(err)
			}
			if _, err := s.Sign(testContext, encode(string(payload))); err != nil {
				t.Errorf("%s: %v", payload, err)
			}
		})
	}
}

func TestServiceRefuses(t *testing.T) {
	s := newService(t, serviceConfig(t, newClock()))
	sign := func(c *claims.Claims) error {
		payload, err := c.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		_, err = s.Sign(testContext, encode(string(payload)))
		return err
	}
	if err := sign(goodClaims()); err != nil {
		t.Fatal(err)
	}
	for what, change := range map[string]func(*claims.Claims){
		"another issuer":                  func(c *claims.Claims) { c.Issuer += "/" },
		"another subject":                 func(c *claims.Claims) { c.Subject += "x" },
		"no namespace":                    func(c *claims.Claims) { c.Kubernetes.Namespace, c.Subject = "", claims.MakeSubject("", "sa") },
		"no account":                      func(c *claims.Claims) { c.Kubernetes.ServiceAccount.Name, c.Subject = "", claims.MakeSubject("ns", "") },
		"no UID":                          func(c *claims.Claims) { c.Kubernetes.ServiceAccount.UID = "" },
		"a namespace with another's name": func(c *claims.Claims) { c.Kubernetes.Namespace, c.Subject = "ns:sa", claims.MakeSubject("ns:sa", "sa") },
		"an account with a namespace": func(c *claims.Claims) {
			c.Kubernetes.ServiceAccount.Name, c.Subject = "sa:x", claims.MakeSubject("ns", "sa:x")
		},
		"no exp":              func(c *claims.Claims) { c.Expiry = claims.NumericDate{} },
		"no iat":              func(c *claims.Claims) { c.IssuedAt = claims.NumericDate{} },
		"no nbf":              func(c *claims.Claims) { c.NotBefore = claims.NumericDate{} },
		"nbf long before iat": func(c *claims.Claims) { c.NotBefore.Unix -= 1000000 },
		"a second too long":   func(c *claims.Claims) { c.Expiry.Unix++ },
		"no life":             func(c *claims.Claims) { c.Expiry = c.IssuedAt },
		"iat too far ahead":   func(c *claims.Claims) { c.IssuedAt.Unix += 61; c.NotBefore.Unix += 61; c.Expiry.Unix += 61 },
		"a short life ahead":  func(c *claims.Claims) { c.IssuedAt.Unix += 61; c.NotBefore.Unix += 61 },
		"a life that ended": func(c *claims.Claims) {
			c.IssuedAt.Unix -= 700
			c.NotBefore.Unix -= 700
			c.Expiry.Unix = c.IssuedAt.Unix + 600
		},
		"no ID": func(c *claims.Claims) { c.ID = "" },
		"a pod and a Secret": func(c *claims.Claims) {
			c.Kubernetes.Pod, c.Kubernetes.Secret = &claims.Ref{Name: "p", UID: "u"}, &claims.Ref{Name: "s", UID: "u"}
		},
		"a pod of two lines":       func(c *claims.Claims) { c.Kubernetes.Pod = &claims.Ref{Name: "p\nq", UID: "u"} },
		"a pod without UID":        func(c *claims.Claims) { c.Kubernetes.Pod = &claims.Ref{Name: "p"} },
		"a node without UID":       func(c *claims.Claims) { c.Kubernetes.Node = &claims.Ref{Name: "n"} },
		"a webhook for longer":     func(c *claims.Claims) { *c = *webhookClaims(); c.Expiry.Unix++ },
		"a webhook's, no audience": func(c *claims.Claims) { *c = *webhookClaims(); c.Audiences = nil },
	} {
		t.Run(what, func(t *testing.T) {
			c := goodClaims()
			change(c)
			if err := sign(c); !errors.Is(err, CheckSignerClaims) {
				t.Errorf("%s: %v", what, err)
			}
		})
	}
	good, err := goodClaims().Marshal()
	if err != nil {
		t.Fatal(err)
	}
	for what, segment := range map[string]string{
		"nothing":                      "",
		"no base64":                    "%",
		"padded":                       encode(string(good)) + "=",
		"a line break":                 encode(string(good)) + "\n",
		"no claims":                    encode("hello"),
		"exp twice":                    encode(string(good[:len(good)-1]) + `,"exp":1}`),
		"groups":                       encode(`{"groups":["system:masters"],` + string(good[1:])),
		"an address":                   encode(string(good[:len(good)-1]) + `,"email":"root@corp.example","email_verified":true}`),
		"legacy claims":                encode(string(good[:len(good)-1]) + `,"kubernetes.io/serviceaccount/namespace":"ns"}`),
		"cloud tags":                   encode(string(good[:len(good)-1]) + `,"https://aws.amazon.com/tags":{"principal_tags":{"admin":["1"]}}}`),
		"a claim of ours":              encode(strings.Replace(string(good), `"namespace":"ns"`, `"extra":1,"namespace":"ns"`, 1)),
		"a claim of the account":       encode(strings.Replace(string(good), `"uid":"u"`, `"uid":"u","x":""`, 1)),
		"another order":                encode(strings.Replace(string(good), `"iat":1700000000,"iss":"`+testIssuer+`"`, `"iss":"`+testIssuer+`","iat":1700000000`, 1)),
		"white space":                  encode(string(good) + " "),
		"another escape":               encode(strings.Replace(string(good), `"ns"`, `"\u006es"`, 1)),
		"an empty audience":            encode(strings.Replace(string(good), `["api"]`, `[]`, 1)),
		"an audience without an array": encode(strings.Replace(string(good), `["api"]`, `"api"`, 1)),
		"a token":                      encode(string(good)) + ".x",
	} {
		t.Run(what, func(t *testing.T) {
			if _, err := s.Sign(testContext, segment); !errors.Is(err, CheckSignerClaims) {
				t.Errorf("%s: %v", what, err)
			}
		})
	}
}

func TestNewServiceRefuses(t *testing.T) {
	for what, change := range map[string]func(*ServiceConfig){
		"a negative lifetime":              func(c *ServiceConfig) { c.MaxLifetime = -1 },
		"a second below the kubelet's":     func(c *ServiceConfig) { c.MaxLifetime = (3607 - 1) * time.Second },
		"published for less than the hint": func(c *ServiceConfig) { c.RefreshHint++ },
		"withdrawn a nanosecond early": func(c *ServiceConfig) {
			c.Keys = overlap{c.Keys, time.Minute, kubeletLifetime + claims.DefaultLeeway - 1}
		},
		"no issuer":        func(c *ServiceConfig) { c.Issuer = "" },
		"no signer":        func(c *ServiceConfig) { c.Signer = nil },
		"no keys":          func(c *ServiceConfig) { c.Keys = nil },
		"no refresh hint":  func(c *ServiceConfig) { c.RefreshHint = 0 },
		"a short one":      func(c *ServiceConfig) { c.RefreshHint = time.Second - 1 },
		"a short lifetime": func(c *ServiceConfig) { c.MaxLifetime = kubeletLifetime - 1 },
		"a long lifetime with keys for it": func(c *ServiceConfig) {
			c.MaxLifetime, c.Keys = 1<<32*time.Second+1, overlap{c.Keys, time.Minute, 1 << 62}
		},
		"a long lifetime": func(c *ServiceConfig) { c.MaxLifetime = 1<<32*time.Second + 1 },
	} {
		t.Run(what, func(t *testing.T) {
			config := serviceConfig(t, newClock())
			change(&config)
			if s, err := NewService(config); s != nil || !errors.Is(err, refusal.CheckConfig) {
				t.Errorf("%s: %v", what, err)
			}
		})
	}
}

// overlap is a key set whose keys overlap for as long as it says.
type overlap struct {
	jws.KeySet
	publish, retain time.Duration
}

func (o overlap) Overlap() (publish, retain time.Duration) { return o.publish, o.retain }

// TestNewServiceAccepts the limits themselves.
func TestNewServiceAccepts(t *testing.T) {
	for what, tt := range map[string]struct {
		change func(*ServiceConfig)
		want   time.Duration
	}{
		"by default": {func(*ServiceConfig) {}, 3607 * time.Second},
		"kubelet's":  {func(c *ServiceConfig) { c.MaxLifetime = 3607 * time.Second }, 3607 * time.Second},
		"the longest": {func(c *ServiceConfig) {
			c.MaxLifetime = 1 << 32 * time.Second
			c.Keys = overlap{c.Keys, time.Minute, 1<<32*time.Second + time.Minute}
		}, 1 << 32 * time.Second},
		"a key set that does not say": {func(c *ServiceConfig) {
			keys := c.Keys
			c.RefreshHint, c.MaxLifetime = time.Hour, 24*time.Hour
			c.Keys = keySetFunc(func(ctx context.Context, id string) ([]*jws.Key, error) { return keys.Keys(ctx, id) })
		}, 24 * time.Hour},
		"the shortest hint": {func(c *ServiceConfig) { c.RefreshHint = time.Second }, 3607 * time.Second},
	} {
		t.Run(what, func(t *testing.T) {
			config := serviceConfig(t, newClock())
			tt.change(&config)
			s, err := NewService(config)
			if err != nil {
				t.Fatal(err)
			}
			metadata, err := s.Metadata(testContext)
			if err != nil {
				t.Fatal(err)
			}
			if got := time.Duration(metadata.MaxTokenExpirationSeconds) * time.Second; got != tt.want {
				t.Errorf("%v, want %v", got, tt.want)
			}
		})
	}
}

// TestServiceTimestamp: the data is as old as the keys are, not as the answer.
func TestServiceTimestamp(t *testing.T) {
	clock := newClock()
	config := serviceConfig(t, clock)
	rotating := config.Signer.(*jws.RotatingSigner)
	s := newService(t, config)
	want := func(of time.Time) {
		t.Helper()
		answer, err := s.FetchKeys(testContext)
		if err != nil || !answer.DataTimestamp.Equal(of) {
			t.Errorf("as of %v, %v, want %v", answer.DataTimestamp, err, of)
		}
	}
	first := clock.Now()
	want(first)
	clock.Add(time.Hour)
	want(first)
	signs, err := rotating.Rotate(newECDSA(t, jws.TypeJWT))
	if err != nil {
		t.Fatal(err)
	}
	published := clock.Now()
	want(published)
	clock.Add(signs.Sub(published)) // another key signs: the same are published
	want(published)
	clock.Add(kubeletLifetime + claims.DefaultLeeway)
	want(clock.Now())
}

// A signer that the API server would refuse is noticed where it is.
func TestServiceChecksItself(t *testing.T) {
	payload, err := goodClaims().Marshal()
	if err != nil {
		t.Fatal(err)
	}
	other := newECDSA(t, jws.TypeJWT)
	for what, tt := range map[string]struct {
		change func(*ServiceConfig)
		want   refusal.Check
	}{
		"no typ": {func(c *ServiceConfig) {
			s := newECDSA(t, "")
			set, err := jws.NewStaticKeySet(s.Key())
			if err != nil {
				t.Fatal(err)
			}
			c.Signer, c.Keys = s, set
		}, checkSignerHeader},
		"an unpublished key": {func(c *ServiceConfig) { c.Signer = other }, checkSignerKey},
		"an excluded key": {func(c *ServiceConfig) {
			c.Signer, c.VerifyOnly = other, []*jws.Key{other.Key()}
		}, checkSignerKey},
		"a broken signature": {func(c *ServiceConfig) {
			inner := c.Signer
			c.Signer = signerFunc(func(ctx context.Context, payload []byte) (*jws.Signature, error) {
				return inner.Sign(ctx, append([]byte(" "), payload...))
			})
		}, checkSignerSignature},
		"no signature": {func(c *ServiceConfig) {
			c.Signer = signerFunc(func(context.Context, []byte) (*jws.Signature, error) { return nil, errors.New("down") })
		}, refusal.ErrRetry},
		"nothing": {func(c *ServiceConfig) {
			c.Signer = signerFunc(func(context.Context, []byte) (*jws.Signature, error) { return nil, nil })
		}, refusal.ErrRetry},
		"no keys": {func(c *ServiceConfig) {
			c.Keys = keySetFunc(func(context.Context, string) ([]*jws.Key, error) { return nil, errors.New("down") })
		}, refusal.ErrRetry},
		"an empty set": {func(c *ServiceConfig) {
			c.Keys = keySetFunc(func(context.Context, string) ([]*jws.Key, error) { return nil, nil })
		}, checkSignerKeys},
		"a nil key": {func(c *ServiceConfig) { c.VerifyOnly = []*jws.Key{nil} }, checkSignerKeys},
	} {
		t.Run(what, func(t *testing.T) {
			config := serviceConfig(t, newClock())
			tt.change(&config)
			answer, err := newService(t, config).Sign(testContext, encode(string(payload)))
			if answer != nil || !errors.Is(err, tt.want) {
				t.Errorf("%s: %v, want %v", what, err, tt.want)
			}
		})
	}
}
