package testkit

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"math/big"
	"strings"
	"testing"

	"github.com/nodeattest/nodeattest/secret"
)

// recorder is a test that may fail.
type recorder struct{ failures []string }

func (*recorder) Helper() {}

func (r *recorder) Errorf(format string, args ...any) {
	r.failures = append(r.failures, fmt.Sprintf(format, args...))
}

func checked(v any, secrets ...[]byte) []string {
	var r recorder
	CheckSecrets(&r, v, secrets...)
	return r.failures
}

var (
	text   = []byte("owner pass-1234")
	binary = []byte{0x07, 0xff, 0x80, 0xfe, 0x41, 0x00, 0x9b, 0x0a, 0xc3, 0x28, 0x7f, 0x22, 0x5c, 0xe2, 0x10, 0x99}
)

type (
	holder[T any] struct{ secret T }
	// Value is not the one of package secret.
	Value[T any] struct{ secret T }
	// talker keeps its secret in a Value, and writes it.
	talker struct{ secret secret.Value[[]byte] }
	// encoder does the same in hexadecimal, in JSON.
	encoder struct{ secret secret.Value[[]byte] }
	ring    struct {
		next   *ring
		secret secret.Value[string]
	}
)

func (v talker) String() string { return string(v.secret.Reveal()) }

func (v encoder) MarshalText() ([]byte, error) {
	return []byte(hex.EncodeToString(v.secret.Reveal())), nil
}

func TestCheckPassesWhatHides(t *testing.T) {
	circle := &ring{secret: secret.New(string(text))}
	circle.next = circle
	for _, v := range []any{
		secret.New(text), new(secret.New(string(text))), holder[any]{secret.New([15]byte(text))},
		map[string]any{"a": []any{holder[*secret.Value[[]byte]]{new(secret.New(text))}}}, circle,
	} {
		CheckSecrets(t, v, text)
	}
}

func TestCheckFindsLeaks(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	NoError(t, err)
	scalar, err := key.Bytes()
	NoError(t, err)
	both := struct {
		hidden secret.Value[[]byte]
		open   []byte
	}{secret.New(text), text[3:12]}
	for name, c := range map[string]struct {
		failures []string
		want     string
	}{
		"bytes":                {checked(text, text), "holds the secret in []uint8"},
		"a string":             {checked(string(binary), binary), "holds the secret in string"},
		"an array":             {checked(holder[[16]byte]{[16]byte(binary)}, binary), ".secret"},
		"an unexported field":  {checked(&holder[[]byte]{text}, text), ".secret"},
		"digits":               {checked(holder[string]{strings.ToUpper(hex.EncodeToString(binary))}, binary), "does not hold"},
		"digits outside":       {checked([]any{secret.New(binary), hex.EncodeToString(binary)}, binary), "holds the secret in []interface {}[]"},
		"digits in capitals":   {checked([]any{secret.New(binary), strings.ToUpper(hex.EncodeToString(binary))}, binary), "holds the secret in []interface {}[]"},
		"another Value":        {checked(Value[[]byte]{text}, text), ".secret"},
		"two pointers":         {checked(holder[**[]byte]{new(&text)}, text), ".secret"},
		"an interface":         {checked(holder[any]{text}, text), ".secret"},
		"a list":               {checked([]holder[string]{{string(text)}}, text), "[].secret"},
		"a map's key":          {checked(map[string]bool{string(text): true}, text), "'s key"},
		"a private key":        {checked(holder[*ecdsa.PrivateKey]{key}, scalar), ".secret.D.abs"},
		"a number":             {checked(new(big.Int).SetBytes(binary), binary), ".abs"},
		"a part outside":       {checked(both, text), ".open"},
		"a type that talks":    {checked(talker{secret.New(text)}, text), "shows the secret"},
		"a type that encodes":  {checked(encoder{secret.New(binary)}, binary), "shows the secret"},
		"no secret given":      {checked(text), "no secret"},
		"a short secret":       {checked(secret.New("abc"), []byte("abc")), "chance"},
		"a secret of one byte": {checked(secret.New(make([]byte, 32)), make([]byte, 32)), "chance"},
		"a value without it":   {checked(secret.New(text), binary), "does not hold"},
		"nothing":              {checked(secret.Value[[]byte]{}, binary), "does not hold"},
		"a function":           {checked(func() []byte { return binary }, binary), "does not hold"},
	} {
		t.Run(name, func(t *testing.T) {
			if !strings.Contains(strings.Join(c.failures, "\n"), c.want) {
				t.Errorf("got %q, want %q", c.failures, c.want)
			}
		})
	}
}
