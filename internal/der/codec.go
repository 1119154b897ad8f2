package der

import (
	"strconv"

	"golang.org/x/crypto/cryptobyte"
	"golang.org/x/crypto/cryptobyte/asn1"

	"github.com/nodeattest/nodeattest/refusal"
)

// Codec goes through the fields of one message in order, and reads or writes each: one
// function per message states its fields, their limits and the rules between them, and serves
// both directions. Only the first fault counts.
type Codec struct {
	message string
	in      cryptobyte.String   // still to be read
	out     *cryptobyte.Builder // nil when reading
	err     error
}

// Marshal writes a message as a SEQUENCE of its fields.
func Marshal(message string, fields func(*Codec)) ([]byte, error) {
	var w struct { // one allocation for most messages
		Codec
		frame  cryptobyte.Builder
		buffer [640]byte
	}
	w.message, w.frame = message, *cryptobyte.NewBuilder(w.buffer[:0])
	w.frame.AddASN1(asn1.SEQUENCE, func(b *cryptobyte.Builder) {
		w.out = b
		fields(&w.Codec)
	})
	data, err := w.frame.Bytes()
	if w.Keep(err); w.err != nil {
		return nil, w.err
	}
	return data, nil
}

// Parse reads a message of at most maxSize bytes into v, whose fields are given: a SEQUENCE of
// them, and nothing after it.
func Parse[T any](v *T, message string, data []byte, maxSize int, fields func(*T, *Codec)) (*T, error) {
	body, err := OpenSequence(message, data, maxSize)
	if err != nil {
		return nil, err
	}
	c := Codec{message: message, in: body}
	fields(v, &c)
	if c.Demand(c.in.Empty(), "frame", "nothing after the last field"); c.err != nil {
		return nil, c.err
	}
	return v, nil
}

// Keep records the result of a field's own check; nil is fine.
func (c *Codec) Keep(err error) {
	if c.err == nil {
		c.err = err
	}
}

// Demand states a rule between fields.
func (c *Codec) Demand(kept bool, field, want string) {
	if !kept {
		c.Keep(Fault(c.message, field, want))
	}
}

// Has reports whether an optional field comes next: when reading, the one with this tag; when
// writing, one that is there to be written.
func (c *Codec) Has(tag asn1.Tag, there bool) bool {
	if c.out != nil {
		return there
	}
	return c.in.PeekASN1Tag(tag)
}

// Nested is a constructed field that has fields of its own.
func (c *Codec) Nested(field string, tag asn1.Tag, fields func(*Codec)) {
	inner := Codec{message: c.message}
	if c.out != nil {
		c.out.AddASN1(tag, func(b *cryptobyte.Builder) {
			inner.out = b
			fields(&inner)
		})
	} else {
		c.Demand(c.in.ReadASN1(&inner.in, tag), field, "the fields of one")
		fields(&inner)
		inner.Demand(inner.in.Empty(), field, "nothing after the last field")
	}
	c.Keep(inner.err)
}

// Version is INTEGER (1).
func (c *Codec) Version() {
	v := int64(1)
	if c.out != nil {
		c.out.AddASN1Int64(v)
		return
	}
	c.Demand(c.in.ReadASN1Integer(&v), "version", "a DER INTEGER")
	if v != 1 {
		c.Keep(&refusal.Error{Check: CheckVersion, Got: strconv.FormatInt(v, 10), Want: "1"})
	}
}

// Enum is an ENUMERATED of 0 to most.
func (c *Codec) Enum(field string, v *int, most int) {
	if c.out == nil && !c.in.ReadASN1Enum(v) || *v < 0 || *v > most {
		c.Keep(Fault(c.message, field, "an ENUMERATED of 0 to "+strconv.Itoa(most)))
	}
	if c.out != nil {
		c.out.AddASN1Enum(int64(*v))
	}
}

// Int is an INTEGER of 0 to limit.
func Int[T int32 | int64](c *Codec, field string, v *T, limit T) {
	if c.out == nil && !c.in.ReadASN1Integer(v) || *v < 0 || *v > limit {
		c.Keep(Fault(c.message, field, "an INTEGER of 0 to "+strconv.FormatInt(int64(limit), 10)))
	}
	if c.out != nil {
		c.out.AddASN1Int64(int64(*v))
	}
}

// Text is a UTF8String of minSize to maxSize bytes.
func (c *Codec) Text(field string, v *string, minSize, maxSize int) {
	if c.out == nil {
		var text cryptobyte.String
		c.Demand(c.in.ReadASN1(&text, asn1.UTF8String), field, "a UTF8String")
		*v = string(text)
	}
	c.Keep(CheckText(c.message, field, *v, minSize, maxSize))
	if c.out != nil {
		AddText(c.out, *v)
	}
}

// Octets is a primitive string of the given tag and of minSize to maxSize bytes. When reading,
// the result shares memory with the message.
func (c *Codec) Octets(field string, v *[]byte, tag asn1.Tag, minSize, maxSize int) {
	if c.out == nil {
		c.Demand(c.in.ReadASN1((*cryptobyte.String)(v), tag), field, "an OCTET STRING")
	}
	c.Keep(checkSize(c.message, field, *v, minSize, maxSize))
	if c.out != nil {
		AddTagged(c.out, tag, *v)
	}
}

// Optional is like Octets, or absent: nil.
func (c *Codec) Optional(field string, v *[]byte, tag asn1.Tag, minSize, maxSize int) {
	if c.Has(tag, *v != nil) {
		c.Octets(field, v, tag, minSize, maxSize)
	}
}

// Fixed is an OCTET STRING that fills v exactly.
func (c *Codec) Fixed(field string, v []byte) {
	read := v
	c.Octets(field, &read, asn1.OCTET_STRING, len(v), len(v))
	copy(v, read)
}

// Sequence is a SEQUENCE that contains another message, with its tag and length.
func (c *Codec) Sequence(field string, v *[]byte) {
	if c.out != nil {
		c.out.AddBytes(*v)
		return
	}
	c.Demand(c.in.ReadASN1Element((*cryptobyte.String)(v), asn1.SEQUENCE), field, "a SEQUENCE")
}
