package tpmlab

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/rsa"
	"errors"
	"fmt"
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
	if err := verify(k.Public(), digest, sig, opts); err != nil {
		t.Errorf("%v with %v: %v", k, opts, err)
	}
	digest[0] ^= 1
	if verify(k.Public(), digest, sig, opts) == nil {
		t.Errorf("%v with %v: the signature verifies for another digest", k, opts)
	}
}

func verify(key crypto.PublicKey, digest, signature []byte, opts crypto.SignerOpts) error {
	switch key := key.(type) {
	case *ecdsa.PublicKey:
		if !ecdsa.VerifyASN1(key, digest, signature) {
			return errors.New("ECDSA verification failed")
		}
		return nil
	case *rsa.PublicKey:
		if _, ok := opts.(*rsa.PSSOptions); ok {
			return rsa.VerifyPSS(key, opts.HashFunc(), digest, signature, &rsa.PSSOptions{SaltLength: rsa.PSSSaltLengthEqualsHash})
		}
		return rsa.VerifyPKCS1v15(key, opts.HashFunc(), digest, signature)
	}
	return fmt.Errorf("key is a %T", key)
}
