package keys

import (
	"crypto/ecdsa"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/jws"
)

// TestParsePrivate reads the encodings that tools write.
func TestParsePrivate(t *testing.T) {
	curve := block("EC PARAMETERS", []byte{6, 8, 42, 134, 72, 206, 61, 3, 1, 7})
	sec1 := block("EC PRIVATE KEY", testkit.Must(x509.MarshalECPrivateKey(private(1).(*ecdsa.PrivateKey))))
	pkcs1 := block("RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(private(0).(*rsa.PrivateKey)))
	for name, tt := range map[string]struct {
		text string
		want []int
	}{
		"PKCS #8":                    {privatePEM(1), []int{1}},
		"PKCS #8, RSA":               {privatePEM(0), []int{0}},
		"P-384 and P-521":            {privatePEM(2, 3), []int{2, 3}},
		"SEC 1":                      {sec1, []int{1}},
		"SEC 1 with its parameters":  {curve + sec1, []int{1}},
		"PKCS #1":                    {pkcs1, []int{0}},
		"PKCS #1 and SEC 1":          {pkcs1 + curve + sec1, []int{0, 1}},
		"text before it, as openssl": {"Private-Key: (256 bit)\n" + privatePEM(1) + "\n\n", []int{1}},
		"line ends of Windows":       {strings.ReplaceAll(privatePEM(1), "\n", "\r\n"), []int{1}},
	} {
		t.Run(name, func(t *testing.T) {
			keys, err := parsePrivate([]byte(tt.text))
			if err != nil || len(keys) != len(tt.want) {
				t.Fatalf("got %d keys, %v", len(keys), err)
			}
			for i, n := range tt.want {
				if !samePublic(keys[i].Public(), private(n).Public()) {
					t.Errorf("key %d is another", i)
				}
			}
		})
	}
}

// TestParsePrivateKeepsSecrets: no error has a part of a key.
func TestParsePrivateKeepsSecrets(t *testing.T) {
	whole := privatePEM(1)
	der, _ := pem.Decode([]byte(whole))
	for n := range len(der.Bytes) {
		cut := block("PRIVATE KEY", der.Bytes[:n])
		if _, err := parsePrivate([]byte(cut)); err == nil {
			t.Fatalf("%d bytes are a key", n)
		} else if text := err.Error(); text != `signing-key-file: got a malformed block "PRIVATE KEY", want a private key` {
			t.Fatalf("%d bytes: %s", n, text)
		}
	}
	b := newBench(t)
	b.start()
	testkit.CheckSecrets(t, b.keys, private(1).(*ecdsa.PrivateKey).D.Bytes()) //nolint:staticcheck // to look for it
}

// TestPublicKey is the key that is to sign, as peers read it.
func TestPublicKey(t *testing.T) {
	b := newBench(t)
	b.write("key.pem", privatePEM(2, 1))
	text := testkit.Must(PublicKey(b.config))
	if keys, err := parsePublic(text, 1); err != nil || !same(keys[0], public(2)) {
		t.Errorf("got %s, %v", text, err)
	}
	b.config.KeyID = "a"
	text = testkit.Must(PublicKey(b.config))
	if keys, err := parseSet(text); err != nil || keys[0].KeyID() != "a" || !samePublic(keys[0].Public(), private(2).Public()) {
		t.Errorf("got %s, %v", text, err)
	}
	b.write("key.pem", "")
	if _, err := PublicKey(b.config); err == nil {
		t.Error("a key of an empty file")
	}
}

// TestConfig refuses what cannot be meant.
func TestConfig(t *testing.T) {
	for name, change := range map[string]func(b *bench){
		"issuer":                           func(b *bench) { b.config.Issuer = "" },
		"Log":                              func(b *bench) { b.config.Log = nil },
		"publish 0s":                       func(b *bench) { b.config.Publish = 0 },
		"retain -1s":                       func(b *bench) { b.config.Retain = -1e9 },
		"reloadInterval 1ms":               func(b *bench) { b.config.ReloadInterval = 1e6 },
		"reloadInterval 2562047h":          func(b *bench) { b.config.ReloadInterval = math.MaxInt64 },
		"no stateFile":                     func(b *bench) { b.config.StateFile = "" },
		"key in 0 places":                  func(b *bench) { b.config.KeyFile = "" },
		"key in 2 places":                  func(b *bench) { b.config.Signer = private(2) },
		"tpm without device":               func(b *bench) { b.config.KeyFile, b.config.TPM = "", &TPM{KeyFile: "/a"} },
		`path "key.pem"`:                   func(b *bench) { b.config.KeyFile = "key.pem" },
		`path "a.pem"`:                     func(b *bench) { b.config.RetiredFiles = []string{"a.pem"} },
		"retiredFiles 65":                  func(b *bench) { b.config.RetiredFiles = make([]string, 65) },
		"verifyOnlyFiles 65":               func(b *bench) { b.config.VerifyOnlyFiles = make([]string, 65) },
		"revokedKeyIDs 257":                func(b *bench) { b.config.RevokedKeyIDs = make([]string, 257) },
		"revokedKeyIDs with an ID of 0":    func(b *bench) { b.config.RevokedKeyIDs = []string{""} },
		"revokedKeyIDs with an ID of 1025": func(b *bench) { b.config.RevokedKeyIDs = []string{strings.Repeat("a", 1025)} },
		"key ID":                           func(b *bench) { b.config.KeyID = strings.Repeat("a", jws.MaxKeyIDSize+1) },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			change(b)
			b.refuses(strings.TrimPrefix(name, "key ID"))
		})
	}
	t.Run("revoked IDs of the state and of the configuration", func(t *testing.T) {
		b := newBench(t)
		for round := range 2 {
			b.config.RevokedKeyIDs = nil
			for n := range maxRevoked {
				b.config.RevokedKeyIDs = append(b.config.RevokedKeyIDs, fmt.Sprint(round, " ", n))
			}
			if round == 0 {
				b.start()
			}
		}
		b.refuses("and those of the state")
	})
}

// FuzzPrivate accepts only one or two keys that sign.
func FuzzPrivate(f *testing.F) {
	testkit.BeginFuzz(f)
	f.Add([]byte(privatePEM(1)))
	f.Add([]byte(privatePEM(0, 2)))
	f.Add([]byte(privatePEM(1)[:100] + "\n" + privatePEM(2)))
	f.Add([]byte(publicPEM(1)))
	f.Fuzz(func(t *testing.T, text []byte) {
		keys, err := parseFile(text)
		if err == nil && (len(keys) == 0 || len(keys) > maxOwn) {
			t.Errorf("%d keys", len(keys))
		}
		for _, key := range keys {
			if key.private.IsZero() || !samePublic(key.public, key.private.Reveal().Public()) {
				t.Error("another public key")
			}
		}
	})
}

// FuzzPublic accepts only keys that can be published.
func FuzzPublic(f *testing.F) {
	testkit.BeginFuzz(f)
	f.Add([]byte(publicPEM(1, 0)))
	f.Add([]byte(publicPEM(1) + privatePEM(2)))
	f.Add([]byte(set(public(1), public(2))))
	f.Add([]byte(`{"keys":[]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		keys, err := parsePublic(text, maxPeers)
		if err != nil {
			keys, err = parseSet(text)
		}
		if err != nil {
			return
		}
		if again, err := distinct(keys); err != nil || len(again) != len(keys) || len(keys) == 0 || len(keys) > jws.MaxJWKSKeys {
			t.Errorf("%d keys, %v", len(keys), err)
		}
		for _, key := range keys {
			if err := checkAlgorithm(key); err != nil {
				t.Error(err)
			}
		}
	})
}
