package extsigner

import (
	"bytes"
	"cmp"
	"context"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"reflect"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/nodeattest/nodeattest/claims"
	"github.com/nodeattest/nodeattest/internal/wallclock"
	"github.com/nodeattest/nodeattest/jws"
	"github.com/nodeattest/nodeattest/refusal"
)

// kubeletLifetime is the lifetime of the tokens that the kubelet requests
// (WarnOnlyBoundTokenExpirationSeconds in k8s.io/kubernetes), and the default for the longest that
// a [Service] signs.
const kubeletLifetime = 3607 * time.Second

// ServiceConfig configures a Service.
type ServiceConfig struct {
	// Issuer is the "iss" that the service signs for. It is required: a key that signs
	// whatever it is given signs for other issuers too.
	Issuer string
	// Signer signs. Its tokens have the type "JWT" in their header. It is required.
	Signer jws.Signer
	// Keys are the keys that verify the tokens of Signer, each published before it signs;
	// a [jws.RotatingSigner] is both. It is required. If it has
	// the method Overlap of a RotatingSigner, RefreshHint and MaxLifetime are checked
	// against it.
	Keys jws.KeySet
	// VerifyOnly are keys that no longer sign and that appear in no discovery document.
	VerifyOnly []*jws.Key
	// RefreshHint is how long a client may keep the keys, at least a second, truncated to
	// whole seconds. It is required, and must not be longer than the time for which
	// Keys publishes a new key before it signs.
	RefreshHint time.Duration
	// MaxLifetime is the longest lifetime that is signed, 3607 to 2^32 seconds,
	// truncated to whole seconds; 0 means 3607 seconds. With less, kube-apiserver would shorten
	// the tokens that the kubelet requests and leave out their "warnafter". After a key signs for the
	// last time, Keys must keep it published for this long plus DefaultLeeway.
	MaxLifetime time.Duration
	// Now is the clock; nil means time.Now.
	Now func() time.Time
}

// Service is an external signer that signs with a jws.Signer. It signs only the claims of
// bound tokens of its issuer, encoded exactly as kube-apiserver writes them, and returns no
// answer that kube-apiserver would refuse. It is safe for concurrent use.
type Service struct {
	config ServiceConfig

	mu    sync.Mutex
	known []Key     // the keys as they were last, in order
	since time.Time // when that was first seen; zero: never
}

// NewService checks a configuration. The error is [refusal.CheckConfig].
func NewService(config ServiceConfig) (*Service, error) {
	config.MaxLifetime = cmp.Or(config.MaxLifetime, kubeletLifetime)
	switch {
	case config.Issuer == "":
		return nil, refusal.Config("Issuer", "", "the issuer's URL")
	case config.Signer == nil:
		return nil, refusal.Config("Signer", "", "a jws.Signer")
	case config.Keys == nil:
		return nil, refusal.Config("Keys", "", "a jws.KeySet")
	case config.RefreshHint < time.Second:
		return nil, refusal.Config("RefreshHint", config.RefreshHint.String(), "at least 1s")
	case config.MaxLifetime < kubeletLifetime || config.MaxLifetime > maxLifetime:
		return nil, refusal.Config("MaxLifetime", config.MaxLifetime.String(), kubeletLifetime.String()+" to 2^32 seconds")
	}
	if keys, ok := config.Keys.(interface {
		Overlap() (publish, retain time.Duration)
	}); ok {
		publish, retain := keys.Overlap()
		if publish < config.RefreshHint {
			return nil, refusal.Config("Keys", "that are published for "+publish.String()+" before they sign", "RefreshHint, "+config.RefreshHint.String()+", or more")
		}
		if most := config.MaxLifetime + claims.DefaultLeeway; retain < most {
			return nil, refusal.Config("Keys", "that stay published for "+retain.String()+" after they signed",
				"MaxLifetime, "+config.MaxLifetime.String()+", and a leeway of "+claims.DefaultLeeway.String()+", or more")
		}
	}
	config.VerifyOnly = slices.Clone(config.VerifyOnly)
	config.Now = wallclock.Or(config.Now)
	return &Service{config: config}, nil
}

// ready returns an error for a service that NewService did not make.
func (s *Service) ready() error {
	if s == nil || s.config.Signer == nil {
		return refusal.Config("Service", "that NewService did not make", "one that it made")
	}
	return nil
}

// Sign signs the claims of a bound token: claims of the issuer, encoded exactly as
// [claims.Claims.Marshal] encodes them with nothing added, which pass [claims.Claims.Check],
// and a lifetime of at most MaxLifetime that has begun and not ended.
// Otherwise the error is "signer-claims". Claims of a token that is bound to its service account
// alone are signed, since kube-apiserver issues such tokens. segment is the token's second segment: the claims
// in base64url without padding.
//
// The answer is checked as kube-apiserver does, and its signature is verified: "signer-header",
// "signer-key" and "signer-signature" mean that the Signer is not one for these Keys. If it,
// or they, did not answer, the error wraps [refusal.ErrRetry].
func (s *Service) Sign(ctx context.Context, segment string) (*Signature, error) {
	if err := s.ready(); err != nil {
		return nil, err
	}
	payload, err := s.checkPayload(segment)
	if err != nil {
		return nil, err
	}
	signature, err := s.config.Signer.Sign(ctx, payload)
	if err == nil && signature == nil {
		err = errors.New("the signer returned nothing")
	}
	if err != nil {
		return nil, unlessRefused(err)
	}
	keys, _, err := s.keys(ctx)
	if err != nil {
		return nil, err
	}
	if err := s.checkSignature(signature, segment, keys); err != nil {
		return nil, err
	}
	return &Signature{Header: signature.Header, Signature: signature.Value}, nil
}

// unlessRefused turns an error into refusal.ErrRetry unless it is a refusal.
func unlessRefused(err error) error {
	if _, refused := errors.AsType[*refusal.Error](err); refused && !errors.Is(err, refusal.ErrRetry) {
		return err
	}
	return &refusal.Error{Check: refusal.ErrRetry, Err: err}
}

// checkPayload returns the payload if it may be signed. A claim that Parse ignores, such as
// "groups" or "email", may mean something to a verifier of the token: a payload that does
// not come out of the encoder as it went into the parser is not signed.
func (s *Service) checkPayload(segment string) ([]byte, error) {
	if len(segment) > maxSegmentSize {
		return nil, CheckSignerClaims.Refuse(strconv.Itoa(len(segment))+" bytes", "at most "+strconv.Itoa(maxSegmentSize))
	}
	payload, err := base64.RawURLEncoding.DecodeString(segment)
	if err != nil {
		return nil, &refusal.Error{Check: CheckSignerClaims, Err: err}
	}
	c, err := claims.Parse(payload)
	if err != nil {
		return nil, &refusal.Error{Check: CheckSignerClaims, Err: err}
	}
	if err := s.checkClaims(c); err != nil {
		return nil, err
	}
	if written, err := c.Marshal(); base64.RawURLEncoding.EncodeToString(written) != segment {
		return nil, &refusal.Error{Check: CheckSignerClaims, Got: "more claims than a bound token has, or another encoding", Want: "the encoding of kube-apiserver", Err: err}
	}
	return payload, nil
}

func (s *Service) checkClaims(c *claims.Claims) error {
	longest := int64(s.config.MaxLifetime / time.Second)
	now := s.config.Now()
	latest, earliest := now.Add(claims.DefaultLeeway).Unix(), now.Add(-claims.DefaultLeeway).Unix()
	if err := c.Check(); err != nil {
		return &refusal.Error{Check: CheckSignerClaims, Err: err}
	}
	switch {
	case c.Issuer != s.config.Issuer:
		return CheckSignerClaims.Refuse("iss "+strconv.Quote(refusal.Text(c.Issuer)), strconv.Quote(s.config.Issuer))
	case !c.IssuedAt.Present || c.NotBefore != c.IssuedAt:
		return CheckSignerClaims.Refuse("a token without iat, or with another nbf", "iat, and nbf the same")
	case c.Expiry.Unix <= c.IssuedAt.Unix || c.Expiry.Unix-c.IssuedAt.Unix > longest:
		return CheckSignerClaims.Refuse("a lifetime of "+strconv.FormatInt(c.Expiry.Unix-c.IssuedAt.Unix, 10)+" s", "1 to "+strconv.FormatInt(longest, 10))
	case c.IssuedAt.Unix > latest:
		return CheckSignerClaims.Refuse("iat "+strconv.FormatInt(c.IssuedAt.Unix, 10), "at most "+strconv.FormatInt(latest, 10))
	case c.Expiry.Unix < earliest:
		return CheckSignerClaims.Refuse("exp "+strconv.FormatInt(c.Expiry.Unix, 10), "at least "+strconv.FormatInt(earliest, 10))
	}
	return nil
}

// FetchKeys returns the published keys, followed by the keys that only verify, each once.
// DataTimestamp is when the service first saw the keys as they are now: it changes only when they
// do. The error is "signer-keys" for keys that kube-apiserver 1.36 would not take
// (pkg/serviceaccount/externaljwt/plugin/keycache.go in k8s.io/kubernetes) or could not put in a
// discovery document: none, over 256, one for an algorithm other than RS256, ES256, ES384 and
// ES512, two for one key ID and algorithm, or one that is published and only verifies.
func (s *Service) FetchKeys(ctx context.Context) (*Keys, error) {
	published, verifyOnly, err := s.keys(ctx)
	if err != nil {
		return nil, err
	}
	answer := &Keys{RefreshHintSeconds: int64(s.config.RefreshHint / time.Second)}
	for i, k := range slices.Concat(published, verifyOnly) {
		der, err := x509.MarshalPKIXPublicKey(k.Public())
		if err != nil {
			return nil, &refusal.Error{Check: checkSignerKeys, Got: "a key that has no PKIX", Want: "RSA or ECDSA", Err: err}
		}
		answer.Keys = append(answer.Keys, Key{KeyID: k.KeyID(), Key: der, ExcludeFromOIDCDiscovery: i >= len(published)})
	}
	answer.DataTimestamp = s.changed(answer.Keys, s.config.Now())
	if year := answer.DataTimestamp.UTC().Year(); answer.DataTimestamp.IsZero() || year < 1 || year > 9999 {
		return nil, checkSignerKeys.Refuse("the data timestamp "+answer.DataTimestamp.String(), "a time from the year 1 to 9999")
	}
	return answer, nil
}

// keys returns the keys that may sign and the keys that only verify, each once, after it has
// checked them.
func (s *Service) keys(ctx context.Context) (published, verifyOnly []*jws.Key, err error) {
	if err := s.ready(); err != nil {
		return nil, nil, err
	}
	given, err := s.config.Keys.Keys(ctx, "")
	if err != nil {
		return nil, nil, refusal.Retry(err)
	}
	all := slices.Concat(given, s.config.VerifyOnly)
	if len(all) > jws.MaxJWKSKeys {
		return nil, nil, checkSignerKeys.Refuse(strconv.Itoa(len(all))+" keys", "1 to "+strconv.Itoa(jws.MaxJWKSKeys))
	}
	set, err := jws.NewStaticKeySet(all...)
	if err != nil { // none, one that is nil, or two under one name
		return nil, nil, &refusal.Error{Check: checkSignerKeys, Err: err}
	}
	all, _ = set.Keys(ctx, "") // whose error is always nil
	for _, k := range all {    // of equal keys the first
		signs, verifies := slices.Contains(given, k), slices.ContainsFunc(s.config.VerifyOnly, func(other *jws.Key) bool {
			return other.KeyID() == k.KeyID() && other.Algorithm() == k.Algorithm()
		})
		switch {
		case !slices.Contains(algorithms, k.Algorithm()):
			return nil, nil, checkSignerKeys.Refuse("a key for "+string(k.Algorithm()), "RSA for RS256, or ECDSA")
		case signs && verifies:
			return nil, nil, checkSignerKeys.Refuse("kid "+refusal.Quote(k.KeyID())+" published and in VerifyOnly", "one of them")
		case signs:
			published = append(published, k)
		default:
			verifyOnly = append(verifyOnly, k)
		}
	}
	return published, verifyOnly, nil
}

// changed returns when the keys last changed: now, if they differ from last time. Their order
// does not count.
func (s *Service) changed(keys []Key, now time.Time) time.Time {
	keys = slices.SortedFunc(slices.Values(keys), func(a, b Key) int {
		return cmp.Or(cmp.Compare(a.KeyID, b.KeyID), bytes.Compare(a.Key, b.Key))
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.since.IsZero() || !reflect.DeepEqual(s.known, keys) {
		s.known, s.since = keys, now
	}
	return s.since
}

// Metadata returns the maximum lifetime.
func (s *Service) Metadata(context.Context) (*Metadata, error) {
	if err := s.ready(); err != nil {
		return nil, err
	}
	return &Metadata{MaxTokenExpirationSeconds: int64(s.config.MaxLifetime / time.Second)}, nil
}
