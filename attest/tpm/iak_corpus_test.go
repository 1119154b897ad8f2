package tpm

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/x509"
	"encoding/asn1"
	"encoding/binary"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/tpm/statement"
	"github.com/nodeattest/nodeattest/attest/tpm/tpmcert"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/der"
	"github.com/nodeattest/nodeattest/internal/message"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/internal/testkit/tpmlab"
	"github.com/nodeattest/nodeattest/oid"
	"github.com/nodeattest/nodeattest/refusal"
)

// The request of an Arista switch with a TPM of STMicroelectronics: its IAK is of template H-3,
// and certifies its IDevID key.
func TestIAKOfRealHardware(t *testing.T) {
	file := func(name string) []byte { return tpmlab.Corpus(t, "oem", "attestz", name) }
	iak, err := statement.ParsePublic(file("iak-TPMT_PUBLIC"))
	testkit.NoError(t, err)
	if sized := file("challengeResp-iak_pub"); !bytes.Equal(sized[2:], iak.Raw) || int(binary.BigEndian.Uint16(sized)) != len(iak.Raw) {
		t.Error("the IAK is another one as TPM2B_PUBLIC")
	}
	key, err := iak.Key()
	testkit.NoError(t, err)
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

	// The contents of the request: a header, 13 sizes, and the fields of these sizes.
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
	testkit.NoError(t, err)
	if err := statement.CheckAKPublic(idevid); err == nil {
		t.Error("the IDevID key passes as an attestation key")
	}
	signing, err := idevid.Key()
	testkit.NoError(t, err)
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
	file := func(name string) []byte { return tpmlab.Corpus(t, "oem", "generated", name) }
	root, err := x509.ParseCertificate(file("root.der"))
	testkit.NoError(t, err)
	issuers := []tpmcert.Issuer{{Roots: []*x509.Certificate{root}, Profile: tpmcert.ProfileOEM(tpmcert.HardwareIdentity{Issuer: "oem"})}}
	for n := 1; n <= 4; n++ {
		name := fmt.Sprintf("H-%d", n)
		t.Run(name, func(t *testing.T) {
			der := file(name + ".certify.bundle")
			bundle, err := message.ParseBundle(der)
			testkit.NoError(t, err)
			if again, err := bundle.Marshal(); err != nil || !bytes.Equal(again, der) {
				t.Errorf("marshalled again it is %x, %v", again, err)
			}
			if len(bundle.Statements) != 1 || bundle.Statements[0].Type != oid.TCGAttestTPMCertify || len(bundle.Certificates) != 2 {
				t.Fatalf("%d statements, %d certificates", len(bundle.Statements), len(bundle.Certificates))
			}
			e, err := statement.ParseTCGAttestCertify(bundle.Statements[0].Stmt)
			testkit.NoError(t, err)
			ak, err := tpmcert.VerifyAKCertificate(issuers, bundle.Certificates[:1], time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC))
			testkit.NoError(t, err)
			tls, err := statement.ParsePublic(file(name + ".tls.public"))
			testkit.NoError(t, err)
			key, err := tls.Key()
			testkit.NoError(t, err)
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
		testkit.NoError(t, err)
		key, _ := iak.Key()
		idevid, err := statement.ParsePublic(file(name + ".idevid.public"))
		testkit.NoError(t, err)
		signing, _ := idevid.Key()
		e := &statement.CertifyEvidence{Attest: file(name + ".idevid-by-iak.attest"), Signature: file(name + ".idevid-by-iak.sig"), Public: idevid.Raw}
		if _, err := statement.VerifyCertify(e, statement.CertifyOptions{AK: statement.AKFromIssuer(key, iak.Raw), Key: signing, QualifyingData: []byte("nonce")}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A bundle of that encoder with two statements, and the root in front: each statement holds,
// and a chain that is not leaf first has no leaf.
func TestOEMBundleWithTwoStatements(t *testing.T) {
	file := func(name string) []byte { return tpmlab.Corpus(t, "oem", "generated", name) }
	der := file("H-2.both.bundle")
	bundle, err := message.ParseBundle(der)
	testkit.NoError(t, err)
	if again, err := bundle.Marshal(); err != nil || !bytes.Equal(again, der) {
		t.Errorf("marshalled again it is %x, %v", again, err)
	}
	if len(bundle.Statements) != 2 || bundle.Statements[0].Type != oid.TCGAttestTPMQuote || bundle.Statements[1].Type != oid.TCGAttestTPMCertify ||
		len(bundle.Certificates) != 2 || !bytes.Equal(bundle.Certificates[0], file("root.der")) || !bytes.Equal(bundle.Certificates[1], file("H-2.iak.cert")) {
		t.Fatalf("%d statements, %d certificates", len(bundle.Statements), len(bundle.Certificates))
	}
	root, err := x509.ParseCertificate(file("root.der"))
	testkit.NoError(t, err)
	issuers := []tpmcert.Issuer{{Roots: []*x509.Certificate{root}, Profile: tpmcert.ProfileOEM(tpmcert.HardwareIdentity{Issuer: "oem"})}}
	at := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	if _, err := tpmcert.VerifyAKCertificate(issuers, bundle.Certificates, at); !errors.Is(err, refusal.Check("certificate-order")) {
		t.Errorf("the root as the leaf: %v", err)
	}
	leaf, err := tpmcert.VerifyAKCertificate(issuers, bundle.Certificates[1:], at)
	testkit.NoError(t, err)
	ak := statement.AKFromIssuer(leaf.Key, file("H-2.iak.public"))
	certify, err1 := statement.ParseTCGAttestCertify(bundle.Statements[1].Stmt)
	quote, err2 := statement.ParseTCGAttestQuote(bundle.Statements[0].Stmt)
	tls, err3 := statement.ParsePublic(file("H-2.tls.public"))
	testkit.NoError(t, errors.Join(err1, err2, err3))
	key, err := tls.Key()
	testkit.NoError(t, err)
	good, other := file("nonce.bin"), []byte("0123456789abcdef")
	for name, c := range map[string]struct {
		nonce []byte
		want  error
	}{"its nonce": {good, nil}, "another nonce": {other, attest.CheckQualifyingData}} {
		t.Run(name, func(t *testing.T) {
			got, err := statement.VerifyCertify(certify, statement.CertifyOptions{AK: ak, Key: key, QualifyingData: c.nonce, RequireTPMResident: true})
			if !errors.Is(err, c.want) || err == nil && !got.TPMResident {
				t.Errorf("certify: %+v, %v", got, err)
			}
			if q, err := statement.VerifyQuote(quote, statement.QuoteOptions{AK: ak, QualifyingData: c.nonce}); !errors.Is(err, c.want) || err == nil && len(q.PCRs()) != 6 {
				t.Errorf("quote: %v", err)
			}
		})
	}
	swapped, err := statement.ParseTCGAttestCertify(bundle.Statements[0].Stmt) // it has the same form
	testkit.NoError(t, err)
	swapped.Public = certify.Public
	if _, err := statement.VerifyCertify(swapped, statement.CertifyOptions{AK: ak, Key: key, QualifyingData: good}); !errors.Is(err, refusal.Check("attest-type")) {
		t.Errorf("the quote as a certify statement: %v", err)
	}
}

// The draft's older sample: it was edited after it was signed, and its statement has a hint.
func TestRequestWithHint(t *testing.T) {
	block, _ := pem.Decode(tpmlab.Corpus(t, "oem", "lamps", "tcgAttestTpmCertify-with-hint.pem"))
	if block == nil {
		t.Fatal("no PEM")
	}
	request, err := csr.ParseForeignPKCS10(block.Bytes)
	testkit.NoError(t, err)
	if err := request.CheckSignature(); !errors.Is(err, csr.CheckSignature) {
		t.Errorf("its signature: %v", err)
	}
	value, ok := request.Attribute(oid.IDAAAttestation)
	if bundle, err := message.ParseBundle(value); !ok || bundle != nil || !errors.Is(err, der.CheckEncoding) {
		t.Errorf("its bundle: %t, %+v, %v", ok, bundle, err)
	}
}

// The keys that swtpm makes from the templates of IDevIDs and IAKs, and the policies of IDevIDs.
func TestRecordedTemplates(t *testing.T) {
	policies := map[string]string{
		"H-1": "ad6b3a2284fd698a0710bf5cc1b9bdf15e2532e3f601fa4b93a6a8fa8de579ea",
		"H-2": "ad6b3a2284fd698a0710bf5cc1b9bdf15e2532e3f601fa4b93a6a8fa8de579ea",
		"H-3": "4db1aa836d0b5615df6ee53a40ef70c61c217f4303d44695925972bc927006cfa5cbdf6dc18c4dbe329b2f1542c3dd33",
		"H-4": "7dd7500fd6c1b94f97a6af910da147301ef28f662fee06f225a4ccadda3b4e6b38e66b2f3ad5dee1a0503cd2daedb1e68cfe4f84b03a8cd22bb6a976f071a72f",
	}
	for name, policy := range policies {
		t.Run(name, func(t *testing.T) {
			for _, kind := range []string{"iak", "idevid"} {
				template := tpmlab.Corpus(t, "oem", "generated", name+"."+kind+".template")
				public, err := statement.ParsePublic(tpmlab.Corpus(t, "oem", "generated", name+"."+kind+".public"))
				testkit.NoError(t, err)
				if !bytes.HasPrefix(template, public.BeforeUnique()) {
					t.Errorf("%s: the template %x does not begin as the key %x", kind, template, public.BeforeUnique())
				}
				if kind == "idevid" && (public.Attributes != 0x400f2 || hex.EncodeToString(public.AuthPolicy) != policy || statement.CheckAKPublic(public) == nil) {
					t.Errorf("attributes %x, policy %x, or it passes as an attestation key", public.Attributes, public.AuthPolicy)
				}
				if kind == "iak" {
					if err := statement.CheckAKPublic(public); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
}

// Another SDK's request for a quote, and its answer, are refused as our messages.
func TestQuoteRequestsOfAnotherSDK(t *testing.T) {
	tpmlab.CorpusDir(t) // or skip
	read := func(t *testing.T, name string) []byte {
		t.Helper()
		data, err := hex.DecodeString(strings.TrimSpace(string(tpmlab.Corpus(t, "oem", "libattest", name+".hex"))))
		testkit.NoError(t, err)
		return data
	}
	var asked struct {
		Name string `asn1:"tag:0,explicit,utf8"`
		Hash int    `asn1:"tag:1,explicit"`
	}
	var answered struct {
		Name string `asn1:"utf8"`
		PCRs []int
		Hash int
	}
	for name, v := range map[string]any{"TPM20QuoteReqInfo": &asked, "TPM20QuoteRespInfo": &answered} {
		t.Run(name, func(t *testing.T) {
			data := read(t, name)
			if rest, err := asn1.Unmarshal(data, v); err != nil || len(rest) > 0 {
				t.Errorf("%x, %v", rest, err)
			}
			if bundle, err := message.ParseBundle(data); bundle != nil || !errors.Is(err, der.CheckEncoding) {
				t.Errorf("a bundle: %+v, %v", bundle, err)
			}
			if e, err := statement.ParseTCGAttestQuote(data); e != nil || !errors.Is(err, der.CheckEncoding) {
				t.Errorf("a quote: %+v, %v", e, err)
			}
		})
	}
	if asked.Name != "ak" || asked.Hash != int(tpm2.TPMAlgSHA256) || answered.Name != "ak" || answered.Hash != int(tpm2.TPMAlgSHA256) || !slices.Equal(answered.PCRs, []int{0, 1, 2, 3, 4}) {
		t.Errorf("%+v, %+v", asked, answered)
	}
}
