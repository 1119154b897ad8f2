package tpmsim

import (
	"encoding/hex"
	"testing"
)

// The TPM specification attribute of an EK certificate that swtpm_localca issued, but for the revision (164
// there, two bytes).
func TestTPMSpecification(t *testing.T) {
	const want = "3019301706056781050210310e300c0c03322e300201000202008a"
	got, err := tpmSpecification()
	if err != nil {
		t.Fatal(err)
	}
	if hex.EncodeToString(got) != want {
		t.Errorf("subject directory attributes %x, want %s", got, want)
	}
}
