package csr

import ()

// The rules of a [Policy], in the order in which [Policy.Check] tries them: those of
// the object, of the request inside, and of the machine. Between the first two come
// the rules of the PEM bundle ([Parse]) and of PKCS#10 ([ParsePKCS10]): where one of
// those is broken nothing else can be said, and the list of violations ends.
// [RuleSignature] is tried last. [PolicyRules] lists the names here in their order.
const (
	// RuleRequestClosed: the object is not denied, failed, signed or being deleted.
	// [Decide] ignores one that is: there is nothing left to decide. An Approved
	// condition is allowed, and changes nothing but the way in which a refusal is
	// written ([Decision.For]).
	RuleRequestClosed Rule = "request-closed"
	// RuleSignerName: the certificate is asked of a signer that the policy serves,
	// and the object is filed under that name, or, for a hello, under
	// SignerChallengeTPM. One that is filed under a signer of somebody else is not
	// denied: see ErrOtherSigner.
	RuleSignerName Rule = "signer-name"
	// RuleRequestUsername: the requester's user name has one of the three forms of
	// [RequesterClass].
	RuleRequestUsername Rule = "request-username"
	// RuleRequestGroups: the requester's groups are those of its class.
	RuleRequestGroups Rule = "request-groups"
	// RuleRequesterPurpose: a requester of this class may ask for such a
	// certificate. See [RequesterClass].
	RuleRequesterPurpose Rule = "requester-purpose"
	// RuleUsages: the usages are exactly those of [Usages], in any order, with or
	// without key encipherment, none twice.
	RuleUsages Rule = "usages"
	// RuleExpiration: expirationSeconds is absent or 600 and more. For Kubernetes'
	// own signers it is inside [Policy.MaxExpiration].
	RuleExpiration Rule = "expiration"

	// RuleAttestationProvider: the evidence behind the request is for the provider
	// that the signer name selects; a signer of the insecure provider takes none.
	RuleAttestationProvider Rule = "attestation-provider"
	// RuleSubjectCommonName: one common name, system:node: (for recovery:
	// nodeattest:recovery:) and a node name.
	RuleSubjectCommonName Rule = "subject-common-name"
	// RuleSubjectOrganization: one organization, exactly system:nodes (for
	// recovery: nodeattest:recovery).
	RuleSubjectOrganization Rule = "subject-organization"
	// RuleSubjectExtraRDN: nothing else in the subject. Among what is refused are
	// organizational units, and the attribute 1.3.6.1.4.1.57683.2, which
	// kube-apiserver would read as the user's UID.
	RuleSubjectExtraRDN Rule = "subject-extra-rdn"
	// RuleSubjectMultiValue: no set of several attributes in one place.
	RuleSubjectMultiValue Rule = "subject-multi-value"
	// RuleRequesterOtherNode: a node, or a node's recovery user, asks for itself.
	RuleRequesterOtherNode Rule = "requester-other-node"
	// RuleAttributeNotAllowed: the request has no attribute beside extensionRequest.
	RuleAttributeNotAllowed Rule = "attribute-not-allowed"
	// RuleExtensionNotAllowed: the request asks for no extension but the provider
	// ID, SANs where they may be, and the policy's flag. Key usage, extended key
	// usage and basic constraints are the signer's affair and refused too.
	RuleExtensionNotAllowed Rule = "extension-not-allowed"
	// RuleFlag: the flag extension is well formed where it is present, and present
	// where [Policy.RequireFlag] is set.
	RuleFlag Rule = "flag"
	// RuleKeyType: the key is RSA or ECDSA.
	RuleKeyType Rule = "key-type"
	// RuleKeyStrength: the RSA modulus or the curve is one that the policy takes,
	// and the RSA exponent is 65537.
	RuleKeyStrength Rule = "key-strength"
	// RuleSANOnClient: no subjectAltName in a request for a client or recovery
	// certificate, not even an empty one.
	RuleSANOnClient Rule = "san-on-client"
	// RuleSANMissing: a serving request has a DNS name or an IP address.
	RuleSANMissing Rule = "san-missing"
	// RuleSANKind: SANs are DNS names and IP addresses only.
	RuleSANKind Rule = "san-kind"
	// RuleSANCount: at most [MaxSANs] SANs.
	RuleSANCount Rule = "san-count"
	// RuleSANForm: a DNS name is a lower-case DNS-1123 subdomain, no wildcard, and
	// does not end like an IP address. The extension is not critical.
	RuleSANForm Rule = "san-form"
	// RuleSANReserved: no name or address of the API server, of a service or of
	// the machine itself alone (loopback, unspecified, link-local, multicast).
	RuleSANReserved Rule = "san-reserved"
	// RuleProviderIDMissing: the request claims a provider ID where
	// [Policy.RequireProviderID] is set.
	RuleProviderIDMissing Rule = "provider-id-missing"

	// RuleMachineUnknown: there is a machine for the node name.
	RuleMachineUnknown Rule = "machine-unknown"
	// RuleMachineNotReady: the machine is ready to bootstrap.
	RuleMachineNotReady Rule = "machine-not-ready"
	// RuleMachineOtherNode: the machine is not recorded under another node name.
	RuleMachineOtherNode Rule = "machine-other-node"
	// RuleProviderIDMismatch: the claimed provider ID is the machine's, where both
	// are known.
	RuleProviderIDMismatch Rule = "provider-id-mismatch"
	// RuleSANNotOwn: every SAN is one of the machine's.
	RuleSANNotOwn Rule = "san-not-own"
	// RuleCredential: who asks Kubernetes' own signer for a serving certificate
	// came with a client certificate that was issued to this node through
	// attestation.
	RuleCredential Rule = "requester-credential"
)

// The rules that [CA.Issue] adds.
const (
	// RuleNotChecked: the request went through [Policy.Check].
	RuleNotChecked Rule = "not-checked"
	// RuleVerifiedRequest: what was verified is this request.
	RuleVerifiedRequest Rule = "verified-request"
	// RuleVerifiedNodeName: what was verified is for this node.
	RuleVerifiedNodeName Rule = "verified-node-name"
	// RuleVerifiedSignerName: what was verified is for this signer.
	RuleVerifiedSignerName Rule = "verified-signer-name"
	// RuleVerifiedRequester: what was verified is for this requester.
	RuleVerifiedRequester Rule = "verified-requester"
	// RuleVerifiedExpiration: what was verified is for this lifetime.
	RuleVerifiedExpiration Rule = "verified-expiration"
	// RuleVerifiedMachine: the verification says which machine it is.
	RuleVerifiedMachine Rule = "verified-machine"
	// RuleVerifiedExpired: what was verified holds beyond now.
	RuleVerifiedExpired Rule = "verified-expired"
	// RuleProviderIDNotVouched: the claimed provider ID is the one vouched for.
	RuleProviderIDNotVouched Rule = "provider-id-not-vouched"
	// RuleSANNotVouched: every SAN is vouched for.
	RuleSANNotVouched Rule = "san-not-vouched"
)
