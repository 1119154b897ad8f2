package extsigner

import (
	"context"
	"crypto/ecdsa"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nodeattest/nodeattest/claims"
	"github.com/nodeattest/nodeattest/internal/strictjson"
	"github.com/nodeattest/nodeattest/jws"
	"github.com/nodeattest/nodeattest/refusal"
)

// Check names one check that a request or an answer must pass; see [refusal.Check].
type Check = refusal.Check

// Error is a check that failed; see [refusal.Error]. It holds no token and no private key.
type Error = refusal.Error

// The checks on an external signer's requests and answers.
const (
	// checkSignerClaims: the payload to be signed is not a claim set of the issuer, or has
	// a longer lifetime than the signer allows.
	checkSignerClaims Check = "signer-claims"
	// checkSignerHeader: the header of a signature is not exactly alg, kid and typ, or
	// one of them has a value that is not allowed.
	checkSignerHeader Check = "signer-header"
	// checkSignerKey: the key of a signature is not published, or is excluded from
	// discovery.
	checkSignerKey Check = "signer-key"
	// checkSignerSignature: a signature is malformed or does not verify.
	checkSignerSignature Check = "signer-signature"
	// checkSignerKeys: there are no published keys, they are malformed, or they lack a
	// refresh hint or timestamp.
	checkSignerKeys Check = "signer-keys"
	// checkSignerMetadata: the signer's maximum lifetime is below 600 seconds.
	checkSignerMetadata Check = "signer-metadata"
)

// Signer signs service-account tokens outside the API server: the three operations of
// k8s.io/externaljwt, apis/v1, of KEP-740. It is the interface of both a server on a Unix
// socket and a client of one. Its methods must be safe for concurrent use, and must return when
// ctx ends: the Close of a [Client] waits for the fetch under way. An error that
// wraps [refusal.ErrRetry] means that there was no answer.
type Signer interface {
	// Sign signs the payload of a token, given as the token's second segment: the claim
	// set in base64url without padding.
	Sign(ctx context.Context, segment string) (*Signature, error)
	// FetchKeys returns the public keys that tokens may be signed with.
	FetchKeys(ctx context.Context) (*Keys, error)
	// Metadata says what the signer can do. It is called once, at startup.
	Metadata(ctx context.Context) (*Metadata, error)
}

// Signature is the answer to Sign.
type Signature struct {
	// Header is the first segment of the token: {"alg", "kid", "typ": "JWT"} in
	// base64url without padding.
	Header string
	// Signature is the third segment of the token.
	Signature string
}

// Keys is the answer to FetchKeys.
type Keys struct {
	// Keys are the keys. There is at least one.
	Keys []Key
	// DataTimestamp is when the keys were read from where they are kept.
	DataTimestamp time.Time
	// RefreshHintSeconds says in how many seconds, more than 0, the keys should be fetched
	// again. A key is published for at least that long before it signs.
	RefreshHintSeconds int64
}

// Key is one public key of an external signer.
type Key struct {
	// KeyID is the key's "kid", 1 to 1024 bytes.
	KeyID string
	// Key is the public key, the DER of a SubjectPublicKeyInfo (PKIX): RSA, or ECDSA on
	// P-256, P-384 or P-521.
	Key []byte
	// ExcludeFromOIDCDiscovery says that the key only verifies tokens, such as legacy ones,
	// and signs none: it appears in no discovery document.
	ExcludeFromOIDCDiscovery bool
}

// PublishedKey is a key from an answer that was checked; see [Keys.Check].
type PublishedKey struct {
	// Key is the key, bound to its algorithm and key ID.
	Key *jws.Key
	// ExcludeFromOIDCDiscovery is that of [Key].
	ExcludeFromOIDCDiscovery bool
}

// Metadata is the answer to Metadata.
type Metadata struct {
	// MaxTokenExpirationSeconds is the maximum lifetime of a token that the signer signs,
	// at least 600.
	MaxTokenExpirationSeconds int64
}

const (
	// maxKeys is the maximum number of keys that an external signer may publish: as many
	// as one key set holds.
	maxKeys = jws.MaxJWKSKeys
	// maxKeySize is the maximum size of the DER of one such key in bytes.
	maxKeySize = 8 << 10
	// maxSegmentSize is the maximum size of a segment of a token in bytes.
	maxSegmentSize = 48 << 10

	// The bounds of the lifetimes of tokens, the same as for a TokenRequest
	// (pkg/apis/authentication/validation in k8s.io/kubernetes).
	minLifetime = 600 * time.Second
	maxLifetime = (1 << 32) * time.Second
)

// Check makes the checks of kube-apiserver 1.36
// (pkg/serviceaccount/externaljwt/plugin/keycache.go in k8s.io/kubernetes) on the keys:
// a refresh hint above 0, a timestamp from the year 1 onwards, at least one key, key IDs of
// 1 to 1024 bytes, keys in PKIX. In addition it refuses keys that kube-apiserver cannot put
// in a discovery document, weak keys, duplicate key IDs for one algorithm, and more than
// 256. It returns the keys in their original order; the error is "signer-keys".
func (k *Keys) Check() ([]PublishedKey, error) {
	switch {
	case k == nil:
		return nil, refuse(checkSignerKeys, "no answer", "keys", nil)
	case k.RefreshHintSeconds <= 0:
		return nil, refuse(checkSignerKeys, "a refresh hint of "+strconv.FormatInt(k.RefreshHintSeconds, 10)+" s", "more than 0", nil)
	case len(k.Keys) == 0 || len(k.Keys) > maxKeys:
		return nil, refuse(checkSignerKeys, strconv.Itoa(len(k.Keys))+" keys", "1 to "+strconv.Itoa(maxKeys), nil)
	case k.DataTimestamp.IsZero() || k.DataTimestamp.UTC().Year() < 1 || k.DataTimestamp.UTC().Year() > 9999:
		return nil, refuse(checkSignerKeys, "the data timestamp "+k.DataTimestamp.String(), "a time from the year 1 to 9999", nil)
	}
	checked := make([]PublishedKey, 0, len(k.Keys))
	for i := range k.Keys {
		key, err := k.Keys[i].check()
		if err != nil {
			return nil, err
		}
		for _, other := range checked {
			if other.Key.KeyID() == key.KeyID() && other.Key.Algorithm() == key.Algorithm() {
				return nil, refuse(checkSignerKeys, fmt.Sprintf("the key ID %.64q twice for %s", key.KeyID(), key.Algorithm()), "once", nil)
			}
		}
		checked = append(checked, PublishedKey{Key: key, ExcludeFromOIDCDiscovery: k.Keys[i].ExcludeFromOIDCDiscovery})
	}
	return checked, nil
}

func (k *Key) check() (*jws.Key, error) {
	if k.KeyID == "" { // NewKey would make up a key ID; it refuses one that is too long
		return nil, refuse(checkSignerKeys, "a key without a key ID", "1 to 1024 bytes", nil)
	}
	if len(k.Key) > maxKeySize {
		return nil, refuse(checkSignerKeys, fmt.Sprintf("a key of %d bytes", len(k.Key)), "at most "+strconv.Itoa(maxKeySize), nil)
	}
	public, err := x509.ParsePKIXPublicKey(k.Key)
	if err != nil {
		return nil, refuse(checkSignerKeys, "a key that does not parse", "a SubjectPublicKeyInfo", err)
	}
	_, isRSA := public.(*rsa.PublicKey)
	if _, isECDSA := public.(*ecdsa.PublicKey); !isRSA && !isECDSA {
		return nil, refuse(checkSignerKeys, fmt.Sprintf("a key of type %T", public), "RSA or ECDSA", nil)
	}
	key, err := jws.NewKey(public, jws.KeyOptions{KeyID: k.KeyID})
	if err != nil {
		return nil, refuse(checkSignerKeys, "a key that is not allowed", "", err)
	}
	return key, nil
}

func refuse(check Check, got, want string, err error) error {
	return &Error{Check: check, Got: got, Want: want, Err: err}
}

// Check makes the checks of kube-apiserver 1.36 on an answer to Sign
// (pkg/serviceaccount/externaljwt/plugin/plugin.go in k8s.io/kubernetes): a header with
// alg, kid and typ and nothing else, typ "JWT", an alg among RS256, ES256, ES384 and
// ES512, a kid of 1 to 1024 bytes of a key that is not excluded from discovery, and a
// signature. In addition it accepts only names in lower case (an "ALG" next to an "alg" is
// refused), canonical base64url and published keys, and it verifies the signature over the
// claims; an ECDSA signature must have the curve's fixed width.
//
// It returns the token's signature for [jws.Signature.Token]. The errors are
// "signer-header", "signer-key" and "signer-signature".
func (s *Signature) Check(segment string, keys []PublishedKey) (*jws.Signature, error) {
	if s == nil {
		return nil, &Error{Check: checkSignerHeader, Got: "no answer", Want: "a header and a signature"}
	}
	header, err := readHeader(s.Header)
	if err != nil {
		return nil, err
	}
	key, err := header.key(keys)
	if err != nil {
		return nil, err
	}
	token, err := jws.Parse(s.Header + "." + segment + "." + s.Signature)
	if err == nil {
		err = key.Verify(token)
	}
	if err != nil {
		return nil, &Error{Check: checkSignerSignature, Err: err}
	}
	return &jws.Signature{Header: s.Header, Value: s.Signature, Key: key}, nil
}

// header is the header of an external signer's token.
type header struct {
	algorithm, keyID, typ string
}

func readHeader(segment string) (*header, error) {
	text, err := decodeSegment(segment)
	if err != nil {
		return nil, refuse(checkSignerHeader, "", "", err)
	}
	h := &header{}
	members := map[string]*string{"alg": &h.algorithm, "kid": &h.keyID, "typ": &h.typ}
	r := strictjson.NewReader(text)
	err = r.Object(func(name []byte) (err error) {
		member := members[string(name)]
		if member == nil {
			return refuse(checkSignerHeader, "the member "+strconv.Quote(refusal.Text(string(name))), "alg, kid and typ", nil)
		}
		*member, err = r.String()
		return err
	})
	if err == nil {
		err = r.End()
	}
	var own *Error
	switch {
	case errors.As(err, &own):
		return nil, own
	case err != nil:
		return nil, refuse(checkSignerHeader, "", "", err)
	case h.typ != "JWT":
		return nil, refuse(checkSignerHeader, "typ "+strconv.Quote(refusal.Text(h.typ)), `"JWT"`, nil)
	case h.keyID == "" || len(h.keyID) > jws.MaxKeyIDSize:
		return nil, refuse(checkSignerHeader, fmt.Sprintf("a kid of %d bytes", len(h.keyID)), "1 to 1024", nil)
	case !slices.Contains([]jws.Algorithm{jws.RS256, jws.ES256, jws.ES384, jws.ES512}, jws.Algorithm(h.algorithm)):
		return nil, refuse(checkSignerHeader, "alg "+strconv.Quote(refusal.Text(h.algorithm)), "RS256, ES256, ES384 or ES512", nil)
	}
	return h, nil
}

// key finds the published key that the header names.
func (h *header) key(keys []PublishedKey) (*jws.Key, error) {
	var found *jws.Key
	for _, k := range keys {
		if k.Key == nil || k.Key.KeyID() != h.keyID {
			continue
		}
		if k.ExcludeFromOIDCDiscovery {
			return nil, &Error{Check: checkSignerKey, Got: "kid " + strconv.Quote(h.keyID) + ", which is excluded from discovery", Want: "a key that signs"}
		}
		if string(k.Key.Algorithm()) == h.algorithm {
			found = k.Key
		}
	}
	if found == nil {
		return nil, &Error{Check: checkSignerKey, Got: "kid " + strconv.Quote(h.keyID) + " for " + h.algorithm, Want: "a published key"}
	}
	return found, nil
}

// decodeSegment reads canonical base64url: no padding, no line breaks, no unused bits that
// are set (RFC 7515, section 2). Strict does not refuse line breaks.
func decodeSegment(segment string) ([]byte, error) {
	if len(segment) > maxSegmentSize {
		return nil, &Error{Check: claims.CheckSize, Got: strconv.Itoa(len(segment)) + " bytes", Want: "at most " + strconv.Itoa(maxSegmentSize)}
	}
	if i := strings.IndexAny(segment, "\r\n"); i >= 0 {
		return nil, base64.CorruptInputError(i)
	}
	return base64.RawURLEncoding.Strict().DecodeString(segment)
}

// Check makes kube-apiserver's check on the metadata
// (pkg/controlplane/apiserver/options in k8s.io/kubernetes): tokens of at least 600
// seconds. It returns the maximum lifetime for apiserver.Policy.LimitTo; more than 2^32
// seconds, which no request may state, counts as 2^32. The error is "signer-metadata".
func (m *Metadata) Check() (time.Duration, error) {
	if m == nil {
		return 0, &Error{Check: checkSignerMetadata, Got: "no answer", Want: "a maximum lifetime"}
	}
	if m.MaxTokenExpirationSeconds < int64(minLifetime/time.Second) {
		return 0, &Error{Check: checkSignerMetadata,
			Got: "a maximum lifetime of " + strconv.FormatInt(m.MaxTokenExpirationSeconds, 10) + " s", Want: "at least 600 s"}
	}
	return time.Duration(min(m.MaxTokenExpirationSeconds, int64(maxLifetime/time.Second))) * time.Second, nil
}
