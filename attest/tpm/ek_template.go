package tpm

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/google/go-tpm/tpm2"
)

// EKOrigin says where a node's endorsement key comes from: a template, or Handle.
// An EK from a template is made anew for each operation, as the same key each time,
// and leaves nothing behind in the TPM; for RSA that takes a hardware TPM seconds.
// The functions EKRSA2048 to EKRSA3072High return the places of the TCG EK
// Credential Profile 2.6, section 2.2.1 and annex B.
type EKOrigin struct {
	// Template is made into a primary key in the endorsement hierarchy.
	Template *tpm2.TPMTPublic
	// TemplateIndex is the NV index of a template that the TPM's maker may have
	// left, a TPMT_PUBLIC: where the index exists, it is used in Template's place. 0
	// for none.
	TemplateIndex tpm2.TPMHandle
	// NonceIndex is the NV index of a nonce for the template's unique field: where
	// the index exists, the nonce is filled in, padded with zeros to the width of the
	// key (ECC: it fills X alone). 0 for none.
	NonceIndex tpm2.TPMHandle
	// Handle is a persistent EK, 0x81000000 to 0x81ffffff, with the empty password;
	// 0 for none.
	Handle tpm2.TPMHandle
	// CertificateIndex is the NV index of the EK's certificate, in DER, alone or in
	// the header of a TCG_PCCLIENT_STORED_CERT, with or without padding behind it. 0
	// where the certificate comes from elsewhere or the EK has none.
	CertificateIndex tpm2.TPMHandle
}

// EKRSA2048 is the RSA-2048 EK of the low range: template L-1, certificate 0x01c00002,
// nonce 0x01c00003, template 0x01c00004.
func EKRSA2048() EKOrigin {
	return EKOrigin{Template: ekTemplateRSA(2048, ekLow), CertificateIndex: 0x01c00002, NonceIndex: 0x01c00003, TemplateIndex: 0x01c00004}
}

// EKP256 is the P-256 EK of the low range: template L-2, certificate 0x01c0000a, nonce
// 0x01c0000b, template 0x01c0000c.
func EKP256() EKOrigin {
	return EKOrigin{Template: ekTemplateECC(tpm2.TPMECCNistP256, ekLow), CertificateIndex: 0x01c0000a, NonceIndex: 0x01c0000b, TemplateIndex: 0x01c0000c}
}

// EKRSA2048High is the RSA-2048 EK of the high range: template H-1, certificate
// 0x01c00012, template 0x01c00013.
func EKRSA2048High() EKOrigin {
	return EKOrigin{Template: ekTemplateRSA(2048, ekHigh), CertificateIndex: 0x01c00012, TemplateIndex: 0x01c00013}
}

// EKP256High is the P-256 EK of the high range: template H-2, certificate 0x01c00014,
// template 0x01c00015.
func EKP256High() EKOrigin {
	return EKOrigin{Template: ekTemplateECC(tpm2.TPMECCNistP256, ekHigh), CertificateIndex: 0x01c00014, TemplateIndex: 0x01c00015}
}

// EKP384High is the P-384 EK of the high range: template H-3, certificate 0x01c00016,
// template 0x01c00017.
func EKP384High() EKOrigin {
	return EKOrigin{Template: ekTemplateECC(tpm2.TPMECCNistP384, ekHigh), CertificateIndex: 0x01c00016, TemplateIndex: 0x01c00017}
}

// EKRSA3072High is the RSA-3072 EK of the high range: template H-6, certificate
// 0x01c0001c, template 0x01c0001d.
func EKRSA3072High() EKOrigin {
	return EKOrigin{Template: ekTemplateRSA(3072, ekHigh), CertificateIndex: 0x01c0001c, TemplateIndex: 0x01c0001d}
}

// The digests of an EK's policies (TCG EK Credential Profile 2.6, B.6.2 to B.6.5), by
// the hash of its name algorithm. A is TPM2_PolicySecret(TPM_RH_ENDORSEMENT); C is
// TPM2_PolicyAuthorizeNV of the NV index 0x01c07f01 (SHA-384: 0x01c07f02) as the
// profile defines it; B is TPM2_PolicyOR of the two.
const (
	ekPolicyA256 = "\x83\x71\x97\x67\x44\x84\xb3\xf8\x1a\x90\xcc\x8d\x46\xa5\xd7\x24" +
		"\xfd\x52\xd7\x6e\x06\x52\x0b\x64\xf2\xa1\xda\x1b\x33\x14\x69\xaa"
	ekPolicyC256 = "\x37\x67\xe2\xed\xd4\x3f\xf4\x5a\x3a\x7e\x1e\xae\xfc\xef\x78\x64" +
		"\x3d\xca\x96\x46\x32\xe7\xaa\xd8\x2c\x67\x3a\x30\xd8\x63\x3f\xde"
	ekPolicyB256 = "\xca\x3d\x0a\x99\xa2\xb9\x39\x06\xf7\xa3\x34\x24\x14\xef\xcf\xb3" +
		"\xa3\x85\xd4\x4c\xd1\xfd\x45\x90\x89\xd1\x9b\x50\x71\xc0\xb7\xa0"
	ekPolicyA384 = "\x8b\xbf\x22\x66\x53\x7c\x17\x1c\xb5\x6e\x40\x3c\x4d\xc1\xd4\xb6" +
		"\x4f\x43\x26\x11\xdc\x38\x6e\x6f\x53\x20\x50\xc3\x27\x8c\x93\x0e" +
		"\x14\x3e\x8b\xb1\x13\x38\x24\xcc\xb4\x31\x05\x38\x71\xc6\xdb\x53"
	ekPolicyC384 = "\xd6\x03\x2c\xe6\x1f\x2f\xb3\xc2\x40\xeb\x3c\xf6\xa3\x32\x37\xef" +
		"\x2b\x6a\x16\xf4\x29\x3c\x22\xb4\x55\xe2\x61\xcf\xfd\x21\x7a\xd5" +
		"\xb4\x94\x7c\x2d\x73\xe6\x30\x05\xee\xd2\xdc\x2b\x35\x93\xd1\x65"
	ekPolicyB384 = "\xb2\x6e\x7d\x28\xd1\x1a\x50\xbc\x53\xd8\x82\xbc\xf5\xfd\x3a\x1a" +
		"\x07\x41\x48\xbb\x35\xd3\xb4\xe4\xcb\x1c\x0a\xd9\xbd\xe4\x19\xca" +
		"\xcb\x47\xba\x09\x69\x96\x46\x15\x0f\x9f\xc0\x00\xf3\xf8\x0e\x12"
)

// ekRange is the low or the high range of EK templates.
type ekRange int

const (
	ekLow  ekRange = iota // attributes 0x300b2, policy A, a unique field of zeros
	ekHigh                // attributes 0x300f2, policy B, an empty unique field
)

func (r ekRange) attributes() tpm2.TPMAObject {
	return tpm2.TPMAObject{
		FixedTPM: true, FixedParent: true, SensitiveDataOrigin: true, UserWithAuth: r == ekHigh,
		AdminWithPolicy: true, Restricted: true, Decrypt: true,
	}
}

// unique is one part of a template's unique field.
func (r ekRange) unique(width int) []byte {
	if r == ekHigh {
		return nil
	}
	return make([]byte, width)
}

func (r ekRange) policy(hash tpm2.TPMIAlgHash) tpm2.TPM2BDigest {
	digest := ekPolicyA256
	switch {
	case r == ekHigh && hash == tpm2.TPMAlgSHA384:
		digest = ekPolicyB384
	case r == ekHigh:
		digest = ekPolicyB256
	}
	return tpm2.TPM2BDigest{Buffer: []byte(digest)}
}

func ekTemplateRSA(bits int, r ekRange) *tpm2.TPMTPublic {
	p := ekParameters{tpm2.TPMAlgSHA256, 128}
	if bits == 3072 {
		p = ekParameters{tpm2.TPMAlgSHA384, 256}
	}
	area := rsaKeyArea(bits, r.attributes(), tpm2.TPMTRSAScheme{Scheme: tpm2.TPMAlgNull}, r.unique(bits/8))
	area.NameAlg, area.AuthPolicy = p.hash, r.policy(p.hash)
	area.Parameters = tpm2.NewTPMUPublicParms(tpm2.TPMAlgRSA, &tpm2.TPMSRSAParms{
		Symmetric: ekCipher(p.aesBits),
		Scheme:    tpm2.TPMTRSAScheme{Scheme: tpm2.TPMAlgNull},
		KeyBits:   tpm2.TPMKeyBits(bits),
	})
	return area
}

func ekTemplateECC(curve tpm2.TPMECCCurve, r ekRange) *tpm2.TPMTPublic {
	p, width := ekParameters{tpm2.TPMAlgSHA256, 128}, 32
	if curve == tpm2.TPMECCNistP384 {
		p, width = ekParameters{tpm2.TPMAlgSHA384, 256}, 48
	}
	area := eccKeyArea(curve, r.attributes(), tpm2.TPMTECCScheme{Scheme: tpm2.TPMAlgNull}, r.unique(width), r.unique(width))
	area.NameAlg, area.AuthPolicy = p.hash, r.policy(p.hash)
	area.Parameters = tpm2.NewTPMUPublicParms(tpm2.TPMAlgECC, &tpm2.TPMSECCParms{
		Symmetric: ekCipher(p.aesBits),
		Scheme:    tpm2.TPMTECCScheme{Scheme: tpm2.TPMAlgNull},
		CurveID:   curve,
		KDF:       tpm2.TPMTKDFScheme{Scheme: tpm2.TPMAlgNull},
	})
	return area
}

// check refuses a source that names no key, or two.
func (s *EKOrigin) check() error {
	switch template := s.Template != nil || s.TemplateIndex != 0; {
	case !template && s.Handle == 0:
		return errors.New("source of the endorsement key: neither a template nor a Handle")
	case template && s.Handle != 0:
		return errors.New("source of the endorsement key: a template and a Handle")
	}
	if s.Handle != 0 && s.Handle>>24 != 0x81 {
		return fmt.Errorf("source of the endorsement key: 0x%08x is not a persistent handle: want 0x81000000 to 0x81ffffff", uint32(s.Handle))
	}
	return nil
}

// loadEK makes, or finds, the endorsement key, and refuses one that no verifier makes
// a credential for.
func loadEK(ctx context.Context, h *handles, source *EKOrigin, endorsementPassword []byte) (*loadedKey, error) {
	if err := source.check(); err != nil {
		return nil, err
	}
	ek, err := loadUncheckedEK(ctx, h, source, endorsementPassword)
	if err != nil {
		return nil, fmt.Errorf("endorsement key: %w", err)
	}
	if err := checkEKPublic(ek.public); err != nil {
		return nil, fmt.Errorf("endorsement key: no verifier accepts it: %w", err)
	}
	return ek, nil
}

func loadUncheckedEK(ctx context.Context, h *handles, source *EKOrigin, password []byte) (*loadedKey, error) {
	if source.Handle != 0 {
		return readPublic(ctx, h, source.Handle)
	}
	template, err := ekTemplate(ctx, h, source)
	if err != nil {
		return nil, err
	}
	if source.NonceIndex != 0 {
		nonce, err := readNV(ctx, h, source.NonceIndex)
		switch {
		case errors.Is(err, ErrNVIndexNotFound):
		case err != nil:
			return nil, fmt.Errorf("nonce: %w", err)
		default:
			public, err := ParsePublic(template)
			if err != nil {
				return nil, fmt.Errorf("template: %w", err)
			}
			if template, err = fillUnique(public, nonce); err != nil {
				return nil, fmt.Errorf("nonce in NV index 0x%08x: %w", uint32(source.NonceIndex), err)
			}
		}
	}
	return createPrimary(ctx, h, tpm2.TPMRHEndorsement, password, template)
}

// ekTemplate is the template in NV, or the source's own where there is none.
func ekTemplate(ctx context.Context, h *handles, source *EKOrigin) ([]byte, error) {
	if source.TemplateIndex != 0 {
		template, err := readNV(ctx, h, source.TemplateIndex)
		if source.Template == nil || !errors.Is(err, ErrNVIndexNotFound) {
			return template, err
		}
	}
	return marshalTemplate(source.Template)
}

// checkEKPublic: the credential will be made for what the table says of a key of this
// kind. A key with another name algorithm or cipher could not open it.
func checkEKPublic(ek *Public) error {
	key, err := ek.Key()
	if err != nil {
		return err
	}
	p, err := ekParametersOf(key)
	if err != nil {
		return err
	}
	if ek.NameAlg != p.hash || ek.Symmetric.Alg != tpm2.TPMAlgAES || ek.Symmetric.KeyBits != uint16(p.aesBits) || ek.Symmetric.Mode != tpm2.TPMAlgCFB {
		return &Error{Check: CheckEKType, Got: fmt.Sprintf("an EK with %s and %s-%d", algorithmName(ek.NameAlg), algorithmName(ek.Symmetric.Alg), ek.Symmetric.KeyBits),
			Want: fmt.Sprintf("%s and AES-%d-CFB", algorithmName(p.hash), p.aesBits)}
	}
	if want := AttributeRestricted | AttributeDecrypt; !ek.Attributes.Has(want) {
		return &Error{Check: CheckEKType, Got: "an EK with the attributes " + ek.Attributes.String(), Want: want.String() + " set"}
	}
	return nil
}

// ekAuthorization is how the use of an EK is authorized.
type ekAuthorization int

const (
	ekByPassword ekAuthorization = iota + 1 // the empty one
	ekByPolicyA                             // TPM2_PolicySecret(TPM_RH_ENDORSEMENT)
	ekByPolicyB                             // the same, and TPM2_PolicyOR behind it
)

// ekAuthorizationOf looks at what the TPM says of the EK, not at where it came from.
func ekAuthorizationOf(ek *Public) (ekAuthorization, error) {
	is := func(digests ...string) bool {
		for _, d := range digests {
			if bytes.Equal(ek.AuthPolicy, []byte(d)) {
				return true
			}
		}
		return false
	}
	switch {
	case ek.Attributes.Has(AttributeUserWithAuth):
		return ekByPassword, nil
	case is(ekPolicyA256, ekPolicyA384):
		return ekByPolicyA, nil
	case is(ekPolicyB256, ekPolicyB384):
		return ekByPolicyB, nil
	}
	return 0, fmt.Errorf("endorsement key: it wants the policy %x, which is none of the EK Credential Profile", ek.AuthPolicy)
}
