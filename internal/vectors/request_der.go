package main

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/x509/pkix"
	"encoding/asn1"
	"math/big"

	"github.com/nodeattest/nodeattest/oid"
)

// ders are attacks on the encoding of the PKCS#10 request. Where they change what
// is signed, the signature is right for the changed bytes.
func (w *world) ders() {
	w.addRequests(w.bootstrapAsks, infoAttacks())
	w.addRequests(w.bootstrapAsks, w.keyEncodings())
	w.addRequests(w.bootstrapAsks, extensionEncodings())
}

// info changes the CertificationRequestInfo under the signature.
func info(how func([]byte) []byte) func(*asked) { return func(a *asked) { a.onInfo = how } }

// infoAttacks change the frame.
func infoAttacks() []requestAttack {
	whole := func(how func([]byte) []byte) func(*asked) { return func(a *asked) { a.raw = how } }
	return []requestAttack{
		{name: "request-with-bytes-behind", what: "A byte stands behind the PKCS#10 request, in its block.", expect: "request-der", change: whole(behind(0))},
		{name: "request-with-a-field-behind", what: "A fourth element stands in the PKCS#10 request.", expect: "request-der", change: whole(appended(5, 0))},
		{name: "request-with-indefinite-length", what: "The request has the indefinite length of BER.", expect: "request-der", change: whole(indefinite)},
		{name: "request-with-long-length", what: "The request's length has leading zero bytes, as BER allows.", expect: "request-der", change: whole(longLength)},
		{name: "request-with-huge-length", what: "The request says that it is 4 GiB long.", expect: "request-der", change: whole(hugeLength)},
		{name: "request-truncated", what: "The request lacks its last byte.", expect: "request-der", change: whole(func(b []byte) []byte { return b[:len(b)-1] })},
		{name: "request-empty-sequence", what: "The request is an empty SEQUENCE.", expect: "request-der", change: whole(with(0x30, 0))},
		{name: "request-signature-with-unused-bits", what: "The signature's BIT STRING says that it has unused bits.", expect: "request-der",
			change: whole(replaced(2, func(b []byte) []byte {
				_, header := content(b)
				b[header] = 1
				return b
			}))},
		{name: "info-with-long-length", what: "The length of the CertificationRequestInfo has leading zero bytes.", expect: "request-der", change: info(longLength)},
		{name: "info-with-a-field-behind", what: "A field stands behind the attributes.", expect: "request-der", change: info(appended(5, 0))},
		{name: "attributes-missing", what: "The attributes are left out, which RFC 2986 does not allow.", expect: "request-der",
			change: info(edited(func(e [][]byte) [][]byte { return e[:3] }))},
		{name: "request-version", what: "The request's version is 1, which would be v2.", expect: "request-version", change: info(replaced(0, with(2, 1, 1)))},
		{name: "request-version-padded", what: "The version is 0 in two bytes.", expect: "request-version", change: info(replaced(0, with(2, 2, 0, 0)))},
		{name: "subject-empty-rdn", what: "The subject has an RDN without attributes.", expect: "request-subject-encoding",
			change: func(a *asked) { a.subject = append(a.subject, rdn{}) }},
		{name: "subject-rdn-out-of-order", what: "The attributes of one RDN are not in the order of DER.", expect: "request-subject-encoding",
			change: func(a *asked) {
				a.subject = []rdn{{{oid.Organization, 12, "system:nodes"}, {oid.CommonName, 12, "system:node:" + nodeName}}}
				a.subject[0][0], a.subject[0][1] = a.subject[0][1], a.subject[0][0]
			}},
		{name: "subject-text-not-utf8", what: "A UTF8String of the subject is no UTF-8.", expect: "request-x509",
			change: func(a *asked) { a.subject[1] = text(oid.CommonName, "system:node:\xff") }},
	}
}

// keyEncodings change the encodings of key and signature algorithm.
func (w *world) keyEncodings() []requestAttack {
	p256 := w.tls.Public().(*ecdsa.PublicKey)
	point := must(p256.Bytes())
	compressed := elliptic.MarshalCompressed(elliptic.P256(), new(big.Int).SetBytes(point[1:33]), new(big.Int).SetBytes(point[33:]))
	curve := []byte{6, 8, 0x2a, 0x86, 0x48, 0xce, 0x3d, 3, 1, 7}
	ecKeyDER := func(point []byte) []byte {
		return tlv(0x30, tlv(0x30, oidDER(oid.ECPublicKey), curve), tlv(3, append([]byte{0}, point...)))
	}
	rsaKeyDER := spki(w.rsaTLS.Public())
	noNull := edited(func(e [][]byte) [][]byte {
		return [][]byte{tlv(0x30, oidDER(oid.RSAEncryption)), e[1]}
	})
	oaep := edited(func(e [][]byte) [][]byte { return [][]byte{tlv(0x30, oidDER(oid.RSAESOAEP), []byte{0x30, 0}), e[1]} })
	rsa := func(spki []byte) func(*asked) {
		return func(a *asked) { a.pkcs10.key, a.spki = repeatable{w.rsaTLS}, spki }
	}
	off := bytes.Clone(point)
	off[64] ^= 1
	return []requestAttack{
		{name: "key-compressed-point", what: "The key's point is compressed.", expect: "request-key-encoding", change: func(a *asked) { a.spki = ecKeyDER(compressed) }},
		{name: "key-point-off-the-curve", what: "The key's point is not on its curve.", expect: "request-x509", change: func(a *asked) { a.spki = ecKeyDER(off) }},
		{name: "key-rsa-without-null", what: "rsaEncryption has no NULL parameters.", expect: "request-key-encoding", change: rsa(noNull(rsaKeyDER))},
		{name: "key-rsa-oaep", what: "The RSA key is encoded as RSAES-OAEP, which would give it a second identity.", expect: "request-key-encoding", change: rsa(oaep(rsaKeyDER))},
		{name: "signature-algorithm-with-null", what: "ecdsa-with-SHA256 has NULL parameters; no signature covers them.", expect: "request-signature-algorithm",
			change: func(a *asked) { a.algorithm = tlv(0x30, oidDER(oid.ECDSAWithSHA256), []byte{5, 0}) }},
		{name: "signature-algorithm-without-null", what: "sha256WithRSAEncryption has no parameters; no signature covers them.", expect: "request-signature-algorithm",
			change: func(a *asked) {
				a.pkcs10.key, a.algorithm = repeatable{w.rsaTLS}, tlv(0x30, oidDER(oid.SHA256WithRSA))
			}},
		{name: "signature-algorithm-of-another-key", what: "The signature algorithm is for RSA, the key on P-256.", expect: "request-signature-algorithm",
			change: func(a *asked) { a.algorithm = tlv(0x30, oidDER(oid.SHA256WithRSA), []byte{5, 0}) }},
		{name: "signature-algorithm-pss", what: "The request is signed with RSASSA-PSS, whose parameters no signature covers.", expect: "request-signature-algorithm",
			change: func(a *asked) {
				a.pkcs10.key, a.algorithm = repeatable{w.rsaTLS}, tlv(0x30, oidDER(oid.RSASSAPSS), []byte{0x30, 0})
			}},
		{name: "signature-algorithm-sha1", what: "The request is signed with SHA-1.", expect: "request-signature-algorithm",
			change: func(a *asked) {
				a.algorithm = tlv(0x30, []byte{6, 7, 0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 1})
			}},
	}
}

// extensionEncodings change attributes and the list of extensions.
func extensionEncodings() []requestAttack {
	id := must(oid.ProviderIDExtension(providerID))
	good := extension(oid.KubernetesNodeProviderIdentifier, nil, id.Value)
	list := func(e ...[]byte) func(*asked) { return func(a *asked) { a.list = tlv(0x30, e...) } }
	value := func(der []byte) func(*asked) {
		return func(a *asked) { a.extensions = []pkix.Extension{{Id: id.Id, Value: der}} }
	}
	request := requestAttribute(oid.ExtensionRequest, tlv(0x30, good))
	return []requestAttack{
		{name: "extension-critical-false", what: "An extension writes its default, critical FALSE.", expect: "request-extensions",
			change: list(extension(oid.KubernetesNodeProviderIdentifier, []byte{1, 1, 0}, id.Value))},
		{name: "extension-critical-one", what: "An extension's critical flag is 01, which is TRUE in BER alone.", expect: "request-extensions",
			change: list(extension(oid.KubernetesNodeProviderIdentifier, []byte{1, 1, 1}, id.Value))},
		{name: "extension-identifier-padded", what: "An extension's identifier has an arc with a leading 80 byte.", expect: "request-extensions",
			change: list(tlv(0x30, []byte{6, 4, 0x80, 0x55, 0x1d, 0x11}, tlv(4, id.Value)))},
		{name: "provider-id-twice", what: "The provider ID extension stands there twice.", expect: "request-extensions", change: list(good, good)},
		{name: "provider-ids-differ", what: "There are two provider ID extensions with different values.", expect: "request-extensions",
			change: list(good, extension(oid.KubernetesNodeProviderIdentifier, nil, tlv(12, []byte("sim://vectors/node-2"))))},
		{name: "extensions-empty", what: "The list of extensions is empty.", expect: "request-attributes", change: list()},
		{name: "extension-request-twice", what: "There are two lists of extensions.", expect: "request-attributes",
			change: func(a *asked) {
				a.attributes = [][]byte{requestAttribute(oid.ExtensionRequest, tlv(0x30, extension(oid.SubjectAltName, nil, sanOf(dns("x")).Value)))}
			}},
		{name: "attributes-out-of-order", what: "The attributes are not in the order of DER.", expect: "request-attributes",
			change: func(a *asked) {
				a.onInfo = replaced(3, func([]byte) []byte {
					return tlv(0xa0, request, requestAttribute(oid.ChallengePassword, tlv(0x13, []byte("x"))))
				})
			}},
		{name: "attribute-without-value", what: "The list of extensions is a SET of no values.", expect: "request-attributes",
			change: func(a *asked) {
				a.onInfo = replaced(3, func([]byte) []byte { return tlv(0xa0, tlv(0x30, oidDER(oid.ExtensionRequest), tlv(0x31))) })
			}},
		{name: "provider-id-empty", what: "The provider ID is empty.", expect: "request-provider-id", change: value([]byte{12, 0})},
		{name: "provider-id-not-utf8", what: "The provider ID is no UTF-8.", expect: "request-provider-id", change: value([]byte{12, 2, 0xc3, 0x28})},
		{name: "provider-id-critical", what: "The provider ID extension is critical.", expect: "request-provider-id",
			change: func(a *asked) {
				a.extensions = []pkix.Extension{{Id: asn1.ObjectIdentifier(id.Id), Critical: true, Value: id.Value}}
			}},
		{name: "provider-id-of-another-string-type", what: "The provider ID is a PrintableString.", expect: "request-provider-id", change: value(tlv(0x13, []byte("node")))},
		{name: "provider-id-with-bytes-behind", what: "A byte stands behind the provider ID.", expect: "request-provider-id", change: value(append(bytes.Clone(id.Value), 0))},
	}
}
