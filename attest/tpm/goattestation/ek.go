package goattestation

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rsa"
	"fmt"

	goattest "github.com/google/go-attestation/attest"

	"github.com/nodeattest/nodeattest/attest/tpm/tpmcert"
)

// EKCertificate returns the EK's certificate as tpmcert reads it, whose Identity is the machine in
// lists of members. go-attestation has removed the header and the padding of an NV index, so its
// Encoding names neither. An EK without a certificate has an identity too, by
// [tpmcert.ParseEKPresented] of its key; one with a CertificateURL has the certificate once the
// caller has fetched it.
//
// A refusal is a [*refusal.Error]: the check "go-attestation-value" if there is no certificate, or
// if it is for another key than Public, else a check of [tpmcert.ParseEK].
func EKCertificate(ek goattest.EK) (*tpmcert.EKCertificate, error) {
	if ek.Certificate == nil {
		return nil, fmt.Errorf("goattestation: EK: %w", checkValue.Refuse("an EK without a certificate",
			"one with it; tpmcert.ParseEKPresented takes a bare key"))
	}
	c, err := tpmcert.ParseEK(ek.Certificate.Raw)
	if err != nil {
		return nil, fmt.Errorf("goattestation: EK: %w", err)
	}
	// crypto/x509 does not read a key that is encoded as RSAES-OAEP, and then there is no Public.
	if ek.Public != nil && !sameKey(c.PublicKey, ek.Public) {
		return nil, fmt.Errorf("goattestation: EK: %w", checkValue.Refuse("a certificate for another key than Public", "Public's"))
	}
	return c, nil
}

func sameKey(a, b crypto.PublicKey) bool {
	k, ok := a.(interface{ Equal(crypto.PublicKey) bool })
	return ok && k.Equal(b)
}

// EK returns the EK of a certificate in go-attestation's form, for attest.ActivationParameters.EK
// and the like on a server. go-attestation makes credentials for EKs of RSA-2048 and P-256 alone,
// with a Name under SHA-256: others are refused, with the check "go-attestation-value". On the
// node, take EKs from attest.TPM.EKs or EKCertificates: only these have the EK's handle, without
// which go-attestation uses the one of an RSA EK.
func EK(c *tpmcert.EKCertificate) (goattest.EK, error) {
	if c == nil {
		c = &tpmcert.EKCertificate{}
	}
	got := fmt.Sprintf("a %T", c.PublicKey)
	switch k := c.PublicKey.(type) {
	case *rsa.PublicKey:
		got = fmt.Sprintf("RSA-%d", k.N.BitLen())
		if k.N.BitLen() == 2048 && c.Certificate != nil {
			return goattest.EK{Public: k, Certificate: c.Certificate}, nil
		}
	case *ecdsa.PublicKey:
		got = k.Curve.Params().Name
		if k.Curve == elliptic.P256() && c.Certificate != nil {
			return goattest.EK{Public: k, Certificate: c.Certificate}, nil
		}
	}
	return goattest.EK{}, fmt.Errorf("goattestation: EK: %w", checkValue.Refuse(got,
		"RSA-2048 or P-256, with its certificate: go-attestation makes credentials for no other"))
}
