package attesttest_test

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/attesttest"
	"github.com/nodeattest/nodeattest/refusal"
)

// The platform takes its own documents, in their one spelling and for 5 minutes.
func TestPlatformDocuments(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	p, other := attesttest.NewPlatform(t), attesttest.NewPlatform(t)
	p.Now = func() time.Time { return now }
	other.Now = p.Now
	value := bytes.Repeat([]byte{1}, 32)
	good, err := p.Machine("m1").Document(t.Context(), value)
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := other.Sign("m1", value)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		data         []byte
		later        time.Duration
		read, verify bool
	}{
		"as it is":           {good, 0, true, true},
		"as old as may be":   {good, 5 * time.Minute, true, true},
		"older":              {good, 5*time.Minute + 1, true, false},
		"of the future":      {good, -1, true, false},
		"another platform's": {theirs, 0, true, false},
		"of another machine": {bytes.Replace(good, []byte("m1"), []byte("m2"), 1), 0, true, false},
		"a space":            {append([]byte(" "), good...), 0, false, false},
		"another member":     {bytes.Replace(good, []byte("{"), []byte(`{"A":1,`), 1), 0, false, false},
		"nothing":            {nil, 0, false, false},
		"unsigned":           {append(good[:bytes.Index(good, []byte(`,"Signature"`)):bytes.Index(good, []byte(`,"Signature"`))], '}'), 0, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			for method, want := range map[string]bool{"Read": c.read, "Verify": c.verify} {
				budget := attest.NewBudget(1)
				read := func() (bool, error) {
					if method == "Read" {
						claims, err := p.Read(c.data)
						return claims != nil, err
					}
					claims, err := p.Verify(t.Context(), c.data, &attest.Inquiry{Now: now.Add(c.later), Budget: budget})
					return claims != nil, err
				}
				got, err := read()
				if got != want || (err == nil) != want || err != nil && !errors.Is(err, attesttest.CheckPlatform) {
					t.Errorf("%s: %t, %v", method, got, err)
				}
				if method == "Verify" && want && budget.Signatures() != 1 {
					t.Errorf("%d signatures are counted", budget.Signatures())
				}
			}
		})
	}
	claims, err := p.Verify(t.Context(), good, &attest.Inquiry{Now: now, Budget: attest.NewBudget(1)})
	if err != nil || claims.Machine != "platform:m1" || !bytes.Equal(claims.Value, value) {
		t.Errorf("%+v, %v", claims, err)
	}
	if _, err := p.Verify(t.Context(), good, &attest.Inquiry{Now: now, Budget: attest.NewBudget(0)}); !errors.Is(err, attest.CheckBudget) {
		t.Errorf("without a budget: %v", err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := p.Verify(ended, good, &attest.Inquiry{Now: now, Budget: attest.NewBudget(1)}); !errors.Is(err, refusal.ErrRetry) {
		t.Errorf("in a context that has ended: %v", err)
	}
}
