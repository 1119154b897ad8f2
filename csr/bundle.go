package csr

import (
	"encoding/pem"
	"strconv"
)

// Labels of the PEM blocks of a request, in their order.
const (
	// BlockRequest holds the PKCS#10 request in DER (RFC 7468, 7). It is the only block
	// that kube-apiserver reads.
	BlockRequest = "CERTIFICATE REQUEST"
	// BlockProvider holds the name and version of the attestation provider, in ASCII.
	BlockProvider = "KUBELET AUTHENTICATOR ATTESTATION PROVIDER"
	// BlockData holds the provider's bytes.
	BlockData = "KUBELET AUTHENTICATOR ATTESTATION DATA"
	// BlockProposalData is the label that the example of the Cluster API proposal
	// ("Attestation data") has where its table has BlockData. GKE's requests have it
	// too.
	BlockProposalData = "ATTESTATION DATA"
)

// Rules of a bundle.
const (
	// CheckBundleSize: a bundle has 1 to MaxBundleSize bytes.
	CheckBundleSize Check = "bundle-size"
	// CheckProvider: the provider block is ProviderName/vN, see Bundle.
	CheckProvider Check = "bundle-provider"
)

// Bundle is the content of CertificateSigningRequest.spec.request: a PKCS#10 request
// and, where the node attests itself, a provider's evidence (Cluster API kubelet
// authentication, "CSR PEM Blocks").
type Bundle struct {
	// Request is the PKCS#10 request in DER. Parse has looked at its outer shape alone;
	// ParsePKCS10 reads it.
	Request []byte
	// Provider is the name of the attestation provider and the version of its data
	// format, such as "tpm/v1": a name as in a signer name (1 to 63 lower-case letters,
	// digits and inner hyphens), "/v", and a decimal number from 1 to 999999999. It is
	// empty, and Data nil, in a request without evidence. The signer name of a request
	// decides which provider verifies it, never this field.
	Provider string
	// Data is the provider's evidence, at least one byte where there is a Provider.
	Data []byte
}

// bundleBlocks is the order of the blocks of a bundle.
var bundleBlocks = []string{BlockRequest, BlockProvider, BlockData}

// Parse reads a bundle: one CERTIFICATE REQUEST block, and after it either nothing or
// one provider and one data block. The blocks are canonical PEM (RFC 7468, the strict
// form of section 3 with LF line ends): no headers, base64 in lines of 64 columns with
// canonical padding, every line ended by one LF, nothing before, between or after the
// blocks. So every bundle has one encoding: where Parse succeeds, Marshal of the result
// is the input.
//
// The result does not alias the input. The error is a [*Error] with one of the
// Rules named Bundle, Block, Line or Base64, [CheckProvider] or [CheckRequestDER]: the
// first fault in the text.
func Parse(pem []byte) (*Bundle, error) {
	r := blockReader{labels: bundleBlocks}
	if err := r.readAll(pem); err != nil {
		return nil, err
	}
	b := &Bundle{Request: r.block(BlockRequest), Data: r.block(BlockData)}
	provider := r.block(BlockProvider)
	if provider == nil && b.Data == nil {
		return b, nil
	}
	if err := r.need(BlockProvider, BlockData); err != nil {
		return nil, err
	}
	if b.Provider = "tpm/v1"; string(provider) != b.Provider { // nearly always: that saves an allocation
		b.Provider = string(provider)
	}
	if _, _, err := ProviderVersion(b.Provider); err != nil {
		return nil, err
	}
	return b, nil
}

// Marshal writes the bundle as PEM in the form that Parse reads. It returns a
// [*Error] where Parse would refuse the result.
func (b *Bundle) Marshal() ([]byte, error) {
	if b == nil {
		return nil, missing(BlockRequest)
	}
	if err := checkRequestShape(b.Request); err != nil {
		return nil, err
	}
	text := pem.EncodeToMemory(&pem.Block{Type: BlockRequest, Bytes: b.Request})
	if b.Provider != "" || b.Data != nil {
		if _, _, err := ProviderVersion(b.Provider); err != nil {
			return nil, err
		}
		if len(b.Data) == 0 {
			return nil, &Error{Check: CheckBlockEmpty, Got: "no data for provider " + b.Provider, Want: "evidence"}
		}
		text = append(text, pem.EncodeToMemory(&pem.Block{Type: BlockProvider, Bytes: []byte(b.Provider)})...)
		text = append(text, pem.EncodeToMemory(&pem.Block{Type: BlockData, Bytes: b.Data})...)
	}
	if len(text) > MaxBundleSize {
		return nil, sizeViolation(len(text))
	}
	return text, nil
}

func sizeViolation(size int) error {
	return &Error{Check: CheckBundleSize, Got: strconv.Itoa(size) + " bytes", Want: "1 to " + strconv.Itoa(MaxBundleSize)}
}

func missing(label string) error {
	return &Error{Check: CheckBlockMissing, Got: "no block " + label, Want: "one"}
}

// proposalBlocks is the order of the blocks in the proposal's spelling.
var proposalBlocks = []string{BlockRequest, BlockProposalData}

// ParseProposal reads a request as the example of the Cluster API proposal spells it:
// a CERTIFICATE REQUEST block and an ATTESTATION DATA block, with no block that names
// the provider. So the result has Data and an empty Provider; the caller knows from the
// signer name whose data it is, and Marshal refuses it: this form is read, never
// written.
//
// It is as strict as [Parse], but for one thing: the data may stand in a single line of
// any length, as in the proposal's example. The errors are those of Parse.
func ParseProposal(pem []byte) (*Bundle, error) {
	r := blockReader{labels: proposalBlocks, unwrapped: BlockProposalData}
	if err := r.readAll(pem); err != nil {
		return nil, err
	}
	if err := r.need(BlockProposalData); err != nil {
		return nil, err
	}
	return &Bundle{Request: r.block(BlockRequest), Data: r.block(BlockProposalData)}, nil
}
