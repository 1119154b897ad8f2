// Quickstart is a node's way into a cluster, in one program that needs no network:
// a simulated TPM certifies a kubelet's key, the proof travels in the certificate
// request, the control plane challenges, verifies and issues the certificate. Then
// the same control plane meets what must be refused.
//
//	go run ./examples/quickstart
//
// This file uses the packages as a program of yours would, from top to bottom. What
// stands in for the world around it is small: package tpmsim is the machine's TPM and
// the cloud that certified it, and the API server, the cluster's CA and what prints
// are at the end.
package main

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io"
	"math/big"
	"os"
	"strings"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/tpm"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/oid"
	"github.com/nodeattest/nodeattest/tpmsim"
)

func main() {
	if err := run(context.Background(), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "quickstart:", err)
		os.Exit(1)
	}
}

// run tells the story. It returns an error if a step fails, or if an attack is not
// refused by the very check that is there for it.
func run(ctx context.Context, w io.Writer) error {
	s := &story{w: w}

	s.chapter("A node joins a cluster")
	cloud, err := tpmsim.NewCA(&tpmsim.CAOptions{Name: "Example Cloud"})
	if err != nil {
		return err
	}
	tpm, err := tpmsim.Open(&tpmsim.Options{CA: cloud, Instance: instance(1)})
	if err != nil {
		return err
	}
	defer func() { _ = tpm.Close() }()
	akCert := tpm.AKCertificate(tpmsim.RSA2048)
	s.step("the cloud starts a machine with a TPM")
	s.detail("AK", "its template and certificate are in the TPM's NV memory")
	s.detail("machine", akCert.Subject.String())
	s.detail("issuer", akCert.Issuer.String())

	plane, err := newControlPlane(cloud.Root(), inventory{
		"node-1": {"gce:example-project/4711000000000000001", providerID("node-1")},
		"node-2": {"gce:example-project/4711000000000000002", providerID("node-2")},
	})
	if err != nil {
		return err
	}
	s.step("the control plane is configured")
	s.detail("cluster", plane.clusterID)
	s.detail("trusts", cloud.Root().Subject.String())
	s.detail("expects", "node-1 on machine gce:example-project/4711000000000000001")
	s.detail("", "node-2 on machine gce:example-project/4711000000000000002")

	n, err := newNode(tpm, "node-1", plane.clusterID)
	if err != nil {
		return err
	}
	s.step("the node makes a kubelet key and a certificate request")
	s.detail("subject", "CN=system:node:node-1,O=system:nodes")
	s.detail("claims", "provider ID "+providerID("node-1"))

	answer, issued, err := join(ctx, s, n, plane)
	if err != nil {
		return err
	}

	s.chapter("Attacks with the evidence of node-1, which is no secret")
	if err := attackWithEvidence(ctx, s, plane, answer); err != nil {
		return err
	}

	s.chapter("Attacks with a TPM")
	if err := attackWithTPM(ctx, s, plane, "the TPM of node-1 asks to be node-2", tpm, "node-2", attest.CheckMembership); err != nil {
		return err
	}
	if err := tpm.Close(); err != nil { // a process has one simulator
		return err
	}
	if err := attackWithOtherTPMs(ctx, s, plane, cloud); err != nil {
		return err
	}
	return s.end(issued)
}

// inventory is what the operator knows of the machines, by node name. A real one is
// the Cluster API's Machines, or the cloud's list of instances.
type inventory map[string]member

type member struct {
	identity   attest.Identity
	providerID string
}

// machine answers the node policy: is there a machine for this node?
func (inv inventory) machine(_ context.Context, nodeName string, _ *csr.Request) (*csr.Machine, error) {
	m, ok := inv[nodeName]
	if !ok {
		return nil, csr.ErrNoMachine
	}
	return &csr.Machine{Name: nodeName, NodeName: nodeName, ProviderID: m.providerID, BootstrapReady: true}, nil
}

// Authorize answers the verifier: may this machine be this node? Trust in the issuer
// alone would admit every machine of the cloud. It is asked at the hello already, and
// again when the answer has passed every other check.
func (inv inventory) Authorize(_ context.Context, r *attest.Result, _ *csr.Request) (*attest.Authorization, error) {
	m, ok := inv[r.NodeName]
	if !ok || m.identity != r.Machine {
		return nil, attest.NotMember(fmt.Sprintf("machine %s is not that of %s", r.Machine, r.NodeName))
	}
	return &attest.Authorization{ProviderID: m.providerID}, nil
}

// controlPlane challenges, verifies and signs.
type controlPlane struct {
	clusterID string
	config    attest.VerifierConfig
	verifier  *attest.Verifier
	ca        *csr.CA
}

// newControlPlane returns a control plane that trusts the issuer's root and knows
// the machines.
func newControlPlane(issuerRoot *x509.Certificate, machines inventory) (*controlPlane, error) {
	caCert, caKey, err := selfSigned("quickstart cluster CA")
	if err != nil {
		return nil, err
	}
	ca, err := csr.NewCA([]*x509.Certificate{caCert}, caKey, csr.CAConfig{SignerNames: []string{csr.SignerClientTPM}})
	if err != nil {
		return nil, err
	}
	clusterID, err := attest.ClusterID(caCert) // both sides are configured with it
	if err != nil {
		return nil, err
	}
	ring, err := attest.NewStaticKeyRing(attest.NewRingKey(time.Now()))
	if err != nil {
		return nil, err
	}
	config := attest.VerifierConfig{
		ClusterIDs: []string{clusterID},
		KeyRing:    ring,
		Issuers:    []tpm.Issuer{{Roots: []*x509.Certificate{issuerRoot}, Profile: tpm.ProfileGoogle()}},
		Policy:     &csr.Policy{SignerNames: []string{csr.SignerClientTPM}, Machines: machines.machine},
		Authorizer: machines,
	}
	verifier, err := attest.NewVerifier(&config)
	if err != nil {
		return nil, err
	}
	return &controlPlane{clusterID: clusterID, config: config, verifier: verifier, ca: ca}, nil
}

// node is a machine that wants to be a node: its TPM, and a kubelet's key.
type node struct {
	attester *attest.Attester
	key      tpm.Key
	subject  *attest.Subject
}

// newNode makes the key and the certificate request. The AK is the one whose
// template and certificate the cloud left in the TPM.
func newNode(tpm *tpmsim.TPM, name, clusterID string) (*node, error) {
	attester, err := attest.NewAttester(tpm, tpm.GCERSA(), &attest.AttesterOptions{
		Intermediates: [][]byte{tpm.CA().AKIntermediate().Raw},
	})
	if err != nil {
		return nil, err
	}
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	key, err := tpm.SoftwareKey(private) // tpm.CreateTPMKey makes one that never leaves the TPM
	if err != nil {
		return nil, err
	}
	request, err := csr.Create(csr.PurposeClient, private, name, csr.CreateOptions{ProviderID: providerID(name)})
	if err != nil {
		return nil, err
	}
	return &node{attester: attester, key: key, subject: &attest.Subject{
		Request: request, SignerName: csr.SignerClientTPM, ClusterID: clusterID,
	}}, nil
}

// join is the way in: hello, challenge, answer, verification, certificate. It returns
// the answer as it was filed, too, for the attacks.
func join(ctx context.Context, s *story, n *node, plane *controlPlane) (*csr.Request, *csr.Issued, error) {
	bundle, err := n.attester.Hello(ctx, n.subject)
	if err != nil {
		return nil, nil, err
	}
	hello, err := file(bundle, csr.SignerChallengeTPM, time.Now())
	if err != nil {
		return nil, nil, err
	}
	s.step("hello, from the node")
	s.detail("carries", fmt.Sprintf("the request, the AK and its certificates: %d bytes", len(hello.Spec.Request)))

	challenge, err := plane.verifier.Challenge(ctx, hello)
	if err != nil {
		return nil, nil, err
	}
	s.step("challenge, from the control plane")
	s.detail("checked", "node policy, request signature, AK, certificate chain, membership")
	s.detail("binds", "cluster, signer, requester, AK and request, for "+attest.DefaultWindow.String())

	bundle, err = n.attester.Answer(ctx, challenge, n.key, n.subject)
	if err != nil {
		return nil, nil, err
	}
	answer, err := file(bundle, n.subject.SignerName, time.Now())
	if err != nil {
		return nil, nil, err
	}
	s.step("answer, from the node")
	s.detail("checked", "that the challenge is for its own cluster, signer, AK and request")
	s.detail("carries", fmt.Sprintf("the TPM's statement on the kubelet's key: %d bytes", len(answer.Spec.Request)))

	result, err := plane.verifier.Verify(ctx, answer)
	if err != nil {
		return nil, nil, err
	}
	s.step("verification, by the control plane")
	s.detail("checked", "all of the above again, the challenge's key and times, the TPM's statement")
	for _, fact := range result.Facts() {
		s.detail(string(fact.Standing), fact.Name+": "+fact.Value)
	}

	issued, err := plane.ca.Issue(ctx, result.Checked(), result.Verified())
	if err != nil {
		return nil, nil, err
	}
	s.step("certificate, from the cluster's CA")
	s.detail("subject", "made anew; SANs and provider ID only as vouched for")
	return answer, issued, nil
}

// attackWithEvidence is what somebody may try who has read node-1's answer.
func attackWithEvidence(ctx context.Context, s *story, plane *controlPlane, answer *csr.Request) error {
	if err := flipEveryByte(ctx, s, plane, answer); err != nil {
		return err
	}
	bundle, err := csr.Parse(answer.Spec.Request)
	if err != nil {
		return err
	}
	otherKey, err := stolen(bundle, "node-1")
	if err != nil {
		return err
	}
	otherNode, err := stolen(bundle, "node-2")
	if err != nil {
		return err
	}
	plain, err := file(&csr.Bundle{Request: bundle.Request}, csr.SignerClientTPM, time.Now())
	if err != nil {
		return err
	}
	otherUser := *answer
	otherUser.Spec.Username = csr.BootstrapUserPrefix + "zyxwvu"

	// A replica whose clock is 11 minutes ahead: it shares the key ring, and that is
	// all that it needs.
	config := plane.config
	config.Now = func() time.Time { return time.Now().Add(attest.DefaultWindow + time.Minute) }
	replica, err := attest.NewVerifier(&config)
	if err != nil {
		return err
	}
	late := *answer
	late.Metadata.CreationTimestamp = config.Now()

	s.start()
	for _, attack := range []struct {
		name    string
		by      *attest.Verifier
		request *csr.Request
		want    error // an attest.Check or a csr.Check
	}{
		{"the same evidence for another key", plane.verifier, otherKey, attest.CheckBindingRequest},
		{"the same evidence for another node, node-2", plane.verifier, otherNode, attest.CheckBindingRequest},
		{"the answer, filed with another bootstrap token", plane.verifier, &otherUser, attest.CheckBindingRequester},
		{"the answer, filed 11 minutes later", replica, &late, attest.CheckAnswerLate},
		{"the request without any evidence", plane.verifier, plain, csr.CheckAttestationProvider},
	} {
		_, err := attack.by.Verify(ctx, attack.request)
		if err := s.refusal(attack.name, err, attack.want); err != nil {
			return err
		}
	}
	return nil
}

// flipEveryByte changes each byte of what the node filed, one at a time: headings,
// request, statement, binding, certificates.
func flipEveryByte(ctx context.Context, s *story, plane *controlPlane, answer *csr.Request) error {
	tampered := *answer
	checks := map[string]bool{}
	for i := range answer.Spec.Request {
		tampered.Spec.Request = bytes.Clone(answer.Spec.Request)
		tampered.Spec.Request[i] ^= 1
		_, err := plane.verifier.Verify(ctx, &tampered)
		if csr.Decide(err).Verdict != csr.VerdictDeny {
			return fmt.Errorf("byte %d of the answer was changed: got %v, want a refusal", i, err)
		}
		checks[nameOf(err)] = true
	}
	s.step(fmt.Sprintf("REFUSED  one byte changed, for each of the answer's %d bytes", len(answer.Spec.Request)))
	s.detail("checks", fmt.Sprintf("%d different ones", len(checks)))
	s.refused++
	return nil
}

// stolen is a thief's request for a node's name, with a key of the thief's and
// somebody else's evidence.
func stolen(evidence *csr.Bundle, nodeName string) (*csr.Request, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	request, err := csr.Create(csr.PurposeClient, key, nodeName, csr.CreateOptions{})
	if err != nil {
		return nil, err
	}
	return file(&csr.Bundle{Request: request, Provider: evidence.Provider, Data: evidence.Data}, csr.SignerClientTPM, time.Now())
}

// attackWithTPM asks for a challenge with a TPM, truthfully, and must not get one.
func attackWithTPM(ctx context.Context, s *story, plane *controlPlane, name string, tpm *tpmsim.TPM, nodeName string, want attest.Check) error {
	n, err := newNode(tpm, nodeName, plane.clusterID)
	if err != nil {
		return err
	}
	bundle, err := n.attester.Hello(ctx, n.subject)
	if err != nil {
		return err
	}
	hello, err := file(bundle, csr.SignerChallengeTPM, time.Now())
	if err != nil {
		return err
	}
	s.start()
	_, err = plane.verifier.Challenge(ctx, hello)
	return s.refusal(name, err, want)
}

// attackWithOtherTPMs tries TPMs that are not node-1's.
func attackWithOtherTPMs(ctx context.Context, s *story, plane *controlPlane, cloud *tpmsim.CA) error {
	for _, attack := range []struct {
		name string
		tpm  *tpmsim.Options // CA nil: one of its own
		want attest.Check
	}{
		{"a stranger's TPM, whose own CA says that it is node-1's", &tpmsim.Options{Instance: instance(1)}, tpm.CheckCertificateChain},
		{"another customer's TPM, certified by the same cloud", &tpmsim.Options{CA: cloud, Instance: instance(666)}, attest.CheckMembership},
	} {
		tpm, err := tpmsim.Open(attack.tpm)
		if err != nil {
			return err
		}
		err = attackWithTPM(ctx, s, plane, attack.name, tpm, "node-1", attack.want)
		if err := errors.Join(err, tpm.Close()); err != nil {
			return err
		}
	}
	return nil
}

// The world around: an inventory of machines, an API server, a CA, and the story's
// printer. Programs of yours have better ones.

// instance is the n-th machine of the cloud. AK certificates name it.
func instance(n uint64) *oid.GCEInstance {
	return &oid.GCEInstance{
		Zone:          "europe-west1-b",
		ProjectNumber: 123456789012,
		ProjectID:     "example-project",
		InstanceID:    4711000000000000000 + n,
		InstanceName:  fmt.Sprintf("node-%d", n),
	}
}

func providerID(nodeName string) string { return "gce://example-project/europe-west1-b/" + nodeName }

// file does what the API server does with a request: it keeps it, with the time and
// the user that it has authenticated, here the holder of a bootstrap token.
func file(bundle *csr.Bundle, signerName string, created time.Time) (*csr.Request, error) {
	pem, err := bundle.Marshal()
	if err != nil {
		return nil, err
	}
	return &csr.Request{
		Metadata: csr.Metadata{CreationTimestamp: created.Truncate(time.Second)},
		Spec: csr.Spec{
			Request:    pem,
			SignerName: signerName,
			Usages:     csr.Usages(csr.PurposeClient, false),
			Username:   csr.BootstrapUserPrefix + "abcdef",
			Groups:     []string{csr.BootstrappersGroup, csr.AuthenticatedGroup},
		},
	}, nil
}

// selfSigned makes the cluster's CA: of P-256, good for a day.
func selfSigned(name string) (*x509.Certificate, *ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: name},
		NotBefore:             time.Now().Add(-time.Hour),
		NotAfter:              time.Now().Add(24 * time.Hour),
		KeyUsage:              x509.KeyUsageCertSign,
		BasicConstraintsValid: true,
		IsCA:                  true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, nil, err
	}
	cert, err := x509.ParseCertificate(der)
	return cert, key, err
}

// story prints what happens. Nothing in it is needed to use the packages.
type story struct {
	w       io.Writer
	err     error // of w
	steps   int
	refused int
	started time.Time // of the step that will be printed next
}

func (s *story) printf(format string, args ...any) {
	if s.err == nil {
		_, s.err = fmt.Fprintf(s.w, format, args...)
	}
}

func (s *story) chapter(title string) {
	s.printf("\n%s\n\n", title)
	s.start()
}

// start says that the next step begins now, and not where the last one was printed.
func (s *story) start() { s.started = time.Now() }

// step prints what has just been done, and how long it took.
func (s *story) step(what string) {
	took := time.Since(s.started)
	s.steps++
	s.printf("%2d  %-65s%8.2f ms\n", s.steps, what, took.Seconds()*1000)
	s.start()
}

// detail prints a line or two about the last step.
func (s *story) detail(name, value string) {
	s.printf("    %-9s %s\n", name, wrap(value, 66, "\n"+strings.Repeat(" ", 14)))
	s.start()
}

// refusal prints an attack that was refused. It returns an error if it was not, if
// nothing could be decided, or if it was refused by another check.
func (s *story) refusal(attack string, err, want error) error {
	decision := csr.Decide(err)
	switch {
	case decision.Verdict != csr.VerdictDeny:
		return fmt.Errorf("%s: got the verdict %s (%s), want a refusal", attack, decision.Verdict, decision.Message)
	case !errors.Is(err, want):
		return fmt.Errorf("%s: refused with %w, want %s", attack, err, want)
	}
	s.refused++
	s.step("REFUSED  " + attack)
	s.reason(err)
	return nil
}

// reason prints the check of package attest, or the rule of package csr, that refused.
func (s *story) reason(err error) {
	var got, want string
	var cause error
	if e, ok := errors.AsType[*attest.Error](err); ok {
		got, want, cause = e.Got, e.Want, e.Err
	} else if v, ok := errors.AsType[*csr.Error](err); ok {
		got, want, cause = v.Got, v.Want, v.Err
	}
	s.detail("check", nameOf(err))
	s.detail("got", got)
	if want != "" {
		s.detail("want", want)
	}
	if cause != nil {
		s.detail("because", cause.Error())
	}
}

// end prints what the node has now, and what became of the attacks.
func (s *story) end(issued *csr.Issued) error {
	certificate := issued.Certificate
	id, err := oid.ParseProviderID(certificate.Extensions)
	if err != nil {
		return err
	}
	s.chapter("What node-1 has now")
	s.detail("subject", certificate.Subject.String())
	s.detail("provider", id)
	s.detail("valid", certificate.NotBefore.Format(time.RFC3339)+" to "+certificate.NotAfter.Format(time.RFC3339))
	s.detail("machine", issued.Record.Machine)
	fmt.Fprintf(s.w, "\n1 certificate issued, %d attacks refused.\n", s.refused)
	return s.err
}

// nameOf is the name of the check or rule that refused, "" for any other error.
func nameOf(err error) string {
	if check, ok := errors.AsType[attest.Check](err); ok {
		return string(check)
	}
	if rule, ok := errors.AsType[csr.Check](err); ok {
		return string(rule)
	}
	return ""
}

// wrap breaks a text between words, so that lines have at most width characters where
// the words allow.
func wrap(text string, width int, lineBreak string) string {
	var b strings.Builder
	column := 0
	for i, word := range strings.Fields(text) {
		switch {
		case i > 0 && column+1+len(word) > width:
			b.WriteString(lineBreak)
			column = 0
		case i > 0:
			b.WriteByte(' ')
			column++
		}
		b.WriteString(word)
		column += len(word)
	}
	return b.String()
}
