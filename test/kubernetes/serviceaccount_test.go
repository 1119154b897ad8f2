package kubernetes

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	cryptorand "crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"errors"
	"math/big"
	"math/rand"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	jose "gopkg.in/go-jose/go-jose.v2"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/kubernetes/pkg/apis/core"
	"k8s.io/kubernetes/pkg/serviceaccount"

	"github.com/nodeattest/nodeattest/claims"
	"github.com/nodeattest/nodeattest/claims/apiserver"
	"github.com/nodeattest/nodeattest/jws"
)

// shards run at the same time, each with a seed of its own.
const shards = 8

// rounds is how many random cases a shard runs: 100,000 in all, with -short a tenth.
func rounds() int {
	if testing.Short() {
		return 10_000 / shards
	}
	return 100_000 / shards
}

// inShards runs a test in parallel, each part with a clock that stands still: Kubernetes
// reads the process's clock, and both sides must see the same nanosecond.
func inShards(t *testing.T, run func(*testing.T, source)) {
	for shard := range shards {
		t.Run(strconv.Itoa(shard), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				run(t, source{rand.New(rand.NewSource(int64(shard) + 1))})
			})
		})
	}
}

// A release is an API server that the modules of Kubernetes here can be.
type release struct {
	name  string
	as    apiserver.Release
	gate  string   // set for it, if any
	kinds []string // its texts other than kinds
}

// inReleases runs a test with each release, one after another: a feature gate is the process's.
func inReleases(t *testing.T, run func(*testing.T, release)) {
	for _, r := range releases {
		t.Run(r.name, func(t *testing.T) {
			if r.gate != "" {
				if err := utilfeature.DefaultMutableFeatureGate.Set(r.gate); err != nil {
					t.Fatal(err)
				}
			}
			run(t, r)
		})
	}
}

// fixedSigner signs everything with the same bytes: only the claims count.
type fixedSigner struct{}

func (fixedSigner) Public() *jose.JSONWebKey {
	return &jose.JSONWebKey{KeyID: "fixed", Algorithm: string(jose.RS256), Key: &rsa.PublicKey{N: big.NewInt(3), E: 3}}
}

func (fixedSigner) Algs() []jose.SignatureAlgorithm { return []jose.SignatureAlgorithm{jose.RS256} }

func (fixedSigner) SignPayload([]byte, jose.SignatureAlgorithm) ([]byte, error) {
	return []byte("signature"), nil
}

// generated are the claim sets that both generators make of the same objects, or why they
// make none.
type generated struct {
	theirPayload, ourPayload []byte
	theirErr, ourErr         error
}

// theirBound are the objects that Kubernetes' generator binds a token to, and the API groups that it
// attests.
type theirBound struct {
	pod        *core.Pod
	secret     *core.Secret
	node       *core.Node
	validating *admissionv1.ValidatingWebhookConfiguration
	mutating   *admissionv1.MutatingWebhookConfiguration
	groups     []string
}

// bindHook binds the token to a webhook configuration, and returns what our claims then have.
func (s source) bindHook(their *theirBound) (private claims.Private) {
	o, ref := s.generatedObject("", "hook"), &claims.Ref{}
	if s.oneIn(2) {
		their.validating = &admissionv1.ValidatingWebhookConfiguration{}
		their.validating.Name, their.validating.UID = o.Name, uidOf(o)
		private.ValidatingWebhookConfiguration = ref
	} else {
		their.mutating = &admissionv1.MutatingWebhookConfiguration{}
		their.mutating.Name, their.mutating.UID = o.Name, uidOf(o)
		private.MutatingWebhookConfiguration = ref
	}
	ref.Name, ref.UID = o.Name, o.UID
	if their.groups = s.groups(); !s.oneIn(8) {
		private.Attestations = &claims.Attestations{AdmissionReviewAPIGroups: their.groups}
		return private
	}
	their.groups = nil
	return private
}

// generate gives the same random objects to both generators.
func (s source) generate(t *testing.T) generated {
	now, iss := time.Now(), s.text(issuer)
	account := s.generatedObject("ns", "app")
	var b apiserver.Bound
	b.ServiceAccount = &account
	var their theirBound
	if s.oneIn(2) {
		o := s.generatedObject("ns", "pod")
		b.Pod, their.pod = &o, &core.Pod{}
		their.pod.Name, their.pod.UID = o.Name, uidOf(o)
	}
	if s.oneIn(3) {
		o := s.generatedObject("ns", "secret")
		b.Secret, their.secret = &o, &core.Secret{}
		their.secret.Name, their.secret.UID = o.Name, uidOf(o)
	}
	if s.oneIn(2) {
		o := s.generatedObject("", "node")
		b.Node, their.node = &o, &core.Node{}
		their.node.Name, their.node.UID = o.Name, uidOf(o)
	}
	var hook claims.Private
	if knowsHooks && b.Pod == nil && b.Secret == nil && b.Node == nil {
		hook = s.bindHook(&their)
	}
	var sa core.ServiceAccount
	sa.Namespace, sa.Name, sa.UID = account.Namespace, account.Name, uidOf(account)
	seconds, warnAfter := pick(s, 600, 3607, 1<<32, 0, -5, s.Int63n(1<<33)), pick(s, 0, 0, 3607, -1, s.Int63n(1<<33))
	audiences := s.audiences()
	var g generated
	public, private, err := theirClaims(sa, their, seconds, warnAfter, audiences)
	id := ""
	if g.theirErr = err; err == nil {
		id = public.ID
		generator, err := serviceaccount.JWTTokenGenerator(iss, fixedSigner{})
		if err != nil {
			t.Fatal(err)
		}
		token, err := generator.GenerateToken(t.Context(), public, private)
		if err != nil {
			t.Fatal(err)
		}
		if g.theirPayload, err = base64.RawURLEncoding.DecodeString(strings.Split(token, ".")[1]); err != nil {
			t.Fatal(err)
		}
	}
	c, err := apiserver.NewClaims(b, seconds, warnAfter, audiences, id, now)
	if g.ourErr = err; err == nil {
		c.Issuer = iss
		k := &c.Kubernetes
		k.ValidatingWebhookConfiguration, k.MutatingWebhookConfiguration, k.Attestations = hook.ValidatingWebhookConfiguration, hook.MutatingWebhookConfiguration, hook.Attestations
		if g.ourPayload, err = c.Marshal(); err != nil {
			t.Fatal(err)
		}
	}
	return g
}

// TestServiceAccountClaims compares apiserver.NewClaims and Marshal with Kubernetes' generator: the
// same refusals, and claim sets that are equal byte for byte. Parsed
// and encoded again they are the same too.
func TestServiceAccountClaims(t *testing.T) {
	inShards(t, func(t *testing.T, s source) {
		refused := 0
		for i := range rounds() {
			time.Sleep(time.Duration(s.Int63n(int64(3 * time.Second))))
			g := s.generate(t)
			if text(g.theirErr) != text(g.ourErr) || string(g.theirPayload) != string(g.ourPayload) {
				t.Fatalf("case %d:\nKubernetes: %s, %v\nours:       %s, %v", i, g.theirPayload, g.theirErr, g.ourPayload, g.ourErr)
			}
			if g.ourErr != nil {
				refused++
				continue
			}
			c, err := claims.Parse(g.theirPayload)
			if err != nil {
				t.Fatalf("case %d: %s: %v", i, g.theirPayload, err)
			}
			if again, err := c.Marshal(); err != nil || string(again) != string(g.theirPayload) {
				t.Fatalf("case %d: %s parsed and encoded: %s, %v", i, g.theirPayload, again, err)
			}
		}
		if refused == 0 || refused > rounds()/2 {
			t.Errorf("%d of %d cases were refused", refused, rounds())
		}
	})
	t.Logf("Claims against Kubernetes %s: %d random claim sets, each the same bytes or the same refusal", releases[0].name, shards*rounds())
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// A bench holds the validators.
type bench struct {
	release release
	signer  *jws.CryptoSigner
	keys    jws.KeySet
	public  serviceaccount.PublicKeysGetter
}

func newBench(t *testing.T, of release) *bench {
	key, err := ecdsa.GenerateKey(elliptic.P256(), cryptorand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	b := bench{release: of}
	if b.signer, err = jws.NewSigner(key, jws.SignerOptions{}); err != nil {
		t.Fatal(err)
	}
	if b.keys, err = jws.NewStaticKeySet(b.signer.Key()); err != nil {
		t.Fatal(err)
	}
	if b.public, err = serviceaccount.StaticPublicKeysGetter([]any{&key.PublicKey}); err != nil {
		t.Fatal(err)
	}
	return &b
}

// A verdict is all that is known of a validation.
type verdict struct {
	OK        bool
	Error     string
	User      user.DefaultInfo
	Audiences []string
}

// unknown is the answer of the API server where no authenticator knows a token.
const unknown = "invalid bearer token"

func (b *bench) theirs(o *objects, token string, audiences []string) verdict {
	a := serviceaccount.JWTTokenAuthenticator([]string{issuer, otherIssuer}, b.public, authenticator.Audiences{apiAudience}, serviceaccount.NewValidator(theirs{o}))
	ctx := context.Background()
	if len(audiences) > 0 {
		ctx = authenticator.WithAudiences(ctx, audiences)
	}
	response, ok, err := a.AuthenticateToken(ctx, token)
	v := verdict{OK: ok}
	switch {
	case err != nil:
		v.Error = err.Error()
	case !ok:
		v.Error = unknown
	default:
		v.User, v.Audiences = *response.User.(*user.DefaultInfo), response.Audiences
	}
	return v
}

// getter is ours, with webhook configurations where the release looks for them.
func (b *bench) getter(o *objects) claims.Objects {
	return ours{o, b.release.as == apiserver.Kubernetes137WebhookTokens}
}

func (b *bench) ours(o *objects, token string, audiences []string) (verdict, error) {
	k, err := apiserver.NewValidator(apiserver.ValidatorConfig{Release: b.release.as,
		Issuers: []string{issuer, otherIssuer}, Keys: b.keys, Objects: b.getter(o), Audiences: []string{apiAudience}})
	if err != nil {
		return verdict{Error: err.Error()}, err
	}
	result, err := k.Validate(context.Background(), token, audiences...)
	v := verdict{OK: err == nil, Error: text(err)}
	if err == nil {
		v.User = user.DefaultInfo{Name: result.Username(), UID: result.UID(), Groups: result.Groups(), Extra: result.Extra()}
		v.Audiences = result.Audiences
	}
	return v, err
}

// strict is the user for whom claims.Validator takes the token; nil if it refuses.
func (b *bench) strict(t *testing.T, o *objects, token string, audiences []string) *user.DefaultInfo {
	if len(audiences) == 0 {
		return nil // it has no default
	}
	v, err := claims.NewValidator(claims.ValidatorConfig{Issuers: map[string]jws.KeySet{issuer: b.keys}, Objects: b.getter(o), Audiences: audiences,
		InsecureAPIServerAudience: true, InsecureAllowReplay: true, InsecureAllowUnbound: true})
	if err != nil {
		t.Fatal(err)
	}
	result, err := v.Validate(t.Context(), token)
	if err != nil {
		return nil
	}
	return &user.DefaultInfo{Name: result.Username(), UID: result.UID(), Groups: result.Groups(), Extra: result.Extra()}
}

// TestServiceAccountValidator compares apiserver.Validator with Kubernetes' token
// authenticator and validator, over random claim sets, objects and audiences: the same
// verdict, the same words and the same user. The one exception are claim sets that no API
// server writes and that cannot be decoded: these are refused by both, in other words.
// claims.Validator is never looser: it takes none that Kubernetes refuses, and for the same user.
func TestServiceAccountValidator(t *testing.T) {
	inReleases(t, func(t *testing.T, of release) {
		b, seen, strict := newBench(t, of), map[string]int{}, 0
		var mu sync.Mutex
		t.Run("shards", func(t *testing.T) {
			inShards(t, func(t *testing.T, s source) {
				for i := range rounds() {
					our, accepted := b.compare(t, s, i)
					mu.Lock()
					seen[kindOf(our, of.kinds...)]++
					if accepted {
						strict++
					}
					mu.Unlock()
				}
			})
		})
		wantKinds(t, seen, of.kinds...)
		if strict == 0 {
			t.Error("claims.Validator took no token")
		}
		t.Logf("Claims against Kubernetes %s: %d random cases a side, none looser; claims.Validator takes %d of the %d", of.name, shards*rounds(), strict, seen[""])
	})
}

// compare puts one random case to each validator. It returns what ours says, and whether
// claims.Validator takes the token.
func (b *bench) compare(t *testing.T, s source, i int) (our string, strict bool) {
	time.Sleep(time.Duration(s.Int63n(int64(3 * time.Second))))
	now := time.Now()
	o := s.objects(now)
	payload, err := s.claimSet(now).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	if s.oneIn(10) {
		payload = s.bend(payload)
	}
	signature, err := b.signer.Sign(t.Context(), payload)
	if err != nil {
		t.Fatal(err)
	}
	token, audiences := signature.Token(payload), s.audiences()
	if s.oneIn(100) {
		token = s.damage(token)
	}
	want := b.theirs(o, token, audiences)
	got, err := b.ours(o, token, audiences)
	if !want.equal(got) && (want.OK || !errors.Is(err, claims.CheckEncoding)) {
		t.Fatalf("case %d: %s for %q of %s\nKubernetes: %+v\nours:       %+v (%#v)", i, payload, audiences, token, want, got, errors.Unwrap(err))
	}
	who := b.strict(t, o, token, audiences)
	if who != nil && (!want.OK || !reflect.DeepEqual(*who, want.User)) {
		t.Fatalf("case %d: %s for %q of %s\nKubernetes: %+v\nclaims.Validator takes it for %+v", i, payload, audiences, token, want, who)
	}
	return got.Error, who != nil
}

func (v verdict) equal(other verdict) bool {
	return v.OK == other.OK && v.Error == other.Error && reflect.DeepEqual(v.User, other.User) &&
		reflect.DeepEqual(v.Audiences, other.Audiences)
}

// damage makes a token that is not quite one.
func (s source) damage(token string) string {
	parts := strings.Split(token, ".")
	switch at := s.Intn(len(token)); s.Intn(4) {
	case 0:
		return token[:at] + string(pick(s, 'A', '-', '=', '.', ' ', '\n', '/')) + token[at+1:]
	case 1:
		return token[:at]
	case 2:
		return token[:at] + string(pick(s, 'A', '=', '.', ' ', '\n')) + token[at:]
	}
	parts[s.Intn(3)] = ""
	return strings.Join(parts, ".")
}
