package costsearch

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// JSON reads one value. A member of an object is an element with its name and its value.
func JSON(in []byte) *Tree {
	d := json.NewDecoder(bytes.NewReader(in))
	d.UseNumber()
	return jsonValue(d)
}

func jsonValue(d *json.Decoder) *Tree {
	token, err := d.Token()
	if err != nil {
		panic(err)
	}
	switch token := token.(type) {
	case json.Delim:
		e := &Tree{Wrap: joined("[", ",", "]")}
		if token == '{' {
			e.Wrap = joined("{", ",", "}")
		}
		for d.More() {
			value := jsonValue(d)
			if token == '{' {
				value = &Tree{Wrap: joined("", ":", ""), Members: []*Tree{value, jsonValue(d)}}
			}
			e.Members = append(e.Members, value)
		}
		_, _ = d.Token() // the end
		return e
	case string:
		return &Tree{Wrap: joined(`"`, "", `"`), Content: []byte(token), Text: true}
	}
	_, number := token.(json.Number)
	return &Tree{Wrap: joined("", "", ""), Content: fmt.Append(nil, token), Text: number}
}

func joined(open, between, end string) func([][]byte) []byte {
	return func(parts [][]byte) []byte {
		return append(append([]byte(open), bytes.Join(parts, []byte(between))...), end...)
	}
}
