package jwstest_test

import (
	"crypto"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/nodeattest/nodeattest/attest/tpm/tpmkey"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/jws"
	"github.com/nodeattest/nodeattest/jws/jwstest"
	"github.com/nodeattest/nodeattest/tpmsim"
)

var algorithms = []jws.Algorithm{jws.RS256, jws.RS384, jws.RS512, jws.PS256, jws.PS384, jws.PS512, jws.ES256, jws.ES384, jws.ES512, jws.EdDSA}

// verify verifies a token with a signer's key.
func verify(t *testing.T, signer *jwstest.Signer, token string) error {
	t.Helper()
	keys, err := jws.NewStaticKeySet(signer.Key())
	testkit.NoError(t, err)
	_, err = jws.VerifySignature(t.Context(), token, keys)
	return err
}

// The checks by which forgeries are refused. The last four depend on the key.
var forgeries = map[string]jws.Check{
	"alg-none": jws.CheckAlgorithm, "alg-absent": jws.CheckAlgorithm, "alg-other-case": jws.CheckAlgorithm,
	"alg-twice": jws.CheckHeader, "alg-member-in-capitals": jws.CheckHeader,
	"kid-unknown": jws.CheckKeyID, "kid-number": jws.CheckHeader, "kid-twice": jws.CheckHeader, "kid-member-in-capitals": jws.CheckHeader,
	"kid-too-long": jws.CheckKeyID, "crit": "critical-header", "b64": "critical-header", "jwk": jws.CheckHeader, "x5c": jws.CheckHeader,
	"header-array": jws.CheckHeader, "header-with-more-after": jws.CheckHeader, "header-not-json": jws.CheckHeader, "header-empty": jws.CheckHeader,
	"header-padded": "base64url", "header-unused-bits": "base64url", "header-line-end": "base64url",
	"payload-padded": "base64url", "payload-line-end": "base64url", "signature-padded": "base64url", "signature-line-end": "base64url",
	"four-segments": "form", "two-segments": "form",
	"alg-none-without-signature": jws.CheckAlgorithm, "signature-absent": "jws-signature-size", "signature-cut": "jws-signature-size",
	"signature-with-more-after": "jws-signature-size", "payload-changed": "jws-signature", "signature-by-another-key": "jws-signature",
	"alg-HS256-with-the-public-key": jws.CheckAlgorithm,
	"alg-of-the-same-key":           jws.CheckAlgorithm, "signature-in-DER": "jws-signature-size", "signature-of-zeros": "jws-signature",
}

// The same payload with the usual header is accepted, and each forgery refused by its own check.
func TestForgeries(t *testing.T) {
	device := tpmkey.Share(tpmsim.New(t, tpmsim.Options{}))
	signers := []*jwstest.Signer{}
	for _, algorithm := range []tpmkey.Algorithm{tpmkey.ECDSAP256, tpmkey.RSA2048} {
		key, err := tpmkey.Create(t.Context(), device, algorithm, tpmkey.Options{})
		testkit.NoError(t, err)
		t.Cleanup(func() { testkit.NoError(t, key.Close()) })
		signers = append(signers, jwstest.NewSigner(t, key, jws.SignerOptions{}))
	}
	for _, algorithm := range algorithms {
		signers = append(signers, jwstest.NewSigner(t, nil, jws.SignerOptions{Algorithm: algorithm, KeyID: `"<é`}))
	}
	for _, signer := range signers {
		for _, payload := range []string{"", `{"sub":"a"}`, strings.Repeat("x", 32<<10)} {
			token, err := signer.Token(t.Context(), []byte(payload))
			testkit.NoError(t, err)
			testkit.NoError(t, verify(t, signer, token))
			made, err := signer.Forgeries([]byte(payload))
			testkit.NoError(t, err)
			checkForgeries(t, signer, made)
		}
	}
	if _, err := signers[0].Forgeries(make([]byte, 32<<10+1)); err == nil {
		t.Error("a payload that is too long")
	}
}

func checkForgeries(t *testing.T, signer *jwstest.Signer, made []jwstest.Forgery) {
	t.Helper()
	var seen []string
	for _, f := range made {
		if slices.Contains(seen, f.Name) || forgeries[f.Name] == "" || f.Check != forgeries[f.Name] {
			t.Errorf("%s: %s is refused by %s, want %s", signer.Key().Algorithm(), f.Name, f.Check, forgeries[f.Name])
		}
		if err := verify(t, signer, f.Token); !errors.Is(err, f.Check) {
			t.Errorf("%s: %v, want %s", f.Name, err, f.Check)
		}
		seen = append(seen, f.Name)
	}
	want := len(forgeries) - 3
	switch signer.Key().Algorithm()[0] {
	case 'E':
		if signer.Key().Algorithm() != jws.EdDSA {
			want += 2
		}
	default:
		want++
	}
	if len(seen) != want {
		t.Errorf("%s: %d forgeries, want %d: %v", signer.Key().Algorithm(), len(seen), want, seen)
	}
}

// Any header is signed; the usual one is accepted.
func TestForge(t *testing.T) {
	for _, algorithm := range algorithms {
		signer := jwstest.NewSigner(t, nil, jws.SignerOptions{Algorithm: algorithm, KeyID: "k"})
		for header, want := range map[string]jws.Check{
			`{"alg":"` + string(algorithm) + `","kid":"k"}`:  "",
			`{"alg":"` + string(algorithm) + `"}`:            "",
			`{"alg":"` + string(algorithm) + `","kid":"l"}`:  jws.CheckKeyID,
			`{"kid":"k","alg":"` + string(algorithm) + `"}x`: jws.CheckHeader,
		} {
			token, err := signer.Forge(header, []byte("{}"))
			testkit.NoError(t, err)
			if err := verify(t, signer, token); want == "" && err != nil || want != "" && !errors.Is(err, want) {
				t.Errorf("%s: %v, want %q", header, err, want)
			}
		}
	}
}

// brokenKey does not sign, in one of its calls or in any.
type brokenKey struct {
	ed25519.PrivateKey
	calls *int // that are good
}

func (k brokenKey) Sign(rand io.Reader, message []byte, opts crypto.SignerOpts) ([]byte, error) {
	if *k.calls--; *k.calls < 0 {
		return nil, errors.New("broken")
	}
	return k.PrivateKey.Sign(rand, message, opts)
}

func TestSignerErrors(t *testing.T) {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	testkit.NoError(t, err)
	calls := 0
	signer := jwstest.NewSigner(t, brokenKey{key, &calls}, jws.SignerOptions{})
	if _, err := signer.Token(t.Context(), nil); !errors.Is(err, jws.Check("signer")) {
		t.Errorf("Token: %v", err)
	}
	if token, err := signer.Forge("{}", nil); err == nil || token != "" {
		t.Errorf("Forge: %q, %v", token, err)
	}
	for calls = range 20 {
		n := calls
		if made, err := signer.Forgeries(nil); err == nil || made != nil {
			t.Errorf("%d good calls: %v, %v", n, made, err)
		}
		calls = n
	}
	for name, opts := range map[string]jws.SignerOptions{"algorithm": {Algorithm: "HS256"}, "another's": {Algorithm: jws.RS256}, "type": {Type: "jwt"}} {
		var given crypto.Signer
		if name == "another's" {
			given = key
		}
		if signer, err := jwstest.OpenSigner(given, opts); err == nil || signer != nil {
			t.Errorf("%s: %v, %v", name, signer, err)
		}
	}
}
