package jws

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/internal/testkit"
)

// Nothing shows a usable part of a token: neither the text that was signed nor its
// parts. The payload of a verified token is the caller's to show.
func TestTokenIsNotShown(t *testing.T) {
	f := forgers()[ES256]
	token, err := Parse(f.good(t))
	if err != nil {
		t.Fatal(err)
	}
	c := token.read()
	keys, err := NewStaticKeySet(f.key)
	if err != nil {
		t.Fatal(err)
	}
	verified, err := token.VerifySignature(t.Context(), keys)
	if err != nil {
		t.Fatal(err)
	}
	t.Run("Token", func(t *testing.T) { testkit.CheckSecrets(t, *token, c.signed, c.payload, c.signature) })
	t.Run("*Token", func(t *testing.T) { testkit.CheckSecrets(t, token, c.signed, c.payload, c.signature) })
	t.Run("Signed", func(t *testing.T) { testkit.CheckSecrets(t, *verified, c.signature) })
}

// Nothing shows a private key that signs.
func TestPrivateKeysAreNotShown(t *testing.T) {
	for name, private := range map[string]crypto.Signer{
		"RSA": forgers()[RS256].signer, "ECDSA": curveKey(elliptic.P256()), "Ed25519": forgers()[EdDSA].signer,
	} {
		signer := newSigner(t, private, SignerOptions{})
		rotating, err := NewRotatingSigner(signer, RotationConfig{Publish: time.Hour, Retain: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		secret := privateBytes(t, private)
		t.Run(name, func(t *testing.T) {
			t.Run("CryptoSigner", func(t *testing.T) { testkit.CheckSecrets(t, signer, secret) })
			t.Run("Rotation", func(t *testing.T) { testkit.CheckSecrets(t, *rotating.state.Load(), secret) })
		})
	}
}

// privateBytes are the bytes of a private key's number or seed.
func privateBytes(t *testing.T, private crypto.Signer) []byte {
	t.Helper()
	switch key := private.(type) {
	case *rsa.PrivateKey:
		return key.D.Bytes()
	case *ecdsa.PrivateKey:
		raw, err := key.Bytes()
		if err != nil {
			t.Fatal(err)
		}
		return raw
	case ed25519.PrivateKey:
		return key.Seed()
	}
	t.Fatalf("%T", private)
	return nil
}

// A token's key ID is a stranger's text: it writes no line and moves no cursor, wherever
// the token stands, and stays short.
func TestTokenTextOfStranger(t *testing.T) {
	const forged = "k\n2026-03-01T00:00:00Z INFO user=admin login ok\x1b[2J\u202e"
	f := forgers()[ES256]
	parse := func(keyID string) *Token {
		token, err := Parse(f.token(t, `{"alg":"ES256","kid":`+string(appendString(nil, keyID))+`,"typ":`+string(appendString(nil, keyID))+`}`, "{}"))
		if err != nil {
			t.Fatal(err)
		}
		return token
	}
	token := parse(forged)
	keys, err := NewStaticKeySet(f.key)
	if err != nil {
		t.Fatal(err)
	}
	_, refused := token.VerifySignature(t.Context(), keys)
	var log strings.Builder
	slog.New(slog.NewTextHandler(&log, nil)).Info("m", "token", token, "err", refused)
	slog.New(slog.NewJSONHandler(&log, nil)).Info("m", "token", token, "err", refused)
	if got := strings.Count(log.String(), "\n"); got != 2 {
		t.Errorf("%d lines in the log: %s", got, &log)
	}
	texts := map[string]string{"error": fmt.Sprint(refused), "of the key": fmt.Sprint(f.key.Verify(token)), "log": strings.ReplaceAll(log.String(), "\n", "")}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		texts[verb] = fmt.Sprintf(verb+verb, token, *token)
		texts["in a field, "+verb] = fmt.Sprintf(verb, struct{ token Token }{*token})
		texts["in a pointer's field, "+verb] = fmt.Sprintf(verb, &struct{ Token *Token }{token})
	}
	for name, text := range texts {
		if strings.ContainsAny(text, "\n\x1b\u202e") {
			t.Errorf("%s: %q", name, text)
		}
	}
	if got := fmt.Sprint(parse("k")); got != "token{alg ES256, kid k}" {
		t.Errorf("got %s", got)
	}
	if got := fmt.Sprint(parse(strings.Repeat("k", MaxKeyIDSize))); len(got) > MaxKeyIDSize {
		t.Errorf("%d bytes", len(got))
	}
	if got := fmt.Sprint(new(Token)); got != "token{alg , kid }" {
		t.Errorf("got %q", got)
	}
}
