package forge

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"math/big"
	"net"

	"golang.org/x/crypto/cryptobyte"

	"github.com/nodeattest/nodeattest/oid"
)

// PKCS10 writes a request as it is told, byte for byte, and signs it.
type PKCS10 struct {
	Key        crypto.Signer
	Subject    []Rdn // in the order of the request
	Extensions []pkix.Extension
	// list is the DER of the list of extensions, in place of extensions.
	list []byte
	// attributes stand before extensionRequest: whole, with tag and length.
	attributes [][]byte
	// spki and algorithm replace the key's own encoding and the algorithm of the
	// signature.
	spki, algorithm []byte
	// onInfo changes the CertificationRequestInfo before it is signed, onRequest the
	// whole request afterwards.
	onInfo, onRequest func([]byte) []byte
	// Corrupt signs something else.
	Corrupt bool
}

// Rdn is a relative distinguished name, of one attribute in a good subject.
type Rdn []attribute

type attribute struct {
	id    oid.OID
	tag   byte
	value string
}

// Text is an RDN of one UTF8String.
func Text(id oid.OID, value string) Rdn { return Rdn{{id, 12, value}} }

// NewPKCS10 is the good node's request.
func (w *Bench) NewPKCS10() *PKCS10 {
	return &PKCS10{
		Key:        w.TLS,
		Subject:    []Rdn{Text(oid.Organization, "system:nodes"), Text(oid.CommonName, "system:node:"+NodeName)},
		Extensions: []pkix.Extension{Must(oid.ProviderIDExtension(w.ProviderID))},
	}
}

// DER is the signed request.
func (p *PKCS10) DER() []byte {
	info := Change(p.info(), p.onInfo)
	algorithm, signature := p.sign(info)
	bits := append([]byte{0}, signature...)
	return Change(TLV(0x30, info, algorithm, TLV(3, bits)), p.onRequest)
}

func (p *PKCS10) info() []byte {
	key := p.spki
	if key == nil {
		key = Must(x509.MarshalPKIXPublicKey(p.Key.Public()))
	}
	attributes := append([][]byte(nil), p.attributes...)
	list := p.list
	if list == nil && len(p.Extensions) > 0 {
		list = Must(asn1.Marshal(p.Extensions))
	}
	if list != nil {
		attributes = append(attributes, requestAttribute(oid.ExtensionRequest, list))
	}
	return TLV(0x30, []byte{2, 1, 0}, TLV(0x30, names(p.Subject)...), key, TLV(0xa0, attributes...))
}

func names(subject []Rdn) [][]byte {
	var out [][]byte
	for _, r := range subject {
		var set [][]byte
		for _, a := range r {
			set = append(set, TLV(0x30, oidDER(a.id), TLV(a.tag, []byte(a.value))))
		}
		out = append(out, TLV(0x31, set...))
	}
	return out
}

func oidDER(id oid.OID) []byte {
	var b cryptobyte.Builder
	oid.Add(&b, id)
	return Must(b.Bytes())
}

// requestAttribute is an attribute with one value.
func requestAttribute(id oid.OID, value []byte) []byte {
	return TLV(0x30, oidDER(id), TLV(0x31, value))
}

func (p *PKCS10) sign(info []byte) (algorithm, signature []byte) {
	if p.Corrupt {
		info = append([]byte{0}, info...)
	}
	digest := sha256.Sum256(info)
	message, opts := digest[:], crypto.SignerOpts(crypto.SHA256)
	algorithm = TLV(0x30, oidDER(oid.ECDSAWithSHA256))
	switch p.Key.Public().(type) {
	case *rsa.PublicKey:
		algorithm = TLV(0x30, oidDER(oid.SHA256WithRSA), []byte{5, 0})
	case ed25519.PublicKey:
		message, opts = info, crypto.Hash(0)
		algorithm = TLV(0x30, oidDER(oid.Ed25519))
	}
	if p.algorithm != nil {
		algorithm = p.algorithm
	}
	return algorithm, Must(p.Key.Sign(nil, message, opts))
}

// extension is the DER of one extension; critical is its flag's encoding or nil.
func extension(id oid.OID, critical, value []byte) []byte {
	return TLV(0x30, oidDER(id), critical, TLV(4, value))
}

// general is a name of a subjectAltName: a context-specific tag and its content.
type general struct {
	tag   byte
	value string
}

// IP is an address in a subjectAltName.
func IP(address net.IP) general { return general{7, string(address)} }

func dns(name string) general { return general{2, name} }

// SANOf is a subjectAltName extension.
func SANOf(names ...general) pkix.Extension {
	var list [][]byte
	for _, n := range names {
		list = append(list, TLV(0x80|n.tag, []byte(n.value)))
	}
	return pkix.Extension{Id: asn1.ObjectIdentifier{2, 5, 29, 17}, Value: TLV(0x30, list...)}
}

// PKCS8 is the private key in DER.
func PKCS8(key crypto.Signer) []byte { return Must(x509.MarshalPKCS8PrivateKey(RawKey(key))) }

// PEMBlock is one PEM block.
func PEMBlock(label string, data []byte) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: label, Bytes: data}))
}

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
			Change: whole(Replaced(2, func(b []byte) []byte { Content(b)[0] = 1; return b }))},
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
	noNull := Replaced(0, With(TLV(0x30, oidDER(oid.RSAEncryption))...))
	oaep := Replaced(0, With(TLV(0x30, oidDER(oid.RSAESOAEP), []byte{0x30, 0})...))
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
			Change: func(a *Asked) { a.algorithm = TLV(0x30, oidDER(oid.ECDSAWithSHA1)) }},
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
			Change: info(Replaced(3, With(TLV(0xa0, request, requestAttribute(oid.ChallengePassword, TLV(0x13, []byte("x"))))...)))},
		{Name: "attribute-without-value", What: "The list of extensions is a SET of no values.", Expect: "request-attributes",
			Change: info(Replaced(3, With(TLV(0xa0, TLV(0x30, oidDER(oid.ExtensionRequest), TLV(0x31)))...)))},
		{Name: "provider-id-empty", What: "The provider ID is empty.", Expect: "request-provider-id", Change: value([]byte{12, 0})},
		{Name: "provider-id-not-utf8", What: "The provider ID is no UTF-8.", Expect: "request-provider-id", Change: value([]byte{12, 2, 0xc3, 0x28})},
		{Name: "provider-id-critical", What: "The provider ID extension is critical.", Expect: "request-provider-id",
			Change: func(a *Asked) { a.Extensions[0].Critical = true }},
		{Name: "provider-id-of-another-string-type", What: "The provider ID is a PrintableString.", Expect: "request-provider-id", Change: value(TLV(0x13, []byte("node")))},
		{Name: "provider-id-with-bytes-behind", What: "A byte stands behind the provider ID.", Expect: "request-provider-id", Change: value(append(bytes.Clone(id.Value), 0))},
	}
}
