package der

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
	got, err := (&TPMNames{nil, "id:00001014", "swtpm", "id:20191023"}).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	if hex.EncodeToString(got) != want {
		t.Errorf("SAN %x, want %s", got, want)
	}
}

// The SANs of real certificates come out byte for byte.
func TestSubjectAltNameIsReal(t *testing.T) {
	corpus := os.Getenv("NODEATTEST_CORPUS")
	if corpus == "" {
		t.Skip("NODEATTEST_CORPUS, the folder of real certificates, is not set")
	}
	for file, names := range map[string]TPMNames{
		"AMD-aik-RSA2048-7e819b3d.der": {nil, "id:414D4400", "AMD", "id:00030001"},
		"GOOG-ek-P-256-9c49baf0.der":   {nil, "id:474F4F47", "vTPM", "id:20160511"},
	} {
		data, err := os.ReadFile(filepath.Join(corpus, "ek-certs/leaf", file))
		if err != nil {
			t.Fatal(err)
		}
		cert, err := x509.ParseCertificate(data)
		if err != nil {
			t.Fatal(err)
		}
		got, err := names.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range cert.Extensions {
			if oid.SubjectAltName.Equal(e.Id) && !bytes.Equal(e.Value, got) {
				t.Errorf("%s: SAN\n%x, want\n%x", file, got, e.Value)
			}
		}
	}
}
