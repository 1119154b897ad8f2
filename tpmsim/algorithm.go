package tpmsim

import (
	"cmp"
	"fmt"

	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/refusal"
)

// Algorithm is the kind of a key that this package makes. The zero value means the
// default of the place where it is used.
type Algorithm int

// The algorithms. As an AK, a key signs with the scheme and hash named here; for an EK,
// only the size or curve matters.
const (
	RSA2048 Algorithm = iota + 1 // RSA, 2048 bits; as an AK RSASSA with SHA-256
	P256                         // NIST P-256; as an AK ECDSA with SHA-256
	P384                         // NIST P-384; as an AK ECDSA with SHA-384
	RSA3072                      // RSA, 3072 bits; as an AK RSASSA with SHA-256; swtpm only: the simulator refuses it
)

// algorithm holds the properties of a key that its algorithm determines.
type algorithm struct {
	name string
	// curve is 0 for RSA. width is that of the modulus or of a coordinate, in bytes.
	curve tpm2.TPMECCCurve
	width int
	hash  tpm2.TPMAlgID // of an AK's signatures
	high  bool          // the EK is from the high range
	// The NV index of the EK's certificate (TCG EK Credential Profile 2.6, section 2.2.2), and
	// where the EK is made persistent: from the high range, where swtpm_setup puts it.
	ekCertificate, ekHandle tpm2.TPMHandle
	// Google Compute Engine's NV indexes for an AK.
	akTemplate, akCertificate tpm2.TPMHandle
}

var algorithms = map[Algorithm]algorithm{
	RSA2048: {"RSA2048", 0, 256, tpm2.TPMAlgSHA256, false, 0x01c00002, 0x81010001, 0x01c10001, 0x01c10000},
	RSA3072: {"RSA3072", 0, 384, tpm2.TPMAlgSHA256, true, 0x01c0001c, 0x8101001c, 0x01c10001, 0x01c10000},
	P256:    {"P256", tpm2.TPMECCNistP256, 32, tpm2.TPMAlgSHA256, false, 0x01c0000a, 0x81010002, 0x01c10003, 0x01c10002},
	P384:    {"P384", tpm2.TPMECCNistP384, 48, tpm2.TPMAlgSHA384, true, 0x01c00016, 0x81010016, 0x01c10003, 0x01c10002},
}

// String returns the algorithm's Go name.
func (a Algorithm) String() string {
	return cmp.Or(algorithms[a].name, fmt.Sprintf("Algorithm(%d)", int(a)))
}

func (a Algorithm) look() (*algorithm, error) {
	k, ok := algorithms[a]
	if !ok {
		return nil, fmt.Errorf("tpmsim: %w: no key of %v", refusal.CheckConfig, a)
	}
	return &k, nil
}

// newAK returns the template of a restricted signing key as in Google Compute Engine's
// vTPM: attributes 0x50072, no policy.
func (k *algorithm) newAK(unique []byte) *tpm2.TPMTPublic {
	return k.area(tpm2.TPMTPublic{
		NameAlg: tpm2.TPMAlgSHA256,
		ObjectAttributes: tpm2.TPMAObject{
			FixedTPM: true, FixedParent: true, SensitiveDataOrigin: true,
			UserWithAuth: true, Restricted: true, SignEncrypt: true,
		},
	}, tpm2.TPMTSymDefObject{}, unique)
}

// ekPolicyB384 is the policy of EKs from the high range, with SHA-384: TPM2_PolicyOR of
// TPM2_PolicySecret(TPM_RH_ENDORSEMENT), which is the policy of the low range, and a policy
// in NV (TCG EK Credential Profile 2.6, annex B.6).
const ekPolicyB384 = "\xb2\x6e\x7d\x28\xd1\x1a\x50\xbc\x53\xd8\x82\xbc\xf5\xfd\x3a\x1a" +
	"\x07\x41\x48\xbb\x35\xd3\xb4\xe4\xcb\x1c\x0a\xd9\xbd\xe4\x19\xca" +
	"\xcb\x47\xba\x09\x69\x96\x46\x15\x0f\x9f\xc0\x00\xf3\xf8\x0e\x12"

// newEK returns template L-1 (RSA2048) or L-2 (P256), with attributes 0x300b2,
// AES-128-CFB and a unique field of zeros, or H-3 (P384) or H-6 (RSA3072), with
// 0x300f2, SHA-384, AES-256-CFB and an empty unique field (annex B.3 and B.4).
func (k *algorithm) newEK() *tpm2.TPMTPublic {
	t, bits, unique := tpm2.RSAEKTemplate, tpm2.TPMKeyBits(128), make([]byte, k.width)
	if k.high {
		t.NameAlg, t.AuthPolicy.Buffer, t.ObjectAttributes.UserWithAuth = tpm2.TPMAlgSHA384, []byte(ekPolicyB384), true
		bits, unique = 256, nil
	}
	return k.area(t, tpm2.TPMTSymDefObject{
		Algorithm: tpm2.TPMAlgAES,
		KeyBits:   tpm2.NewTPMUSymKeyBits(tpm2.TPMAlgAES, bits),
		Mode:      tpm2.NewTPMUSymMode(tpm2.TPMAlgAES, tpm2.TPMAlgCFB),
	}, unique)
}

// area gives a public area its key's parameters: with a cipher or, without one, with a signature
// scheme. unique is the RSA modulus or the X coordinate; Y is zeros of that length.
func (k *algorithm) area(t tpm2.TPMTPublic, cipher tpm2.TPMTSymDefObject, unique []byte) *tpm2.TPMTPublic {
	signs := cipher.Algorithm == 0
	if k.curve == 0 {
		p := &tpm2.TPMSRSAParms{Symmetric: cipher, KeyBits: tpm2.TPMKeyBits(8 * k.width)}
		if signs {
			p.Scheme.Scheme = tpm2.TPMAlgRSASSA
			p.Scheme.Details = tpm2.NewTPMUAsymScheme(tpm2.TPMAlgRSASSA, &tpm2.TPMSSigSchemeRSASSA{HashAlg: k.hash})
		}
		t.Type, t.Parameters = tpm2.TPMAlgRSA, tpm2.NewTPMUPublicParms(tpm2.TPMAlgRSA, p)
		t.Unique = tpm2.NewTPMUPublicID(tpm2.TPMAlgRSA, &tpm2.TPM2BPublicKeyRSA{Buffer: unique})
		return &t
	}
	p := &tpm2.TPMSECCParms{Symmetric: cipher, CurveID: k.curve}
	if signs {
		p.Scheme.Scheme = tpm2.TPMAlgECDSA
		p.Scheme.Details = tpm2.NewTPMUAsymScheme(tpm2.TPMAlgECDSA, &tpm2.TPMSSigSchemeECDSA{HashAlg: k.hash})
	}
	t.Type, t.Parameters = tpm2.TPMAlgECC, tpm2.NewTPMUPublicParms(tpm2.TPMAlgECC, p)
	t.Unique = tpm2.NewTPMUPublicID(tpm2.TPMAlgECC, &tpm2.TPMSECCPoint{
		X: tpm2.TPM2BECCParameter{Buffer: unique},
		Y: tpm2.TPM2BECCParameter{Buffer: make([]byte, len(unique))},
	})
	return &t
}
