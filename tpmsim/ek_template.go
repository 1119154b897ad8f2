package tpmsim

import (
	"fmt"

	"github.com/google/go-tpm/tpm2"
)

// ekPlace is where an EK of one algorithm goes.
type ekPlace struct {
	index  tpm2.TPMHandle // of its certificate
	handle tpm2.TPMHandle // where it is made persistent
}

// ekPlaces has every algorithm of which there are EKs.
var ekPlaces = map[Algorithm]ekPlace{
	RSA2048: {EKCertificateIndexRSA2048, EKHandleRSA2048},
	P256:    {EKCertificateIndexP256, EKHandleP256},
	P384:    {EKCertificateIndexP384, EKHandleP384},
	RSA3072: {EKCertificateIndexRSA3072, EKHandleRSA3072},
}

// The policies of EKs (TCG EK Credential Profile 2.6, annex B.6). A, that of the low
// range, is the digest of TPM2_PolicySecret(TPM_RH_ENDORSEMENT). B, that of the high
// range, is TPM2_PolicyOR of A and a policy in NV, here over SHA-384.
const (
	ekPolicyA = "\x83\x71\x97\x67\x44\x84\xb3\xf8\x1a\x90\xcc\x8d\x46\xa5\xd7\x24" +
		"\xfd\x52\xd7\x6e\x06\x52\x0b\x64\xf2\xa1\xda\x1b\x33\x14\x69\xaa"
	ekPolicyB384 = "\xb2\x6e\x7d\x28\xd1\x1a\x50\xbc\x53\xd8\x82\xbc\xf5\xfd\x3a\x1a" +
		"\x07\x41\x48\xbb\x35\xd3\xb4\xe4\xcb\x1c\x0a\xd9\xbd\xe4\x19\xca" +
		"\xcb\x47\xba\x09\x69\x96\x46\x15\x0f\x9f\xc0\x00\xf3\xf8\x0e\x12"
)

// ekTemplate returns template L-1 (RSA2048) or L-2 (P256), with attributes 0x300b2,
// AES-128-CFB and a unique field of zeros, or H-3 (P384) or H-6 (RSA3072), with
// 0x300f2, SHA-384, AES-256-CFB and an empty one (annex B.3 and B.4).
func ekTemplate(a Algorithm) (*tpm2.TPMTPublic, error) {
	high := a == P384 || a == RSA3072
	t := &tpm2.TPMTPublic{
		NameAlg: tpm2.TPMAlgSHA256,
		ObjectAttributes: tpm2.TPMAObject{
			FixedTPM:            true,
			FixedParent:         true,
			SensitiveDataOrigin: true,
			UserWithAuth:        high,
			AdminWithPolicy:     true,
			Restricted:          true,
			Decrypt:             true,
		},
		AuthPolicy: tpm2.TPM2BDigest{Buffer: []byte(ekPolicyA)},
	}
	aesBits := tpm2.TPMKeyBits(128)
	if high {
		t.NameAlg, t.AuthPolicy.Buffer, aesBits = tpm2.TPMAlgSHA384, []byte(ekPolicyB384), 256
	}
	aes := tpm2.TPMTSymDefObject{
		Algorithm: tpm2.TPMAlgAES,
		KeyBits:   tpm2.NewTPMUSymKeyBits(tpm2.TPMAlgAES, aesBits),
		Mode:      tpm2.NewTPMUSymMode(tpm2.TPMAlgAES, tpm2.TPMAlgCFB),
	}
	rsa := func(bits tpm2.TPMKeyBits) {
		t.Type = tpm2.TPMAlgRSA
		t.Parameters = tpm2.NewTPMUPublicParms(tpm2.TPMAlgRSA, &tpm2.TPMSRSAParms{Symmetric: aes, KeyBits: bits})
		t.Unique = tpm2.NewTPMUPublicID(tpm2.TPMAlgRSA, &tpm2.TPM2BPublicKeyRSA{})
	}
	ecc := func(curve tpm2.TPMECCCurve) {
		t.Type = tpm2.TPMAlgECC
		t.Parameters = tpm2.NewTPMUPublicParms(tpm2.TPMAlgECC, &tpm2.TPMSECCParms{Symmetric: aes, CurveID: curve})
		t.Unique = tpm2.NewTPMUPublicID(tpm2.TPMAlgECC, &tpm2.TPMSECCPoint{})
	}
	switch a {
	case RSA2048:
		rsa(2048)
	case RSA3072:
		rsa(3072)
	case P256:
		ecc(tpm2.TPMECCNistP256)
	case P384:
		ecc(tpm2.TPMECCNistP384)
	default:
		return nil, fmt.Errorf("%w: no EK of algorithm %v", ErrOptions, a)
	}
	if high {
		return t, nil
	}
	return withUnique(t, nil)
}
