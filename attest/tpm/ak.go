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
	n := 0
	for _, given := range []bool{s.Template != nil, s.TemplateIndex != 0, s.Handle != 0} {
		if given {
			n++
		}
	}
	if n != 1 {
		return fmt.Errorf("source of the attestation key: got %d of Template, TemplateIndex and Handle, want one", n)
	}
	if s.NonceIndex != 0 && s.TemplateIndex == 0 {
		return errors.New("source of the attestation key: NonceIndex without TemplateIndex")
	}
	if s.Handle != 0 && s.Handle>>24 != 0x81 {
		return fmt.Errorf("source of the attestation key: 0x%08x is not a persistent handle: want 0x81000000 to 0x81ffffff", uint32(s.Handle))
	}
	return nil
}

// loadAK makes, or finds, the attestation key. A key that a verifier would refuse
// is an error here, before a challenge is spent on it.
func loadAK(ctx context.Context, h *tpmop.Handles, source *AKSource, endorsementPassword []byte) (*tpmop.LoadedKey, error) {
	if err := source.check(); err != nil {
		return nil, err
	}
	ak, err := loadUncheckedAK(ctx, h, source, endorsementPassword)
	if err != nil {
		return nil, fmt.Errorf("attestation key: %w", err)
	}
	if err := statement.CheckAKPublic(ak.Public); err != nil {
		return nil, fmt.Errorf("attestation key: no verifier accepts it: %w", err)
	}
	return ak, nil
}

func loadUncheckedAK(ctx context.Context, h *tpmop.Handles, source *AKSource, password []byte) (*tpmop.LoadedKey, error) {
	switch {
	case source.Handle != 0:
		return tpmop.ReadPublic(ctx, h, source.Handle)
	case source.Template != nil:
		template, err := tpmop.MarshalTemplate(source.Template)
		if err != nil {
			return nil, err
		}
		return tpmop.CreatePrimary(ctx, h, tpm2.TPMRHEndorsement, password, template)
	}
	template, err := tpmop.ReadNV(ctx, h, source.TemplateIndex)
	if err != nil {
		return nil, fmt.Errorf("template: %w", err)
	}
	public, err := statement.ParsePublic(template)
	if err != nil {
		return nil, fmt.Errorf("template in NV index 0x%08x: %w", uint32(source.TemplateIndex), err)
	}
	if source.NonceIndex != 0 {
		nonce, err := tpmop.ReadNV(ctx, h, source.NonceIndex)
		if err != nil {
			return nil, fmt.Errorf("nonce: %w", err)
		}
		if template, err = fillUnique(public, nonce); err != nil {
			return nil, fmt.Errorf("nonce in NV index 0x%08x: %w", uint32(source.NonceIndex), err)
		}
	}
	return tpmop.CreatePrimary(ctx, h, tpm2.TPMRHEndorsement, password, template)
}
