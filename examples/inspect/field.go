package main

import (
	"encoding/hex"
	"math/big"
	"strconv"
	"time"
	"unicode/utf8"

	"golang.org/x/crypto/cryptobyte"
	"golang.org/x/crypto/cryptobyte/asn1"

	"github.com/nodeattest/nodeattest/oid"
)

// Tags that cryptobyte can name in calls only.
const (
	tag0            asn1.Tag = 0x80 // [0], primitive
	tag0Constructed asn1.Tag = 0xa0
	tag1Constructed asn1.Tag = 0xa1
	tag3Constructed asn1.Tag = 0xa3
)

// octets takes an OCTET STRING and writes it.
func (r *reader) octets(name string) {
	if content, _, ok := r.take(name, asn1.OCTET_STRING); ok {
		r.t.line(name, hexOf(content.b))
	}
}

// structure takes an OCTET STRING, or one under another tag, and reads what is in it.
func (r *reader) structure(name string, tag asn1.Tag, show func(in *reader)) {
	if r.done {
		return
	}
	r.t.in(name, "", func() {
		if content, _, ok := r.takeOpen(name, tag, true); ok {
			r.t.line("size", sizeOf(len(content.b)))
			show(content)
		}
	})
}

// text takes a UTF8String and writes it.
func (r *reader) text(name string) string {
	content, _, ok := r.take(name, asn1.UTF8String)
	if !ok {
		return ""
	}
	if !utf8.Valid(content.b) {
		content.stop("%s: not UTF-8: %s", name, hexOf(content.b))
		r.done = true
		return ""
	}
	r.t.line(name, quoted(string(content.b)))
	return string(content.b)
}

// number takes an INTEGER, or an ENUMERATED, of at most 63 bits.
func (r *reader) number(name string, tag asn1.Tag) (int64, bool) {
	at := r.at
	content, _, ok := r.take(name, tag)
	if !ok {
		return 0, false
	}
	v := signed(content.b)
	if v == nil || !v.IsInt64() {
		r.done = true
		r.t.stop(at, name+": no shortest INTEGER of 63 bits: "+hexOf(content.b))
		return 0, false
	}
	return v.Int64(), true
}

// integer takes an INTEGER of any size and writes it.
func (r *reader) integer(name string) {
	at := r.at
	content, _, ok := r.take(name, asn1.INTEGER)
	if !ok {
		return
	}
	switch v := signed(content.b); {
	case v == nil:
		r.done = true
		r.t.stop(at, name+": no shortest INTEGER: "+hexOf(content.b))
	case v.IsInt64():
		r.t.line(name, v.String())
	default:
		r.t.line(name, "0x"+hexOf(content.b))
	}
}

// signed returns the value of an INTEGER's content, nil where it is not in its
// shortest form.
func signed(b []byte) *big.Int {
	if len(b) == 0 || len(b) > 1 && (b[0] == 0 && b[1] < 0x80 || b[0] == 0xff && b[1] >= 0x80) {
		return nil
	}
	v := new(big.Int).SetBytes(b)
	if b[0] >= 0x80 {
		v.Sub(v, new(big.Int).Lsh(big.NewInt(1), uint(8*len(b))))
	}
	return v
}

// version takes INTEGER (1), as the messages of this SDK have it.
func (r *reader) version() {
	if v, ok := r.number("version", asn1.INTEGER); ok {
		r.t.line("version", strconv.FormatInt(v, 10))
	}
}

// road takes ENUMERATED { ak(0), ek(1) }.
func (r *reader) road() {
	v, ok := r.number("road", asn1.ENUM)
	if !ok {
		return
	}
	meaning := map[int64]string{0: "ak (AK certificate)", 1: "ek (EK certificate and credential)"}[v]
	if meaning == "" {
		meaning = strconv.FormatInt(v, 10) + ", which is none"
	}
	r.t.line("road", meaning)
}

// unixTime takes an INTEGER of Unix seconds.
func (r *reader) unixTime(name string) {
	if v, ok := r.number(name, asn1.INTEGER); ok {
		when := ""
		if v >= 0 && v <= 253402300799 {
			when = " (" + time.Unix(v, 0).UTC().Format(time.RFC3339) + ")"
		}
		r.t.line(name, strconv.FormatInt(v, 10)+when)
	}
}

// time takes a UTCTime or a GeneralizedTime.
func (r *reader) time(name string) {
	at := r.at
	_, _, raw, ok := r.element(name)
	if !ok {
		return
	}
	s := cryptobyte.String(raw)
	var v time.Time
	if (s.PeekASN1Tag(asn1.UTCTime) && s.ReadASN1UTCTime(&v) || s.ReadASN1GeneralizedTime(&v)) && s.Empty() {
		r.t.line(name, v.UTC().Format(time.RFC3339))
		return
	}
	r.done = true
	r.t.stop(at, name+": no UTCTime or GeneralizedTime")
}

// oid takes an OBJECT IDENTIFIER and does not write it.
func (r *reader) oid(name string) oid.OID {
	at := r.at
	content, raw, ok := r.take(name, asn1.OBJECT_IDENTIFIER)
	if !ok {
		return ""
	}
	var id oid.OID
	if s := cryptobyte.String(raw); !oid.Read(&s, &id) {
		r.done = true
		r.t.stop(at, name+": no identifier in its shortest form: "+hexOf(content.b))
	}
	return id
}

// nameOf gives an identifier's name and its number.
func nameOf(id oid.OID) string {
	if name := id.Name(); name != "" {
		return name + " (" + id.String() + ")"
	}
	return id.String()
}

// bits takes a BIT STRING of whole bytes.
func (r *reader) bits(name string) *reader {
	content, _, ok := r.take(name, asn1.BIT_STRING)
	if !ok {
		return nil
	}
	if unused, ok := content.bytes(name, 1); !ok || unused[0] != 0 {
		content.stop("%s: not a BIT STRING of whole bytes", name)
		r.done = true
		return nil
	}
	return content
}

// algorithm takes an AlgorithmIdentifier and writes it.
func (r *reader) algorithm(name string) (id oid.OID) {
	r.enter(name, asn1.SEQUENCE, func(in *reader, _ []byte) {
		id = in.oid(name)
		if in.done {
			return
		}
		parameters := ""
		if in.more() {
			if _, _, raw, ok := in.element("parameters"); ok {
				parameters = ", parameters " + parametersOf(raw)
			}
		}
		r.t.line(name, nameOf(id)+parameters)
	})
	return id
}

func parametersOf(raw []byte) string {
	var id oid.OID
	if s := cryptobyte.String(raw); oid.Read(&s, &id) && s.Empty() {
		return nameOf(id)
	}
	if len(raw) == 2 && raw[0] == 5 {
		return "NULL"
	}
	return hex.EncodeToString(raw[:min(len(raw), maxHex)])
}
