package extsignertest

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/asn1"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"
	externaljwt "k8s.io/externaljwt/apis/v1"

	"github.com/nodeattest/nodeattest/jws"
	"github.com/nodeattest/nodeattest/refusal"
)

func newKey(t testing.TB, curve elliptic.Curve) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(curve, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// TestRun: the real service passes, with each type of key.
func TestRun(t *testing.T) {
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	for name, key := range map[string]crypto.Signer{
		"RS256": rsaKey, "ES256": newKey(t, elliptic.P256()), "ES384": newKey(t, elliptic.P384()), "ES512": newKey(t, elliptic.P521()),
	} {
		t.Run(name, func(t *testing.T) { Run(t, testIssuer, newSigner(t, key, newKey(t, elliptic.P256())).dial) })
	}
}

// tried are the checks that some weak signer has failed. Every check has one.
var tried sync.Map

// A fault is a weak signer, with the checks that it must fail and a part of the error.
type fault struct {
	weak   weak
	fails  string // the name of a check, or how some begin with
	reason string
}

// header changes the header of each answer.
func header(change func(header string) string) weak {
	return weak{signed: func(a *externaljwt.SignJWTResponse) {
		text, _ := base64.RawURLEncoding.DecodeString(a.Header)
		a.Header = base64.RawURLEncoding.EncodeToString([]byte(change(string(text))))
	}}
}

// replaced replaces a part of the header.
func replaced(old, by string) weak {
	return header(func(header string) string { return strings.Replace(header, old, by, 1) })
}

// signature changes each signature.
func signature(change func(signature []byte) string) weak {
	return weak{signed: func(a *externaljwt.SignJWTResponse) {
		value, _ := base64.RawURLEncoding.DecodeString(a.Signature)
		a.Signature = change(value)
	}}
}

func ofKeys(change func(a *externaljwt.FetchKeysResponse)) weak { return weak{keys: change} }

func ofMetadata(seconds int64) weak {
	return weak{metadata: func(a *externaljwt.MetadataResponse) { a.MaxTokenExpirationSeconds = seconds }}
}

// answersOf are signers with one fault in the header or the signature.
func answersOf(t *testing.T, good *signerUnderTest) map[string]fault {
	stranger, excluded := sign(t, newKey(t, elliptic.P256()), "stranger"), good.retired
	last := struct {
		sync.Mutex
		answer *externaljwt.SignJWTResponse
	}{}
	client := good.client(t)
	published := publishedLate(t, sign(t, newKey(t, elliptic.P256()), "late"))
	return map[string]fault{
		"ALG none next to alg":   {replaced(`{`, `{"ALG":"none",`), "signs-a-pod", "signer-header"},
		"alg none":               {replaced(`"ES256"`, `"none"`), "signs-a-pod", "signer-header"},
		"alg PS256":              {replaced(`"ES256"`, `"PS256"`), "signs-a-pod", "alg PS256, want RS256, ES256, ES384 or ES512"},
		"a token type":           {replaced(`"JWT"`, `"at+jwt"`), "signs-a-pod", `typ "at+jwt", want "JWT"`},
		"no token type":          {replaced(`,"typ":"JWT"`, ``), "signs-a-pod", `the members "alg", "kid"`},
		"a header with a jku":    {replaced(`{`, `{"jku":"https://foreign.example",`), "signs-a-pod", "alg, kid and typ"},
		"no kid":                 {replaced(`"kid":"signs",`, ``), "signs-a-pod", "signer-header"},
		"no header":              {header(func(string) string { return "" }), "signs-a-pod", "signer-header"},
		"a key that is excluded": {weak{sign: blind(excluded)}, "signs-a-pod", `kid "retired", which is excluded from discovery`},
		"a key that is not published": {weak{sign: blind(stranger)}, "signs-a-node",
			`kid "stranger" for ES256, want a published key`},
		"a key that is published once it has signed": {published, "signs-a-pod", `kid "late" for ES256, want a published key`},
		"the kid of another key": {weak{sign: blind(sign(t, newKey(t, elliptic.P256()), "signs"))},
			"signs-a-secret", "signer-signature"},
		"DER in place of 64 bytes": {signature(inDER), "signs-a-webhook", "signer-signature"},
		"63 bytes": {signature(func(s []byte) string { return base64.RawURLEncoding.EncodeToString(s[1:]) }),
			"signs-an-account", "signer-signature"},
		"no signature":             {signature(func([]byte) string { return "" }), "signs-a-pod-without-a-node", "signer-signature"},
		"a signature with padding": {signature(base64.URLEncoding.EncodeToString), "signs-a-pod", "signer-signature"},
		"a changed payload": {weak{sign: func(ctx context.Context, claims string) (*externaljwt.SignJWTResponse, error) {
			payload, _ := base64.RawURLEncoding.DecodeString(claims)
			payload = slices.Concat(payload[:len(payload)-1], []byte(`,"email":"a@example.com"}`))
			return blind(good.signs)(ctx, base64.RawURLEncoding.EncodeToString(payload))
		}}, "signs-a-pod-of-a-node-that-is-gone", "signer-signature"},
		"answers for other calls": {weak{sign: func(ctx context.Context, claims string) (*externaljwt.SignJWTResponse, error) {
			answer, err := client.Sign(ctx, &externaljwt.SignJWTRequest{Claims: claims})
			last.Lock()
			defer last.Unlock()
			if last.answer == nil {
				last.answer = answer
			}
			return last.answer, err
		}}, "signs-at-once", "signer-signature"},
		"no large claims": {weak{sign: func(ctx context.Context, claims string) (*externaljwt.SignJWTResponse, error) {
			if len(claims) > 8<<10 {
				return nil, status.Error(codes.InvalidArgument, "too large")
			}
			return client.Sign(ctx, &externaljwt.SignJWTRequest{Claims: claims})
		}}, "signs-many-audiences", "too large"},
		"a shorter life than it says": {ofMetadata(86400), "signs-the-longest-lifetime", "signer-claims"},
	}
}

// publishedLate signs with a key that FetchKeys returns only after that, as a cache of kube-apiserver's then lacks it.
func publishedLate(t *testing.T, late *jws.CryptoSigner) weak {
	t.Helper()
	der, err := x509.MarshalPKIXPublicKey(late.Key().Public())
	if err != nil {
		t.Fatal(err)
	}
	var signed atomic.Bool
	return weak{
		sign: func(ctx context.Context, claims string) (*externaljwt.SignJWTResponse, error) {
			signed.Store(true)
			return blind(late)(ctx, claims)
		},
		keys: func(a *externaljwt.FetchKeysResponse) {
			if signed.Load() {
				a.Keys = append(a.Keys, &externaljwt.Key{KeyId: late.Key().KeyID(), Key: der})
			}
		},
	}
}

// inDER encodes a signature as a crypto.Signer returns it.
func inDER(s []byte) string {
	half := len(s) / 2
	der, _ := asn1.Marshal(struct{ R, S *big.Int }{new(big.Int).SetBytes(s[:half]), new(big.Int).SetBytes(s[half:])})
	return base64.RawURLEncoding.EncodeToString(der)
}

// keysOf are signers with one fault in the keys or the metadata.
func keysOf(t *testing.T) map[string]fault {
	edwards, _, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	private := newKey(t, elliptic.P256())
	inPKCS8, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	pkix := func(public crypto.PublicKey) []byte {
		der, err := x509.MarshalPKIXPublicKey(public)
		if err != nil {
			t.Fatal(err)
		}
		return der
	}
	first := func(change func(*externaljwt.Key)) weak {
		return ofKeys(func(a *externaljwt.FetchKeysResponse) { change(a.Keys[0]) })
	}
	return map[string]fault{
		"no keys": {ofKeys(func(a *externaljwt.FetchKeysResponse) { a.Keys = nil }), "keys", "0 keys in the discovery document"},
		"excluded keys alone": {first(func(k *externaljwt.Key) { k.ExcludeFromOidcDiscovery = true }),
			"keys", "0 keys in the discovery document"},
		"257 keys": {ofKeys(func(a *externaljwt.FetchKeysResponse) {
			for i := range 255 {
				a.Keys = append(a.Keys, &externaljwt.Key{KeyId: fmt.Sprint(i), Key: a.Keys[0].Key})
			}
		}), "keys", "257 keys, want 1 to 256"},
		"two keys under one ID": {ofKeys(func(a *externaljwt.FetchKeysResponse) {
			a.Keys = append(a.Keys, &externaljwt.Key{KeyId: a.Keys[0].KeyId, Key: pkix(private.Public())})
		}), "keys", "want one for each key ID and algorithm"},
		"one ID published and excluded": {ofKeys(func(a *externaljwt.FetchKeysResponse) {
			a.Keys = append(a.Keys, &externaljwt.Key{KeyId: a.Keys[0].KeyId, Key: a.Keys[0].Key, ExcludeFromOidcDiscovery: true})
		}), "keys", "published and in VerifyOnly"},
		"no key ID":        {first(func(k *externaljwt.Key) { k.KeyId = "" }), "keys", "without an ID"},
		"a key ID of 1025": {first(func(k *externaljwt.Key) { k.KeyId = strings.Repeat("k", 1025) }), "keys", "got 1025 bytes"},
		"an empty key":     {first(func(k *externaljwt.Key) { k.Key = nil }), "keys", "key 0 of 0 bytes, want PKIX"},
		"the private key":  {first(func(k *externaljwt.Key) { k.Key = inPKCS8 }), "keys", "want PKIX"},
		"an Ed25519 key":   {first(func(k *externaljwt.Key) { k.Key = pkix(edwards) }), "keys", "a key for EdDSA"},
		"a hint of 0": {ofKeys(func(a *externaljwt.FetchKeysResponse) { a.RefreshHintSeconds = 0 }),
			"keys", "a refresh hint of 0 s, want more than 0"},
		"a hint below 0": {ofKeys(func(a *externaljwt.FetchKeysResponse) { a.RefreshHintSeconds = -1 }), "keys", "a refresh hint of -1 s"},
		"no timestamp":   {ofKeys(func(a *externaljwt.FetchKeysResponse) { a.DataTimestamp = nil }), "keys", "a data timestamp that is no time"},
		"a timestamp ahead": {ofKeys(func(a *externaljwt.FetchKeysResponse) {
			a.DataTimestamp = timestamppb.New(time.Now().Add(time.Hour))
		}), "keys", "ahead, want at most 1m0s"},
		"metadata of 599 s":    {ofMetadata(599), "metadata", "599 s, want 600 to 4294967296"},
		"metadata of 0 s":      {ofMetadata(0), "metadata", "0 s, want 600"},
		"metadata over 2^32 s": {ofMetadata(1<<32 + 1), "metadata", "4294967297 s"},
	}
}

// TestWeakSigners: each weak signer is refused, by the check that is meant for it.
func TestWeakSigners(t *testing.T) {
	good := newSigner(t, newKey(t, elliptic.P256()), newKey(t, elliptic.P256()))
	client := good.client(t)
	faults := answersOf(t, good)
	maps.Copy(faults, keysOf(t))
	for _, c := range refused() {
		faults["blind: "+c.name] = fault{weak{sign: blind(good.signs)}, c.name, "it signed the claims"}
		faults["down: "+c.name] = fault{weak{sign: func(context.Context, string) (*externaljwt.SignJWTResponse, error) {
			return nil, status.Error(codes.Unavailable, "down")
		}}, c.name, "it has not decided"}
	}
	for name, f := range faults {
		t.Run(name, func(t *testing.T) {
			f.weak.ExternalJWTSignerClient = client
			i := slices.IndexFunc(checks(), func(c check) bool { return c.name == f.fails })
			if i < 0 {
				t.Fatalf("no check has the name %s", f.fails)
			}
			err := checks()[i].of(t.Context(), testIssuer, f.weak, checkLimit)
			if err == nil || !strings.Contains(err.Error(), f.reason) {
				t.Fatalf("%s: got %v, want %s", f.fails, err, f.reason)
			}
			tried.Store(f.fails, true)
			t.Logf("%s: %v", f.fails, err)
		})
	}
	for _, c := range checks() {
		if _, ok := tried.Load(c.name); !ok {
			t.Errorf("no weak signer fails %s", c.name)
		}
	}
}

// TestLenientSigner: a signer that reads claims as encoding/json does, in which the last of two members counts, and
// checks all that it has read, is refused for claims of which the first issuer is another.
func TestLenientSigner(t *testing.T) {
	good := newSigner(t, newKey(t, elliptic.P256()), newKey(t, elliptic.P256()))
	client := good.client(t)
	lenient := weak{ExternalJWTSignerClient: client, sign: func(ctx context.Context, segment string) (*externaljwt.SignJWTResponse, error) {
		payload, err := base64.RawURLEncoding.DecodeString(segment)
		if err == nil && base64.RawURLEncoding.EncodeToString(payload) != segment {
			err = status.Error(codes.InvalidArgument, "another encoding")
		}
		var read map[string]json.RawMessage
		if err == nil {
			err = json.Unmarshal(payload, &read)
		}
		if err != nil {
			return nil, err
		}
		written, err := json.Marshal(read)
		if err == nil {
			_, err = client.Sign(ctx, &externaljwt.SignJWTRequest{Claims: base64.RawURLEncoding.EncodeToString(written)})
		}
		if err != nil {
			return nil, err
		}
		return blind(good.signs)(ctx, segment)
	}}
	err := testSigner(t.Context(), testIssuer, lenient, checkLimit)
	if err == nil || !strings.Contains(err.Error(), "fails 1 checks") || !strings.Contains(err.Error(), "refuses-claim-twice-the-last-ours: it signed the claims") {
		t.Errorf("got %v", err)
	}
}

// TestHangingSigner: a signer that never answers fails every check but that of the keys, each within its limit.
func TestHangingSigner(t *testing.T) {
	good := newSigner(t, newKey(t, elliptic.P256()), newKey(t, elliptic.P256()))
	hanging := weak{ExternalJWTSignerClient: good.client(t), sign: func(ctx context.Context, _ string) (*externaljwt.SignJWTResponse, error) {
		<-ctx.Done()
		return nil, status.FromContextError(ctx.Err()).Err()
	}}
	err := testSigner(t.Context(), testIssuer, hanging, 50*time.Millisecond)
	want := len(checks()) - 2 // keys and metadata
	if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("this signer fails %d checks", want)) {
		t.Errorf("got %v, want %d failed checks", err, want)
	}
}

func TestNoSigner(t *testing.T) {
	client := newSigner(t, newKey(t, elliptic.P256()), newKey(t, elliptic.P256())).client(t)
	if err := TestSigner(t.Context(), "", client); !errors.Is(err, refusal.CheckConfig) {
		t.Errorf("without an issuer: %v", err)
	}
	if err := TestSigner(t.Context(), testIssuer, nil); !errors.Is(err, refusal.CheckConfig) {
		t.Errorf("without a client: %v", err)
	}
}
