package extsigner

import (
	"encoding/base64"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/nodeattest/nodeattest/jws"
	"github.com/nodeattest/nodeattest/refusal"
)

// The checks on an external signer's requests and answers.
const (
	// CheckSignerClaims: the payload to be signed is not a claim set of the issuer, or has
	// a longer lifetime than the signer allows.
	CheckSignerClaims refusal.Check = "signer-claims"
	// checkSignerHeader: the header of a signature is not exactly alg, kid and typ, or
	// one of them has a value that is not allowed.
	checkSignerHeader refusal.Check = "signer-header"
	// checkSignerKey: the key of a signature is not published, or is excluded from
	// discovery.
	checkSignerKey refusal.Check = "signer-key"
	// checkSignerSignature: a signature is malformed or does not verify.
	checkSignerSignature refusal.Check = "signer-signature"
	// checkSignerKeys: there are no published keys, too many, or ones that kube-apiserver does
	// not take, or no time at which they were read.
	checkSignerKeys refusal.Check = "signer-keys"
)

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

// Metadata is the answer to Metadata.
type Metadata struct {
	// MaxTokenExpirationSeconds is the maximum lifetime of a token that the signer signs,
	// at least 600.
	MaxTokenExpirationSeconds int64
}

const (
	// maxSegmentSize is the maximum size of a segment of a token in bytes.
	maxSegmentSize = 48 << 10

	// maxLifetime is the longest lifetime of a token, as for a TokenRequest
	// (pkg/apis/authentication/validation in k8s.io/kubernetes).
	maxLifetime = (1 << 32) * time.Second
)

// algorithms are the ones that kube-apiserver accepts from an external signer.
var algorithms = []jws.Algorithm{jws.RS256, jws.ES256, jws.ES384, jws.ES512}

// checkSignature makes the checks of kube-apiserver 1.36 on an answer to Sign
// (pkg/serviceaccount/externaljwt/plugin/plugin.go in k8s.io/kubernetes): a header with
// alg, kid and typ and nothing else, typ "JWT", an alg among RS256, ES256, ES384 and
// ES512, a kid of 1 to 1024 bytes of a key that is not excluded from discovery, and a
// signature. In addition it accepts only names in lower case (an "ALG" next to an "alg" is
// refused), canonical base64url and published keys, and it verifies the signature over the
// claims; an ECDSA signature must have the curve's fixed width. The errors are
// "signer-header", "signer-key" and "signer-signature".
func (s *Service) checkSignature(signed *jws.Signature, segment string, published []*jws.Key) error {
	header, err := readHeader(signed.Header)
	if err != nil {
		return err
	}
	algorithm, keyID := header.Algorithm(), header.KeyID()
	if slices.ContainsFunc(s.config.VerifyOnly, func(k *jws.Key) bool { return k.KeyID() == keyID }) {
		return checkSignerKey.Refuse("kid "+strconv.Quote(keyID)+", which is excluded from discovery", "a key that signs")
	}
	i := slices.IndexFunc(published, func(k *jws.Key) bool { return k.KeyID() == keyID && k.Algorithm() == algorithm })
	if i < 0 {
		return checkSignerKey.Refuse("kid "+strconv.Quote(keyID)+" for "+string(algorithm), "a published key")
	}
	token, err := jws.Parse(signed.Header + "." + segment + "." + signed.Value)
	if err == nil {
		err = published[i].Verify(token)
	}
	if err != nil {
		return &refusal.Error{Check: checkSignerSignature, Err: err}
	}
	return nil
}

// readHeader reads the header of an external signer's token.
func readHeader(segment string) (*jws.Token, error) {
	header, err := jws.Parse(segment + "..") // a token of nothing, without a signature
	if err != nil {
		return nil, &refusal.Error{Check: checkSignerHeader, Err: err}
	}
	text, _ := base64.RawURLEncoding.DecodeString(segment) // as Parse has
	var members map[string]json.RawMessage
	_ = json.Unmarshal(text, &members)
	switch alg, kid := header.Algorithm(), header.KeyID(); {
	case kid == "" || len(members) != 3:
		err = checkSignerHeader.Refuse("the members "+refusal.Quotes(slices.Sorted(maps.Keys(members))), "alg, kid and typ")
	case header.Type() != jws.TypeJWT:
		err = checkSignerHeader.Refuse("typ "+refusal.Quote(header.Type()), `"JWT"`)
	case !slices.Contains(algorithms, alg):
		err = checkSignerHeader.Refuse("alg "+string(alg), "RS256, ES256, ES384 or ES512")
	}
	return header, err
}
