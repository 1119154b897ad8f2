package statement

import (
	"cmp"

	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/internal/tpmwire"
	"github.com/nodeattest/nodeattest/refusal"
)

// Checks of the attestation key that signs a statement.
const (
	// CheckAKMismatch: the attestation key's public area does not hold the same key as its
	// certificate.
	CheckAKMismatch refusal.Check = "ak-mismatch"
	// checkAKAttributes: the attestation key is not a restricted signing key that lives in a TPM,
	// by its attributes.
	checkAKAttributes refusal.Check = "ak-attributes"
	// checkAKScheme: the attestation key has no signing scheme of its own, or one
	// that is not accepted.
	checkAKScheme refusal.Check = "ak-scheme"
)

// Required and refused attributes of an attestation key. Restricted: it signs only structures made
// by the TPM. The rest: the TPM made the key and it cannot leave. A key that also decrypts could be
// made to act as a storage key, and one with x509sign signs certificates. No TPM has a key with
// fixedTPM and encryptedDuplication (Part 2, 8.3.3).
const (
	akAttributesSet = AttributeFixedTPM | AttributeFixedParent | AttributeSensitiveDataOrigin |
		AttributeRestricted | AttributeSign
	akAttributesClear = AttributeDecrypt | AttributeX509Sign | AttributeEncryptedDuplication
)

// checkAK checks the attestation key: always its strength, and the rest if its public area is
// known.
func (in *CertifyInput) checkAK() error {
	if err := CheckKeyStrength(in.AKKey); err != nil {
		return err
	}
	if in.AK == nil {
		return nil
	}
	if !in.AK.SameKey(in.AKKey) {
		return CheckAKMismatch.Refuse("another key in the attestation key's public area", "the attestation key")
	}
	return in.checkAKArea()
}

// CheckAKPublic checks the name algorithm, strength, attributes and scheme of an attestation
// key's public area. On road A these are claims, and only checked for consistency; on road B
// the credential proves them.
func CheckAKPublic(ak *Public) error {
	return (&CertifyInput{AK: cmp.Or(ak, new(Public))}).checkAKArea()
}

func (in *CertifyInput) checkAKArea() error {
	ak := in.AK
	if err := cmp.Or(in.checkNameAlgorithm("attestation key", ak.NameAlg), ak.checkStrength()); err != nil {
		return err
	}
	switch a := ak.Attributes; {
	case !a.Has(akAttributesSet):
		return checkAKAttributes.Refuse(a.String(), akAttributesSet.String()+" set")
	case a.HasAny(akAttributesClear):
		return checkAKAttributes.Refuse(a.String(), akAttributesClear.String()+" clear")
	case !signingScheme(ak.Scheme.Alg) || (ak.Type == tpm2.TPMAlgECC) != (ak.Scheme.Alg == tpm2.TPMAlgECDSA):
		return checkAKScheme.Refuse(ak.Scheme.String(), "RSASSA or RSAPSS for RSA, ECDSA for ECC")
	case ak.Symmetric.Alg != tpm2.TPMAlgNull:
		return checkAKScheme.Refuse("symmetric scheme "+tpmwire.AlgorithmName(ak.Symmetric.Alg), "NULL")
	}
	return nil
}
