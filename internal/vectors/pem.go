package main

import (
	"bytes"
	"strings"

	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/vector"
)

// pemAttack is one change to the text of a good bundle.
type pemAttack struct {
	name, what, expect string
	change             func(string) string
}

// pems are attacks on the PEM of a request.
func (w *world) pems() {
	good := string(must((&csr.Bundle{Request: w.request, Provider: "tpm/v1", Data: derive("evidence", 94)}).Marshal()))
	for _, a := range append(blockAttacks(), lineAttacks()...) {
		text := a.change(good)
		if text == good {
			panic(failure{errUnchanged(a.name)})
		}
		w.add(&vector.Vector{Name: a.name, Class: "request", Level: vector.LevelBundle, Description: a.what, Expect: a.expect,
			Package: vector.PackageCSR, Bundle: &vector.Bundle{PEM: []byte(text)}})
	}
	gke := w.gkePEM(gkeIdentity)
	for _, a := range []pemAttack{
		{name: "gke-identity-member-twice", what: "In GKE's dialect, the identity has a member twice: the last one won.", expect: "gke-identity",
			change: func(string) string { return w.gkePEM(strings.Replace(gkeIdentity, "}", `,"id":1}`, 1)) }},
		{name: "gke-block-twice", what: "In GKE's dialect, a block stands there twice: the last one won.", expect: "bundle-block-duplicate",
			change: func(s string) string {
				return s + s[strings.Index(s, "-----BEGIN VM"):strings.Index(s, "-----BEGIN ATTESTATION CERT")]
			}},
		{name: "gke-blocks-reordered", what: "In GKE's dialect, identity and certificate change places.", expect: "bundle-block-order",
			change: func(s string) string {
				i, j := strings.Index(s, "-----BEGIN VM"), strings.Index(s, "-----BEGIN ATTESTATION CERT")
				return s[:i] + s[j:] + s[i:j]
			}},
	} {
		w.add(&vector.Vector{Name: a.name, Class: "request", Level: vector.LevelBundle, Description: a.what, Expect: a.expect,
			Package: vector.PackageCSR, Bundle: &vector.Bundle{Format: "gke", PEM: []byte(a.change(gke))}})
	}
}

// Marks in the text of a good bundle.
const (
	endRequest    = "-----END CERTIFICATE REQUEST-----\n"
	beginProvider = "-----BEGIN KUBELET AUTHENTICATOR ATTESTATION PROVIDER-----\n"
	endProvider   = "-----END KUBELET AUTHENTICATOR ATTESTATION PROVIDER-----\n"
	beginData     = "-----BEGIN KUBELET AUTHENTICATOR ATTESTATION DATA-----\n"
	endData       = "-----END KUBELET AUTHENTICATOR ATTESTATION DATA-----\n"
	tpmV1         = "dHBtL3Yx\n"
)

// pemBlocks cuts a bundle into request, provider and data.
func pemBlocks(s string) (request, provider, data string) {
	i, j := strings.Index(s, beginProvider), strings.Index(s, beginData)
	return s[:i], s[i:j], s[j:]
}

func swap(old, replacement string) func(string) string {
	return func(s string) string { return strings.Replace(s, old, replacement, 1) }
}

func blockAttacks() []pemAttack {
	order := func(how func(request, provider, data string) string) func(string) string {
		return func(s string) string { return how(pemBlocks(s)) }
	}
	return []pemAttack{
		{name: "block-duplicate-request", what: "A second certificate request stands behind the first.", expect: "bundle-block-duplicate",
			change: order(func(r, p, d string) string { return r + r + p + d })},
		{name: "block-duplicate-request-behind", what: "A second certificate request stands behind the evidence.", expect: "bundle-block-duplicate",
			change: order(func(r, p, d string) string { return r + p + d + r })},
		{name: "block-duplicate-provider", what: "The provider block stands there twice.", expect: "bundle-block-duplicate",
			change: order(func(r, p, d string) string { return r + p + p + d })},
		{name: "block-duplicate-data", what: "The data block stands there twice.", expect: "bundle-block-duplicate",
			change: order(func(r, p, d string) string { return r + p + d + d })},
		{name: "block-reordered", what: "Provider and data change places.", expect: "bundle-block-order",
			change: order(func(r, p, d string) string { return r + d + p })},
		{name: "block-request-not-first", what: "The evidence stands in front of the request.", expect: "bundle-block-order",
			change: order(func(r, p, d string) string { return p + d + r })},
		{name: "block-unknown", what: "A block of another kind stands behind the evidence.", expect: "bundle-block-unknown",
			change: func(s string) string { return s + "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n" }},
		{name: "block-new-certificate-request", what: "The request has the old label NEW CERTIFICATE REQUEST.", expect: "bundle-block-unknown",
			change: func(s string) string {
				return strings.ReplaceAll(s, " CERTIFICATE REQUEST", " NEW CERTIFICATE REQUEST")
			}},
		{name: "block-of-the-proposals-dialect", what: "The data block has the label of the proposal's example.", expect: "bundle-block-unknown",
			change: func(s string) string {
				return strings.ReplaceAll(s, "KUBELET AUTHENTICATOR ATTESTATION DATA", "ATTESTATION DATA")
			}},
		{name: "block-headed", what: "A block has a header.", expect: "bundle-block-header",
			change: swap(beginProvider, beginProvider+"Proc-Type: 4,ENCRYPTED\n\n")},
		{name: "block-empty", what: "The data block is empty.", expect: "bundle-block-empty",
			change: order(func(r, p, _ string) string { return r + p + beginData + endData })},
		{name: "block-without-end", what: "The last block has no end.", expect: "bundle-block-end", change: swap(endData, "")},
		{name: "block-with-another-end", what: "The provider block ends with the label of the data block.", expect: "bundle-block-end", change: swap(endProvider, endData)},
		{name: "provider-without-data", what: "There is a provider and no data.", expect: "bundle-block-missing",
			change: order(func(r, p, _ string) string { return r + p })},
		{name: "data-without-provider", what: "There is data and no provider.", expect: "bundle-block-missing",
			change: order(func(r, _, d string) string { return r + d })},
		{name: "request-missing", what: "There is nothing at all.", expect: "bundle-size", change: func(string) string { return "" }},
		{name: "provider-without-version", what: "The provider block says tpm.", expect: "bundle-provider", change: swap(tpmV1, "dHBt\n")},
		{name: "provider-version-zero", what: "The provider block says tpm/v0.", expect: "bundle-provider", change: swap(tpmV1, "dHBtL3Yw\n")},
		{name: "provider-with-line-feed", what: "The provider block says tpm/v1 and a line feed.", expect: "bundle-provider", change: swap(tpmV1, "dHBtL3YxCg==\n")},
		{name: "provider-in-capitals", what: "The provider block says TPM/v1.", expect: "bundle-provider", change: swap(tpmV1, "VFBNL3Yx\n")},
	}
}

func lineAttacks() []pemAttack {
	return []pemAttack{
		{name: "text-before", what: "Text stands before the first block.", expect: "bundle-block-text", change: func(s string) string { return "request\n" + s }},
		{name: "text-between", what: "Text stands between two blocks.", expect: "bundle-block-text", change: swap(endRequest, endRequest+"approved by admin\n")},
		{name: "text-behind", what: "Text without line end stands behind the last block.", expect: "bundle-block-text", change: func(s string) string { return s + "x" }},
		{name: "blank-line-before", what: "A blank line stands before the first block.", expect: "bundle-line-blank", change: func(s string) string { return "\n" + s }},
		{name: "blank-line-between", what: "A blank line stands between two blocks.", expect: "bundle-line-blank", change: swap(endRequest, endRequest+"\n")},
		{name: "blank-line-behind", what: "A blank line stands behind the last block.", expect: "bundle-line-blank", change: func(s string) string { return s + "\n" }},
		{name: "crlf", what: "Lines end with CR LF.", expect: "bundle-line-end", change: func(s string) string { return strings.ReplaceAll(s, "\n", "\r\n") }},
		{name: "crlf-once", what: "One line of base64 ends with CR LF.", expect: "bundle-line-end", change: swap(tpmV1, "dHBtL3Yx\r\n")},
		{name: "last-line-unfinished", what: "The last line has no line feed.", expect: "bundle-line-end", change: func(s string) string { return strings.TrimSuffix(s, "\n") }},
		{name: "space-at-line-end", what: "A space stands at the end of a BEGIN line.", expect: "bundle-block-text",
			change: swap(beginProvider, strings.TrimSuffix(beginProvider, "\n")+" \n")},
		{name: "base64-line-short", what: "A line of base64 inside a block has fewer than 64 columns.", expect: "bundle-line-width", change: rewrapped(60)},
		{name: "base64-line-long", what: "A line of base64 has 76 columns, as in MIME.", expect: "bundle-line-width", change: rewrapped(76)},
		{name: "base64-unused-bits", what: "The bits that base64 does not use in the last character are not zero.", expect: "bundle-base64", change: lastCharacter},
		{name: "base64-padding-missing", what: "The padding of the data block is left out.", expect: "bundle-base64", change: swap("==\n"+endData, "\n"+endData)},
		{name: "base64-padding-too-much", what: "Four padding characters stand behind the provider's name.", expect: "bundle-base64", change: swap(tpmV1, "dHBtL3Yx====\n")},
		{name: "base64-padding-inside", what: "A line of base64 follows one that ends in padding.", expect: "bundle-base64", change: swap("==\n"+endData, "==\nAAAA\n"+endData)},
		{name: "base64-url-alphabet", what: "The provider's name is in the URL alphabet of base64, as another name.", expect: "bundle-base64", change: swap(tpmV1, "dHBt-3Yx\n")},
		{name: "base64-space-inside", what: "A space stands inside a line of base64.", expect: "bundle-base64", change: swap(tpmV1, "dHB L3Yx\n")},
	}
}

// rewrapped gives the request's block another width.
func rewrapped(width int) func(string) string {
	return func(s string) string {
		begin := strings.Index(s, "\n") + 1
		end := strings.Index(s, endRequest)
		text := strings.ReplaceAll(s[begin:end], "\n", "")
		var out bytes.Buffer
		out.WriteString(s[:begin])
		for len(text) > width {
			out.WriteString(text[:width] + "\n")
			text = text[width:]
		}
		out.WriteString(text + "\n" + s[end:])
		return out.String()
	}
}

// lastCharacter sets an unused bit in the last character of the data.
func lastCharacter(s string) string {
	at := strings.LastIndex(s, "==\n"+endData) - 1
	return s[:at] + string(s[at]+1) + s[at+1:]
}

// gkeIdentity is the JSON of GKE's block VM IDENTITY.
const gkeIdentity = `{"zone":"us-central1-a","id":5779862431105934320,"name":"gke-node-1","project_id":117485845609,"project_name":"example.com:project"}`

// gkePEM is a request in GKE's dialect.
func (w *world) gkePEM(identity string) string {
	p := takeApart(w.good)
	sig := p.certify.Signature[6:] // bare
	var out bytes.Buffer
	for _, b := range []struct {
		label string
		data  []byte
	}{
		{csr.BlockRequest, w.request}, {csr.BlockProposalData, p.certify.Attest}, {csr.BlockGKESignature, sig},
		{csr.BlockGKEIdentity, []byte(identity)}, {csr.BlockGKECertificate, p.evidence.Certificates[0]},
	} {
		out.WriteString(pemBlock(b.label, b.data))
	}
	return out.String()
}
