package jws

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A wycheproofFile is what these tests read of a file of Wycheproof's vectors
// (https://github.com/C2SP/wycheproof, testvectors_v1).
type wycheproofFile struct {
	NumberOfTests int `json:"numberOfTests"`
	TestGroups    []struct {
		Public       json.RawMessage `json:"public"`
		Private      json.RawMessage `json:"private"`
		PublicKeyPem string          `json:"publicKeyPem"`
		TagSize      int             `json:"tagSize"`
		Tests        []wycheproofTest
	} `json:"testGroups"`
}

type wycheproofTest struct {
	ID        int             `json:"tcId"`
	Comment   string          `json:"comment"`
	Result    string          `json:"result"`
	JWS       json.RawMessage `json:"jws"` // a string, or an object in the JSON serialization
	Key       string          `json:"key"`
	Message   string          `json:"msg"`
	Signature string          `json:"sig"`
	Tag       string          `json:"tag"`
}

func (w *wycheproofTest) valid() bool { return w.Result == "valid" }

// token is the token in compact form, or what stands in its place.
func (w *wycheproofTest) token() string {
	var token string
	if json.Unmarshal(w.JWS, &token) != nil {
		return string(w.JWS)
	}
	return token
}

func wycheproof(t *testing.T, name string) *wycheproofFile {
	t.Helper()
	dir := os.Getenv("NODEATTEST_CORPUS")
	if dir == "" {
		t.Skip("NODEATTEST_CORPUS is not set: it names a directory with wycheproof/" + name)
	}
	data, err := os.ReadFile(filepath.Join(dir, "wycheproof", name))
	if err != nil {
		t.Fatal(err)
	}
	var file wycheproofFile
	if err := json.Unmarshal(data, &file); err != nil {
		t.Fatal(err)
	}
	count := 0
	for _, group := range file.TestGroups {
		count += len(group.Tests)
	}
	if count == 0 || count != file.NumberOfTests {
		t.Fatalf("%d tests read of %d", count, file.NumberOfTests)
	}
	return &file
}

// A group of these is marked valid and refused all the same, for one reason each.
type refusedByDesign struct {
	why  string
	want Check
	ids  []int
}

// jwsRefused are the valid tests of the JWS file that are refused.
var jwsRefused = []refusedByDesign{
	{"a token in compact form is never signed with a symmetric key", CheckAlgorithm,
		[]int{1, 348, 352, 357, 358, 359, 376, 377}},
	{"a stray question mark in the header's base64url, marked valid by mistake", checkBase64,
		[]int{372}},
	{"a stray question mark in the payload's base64url, marked valid by mistake; the algorithm is looked at first", CheckAlgorithm,
		[]int{373}},
	{"the key's alg is PS256, the token's PS384: a key is bound to its algorithm (as tests 332 to 340, marked invalid, ask for)", CheckAlgorithm,
		[]int{346, 350}},
	{"the key's alg is ES521, which does not exist (the JWK file's test 19, marked invalid, has it too)", CheckAlgorithm,
		[]int{347, 351}},
}

// jwkRefused are the refused keys of the JWK file.
var jwkRefused = []refusedByDesign{
	{"a token in compact form is never signed with a symmetric key", CheckAlgorithm,
		[]int{2, 13, 14, 15}},
}

// TestWycheproofJWS verifies each token with its group's key, read as a JWK.
func TestWycheproofJWS(t *testing.T) {
	runWycheproofTokens(t, "json_web_signature_test.json", jwsRefused, func(public []byte) (KeySet, error) {
		key, err := parseJWK(public)
		if err != nil {
			return nil, err
		}
		return NewStaticKeySet(key)
	})
}

// TestWycheproofJWK verifies each token with its group's key set, read as a JWKS.
func TestWycheproofJWK(t *testing.T) {
	runWycheproofTokens(t, "json_web_key_test.json", jwkRefused, func(public []byte) (KeySet, error) {
		keys, err := ParseJWKS(public)
		if err != nil {
			return nil, err
		}
		return NewStaticKeySet(keys...)
	})
}

func runWycheproofTokens(t *testing.T, name string, refused []refusedByDesign, keySet func(public []byte) (KeySet, error)) {
	var ids []int
	for _, group := range wycheproof(t, name).TestGroups {
		set, keyErr := keySet(group.Public)
		if group.Public == nil {
			// Symmetric keys, which are not even read.
			if set, keyErr = keySet(group.Private); keyErr == nil {
				t.Errorf("a symmetric key was read: %v", set)
			}
		}
		for _, test := range group.Tests {
			_, err := Parse(test.token())
			if err == nil {
				if err = keyErr; err == nil {
					_, err = VerifySignature(context.Background(), test.token(), set)
				}
			}
			at := slices.IndexFunc(refused, func(r refusedByDesign) bool { return slices.Contains(r.ids, test.ID) })
			if at < 0 {
				if test.valid() != (err == nil) {
					t.Errorf("%d %s, %s: %v", test.ID, test.Result, test.Comment, err)
				}
				continue
			}
			ids = append(ids, test.ID)
			if !test.valid() || !errors.Is(err, refused[at].want) {
				t.Errorf("%d %s, %s: got %v, want %v because of %s", test.ID, test.Result, test.Comment, err, refused[at].want, refused[at].why)
			}
		}
	}
	for _, r := range refused {
		for _, id := range r.ids {
			if !slices.Contains(ids, id) {
				t.Errorf("test %d does not exist", id)
			}
		}
	}
}

// TestWycheproofContradictions verifies the tokens that are refused for their key's alg
// alone: with the same key bound to the token's algorithm they are good.
func TestWycheproofContradictions(t *testing.T) {
	seen := 0
	for _, group := range wycheproof(t, "json_web_signature_test.json").TestGroups {
		for _, test := range group.Tests {
			if !slices.Contains([]int{346, 347, 350, 351}, test.ID) {
				continue
			}
			seen++
			token, err := Parse(test.token())
			if err != nil {
				t.Fatal(err)
			}
			// The JWK with another alg.
			var members map[string]any
			if err := json.Unmarshal(group.Public, &members); err != nil {
				t.Fatal(err)
			}
			members["alg"] = token.Algorithm()
			jwk, err := json.Marshal(members)
			if err != nil {
				t.Fatal(err)
			}
			key, err := parseJWK(jwk)
			if err != nil {
				t.Fatal(err)
			}
			if err := key.Verify(token); err != nil {
				t.Errorf("%d: %v", test.ID, err)
			}
		}
	}
	if seen != 4 {
		t.Errorf("%d tests", seen)
	}
}

// TestWycheproofQuestionMark reads the payload of test 373 with a header that is good.
func TestWycheproofQuestionMark(t *testing.T) {
	for _, group := range wycheproof(t, "json_web_signature_test.json").TestGroups {
		for _, test := range group.Tests {
			if test.ID == 373 {
				_, rest, _ := strings.Cut(test.token(), ".")
				_, err := Parse(b64(`{"alg":"ES256"}`) + "." + rest)
				refusedFor(t, test.Comment, err, checkBase64)
			}
		}
	}
}

func unhex(t *testing.T, text string) []byte {
	t.Helper()
	b, err := hex.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
