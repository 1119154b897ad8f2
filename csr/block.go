package csr

import (
	"bytes"
	"encoding/base64"
	"slices"
	"strconv"
	"strings"

	"github.com/nodeattest/nodeattest/refusal"
)

// Rules of the PEM blocks in a bundle (RFC 7468, strict).
const (
	// CheckBlockText: nothing stands before, between or after the blocks.
	CheckBlockText Check = "bundle-block-text"
	// CheckBlockUnknown: only the blocks of the format that is read.
	CheckBlockUnknown Check = "bundle-block-unknown"
	// CheckBlockOrder: the blocks stand in the order of their format.
	CheckBlockOrder Check = "bundle-block-order"
	// CheckBlockDuplicate: there is at most one block of each kind.
	CheckBlockDuplicate Check = "bundle-block-duplicate"
	// CheckBlockMissing: no block that the format demands is missing.
	CheckBlockMissing Check = "bundle-block-missing"
	// CheckBlockHeader: blocks have no headers.
	CheckBlockHeader Check = "bundle-block-header"
	// CheckBlockEmpty: blocks have content.
	CheckBlockEmpty Check = "bundle-block-empty"
	// CheckBlockEnd: every block ends with the END line of its own label.
	CheckBlockEnd Check = "bundle-block-end"
	// CheckLineEnd: every line ends with one LF, the last one too, and there is no CR.
	CheckLineEnd Check = "bundle-line-end"
	// CheckLineBlank: there are no blank lines.
	CheckLineBlank Check = "bundle-line-blank"
	// CheckLineWidth: lines of base64 have 64 columns, the last of a block 4 to 64.
	CheckLineWidth Check = "bundle-line-width"
	// CheckBase64: base64 in the standard alphabet with padding, in its canonical form.
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
	labels    []string          // of the format's blocks, in their order
	unwrapped string            // label of a block that may have all its base64 in one line
	bodies    [maxBlocks][]byte // one for each of labels, nil where there is no such block
	rest      []byte            // what is left to read
	last      int               // index of the last block read, -1 at first
	inside    bool              // between a BEGIN and an END line
	buf       []byte            // holds all bodies
}

// maxBlocks is the largest number of blocks in any format.
const maxBlocks = 5

// readAll reads every block of pem. The first must be there, a PKCS#10 request.
func (r *blockReader) readAll(pem []byte) error {
	if len(pem) == 0 || len(pem) > MaxBundleSize {
		return sizeViolation(len(pem))
	}
	// One buffer for all bodies: base64 without its line ends, three quarters of it.
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
	return checkRequestShape(r.bodies[0])
}

// block is the body of the block with one of the format's labels; nil where there is none.
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

// labelOf is what stands between a mark and the dashes that end its line.
func labelOf(line []byte, mark string) (label []byte, ok bool) {
	label, begins := bytes.CutPrefix(line, []byte(mark))
	label, ends := bytes.CutSuffix(label, []byte(dashes))
	return label, begins && ends
}

// body reads lines of base64 up to the END line of label.
func (r *blockReader) body(label string) ([]byte, error) {
	r.inside = true
	start := len(r.buf)
	last := lineBytes // what the line before gave: a short one has none after it
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

// decodeLine appends what one line of base64 says to buf and returns its length.
func (r *blockReader) decodeLine(line []byte, anyWidth bool) (int, error) {
	if len(line) > lineWidth && !anyWidth || len(line)%4 != 0 {
		return 0, r.lineFault(line, anyWidth)
	}
	want := len(line) / 4 * 3
	for i := len(line) - 1; i >= len(line)-2 && line[i] == '='; i-- {
		want--
	}
	n, err := strictBase64.Decode(r.buf[len(r.buf):len(r.buf)+len(line)/4*3], line)
	if err != nil || n != want {
		return 0, r.lineFault(line, anyWidth)
	}
	r.buf = r.buf[:len(r.buf)+n]
	return n, nil
}

// line removes one line from the rest and returns it without its LF. A line that is
// blank, unfinished or ends with a CR is refused here, for all kinds of lines.
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

// lineFault says what is wrong with a line of base64 that does not decode. The rest is
// what stands after it.
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

// afterLast says what is wrong with a line after one that gave n bytes, and so was the
// last of its block.
func afterLast(line []byte, n int) error {
	if bytes.IndexByte(line, ':') >= 0 {
		return &Error{Check: CheckBlockHeader, Got: refusal.Quote(string(line)), Want: "no headers"}
	}
	if n == lineBytes-1 || n == lineBytes-2 {
		return &Error{Check: CheckBase64, Got: refusal.Quote(string(line)) + " after padding", Want: "an END line"}
	}
	return &Error{Check: CheckLineWidth, Got: "a line after a shorter or longer one", Want: strconv.Itoa(lineWidth) + " columns"}
}
