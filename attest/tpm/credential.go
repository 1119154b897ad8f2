package tpm

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/rsa"
	"fmt"
	"io"

	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/tpm/statement"
	"github.com/nodeattest/nodeattest/internal/tpmop"
	"github.com/nodeattest/nodeattest/internal/tpmwire"
)

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
		return nil, fmt.Errorf("credential: %w", err)
	}
	c := &attest.Credential{}
	if c.IDObject, c.EncryptedSecret, err = tpm2.CreateCredential(random, key, akName, secret); err != nil {
		return nil, fmt.Errorf("credential: %w", err)
	}
	return c, nil
}

// ekArea is the public area that the protection of a credential is computed with:
// of the EK's own it has what counts there, and that comes from the table.
func ekArea(ek crypto.PublicKey) (*tpm2.TPMTPublic, error) {
	if _, err := tpmop.EKParametersOf(ek); err != nil {
		return nil, err
	}
	if k, ok := ek.(*rsa.PublicKey); ok {
		area := tpmop.EKTemplateRSA(k.N.BitLen(), tpmop.EKLow)
		area.Unique = tpm2.NewTPMUPublicID(tpm2.TPMAlgRSA, &tpm2.TPM2BPublicKeyRSA{Buffer: k.N.Bytes()})
		return area, nil
	}
	k := ek.(*ecdsa.PublicKey) // the table has no others
	point, err := k.Bytes()
	if err != nil {
		return nil, &Error{Check: statement.CheckPoint, Got: "an EK that is not on " + k.Params().Name, Err: err}
	}
	c, _ := tpmwire.CurveOfKey(k)
	area := tpmop.EKTemplateECC(c.ID, tpmop.EKLow)
	area.Unique = tpm2.NewTPMUPublicID(tpm2.TPMAlgECC, &tpm2.TPMSECCPoint{
		X: tpm2.TPM2BECCParameter{Buffer: point[1 : 1+c.Width]},
		Y: tpm2.TPM2BECCParameter{Buffer: point[1+c.Width:]},
	})
	return area, nil
}
