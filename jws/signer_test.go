package jws

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/nodeattest/nodeattest/refusal"
)

// A device is a crypto.Signer that is not a key in memory, with a fault.
type device struct {
	crypto.Signer
	sign func(digest []byte, opts crypto.SignerOpts) ([]byte, error) // nil: as the key does
}

func (d *device) Sign(random io.Reader, digest []byte, opts crypto.SignerOpts) ([]byte, error) {
	if d.sign == nil {
		return d.Signer.Sign(random, digest, opts)
	}
	return d.sign(digest, opts)
}

func newSigner(t testing.TB, private crypto.Signer, options SignerOptions) *CryptoSigner {
	t.Helper()
	s, err := NewSigner(private, options)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// With every algorithm a token that is signed verifies, in memory and in a device.
func TestCryptoSigner(t *testing.T) {
	for algorithm, f := range forgers() {
		for name, private := range map[string]crypto.Signer{"memory": f.signer, "device": &device{Signer: f.signer}} {
			t.Run(string(algorithm)+"/"+name, func(t *testing.T) {
				s := newSigner(t, private, SignerOptions{Algorithm: algorithm, KeyID: "k"})
				for _, payload := range []string{"", "{}", forgedPayload} {
					signature, err := s.Sign(context.Background(), []byte(payload))
					if err != nil {
						t.Fatal(err)
					}
					set, err := NewStaticKeySet(s.Key())
					if err != nil {
						t.Fatal(err)
					}
					verified, err := VerifySignature(context.Background(), signature.Token([]byte(payload)), set)
					if err != nil || string(verified.Payload) != payload || verified.Key != signature.Key {
						t.Errorf("%+v, %v", verified, err)
					}
					if _, err := VerifySignature(context.Background(), signature.Token([]byte(payload+" ")), set); !errors.Is(err, checkSignature) {
						t.Errorf("another payload: %v", err)
					}
				}
			})
		}
	}
}

// Headers are the ones of kube-apiserver, and of an external signer.
func TestCryptoSignerHeader(t *testing.T) {
	key := forgers()[ES256].signer
	id := deriveKeyID(key.Public())
	for _, test := range []struct {
		options SignerOptions
		want    string
	}{
		{SignerOptions{}, `{"alg":"ES256","kid":"` + id + `"}`},
		{SignerOptions{KeyID: "a"}, `{"alg":"ES256","kid":"a"}`},
		{SignerOptions{KeyID: "a", Type: TypeJWT}, `{"alg":"ES256","kid":"a","typ":"JWT"}`},
		{SignerOptions{KeyID: "<\"é"}, `{"alg":"ES256","kid":"\u003c\"é"}`},
	} {
		t.Run(fmt.Sprint(test.options), func(t *testing.T) {
			signature, err := newSigner(t, key, test.options).Sign(context.Background(), nil)
			if err != nil {
				t.Fatal(err)
			}
			got, err := encoding.DecodeString(signature.Header)
			if err != nil || string(got) != test.want {
				t.Errorf("got %s, %v, want %s", got, err, test.want)
			}
		})
	}
}

func TestNewSignerRefuses(t *testing.T) {
	ec := forgers()[ES256].signer
	p224, err := ecdsa.GenerateKey(elliptic.P224(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		private crypto.Signer
		options SignerOptions
		want    Check
	}{
		"another type":       {ec, SignerOptions{Type: "jwt"}, refusal.CheckConfig},
		"another algorithm":  {ec, SignerOptions{Algorithm: ES384}, CheckAlgorithm},
		"a symmetric one":    {ec, SignerOptions{Algorithm: hs256}, CheckAlgorithm},
		"another curve":      {p224, SignerOptions{}, checkKeyType},
		"a key ID too long":  {ec, SignerOptions{KeyID: strings.Repeat("k", MaxKeyIDSize+1)}, CheckKeyID},
		"a key ID of no use": {ec, SignerOptions{KeyID: "\xff"}, CheckKeyID},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := NewSigner(test.private, test.options)
			refusedFor(t, name, err, test.want)
		})
	}
	_, err = (*CryptoSigner)(nil).Sign(context.Background(), nil)
	refusedFor(t, "nil", err, refusal.CheckConfig)
	_, err = new(CryptoSigner).Sign(context.Background(), nil)
	refusedFor(t, "zero", err, refusal.CheckConfig)
}

// anotherKey makes a key of the same kind.
func anotherKey(t testing.TB, key crypto.Signer) crypto.Signer {
	t.Helper()
	var other crypto.Signer
	var err error
	switch key := key.(type) {
	case *ecdsa.PrivateKey:
		other, err = ecdsa.GenerateKey(key.Curve, rand.Reader)
	case *rsa.PrivateKey:
		other, err = rsa.GenerateKey(rand.Reader, key.N.BitLen())
	default:
		_, other, err = ed25519.GenerateKey(rand.Reader)
	}
	if err != nil {
		t.Fatal(err)
	}
	return other
}

// A device's output that is not a signature of its key is never returned.
func TestCryptoSignerVerifiesItsOutput(t *testing.T) {
	ctx := context.Background()
	for algorithm, f := range forgers() {
		other := anotherKey(t, f.signer)
		faults := map[string]func([]byte, crypto.SignerOpts) ([]byte, error){
			"nothing": func([]byte, crypto.SignerOpts) ([]byte, error) { return nil, nil },
			"zeros":   func([]byte, crypto.SignerOpts) ([]byte, error) { return make([]byte, f.key.signatureSize()), nil },
			"the signature of other bytes": func(digest []byte, opts crypto.SignerOpts) ([]byte, error) {
				digest = bytes.Clone(digest)
				digest[0] ^= 1
				return f.signer.Sign(rand.Reader, digest, opts)
			},
			"the signature of another key": func(digest []byte, opts crypto.SignerOpts) ([]byte, error) {
				return other.Sign(rand.Reader, digest, opts)
			},
			"one bit wrong": func(digest []byte, opts crypto.SignerOpts) ([]byte, error) {
				signature, err := f.signer.Sign(rand.Reader, digest, opts)
				signature[len(signature)-1] ^= 1
				return signature, err
			},
			"one byte more": func(digest []byte, opts crypto.SignerOpts) ([]byte, error) {
				signature, err := f.signer.Sign(rand.Reader, digest, opts)
				return append(signature, 0), err
			},
		}
		for name, fault := range faults {
			s := newSigner(t, &device{f.signer, fault}, SignerOptions{Algorithm: algorithm})
			signature, err := s.Sign(ctx, []byte("{}"))
			refusedFor(t, string(algorithm)+": "+name, err, checkSignerOutput)
			if signature != nil || errors.Is(err, refusal.ErrRetry) {
				t.Errorf("%s, %s: %v %v", algorithm, name, signature, err)
			}
		}
	}
}

// A device may return an ECDSA signature as DER or as JWS has it.
func TestCryptoSignerFixedWidth(t *testing.T) {
	for _, algorithm := range []Algorithm{ES256, ES384, ES512} {
		private := forgers()[algorithm].signer.(*ecdsa.PrivateKey)
		size := coordinateSize(private.Curve)
		s := newSigner(t, &device{private, func(digest []byte, _ crypto.SignerOpts) ([]byte, error) {
			r, s, err := ecdsa.Sign(rand.Reader, private, digest)
			if err != nil {
				return nil, err
			}
			return append(r.FillBytes(make([]byte, size)), s.FillBytes(make([]byte, size))...), nil
		}}, SignerOptions{})
		signature, err := s.Sign(context.Background(), []byte("{}"))
		if err != nil || len(signature.Value) != encoding.EncodedLen(2*size) {
			t.Errorf("%s: %v %v", algorithm, signature, err)
		}
	}
}

var errDevice = errors.New("the device is busy")

func TestCryptoSignerDeviceFails(t *testing.T) {
	s := newSigner(t, &device{forgers()[ES256].signer, func([]byte, crypto.SignerOpts) ([]byte, error) { return nil, errDevice }}, SignerOptions{})
	_, err := s.Sign(context.Background(), nil)
	refusedFor(t, "a device that fails", err, checkSigner)
	if !errors.Is(err, refusal.ErrRetry) || !errors.Is(err, errDevice) {
		t.Error(err)
	}
}

// A call whose context ends leaves a device that does not answer. Until it answers no
// other call reaches it, and afterwards all is well.
func TestCryptoSignerDeviceBlocks(t *testing.T) {
	f := forgers()[ES256]
	entered, answer := make(chan struct{}, 8), make(chan struct{})
	s := newSigner(t, &device{f.signer, func(digest []byte, opts crypto.SignerOpts) ([]byte, error) {
		entered <- struct{}{}
		<-answer
		return f.signer.Sign(rand.Reader, digest, opts)
	}}, SignerOptions{})

	ctx, cancel := context.WithCancel(context.Background())
	failed := make(chan error)
	go func() {
		_, err := s.Sign(ctx, nil)
		failed <- err
	}()
	<-entered
	cancel()
	if err := <-failed; !errors.Is(err, context.Canceled) || !errors.Is(err, refusal.ErrRetry) || !errors.Is(err, checkSigner) {
		t.Error(err)
	}
	// The device is still at it: the next caller waits outside until it gives up.
	ctx, cancel = context.WithCancel(context.Background())
	go func() {
		_, err := s.Sign(ctx, nil)
		failed <- err
	}()
	cancel()
	if err := <-failed; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if len(entered) != 0 {
		t.Error("a second call reached the device")
	}
	close(answer)
	if _, err := s.Sign(context.Background(), nil); err != nil {
		t.Error(err)
	}
	if _, err := s.Sign(ctx, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("a context that had ended: %v", err)
	}
}

// A panic of a device's code, and the end of its goroutine, is the error of one call: the process
// lives, and the device is free for the next call.
func TestCryptoSignerDevicePanics(t *testing.T) {
	f := forgers()[ES256]
	calls := 0
	s := newSigner(t, &device{f.signer, func(digest []byte, opts crypto.SignerOpts) ([]byte, error) {
		switch calls++; calls {
		case 1:
			panic("pkcs11: 0xB3: CKR_SESSION_HANDLE_INVALID")
		case 2:
			runtime.Goexit()
		}
		return f.signer.Sign(rand.Reader, digest, opts)
	}}, SignerOptions{})
	for range 2 {
		_, err := s.Sign(t.Context(), nil)
		if refusedFor(t, "a device that panics", err, checkSigner); !errors.Is(err, refusal.ErrRetry) {
			t.Error(err)
		}
	}
	if _, err := s.Sign(t.Context(), nil); err != nil {
		t.Errorf("the call after a panic: %v", err)
	}
}

// One call at a time reaches a device.
func TestCryptoSignerConcurrent(t *testing.T) {
	f := forgers()[ES256]
	var mu sync.Mutex
	now, most := 0, 0
	s := newSigner(t, &device{f.signer, func(digest []byte, opts crypto.SignerOpts) ([]byte, error) {
		mu.Lock()
		now++
		most = max(most, now)
		mu.Unlock()
		signature, err := f.signer.Sign(rand.Reader, digest, opts)
		mu.Lock()
		now--
		mu.Unlock()
		return signature, err
	}}, SignerOptions{})
	var callers sync.WaitGroup
	for range 32 {
		callers.Go(func() {
			if _, err := s.Sign(context.Background(), []byte("{}")); err != nil {
				t.Error(err)
			}
		})
	}
	callers.Wait()
	if most > 1 {
		t.Errorf("%d calls at a time", most)
	}
}

// FuzzFixedWidth checks that whatever a device returns gives a signature of fixed width
// with the same two numbers, or is left as it is.
func FuzzFixedWidth(f *testing.F) {
	digest := make([]byte, 32)
	good, err := ecdsa.SignASN1(rand.Reader, forgers()[ES256].signer.(*ecdsa.PrivateKey), digest)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add(good[1:])
	f.Add([]byte{0x30, 6, 2, 1, 1, 2, 1, 1})
	f.Add([]byte{0x30, 6, 2, 1, 0x80, 2, 1, 1})
	f.Add(make([]byte, 64))
	f.Fuzz(func(t *testing.T, data []byte) {
		fixed := fixedWidth(data, 32)
		if bytes.Equal(fixed, data) {
			return
		}
		if len(fixed) != 64 {
			t.Fatalf("%d bytes", len(fixed))
		}
		if !bytes.Equal(inDER(t, fixed), data) {
			t.Errorf("%x is not the DER of %x", data, fixed)
		}
	})
}
