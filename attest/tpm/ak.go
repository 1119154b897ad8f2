package tpm

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/secret"
)

// ErrHierarchyPassword says that a hierarchy of the TPM refused the password that
// was given, or the empty one where none was. The error that wraps it names the
// hierarchy; the password is in no error.
var ErrHierarchyPassword = errors.New("hierarchy password refused by the TPM")

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
	// without size prefix and nothing behind it; 0 for none.
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

// loadedKey is a key in the TPM, for as long as the handles it came with are
// open. public was parsed from the very bytes that the TPM returned.
type loadedKey struct {
	handle   tpm2.TPMHandle
	name     []byte
	public   *Public
	password secret.Value[[]byte] // the key's own; zero where it is empty
}

// loadAK makes, or finds, the attestation key. A key that a verifier would refuse
// is an error here, before a challenge is spent on it.
func loadAK(ctx context.Context, h *handles, source *AKSource, endorsementPassword []byte) (*loadedKey, error) {
	if err := source.check(); err != nil {
		return nil, err
	}
	ak, err := loadUncheckedAK(ctx, h, source, endorsementPassword)
	if err != nil {
		return nil, fmt.Errorf("attestation key: %w", err)
	}
	if err := checkAKPublic(ak.public); err != nil {
		return nil, fmt.Errorf("attestation key: no verifier accepts it: %w", err)
	}
	return ak, nil
}

func loadUncheckedAK(ctx context.Context, h *handles, source *AKSource, password []byte) (*loadedKey, error) {
	switch {
	case source.Handle != 0:
		return readPublic(ctx, h, source.Handle)
	case source.Template != nil:
		template, err := marshalTemplate(source.Template)
		if err != nil {
			return nil, err
		}
		return createPrimary(ctx, h, tpm2.TPMRHEndorsement, password, template)
	}
	template, err := readNV(ctx, h, source.TemplateIndex)
	if err != nil {
		return nil, fmt.Errorf("template: %w", err)
	}
	public, err := ParsePublic(template)
	if err != nil {
		return nil, fmt.Errorf("template in NV index 0x%08x: %w", uint32(source.TemplateIndex), err)
	}
	if source.NonceIndex != 0 {
		nonce, err := readNV(ctx, h, source.NonceIndex)
		if err != nil {
			return nil, fmt.Errorf("nonce: %w", err)
		}
		if template, err = fillUnique(public, nonce); err != nil {
			return nil, fmt.Errorf("nonce in NV index 0x%08x: %w", uint32(source.NonceIndex), err)
		}
	}
	return createPrimary(ctx, h, tpm2.TPMRHEndorsement, password, template)
}

// createPrimary makes a primary key with an empty password in a hierarchy.
func createPrimary(ctx context.Context, h *handles, hierarchy tpm2.TPMHandle, password, template []byte) (*loadedKey, error) {
	want, err := ParsePublic(template)
	if err != nil {
		return nil, fmt.Errorf("template: %w", err)
	}
	auth, err := h.authorize(ctx, hierarchy, nil, password)
	if err != nil {
		return nil, err
	}
	isOurs := func(p *Public) bool { return bytes.Equal(p.beforeUnique(), want.beforeUnique()) }
	rsp, err := load(ctx, h, isOurs, tpm2.CreatePrimary{
		PrimaryHandle: auth,
		InPublic:      tpm2.BytesAs2B[tpm2.TPMTPublic](template),
	}, "TPM2_CreatePrimary in the %s hierarchy", hierarchyWord(hierarchy))
	if err != nil {
		return nil, explainPassword(err, hierarchy, password)
	}
	h.keep(rsp.ObjectHandle, rsp.Name.Buffer)
	return newLoadedKey(rsp.ObjectHandle, rsp.Name.Buffer, rsp.OutPublic.Bytes())
}

// readPublic finds out about a key that is in the TPM already.
func readPublic(ctx context.Context, h *handles, handle tpm2.TPMHandle) (*loadedKey, error) {
	rsp, err := run(ctx, h.tpm, tpm2.ReadPublic{ObjectHandle: handle}, "TPM2_ReadPublic of 0x%08x", uint32(handle))
	if err != nil {
		return nil, err
	}
	return newLoadedKey(handle, rsp.Name.Buffer, rsp.OutPublic.Bytes())
}

// newLoadedKey holds what the TPM says about a key together: the Name must be
// that of the public area, or every verifier will refuse what comes of it.
func newLoadedKey(handle tpm2.TPMHandle, name, area []byte) (*loadedKey, error) {
	public, err := ParsePublic(area)
	if err != nil {
		return nil, fmt.Errorf("public area of 0x%08x: %w", uint32(handle), err)
	}
	if want := public.Name(); !bytes.Equal(name, want) {
		return nil, fmt.Errorf("the TPM gives the Name %x for 0x%08x, its public area has %x", name, uint32(handle), want)
	}
	return &loadedKey{handle: handle, name: name, public: public}, nil
}

// explainPassword says what an authorization failure of a hierarchy means.
func explainPassword(err error, hierarchy tpm2.TPMHandle, password []byte) error {
	if !errors.Is(err, tpm2.TPMRCBadAuth) && !errors.Is(err, tpm2.TPMRCAuthFail) {
		return err
	}
	if len(password) == 0 {
		return fmt.Errorf("%w: the %s hierarchy has a password and none was given: %w", ErrHierarchyPassword, hierarchyWord(hierarchy), err)
	}
	return fmt.Errorf("%w: the %s hierarchy has another password than the one given: %w", ErrHierarchyPassword, hierarchyWord(hierarchy), err)
}

func hierarchyWord(hierarchy tpm2.TPMHandle) string {
	switch hierarchy {
	case tpm2.TPMRHEndorsement:
		return "endorsement"
	case tpm2.TPMRHOwner:
		return "owner"
	case tpm2.TPMRHNull:
		return "null"
	}
	return fmt.Sprintf("0x%08x", uint32(hierarchy))
}
