package tpm

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/rsa"
	"crypto/x509"
	"fmt"
	"io"

	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/tpm/internal/tpmop"
	"github.com/nodeattest/nodeattest/attest/tpm/statement"
	"github.com/nodeattest/nodeattest/attest/tpm/tpmcert"
	"github.com/nodeattest/nodeattest/internal/der"
	"github.com/nodeattest/nodeattest/internal/tpmwire"
	"github.com/nodeattest/nodeattest/refusal"
)

// EKOrigin says where a node's endorsement key comes from: a template, or Handle. An EK from
// a template is recreated for each operation, always as the same key, and leaves nothing
// behind in the TPM; for RSA that takes a hardware TPM seconds. The functions [EKRSA2048],
// [EKP256] and [EKHigh] return the locations given in the TCG EK Credential Profile 2.6,
// section 2.2.1 and annex B.
type EKOrigin struct {
	// Template is used to create a primary key in the endorsement hierarchy.
	Template *tpm2.TPMTPublic
	// TemplateIndex is the NV index of a template that the TPM's manufacturer may have left,
	// a TPMT_PUBLIC: if the index exists, it is used instead of Template. 0 for none.
	TemplateIndex tpm2.TPMHandle
	// NonceIndex is the NV index of a nonce for the template's unique field: if the index
	// exists, the nonce is filled in, padded with zeros to the width of the key (ECC: it
	// fills only X). 0 for none.
	NonceIndex tpm2.TPMHandle
	// Handle is a persistent EK, 0x81000000 to 0x81ffffff, with the empty password;
	// 0 for none.
	Handle tpm2.TPMHandle
	// CertificateIndex is the NV index of the EK's certificate, in DER, alone or after the
	// header of a TCG_PCCLIENT_STORED_CERT, with or without trailing padding. 0 if the
	// certificate comes from elsewhere or the EK has none.
	CertificateIndex tpm2.TPMHandle
}

// EKRSA2048 returns the origin of the RSA-2048 EK of the low range: template L-1, certificate
// 0x01c00002, nonce 0x01c00003, template 0x01c00004.
func EKRSA2048() EKOrigin {
	return EKOrigin{Template: tpmop.EKTemplateRSA(2048, tpmop.EKLow), CertificateIndex: 0x01c00002, NonceIndex: 0x01c00003, TemplateIndex: 0x01c00004}
}

// EKP256 returns the origin of the P-256 EK of the low range: template L-2, certificate
// 0x01c0000a, nonce 0x01c0000b, template 0x01c0000c.
func EKP256() EKOrigin {
	return EKOrigin{Template: tpmop.EKTemplateECC(tpm2.TPMECCNistP256, tpmop.EKLow), CertificateIndex: 0x01c0000a, NonceIndex: 0x01c0000b, TemplateIndex: 0x01c0000c}
}

// EKHigh returns the origin of an EK of the high range, by the number of its template: 1 for
// H-1 (RSA-2048), 2 for H-2 (P-256), 3 for H-3 (P-384), 6 for H-6 (RSA-3072). Its certificate is
// in 0x01c00010 plus twice the number, its template in the index after that. For any other
// number it is the zero EKOrigin, which NewProver refuses.
func EKHigh(number int) EKOrigin {
	template := map[int]*tpm2.TPMTPublic{
		1: tpmop.EKTemplateRSA(2048, tpmop.EKHigh), 2: tpmop.EKTemplateECC(tpm2.TPMECCNistP256, tpmop.EKHigh),
		3: tpmop.EKTemplateECC(tpm2.TPMECCNistP384, tpmop.EKHigh), 6: tpmop.EKTemplateRSA(3072, tpmop.EKHigh),
	}[number]
	if template == nil {
		return EKOrigin{}
	}
	certificate := 0x01c00010 + 2*tpm2.TPMHandle(number)
	return EKOrigin{Template: template, CertificateIndex: certificate, TemplateIndex: certificate + 1}
}

// loadEK creates or finds the endorsement key, and refuses one for which no verifier makes a
// credential.
func loadEK(ctx context.Context, h *tpmop.Handles, source *EKOrigin, endorsementPassword []byte) (*tpmop.LoadedKey, error) {
	ek, err := (&AKSource{Template: source.Template, TemplateIndex: source.TemplateIndex, NonceIndex: source.NonceIndex, Handle: source.Handle}).
		load(ctx, h, endorsementPassword, true)
	return accepted("endorsement key", ek, err, checkEKPublic)
}

// checkEKPublic refuses an EK that differs from the table's row for its algorithm: the credential
// will be made for that row, and a key with another name algorithm or cipher could not open it.
func checkEKPublic(ek *statement.Public) error {
	key, err := ek.Key()
	if err != nil {
		return err
	}
	p, err := tpmop.EKParametersOf(key)
	if err != nil {
		return err
	}
	if ek.NameAlg != p.Hash || ek.Symmetric.Alg != tpm2.TPMAlgAES || ek.Symmetric.KeyBits != uint16(p.AesBits) || ek.Symmetric.Mode != tpm2.TPMAlgCFB {
		return tpmop.CheckEKType.Refuse(
			fmt.Sprintf("an EK with %s and %s-%d", tpmwire.AlgorithmName(ek.NameAlg), tpmwire.AlgorithmName(ek.Symmetric.Alg), ek.Symmetric.KeyBits),
			fmt.Sprintf("%s and AES-%d-CFB", tpmwire.AlgorithmName(p.Hash), p.AesBits))
	}
	if want := statement.AttributeRestricted | statement.AttributeDecrypt; !ek.Attributes.Has(want) {
		return tpmop.CheckEKType.Refuse("an EK with the attributes "+ek.Attributes.String(), want.String()+" set")
	}
	return nil
}

// The NV indexes of an EK's CA certificates (TCG EK Credential Profile 2.6, section
// 2.2.1.5).
const (
	firstEKChainIndex tpm2.TPMHandle = 0x01c00100
	lastEKChainIndex  tpm2.TPMHandle = 0x01c001ff
)

// ekChainOf reads the CA certificates that a TPM keeps for its EK certificates in the NV indexes
// 0x01C00100 to 0x01C001FF, and returns those above a leaf (DER), its issuer first and without the
// root. It trusts nothing: the control plane verifies.
func ekChainOf(ctx context.Context, h *tpmop.Handles, leaf []byte) ([][]byte, error) {
	cert, err := x509.ParseCertificate(leaf)
	if err != nil {
		return nil, &refusal.Error{Check: tpmcert.CheckCertificateEncoding, Got: "an EK certificate that does not parse", Err: err}
	}
	certs, err := readNVChain(ctx, h, firstEKChainIndex, lastEKChainIndex)
	if err != nil {
		return nil, err
	}
	return tpmcert.ChainAbove(cert, certs), nil
}

// readNVChain reads the certificates in the NV indexes from first to last, in order.
func readNVChain(ctx context.Context, h *tpmop.Handles, first, last tpm2.TPMHandle) ([]*x509.Certificate, error) {
	found, err := nvIndexes(ctx, h, first, last)
	if err != nil {
		return nil, err
	}
	var contents [][]byte
	size := 0
	for _, index := range found {
		content, err := tpmop.ReadNV(ctx, h, index)
		if err != nil {
			return nil, err
		}
		if size += len(content); size > der.MaxNVChain {
			return nil, &refusal.Error{Check: der.CheckSize, Got: "a chain in NV of more than 64 KiB", Want: "at most that"}
		}
		contents = append(contents, content)
	}
	return tpmcert.ParseEKChain(contents)
}

// nvIndexes lists the NV indexes from first to last that the TPM has, ascending. A TPM
// returns some at a time.
func nvIndexes(ctx context.Context, h *tpmop.Handles, first, last tpm2.TPMHandle) (found []tpm2.TPMHandle, err error) {
	for more := true; more && first <= last; {
		var list []tpm2.TPMHandle
		if list, more, err = h.List(ctx, first, uint32(last-first)+1); err != nil {
			return nil, err
		}
		more = more && len(list) != 0
		for _, index := range list {
			if index < first {
				return nil, fmt.Errorf("TPM2_GetCapability of the NV indexes: got 0x%08x, want them ascending from 0x%08x", uint32(index), uint32(first))
			}
			if index > last {
				return found, nil
			}
			found, first = append(found, index), index+1
		}
	}
	return found, nil
}

// makeCredential is TPM2_MakeCredential in software (TPM 2.0 Library, Part 1, 24): only the
// TPM that holds ek and an object with the Name akName can recover secret. The seed and, for
// an EC key, the ephemeral key come from random.
func makeCredential(random io.Reader, ek crypto.PublicKey, akName, secret []byte) (*attest.Credential, error) {
	area, err := ekArea(ek)
	if err != nil {
		return nil, err
	}
	key, err := tpm2.ImportEncapsulationKey(area)
	if err != nil {
		return nil, fmt.Errorf("credential: %w", err)
	}
	c := &attest.Credential{}
	if c.IDObject, c.EncryptedSecret, err = tpm2.CreateCredential(random, key, akName, secret); err != nil {
		return nil, fmt.Errorf("credential: %w", err)
	}
	return c, nil
}

// ekArea returns the public area with which the protection of a credential is computed: it
// has those parts of the EK's own that matter there, and they come from the table.
func ekArea(ek crypto.PublicKey) (*tpm2.TPMTPublic, error) {
	if _, err := tpmop.EKParametersOf(ek); err != nil {
		return nil, err
	}
	if k, ok := ek.(*rsa.PublicKey); ok {
		area := tpmop.EKTemplateRSA(k.N.BitLen(), tpmop.EKLow)
		area.Unique = tpm2.NewTPMUPublicID(tpm2.TPMAlgRSA, &tpm2.TPM2BPublicKeyRSA{Buffer: k.N.Bytes()})
		return area, nil
	}
	k := ek.(*ecdsa.PublicKey) // the table has no others
	point, err := k.Bytes()
	if err != nil {
		return nil, &refusal.Error{Check: statement.CheckPoint, Got: "an EK that is not on " + k.Params().Name, Err: err}
	}
	c, _ := tpmwire.CurveOfKey(k)
	area := tpmop.EKTemplateECC(c.ID, tpmop.EKLow)
	area.Unique = tpm2.NewTPMUPublicID(tpm2.TPMAlgECC, &tpm2.TPMSECCPoint{
		X: tpm2.TPM2BECCParameter{Buffer: point[1 : 1+c.Width]},
		Y: tpm2.TPM2BECCParameter{Buffer: point[1+c.Width:]},
	})
	return area, nil
}
