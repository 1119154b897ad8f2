package attest_test

import (
	"bytes"
	"context"
	"testing"

	"github.com/nodeattest/nodeattest/attest/attesttest"
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

// TestMessagesAreReadOnce: hello and answer are read exactly once, by verifier and
// provider. Every call asks its context once before the text is read, and
// again between any two later steps.
func TestMessagesAreReadOnce(t *testing.T) {
	node := attesttest.NewNode(t, attesttest.NodeOptions{})
	plane := attesttest.NewControlPlane(t, node)
	hello, err := node.Hello(t.Context(), plane.Now())
	if err != nil {
		t.Fatal(err)
	}
	challenge, err := plane.Verifier.Challenge(t.Context(), hello)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := node.Answer(t.Context(), challenge, plane.Now())
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		request *csr.Request
		before  int // questions to the context before the text is read
		call    func(context.Context, *csr.Request) error
	}{
		"Verifier.Challenge": {hello, 1, func(ctx context.Context, r *csr.Request) error {
			_, err := plane.Verifier.Challenge(ctx, r)
			return err
		}},
		"Verifier.Verify": {answer, 1, func(ctx context.Context, r *csr.Request) error { _, err := plane.Verifier.Verify(ctx, r); return err }},
		"csr.Verify": {answer, 1, func(ctx context.Context, r *csr.Request) error {
			_, err := csr.Verify(ctx, plane.Verifier, r)
			return err
		}},
	} {
		t.Run(name, func(t *testing.T) {
			text := c.request.Spec.Request
			defer func() { c.request.Spec.Request = text }()
			for n := 1; n <= c.before+3; n++ {
				c.request.Spec.Request = bytes.Clone(text)
				err := c.call(&tripwire{t.Context(), c.request, n}, c.request)
				if (err == nil) != (n > c.before) {
					t.Errorf("overwritten at question %d: got %v", n, err)
				}
			}
		})
	}
}
