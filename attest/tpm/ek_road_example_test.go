package tpm_test

import (
	"context"
	"crypto/x509"
	"fmt"
	"log"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/attesttest"
	tpmkind "github.com/nodeattest/nodeattest/attest/tpm"
	"github.com/nodeattest/nodeattest/attest/tpm/tpmcert"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// A node without an AK certificate goes the road of its EK: the control plane trusts the TPM's
// maker and knows the machine's EK, and the credential that the TPM opened proves the AK.
func ExampleKindConfig_roadEK() {
	ctx := context.Background()
	device, err := tpmsim.Open(tpmsim.Options{}) // on a node: linuxtpm.Open("/dev/tpmrm0")
	if err != nil {
		log.Fatal(err)
	}
	defer device.Close()
	maker := device.CA()

	// The node.
	ek := tpmkind.EKP256()
	ak := tpmkind.AKSource{Template: tpmkind.AKTemplateECDSAP256()}
	prover, err := tpmkind.NewProver(device, ak, tpmkind.ProverOptions{EK: &ek, Intermediates: [][]byte{maker.EKIntermediate().Raw}})
	if err != nil {
		log.Fatal(err)
	}
	attester, err := attest.NewAttester(prover)
	if err != nil {
		log.Fatal(err)
	}
	// The rest of a node that the example does not show: its request and its key.
	node, err := attesttest.OpenNode(attesttest.NodeOptions{TPM: device})
	if err != nil {
		log.Fatal(err)
	}
	defer node.Close()
	node.Attester = attester

	// The control plane.
	eks, err := tpmcert.NewEKVerifier(tpmcert.EKVerifierConfig{Issuers: []tpmcert.EKIssuer{
		{Roots: []*x509.Certificate{maker.Root()}, Profile: tpmcert.EKProfileTCG()},
	}})
	if err != nil {
		log.Fatal(err)
	}
	known, err := tpmcert.ParseEK(device.EKCertificate(tpmsim.P256).Raw)
	if err != nil {
		log.Fatal(err)
	}
	ring, err := attest.NewStaticKeyRing(attest.NewRingKey(time.Now()))
	if err != nil {
		log.Fatal(err)
	}
	kind, err := tpmkind.NewKind(tpmkind.KindConfig{EKs: eks})
	if err != nil {
		log.Fatal(err)
	}
	verifier, err := attest.NewVerifier(attest.VerifierConfig{
		KeyRing: ring,
		Kinds:   []attest.Kind{kind},
		Policy: &csr.Policy{ClusterIDs: []string{attesttest.ClusterID}, SignerNames: []string{csr.SignerClientTPM}, Machines: func(context.Context, csr.Question) (*csr.Machine, error) {
			return &csr.Machine{Name: "machine-1", NodeName: attesttest.NodeName, ProviderID: attesttest.ProviderID, BootstrapReady: true}, nil
		}},
		Authorizer: attest.AuthorizerFunc(func(_ context.Context, r *attest.Result) (*attest.Authorization, error) {
			if r.Machine != known.Identity() {
				return nil, attest.NotMember("another machine")
			}
			a := r.Admit(attesttest.NodeName)
			a.ProviderID = attesttest.ProviderID
			return a, nil
		}),
	})
	if err != nil {
		log.Fatal(err)
	}

	hello, err := node.Hello(ctx, time.Now())
	if err != nil {
		log.Fatal(err)
	}
	challenge, err := verifier.Challenge(ctx, hello)
	if err != nil {
		log.Fatal(err)
	}
	answer, err := node.Answer(ctx, challenge, time.Now())
	if err != nil {
		log.Fatal(err)
	}
	result, err := verifier.Verify(ctx, answer)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(result.Road, result.Machine == known.Identity(), tpmkind.DetailsOf(result).EK.Source)
	for _, f := range result.Facts() {
		if f.Name == "restricted AK" {
			fmt.Println(f.Standing, f.Name)
		}
	}
	// Output:
	// ek true certificate
	// proven restricted AK
}

// The EKs that a TPM's maker certifies are in known places.
func ExampleEKOrigin() {
	for _, ek := range []tpmkind.EKOrigin{tpmkind.EKRSA2048(), tpmkind.EKP256(), tpmkind.EKHigh(3)} {
		fmt.Printf("certificate 0x%08x\n", uint32(ek.CertificateIndex))
	}
	// Output:
	// certificate 0x01c00002
	// certificate 0x01c0000a
	// certificate 0x01c00016
}
