package main

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/membership"
	"github.com/nodeattest/nodeattest/attest/tpm"
	"github.com/nodeattest/nodeattest/attest/tpm/tpmcert"
	"github.com/nodeattest/nodeattest/cloud/azure"
	"github.com/nodeattest/nodeattest/cloud/ec2"
	"github.com/nodeattest/nodeattest/cloud/gce"
	"github.com/nodeattest/nodeattest/cloud/nitro"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/jws"
)

// controlPlane challenges, verifies and signs, for machines of every kind.
type controlPlane struct {
	clusterID string
	config    attest.VerifierConfig
	verifier  *attest.Verifier
	ca        *csr.CA
}

// newControlPlane returns a control plane that knows the machines of the world: what each is,
// which node it may be, and by which kind of evidence it is known. A machine that is listed by
// its TPM is not admitted on its cloud's word, which anything on it could ask for.
func newControlPlane(w *world) *controlPlane {
	kinds := newKinds(w)
	var signers []string
	for _, k := range kinds {
		signers = append(signers, must(csr.PurposeClient.SignerName(k.Describe().Provider)))
	}
	var members []membership.Member
	for _, m := range w.machines {
		members = append(members, membership.Member{NodeName: m.nodeName, Machine: m.identity, Provider: m.provider})
	}
	list := must(membership.NewStaticList(members))
	p := &controlPlane{clusterID: "quickstart"}
	p.config = attest.VerifierConfig{
		KeyRing:    must(attest.NewStaticKeyRing(attest.NewRingKey(time.Now()))),
		Kinds:      kinds,
		Policy:     &csr.Policy{ClusterIDs: []string{p.clusterID}, SignerNames: signers, Machines: list.Machine},
		Authorizer: list,
	}
	p.verifier = must(attest.NewVerifier(p.config))
	p.ca = newClusterCA(p.clusterID, signers)
	return p
}

// newKinds says whose word counts, for each kind of evidence.
func newKinds(w *world) []attest.Kind {
	roots := []*x509.Certificate{w.vendor.Root()}
	eks := must(tpmcert.NewEKVerifier(tpmcert.EKVerifierConfig{Issuers: []tpmcert.EKIssuer{{Roots: roots, Profile: tpmcert.EKProfileTCG()}}}))
	byTPM := must(tpm.NewKind(tpm.KindConfig{EKs: eks, AKIssuers: []tpmcert.Issuer{
		{Roots: roots, Profile: tpmcert.ProfileGoogle()},
		{Roots: []*x509.Certificate{w.oem.Root()}, Profile: tpmcert.ProfileOEM(bought)},
	}}))

	// Google's keys; outside tests jws.NewRemoteKeySet fetches them from gce.KeysURL.
	keys := must(jws.NewStaticKeySet(w.google.Keys()...))
	byGCE := must(gce.NewKind(gce.KindConfig{Keys: keys, Projects: []string{googleProject}}))

	azureVerifier := must(azure.NewVerifier(azure.VerifierConfig{
		Roots:         []*x509.Certificate{w.azure.Root()},
		Intermediates: []*x509.Certificate{w.azure.Intermediate()},
	}))
	byAzure := must(azure.NewKind(azure.KindConfig{Verifier: azureVerifier, Subscriptions: []string{azureSubscription}}))

	nitroVerifier := must(nitro.NewVerifier(nitro.VerifierConfig{Roots: []*x509.Certificate{w.nitro.Root()}}))
	byNitroTPM := must(nitro.NewKind(nitro.KindConfig{Verifier: nitroVerifier}))
	byRole := must(ec2.NewKind(ec2.KindConfig{Certificates: w.ec2.Certificates(), Roles: []string{"arn:aws:iam::123456789012:role/node"}, Transport: w.ec2}))
	return []attest.Kind{byTPM, byGCE, byAzure, byNitroTPM, byRole}
}

// newClusterCA makes the cluster's CA, valid for a day.
func newClusterCA(clusterID string, signers []string) *csr.CA {
	key := newKey()
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "quickstart cluster CA"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		KeyUsage: x509.KeyUsageCertSign, BasicConstraintsValid: true, IsCA: true}
	der := must(x509.CreateCertificate(rand.Reader, template, template, key.Public(), key))
	cert := must(x509.ParseCertificate(der))
	return must(csr.NewCA([]*x509.Certificate{cert}, key, csr.CAConfig{ClusterIDs: []string{clusterID}, SignerNames: signers}))
}

func newKey() crypto.Signer { return must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader)) }
