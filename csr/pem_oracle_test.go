package csr

import (
	"bytes"
	"slices"
	"strconv"
	"strings"

	"github.com/nodeattest/nodeattest/refusal"
)

// The reader that this package had before, whole: it names twelve rules where the reader of
// pem.go names two. It is the oracle of TestReadersAgree and FuzzReadersAgree.

// oldParse is Parse by the old reader.
func oldParse(pem []byte) (*Bundle, error) {
	r := oldReader{labels: []string{BlockRequest, BlockProvider, BlockData}}
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
	if _, _, err := b.ProviderVersion(); err != nil {
		return nil, err
	}
	return b, nil
}

// oldParseProposal is ParseProposal by the old reader.
func oldParseProposal(pem []byte) (*Bundle, error) {
	r := oldReader{labels: []string{BlockRequest, BlockProposalData}, unwrapped: BlockProposalData}
	if err := r.readAll(pem); err != nil {
		return nil, err
	}
	if err := r.need(BlockProposalData); err != nil {
		return nil, err
	}
	return &Bundle{Request: r.block(BlockRequest), Data: r.block(BlockProposalData)}, nil
}

func oldMissing(label string) error {
	return &Error{Check: oldCheckBlockMissing, Got: "no block " + label, Want: "one"}
}

// Rules of the PEM blocks in a bundle (RFC 7468, strict).
const (
	// oldCheckBlockText: there is nothing before, between or after the blocks.
	oldCheckBlockText Check = "bundle-block-text"
	// oldCheckBlockUnknown: there are only blocks of the format that is read.
	oldCheckBlockUnknown Check = "bundle-block-unknown"
	// oldCheckBlockOrder: the blocks are in the order of their format.
	oldCheckBlockOrder Check = "bundle-block-order"
	// oldCheckBlockDuplicate: there is at most one block of each kind.
	oldCheckBlockDuplicate Check = "bundle-block-duplicate"
	// oldCheckBlockMissing: no block that the format requires is missing.
	oldCheckBlockMissing Check = "bundle-block-missing"
	// oldCheckBlockHeader: blocks have no headers.
	oldCheckBlockHeader Check = "bundle-block-header"
	// oldCheckBlockEmpty: blocks have content.
	oldCheckBlockEmpty Check = "bundle-block-empty"
	// oldCheckBlockEnd: every block ends with the END line of its own label.
	oldCheckBlockEnd Check = "bundle-block-end"
	// oldCheckLineEnd: every line, the last one included, ends with one LF, and there is no CR.
	oldCheckLineEnd Check = "bundle-line-end"
	// oldCheckLineBlank: there are no blank lines.
	oldCheckLineBlank Check = "bundle-line-blank"
	// oldCheckLineWidth: lines of base64 have 64 columns, the last of a block 4 to 64.
	oldCheckLineWidth Check = "bundle-line-width"
	// oldCheckBase64: the base64 is in the standard alphabet, padded and canonical.
	oldCheckBase64 Check = "bundle-base64"
)

const (
	beginMark = "-----BEGIN "
	endMark   = "-----END "
	dashes    = "-----"
)

// oldReader reads the PEM blocks of one format.
type oldReader struct {
	labels    []string          // of the format's blocks, in order
	unwrapped string            // label of a block that may have all its base64 on one line
	bodies    [maxBlocks][]byte // one for each of labels, nil if there is no such block
	rest      []byte            // still to be read
	last      int               // index of the last block read, initially -1
	inside    bool              // between a BEGIN and an END line
	buf       []byte            // holds all bodies
}

// maxBlocks is the largest number of blocks in any format.
const maxBlocks = 5

// readAll reads every block of pem. The first, a PKCS#10 request, must be present.
func (r *oldReader) readAll(pem []byte) error {
	if len(pem) == 0 || len(pem) > maxBundleSize {
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
func (r *oldReader) block(label string) []byte {
	return r.bodies[slices.Index(r.labels, label)]
}

// need refuses a text without a block for each of these labels.
func (r *oldReader) need(labels ...string) error {
	for _, label := range labels {
		if r.block(label) == nil {
			return oldMissing(label)
		}
	}
	return nil
}

// begin reads a BEGIN line and returns the index of its label.
func (r *oldReader) begin() (int, error) {
	line, err := r.line()
	if err != nil {
		return 0, err
	}
	inner, ok := labelOf(line, beginMark)
	if !ok {
		return 0, &Error{Check: oldCheckBlockText, Got: refusal.Quote(string(line)), Want: "a BEGIN line"}
	}
	for i, label := range r.labels {
		if string(inner) != label {
			continue
		}
		if r.bodies[i] != nil {
			return 0, &Error{Check: oldCheckBlockDuplicate, Got: "a second block " + label, Want: "one"}
		}
		if i < r.last || r.last < 0 && i > 0 {
			before := append([]string{"nothing"}, r.labels...)[r.last+1]
			return 0, &Error{Check: oldCheckBlockOrder, Got: label + " after " + before, Want: strings.Join(r.labels, ", ")}
		}
		return i, nil
	}
	return 0, &Error{Check: oldCheckBlockUnknown, Got: refusal.Quote(string(inner)), Want: strings.Join(r.labels, ", ")}
}

// labelOf returns the text between a mark and the dashes that end its line.
func labelOf(line []byte, mark string) (label []byte, ok bool) {
	label, begins := bytes.CutPrefix(line, []byte(mark))
	label, ends := bytes.CutSuffix(label, []byte(dashes))
	return label, begins && ends
}

// body reads lines of base64 up to the END line of label.
func (r *oldReader) body(label string) ([]byte, error) {
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
				return nil, &Error{Check: oldCheckBlockEnd, Got: refusal.Quote(string(line)), Want: endMark + label + dashes}
			}
			if len(r.buf) == start {
				return nil, &Error{Check: oldCheckBlockEmpty, Got: "an empty block " + label, Want: "content"}
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
func (r *oldReader) decodeLine(line []byte, anyWidth bool) (int, error) {
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
func (r *oldReader) line() ([]byte, error) {
	end := bytes.IndexByte(r.rest, '\n')
	if end < 0 {
		return nil, r.unfinished()
	}
	line := r.rest[:end]
	r.rest = r.rest[end+1:]
	if end == 0 {
		return nil, &Error{Check: oldCheckLineBlank, Got: "a blank line", Want: "none"}
	}
	if line[end-1] == '\r' {
		return nil, &Error{Check: oldCheckLineEnd, Got: "CR LF", Want: "LF"}
	}
	return line, nil
}

// unfinished says why the rest, which has no LF, is refused.
func (r *oldReader) unfinished() error {
	switch {
	case len(r.rest) == 0:
		return &Error{Check: oldCheckBlockEnd, Got: "the end of the text", Want: "an END line"}
	case r.inside || bytes.HasPrefix(r.rest, []byte(dashes)):
		return &Error{Check: oldCheckLineEnd, Got: refusal.Quote(string(r.rest)) + " without LF", Want: "LF"}
	}
	return &Error{Check: oldCheckBlockText, Got: refusal.Quote(string(r.rest)), Want: "nothing outside of blocks"}
}

// lineFault says what is wrong with a line of base64 that does not decode. The rest is what
// follows it.
func (r *oldReader) lineFault(line []byte, anyWidth bool) error {
	switch {
	case bytes.IndexByte(line, '\r') >= 0:
		return &Error{Check: oldCheckLineEnd, Got: refusal.Quote(string(line)), Want: "no CR"}
	case bytes.IndexByte(line, ':') >= 0:
		return &Error{Check: oldCheckBlockHeader, Got: refusal.Quote(string(line)), Want: "no headers"}
	case len(line) > lineWidth && !anyWidth, len(line) < lineWidth && !bytes.HasPrefix(r.rest, []byte(dashes)):
		return &Error{Check: oldCheckLineWidth, Got: strconv.Itoa(len(line)) + " columns", Want: strconv.Itoa(lineWidth)}
	}
	return &Error{Check: oldCheckBase64, Got: refusal.Quote(string(line)), Want: "canonical base64"}
}

// afterLast says what is wrong with a line that follows one of n bytes, which was therefore
// the last of its block.
func afterLast(line []byte, n int) error {
	if bytes.IndexByte(line, ':') >= 0 {
		return &Error{Check: oldCheckBlockHeader, Got: refusal.Quote(string(line)), Want: "no headers"}
	}
	if n == lineBytes-1 || n == lineBytes-2 {
		return &Error{Check: oldCheckBase64, Got: refusal.Quote(string(line)) + " after padding", Want: "an END line"}
	}
	return &Error{Check: oldCheckLineWidth, Got: "a line after a shorter or longer one", Want: strconv.Itoa(lineWidth) + " columns"}
}
