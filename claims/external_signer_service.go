package claims

import (
	"context"
	"crypto/x509"
	"strconv"
	"time"

	"github.com/nodeattest/nodeattest/jws"
	"github.com/nodeattest/nodeattest/refusal"
)

// SignerServiceConfig is what a SignerService needs.
type SignerServiceConfig struct {
	// Issuer is the "iss" that the service signs for. It is required: a key that signs
	// whatever it is given signs for others too.
	Issuer string
	// Signer signs. Its tokens have the type "JWT" in their header. It is required.
	Signer jws.Signer
	// Keys are the keys with which the tokens of Signer verify, each published before
	// it signs; a [jws.RotatingSigner] is both. It is required.
	Keys jws.KeySet
	// VerifyOnly are keys that sign no more, and that stand in no discovery document.
	VerifyOnly []*jws.Key
	// RefreshHint is how long a client may keep the keys, at least a second, cut to
	// whole seconds. It is required, and must not be longer than the time for which
	// Keys publishes a new key before it signs.
	RefreshHint time.Duration
	// MaxTokenLifetime is the longest lifetime that is signed, 600 to 2^32 seconds, cut
	// to whole seconds. It is required.
	MaxTokenLifetime time.Duration
	// Now is the clock; nil for time.Now.
	Now func() time.Time
}

// SignerService is the serving side of an external signer: the [ExternalSigner] that
// signs with a jws.Signer. It signs nothing but the claims of bound tokens of its issuer,
// and gives no answer that kube-apiserver or [ExternalSignature.Check] would refuse.
type SignerService struct {
	config SignerServiceConfig
}

// NewSignerService checks a configuration. The error is [CheckConfig].
func NewSignerService(config SignerServiceConfig) (*SignerService, error) {
	switch {
	case config.Issuer == "":
		return nil, configError("no issuer", "the issuer's URL")
	case config.Signer == nil:
		return nil, configError("no signer", "a jws.Signer")
	case config.Keys == nil:
		return nil, configError("no key set", "a jws.KeySet")
	case config.RefreshHint < time.Second:
		return nil, configError("a refresh hint of "+config.RefreshHint.String(), "at least 1s")
	case config.MaxTokenLifetime < MinExpirationSeconds*time.Second || config.MaxTokenLifetime > MaxExpirationSeconds*time.Second:
		return nil, configError("a maximum lifetime of "+config.MaxTokenLifetime.String(), "600 to 2^32 seconds")
	}
	config.Now = clock(config.Now)
	return &SignerService{config: config}, nil
}

// Sign signs the claims of a bound token: strict claims of the issuer, a subject that is
// that of the private claims, and a lifetime of at most MaxTokenLifetime. Otherwise the
// error is [CheckSignerClaims]. The answer is checked as [ExternalSignature.Check] does,
// with its errors.
func (s *SignerService) Sign(ctx context.Context, claims string) (*ExternalSignature, error) {
	payload, err := decodeSegment(claims)
	if err != nil {
		return nil, signerClaims("", "", err)
	}
	c, err := Parse(payload)
	if err != nil {
		return nil, signerClaims("", "", err)
	}
	if err := s.checkClaims(c); err != nil {
		return nil, err
	}
	signature, err := s.config.Signer.Sign(ctx, payload)
	if err == nil && signature == nil {
		err = errNoSignature
	}
	if err != nil {
		return nil, unlessRefused(err)
	}
	answer, err := s.FetchKeys(ctx)
	if err != nil {
		return nil, err
	}
	keys, err := answer.Check()
	if err != nil {
		return nil, err
	}
	signed := &ExternalSignature{Header: signature.Header, Signature: signature.Value}
	if _, err := signed.Check(claims, keys); err != nil {
		return nil, err
	}
	return signed, nil
}

func signerClaims(got, want string, err error) *Error {
	return &Error{Check: CheckSignerClaims, Got: got, Want: want, Err: err}
}

func (s *SignerService) checkClaims(c *Claims) error {
	k := &c.Kubernetes
	longest := int64(s.config.MaxTokenLifetime / time.Second)
	subject := MakeSubject(k.Namespace, k.ServiceAccount.Name)
	const leeway = 60
	switch {
	case c.Issuer != s.config.Issuer:
		return signerClaims("iss "+strconv.Quote(refusal.Text(c.Issuer)), strconv.Quote(s.config.Issuer), nil)
	case c.Legacy != nil || k.Namespace == "" || k.ServiceAccount.Name == "":
		return signerClaims("no claims of a bound token", "them", nil)
	case c.Subject != subject:
		return signerClaims("sub "+strconv.Quote(refusal.Text(c.Subject)), strconv.Quote(refusal.Text(subject)), nil)
	case !c.Expiry.Present || !c.IssuedAt.Present:
		return signerClaims("a token without exp or iat", "both", nil)
	case c.Expiry.Unix <= c.IssuedAt.Unix || c.Expiry.Unix-c.IssuedAt.Unix > longest:
		return signerClaims("a lifetime of "+strconv.FormatInt(c.Expiry.Unix-c.IssuedAt.Unix, 10)+" s", "1 to "+strconv.FormatInt(longest, 10), nil)
	case c.Expiry.Unix > s.config.Now().Unix()+longest+leeway:
		return signerClaims("exp "+strconv.FormatInt(c.Expiry.Unix, 10), "at most the maximum lifetime from now", nil)
	}
	return nil
}

// FetchKeys returns the published keys, and those that only verify behind them.
func (s *SignerService) FetchKeys(ctx context.Context) (*ExternalKeys, error) {
	source := KeySetSource{Keys: s.config.Keys, VerifyOnly: s.config.VerifyOnly}
	published, _, err := source.PublishedKeys(ctx)
	if err != nil {
		return nil, err
	}
	answer := &ExternalKeys{
		Keys:               make([]ExternalKey, 0, len(published)),
		DataTimestamp:      s.config.Now(),
		RefreshHintSeconds: int64(s.config.RefreshHint / time.Second),
	}
	for _, k := range published {
		if k.Key == nil {
			return nil, signerKeys("a key that is nil", "keys", nil)
		}
		der, err := x509.MarshalPKIXPublicKey(k.Key.Public())
		if err != nil {
			return nil, signerKeys("a key that has no PKIX", "RSA or ECDSA", err)
		}
		answer.Keys = append(answer.Keys, ExternalKey{
			KeyID: k.Key.KeyID(), Key: der, ExcludeFromOIDCDiscovery: k.ExcludeFromOIDCDiscovery,
		})
	}
	if _, err := answer.Check(); err != nil {
		return nil, err
	}
	return answer, nil
}

// Metadata returns the maximum lifetime.
func (s *SignerService) Metadata(context.Context) (*ExternalMetadata, error) {
	return &ExternalMetadata{MaxTokenExpirationSeconds: int64(s.config.MaxTokenLifetime / time.Second)}, nil
}
