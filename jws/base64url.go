package jws

import (
	"bytes"
	"encoding/base64"
	"errors"
)

// encoding is base64url without padding (RFC 7515, section 2) which refuses unused bits
// that are set. Like all decoders of encoding/base64 it passes over line ends: decode
// first with [decodeSegment], never with this.
var encoding = base64.RawURLEncoding.Strict()

var errLineEnd = errors.New("a line end")

// decodeSegment appends to dst what src encodes. Two texts never encode the same bytes.
func decodeSegment(dst, src []byte) ([]byte, error) {
	if bytes.IndexByte(src, '\n') >= 0 || bytes.IndexByte(src, '\r') >= 0 {
		return nil, errLineEnd
	}
	return encoding.AppendDecode(dst, src)
}
