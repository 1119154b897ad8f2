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
	"testing"
	"testing/synctest"
	"time"

	jose "gopkg.in/go-jose/go-jose.v2"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
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

// generate gives the same random objects to both generators.
func (s source) generate(t *testing.T) generated {
	now, iss := time.Now(), s.text(issuer)
	account := s.generatedObject("ns", "app")
	var b apiserver.Bound
	b.ServiceAccount = &account
	var pod *core.Pod
	var secret *core.Secret
	var node *core.Node
	if s.oneIn(2) {
		o := s.generatedObject("ns", "pod")
		b.Pod, pod = &claims.Pod{Object: o}, &core.Pod{}
		pod.Name, pod.UID = o.Name, uidOf(o)
	}
	if s.oneIn(3) {
		o := s.generatedObject("ns", "secret")
		b.Secret, secret = &o, &core.Secret{}
		secret.Name, secret.UID = o.Name, uidOf(o)
	}
	if s.oneIn(2) {
		o := s.generatedObject("", "node")
		b.Node, node = &claims.Node{Object: o}, &core.Node{}
		node.Name, node.UID = o.Name, uidOf(o)
	}
	var sa core.ServiceAccount
	sa.Namespace, sa.Name, sa.UID = account.Namespace, account.Name, uidOf(account)
	seconds, warnAfter := pick(s, 600, 3607, 1<<32, 0, -5, s.Int63n(1<<33)), pick(s, 0, 0, 3607, -1, s.Int63n(1<<33))
	audiences := s.audiences()
	var g generated
	public, private, err := serviceaccount.Claims(sa, pod, secret, node, seconds, warnAfter, audiences)
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
		if g.ourPayload, err = c.Marshal(); err != nil {
			t.Fatal(err)
		}
	}
	return g
}

// TestServiceAccountClaims puts apiserver.NewClaims and Marshal beside Kubernetes' generator: the
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
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// A bench holds both validators.
type bench struct {
	signer *jws.CryptoSigner
	keys   jws.KeySet
	public serviceaccount.PublicKeysGetter
}

func newBench(t *testing.T) *bench {
	key, err := ecdsa.GenerateKey(elliptic.P256(), cryptorand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	var b bench
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

func (b *bench) ours(o *objects, token string, audiences []string) (verdict, error) {
	k, err := apiserver.NewValidator(apiserver.ValidatorConfig{
		Issuers: []string{issuer, otherIssuer}, Keys: b.keys, Objects: ours{o}, Audiences: []string{apiAudience}})
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

// TestServiceAccountValidator puts apiserver.Validator beside Kubernetes' token
// authenticator and validator, over random claim sets, objects and audiences: the same
// verdict, the same words and the same user. The one exception are claim sets that no API server writes and that cannot be decoded: these are refused
// by both, in other words.
func TestServiceAccountValidator(t *testing.T) {
	b := newBench(t)
	inShards(t, func(t *testing.T, s source) {
		seen := map[string]int{}
		for i := range rounds() {
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
			their := b.theirs(o, token, audiences)
			our, err := b.ours(o, token, audiences)
			seen[kindOf(our.Error)]++
			if !their.OK && errors.Is(err, claims.CheckEncoding) {
				continue
			}
			if !their.equal(our) {
				t.Fatalf("case %d: %s for %q of %s\nKubernetes: %+v\nours:       %+v (%#v)", i, payload, audiences, token, their, our, errors.Unwrap(err))
			}
		}
		wantKinds(t, seen)
	})
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
