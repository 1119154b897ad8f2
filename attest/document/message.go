package document

import (
	"golang.org/x/crypto/cryptobyte"
	"golang.org/x/crypto/cryptobyte/asn1"

	"github.com/nodeattest/nodeattest/internal/der"
	"github.com/nodeattest/nodeattest/internal/message"
)

// Limits of the messages of kinds whose evidence is a document, in bytes.
const (
	MaxMachineSize  = 1024
	MaxDocumentSize = 64 << 10
)

// Hello is the first message of a node whose evidence is a document.
//
//	DocumentHello ::= SEQUENCE { version INTEGER (1), clusterID UTF8String,
//	         targetSigner UTF8String, machine UTF8String }
//
// Its statement type is [oid.NodeAttestDocumentHello].
type Hello struct {
	// ClusterID is 1 to 128 bytes of UTF-8, TargetSigner, the signer name of the answer,
	// 1 to 571.
	ClusterID, TargetSigner string
	// Machine is the identity that the node claims, 1 to [MaxMachineSize] bytes.
	Machine string
}

// helloField is one text of a hello, at most so many bytes.
type helloField struct {
	name string
	text *string
	most int
}

// fields are the texts of a hello, in their order.
func (h *Hello) fields() []helloField {
	return []helloField{{"clusterID", &h.ClusterID, der.MaxClusterIDSize}, {"targetSigner", &h.TargetSigner, der.MaxSignerNameSize},
		{"machine", &h.Machine, MaxMachineSize}}
}

// Marshal returns the DER of h. It returns a [*refusal.Error] with [attest.CheckEncoding] if
// a field is outside its range.
func (h *Hello) Marshal() ([]byte, error) {
	var b cryptobyte.Builder
	b.AddASN1(asn1.SEQUENCE, func(b *cryptobyte.Builder) {
		b.AddASN1Int64(1)
		for _, f := range h.fields() {
			if err := der.CheckText(helloName, f.name, *f.text, 1, f.most); err != nil {
				b.SetError(err)
			}
			der.AddText(b, *f.text)
		}
	})
	return b.Bytes()
}

const helloName = "document hello"

// ParseHello reads exactly what [Hello.Marshal] writes.
func ParseHello(data []byte) (*Hello, error) {
	body, err := der.OpenSequence(helloName, data, der.MaxEvidenceSize)
	if err != nil {
		return nil, err
	}
	if err := der.ReadVersion(helloName, &body); err != nil {
		return nil, err
	}
	h := &Hello{}
	for _, f := range h.fields() {
		if *f.text, err = der.ReadText(helloName, f.name, &body, 1, f.most); err != nil {
			return nil, err
		}
	}
	if !body.Empty() {
		return nil, der.Fault(helloName, "frame", "nothing after machine")
	}
	return h, nil
}

// Proof is the echo of the Binding by a node whose evidence is a document.
//
//	DocumentProof ::= SEQUENCE { binding Binding, machine UTF8String }
//
// Its statement type is [oid.NodeAttestDocumentProof].
type Proof struct {
	// Binding is the DER of the Binding, byte for byte as it came in the challenge.
	Binding []byte
	// Machine is as in [Hello].
	Machine string
}

// Marshal returns the DER of p. It returns a [*refusal.Error] with [attest.CheckEncoding] if
// Binding is not the DER of a Binding of [attest.RoadDocument] or Machine is outside its range.
func (p *Proof) Marshal() ([]byte, error) {
	if err := p.check(); err != nil {
		return nil, err
	}
	var b cryptobyte.Builder
	b.AddASN1(asn1.SEQUENCE, func(b *cryptobyte.Builder) {
		b.AddBytes(p.Binding)
		der.AddText(b, p.Machine)
	})
	return b.Bytes()
}

func (p *Proof) check() error {
	binding, err := message.ParseBinding(p.Binding)
	if err != nil {
		return err
	}
	if binding.Road != message.RoadDocument {
		return der.Fault("document proof", "road", "document")
	}
	return der.CheckText("document proof", "machine", p.Machine, 1, MaxMachineSize)
}

// ParseProof reads exactly what [Proof.Marshal] writes.
func ParseProof(data []byte) (*Proof, error) {
	const name = "document proof"
	body, err := der.OpenSequence(name, data, der.MaxEvidenceSize)
	if err != nil {
		return nil, err
	}
	p := &Proof{}
	var raw cryptobyte.String
	if !body.ReadASN1Element(&raw, asn1.SEQUENCE) {
		return nil, der.Fault(name, "binding", "a SEQUENCE")
	}
	p.Binding = raw
	if p.Machine, err = der.ReadText(name, "machine", &body, 1, MaxMachineSize); err != nil {
		return nil, err
	}
	if !body.Empty() {
		return nil, der.Fault(name, "frame", "nothing after machine")
	}
	if err := p.check(); err != nil {
		return nil, err
	}
	return p, nil
}

// MarshalStatement returns the statement of type [oid.NodeAttestDocument]: an OCTET STRING
// with the platform's bytes, 1 to [MaxDocumentSize].
func MarshalStatement(document []byte) ([]byte, error) {
	if len(document) == 0 || len(document) > MaxDocumentSize {
		return nil, der.Fault("document", "bytes", "1 to 65536 bytes")
	}
	var b cryptobyte.Builder
	b.AddASN1OctetString(document)
	return b.Bytes()
}

// ParseStatement reads exactly what [MarshalStatement] writes; the result shares memory with
// data.
func ParseStatement(data []byte) ([]byte, error) {
	s := cryptobyte.String(data)
	document, err := der.ReadOctets("document", "bytes", &s, asn1.OCTET_STRING, 1, MaxDocumentSize)
	if err != nil {
		return nil, err
	}
	if !s.Empty() {
		return nil, der.Fault("document", "frame", "nothing after the OCTET STRING")
	}
	return document, nil
}
