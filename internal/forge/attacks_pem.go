package forge

import (
	"bytes"
	"slices"
	"strings"

	"github.com/nodeattest/nodeattest/csr"
)

// PEMAttack is one change to the text of a good bundle.
type PEMAttack = Attack[func(string) string]

// Marks in the text of a good bundle.
const (
	endRequest    = "-----END CERTIFICATE REQUEST-----\n"
	beginProvider = "-----BEGIN KUBELET AUTHENTICATOR ATTESTATION PROVIDER-----\n"
	endProvider   = "-----END KUBELET AUTHENTICATOR ATTESTATION PROVIDER-----\n"
	beginData     = "-----BEGIN KUBELET AUTHENTICATOR ATTESTATION DATA-----\n"
	endData       = "-----END KUBELET AUTHENTICATOR ATTESTATION DATA-----\n"
	tpmV1         = "dHBtL3Yx\n"
)

// order has the blocks of a bundle stand in another order: r is the request, p the
// provider, d the data, and 0 a data block without content.
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

// LivePEMs are those that are live, under their names there: the others depend on the
// size of the evidence, or on another provider's name than this one.
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
	return []PEMAttack{
		{Name: "block-duplicate-request", What: "A second certificate request stands behind the first.", Expect: "bundle-block-duplicate",
			Change: order("rrpd")},
		{Name: "block-duplicate-request-behind", What: "A second certificate request stands behind the evidence.", Expect: "bundle-block-duplicate",
			Change: order("rpdr")},
		{Name: "block-duplicate-provider", What: "The provider block stands there twice.", Expect: "bundle-block-duplicate",
			Change: order("rppd")},
		{Name: "block-duplicate-data", live: "pem-data-twice", What: "The data block stands there twice.", Expect: "bundle-block-duplicate",
			Change: order("rpdd")},
		{Name: "block-reordered", live: "pem-order", What: "Provider and data change places.", Expect: "bundle-block-order",
			Change: order("rdp")},
		{Name: "block-request-not-first", What: "The evidence stands in front of the request.", Expect: "bundle-block-order",
			Change: order("pdr")},
		{Name: "block-unknown", live: "pem-unknown-block", What: "A block of another kind stands behind the evidence.", Expect: "bundle-block-unknown",
			Change: func(s string) string { return s + "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n" }},
		{Name: "block-new-certificate-request", What: "The request has the old label NEW CERTIFICATE REQUEST.", Expect: "bundle-block-unknown",
			Change: everywhere(" CERTIFICATE REQUEST", " NEW CERTIFICATE REQUEST")},
		{Name: "block-of-the-proposals-dialect", What: "The data block has the label of the proposal's example.", Expect: "bundle-block-unknown",
			Change: everywhere("KUBELET AUTHENTICATOR ATTESTATION DATA", "ATTESTATION DATA")},
		{Name: "block-headed", live: "pem-header", What: "A block has a header.", Expect: "bundle-block-header",
			Change: swap(beginProvider, beginProvider+"Proc-Type: 4,ENCRYPTED\n\n")},
		{Name: "block-empty", What: "The data block is empty.", Expect: "bundle-block-empty",
			Change: order("rp0")},
		{Name: "block-without-end", What: "The last block has no end.", Expect: "bundle-block-end", Change: swap(endData, "")},
		{Name: "block-with-another-end", What: "The provider block ends with the label of the data block.", Expect: "bundle-block-end", Change: swap(endProvider, endData)},
		{Name: "provider-without-data", What: "There is a provider and no data.", Expect: "bundle-block-missing",
			Change: order("rp")},
		{Name: "data-without-provider", What: "There is data and no provider.", Expect: "bundle-block-missing",
			Change: order("rd")},
		{Name: "request-missing", What: "There is nothing at all.", Expect: "bundle-size", Change: func(string) string { return "" }},
		{Name: "provider-without-version", What: "The provider block says tpm.", Expect: "bundle-provider", Change: swap(tpmV1, "dHBt\n")},
		{Name: "provider-version-zero", What: "The provider block says tpm/v0.", Expect: "bundle-provider", Change: swap(tpmV1, "dHBtL3Yw\n")},
		{Name: "provider-with-line-feed", What: "The provider block says tpm/v1 and a line feed.", Expect: "bundle-provider", Change: swap(tpmV1, "dHBtL3YxCg==\n")},
		{Name: "provider-in-capitals", What: "The provider block says TPM/v1.", Expect: "bundle-provider", Change: swap(tpmV1, "VFBNL3Yx\n")},
	}
}

func lineAttacks() []PEMAttack {
	return []PEMAttack{
		{Name: "text-before", What: "Text stands before the first block.", Expect: "bundle-block-text", Change: func(s string) string { return "request\n" + s }},
		{Name: "text-between", What: "Text stands between two blocks.", Expect: "bundle-block-text", Change: swap(endRequest, endRequest+"approved by admin\n")},
		{Name: "text-behind", What: "Text without line end stands behind the last block.", Expect: "bundle-block-text", Change: func(s string) string { return s + "x" }},
		{Name: "blank-line-before", What: "A blank line stands before the first block.", Expect: "bundle-line-blank", Change: func(s string) string { return "\n" + s }},
		{Name: "blank-line-between", What: "A blank line stands between two blocks.", Expect: "bundle-line-blank", Change: swap(endRequest, endRequest+"\n")},
		{Name: "blank-line-behind", What: "A blank line stands behind the last block.", Expect: "bundle-line-blank", Change: func(s string) string { return s + "\n" }},
		{Name: "crlf", What: "Lines end with CR LF.", Expect: "bundle-line-end", Change: everywhere("\n", "\r\n")},
		{Name: "crlf-once", What: "One line of base64 ends with CR LF.", Expect: "bundle-line-end", Change: swap(tpmV1, "dHBtL3Yx\r\n")},
		{Name: "last-line-unfinished", live: "pem-no-last-line-end", What: "The last line has no line feed.", Expect: "bundle-line-end", Change: func(s string) string { return strings.TrimSuffix(s, "\n") }},
		{Name: "space-at-line-end", What: "A space stands at the end of a BEGIN line.", Expect: "bundle-block-text",
			Change: swap(beginProvider, strings.TrimSuffix(beginProvider, "\n")+" \n")},
		{Name: "base64-line-short", What: "A line of base64 inside a block has fewer than 64 columns.", Expect: "bundle-line-width", Change: rewrapped(60)},
		{Name: "base64-line-long", What: "A line of base64 has 76 columns, as in MIME.", Expect: "bundle-line-width", Change: rewrapped(76)},
		{Name: "base64-unused-bits", live: "-", What: "The bits that base64 does not use in the last character are not zero.", Expect: "bundle-base64", Change: lastCharacter},
		{Name: "base64-padding-missing", live: "-", What: "The padding of the data block is left out.", Expect: "bundle-base64", Change: swap("==\n"+endData, "\n"+endData)},
		{Name: "base64-padding-too-much", What: "Four padding characters stand behind the provider's name.", Expect: "bundle-base64", Change: swap(tpmV1, "dHBtL3Yx====\n")},
		{Name: "base64-padding-inside", live: "-", What: "A line of base64 follows one that ends in padding.", Expect: "bundle-base64", Change: swap("==\n"+endData, "==\nAAAA\n"+endData)},
		{Name: "base64-url-alphabet", What: "The provider's name is in the URL alphabet of base64, as another name.", Expect: "bundle-base64", Change: swap(tpmV1, "dHBt-3Yx\n")},
		{Name: "base64-space-inside", What: "A space stands inside a line of base64.", Expect: "bundle-base64", Change: swap(tpmV1, "dHB L3Yx\n")},
	}
}

// rewrapped gives the request's block another width.
func rewrapped(width int) func(string) string {
	return func(s string) string {
		begin := strings.Index(s, "\n") + 1
		end := strings.Index(s, endRequest)
		text := strings.ReplaceAll(s[begin:end], "\n", "")
		lines := slices.Collect(slices.Chunk([]byte(text), width))
		return s[:begin] + string(bytes.Join(lines, []byte("\n"))) + "\n" + s[end:]
	}
}

// lastCharacter sets an unused bit in the last character of the data.
func lastCharacter(s string) string {
	at := strings.LastIndex(s, "==\n"+endData) - 1
	return s[:at] + string(s[at]+1) + s[at+1:]
}
