package gce

import (
	"bytes"
	"encoding/base64"
	mathrand "math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/cloud/internal/kindtest"
	"github.com/nodeattest/nodeattest/internal/testkit/costsearch"
)

// costly is a token that a search has made.
type costly struct{ header, payload *costsearch.Tree }

// Of the tokens that a search tries, none takes much more memory or counted work than a good one of
// its size.
func TestCostliestTokens(t *testing.T) {
	cloud, p, good := oneInstance(t)
	parts := strings.Split(good, ".")
	read := func(part string) *costsearch.Tree {
		data, err := base64.RawURLEncoding.DecodeString(part)
		if err != nil {
			t.Fatal(err)
		}
		return costsearch.JSON(data)
	}
	licences := bytes.Replace(read(parts[1]).Marshal(), []byte(`"compute_engine":{`), []byte(`"compute_engine":{"license_id":["1","2"],`), 1)
	s := &costsearch.Search[*costly]{Start: []*costly{{read(parts[0]), read(parts[1])}, {read(parts[0]), costsearch.JSON(licences)}}, Largest: maxTokenSize,
		Change: func(r *mathrand.Rand, from *costly) *costly {
			c := &costly{from.header.Clone(), from.payload.Clone()}
			for range 1 + r.IntN(3) {
				part, other := c.payload, c.header
				if r.IntN(4) == 0 {
					part, other = other, part
				}
				part.Mutate(r, maxTokenSize*3/4-len(other.Marshal())-260)
			}
			return c
		},
		Write: func(c *costly) []byte {
			encode := base64.RawURLEncoding.EncodeToString
			return []byte(encode(c.header.Marshal()) + "." + encode(c.payload.Marshal()) + "." + parts[2])
		},
		Read: kindtest.Cost(p, time.Now()),
		Good: func(_, size int) []byte {
			payload := read(parts[1])
			fill := strings.Repeat("a", max(0, (size-len(good))*3/4-16))
			payload.Members = append(payload.Members, costsearch.JSON([]byte(`{"fill":"`+fill+`"}`)).Members...)
			token, err := cloud.Sign(payload.Marshal())
			if err != nil {
				t.Fatal(err)
			}
			return []byte(token)
		}}
	s.Run(t, 300, [...]float64{costsearch.Memory: 6, costsearch.Counted: 3})
}
