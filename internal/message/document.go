package message

import (
	"crypto/sha256"

	"golang.org/x/crypto/cryptobyte"
	"golang.org/x/crypto/cryptobyte/asn1"

	"github.com/nodeattest/nodeattest/internal/der"
)

// Limits of the messages of kinds whose evidence is a document, in bytes.
const (
	MaxMachineSize  = 1024
	MaxDocumentSize = 64 << 10
)

// DocumentHello is the first message of a node whose evidence is a document.
//
//	DocumentHello ::= SEQUENCE { version INTEGER (1), clusterID UTF8String,
//	         targetSigner UTF8String, machine UTF8String }
//
// Its statement type is [oid.NodeAttestDocumentHello].
type DocumentHello struct {
	// ClusterID and TargetSigner are as in [Hello].
	ClusterID, TargetSigner string
	// Machine is the identity that the node claims, 1 to [MaxMachineSize] bytes.
	Machine string
}

// Marshal returns the DER of h. It returns a [*refusal.Error] with [der.CheckEncoding] if
// a field is outside its range.
func (h *DocumentHello) Marshal() ([]byte, error) {
	if err := h.check(); err != nil {
		return nil, err
	}
	var b cryptobyte.Builder
	b.AddASN1(asn1.SEQUENCE, func(b *cryptobyte.Builder) {
		b.AddASN1Int64(1)
		der.AddText(b, h.ClusterID)
		der.AddText(b, h.TargetSigner)
		der.AddText(b, h.Machine)
	})
	return b.Bytes()
}

func (h *DocumentHello) check() error {
	if err := der.CheckText("document hello", "clusterID", h.ClusterID, 1, der.MaxClusterIDSize); err != nil {
		return err
	}
	if err := der.CheckText("document hello", "targetSigner", h.TargetSigner, 1, der.MaxSignerNameSize); err != nil {
		return err
	}
	return der.CheckText("document hello", "machine", h.Machine, 1, MaxMachineSize)
}

// ParseDocumentHello reads exactly what [DocumentHello.Marshal] writes.
func ParseDocumentHello(data []byte) (*DocumentHello, error) {
	const name = "document hello"
	body, err := der.OpenSequence(name, data, der.MaxEvidenceSize)
	if err != nil {
		return nil, err
	}
	if err := der.ReadVersion(name, &body); err != nil {
		return nil, err
	}
	h := &DocumentHello{}
	if h.ClusterID, err = der.ReadText(name, "clusterID", &body, 1, der.MaxClusterIDSize); err != nil {
		return nil, err
	}
	if h.TargetSigner, err = der.ReadText(name, "targetSigner", &body, 1, der.MaxSignerNameSize); err != nil {
		return nil, err
	}
	if h.Machine, err = der.ReadText(name, "machine", &body, 1, MaxMachineSize); err != nil {
		return nil, err
	}
	if !body.Empty() {
		return nil, der.Fault(name, "frame", "nothing after machine")
	}
	return h, nil
}

// DocumentProof is the echo of the Binding by a node whose evidence is a document.
//
//	DocumentProof ::= SEQUENCE { binding Binding, machine UTF8String }
//
// Its statement type is [oid.NodeAttestDocumentProof].
type DocumentProof struct {
	// Binding is the DER of the Binding, byte for byte as it came in the challenge.
	Binding []byte
	// Machine is as in [DocumentHello].
	Machine string
}

// Marshal returns the DER of p. It returns a [*refusal.Error] with [der.CheckEncoding] if
// Binding is not the DER of a Binding of [RoadDocument] or Machine is outside its range.
func (p *DocumentProof) Marshal() ([]byte, error) {
	if _, err := p.check(); err != nil {
		return nil, err
	}
	var b cryptobyte.Builder
	b.AddASN1(asn1.SEQUENCE, func(b *cryptobyte.Builder) {
		b.AddBytes(p.Binding)
		der.AddText(b, p.Machine)
	})
	return b.Bytes()
}

func (p *DocumentProof) check() (*Binding, error) {
	binding, err := ParseBinding(p.Binding)
	if err != nil {
		return nil, err
	}
	if binding.Road != RoadDocument {
		return nil, der.Fault("document proof", "road", "document")
	}
	return binding, der.CheckText("document proof", "machine", p.Machine, 1, MaxMachineSize)
}

// ParseDocumentProof reads exactly what [DocumentProof.Marshal] writes, and the Binding
// inside.
func ParseDocumentProof(data []byte) (*DocumentProof, *Binding, error) {
	const name = "document proof"
	body, err := der.OpenSequence(name, data, der.MaxEvidenceSize)
	if err != nil {
		return nil, nil, err
	}
	p := &DocumentProof{}
	var raw cryptobyte.String
	if !body.ReadASN1Element(&raw, asn1.SEQUENCE) {
		return nil, nil, der.Fault(name, "binding", "a SEQUENCE")
	}
	p.Binding = raw
	if p.Machine, err = der.ReadText(name, "machine", &body, 1, MaxMachineSize); err != nil {
		return nil, nil, err
	}
	if !body.Empty() {
		return nil, nil, der.Fault(name, "frame", "nothing after machine")
	}
	binding, err := p.check()
	if err != nil {
		return nil, nil, err
	}
	return p, binding, nil
}

// MarshalDocument returns the statement of type [oid.NodeAttestDocument]: an OCTET STRING
// with the platform's bytes, 1 to [MaxDocumentSize].
func MarshalDocument(document []byte) ([]byte, error) {
	if len(document) == 0 || len(document) > MaxDocumentSize {
		return nil, der.Fault("document", "bytes", "1 to 65536 bytes")
	}
	var b cryptobyte.Builder
	b.AddASN1OctetString(document)
	return b.Bytes()
}

// ParseDocument reads exactly what [MarshalDocument] writes; the result shares memory with
// data.
func ParseDocument(data []byte) ([]byte, error) {
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

// MachineHash is the machineKey of a machine whose evidence is a document: SHA-256 of the
// label "nodeattest machine", one zero byte and the identity.
func MachineHash(machine string) [HashSize]byte {
	return sha256.Sum256([]byte("nodeattest machine\x00" + machine))
}
