package apiserver

import (
	"bytes"
	"crypto"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"strings"
	"testing"

	"github.com/nodeattest/nodeattest/claims"
	"github.com/nodeattest/nodeattest/jws"
	"github.com/nodeattest/nodeattest/refusal"
)

// rejoin replaces one segment of a token.
func rejoin(t testing.TB, token string, i int, segment []byte) string {
	t.Helper()
	segments := strings.Split(token, ".")
	if len(segments) != 3 {
		t.Fatalf("no token: %q", token)
	}
	segments[i] = base64.RawURLEncoding.EncodeToString(segment)
	return strings.Join(segments, ".")
}

// raw signs the world's claims under any header, with an RSA key of its own, which the
// world then knows too.
func (w *world) raw(t testing.TB, header string) string {
	t.Helper()
	private := newRSA(t)
	key, err := jws.NewKey(&private.PublicKey, jws.KeyOptions{KeyID: "raw"})
	if err != nil {
		t.Fatal(err)
	}
	if w.keys, err = jws.NewStaticKeySet(w.signer.Key(), key); err != nil {
		t.Fatal(err)
	}
	input := encode(header) + "." + encode(string(w.payload(t)))
	digest := sha256.Sum256([]byte(input))
	signature, err := rsa.SignPKCS1v15(nil, private, crypto.SHA256, digest[:])
	if err != nil {
		t.Fatal(err)
	}
	return input + "." + encode(string(signature))
}

// TestValidatorReads has spellings of a good token that kube-apiserver's reader takes.
func TestValidatorReads(t *testing.T) {
	for name, spell := range map[string]func(token string) string{
		"line break at the end":         func(s string) string { return s + "\n" },
		"CR LF in the signature":        func(s string) string { return s[:len(s)-5] + "\r\n" + s[len(s)-5:] },
		"line break in the header":      func(s string) string { return s[:5] + "\n" + s[5:] },
		"line break in the payload":     func(s string) string { i := strings.Index(s, "."); return s[:i+5] + "\n" + s[i+5:] },
		"tab in the header":             func(s string) string { return s[:5] + "\t" + s[5:] },
		"no canonical last bits":        func(s string) string { return s[:len(s)-1] + string(nextLetter(s[len(s)-1])) },
		"space in front of the dot":     func(s string) string { return strings.Replace(s, ".", " .", 1) },
		"line break after the last dot": func(s string) string { i := strings.LastIndex(s, "."); return s[:i+1] + "\n" + s[i+1:] },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			spelt := spell(w.token(t))
			if _, err := w.kubernetes(t).Validate(t.Context(), spelt); err != nil {
				t.Errorf("%v: %q", err, spelt)
			}
			_, err := w.strict(t).Validate(t.Context(), spelt)
			wantCheck(t, err, claims.Check("token"))
		})
	}
}

// nextLetter returns the letter whose lowest bit differs: an ES256 signature's last
// letter has four bits that mean nothing.
func nextLetter(c byte) byte {
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	return alphabet[strings.IndexByte(alphabet, c)^1]
}

// TestValidatorDoesNotRead has texts that are not tokens to kube-apiserver's reader, or one whose
// signature cannot be good.
func TestValidatorDoesNotRead(t *testing.T) {
	const unreadable = "invalid bearer token"
	w := newWorld(t)
	good, payload := w.token(t), w.payload(t)
	kid := w.signer.Key().KeyID()
	header := func(format string) string { return rejoin(t, good, 0, fmt.Appendf(nil, format, kid)) }
	for _, tt := range []struct {
		name, token string
		check       refusal.Check
		message     string
	}{
		{"empty", "", checkNotOurs, unreadable},
		{"a word", "abc", checkNotOurs, unreadable},
		{"two segments", good[:strings.LastIndex(good, ".")], checkNotOurs, unreadable},
		{"four segments", good + ".", checkNotOurs, unreadable},
		{"JSON", `{"payload":"` + good + `"}`, checkNotOurs, unreadable},
		{"huge", strings.Repeat("a", jws.MaxTokenSize) + ".b.c", checkNotOurs, unreadable},
		{"padded", good + "=", checkNotOurs, unreadable},
		{"standard alphabet", rejoin(t, good, 2, bytes.Repeat([]byte{0xff}, 64)) + "/", checkNotOurs, unreadable},
		{"a tab in the payload", strings.Replace(good, ".", ".\t", 1), checkNotOurs, unreadable},
		{"payload no JSON", rejoin(t, good, 1, []byte("x")), checkNotOurs, unreadable},
		{"payload a string", rejoin(t, good, 1, []byte(`"x"`)), checkNotOurs, unreadable},
		{"issuer a number", rejoin(t, good, 1, []byte(`{"iss":1}`)), checkNotOurs, unreadable},
		{"header no JSON", rejoin(t, good, 0, []byte("x")), checkNotOurs, unreadable},
		{"kid a number", header(`{"alg":"ES256","kid":1,"x":%q}`), checkNotOurs, unreadable},
		{"alg twice", header(`{"alg":"ES256","alg":"ES256","kid":%q}`), checkNotOurs, unreadable},
		{"empty header", rejoin(t, good, 0, nil), claims.CheckSignature, cryptoMessage},
		{"alg none", header(`{"alg":"none","kid":%q}`), claims.CheckSignature, cryptoMessage},
		{"alg HS256", header(`{"alg":"HS256","kid":%q}`), claims.CheckSignature, cryptoMessage},
		{"alg of another key", header(`{"alg":"RS256","kid":%q}`), claims.CheckSignature, cryptoMessage},
		{"no alg", header(`{"kid":%q}`), claims.CheckSignature, cryptoMessage},
		{"critical", header(`{"alg":"ES256","crit":["x"],"kid":%q}`), claims.CheckSignature, cryptoMessage},
		{"alg none and an unknown key", rejoin(t, good, 0, []byte(`{"alg":"none","kid":"x"}`)), claims.CheckNoKey, "invalid signature, no keys found"},
		{"no signature", rejoin(t, good, 2, nil), claims.CheckSignature, cryptoMessage},
		{"half a signature", rejoin(t, good, 2, make([]byte, 32)), claims.CheckSignature, cryptoMessage},
		{"zero signature", rejoin(t, good, 2, make([]byte, 64)), claims.CheckSignature, cryptoMessage},
		{"another payload", rejoin(t, good, 1, append(payload, ' ')), claims.CheckSignature, cryptoMessage},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r, err := w.kubernetes(t).Validate(t.Context(), tt.token)
			refusedBy(t, r, err, tt.check, tt.message)
		})
	}
}

// TestValidatorClaimSets has claim sets that no API server writes, with good signatures.
func TestValidatorClaimSets(t *testing.T) {
	const kubernetes = `"kubernetes.io":{"namespace":"ns","serviceaccount":{"name":"app","uid":"app-uid"}}`
	for _, tt := range []struct {
		name, payload string
		check         refusal.Check // "" where it is accepted
	}{
		{"plain", `{"iss":"` + worldIssuer + `",` + kubernetes + `}`, ""},
		{"a time with a fraction", `{"iss":"` + worldIssuer + `","exp":9999999999.5,` + kubernetes + `}`, ""},
		{"audience a string", `{"iss":"` + worldIssuer + `","aud":"` + worldAudience + `",` + kubernetes + `}`, ""},
		{"issuer twice in other cases, ours last", `{"ISS":"x","iss":"` + worldIssuer + `",` + kubernetes + `}`, ""},
		{"issuer twice in other cases, ours first", `{"iss":"` + worldIssuer + `","ISS":"x",` + kubernetes + `}`, checkNotOurs},
		{"issuer in capitals", `{"ISS":"` + worldIssuer + `",` + kubernetes + `}`, claims.CheckIssuer},
		{"issuer twice", `{"iss":"` + worldIssuer + `","iss":"` + worldIssuer + `",` + kubernetes + `}`, claims.CheckEncoding},
		{"no private claims", `{"iss":"` + worldIssuer + `"}`, claims.Check("service-account-gone")},
		{"exp a string", `{"iss":"` + worldIssuer + `","exp":"1",` + kubernetes + `}`, claims.CheckEncoding},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			token := w.sign(t, []byte(tt.payload))
			_, err := w.kubernetes(t).Validate(t.Context(), token)
			if tt.check == "" && err != nil {
				t.Error(err)
			} else if tt.check != "" {
				wantCheck(t, err, tt.check)
			}
			if _, err := w.strict(t).Validate(t.Context(), token); err == nil {
				t.Error("strict validation accepts it")
			}
		})
	}
	w := newWorld(t)
	_, err := w.kubernetes(t).Validate(t.Context(), w.sign(t, []byte(`{"ISS":"`+worldIssuer+`"}`)))
	if err == nil || err.Error() != `token issuer "" is invalid` {
		t.Errorf("got %v", err)
	}
}
