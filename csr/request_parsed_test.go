package csr_test

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/nodeattest/nodeattest/csr"
)

// tripwire overwrites the text of a request when it is asked for the nth time whether it
// is done: whoever reads the text from then on reads nothing.
type tripwire struct {
	context.Context
	request *csr.Request
	n       int
}

func (w *tripwire) Err() error {
	if w.n--; w.n == 0 {
		clear(w.request.Spec.Request)
	}
	return w.Context.Err()
}

// TestVerifyReadsOnce: on the way through a provider the text of a request is read
// exactly once.
func TestVerifyReadsOnce(t *testing.T) {
	for _, signer := range []string{csr.SignerClientTPM, csr.SignerServingTPM} {
		t.Run(signer, func(t *testing.T) {
			f := goodFixture(signer, csr.RequesterNode)
			f.encode(t)
			text := f.request.Spec.Request
			var parsed *csr.Parsed
			provider := &fakeProvider{policy: f.policy, seen: func(p *csr.Parsed) { parsed = p }}
			// The first question comes before anybody reads, and the second never.
			for n := 1; n <= 2; n++ {
				f.request.Spec.Request = bytes.Clone(text)
				attested, err := csr.Verify(&tripwire{t.Context(), f.request, n}, provider, f.request)
				if n == 1 {
					if err == nil {
						t.Error("a text that is overwritten before it is read is accepted")
					}
					continue
				}
				if err != nil {
					t.Fatalf("the text is read again: %v", err)
				}
				bundle, err := parsed.Bundle()
				if err != nil || bundle != attested.Checked().Bundle() {
					t.Errorf("the policy has a bundle of its own: %v", err)
				}
				request, err := parsed.PKCS10()
				if err != nil || &request.Raw[0] != &attested.Checked().PKCS10().Raw[0] {
					t.Errorf("the policy has a PKCS#10 request of its own: %v", err)
				}
			}
		})
	}
}

func TestParsed(t *testing.T) {
	f := goodFixture(csr.SignerClientTPM, csr.RequesterBootstrap)
	f.encode(t)
	t.Run("nothing", func(t *testing.T) {
		for name, p := range map[string]*csr.Parsed{"nil": nil, "zero": new(csr.Parsed), "no request": (*csr.Request)(nil).Parsed()} {
			t.Run(name, func(t *testing.T) {
				if p.Request() != nil {
					t.Errorf("%s: a request", name)
				}
				if b, err := p.Bundle(); b != nil || !errors.Is(err, csr.CheckNotChecked) {
					t.Errorf("%s: bundle %v, %v", name, b, err)
				}
				if r, err := p.PKCS10(); r != nil || !errors.Is(err, csr.CheckNotChecked) {
					t.Errorf("%s: request %v, %v", name, r, err)
				}
				if _, err := f.policy.Check(t.Context(), p); !errors.Is(err, csr.CheckNotChecked) {
					t.Errorf("%s: policy: %v", name, err)
				}
				if err := new(csr.Attested).Check(p); !errors.Is(err, csr.CheckNotChecked) {
					t.Errorf("%s: result: %v", name, err)
				}
			})
		}
	})
	t.Run("errors stay", func(t *testing.T) {
		bad := &csr.Request{Spec: csr.Spec{Request: []byte("x")}}
		p := bad.Parsed()
		for range 2 {
			if b, err := p.Bundle(); b != nil || !errors.Is(err, csr.CheckBlock) {
				t.Errorf("bundle %v, %v", b, err)
			}
			if r, err := p.PKCS10(); r != nil || !errors.Is(err, csr.CheckBlock) {
				t.Errorf("request %v, %v", r, err)
			}
			bad.Spec.Request = f.request.Spec.Request
		}
	})
	t.Run("many goroutines", func(t *testing.T) {
		p := f.request.Parsed()
		first, err := p.PKCS10()
		if err != nil {
			t.Fatal(err)
		}
		fresh := f.request.Parsed()
		var wait sync.WaitGroup
		for range 8 {
			wait.Go(func() {
				if r, err := fresh.PKCS10(); err != nil || !bytes.Equal(r.Raw, first.Raw) {
					t.Errorf("got %v", err)
				}
			})
		}
		wait.Wait()
	})
}
