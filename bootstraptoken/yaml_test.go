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
		if _, err := parseYAML([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v does not say %q", text, err, want)
		}
	}
	for text, want := range map[string]error{
		"a: b": nil, "a: \"yes\"": nil, "a: 'on'": nil, "a: |\n  yes": nil, "a: yess": nil, "a: 1:60": nil, "a: a:20": nil, "a: 10.0.0.1": nil, "a: 2026-11-21": nil, "a: 1.5": nil,
		deep(maxYAMLDepth): nil, deep(maxYAMLDepth + 1): checkKubeconfig,
		"": checkKubeconfig, "# a": checkKubeconfig, "a: <<": checkKubeconfig, "a: !x b": checkKubeconfig, "a: !!str b": checkKubeconfig, "a: &b c": checkKubeconfig, "a: *b": checkKubeconfig,
		"a: b\na: c": checkKubeconfig, "1: a": checkKubeconfig, "? [a]\n: b": checkKubeconfig, "a: b\n---\nc": checkKubeconfig, "[&a b, *a]": checkKubeconfig,
		"a: yes": checkKubeconfig, "a: N": checkKubeconfig, "on: a": checkKubeconfig, "- OFF": checkKubeconfig, "a: 1:20": checkKubeconfig, "a: +1:20:59": checkKubeconfig, "a: 1_0:2.5": checkKubeconfig,
		"\ufeffa: b": checkKubeconfig, "a: \x00": checkKubeconfig, "\x00": checkKubeconfig, "# \xff\na: b": checkKubeconfig, string(utf16Text): checkKubeconfig,
	} {
		t.Run(text, func(t *testing.T) {
			if _, err := parseYAML([]byte(text)); !errors.Is(err, want) {
				t.Errorf("%v, want %v", err, want)
			}
		})
	}
}
