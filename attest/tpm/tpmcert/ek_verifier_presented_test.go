package tpmcert

import (
	"testing"

	"github.com/nodeattest/nodeattest/internal/der"
	"github.com/nodeattest/nodeattest/internal/message"
	"github.com/nodeattest/nodeattest/internal/tpmlab"
	"github.com/nodeattest/nodeattest/refusal"
)

// An EK comes from one source, and with a bounded number of certificates, whatever is
// in them.
func TestSourcesOfPresentedEKs(t *testing.T) {
	certificates := func(n int) [][]byte {
		all := make([][]byte, n)
		for i := range all {
			all[i] = []byte{0x30, 0}
		}
		return all
	}
	for name, c := range map[string]struct {
		certificates [][]byte
		ekPublic     []byte
		want         refusal.Check
	}{
		"neither":                     {nil, nil, checkEKSources},
		"both":                        {certificates(1), []byte{1, 2}, checkEKSources},
		"a certificate and one byte":  {certificates(1), []byte{1}, checkEKSources},
		"one byte":                    {nil, []byte{1}, checkEKKeyEncoding},
		"a certificate":               {certificates(1), nil, CheckCertificateEncoding},
		"as many as there may be":     {certificates(message.MaxChainLinks), nil, CheckCertificateEncoding},
		"one more than there may be":  {certificates(message.MaxChainLinks + 1), nil, CheckCertificateChain},
		"one more than a bundle has":  {certificates(der.MaxCertificates + 1), nil, refusal.Check("message-size")},
		"many more than there may be": {certificates(4 * der.MaxCertificates), nil, refusal.Check("message-size")},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := ParseEKPresented(c.certificates, c.ekPublic)
			tpmlab.ExpectCheck(t, err, c.want)
		})
	}
}
