package azure

import (
	"bytes"
	"math/big"
	"strconv"

	"golang.org/x/crypto/cryptobyte"
	"golang.org/x/crypto/cryptobyte/asn1"

	"github.com/nodeattest/nodeattest/refusal"
)

// maxDocumentSize bounds a document, in bytes of DER. Real ones are 2.6 to 3.2 KB long.
const maxDocumentSize = 16 << 10

// Checks on the PKCS#7 around a document.
const (
	// checkEncoding: it does not have the one shape of PKCS#7 that Azure's documents have, in
	// DER, or the content is not their JSON.
	checkEncoding refusal.Check = "azure-document-encoding"
	// checkSigners: it does not have exactly one certificate, one signer and one digest
	// algorithm, or the certificate is not the signer's.
	checkSigners refusal.Check = "azure-document-signers"
	// checkAttributes: the signer has attributes. Azure signs the content itself; with
	// attributes, something other than the content would be signed.
	checkAttributes refusal.Check = "azure-document-attributes"
	// checkAlgorithm: it is not signed with RSA (PKCS#1 v1.5) and SHA-256.
	checkAlgorithm refusal.Check = "azure-document-algorithm"
)

// Object identifiers of RFC 5652 and RFC 8017, as content bytes.
var (
	oidSignedData    = []byte{0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x07, 0x02} // 1.2.840.113549.1.7.2
	oidData          = []byte{0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x07, 0x01} // 1.2.840.113549.1.7.1
	oidRSA           = []byte{0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01} // 1.2.840.113549.1.1.1
	oidSHA256WithRSA = []byte{0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x0b} // 1.2.840.113549.1.1.11
	oidSHA256        = []byte{0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02, 0x01} // 2.16.840.1.101.3.4.2.1
	context0         = asn1.Tag(0).ContextSpecific().Constructed()
	context1         = asn1.Tag(1).ContextSpecific().Constructed()
)

// signedData has the parts of a document's PKCS#7, none of them verified.
type signedData struct {
	content     []byte   // which is signed
	certificate []byte   // the signer's, DER
	issuer      []byte   // of the signer's certificate: a Name, DER
	serial      *big.Int // of the signer's certificate
	signature   []byte
}

// readSignedData reads the one shape that Azure's documents have: RFC 5652, 5.1, in DER,
// version 1, one digest algorithm, the content inside, one certificate, no revocation lists,
// one signer by issuer and serial number, and no attributes. In real documents the digest
// algorithm is sha256WithRSAEncryption, which is not one; SHA-256 is accepted too.
func readSignedData(der []byte) (*signedData, error) {
	if len(der) > maxDocumentSize {
		return nil, checkEncoding.Refuse(strconv.Itoa(len(der))+" bytes", "at most "+strconv.Itoa(maxDocumentSize))
	}
	in := cryptobyte.String(der)
	var outer, wrapped, body cryptobyte.String
	if !in.ReadASN1(&outer, asn1.SEQUENCE) || !in.Empty() || !readOID(&outer, oidSignedData) ||
		!outer.ReadASN1(&wrapped, context0) || !outer.Empty() || !wrapped.ReadASN1(&body, asn1.SEQUENCE) || !wrapped.Empty() {
		return nil, bad("frame", "a ContentInfo with signedData, in DER, and nothing behind it")
	}
	if !readVersion1(&body) {
		return nil, bad("version", "1")
	}
	d := &signedData{}
	var digests, digest cryptobyte.String
	if !body.ReadASN1(&digests, asn1.SET) {
		return nil, bad("digestAlgorithms", "a SET")
	}
	if !digests.ReadASN1Element(&digest, asn1.SEQUENCE) || !digests.Empty() {
		return nil, checkSigners.Refuse("no digest algorithm, or several", "one")
	}
	if err := d.readContent(&body); err != nil {
		return nil, err
	}
	if err := d.readCertificate(&body); err != nil {
		return nil, err
	}
	var signers, signer cryptobyte.String
	if !body.ReadASN1(&signers, asn1.SET) || !body.Empty() {
		return nil, bad("signerInfos", "a SET, no crls before and nothing behind it")
	}
	if !signers.ReadASN1(&signer, asn1.SEQUENCE) || !signers.Empty() {
		return nil, checkSigners.Refuse("no signer, or several", "one")
	}
	return d, d.readSigner(&signer, digest)
}

// readContent reads the EncapsulatedContentInfo.
func (d *signedData) readContent(body *cryptobyte.String) error {
	var info, wrapped, content cryptobyte.String
	if !body.ReadASN1(&info, asn1.SEQUENCE) || !readOID(&info, oidData) ||
		!info.ReadASN1(&wrapped, context0) || !info.Empty() || !wrapped.ReadASN1(&content, asn1.OCTET_STRING) || !wrapped.Empty() {
		return bad("encapContentInfo", "data in an OCTET STRING")
	}
	d.content = content
	return nil
}

// readCertificate reads the one certificate.
func (d *signedData) readCertificate(body *cryptobyte.String) error {
	var list, certificate cryptobyte.String
	if !body.ReadASN1(&list, context0) {
		return checkSigners.Refuse("no certificates", "one")
	}
	if !list.ReadASN1Element(&certificate, asn1.SEQUENCE) || !list.Empty() {
		return checkSigners.Refuse("no certificate, several, or something else", "one")
	}
	d.certificate = certificate
	return nil
}

// readSigner reads the SignerInfo.
func (d *signedData) readSigner(signer *cryptobyte.String, digest []byte) error {
	var id, name, digestAgain, algorithm, signature cryptobyte.String
	d.serial = new(big.Int)
	if !readVersion1(signer) {
		return bad("signer version", "1, by issuer and serial number")
	}
	if !signer.ReadASN1(&id, asn1.SEQUENCE) || !id.ReadASN1Element(&name, asn1.SEQUENCE) || !id.ReadASN1Integer(d.serial) || !id.Empty() {
		return bad("signer identifier", "an issuer and a serial number")
	}
	if !signer.ReadASN1Element(&digestAgain, asn1.SEQUENCE) {
		return bad("signer digestAlgorithm", "a SEQUENCE")
	}
	if !bytes.Equal(digestAgain, digest) || !isAlgorithm(digest, oidSHA256WithRSA) && !isAlgorithm(digest, oidSHA256) {
		return checkAlgorithm.Refuse("digest algorithms "+refusal.Hex(digest)+" and "+refusal.Hex(digestAgain), "sha256WithRSAEncryption or SHA-256, twice the same")
	}
	if signer.PeekASN1Tag(context0) {
		return checkAttributes.Refuse("signed attributes", "none")
	}
	if !signer.ReadASN1Element(&algorithm, asn1.SEQUENCE) {
		return bad("signatureAlgorithm", "a SEQUENCE")
	}
	if !isAlgorithm(algorithm, oidRSA) && !isAlgorithm(algorithm, oidSHA256WithRSA) {
		return checkAlgorithm.Refuse("signature algorithm "+refusal.Hex(algorithm), "rsaEncryption")
	}
	if !signer.ReadASN1(&signature, asn1.OCTET_STRING) {
		return bad("signature", "an OCTET STRING")
	}
	if signer.PeekASN1Tag(context1) {
		return checkAttributes.Refuse("unsigned attributes", "none")
	}
	if !signer.Empty() {
		return bad("signer", "nothing behind the signature")
	}
	d.issuer, d.signature = name, signature
	return nil
}

// readOID reads an OBJECT IDENTIFIER with these content bytes.
func readOID(s *cryptobyte.String, want []byte) bool {
	var id cryptobyte.String
	return s.ReadASN1(&id, asn1.OBJECT_IDENTIFIER) && bytes.Equal(id, want)
}

// readVersion1 reads INTEGER (1).
func readVersion1(s *cryptobyte.String) bool {
	var v int64
	return s.ReadASN1Integer(&v) && v == 1
}

// isAlgorithm reports whether an element is an AlgorithmIdentifier with NULL parameters.
func isAlgorithm(element cryptobyte.String, id []byte) bool {
	var body, null cryptobyte.String
	return element.ReadASN1(&body, asn1.SEQUENCE) && readOID(&body, id) && body.ReadASN1(&null, asn1.NULL) && null.Empty() && body.Empty()
}

func bad(field, want string) error {
	return checkEncoding.Refuse("a bad "+field, want)
}
