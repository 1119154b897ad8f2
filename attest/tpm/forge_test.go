package tpm

import (
	"crypto"
	"crypto/ecdsa"

	"crypto/rsa"

	"errors"
	"fmt"
	"math/big"

	"testing"

	"github.com/google/go-tpm/tpm2"

	"golang.org/x/crypto/cryptobyte"
	"golang.org/x/crypto/cryptobyte/asn1"

	"github.com/nodeattest/nodeattest/attest/tpm/statement"
	"github.com/nodeattest/nodeattest/attest/tpm/tpmkey"
)

// signatureBytes gives a TPMT_SIGNATURE the form that crypto.Signer promises.
func signatureBytes(s *tpm2.TPMTSignature) ([]byte, error) {
	switch s.SigAlg {
	case tpm2.TPMAlgECDSA:
		rs, err := s.Signature.ECDSA()
		if err != nil {
			return nil, err
		}
		var b cryptobyte.Builder
		b.AddASN1(asn1.SEQUENCE, func(b *cryptobyte.Builder) {
			b.AddASN1BigInt(new(big.Int).SetBytes(rs.SignatureR.Buffer))
			b.AddASN1BigInt(new(big.Int).SetBytes(rs.SignatureS.Buffer))
		})
		return b.Bytes()
	case tpm2.TPMAlgRSASSA:
		sig, err := s.Signature.RSASSA()
		if err != nil {
			return nil, err
		}
		return sig.Sig.Buffer, nil
	case tpm2.TPMAlgRSAPSS:
		sig, err := s.Signature.RSAPSS()
		if err != nil {
			return nil, err
		}
		return sig.Sig.Buffer, nil
	}
	return nil, fmt.Errorf("the TPM's signature has the algorithm 0x%04x", uint16(s.SigAlg))
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

var pcr23 = []statement.PCRSelection{{Hash: tpm2.TPMAlgSHA256, Select: []byte{0, 0, 0x80}}}

// throughFile is what brings a key back in another process.
func throughFile(t testing.TB, k *tpmkey.Key) *tpmkey.File {
	t.Helper()
	b, err := k.File().Marshal()
	if err != nil {
		t.Fatal(err)
	}
	file, err := tpmkey.ParseFile(b)
	if err != nil {
		t.Fatal(err)
	}
	return file
}
