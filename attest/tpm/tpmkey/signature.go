package tpmkey

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/rsa"
	"errors"
	"fmt"

	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/attest/tpm/statement"
)

// signScheme turns the options of crypto.Signer into a scheme for TPM2_Sign, and refuses options
// that a TPM would silently change.
func (k *Key) signScheme(digest []byte, opts crypto.SignerOpts) (tpm2.TPMTSigScheme, error) {
	if opts == nil {
		return tpm2.TPMTSigScheme{}, errors.New("no signer options: the hash is not known")
	}
	hash, ok := hashes[opts.HashFunc()]
	if !ok {
		return tpm2.TPMTSigScheme{}, fmt.Errorf("hash: got %v, want SHA-256, SHA-384 or SHA-512: a TPM signs digests only", opts.HashFunc())
	}
	if want := opts.HashFunc().Size(); len(digest) != want {
		return tpm2.TPMTSigScheme{}, fmt.Errorf("digest of %d bytes for %v, want %d", len(digest), opts.HashFunc(), want)
	}
	pss, isPSS := opts.(*rsa.PSSOptions)
	scheme := tpm2.TPMAlgRSASSA
	switch _, isECDSA := k.key.(*ecdsa.PublicKey); {
	case isECDSA && isPSS:
		return tpm2.TPMTSigScheme{}, errors.New("PSS options for an ECDSA key")
	case isECDSA:
		scheme = tpm2.TPMAlgECDSA
	case isPSS:
		scheme = tpm2.TPMAlgRSAPSS
		if pss.SaltLength != rsa.PSSSaltLengthEqualsHash && pss.SaltLength != len(digest) {
			return tpm2.TPMTSigScheme{}, fmt.Errorf("PSS salt length: got %d, want %d, the hash's", pss.SaltLength, len(digest))
		}
	}
	return tpm2.TPMTSigScheme{
		Scheme:  scheme,
		Details: tpm2.NewTPMUSigScheme(scheme, &tpm2.TPMSSchemeHash{HashAlg: hash}),
	}, nil
}

// hashes leaves SHA-1 out: nothing that this package's keys are for accepts it.
var hashes = map[crypto.Hash]tpm2.TPMIAlgHash{
	crypto.SHA256: tpm2.TPMAlgSHA256, crypto.SHA384: tpm2.TPMAlgSHA384, crypto.SHA512: tpm2.TPMAlgSHA512,
}

// signatureBytes converts a TPMT_SIGNATURE to the form that crypto.Signer promises.
func signatureBytes(s *tpm2.TPMTSignature) ([]byte, error) {
	v, err := statement.ParseSignature(tpm2.Marshal(s))
	if err != nil {
		return nil, err
	}
	if v.Alg == tpm2.TPMAlgECDSA {
		return v.MarshalECDSA()
	}
	return v.RSA, nil
}

// verifyOwn checks a signature that the TPM made.
func verifyOwn(key crypto.PublicKey, digest, signature []byte, opts crypto.SignerOpts) error {
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
