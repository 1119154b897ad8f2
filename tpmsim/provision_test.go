package tpmsim_test

import (
	"bytes"
	"crypto"
	"crypto/rsa"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"testing"

	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/refusal"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// sameKey checks that a public area and a certificate hold one key.
func sameKey(t *testing.T, public *tpm2.TPMTPublic, want crypto.PublicKey) {
	t.Helper()
	got, err := tpm2.Pub(*public)
	testkit.NoError(t, err)
	if !got.(interface{ Equal(crypto.PublicKey) bool }).Equal(want) {
		t.Errorf("the TPM makes key %v, the certificate holds %v", got, want)
	}
}

func TestDefaultProvisioning(t *testing.T) {
	onBoth(t, tpmsim.Options{}, func(t *testing.T, tpm *tpmsim.TPM) {
		ca := tpm.CA()
		for index, cert := range map[tpm2.TPMHandle]*x509.Certificate{
			0x01c00002: tpm.EKCertificate(tpmsim.RSA2048),
			0x01c0000a: tpm.EKCertificate(tpmsim.P256),
			0x01c10000: tpm.AKCertificate(tpmsim.RSA2048),
		} {
			if !bytes.Equal(readNV(t, tpm, index), cert.Raw) {
				t.Errorf("NV index %#x does not hold the certificate", uint32(index))
			}
			verifyChain(t, ca, cert)
		}
		sameKey(t, createPrimary(t, tpm, tpm2.Marshal(tpm2.RSAEKTemplate)), tpm.EKCertificate(tpmsim.RSA2048).PublicKey)
		sameKey(t, createPrimary(t, tpm, tpm2.Marshal(tpm2.ECCEKTemplate)), tpm.EKCertificate(tpmsim.P256).PublicKey)

		template := readNV(t, tpm, 0x01c10001)
		if got := binary.BigEndian.Uint32(template[4:8]); got != 0x50072 {
			t.Errorf("attributes of the AK template %#x, want 0x50072", got)
		}
		if !bytes.Equal(template, tpm.AKTemplate(tpmsim.RSA2048)) {
			t.Error("AKTemplate is not what NV holds")
		}
		sameKey(t, createPrimary(t, tpm, template), tpm.AKCertificate(tpmsim.RSA2048).PublicKey)

		if _, err := (tpm2.NVReadPublic{NVIndex: tpmsim.AKTemplateIndexECC}).Execute(tpm); !errors.Is(err, tpm2.TPMRCHandle) {
			t.Errorf("index of the ECC AK: %v, want TPM_RC_HANDLE", err)
		}
		if tpm.AKCertificate(tpmsim.P256) != nil || tpm.EKPublic(tpmsim.P384) != nil || tpm.AKTemplate(tpmsim.P256) != nil {
			t.Error("there are keys that were not provisioned")
		}
		if h, err := tpmsim.LoadedHandles(tpm); err != nil || len(h) != 0 {
			t.Errorf("provisioning left handles %v, %v", h, err)
		}
	})
}

func TestEKTemplatesAreGoTPMs(t *testing.T) {
	tpm := simulator(t, tpmsim.Options{})
	if !bytes.Equal(tpm.EKTemplate(tpmsim.RSA2048), tpm2.Marshal(tpm2.RSAEKTemplate)) {
		t.Error("RSA EK template is not go-tpm's L-1")
	}
	if !bytes.Equal(tpm.EKTemplate(tpmsim.P256), tpm2.Marshal(tpm2.ECCEKTemplate)) {
		t.Error("ECC EK template is not go-tpm's L-2")
	}
}

func TestEveryAKAlgorithm(t *testing.T) {
	opts := tpmsim.Options{EKs: []tpmsim.Algorithm{}, AKs: []tpmsim.AK{
		{},
		{Algorithm: tpmsim.P256},
		{Algorithm: tpmsim.P384, TemplateIndex: 0x01c10013, CertificateIndex: 0x01c10012},
	}}
	onBoth(t, opts, func(t *testing.T, tpm *tpmsim.TPM) {
		for alg, at := range map[tpmsim.Algorithm]tpm2.TPMHandle{
			tpmsim.RSA2048: 0x01c10000, tpmsim.P256: 0x01c10002, tpmsim.P384: 0x01c10012,
		} {
			cert, err := x509.ParseCertificate(readNV(t, tpm, at))
			testkit.NoError(t, err)
			if !cert.Equal(tpm.AKCertificate(alg)) {
				t.Errorf("%v: another certificate in NV", alg)
			}
			sameKey(t, createPrimary(t, tpm, readNV(t, tpm, at+1)), cert.PublicKey)
		}
	})
}

func TestRSA3072(t *testing.T) {
	opts := tpmsim.Options{EKs: []tpmsim.Algorithm{}, AKs: []tpmsim.AK{{Algorithm: tpmsim.RSA3072, NonceIndex: 0x01c10020}}}
	t.Run("swtpm", func(t *testing.T) {
		tpm := tpmsim.Swtpm(t, opts)
		if bits := tpm.AKPublic(tpmsim.RSA3072).(*rsa.PublicKey).N.BitLen(); bits != 3072 {
			t.Errorf("AK of %d bits", bits)
		}
		sameKey(t, createPrimary(t, tpm, tpm.AKTemplate(tpmsim.RSA3072)), tpm.AKCertificate(tpmsim.RSA3072).PublicKey)
	})
	t.Run("simulator", func(t *testing.T) {
		needCGO(t)
		if _, err := tpmsim.Open(opts); !errors.Is(err, tpm2.TPMRCValue) {
			t.Errorf("Open: %v, want the simulator's TPM_RC_VALUE", err)
		}
		tpmsim.New(t, bare()) // the failure closed it
	})
}

func TestNonceFillsUnique(t *testing.T) {
	opts := tpmsim.Options{EKs: []tpmsim.Algorithm{}, AKs: []tpmsim.AK{
		{NonceIndex: 0x01c10020},
		{Algorithm: tpmsim.P256, NonceIndex: 0x01c10021},
	}}
	onBoth(t, opts, func(t *testing.T, tpm *tpmsim.TPM) {
		nonce := readNV(t, tpm, 0x01c10020)
		if len(nonce) != 32 || bytes.Equal(nonce, readNV(t, tpm, 0x01c10021)) {
			t.Errorf("nonce in NV %x", nonce)
		}
		// RSA: the modulus, the last 256 bytes of the template.
		template := readNV(t, tpm, tpmsim.AKTemplateIndexRSA)
		if !bytes.Equal(template[len(template)-256:], make([]byte, 256)) {
			t.Errorf("unique field of the template in NV is not 256 zeros: %x", template)
		}
		plain := createPrimary(t, tpm, template)
		copy(template[len(template)-256:], nonce)
		if !bytes.Equal(template, tpm.AKTemplate(tpmsim.RSA2048)) {
			t.Error("AKTemplate is not the NV template with the nonce")
		}
		sameKey(t, createPrimary(t, tpm, template), tpm.AKCertificate(tpmsim.RSA2048).PublicKey)
		if pub, _ := tpm2.Pub(*plain); pub.(*rsa.PublicKey).Equal(tpm.AKPublic(tpmsim.RSA2048)) {
			t.Error("the nonce makes no difference")
		}
		// ECC: X, before the size of Y and Y.
		template, nonce = readNV(t, tpm, tpmsim.AKTemplateIndexECC), readNV(t, tpm, 0x01c10021)
		copy(template[len(template)-32-2-32:], nonce)
		sameKey(t, createPrimary(t, tpm, template), tpm.AKCertificate(tpmsim.P256).PublicKey)
	})
}

func TestWriteNV(t *testing.T) {
	onBoth(t, bare(), func(t *testing.T, tpm *tpmsim.TPM) {
		const index = 0x01c10042
		for _, n := range []int{1, 1023, 1024, 1025, 2048, 7} { // each replaces the one before
			data := bytes.Repeat([]byte{byte(n), 0x5a}, n)[:n]
			if err := tpm.WriteNV(index, data); err != nil {
				t.Fatalf("%d bytes: %v", n, err)
			}
			if got := readNV(t, tpm, index); !bytes.Equal(got, data) {
				t.Errorf("%d bytes: read back %x", n, got)
			}
		}
		for _, n := range []int{0, 2049} {
			if err := tpm.WriteNV(index, make([]byte, n)); !errors.Is(err, refusal.CheckConfig) {
				t.Errorf("%d bytes: %v, want ErrOptions", n, err)
			}
		}
		for range 2 { // the second time it is gone already
			if err := tpm.DeleteNV(index); err != nil {
				t.Errorf("DeleteNV: %v", err)
			}
		}
		if err := tpm.WriteNV(0x81000001, []byte{1}); err == nil {
			t.Error("WriteNV at a handle that is no NV index succeeded")
		}
	})
}

// The platform's provisioning survives TPM2_Clear by the owner, and the owner
// cannot delete it.
func TestProvisioningSurvivesTheOwner(t *testing.T) {
	onBoth(t, tpmsim.Options{}, func(t *testing.T, tpm *tpmsim.TPM) {
		name := tpm2.TPM2BName{}
		if rsp, err := (tpm2.NVReadPublic{NVIndex: tpmsim.AKTemplateIndexRSA}).Execute(tpm); err != nil {
			t.Fatal(err)
		} else {
			name = rsp.NVName
		}
		_, err := tpm2.NVUndefineSpace{
			AuthHandle: tpm2.AuthHandle{Handle: tpm2.TPMRHOwner, Auth: tpm2.PasswordAuth(nil)},
			NVIndex:    tpm2.NamedHandle{Handle: tpmsim.AKTemplateIndexRSA, Name: name},
		}.Execute(tpm)
		if err == nil {
			t.Error("the owner deleted the AK template")
		}
		if _, err := (tpm2.Clear{AuthHandle: tpm2.AuthHandle{Handle: tpm2.TPMRHLockout, Auth: tpm2.PasswordAuth(nil)}}).Execute(tpm); err != nil {
			t.Fatal(err)
		}
		sameKey(t, createPrimary(t, tpm, readNV(t, tpm, tpmsim.AKTemplateIndexRSA)), tpm.AKCertificate(tpmsim.RSA2048).PublicKey)
	})
}

func TestCertifyAK(t *testing.T) {
	tpm := simulator(t, tpmsim.Options{EKs: []tpmsim.Algorithm{}, Instance: tpmsim.DefaultInstance()})
	cert, err := tpm.CertifyAK(tpm.AKPublic(tpmsim.RSA2048))
	testkit.NoError(t, err)
	verifyChain(t, tpm.CA(), cert)
	if want := "4242424242424242424"; cert.Subject.CommonName != want {
		t.Errorf("subject %v, want CN %s", cert.Subject, want)
	}
}
