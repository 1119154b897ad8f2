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

// Marshal returns the DER of h. It returns a [*refusal.Error] with [attest.CheckEncoding] if
// a field is outside its range.
func (h *Hello) Marshal() ([]byte, error) { return der.Marshal("document hello", h.fields) }

func (h *Hello) fields(c *der.Codec) {
	c.Version()
	c.Text("clusterID", &h.ClusterID, 1, der.MaxClusterIDSize)
	c.Text("targetSigner", &h.TargetSigner, 1, der.MaxSignerNameSize)
	c.Text("machine", &h.Machine, 1, MaxMachineSize)
}

// ParseHello reads exactly what [Hello.Marshal] writes.
func ParseHello(data []byte) (*Hello, error) {
	h := &Hello{}
	return der.Parse(h, "document hello", data, der.MaxEvidenceSize, h.fields)
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
func (p *Proof) Marshal() ([]byte, error) { return der.Marshal("document proof", p.fields) }

func (p *Proof) fields(c *der.Codec) {
	binding := message.BindingField(c, &p.Binding)
	c.Demand(binding.Road == message.RoadDocument, "road", "document")
	c.Text("machine", &p.Machine, 1, MaxMachineSize)
}

// ParseProof reads exactly what [Proof.Marshal] writes.
func ParseProof(data []byte) (*Proof, error) {
	p := &Proof{}
	return der.Parse(p, "document proof", data, der.MaxEvidenceSize, p.fields)
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
