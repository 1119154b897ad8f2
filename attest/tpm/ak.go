package tpm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/google/go-tpm/tpm2"
	"golang.org/x/crypto/cryptobyte"

	"github.com/nodeattest/nodeattest/attest/tpm/internal/tpmop"
	"github.com/nodeattest/nodeattest/attest/tpm/statement"
	"github.com/nodeattest/nodeattest/attest/tpm/tpmkey"
	"github.com/nodeattest/nodeattest/internal/tpmwire"
)

// AKSource says where a node's attestation key comes from: exactly one of Template,
// TemplateIndex, Handle, File and OEM. A key from a template is recreated for each operation,
// always as the same key, and leaves nothing behind in the TPM; for RSA that takes a hardware
// TPM seconds.
type AKSource struct {
	// Template is used unchanged to create a primary key in the endorsement hierarchy: that
	// of one of the AKTemplate functions, or the caller's own.
	Template *tpm2.TPMTPublic
	// TemplateIndex is the NV index that holds the template, a TPMT_PUBLIC without a size
	// prefix and with nothing after it; 0 for none.
	TemplateIndex tpm2.TPMHandle
	// NonceIndex is the NV index of a nonce for the template's unique field, only with
	// TemplateIndex; 0 if the platform provisions none. The nonce is padded with zeros to the
	// width of the key (ECC: it fills only X).
	NonceIndex tpm2.TPMHandle
	// Handle is a persistent key, 0x81000000 to 0x81ffffff, with
	// [ProverOptions].AKPassword; 0 for none.
	Handle tpm2.TPMHandle
	// File is a key that other software made under a storage key and keeps as the TPM encrypted
	// it, such as one of go-attestation (package goattestation makes the File). It is loaded for
	// each operation and leaves nothing behind in the TPM. It has the empty password and no
	// policy; Parent is persistent, with the empty password, or tpm2.TPMRHOwner where the owner
	// hierarchy has the empty one. [tpmkey.ParseFile] reads no restricted key, so the fields come
	// from that software's own form.
	File *tpmkey.File
	// CertificateIndex is the NV index of the key's certificate, in DER; 0 if the certificate
	// comes from elsewhere.
	CertificateIndex tpm2.TPMHandle
	// OEM selects the key that the machine's manufacturer has certified: [OEMIAK].
	OEM bool
}

// GCERSA returns the source of the RSA attestation key that Google Compute Engine certifies:
// template in NV index 0x01c10001, certificate in 0x01c10000, no nonce.
func GCERSA() AKSource { return AKSource{TemplateIndex: 0x01c10001, CertificateIndex: 0x01c10000} }

// GCEECC returns the source of the ECC attestation key that Google Compute Engine certifies:
// template in NV index 0x01c10003, certificate in 0x01c10002, no nonce.
func GCEECC() AKSource { return AKSource{TemplateIndex: 0x01c10003, CertificateIndex: 0x01c10002} }

// AzureRSA returns the source of the RSA attestation key that Azure certifies for virtual
// machines with Trusted Launch and for confidential ones: the persistent 0x81000003, certificate
// in NV index 0x01c101d0. Azure renews the certificate, and leaves the key. The CAs above it go
// into ProverOptions.Intermediates or, for all machines, tpmcert.Issuer.Intermediates: nothing
// fetches them from the addresses that some of the certificates name.
func AzureRSA() AKSource { return AKSource{Handle: 0x81000003, CertificateIndex: 0x01c101d0} }

// check refuses a source that names no key, or more than one.
func (s *AKSource) check() error {
	if s.NonceIndex != 0 && s.TemplateIndex == 0 {
		return errors.New("source of the attestation key: NonceIndex without TemplateIndex")
	}
	if s.OEM && s.CertificateIndex != 0 {
		return errors.New("source of the attestation key: CertificateIndex and OEM, which has indexes of its own, are both set")
	}
	err := checkSource("attestation key", s.Handle, s.Template != nil, s.TemplateIndex != 0, s.File != nil, s.OEM)
	if err != nil || s.File == nil {
		return err
	}
	if err := checkAKFile(s.File); err != nil {
		return fmt.Errorf("source of the attestation key: File: %w", err)
	}
	return nil
}

// checkAKFile refuses a key that no verifier accepts, and one that takes more than the empty
// password.
func checkAKFile(f *tpmkey.File) error {
	public, err := statement.ParsePublic(f.Public)
	switch {
	case err != nil:
		return err
	case len(f.Policy) != 0:
		return errors.New("a policy, which the use of an attestation key cannot have here")
	case len(f.Private) == 0 || len(f.Private) > tpmop.MaxPrivateSize:
		return fmt.Errorf("private part of %d bytes, want 1 to %d", len(f.Private), tpmop.MaxPrivateSize)
	}
	return cmp.Or(statement.CheckAKPublic(public), tpmop.CheckStorageParent(f.Parent))
}

// checkSource requires exactly one of the handle and the templates.
func checkSource(what string, handle tpm2.TPMHandle, templates ...bool) error {
	given := slices.DeleteFunc(append(templates, handle != 0), func(given bool) bool { return !given })
	if len(given) != 1 {
		return fmt.Errorf("source of the %s: got %d of Template, TemplateIndex, Handle, File and OEM, want one", what, len(given))
	}
	if err := tpmop.CheckPersistent(handle); handle != 0 && err != nil {
		return fmt.Errorf("source of the %s: %w", what, err)
	}
	return nil
}

// loadAK creates or finds the attestation key. A key that a verifier would refuse is an error
// here, before a challenge is spent on it. chain is the key's, if known; a nil chain of a
// manufacturer is read from NV.
func loadAK(ctx context.Context, h *tpmop.Handles, source *AKSource, chain [][]byte, endorsementPassword []byte) (
	ak *tpmop.LoadedKey, err error) {
	if err := source.check(); err != nil {
		return nil, err
	}
	if source.OEM && chain == nil {
		chain, err = readIAKChain(ctx, h)
	}
	switch {
	case err != nil:
	case source.OEM:
		ak, err = loadIAK(ctx, h, chain[0], endorsementPassword)
	default:
		ak, err = source.load(ctx, h, endorsementPassword, false)
	}
	return accepted("attestation key", ak, err, statement.CheckAKPublic)
}

// accepted returns a loaded key, or an error if no verifier accepts it.
func accepted(what string, key *tpmop.LoadedKey, err error, check func(*statement.Public) error) (*tpmop.LoadedKey, error) {
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	if err := check(key.Public); err != nil {
		return nil, fmt.Errorf("%s: no verifier accepts it: %w", what, err)
	}
	return key, nil
}

// load creates or finds the key of a checked source.
func (s *AKSource) load(ctx context.Context, h *tpmop.Handles, password []byte, mayLackNonce bool) (*tpmop.LoadedKey, error) {
	if s.Handle != 0 {
		return tpmop.ReadPublic(ctx, h, s.Handle)
	}
	if s.File != nil {
		parent, err := tpmop.StorageParent(ctx, h, s.File.Parent, nil)
		if err != nil {
			return nil, err
		}
		return tpmop.LoadUnder(ctx, h, parent, s.File.Public, s.File.Private)
	}
	template, err := s.template(ctx, h, mayLackNonce)
	if err != nil {
		return nil, err
	}
	return tpmop.CreatePrimary(ctx, h, tpm2.TPMRHEndorsement, password, template)
}

// template returns the template in NV, or else the source's own, with the nonce from NV.
func (s *AKSource) template(ctx context.Context, h *tpmop.Handles, mayLackNonce bool) (template []byte, err error) {
	from := fmt.Sprintf("template in NV index 0x%08x", uint32(s.TemplateIndex))
	err = tpmop.ErrNVIndexNotFound
	if s.TemplateIndex != 0 {
		template, err = tpmop.ReadNV(ctx, h, s.TemplateIndex)
	}
	if s.Template != nil && errors.Is(err, tpmop.ErrNVIndexNotFound) {
		from = "template"
		template, err = tpmop.MarshalTemplate(s.Template)
	}
	if err != nil {
		return nil, err
	}
	public, err := statement.ParsePublic(template)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", from, err)
	}
	if s.NonceIndex == 0 {
		return template, nil
	}
	nonce, err := tpmop.ReadNV(ctx, h, s.NonceIndex)
	if mayLackNonce && errors.Is(err, tpmop.ErrNVIndexNotFound) {
		return template, nil
	}
	if err != nil {
		return nil, fmt.Errorf("nonce: %w", err)
	}
	if template, err = fillUnique(public, nonce); err != nil {
		return nil, fmt.Errorf("nonce in NV index 0x%08x: %w", uint32(s.NonceIndex), err)
	}
	return template, nil
}

// akUnique is in the unique field of this library's AK templates. A TPM derives a primary key
// from its template, including the unique field, so no other software that leaves the field
// empty or zero has these keys.
const akUnique = "nodeattest/tpm/v1 attestation key"

// AKTemplateRSA2048SHA256 returns the template of an attestation key of this library:
// RSA-2048, RSASSA with SHA-256, Name over SHA-256. Like all of them, it is a restricted
// signing key that its TPM made and that never leaves it (fixedTPM, fixedParent,
// sensitiveDataOrigin, userWithAuth, noDA, restricted, sign), with an empty password; noDA
// keeps it from being locked by wrong guesses at other keys. Each call returns a fresh value.
func AKTemplateRSA2048SHA256() *tpm2.TPMTPublic {
	return rsaAK(tpm2.TPMAlgRSASSA, tpm2.NewTPMUAsymScheme(tpm2.TPMAlgRSASSA, &tpm2.TPMSSigSchemeRSASSA{HashAlg: tpm2.TPMAlgSHA256}))
}

// AKTemplateRSA2048PSS returns the template of an attestation key of this library: RSA-2048,
// RSAPSS with SHA-256, Name over SHA-256; see AKTemplateRSA2048SHA256.
func AKTemplateRSA2048PSS() *tpm2.TPMTPublic {
	return rsaAK(tpm2.TPMAlgRSAPSS, tpm2.NewTPMUAsymScheme(tpm2.TPMAlgRSAPSS, &tpm2.TPMSSigSchemeRSAPSS{HashAlg: tpm2.TPMAlgSHA256}))
}

func rsaAK(scheme tpm2.TPMAlgID, details tpm2.TPMUAsymScheme) *tpm2.TPMTPublic {
	parms := tpm2.TPMSRSAParms{Scheme: tpm2.TPMTRSAScheme{Scheme: scheme, Details: details}, KeyBits: 2048}
	return tpmop.RSAKeyArea(parms, akAttributes, tpmop.Padded(akUnique, 2048/8))
}

// AKTemplateECDSAP256 returns the template of an attestation key of this library: P-256,
// ECDSA with SHA-256, Name over SHA-256; see AKTemplateRSA2048SHA256.
func AKTemplateECDSAP256() *tpm2.TPMTPublic {
	return ecdsaAK(tpm2.TPMECCNistP256, tpm2.TPMAlgSHA256, 32)
}

// AKTemplateECDSAP384 returns the template of an attestation key of this library: P-384,
// ECDSA with SHA-384, and a Name over SHA-384, so that no part of it is weaker than the
// curve; see AKTemplateRSA2048SHA256.
func AKTemplateECDSAP384() *tpm2.TPMTPublic {
	return ecdsaAK(tpm2.TPMECCNistP384, tpm2.TPMAlgSHA384, 48)
}

func ecdsaAK(curve tpm2.TPMECCCurve, hash tpm2.TPMIAlgHash, width int) *tpm2.TPMTPublic {
	scheme := tpm2.TPMTECCScheme{
		Scheme:  tpm2.TPMAlgECDSA,
		Details: tpm2.NewTPMUAsymScheme(tpm2.TPMAlgECDSA, &tpm2.TPMSSigSchemeECDSA{HashAlg: hash}),
	}
	area := tpmop.ECCKeyArea(tpm2.TPMSECCParms{Scheme: scheme, CurveID: curve}, akAttributes, tpmop.Padded(akUnique, width), make([]byte, width))
	area.NameAlg = hash
	return area
}

var akAttributes = tpm2.TPMAObject{
	FixedTPM: true, FixedParent: true, SensitiveDataOrigin: true,
	UserWithAuth: true, NoDA: true, Restricted: true, SignEncrypt: true,
}

// fillUnique puts a nonce into the unique field of a template, padded with zeros to the width
// of the key (ECC: the field X; Y stays); TCG EK Credential Profile 2.6, 2.2.1. The rest of
// the template is unchanged.
func fillUnique(template *statement.Public, nonce []byte) ([]byte, error) {
	width := int(template.KeyBits) / 8
	if template.Type == tpm2.TPMAlgECC {
		curve, _ := tpmwire.CurveOf(template.Curve)
		width = curve.Width
	}
	if len(nonce) > width {
		return nil, fmt.Errorf("nonce of %d bytes for a key of %d", len(nonce), width)
	}

	b := cryptobyte.NewBuilder(slices.Clone(template.BeforeUnique()))
	tpmwire.AddTPM2B(b, tpmop.Padded(nonce, width))
	if template.Type == tpm2.TPMAlgECC {
		tpmwire.AddTPM2B(b, template.Y)
	}
	return b.Bytes()
}
