package claims

import (
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/refusal"
)

// TestStrictTimeLimits tries the limits at their values.
func TestStrictTimeLimits(t *testing.T) {
	w := newWorld(t)
	config := w.strictConfig()
	config.Leeway = DefaultLeeway
	v := w.strictWith(t, config)
	w.claims.Expiry.Unix = w.claims.IssuedAt.Unix + 1
	if _, err := v.Validate(t.Context(), w.token(t)); err != nil {
		t.Errorf("a life of one second: %v", err)
	}
	w.claims.Expiry.Unix--
	_, err := v.Validate(t.Context(), w.token(t))
	wantCheck(t, err, checkLifetime)

	// A clock near 1970 gives absent times no meaning.
	w = newWorld(t)
	w.now = time.Unix(1000, 0)
	w.claims.Expiry, w.claims.NotBefore, w.claims.IssuedAt = NewNumericDate(time.Unix(2000, 0)), NewNumericDate(w.now), NewNumericDate(w.now)
	if _, err := w.strict(t).Validate(t.Context(), w.token(t)); err != nil {
		t.Fatal(err)
	}
	w.claims.IssuedAt = NumericDate{}
	_, err = w.strict(t).Validate(t.Context(), w.token(t))
	wantCheck(t, err, checkLifetime)

	_, _, err = (*Validator)(nil).ValidateOnNode(t.Context(), "", attested())
	wantCheck(t, err, refusal.CheckConfig)
}
