package main

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

	"golang.org/x/crypto/cryptobyte"

	"github.com/nodeattest/nodeattest/oid"
)

// pkcs10 writes a request as it is told, byte for byte, and signs it.
type pkcs10 struct {
	key        crypto.Signer
	subject    []rdn
	extensions []pkix.Extension
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
	// corrupt signs something else.
	corrupt bool
}

// rdn is a relative distinguished name, of one attribute in a good subject.
type rdn []attribute

type attribute struct {
	id    oid.OID
	tag   byte
	value string
}

func text(id oid.OID, value string) rdn { return rdn{{id, 12, value}} }

// newPKCS10 is the good node's request.
func (w *world) newPKCS10() *pkcs10 {
	return &pkcs10{
		key:        w.tls,
		subject:    []rdn{text(oid.Organization, "system:nodes"), text(oid.CommonName, "system:node:"+nodeName)},
		extensions: []pkix.Extension{must(oid.ProviderIDExtension(providerID))},
	}
}

func (p *pkcs10) der() []byte {
	info := change(p.info(), p.onInfo)
	algorithm, signature := p.sign(info)
	bits := append([]byte{0}, signature...)
	return change(tlv(0x30, info, algorithm, tlv(3, bits)), p.onRequest)
}

func (p *pkcs10) info() []byte {
	key := p.spki
	if key == nil {
		key = must(x509.MarshalPKIXPublicKey(p.key.Public()))
	}
	attributes := append([][]byte(nil), p.attributes...)
	list := p.list
	if list == nil && len(p.extensions) > 0 {
		list = must(asn1.Marshal(p.extensions))
	}
	if list != nil {
		attributes = append(attributes, requestAttribute(oid.ExtensionRequest, list))
	}
	return tlv(0x30, []byte{2, 1, 0}, tlv(0x30, names(p.subject)...), key, tlv(0xa0, attributes...))
}

func names(subject []rdn) [][]byte {
	var out [][]byte
	for _, r := range subject {
		var set [][]byte
		for _, a := range r {
			set = append(set, tlv(0x30, oidDER(a.id), tlv(a.tag, []byte(a.value))))
		}
		out = append(out, tlv(0x31, set...))
	}
	return out
}

func oidDER(id oid.OID) []byte {
	var b cryptobyte.Builder
	oid.Add(&b, id)
	return must(b.Bytes())
}

// requestAttribute is an attribute with one value.
func requestAttribute(id oid.OID, value []byte) []byte {
	return tlv(0x30, oidDER(id), tlv(0x31, value))
}

func (p *pkcs10) sign(info []byte) (algorithm, signature []byte) {
	if p.corrupt {
		info = append([]byte{0}, info...)
	}
	digest := sha256.Sum256(info)
	message, opts := digest[:], crypto.SignerOpts(crypto.SHA256)
	algorithm = tlv(0x30, oidDER(oid.ECDSAWithSHA256))
	switch p.key.Public().(type) {
	case *rsa.PublicKey:
		algorithm = tlv(0x30, oidDER(oid.SHA256WithRSA), []byte{5, 0})
	case ed25519.PublicKey:
		message, opts = info, crypto.Hash(0)
		algorithm = tlv(0x30, oidDER(oid.Ed25519))
	}
	if p.algorithm != nil {
		algorithm = p.algorithm
	}
	return algorithm, must(p.key.Sign(nil, message, opts))
}

// extension is the DER of one extension; critical is its flag's encoding or nil.
func extension(id oid.OID, critical, value []byte) []byte {
	return tlv(0x30, oidDER(id), critical, tlv(4, value))
}

// general is a name of a subjectAltName: a context-specific tag and its content.
type general struct {
	tag   byte
	value string
}

func dns(name string) general { return general{2, name} }

// sanOf is a subjectAltName extension.
func sanOf(names ...general) pkix.Extension {
	var list [][]byte
	for _, n := range names {
		list = append(list, tlv(0x80|n.tag, []byte(n.value)))
	}
	return pkix.Extension{Id: asn1.ObjectIdentifier{2, 5, 29, 17}, Value: tlv(0x30, list...)}
}

func pkcs8(key crypto.Signer) []byte { return must(x509.MarshalPKCS8PrivateKey(rawKey(key))) }

func pemBlock(label string, data []byte) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: label, Bytes: data}))
}

func errUnchanged(name string) error { return fmt.Errorf("%s changes nothing", name) }
