package claims

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/jws"
)

func serviceConfig(t testing.TB, clock *testClock) SignerServiceConfig {
	t.Helper()
	rotating, err := jws.NewRotatingSigner(newECDSA(t, jws.TypeJWT), jws.RotationConfig{
		Publish: time.Minute, Retain: time.Hour, Now: clock.Now,
	})
	if err != nil {
		t.Fatal(err)
	}
	return SignerServiceConfig{
		Issuer: testIssuer, Signer: rotating, Keys: rotating,
		RefreshHint: time.Minute, MaxTokenLifetime: time.Hour, Now: clock.Now,
	}
}

func newService(t testing.TB, config SignerServiceConfig) *SignerService {
	t.Helper()
	s, err := NewSignerService(config)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// The issuer, a client and the service together, across a rotation.
func TestSignerService(t *testing.T) {
	clock := newClock()
	config := serviceConfig(t, clock)
	config.VerifyOnly = []*jws.Key{newECDSA(t, "").Key()}
	client := newClient(t, newService(t, config), &ExternalClientOptions{Now: clock.Now})
	_, objects := recordedRequests(t)
	policy, err := (Policy{Issuer: testIssuer, APIAudiences: []string{"api"}, ExtendExpiration: true}).LimitTo(client.MaxTokenLifetime())
	if err != nil {
		t.Fatal(err)
	}
	issuer := newIssuer(t, IssuerConfig{Policy: policy, Signer: client, Objects: objects, Now: clock.Now})
	seconds := int64(ExtendedRequestSeconds)
	request := &TokenRequest{Namespace: "ns", Name: "sa", ExpirationSeconds: &seconds, BoundObject: &BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: "pod"}}

	first, err := issuer.Issue(testContext, request)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := config.Signer.(*jws.RotatingSigner).Rotate(newECDSA(t, jws.TypeJWT)); err != nil {
		t.Fatal(err)
	}
	clock.Add(time.Minute)
	second, err := issuer.Issue(testContext, request)
	if err != nil {
		t.Fatal(err)
	}
	one, err := jws.Verify(testContext, first.Token, client)
	if err != nil {
		t.Fatal(err)
	}
	two, err := jws.Verify(testContext, second.Token, client)
	if err != nil {
		t.Fatal(err)
	}
	if one.Key.KeyID() == two.Key.KeyID() || one.Token.Type() != "JWT" {
		t.Error("no rotation")
	}
	published, maxAge, err := client.PublishedKeys(testContext)
	if err != nil || len(published) != 3 || !published[2].ExcludeFromOIDCDiscovery || maxAge <= 0 || maxAge > time.Minute {
		t.Errorf("%+v, %v, %v", published, maxAge, err)
	}
}

// goodClaims are what the service signs, at the time of newClock.
func goodClaims() *Claims {
	return &Claims{
		Issuer: testIssuer, Subject: MakeSubject("ns", "sa"),
		IssuedAt: NumericDate{1700000000, true}, NotBefore: NumericDate{1700000000, true}, Expiry: NumericDate{1700003600, true},
		Kubernetes: Private{Namespace: "ns", ServiceAccount: Ref{"sa", "u"}},
	}
}

func TestSignerServiceRefuses(t *testing.T) {
	s := newService(t, serviceConfig(t, newClock()))
	sign := func(c *Claims) error {
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
	for what, change := range map[string]func(*Claims){
		"another issuer":        func(c *Claims) { c.Issuer += "/" },
		"another subject":       func(c *Claims) { c.Subject += "x" },
		"no namespace":          func(c *Claims) { c.Kubernetes.Namespace, c.Subject = "", MakeSubject("", "sa") },
		"no account":            func(c *Claims) { c.Kubernetes.ServiceAccount.Name, c.Subject = "", MakeSubject("ns", "") },
		"legacy claims":         func(c *Claims) { c.Legacy = &LegacyPrivate{} },
		"no exp":                func(c *Claims) { c.Expiry = NumericDate{} },
		"no iat":                func(c *Claims) { c.IssuedAt = NumericDate{} },
		"a second too long":     func(c *Claims) { c.Expiry.Unix++ },
		"no life":               func(c *Claims) { c.Expiry = c.IssuedAt },
		"iat in the far future": func(c *Claims) { c.IssuedAt.Unix += 61; c.Expiry.Unix += 61 },
	} {
		c := goodClaims()
		change(c)
		if err := sign(c); !errors.Is(err, CheckSignerClaims) {
			t.Errorf("%s: %v", what, err)
		}
	}
	good, err := goodClaims().Marshal()
	if err != nil {
		t.Fatal(err)
	}
	for what, segment := range map[string]string{
		"nothing":      "",
		"no base64":    "%",
		"padded":       encode(string(good)) + "=",
		"a line break": encode(string(good)) + "\n",
		"no claims":    encode("hello"),
		"exp twice":    encode(string(good[:len(good)-1]) + `,"exp":1}`),
		"a token":      encode(string(good)) + ".x",
	} {
		if _, err := s.Sign(testContext, segment); !errors.Is(err, CheckSignerClaims) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestNewSignerServiceRefuses(t *testing.T) {
	for what, change := range map[string]func(*SignerServiceConfig){
		"no issuer":        func(c *SignerServiceConfig) { c.Issuer = "" },
		"no signer":        func(c *SignerServiceConfig) { c.Signer = nil },
		"no keys":          func(c *SignerServiceConfig) { c.Keys = nil },
		"no refresh hint":  func(c *SignerServiceConfig) { c.RefreshHint = 0 },
		"a short one":      func(c *SignerServiceConfig) { c.RefreshHint = time.Second - 1 },
		"no lifetime":      func(c *SignerServiceConfig) { c.MaxTokenLifetime = 0 },
		"a short lifetime": func(c *SignerServiceConfig) { c.MaxTokenLifetime = 10*time.Minute - 1 },
		"a long lifetime":  func(c *SignerServiceConfig) { c.MaxTokenLifetime = 1<<32*time.Second + 1 },
	} {
		config := serviceConfig(t, newClock())
		change(&config)
		if s, err := NewSignerService(config); s != nil || !errors.Is(err, CheckConfig) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// A signer that the API server would refuse is noticed where it is.
func TestSignerServiceChecksItself(t *testing.T) {
	payload, err := goodClaims().Marshal()
	if err != nil {
		t.Fatal(err)
	}
	other := newECDSA(t, jws.TypeJWT)
	for what, tt := range map[string]struct {
		change func(*SignerServiceConfig)
		want   Check
	}{
		"no typ": {func(c *SignerServiceConfig) {
			s := newECDSA(t, "")
			set, err := jws.NewStaticKeySet(s.Key())
			if err != nil {
				t.Fatal(err)
			}
			c.Signer, c.Keys = s, set
		}, CheckSignerHeader},
		"an unpublished key": {func(c *SignerServiceConfig) { c.Signer = other }, CheckSignerKey},
		"an excluded key": {func(c *SignerServiceConfig) {
			c.Signer, c.VerifyOnly = other, []*jws.Key{other.Key()}
		}, CheckSignerKey},
		"a broken signature": {func(c *SignerServiceConfig) {
			inner := c.Signer
			c.Signer = signerFunc(func(ctx context.Context, payload []byte) (*jws.Signature, error) {
				return inner.Sign(ctx, append([]byte(" "), payload...))
			})
		}, CheckSignerSignature},
		"no signature": {func(c *SignerServiceConfig) {
			c.Signer = signerFunc(func(context.Context, []byte) (*jws.Signature, error) { return nil, errors.New("down") })
		}, ErrRetry},
		"nothing": {func(c *SignerServiceConfig) {
			c.Signer = signerFunc(func(context.Context, []byte) (*jws.Signature, error) { return nil, nil })
		}, ErrRetry},
		"no keys": {func(c *SignerServiceConfig) {
			c.Keys = keySetFunc(func(context.Context, string) ([]*jws.Key, error) { return nil, errors.New("down") })
		}, ErrRetry},
		"an empty set": {func(c *SignerServiceConfig) {
			c.Keys = keySetFunc(func(context.Context, string) ([]*jws.Key, error) { return nil, nil })
		}, CheckSignerKeys},
		"a nil key": {func(c *SignerServiceConfig) { c.VerifyOnly = []*jws.Key{nil} }, CheckSignerKeys},
	} {
		config := serviceConfig(t, newClock())
		tt.change(&config)
		answer, err := newService(t, config).Sign(testContext, encode(string(payload)))
		if answer != nil || !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v", what, err, tt.want)
		}
	}
}
