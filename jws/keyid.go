package jws

import (
	"crypto"
	"crypto/sha256"
	"crypto/x509"
	"fmt"
)

// KeyID derives a key ID as Kubernetes does for its service-account keys: base64url of
// the SHA-256 digest of the key's PKIX form in DER (k8s.io/kubernetes,
// pkg/serviceaccount/jwt.go, keyIDFromPublicKey), 43 characters.
//
// The key is an *rsa.PublicKey, *ecdsa.PublicKey or ed25519.PublicKey; others are
// refused with [CheckKeyType]. A key of which a part is nil is refused with [CheckKey];
// how strong it is does not matter here.
func KeyID(public crypto.PublicKey) (string, error) {
	if !whole(public) {
		return "", &Error{Check: CheckKey, Got: "a key that is nil, or a part of it", Want: "a whole key"}
	}
	der, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		return "", &Error{Check: CheckKeyType, Got: fmt.Sprintf("%T", public), Want: "an RSA, ECDSA or Ed25519 public key", Err: err}
	}
	digest := sha256.Sum256(der)
	return encoding.EncodeToString(digest[:]), nil
}
