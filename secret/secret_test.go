package secret_test

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/gob"
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	"github.com/nodeattest/nodeattest/secret"
)

const password = "correct horse"

// TestShowsNothing shows a Value of each kind of secret in every way, in every place. This is
// the only type that holds secrets: that another type holds them in it alone is what
// internal/testkit finds out.
func TestShowsNothing(t *testing.T) {
	raw := []byte(password)
	shows(t, "string", secret.New(password), raw)
	shows(t, "bytes", secret.New(raw), raw)
	shows(t, "array", secret.New([13]byte(raw)), raw)
	shows(t, "map", secret.New(map[string][]byte{"password": raw}), raw)
	shows(t, "struct", secret.New(struct{ raw, Raw []byte }{raw, raw}), raw)
	shows(t, "struct, by pointer", secret.New(&struct{ raw, Raw []byte }{raw, raw}), raw)
	shows(t, "stringer", secret.New(fmt.Stringer(bytes.NewBuffer(raw))), raw)
	_, edwards, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	shows(t, "Ed25519 key", secret.New(crypto.Signer(edwards)), edwards.Seed())
	ec, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	private, err := ec.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	shows(t, "ECDSA key", secret.New(crypto.Signer(ec)), private)
}

func shows[T any](t *testing.T, name string, v secret.Value[T], raw []byte) {
	t.Run(name, func(t *testing.T) {
		for leak := range leaks(v, raw) {
			t.Error(leak)
		}
	})
}

func TestValue(t *testing.T) {
	var none secret.Value[[]byte]
	if !none.IsZero() || none.Reveal() != nil || none.String() != "" {
		t.Errorf("the zero value holds %q", none.Reveal())
	}
	empty := secret.New([]byte{})
	if empty.IsZero() || empty.String() != secret.Redacted {
		t.Error("an empty secret is taken for none at all")
	}
	if got := secret.New(password).Reveal(); got != password {
		t.Errorf("got %q", got)
	}
}

// TestRefusesEncoding: a secret is neither stored by accident, nor is what stands in
// its place in a log read back as one.
func TestRefusesEncoding(t *testing.T) {
	v := secret.New(password)
	if err := gob.NewEncoder(new(bytes.Buffer)).Encode(v); !errors.Is(err, secret.ErrEncoding) {
		t.Errorf("gob: got %v, want ErrEncoding", err)
	}
	if err := v.GobDecode(nil); !errors.Is(err, secret.ErrEncoding) {
		t.Errorf("gob: got %v, want ErrEncoding", err)
	}
	if err := json.Unmarshal([]byte(`"[secret]"`), &v); !errors.Is(err, secret.ErrEncoding) {
		t.Errorf("json: got %v, want ErrEncoding", err)
	}
	if v.Reveal() != password {
		t.Error("a decoder changed it")
	}
}

func ExampleValue() {
	options := struct {
		User     string
		Password secret.Value[[]byte]
	}{"admin", secret.New([]byte("correct horse"))}

	fmt.Printf("%+v\n", options)
	fmt.Println(len(options.Password.Reveal()))
	// Output:
	// {User:admin Password:[secret]}
	// 13
}
