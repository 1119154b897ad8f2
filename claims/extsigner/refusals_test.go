package extsigner

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/claims"
)

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
		"the most keys":           {func(k *Keys) { k.Keys = keys(MaxKeys) }, true},
		"one more":                {func(k *Keys) { k.Keys = keys(MaxKeys + 1) }, false},
		"no timestamp":            {func(k *Keys) { k.DataTimestamp = time.Time{} }, false},
		"the first second":        {func(k *Keys) { k.DataTimestamp = time.Time{}.Add(time.Second) }, true},
		"before the year 1":       {func(k *Keys) { k.DataTimestamp = time.Time{}.Add(-time.Second) }, false},
		"the last second":         {func(k *Keys) { k.DataTimestamp = time.Unix(claims.MaxNumericDate, 0) }, true},
		"the year 10000":          {func(k *Keys) { k.DataTimestamp = time.Unix(claims.MaxNumericDate+1, 0) }, false},
		"the longest key ID":      {func(k *Keys) { k.Keys[0].KeyID = strings.Repeat("k", 1024) }, true},
		"a byte more":             {func(k *Keys) { k.Keys[0].KeyID = strings.Repeat("k", 1025) }, false},
		"no key ID":               {func(k *Keys) { k.Keys[0].KeyID = "" }, false},
		"an empty key":            {func(k *Keys) { k.Keys[0].Key = []byte{} }, false},
		"a key of too many bytes": {func(k *Keys) { k.Keys[0].Key = append(der, make([]byte, MaxKeySize)...) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			k := good()
			tt.change(k)
			checked, err := k.Check()
			switch {
			case tt.good && (err != nil || len(checked) != len(k.Keys)):
				t.Errorf("%d keys, %v", len(checked), err)
			case !tt.good:
				if wantCheck(t, err, CheckSignerKeys); checked != nil {
					t.Error("refused with keys")
				}
			}
		})
	}
}
