package csr

import (
	"bytes"
	"encoding/base64"
	"encoding/pem"
	"slices"
	"strconv"
	"strings"

	"github.com/nodeattest/nodeattest/refusal"
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
	// CheckBundleSize: a bundle has 1 to MaxBundleSize bytes.
	CheckBundleSize Check = "bundle-size"
	// CheckProvider: the provider block is ProviderName/vN, see Bundle.
	CheckProvider Check = "bundle-provider"
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

// bundleBlocks is the order of the blocks of a bundle.
var bundleBlocks = []string{BlockRequest, BlockProvider, BlockData}

// Parse reads a bundle: one CERTIFICATE REQUEST block, followed either by nothing or by one
// provider and one data block. The blocks are canonical PEM (RFC 7468, the strict form of
// section 3 with LF line ends): no headers, base64 in lines of 64 columns with canonical
// padding, one LF at the end of every line, and nothing before, between or after the blocks.
// So every bundle has one encoding: if Parse succeeds, Marshal of the result is the input.
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
	if b.Provider = "tpm/v1"; string(provider) != b.Provider { // nearly always equal, which saves an allocation
		b.Provider = string(provider)
	}
	if _, _, err := ProviderVersion(b.Provider); err != nil {
		return nil, err
	}
	return b, nil
}

// Marshal writes the bundle as PEM in the form that Parse reads. It returns a [*Error] if
// Parse would refuse the result.
func (b *Bundle) Marshal() ([]byte, error) {
	if b == nil {
		return nil, missing(BlockRequest)
	}
	if _, _, err := splitRequest(b.Request); err != nil {
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

// proposalBlocks is the order of the blocks in the proposal's form.
var proposalBlocks = []string{BlockRequest, BlockProposalData}

// ParseProposal reads a request in the form of the Cluster API proposal's example: a
// CERTIFICATE REQUEST block and an ATTESTATION DATA block, with no block that names the
// provider. So the result has Data and an empty Provider, and the caller knows from the
// signer name whose data it is. Marshal refuses such a result: this form is read, never
// written.
//
// It is as strict as [Parse], with one exception: the data may be a single line of any
// length, as in the proposal's example. The errors are those of Parse.
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

// Rules of the PEM blocks in a bundle (RFC 7468, strict).
const (
	// CheckBlockText: there is nothing before, between or after the blocks.
	CheckBlockText Check = "bundle-block-text"
	// CheckBlockUnknown: there are only blocks of the format that is read.
	CheckBlockUnknown Check = "bundle-block-unknown"
	// CheckBlockOrder: the blocks are in the order of their format.
	CheckBlockOrder Check = "bundle-block-order"
	// CheckBlockDuplicate: there is at most one block of each kind.
	CheckBlockDuplicate Check = "bundle-block-duplicate"
	// CheckBlockMissing: no block that the format requires is missing.
	CheckBlockMissing Check = "bundle-block-missing"
	// CheckBlockHeader: blocks have no headers.
	CheckBlockHeader Check = "bundle-block-header"
	// CheckBlockEmpty: blocks have content.
	CheckBlockEmpty Check = "bundle-block-empty"
	// CheckBlockEnd: every block ends with the END line of its own label.
	CheckBlockEnd Check = "bundle-block-end"
	// CheckLineEnd: every line, the last one included, ends with one LF, and there is no CR.
	CheckLineEnd Check = "bundle-line-end"
	// CheckLineBlank: there are no blank lines.
	CheckLineBlank Check = "bundle-line-blank"
	// CheckLineWidth: lines of base64 have 64 columns, the last of a block 4 to 64.
	CheckLineWidth Check = "bundle-line-width"
	// CheckBase64: the base64 is in the standard alphabet, padded and canonical.
	CheckBase64 Check = "bundle-base64"
)

const (
	beginMark = "-----BEGIN "
	endMark   = "-----END "
	dashes    = "-----"
	lineWidth = 64
	lineBytes = lineWidth / 4 * 3
)

// strictBase64 refuses bits that do not fit in the last byte. It skips CR and LF, which
// is why decodeLine compares lengths.
var strictBase64 = base64.StdEncoding.Strict()

// blockReader reads the PEM blocks of one format.
type blockReader struct {
	labels    []string          // of the format's blocks, in order
	unwrapped string            // label of a block that may have all its base64 on one line
	bodies    [maxBlocks][]byte // one for each of labels, nil if there is no such block
	rest      []byte            // what is left to read
	last      int               // index of the last block read, initially -1
	inside    bool              // between a BEGIN and an END line
	buf       []byte            // holds all bodies
}

// maxBlocks is the largest number of blocks in any format.
const maxBlocks = 5

// readAll reads every block of pem. The first, a PKCS#10 request, must be present.
func (r *blockReader) readAll(pem []byte) error {
	if len(pem) == 0 || len(pem) > MaxBundleSize {
		return sizeViolation(len(pem))
	}
	// One buffer for all bodies: three quarters of the base64 without its line ends.
	r.rest, r.last, r.buf = pem, -1, make([]byte, 0, len(pem)/4*3)
	for len(r.rest) > 0 {
		i, err := r.begin()
		if err != nil {
			return err
		}
		if r.bodies[i], err = r.body(r.labels[i]); err != nil {
			return err
		}
		r.last = i
	}
	_, _, err := splitRequest(r.bodies[0])
	return err
}

// block returns the body of the block with one of the format's labels, or nil if there is
// none.
func (r *blockReader) block(label string) []byte {
	return r.bodies[slices.Index(r.labels, label)]
}

// need refuses a text without a block for each of these labels.
func (r *blockReader) need(labels ...string) error {
	for _, label := range labels {
		if r.block(label) == nil {
			return missing(label)
		}
	}
	return nil
}

// begin reads a BEGIN line and returns the index of its label.
func (r *blockReader) begin() (int, error) {
	line, err := r.line()
	if err != nil {
		return 0, err
	}
	inner, ok := labelOf(line, beginMark)
	if !ok {
		return 0, &Error{Check: CheckBlockText, Got: refusal.Quote(string(line)), Want: "a BEGIN line"}
	}
	for i, label := range r.labels {
		if string(inner) != label {
			continue
		}
		if r.bodies[i] != nil {
			return 0, &Error{Check: CheckBlockDuplicate, Got: "a second block " + label, Want: "one"}
		}
		if i < r.last || r.last < 0 && i > 0 {
			before := append([]string{"nothing"}, r.labels...)[r.last+1]
			return 0, &Error{Check: CheckBlockOrder, Got: label + " after " + before, Want: strings.Join(r.labels, ", ")}
		}
		return i, nil
	}
	return 0, &Error{Check: CheckBlockUnknown, Got: refusal.Quote(string(inner)), Want: strings.Join(r.labels, ", ")}
}

// labelOf returns what is between a mark and the dashes that end its line.
func labelOf(line []byte, mark string) (label []byte, ok bool) {
	label, begins := bytes.CutPrefix(line, []byte(mark))
	label, ends := bytes.CutSuffix(label, []byte(dashes))
	return label, begins && ends
}

// body reads lines of base64 up to the END line of label.
func (r *blockReader) body(label string) ([]byte, error) {
	r.inside = true
	start := len(r.buf)
	// The full-width lines that have no fault: nearly always all but the last.
	for len(r.rest) > lineWidth && r.rest[lineWidth] == '\n' {
		if n, err := strictBase64.Decode(r.buf[len(r.buf):cap(r.buf)], r.rest[:lineWidth]); err != nil || n != lineBytes {
			break
		}
		r.buf, r.rest = r.buf[:len(r.buf)+lineBytes], r.rest[lineWidth+1:]
	}
	last := lineBytes // bytes from the line before: a short one must be the last
	for {
		line, err := r.line()
		if err != nil {
			return nil, err
		}
		if len(line) > 0 && line[0] == '-' {
			if inner, ok := labelOf(line, endMark); !ok || string(inner) != label {
				return nil, &Error{Check: CheckBlockEnd, Got: refusal.Quote(string(line)), Want: endMark + label + dashes}
			}
			if len(r.buf) == start {
				return nil, &Error{Check: CheckBlockEmpty, Got: "an empty block " + label, Want: "content"}
			}
			r.inside = false
			return r.buf[start:len(r.buf):len(r.buf)], nil
		}
		if last != lineBytes {
			return nil, afterLast(line, last)
		}
		if last, err = r.decodeLine(line, label == r.unwrapped && len(r.buf) == start); err != nil {
			return nil, err
		}
	}
}

// decodeLine appends the decoded bytes of one line of base64 to buf and returns their
// number.
func (r *blockReader) decodeLine(line []byte, anyWidth bool) (int, error) {
	if len(line) > lineWidth && !anyWidth || len(line)%4 != 0 {
		return 0, r.lineFault(line, anyWidth)
	}
	want := len(line) / 4 * 3
	for i := len(line) - 1; i >= len(line)-2 && line[i] == '='; i-- {
		want--
	}
	// Spare room after the line's own bytes keeps base64 on its fast path to the end of the
	// line.
	n, err := strictBase64.Decode(r.buf[len(r.buf):cap(r.buf)], line)
	if err != nil || n != want {
		return 0, r.lineFault(line, anyWidth)
	}
	r.buf = r.buf[:len(r.buf)+n]
	return n, nil
}

// line removes one line from the rest and returns it without its LF. A line of any kind that
// is blank, unfinished or ends with a CR is refused here.
func (r *blockReader) line() ([]byte, error) {
	end := bytes.IndexByte(r.rest, '\n')
	if end < 0 {
		return nil, r.unfinished()
	}
	line := r.rest[:end]
	r.rest = r.rest[end+1:]
	if end == 0 {
		return nil, &Error{Check: CheckLineBlank, Got: "a blank line", Want: "none"}
	}
	if line[end-1] == '\r' {
		return nil, &Error{Check: CheckLineEnd, Got: "CR LF", Want: "LF"}
	}
	return line, nil
}

// unfinished says why the rest, which has no LF, is refused.
func (r *blockReader) unfinished() error {
	switch {
	case len(r.rest) == 0:
		return &Error{Check: CheckBlockEnd, Got: "the end of the text", Want: "an END line"}
	case r.inside || bytes.HasPrefix(r.rest, []byte(dashes)):
		return &Error{Check: CheckLineEnd, Got: refusal.Quote(string(r.rest)) + " without LF", Want: "LF"}
	}
	return &Error{Check: CheckBlockText, Got: refusal.Quote(string(r.rest)), Want: "nothing outside of blocks"}
}

// lineFault says what is wrong with a line of base64 that does not decode. The rest is what
// follows it.
func (r *blockReader) lineFault(line []byte, anyWidth bool) error {
	switch {
	case bytes.IndexByte(line, '\r') >= 0:
		return &Error{Check: CheckLineEnd, Got: refusal.Quote(string(line)), Want: "no CR"}
	case bytes.IndexByte(line, ':') >= 0:
		return &Error{Check: CheckBlockHeader, Got: refusal.Quote(string(line)), Want: "no headers"}
	case len(line) > lineWidth && !anyWidth, len(line) < lineWidth && !bytes.HasPrefix(r.rest, []byte(dashes)):
		return &Error{Check: CheckLineWidth, Got: strconv.Itoa(len(line)) + " columns", Want: strconv.Itoa(lineWidth)}
	}
	return &Error{Check: CheckBase64, Got: refusal.Quote(string(line)), Want: "canonical base64"}
}

// afterLast says what is wrong with a line that follows one of n bytes, which was therefore
// the last of its block.
func afterLast(line []byte, n int) error {
	if bytes.IndexByte(line, ':') >= 0 {
		return &Error{Check: CheckBlockHeader, Got: refusal.Quote(string(line)), Want: "no headers"}
	}
	if n == lineBytes-1 || n == lineBytes-2 {
		return &Error{Check: CheckBase64, Got: refusal.Quote(string(line)) + " after padding", Want: "an END line"}
	}
	return &Error{Check: CheckLineWidth, Got: "a line after a shorter or longer one", Want: strconv.Itoa(lineWidth) + " columns"}
}
