package claims

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/jws"
)

func serviceConfig(t testing.TB, clock *testClock) SignerServiceConfig {
	t.Helper()
	rotating, err := jws.NewRotatingSigner(newECDSA(t, jws.TypeJWT), jws.RotationConfig{
		Publish: time.Minute, Retain: DefaultMaxTokenLifetime + DefaultLeeway, Now: clock.Now,
	})
	if err != nil {
		t.Fatal(err)
	}
	return SignerServiceConfig{
		Issuer: testIssuer, Signer: rotating, Keys: rotating,
		RefreshHint: time.Minute, Now: clock.Now,
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
	one, err := jws.Verify(testContext, first.Token.Reveal(), client)
	if err != nil {
		t.Fatal(err)
	}
	two, err := jws.Verify(testContext, second.Token.Reveal(), client)
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
		IssuedAt: NumericDate{1700000000, true}, NotBefore: NumericDate{1700000000, true}, Expiry: NumericDate{1700003607, true},
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
		"another issuer":                  func(c *Claims) { c.Issuer += "/" },
		"another subject":                 func(c *Claims) { c.Subject += "x" },
		"no namespace":                    func(c *Claims) { c.Kubernetes.Namespace, c.Subject = "", MakeSubject("", "sa") },
		"no account":                      func(c *Claims) { c.Kubernetes.ServiceAccount.Name, c.Subject = "", MakeSubject("ns", "") },
		"no UID":                          func(c *Claims) { c.Kubernetes.ServiceAccount.UID = "" },
		"a namespace with another's name": func(c *Claims) { c.Kubernetes.Namespace, c.Subject = "ns:sa", MakeSubject("ns:sa", "sa") },
		"an account with a namespace":     func(c *Claims) { c.Kubernetes.ServiceAccount.Name, c.Subject = "sa:x", MakeSubject("ns", "sa:x") },
		"legacy claims":                   func(c *Claims) { c.Legacy = &LegacyPrivate{} },
		"no exp":                          func(c *Claims) { c.Expiry = NumericDate{} },
		"no iat":                          func(c *Claims) { c.IssuedAt = NumericDate{} },
		"no nbf":                          func(c *Claims) { c.NotBefore = NumericDate{} },
		"nbf long before iat":             func(c *Claims) { c.NotBefore.Unix -= 1000000 },
		"a second too long":               func(c *Claims) { c.Expiry.Unix++ },
		"no life":                         func(c *Claims) { c.Expiry = c.IssuedAt },
		"iat too far ahead":               func(c *Claims) { c.IssuedAt.Unix += 61; c.NotBefore.Unix += 61; c.Expiry.Unix += 61 },
		"a short life ahead":              func(c *Claims) { c.IssuedAt.Unix += 61; c.NotBefore.Unix += 61 },
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
		"nothing":                      "",
		"no base64":                    "%",
		"padded":                       encode(string(good)) + "=",
		"a line break":                 encode(string(good)) + "\n",
		"no claims":                    encode("hello"),
		"exp twice":                    encode(string(good[:len(good)-1]) + `,"exp":1}`),
		"groups":                       encode(`{"groups":["system:masters"],` + string(good[1:])),
		"an address":                   encode(string(good[:len(good)-1]) + `,"email":"root@corp.example","email_verified":true}`),
		"cloud tags":                   encode(string(good[:len(good)-1]) + `,"https://aws.amazon.com/tags":{"principal_tags":{"admin":["1"]}}}`),
		"a claim of ours":              encode(strings.Replace(string(good), `"namespace":"ns"`, `"extra":1,"namespace":"ns"`, 1)),
		"a claim of the account":       encode(strings.Replace(string(good), `"uid":"u"`, `"uid":"u","x":""`, 1)),
		"another order":                encode(strings.Replace(string(good), `"iat":1700000000,"iss":"`+testIssuer+`"`, `"iss":"`+testIssuer+`","iat":1700000000`, 1)),
		"white space":                  encode(string(good) + " "),
		"another escape":               encode(strings.Replace(string(good), `"ns"`, `"\u006es"`, 1)),
		"an empty audience":            encode(`{"aud":[],` + string(good[1:])),
		"an audience without an array": encode(`{"aud":"x",` + string(good[1:])),
		"a token":                      encode(string(good)) + ".x",
	} {
		if _, err := s.Sign(testContext, segment); !errors.Is(err, CheckSignerClaims) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestNewSignerServiceRefuses(t *testing.T) {
	for what, change := range map[string]func(*SignerServiceConfig){
		"a negative lifetime":              func(c *SignerServiceConfig) { c.MaxTokenLifetime = -1 },
		"a second below the kubelet's":     func(c *SignerServiceConfig) { c.MaxTokenLifetime = (ExtendedRequestSeconds - 1) * time.Second },
		"published for less than the hint": func(c *SignerServiceConfig) { c.RefreshHint++ },
		"withdrawn a nanosecond early": func(c *SignerServiceConfig) {
			c.Keys = overlap{c.Keys, time.Minute, DefaultMaxTokenLifetime + DefaultLeeway - 1}
		},
		"no issuer":        func(c *SignerServiceConfig) { c.Issuer = "" },
		"no signer":        func(c *SignerServiceConfig) { c.Signer = nil },
		"no keys":          func(c *SignerServiceConfig) { c.Keys = nil },
		"no refresh hint":  func(c *SignerServiceConfig) { c.RefreshHint = 0 },
		"a short one":      func(c *SignerServiceConfig) { c.RefreshHint = time.Second - 1 },
		"a short lifetime": func(c *SignerServiceConfig) { c.MaxTokenLifetime, c.AllowBelowKubelet = 10*time.Minute-1, true },
		"a long lifetime with keys for it": func(c *SignerServiceConfig) {
			c.MaxTokenLifetime, c.Keys = 1<<32*time.Second+1, overlap{c.Keys, time.Minute, 1 << 62}
		},
		"a long lifetime": func(c *SignerServiceConfig) { c.MaxTokenLifetime = 1<<32*time.Second + 1 },
	} {
		config := serviceConfig(t, newClock())
		change(&config)
		if s, err := NewSignerService(config); s != nil || !errors.Is(err, CheckConfig) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// overlap is a key set whose keys overlap for as long as it says.
type overlap struct {
	jws.KeySet
	publish, retain time.Duration
}

func (o overlap) Overlap() (publish, retain time.Duration) { return o.publish, o.retain }

// TestNewSignerServiceAccepts the limits themselves.
func TestNewSignerServiceAccepts(t *testing.T) {
	for what, tt := range map[string]struct {
		change func(*SignerServiceConfig)
		want   time.Duration
	}{
		"by default":  {func(*SignerServiceConfig) {}, 3607 * time.Second},
		"kubelet's":   {func(c *SignerServiceConfig) { c.MaxTokenLifetime = 3607 * time.Second }, 3607 * time.Second},
		"ten minutes": {func(c *SignerServiceConfig) { c.MaxTokenLifetime, c.AllowBelowKubelet = 10*time.Minute, true }, 10 * time.Minute},
		"the longest": {func(c *SignerServiceConfig) {
			c.MaxTokenLifetime = 1 << 32 * time.Second
			c.Keys = overlap{c.Keys, time.Minute, 1<<32*time.Second + time.Minute}
		}, 1 << 32 * time.Second},
		"a key set that does not say": {func(c *SignerServiceConfig) {
			keys := c.Keys
			c.RefreshHint, c.MaxTokenLifetime = time.Hour, 24*time.Hour
			c.Keys = keySetFunc(func(ctx context.Context, id string) ([]*jws.Key, error) { return keys.Keys(ctx, id) })
		}, 24 * time.Hour},
		"the shortest hint": {func(c *SignerServiceConfig) { c.RefreshHint = time.Second }, 3607 * time.Second},
	} {
		t.Run(what, func(t *testing.T) {
			config := serviceConfig(t, newClock())
			tt.change(&config)
			s, err := NewSignerService(config)
			if err != nil {
				t.Fatal(err)
			}
			metadata, err := s.Metadata(testContext)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := metadata.Check(); err != nil || got != tt.want {
				t.Errorf("%v, %v, want %v", got, err, tt.want)
			}
		})
	}
}

// TestSignerServiceTimestamp: the data is as old as the keys are, not as the answer.
func TestSignerServiceTimestamp(t *testing.T) {
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
	clock.Add(DefaultMaxTokenLifetime + DefaultLeeway)
	want(clock.Now())
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
