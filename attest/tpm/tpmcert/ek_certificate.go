package tpmcert

import (
	"bytes"
	"crypto"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"math"
	"math/big"
	"strconv"

	"golang.org/x/crypto/cryptobyte"
	"golang.org/x/crypto/cryptobyte/asn1"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/tpm/statement"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/der"
	"github.com/nodeattest/nodeattest/internal/message"
	"github.com/nodeattest/nodeattest/internal/roca"
	"github.com/nodeattest/nodeattest/oid"
	"github.com/nodeattest/nodeattest/refusal"
)

// maxEKCertificateSize bounds one EK certificate with everything around it in NV, in bytes.
// Real ones have 900 to 1600.
const maxEKCertificateSize = 8 << 10

// Checks of an EK certificate by itself.
const (
	// checkEKEncoding: an EK certificate has something around its DER that is not tolerated:
	// the TCG's header before it, or padding after it.
	checkEKEncoding refusal.Check = "ek-certificate-encoding"
	// checkEKKeyEncoding: the SubjectPublicKeyInfo of an EK is not canonical (rsaEncryption
	// with NULL; a named curve with an uncompressed point).
	checkEKKeyEncoding refusal.Check = "ek-key-encoding"
	// checkROCA: the modulus has the fingerprint of Infineon's flawed key generation
	// (CVE-2017-15361), which means that the private key can be computed.
	checkROCA refusal.Check = "ek-roca"
	// checkSpecification: the TPM specification attribute is not DER, is missing where the
	// profile requires it, or states a family other than 2.0.
	checkSpecification refusal.Check = "certificate-tpm-specification"
)

// EKEncoding says which encoding faults in EK certificates are tolerated. They are common and
// harmless. The zero value tolerates none.
type EKEncoding struct {
	// NVPadding allows bytes 0x00 or 0xff after the certificate: an NV index that is larger
	// than its content.
	NVPadding bool
	// TCGHeader allows the header of a TCG_PCCLIENT_STORED_CERT before the certificate: 10 01
	// 00, 16 bits of size, 10 02 (TCG PC Client Specific Implementation Specification for
	// Conventional BIOS 1.21, 7.3.2). Some leave out the last two bytes.
	TCGHeader bool
	// RSAESOAEPKey allows a SubjectPublicKeyInfo with the algorithm id-RSAES-OAEP (RFC 4055,
	// 4.1), as the TPM 1.2 credential profile required. It is read as the RSA key that it is,
	// and has the same digest as in any other encoding.
	RSAESOAEPKey bool
}

// check refuses the faults in used that are not tolerated.
func (tolerated EKEncoding) check(used EKEncoding) error {
	switch {
	case used.TCGHeader && !tolerated.TCGHeader:
		return checkEKEncoding.Refuse("the TCG's header in front of the certificate", "DER only, or the tolerance TCGHeader")
	case used.NVPadding && !tolerated.NVPadding:
		return checkEKEncoding.Refuse("padding after the certificate", "DER only, or the tolerance NVPadding")
	case used.RSAESOAEPKey && !tolerated.RSAESOAEPKey:
		return checkEKKeyEncoding.Refuse("an RSA key as id-RSAES-OAEP", "rsaEncryption, or the tolerance RSAESOAEPKey")
	}
	return nil
}

// EKCertificate is an EK certificate, parsed but not trusted: nothing is known about its
// issuer yet ([EKVerifier.Verify]).
type EKCertificate struct {
	// Certificate is the certificate as crypto/x509 parses it. Its PublicKey is nil if the
	// key is encoded as id-RSAES-OAEP. A critical subjectAltName has been removed from its
	// UnhandledCriticalExtensions, because it is handled here.
	Certificate *x509.Certificate
	// PublicKey is the EK: an *rsa.PublicKey or *ecdsa.PublicKey, whatever the
	// encoding.
	PublicKey crypto.PublicKey
	// Digest is the SHA-256 of the canonical SubjectPublicKeyInfo, the only thing that
	// identifies the EK.
	Digest [message.HashSize]byte
	// Directory is the TPM's manufacturer, model and version, empty if the certificate has no
	// TCG directory name.
	Directory DirectoryName
	// Specification is the TPM specification attribute, nil without one.
	Specification *TPMSpecification
	// Encoding says which encoding faults were found.
	Encoding EKEncoding

	leaf *certificate
	spki []byte // what Digest is over
}

// ekIdentityKind is the kind of identities that EKs have.
const ekIdentityKind = "ek"

// Identity returns the machine identity ek:sha256:<digest> of the key.
func (c *EKCertificate) Identity() attest.Identity { return digestIdentity(ekIdentityKind, c.Digest) }

// ParseEK parses an EK certificate as found in NV, in a file or in a message: DER, with nothing
// around it except as [EKEncoding] names. It tolerates all of these and records which it found: the
// issuer's profile grants them later. It does no public-key operation and trusts nothing. A refusal
// is a [*refusal.Error] with "message-size" (over 8 KiB), [CheckCertificateEncoding], the check
// "ek-key-encoding", "certificate-subject-alt-name", "certificate-tpm-specification", the check
// "tpm-key-strength" (not RSA of 2048 to 4096 bits with exponent 65537, P-256, P-384 or P-521) or
// the check "ek-roca".
func ParseEK(data []byte) (*EKCertificate, error) {
	if len(data) > maxEKCertificateSize {
		return nil, tooLarge(len(data), "bytes of EK certificate", maxEKCertificateSize)
	}
	der, err := der.TrimNVCertificate(data)
	if err != nil {
		return nil, &refusal.Error{Check: CheckCertificateEncoding, Got: "an EK certificate that is no DER", Err: err}
	}
	leaf, err := parseLeaf(der, "an EK certificate")
	if err != nil {
		return nil, err
	}
	cert := leaf.Certificate
	ek := &EKCertificate{Certificate: cert, PublicKey: cert.PublicKey, Directory: leaf.san.directory, leaf: leaf}
	start := bytes.Index(data, der)
	ek.Encoding.TCGHeader, ek.Encoding.NVPadding = start > 0, len(data) > start+len(der)
	if ek.Specification, err = parseSpecification(cert); err != nil {
		return nil, err
	}
	if ek.PublicKey == nil {
		if ek.PublicKey, err = oaepKey(cert.RawSubjectPublicKeyInfo); err != nil {
			return nil, err
		}
		ek.Encoding.RSAESOAEPKey = true
	}
	if err := checkEKStrength(ek.PublicKey); err != nil {
		return nil, err
	}
	if ek.spki, err = canonicalSPKI(cert, ek.PublicKey); err != nil {
		return nil, &refusal.Error{Check: checkEKKeyEncoding, Got: "a key without a canonical encoding", Err: err}
	}
	ek.Digest = sha256.Sum256(ek.spki)
	return ek, nil
}

// checkEKStrength refuses keys that are not acceptable as EKs.
func checkEKStrength(pub crypto.PublicKey) error {
	if key, ok := pub.(*rsa.PublicKey); ok && key != nil && roca.Vulnerable(key.N) {
		return checkROCA.Refuse("an RSA modulus made by Infineon's flawed key generation (CVE-2017-15361)",
			"an EK that cannot be computed from its public half")
	}
	return statement.CheckKeyStrength(pub)
}

// oaepKey parses a SubjectPublicKeyInfo with the algorithm id-RSAES-OAEP, whose key is an
// RSAPublicKey (RFC 4055, 4). The parameters may be absent, NULL or a SEQUENCE: no TPM would follow
// them.
func oaepKey(spki []byte) (*rsa.PublicKey, error) {
	in := cryptobyte.String(spki)
	var body, algorithm, parameters, bits, key cryptobyte.String
	var id oid.OID
	var tag asn1.Tag
	n, e := new(big.Int), int64(0)
	ok := in.ReadASN1(&body, asn1.SEQUENCE) && in.Empty() &&
		body.ReadASN1(&algorithm, asn1.SEQUENCE) && oid.Read(&algorithm, &id) && id == oid.RSAESOAEP &&
		(algorithm.Empty() || algorithm.ReadAnyASN1(&parameters, &tag) && algorithm.Empty() &&
			(tag == asn1.SEQUENCE || tag == asn1.NULL && parameters.Empty())) &&
		body.ReadASN1BitStringAsBytes((*[]byte)(&bits)) && body.Empty() &&
		bits.ReadASN1(&key, asn1.SEQUENCE) && bits.Empty() && key.ReadASN1Integer(n) && key.ReadASN1Integer(&e) &&
		key.Empty() && n.Sign() > 0 && e > 0 && e <= math.MaxInt32
	if !ok {
		return nil, checkEKKeyEncoding.Refuse("a SubjectPublicKeyInfo that cannot be read", "RSA, also as id-RSAES-OAEP, or ECC")
	}
	return &rsa.PublicKey{N: n, E: int(e)}, nil
}

// TPMSpecification is the attribute tPMSpecification of a certificate's
// subjectDirectoryAttributes (TCG EK Credential Profile 2.6, section 3.2.11): the
// specification to which the TPM was built, for example 2.0, level 0, revision 138.
type TPMSpecification struct {
	// Family is "2.0", or "1.2" for an older part.
	Family string
	// Level and Revision are not negative.
	Level, Revision int
}

// String returns the three values on one line.
func (s *TPMSpecification) String() string {
	return s.Family + " level " + strconv.Itoa(s.Level) + " revision " + strconv.Itoa(s.Revision)
}

// parseSpecification finds the attribute; other attributes are ignored.
func parseSpecification(cert *x509.Certificate) (*TPMSpecification, error) {
	e := extension(cert, oid.SubjectDirectoryAttributes)
	if e == nil {
		return nil, nil
	}
	var found *TPMSpecification
	in, attributes := cryptobyte.String(e.Value), cryptobyte.String(nil)
	ok := in.ReadASN1(&attributes, asn1.SEQUENCE) && in.Empty()
	for ok && !attributes.Empty() {
		var attribute, values cryptobyte.String
		var id oid.OID
		ok = attributes.ReadASN1(&attribute, asn1.SEQUENCE) && oid.Read(&attribute, &id) &&
			attribute.ReadASN1(&values, asn1.SET) && attribute.Empty()
		if ok && id == oid.TCGAtTPMSpecification {
			ok = found == nil
			found = &TPMSpecification{}
			ok = ok && found.read(values)
		}
	}
	if !ok {
		return nil, checkSpecification.Refuse("a TPM specification attribute that cannot be read",
			"one SEQUENCE { family, level, revision }")
	}
	return found, nil
}

func (s *TPMSpecification) read(values cryptobyte.String) bool {
	var body, family cryptobyte.String
	ok := values.ReadASN1(&body, asn1.SEQUENCE) && values.Empty() && body.ReadASN1(&family, asn1.UTF8String) &&
		body.ReadASN1Integer(&s.Level) && body.ReadASN1Integer(&s.Revision) && body.Empty()
	s.Family = string(family)
	return ok && s.Family != "" && len(s.Family) <= 16 && s.Level >= 0 && s.Revision >= 0
}

// parseEKPublic parses the EK that a node sends without a certificate: the canonical
// SubjectPublicKeyInfo and no other encoding of the key.
func parseEKPublic(spki []byte) (*EKCertificate, error) {
	if len(spki) > der.MaxPublicSize {
		return nil, tooLarge(len(spki), "bytes of EK", der.MaxPublicSize)
	}
	key, err := x509.ParsePKIXPublicKey(spki)
	if err != nil || !csr.IsCanonicalSPKI(spki) {
		return nil, &refusal.Error{Check: checkEKKeyEncoding, Got: "an EK that is not in its canonical encoding",
			Want: "a SubjectPublicKeyInfo with rsaEncryption and NULL, or a named curve and an uncompressed point", Err: err}
	}
	if err := checkEKStrength(key); err != nil {
		return nil, err
	}
	return &EKCertificate{PublicKey: key, Digest: sha256.Sum256(spki), spki: spki}, nil
}
