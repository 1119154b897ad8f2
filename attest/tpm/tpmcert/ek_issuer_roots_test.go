package tpmcert

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"os"
	"testing"

	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/internal/testkit/tpmlab"
)

// TestVendorRootsList holds the list of vendors' roots, of which docs/vendor-roots.md is made, to
// the certificates that it names. One was only seen on the page that the list names.
func TestVendorRootsList(t *testing.T) {
	const unseen = "CN=Global Virtual TPM CA - 03"
	text, err := os.ReadFile("../../../kube/program/node/vendor-roots.json")
	testkit.NoError(t, err)
	var list []struct{ Subject, Issuer, SHA256, Ends string }
	if err := json.Unmarshal(text, &list); err != nil || len(list) < 50 {
		t.Fatalf("%d certificates, %v", len(list), err)
	}
	byDigest := map[string]*x509.Certificate{}
	roots, intermediates := vendorCAs(t)
	for _, name := range []string{"root-2023.der", "ca-2025.der", "ica-11.der"} {
		roots = append(roots, tpmlab.Parsed(t, tpmlab.Corpus(t, "azure-vtpm-2026", name)))
	}
	for _, name := range []string{"azure/roots.pem", "nitro/root-g1.pem"} {
		text := tpmlab.Corpus(t, "cloud", name)
		for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
			roots = append(roots, tpmlab.Parsed(t, block.Bytes))
		}
	}
	for _, c := range append(roots, intermediates...) {
		sum := sha256.Sum256(c.Raw)
		byDigest[hex.EncodeToString(sum[:])] = c
	}
	for _, r := range list {
		c := byDigest[r.SHA256]
		switch {
		case r.Subject == unseen:
		case c == nil:
			t.Errorf("%s: no certificate has its digest", r.Subject)
		case c.Subject.String() != r.Subject || c.NotAfter.Format("2006-01-02") != r.Ends || r.Issuer != "" && c.Issuer.CommonName != r.Issuer || (r.Issuer == "") != (c.Issuer.String() == c.Subject.String()):
			t.Errorf("the list says %+v, the certificate %s until %s, issued by %s", r, c.Subject, c.NotAfter, c.Issuer)
		}
	}
}
