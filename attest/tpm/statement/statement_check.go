package statement

import (
	"bytes"
	"cmp"
	"crypto"
	"crypto/subtle"
	"encoding/binary"

	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/internal/message"
	"github.com/nodeattest/nodeattest/internal/tpmwire"
	"github.com/nodeattest/nodeattest/refusal"
)

// Checks of a certify statement after parsing.
const (
	// checkQualifiedSigner: the statement's qualifiedSigner is not a Qualified Name that the
	// attestation key can have.
	checkQualifiedSigner refusal.Check = "qualified-signer"
	// checkCertifiedName: the certified Name is not the Name of the given public area.
	checkCertifiedName refusal.Check = "certified-name"
	// checkQualifiedName: the certified Qualified Name is not one that the certified key can
	// have.
	checkQualifiedName refusal.Check = "certified-qualified-name"
	// checkAKIsCertifiedKey: the certified key is the attestation key itself.
	checkAKIsCertifiedKey refusal.Check = "ak-is-certified-key"
	// checkKeyAttributes: the certified key's attributes do not fit this use, or contradict each
	// other.
	checkKeyAttributes refusal.Check = "key-attributes"
	// checkResidencyClaim: the certified key was loaded from outside, yet claims attributes
	// that a TPM never gives to such a key. No TPM made this statement.
	checkResidencyClaim refusal.Check = "key-residency-claim"
	// checkResidency: the caller requires a key that lives in the TPM, and the statement does
	// not show one.
	checkResidency refusal.Check = "key-residency"
)

// CertifyInput is a certify statement with everything that it is checked against, parsed: a
// verifier that has already parsed the parts fills it in. No check changes it, and none
// allocates if it passes, except for the comparison of an ECC key.
type CertifyInput struct {
	Attest *Attestation
	Sig    *Signature
	Public *Public // the certified key's
	AK     *Public // the attestation key's, nil if only its key is known
	AKName []byte  // the Name of AK; nil if Parse is to compute it
	AKKey  crypto.PublicKey

	// Covers, if not nil, checks the qualifying data in place of Options.QualifyingData, for
	// a verifier that derives it.
	Covers func(data []byte) error
	// Options are the other requirements; their AK is ignored. The zero value is the strictest,
	// except for residence, which must be requested.
	Options CertifyOptions
}

// CheckBeforeSignature runs every check except the signature's verification: no public-key
// operation, cheapest checks first.
func (in *CertifyInput) CheckBeforeSignature() error {
	in = cmp.Or(in, new(CertifyInput))
	if in.Attest == nil || in.Attest.Certified == nil {
		return checkStatementType.Refuse(statementTypeName(cmp.Or(in.Attest, new(Attestation)).Type),
			statementTypeName(tpm2.TPMSTAttestCertify))
	}
	return inOrder(in.checkQualifyingData, in.checkCertifiedKey, in.checkAK, in.checkQualifiedSigner,
		in.checkKeyAttributes, in.checkResidency, in.checkSignatureForm)
}

// checkQualifyingData compares in constant time: on road B the expected value depends on a
// secret. It is a separate check so that a verifier can run it before anything else.
func (in *CertifyInput) checkQualifyingData() error {
	switch {
	case in.Options.InsecureAllowAnyQualifyingData:
		return nil
	case in.Covers != nil:
		return in.Covers(in.Attest.ExtraData)
	case subtle.ConstantTimeCompare(in.Attest.ExtraData, in.Options.QualifyingData) != 1:
		// The expected value is a secret between this statement's maker and the verifier.
		return message.CheckQualifyingData.Refuse(refusal.Hex(in.Attest.ExtraData), "the qualifying data of this challenge")
	}
	return nil
}

// checkCertifiedKey ties the certified Name to the public area, and the public area to the
// expected key.
func (in *CertifyInput) checkCertifiedKey() error {
	if !in.Public.HasName(in.Attest.Certified.Name) {
		return checkCertifiedName.Refuse(refusal.Hex(in.Attest.Certified.Name), refusal.Hex(in.Public.Name()))
	}
	if err := cmp.Or(in.checkNameAlgorithm("certified key", in.Public.NameAlg), in.Public.checkStrength(), in.Public.checkFactors()); err != nil {
		return err
	}
	// If AK is known, checkAK ties it to AKKey.
	if in.AK != nil && in.Public.sameKeyAs(in.AK) || in.AK == nil && in.Public.SameKey(in.AKKey) {
		return checkAKIsCertifiedKey.Refuse("the attestation key", "another key")
	}
	if !in.Options.InsecureAllowAnyKey && in.Public.SameKey(in.Options.Key) {
		return nil // and thus a point on its curve
	}
	// A template, or a point off its curve, is not a key at all: that error takes precedence.
	if _, err := in.Public.Key(); err != nil {
		return err
	}
	if !in.Options.InsecureAllowAnyKey {
		return message.CheckKeyMismatch.Refuse("another key in the certified public area", "the expected key")
	}
	return nil
}

func (in *CertifyInput) checkNameAlgorithm(whose string, alg tpm2.TPMAlgID) error {
	if alg == tpm2.TPMAlgSHA1 && !in.Options.InsecureAllowSHA1Name {
		return checkNameAlgorithm.Refuse("SHA1 for the "+whose, "SHA256, SHA384 or SHA512")
	}
	return nil
}

// checkQualifiedSigner refuses what no signing key of a TPM has as its Qualified Name:
// nothing (the TPM did not sign), a name under an algorithm other than the attestation key's,
// and the bare Name, which belongs to an object that was loaded from outside and cannot be
// restricted.
func (in *CertifyInput) checkQualifiedSigner() error {
	signer := in.Attest.QualifiedSigner
	if !isName(signer) {
		return checkQualifiedSigner.Refuse(refusal.Hex(signer), "a Qualified Name")
	}
	switch alg := tpm2.TPMAlgID(binary.BigEndian.Uint16(signer)); {
	case in.AK == nil:
		return in.checkNameAlgorithm("attestation key", alg)
	case alg != in.AK.NameAlg:
		return checkQualifiedSigner.Refuse(tpmwire.AlgorithmName(alg), tpmwire.AlgorithmName(in.AK.NameAlg))
	case bytes.Equal(signer, in.AKName) || in.AK.hasNameAtOtherWidth(signer):
		return checkQualifiedSigner.Refuse("the Name of a key that was loaded from outside", "the Qualified Name of a restricted key")
	}
	return nil
}

// checkKeyAttributes refuses attributes that TPM2_Create and TPM2_LoadExternal refuse together
// with TPM_RC_ATTRIBUTES for every key (Part 2, 8.3.3), and then requires a key that signs, unless
// told otherwise.
func (in *CertifyInput) checkKeyAttributes() error {
	a := in.Public.Attributes
	switch {
	case a.Has(AttributeFixedTPM) && !a.Has(AttributeFixedParent):
		return checkKeyAttributes.Refuse(a.String(), "fixedParent with fixedTPM")
	case a.Has(AttributeFixedTPM | AttributeEncryptedDuplication):
		return checkKeyAttributes.Refuse(a.String(), "encryptedDuplication clear with fixedTPM")
	case a.Has(AttributeRestricted) && a.Has(AttributeSign) == a.Has(AttributeDecrypt):
		return checkKeyAttributes.Refuse(a.String(), "one of sign and decrypt with restricted")
	case !a.HasAny(AttributeSign | AttributeDecrypt):
		return checkKeyAttributes.Refuse(a.String(), "sign or decrypt")
	case a.Has(AttributeRestricted) && !in.Options.AllowRestrictedKey:
		return checkKeyAttributes.Refuse(a.String(), "restricted clear")
	case a.Has(AttributeX509Sign):
		return checkKeyAttributes.Refuse(a.String(), "x509sign clear")
	case !a.Has(AttributeSign) && !in.Options.AllowDecryptionKey:
		return checkKeyAttributes.Refuse(a.String(), "sign set")
	}
	return nil
}

// checkResidency checks the attributes' claim against the Qualified Name.
func (in *CertifyInput) checkResidency() error {
	name, qualified := in.Attest.Certified.Name, in.Attest.Certified.QualifiedName
	if !isName(qualified) || tpm2.TPMAlgID(binary.BigEndian.Uint16(qualified)) != in.Public.NameAlg {
		return checkQualifiedName.Refuse(refusal.Hex(qualified), "a name under "+tpmwire.AlgorithmName(in.Public.NameAlg))
	}
	a := in.Public.Attributes
	if bytes.Equal(name, qualified) && a.HasAny(AttributeFixedTPM|AttributeFixedParent|AttributeRestricted) {
		return checkResidencyClaim.Refuse(a.String(), "fixedTPM, fixedParent and restricted clear in a key that was loaded from outside")
	}
	if in.Options.RequireTPMResident && !in.TPMResident() {
		return checkResidency.Refuse(a.String()+", Qualified Name "+refusal.Hex(qualified), "fixedTPM, fixedParent and a parent")
	}
	return nil
}

// TPMResident reports whether the certified key cannot leave its TPM. sensitiveDataOrigin is
// not required: it can be set in a software key, and a key that was imported for good is
// resident too. checkResidency has made sure that a key with these attributes has a parent.
func (in *CertifyInput) TPMResident() bool {
	return in != nil && in.Public != nil && in.Public.Attributes.Has(AttributeFixedTPM|AttributeFixedParent)
}

// clockTrusted reports whether the signer is a primary key of the endorsement hierarchy,
// whose statements carry clock and firmware as they are: Part 1, 36.7. It returns false if
// the attestation key's Name is not known.
func (in *CertifyInput) clockTrusted() bool { return in.SignedByPrimary(tpm2.TPMRHEndorsement) }

// SignedByPrimary reports whether the signer is the attestation key as a primary key of the
// given hierarchy.
func (in *CertifyInput) SignedByPrimary(hierarchy tpm2.TPMHandle) bool {
	in = cmp.Or(in, new(CertifyInput))
	qualified := QualifiedNameOfPrimary(hierarchy, in.AKName)
	return len(qualified) != 0 && in.Attest != nil && bytes.Equal(in.Attest.QualifiedSigner, qualified)
}
