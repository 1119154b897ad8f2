package tpmcert

import (
	"strings"
	"testing"

	"github.com/nodeattest/nodeattest/internal/der"
	"github.com/nodeattest/nodeattest/internal/tpmlab"
)

// A certificate at its limit is read, one over it is not; a block that ends badly is
// refused whatever could be read of it, and what came before it with it.
func TestBlocksOfCertificates(t *testing.T) {
	one := pemOf(tpmlab.CertificateOf(t, 10))
	body := strings.TrimSuffix(one, certificateEnd+"\n")
	for name, c := range map[string]struct {
		in   string
		want int
	}{
		"one":                           {one, 1},
		"the largest":                   {pemOf(certificateOfSize(t, der.MaxCertificateSize)), 1},
		"a byte more":                   {pemOf(certificateOfSize(t, der.MaxCertificateSize+1)), 0},
		"one, and one that begins":      {one + certificateBegin + "\n", 0},
		"one, and half another":         {one + body, 0},
		"something after the base64":    {body + "!\n" + certificateEnd + "\n", 0},
		"more base64 after the padding": {body + "====\n" + certificateEnd + "\n", 0},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := ParseCertificatesPEM([]byte(c.in))
			if len(got) != c.want || (c.want == 0) != (err != nil) {
				t.Errorf("got %d, %v", len(got), err)
			}
		})
	}
}
