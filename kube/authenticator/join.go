package authenticator

import (
	"context"
	"crypto"
	"fmt"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/kube/authenticator/internal/apiclient"
	"github.com/nodeattest/nodeattest/refusal"
)

// join is one pass through hello, challenge and answer.
type join struct {
	api      *apiclient.Client
	attester *attest.Attester // nil without evidence, which takes a single request
	// prefix is the GenerateName of the requests.
	prefix string
	// nodeName is for errors.
	nodeName string
	parts    *parts
}

const (
	// maxHellos is the number of hellos that are filed for one certificate if they get neither a
	// challenge nor a denial: a hello was too old when it was read, or another account approved it.
	maxHellos = 3
	// helloPatience is how long to wait for the challenge of a hello: a hello that is 5 minutes
	// old is denied (attest.CheckHelloExpired).
	helloPatience = 4*time.Minute + 45*time.Second
)

// certificate gets a certificate for the key, in PEM as the signer returned it.
func (j *join) certificate(ctx context.Context, key crypto.Signer, s attest.Subject) ([]byte, error) {
	if j.attester == nil {
		spec, err := (&csr.Bundle{Request: s.Request}).Spec(s.SignerName, s.ExpirationSeconds)
		if err != nil {
			return nil, err
		}
		return j.signed(ctx, spec)
	}
	challenge, err := j.challenge(ctx, s)
	if err != nil {
		return nil, err
	}
	spec, err := measure(&j.parts.evidence, func() (*csr.Spec, error) { return j.attester.Answer(ctx, challenge, key, s) })
	if err != nil {
		return nil, err
	}
	return j.signed(ctx, spec)
}

// signed files an answer, or a request without evidence, and waits for the certificate.
func (j *join) signed(ctx context.Context, spec *csr.Spec) ([]byte, error) {
	filed, err := j.file(ctx, spec)
	if err != nil {
		return nil, fmt.Errorf("answer: %w", err)
	}
	got, err := j.await(ctx, filed, func(o *certificatesv1.CertificateSigningRequest) bool {
		return len(o.Status.Certificate) != 0 || refusedBy(o) != nil
	})
	if err != nil {
		return nil, fmt.Errorf("waiting for the certificate of %s: %w", filed.Name, err)
	}
	if len(got.Status.Certificate) != 0 {
		return got.Status.Certificate, nil
	}
	return nil, j.denied(got, refusedBy(got))
}

// challenge files hellos until one gets a challenge.
func (j *join) challenge(ctx context.Context, s attest.Subject) ([]byte, error) {
	for try := 1; ; try++ {
		spec, err := measure(&j.parts.evidence, func() (*csr.Spec, error) { return j.attester.Hello(ctx, s) })
		if err != nil {
			return nil, err
		}
		filed, err := j.file(ctx, spec)
		if err != nil {
			return nil, fmt.Errorf("hello: %w", err)
		}
		waiting, cancel := context.WithTimeout(ctx, helloPatience)
		got, err := j.await(waiting, filed, func(o *certificatesv1.CertificateSigningRequest) bool {
			return len(o.Status.Conditions) != 0 || len(o.Status.Certificate) != 0
		})
		cancel()
		if err != nil {
			return nil, fmt.Errorf("waiting for the challenge of %s: %w", filed.Name, err)
		}
		challenge, err := attest.ChallengeOf(statusOf(got))
		if err == nil {
			return challenge, nil
		}
		condition := refusedBy(got)
		if again := condition == nil || condition.Reason == helloExpired; !again {
			return nil, j.denied(got, condition)
		}
		if try == maxHellos {
			return nil, fmt.Errorf("hello %s: %w", got.Name, err)
		}
	}
}

// helloExpired is the reason of a denial after which a node files another hello.
var helloExpired = (&refusal.Error{Check: attest.CheckHelloExpired}).Reason()

// refusedBy returns the condition Denied or Failed of a request, or nil.
func refusedBy(o *certificatesv1.CertificateSigningRequest) *certificatesv1.CertificateSigningRequestCondition {
	for i := range o.Status.Conditions {
		if t := o.Status.Conditions[i].Type; t == certificatesv1.CertificateDenied || t == certificatesv1.CertificateFailed {
			return &o.Status.Conditions[i]
		}
	}
	return nil
}

func (j *join) denied(o *certificatesv1.CertificateSigningRequest, c *certificatesv1.CertificateSigningRequestCondition) error {
	err := &deniedError{request: o.Name, node: j.nodeName, condition: *c, filed: o}
	if c.Reason == versionDenied {
		return &versionError{err, o.Annotations}
	}
	return err
}

// statusOf returns the status of a request, as attest.ChallengeOf reads it.
func statusOf(o *certificatesv1.CertificateSigningRequest) *csr.Request {
	r := &csr.Request{Status: csr.Status{Certificate: o.Status.Certificate}}
	for _, c := range o.Status.Conditions {
		r.Status.Conditions = append(r.Status.Conditions, csr.Condition{Type: string(c.Type), Status: string(c.Status), Reason: c.Reason, Message: c.Message})
	}
	return r
}

// file files a request.
func (j *join) file(ctx context.Context, spec *csr.Spec) (*certificatesv1.CertificateSigningRequest, error) {
	o := &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{GenerateName: j.prefix},
		Spec:       certificatesv1.CertificateSigningRequestSpec{Request: spec.Request, SignerName: spec.SignerName, ExpirationSeconds: spec.ExpirationSeconds},
	}
	for _, usage := range spec.Usages {
		o.Spec.Usages = append(o.Spec.Usages, certificatesv1.KeyUsage(usage))
	}
	return measure(&j.parts.network, func() (*certificatesv1.CertificateSigningRequest, error) { return j.api.Create(ctx, o) })
}

// await waits until the control plane has decided a request.
func (j *join) await(ctx context.Context, o *certificatesv1.CertificateSigningRequest, done func(*certificatesv1.CertificateSigningRequest) bool) (*certificatesv1.CertificateSigningRequest, error) {
	return measure(&j.parts.controller, func() (*certificatesv1.CertificateSigningRequest, error) { return j.api.Await(ctx, o, done) })
}

// noAccess reports whether the API server rejected the credential, so that another one is tried.
func noAccess(err error) bool { return apierrors.IsUnauthorized(err) || apierrors.IsForbidden(err) }
