package awsid

import (
	"bytes"
	"crypto/sha256"
	"math/big"
	"strconv"
	"time"

	"golang.org/x/crypto/cryptobyte"
	"golang.org/x/crypto/cryptobyte/asn1"

	"github.com/nodeattest/nodeattest/refusal"
)

// Object identifiers of PKCS #7 and its contents, with tag and length (RFC 5652, RFC 5754, RFC
// 6211).
const (
	oidData                = "\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x07\x01"
	oidSignedData          = "\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x07\x02"
	oidContentType         = "\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x09\x03"
	oidMessageDigest       = "\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x09\x04"
	oidSigningTime         = "\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x09\x05"
	oidAlgorithmProtection = "\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x09\x34"

	// Complete AlgorithmIdentifiers: SHA-256 and sha256WithRSAEncryption, with NULL.
	algorithmSHA256 = "\x30\x0d\x06\x09\x60\x86\x48\x01\x65\x03\x04\x02\x01\x05\x00"
	algorithmRSA    = "\x30" + bodyRSA
	bodyRSA         = "\x0d\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x01\x0b\x05\x00"
	// The value of CMSAlgorithmProtection: SHA-256, and sha256WithRSAEncryption under
	// the implicit tag [1].
	protection = "\x30\x1e" + algorithmSHA256 + "\xa1" + bodyRSA
)

// signed is a SignedData as it was sent.
type signed struct {
	content    []byte
	issuer     []byte // a Name, DER
	serial     *big.Int
	attributes []byte // a SET OF, as it was signed
	signature  []byte

	signingTime time.Time
}

// parse reads the one shape of a SignedData that AWS sends:
//
//	30 80 OID signedData a0 80
//	   30 80 INTEGER 1, SET { SHA-256 }
//	      30 80 OID data a0 80
//	         24 80 OCTET STRING... 00 00
//	      00 00 00 00
//	      SET { SignerInfo }            -- no certificates, no revocation lists
//	   00 00
//	00 00 00 00
//
// Elements of indefinite length (RFC 5652 calls it BER) have one in all documents;
// everything else is DER.
func parse(data []byte) (*signed, error) {
	in := cryptobyte.String(data)
	if !skip(&in, "\x30\x80"+oidSignedData+"\xa0\x80\x30\x80\x02\x01\x01") {
		return nil, malformed("the frame of a SignedData")
	}
	var algorithms cryptobyte.String
	switch ok := in.ReadASN1(&algorithms, asn1.SET); {
	case !ok:
		return nil, malformed("digestAlgorithms")
	case string(algorithms) != algorithmSHA256:
		return nil, checkAlgorithm.Refuse("digest algorithms "+refusal.Hex(algorithms), "SHA-256, as /rsa2048 has it")
	}
	s := &signed{}
	if !skip(&in, "\x30\x80"+oidData+"\xa0\x80\x24\x80") || !readChunks(&in, &s.content) || !skip(&in, "\x00\x00\x00\x00") {
		return nil, malformed("the document")
	}
	var signers, signer cryptobyte.String
	if !in.ReadASN1(&signers, asn1.SET) || !signers.ReadASN1(&signer, asn1.SEQUENCE) || !signers.Empty() {
		return nil, malformed("one signer, and no certificate")
	}
	if string(in) != "\x00\x00\x00\x00\x00\x00" {
		return nil, malformed("the end")
	}
	if err := s.readSigner(signer); err != nil {
		return nil, err
	}
	return s, nil
}

func malformed(want string) error { return checkEncoding.Refuse("another encoding", want) }

// skip passes over exactly these bytes.
func skip(in *cryptobyte.String, want string) bool {
	var got []byte
	return in.ReadBytes(&got, len(want)) && string(got) == want
}

// readChunks reads the parts of an OCTET STRING of indefinite length, none of them empty, up
// to its end.
func readChunks(in *cryptobyte.String, content *[]byte) bool {
	for {
		if bytes.HasPrefix(*in, []byte{0, 0}) {
			return in.Skip(2) && len(*content) > 0
		}
		var chunk cryptobyte.String
		if !in.ReadASN1(&chunk, asn1.OCTET_STRING) || len(chunk) == 0 {
			return false
		}
		*content = append(*content, chunk...)
	}
}

// readSigner reads the one SignerInfo (RFC 5652, section 5.3), version 1: with signed
// attributes and no unsigned ones.
func (s *signed) readSigner(in cryptobyte.String) error {
	var id, issuer, set cryptobyte.String
	s.serial = new(big.Int)
	if !skip(&in, "\x02\x01\x01") || !in.ReadASN1(&id, asn1.SEQUENCE) || !id.ReadASN1Element(&issuer, asn1.SEQUENCE) || !id.ReadASN1Integer(s.serial) || !id.Empty() {
		return malformed("a signer by issuer and serial number")
	}
	s.issuer = issuer
	if !skip(&in, algorithmSHA256) {
		return checkAlgorithm.Refuse("another digest algorithm", "SHA-256")
	}
	signedAttributes := asn1.Tag(0).ContextSpecific().Constructed()
	if !in.PeekASN1Tag(signedAttributes) {
		return checkAttributes.Refuse("no signed attributes", "some")
	}
	before := in
	if !in.ReadASN1(&set, signedAttributes) {
		return malformed("signed attributes")
	}
	s.attributes = append([]byte{byte(asn1.SET)}, before[1:len(before)-len(in)]...)
	if !skip(&in, algorithmRSA) {
		return checkAlgorithm.Refuse("another signature algorithm", "sha256WithRSAEncryption")
	}
	if !in.ReadASN1((*cryptobyte.String)(&s.signature), asn1.OCTET_STRING) || !in.Empty() {
		return malformed("a signature, and no unsigned attributes")
	}
	return s.readAttributes(set)
}

// maxAttributes bounds the signed attributes, each of which costs a little. AWS has four.
const maxAttributes = 16

// readAttributes reads the signed attributes (RFC 5652, section 11), each once and in DER
// order: the content type, the digest and the signing time must be present. Others are not
// examined.
func (s *signed) readAttributes(set cryptobyte.String) error {
	values := map[string]cryptobyte.String{}
	for last := cryptobyte.String(nil); !set.Empty(); {
		var body, name, value cryptobyte.String
		before := set
		if !set.ReadASN1(&body, asn1.SEQUENCE) || !body.ReadASN1Element(&name, asn1.OBJECT_IDENTIFIER) || !body.ReadASN1(&value, asn1.SET) || !body.Empty() {
			return malformed("a signed attribute")
		}
		attribute := before[:len(before)-len(set)]
		if _, twice := values[string(name)]; twice || bytes.Compare(last, attribute) >= 0 {
			return checkAttributes.Refuse("an attribute twice, or out of order", "each once, in the order of DER")
		}
		if len(values) == maxAttributes {
			return checkAttributes.Refuse("more attributes", "at most "+strconv.Itoa(maxAttributes))
		}
		values[string(name)], last = value, attribute
	}
	digest := sha256.Sum256(s.content)
	at := values[oidSigningTime]
	switch p, protected := values[oidAlgorithmProtection]; {
	case string(values[oidContentType]) != oidData:
		return checkAttributes.Refuse("contentType "+refusal.Hex(values[oidContentType]), "that of data")
	case protected && string(p) != protection:
		return checkAttributes.Refuse("the algorithms "+refusal.Hex(p), "those of the signature")
	case !at.ReadASN1UTCTime(&s.signingTime) || !at.Empty():
		return checkAttributes.Refuse("signingTime "+refusal.Hex(values[oidSigningTime]), "a UTCTime")
	case string(values[oidMessageDigest]) != "\x04\x20"+string(digest[:]):
		return checkDigest.Refuse("messageDigest "+refusal.Hex(values[oidMessageDigest]), "that of the document, "+refusal.Hex(digest[:]))
	}
	return nil
}
