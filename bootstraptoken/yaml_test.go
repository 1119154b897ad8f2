package bootstraptoken

import (
	"encoding/binary"
	"errors"
	"strings"
	"testing"
	"unicode/utf16"
)

func TestParseYAML(t *testing.T) {
	utf16Text := binary.LittleEndian.AppendUint16(nil, 0xfeff)
	for _, unit := range utf16.Encode([]rune("a: b\n")) {
		utf16Text = binary.LittleEndian.AppendUint16(utf16Text, unit)
	}
	for text, want := range map[string]string{"\ufeffa: b": "a byte order mark", string(utf16Text): "UTF-16", "\xfe\xff": "UTF-16", "a: \xff": "not UTF-8"} {
		if _, err := parseYAML([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v does not say %q", text, err, want)
		}
	}
	for text, want := range map[string]error{
		"a: b": nil, "a: \"yes\"": nil, "a: 'on'": nil, "a: |\n  yes": nil, "a: yess": nil, "a: 1:60": nil, "a: a:20": nil, "a: 10.0.0.1": nil, "a: 2026-11-21": nil, "a: 1.5": nil,
		"": checkKubeconfig, "# a": checkKubeconfig, "a: !x b": checkKubeconfig, "a: !!str b": checkKubeconfig, "a: &b c": checkKubeconfig, "a: *b": checkKubeconfig,
		"a: b\n---\nc": checkKubeconfig, "[&a b, *a]": checkKubeconfig,
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

func TestWordsOfYAML(t *testing.T) {
	for text, want := range map[string]string{
		"": "not YAML", "# nothing": "not YAML", "a: [": "line 1: not YAML", "a: b\n---\nc: d\n": "something after the first document",
	} {
		t.Run(text, func(t *testing.T) {
			_, err := parseYAML([]byte(text))
			var e *Error
			if !errors.Is(err, checkKubeconfig) || !errors.As(err, &e) || e.Got != want {
				t.Errorf("%q: got %v, want %s", text, err, want)
			}
		})
	}
}

// Empty means null or the type's zero value; false is empty for a Boolean only.
func TestEmptyValues(t *testing.T) {
	for text, want := range map[string]map[string]bool{
		"null":      {"!!str": true, "!!bool": true, "!!map": true, "!!seq": true},
		`""`:        {"!!str": true, "!!bool": false, "!!map": false},
		`"false"`:   {"!!str": false, "!!bool": false},
		"false":     {"!!str": false, "!!bool": true},
		"true":      {"!!bool": false},
		"{}":        {"!!map": true, "!!seq": false, "!!str": false},
		"[]":        {"!!seq": true, "!!map": false},
		"[a]":       {"!!seq": false},
		"{a: b}":    {"!!map": false},
		`"content"`: {"!!str": false},
	} {
		t.Run(text, func(t *testing.T) {
			v, err := parseYAML([]byte(text))
			if err != nil {
				t.Fatalf("%s: %v", text, err)
			}
			for tag, taken := range want {
				if err := empty(tag, checkProxy)(v); (err == nil) != taken || err != nil && !errors.Is(err, checkProxy) {
					t.Errorf("%s as %s: %v", text, tag, err)
				}
			}
		})
	}
}
