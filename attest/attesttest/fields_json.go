package attesttest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// jsonValue is a member of an object, or an element of an array: its value is data[from:to], and with
// the comma before it data[before:to]. The name of a member is data[name:nameEnd], in quotes.
type jsonValue struct {
	before, name, nameEnd, from, to int
}

// jsonValues returns the values of valid JSON, which is an object or an array.
func jsonValues(data []byte) (values []jsonValue) {
	d := json.NewDecoder(bytes.NewReader(data))
	open, err := d.Token()
	for err == nil && d.More() {
		v := jsonValue{before: int(d.InputOffset())}
		if open == json.Delim('{') {
			_, err = d.Token()
			v.nameEnd = int(d.InputOffset())
			v.name = v.before + bytes.IndexByte(data[v.before:], '"')
		}
		var raw json.RawMessage
		if err == nil {
			err = d.Decode(&raw)
		}
		v.to = int(d.InputOffset())
		v.from = v.to - len(raw)
		values = append(values, v)
	}
	return values
}

func (a *anatomy) readJSON(data []byte, whole rebuild, path string) {
	values := jsonValues(data)
	a.respellJSON(data, values, whole)
	for n, v := range values {
		path := path + "/" + strconv.Itoa(n)
		put := func(content []byte) []byte { return whole(splice(data, v.from, v.to, content)) }
		after := v.to
		if n == 0 && len(values) > 1 {
			after += bytes.IndexByte(data[v.to:], ',') + 1
		}
		missing := [][]byte{whole(splice(data, v.before, after)), put([]byte("null"))}
		raw := data[v.from:v.to]
		switch raw[0] {
		case '"':
			text := raw[1 : len(raw)-1]
			quoted := func(content []byte) []byte { return put([]byte(`"` + string(content) + `"`)) }
			a.add(text, quoted, path, missing...)
			a.respell("a character of a JSON string as an escape", quoted(escapeFirst(text)))
			a.readWord(string(text), quoted, path)
		case '{', '[':
			a.add(raw, put, path, append(missing, put([]byte{raw[0], raw[len(raw)-1]}))...)
			a.readJSON(raw, put, path)
		default:
			a.add(raw, put, path, append(missing, put([]byte("0")))...)
			if !strings.ContainsAny(string(raw), ".eEtfn") {
				a.respell("a JSON number with an exponent", put(append(bytes.Clone(raw), "e0"...)))
			}
		}
	}
}

// respellJSON spells an object or array in other ways.
func (a *anatomy) respellJSON(data []byte, values []jsonValue, whole rebuild) {
	open := bytes.IndexAny(data, "{[") + 1
	a.respell("JSON with a space", whole(splice(data, open, open, []byte(" "))))
	a.respell("JSON with a line break after it", whole(append(bytes.Clone(data), '\n')))
	if len(values) == 0 || values[0].nameEnd == 0 {
		return
	}
	last := values[len(values)-1]
	var reversed [][]byte
	for _, v := range values {
		name, text := data[v.name:v.nameEnd], ""
		_ = json.Unmarshal(name, &text)
		plain, _ := json.Marshal(text)
		reversed = append([][]byte{data[v.name:v.to]}, reversed...)
		named := func(how string, other []byte) {
			if !bytes.Equal(other, name) {
				a.respell(how, whole(splice(data, v.name, v.nameEnd, other)))
			}
		}
		named("a JSON name in lower case", bytes.ToLower(plain))
		named("a JSON name in upper case", bytes.ToUpper(plain))
		named("a JSON name with an escape", splice(plain, 1, len(plain)-1, escapeFirst(plain[1:len(plain)-1])))
	}
	a.respell("JSON members in another order", whole(splice(data, open, last.to, bytes.Join(reversed, []byte(",")))))
	a.respell("JSON with a member that does not belong to it", whole(splice(data, last.to, last.to, []byte(`,"zzz":0`))))
	a.respell("JSON with a member twice", whole(splice(data, last.to, last.to, []byte(","), data[last.name:last.to])))
}

// escapeFirst writes the first character of the inside of a JSON string as an escape.
func escapeFirst(text []byte) []byte {
	if len(text) == 0 || text[0] == '\\' || text[0] >= 0x80 {
		return text
	}
	return fmt.Appendf(nil, `\u%04x%s`, text[0], text[1:])
}
