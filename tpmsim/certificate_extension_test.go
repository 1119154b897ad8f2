package tpmsim

import (
	"encoding/asn1"
	"testing"

	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/oid"
)

// The TPM specification attribute is what encoding/asn1 makes of it, and but for the revision that
// of an EK certificate that swtpm_localca issued.
func TestTPMSpecification(t *testing.T) {
	type specification struct {
		Family          string `asn1:"utf8"`
		Level, Revision int
	}
	type attribute struct {
		Type   asn1.ObjectIdentifier
		Values []specification `asn1:"set"`
	}
	id, _ := oid.TCGAtTPMSpecification.ASN1()
	want, err := asn1.Marshal([]attribute{{id, []specification{{"2.0", 0, 138}}}})
	testkit.NoError(t, err)
	if tpmSpecification != string(want) {
		t.Errorf("subject directory attributes %x, want %x", tpmSpecification, want)
	}
}
