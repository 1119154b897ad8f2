package tpm

import (
	"crypto/ecdsa"
	"math/big"
	"testing"

	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/internal/tpmop"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// certifyLikeGKE has a TPM do what GKE's node did: load the software key, and certify
// it with the AK and no qualifying data. It returns the signed bytes and the bare
// signature.
func certifyLikeGKE(t testing.TB, tpm *tpmsim.TPM, key *ecdsa.PrivateKey) (attest, signature []byte) {
	t.Helper()
	h := &tpmop.Handles{TPM: tpm}
	source := GCERSA()
	ak, err := loadAK(t.Context(), h, &source, nil)
	if err != nil {
		t.Fatal(err)
	}
	point, _ := key.PublicKey.Bytes()
	private, _ := key.Bytes()
	strip := func(b []byte) []byte { return new(big.Int).SetBytes(b).Bytes() }
	loaded, err := tpm2.LoadExternal{Hierarchy: tpm2.TPMRHNull,
		InPrivate: tpm2.New2B(tpm2.TPMTSensitive{SensitiveType: tpm2.TPMAlgECC,
			Sensitive: tpm2.NewTPMUSensitiveComposite(tpm2.TPMAlgECC, &tpm2.TPM2BECCParameter{Buffer: private})}),
		InPublic: tpm2.New2B(tpm2.TPMTPublic{Type: tpm2.TPMAlgECC, NameAlg: tpm2.TPMAlgSHA256,
			ObjectAttributes: tpm2.TPMAObject{UserWithAuth: true, SignEncrypt: true},
			Parameters: tpm2.NewTPMUPublicParms(tpm2.TPMAlgECC, &tpm2.TPMSECCParms{CurveID: tpm2.TPMECCNistP256,
				Scheme: tpm2.TPMTECCScheme{Scheme: tpm2.TPMAlgECDSA, Details: tpm2.NewTPMUAsymScheme(tpm2.TPMAlgECDSA, &tpm2.TPMSSigSchemeECDSA{HashAlg: tpm2.TPMAlgSHA256})}}),
			Unique: tpm2.NewTPMUPublicID(tpm2.TPMAlgECC, &tpm2.TPMSECCPoint{X: tpm2.TPM2BECCParameter{Buffer: strip(point[1:33])}, Y: tpm2.TPM2BECCParameter{Buffer: strip(point[33:])}})}),
	}.Execute(tpm)
	if err != nil {
		t.Fatal(err)
	}
	rsp, err := tpm2.Certify{
		ObjectHandle: tpm2.AuthHandle{Handle: loaded.ObjectHandle, Name: loaded.Name, Auth: tpm2.PasswordAuth(nil)},
		SignHandle:   tpm2.AuthHandle{Handle: ak.Handle, Name: tpm2.TPM2BName{Buffer: ak.Name}, Auth: tpm2.PasswordAuth(nil)},
		InScheme:     tpm2.TPMTSigScheme{Scheme: tpm2.TPMAlgNull},
	}.Execute(tpm)
	if err != nil {
		t.Fatal(err)
	}
	sig, err := rsp.Signature.Signature.RSASSA()
	if err != nil {
		t.Fatal(err)
	}
	if err := tpmop.FlushContext(tpm, loaded.ObjectHandle); err != nil {
		t.Error(err)
	}
	if err := h.FlushAll(); err != nil {
		t.Error(err)
	}
	return rsp.CertifyInfo.Bytes(), sig.Sig.Buffer
}
