package tpmcert

import (
	"bytes"
	"crypto/x509"
	"slices"

	"golang.org/x/crypto/cryptobyte"
	"golang.org/x/crypto/cryptobyte/asn1"

	"github.com/nodeattest/nodeattest/internal/der"
	"github.com/nodeattest/nodeattest/internal/dn"
	"github.com/nodeattest/nodeattest/refusal"
)

// checkEKChainEncoding: the NV indexes of the EK chain do not hold a sequence of
// certificates.
const checkEKChainEncoding refusal.Check = "ek-chain-encoding"

// ParseEKChain parses the EK's CA certificates as found in the NV indexes 0x01C00100 to
// 0x01C001FF (TCG EK Credential Profile 2.6, section 2.2.1.5): DER, one after the other, in
// one index or spread over several, which are given here in order. Padding with 0x00 or 0xff
// after the last certificate of an index is ignored. Nothing is trusted. A refusal is a
// [*refusal.Error] with the check "ek-chain-encoding" or "message-size" (over 64 KiB).
func ParseEKChain(indexes [][]byte) ([]*x509.Certificate, error) {
	joined := bytes.Join(indexes, nil)
	if len(joined) > der.MaxNVChain {
		return nil, der.CheckSize.Refuse("an EK chain of more than 64 KiB", "at most that")
	}
	// A certificate that continues in the next index leaves no room for padding.
	if certs, err := parseContents(indexes...); err == nil {
		return certs, nil
	}
	return parseContents(joined)
}

func parseContents(contents ...[]byte) ([]*x509.Certificate, error) {
	var certs []*x509.Certificate
	for _, content := range contents {
		rest := cryptobyte.String(content)
		for !rest.Empty() && der.CheckPadding(rest) != nil {
			var der cryptobyte.String
			if !rest.ReadASN1Element(&der, asn1.SEQUENCE) {
				return nil, checkEKChainEncoding.Refuse("bytes that are neither a certificate nor padding", "certificates in DER")
			}
			c, err := x509.ParseCertificate(der)
			if err != nil {
				return nil, &refusal.Error{Check: checkEKChainEncoding, Got: "a certificate that does not parse", Err: err}
			}
			certs = append(certs, c)
		}
	}
	return certs, nil
}

// ChainAbove picks from certs those above the leaf, in the order in which a node sends them:
// the leaf's issuer first, without the root. It goes by names and key identifiers only; the
// control plane verifies.
func ChainAbove(leaf *x509.Certificate, certs []*x509.Certificate) [][]byte {
	var above [][]byte
	top := leaf
	for len(above) < der.MaxCertificates-1 {
		n := slices.IndexFunc(certs, func(c *x509.Certificate) bool {
			return dn.NamesIssuer(top, c) && !dn.SelfIssued(c) &&
				!slices.ContainsFunc(above, func(der []byte) bool { return bytes.Equal(der, c.Raw) })
		})
		if n < 0 {
			return above
		}
		top = certs[n]
		above = append(above, top.Raw)
	}
	return above
}
