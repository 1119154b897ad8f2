package jws

import (
	"bytes"
	"encoding/json"
	"unicode/utf8"

	"github.com/nodeattest/nodeattest/internal/strictjson"
)

// header is what this package reads of a header (RFC 7515, section 4.1). The other
// members are checked to be JSON and ignored; jku and x5u, with which a token says where
// its key is, are never looked at.
type header struct {
	algorithm []byte // shares memory with the text, unless it had escapes
	keyID     string
	typ       string
}

// headerMembers are the names that a header may have in exactly this spelling alone.
var headerMembers = [...]string{"alg", "kid", "typ", "nonce", "crit", "b64", "jwk", "x5c"}

// parseHeader reads the JSON of a header.
func parseHeader(data []byte) (header, error) {
	var h header
	r := strictjson.NewReader(data)
	err := r.Object(func(name []byte) (err error) {
		switch string(name) {
		case "alg":
			h.algorithm, err = r.Text()
		case "kid":
			h.keyID, err = r.String()
		case "typ":
			var typ []byte
			if typ, err = r.Text(); string(typ) == "JWT" {
				h.typ = "JWT"
			} else {
				h.typ = string(typ)
			}
		case "nonce":
			_, err = r.Text() // RFC 8555, section 6.5.2; a string for go-jose
		case "jwk", "x5c":
			// Other readers parse what these hold, and refuse the token for it. To
			// refuse them all needs no agreement on which keys and certificates are
			// good, and parses none that a stranger made.
			return &Error{Check: CheckHeader, Got: string(name), Want: "a header that brings no key"}
		case "crit", "b64":
			return &Error{Check: CheckCritical, Got: string(name), Want: "a header without crit and b64"}
		default:
			if known := misspelt(name, headerMembers[:]); known != "" {
				return &Error{Check: CheckHeader, Got: string(name), Want: known}
			}
			return r.Skip()
		}
		return err
	})
	if err == nil {
		err = r.End()
	}
	return h, refuse(CheckHeader, err)
}

// misspelt returns the name of the list that differs from name only in case, or "".
func misspelt(name []byte, list []string) string {
	for _, known := range list {
		if bytes.EqualFold(name, []byte(known)) {
			return known
		}
	}
	return ""
}

// refuse makes an error of the reader one of this package.
func refuse(check Check, err error) error {
	if err == nil {
		return nil
	}
	if own, ok := err.(*Error); ok { //nolint:errorlint // one inside another is a cause
		return own
	}
	return &Error{Check: check, Err: err}
}

// appendHeader appends the header of a token as kube-apiserver writes it: base64url of
// {"alg":…,"kid":…}, with a third member typ where that is not empty.
func appendHeader(b []byte, algorithm Algorithm, keyID, typ string) []byte {
	var buffer [128]byte // most headers fit
	text := append(buffer[:0], `{"alg":"`...)
	text = append(text, algorithm...)
	text = append(text, `","kid":`...)
	text = appendString(text, keyID)
	if typ != "" {
		text = append(text, `,"typ":`...)
		text = appendString(text, typ)
	}
	return encoding.AppendEncode(b, append(text, '}'))
}

// appendString appends the JSON string of s as encoding/json writes it.
func appendString(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c >= utf8.RuneSelf || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' {
			text, _ := json.Marshal(s) // a string has an encoding
			return append(b, text...)
		}
	}
	b = append(b, '"')
	b = append(b, s...)
	return append(b, '"')
}

// checkKeyID checks a key ID that a key is to have: not empty, no longer than
// MaxKeyIDSize, UTF-8.
func checkKeyID(keyID string) error {
	switch {
	case keyID == "" || len(keyID) > MaxKeyIDSize:
		return &Error{Check: CheckKeyID, Got: bytesText(len(keyID)), Want: "1 to 1024 bytes"}
	case !utf8.ValidString(keyID):
		return &Error{Check: CheckKeyID, Got: "bytes that are not UTF-8", Want: "UTF-8"}
	}
	return nil
}
