package csr

import (
	"encoding/pem"
	"strconv"
)

// Labels of the PEM blocks of a request, in order.
const (
	// BlockRequest holds the PKCS#10 request in DER (RFC 7468, 7). It is the only block
	// that kube-apiserver reads.
	BlockRequest = "CERTIFICATE REQUEST"
	// BlockProvider holds the name and version of the attestation provider, in ASCII.
	BlockProvider = "KUBELET AUTHENTICATOR ATTESTATION PROVIDER"
	// BlockData holds the provider's bytes.
	BlockData = "KUBELET AUTHENTICATOR ATTESTATION DATA"
	// BlockProposalData is the label used by the example in the Cluster API proposal
	// ("Attestation data"), where the proposal's table has BlockData.
	BlockProposalData = "ATTESTATION DATA"
)

// Rules of a bundle.
const (
	// checkBundleSize: a bundle has 1 to maxBundleSize bytes.
	checkBundleSize Check = "bundle-size"
	// checkProvider: the provider block is ProviderName/vN, see Bundle.
	checkProvider Check = "bundle-provider"
)

// Bundle is the content of CertificateSigningRequest.spec.request: a PKCS#10 request and, if
// the node attests itself, a provider's evidence (Cluster API kubelet authentication, "CSR
// PEM Blocks").
type Bundle struct {
	// Request is the PKCS#10 request in DER. Parse has checked only its outer shape;
	// ParsePKCS10 reads it.
	Request []byte
	// Provider is the name of the attestation provider and the version of its data format,
	// such as "tpm/v1": a name as in a signer name (1 to 63 lower-case letters, digits and
	// inner hyphens), "/v", and a decimal number from 1 to 999999999. It is empty, and Data
	// nil, in a request without evidence. The signer name of a request, never this field,
	// decides which provider verifies it.
	Provider string
	// Data is the provider's evidence, at least one byte if there is a Provider.
	Data []byte
}

// Parse reads a bundle: one CERTIFICATE REQUEST block, followed either by nothing or by one
// provider and one data block. The blocks are canonical PEM (RFC 7468, the strict form of
// section 3 with LF line ends): no headers, base64 in lines of 64 columns with canonical
// padding, one LF at the end of every line, and nothing before, between or after the blocks.
// So every bundle has one encoding: if Parse succeeds, Marshal of the result is the input.
//
// The result does not alias the input. The error is a [*Error] with
// "bundle-size", or with "bundle-block" or "bundle-base64" for the first fault in the text, or
// then with "request-der" or "bundle-provider".
func Parse(pem []byte) (*Bundle, error) {
	blocks, err := readBlocks(pem, BlockRequest, BlockProvider, BlockData)
	if err != nil {
		return nil, err
	}
	b := &Bundle{Request: blocks[0], Data: blocks[2]}
	if b.Data == nil {
		return b, nil
	}
	if b.Provider = "tpm/v1"; string(blocks[1]) != b.Provider { // nearly always equal, which saves an allocation
		b.Provider = string(blocks[1])
	}
	if _, _, err := b.ProviderVersion(); err != nil {
		return nil, err
	}
	return b, nil
}

// Marshal writes the bundle as PEM in the form that Parse reads. It returns a [*Error] if
// Parse would refuse the result.
func (b *Bundle) Marshal() ([]byte, error) {
	if b == nil {
		return nil, &Error{Check: checkBlock, Got: "no bundle", Want: "one"}
	}
	if _, _, err := splitRequest(b.Request); err != nil {
		return nil, err
	}
	text := pem.EncodeToMemory(&pem.Block{Type: BlockRequest, Bytes: b.Request})
	if b.Provider != "" || b.Data != nil {
		if _, _, err := b.ProviderVersion(); err != nil {
			return nil, err
		}
		if len(b.Data) == 0 {
			return nil, &Error{Check: checkBlock, Got: "no data for provider " + b.Provider, Want: "evidence"}
		}
		text = append(text, pem.EncodeToMemory(&pem.Block{Type: BlockProvider, Bytes: []byte(b.Provider)})...)
		text = append(text, pem.EncodeToMemory(&pem.Block{Type: BlockData, Bytes: b.Data})...)
	}
	if len(text) > maxBundleSize {
		return nil, sizeViolation(len(text))
	}
	return text, nil
}

func sizeViolation(size int) error {
	return &Error{Check: checkBundleSize, Got: strconv.Itoa(size) + " bytes", Want: "1 to " + strconv.Itoa(maxBundleSize)}
}

// ParseProposal reads a request in the form of the Cluster API proposal's example: a
// CERTIFICATE REQUEST block and an ATTESTATION DATA block, with no block that names the
// provider. So the result has Data and an empty Provider, and the caller knows from the
// signer name whose data it is. Marshal refuses such a result: this form is read, never
// written.
//
// It is as strict as [Parse], with one exception: the data may be a single line of any
// length, as in the proposal's example. Errors are as for Parse.
func ParseProposal(pem []byte) (*Bundle, error) {
	blocks, err := readBlocks(pem, BlockRequest, BlockProposalData)
	if err != nil {
		return nil, err
	}
	if blocks[1] == nil {
		return nil, &Error{Check: checkBlock, Got: "no block " + BlockProposalData, Want: "one"}
	}
	return &Bundle{Request: blocks[0], Data: blocks[1]}, nil
}
