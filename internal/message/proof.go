package message

import "github.com/nodeattest/nodeattest/internal/der"

// Proof is the node's echo of the Binding, with the keys that it used. It is
// the second statement of an answer, of type [oid.NodeAttestProof].
//
//	Proof ::= SEQUENCE { binding Binding, ekPublic [0] IMPLICIT OCTET STRING OPTIONAL,
//	         akPublic OCTET STRING }
type Proof struct {
	// Binding is the DER of the Binding, byte for byte as it came in the
	// challenge.
	Binding []byte
	// EKPublic is as in [Hello].
	EKPublic []byte
	// AKPublic is the TPMT_PUBLIC of the AK that signed the certify statement.
	AKPublic []byte
}

// Marshal returns the DER of p. It returns a [*refusal.Error] with [der.CheckEncoding] if
// Binding is not the DER of a Binding or a key is empty or over
// [der.MaxPublicSize].
func (p *Proof) Marshal() ([]byte, error) {
	return der.Marshal("proof", func(c *der.Codec) { p.fields(c) })
}

// fields returns the Binding too, which is never nil.
func (p *Proof) fields(c *der.Codec) *Binding {
	binding := bindingField(c, &p.Binding)
	c.Demand(binding.Road.ofTPM(), "road", "ak or ek")
	keys(c, binding.Road, &p.EKPublic, &p.AKPublic)
	return binding
}

// bindingField is the first field of a proof and of a challenge: the DER of a Binding. It
// returns the zero one where that is none, beside the fault.
func bindingField(c *der.Codec, raw *[]byte) *Binding {
	c.Sequence("binding", raw)
	binding, err := ParseBinding(*raw)
	if c.Keep(err); err != nil {
		return &Binding{}
	}
	return binding
}

// ParseProof reads the DER of a Proof and of the Binding inside. It accepts
// exactly what [Proof.Marshal] writes; the result shares memory with der. It
// returns a [*refusal.Error] with [der.CheckEncoding], [der.CheckVersion] or [der.CheckSize].
func ParseProof(data []byte) (*Proof, *Binding, error) {
	var read struct {
		proof   Proof
		binding *Binding
	}
	err := der.Parse("proof", data, der.MaxEvidenceSize, func(c *der.Codec) { read.binding = read.proof.fields(c) })
	if err != nil {
		return nil, nil, err
	}
	return &read.proof, read.binding, nil
}
