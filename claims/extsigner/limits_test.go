package extsigner

import (
	"encoding/base64"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/claims"
	"github.com/nodeattest/nodeattest/jws"
	"github.com/nodeattest/nodeattest/refusal"
)

// causeOf returns the cause of a refusal, or nil.
func causeOf(t testing.TB, err error, check refusal.Check) error {
	t.Helper()
	wantCheck(t, err, check)
	if e, ok := errors.AsType[*refusal.Error](err); ok {
		return e.Err
	}
	return nil
}

func TestHeaderLimits(t *testing.T) {
	id := strings.Repeat("k", jws.MaxKeyIDSize)
	key, keys := p256Key(t, id)
	segment := encode(`{}`)
	if err := new(Service).checkSignature(es256(t, key, `{"alg":"ES256","kid":"`+id+`","typ":"JWT"}`, segment), segment, keys); err != nil {
		t.Errorf("the longest key ID: %v", err)
	}
	_, err := readHeader(encode(`{"alg":"ES256","kid":"k","typ":"JWT","cty":"x"}`))
	if cause := causeOf(t, err, checkSignerHeader); cause != nil {
		t.Errorf("a further member: %v", cause)
	}
	_, err = readHeader("%")
	if cause := causeOf(t, err, checkSignerHeader); cause == nil || !errors.As(cause, new(base64.CorruptInputError)) {
		t.Errorf("no base64url: %v", cause)
	}
}

func TestSegmentLimits(t *testing.T) {
	s, most := newService(t, serviceConfig(t, newClock())), strings.Repeat("A", maxSegmentSize)
	_, err := s.checkPayload(most)
	if cause := causeOf(t, err, CheckSignerClaims); !errors.Is(cause, claims.CheckSize) {
		t.Errorf("the longest segment: %v", err)
	}
	for _, more := range []string{"A", "AA"} {
		_, err := s.checkPayload(most + more)
		if cause := causeOf(t, err, CheckSignerClaims); cause != nil {
			t.Errorf("a longer segment was read: %v", cause)
		}
	}
	payload, err := goodClaims().Marshal()
	if err != nil {
		t.Fatal(err)
	}
	for _, end := range []string{"\r", "\n", "\r\n", "=", "\x0c", "\x0e", "\t"} {
		_, err := s.checkPayload(encode(string(payload)) + end)
		wantCheck(t, err, CheckSignerClaims)
	}
}

func TestServiceLimits(t *testing.T) {
	s := newService(t, serviceConfig(t, newClock()))
	sign := func(c *claims.Claims) error {
		payload, err := c.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		_, err = s.Sign(testContext, encode(string(payload)))
		return err
	}
	ahead := goodClaims()
	ahead.IssuedAt.Unix, ahead.NotBefore.Unix, ahead.Expiry.Unix = ahead.IssuedAt.Unix+60, ahead.NotBefore.Unix+60, ahead.Expiry.Unix+60
	if err := sign(ahead); err != nil {
		t.Errorf("as far ahead as clocks may be apart: %v", err)
	}
	timeless := goodClaims()
	timeless.IssuedAt, timeless.NotBefore, timeless.Expiry.Unix = claims.NumericDate{}, claims.NumericDate{}, 600
	if err := sign(timeless); !errors.Is(err, CheckSignerClaims) {
		t.Errorf("without iat: %v", err)
	}
	ending := goodClaims()
	ending.IssuedAt.Unix, ending.NotBefore.Unix, ending.Expiry.Unix = ending.IssuedAt.Unix-660, ending.NotBefore.Unix-660, ending.IssuedAt.Unix-60
	if err := sign(ending); err != nil {
		t.Errorf("ended as long ago as clocks may be apart: %v", err)
	}
	if ending.Expiry.Unix--; !errors.Is(sign(ending), CheckSignerClaims) {
		t.Error("a second longer ago: signed")
	}
	config := serviceConfig(t, newClock())
	config.MaxLifetime, config.Keys = maxLifetime, overlap{config.Keys, time.Minute, maxLifetime + time.Minute}
	s = newService(t, config)
	if timeless.Expiry = goodClaims().Expiry; !errors.Is(sign(timeless), CheckSignerClaims) {
		t.Error("without iat, and for as long as can be: signed")
	}
	if _, err := new(Service).Metadata(testContext); !errors.Is(err, refusal.CheckConfig) {
		t.Error(err)
	}
}

// TestKeysLimits tries each limit at its value and one beyond.
func TestKeysLimits(t *testing.T) {
	ids := make([]string, jws.MaxJWKSKeys+1)
	for i := range ids {
		ids[i] = strconv.Itoa(i)
	}
	_, keys := p256Key(t, ids...)
	one := keys[:1]
	for name, tt := range map[string]struct {
		keys []*jws.Key
		now  time.Time
		good bool
	}{
		"the most keys":     {keys[:jws.MaxJWKSKeys], time.Unix(1, 0), true},
		"one more":          {keys, time.Unix(1, 0), false},
		"no time":           {one, time.Time{}, false},
		"the first second":  {one, time.Time{}.Add(time.Second), true},
		"before the year 1": {one, time.Time{}.Add(-time.Second), false},
		"the last second":   {one, time.Unix(253402300799, 0), true},
		"the year 10000":    {one, time.Unix(253402300799+1, 0), false},
	} {
		t.Run(name, func(t *testing.T) {
			answer, err := fetch(t, &testClock{now: tt.now}, 0, tt.keys...)
			switch {
			case tt.good && (err != nil || len(answer.Keys) != len(tt.keys)):
				t.Error(err)
			case !tt.good:
				if wantCheck(t, err, checkSignerKeys); answer != nil {
					t.Error("refused with keys")
				}
			}
		})
	}
}
