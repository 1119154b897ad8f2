package forge

import (
	"crypto"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"fmt"
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

// ErrUnchanged says that an attack is none.
func ErrUnchanged(name string) error { return fmt.Errorf("%s changes nothing", name) }
