package jws

import (
	"context"
	"errors"
	"testing"
	"time"
)

// silent signs nothing and says that all went well.
type silent struct{ KeySigner }

func (silent) Sign(context.Context, []byte) (*Signature, error) { return nil, nil }

func TestRotatingSignerNothing(t *testing.T) {
	first := namedSigner(t, "first")
	config := RotationConfig{Publish: time.Minute, Retain: time.Minute}
	r, err := NewRotatingSigner(silent{first}, config)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Sign(t.Context(), []byte("{}")); !errors.Is(err, CheckSignerOutput) {
		t.Errorf("no signature: %v, want %v", err, CheckSignerOutput)
	}
	if _, err := NewRotatingSigner(liar{first, []*Key{{}}}, config); !errors.Is(err, CheckRotation) {
		t.Errorf("a signer of a zero key: %v, want %v", err, CheckRotation)
	}
	config.Retired = []RetiredKey{{new(Key), time.Now()}}
	if _, err := NewRotatingSigner(first, config); !errors.Is(err, CheckRotation) {
		t.Errorf("a zero key among Retired: %v, want %v", err, CheckRotation)
	}
}
