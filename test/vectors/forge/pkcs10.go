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
	"encoding/binary"
	"encoding/pem"
	"errors"
	"math/big"
	"slices"

	"golang.org/x/crypto/cryptobyte"
	cryptobyteasn1 "golang.org/x/crypto/cryptobyte/asn1"

	"github.com/nodeattest/nodeattest/oid"
)

// PKCS10 writes a request as specified, byte for byte, and signs it.
type PKCS10 struct {
	Key        crypto.Signer
	Subject    []Rdn // in the order of the request
	Extensions []pkix.Extension
	// list is the DER of the list of extensions, in place of extensions.
	list []byte
	// attributes precede extensionRequest: complete, with tag and length.
	attributes [][]byte
	// SPKI and Algorithm replace the key's own encoding and the algorithm of the
	// signature.
	SPKI, Algorithm []byte
	// onInfo changes the CertificationRequestInfo before it is signed, onRequest the whole
	// request afterwards.
	onInfo, onRequest func([]byte) []byte
	// Corrupt makes the signature cover something else.
	Corrupt bool
}

// Rdn is a relative distinguished name, with one attribute in a good subject.
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
	key := p.SPKI
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
	return TLV(0x30, []byte{2, 1, 0}, TLV(0x30, rdnSequence(p.Subject)...), key, TLV(0xa0, attributes...))
}

func rdnSequence(subject []Rdn) [][]byte {
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
	if p.Algorithm != nil {
		algorithm = p.Algorithm
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

func dns(name string) general { return general{2, name} }

// SANOf is a subjectAltName extension.
func SANOf(names ...general) pkix.Extension {
	var list [][]byte
	for _, n := range names {
		list = append(list, TLV(0x80|n.tag, []byte(n.value)))
	}
	return pkix.Extension{Id: asn1.ObjectIdentifier{2, 5, 29, 17}, Value: TLV(0x30, list...)}
}

// PEMBlock is one PEM block.
func PEMBlock(label string, data []byte) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: label, Bytes: data}))
}

// info changes the CertificationRequestInfo under the signature.
func info(how func([]byte) []byte) func(*Asked) { return func(a *Asked) { a.onInfo = how } }

// infoAttacks change the frame.
func infoAttacks() []RequestAttack {
	whole := func(how func([]byte) []byte) func(*Asked) { return func(a *Asked) { a.raw = how } }
	return listed("frames of requests", map[string]func(*Asked){
		"request-trailing-bytes":             whole(Behind(0)),
		"request-with-a-trailing-field":      whole(Appended(5, 0)),
		"request-with-indefinite-length":     whole(indefinite),
		"request-with-long-length":           whole(LongLength),
		"request-with-huge-length":           whole(HugeLength),
		"request-truncated":                  whole(func(b []byte) []byte { return b[:len(b)-1] }),
		"request-empty-sequence":             whole(With(0x30, 0)),
		"request-signature-with-unused-bits": whole(Replaced(2, func(b []byte) []byte { Content(b)[0] = 1; return b })),
		"info-with-long-length":              info(LongLength),
		"info-with-a-trailing-field":         info(Appended(5, 0)),
		"attributes-missing":                 info(Edited(func(e [][]byte) [][]byte { return e[:3] })),
		"request-version":                    info(Replaced(0, With(2, 1, 1))),
		"request-version-padded":             info(Replaced(0, With(2, 2, 0, 0))),
		"subject-empty-rdn":                  func(a *Asked) { a.Subject = append(a.Subject, Rdn{}) },
		"subject-rdn-out-of-order": func(a *Asked) {
			a.Subject = []Rdn{{{oid.Organization, 12, "system:nodes"}, {oid.CommonName, 12, "system:node:" + NodeName}}}
			a.Subject[0][0], a.Subject[0][1] = a.Subject[0][1], a.Subject[0][0]
		},
		"subject-text-not-utf8": func(a *Asked) { a.Subject[1] = Text(oid.CommonName, "system:node:\xff") },
	})
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
	off := bytes.Clone(point)
	off[64] ^= 1
	return listed("encodings of keys", map[string]func(*Asked){
		"key-compressed-point":               func(a *Asked) { a.SPKI = ecKeyDER(compressed) },
		"key-point-off-the-curve":            func(a *Asked) { a.SPKI = ecKeyDER(off) },
		"signature-algorithm-with-null":      func(a *Asked) { a.Algorithm = TLV(0x30, oidDER(oid.ECDSAWithSHA256), []byte{5, 0}) },
		"signature-algorithm-of-another-key": func(a *Asked) { a.Algorithm = TLV(0x30, oidDER(oid.SHA256WithRSA), []byte{5, 0}) },
		"signature-algorithm-sha1":           func(a *Asked) { a.Algorithm = TLV(0x30, oidDER(oid.ECDSAWithSHA1)) },
	})
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
	return listed("encodings of extensions", map[string]func(*Asked){
		"extension-critical-false":    list(extension(oid.KubernetesNodeProviderIdentifier, []byte{1, 1, 0}, id.Value)),
		"extension-critical-one":      list(extension(oid.KubernetesNodeProviderIdentifier, []byte{1, 1, 1}, id.Value)),
		"extension-identifier-padded": list(TLV(0x30, []byte{6, 4, 0x80, 0x55, 0x1d, 0x11}, TLV(4, id.Value))),
		"provider-id-twice":           list(good, good),
		"provider-ids-differ":         list(good, extension(oid.KubernetesNodeProviderIdentifier, nil, TLV(12, []byte("sim://vectors/node-2")))),
		"extensions-empty":            list(),
		"extension-request-twice": func(a *Asked) {
			a.attributes = [][]byte{requestAttribute(oid.ExtensionRequest, TLV(0x30, extension(oid.SubjectAltName, nil, SANOf(dns("x")).Value)))}
		},
		"attributes-out-of-order":            info(Replaced(3, With(TLV(0xa0, request, requestAttribute(oid.ChallengePassword, TLV(0x13, []byte("x"))))...))),
		"attribute-without-value":            info(Replaced(3, With(TLV(0xa0, TLV(0x30, oidDER(oid.ExtensionRequest), TLV(0x31)))...))),
		"provider-id-empty":                  value([]byte{12, 0}),
		"provider-id-not-utf8":               value([]byte{12, 2, 0xc3, 0x28}),
		"provider-id-critical":               func(a *Asked) { a.Extensions[0].Critical = true },
		"provider-id-of-another-string-type": value(TLV(0x13, []byte("node"))),
		"provider-id-trailing-bytes":         value(append(bytes.Clone(id.Value), 0)),
	})
}

// Elements splits a SEQUENCE or SET into elements with tag and length.
func Elements(der []byte) [][]byte {
	body := cryptobyte.String(Content(der))
	var tag cryptobyteasn1.Tag
	var out [][]byte
	for !body.Empty() {
		var e cryptobyte.String
		if !body.ReadAnyASN1Element(&e, &tag) {
			panic(Failure{errors.New("no DER inside DER")})
		}
		out = append(out, e)
	}
	return out
}

// TLV puts elements under a tag.
func TLV(tag byte, elements ...[]byte) []byte {
	var b cryptobyte.Builder
	b.AddASN1(cryptobyteasn1.Tag(tag), func(b *cryptobyte.Builder) { b.AddBytes(bytes.Join(elements, nil)) })
	return Must(b.Bytes())
}

// Edited changes the elements of a SEQUENCE.
func Edited(how func([][]byte) [][]byte) func([]byte) []byte {
	return func(der []byte) []byte { return TLV(0x30, how(Elements(der))...) }
}

// Replaced changes element i of a SEQUENCE.
func Replaced(i int, how func([]byte) []byte) func([]byte) []byte {
	return Edited(func(e [][]byte) [][]byte {
		e[i] = how(e[i])
		return e
	})
}

// Appended adds an element at the end of a SEQUENCE.
func Appended(element ...byte) func([]byte) []byte {
	return Edited(func(e [][]byte) [][]byte { return append(e, element) })
}

// swapped swaps the first two elements of a SEQUENCE; doubled repeats the first at the end.
var (
	swapped = Edited(func(e [][]byte) [][]byte { e[0], e[1] = e[1], e[0]; return e })
	doubled = Edited(func(e [][]byte) [][]byte { return append(e, e[0]) })
)

// With returns a function that always returns the same bytes.
func With(b ...byte) func([]byte) []byte { return func([]byte) []byte { return b } }

// Behind puts bytes after the whole value.
func Behind(b ...byte) func([]byte) []byte {
	return func(der []byte) []byte { return append(der, b...) }
}

// Content is what follows the tag and length.
func Content(der []byte) []byte {
	in, out := cryptobyte.String(der), cryptobyte.String(nil)
	var tag cryptobyteasn1.Tag
	if !in.ReadAnyASN1(&out, &tag) {
		panic(Failure{errors.New("no DER")})
	}
	return out
}

// LongLength writes the length in four bytes, the first of which are zero: BER.
func LongLength(der []byte) []byte {
	body := Content(der)
	return append(binary.BigEndian.AppendUint32([]byte{der[0], 0x84}, uint32(len(body))), body...)
}

// indefinite writes BER's indefinite length.
func indefinite(der []byte) []byte {
	return slices.Concat([]byte{der[0], 0x80}, Content(der), []byte{0, 0})
}

// HugeLength writes a length of nearly 4 GiB.
func HugeLength(der []byte) []byte {
	return append([]byte{der[0], 0x84, 0xff, 0xff, 0xff, 0xff}, Content(der)...)
}
