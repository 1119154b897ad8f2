// Quickstart is a node's way into a cluster, in one program that needs no network:
// a simulated TPM certifies a kubelet's key, the proof travels in the certificate
// request, and the control plane challenges, verifies and issues the certificate. Then
// the same control plane is given what must be refused.
//
//	go run ./examples/quickstart
//
// This file is the story, from top to bottom: the two sides as your own program would have
// them, the join, the attacks. What stands in for the outside world, and the printing, is in
// world.go. Package tpmsim is the machine's TPM and the cloud that certified it.
package main

import (
	"bytes"
	"context"
	"crypto"
	"crypto/x509"
	"fmt"
	"os"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/membership"
	"github.com/nodeattest/nodeattest/attest/tpm"
	"github.com/nodeattest/nodeattest/attest/tpm/tpmcert"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/refusal"
	"github.com/nodeattest/nodeattest/tpmsim"
)

func main() {
	if err := run(context.Background(), &story{w: os.Stdout}); err != nil {
		fmt.Fprintln(os.Stderr, "quickstart:", err)
		os.Exit(1)
	}
}

// run tells the story. It returns an error if a step fails, or if an attack is not
// refused by exactly the check that is meant for it.
func run(ctx context.Context, s *story) (err error) {
	defer caught(&err)
	s.chapter("A node joins a cluster")
	cloud := must(tpmsim.NewCA(tpmsim.CAOptions{Name: "Example Cloud"}))
	simulated := must(tpmsim.Open(tpmsim.Options{CA: cloud, Instance: instance(1)}))
	defer func() { _ = simulated.Close() }()
	akCert := simulated.AKCertificate(tpmsim.RSA2048)
	s.step("the cloud starts a machine with a TPM",
		"AK", "its template and certificate are in the TPM's NV memory",
		"machine", akCert.Subject.String(),
		"issuer", akCert.Issuer.String())

	machines := []membership.Member{
		{NodeName: "node-1", Machine: "gce:example-project/4711000000000000001", ProviderID: providerID("node-1")},
		{NodeName: "node-2", Machine: "gce:example-project/4711000000000000002", ProviderID: providerID("node-2")},
	}
	plane := newControlPlane(cloud.Root(), machines)
	s.step("the control plane is configured",
		"cluster", plane.config.ClusterIDs[0],
		"trusts", cloud.Root().Subject.String(),
		"expects", "node-1 on machine "+string(machines[0].Machine),
		"", "node-2 on machine "+string(machines[1].Machine))

	n := newNode(simulated, "node-1", plane)
	s.step("the node makes a kubelet key and a certificate request",
		"subject", "CN=system:node:node-1,O=system:nodes",
		"claims", "provider ID "+providerID("node-1"))
	answer, issued := join(ctx, s, n, plane)

	s.chapter("Attacks with the evidence of node-1, which is no secret")
	attackWithEvidence(ctx, s, plane, answer)
	s.chapter("Attacks with a TPM")
	attackWithTPM(ctx, s, plane, "the TPM of node-1 asks to be node-2", simulated, "node-2", attest.CheckMembership)
	check(simulated.Close()) // a process has only one simulator
	attackWithOtherTPMs(ctx, s, plane, cloud)
	s.end(issued)
	return s.err
}

// window is how long a challenge can be answered.
const window = 10 * time.Minute

// controlPlane challenges, verifies and signs.
type controlPlane struct {
	config   attest.VerifierConfig
	verifier *attest.Verifier
	ca       *csr.CA
}

// newControlPlane returns a control plane that trusts the issuer's root and knows the
// machines. A real list is the Cluster API's Machines, or the cloud's instances.
func newControlPlane(issuerRoot *x509.Certificate, machines []membership.Member) *controlPlane {
	caCert, caKey := selfSigned("quickstart cluster CA")
	config := attest.VerifierConfig{
		ClusterIDs: []string{must(attest.ClusterID(caCert))}, // both sides are configured with it
		KeyRing:    must(attest.NewStaticKeyRing(attest.NewRingKey(time.Now()))),
		// Whose word on a TPM counts?
		Kinds: []attest.Kind{must(tpm.NewKind(tpm.KindConfig{
			AKIssuers: []tpmcert.Issuer{{Roots: []*x509.Certificate{issuerRoot}, Profile: tpmcert.ProfileGoogle()}},
		}))},
		// Is there a machine for this node, and may the node ask for such a certificate?
		Policy: &csr.Policy{SignerNames: []string{csr.SignerClientTPM}, Machines: inventory(machines)},
		// May this machine be this node? Trust in the issuer alone would admit every machine
		// in the cloud. The list is checked at the hello, and again when the answer has passed
		// every other check.
		Authorizer: must(membership.NewStaticList(machines)),
		Window:     window,
	}
	return &controlPlane{config: config, verifier: must(attest.NewVerifier(config)),
		ca: must(csr.NewCA([]*x509.Certificate{caCert}, caKey, csr.CAConfig{SignerNames: []string{csr.SignerClientTPM}}))}
}

// inventory answers the node policy from the list.
func inventory(machines []membership.Member) func(context.Context, string, *csr.Request) (*csr.Machine, error) {
	return func(_ context.Context, q csr.Question) (*csr.Machine, error) {
		nodeName := q.NodeName
		for _, m := range machines {
			if m.NodeName == nodeName {
				return &csr.Machine{Name: nodeName, NodeName: nodeName, ProviderID: m.ProviderID, BootstrapReady: true}, nil
			}
		}
		return nil, csr.ErrNoMachine
	}
}

// node is a machine that wants to be a node: its TPM, and a kubelet's key.
type node struct {
	attester *attest.Attester
	key      crypto.Signer
	subject  attest.Subject
}

// newNode makes the key and the certificate request. The AK is the one whose template and
// certificate the cloud left in the TPM. A key from tpmkey.Create never leaves the TPM.
func newNode(simulated *tpmsim.TPM, name string, plane *controlPlane) *node {
	options := tpm.ProverOptions{Intermediates: [][]byte{simulated.CA().AKIntermediate().Raw}}
	key := newKey()
	return &node{
		attester: must(attest.NewAttester(must(tpm.NewProver(simulated, tpm.GCERSA(), options)))),
		key:      key,
		subject: attest.Subject{
			Request:    must(csr.Create(csr.PurposeClient, key, name, csr.CreateOptions{ProviderID: providerID(name)})),
			SignerName: csr.SignerClientTPM,
			ClusterID:  plane.config.ClusterIDs[0],
		},
	}
}

// join is the way in: hello, challenge, answer, verification, certificate. It also returns
// the answer as it was filed, for the attacks.
func join(ctx context.Context, s *story, n *node, plane *controlPlane) (*csr.Request, *csr.Issued) {
	hello := file(n.attester.Hello(ctx, n.subject))
	s.step("hello, from the node",
		"carries", fmt.Sprintf("the request, the AK and its certificates: %d bytes", len(hello.Spec.Request)))

	challenge := must(plane.verifier.Challenge(ctx, hello))
	s.step("challenge, from the control plane",
		"checked", "node policy, request signature, AK, certificate chain, membership",
		"binds", "cluster, signer, requester, AK and request, for "+window.String())

	answer := file(n.attester.Answer(ctx, challenge, n.key, n.subject))
	s.step("answer, from the node",
		"checked", "that the challenge is for its own cluster, signer, AK and request",
		"carries", fmt.Sprintf("the TPM's statement on the kubelet's key: %d bytes", len(answer.Spec.Request)))

	result := must(plane.verifier.Verify(ctx, answer))
	details := []string{"checked", "all of the above again, the challenge's key and times, the TPM's statement"}
	for _, fact := range result.Facts() {
		details = append(details, string(fact.Standing), fact.Name+": "+fact.Value)
	}
	s.step("verification, by the control plane", details...)

	issued := must(plane.ca.Issue(ctx, result.Attested()))
	s.step("certificate, from the cluster's CA",
		"subject", "made anew; SANs and provider ID only as vouched for")
	return answer, issued
}

// attackWithEvidence is what an attacker who has read node-1's answer may try.
func attackWithEvidence(ctx context.Context, s *story, plane *controlPlane, answer *csr.Request) {
	flipEveryByte(ctx, s, plane, answer)
	bundle := must(csr.Parse(answer.Spec.Request))
	otherUser := *answer
	otherUser.User.Username = csr.BootstrapUserPrefix + "zyxwvu"
	// A replica whose clock is 11 minutes ahead: it shares the key ring, which is all
	// that it needs.
	config := plane.config
	config.Now = func() time.Time { return time.Now().Add(window + time.Minute) }
	late := *answer
	late.Metadata.CreationTimestamp = config.Now()
	for _, attack := range []struct {
		name    string
		by      *attest.Verifier
		request *csr.Request
		want    refusal.Check
	}{
		{"the same evidence for another key", plane.verifier, stolen(bundle, "node-1"), attest.CheckBindingRequest},
		{"the same evidence for another node, node-2", plane.verifier, stolen(bundle, "node-2"), attest.CheckBindingRequest},
		{"the answer, filed with another bootstrap token", plane.verifier, &otherUser, attest.CheckBindingRequester},
		{"the answer, filed 11 minutes later", must(attest.NewVerifier(config)), &late, attest.CheckAnswerLate},
		{"the request without any evidence", plane.verifier,
			file((&csr.Bundle{Request: bundle.Request}).Spec(csr.SignerClientTPM, 0)), csr.CheckAttestationProvider},
	} {
		s.start()
		_, err := attack.by.Verify(ctx, attack.request)
		s.refusal(attack.name, err, attack.want)
	}
}

// flipEveryByte changes each byte of what the node filed, one at a time: headings,
// request, statement, binding, certificates.
func flipEveryByte(ctx context.Context, s *story, plane *controlPlane, answer *csr.Request) {
	tampered := *answer
	checks := map[string]bool{}
	for i := range answer.Spec.Request {
		tampered.Spec.Request = bytes.Clone(answer.Spec.Request)
		tampered.Spec.Request[i] ^= 1
		_, err := plane.verifier.Verify(ctx, &tampered)
		checks[mustRefuse(fmt.Sprintf("byte %d of the answer, changed", i), err)] = true
	}
	s.refused++
	s.step(fmt.Sprintf("REFUSED  one byte changed, for each of the answer's %d bytes", len(answer.Spec.Request)),
		"checks", fmt.Sprintf("%d different ones", len(checks)))
}

// stolen makes a thief's request for a node's name, with the thief's key and someone else's
// evidence.
func stolen(evidence *csr.Bundle, nodeName string) *csr.Request {
	request := must(csr.Create(csr.PurposeClient, newKey(), nodeName, csr.CreateOptions{}))
	return file((&csr.Bundle{Request: request, Provider: evidence.Provider, Data: evidence.Data}).Spec(csr.SignerClientTPM, 0))
}

// attackWithTPM asks for a challenge with a TPM, truthfully, and must not get one.
func attackWithTPM(
	ctx context.Context, s *story, plane *controlPlane, name string, simulated *tpmsim.TPM, nodeName string, want refusal.Check,
) {
	n := newNode(simulated, nodeName, plane)
	hello := file(n.attester.Hello(ctx, n.subject))
	s.start()
	_, err := plane.verifier.Challenge(ctx, hello)
	s.refusal(name, err, want)
}

// attackWithOtherTPMs tries TPMs that are not node-1's.
func attackWithOtherTPMs(ctx context.Context, s *story, plane *controlPlane, cloud *tpmsim.CA) {
	try := func(name string, o tpmsim.Options, want refusal.Check) {
		simulated := must(tpmsim.Open(o))
		defer func() { _ = simulated.Close() }()
		attackWithTPM(ctx, s, plane, name, simulated, "node-1", want)
	}
	try("a stranger's TPM, whose own CA says that it is node-1's",
		tpmsim.Options{Instance: instance(1)}, tpmcert.CheckCertificateChain)
	try("another customer's TPM, certified by the same cloud",
		tpmsim.Options{CA: cloud, Instance: instance(666)}, attest.CheckMembership)
}
