package attest

import (
	"cmp"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"slices"
	"time"

	"github.com/nodeattest/nodeattest/internal/message"

	"github.com/nodeattest/nodeattest/internal/der"
	"github.com/nodeattest/nodeattest/secret"
)

// ringKeySize is the size of one encoded key: secret, ActiveAt, RetiredAt.
const ringKeySize = message.SecretSize + 8 + 8

// maxRingKeys bounds the keys that [ParseRingKeys] reads.
const maxRingKeys = 64

// MarshalRingKeys returns keys in the form of a Secret's data: the name is the
// identifier in 16 lower-case hexadecimal digits, the value 48 bytes: the
// secret, then ActiveAt and RetiredAt in Unix seconds, big-endian, 8 bytes each
// (0: not retired). Fractions of a second are lost. It returns an error as
// [NewKeyRing] does, and for times outside 1970 to 9999 or over 64 keys.
func MarshalRingKeys(keys []RingKey) (map[string][]byte, error) {
	if err := checkRingKeys(keys); err != nil {
		return nil, err
	}
	if len(keys) > maxRingKeys {
		return nil, fmt.Errorf("attest: key ring: %d keys, at most %d", len(keys), maxRingKeys)
	}
	data := make(map[string][]byte, len(keys))
	for _, k := range keys {
		active, retired := k.ActiveAt.Unix(), int64(0)
		if !k.RetiredAt.IsZero() {
			retired = k.RetiredAt.Unix()
		}
		if active <= 0 || max(active, retired) > der.MaxUnixSeconds {
			return nil, fmt.Errorf("attest: key ring: key %s has a time out of range", hexID(k.ID))
		}
		secret := k.Secret.Reveal()
		v := append(make([]byte, 0, ringKeySize), secret[:]...)
		v = binary.BigEndian.AppendUint64(v, uint64(active))
		data[hexID(k.ID)] = binary.BigEndian.AppendUint64(v, uint64(retired))
	}
	return data, nil
}

// ParseRingKeys reads what [MarshalRingKeys] wrote, at most 64 keys, in the
// order of their ActiveAt. Anything else in data is an error that names the
// entry and never its value.
func ParseRingKeys(data map[string][]byte) ([]RingKey, error) {
	if len(data) > maxRingKeys {
		return nil, fmt.Errorf("attest: key ring: %d keys, at most %d", len(data), maxRingKeys)
	}
	keys := make([]RingKey, 0, len(data))
	for name, v := range data {
		var k RingKey
		id, err := hex.DecodeString(name)
		if err != nil || len(id) != message.KeyIDSize || hex.EncodeToString(id) != name {
			return nil, fmt.Errorf("attest: key ring: name %q is no identifier of 16 lower-case hexadecimal digits", name)
		}
		if len(v) != ringKeySize {
			return nil, fmt.Errorf("attest: key ring: key %s has %d bytes, want %d", name, len(v), ringKeySize)
		}
		copy(k.ID[:], id)
		k.Secret = secret.New([message.SecretSize]byte(v[:message.SecretSize]))
		active, retired := binary.BigEndian.Uint64(v[32:]), binary.BigEndian.Uint64(v[40:])
		if active == 0 || active > der.MaxUnixSeconds || retired > der.MaxUnixSeconds {
			return nil, fmt.Errorf("attest: key ring: key %s has a time out of range", name)
		}
		k.ActiveAt = time.Unix(int64(active), 0).UTC()
		if retired != 0 {
			k.RetiredAt = time.Unix(int64(retired), 0).UTC()
		}
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b RingKey) int {
		return cmp.Or(a.ActiveAt.Compare(b.ActiveAt), slices.Compare(a.ID[:], b.ID[:]))
	})
	return keys, checkRingKeys(keys)
}
