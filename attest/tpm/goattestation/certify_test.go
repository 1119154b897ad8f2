package goattestation

import (
	"bytes"
	"crypto/rsa"
	"testing"

	goattest "github.com/google/go-attestation/attest"
	"github.com/google/go-tpm/tpm2"
	"github.com/google/go-tpm/tpm2/transport"
	"github.com/google/go-tpm/tpmutil"

	"github.com/nodeattest/nodeattest/attest/attesttest"
	"github.com/nodeattest/nodeattest/attest/tpm"
	"github.com/nodeattest/nodeattest/attest/tpm/statement"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/internal/testkit/tpmlab"
	"github.com/nodeattest/nodeattest/refusal"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// certified is what go-attestation's AK says about a key that it made.
type certified struct {
	ak       *goattest.AKPublic
	akPublic []byte
	key      *goattest.Key
	made     goattest.CertificationParameters // by TPM.NewKey, with qualifying data
	again    goattest.CertificationParameters // by AK.Certify
}

var qualifyingData = []byte("a nonce of a server, 32 bytes...")

func certifiedOf(t testing.TB, device transport.TPM, client *goattest.TPM, algorithm goattest.Algorithm) *certified {
	t.Helper()
	ak := testkit.Must(client.NewAK(&goattest.AKConfig{Algorithm: algorithm}))
	others := tpmlab.LoadedHandles(t, device)
	key := testkit.Must(client.NewKey(ak, &goattest.KeyConfig{Algorithm: algorithm, Size: algorithm.Size(), QualifyingData: qualifyingData}))
	loaded := tpmlab.LoadedHandles(t, device)
	again := testkit.Must(ak.Certify(client, tpmutil.Handle(loaded[len(others)])))
	public := ak.AttestationParameters().Public
	c := &certified{ak: testkit.Must(goattest.ParseAKPublic(public)), akPublic: public, key: key,
		made: key.CertificationParameters(), again: *again}
	testkit.NoError(t, key.Close())
	testkit.NoError(t, ak.Close(client))
	return c
}

// options are those under which the statement with this qualifying data, nil for none, verifies.
func (c *certified) options(qualifyingData []byte) statement.CertifyOptions {
	return statement.CertifyOptions{AK: statement.AKFromCredential(c.akPublic), Key: c.key.Public(), QualifyingData: qualifyingData,
		RequireTPMResident: true, InsecureEmptyQualifyingData: qualifyingData == nil}
}

func (c *certified) verifyThere(p goattest.CertificationParameters) error {
	return p.Verify(goattest.VerifyOpts{Public: c.ak.Public, Hash: c.ak.Hash})
}

// Both libraries verify what go-attestation's AK says about a key. TPM.NewKey's statement has the
// qualifying data, AK.Certify's none, which this SDK takes only where an option says so.
func TestCertifiedThere(t *testing.T) {
	onBoth(t, func(t *testing.T, device transport.TPM, client *goattest.TPM, _ *tpmsim.TPM) {
		for _, algorithm := range []goattest.Algorithm{goattest.RSA, goattest.ECDSA} {
			c := certifiedOf(t, device, client, algorithm)
			for name, p := range map[string]struct {
				of             goattest.CertificationParameters
				qualifyingData []byte
				refused        []byte
				check          refusal.Check
			}{
				"NewKey":  {c.made, qualifyingData, nil, "qualifying-data"},
				"Certify": {c.again, nil, qualifyingData, "qualifying-data"},
			} {
				testkit.NoError(t, c.verifyThere(p.of))
				e := testkit.Must(CertifyEvidence(p.of))
				if _, err := statement.VerifyCertify(e, c.options(p.qualifyingData)); err != nil {
					t.Errorf("%s, %s: %v", algorithm, name, err)
				}
				_, err := statement.VerifyCertify(e, c.options(p.refused))
				tpmlab.ExpectCheck(t, err, p.check)
				strict := c.options(p.qualifyingData)
				strict.InsecureEmptyQualifyingData = false
				if _, err := statement.VerifyCertify(e, strict); (err == nil) != (name == "NewKey") {
					t.Errorf("%s, %s without Insecure options: %v", algorithm, name, err)
				}
				// There and back.
				back := testkit.Must(CertificationParameters(e))
				p.of.CreateData = nil
				same(t, p.of, back)
				same(t, e, testkit.Must(CertifyEvidence(back)))
			}
		}
	})
}

// A statement with one bit changed does not verify here, and there neither but for the hash that
// the signature names, which go-attestation takes from its options.
func TestCertifiedChanged(t *testing.T) {
	device := tpmsim.New(t, tpmsim.Options{})
	client := clientOf(t, device)
	for _, algorithm := range []goattest.Algorithm{goattest.RSA, goattest.ECDSA} {
		c := certifiedOf(t, device, client, algorithm)
		good := testkit.Must(CertifyEvidence(c.made))
		for part, of := range map[string]*[]byte{"attest": &good.Attest, "signature": &good.Signature, "public": &good.Public} {
			was, converted := *of, 0
			for n := range was {
				*of = bytes.Clone(was)
				(*of)[n] ^= 1 << (n % 8)
				if _, err := statement.VerifyCertify(good, c.options(qualifyingData)); err == nil {
					t.Errorf("%s: %s with byte %d changed verifies here", algorithm, part, n)
				}
				p, err := CertificationParameters(good)
				if err != nil {
					continue
				}
				converted++
				if err := c.verifyThere(p); err == nil && (part != "signature" || n < 2 || n > 3) {
					t.Errorf("%s: %s with byte %d changed verifies there", algorithm, part, n)
				}
			}
			*of = was
			if converted < 32 {
				t.Errorf("%s: %s: only %d changes have the form of a statement", algorithm, part, converted)
			}
		}
		if _, err := statement.VerifyCertify(good, c.options(qualifyingData)); err != nil {
			t.Errorf("%s, unchanged: %v", algorithm, err)
		}
	}
}

// A value without a form on the other side, or that is no statement, is refused with the reason.
func TestCertifyRefusals(t *testing.T) {
	device := tpmsim.New(t, tpmsim.Options{})
	client := clientOf(t, device)
	c := certifiedOf(t, device, client, goattest.RSA)
	ak := testkit.Must(client.NewAK(nil))
	creation := ak.AttestationParameters()
	quote := testkit.Must(ak.Quote(client, qualifyingData, goattest.HashSHA256))
	hmac := append([]byte{0, 5, 0, 11}, make([]byte, 32)...) // TPM_ALG_HMAC, as of AK.CertifyWithDecryptionEk
	for name, p := range map[string]struct {
		change func(*goattest.CertificationParameters)
		want   refusal.Check
	}{
		"nothing":           {func(p *goattest.CertificationParameters) { *p = goattest.CertificationParameters{} }, "attest-encoding"},
		"an AK's":           {func(p *goattest.CertificationParameters) { p.CreateAttestation = creation.CreateAttestation }, "attest-type"},
		"a quote":           {func(p *goattest.CertificationParameters) { p.CreateAttestation = quote.Quote }, checkValue},
		"one byte more":     {func(p *goattest.CertificationParameters) { p.CreateAttestation = append(p.CreateAttestation, 0) }, "attest-encoding"},
		"absurd":            {func(p *goattest.CertificationParameters) { p.CreateAttestation = make([]byte, 1<<20) }, "attest-size"},
		"no signature":      {func(p *goattest.CertificationParameters) { p.CreateSignature = nil }, "tpm-signature-size"},
		"an HMAC":           {func(p *goattest.CertificationParameters) { p.CreateSignature = hmac }, "signature-scheme"},
		"a long signature":  {func(p *goattest.CertificationParameters) { p.CreateSignature = make([]byte, 1<<20) }, "tpm-signature-size"},
		"no public area":    {func(p *goattest.CertificationParameters) { p.Public = nil }, "public-size"},
		"with TPM2B's size": {func(p *goattest.CertificationParameters) { p.Public = append([]byte{1, 22}, p.Public...) }, "tpm-key-type"},
	} {
		changed := c.made
		p.change(&changed)
		_, err := CertifyEvidence(changed)
		tpmlab.ExpectCheck(t, err, p.want)
		e := &statement.CertifyEvidence{Attest: changed.CreateAttestation, Signature: changed.CreateSignature, Public: changed.Public}
		if _, err := CertificationParameters(e); err == nil {
			t.Errorf("%s: converted to go-attestation's form", name)
		}
	}
	_, err := CertificationParameters(nil)
	if err == nil {
		t.Error("nil is a statement")
	}
	testkit.NoError(t, ak.Close(client))

	a := answerOf(t, attesttest.NodeOptions{TPM: device, AK: tpm.GCERSA()})
	if _, err := CertificationParameters(a.certify); err != nil {
		t.Errorf("of a node: %v", err)
	}
	pss := statement.Signature{Alg: tpm2.TPMAlgRSAPSS, Hash: tpm2.TPMAlgSHA256, RSA: make([]byte, 256)}
	a.certify.Signature = testkit.Must(pss.Marshal())
	_, err = CertificationParameters(a.certify)
	tpmlab.ExpectCheck(t, err, checkValue)
}

// A bare signature is wrapped for go-attestation, which then verifies it.
func TestRawSignatureThere(t *testing.T) {
	device := tpmsim.New(t, tpmsim.Options{})
	client := clientOf(t, device)
	for _, algorithm := range []goattest.Algorithm{goattest.RSA, goattest.ECDSA} {
		c := certifiedOf(t, device, client, algorithm)
		e := testkit.Must(CertifyEvidence(c.made))
		signature := testkit.Must(statement.ParseSignature(e.Signature))
		e.RawSignature = &statement.KeyScheme{Alg: signature.Alg, Hash: signature.Hash}
		if e.Signature = signature.RSA; e.Signature == nil {
			e.Signature = testkit.Must(signature.MarshalECDSA())
		}
		if err := c.verifyThere(testkit.Must(CertificationParameters(e))); err != nil {
			t.Errorf("%s: %v", algorithm, err)
		}
		if _, isRSA := c.ak.Public.(*rsa.PublicKey); isRSA != (algorithm == goattest.RSA) {
			t.Errorf("%s: the AK is a %T", algorithm, c.ak.Public)
		}
	}
}

func FuzzCertify(f *testing.F) {
	testkit.BeginFuzz(f)
	device := tpmsim.New(f, tpmsim.Options{})
	client := clientOf(f, device)
	for _, algorithm := range []goattest.Algorithm{goattest.RSA, goattest.ECDSA} {
		c := certifiedOf(f, device, client, algorithm)
		f.Add(c.made.CreateAttestation, c.made.CreateSignature, c.made.Public)
		f.Add(c.again.CreateAttestation, c.again.CreateSignature, c.again.Public)
	}
	f.Add([]byte{}, []byte{}, []byte{})
	f.Fuzz(func(t *testing.T, attestation, signature, public []byte) {
		p := goattest.CertificationParameters{Public: public, CreateAttestation: attestation, CreateSignature: signature}
		e, err := CertifyEvidence(p)
		if err != nil {
			return
		}
		back, err := CertificationParameters(e)
		if err != nil { // RSAPSS
			if s, _ := statement.ParseSignature(signature); s == nil || s.Alg != tpm2.TPMAlgRSAPSS {
				t.Fatal(err)
			}
			return
		}
		same(t, p, back)
	})
}
