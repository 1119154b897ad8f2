package bootstraptoken

import (
	"encoding/binary"
	"errors"
	"strings"
	"testing"
	"unicode/utf16"
)

func TestParseYAML(t *testing.T) {
	deep := func(levels int) string { return strings.Repeat("[", levels-1) + "a" + strings.Repeat("]", levels-1) }
	utf16Text := binary.LittleEndian.AppendUint16(nil, 0xfeff)
	for _, unit := range utf16.Encode([]rune("a: b\n")) {
		utf16Text = binary.LittleEndian.AppendUint16(utf16Text, unit)
	}
	for text, want := range map[string]string{"\ufeffa: b": "a byte order mark", string(utf16Text): "UTF-16", "a: \xff": "not UTF-8"} {
		if _, err := parseYAML([]byte(text), checkManifest); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v does not say %q", text, err, want)
		}
	}
	for text, want := range map[string]error{
		"a: b": nil, "a: \"yes\"": nil, "a: 'on'": nil, "a: |\n  yes": nil, "a: yess": nil, "a: 1:60": nil, "a: a:20": nil, "a: 10.0.0.1": nil, "a: 2026-11-21": nil, "a: 1.5": nil,
		deep(maxYAMLDepth): nil, deep(maxYAMLDepth + 1): checkManifest,
		"": checkManifest, "# a": checkManifest, "a: <<": checkManifest, "a: !x b": checkManifest, "a: !!str b": checkManifest, "a: &b c": checkManifest, "a: *b": checkManifest,
		"a: b\na: c": checkManifest, "1: a": checkManifest, "? [a]\n: b": checkManifest, "a: b\n---\nc": checkManifest, "[&a b, *a]": checkManifest,
		"a: yes": checkManifest, "a: N": checkManifest, "on: a": checkManifest, "- OFF": checkManifest, "a: 1:20": checkManifest, "a: +1:20:59": checkManifest, "a: 1_0:2.5": checkManifest,
		"\ufeffa: b": checkManifest, "a: \x00": checkManifest, "\x00": checkManifest, "# \xff\na: b": checkManifest, string(utf16Text): checkManifest,
	} {
		t.Run(text, func(t *testing.T) {
			if _, err := parseYAML([]byte(text), checkManifest); !errors.Is(err, want) {
				t.Errorf("%v, want %v", err, want)
			}
		})
	}
}
