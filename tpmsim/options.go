package tpmsim

import (
	"time"

	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/oid"
)

// Options describes a TPM. Each zero field is a sensible default: a random TPM with its
// own CA, both EK certificates and an RSA AK with a certificate in the TCG's style.
type Options struct {
	// Seed makes the in-process simulator's hierarchy seeds (and with them every primary
	// key: EKs, AKs) and, unless CA is set, the CA's keys a function of these bytes. nil
	// means random ones. The following remain random in any case: keys made by TPM2_Create,
	// nonces, ECDSA and RSAPSS signatures by the TPM, and the obfuscation of clock values.
	// Certificates are the same byte for byte if Now gives the same time. swtpm cannot be
	// seeded: [Swtpm] refuses it.
	Seed []byte

	// CA issues the certificates. nil means a new one.
	CA *CA

	// EKs are the EKs to certify: RSA2048 and P256 from the templates of the low range (L-1, L-2),
	// P384 and RSA3072 from the high range's (H-3, H-6). RSA3072 requires swtpm: the simulator has
	// no such keys. nil means RSA2048 and P256; empty but not nil means none. The certificates are
	// in NV where the TCG puts them: 0x01c00002 (RSA2048), 0x01c0000a (P256), 0x01c00016 (P384),
	// 0x01c0001c (RSA3072).
	EKs []Algorithm

	// PersistEKs also makes the EKs persistent, as many manufacturers and operating systems
	// do: RSA2048 at 0x81010001, P256 at 0x81010002, P384 at 0x81010016, RSA3072 at 0x8101001c.
	PersistEKs bool

	// AKs are the AKs whose templates and certificates go to NV. nil means one, RSA2048;
	// empty but not nil means none.
	AKs []AK

	// Instance is the Google Compute Engine machine that AK certificates name. If it is
	// set, they are in Google's newer style unless an AK says otherwise.
	Instance *oid.GCEInstance

	// OtherName is the machine identity that the SAN of AK certificates in the TCG's style
	// carries in addition to the directory name. nil means none.
	OtherName *OtherName

	// Device is the machine that AK certificates name in the style of a manufacturer: if it
	// is set, they are in StyleOEM unless an AK says otherwise.
	Device *Device

	// Now is the clock of the CA that is made if CA is nil. nil means time.Now.
	Now func() time.Time
}

// AK is an attestation key to provision: a restricted signing key with the attributes
// 0x50072 (fixedTPM, fixedParent, sensitiveDataOrigin, userWithAuth, restricted, sign).
// The zero value is the RSA one that a Google Compute Engine machine has.
type AK struct {
	// Algorithm is the algorithm and signature scheme. Zero means RSA2048.
	Algorithm Algorithm

	// Template, if set, is the AK's: Algorithm is then only the name by which
	// [TPM.AKPublic] finds it, and no template goes to NV.
	Template *tpm2.TPMTPublic

	// Handle is where the AK is made persistent, as manufacturers do with theirs. Zero means
	// that it is not.
	Handle tpm2.TPMHandle

	// Chain puts the certificate of the CA that issued the AK's certificate in front of the
	// latter in NV, as manufacturers do.
	Chain bool

	// TemplateIndex and CertificateIndex are where template and certificate go in NV. Zero
	// means Google Compute Engine's: 0x01c10001 and 0x01c10000 for an RSA key, 0x01c10003 and
	// 0x01c10002 for an ECC key.
	TemplateIndex    tpm2.TPMHandle
	CertificateIndex tpm2.TPMHandle

	// NonceIndex is the index of the nonce that must be filled into the template's unique
	// field: the first bytes of the RSA modulus or of the ECC X coordinate, followed by
	// zeros up to the full width (EK Credential Profile 2.6, section 2.2.2). The nonce is 32
	// bytes derived from the index. Zero means no nonce. The template in NV has zeros there.
	NonceIndex tpm2.TPMHandle
}

// akCertificate returns the options for the certificates of AKs.
func (o *Options) akCertificate() CertificateOptions {
	if o.Instance != nil {
		return CertificateOptions{Style: StyleGoogle, Instance: o.Instance}
	}
	if o.Device != nil {
		return CertificateOptions{Style: StyleOEM, Device: o.Device}
	}
	return CertificateOptions{Style: StyleTCG, OtherName: o.OtherName}
}
