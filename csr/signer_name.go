package csr

import (
	"crypto/x509"
	"strings"

	"github.com/nodeattest/nodeattest/internal/nodename"
	"github.com/nodeattest/nodeattest/refusal"
)

// The names of the signers that this SDK knows (Cluster API kubelet
// authentication, "Core Specification" and "Provider Specification"). Use
// [SignerClient] and [SignerServing] for a provider of your own.
const (
	// SignerClientTPM signs client certificates of nodes that attest with a TPM.
	SignerClientTPM = clientSignerPrefix + "tpm"
	// SignerClientInsecure signs client certificates of nodes that prove nothing.
	// It is for machines that have no way to prove anything: no rotation, no
	// serving certificates, and never on the CA of a signer that attests.
	SignerClientInsecure = clientSignerPrefix + ProviderInsecure
	// SignerServingTPM signs serving certificates of nodes that attest with a TPM.
	SignerServingTPM = servingSignerPrefix + "tpm"
	// SignerChallengeTPM is the name under which a node files a hello. Nobody
	// signs for it: a hello is answered by a denial that carries the challenge.
	SignerChallengeTPM = challengeSignerPrefix + "tpm"
	// SignerRecoveryTPM signs recovery certificates: long-lived, on a key in the
	// TPM, good for asking for a new client certificate and for nothing else.
	SignerRecoveryTPM = recoverySignerPrefix + "tpm"
	// SignerKubeAPIServerClientKubelet is Kubernetes' own signer of kubelet client
	// certificates. It drops the provider ID extension.
	SignerKubeAPIServerClientKubelet = "kubernetes.io/kube-apiserver-client-kubelet"
	// SignerKubeletServing is Kubernetes' own signer of kubelet serving
	// certificates. A kubelet's requests to it carry no evidence of their own; see
	// [Policy].
	SignerKubeletServing = "kubernetes.io/kubelet-serving"
)

// ProviderInsecure is the name of the provider that attests nothing.
const ProviderInsecure = "insecure"

const (
	clientSignerPrefix    = "cluster.x-k8s.io/kube-apiserver-client-kubelet-"
	servingSignerPrefix   = "cluster.x-k8s.io/kubelet-serving-"
	challengeSignerPrefix = "cluster.x-k8s.io/kubelet-attestation-challenge-"
	recoverySignerPrefix  = "cluster.x-k8s.io/kubelet-attestation-recovery-"
	// misspeltPrefix is how the proposal writes some of the names. kube-apiserver
	// refuses it: the part before the slash must be a domain with a dot.
	misspeltPrefix = "cluster-x-k8s-io/"
)

// Purpose is what a certificate is for. The signer name of a request decides it;
// see [PurposeOf]. The zero value is no purpose and is refused everywhere.
type Purpose int

// The three purposes.
const (
	// PurposeClient is a kubelet's client certificate: subject
	// O=system:nodes, CN=system:node:<name>, no SANs, client auth.
	PurposeClient Purpose = iota + 1
	// PurposeServing is a kubelet's serving certificate: the same subject, the
	// node's own DNS names and IP addresses as SANs, server auth.
	PurposeServing
	// PurposeRecovery is a recovery certificate: subject O=nodeattest:recovery,
	// CN=nodeattest:recovery:<name>, no SANs, client auth.
	PurposeRecovery
)

// String returns "client", "serving", "recovery", or "purpose(<number>)".
func (p Purpose) String() string {
	return nameOf("purpose", int(p), "", "client", "serving", "recovery")
}

// purposes say of each purpose what the common name begins with, what the organization is,
// and which usage the key has beside signatures. It is never written.
var purposes = map[Purpose]struct {
	prefix, organization, auth string
	extKeyUsage                x509.ExtKeyUsage // what the certificate's key is for
}{
	PurposeClient:   {NodeUserPrefix, NodesGroup, usageClientAuth, x509.ExtKeyUsageClientAuth},
	PurposeServing:  {NodeUserPrefix, NodesGroup, usageServerAuth, x509.ExtKeyUsageServerAuth},
	PurposeRecovery: {RecoveryUserPrefix, RecoveryGroup, usageClientAuth, x509.ExtKeyUsageClientAuth},
}

// PurposeOf returns for what a signer's certificates are. It knows the names that
// are constants here and those that [SignerClient] and [SignerServing] make, and
// returns a [*Error] of [CheckSignerName] for every other name: for the
// challenge signer, for which nobody signs, for a serving signer of the insecure
// provider, and for the proposal's spelling cluster-x-k8s-io/, which
// kube-apiserver refuses.
func PurposeOf(signerName string) (Purpose, error) {
	purpose, _, want := parseSignerName(signerName)
	if purpose == 0 {
		return 0, &Error{Check: CheckSignerName, Got: refusal.Quote(signerName), Want: want}
	}
	return purpose, nil
}

// SignerClient returns the name of the signer of client certificates for nodes
// that attest through this provider. The provider's name is 1 to 63 bytes of
// lower-case letters, digits and "-", beginning and ending with a letter or digit;
// for another the result is a [*Error] of [CheckSignerName].
func SignerClient(provider string) (string, error) {
	return signerOf(clientSignerPrefix, provider)
}

// SignerServing returns the name of the signer of serving certificates for nodes
// that attest through this provider. It refuses what [SignerClient] refuses, and
// "insecure": an insecure provider has no serving certificates.
func SignerServing(provider string) (string, error) {
	return signerOf(servingSignerPrefix, provider)
}

// SignerChallenge returns the name under which nodes that attest through this
// provider file a hello, with the certificate's own signer as its target. It
// refuses what [SignerServing] refuses: an insecure provider challenges nobody.
func SignerChallenge(provider string) (string, error) {
	return signerOf(challengeSignerPrefix, provider)
}

func signerOf(prefix, provider string) (string, error) {
	if !validProvider(provider) || provider == ProviderInsecure && prefix != clientSignerPrefix {
		return "", &Error{Check: CheckSignerName, Got: "provider " + refusal.Quote(provider),
			Want: "a provider that has such a signer, 1 to 63 bytes of a-z, 0-9 and inner hyphens"}
	}
	return prefix + provider, nil
}

// ProviderOf returns the name of the attestation provider that a signer name
// selects, such as "tpm" for [SignerClientTPM]. It is "" for Kubernetes' own
// signers, which select none, and for names that [PurposeOf] refuses.
func ProviderOf(signerName string) string {
	_, provider, _ := parseSignerName(signerName)
	return provider
}

// parseSignerName returns the purpose and the provider of a signer name. For a
// name of no purpose it returns 0, "" and what was wanted instead.
func parseSignerName(name string) (purpose Purpose, provider, want string) {
	switch name {
	case SignerKubeAPIServerClientKubelet:
		return PurposeClient, "", ""
	case SignerKubeletServing:
		return PurposeServing, "", ""
	}
	if p, ok := strings.CutPrefix(name, clientSignerPrefix); ok && validProvider(p) {
		return PurposeClient, p, ""
	}
	if p, ok := strings.CutPrefix(name, servingSignerPrefix); ok && validProvider(p) {
		if p == ProviderInsecure {
			return 0, "", "a signer of client certificates: the insecure provider has no others"
		}
		return PurposeServing, p, ""
	}
	if p, ok := strings.CutPrefix(name, recoverySignerPrefix); ok && p == "tpm" {
		return PurposeRecovery, p, ""
	}
	if strings.HasPrefix(name, misspeltPrefix) {
		return 0, "", "the prefix cluster.x-k8s.io/: kube-apiserver refuses cluster-x-k8s-io/"
	}
	if strings.HasPrefix(name, challengeSignerPrefix) {
		return 0, "", "the signer that the certificate is meant for: nobody signs for the challenge signer"
	}
	return 0, "", "a signer of node certificates"
}

// checkSignerNames holds the signers of a configuration against what [PurposeOf] knows.
func checkSignerNames(names []string) error {
	if len(names) == 0 {
		return refusal.Config("SignerNames", "", "at least one")
	}
	for _, name := range names {
		if purpose, _, want := parseSignerName(name); purpose == 0 {
			return refusal.Config("SignerNames", refusal.Quote(name), want)
		}
	}
	return nil
}

func validProvider(name string) bool { return nodename.ValidLabel(name) }

// Usages returns the key usages that a request for this purpose has, as
// certificates.k8s.io/v1 spells them and in the kubelet's order: "digital
// signature", "key encipherment" where keyEncipherment is set, then "client auth"
// or, for [PurposeServing], "server auth". Kubernetes takes key encipherment with
// any key; kubelets ask for it with RSA keys only. It returns nil for no purpose.
func Usages(purpose Purpose, keyEncipherment bool) []string {
	p, known := purposes[purpose]
	switch {
	case !known:
		return nil
	case keyEncipherment:
		return []string{usageDigitalSignature, usageKeyEncipherment, p.auth}
	}
	return []string{usageDigitalSignature, p.auth}
}

const (
	usageDigitalSignature = "digital signature"
	usageKeyEncipherment  = "key encipherment"
	usageClientAuth       = "client auth"
	usageServerAuth       = "server auth"
)
