package tpm

import (
	"crypto/x509"

	"github.com/nodeattest/nodeattest/attest/tpm/tpmcert"
)

// TrustAKs makes the kind for machines whose attestation keys one issuer has certified, on the road
// [attest.RoadAK] alone. It trusts every AK certificate that chains to one of the roots (at least
// one) and has the form that the profile describes, such as tpmcert.ProfileTCG() for a CA of one's
// own or tpmcert.ProfileGoogle(): that the key is restricted, and lives in a TPM, is then the
// issuer's word. Which of these machines may join is for the Authorizer to say. For several
// issuers, further roads or a quote policy there is [NewKind]; the errors are the same.
func TrustAKs(roots []*x509.Certificate, profile tpmcert.Profile) (*Kind, error) {
	return NewKind(KindConfig{AKIssuers: []tpmcert.Issuer{{Roots: roots, Profile: profile}}})
}

// TrustEKs makes the kind for machines whose TPMs' vendors have certified their endorsement keys,
// on the road [attest.RoadEK] alone. It trusts every EK certificate that chains to one of the roots
// (at least one) and satisfies tpmcert.EKProfileTCG(), without tolerances, revocation lists or
// denied TPMs. A vendor's root admits every TPM that the vendor has made, an attacker's too: which
// of them may join is for the Authorizer to say. For anything else there is tpmcert.NewEKVerifier
// with [NewKind]; the errors are the same.
//
// The node's prover then has [ProverOptions].EK, such as [EKRSA2048], and an AK from a
// template, such as [AKTemplateECDSAP256]. In a list its machine is "ek:sha256:" and the SHA-256
// of the EK's SubjectPublicKeyInfo.
func TrustEKs(roots []*x509.Certificate) (*Kind, error) {
	eks, err := tpmcert.NewEKVerifier(tpmcert.EKVerifierConfig{
		Issuers: []tpmcert.EKIssuer{{Roots: roots, Profile: tpmcert.EKProfileTCG()}},
	})
	if err != nil {
		return nil, err
	}
	return NewKind(KindConfig{EKs: eks})
}
