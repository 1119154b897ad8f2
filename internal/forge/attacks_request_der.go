package forge

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/x509/pkix"
	"math/big"

	"github.com/nodeattest/nodeattest/oid"
)

// info changes the CertificationRequestInfo under the signature.
func info(how func([]byte) []byte) func(*Asked) { return func(a *Asked) { a.onInfo = how } }

// infoAttacks change the frame.
func infoAttacks() []RequestAttack {
	whole := func(how func([]byte) []byte) func(*Asked) { return func(a *Asked) { a.raw = how } }
	return []RequestAttack{
		{Name: "request-with-bytes-behind", What: "A byte stands behind the PKCS#10 request, in its block.", Expect: "request-der", Change: whole(Behind(0))},
		{Name: "request-with-a-field-behind", What: "A fourth element stands in the PKCS#10 request.", Expect: "request-der", Change: whole(Appended(5, 0))},
		{Name: "request-with-indefinite-length", What: "The request has the indefinite length of BER.", Expect: "request-der", Change: whole(indefinite)},
		{Name: "request-with-long-length", What: "The request's length has leading zero bytes, as BER allows.", Expect: "request-der", Change: whole(LongLength)},
		{Name: "request-with-huge-length", What: "The request says that it is 4 GiB long.", Expect: "request-der", Change: whole(HugeLength)},
		{Name: "request-truncated", What: "The request lacks its last byte.", Expect: "request-der", Change: whole(func(b []byte) []byte { return b[:len(b)-1] })},
		{Name: "request-empty-sequence", What: "The request is an empty SEQUENCE.", Expect: "request-der", Change: whole(With(0x30, 0))},
		{Name: "request-signature-with-unused-bits", What: "The signature's BIT STRING says that it has unused bits.", Expect: "request-der",
			Change: whole(Replaced(2, func(b []byte) []byte {
				_, header := Content(b)
				b[header] = 1
				return b
			}))},
		{Name: "info-with-long-length", What: "The length of the CertificationRequestInfo has leading zero bytes.", Expect: "request-der", Change: info(LongLength)},
		{Name: "info-with-a-field-behind", What: "A field stands behind the attributes.", Expect: "request-der", Change: info(Appended(5, 0))},
		{Name: "attributes-missing", What: "The attributes are left out, which RFC 2986 does not allow.", Expect: "request-der",
			Change: info(Edited(func(e [][]byte) [][]byte { return e[:3] }))},
		{Name: "request-version", What: "The request's version is 1, which would be v2.", Expect: "request-version", Change: info(Replaced(0, With(2, 1, 1)))},
		{Name: "request-version-padded", What: "The version is 0 in two bytes.", Expect: "request-version", Change: info(Replaced(0, With(2, 2, 0, 0)))},
		{Name: "subject-empty-rdn", What: "The subject has an RDN without attributes.", Expect: "request-subject-encoding",
			Change: func(a *Asked) { a.Subject = append(a.Subject, Rdn{}) }},
		{Name: "subject-rdn-out-of-order", What: "The attributes of one RDN are not in the order of DER.", Expect: "request-subject-encoding",
			Change: func(a *Asked) {
				a.Subject = []Rdn{{{oid.Organization, 12, "system:nodes"}, {oid.CommonName, 12, "system:node:" + NodeName}}}
				a.Subject[0][0], a.Subject[0][1] = a.Subject[0][1], a.Subject[0][0]
			}},
		{Name: "subject-text-not-utf8", What: "A UTF8String of the subject is no UTF-8.", Expect: "request-x509",
			Change: func(a *Asked) { a.Subject[1] = Text(oid.CommonName, "system:node:\xff") }},
	}
}

// keyEncodings change the encodings of key and signature algorithm.
func (w *Bench) keyEncodings() []RequestAttack {
	p256 := w.TLS.Public().(*ecdsa.PublicKey)
	point := Must(p256.Bytes())
	compressed := elliptic.MarshalCompressed(elliptic.P256(), new(big.Int).SetBytes(point[1:33]), new(big.Int).SetBytes(point[33:]))
	curve := []byte{6, 8, 0x2a, 0x86, 0x48, 0xce, 0x3d, 3, 1, 7}
	ecKeyDER := func(point []byte) []byte {
		return TLV(0x30, TLV(0x30, oidDER(oid.ECPublicKey), curve), TLV(3, append([]byte{0}, point...)))
	}
	noNull := Edited(func(e [][]byte) [][]byte {
		return [][]byte{TLV(0x30, oidDER(oid.RSAEncryption)), e[1]}
	})
	oaep := Edited(func(e [][]byte) [][]byte { return [][]byte{TLV(0x30, oidDER(oid.RSAESOAEP), []byte{0x30, 0}), e[1]} })
	rsa := func(edit func([]byte) []byte) func(*Asked) {
		return func(a *Asked) { a.PKCS10.Key, a.spki = Repeatable{w.RSATLS}, edit(SPKI(w.RSATLS.Public())) }
	}
	off := bytes.Clone(point)
	off[64] ^= 1
	return []RequestAttack{
		{Name: "key-compressed-point", What: "The key's point is compressed.", Expect: "request-key-encoding", Change: func(a *Asked) { a.spki = ecKeyDER(compressed) }},
		{Name: "key-point-off-the-curve", What: "The key's point is not on its curve.", Expect: "request-x509", Change: func(a *Asked) { a.spki = ecKeyDER(off) }},
		{Name: "key-rsa-without-null", live: "-", What: "rsaEncryption has no NULL parameters.", Expect: "request-key-encoding", Change: rsa(noNull)},
		{Name: "key-rsa-oaep", live: "-", What: "The RSA key is encoded as RSAES-OAEP, which would give it a second identity.", Expect: "request-key-encoding", Change: rsa(oaep)},
		{Name: "signature-algorithm-with-null", What: "ecdsa-with-SHA256 has NULL parameters; no signature covers them.", Expect: "request-signature-algorithm",
			Change: func(a *Asked) { a.algorithm = TLV(0x30, oidDER(oid.ECDSAWithSHA256), []byte{5, 0}) }},
		{Name: "signature-algorithm-without-null", live: "-", What: "sha256WithRSAEncryption has no parameters; no signature covers them.", Expect: "request-signature-algorithm",
			Change: func(a *Asked) {
				a.PKCS10.Key, a.algorithm = Repeatable{w.RSATLS}, TLV(0x30, oidDER(oid.SHA256WithRSA))
			}},
		{Name: "signature-algorithm-of-another-key", What: "The signature algorithm is for RSA, the key on P-256.", Expect: "request-signature-algorithm",
			Change: func(a *Asked) { a.algorithm = TLV(0x30, oidDER(oid.SHA256WithRSA), []byte{5, 0}) }},
		{Name: "signature-algorithm-pss", live: "-", What: "The request is signed with RSASSA-PSS, whose parameters no signature covers.", Expect: "request-signature-algorithm",
			Change: func(a *Asked) {
				a.PKCS10.Key, a.algorithm = Repeatable{w.RSATLS}, TLV(0x30, oidDER(oid.RSASSAPSS), []byte{0x30, 0})
			}},
		{Name: "signature-algorithm-sha1", What: "The request is signed with SHA-1.", Expect: "request-signature-algorithm",
			Change: func(a *Asked) {
				a.algorithm = TLV(0x30, []byte{6, 7, 0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 1})
			}},
	}
}

// extensionEncodings change attributes and the list of extensions.
func (w *Bench) extensionEncodings() []RequestAttack {
	id := Must(oid.ProviderIDExtension(w.ProviderID))
	good := extension(oid.KubernetesNodeProviderIdentifier, nil, id.Value)
	list := func(e ...[]byte) func(*Asked) { return func(a *Asked) { a.list = TLV(0x30, e...) } }
	value := func(der []byte) func(*Asked) {
		return func(a *Asked) { a.Extensions = []pkix.Extension{{Id: id.Id, Value: der}} }
	}
	request := requestAttribute(oid.ExtensionRequest, TLV(0x30, good))
	return []RequestAttack{
		{Name: "extension-critical-false", What: "An extension writes its default, critical FALSE.", Expect: "request-extensions",
			Change: list(extension(oid.KubernetesNodeProviderIdentifier, []byte{1, 1, 0}, id.Value))},
		{Name: "extension-critical-one", What: "An extension's critical flag is 01, which is TRUE in BER alone.", Expect: "request-extensions",
			Change: list(extension(oid.KubernetesNodeProviderIdentifier, []byte{1, 1, 1}, id.Value))},
		{Name: "extension-identifier-padded", What: "An extension's identifier has an arc with a leading 80 byte.", Expect: "request-extensions",
			Change: list(TLV(0x30, []byte{6, 4, 0x80, 0x55, 0x1d, 0x11}, TLV(4, id.Value)))},
		{Name: "provider-id-twice", What: "The provider ID extension stands there twice.", Expect: "request-extensions", Change: list(good, good)},
		{Name: "provider-ids-differ", What: "There are two provider ID extensions with different values.", Expect: "request-extensions",
			Change: list(good, extension(oid.KubernetesNodeProviderIdentifier, nil, TLV(12, []byte("sim://vectors/node-2"))))},
		{Name: "extensions-empty", What: "The list of extensions is empty.", Expect: "request-attributes", Change: list()},
		{Name: "extension-request-twice", What: "There are two lists of extensions.", Expect: "request-attributes",
			Change: func(a *Asked) {
				a.attributes = [][]byte{requestAttribute(oid.ExtensionRequest, TLV(0x30, extension(oid.SubjectAltName, nil, SANOf(dns("x")).Value)))}
			}},
		{Name: "attributes-out-of-order", What: "The attributes are not in the order of DER.", Expect: "request-attributes",
			Change: func(a *Asked) {
				a.onInfo = Replaced(3, func([]byte) []byte {
					return TLV(0xa0, request, requestAttribute(oid.ChallengePassword, TLV(0x13, []byte("x"))))
				})
			}},
		{Name: "attribute-without-value", What: "The list of extensions is a SET of no values.", Expect: "request-attributes",
			Change: func(a *Asked) {
				a.onInfo = Replaced(3, func([]byte) []byte { return TLV(0xa0, TLV(0x30, oidDER(oid.ExtensionRequest), TLV(0x31))) })
			}},
		{Name: "provider-id-empty", What: "The provider ID is empty.", Expect: "request-provider-id", Change: value([]byte{12, 0})},
		{Name: "provider-id-not-utf8", What: "The provider ID is no UTF-8.", Expect: "request-provider-id", Change: value([]byte{12, 2, 0xc3, 0x28})},
		{Name: "provider-id-critical", What: "The provider ID extension is critical.", Expect: "request-provider-id",
			Change: func(a *Asked) {
				a.Extensions = []pkix.Extension{{Id: id.Id, Critical: true, Value: id.Value}}
			}},
		{Name: "provider-id-of-another-string-type", What: "The provider ID is a PrintableString.", Expect: "request-provider-id", Change: value(TLV(0x13, []byte("node")))},
		{Name: "provider-id-with-bytes-behind", What: "A byte stands behind the provider ID.", Expect: "request-provider-id", Change: value(append(bytes.Clone(id.Value), 0))},
	}
}
