package tpmsim_test

import (
	"bytes"
	"crypto/x509"
	"testing"

	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// The EKs of the high range are certified at their own indexes and persisted at their
// own handles; the certificate is for the key that the template makes.
func TestHighRangeEKs(t *testing.T) {
	highRange(t, tpmsim.New(t, tpmsim.Options{EKs: []tpmsim.Algorithm{tpmsim.P384}, AKs: []tpmsim.AK{}, PersistEKs: true}),
		tpmsim.P384, tpmsim.EKCertificateIndexP384, tpmsim.EKHandleP384)
	highRange(t, tpmsim.Swtpm(t, tpmsim.Options{EKs: []tpmsim.Algorithm{tpmsim.RSA3072}, AKs: []tpmsim.AK{}, PersistEKs: true}),
		tpmsim.RSA3072, tpmsim.EKCertificateIndexRSA3072, tpmsim.EKHandleRSA3072)
}

func highRange(t *testing.T, tpm *tpmsim.TPM, a tpmsim.Algorithm, index, handle tpm2.TPMHandle) {
	t.Helper()
	public, err := tpm2.ReadPublic{ObjectHandle: handle}.Execute(tpm)
	testkit.NoError(t, err)
	area, err := public.OutPublic.Contents()
	testkit.NoError(t, err)
	if area.NameAlg != tpm2.TPMAlgSHA384 || len(area.AuthPolicy.Buffer) != 48 || !area.ObjectAttributes.UserWithAuth {
		t.Errorf("%v: name algorithm %v, policy of %d bytes", a, area.NameAlg, len(area.AuthPolicy.Buffer))
	}
	key, err := tpm2.Pub(*area)
	testkit.NoError(t, err)
	want, err := x509.MarshalPKIXPublicKey(key)
	testkit.NoError(t, err)
	certificate := tpm.EKCertificate(a)
	if !bytes.Equal(certificate.RawSubjectPublicKeyInfo, want) {
		t.Errorf("%v: the certificate is for another key", a)
	}
	nv, err := tpm2.NVReadPublic{NVIndex: index}.Execute(tpm)
	testkit.NoError(t, err)
	contents, err := nv.NVPublic.Contents()
	testkit.NoError(t, err)
	if int(contents.DataSize) != len(certificate.Raw) {
		t.Errorf("%v: %d bytes in NV, the certificate has %d", a, contents.DataSize, len(certificate.Raw))
	}
}
