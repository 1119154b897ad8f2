package goattestation

import (
	"bytes"
	"crypto"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/binary"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	goattest "github.com/google/go-attestation/attest"
	x509ext "github.com/google/go-attestation/x509"

	"github.com/nodeattest/nodeattest/attest/tpm/tpmcert"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/internal/testkit/tpmlab"
	"github.com/nodeattest/nodeattest/oid"
)

// Where go-attestation reads an EK certificate, it reads the same key. It does not
// read RSAES-OAEP keys, and does not report which bytes it removed.
func TestEKCertificates(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(tpmlab.CorpusDir(t), "ek-certs/leaf/*-ek-*.der"))
	if err != nil || len(files) < 15 {
		t.Fatalf("%d certificates, %v", len(files), err)
	}
	for _, file := range files {
		der, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		ours, err := tpmcert.ParseEK(der)
		if err != nil {
			t.Errorf("%s: %v", file, err)
			continue
		}
		// A TCG_PCCLIENT_STORED_CERT of a TCG_FULL_CERT.
		header := append(binary.BigEndian.AppendUint16([]byte{0x10, 0x01, 0x00}, uint16(2+len(der))), 0x10, 0x02)
		for _, data := range [][]byte{der, slices.Concat(header, der), append(bytes.Clone(der), 0xff, 0xff)} {
			again, err := tpmcert.ParseEK(data)
			if err != nil || again.Digest != ours.Digest || !bytes.Equal(again.Certificate.Raw, der) {
				t.Errorf("%s with something around it: %v", file, err)
			}
			theirs, err := goattest.ParseEKCertificate(data)
			if err != nil {
				continue
			}
			here, err := EKCertificate(goattest.EK{Public: theirs.PublicKey, Certificate: theirs})
			if err != nil || here.Digest != ours.Digest {
				t.Errorf("%s: go-attestation reads another key: %v", file, err)
			}
		}
	}
}

// An AK certificate that we make has what step-ca asks for in its challenge device-attest-01,
// by its own source (acme/challenge.go, doTPMAttestationFormat and validateAKCertificate), and
// says to the SAN reader of go-attestation, which is step-ca's, its parts.
func TestAKCertificates(t *testing.T) {
	ca := tpmlab.Sign(t, nil, "AK CA", nil)
	directory := tpmcert.DirectoryName{Manufacturer: "id:494E5443", Vendor: "INTC", Model: "ADL", Version: "id:00020000"}
	for name, key := range map[string]crypto.Signer{"RSA-2048": testkit.Must(rsa.GenerateKey(rand.Reader, 2048)), "P-256": tpmlab.NewP256(t),
		"P-384": tpmlab.NewECDSA(t, elliptic.P384()), "P-521": tpmlab.NewECDSA(t, elliptic.P521())} {
		t.Run(name, func(t *testing.T) {
			made, err := tpmcert.CreateAKCertificate(t.Context(), tpmcert.AKTemplate{Key: key.Public(), PermanentIdentifier: "machine-7",
				Directory: directory, NotBefore: tpmlab.Time, NotAfter: tpmlab.Time.Add(time.Hour)}, ca.Cert, ca.Key)
			if err != nil {
				t.Fatal(err)
			}
			cert := made.Chain[0]
			if cert.Version != 3 || len(cert.Subject.Names) != 0 || cert.IsCA ||
				len(cert.UnknownExtKeyUsage) == 0 || !oid.TCGKpAIKCertificate.Equal(cert.UnknownExtKeyUsage[0]) {
				t.Errorf("version %d, subject %s, CA %v, usages %v", cert.Version, cert.Subject, cert.IsCA, cert.UnknownExtKeyUsage)
			}
			found := 0
			for _, e := range cert.Extensions {
				if oid.SubjectAltName.Equal(e.Id) {
					found++
					checkNames(t, testkit.Must(x509ext.ParseSubjectAltName(e)), directory, "machine-7")
				}
			}
			if found != 1 {
				t.Errorf("%d SANs", found)
			}
		})
	}
}

func checkNames(t *testing.T, san *x509ext.SubjectAltName, want tpmcert.DirectoryName, identifier string) {
	t.Helper()
	names := map[string]any{}
	for _, n := range san.DirectoryNames[0].Names {
		names[n.Type.String()] = n.Value
	}
	if len(san.DirectoryNames) != 1 || names["2.23.133.2.1"] != want.Manufacturer || names["2.23.133.2.2"] != want.Model ||
		names["2.23.133.2.3"] != want.Version {
		t.Errorf("directory name %v", names)
	}
	if p := san.PermanentIdentifiers; len(p) != 1 || p[0].IdentifierValue != identifier || len(p[0].Assigner) != 0 {
		t.Errorf("permanent identifiers %v", p)
	}
}
