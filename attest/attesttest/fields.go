package attesttest

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"golang.org/x/crypto/cryptobyte"
	"golang.org/x/crypto/cryptobyte/asn1"
)

// field is a part of evidence whose content can be replaced: an element of DER, a value of JSON, a string
// of CBOR, a word of text, or bytes behind their length.
type field struct {
	content []byte
	with    rebuild  // returns the evidence with other content
	without [][]byte // the evidence without the field, and with no value in it
	path    string   // the places of the fields around it and of its own, each with a slash before it
}

// rebuild returns the whole evidence with other content at one place. The lengths around it are right.
type rebuild func(content []byte) []byte

// spelling is evidence whose contents are the same in another encoding.
type spelling struct {
	how      string
	evidence []byte
}

// anatomy is evidence taken apart without knowledge of its format.
type anatomy struct {
	fields    []field
	spellings []spelling
}

// maxDepth is how deep fields may be nested: DER in base64 in JSON, for example.
const maxDepth = 12

func (f field) depth() int { return strings.Count(f.path, "/") }

// takeApart returns the anatomy of evidence, with the outer fields first.
func takeApart(evidence []byte) *anatomy {
	a := &anatomy{}
	a.read(evidence, bytes.Clone, "")
	slices.SortStableFunc(a.fields, func(x, y field) int { return x.depth() - y.depth() })
	return a
}

func (a *anatomy) read(data []byte, whole rebuild, path string) {
	elements := derElements(data)
	// Bytes inside something else are DER only if they are one SEQUENCE or SET: random ones never are.
	der := len(elements) > 0 && (path == "" || len(elements) == 1 && elements[0].tag|1 == asn1.SET)
	items, cbor := cborStrings(data)
	switch {
	case len(data) == 0 || strings.Count(path, "/") > maxDepth:
	case json.Valid(data) && strings.ContainsRune("{[", rune(bytes.TrimSpace(data)[0])):
		a.readJSON(data, whole, path)
	case printable(data): // before DER, since a brace or a letter is a tag, too
		a.readText(data, whole, path)
	case der:
		a.readDER(data, elements, whole, path)
	case cbor:
		a.readCBOR(data, items, whole, path)
	default:
		a.readPrefixed(data, whole, path)
	}
}

func (a *anatomy) add(content []byte, with rebuild, path string, without ...[]byte) {
	if len(a.fields) < 4*maxTries { // more of them, since the outer ones are tried first
		a.fields = append(a.fields, field{content, with, without, path})
	}
}

func (a *anatomy) respell(how string, evidence []byte) {
	if len(a.spellings) < maxTries {
		a.spellings = append(a.spellings, spelling{how, evidence})
	}
}

// splice returns data with other content between two places.
func splice(data []byte, from, to int, content ...[]byte) []byte {
	return slices.Concat(data[:from], bytes.Join(content, nil), data[to:])
}

func printable(data []byte) bool {
	return utf8.Valid(data) && !bytes.ContainsFunc(data, func(c rune) bool { return c < ' ' && c != '\n' && c != '\r' && c != '\t' })
}

// derElement is one element among others: data[from:to].
type derElement struct {
	tag      asn1.Tag
	content  []byte
	from, to int
}

// derElements returns the elements of a series, or nil if data is not one.
func derElements(data []byte) (elements []derElement) {
	for rest := cryptobyte.String(data); !rest.Empty(); {
		e := derElement{from: len(data) - len(rest)}
		if !rest.ReadAnyASN1((*cryptobyte.String)(&e.content), &e.tag) {
			return nil
		}
		e.to = len(data) - len(rest)
		elements = append(elements, e)
	}
	return elements
}

func element(tag asn1.Tag, content []byte) []byte {
	var b cryptobyte.Builder
	b.AddASN1(tag, func(b *cryptobyte.Builder) { b.AddBytes(content) })
	return b.BytesOrPanic() // the tag was read, and contents of 4 GiB are not
}

func (a *anatomy) readDER(data []byte, elements []derElement, whole rebuild, path string) {
	for n, e := range elements {
		path := path + "/" + strconv.Itoa(n)
		at := func(parts ...[]byte) []byte { return whole(splice(data, e.from, e.to, parts...)) }
		put := func(content []byte) []byte { return at(element(e.tag, content)) }
		a.add(e.content, put, path, at(), at([]byte{5, 0}))
		long := binary.BigEndian.AppendUint32([]byte{byte(e.tag), 0x84}, uint32(len(e.content))) //nolint:gosec // evidence is small
		a.respell("a length of DER in its long form", at(long, e.content))
		constructed := e.tag&0x20 != 0
		switch {
		case constructed:
			a.respell("an element of indefinite length", at([]byte{byte(e.tag), 0x80}, e.content, []byte{0, 0}))
			if inner := derElements(e.content); inner != nil {
				a.readDER(e.content, inner, put, path)
			}
		case e.tag == asn1.INTEGER && len(e.content) > 0 && e.content[0] < 0x80:
			a.respell("an INTEGER with a leading zero", put(append([]byte{0}, e.content...)))
		case e.tag == asn1.BIT_STRING && len(e.content) > 1:
			a.read(e.content[1:], func(b []byte) []byte { return put(append(e.content[:1:1], b...)) }, path)
		case len(e.content) > 8:
			a.read(e.content, put, path)
		}
	}
}

// readText reads words, such as the parts of a JWS.
func (a *anatomy) readText(data []byte, whole rebuild, path string) {
	words := textWord.FindAllIndex(data, -1)
	for n, at := range append(words, textValue.FindAllIndex(data, -1)...) {
		from, to, path := at[0], at[1], path+"/"+strconv.Itoa(n)
		put := func(content []byte) []byte { return whole(splice(data, from, to, content)) }
		a.add(data[from:to], put, path, whole(splice(data, max(from-1, 0), to)))
		a.readWord(string(data[from:to]), put, path)
	}
}

var (
	textWord  = regexp.MustCompile(`[A-Za-z0-9+/_=-]{8,}`)
	textValue = regexp.MustCompile(`[A-Za-z0-9]{8,}`) // of a name and an equals sign, for example
	hexText   = regexp.MustCompile(`^([0-9a-f]{16,}|[0-9A-F]{16,})$`)
	base64s   = []*base64.Encoding{base64.StdEncoding, base64.URLEncoding, base64.RawStdEncoding, base64.RawURLEncoding}
)

// readWord reads text that may be hexadecimal or base64.
func (a *anatomy) readWord(text string, put rebuild, path string) {
	if hexText.MatchString(text) {
		a.respell("hexadecimal in the other case", put([]byte(strings.ToUpper(text))))
		a.respell("hexadecimal in the other case", put([]byte(strings.ToLower(text))))
		if inside, err := hex.DecodeString(text); err == nil {
			a.readDecoded(inside, func(b []byte) []byte { return put([]byte(hex.EncodeToString(b))) }, path)
		}
		return
	}
	for _, encoding := range base64s {
		inside, err := encoding.Strict().DecodeString(text)
		if err != nil || len(inside) < 8 {
			continue
		}
		for _, other := range base64s {
			a.respell("base64 with another alphabet or padding", put([]byte(other.EncodeToString(inside))))
		}
		a.respell("base64 with a line break", put([]byte(text[:4]+`\n`+text[4:])))
		a.respell("base64 with a line break", put([]byte(text[:4]+"\n"+text[4:])))
		if loose, ok := unusedBits(text, encoding); ok {
			a.respell("base64 whose unused bits are set", put([]byte(loose)))
		}
		a.readDecoded(inside, func(b []byte) []byte { return put([]byte(encoding.EncodeToString(b))) }, path)
		return
	}
}

// readDecoded reads the bytes that a word encodes.
func (a *anatomy) readDecoded(data []byte, put rebuild, path string) {
	a.add(data, put, path+"/decoded")
	a.read(data, put, path+"/decoded")
}

// unusedBits returns base64 of the same bytes with another last character, if that has unused bits.
func unusedBits(text string, encoding *base64.Encoding) (string, bool) {
	last := len(strings.TrimRight(text, "=")) - 1
	want, _ := encoding.DecodeString(text)
	for _, c := range "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789" {
		loose := text[:last] + string(c) + text[last+1:]
		if got, err := encoding.DecodeString(loose); err == nil && loose != text && bytes.Equal(got, want) {
			return loose, true
		}
	}
	return "", false
}

// maxPrefixed is how many places are taken for a field behind its length.
const maxPrefixed = 48

// readPrefixed reads bytes of an unknown format: each place where a number in one of the usual forms
// could be the length of the bytes that follow. The last fields come first.
func (a *anatomy) readPrefixed(data []byte, whole rebuild, path string) {
	found := 0
	for i := len(data) - 8; i >= 0 && found < maxPrefixed; i-- {
		for _, p := range lengthForms {
			n, ok := p.read(data[i:])
			from := i + p.width
			if !ok || n < 8 || n > len(data)-from {
				continue
			}
			found++
			put := func(content []byte) []byte {
				return whole(splice(data, i, from+n, p.write(len(content)), content))
			}
			path := path + "/" + strconv.Itoa(i)
			a.add(data[from:from+n], put, path, whole(splice(data, i, from+n)))
			if from+n == len(data) && n > len(data)/2 { // the whole message
				a.readPrefixed(data[from:], put, path)
			}
		}
	}
}

// lengthForm is an encoding of a length.
type lengthForm struct {
	width int
	read  func(data []byte) (int, bool)
	write func(n int) []byte
}

var lengthForms = []lengthForm{
	{4, func(b []byte) (int, bool) { return int(binary.BigEndian.Uint32(b)), true },
		func(n int) []byte { return binary.BigEndian.AppendUint32(nil, uint32(n)) }}, //nolint:gosec // evidence is small
	{4, func(b []byte) (int, bool) { return int(binary.LittleEndian.Uint32(b)), true },
		func(n int) []byte { return binary.LittleEndian.AppendUint32(nil, uint32(n)) }}, //nolint:gosec // evidence is small
	{2, func(b []byte) (int, bool) { return int(binary.BigEndian.Uint16(b)), true },
		func(n int) []byte { return binary.BigEndian.AppendUint16(nil, uint16(n)) }}, //nolint:gosec // evidence is small
	{2, func(b []byte) (int, bool) { return int(binary.LittleEndian.Uint16(b)), true },
		func(n int) []byte { return binary.LittleEndian.AppendUint16(nil, uint16(n)) }}, //nolint:gosec // evidence is small
	{1, func(b []byte) (int, bool) { return int(b[0]), true },
		func(n int) []byte { return []byte{byte(n)} }}, //nolint:gosec // at most 255
	// A varint of two bytes; shorter ones are the form before.
	{2, func(b []byte) (int, bool) { return int(b[0]&0x7f) | int(b[1])<<7, b[0] >= 0x80 && b[1] < 0x80 },
		func(n int) []byte { return binary.AppendUvarint(nil, uint64(n)) }}, //nolint:gosec // evidence is small
}
