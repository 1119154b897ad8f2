package tpm

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/rsa"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"

	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/attest/tpm/internal/tpmop"
	"github.com/nodeattest/nodeattest/attest/tpm/tpmcert"
	"github.com/nodeattest/nodeattest/internal/dn"
	"github.com/nodeattest/nodeattest/internal/tpmwire"
	"github.com/nodeattest/nodeattest/refusal"
)

// Where machine manufacturers keep the initial attestation key (IAK), and its certificate
// with those above it (TCG TPM 2.0 Keys for Device Identity and Attestation 1.1, section
// 7.3).
const (
	iakHandle     tpm2.TPMHandle = 0x81020001
	firstIAKIndex tpm2.TPMHandle = 0x01c90100
	lastIAKIndex  tpm2.TPMHandle = 0x01c901ff
)

// errIAK says that the IAK's certificate is not for any key of the TPM: it is another
// machine's certificate, the TPM has been given a new endorsement seed, or the manufacturer's
// template is not one of [IAKTemplates].
var errIAK = errors.New("no key of this TPM fits the IAK's certificate")

// OEMIAK returns the source of the initial attestation key (IAK) that the machine's
// manufacturer has certified. Its certificate is in the NV indexes 0x01c90100 to 0x01c901ff,
// after the intermediates, unless ProverOptions.Certificates has it; those from 0x01c90200
// on, of the IDevID, are not read. The key is the persistent 0x81020001 if the certificate is
// for that key, with [ProverOptions].AKPassword; otherwise it is made from the first of
// [IAKTemplates] that yields it. If none does, the error says so; if there is no
// certificate, it wraps [tpmkey.ErrNVIndexNotFound]. For an IAK at another handle or of
// another template, use an AKSource with Handle or Template, and put the certificates in
// ProverOptions.Certificates.
//
// It takes only [attest.RoadAK]: an IAK does not let a password open credentials.
func OEMIAK() AKSource { return AKSource{OEM: true} }

// iakPolicies are the authPolicies of IAKs, by name algorithm: TPM2_PolicyOR of
// TPM2_PolicySecret(TPM_RH_ENDORSEMENT), of the same with TPM2_Certify and with
// TPM2_ActivateCredential as TPM2_PolicyCommandCode, and of TPM2_PolicyAuthorizeNV of the
// index 0x01c90018 (SHA-384: 19, SHA-512: 1a).
var iakPolicies = map[tpm2.TPMIAlgHash]string{
	tpm2.TPMAlgSHA256: "\x54\x37\x18\x23\x26\xe4\x14\xfc\xa7\x97\xd5\xf1\x74\x61\x5a\x16" +
		"\x41\xf6\x12\x55\x79\x7c\x3a\x2b\x22\xc2\x1d\x12\x0b\x2d\x1e\x07",
	tpm2.TPMAlgSHA384: "\x12\x9d\x94\xeb\xf8\x45\x56\x65\x2c\x6e\xef\x43\xbb\xb7\x57\x51" +
		"\x2a\xc8\x7e\x52\xbe\x7b\x34\x9c\xa6\xce\x4d\x82\x6f\x74\x9f\xcf" +
		"\x67\x2f\x51\x71\x6c\x5c\xbb\x60\x5f\x31\x3b\xf3\x45\xaa\xb3\x12",
	tpm2.TPMAlgSHA512: "\x80\x60\xd1\xfb\x31\x71\x6a\x29\xe4\x8a\x6e\x5f\xec\xe0\x88\xbc" +
		"\xfc\x1b\x27\x8f\xc1\x62\x25\x5e\x81\xc3\xec\xa3\x54\x4c\xd4\x4a" +
		"\xf9\x44\x10\xc3\x71\x5d\x56\x1c\xcc\xd9\xe3\x9a\x6c\xb2\x64\x6d" +
		"\x43\x53\x5b\xb5\x4e\xa8\x87\x10\xde\xb5\xf7\x83\x6b\xd9\xb5\x86",
}

// IAKTemplates returns the templates from which machine manufacturers make an IAK with this public
// key, in the order in which they are tried (TCG TPM 2.0 Keys for Device Identity and Attestation
// 1.0, section 7.3.4): for RSA-2048 H-1, with RSAPSS and then with RSASSA; for P-256, P-384 and
// P-521 H-2, H-3 and H-4, each with four spellings of the unique field, on which manufacturers do
// not agree: "IAK" as X only, as both X and Y, cut in two, and cut in two with a zero in place of
// the last letter, which tpm2-tools lose. Other keys, including H-5 (SM2), have no templates. Each
// call returns fresh values.
func IAKTemplates(key crypto.PublicKey) (templates []*tpm2.TPMTPublic) {
	add := func(area *tpm2.TPMTPublic, unique tpm2.TPMUPublicID) {
		area.AuthPolicy.Buffer, area.Unique = []byte(iakPolicies[area.NameAlg]), unique
		area.ObjectAttributes.NoDA, area.ObjectAttributes.AdminWithPolicy = false, true
		templates = append(templates, area)
	}
	switch key := key.(type) {
	case *rsa.PublicKey:
		if key.N.BitLen() == 2048 {
			unique := tpm2.NewTPMUPublicID(tpm2.TPMAlgRSA, &tpm2.TPM2BPublicKeyRSA{Buffer: []byte("IAK")})
			add(AKTemplateRSA2048PSS(), unique)
			add(AKTemplateRSA2048SHA256(), unique)
		}
	case *ecdsa.PublicKey:
		curve, ok := tpmwire.CurveOfKey(key)
		if !ok {
			return nil
		}
		hash := map[tpm2.TPMECCCurve]tpm2.TPMIAlgHash{tpm2.TPMECCNistP256: tpm2.TPMAlgSHA256,
			tpm2.TPMECCNistP384: tpm2.TPMAlgSHA384, tpm2.TPMECCNistP521: tpm2.TPMAlgSHA512}[curve.ID]
		for _, unique := range [][2]string{{"IAK", ""}, {"IAK", "IAK"}, {"I", "AK"}, {"I", "A\x00"}} {
			add(ecdsaAK(curve.ID, hash, curve.Width), tpm2.NewTPMUPublicID(tpm2.TPMAlgECC, &tpm2.TPMSECCPoint{
				X: tpm2.TPM2BECCParameter{Buffer: []byte(unique[0])}, Y: tpm2.TPM2BECCParameter{Buffer: []byte(unique[1])}}))
		}
	}
	return templates
}

// loadIAK finds the key that a certificate is for.
func loadIAK(ctx context.Context, h *tpmop.Handles, leaf, endorsementPassword []byte) (*tpmop.LoadedKey, error) {
	cert, err := x509.ParseCertificate(leaf)
	if err != nil {
		return nil, &refusal.Error{Check: tpmcert.CheckCertificateEncoding, Got: "an IAK certificate that does not parse", Err: err}
	}
	key, err := tpmop.ReadPublic(ctx, h, iakHandle)
	if err == nil && key.Public.SameKey(cert.PublicKey) || errors.Is(err, refusal.ErrRetry) {
		return key, err
	}
	tried := []error{err} // nil if it is another key
	for _, template := range IAKTemplates(cert.PublicKey) {
		key, err := tpmop.CreatePrimary(ctx, h, tpm2.TPMRHEndorsement, endorsementPassword, tpm2.Marshal(template))
		if err == nil && key.Public.SameKey(cert.PublicKey) {
			return key, nil
		}
		if err == nil {
			err = h.Flush(key.Handle)
		} else if tpmop.IsUnfit(err) && !errors.Is(err, tpmop.ErrHierarchyPassword) {
			tried, err = append(tried, err), nil // the TPM does not support the algorithm, or refuses the spelling
		}
		if err != nil {
			return nil, err
		}
	}
	return nil, errors.Join(fmt.Errorf("%w: tried the persistent 0x%08x, and the templates for a key of %s", errIAK, uint32(iakHandle), keyAlgorithm(cert.PublicKey)),
		errors.Join(tried...))
}

// readIAKChain reads the certificates in NV, and returns the last one that did not issue
// another of them, with those above it: leaf first and without the root.
func readIAKChain(ctx context.Context, h *tpmop.Handles) ([][]byte, error) {
	certs, err := readNVChain(ctx, h, firstIAKIndex, lastIAKIndex)
	if err != nil {
		return nil, err
	}
	for _, leaf := range slices.Backward(certs) {
		if !slices.ContainsFunc(certs, func(c *x509.Certificate) bool { return dn.Equal(c.RawIssuer, leaf.RawSubject) }) {
			return append([][]byte{leaf.Raw}, tpmcert.ChainAbove(leaf, certs)...), nil
		}
	}
	return nil, fmt.Errorf("certificate of the IAK in NV: %w: 0x%08x to 0x%08x", tpmop.ErrNVIndexNotFound, uint32(firstIAKIndex), uint32(lastIAKIndex))
}
