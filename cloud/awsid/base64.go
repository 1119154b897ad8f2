package awsid

import (
	"bytes"
	"encoding/base64"
	"strconv"
)

// ParseBase64 reads what /rsa2048 serves: base64 (RFC 4648, section 4) in lines of any length that end
// with LF or CRLF, without armour. The error is a [*refusal.Error] with the check "awsid-size" or
// "awsid-encoding".
func ParseBase64(text []byte) ([]byte, error) {
	if len(text) > 2*maxSize {
		return nil, checkSize.Refuse(strconv.Itoa(len(text))+" bytes", "at most "+strconv.Itoa(2*maxSize))
	}
	text = bytes.ReplaceAll(bytes.ReplaceAll(text, []byte("\r\n"), nil), []byte("\n"), nil)
	data := make([]byte, base64.StdEncoding.DecodedLen(len(text)))
	n, err := base64.StdEncoding.Strict().Decode(data, text)
	if err != nil || bytes.ContainsAny(text, "\r") || n == 0 {
		return nil, checkEncoding.Refuse("no base64", "that of a signed document")
	}
	return data[:n], nil
}
