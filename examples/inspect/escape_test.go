package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"strings"
	"testing"

	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/refusal"
)

// evil clears a terminal, renames its window, and turns the direction of the text.
const evil = "\x1b[2J\x1b]0;root\x07\u202egpj\u009b31m\r\n\x00\x7f"

// TestEscapes hides terminal escapes wherever a requester can write text. That no
// control character comes out is checked by inspect, for every input.
func TestEscapes(t *testing.T) {
	key := must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	der := must(x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{
		Subject:         pkix.Name{CommonName: evil, Organization: []string{evil}},
		EmailAddresses:  []string{"a@b\x1b[1m"},
		DNSNames:        []string{"a\x1b[1m.example.com"},
		ExtraExtensions: []pkix.Extension{{Id: []int{1, 3, 6, 1, 4, 1, 11129, 2, 1, 21}, Value: append([]byte{12, byte(len(evil))}, evil...)}},
	}, key))(t)
	object := must(json.Marshal(map[string]any{
		"metadata": map[string]any{"name": evil, "annotations": map[string]string{evil: evil}},
		"spec":     map[string]any{"request": blocks(csr.BlockRequest, der), "username": evil},
		"status":   map[string]any{"conditions": []any{map[string]string{"type": evil, "reason": evil, "message": evil + " " + evil}}},
		evil:       evil,
	}))(t)
	for name, input := range map[string][]byte{
		"request":  der,
		"pem":      blocks(csr.BlockRequest, der),
		"provider": blocks(csr.BlockRequest, der, csr.BlockProvider, []byte(evil), csr.BlockData, []byte(evil)),
		"label":    []byte(strings.ReplaceAll(string(blocks(csr.BlockRequest, der)), "CERTIFICATE", "\x1b[31mCERT")),
		"text":     append([]byte(evil+"\n"), blocks(csr.BlockRequest, der)...),
		"object":   object,
	} {
		t.Run(name, func(t *testing.T) {
			_, out, _ := inspect(t, input)
			if name != "text" && name != "label" && !strings.Contains(out, `\x1b[2J`) {
				t.Errorf("the text is not shown escaped:\n%s", out)
			}
		})
	}
}

func TestPrintable(t *testing.T) {
	for in, want := range map[string]string{
		"plain, with a space and ü": "plain, with a space and ü",
		"\x1b[2J":                   `\x1b[2J`,
		"a\nb\tc\r":                 `a\nb\tc\r`,
		"\xff\xfe":                  `\xff\xfe`,
		"\u202e\u009b\u00a0":        `\u202e\u009b\u00a0`,
		"\ufffd":                    `\ufffd`,
		`quote " and \`:             `quote " and \`,
		"'":                         "'",
	} {
		t.Run(in, func(t *testing.T) {
			if got := refusal.Escape(in); got != want {
				t.Errorf("%q: %q, want %q", in, got, want)
			}
		})
	}
}
