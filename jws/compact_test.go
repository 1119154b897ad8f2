package jws

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/refusal"
)

func TestParse(t *testing.T) {
	for algorithm, f := range forgers() {
		token := f.token(t, `{"alg":"`+string(algorithm)+`","kid":"k","typ":"JWT"}`, forgedPayload)
		parsed, err := Parse(token)
		if err != nil {
			t.Errorf("%s: %v", algorithm, err)
			continue
		}
		if parsed.Algorithm() != algorithm || parsed.KeyID() != "k" || parsed.Type() != "JWT" || string(parsed.UnverifiedPayload()) != forgedPayload {
			t.Errorf("%s: got %+v", algorithm, parsed)
		}
		if err := f.key.Verify(parsed); err != nil {
			t.Errorf("%s: %v", algorithm, err)
		}
	}
}

// A payload is any bytes, none too, and a header may hold members that are not read.
func TestParseAccepted(t *testing.T) {
	f := forgers()[ES256]
	for name, token := range map[string]string{
		"no payload":      f.token(t, `{"alg":"ES256"}`, ""),
		"bytes":           f.token(t, `{"alg":"ES256"}`, "\x00\xff"),
		"empty kid":       f.token(t, `{"alg":"ES256","kid":""}`, forgedPayload),
		"white space":     f.token(t, "\n{ \"alg\" :\t\"ES256\"}\r\n", forgedPayload),
		"unknown members": f.token(t, `{"x":{"y":[1]},"alg":"ES256","x5t":"a","cty":"JWT"}`, forgedPayload),
		"places of keys":  f.token(t, `{"alg":"ES256","jku":"https://evil.example","x5u":"u"}`, forgedPayload),
		"longest key ID":  f.token(t, `{"alg":"ES256","kid":"`+strings.Repeat("k", MaxKeyIDSize)+`"}`, forgedPayload),
	} {
		t.Run(name, func(t *testing.T) {
			parsed, err := Parse(token)
			if err == nil && parsed.KeyID() == "" {
				err = f.key.Verify(parsed)
			}
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
}

// A token that brings a key is refused, whichever key signed it.
func TestEmbeddedKey(t *testing.T) {
	for _, algorithm := range []Algorithm{ES256, EdDSA, PS512} {
		f := forgers()[algorithm]
		attacker := strangers()[algorithm]
		jwk, err := attacker.key.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		header := `{"alg":"` + string(algorithm) + `","kid":"k","jwk":` + string(jwk) + `}`
		for _, signer := range []*forger{f, attacker} {
			refusedFor(t, string(algorithm), f.verifies(signer.token(t, header, forgedPayload)), CheckHeader)
		}
	}
}

// Each text has a valid signature of each kind of key over the bytes as they stand, and
// breaks one rule.
func TestParseRefused(t *testing.T) {
	for _, algorithm := range []Algorithm{ES256, RS256, PS384, ES512, EdDSA} {
		f := forgers()[algorithm]
		header, payload := `{"alg":"`+string(algorithm)+`","kid":"k"}`, forgedPayload
		good := f.good(t)
		if err := f.verifies(good); err != nil {
			t.Fatal(err)
		}
		h, rest, _ := strings.Cut(good, ".")
		p, s, _ := strings.Cut(rest, ".")
		signedHeader := func(add string) string {
			return f.token(t, strings.TrimSuffix(header, "}")+add+"}", payload)
		}
		for name, test := range map[string]struct {
			token string
			want  Check
		}{
			"empty":                       {"", checkTokenSize},
			"too long":                    {f.token(t, header, strings.Repeat("a", MaxTokenSize)), checkTokenSize},
			"one segment":                 {h, checkForm},
			"two segments":                {h + "." + p, checkForm},
			"four segments":               {good + ".", checkForm},
			"five segments":               {h + "..." + p + "." + s, checkForm},
			"a dot before":                {"." + good, checkForm},
			"detached":                    {h + ".." + s, checkSignature},
			"no header":                   {"." + p + "." + s, CheckHeader},
			"line end in the signature":   {good[:len(good)-5] + "\n" + good[len(good)-5:], checkBase64},
			"CR LF after":                 {good + "\r\n", checkBase64},
			"line end before":             {"\n" + good, checkBase64},
			"line end in the header":      {f.segments(t, h[:4]+"\n"+h[4:], p), checkBase64},
			"CR LF in the header":         {f.segments(t, h[:4]+"\r\n"+h[4:], p), checkBase64},
			"line end in the payload":     {f.segments(t, h, p+"\n"), checkBase64},
			"unused bits in the payload":  {f.segments(t, h, b64("a")[:1]+"R"), checkBase64},
			"unused bits in the header":   {f.segments(t, unusedBits(header), p), checkBase64},
			"padded header":               {f.segments(t, pad(header+" "), p), checkBase64},
			"padded payload":              {f.segments(t, h, pad("a")), checkBase64},
			"padded signature":            {good + "=", checkBase64},
			"standard alphabet":           {f.segments(t, h, "+/+/"), checkBase64},
			"a space":                     {f.segments(t, h, p+" "), checkBase64},
			"one symbol":                  {f.segments(t, h, "a"), checkBase64},
			"a question mark":             {f.segments(t, h, p[:4]+"?"+p[4:]), checkBase64},
			"JSON serialization":          {`{"payload":"` + p + `","protected":"` + h + `","signature":"` + s + `"}`, checkForm},
			"no JSON":                     {f.token(t, "alg", payload), CheckHeader},
			"bytes after the JSON":        {f.token(t, header+"{}", payload), CheckHeader},
			"kid twice":                   {signedHeader(`,"kid":"k"`), CheckHeader},
			"alg twice":                   {signedHeader(`,"alg":"` + string(algorithm) + `"`), CheckHeader},
			"ALG next to alg":             {signedHeader(`,"ALG":"none"`), CheckHeader},
			"unknown member twice":        {signedHeader(`,"x":1,"x":1`), CheckHeader},
			"crit":                        {signedHeader(`,"crit":["exp"],"exp":1`), checkCritical},
			"b64 true":                    {signedHeader(`,"b64":true`), checkCritical},
			"b64 false without crit":      {signedHeader(`,"b64":false`), checkCritical},
			"no alg":                      {f.token(t, `{"kid":"k"}`, payload), CheckAlgorithm},
			"alg none":                    {f.token(t, `{"alg":"none","kid":"k"}`, payload), CheckAlgorithm},
			"alg None":                    {f.token(t, `{"alg":"None","kid":"k"}`, payload), CheckAlgorithm},
			"alg none and no signature":   {b64(`{"alg":"none"}`) + "." + p + ".", CheckAlgorithm},
			"empty alg":                   {f.token(t, `{"alg":"","kid":"k"}`, payload), CheckAlgorithm},
			"alg in lower case":           {f.token(t, `{"alg":"`+strings.ToLower(string(algorithm))+`","kid":"k"}`, payload), CheckAlgorithm},
			"HS256":                       {f.token(t, `{"alg":"HS256","kid":"k"}`, payload), CheckAlgorithm},
			"key ID too long":             {f.token(t, `{"alg":"`+string(algorithm)+`","kid":"`+strings.Repeat("k", MaxKeyIDSize+1)+`"}`, payload), CheckKeyID},
			"other key ID":                {f.token(t, `{"alg":"`+string(algorithm)+`","kid":"K"}`, payload), CheckKeyID},
			"no signature":                {h + "." + p + ".", checkSignatureSize},
			"signature of something else": {h + "." + b64(payload+" ") + "." + s, checkSignature},
		} {
			refusedFor(t, string(algorithm)+" "+name, f.verifies(test.token), test.want)
		}
	}
}

// pad encodes with the padding that JWS forbids.
func pad(text string) string { return base64.URLEncoding.EncodeToString([]byte(text)) }

// unusedBits encodes a text, made a multiple of three and two bytes long with spaces, and
// sets a bit that decoding drops.
func unusedBits(text string) string {
	for len(text)%3 != 2 {
		text += " "
	}
	encoded := b64(text)
	return encoded[:len(encoded)-1] + string(nextSymbol(encoded[len(encoded)-1]))
}

// A public key is not a secret: the MAC that others accept under it is refused.
func TestAlgorithmConfusion(t *testing.T) {
	f := forgers()[RS256]
	der, err := x509.MarshalPKIXPublicKey(f.key.public)
	if err != nil {
		t.Fatal(err)
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
	for _, secret := range [][]byte{der, text, bytes.TrimSpace(text)} {
		signed := b64(`{"alg":"HS256","kid":"k"}`) + "." + b64(forgedPayload)
		mac := hmac.New(sha256.New, secret)
		mac.Write([]byte(signed))
		refusedFor(t, "HS256", f.verifies(signed+"."+b64(string(mac.Sum(nil)))), CheckAlgorithm)
	}
}

// FuzzParse: whatever parses has one encoding, and encoding/json reads the same header.
func FuzzParse(f *testing.F) {
	testkit.BeginFuzz(f)
	for _, forger := range forgers() {
		f.Add(forger.good(f))
	}
	es := forgers()[ES256]
	f.Add(es.token(f, `{"alg":"ES256","\u006bid":"\ud83d\ude00","typ":"JWT","x":[{}]}`, ""))
	f.Add(es.token(f, `{"alg":"ES256","crit":[]}`, "a"))
	f.Add(strings.ReplaceAll(es.good(f), ".", "\n."))
	f.Add("..")
	f.Fuzz(func(t *testing.T, text string) {
		token, err := Parse(text)
		if err != nil {
			var e *Error
			if !errors.As(err, &e) || token != nil {
				t.Fatalf("%v, %v", token, err)
			}
			return
		}
		content := token.read()
		encode := base64.RawURLEncoding.EncodeToString
		head, rest, _ := strings.Cut(text, ".")
		decoded, err := base64.RawURLEncoding.DecodeString(head)
		if err != nil || encode(decoded) != head || rest != encode(content.payload)+"."+encode(content.signature) || string(content.signed)+"."+encode(content.signature) != text {
			t.Fatalf("%q has another encoding", text)
		}
		var h map[string]any
		if err := json.Unmarshal(decoded, &h); err != nil {
			t.Fatal(err)
		}
		keyID, _ := h["kid"].(string)
		typ, _ := h["typ"].(string)
		if h["alg"] != string(content.algorithm) || keyID != content.keyID || typ != content.typ || h["crit"] != nil || h["b64"] != nil {
			t.Fatalf("%s read as %q %q %q", decoded, content.algorithm, content.keyID, content.typ)
		}
	})
}

func TestDecodeSegment(t *testing.T) {
	for text, want := range map[string]string{"": "", "YQ": "a", "YWI": "ab", "YWJj": "abc", "-_-_": "\xfb\xff\xbf"} {
		t.Run(text, func(t *testing.T) {
			got, err := decodeSegment([]byte("x"), []byte(text))
			if err != nil || string(got) != "x"+want {
				t.Errorf("%s: got %q, %v", text, got, err)
			}
		})
	}
	for _, text := range []string{
		"Y", "YQ=", "YQ==", "YR", "YWJ", "YWJ=", "+/+/", " YQ", "YQ ", "Y Q", "YQ\n", "\nYQ", "\rYQ", "Y\nQ", "YWJj\r", "YW\r\nJj", "\n",
		"YQ.", "Y?", "YWJjY", "Y\x00Q", "YQ\xc3\xa9",
	} {
		if got, err := decodeSegment(nil, []byte(text)); err == nil {
			t.Errorf("%q: got %q", text, got)
		}
	}
}

// FuzzDecodeSegment: an accepted segment encodes to itself.
func FuzzDecodeSegment(f *testing.F) {
	testkit.BeginFuzz(f)
	for _, text := range []string{"", "YQ", "YR", "YQ==", "YW\nJj", "-_-_", "+/"} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		got, err := decodeSegment(nil, text)
		if err == nil && base64.RawURLEncoding.EncodeToString(got) != string(text) {
			t.Errorf("%q decodes to %q", text, got)
		}
		again, err := decodeSegment(nil, []byte(base64.RawURLEncoding.EncodeToString(text)))
		if err != nil || !bytes.Equal(again, text) {
			t.Errorf("%q does not come back: %q, %v", text, again, err)
		}
	})
}

// A set with given answers, which remembers the question.
type toldSet struct {
	keys  []*Key
	err   error
	asked []string
}

func (s *toldSet) Keys(_ context.Context, keyID string) ([]*Key, error) {
	s.asked = append(s.asked, keyID)
	return s.keys, s.err
}

func TestVerify(t *testing.T) {
	ctx := context.Background()
	for algorithm, f := range forgers() {
		// All keys have this ID: the token's algorithm selects among them.
		set := &toldSet{keys: []*Key{nil, forgers()[ES256].key, forgers()[RS256].key, f.key}}
		token := f.good(t)
		got, err := VerifySignature(ctx, token, set)
		if err != nil {
			t.Errorf("%s: %v", algorithm, err)
			continue
		}
		if got.Key != f.key && got.Key.algorithm != f.algorithm || string(got.Payload) != forgedPayload || got.Token.KeyID() != "k" {
			t.Errorf("%s: got %+v", algorithm, got)
		}
		if len(set.asked) != 1 || set.asked[0] != "k" {
			t.Errorf("%s: asked for %q", algorithm, set.asked)
		}
	}
}

// Without a key ID all keys are tried.
func TestVerifyWithoutKeyID(t *testing.T) {
	f, stranger := forgers()[ES256], strangers()[ES256]
	token := f.token(t, `{"alg":"ES256"}`, forgedPayload)
	for _, keys := range [][]*Key{{f.key}, {stranger.key, f.key}, {stranger.key, forgers()[RS256].key, f.key}} {
		if got, err := VerifySignature(context.Background(), token, &toldSet{keys: keys}); err != nil || got.Key != f.key {
			t.Errorf("%d keys: %v", len(keys), err)
		}
	}
	_, err := VerifySignature(context.Background(), token, &toldSet{keys: []*Key{stranger.key}})
	refusedFor(t, "a stranger's key", err, checkSignature)
	_, err = VerifySignature(context.Background(), token, &toldSet{})
	refusedFor(t, "no key", err, CheckKeyID)
}

func TestVerifyRefused(t *testing.T) {
	ctx := context.Background()
	f := forgers()[ES256]
	good := f.good(t)
	named, err := NewKey(f.signer.Public(), KeyOptions{KeyID: "other"})
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		token string
		keys  KeySet
		want  Check
	}{
		"no token":           {"", &toldSet{keys: []*Key{f.key}}, checkTokenSize},
		"no key of this ID":  {good, &toldSet{}, CheckKeyID},
		"a set that lies":    {good, &toldSet{keys: []*Key{named}}, CheckKeyID},
		"another algorithm":  {good, &toldSet{keys: []*Key{forgers()[RS256].key}}, CheckAlgorithm},
		"a nil key":          {good, &toldSet{keys: []*Key{nil}}, CheckAlgorithm},
		"a stranger's key":   {good, &toldSet{keys: []*Key{strangers()[ES256].key}}, checkSignature},
		"then another's":     {good, &toldSet{keys: []*Key{strangers()[ES256].key, forgers()[RS256].key}}, checkSignature},
		"a set that failed":  {good, &toldSet{keys: []*Key{f.key}, err: io.EOF}, refusal.ErrRetry},
		"a set that waits":   {good, &toldSet{err: &Error{Check: refusal.ErrRetry, Err: io.EOF}}, refusal.ErrRetry},
		"a refusal of a set": {good, &toldSet{err: &Error{Check: checkKeySet, Got: "a lie"}}, refusal.ErrRetry},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := VerifySignature(ctx, test.token, test.keys)
			refusedFor(t, name, err, test.want)
			if got != nil {
				t.Errorf("%s: a result with the error", name)
			}
		})
	}
	waits := &Error{Check: refusal.ErrRetry, Err: io.EOF}
	if _, err := VerifySignature(ctx, good, &toldSet{err: waits}); err != error(waits) { //nolint:errorlint // the very error
		t.Errorf("got %v, want the set's own error", err)
	}
	_, err = VerifySignature(ctx, good, &toldSet{err: io.EOF})
	if !errors.Is(err, io.EOF) {
		t.Errorf("the cause is lost: %v", err)
	}
	for _, token := range []*Token{nil, new(Token)} {
		_, err := token.VerifySignature(ctx, &toldSet{keys: []*Key{f.key}})
		refusedFor(t, "zero token", err, checkForm)
	}
}

func TestSignatureToken(t *testing.T) {
	f := forgers()[EdDSA]
	token := f.good(t)
	parsed, err := Parse(token)
	if err != nil {
		t.Fatal(err)
	}
	s := &Signature{Header: b64(`{"alg":"EdDSA","kid":"k"}`), Value: b64(string(parsed.read().signature)), Key: f.key}
	if got := s.Token([]byte(forgedPayload)); got != token {
		t.Errorf("got %s, want %s", got, token)
	}
	refusedFor(t, "another payload", f.verifies(s.Token([]byte("{}"))), checkSignature)
}
