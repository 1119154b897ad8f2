package jws

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"unicode/utf8"

	"github.com/nodeattest/nodeattest/internal/strictjson"
	"github.com/nodeattest/nodeattest/refusal"
	"github.com/nodeattest/nodeattest/secret"
)

// Token is a token in compact form that was parsed but not verified: its sender chose
// everything that it says. [VerifySignature] and [Key.Verify] check its signature. The zero
// value is refused by both.
//
// A token is a credential, and its text is untrusted: package fmt and encoders show only its
// algorithm and key ID.
type Token struct {
	content secret.Value[tokenContent]
}

// tokenContent is the content of a token.
type tokenContent struct {
	signed    []byte // header and payload as they were sent, over which the signature is made
	payload   []byte
	signature []byte
	algorithm Algorithm
	keyID     string
	typ       string
}

// read returns the token's content. The algorithm of nil and of the zero token is "".
func (t *Token) read() tokenContent {
	if t == nil {
		return tokenContent{}
	}
	return t.content.Reveal()
}

// Format prints which token it is, but neither its payload nor its signature.
func (t Token) Format(s fmt.State, _ rune) {
	c := t.read()
	_, _ = fmt.Fprintf(s, "token{alg %s, kid %s}", c.algorithm, refusal.Text(c.keyID))
}

// Parse reads a token in compact form (RFC 7515, section 7.1), at most [MaxTokenSize] bytes,
// without verifying it. The header must have an alg, one of the ten of this package (none and
// HS256 are not among them); kid and typ are read if present; crit and b64 are refused,
// whatever they say, and so are jwk and x5c, with which a token supplies a key of its own; a
// nonce must be a string. Other members are ignored, including jku and x5u, which say where a
// key would be. The payload may be any bytes, or empty.
//
// There is only one token for any content: base64url is decoded strictly, and the header must
// have no duplicate members, even in different case, none of those named here in a different
// case, and no number that a float64 cannot hold.
//
// The errors are "token-size", "form", "base64url", [CheckHeader],
// "critical-header", [CheckAlgorithm] and [CheckKeyID].
func Parse(token string) (*Token, error) {
	if token == "" || len(token) > MaxTokenSize {
		return nil, &Error{Check: checkTokenSize, Got: bytesText(len(token)), Want: "1 to " + bytesText(MaxTokenSize)}
	}
	text := []byte(token)
	end := bytes.LastIndexByte(text, '.')
	head, body, ok := bytes.Cut(text[:max(end, 0)], []byte{'.'})
	if !ok || bytes.IndexByte(body, '.') >= 0 {
		return nil, &Error{Check: checkForm, Got: strconv.Itoa(bytes.Count(text, []byte{'.'})+1) + " segments", Want: "3 segments"}
	}
	t := tokenContent{signed: text[:end:end]}

	// One buffer holds the three decoded segments.
	buffer := make([]byte, 0, len(text))
	buffer, err := decodeSegment(buffer, head)
	if err != nil {
		return nil, &Error{Check: checkBase64, Got: "the header", Err: err}
	}
	h, err := parseHeader(buffer)
	if err != nil {
		return nil, err
	}
	t.keyID, t.typ = h.keyID, h.typ
	if t.algorithm = asymmetric(string(h.algorithm)); t.algorithm == "" {
		return nil, &Error{Check: CheckAlgorithm, Got: string(h.algorithm), Want: "RS, PS or ES with 256, 384 or 512, or EdDSA"}
	}
	if len(t.keyID) > MaxKeyIDSize {
		return nil, &Error{Check: CheckKeyID, Got: bytesText(len(t.keyID)), Want: "at most 1024 bytes"}
	}
	start := len(buffer)
	if buffer, err = decodeSegment(buffer, body); err != nil {
		return nil, &Error{Check: checkBase64, Got: "the payload", Err: err}
	}
	t.payload = buffer[start:len(buffer):len(buffer)]
	start = len(buffer)
	if buffer, err = decodeSegment(buffer, text[end+1:]); err != nil {
		return nil, &Error{Check: checkBase64, Got: "the signature", Err: err}
	}
	t.signature = buffer[start:len(buffer):len(buffer)]
	return &Token{content: secret.New(t)}, nil
}

// Algorithm returns the header's alg.
func (t *Token) Algorithm() Algorithm { return t.read().algorithm }

// KeyID returns the header's kid, at most [MaxKeyIDSize] bytes, or "" if it has none.
func (t *Token) KeyID() string { return t.read().keyID }

// Type returns the header's typ, or "" if it has none. This package does not check it.
func (t *Token) Type() string { return t.read().typ }

// UnverifiedPayload returns the payload, which any sender could have written. It shares memory
// with the token and must not be changed.
func (t *Token) UnverifiedPayload() []byte { return t.read().payload }

// Signed is a token whose signature was made by one of the keys of a set.
type Signed struct {
	// Token is the token as it was parsed.
	Token *Token
	// Payload is the signed payload. It shares memory with the token and must not be
	// changed.
	Payload []byte
	// Key is the key with which the signature verified.
	Key *Key
}

// VerifySignature parses a token in compact form, as [Parse] does, and checks its signature
// with the keys of a set, as [Token.VerifySignature] does.
//
// It does not authenticate. An expired token and a token for another audience are signed as well as
// any other. The caller must check the claims in the payload; claims.Validator does so for the
// tokens of Kubernetes.
func VerifySignature(ctx context.Context, token string, keys KeySet) (*Signed, error) {
	t, err := Parse(token)
	if err != nil {
		return nil, err
	}
	return t.VerifySignature(ctx, keys)
}

// VerifySignature checks the token's signature with the keys that the set has for its key ID,
// or with all keys of the set if the token names none. Only keys with the token's algorithm
// are tried.
//
// In addition to the errors of [Key.Verify] there are "key-set" if keys is nil, [CheckKeyID]
// if the set has no key with that ID, [CheckAlgorithm] if it has one but none with that
// algorithm, and an error in which errors.Is finds [refusal.ErrRetry] if the set could not
// answer.
func (t *Token) VerifySignature(ctx context.Context, keys KeySet) (*Signed, error) {
	if keys == nil {
		return nil, &Error{Check: checkKeySet, Got: "no set of keys"}
	}
	c := t.read()
	if c.algorithm == "" {
		return nil, &Error{Check: checkForm, Got: "no token"}
	}
	candidates, err := keys.Keys(ctx, c.keyID)
	switch {
	case err != nil && errors.Is(err, refusal.ErrRetry):
		return nil, err
	case err != nil:
		return nil, &Error{Check: refusal.ErrRetry, Got: "no keys", Err: err}
	case len(candidates) == 0:
		return nil, &Error{Check: CheckKeyID, Got: c.keyID, Want: "the ID of a known key"}
	}
	var refused error
	for _, key := range candidates {
		if key == nil || key.algorithm != c.algorithm {
			continue
		}
		if refused = key.Verify(t); refused == nil {
			return &Signed{Token: t, Payload: c.payload, Key: key}, nil
		}
	}
	if refused == nil {
		refused = &Error{Check: CheckAlgorithm, Got: string(c.algorithm), Want: "that of one of " + strconv.Itoa(len(candidates)) + " keys"}
	}
	return nil, refused
}

// encoding is base64url without padding (RFC 7515, section 2) that refuses set unused bits.
// Like all decoders of encoding/base64, it ignores line ends: decode with [decodeSegment],
// never with this.
var encoding = base64.RawURLEncoding.Strict()

var errLineEnd = errors.New("a line end")

// decodeSegment appends the decoded src to dst. Two texts never encode the same bytes.
func decodeSegment(dst, src []byte) ([]byte, error) {
	if bytes.IndexByte(src, '\n') >= 0 || bytes.IndexByte(src, '\r') >= 0 {
		return nil, errLineEnd
	}
	return encoding.AppendDecode(dst, src)
}

// header has the members of a header that this package reads (RFC 7515, section 4.1). The others
// must be valid JSON and are ignored; jku and x5u, with which a token says where its key is,
// are never looked at.
type header struct {
	algorithm []byte // shares memory with the text, unless it had escapes
	keyID     string
	typ       string
}

// headerMembers are the names that a header may have only in exactly this spelling.
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
			h.typ, err = r.String()
		case "nonce":
			_, err = r.Text() // RFC 8555, section 6.5.2; a string for go-jose
		case "jwk", "x5c":
			// Other readers parse these keys and certificates, and refuse bad ones. Refusing all
			// of them needs no agreement on good ones, and parses none from an attacker.
			return &Error{Check: CheckHeader, Got: string(name), Want: "a header that brings no key"}
		case "crit", "b64":
			return &Error{Check: checkCritical, Got: string(name), Want: "a header without crit and b64"}
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

// misspelt returns the name in the list that differs from name only in case, or "".
func misspelt(name []byte, list []string) string {
	for _, known := range list {
		if bytes.EqualFold(name, []byte(known)) {
			return known
		}
	}
	return ""
}

// refuse turns an error of the reader into one of this package.
func refuse(check Check, err error) error {
	if _, own := err.(*Error); own || err == nil { //nolint:errorlint // one inside another is a cause
		return err
	}
	return &Error{Check: check, Err: err}
}

// appendHeader appends the header of a token as kube-apiserver writes it: base64url of
// {"alg":…,"kid":…}, with a third member typ if that is not empty.
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
			text, _ := json.Marshal(s) // a string always has an encoding
			return append(b, text...)
		}
	}
	b = append(b, '"')
	b = append(b, s...)
	return append(b, '"')
}

// checkKeyID checks the ID that a key is to have: not empty, no longer than MaxKeyIDSize,
// UTF-8.
func checkKeyID(keyID string) error {
	switch {
	case keyID == "" || len(keyID) > MaxKeyIDSize:
		return &Error{Check: CheckKeyID, Got: bytesText(len(keyID)), Want: "1 to 1024 bytes"}
	case !utf8.ValidString(keyID):
		return &Error{Check: CheckKeyID, Got: "bytes that are not UTF-8", Want: "UTF-8"}
	}
	return nil
}
