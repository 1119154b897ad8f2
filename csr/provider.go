package csr

import (
	"bytes"
	"context"
	"encoding/pem"

	"github.com/nodeattest/nodeattest/refusal"
)

// Provider verifies the evidence of one kind of attestation. It is the interface
// ClusterAPISigner of the Cluster API proposal ("Node Attestation"): the three
// methods keep their names, and get a context and typed results.
//
// A provider stands alone. It holds the request against a [Policy] itself, since
// only a Policy makes the [Checked] in its answer, and it must not take anything
// for true that the requester could have set: annotations, labels, and what the
// evidence says of itself. Annotations least of all; see [AnnotationEndorsementKey].
//
// A refusal is a [*Violation], [Violations] or an error with a method DenyReason()
// string. What could not be decided wraps [ErrRetry]: a provider whose inventory or
// platform does not answer neither accepts nor refuses. [Decide] tells them apart.
// Methods are called from many goroutines and must not keep or change the request.
//
// Package attesttest has a conformance runner for implementations.
type Provider interface {
	// VerifyClientAttestationData verifies a request for a client or recovery
	// certificate. It refuses requests for other purposes.
	VerifyClientAttestationData(ctx context.Context, request *Request) (*Attested, error)
	// VerifyServingAttestationData verifies a request for a serving certificate, its
	// SANs included. It refuses requests for other purposes.
	VerifyServingAttestationData(ctx context.Context, request *Request) (*Attested, error)
	// MachineName returns the name of the machine in the operator's inventory, for
	// example that of a Machine of the Cluster API. It is called with the result of
	// one of the other two methods of this very provider, never for a request that
	// was not verified, and refuses a nil or empty result.
	MachineName(ctx context.Context, attested *Attested) (string, error)
}

// Challenger is a [Provider] that wants to ask the node something before it
// verifies.
type Challenger interface {
	// Challenge checks a hello and returns the bytes that the node is to answer. The
	// request is filed under the challenge signer of the provider
	// ([SignerChallenge]). Who calls delivers the bytes, on Kubernetes in the
	// Denied condition of the hello.
	Challenge(ctx context.Context, request *Request) ([]byte, error)
}

// Attested is the outcome of a verification, the two things that [CA.Issue] takes.
type Attested struct {
	// Checked is the request as the provider's policy passed it.
	Checked *Checked
	// Verified is what the evidence proves and the provider vouches for.
	Verified *Verified
}

// Rules of providers and of their selection by [Providers].
const (
	// RuleProviderUnknown: there is a provider for the signer that the request is
	// filed under. One without is not denied: see ErrOtherSigner.
	RuleProviderUnknown Rule = "provider-unknown"
	// RuleAttestorNotAuthorized: that provider is on the list of authorised
	// attestors.
	RuleAttestorNotAuthorized Rule = "attestor-not-authorized"
	// RuleProviderVersion: the evidence has a version that the provider reads, and
	// none below the minimum.
	RuleProviderVersion Rule = "provider-version"
	// RuleProviderResult: a provider's result is for the request that it was given.
	RuleProviderResult Rule = "provider-result"
	// RuleNoChallenge: the provider challenges nodes, and the request is filed as a
	// hello.
	RuleNoChallenge Rule = "no-challenge"
)

// Check holds a provider's result against the request that it was asked about: it is
// whole, checked and verified are of one request, and that is the one in r, with its
// signer, requester and UID. [Providers.Verify] does this. The error is a [*Violation]
// of [RuleProviderResult].
func (a *Attested) Check(r *Request) error {
	refuse := func(got, want string) error {
		return &Violation{Check: RuleProviderResult, Got: got, Want: want}
	}
	if a == nil || a.Checked == nil || a.Checked.pkcs10 == nil || a.Verified == nil {
		return refuse("no result", "a checked and verified request")
	}
	c := a.Checked
	block, _ := pem.Decode(r.Spec.Request)
	switch {
	case c.signerName != r.Spec.SignerName:
		return refuse("signer "+refusal.Quote(c.signerName), r.Spec.SignerName)
	case c.username != r.Spec.Username:
		return refuse("requester "+refusal.Quote(c.username), refusal.Quote(r.Spec.Username))
	case c.uid != r.Metadata.UID:
		return refuse("object "+refusal.Quote(c.uid), refusal.Quote(r.Metadata.UID))
	case block == nil || !bytes.Equal(block.Bytes, c.pkcs10.Raw):
		return refuse("another PKCS#10 request", "the one in the object")
	case a.Verified.RequestHash != c.pkcs10.InfoHash:
		return refuse("evidence for another PKCS#10 request", "for the one in the object")
	case a.Verified.NodeName != c.nodeName:
		return refuse("node "+refusal.Quote(a.Verified.NodeName), refusal.Quote(c.nodeName))
	case a.Verified.SignerName != c.signerName:
		return refuse("evidence for signer "+refusal.Quote(a.Verified.SignerName), refusal.Quote(c.signerName))
	case a.Verified.Machine == "":
		return refuse("no machine", "the machine's identity")
	}
	return nil
}

// InventoryName is the name that the policy's inventory has for the machine
// ([Machine]), which is what most providers answer for [Provider.MachineName]. An
// empty result, and a machine without a name, is a [*Violation].
func (a *Attested) InventoryName() (string, error) {
	if a == nil || a.Checked == nil || a.Checked.machine == nil || a.Verified == nil {
		return "", &Violation{Check: RuleProviderResult, Got: "no result", Want: "a checked and verified request"}
	}
	if a.Checked.machine.Name == "" {
		return "", &Violation{Check: RuleMachineUnknown, Got: "a machine without a name", Want: "its name in the inventory"}
	}
	return a.Checked.machine.Name, nil
}
