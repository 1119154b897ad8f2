package join

import (
	"context"
	"crypto"
	"crypto/x509"
	"errors"
	"slices"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/membership"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/wallclock"
	"github.com/nodeattest/nodeattest/refusal"
)

// Config configures a [Plane]. The fields of the last group are optional.
type Config struct {
	// Chain is the CA that issues the nodes' certificates, with the issuing certificate first,
	// and Key its private key, as for [csr.NewCA]. The public key of the first certificate
	// names the cluster ([attest.ClusterID]).
	Chain []*x509.Certificate
	Key   crypto.Signer
	// Kinds are the kinds of evidence that are trusted, each of another provider. Nodes file
	// under the client signers of these kinds ([csr.Purpose.SignerName]), and no others are served.
	Kinds []attest.Kind
	// Members decide which machine may be which node. No other machine gets a certificate. If
	// another machine is listed for a node's name, the Err of the [Reply] has the identity of the
	// requesting machine, in the form for a list.
	Members membership.Members

	// KeyRing authenticates challenges. Nil makes one for this process alone: after a restart,
	// and at another replica, a node that has been challenged begins again.
	KeyRing *attest.KeyRing
	// MaxLifetime is the longest lifetime of a certificate; 0 means 24 hours.
	MaxLifetime time.Duration
	// Now is the clock; nil means [time.Now].
	Now func() time.Time
}

// Plane is the control plane's side of the join: it decides about requests, and issues
// certificates. Its only state is the key ring. It is safe for use from many goroutines.
type Plane struct {
	verifier *attest.Verifier
	ca       *csr.CA
	signers  []string
	now      func() time.Time
}

// NewPlane checks the configuration and returns a plane. An error matches [refusal.CheckConfig]
// and names the field.
func NewPlane(c Config) (*Plane, error) {
	switch {
	case len(c.Chain) == 0:
		return nil, refusal.Config("Chain", "", "at least one certificate")
	case len(c.Kinds) == 0:
		return nil, refusal.Config("Kinds", "", "at least one kind of evidence")
	case c.Members == nil:
		return nil, refusal.Config("Members", "", "a list of machines, or other Members")
	}
	c.Now = wallclock.Or(c.Now)
	id, err := attest.ClusterID(c.Chain[0])
	if err != nil {
		return nil, &attest.Error{Check: refusal.CheckConfig, Got: "an unusable Chain", Err: err}
	}
	p := &Plane{now: c.Now}
	if p.signers, err = clientSigners(c.Kinds); err != nil {
		return nil, err
	}
	clusterIDs := []string{id}
	if p.ca, err = csr.NewCA(c.Chain, c.Key, csr.CAConfig{ClusterIDs: clusterIDs, SignerNames: p.signers, MaxLifetime: c.MaxLifetime, Now: c.Now}); err != nil {
		return nil, err
	}
	if c.KeyRing == nil {
		if c.KeyRing, err = attest.NewStaticKeyRing(attest.NewRingKey(c.Now())); err != nil {
			return nil, err
		}
	}
	policy := &csr.Policy{ClusterIDs: clusterIDs, SignerNames: p.signers, Machines: c.Members.Machine}
	p.verifier, err = attest.NewVerifier(attest.VerifierConfig{KeyRing: c.KeyRing, Kinds: c.Kinds, Policy: policy, Authorizer: c.Members, Now: c.Now})
	if err != nil {
		return nil, err
	}
	return p, nil
}

// clientSigners returns the signers of client certificates of some kinds.
func clientSigners(kinds []attest.Kind) (names []string, err error) {
	for _, k := range kinds {
		if k == nil {
			return nil, refusal.Config("Kinds", "a nil kind", "kinds of evidence")
		}
		name, err := csr.PurposeClient.SignerName(k.Describe().Provider)
		if err != nil {
			return nil, &attest.Error{Check: refusal.CheckConfig, Got: "an unusable kind in Kinds", Err: err}
		}
		names = append(names, name)
	}
	return names, nil
}

// Reply is a [Plane]'s decision about a request.
type Reply struct {
	// Decision is the verdict with the condition to write. A challenge travels in its message.
	Decision csr.Decision
	// Issued is the certificate with its record, and Result the verification's. Both are nil
	// unless the verdict is to approve.
	Issued *csr.Issued
	Result *attest.Result
	// Err is the whole reason of a refusal or a retry, for the operator's log; nil for an
	// approval and for a challenge.
	Err error
}

// Status returns the request's status with the decision added, for a server without Kubernetes to
// store. A verdict to retry or to ignore changes nothing.
func (r *Reply) Status(request *csr.Request) csr.Status {
	status := request.Status
	if d := r.Decision; d.Condition != "" {
		status.Conditions = append(slices.Clone(status.Conditions), csr.Condition{Type: d.Condition, Status: "True", Reason: d.Reason, Message: d.Message})
	}
	if r.Issued != nil {
		status.Certificate = r.Issued.PEM
	}
	return status
}

// Handle decides about a request with either message. The request comes from an API server, or from
// [csr.Filed] in a server without Kubernetes. A request for another signer is ignored.
func (p *Plane) Handle(ctx context.Context, request *csr.Request) *Reply {
	if p == nil || p.verifier == nil || request == nil {
		return &Reply{Err: errNoPlane}
	}
	if !slices.Contains(p.signers, request.Spec.SignerName) {
		challenge, err := p.verifier.Challenge(ctx, request)
		return &Reply{Decision: attest.ChallengeDecision(challenge, err).For(request), Err: err}
	}
	var issued *csr.Issued
	result, err := p.verifier.Verify(ctx, request)
	if err == nil {
		issued, err = p.ca.Issue(ctx, result.Attested())
	}
	if err != nil {
		return &Reply{Decision: csr.Decide(err).For(request), Err: err}
	}
	return &Reply{Decision: result.Attested().Decision().For(request), Issued: issued, Result: result}
}

var errNoPlane = errors.New("join: no request, or a plane that NewPlane did not make")
