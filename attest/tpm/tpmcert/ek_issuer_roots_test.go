package tpmcert

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/nodeattest/nodeattest/internal/tpmlab"
)

var rootRow = regexp.MustCompile("(?m)^\\| (.+?) \\| (\\d{4}-\\d\\d-\\d\\d) \\| `([0-9a-f]{64})` \\| \\S.* \\|$")

// The page of vendors' roots tells the truth about the certificates that it names.
func TestVendorRootsPage(t *testing.T) {
	page, err := os.ReadFile("../../../docs/vendor-roots.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := rootRow.FindAllStringSubmatch(string(page), -1)
	if len(rows) < 40 || strings.Count(string(page), "\n| ") != len(rows)+2*strings.Count(string(page), "\n## ") {
		t.Fatalf("%d rows of certificates", len(rows))
	}
	roots, intermediates := vendorCAs(t)
	byFingerprint := map[string]string{}
	for _, name := range []string{"root-2023.der", "ca-2025.der", "ica-11.der"} {
		roots = append(roots, tpmlab.Parsed(t, tpmlab.Corpus(t, "azure-vtpm-2026", name)))
	}
	for _, c := range append(roots, intermediates...) {
		sum := sha256.Sum256(c.Raw)
		byFingerprint[hex.EncodeToString(sum[:])] = c.NotAfter.Format("2006-01-02") + " " + c.Subject.String()
	}
	seen := map[string]bool{}
	for _, row := range rows {
		subject, _, _ := strings.Cut(row[1], " (issued by ")
		if got := byFingerprint[row[3]]; got != row[2]+" "+subject || seen[row[3]] {
			t.Errorf("%s: the page says %q until %s, the certificate %q", row[3], subject, row[2], got)
		}
		seen[row[3]] = true
	}
}
