package csr

import (
	"cmp"
	"crypto/x509"
	"slices"
	"strconv"
	"strings"

	"github.com/nodeattest/nodeattest/internal/names"
	"github.com/nodeattest/nodeattest/refusal"
)

// The names of the signers that are built into this SDK (Cluster API kubelet authentication,
// "Core Specification" and "Provider Specification"; for a provider of your own use
// [Purpose.SignerName]), and the names of a node's users and groups. They are fixed: RBAC, the
// node authorizer and kube-apiserver's admission compare them byte for byte.
const (
	// SignerClientTPM signs client certificates of nodes that attest with a TPM.
	SignerClientTPM = clientSignerPrefix + "tpm"
	// SignerClientInsecure signs client certificates of nodes that prove nothing. It is for
	// machines that have no way to prove anything: it has no rotation and no serving
	// certificates, and must never share a CA with a signer that attests.
	SignerClientInsecure = clientSignerPrefix + providerInsecure
	// SignerServingTPM signs serving certificates of nodes that attest with a TPM.
	SignerServingTPM = servingSignerPrefix + "tpm"
	// SignerChallengeTPM is the name under which a node files a hello. No signer signs for it:
	// the answer to a hello is a denial that carries the challenge.
	SignerChallengeTPM = challengeSignerPrefix + "tpm"
	// SignerRecoveryTPM signs recovery certificates: long-lived, for a key in the TPM, and
	// good only for requesting a new client certificate.
	SignerRecoveryTPM = "cluster.x-k8s.io/kubelet-attestation-recovery-tpm"
	// SignerKubeAPIServerClientKubelet is Kubernetes' own signer of kubelet client
	// certificates. It drops the provider ID extension.
	SignerKubeAPIServerClientKubelet = "kubernetes.io/kube-apiserver-client-kubelet"
	// SignerKubeletServing is Kubernetes' own signer of kubelet serving
	// certificates. A kubelet's requests to it carry no evidence of their own; see
	// [Policy].
	SignerKubeletServing = "kubernetes.io/kubelet-serving"

	// ExtraCredentialID is the key of [User].Extra under which kube-apiserver states which
	// credential the requester used. For a client certificate the only value is "X509SHA256="
	// and the hexadecimal SHA-256 of the leaf's DER; see [CredentialID].
	ExtraCredentialID = "authentication.kubernetes.io/credential-id"
	// NodeUserPrefix comes before a node's name in its user name, which is also the common
	// name of its certificates.
	NodeUserPrefix = "system:node:"
	// NodesGroup is the group of all nodes, and the one organization of their
	// certificates.
	NodesGroup = "system:nodes"
	// RecoveryUserPrefix comes before a node's name in the user name of its recovery
	// certificate, which may be used only to ask for a new client certificate.
	RecoveryUserPrefix = "nodeattest:recovery:"
	// RecoveryGroup is the one organization of recovery certificates.
	RecoveryGroup = "nodeattest:recovery"
	// BootstrapUserPrefix comes before a bootstrap token's ID in the user name of anyone who
	// uses that token.
	BootstrapUserPrefix = "system:bootstrap:"
	// BootstrappersGroup is the group of everyone who uses a bootstrap token. A token's own
	// groups begin with this name and a colon.
	BootstrappersGroup = "system:bootstrappers"
	// AuthenticatedGroup is the group of everyone that kube-apiserver has authenticated.
	AuthenticatedGroup = "system:authenticated"
)

// providerInsecure is the name of the provider that attests nothing.
const providerInsecure = "insecure"

const (
	clientSignerPrefix    = "cluster.x-k8s.io/kube-apiserver-client-kubelet-"
	servingSignerPrefix   = "cluster.x-k8s.io/kubelet-serving-"
	challengeSignerPrefix = "cluster.x-k8s.io/kubelet-attestation-challenge-"
	// misspeltPrefix is how the proposal spells some of the names. kube-apiserver refuses
	// it: the part before the slash must be a domain name with a dot.
	misspeltPrefix = "cluster-x-k8s-io/"
)

// Purpose is the use of a certificate. The signer name of a request determines it; see
// [PurposeOf]. The zero value is not a purpose and is refused everywhere.
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

// purposes has for each purpose the prefix of the common name, the organization,
// and which usage the key has in addition to signatures. It is never modified.
var purposes = map[Purpose]struct {
	prefix, organization, auth string
	extKeyUsage                x509.ExtKeyUsage // of the certificate
}{
	PurposeClient:   {NodeUserPrefix, NodesGroup, usageClientAuth, x509.ExtKeyUsageClientAuth},
	PurposeServing:  {NodeUserPrefix, NodesGroup, usageServerAuth, x509.ExtKeyUsageServerAuth},
	PurposeRecovery: {RecoveryUserPrefix, RecoveryGroup, usageClientAuth, x509.ExtKeyUsageClientAuth},
}

// PurposeOf returns the purpose of a signer's certificates. It knows the names that are
// constants here and all names that [Purpose.SignerName] makes. For every other
// name it returns a [*Error] of [CheckSignerName]: among others for the challenge signer,
// for which no signer signs, for a serving signer of the insecure provider, and for the
// proposal's spelling cluster-x-k8s-io/, which kube-apiserver refuses.
func PurposeOf(signerName string) (Purpose, error) {
	purpose, _, want := parseSignerName(signerName)
	if purpose == 0 {
		return 0, &Error{Check: CheckSignerName, Got: refusal.Quote(signerName), Want: want}
	}
	return purpose, nil
}

// SignerName returns the name of the signer of client or serving certificates for nodes that
// attest through this provider. The provider's name is 1 to 63 bytes of lower-case letters,
// digits and "-", beginning and ending with a letter or digit. The error is a [*Error] of
// [CheckSignerName] for any other name, for the serving certificates of "insecure", which has
// none, and for other purposes.
func (p Purpose) SignerName(provider string) (string, error) {
	switch p {
	case PurposeClient:
		return signerOf(clientSignerPrefix, provider)
	case PurposeServing:
		return signerOf(servingSignerPrefix, provider)
	}
	return "", &Error{Check: CheckSignerName, Got: "purpose " + p.String(), Want: "client or serving"}
}

// SignerChallenge returns the name under which nodes that attest through this provider file
// a hello, whose target is the certificate's own signer. It refuses the names that
// [Purpose.SignerName] refuses for serving certificates: an insecure provider challenges no node.
func SignerChallenge(provider string) (string, error) {
	return signerOf(challengeSignerPrefix, provider)
}

func signerOf(prefix, provider string) (string, error) {
	if !names.ValidLabel(provider) || provider == providerInsecure && prefix != clientSignerPrefix {
		return "", &Error{Check: CheckSignerName, Got: "provider " + refusal.Quote(provider),
			Want: "a provider that has such a signer, 1 to 63 bytes of a-z, 0-9 and inner hyphens"}
	}
	return prefix + provider, nil
}

// challengedProvider returns the provider of a challenge signer, or "" for other signers.
func challengedProvider(signerName string) string {
	name, ok := strings.CutPrefix(signerName, challengeSignerPrefix)
	if !ok || !names.ValidLabel(name) || name == providerInsecure {
		return ""
	}
	return name
}

// ProviderOf returns the name of the attestation provider that a signer name selects, such
// as "tpm" for [SignerClientTPM]. It returns "" for Kubernetes' own signers, which select
// none, and for names that [PurposeOf] refuses.
func ProviderOf(signerName string) string {
	_, provider, _ := parseSignerName(signerName)
	return provider
}

// parseSignerName returns the purpose and the provider of a signer name. For a name without
// a purpose it returns 0, "" and the wanted name, for an error.
func parseSignerName(name string) (purpose Purpose, provider, want string) {
	client, isClient := strings.CutPrefix(name, clientSignerPrefix)
	server, isServing := strings.CutPrefix(name, servingSignerPrefix)
	switch {
	case name == SignerKubeAPIServerClientKubelet:
		return PurposeClient, "", ""
	case name == SignerKubeletServing:
		return PurposeServing, "", ""
	case name == SignerRecoveryTPM:
		return PurposeRecovery, "tpm", ""
	case isClient && names.ValidLabel(client):
		return PurposeClient, client, ""
	case name == servingSignerPrefix+providerInsecure:
		return 0, "", "a signer of client certificates: the insecure provider has no others"
	case isServing && names.ValidLabel(server):
		return PurposeServing, server, ""
	case strings.HasPrefix(name, misspeltPrefix):
		return 0, "", "the prefix cluster.x-k8s.io/: kube-apiserver refuses cluster-x-k8s-io/"
	case strings.HasPrefix(name, challengeSignerPrefix):
		return 0, "", "the signer of the certificate: no certificate is signed for the challenge signer"
	}
	return 0, "", "a signer of node certificates"
}

// checkSignerNames refuses a configuration with a signer that [PurposeOf] does not know.
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

// Usages returns the key usages that a request for this purpose has, as
// certificates.k8s.io/v1 spells them and in the kubelet's order: "digital signature", "key
// encipherment" if keyEncipherment is set, then "client auth" or, for [PurposeServing],
// "server auth". Kubernetes accepts key encipherment with any key; kubelets ask for it with
// RSA keys only. Usages returns nil for a value that is not a purpose.
func (p Purpose) Usages(keyEncipherment bool) []string {
	of, known := purposes[p]
	switch {
	case !known:
		return nil
	case keyEncipherment:
		return []string{usageDigitalSignature, usageKeyEncipherment, of.auth}
	}
	return []string{usageDigitalSignature, of.auth}
}

const (
	usageDigitalSignature = "digital signature"
	usageKeyEncipherment  = "key encipherment"
	usageClientAuth       = "client auth"
	usageServerAuth       = "server auth"
)

// SubjectNames returns the one common name and the one organization that a certificate for
// this purpose and node has, in a request and when issued. Both are "" if the purpose is
// none of the three or the name is not a node name.
func (p Purpose) SubjectNames(nodeName string) (commonName, organization string) {
	subject, known := purposes[p]
	if !known || !names.ValidNode(nodeName) {
		return "", ""
	}
	return subject.prefix + nodeName, subject.organization
}

// nodeNameAfter cuts the prefix off a user name or common name. It returns "" and false if
// the rest is not a node name.
func nodeNameAfter(prefix, name string) (string, bool) {
	rest, ok := strings.CutPrefix(name, prefix)
	if !ok || !names.ValidNode(rest) {
		return "", false
	}
	return rest, true
}

// RequesterClass says who files a request, and so which certificates they may ask for. The zero value is
// no user and may ask for nothing.
//
//	class      user name                   groups                                client  serving  recovery
//	bootstrap  system:bootstrap:<id>       system:bootstrappers, those below it  yes     no       no
//	node       system:node:<name>          system:nodes                          own     own      own
//	recovery   nodeattest:recovery:<name>  nodeattest:recovery                   own     no       no
//
// Every class also has system:authenticated, and no other group. Under
// [SignerClientInsecure] only the bootstrap class may ask: that provider does not rotate
// certificates.
type RequesterClass int

// The three classes.
const (
	// RequesterBootstrap uses a bootstrap token. Which machine it is determines the name that it
	// gets, and where the token is for one node, this can only be its name.
	RequesterBootstrap RequesterClass = iota + 1
	// RequesterNode uses a node's client certificate and asks for that very node.
	RequesterNode
	// RequesterRecovery uses a node's recovery certificate and asks for a client certificate
	// for that very node.
	RequesterRecovery
)

// String returns "bootstrap", "node", "recovery", or "requester(<number>)".
func (c RequesterClass) String() string {
	return nameOf("requester", int(c), "", "bootstrap", "node", "recovery")
}

// Requester is who files a request, read from [User].Username.
type Requester struct {
	// Class is the kind of requester.
	Class RequesterClass
	// NodeName is the node whose certificate the requester used. For RequesterBootstrap it is the
	// only node that the token is for, and "" if it is for none in particular. Such a token has the
	// extra group system:bootstrappers:nodeattest:node:<name>, with ":" for each "." of the name.
	NodeName string
	// TokenID is the public half of the bootstrap token, six bytes of a-z and 0-9;
	// "" for the other classes.
	TokenID string
}

// Requester reads Username and Groups; the groups may be in any order. The error is a [*Error] of "request-username" or, for a user name of one of the three forms,
// of "request-groups".
//
// The groups must be exactly the groups of the class: a certificate with O=system:nodes gives
// system:nodes, kube-apiserver adds system:authenticated, and a bootstrap token adds only
// groups below system:bootstrappers:. Anything else means that the requester is more than a
// node, or that an authenticator unknown to this SDK is in use.
func (u *User) Requester() (Requester, error) {
	if u == nil {
		u = new(User)
	}
	q, err := requesterOf(u.Username)
	if err == nil {
		err = q.readGroups(u.Groups)
	}
	if err != nil {
		return Requester{}, err
	}
	return q, nil
}

// requesterOf reads only the user name.
func requesterOf(username string) (Requester, error) {
	if name, ok := nodeNameAfter(NodeUserPrefix, username); ok {
		return Requester{Class: RequesterNode, NodeName: name}, nil
	}
	if name, ok := nodeNameAfter(RecoveryUserPrefix, username); ok {
		return Requester{Class: RequesterRecovery, NodeName: name}, nil
	}
	if id, ok := strings.CutPrefix(username, BootstrapUserPrefix); ok && validTokenID(id) {
		return Requester{Class: RequesterBootstrap, TokenID: id}, nil
	}
	return Requester{}, &Error{Check: checkRequestUsername, Got: refusal.Quote(username),
		Want: "system:bootstrap:<token id>, system:node:<name> or nodeattest:recovery:<name>"}
}

func validTokenID(id string) bool {
	return len(id) == 6 && strings.Trim(id, "abcdefghijklmnopqrstuvwxyz0123456789") == ""
}

// classGroups has the group that every requester of a class is in. It is never modified.
var classGroups = map[RequesterClass]string{
	RequesterBootstrap: BootstrappersGroup, RequesterNode: NodesGroup, RequesterRecovery: RecoveryGroup,
}

// readGroups returns an error for the first group that is missing or not allowed, and takes the
// node from a token for one.
func (q *Requester) readGroups(groups []string) error {
	own := []string{classGroups[q.Class], AuthenticatedGroup}
	for _, needed := range own {
		if !slices.Contains(groups, needed) {
			return &Error{Check: checkRequestGroups, Got: strconv.Itoa(len(groups)) + " groups without it", Want: needed}
		}
	}
	for _, g := range groups {
		switch {
		case slices.Contains(own, g):
		case q.Class != RequesterBootstrap || !strings.HasPrefix(g, BootstrappersGroup+":"):
			return &Error{Check: checkRequestGroups, Got: refusal.Quote(g), Want: "the groups of a " + q.Class.String() + " requester only"}
		default:
			name, ok := ofTokenGroup(g)
			if ok && (!names.ValidNode(name) || q.NodeName != "" && q.NodeName != name) {
				return &Error{Check: checkRequestGroups, Got: refusal.Quote(g), Want: "the group of one node, by its name"}
			}
			q.NodeName = cmp.Or(name, q.NodeName)
		}
	}
	return nil
}

// mayAsk reports whether the class may ask for a certificate for this purpose from a signer
// that selects this provider.
func (c RequesterClass) mayAsk(purpose Purpose, provider string) bool {
	if provider == providerInsecure {
		return c == RequesterBootstrap // it has client certificates only
	}
	return c == RequesterNode || purpose == PurposeClient && (c == RequesterBootstrap || c == RequesterRecovery)
}
