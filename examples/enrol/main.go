// Enrol gives the attestation key of a machine a certificate from the operator's own CA, and
// joins a cluster with it: this lets a fleet of bare metal, or of virtual machines with
// swtpm, take the road of the AK without a cloud. The TPM's manufacturer has certified the
// EK, and the operator knows which machines were bought:
//
//	enrol -tpm /run/swtpm.sock -maker maker.pem -machine ek:sha256:5f1c…
//
// The CA's side and the cluster's side are also in this program. Instead of going through
// an API server, or a service of your own, the requests are passed from function to
// function. The certificate stays in the TPM's NV memory, next to the key that it is for.
package main

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"flag"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/google/go-tpm/tpm2/transport"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/membership"
	"github.com/nodeattest/nodeattest/attest/tpm"
	"github.com/nodeattest/nodeattest/attest/tpm/tpmcert"
	"github.com/nodeattest/nodeattest/attest/tpm/tpmkey"
	"github.com/nodeattest/nodeattest/csr"
)

// node is the machine's name, both at the CA and in the cluster.
const node = "node-1"

// akSource is the machine's AK: it is recreated for each use, as the same key each time. Its
// certificate goes into an NV index that the owner may assign.
var akSource = tpm.AKSource{Template: tpm.AKTemplateECDSAP256(), CertificateIndex: 0x01800a00}

func main() {
	device := flag.String("tpm", "/dev/tpmrm0", "the TPM: a device, or a Unix socket")
	maker := flag.String("maker", "", "PEM file: the CAs of the TPM's maker, down to the one that certified the EK")
	machine := flag.String("machine", "", "the EK of the machine that was bought: ek:sha256:…")
	log.SetFlags(0)
	log.SetPrefix("enrol: ")
	flag.Parse()
	ctx, shared := context.Background(), tpmkey.Share(must(tpm.OpenTPM(*device)))
	ca, caKey := newCA()
	makersCAs := must(tpmcert.ParseCertificatesPEM(must(os.ReadFile(*maker))))
	certified := enrol(ctx, shared, makersCAs, attest.Identity(*machine), ca, caKey)
	check(tpmkey.WriteNVCertificate(ctx, shared, akSource.CertificateIndex, certified.Chain[0].Raw, tpmkey.NVCertificateOptions{}))
	fmt.Println("enrolled", *machine)
	fmt.Println("certified", certified.Machine)

	// The cluster has never seen the EK. It trusts the CA.
	kind := must(tpm.TrustAKs([]*x509.Certificate{ca}, tpmcert.ProfileTCG()))
	result := join(ctx, shared, tpm.ProverOptions{}, "the cluster", kind, certified.Machine)
	fmt.Println("joined as", result.NodeName, "on road", result.Road)
	for _, fact := range result.Facts() {
		fmt.Println(" ", fact)
	}
}

// enrol has the machine prove its AK to the CA. This is a join on the road of the EK, with
// the CA instead of a cluster.
func enrol(ctx context.Context, device transport.TPM, makersCAs []*x509.Certificate, machine attest.Identity, ca *x509.Certificate, caKey crypto.Signer) *tpmcert.AKCertificate {
	eks := must(tpmcert.NewEKVerifier(tpmcert.EKVerifierConfig{Issuers: []tpmcert.EKIssuer{{Roots: makersCAs, Profile: tpmcert.EKProfileTCG()}}}))
	ek := tpm.EKRSA2048()
	result := join(ctx, device, tpm.ProverOptions{EK: &ek}, must(attest.ClusterID(ca)), must(tpm.NewKind(tpm.KindConfig{EKs: eks})), machine)
	template := must(tpm.EnrolledAK(result, ca))
	template.NotBefore = time.Now().Add(-csr.Backdate)
	template.NotAfter = template.NotBefore.AddDate(0, 1, 0)
	return must(tpmcert.CreateAKCertificate(ctx, template, ca, caKey))
}

// join is the join of the one machine that the other side expects.
func join(ctx context.Context, device transport.TPM, o tpm.ProverOptions, clusterID string, kind attest.Kind, machine attest.Identity) *attest.Result {
	list := must(membership.NewStaticList([]membership.Member{{NodeName: node, Machine: machine}}))
	verifier := must(attest.NewVerifier(attest.VerifierConfig{
		KeyRing:    must(attest.NewStaticKeyRing(attest.NewRingKey(time.Now()))),
		Kinds:      []attest.Kind{kind},
		Authorizer: list,
		Policy:     &csr.Policy{ClusterIDs: []string{clusterID}, SignerNames: []string{csr.SignerClientTPM}, Machines: list.Machine},
	}))
	attester := must(attest.NewAttester(must(tpm.NewProver(device, akSource, o))))
	key := must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	subject := attest.Subject{SignerName: csr.SignerClientTPM, ClusterID: clusterID,
		Request: must(csr.Create(csr.PurposeClient, key, node, csr.CreateOptions{}))}
	hello := filed(must(attester.Hello(ctx, subject)))
	challenge := must(verifier.Challenge(ctx, hello))
	answer := filed(must(attester.Answer(ctx, challenge, key, subject)))
	return must(verifier.Verify(ctx, answer))
}

// filed returns the request as the other side records it, with the time and the
// authenticated user, here the holder of a token.
func filed(spec *csr.Spec) *csr.Request {
	by := csr.User{Username: csr.BootstrapUserPrefix + "abcdef", Groups: []string{csr.BootstrappersGroup, csr.AuthenticatedGroup}}
	return csr.Filed(spec, by, time.Now())
}

// newCA makes a CA that is valid for a year. Keep the key of a real one out of reach.
func newCA() (*x509.Certificate, crypto.Signer) {
	key := must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	template := &x509.Certificate{Subject: pkix.Name{CommonName: "AK CA"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().AddDate(1, 0, 0),
		KeyUsage: x509.KeyUsageCertSign, BasicConstraintsValid: true, IsCA: true}
	der := must(x509.CreateCertificate(rand.Reader, template, template, key.Public(), key))
	return must(x509.ParseCertificate(der)), key
}

func must[T any](v T, err error) T {
	check(err)
	return v
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
