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

// causeOf is what an error of a check says was beneath it, nil for nothing.
func causeOf(t testing.TB, err error, check Check) error {
	t.Helper()
	wantCheck(t, err, check)
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Err
	}
	return nil
}

// TestKeyCauses: a key that is too long is not parsed, and what does not parse says
// why.
func TestKeyCauses(t *testing.T) {
	check := func(key []byte) error {
		_, err := (&Keys{Keys: []Key{{KeyID: "k", Key: key}}, DataTimestamp: time.Unix(1, 0), RefreshHintSeconds: 1}).Check()
		return causeOf(t, err, checkSignerKeys)
	}
	if check(make([]byte, maxKeySize)) == nil || check(nil) == nil {
		t.Error("a key that does not parse, and nothing says why")
	}
	if cause := check(make([]byte, maxKeySize+1)); cause != nil {
		t.Errorf("a key that is too long was parsed: %v", cause)
	}
}

func TestHeaderLimits(t *testing.T) {
	key, der := p256Key(t)
	id := strings.Repeat("k", jws.MaxKeyIDSize)
	keys, err := (&Keys{Keys: []Key{{KeyID: id, Key: der}}, DataTimestamp: time.Unix(1, 0), RefreshHintSeconds: 1}).Check()
	if err != nil {
		t.Fatal(err)
	}
	segment := encode(`{}`)
	if _, err := es256(t, key, `{"alg":"ES256","kid":"`+id+`","typ":"JWT"}`, segment).Check(segment, keys); err != nil {
		t.Errorf("the longest key ID: %v", err)
	}
	_, err = readHeader(encode(`{"alg":"ES256","kid":"k","typ":"JWT","cty":"x"}`))
	if cause := causeOf(t, err, checkSignerHeader); cause != nil {
		t.Errorf("a further member: %v", cause)
	}
	_, err = readHeader("%")
	if cause := causeOf(t, err, checkSignerHeader); cause == nil || !errors.As(cause, new(base64.CorruptInputError)) {
		t.Errorf("no base64url: %v", cause)
	}
}

func TestDecodeSegmentLimits(t *testing.T) {
	most := strings.Repeat("A", maxSegmentSize)
	if got, err := decodeSegment(most); err != nil || len(got) != maxSegmentSize/4*3 {
		t.Errorf("the longest segment: %d bytes, %v", len(got), err)
	}
	for _, more := range []string{"A", "AA"} {
		_, err := decodeSegment(most + more)
		wantCheck(t, err, claims.CheckSize)
	}
	for _, end := range []string{"\r", "\n", "\r\n", "=", "\x0c", "\x0e", "\t"} {
		if _, err := decodeSegment("AAAA" + end); !errors.As(err, new(base64.CorruptInputError)) {
			t.Errorf("%q: %v", end, err)
		}
	}
}

// TestClientSignUnknown: whether a key that signed is published could not be asked.
func TestClientSignUnknown(t *testing.T) {
	key, _ := p256Key(t)
	s := scripted(t, key, "a")
	clock := newClock()
	c := newClient(t, s, ClientOptions{Now: clock.Now})
	defer c.Close()
	s.sign = func(segment string) (*Signature, error) {
		return es256(t, key, `{"alg":"ES256","kid":"b","typ":"JWT"}`, segment), nil
	}
	s.keys = func() (*Keys, error) { return nil, errDead }
	clock.Add(time.Second)
	_, err := c.Sign(t.Context(), []byte(`{}`))
	if !errors.Is(err, refusal.ErrRetry) || errors.Is(err, checkSignerKey) {
		t.Errorf("got %v, want %v", err, refusal.ErrRetry)
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
	if err := sign(timeless); !errors.Is(err, checkSignerClaims) {
		t.Errorf("without iat: %v", err)
	}
	ending := goodClaims()
	ending.IssuedAt.Unix, ending.NotBefore.Unix, ending.Expiry.Unix = ending.IssuedAt.Unix-660, ending.NotBefore.Unix-660, ending.IssuedAt.Unix-60
	if err := sign(ending); err != nil {
		t.Errorf("ended as long ago as clocks may be apart: %v", err)
	}
	if ending.Expiry.Unix--; !errors.Is(sign(ending), checkSignerClaims) {
		t.Error("a second longer ago: signed")
	}
	config := serviceConfig(t, newClock())
	config.MaxTokenLifetime, config.Keys = maxLifetime, overlap{config.Keys, time.Minute, maxLifetime + time.Minute}
	s = newService(t, config)
	if timeless.Expiry = goodClaims().Expiry; !errors.Is(sign(timeless), checkSignerClaims) {
		t.Error("without iat, and for as long as can be: signed")
	}
	if _, err := new(Service).Metadata(testContext); !errors.Is(err, refusal.CheckConfig) {
		t.Error(err)
	}
}

// TestKeysLimits tries each limit at its value and one beyond.
func TestKeysLimits(t *testing.T) {
	_, der := p256Key(t)
	keys := func(n int) []Key {
		list := make([]Key, n)
		for i := range list {
			list[i] = Key{KeyID: strconv.Itoa(i), Key: der}
		}
		return list
	}
	good := func() *Keys {
		return &Keys{Keys: keys(1), DataTimestamp: time.Unix(1, 0), RefreshHintSeconds: 1}
	}
	for name, tt := range map[string]struct {
		change func(k *Keys)
		good   bool
	}{
		"a hint of a second":      {func(k *Keys) { k.RefreshHintSeconds = 1 }, true},
		"no hint":                 {func(k *Keys) { k.RefreshHintSeconds = 0 }, false},
		"a negative hint":         {func(k *Keys) { k.RefreshHintSeconds = -1 }, false},
		"no keys":                 {func(k *Keys) { k.Keys = keys(0) }, false},
		"the most keys":           {func(k *Keys) { k.Keys = keys(maxKeys) }, true},
		"one more":                {func(k *Keys) { k.Keys = keys(maxKeys + 1) }, false},
		"no timestamp":            {func(k *Keys) { k.DataTimestamp = time.Time{} }, false},
		"the first second":        {func(k *Keys) { k.DataTimestamp = time.Time{}.Add(time.Second) }, true},
		"before the year 1":       {func(k *Keys) { k.DataTimestamp = time.Time{}.Add(-time.Second) }, false},
		"the last second":         {func(k *Keys) { k.DataTimestamp = time.Unix(253402300799, 0) }, true},
		"the year 10000":          {func(k *Keys) { k.DataTimestamp = time.Unix(253402300799+1, 0) }, false},
		"the longest key ID":      {func(k *Keys) { k.Keys[0].KeyID = strings.Repeat("k", 1024) }, true},
		"a byte more":             {func(k *Keys) { k.Keys[0].KeyID = strings.Repeat("k", 1025) }, false},
		"no key ID":               {func(k *Keys) { k.Keys[0].KeyID = "" }, false},
		"an empty key":            {func(k *Keys) { k.Keys[0].Key = []byte{} }, false},
		"a key of too many bytes": {func(k *Keys) { k.Keys[0].Key = append(der, make([]byte, maxKeySize)...) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			k := good()
			tt.change(k)
			checked, err := k.Check()
			switch {
			case tt.good && (err != nil || len(checked) != len(k.Keys)):
				t.Errorf("%d keys, %v", len(checked), err)
			case !tt.good:
				if wantCheck(t, err, checkSignerKeys); checked != nil {
					t.Error("refused with keys")
				}
			}
		})
	}
}
