package tpmcert

import (
	"context"
	"crypto"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"time"

	"github.com/nodeattest/nodeattest/attest/tpm/statement"
	"github.com/nodeattest/nodeattest/internal/der"
	"github.com/nodeattest/nodeattest/oid"
	"github.com/nodeattest/nodeattest/refusal"
)

// maxPermanentIdentifierSize bounds the name of a machine in an [AKTemplate], in bytes.
const maxPermanentIdentifierSize = 255

// AKTemplate is what [CreateAKCertificate] certifies of an attestation key. tpm.EnrolledAK
// fills in everything but the validity, for a key that a machine has proven.
type AKTemplate struct {
	// Key is the AK, an *rsa.PublicKey or *ecdsa.PublicKey.
	Key crypto.PublicKey
	// PermanentIdentifier is the machine's name, unique within the CA: 1 to
	// 255 bytes of UTF-8. No two machines ever have the same one,
	// and a machine keeps its own when it gets another certificate.
	PermanentIdentifier string
	// Directory is the manufacturer, model and version of the TPM, all three, from its EK
	// certificate; the zero value if they are not known.
	Directory DirectoryName
	// NotBefore and NotAfter are the validity, in whole seconds, within that of the CA.
	// AK certificates are not checked for revocation: keep it short, and certify again.
	NotBefore, NotAfter time.Time
}

// CreateAKCertificate makes the certificate of an attestation key as the TCG describes it,
// signed with the key of the CA certificate ca, and returns what [ProfileTCG] finds in it:
// Chain is the certificate and ca, and Machine is the identity for a list of members.
//
// It believes the template. That the key is a restricted key in a TPM, and in which TPM, must
// be proven first: every control plane that trusts the CA takes its word for it.
//
// The certificate is of version 3 with an empty subject, a random serial number, the critical
// key usage digitalSignature, the extended key usage tcg-kp-AIKCertificate, critical
// basicConstraints of a non-CA, and a critical subjectAltName with the TCG directory name, if
// there is one, and one OtherName, a PermanentIdentifier (RFC 4043) without an assigner.
// step-ca (ACME device-attest-01) also accepts such certificates if they have a directory
// name and the AK is RSASSA with SHA-256 or on P-256.
//
// Before it is returned, the new certificate is verified under ca and ProfileTCG, at
// NotBefore. So an error is [refusal.CheckConfig], a check of the template's fields, or the
// check with which every control plane would refuse the certificate.
func CreateAKCertificate(ctx context.Context, t AKTemplate, ca *x509.Certificate, key crypto.Signer) (*AKCertificate, error) {
	profile := ProfileTCG()
	profile.RequireDirectoryName = t.Directory != DirectoryName{}
	verifier, err := NewAKVerifier([]Issuer{{Roots: []*x509.Certificate{ca}, Profile: profile}})
	if err != nil {
		return nil, err
	}
	if err := statement.CheckKeyStrength(t.Key); err != nil {
		return nil, err
	}
	if t.NotBefore.IsZero() || t.NotAfter.After(ca.NotAfter) {
		return nil, refusal.Config("NotBefore or NotAfter", t.NotAfter.UTC().Format(time.RFC3339), "times inside the CA's validity")
	}
	identifier, err := der.Marshal("PermanentIdentifier", func(c *der.Codec) {
		c.Text("identifierValue", &t.PermanentIdentifier, 1, maxPermanentIdentifierSize)
	})
	if err != nil {
		return nil, err
	}
	san, err := (&der.TPMNames{Others: []der.OtherName{{Type: oid.PermanentIdentifier, Value: identifier}},
		Manufacturer: t.Directory.Manufacturer, Model: t.Directory.Model, Version: t.Directory.Version}).Marshal()
	if err != nil {
		return nil, err
	}
	usage, _ := oid.TCGKpAIKCertificate.ASN1()
	extension, _ := oid.SubjectAltName.ASN1()
	raw, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		NotBefore:             t.NotBefore,
		NotAfter:              t.NotAfter,
		KeyUsage:              x509.KeyUsageDigitalSignature,
		UnknownExtKeyUsage:    []asn1.ObjectIdentifier{usage},
		BasicConstraintsValid: true,
		ExtraExtensions:       []pkix.Extension{{Id: extension, Critical: true, Value: san}},
	}, ca, t.Key, key)
	if err != nil {
		return nil, &refusal.Error{Check: refusal.CheckConfig, Got: "a CA that does not sign", Err: err}
	}
	presented, err := ParseAKPresented([][]byte{raw})
	if err != nil {
		return nil, err
	}
	return verifier.Verify(ctx, presented, t.NotBefore, nil)
}
