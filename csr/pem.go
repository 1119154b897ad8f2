package csr

import (
	"bytes"
	"encoding/base64"

	"github.com/nodeattest/nodeattest/refusal"
)

// Rules of the PEM blocks in a bundle (RFC 7468, strict).
const (
	// checkBlock: the text is the blocks of its format in their order, each once and between
	// its own BEGIN and END line, and nothing else. LF alone ends a line.
	checkBlock Check = "bundle-block"
	// checkBase64: between BEGIN and END is canonical base64 of at least one byte, with
	// padding, in lines of 64 columns of which the last may be shorter.
	checkBase64 Check = "bundle-base64"
)

const (
	lineWidth = 64
	lineBytes = lineWidth / 4 * 3
)

// strictBase64 refuses bits that do not fit in the last byte. It skips CR and LF, which
// is why line compares lengths.
var strictBase64 = base64.StdEncoding.Strict()

// readBlocks reads PEM blocks with these labels, in this order, and nothing else. The text
// may end after the first block, a PKCS#10 request: then the other bodies are nil.
func readBlocks(text []byte, labels ...string) (bodies [3][]byte, err error) {
	if len(text) == 0 || len(text) > maxBundleSize {
		return bodies, sizeViolation(len(text))
	}
	// One buffer for all bodies: three quarters of the base64 without its line ends.
	r := blockReader{rest: text, buf: make([]byte, 0, len(text)/4*3)}
	for i, label := range labels {
		if i == 1 && len(r.rest) == 0 {
			break
		}
		if bodies[i], err = r.block(label); err != nil {
			return bodies, err
		}
	}
	if len(r.rest) > 0 {
		return bodies, r.fault(checkBlock, "the end of the text")
	}
	_, _, err = splitRequest(bodies[0])
	return bodies, err
}

// blockReader reads PEM blocks from the beginning of rest into buf, which has room for all.
type blockReader struct{ rest, buf []byte }

// block reads one block and returns its body.
func (r *blockReader) block(label string) ([]byte, error) {
	if !r.skip("-----BEGIN ", label, "-----\n") {
		return nil, r.fault(checkBlock, "-----BEGIN "+label+"-----")
	}
	start, most := len(r.buf), lineWidth
	if label == BlockProposalData {
		most = len(r.rest) // the proposal's example has all its base64 on the first line
	}
	for len(r.rest) > 0 && r.rest[0] != '-' {
		n := r.line(most)
		if n == 0 {
			return nil, r.fault(checkBase64, "canonical base64 in lines of 64 columns")
		}
		if most = lineWidth; n != lineBytes {
			most = 0 // a line that is not full is the last
		}
	}
	if len(r.buf) == start || !r.skip("-----END ", label, "-----\n") {
		return nil, r.fault(checkBlock, "base64 and -----END "+label+"-----")
	}
	return r.buf[start:len(r.buf):len(r.buf)], nil
}

// skip reads a line with these parts, which include its LF, if there is one.
func (r *blockReader) skip(parts ...string) bool {
	rest := r.rest
	for _, part := range parts {
		if len(rest) < len(part) || string(rest[:len(part)]) != part {
			return false
		}
		rest = rest[len(part):]
	}
	r.rest = rest
	return true
}

// line decodes a line of base64 of at most so many columns and returns the number of bytes in
// it, 0 if it is refused. It is canonical if so many bytes are encoded in its width.
func (r *blockReader) line(most int) int {
	width := bytes.IndexByte(r.rest, '\n')
	if width < 0 || width > most || width%4 != 0 {
		return 0
	}
	n, err := strictBase64.Decode(r.buf[len(r.buf):cap(r.buf)], r.rest[:width])
	if err != nil || n == 0 || strictBase64.EncodedLen(n) != width {
		return 0
	}
	r.buf, r.rest = r.buf[:len(r.buf)+n], r.rest[width+1:]
	return n
}

// maxShown is more of a line than an error shows.
const maxShown = 128

// fault says that the line at the beginning of the rest breaks a rule.
func (r *blockReader) fault(check Check, want string) error {
	line, _, _ := bytes.Cut(r.rest[:min(len(r.rest), maxShown)], []byte("\n"))
	return &Error{Check: check, Got: refusal.Quote(string(line)), Want: want}
}
