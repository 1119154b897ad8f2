package forge

import (
	"bytes"
	"slices"
	"strings"

	"github.com/nodeattest/nodeattest/csr"
)

// PEMAttack is one change to the text of a good bundle.
type PEMAttack = Attack[func(string) string]

// Markers in the text of a good bundle.
const (
	endRequest    = "-----END CERTIFICATE REQUEST-----\n"
	beginProvider = "-----BEGIN KUBELET AUTHENTICATOR ATTESTATION PROVIDER-----\n"
	endProvider   = "-----END KUBELET AUTHENTICATOR ATTESTATION PROVIDER-----\n"
	beginData     = "-----BEGIN KUBELET AUTHENTICATOR ATTESTATION DATA-----\n"
	endData       = "-----END KUBELET AUTHENTICATOR ATTESTATION DATA-----\n"
	tpmV1         = "dHBtL3Yx\n"
)

// order puts the blocks of a bundle in another order: r is the request, p the provider, d the
// data, and 0 a data block without content.
func order(blocks string) func(string) string {
	return func(s string) string {
		i, j := strings.Index(s, beginProvider), strings.Index(s, beginData)
		return strings.NewReplacer("r", s[:i], "p", s[i:j], "d", s[j:], "0", beginData+endData).Replace(blocks)
	}
}

func swap(old, replacement string) func(string) string {
	return func(s string) string { return strings.Replace(s, old, replacement, 1) }
}

func everywhere(old, replacement string) func(string) string {
	return func(s string) string { return strings.ReplaceAll(s, old, replacement) }
}

// PEMAttacks are attacks on the PEM of a bundle.
func PEMAttacks() []PEMAttack { return append(blockAttacks(), lineAttacks()...) }

// LivePEMs are the live ones, under their live names: the others depend on the size of the
// evidence, or on a provider name other than this one.
func (w *Bench) LivePEMs(provider string) (out []PEMAttack) {
	text := string(Must((&csr.Bundle{Request: w.Request, Provider: provider, Data: make([]byte, 94)}).Marshal()))
	for _, a := range PEMAttacks() {
		if a.Name = a.liveAs("pem-"); a.Name != "" && a.Change(text) != text {
			out = append(out, a)
		}
	}
	return out
}

func blockAttacks() []PEMAttack {
	return listed("PEM blocks", map[string]func(string) string{
		"block-duplicate-request":        order("rrpd"),
		"block-duplicate-request-last":   order("rpdr"),
		"block-duplicate-provider":       order("rppd"),
		"block-duplicate-data":           order("rpdd"),
		"block-reordered":                order("rdp"),
		"block-request-not-first":        order("pdr"),
		"block-unknown":                  func(s string) string { return s + "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n" },
		"block-new-certificate-request":  everywhere(" CERTIFICATE REQUEST", " NEW CERTIFICATE REQUEST"),
		"block-of-the-proposals-dialect": everywhere("KUBELET AUTHENTICATOR ATTESTATION DATA", "ATTESTATION DATA"),
		"block-headed":                   swap(beginProvider, beginProvider+"Proc-Type: 4,ENCRYPTED\n\n"),
		"block-empty":                    order("rp0"),
		"block-without-end":              swap(endData, ""),
		"block-with-another-end":         swap(endProvider, endData),
		"provider-without-data":          order("rp"),
		"data-without-provider":          order("rd"),
		"request-missing":                func(string) string { return "" },
		"provider-without-version":       swap(tpmV1, "dHBt\n"),
		"provider-version-zero":          swap(tpmV1, "dHBtL3Yw\n"),
		"provider-with-line-feed":        swap(tpmV1, "dHBtL3YxCg==\n"),
		"provider-in-capitals":           swap(tpmV1, "VFBNL3Yx\n"),
	})
}

func lineAttacks() []PEMAttack {
	return listed("PEM lines", map[string]func(string) string{
		"text-before":             func(s string) string { return "request\n" + s },
		"text-between":            swap(endRequest, endRequest+"approved by admin\n"),
		"trailing-text":           func(s string) string { return s + "x" },
		"blank-line-before":       func(s string) string { return "\n" + s },
		"blank-line-between":      swap(endRequest, endRequest+"\n"),
		"trailing-blank-line":     func(s string) string { return s + "\n" },
		"crlf":                    everywhere("\n", "\r\n"),
		"crlf-once":               swap(tpmV1, "dHBtL3Yx\r\n"),
		"last-line-unfinished":    func(s string) string { return strings.TrimSuffix(s, "\n") },
		"space-at-line-end":       swap(beginProvider, strings.TrimSuffix(beginProvider, "\n")+" \n"),
		"base64-line-short":       rewrapped(60),
		"base64-line-long":        rewrapped(76),
		"base64-padding-too-much": swap(tpmV1, "dHBtL3Yx====\n"),
		"base64-url-alphabet":     swap(tpmV1, "dHBt-3Yx\n"),
		"base64-space-inside":     swap(tpmV1, "dHB L3Yx\n"),
	})
}

// rewrapped gives the request's block another line width.
func rewrapped(width int) func(string) string {
	return func(s string) string {
		begin := strings.Index(s, "\n") + 1
		end := strings.Index(s, endRequest)
		text := strings.ReplaceAll(s[begin:end], "\n", "")
		lines := slices.Collect(slices.Chunk([]byte(text), width))
		return s[:begin] + string(bytes.Join(lines, []byte("\n"))) + "\n" + s[end:]
	}
}
