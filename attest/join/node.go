package join

import (
	"bytes"
	"context"
	"crypto"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/refusal"
)

// File files a request with the control plane and returns it once it has been decided: with a
// condition, and with a certificate if it was approved. On Kubernetes it creates a
// CertificateSigningRequest and watches it.
type File func(ctx context.Context, spec *csr.Spec) (*csr.Request, error)

// InMemory returns a File that calls a plane in the same process, as this user, for tests. A real
// server takes the user from its own authentication. The reason of a refusal is not in the node's
// error: to see it, call [Plane.Handle] in a File of your own.
func InMemory(plane *Plane, by csr.User) File {
	return func(ctx context.Context, spec *csr.Spec) (*csr.Request, error) {
		if plane == nil || plane.now == nil {
			return nil, errNoPlane
		}
		request := csr.Filed(spec, by, plane.now())
		reply := plane.Handle(ctx, request)
		if reply.Decision.Verdict == csr.VerdictRetry {
			return nil, fmt.Errorf("join: not decided: %w", reply.Err)
		}
		request.Status = reply.Status(request)
		return request, nil
	}
}

// Node is the node's side of the join.
type Node struct {
	// Name is the node's name, and ClusterID the cluster's ([attest.ClusterID]). Both are
	// configured: neither is learnt from the server.
	Name, ClusterID string
	// ProviderID is the provider ID that the node claims; "" claims none.
	ProviderID string
	// Prover makes the evidence.
	Prover attest.Prover
	// Key is the key to be certified. The node alone has it.
	Key crypto.Signer
}

// maxHellos is how many hellos one Join files. An API server that is slow to answer, or a clock
// that is behind, lets a hello expire.
const maxHellos = 3

// Join asks for a client certificate: it files a hello, answers the challenge in its status,
// and files the answer. It returns the certificate in PEM, with the CAs above it as the control
// plane gave them, after it has checked that the certificate is for the node's own key and name. The
// caller checks that it trusts the CAs.
//
// A hello that has expired is filed again, up to three times. Every other refusal is
// returned as a [*refusal.Error] with the control plane's text. Errors of file are returned unchanged.
func (n *Node) Join(ctx context.Context, file File) ([]byte, error) {
	if n == nil || file == nil || ctx == nil {
		return nil, errors.New("join: no Node, File or context")
	}
	attester, err := attest.NewAttester(n.Prover)
	if err != nil {
		return nil, err
	}
	signer, err := csr.PurposeClient.SignerName(n.Prover.Provider())
	if err != nil {
		return nil, err
	}
	request, err := csr.Create(csr.PurposeClient, n.Key, n.Name, csr.CreateOptions{ProviderID: n.ProviderID})
	if err != nil {
		return nil, err
	}
	subject := attest.Subject{Request: request, SignerName: signer, ClusterID: n.ClusterID}
	challenge, err := hello(ctx, attester, subject, file)
	if err != nil {
		return nil, err
	}
	spec, err := attester.Answer(ctx, challenge, n.Key, subject)
	if err != nil {
		return nil, err
	}
	answer, err := file(ctx, spec)
	if err != nil {
		return nil, err
	}
	if answer == nil || len(answer.Status.Certificate) == 0 {
		return nil, refused(answer)
	}
	if err := n.check(answer.Status.Certificate); err != nil {
		return nil, err
	}
	return answer.Status.Certificate, nil
}

// hello files hellos until it gets a challenge.
func hello(ctx context.Context, attester *attest.Attester, subject attest.Subject, file File) ([]byte, error) {
	for tries := 1; ; tries++ {
		spec, err := attester.Hello(ctx, subject)
		if err != nil {
			return nil, err
		}
		filed, err := file(ctx, spec)
		if err != nil {
			return nil, err
		}
		challenge, err := attest.ChallengeOf(filed)
		if err == nil || tries == maxHellos || !expired(filed) {
			return challenge, err
		}
	}
}

// expired reports whether the control plane denied a hello as too old.
func expired(hello *csr.Request) bool {
	reason := (&refusal.Error{Check: attest.CheckHelloExpired}).Reason()
	return hello != nil && slices.ContainsFunc(hello.Status.Conditions, func(c csr.Condition) bool { return c.Type == csr.ConditionDenied && c.Reason == reason })
}

// checkCertificate: the control plane gave a certificate, and it is the node's.
const checkCertificate refusal.Check = "certificate-received"

func refused(answer *csr.Request) error {
	got := "no decision"
	if answer != nil {
		for _, c := range answer.Status.Conditions {
			got = c.Type + ": " + refusal.Text(c.Reason) + ": " + refusal.Text(c.Message)
		}
	}
	return &refusal.Error{Check: checkCertificate, Got: got, Want: "a certificate"}
}

// check checks that the first certificate is for the node's own key and name.
func (n *Node) check(text []byte) error {
	block, _ := pem.Decode(text)
	if block == nil || block.Type != "CERTIFICATE" {
		return &refusal.Error{Check: checkCertificate, Got: "something else", Want: "a certificate in PEM"}
	}
	certificate, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return &refusal.Error{Check: checkCertificate, Got: "a malformed certificate", Err: err}
	}
	key, err := csr.CanonicalSPKI(n.Key.Public())
	if err != nil {
		return err
	}
	commonName, organization := csr.PurposeClient.SubjectNames(n.Name)
	switch {
	case !bytes.Equal(certificate.RawSubjectPublicKeyInfo, key):
		return &refusal.Error{Check: checkCertificate, Got: "a certificate for another key", Want: "one for the node's key"}
	case certificate.Subject.CommonName != commonName || !slices.Equal(certificate.Subject.Organization, []string{organization}):
		return &refusal.Error{Check: checkCertificate, Got: "a certificate for " + refusal.Quote(certificate.Subject.String()), Want: "CN=" + commonName + ",O=" + organization}
	case !slices.Contains(certificate.ExtKeyUsage, x509.ExtKeyUsageClientAuth) || certificate.IsCA:
		return &refusal.Error{Check: checkCertificate, Got: "a certificate for another use", Want: "a client certificate"}
	}
	return nil
}
