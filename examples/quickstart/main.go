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
	"crypto/x509"
	"fmt"
	"os"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/join"
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

	list := "gce:example-project/4711000000000000001 node-1 " + providerID("node-1") + "\n" +
		"gce:example-project/4711000000000000002 node-2 " + providerID("node-2") + "\n"
	plane := newControlPlane(cloud.Root(), list)
	s.step("the control plane is configured",
		"cluster", plane.clusterID,
		"trusts", cloud.Root().Subject.String(),
		"expects", "node-1 and node-2, each on its own machine")

	n := newNode(simulated, "node-1", plane)
	answer, reply := s.join(ctx, n, plane)

	s.chapter("Attacks with the evidence of node-1, which is no secret")
	attackWithEvidence(ctx, s, plane, answer)
	s.chapter("Attacks with a TPM")
	attackWithTPM(ctx, s, plane, "the TPM of node-1 asks to be node-2", simulated, "node-2", attest.CheckMembership)
	check(simulated.Close()) // a process has only one simulator
	attackWithOtherTPMs(ctx, s, plane, cloud)
	s.end(reply.Issued)
	return s.err
}

// controlPlane challenges, verifies and signs.
type controlPlane struct {
	*join.Plane
	config    join.Config
	clusterID string
}

// newControlPlane returns a control plane that trusts the issuer's root and knows the
// machines. A real list is the Cluster API's Machines, or the cloud's instances. Trust in the
// issuer alone would admit every machine in the cloud.
func newControlPlane(issuerRoot *x509.Certificate, list string) *controlPlane {
	caCert, caKey := selfSigned("quickstart cluster CA")
	config := join.Config{
		Chain: []*x509.Certificate{caCert}, Key: caKey,
		// Whose word on a TPM counts?
		Kinds: []attest.Kind{must(tpm.TrustAKs([]*x509.Certificate{issuerRoot}, tpmcert.ProfileGoogle()))},
		// Which machine may be which node?
		Members: must(membership.ParseStaticList([]byte(list))),
		// Replicas of the control plane share the key ring, and nothing else.
		KeyRing: must(attest.NewStaticKeyRing(attest.NewRingKey(time.Now()))),
	}
	return &controlPlane{Plane: must(join.NewPlane(config)), config: config, clusterID: must(attest.ClusterID(caCert))}
}

// newNode is a machine that wants to be a node: its TPM, and a kubelet's key. The AK is the one
// whose template and certificate the cloud left in the TPM. A key from tpmkey.Create never
// leaves the TPM.
func newNode(simulated *tpmsim.TPM, name string, plane *controlPlane) *join.Node {
	options := tpm.ProverOptions{Intermediates: [][]byte{simulated.CA().AKIntermediate().Raw}}
	return &join.Node{
		Name:       name,
		ClusterID:  plane.clusterID, // configured on both sides
		ProviderID: providerID(name),
		Prover:     must(tpm.NewProver(simulated, tpm.GCERSA(), options)),
		Key:        newKey(),
	}
}

// join is the way in. It returns the answer as it was filed, for the attacks, and the control
// plane's reply to it.
func (s *story) join(ctx context.Context, n *join.Node, plane *controlPlane) (answer *csr.Request, reply *join.Reply) {
	certificate := must(n.Join(ctx, func(ctx context.Context, spec *csr.Spec) (*csr.Request, error) {
		answer = file(spec)
		reply = plane.Handle(ctx, answer)
		s.filed(answer, reply)
		stored := *answer
		stored.Status = reply.Status(answer)
		return &stored, nil
	}))
	s.step("the node has its certificate",
		"checked", "that it is for the node's own key and name",
		"carries", fmt.Sprintf("the certificate in PEM: %d bytes", len(certificate)))
	return answer, reply
}

// filed tells of a message and of the reply to it.
func (s *story) filed(request *csr.Request, reply *join.Reply) {
	check(reply.Err)
	if reply.Issued == nil {
		s.step("hello from the node, challenge from the control plane",
			"carries", fmt.Sprintf("the request, the AK and its certificates: %d bytes", len(request.Spec.Request)),
			"checked", "node policy, request signature, AK, certificate chain, membership",
			"binds", "cluster, signer, requester, AK and request, for 10 minutes")
		return
	}
	details := []string{"carries", fmt.Sprintf("the TPM's statement on the kubelet's key: %d bytes", len(request.Spec.Request)),
		"checked", "all of the above again, the challenge's key and times, the TPM's statement"}
	for _, fact := range reply.Result.Facts() {
		details = append(details, string(fact.Standing), fact.Name+": "+fact.Value)
	}
	s.step("answer from the node, certificate from the control plane", details...)
}

// attackWithEvidence makes the attacks of an attacker who has read node-1's answer.
func attackWithEvidence(ctx context.Context, s *story, plane *controlPlane, answer *csr.Request) {
	flipEveryByte(ctx, s, plane, answer)
	bundle := must(csr.Parse(answer.Spec.Request))
	otherUser := *answer
	otherUser.User.Username = csr.BootstrapUserPrefix + "zyxwvu"
	// A replica whose clock is 11 minutes ahead.
	config := plane.config
	config.Now = func() time.Time { return time.Now().Add(11 * time.Minute) }
	late := *answer
	late.Metadata.CreationTimestamp = config.Now()
	for _, attack := range []struct {
		name    string
		by      *join.Plane
		request *csr.Request
		want    refusal.Check
	}{
		{"the same evidence for another key", plane.Plane, stolen(bundle, "node-1"), attest.CheckBindingRequest},
		{"the same evidence for another node, node-2", plane.Plane, stolen(bundle, "node-2"), attest.CheckBindingRequest},
		{"the answer, filed with another bootstrap token", plane.Plane, &otherUser, attest.CheckBindingRequester},
		{"the answer, filed 11 minutes later", must(join.NewPlane(config)), &late, attest.CheckAnswerLate},
		{"the request without any evidence", plane.Plane,
			file(must((&csr.Bundle{Request: bundle.Request}).Spec(csr.SignerClientTPM, 0))), csr.CheckAttestationProvider},
	} {
		s.start()
		s.refusal(attack.name, attack.by.Handle(ctx, attack.request).Err, attack.want)
	}
}

// flipEveryByte changes each byte of the node's request, one at a time: headings,
// request, statement, binding, certificates.
func flipEveryByte(ctx context.Context, s *story, plane *controlPlane, answer *csr.Request) {
	tampered := *answer
	checks := map[string]bool{}
	for i := range answer.Spec.Request {
		tampered.Spec.Request = bytes.Clone(answer.Spec.Request)
		tampered.Spec.Request[i] ^= 1
		reply := plane.Handle(ctx, &tampered)
		checks[mustRefuse(fmt.Sprintf("byte %d of the answer, changed", i), reply.Err)] = true
	}
	s.refused++
	s.step(fmt.Sprintf("REFUSED  one byte changed, for each of the answer's %d bytes", len(answer.Spec.Request)),
		"checks", fmt.Sprintf("%d different ones", len(checks)))
}

// stolen makes a thief's request for a node's name, with the thief's key and someone else's
// evidence.
func stolen(evidence *csr.Bundle, nodeName string) *csr.Request {
	request := must(csr.Create(csr.PurposeClient, newKey(), nodeName, csr.CreateOptions{}))
	return file(must((&csr.Bundle{Request: request, Provider: evidence.Provider, Data: evidence.Data}).Spec(csr.SignerClientTPM, 0)))
}

// attackWithTPM asks for a challenge with a TPM, truthfully, and must not get one.
func attackWithTPM(
	ctx context.Context, s *story, plane *controlPlane, name string, simulated *tpmsim.TPM, nodeName string, want refusal.Check,
) {
	s.start()
	var reply *join.Reply
	_, err := newNode(simulated, nodeName, plane).Join(ctx, func(ctx context.Context, spec *csr.Spec) (*csr.Request, error) {
		reply = plane.Handle(ctx, file(spec))
		return nil, reply.Err
	})
	if err == nil {
		check(fmt.Errorf("%s: got a certificate", name))
	}
	s.refusal(name, reply.Err, want)
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
