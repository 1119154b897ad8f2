package csr

import (
	"bytes"
	"context"
	"errors"

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
// A refusal is a [*Error], [Errors] or an error with a method DenyReason()
// string. What could not be decided wraps [ErrRetry]: a provider whose inventory or
// platform does not answer neither accepts nor refuses. [Decide] tells them apart.
// Methods are called from many goroutines and must not keep or change the request.
//
// Package attesttest has a conformance runner for implementations.
type Provider interface {
	// VerifyClientAttestationData verifies a request for a client or recovery
	// certificate. It refuses requests for other purposes.
	VerifyClientAttestationData(ctx context.Context, request *Parsed) (*Attested, error)
	// VerifyServingAttestationData verifies a request for a serving certificate, its
	// SANs included. It refuses requests for other purposes.
	VerifyServingAttestationData(ctx context.Context, request *Parsed) (*Attested, error)
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
	Challenge(ctx context.Context, request *Parsed) ([]byte, error)
}

// Attested is the outcome of a verification. Checked and Verified are what [CA.Issue]
// takes.
type Attested struct {
	// Checked is the request as the provider's policy passed it.
	Checked *Checked
	// Verified is what the evidence proves and the provider vouches for.
	Verified *Verified
	// Details is the kind's own result, such as an *attest.Result with its facts and
	// its quote; nil where a kind has none. Nothing in this package reads it.
	Details any
	// Provider is the provider's name, and MachineName the machine's name in the
	// operator's inventory. [Providers.Verify] sets both, whatever a provider says.
	Provider, MachineName string
}

// Rules of providers and of their selection by [Providers].
const (
	// CheckProviderUnknown: there is a provider for the signer that the request is
	// filed under. One without is not denied: see ErrOtherSigner.
	CheckProviderUnknown Check = "provider-unknown"
	// CheckAttestorNotAuthorized: that provider is on the list of authorised
	// attestors.
	CheckAttestorNotAuthorized Check = "attestor-not-authorized"
	// CheckProviderVersion: the evidence has a version that the provider reads, and
	// none below the minimum.
	CheckProviderVersion Check = "provider-version"
	// CheckProviderResult: a provider's result is for the request that it was given.
	CheckProviderResult Check = "provider-result"
	// CheckNoChallenge: the provider challenges nodes, and the request is filed as a
	// hello.
	CheckNoChallenge Check = "no-challenge"
)

// Check holds a provider's result against the request that it was asked about: it is
// whole, checked and verified are of one request, and that is the one in request, with
// its signer, requester and UID. [Providers.Verify] does this. The error is an [*Error]
// of [CheckProviderResult].
func (a *Attested) Check(request *Parsed) error {
	r := request.Request()
	if r == nil {
		return noRequest()
	}
	if a == nil || a.Checked == nil || a.Checked.pkcs10 == nil || a.Verified == nil {
		return &Error{Check: CheckProviderResult, Got: "no result", Want: "a checked and verified request"}
	}
	c, v, quote := a.Checked, a.Verified, refusal.Quote
	const check = CheckProviderResult
	return faults{
		{c.signerName != r.Spec.SignerName, check, "signer " + quote(c.signerName), r.Spec.SignerName},
		{c.username != r.Spec.Username, check, "requester " + quote(c.username), quote(r.Spec.Username)},
		{c.uid != r.Metadata.UID, check, "object " + quote(c.uid), quote(r.Metadata.UID)},
		{!bytes.Equal(request.der(), c.pkcs10.Raw), check, "another PKCS#10 request", "the one in the object"},
		{v.RequestHash != c.pkcs10.InfoHash, check, "evidence for another PKCS#10 request", "for the one in the object"},
		{v.NodeName != c.nodeName, check, "node " + quote(v.NodeName), quote(c.nodeName)},
		{v.SignerName != c.signerName, check, "evidence for signer " + quote(v.SignerName), quote(c.signerName)},
		{v.Machine == "", check, "no machine", "the machine's identity"},
	}.first()
}

// InventoryName is the name that the policy's inventory has for the machine
// ([Machine]), which is what most providers answer for [Provider.MachineName]. An
// empty result, and a machine without a name, is a [*Error].
func (a *Attested) InventoryName() (string, error) {
	if a == nil || a.Checked == nil || a.Checked.machine == nil || a.Verified == nil {
		return "", &Error{Check: CheckProviderResult, Got: "no result", Want: "a checked and verified request"}
	}
	if a.Checked.machine.Name == "" {
		return "", &Error{Check: CheckMachineUnknown, Got: "a machine without a name", Want: "its name in the inventory"}
	}
	return a.Checked.machine.Name, nil
}

// insecureProvider attests nothing.
type insecureProvider struct{ policy *Policy }

// NewInsecureProvider makes the provider that always allows: whoever has a bootstrap
// token may be any machine that the policy knows, as in clusters without attestation
// (Cluster API kubelet authentication, "Insecure providers"). It is for
// infrastructures where machines have no way to prove anything.
//
// It serves [SignerClientInsecure] and no other signer, so policy.SignerNames must be
// that one name. It does not renew certificates (the policy refuses requesters that
// are nodes already), has no serving certificates, and stands on a CA of its own
// ([ProvidersConfig], [CAConfig]). It vouches for the provider ID that the request
// claims, which the policy holds against the inventory's where that is known. The
// machine's identity is "insecure:" and the node's name: nothing has shown it.
func NewInsecureProvider(policy *Policy) (Provider, error) {
	if err := policy.Validate(); err != nil {
		return nil, err
	}
	if len(policy.SignerNames) != 1 || policy.SignerNames[0] != SignerClientInsecure {
		return nil, refusal.Config("SignerNames of the insecure provider", refusal.Quotes(policy.SignerNames), SignerClientInsecure+" alone")
	}
	return insecureProvider{policy}, nil
}

// VerifyClientAttestationData holds the request against the policy, and that is all.
func (p insecureProvider) VerifyClientAttestationData(ctx context.Context, request *Parsed) (*Attested, error) {
	checked, err := p.policy.Check(ctx, request)
	if err != nil {
		return nil, err
	}
	v := checked.Vouch(ProviderInsecure + ":" + checked.nodeName)
	v.ProviderID = checked.ClaimedProviderID()
	return &Attested{Checked: checked, Verified: v}, nil
}

// VerifyServingAttestationData refuses: an insecure provider has no serving
// certificates.
func (insecureProvider) VerifyServingAttestationData(_ context.Context, request *Parsed) (*Attested, error) {
	return nil, &Error{Check: CheckSignerName, Got: refusal.Quote(request.Request().signerName()),
		Want: SignerClientInsecure + ": the insecure provider has no serving certificates"}
}

// MachineName is the name in the policy's inventory.
func (insecureProvider) MachineName(_ context.Context, attested *Attested) (string, error) {
	return attested.InventoryName()
}

// CheckProviderPurpose: a request for one purpose was given to the method of a
// provider for another.
const CheckProviderPurpose Check = "provider-purpose"

// CheckPurpose holds the purpose of a request's signer name against the method of a
// [Provider] that it was given to: serving says that it is the one for serving
// certificates. It returns an [*Error] with [CheckProviderPurpose].
func CheckPurpose(request *Request, serving bool) error {
	if request == nil {
		return errors.New("csr: no request")
	}
	purpose, err := PurposeOf(request.Spec.SignerName)
	if err != nil {
		return err
	}
	if (purpose == PurposeServing) != serving {
		want := PurposeClient
		if serving {
			want = PurposeServing
		}
		return &Error{Check: CheckProviderPurpose, Got: "a request for a " + purpose.String() + " certificate", Want: want.String()}
	}
	return nil
}
