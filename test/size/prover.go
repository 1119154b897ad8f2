package main

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"

	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/tpm"
	"github.com/nodeattest/nodeattest/attest/tpm/statement"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/message"
	"github.com/nodeattest/nodeattest/internal/testkit/softak"
	"github.com/nodeattest/nodeattest/oid"
	"github.com/nodeattest/nodeattest/test/vectors/forge"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// softTPM is an attest.Prover whose endorsement key and attestation key are in software, on P-256: its
// evidence is that of a TPM on the road of the EK, without the time that a TPM's commands take.
type softTPM struct {
	ek    *ecdsa.PrivateKey
	spki  []byte   // of the EK
	chain [][]byte // of the EK, leaf first
	ak    *softak.AK
}

// newSoftTPM makes the keys, and has the CA certify the EK.
func newSoftTPM(ca *tpmsim.CA) (t *softTPM, err error) {
	defer forge.Caught(&err)
	key := func() *ecdsa.PrivateKey { return forge.Must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader)) }
	ek := key()
	return &softTPM{ek: ek, spki: forge.Must(csr.CanonicalSPKI(ek.Public())),
		chain: forge.EKChain(ca, ek.Public(), tpmsim.CertificateOptions{}), ak: softak.NewAK(key(), softak.ECDSA)}, nil
}

// identity is the machine's, as an inventory has it.
func (t *softTPM) identity() string { return (&forge.SoftEK{Public: t.ek.Public()}).Identity() }

func (t *softTPM) Provider() string { return tpm.Provider }
func (t *softTPM) Version() int     { return 1 }
func (t *softTPM) Close() error     { return nil }

// Use calls f with the TPM itself: nothing is loaded.
func (t *softTPM) Use(_ context.Context, _ attest.Stage, f func(attest.Session) error) error {
	return f(t)
}

// Present returns the keys.
func (t *softTPM) Present() (*attest.Presented, error) {
	return &attest.Presented{Road: attest.RoadEK, MachineKey: t.spki, AKName: t.ak.Public.Name()}, nil
}

// Hello presents the certificate of the EK, and the AK.
func (t *softTPM) Hello(_ context.Context, h attest.Head) (_ *attest.Evidence, err error) {
	defer forge.Caught(&err)
	hello := message.Hello{Road: message.RoadEK, ClusterID: h.ClusterID, TargetSigner: h.TargetSigner, AKPublic: t.ak.Public.Raw}
	statements := []attest.Statement{{Type: oid.NodeAttestHello, DER: forge.Must(hello.Marshal())}}
	return &attest.Evidence{Statements: statements, Certificates: t.chain}, nil
}

// Open opens a credential as TPM2_ActivateCredential does.
func (t *softTPM) Open(_ context.Context, c *attest.Credential) ([]byte, error) {
	return forge.OpenCredential(t.ek, t.ak.Public.Name(), c)
}

// Answer certifies the key, as one that lives in this TPM.
func (t *softTPM) Answer(_ context.Context, key crypto.Signer, c *attest.Challenged) (_ *attest.Evidence, err error) {
	defer forge.Caught(&err)
	public := softak.PublicArea(key.Public(), softak.ResidentAttributes, softak.NoScheme)
	parent := statement.QualifiedNameOfPrimary(tpm2.TPMRHOwner, t.ak.Public.Name()) // any will do
	said := forge.Must((&statement.Attestation{
		Type: tpm2.TPMSTAttestCertify, QualifiedSigner: t.ak.Primary(), ExtraData: c.QualifyingData("certify"),
		Clock: 600000, ResetCount: 1, Safe: true,
		Certified: &statement.CertifyInfo{Name: public.Name(), QualifiedName: statement.QualifiedName(parent, public.Name())},
	}).Marshal())
	certify := forge.Must(statement.MarshalTCGAttestCertify(&statement.CertifyEvidence{
		Attest: said, Signature: forge.Must(t.ak.Sign(softak.ECDSA, said).Marshal()), Public: public.Raw,
	}))
	proof := forge.Must((&message.Proof{Binding: c.Binding(), AKPublic: t.ak.Public.Raw}).Marshal())
	statements := []attest.Statement{{Type: oid.TCGAttestTPMCertify, DER: certify}, {Type: oid.NodeAttestProof, DER: proof}}
	return &attest.Evidence{Statements: statements, Certificates: t.chain}, nil
}
