package tpm

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/x509"
	"encoding/binary"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/attest/tpm/statement"
	"github.com/nodeattest/nodeattest/attest/tpm/tpmcert"
	"github.com/nodeattest/nodeattest/internal/message"
	"github.com/nodeattest/nodeattest/oid"
)

// What an Arista switch with a TPM of STMicroelectronics sent: its IAK is of template H-3,
// and certifies its IDevID key.
func TestIAKOfRealHardware(t *testing.T) {
	file := func(name string) []byte { return corpus(t, "oem", "attestz", name) }
	iak, err := statement.ParsePublic(file("iak-TPMT_PUBLIC"))
	if err != nil {
		t.Fatal(err)
	}
	if sized := file("challengeResp-iak_pub"); !bytes.Equal(sized[2:], iak.Raw) || int(binary.BigEndian.Uint16(sized)) != len(iak.Raw) {
		t.Error("the IAK is another one as TPM2B_PUBLIC")
	}
	key, err := iak.Key()
	if err != nil {
		t.Fatal(err)
	}
	template := IAKTemplates(key)[0]
	if iak.NameAlg != tpm2.TPMAlgSHA384 || iak.Attributes != 0x500f2 || !bytes.Equal(iak.AuthPolicy, template.AuthPolicy.Buffer) || keyAlgorithm(key) != "P-384" {
		t.Errorf("the IAK is not of H-3: %+v", iak)
	}
	if before := tpm2.Marshal(template); !bytes.HasPrefix(before, iak.BeforeUnique()) {
		t.Errorf("the template %x does not begin as the IAK %x", before, iak.BeforeUnique())
	}
	if err := statement.CheckAKPublic(iak); err != nil {
		t.Error(err)
	}

	// The contents of the request: a header, 13 sizes, and what they are the sizes of.
	contents := file("csrResponse-csr_contents")
	if sum := sha512.Sum384(contents[60:]); len(contents)%16 != 0 || !bytes.Equal(sum[:], contents[12:60]) {
		t.Error("the request's hash does not hold")
	}
	var parts [13][]byte
	rest := contents[60+4*len(parts):]
	for n := range parts {
		size := binary.BigEndian.Uint32(contents[60+4*n:])
		parts[n], rest = rest[:size], rest[size:]
	}
	if string(parts[0]) != "DCS-7001-SUP-L" || string(parts[1]) != "JPN2517P064" || !bytes.Equal(parts[5], iak.Raw) || !bytes.Equal(parts[4], file("ek-certificate.der")) {
		t.Errorf("model %q, serial number %q", parts[0], parts[1])
	}
	idevid, err := statement.ParsePublic(parts[9])
	if err != nil {
		t.Fatal(err)
	}
	if err := statement.CheckAKPublic(idevid); err == nil {
		t.Error("the IDevID key passes as an attestation key")
	}
	signing, err := idevid.Key()
	if err != nil {
		t.Fatal(err)
	}
	got, err := statement.VerifyCertify(&statement.CertifyEvidence{Attest: parts[10], Signature: parts[11], Public: parts[9]},
		statement.CertifyOptions{AK: statement.AKFromIssuer(key, iak.Raw), Key: signing, RequireTPMResident: true, InsecureAllowAnyQualifyingData: true})
	if err != nil || !got.TPMResident || !got.ClockTrusted || len(got.Attestation.ExtraData) != 0 {
		t.Errorf("the statement about the IDevID key: %+v, %v", got, err)
	}

	// The statement by which its EK vouches for the IAK, under a key for HMAC.
	sized, sensitive, signature := file("challengeResp-iak_certify_info"), file("sensitive"), file("challengeResp-iak_certify_info_signature")
	certified, err := statement.ParseAttestation(sized[2:])
	if err != nil || !bytes.Equal(certified.Certified.Name, iak.Name()) || len(certified.ExtraData) != 0 {
		t.Errorf("%+v, %v", certified, err)
	}
	sum, mac := sha256.Sum256(sized[2:]), hmac.New(sha256.New, sensitive[len(sensitive)-32:])
	mac.Write(sum[:])
	if want := append([]byte{0, 5, 0, 11}, mac.Sum(nil)...); !bytes.Equal(signature, want) {
		t.Errorf("HMAC %x, want %x", signature, want)
	}
	if _, err := statement.ParseSignature(signature); err == nil {
		t.Error("an HMAC is read as a signature")
	}
}

// Bundles of another encoder, with keys of templates H-1 to H-4.
func TestOEMBundlesOfAnotherEncoder(t *testing.T) {
	file := func(name string) []byte { return corpus(t, "oem", "generated", name) }
	root, err := x509.ParseCertificate(file("root.der"))
	if err != nil {
		t.Fatal(err)
	}
	issuers := []tpmcert.Issuer{{Roots: []*x509.Certificate{root}, Profile: tpmcert.ProfileOEM(tpmcert.HardwareIdentity{Issuer: "oem"})}}
	for n := 1; n <= 4; n++ {
		name := fmt.Sprintf("H-%d", n)
		t.Run(name, func(t *testing.T) {
			der := file(name + ".certify.bundle")
			bundle, err := message.ParseBundle(der)
			if err != nil {
				t.Fatal(err)
			}
			if again, err := bundle.Marshal(); err != nil || !bytes.Equal(again, der) {
				t.Errorf("marshalled again it is %x, %v", again, err)
			}
			if len(bundle.Statements) != 1 || bundle.Statements[0].Type != oid.TCGAttestTPMCertify || len(bundle.Certificates) != 2 {
				t.Fatalf("%d statements, %d certificates", len(bundle.Statements), len(bundle.Certificates))
			}
			e, err := statement.ParseTCGAttestCertify(bundle.Statements[0].Stmt)
			if err != nil {
				t.Fatal(err)
			}
			ak, err := tpmcert.VerifyAKCertificate(issuers, bundle.Certificates[:1], time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC))
			if err != nil {
				t.Fatal(err)
			}
			tls, err := statement.ParsePublic(file(name + ".tls.public"))
			if err != nil {
				t.Fatal(err)
			}
			key, err := tls.Key()
			if err != nil {
				t.Fatal(err)
			}
			options := statement.CertifyOptions{AK: statement.AKFromIssuer(ak.Key, file(name+".iak.public")), Key: key,
				QualifyingData: file("nonce.bin"), RequireTPMResident: true}
			if got, err := statement.VerifyCertify(e, options); err != nil || !got.TPMResident {
				t.Errorf("%+v, %v", got, err)
			}
			options.QualifyingData = []byte("0123456789abcdef")
			if _, err := statement.VerifyCertify(e, options); err == nil {
				t.Error("another nonce is accepted")
			}
		})
	}
	for _, name := range []string{"H-1", "H-3"} {
		iak, err := statement.ParsePublic(file(name + ".iak.public"))
		if err != nil {
			t.Fatal(err)
		}
		key, _ := iak.Key()
		idevid, err := statement.ParsePublic(file(name + ".idevid.public"))
		if err != nil {
			t.Fatal(err)
		}
		signing, _ := idevid.Key()
		e := &statement.CertifyEvidence{Attest: file(name + ".idevid-by-iak.attest"), Signature: file(name + ".idevid-by-iak.sig"), Public: idevid.Raw}
		if _, err := statement.VerifyCertify(e, statement.CertifyOptions{AK: statement.AKFromIssuer(key, iak.Raw), Key: signing, QualifyingData: []byte("nonce")}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
