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
	for text, want := range map[string]error{
		"a: b": nil, "a: \"yes\"": nil, "a: 'on'": nil, "a: |\n  yes": nil, "a: yess": nil, "a: 1:60": nil, "a: a:20": nil, "a: 10.0.0.1": nil, "a: 2026-11-21": nil, "a: 1.5": nil,
		deep(maxYAMLDepth): nil, deep(maxYAMLDepth + 1): CheckManifest,
		"": CheckManifest, "# a": CheckManifest, "a: <<": CheckManifest, "a: !x b": CheckManifest, "a: !!str b": CheckManifest, "a: &b c": CheckManifest, "a: *b": CheckManifest,
		"a: b\na: c": CheckManifest, "1: a": CheckManifest, "? [a]\n: b": CheckManifest, "a: b\n---\nc": CheckManifest, "[&a b, *a]": CheckManifest,
		"a: yes": CheckManifest, "a: N": CheckManifest, "on: a": CheckManifest, "- OFF": CheckManifest, "a: 1:20": CheckManifest, "a: +1:20:59": CheckManifest, "a: 1_0:2.5": CheckManifest,
		"\ufeffa: b": CheckManifest, "a: \x00": CheckManifest, "\x00": CheckManifest, "# \xff\na: b": CheckManifest, string(utf16Text): CheckManifest,
	} {
		t.Run(text, func(t *testing.T) {
			if _, err := parseYAML([]byte(text), CheckManifest); !errors.Is(err, want) {
				t.Errorf("%v, want %v", err, want)
			}
		})
	}
}
