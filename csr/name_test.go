package csr

import "testing"

func TestNameAttributeText(t *testing.T) {
	const utf8String, printable, ia5, t61, bmp = 12, 19, 22, 20, 30
	for _, test := range []struct {
		tag   byte
		value string
		ok    bool
	}{
		{utf8String, "system:node:n\u00f6de", true},
		{utf8String, "", true},
		{utf8String, "\xff", false},
		{utf8String, "\xc0\x80", false},
		{printable, "system:node:node-1 (a) 'b' +,./=?", true},
		{printable, "node_1", false},
		{printable, "node*", false},
		{printable, "node@1", false},
		{printable, "n\u00f6de", false},
		{printable, "a\x00", false},
		{ia5, "node_1@example", true},
		{ia5, "n\u00f6de", false},
		{t61, "node", false},
		{bmp, "\x00a", false},
		{4, "node", false},
		{utf8String | 0x20, "node", false},
		{0, "node", false},
	} {
		a := NameAttribute{Tag: test.tag, Value: []byte(test.value)}
		got, ok := a.Text()
		if ok != test.ok || ok && got != test.value {
			t.Errorf("tag %d, %q: %q, %v", test.tag, test.value, got, ok)
		}
	}
}
