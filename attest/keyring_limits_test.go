package attest

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"strings"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/internal/message"

	"github.com/nodeattest/nodeattest/internal/der"
	"github.com/nodeattest/nodeattest/internal/testkit"
)

// An encoded ring is tried at each of its limits.
func TestRingKeysAtTheirLimits(t *testing.T) {
	value := func(active, retired uint64) []byte {
		v := bytes.Repeat([]byte{7}, message.SecretSize)
		return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(v, active), retired)
	}
	name := strings.Repeat("ab", message.KeyIDSize)
	many := func(n int) map[string][]byte {
		all := map[string][]byte{}
		for i := range n {
			id := make([]byte, message.KeyIDSize)
			id[0] = byte(i + 1)
			all[hex.EncodeToString(id)] = value(1, 0)
		}
		return all
	}
	for what, c := range map[string]struct {
		data map[string][]byte
		good bool
	}{
		"the first second":        {map[string][]byte{name: value(1, 0)}, true},
		"the last one":            {map[string][]byte{name: value(der.MaxUnixSeconds, der.MaxUnixSeconds)}, true},
		"as many as there may be": {many(maxRingKeys), true},
		"one more":                {many(maxRingKeys + 1), false},
		"active at no time":       {map[string][]byte{name: value(0, 0)}, false},
		"active too late":         {map[string][]byte{name: value(der.MaxUnixSeconds+1, 0)}, false},
		"retired too late":        {map[string][]byte{name: value(1, der.MaxUnixSeconds+1)}, false},
		"active before 1970":      {map[string][]byte{name: value(1<<63, 0)}, false},
		"retired before active":   {map[string][]byte{name: value(2, 1)}, false},
		"a name of 7 bytes":       {map[string][]byte{name[2:]: value(1, 0)}, false},
		"a name of 9 bytes":       {map[string][]byte{name + "ab": value(1, 0)}, false},
		"a name of half bytes":    {map[string][]byte{name + "a": value(1, 0)}, false},
		"a value of 47 bytes":     {map[string][]byte{name: value(1, 0)[:47]}, false},
		"a value of 49 bytes":     {map[string][]byte{name: append(value(1, 0), 0)}, false},
		"an upper-case name":      {map[string][]byte{strings.ToUpper(name): value(1, 0)}, false},
	} {
		t.Run(what, func(t *testing.T) {
			keys, err := ParseRingKeys(c.data)
			if c.good != (err == nil) {
				t.Fatalf("got %d keys, %v", len(keys), err)
			}
			if !c.good {
				return
			}
			again, err := MarshalRingKeys(keys)
			if err != nil || len(again) != len(c.data) {
				t.Fatalf("again: %d, %v", len(again), err)
			}
			for name, v := range again {
				if !bytes.Equal(v, c.data[name]) {
					t.Errorf("%s became another", name)
				}
			}
		})
	}
	good := NewRingKey(time.Unix(1, 0))
	for what, c := range map[string]struct {
		change func(*RingKey)
		good   bool
	}{
		"the first second": {func(*RingKey) {}, true},
		"the last one": {func(k *RingKey) {
			k.ActiveAt, k.RetiredAt = time.Unix(der.MaxUnixSeconds, 0), time.Unix(der.MaxUnixSeconds, 0)
		}, true},
		"the epoch":          {func(k *RingKey) { k.ActiveAt = time.Unix(0, 0) }, false},
		"before the epoch":   {func(k *RingKey) { k.ActiveAt = time.Unix(-1, 0) }, false},
		"active too late":    {func(k *RingKey) { k.ActiveAt = time.Unix(der.MaxUnixSeconds+1, 0) }, false},
		"retired too late":   {func(k *RingKey) { k.RetiredAt = time.Unix(der.MaxUnixSeconds+1, 0) }, false},
		"the same as active": {func(k *RingKey) { k.RetiredAt = k.ActiveAt }, true},
	} {
		t.Run("encode, "+what, func(t *testing.T) {
			k := good
			c.change(&k)
			if data, err := MarshalRingKeys([]RingKey{k}); c.good != (err == nil) {
				t.Errorf("got %v, %v", data != nil, err)
			}
		})
	}
	t.Run("encode one too many", func(t *testing.T) {
		var keys []RingKey
		for n := range maxRingKeys + 1 {
			if n == maxRingKeys {
				testkit.Must(MarshalRingKeys(keys))
			}
			keys = append(keys, NewRingKey(time.Unix(1, 0)))
		}
		if _, err := MarshalRingKeys(keys); err == nil {
			t.Error("accepted")
		}
	})
}
