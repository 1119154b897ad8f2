package jws

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
)

// signDetached signs one payload with one key.
func signDetached(payload []byte, keyID string, key []byte) (string, error) {
	d, err := NewDetached(payload)
	if err != nil {
		return "", err
	}
	return d.Sign(keyID, key)
}

// verifyDetached verifies what signDetached returns.
func verifyDetached(signature string, payload []byte, keyID string, key []byte) error {
	d, err := NewDetached(payload)
	if err != nil {
		return err
	}
	return d.Verify(signature, keyID, key)
}

// naiveDetached is the definition: RFC 7515, section 5.1 and appendix F.
func naiveDetached(payload []byte, keyID string, key []byte) string {
	header, err := json.Marshal(map[string]string{"alg": "HS256", "kid": keyID})
	if err != nil {
		panic(err)
	}
	signed := b64(string(header)) + "." + b64(string(payload))
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(signed))
	return b64(string(header)) + ".." + b64(string(mac.Sum(nil)))
}

// The values are from the test of k8s.io/cluster-bootstrap, token/jws.
func TestDetachedKubernetes(t *testing.T) {
	const key = "my voice is my passcode"
	for payload, want := range map[string]string{
		"Hello from the other side. I must have called a thousand times.": "eyJhbGciOiJIUzI1NiIsImtpZCI6Impvc2h1YSJ9..VShe2taLd-YTrmWuRkcL_8QTNDHYxQIEBsAYYiIj1_8",
		"": "eyJhbGciOiJIUzI1NiIsImtpZCI6Impvc2h1YSJ9..7Ui1ALizW4jXphVUB7xUqC9vLYLL9RZeOFfVLoB7Tgk",
	} {
		d, err := NewDetached([]byte(payload))
		if err != nil {
			t.Fatal(err)
		}
		if got := string(d.mac("joshua", []byte(key))); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		// Kubernetes signs with any secret; this one is no token's, and too short for HS256.
		refusedFor(t, "23 bytes", d.Verify(want, "joshua", []byte(key)), checkHMACKeySize)
	}
}

// Keys are at least as long as the hash output, or have exactly the form of a bootstrap token.
func TestDetachedKeySize(t *testing.T) {
	const id, secret = "abcdef", "0123456789abcdef"
	for name, test := range map[string]struct {
		keyID, key string
		ok         bool
	}{
		"a token":                {id, secret, true},
		"the alphabet's ends":    {"az09az", "az09az09az09az09", true},
		"32 bytes":               {"joshua's", strings.Repeat("\xff", 32), true},
		"33 bytes":               {id, strings.Repeat("k", 33), true},
		"empty":                  {id, "", false},
		"one byte":               {id, "k", false},
		"15 characters":          {id, secret[:15], false},
		"17 characters":          {id, secret + "0", false},
		"31 bytes":               {id, strings.Repeat("k", 31), false},
		"a key ID of 5":          {id[:5], secret, false},
		"a key ID of 7":          {id + "g", secret, false},
		"a capital in the ID":    {"abcdeF", secret, false},
		"a capital in the key":   {id, "0123456789abcdeF", false},
		"before a":               {id, "0123456789abcde`", false},
		"after z":                {id, "0123456789abcde{", false},
		"before 0":               {id, "/123456789abcdef", false},
		"after 9":                {id, ":123456789abcdef", false},
		"a byte that is no text": {id, "\xff123456789abcdef", false},
	} {
		t.Run(name, func(t *testing.T) {
			signature, err := signDetached([]byte("payload"), test.keyID, []byte(test.key))
			verified := verifyDetached(naiveDetached([]byte("payload"), test.keyID, []byte(test.key)), []byte("payload"), test.keyID, []byte(test.key))
			if test.ok {
				if err != nil || verified != nil {
					t.Errorf("signing: %v, verifying: %v", err, verified)
				}
				return
			}
			refusedFor(t, "signing", err, checkHMACKeySize)
			refusedFor(t, "verifying", verified, checkHMACKeySize)
			if signature != "" || len(test.key) > 1 && strings.Contains(err.Error(), test.key) {
				t.Errorf("signature %q, error %v", signature, err)
			}
		})
	}
}

func TestDetachedRandom(t *testing.T) {
	source := rand.New(rand.NewPCG(1, 2))
	text := func(alphabet string, n int) string {
		b := make([]byte, n)
		for i := range b {
			b[i] = alphabet[source.IntN(len(alphabet))]
		}
		return string(b)
	}
	const letters = "abcdefghijklmnopqrstuvwxyz0123456789"
	for range 2000 {
		id, key := text(letters, 6), []byte(text(letters, 16))
		payload := []byte(text(letters+"\n:-+ é\x00", source.IntN(300)))
		want := naiveDetached(payload, id, key)
		if got, err := signDetached(payload, id, key); err != nil || got != want {
			t.Fatalf("got %s, %v, want %s", got, err, want)
		}
		if err := verifyDetached(want, payload, id, key); err != nil {
			t.Fatal(err)
		}
		at := source.IntN(len(want))
		changed := want[:at] + string(want[at]^1) + want[at+1:]
		var e *Error
		if err := verifyDetached(changed, payload, id, key); !errors.As(err, &e) {
			t.Fatalf("%s passes for %s: %v", changed, want, err)
		}
	}
}

func TestDetachedRefused(t *testing.T) {
	payload, key := []byte("payload"), benchSecret
	good := naiveDetached(payload, "abcdef", key)
	header, mac, _ := strings.Cut(good, "..")
	if err := verifyDetached(good, payload, "abcdef", key); err != nil {
		t.Fatal(err)
	}
	rs256 := forgers()[RS256]
	with := func(header string) string { // the right MAC over another header
		m := hmac.New(sha256.New, key)
		m.Write([]byte(header + "." + b64(string(payload))))
		return header + ".." + base64.RawURLEncoding.EncodeToString(m.Sum(nil))
	}
	for name, test := range map[string]struct {
		signature string
		want      Check
	}{
		"empty":               {"", checkForm},
		"one dot":             {header + "." + mac, checkForm},
		"three dots":          {header + "..." + mac, checkForm},
		"payload left in":     {header + "." + b64("payload") + "." + mac, checkForm},
		"a dot after":         {good + ".", checkForm},
		"a dot before":        {"." + good, checkForm},
		"huge header":         {strings.Repeat("a", 1<<20) + ".." + mac, CheckHeader},
		"no header":           {".." + mac, CheckHeader},
		"padded header":       {header + "=.." + mac, checkBase64},
		"line end in header":  {header[:4] + "\n" + header[4:] + ".." + mac, checkBase64},
		"line end after":      {good + "\n", checkSignatureSize},
		"line end in MAC":     {header + ".." + mac[:4] + "\n" + mac[4:], checkSignatureSize},
		"line end for a sign": {header + ".." + mac[:4] + "\n" + mac[5:], checkBase64},
		"unused bits":         {good[:len(good)-1] + string(nextSymbol(good[len(good)-1])), checkBase64},
		"padded MAC":          {good + "=", checkSignatureSize},
		"no MAC":              {header + "..", checkSignatureSize},
		"short MAC":           {good[:len(good)-1], checkSignatureSize},
		"long MAC":            {good + "A", checkSignatureSize},
		"other MAC":           {header + ".." + strings.Repeat("A", macLength), checkSignature},
		"other members first": {with(b64(`{"kid":"abcdef","alg":"HS256"}`)), CheckHeader},
		"a space":             {with(b64(`{"alg":"HS256", "kid":"abcdef"}`)), CheckHeader},
		"a type":              {with(b64(`{"alg":"HS256","kid":"abcdef","typ":"JWT"}`)), CheckHeader},
		"kid twice":           {with(b64(`{"alg":"HS256","kid":"abcdef","kid":"abcdef"}`)), CheckHeader},
		"crit":                {with(b64(`{"alg":"HS256","crit":["x"],"kid":"abcdef"}`)), checkCritical},
		"b64":                 {with(b64(`{"alg":"HS256","b64":true,"kid":"abcdef"}`)), checkCritical},
		"no kid":              {with(b64(`{"alg":"HS256"}`)), CheckKeyID},
		"other kid":           {with(b64(`{"alg":"HS256","kid":"abcdeg"}`)), CheckKeyID},
		"none":                {with(b64(`{"alg":"none","kid":"abcdef"}`)), CheckAlgorithm},
		"HS512":               {with(b64(`{"alg":"HS512","kid":"abcdef"}`)), CheckAlgorithm},
		"no alg":              {with(b64(`{"kid":"abcdef"}`)), CheckAlgorithm},
		"RS256":               {strings.Replace(rs256.good(t), "."+b64(forgedPayload)+".", "..", 1), CheckAlgorithm},
	} {
		t.Run(name, func(t *testing.T) {
			refusedFor(t, name, verifyDetached(test.signature, payload, "abcdef", key), test.want)
		})
	}
	refusedFor(t, "other payload", verifyDetached(good, []byte("payloae"), "abcdef", key), checkSignature)
	refusedFor(t, "other key", verifyDetached(good, payload, "abcdef", []byte("0123456789abcdeg")), checkSignature)
	refusedFor(t, "other ID", verifyDetached(good, payload, "abcdeg", key), CheckKeyID)
	refusedFor(t, "no ID", verifyDetached(good, payload, "", key), CheckKeyID)
	refusedFor(t, "no key", verifyDetached(good, payload, "abcdef", nil), checkHMACKeySize)
}

// nextSymbol is the base64url symbol whose value is one more.
func nextSymbol(c byte) byte {
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	return alphabet[(strings.IndexByte(alphabet, c)+1)%64]
}

func TestDetachedLimits(t *testing.T) {
	key := []byte("0123456789abcdef0123456789abcdef")
	largest := make([]byte, maxPayloadSize)
	signature, err := signDetached(largest, "abcdef", key)
	if err != nil || verifyDetached(signature, largest, "abcdef", key) != nil {
		t.Errorf("the largest payload: %v", err)
	}
	_, err = signDetached(append(largest, 0), "abcdef", key)
	refusedFor(t, "a payload too long", err, checkPayloadSize)
	refusedFor(t, "a payload too long", verifyDetached(signature, append(largest, 0), "abcdef", key), checkPayloadSize)
	longest := strings.Repeat("<", MaxKeyIDSize) // six bytes each in JSON
	signature, err = signDetached(nil, longest, key)
	if err != nil || signature != naiveDetached(nil, longest, key) || verifyDetached(signature, nil, longest, key) != nil {
		t.Errorf("the longest key ID: %v", err)
	}
	refusedFor(t, "the longest header", verifyDetached(signature[:len(signature)-1]+"_", nil, longest, key), checkBase64)
	most := encoding.EncodedLen(maxHeaderSize)
	refusedFor(t, "a header as long as one may be", verifyDetached(strings.Repeat("?", most)+"..", nil, "a", key), checkBase64)
	refusedFor(t, "a longer header", verifyDetached(strings.Repeat("?", most+1)+"..", nil, "a", key), CheckHeader)
	_, err = signDetached(nil, longest+"<", key)
	refusedFor(t, "a key ID too long", err, CheckKeyID)
}

// An error never holds what would have been accepted, nor the key.
func TestDetachedErrorsHoldNoSecret(t *testing.T) {
	payload, key := []byte("payload"), benchSecret
	good := naiveDetached(payload, "abcdef", key)
	_, mac, _ := strings.Cut(good, "..")
	header, _, _ := strings.Cut(good, "..")
	for _, signature := range []string{"", header + "..", header + ".." + strings.Repeat("A", macLength), good + "A", good[:len(good)-1]} {
		err := verifyDetached(signature, payload, "abcdef", key)
		if err == nil || strings.Contains(err.Error(), mac[:8]) || strings.Contains(err.Error(), string(key)) {
			t.Errorf("%q: %v", signature, err)
		}
	}
}

// FuzzDetached: exactly one text is the signature.
func FuzzDetached(f *testing.F) {
	good := naiveDetached([]byte("payload"), "abcdef", benchSecret)
	f.Add(good, []byte("payload"), "abcdef", benchSecret)
	f.Add(good+"=", []byte("payload"), "abcdef", benchSecret)
	f.Add(strings.Replace(good, "..", ".", 1), []byte("payload"), "<é\u2028", []byte("0123456789abcdef0123456789abcdef"))
	f.Add("", []byte(nil), "", []byte(nil))
	f.Fuzz(func(t *testing.T, signature string, payload []byte, keyID string, key []byte) {
		want, err := signDetached(payload, keyID, key)
		if err != nil {
			if verifyDetached(signature, payload, keyID, key) == nil {
				t.Fatalf("verifies, though %v", err)
			}
			return
		}
		if naive := naiveDetached(payload, keyID, key); want != naive {
			t.Fatalf("got %s, want %s", want, naive)
		}
		if err := verifyDetached(want, payload, keyID, key); err != nil {
			t.Fatal(err)
		}
		if err := verifyDetached(signature, payload, keyID, key); (err == nil) != (signature == want) {
			t.Fatalf("%q: %v, want %q", signature, err, want)
		}
	})
}
