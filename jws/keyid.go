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
// refused with [CheckKeyType]. Nothing else about the key is checked.
func KeyID(public crypto.PublicKey) (string, error) {
	der, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		return "", &Error{Check: CheckKeyType, Got: fmt.Sprintf("%T", public), Want: "an RSA, ECDSA or Ed25519 public key", Err: err}
	}
	digest := sha256.Sum256(der)
	return encoding.EncodeToString(digest[:]), nil
}
