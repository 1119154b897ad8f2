package goattestation

import (
	"bytes"
	"crypto/x509"
	"os"
	"path/filepath"
	"testing"

	goattest "github.com/google/go-attestation/attest"

	"github.com/nodeattest/nodeattest/attest/tpm/tpmcert"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/internal/testkit/tpmlab"
	"github.com/nodeattest/nodeattest/refusal"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// An EK is the same there and back where go-attestation can make a credential for it, and has the
// identity that the join gives its machine.
func TestEKThereAndBack(t *testing.T) {
	device := tpmsim.Swtpm(t, tpmsim.Options{EKs: []tpmsim.Algorithm{tpmsim.RSA2048, tpmsim.P256, tpmsim.P384, tpmsim.RSA3072}})
	for algorithm, want := range map[tpmsim.Algorithm]refusal.Check{
		tpmsim.RSA2048: "", tpmsim.P256: "", tpmsim.P384: checkValue, tpmsim.RSA3072: checkValue,
	} {
		certificate := testkit.Must(goattest.ParseEKCertificate(device.EKCertificate(algorithm).Raw))
		there := goattest.EK{Public: device.EKPublic(algorithm), Certificate: certificate}
		here, err := EKCertificate(there)
		if err != nil {
			t.Fatal(err)
		}
		bare := testkit.Must(tpmcert.ParseEKPresented(nil, testkit.Must(csr.CanonicalSPKI(there.Public))))
		if here.Identity() != bare.Identity() || !here.Identity().Valid() {
			t.Errorf("%v: identity %s, of the bare key %s", algorithm, here.Identity(), bare.Identity())
		}
		back, err := EK(here)
		if want != "" {
			tpmlab.ExpectCheck(t, err, want)
			continue
		}
		if err != nil || !back.Certificate.Equal(there.Certificate) || !sameKey(back.Public, there.Public) {
			t.Errorf("%v, back: %v", algorithm, err)
		}
	}
}

func TestEKRefusals(t *testing.T) {
	device := tpmsim.New(t, tpmsim.Options{})
	rsaEK, p256 := device.EKCertificate(tpmsim.RSA2048), device.EKPublic(tpmsim.P256)
	for name, c := range map[string]struct {
		ek   goattest.EK
		want refusal.Check
	}{
		"nothing":            {goattest.EK{}, checkValue},
		"no certificate":     {goattest.EK{Public: p256}, checkValue},
		"for another key":    {goattest.EK{Public: p256, Certificate: rsaEK}, checkValue},
		"a made certificate": {goattest.EK{Public: p256, Certificate: &x509.Certificate{PublicKey: p256}}, tpmcert.CheckCertificateEncoding},
	} {
		t.Log(name)
		_, err := EKCertificate(c.ek)
		tpmlab.ExpectCheck(t, err, c.want)
	}
	for _, c := range []*tpmcert.EKCertificate{nil, {}, {PublicKey: p256}} {
		_, err := EK(c)
		tpmlab.ExpectCheck(t, err, checkValue)
	}
}

// FuzzEK: a certificate that go-attestation reads as an EK's either is refused here or has the same
// key, and is the same there and back.
func FuzzEK(f *testing.F) {
	testkit.BeginFuzz(f)
	device := tpmsim.New(f, tpmsim.Options{})
	for _, algorithm := range []tpmsim.Algorithm{tpmsim.RSA2048, tpmsim.P256} {
		f.Add(device.EKCertificate(algorithm).Raw)
		f.Add(append(bytes.Clone(device.EKCertificate(algorithm).Raw), 0xff, 0xff))
	}
	if corpus := os.Getenv("NODEATTEST_CORPUS"); corpus != "" {
		files, err := filepath.Glob(filepath.Join(corpus, "ek-certs/leaf/*-ek-*.der"))
		testkit.NoError(f, err)
		for _, file := range files {
			f.Add(testkit.Must(os.ReadFile(file)))
		}
	}
	f.Fuzz(func(t *testing.T, der []byte) {
		c, err := goattest.ParseEKCertificate(der)
		if err != nil {
			return
		}
		here, err := EKCertificate(goattest.EK{Public: c.PublicKey, Certificate: c})
		if err != nil {
			return
		}
		back, err := EK(here)
		if err != nil {
			return
		}
		if again := testkit.Must(EKCertificate(back)); again.Digest != here.Digest || !back.Certificate.Equal(c) {
			t.Errorf("EK %x is %x there and back", here.Digest, again.Digest)
		}
	})
}
