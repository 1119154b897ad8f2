package tpmsim

import (
	"bytes"
	"crypto/x509"
	"encoding/hex"
	"os"
	"path/filepath"
	"testing"

	"github.com/nodeattest/nodeattest/oid"
)

// The SAN of an EK certificate that swtpm_localca issued.
func TestSubjectAltNameIsSwtpms(t *testing.T) {
	const want = "3046a444304231163014060567810502010c0b69643a30303030313031343110300e060567810502020c05737774706d" +
		"31163014060567810502030c0b69643a3230313931303233"
	got, err := subjectAltName(Directory{"id:00001014", "swtpm", "id:20191023"}, nil, false)
	if err != nil {
		t.Fatal(err)
	}
	if !got.Critical || hex.EncodeToString(got.Value) != want {
		t.Errorf("SAN %x, want %s", got.Value, want)
	}
}

// The TPM specification attribute of the same certificate, but for the revision (164
// there, two bytes).
func TestTPMSpecification(t *testing.T) {
	const want = "3019301706056781050210310e300c0c03322e300201000202008a"
	got, err := tpmSpecification()
	if err != nil {
		t.Fatal(err)
	}
	if got.Critical || hex.EncodeToString(got.Value) != want {
		t.Errorf("subject directory attributes %x, want %s", got.Value, want)
	}
}

// The SANs of real certificates come out byte for byte.
func TestSubjectAltNameIsReal(t *testing.T) {
	corpus := os.Getenv("NODEATTEST_CORPUS")
	if corpus == "" {
		t.Skip("NODEATTEST_CORPUS, the folder of real certificates, is not set")
	}
	for file, tt := range map[string]struct {
		directory Directory
		singleRDN bool
	}{
		"AMD-aik-RSA2048-7e819b3d.der": {Directory{"id:414D4400", "AMD", "id:00030001"}, false},
		"GOOG-ek-P-256-9c49baf0.der":   {Directory{"id:474F4F47", "vTPM", "id:20160511"}, false},
		"NTC-aik-RSA2048-058b3197.der": {Directory{"id:4E544300", "NPCT75x", "id:00070002"}, true},
	} {
		der, err := os.ReadFile(filepath.Join(corpus, "ek-certs/leaf", file))
		if err != nil {
			t.Fatal(err)
		}
		cert, err := x509.ParseCertificate(der)
		if err != nil {
			t.Fatal(err)
		}
		got, err := subjectAltName(tt.directory, nil, tt.singleRDN)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range cert.Extensions {
			if oid.SubjectAltName.Equal(e.Id) && !bytes.Equal(e.Value, got.Value) {
				t.Errorf("%s: SAN\n%x, want\n%x", file, got.Value, e.Value)
			}
		}
	}
}
