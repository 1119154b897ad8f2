package tpm

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rsa"
	"fmt"
	"io"
	"strconv"

	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/attest"
)

// CheckEKType: the EK is of a kind for which no credential is made. RSA-2048,
// RSA-3072 (with the exponent 65537), P-256 and P-384 are possible.
const CheckEKType Check = "ek-type"

// ekParameters are what a credential for an EK is made with: the hash of all its
// derivations and the size of its AES key.
type ekParameters struct {
	hash    tpm2.TPMIAlgHash
	aesBits tpm2.TPMKeyBits
}

// ekParametersOf is the table of the TCG EK Credential Profile 2.6, B.3 and B.4, by
// the EK's kind and nothing else: whatever a node says of its EK's name algorithm
// or of its cipher, its credential is made with these. The EKs of the low and of the
// high range have the same.
func ekParametersOf(ek crypto.PublicKey) (ekParameters, error) {
	switch k := ek.(type) {
	case *rsa.PublicKey:
		if k == nil || k.N == nil {
			break
		}
		if k.E != defaultRSAExponent {
			return ekParameters{}, &Error{Check: CheckEKType, Got: "an RSA EK with the exponent " + strconv.Itoa(k.E), Want: "65537"}
		}
		switch k.N.BitLen() {
		case 2048:
			return ekParameters{tpm2.TPMAlgSHA256, 128}, nil
		case 3072:
			return ekParameters{tpm2.TPMAlgSHA384, 256}, nil
		}
		return ekParameters{}, &Error{Check: CheckEKType, Got: "an RSA EK of " + strconv.Itoa(k.N.BitLen()) + " bits", Want: "2048 or 3072"}
	case *ecdsa.PublicKey:
		if k == nil || k.Curve == nil {
			break
		}
		switch k.Curve {
		case elliptic.P256():
			return ekParameters{tpm2.TPMAlgSHA256, 128}, nil
		case elliptic.P384():
			return ekParameters{tpm2.TPMAlgSHA384, 256}, nil
		}
		return ekParameters{}, &Error{Check: CheckEKType, Got: "an EK on " + k.Curve.Params().Name, Want: "P-256 or P-384"}
	}
	return ekParameters{}, &Error{Check: CheckEKType, Got: "an EK of another kind", Want: "RSA-2048, RSA-3072, P-256 or P-384"}
}

// makeCredential is TPM2_MakeCredential in software (TPM 2.0 Library, Part 1, 24):
// secret can be had only by the TPM that holds ek and an object with the Name
// akName. The seed and, for an EC key, the ephemeral key come from random.
func makeCredential(random io.Reader, ek crypto.PublicKey, akName, secret []byte) (*attest.Credential, error) {
	area, err := ekArea(ek)
	if err != nil {
		return nil, err
	}
	key, err := tpm2.ImportEncapsulationKey(area)
	if err != nil {
		return nil, fmt.Errorf("attest: credential: %w", err)
	}
	c := &attest.Credential{}
	if c.IDObject, c.EncryptedSecret, err = tpm2.CreateCredential(random, key, akName, secret); err != nil {
		return nil, fmt.Errorf("attest: credential: %w", err)
	}
	return c, nil
}

// ekArea is the public area that the protection of a credential is computed with:
// of the EK's own it has what counts there, and that comes from the table.
func ekArea(ek crypto.PublicKey) (*tpm2.TPMTPublic, error) {
	p, err := ekParametersOf(ek)
	if err != nil {
		return nil, err
	}
	area := &tpm2.TPMTPublic{NameAlg: p.hash}
	switch k := ek.(type) {
	case *rsa.PublicKey:
		area.Type = tpm2.TPMAlgRSA
		area.Parameters = tpm2.NewTPMUPublicParms(tpm2.TPMAlgRSA, &tpm2.TPMSRSAParms{
			Symmetric: ekCipher(p.aesBits), KeyBits: tpm2.TPMKeyBits(k.N.BitLen()),
		})
		area.Unique = tpm2.NewTPMUPublicID(tpm2.TPMAlgRSA, &tpm2.TPM2BPublicKeyRSA{Buffer: k.N.Bytes()})
	case *ecdsa.PublicKey:
		c, _ := curveOfKey(k)
		point, err := k.Bytes()
		if err != nil {
			return nil, &Error{Check: CheckPoint, Got: "an EK that is not on " + k.Params().Name, Err: err}
		}
		curveID := tpm2.TPMECCNistP256
		if c.width == 48 {
			curveID = tpm2.TPMECCNistP384
		}
		area.Type = tpm2.TPMAlgECC
		area.Parameters = tpm2.NewTPMUPublicParms(tpm2.TPMAlgECC, &tpm2.TPMSECCParms{Symmetric: ekCipher(p.aesBits), CurveID: curveID})
		area.Unique = tpm2.NewTPMUPublicID(tpm2.TPMAlgECC, &tpm2.TPMSECCPoint{
			X: tpm2.TPM2BECCParameter{Buffer: point[1 : 1+c.width]},
			Y: tpm2.TPM2BECCParameter{Buffer: point[1+c.width:]},
		})
	}
	return area, nil
}

// ekCipher is AES in CFB mode, which every EK template has.
func ekCipher(bits tpm2.TPMKeyBits) tpm2.TPMTSymDefObject {
	return tpm2.TPMTSymDefObject{
		Algorithm: tpm2.TPMAlgAES,
		KeyBits:   tpm2.NewTPMUSymKeyBits(tpm2.TPMAlgAES, bits),
		Mode:      tpm2.NewTPMUSymMode(tpm2.TPMAlgAES, tpm2.TPMAlgCFB),
	}
}
