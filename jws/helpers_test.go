package jws

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"errors"
	"sync"
	"testing"
)

// A forger signs whatever it is told to, in whatever header, with the algorithm of its
// key, by other means than the package's own.
type forger struct {
	signer    crypto.Signer
	algorithm Algorithm
	key       *Key // with the key ID "k"
}

const forgedPayload = `{"iss":"https://issuer.example","sub":"system:serviceaccount:ns:sa","aud":["a"]}`

// forgers has one forger for each algorithm.
var forgers = sync.OnceValue(newForgers)

// strangers are others, with the same key ID.
var strangers = sync.OnceValue(newForgers)

func newForgers() map[Algorithm]*forger {
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		panic(err)
	}
	_, edKey, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		panic(err)
	}
	signers := map[Algorithm]crypto.Signer{
		RS256: rsaKey, RS384: rsaKey, RS512: rsaKey, PS256: rsaKey, PS384: rsaKey, PS512: rsaKey,
		ES256: curveKey(elliptic.P256()), ES384: curveKey(elliptic.P384()), ES512: curveKey(elliptic.P521()), EdDSA: edKey,
	}
	all := make(map[Algorithm]*forger)
	for algorithm, signer := range signers {
		key, err := NewKey(signer.Public(), KeyOptions{KeyID: "k", Algorithm: algorithm})
		if err != nil {
			panic(err)
		}
		all[algorithm] = &forger{signer, algorithm, key}
	}
	return all
}

func curveKey(curve elliptic.Curve) *ecdsa.PrivateKey {
	key, err := ecdsa.GenerateKey(curve, rand.Reader)
	if err != nil {
		panic(err)
	}
	return key
}

func b64(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) }

// hashes are the hash functions of the algorithms: RFC 7518, section 3.1, and 0 for EdDSA.
var hashes = map[Algorithm]crypto.Hash{
	RS256: crypto.SHA256, RS384: crypto.SHA384, RS512: crypto.SHA512,
	PS256: crypto.SHA256, PS384: crypto.SHA384, PS512: crypto.SHA512,
	ES256: crypto.SHA256, ES384: crypto.SHA384, ES512: crypto.SHA512, EdDSA: 0,
}

// raw signs the bytes as they are and returns the signature as JWS has it.
func (f *forger) raw(t testing.TB, signed string) []byte {
	t.Helper()
	return f.rawWith(t, signed, rsa.PSSSaltLengthEqualsHash)
}

func (f *forger) rawWith(t testing.TB, signed string, salt int) []byte {
	t.Helper()
	hash := hashes[f.algorithm]
	digest := []byte(signed)
	if hash != 0 {
		h := hash.New()
		h.Write(digest)
		digest = h.Sum(nil)
	}
	var signature []byte
	var err error
	switch key := f.signer.(type) {
	case *ecdsa.PrivateKey:
		r, s, signErr := ecdsa.Sign(rand.Reader, key, digest)
		if signErr != nil {
			t.Fatal(signErr)
		}
		size := (key.Params().BitSize + 7) / 8
		signature = append(r.FillBytes(make([]byte, size)), s.FillBytes(make([]byte, size))...)
	case *rsa.PrivateKey:
		if f.algorithm[0] == 'P' {
			signature, err = rsa.SignPSS(rand.Reader, key, hash, digest, &rsa.PSSOptions{SaltLength: salt})
		} else {
			signature, err = rsa.SignPKCS1v15(rand.Reader, key, hash, digest)
		}
	default:
		signature, err = key.Sign(rand.Reader, digest, crypto.Hash(0))
	}
	if err != nil {
		t.Fatal(err)
	}
	return signature
}

// segments signs two segments as they are.
func (f *forger) segments(t testing.TB, header, payload string) string {
	t.Helper()
	signed := header + "." + payload
	return signed + "." + b64(string(f.raw(t, signed)))
}

// token signs a header and a payload, given as JSON.
func (f *forger) token(t testing.TB, header, payload string) string {
	t.Helper()
	return f.segments(t, b64(header), b64(payload))
}

// good is a token as kube-apiserver would issue it.
func (f *forger) good(t testing.TB) string {
	t.Helper()
	return f.token(t, `{"alg":"`+string(f.algorithm)+`","kid":"k"}`, forgedPayload)
}

// verifies parses and verifies with the forger's own key.
func (f *forger) verifies(token string) error {
	parsed, err := Parse(token)
	if err != nil {
		return err
	}
	return f.key.Verify(parsed)
}

// refusedFor checks that err is an *Error of exactly that check, with something to read.
func refusedFor(t testing.TB, what string, err error, want Check) {
	t.Helper()
	var e *Error
	if !errors.As(err, &e) || !errors.Is(err, want) || e.Check != want {
		t.Errorf("%s: got %v, want %v", what, err, want)
		return
	}
	if e.Got == "" && e.Want == "" && e.Err == nil {
		t.Errorf("%s: %v says nothing", what, err)
	}
}
