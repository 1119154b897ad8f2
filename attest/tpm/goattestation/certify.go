package goattestation

import (
	"bytes"
	"fmt"

	goattest "github.com/google/go-attestation/attest"
	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/attest/tpm/statement"
)

// CertifyEvidence returns the statement of TPM2_Certify in p, for [statement.VerifyCertify]. Its
// qualifying data is empty if AK.Certify made it, and KeyConfig.QualifyingData if TPM.NewKey did.
// CreateData, which the statement does not cover, is left out.
//
// A refusal is a [*refusal.Error] with a check of [statement.ParseAttestation] ("attest-type" for
// an AK's AttestationParameters, whose statement is of TPM2_CertifyCreation),
// [statement.ParseSignature] ("signature-scheme" for the HMAC of
// AK.CertifyWithDecryptionEk) or [statement.ParsePublic].
func CertifyEvidence(p goattest.CertificationParameters) (*statement.CertifyEvidence, error) {
	e := &statement.CertifyEvidence{Public: bytes.Clone(p.Public),
		Attest: bytes.Clone(p.CreateAttestation), Signature: bytes.Clone(p.CreateSignature)}
	if err := checkCertify(e); err != nil {
		return nil, fmt.Errorf("goattestation: CertificationParameters: %w", err)
	}
	return e, nil
}

// CertificationParameters returns e in go-attestation's form, without CreateData; its Verify does
// not look at the qualifying data. It takes a bare signature too, and refuses RSAPSS, which
// go-attestation cannot verify, with the check "go-attestation-value". It refuses the rest as
// [CertifyEvidence] does.
func CertificationParameters(e *statement.CertifyEvidence) (goattest.CertificationParameters, error) {
	if e == nil {
		e = &statement.CertifyEvidence{}
	}
	signature, err := signatureThere(e.Signature, e.RawSignature)
	if err == nil {
		err = checkCertify(&statement.CertifyEvidence{Attest: e.Attest, Signature: signature, Public: e.Public})
	}
	if err != nil {
		return goattest.CertificationParameters{}, fmt.Errorf("goattestation: statement of TPM2_Certify: %w", err)
	}
	return goattest.CertificationParameters{Public: bytes.Clone(e.Public),
		CreateAttestation: bytes.Clone(e.Attest), CreateSignature: signature}, nil
}

// checkCertify parses the three parts.
func checkCertify(e *statement.CertifyEvidence) error {
	if _, err := attestation(e.Attest, tpm2.TPMSTAttestCertify, "TPM2_Certify"); err != nil {
		return err
	}
	if _, err := statement.ParseSignature(e.Signature); err != nil {
		return err
	}
	_, err := statement.ParsePublic(e.Public)
	return err
}

// attestation parses a statement of one type, of the command that makes it.
func attestation(b []byte, want tpm2.TPMST, command string) (*statement.Attestation, error) {
	a, err := statement.ParseAttestation(b)
	if err != nil {
		return nil, err
	}
	if a.Type != want {
		return nil, checkValue.Refuse(fmt.Sprintf("a statement of the type 0x%04x", uint16(a.Type)),
			fmt.Sprintf("0x%04x, of %s", uint16(want), command))
	}
	return a, nil
}

// signatureThere is the TPMT_SIGNATURE of a signature that go-attestation can verify.
func signatureThere(b []byte, raw *statement.KeyScheme) ([]byte, error) {
	signature, err := (*statement.Signature)(nil), error(nil)
	if raw == nil {
		signature, err = statement.ParseSignature(b)
	} else {
		signature, err = statement.ParseRawSignature(b, *raw)
	}
	if err != nil {
		return nil, err
	}
	if signature.Alg == tpm2.TPMAlgRSAPSS {
		return nil, checkValue.Refuse("a signature with RSAPSS", "RSASSA or ECDSA: go-attestation verifies no other")
	}
	return signature.Marshal()
}
