package tpm

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/attest/tpm/statement"
	"github.com/nodeattest/nodeattest/internal/tpmop"
)

// NV indexes at which Google Compute Engine provisions an attestation key's
// template and its certificate.
const (
	gceRSACertificate tpm2.TPMHandle = 0x01c10000
	gceRSATemplate    tpm2.TPMHandle = 0x01c10001
	gceECCCertificate tpm2.TPMHandle = 0x01c10002
	gceECCTemplate    tpm2.TPMHandle = 0x01c10003
)

// AKSource says where a node's attestation key comes from: exactly one of
// Template, TemplateIndex and Handle. A key from a template is made anew for each
// operation, as the same key each time, and leaves nothing behind in the TPM; for
// RSA that takes a hardware TPM seconds.
type AKSource struct {
	// Template is made into a primary key in the endorsement hierarchy, as it is:
	// one of the AKTemplate functions, or the caller's own.
	Template *tpm2.TPMTPublic
	// TemplateIndex is the NV index that holds the template, a TPMT_PUBLIC
	// without size prefix and nothing after it; 0 for none.
	TemplateIndex tpm2.TPMHandle
	// NonceIndex is the NV index of a nonce for the template's unique field, for
	// TemplateIndex alone; 0 where the platform provisions none. The nonce is
	// padded with zeros to the width of the key (ECC: it fills X alone).
	NonceIndex tpm2.TPMHandle
	// Handle is a persistent key, 0x81000000 to 0x81ffffff, with the empty
	// password; 0 for none.
	Handle tpm2.TPMHandle
	// CertificateIndex is the NV index of the key's certificate, in DER; 0 where
	// the certificate comes from elsewhere.
	CertificateIndex tpm2.TPMHandle
}

// GCERSA is the RSA attestation key that Google Compute Engine certifies:
// template in NV index 0x01c10001, certificate in 0x01c10000, no nonce.
func GCERSA() AKSource {
	return AKSource{TemplateIndex: gceRSATemplate, CertificateIndex: gceRSACertificate}
}

// GCEECC is the ECC attestation key that Google Compute Engine certifies:
// template in NV index 0x01c10003, certificate in 0x01c10002, no nonce.
func GCEECC() AKSource {
	return AKSource{TemplateIndex: gceECCTemplate, CertificateIndex: gceECCCertificate}
}

// check refuses a source that names no key, or more than one.
func (s *AKSource) check() error {
	if s.NonceIndex != 0 && s.TemplateIndex == 0 {
		return errors.New("source of the attestation key: NonceIndex without TemplateIndex")
	}
	return checkSource("attestation key", s.Handle, s.Template != nil, s.TemplateIndex != 0)
}

// checkSource wants one of Handle and the templates.
func checkSource(what string, handle tpm2.TPMHandle, templates ...bool) error {
	n := 0
	for _, given := range append(templates, handle != 0) {
		if given {
			n++
		}
	}
	if n != 1 {
		return fmt.Errorf("source of the %s: got %d of Template, TemplateIndex and Handle, want one", what, n)
	}
	if handle == 0 {
		return nil
	}
	if err := tpmop.CheckPersistent(handle); err != nil {
		return fmt.Errorf("source of the %s: %w", what, err)
	}
	return nil
}

// loadAK makes, or finds, the attestation key. A key that a verifier would refuse
// is an error here, before a challenge is spent on it.
func loadAK(ctx context.Context, h *tpmop.Handles, source *AKSource, endorsementPassword []byte) (*tpmop.LoadedKey, error) {
	if err := source.check(); err != nil {
		return nil, err
	}
	ak, err := source.load(ctx, h, endorsementPassword, false)
	if err != nil {
		return nil, fmt.Errorf("attestation key: %w", err)
	}
	if err := statement.CheckAKPublic(ak.Public); err != nil {
		return nil, fmt.Errorf("attestation key: no verifier accepts it: %w", err)
	}
	return ak, nil
}

// load makes, or finds, the key of a source that was checked.
func (s *AKSource) load(ctx context.Context, h *tpmop.Handles, password []byte, mayLackNonce bool) (*tpmop.LoadedKey, error) {
	if s.Handle != 0 {
		return tpmop.ReadPublic(ctx, h, s.Handle)
	}
	template, err := s.template(ctx, h, mayLackNonce)
	if err != nil {
		return nil, err
	}
	return tpmop.CreatePrimary(ctx, h, tpm2.TPMRHEndorsement, password, template)
}

// template is the template in NV, or the source's own where there is none, with the nonce
// in NV.
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
