package extsigner

import (
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/jws"
)

func encode(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) }

func publicDER(t testing.TB, public any) []byte {
	t.Helper()
	der, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		t.Fatal(err)
	}
	return der
}

// p256Key returns a key pair and its DER.
func p256Key(t testing.TB) (*ecdsa.PrivateKey, []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key, publicDER(t, key.Public())
}

// es256 signs what it is given, whatever the header says.
func es256(t testing.TB, key *ecdsa.PrivateKey, header, segment string) *Signature {
	t.Helper()
	digest := sha256.Sum256([]byte(encode(header) + "." + segment))
	r, s, err := ecdsa.Sign(rand.Reader, key, digest[:])
	if err != nil {
		t.Fatal(err)
	}
	raw := make([]byte, 64)
	r.FillBytes(raw[:32])
	s.FillBytes(raw[32:])
	return &Signature{Header: encode(header), Signature: encode(string(raw))}
}

func TestSignatureCheck(t *testing.T) {
	key, der := p256Key(t)
	keys, err := (&Keys{
		Keys:          []Key{{KeyID: "k", Key: der}, {KeyID: "old", Key: der, ExcludeFromOIDCDiscovery: true}},
		DataTimestamp: time.Unix(1, 0), RefreshHintSeconds: 1,
	}).Check()
	if err != nil {
		t.Fatal(err)
	}
	segment := encode(`{"iss":"x"}`)
	const good = `{"alg":"ES256","kid":"k","typ":"JWT"}`
	for _, header := range []string{good, `{"typ":"JWT","kid":"k","alg":"ES256"}`, ` { "alg" : "ES256", "kid" : "\u006b", "typ" : "JWT" } `} {
		signature, err := es256(t, key, header, segment).Check(segment, keys)
		if err != nil || signature.Key != keys[0].Key || signature.Token([]byte(`{"iss":"x"}`)) != encode(header)+"."+segment+"."+signature.Value {
			t.Errorf("%s: %+v, %v", header, signature, err)
		}
	}
	for header, want := range map[string]Check{
		``:                                      checkSignerHeader,
		`null`:                                  checkSignerHeader,
		`[]`:                                    checkSignerHeader,
		good + `{}`:                             checkSignerHeader,
		`{"alg":"ES256","kid":"k"}`:             checkSignerHeader,
		`{"alg":"ES256","typ":"JWT"}`:           checkSignerHeader,
		`{"kid":"k","typ":"JWT"}`:               checkSignerHeader,
		`{"alg":"ES256","kid":"","typ":"JWT"}`:  checkSignerHeader,
		`{"alg":"ES256","kid":"k","typ":"jwt"}`: checkSignerHeader,
		`{"alg":"ES256","kid":5,"typ":"JWT"}`:   checkSignerHeader,
		`{"alg":"ES256","kid":"` + strings.Repeat("k", 1025) + `","typ":"JWT"}`: checkSignerHeader,
		`{"alg":"ES256","kid":"k","typ":"JWT","cty":"x"}`:                       checkSignerHeader,
		`{"alg":"ES256","kid":"k","typ":"JWT","b64":true}`:                      checkSignerHeader,
		`{"alg":"ES256","kid":"k","kid":"k","typ":"JWT"}`:                       checkSignerHeader,
		`{"alg":"none","kid":"k","typ":"JWT","ALG":"RS256"}`:                    checkSignerHeader,
		`{"alg":"none","kid":"k","typ":"JWT","ALG":"ES256"}`:                    checkSignerHeader,
		`{"ALG":"ES256","kid":"k","typ":"JWT"}`:                                 checkSignerHeader,
		`{"alg":"none","kid":"k","typ":"JWT"}`:                                  checkSignerHeader,
		`{"alg":"HS256","kid":"k","typ":"JWT"}`:                                 checkSignerHeader,
		`{"alg":"PS256","kid":"k","typ":"JWT"}`:                                 checkSignerHeader,
		`{"alg":"RS384","kid":"k","typ":"JWT"}`:                                 checkSignerHeader,
		`{"alg":"EdDSA","kid":"k","typ":"JWT"}`:                                 checkSignerHeader,
		`{"alg":"RS256","kid":"k","typ":"JWT"}`:                                 checkSignerKey,
		`{"alg":"ES256","kid":"other","typ":"JWT"}`:                             checkSignerKey,
		`{"alg":"ES256","kid":"K","typ":"JWT"}`:                                 checkSignerKey,
		`{"alg":"ES256","kid":"old","typ":"JWT"}`:                               checkSignerKey,
	} {
		t.Run(header, func(t *testing.T) {
			signature, err := es256(t, key, header, segment).Check(segment, keys)
			var e *Error
			if signature != nil || !errors.As(err, &e) || e.Check != want {
				t.Errorf("%.100s: %+v, %v, want %v", header, signature, err, want)
			}
		})
	}

	signed := es256(t, key, good, segment)
	other := es256(t, key, good, encode(`{"iss":"y"}`))
	raw, err := base64.RawURLEncoding.DecodeString(signed.Signature)
	if err != nil {
		t.Fatal(err)
	}
	for what, change := range map[string]func(*Signature){
		"of other claims":   func(s *Signature) { s.Signature = other.Signature },
		"none":              func(s *Signature) { s.Signature = "" },
		"cut":               func(s *Signature) { s.Signature = encode(string(raw[:63])) },
		"one byte more":     func(s *Signature) { s.Signature = encode(string(raw) + "\x00") },
		"padded":            func(s *Signature) { s.Signature += "==" },
		"a line break":      func(s *Signature) { s.Signature += "\n" },
		"unused bits":       func(s *Signature) { s.Signature = s.Signature[:85] + "_" },
		"another segment":   func(s *Signature) { s.Signature += "." + s.Signature },
		"DER":               func(s *Signature) { s.Signature = encode("\x30\x06\x02\x01\x01\x02\x01\x01") },
		"zeros":             func(s *Signature) { s.Signature = encode(string(make([]byte, 64))) },
		"standard alphabet": func(s *Signature) { s.Signature = "+/" + s.Signature[2:] },
	} {
		t.Run(what, func(t *testing.T) {
			changed := *signed
			change(&changed)
			if signature, err := changed.Check(segment, keys); signature != nil || !errors.Is(err, checkSignerSignature) {
				t.Errorf("%s: %v", what, err)
			}
		})
	}
	for what, header := range map[string]string{
		"padded":       signed.Header + "=",
		"a line break": signed.Header[:8] + "\r\n" + signed.Header[8:],
		"huge":         strings.Repeat("A", maxSegmentSize+1),
		"a second one": signed.Header + "." + signed.Header,
	} {
		t.Run(what, func(t *testing.T) {
			changed := Signature{Header: header, Signature: signed.Signature}
			if signature, err := changed.Check(segment, keys); signature != nil || !errors.Is(err, checkSignerHeader) {
				t.Errorf("%s: %v", what, err)
			}
		})
	}
	if _, err := (*Signature)(nil).Check(segment, keys); !errors.Is(err, checkSignerHeader) {
		t.Error(err)
	}
	if _, err := signed.Check(segment, []PublishedKey{{}}); !errors.Is(err, checkSignerKey) {
		t.Error(err)
	}
}

func TestKeysCheck(t *testing.T) {
	_, der := p256Key(t)
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	edwards, _, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	p224, err := ecdsa.GenerateKey(elliptic.P224(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	good := func() *Keys {
		return &Keys{
			Keys: []Key{
				{KeyID: "a", Key: der},
				{KeyID: strings.Repeat("b", 1024), Key: publicDER(t, rsaKey.Public()), ExcludeFromOIDCDiscovery: true},
				{KeyID: "a", Key: publicDER(t, rsaKey.Public())}, // another algorithm
			},
			DataTimestamp: time.Unix(1700000000, 0), RefreshHintSeconds: 1,
		}
	}
	keys, err := good().Check()
	if err != nil || len(keys) != 3 || keys[0].Key.Algorithm() != jws.ES256 || keys[1].Key.Algorithm() != jws.RS256 ||
		keys[0].ExcludeFromOIDCDiscovery || !keys[1].ExcludeFromOIDCDiscovery || len(keys[1].Key.KeyID()) != 1024 {
		t.Fatalf("%+v, %v", keys, err)
	}
	for what, change := range map[string]func(*Keys){
		"refresh hint 0":     func(k *Keys) { k.RefreshHintSeconds = 0 },
		"a negative one":     func(k *Keys) { k.RefreshHintSeconds = -1 },
		"no key":             func(k *Keys) { k.Keys = nil },
		"too many keys":      func(k *Keys) { k.Keys = make([]Key, maxKeys+1) },
		"no timestamp":       func(k *Keys) { k.DataTimestamp = time.Time{} },
		"a far timestamp":    func(k *Keys) { k.DataTimestamp = time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC) },
		"no key ID":          func(k *Keys) { k.Keys[0].KeyID = "" },
		"a long key ID":      func(k *Keys) { k.Keys[1].KeyID += "b" },
		"the same key ID":    func(k *Keys) { k.Keys[2] = k.Keys[0] },
		"an empty key":       func(k *Keys) { k.Keys[0].Key = nil },
		"a huge key":         func(k *Keys) { k.Keys[0].Key = make([]byte, maxKeySize+1) },
		"no PKIX":            func(k *Keys) { k.Keys[0].Key = []byte("key") },
		"bytes after it":     func(k *Keys) { k.Keys[0].Key = append(slices.Clip(der), 0) },
		"PKCS #1":            func(k *Keys) { k.Keys[0].Key = x509.MarshalPKCS1PublicKey(&rsaKey.PublicKey) },
		"Ed25519":            func(k *Keys) { k.Keys[0].Key = publicDER(t, edwards) },
		"P-224":              func(k *Keys) { k.Keys[0].Key = publicDER(t, p224.Public()) },
		"an exponent of one": func(k *Keys) { k.Keys[0].Key = publicDER(t, &rsa.PublicKey{N: rsaKey.N, E: 1}) },
		"an even exponent":   func(k *Keys) { k.Keys[0].Key = publicDER(t, &rsa.PublicKey{N: rsaKey.N, E: 65536}) },
		"a private key":      func(k *Keys) { k.Keys[0].Key = x509.MarshalPKCS1PrivateKey(rsaKey) },
	} {
		t.Run(what, func(t *testing.T) {
			k := good()
			change(k)
			if keys, err := k.Check(); keys != nil || !errors.Is(err, checkSignerKeys) {
				t.Errorf("%s: %v", what, err)
			}
		})
	}
	if _, err := (*Keys)(nil).Check(); !errors.Is(err, checkSignerKeys) {
		t.Error(err)
	}
}

func TestMetadataCheck(t *testing.T) {
	for seconds, want := range map[int64]time.Duration{
		600: 10 * time.Minute, 86400: 24 * time.Hour, 1 << 32: 1 << 32 * time.Second, 1<<63 - 1: 1 << 32 * time.Second,
	} {
		if got, err := (&Metadata{MaxTokenExpirationSeconds: seconds}).Check(); got != want || err != nil {
			t.Errorf("%d: %v, %v", seconds, got, err)
		}
	}
	for _, seconds := range []int64{599, 0, -1, -1 << 63} {
		if got, err := (&Metadata{MaxTokenExpirationSeconds: seconds}).Check(); got != 0 || !errors.Is(err, checkSignerMetadata) {
			t.Errorf("%d: %v, %v", seconds, got, err)
		}
	}
	if _, err := (*Metadata)(nil).Check(); !errors.Is(err, checkSignerMetadata) {
		t.Error(err)
	}
}

// FuzzSignature: no header and no signature that was not made with the key over
// these very claims passes.
func FuzzSignature(f *testing.F) {
	key, der := p256Key(f)
	keys, err := (&Keys{Keys: []Key{{KeyID: "k", Key: der}}, DataTimestamp: time.Unix(1, 0), RefreshHintSeconds: 1}).Check()
	if err != nil {
		f.Fatal(err)
	}
	segment := encode(`{}`)
	signed := es256(f, key, `{"alg":"ES256","kid":"k","typ":"JWT"}`, segment)
	f.Add(signed.Header, signed.Signature, segment)
	f.Add(encode(`{"alg":"none","kid":"k","typ":"JWT","ALG":"ES256"}`), signed.Signature, segment)
	f.Add("", "", "")
	f.Fuzz(func(t *testing.T, header, signature, payload string) {
		s := &Signature{Header: header, Signature: signature}
		got, err := s.Check(payload, keys)
		if err == nil && (header != signed.Header || payload != segment || got.Key != keys[0].Key) {
			t.Fatalf("%q %q %q", header, payload, signature)
		}
		if err == nil {
			return
		}
		if e := new(Error); !errors.As(err, &e) {
			t.Fatalf("%T", err)
		}
	})
}

// FuzzKeys: a key that passes has the DER that came, read and written again.
func FuzzKeys(f *testing.F) {
	_, der := p256Key(f)
	f.Add("k", der, int64(1), int64(1))
	f.Add("", []byte{}, int64(0), int64(0))
	f.Add("k", []byte{0x30, 0x84, 0xff, 0xff, 0xff, 0xff}, int64(1), int64(1<<62))
	f.Fuzz(func(t *testing.T, id string, der []byte, hint, stamp int64) {
		k := &Keys{Keys: []Key{{KeyID: id, Key: der}}, DataTimestamp: time.Unix(stamp, 0), RefreshHintSeconds: hint}
		keys, err := k.Check()
		if err != nil {
			if !errors.Is(err, checkSignerKeys) {
				t.Fatal(err)
			}
			return
		}
		if keys[0].Key.KeyID() != id || hint <= 0 {
			t.Fatalf("%+v", keys[0])
		}
	})
}

// scriptedSigner is an Signer that answers as it is told.
type scriptedSigner struct {
	sign     func(segment string) (*Signature, error)
	keys     func() (*Keys, error)
	metadata func() (*Metadata, error)
	fetches  atomic.Int64
	fetching func(context.Context) error // asked first; nil for nobody
}

func (s *scriptedSigner) Sign(_ context.Context, segment string) (*Signature, error) {
	return s.sign(segment)
}

func (s *scriptedSigner) FetchKeys(ctx context.Context) (*Keys, error) {
	s.fetches.Add(1)
	if s.fetching != nil {
		if err := s.fetching(ctx); err != nil {
			return nil, err
		}
	}
	return s.keys()
}

func (s *scriptedSigner) Metadata(context.Context) (*Metadata, error) {
	if s.metadata == nil {
		return &Metadata{MaxTokenExpirationSeconds: 3600}, nil
	}
	return s.metadata()
}

// scripted makes a signer with the given keys, by their key IDs, that signs with the
// first.
func scripted(t testing.TB, key *ecdsa.PrivateKey, ids ...string) *scriptedSigner {
	der := publicDER(t, key.Public())
	return &scriptedSigner{
		sign: func(segment string) (*Signature, error) {
			return es256(t, key, fmt.Sprintf(`{"alg":"ES256","kid":%q,"typ":"JWT"}`, ids[0]), segment), nil
		},
		keys: func() (*Keys, error) {
			k := &Keys{DataTimestamp: time.Unix(1, 0), RefreshHintSeconds: 60}
			for _, id := range ids {
				k.Keys = append(k.Keys, Key{KeyID: id, Key: der})
			}
			return k, nil
		},
	}
}
