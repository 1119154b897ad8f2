package bootstraptoken

import (
	"crypto/rand"
	"crypto/subtle"
)

// Generate makes a new random token: 82 bits of secret, each character drawn evenly from
// the 36 by rejection sampling. Its randomness is always the operating system's, by
// crypto/rand, which ends the program where it has none. A test that needs a token that it
// knows makes it with [New].
func Generate() Token {
	t, _ := generate(func(b []byte) error { _, err := rand.Read(b); return err }) // never fails
	return t
}

// generate makes a token of the bytes that fill gives. Another fill than crypto/rand is
// for the tests of this package.
func generate(fill func([]byte) error) (Token, error) {
	text, err := randomText(fill, IDSize+SecretSize)
	if err != nil {
		return Token{}, err
	}
	return New(text[:IDSize], text[IDSize:])
}

// randomText draws n characters. A byte from 252, the largest multiple of 36, would make
// the first four characters likelier than the others, and is drawn again.
func randomText(fill func([]byte) error, n int) (string, error) {
	text := make([]byte, 0, n)
	var drawn [2 * SecretSize]byte
	for len(text) < n {
		if err := fill(drawn[:]); err != nil {
			return "", err
		}
		for _, b := range drawn {
			if b < 252 && len(text) < n {
				text = append(text, character(int(b%36)))
			}
		}
	}
	return string(text), nil
}

// character returns the i-th of "0123456789abcdefghijklmnopqrstuvwxyz", by arithmetic: a
// table would leave its traces in the cache.
func character(i int) byte {
	return byte('0' + i + subtle.ConstantTimeLessOrEq(10, i)*('a'-'9'-1))
}
