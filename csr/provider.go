package csr

import (
	"context"
	"crypto"
	"encoding/pem"
	"slices"
	"strconv"
	"strings"

	"github.com/nodeattest/nodeattest/internal/names"
	"github.com/nodeattest/nodeattest/refusal"
)

// Provider verifies the evidence of one kind of attestation. It is the interface
// ClusterAPISigner of the Cluster API proposal ("Node Attestation"): the three methods keep
// their names, and gain a context and typed results.
//
// A provider is self-contained. It checks the request against a [Policy] itself, since only
// a Policy makes the [Checked] in its result, and it must not trust anything that the
// requester could have set: annotations, labels, and unsigned statements in the evidence.
// Annotations least of all, such as the proposal's "cluster-x-k8s-io/tpm-endorsement-key".
//
// A refusal is a [*Error], [Errors] or an error with a method DenyReason() string. An error
// for what could not be decided wraps [refusal.ErrRetry]: a provider whose inventory or platform
// does not answer neither accepts nor refuses. [Decide] tells them apart. Methods are called
// from many goroutines and must not keep or change the request.
//
// Package attesttest has a conformance runner for implementations.
type Provider interface {
	// VerifyClientAttestationData verifies a request for a client or recovery
	// certificate. It refuses requests for other purposes.
	VerifyClientAttestationData(ctx context.Context, request *Parsed) (*Attested, error)
	// VerifyServingAttestationData verifies a request for a serving certificate, its
	// SANs included. It refuses requests for other purposes.
	VerifyServingAttestationData(ctx context.Context, request *Parsed) (*Attested, error)
	// MachineName returns the name of the machine in the operator's inventory, for example
	// that of a Cluster API Machine. It is called with the result of one of the other two
	// methods of this very provider, never for a request that was not verified, and refuses
	// a nil or empty result.
	MachineName(ctx context.Context, attested *Attested) (string, error)
}

// Verify has a provider verify the evidence of a request, for the purpose of its signer name, and
// then asks for the machine's name. The provider's result is checked against the request
// ([Attested.Check]), and the request's signature is verified. A provider that names no machine
// breaks [CheckProviderResult].
//
// A caller with several providers gives each the requests under its own signers, whatever their
// evidence says ([ProviderOf]). Kubelets' own requests to [SignerKubeletServing] carry no
// evidence, and no provider verifies them; see [Checked.Inherit].
func Verify(ctx context.Context, provider Provider, request *Request) (*Attested, error) {
	if provider == nil {
		return nil, refusal.Config("Provider", "", "one")
	}
	verify, parsed := provider.VerifyClientAttestationData, request.Parsed()
	if purpose, _, _ := parseSignerName(request.signerName()); purpose == PurposeServing {
		verify = provider.VerifyServingAttestationData
	}
	attested, err := verify(ctx, parsed)
	if err != nil {
		return nil, err
	}
	if err := attested.Check(parsed); err != nil {
		return nil, err
	}
	if err := attested.Checked().CheckSignature(); err != nil {
		return nil, err
	}
	accepted := *attested
	if accepted.machineName, err = provider.MachineName(ctx, attested); err != nil {
		return nil, err
	}
	if accepted.machineName == "" {
		return nil, &Error{Check: CheckProviderResult, Got: "a machine without a name", Want: "its name in the inventory"}
	}
	return &accepted, nil
}

// insecureProvider attests nothing.
type insecureProvider struct{ policy *Policy }

// NewInsecureProvider makes the provider that always allows: anyone who has a bootstrap
// token may be any machine that the policy knows, as in clusters without attestation
// (Cluster API kubelet authentication, "Insecure providers"). It is for infrastructures
// where machines have no way to prove anything.
//
// It serves [SignerClientInsecure] and no other signer, so policy.SignerNames must be that one
// name. It does not renew certificates (the policy refuses requesters that are already nodes),
// has no serving certificates, and needs a CA of its own ([CAConfig]), and each of its machines
// has Provider "insecure" in the inventory. It vouches for the provider ID that the request
// claims, which the policy compares with the inventory's if that is known. The machine's
// identity is "insecure:" and the node's name: nothing has proven it.
func NewInsecureProvider(policy *Policy) (Provider, error) {
	if err := policy.Validate(); err != nil {
		return nil, err
	}
	if len(policy.SignerNames) != 1 || policy.SignerNames[0] != SignerClientInsecure {
		return nil, refusal.Config("SignerNames of the insecure provider", refusal.Quotes(policy.SignerNames), SignerClientInsecure+" alone")
	}
	return insecureProvider{policy.Clone()}, nil
}

// VerifyClientAttestationData checks the request against the policy and nothing more.
func (p insecureProvider) VerifyClientAttestationData(ctx context.Context, request *Parsed) (*Attested, error) {
	checked, err := p.policy.Check(ctx, request)
	if err != nil {
		return nil, err
	}
	grant := Grant{ProviderID: checked.ClaimedProviderID().Unproven()} // as documented: this provider attests nothing
	return checked.Vouch(providerInsecure+":"+checked.nodeName, grant, nil), nil
}

// VerifyServingAttestationData refuses: an insecure provider has no serving
// certificates.
func (insecureProvider) VerifyServingAttestationData(_ context.Context, request *Parsed) (*Attested, error) {
	return nil, &Error{Check: CheckSignerName, Got: refusal.Quote(request.Request().signerName()),
		Want: SignerClientInsecure + ": the insecure provider has no serving certificates"}
}

// MachineName returns the name in the policy's inventory.
func (insecureProvider) MachineName(_ context.Context, attested *Attested) (string, error) {
	return attested.InventoryName()
}

// maxVersion is the largest version number.
const maxVersion = 999999999

// ProviderVersion splits Provider, such as "tpm/v1", into the provider's name and the version of
// its data format. The error is a [*Error] with "bundle-provider".
func (b *Bundle) ProviderVersion() (name string, version int, err error) {
	if b == nil {
		return providerVersion("")
	}
	return providerVersion(b.Provider)
}

func providerVersion(provider string) (name string, version int, err error) {
	name, digits, _ := strings.Cut(provider, "/v")
	// Ten digits show that a number is too large. Other texts that Atoi reads, such as "+1", differ below.
	version, _ = strconv.Atoi(digits[:min(len(digits), 10)])
	if !names.ValidLabel(name) || version < 1 || version > maxVersion || strconv.Itoa(version) != digits {
		return "", 0, &Error{Check: checkProvider, Got: refusal.Quote(provider), Want: `a name and version such as "tpm/v1"`}
	}
	return name, version, nil
}

// annotationVersions is the annotation that the control plane writes on a request that was refused for
// its version: the versions that it reads (Cluster API kubelet authentication, "Version Skew Strategy",
// which names no key). The value is a list of names as in [Bundle.Provider], newest first and separated by
// commas: "tpm/v2,tpm/v1". It is for the node. The control plane never reads it: a requester can set it to
// anything.
const annotationVersions = "cluster.x-k8s.io/kubelet-authenticator-attestation-versions"

// maxVersionsSize bounds the annotation's value, in bytes, and thus the number of versions
// in it.
const maxVersionsSize = 1024

// UnsupportedVersionError says which versions a node could use, whose evidence is of another.
type UnsupportedVersionError struct {
	// Supported are the versions that the provider accepts, newest first.
	Supported []string
}

// Error returns a message with the supported versions.
func (e *UnsupportedVersionError) Error() string {
	return "csr: the versions that are read are " + strings.Join(e.Supported, ", ")
}

// Annotation returns the annotation that the control plane puts on the request, so that the
// node can file another one in a version that both support.
func (e *UnsupportedVersionError) Annotation() (key, value string) {
	return annotationVersions, strings.Join(e.Supported, ",")
}

// ChooseVersion is the node's side of the negotiation: from the annotations of its refused
// request it takes the newest version that it speaks itself. speaks are the versions that
// the node writes and considers safe, such as "tpm/v2": an annotation, which others may have
// written, can choose among these but not add to them. The error is a [*Error] of
// [CheckProviderVersion]: no annotation, one that is not a list of versions, or nothing in
// common.
func (m *Metadata) ChooseVersion(speaks []string) (string, error) {
	value := ""
	if m != nil {
		value = m.Annotations[annotationVersions]
	}
	if len(value) > maxVersionsSize {
		return "", CheckProviderVersion.Refuse("a list of "+strconv.Itoa(len(value))+" bytes", "at most "+strconv.Itoa(maxVersionsSize))
	}
	offered := strings.Split(value, ",")
	if slices.ContainsFunc(offered, func(name string) bool { _, _, err := providerVersion(name); return err != nil }) {
		return "", CheckProviderVersion.Refuse(refusal.Quote(value), "names such as tpm/v1 with a comma between two")
	}
	best, newest := "", 0
	for _, name := range speaks {
		_, version, err := providerVersion(name)
		if err == nil && slices.Contains(offered, name) && version > newest {
			best, newest = name, version
		}
	}
	if best == "" {
		return "", CheckProviderVersion.Refuse(refusal.Quote(value), strings.Join(speaks, " or "))
	}
	return best, nil
}

// annotationEndorsementKey is the annotation of the endorsement key that the platform names for the machine
// (Cluster API kubelet authentication, "TPM based providers"). Its value is the key in PEM, which
// people read and no code.
const annotationEndorsementKey = "cluster-x-k8s-io/tpm-endorsement-key"

// EndorsementKeyAnnotation returns the annotation for an endorsement key that the caller got
// from the platform or verified: the key as PEM of type PUBLIC KEY (RFC 7468, 13), in the
// canonical form of [CanonicalSPKI], whose errors it returns. The name is returned with an error
// too: an annotation of that name is then the requester's, and is to be removed.
func EndorsementKeyAnnotation(key crypto.PublicKey) (name, value string, err error) {
	spki, err := CanonicalSPKI(key)
	if err != nil {
		return annotationEndorsementKey, "", err
	}
	return annotationEndorsementKey, string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: spki})), nil
}
