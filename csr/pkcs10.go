package csr

import (
	"bytes"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"errors"
	"strconv"

	"golang.org/x/crypto/cryptobyte"
	cryptobyteasn1 "golang.org/x/crypto/cryptobyte/asn1"

	"github.com/nodeattest/nodeattest/internal/der"
	"github.com/nodeattest/nodeattest/oid"
	"github.com/nodeattest/nodeattest/refusal"
)

// Sizes of requests.
const (
	// maxBundleSize is the length in bytes of the longest bundle that is read or
	// written. kube-apiserver's store refuses requests a little longer than this.
	maxBundleSize = 1 << 20
	// maxRequestJSONSize is the maximum number of bytes of JSON that [ParseServerObject]
	// reads: 4 MiB. kube-apiserver accepts bodies of up to 3 MiB, and etcd stores about 1.5
	// MiB, so every object that exists fits.
	maxRequestJSONSize = 4 << 20
	// maxSANs is the maximum number of DNS names and IP addresses, taken together, that a
	// serving request may ask for.
	maxSANs = 100
	// maxRequestSize is the length in bytes of the longest PKCS#10 request that
	// ParsePKCS10 reads.
	maxRequestSize = 64 << 10
	// maxElements is the maximum number of DER elements in it, and maxForeignElements in one
	// that may hold evidence. A client's has 35, a serving request with maxSANs 140.
	maxElements, maxForeignElements = 256, 4096
	// maxRSABits bounds the work of checking a signature: the time grows with the
	// square of the modulus.
	maxRSABits = 8192
)

// Rules of a PKCS#10 request's encoding (RFC 2986).
const (
	// checkRequestSize: a request has 1 to maxRequestSize bytes, and at most maxElements elements.
	checkRequestSize Check = "request-size"
	// checkRequestDER: the request is canonical DER of the right shape, with nothing
	// after it.
	checkRequestDER Check = "request-der"
	// checkRequestVersion: the version is 0, which means v1.
	checkRequestVersion Check = "request-version"
	// checkRequestSubject: the subject is a canonical Name.
	checkRequestSubject Check = "request-subject-encoding"
	// checkRequestKey: the public key is in its one encoding; see CanonicalSPKI. RSA moduli
	// have at most 8192 bits.
	checkRequestKey Check = "request-key-encoding"
	// checkRequestAttributes: the attributes are a canonical set of at most 16, one of each
	// type, each with a value; there is one list of requested extensions, and it is not
	// empty.
	checkRequestAttributes Check = "request-attributes"
	// checkRequestExtensions: every requested extension is canonical, there is one of each
	// kind, and there are at most 32. A subjectAltName is one list of names with nothing
	// after it.
	checkRequestExtensions Check = "request-extensions"
	// ruleSignatureAlgorithm: the algorithm is RSASSA-PKCS1-v1_5 or ECDSA with SHA-256,
	// SHA-384 or SHA-512, or Ed25519, matches the key, and is encoded byte for byte as RFC
	// 4055, RFC 5758 and RFC 8410 say.
	ruleSignatureAlgorithm Check = "request-signature-algorithm"
	// checkProviderID: a provider ID in the request is well formed and the only one.
	checkProviderID Check = "request-provider-id"
	// checkRequestX509: crypto/x509 reads the request.
	checkRequestX509 Check = "request-x509"
)

// PKCS10 is a certificate request, parsed. Its slices alias the bytes that were parsed; none
// may be changed. It is safe for concurrent use.
type PKCS10 struct {
	// Raw is the whole request as received.
	Raw []byte
	// Info is the CertificationRequestInfo as received, with tag and length: the bytes that the
	// request's signature covers.
	Info []byte
	// InfoHash is the SHA-256 of Info.
	InfoHash [32]byte
	// CSR is the request as crypto/x509 reads it.
	CSR *x509.CertificateRequest
	// subject has every attribute of the subject in order, whereas CSR.Subject merges them.
	subject []nameAttribute
	// ProviderID is the provider ID that the request claims; "" if it has none.
	ProviderID string
	// OtherAttributes are the types of all attributes except extensionRequest, in order. A
	// node's request has none; Attribute returns their values.
	OtherAttributes []oid.OID

	attributes []attribute
	sans       sans
}

// clone returns a copy in which every field can be set. Its slices and the key are shared.
func (p *PKCS10) clone() *PKCS10 {
	c, request := *p, *p.CSR
	c.CSR = &request
	return &c
}

// sans describes a subjectAltName extension.
type sans struct {
	present  bool
	critical bool
	other    []cryptobyteasn1.Tag // kinds that are neither DNS name nor IP address
}

// attribute is one attribute of a request: its type and the content of its SET of values.
type attribute struct {
	id     oid.OID
	values cryptobyte.String
}

// ParsePKCS10 reads a certificate request (RFC 2986) and refuses a request that is not in its one
// canonical encoding: see the Rules named Request, "request-signature-algorithm" and
// "request-provider-id". Attributes other than extensionRequest are kept for the caller to
// judge. It does not check the signature; [PKCS10.CheckSignature] does.
//
// The result aliases der. The error is a [*Error].
func ParsePKCS10(der []byte) (*PKCS10, error) {
	return parsePKCS10(der, maxElements, false)
}

// ParseForeignPKCS10 reads a request made by other software, for the evidence that one of
// its attributes holds: [PKCS10.Attribute] with oid.IDAAAttestation returns an
// AttestationBundle. It differs from [ParsePKCS10] in one respect: an RSA signature
// algorithm may lack its parameters, as in the sample of draft-ietf-lamps-csr-attestation
// (RFC 4055, 5 requires readers to accept this). The bytes that no signature covers are then
// not fixed, so a Policy reads requests with ParsePKCS10 only.
func ParseForeignPKCS10(der []byte) (*PKCS10, error) {
	return parsePKCS10(der, maxForeignElements, true)
}

func parsePKCS10(request []byte, elements int, foreign bool) (*PKCS10, error) {
	if len(request) == 0 || len(request) > maxRequestSize {
		return nil, &Error{Check: checkRequestSize, Got: strconv.Itoa(len(request)) + " bytes", Want: "1 to " + strconv.Itoa(maxRequestSize)}
	}
	info, algorithm, err := splitRequest(request)
	if err != nil {
		return nil, err
	}
	if _, err := der.CountElements("a request", request, elements); err != nil {
		return nil, &Error{Check: checkRequestSize, Got: "over " + strconv.Itoa(elements) + " elements", Want: "fewer", Err: err}
	}
	p := &PKCS10{Raw: request, Info: info, InfoHash: sha256.Sum256(info)}
	spki, err := p.readInfo(info)
	if err != nil {
		return nil, err
	}
	keyAlg, err := checkSPKI(spki)
	if err != nil {
		return nil, err
	}
	if err := checkSignatureAlgorithm(algorithm, keyAlg, foreign); err != nil {
		return nil, err
	}
	csr, err := x509.ParseCertificateRequest(request)
	if err != nil {
		return nil, &Error{Check: checkRequestX509, Got: "a request that does not parse", Err: err}
	}
	if key, ok := csr.PublicKey.(*rsa.PublicKey); ok && key.N.BitLen() > maxRSABits {
		return nil, &Error{Check: checkRequestKey, Got: strconv.Itoa(key.N.BitLen()) + " bits", Want: "at most " + strconv.Itoa(maxRSABits)}
	}
	p.CSR = csr
	if p.ProviderID, err = oid.ParseProviderID(csr.Extensions); err != nil && !errors.Is(err, oid.CheckProviderIDMissing) {
		return nil, &Error{Check: checkProviderID, Got: "a malformed provider ID", Err: err}
	}
	return p, nil
}

// CheckSignature verifies the request's signature under its own key, which shows that
// the requester had the private key. The error is a [*Error] with
// [CheckSignature].
func (p *PKCS10) CheckSignature() error {
	if p == nil || p.CSR == nil {
		return &Error{Check: CheckSignature, Got: "no request"}
	}
	if err := p.CSR.CheckSignature(); err != nil {
		return &Error{Check: CheckSignature, Got: "a signature that does not verify", Err: err}
	}
	return nil
}

// Attribute returns the value of the attribute id as received, with tag and length. It
// returns false if the request has no such attribute, or one with several values.
func (p *PKCS10) Attribute(id oid.OID) ([]byte, bool) {
	if p == nil {
		return nil, false
	}
	for _, a := range p.attributes {
		var value cryptobyte.String
		var tag cryptobyteasn1.Tag
		if a.id == id && a.values.ReadAnyASN1Element(&value, &tag) && a.values.Empty() {
			return value, true
		}
	}
	return nil, false
}

// splitRequest reads the outer shape of a request: SEQUENCE { SEQUENCE, SEQUENCE, BIT STRING
// of whole bytes } and nothing after it. The results include tag and length.
func splitRequest(der []byte) (info, algorithm cryptobyte.String, err error) {
	input := cryptobyte.String(der)
	var request cryptobyte.String
	var signature []byte
	if !input.ReadASN1(&request, cryptobyteasn1.SEQUENCE) || !input.Empty() ||
		!request.ReadASN1Element(&info, cryptobyteasn1.SEQUENCE) ||
		!request.ReadASN1Element(&algorithm, cryptobyteasn1.SEQUENCE) ||
		!request.ReadASN1BitStringAsBytes(&signature) || !request.Empty() || len(signature) == 0 {
		return nil, nil, &Error{Check: checkRequestDER, Want: "one PKCS#10 request in DER",
			Got: refusal.Hex(der[:min(len(der), 16)]) + " at the beginning of " + strconv.Itoa(len(der)) + " bytes"}
	}
	return info, algorithm, nil
}

// versionV1 is the version of every request.
var versionV1 = []byte{2, 1, 0}

// readInfo reads a CertificationRequestInfo and returns its public key, with tag and
// length.
func (p *PKCS10) readInfo(info cryptobyte.String) (cryptobyte.String, error) {
	var content, version, subject, spki, attributes cryptobyte.String
	if !info.ReadASN1(&content, cryptobyteasn1.SEQUENCE) ||
		!content.ReadASN1Element(&version, cryptobyteasn1.INTEGER) ||
		!content.ReadASN1(&subject, cryptobyteasn1.SEQUENCE) ||
		!content.ReadASN1Element(&spki, cryptobyteasn1.SEQUENCE) ||
		!content.ReadASN1(&attributes, cryptobyteasn1.Tag(0).Constructed().ContextSpecific()) ||
		!content.Empty() {
		return nil, &Error{Check: checkRequestDER, Got: "a malformed CertificationRequestInfo", Want: "version, subject, key and attributes"}
	}
	if !bytes.Equal(version, versionV1) {
		return nil, &Error{Check: checkRequestVersion, Got: "version " + refusal.Hex(version), Want: "version " + refusal.Hex(versionV1) + ", which means v1"}
	}
	var ok bool
	if p.subject, ok = readName(subject); !ok {
		return nil, checkRequestSubject.Refuse("a malformed name", "a canonical Name")
	}
	return spki, p.readAttributes(attributes)
}
