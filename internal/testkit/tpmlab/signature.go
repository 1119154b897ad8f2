package tpmlab

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/rsa"
	"testing"
)

// CheckSignature has a key sign a digest, verifies the signature with Go's cryptography, and
// demands that it does not verify for another digest.
func CheckSignature(t testing.TB, k crypto.Signer, opts crypto.SignerOpts) {
	t.Helper()
	hash := opts.HashFunc().New()
	hash.Write([]byte("message"))
	digest := hash.Sum(nil)
	sig, err := k.Sign(nil, digest, opts)
	if err != nil {
		t.Errorf("%v with %v: %v", k, opts, err)
		return
	}
	if !verifies(k.Public(), digest, sig, opts) {
		t.Errorf("%v with %v: the signature does not verify", k, opts)
	}
	digest[0] ^= 1
	if verifies(k.Public(), digest, sig, opts) {
		t.Errorf("%v with %v: the signature verifies for another digest", k, opts)
	}
}

func verifies(key crypto.PublicKey, digest, signature []byte, opts crypto.SignerOpts) bool {
	switch key := key.(type) {
	case *ecdsa.PublicKey:
		return ecdsa.VerifyASN1(key, digest, signature)
	case *rsa.PublicKey:
		if _, ok := opts.(*rsa.PSSOptions); ok {
			return rsa.VerifyPSS(key, opts.HashFunc(), digest, signature, &rsa.PSSOptions{SaltLength: rsa.PSSSaltLengthEqualsHash}) == nil
		}
		return rsa.VerifyPKCS1v15(key, opts.HashFunc(), digest, signature) == nil
	}
	return false
}
