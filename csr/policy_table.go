package csr

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/nodeattest/nodeattest/oid"
	"github.com/nodeattest/nodeattest/refusal"
)

// The rules of a [Policy], in the order in which [Policy.Check] tries them: the rules of the
// object, of the request inside, and of the machine. Between the first two come the rules of
// the PEM bundle ([Parse]) and of PKCS#10 ([ParsePKCS10]): if one of those is broken,
// nothing else can be said, and the list of violations ends. [CheckSignature] is tried last.
// [PolicyChecks] lists the names here in order.
const (
	// CheckRequestClosed: the object is not denied, failed, signed or being deleted.
	// [Decide] ignores one that is: there is nothing left to decide. An Approved condition
	// is allowed, and changes only how a refusal is written ([UnplacedDecision.For]).
	CheckRequestClosed Check = "request-closed"
	// CheckSignerName: the certificate is requested from a signer that the policy serves,
	// and the object is filed under that name or, for a hello, under SignerChallengeTPM. One
	// that is filed under another controller's signer is not denied: see ErrOtherSigner.
	CheckSignerName Check = "signer-name"
	// checkRequestUsername: the requester's user name has one of the three forms of
	// [RequesterClass].
	checkRequestUsername Check = "request-username"
	// checkRequestGroups: the requester's groups are exactly the groups of its class.
	checkRequestGroups Check = "request-groups"
	// checkRequesterPurpose: a requester of this class may ask for a certificate of this
	// kind. See [RequesterClass].
	checkRequesterPurpose Check = "requester-purpose"
	// checkUsages: the usages are exactly the result of [Purpose.Usages], in any order, with or without
	// key encipherment, and none is repeated.
	checkUsages Check = "usages"
	// checkExpiration: expirationSeconds is absent or at least 600. For Kubernetes' own
	// signers it is within [Policy.MaxLifetime], and the certificate would end within the
	// NotAfter of the [Grant].
	checkExpiration Check = "expiration"

	// CheckAttestationProvider: the evidence with the request is for the provider that the
	// signer name selects; a signer of the insecure provider accepts none.
	CheckAttestationProvider Check = "attestation-provider"
	// checkSubjectCommonName: there is one common name, system:node: (for recovery:
	// nodeattest:recovery:) followed by a node name.
	checkSubjectCommonName Check = "subject-common-name"
	// checkSubjectOrganization: there is one organization, exactly system:nodes (for
	// recovery: nodeattest:recovery).
	checkSubjectOrganization Check = "subject-organization"
	// checkSubjectExtraRDN: there is nothing else in the subject. This refuses, among
	// others, organizational units and the attribute 1.3.6.1.4.1.57683.2, which
	// kube-apiserver would read as the user's UID.
	checkSubjectExtraRDN Check = "subject-extra-rdn"
	// checkSubjectMultiValue: no RDN has several attributes.
	checkSubjectMultiValue Check = "subject-multi-value"
	// checkRequesterOtherNode: a node, or a node's recovery user, asks for itself.
	checkRequesterOtherNode Check = "requester-other-node"
	// checkAttributeNotAllowed: the request has no attribute other than extensionRequest.
	checkAttributeNotAllowed Check = "attribute-not-allowed"
	// checkExtensionNotAllowed: the request asks for no extension except the provider ID,
	// SANs where they are allowed, and the policy's flag. Key usage, extended key usage and
	// basic constraints are up to the signer and are refused too.
	checkExtensionNotAllowed Check = "extension-not-allowed"
	// checkFlag: the flag extension is well formed if present, and present if
	// [Policy.RequireFlag] is set.
	checkFlag Check = "flag"
	// checkKeyType: the key is RSA or ECDSA.
	checkKeyType Check = "key-type"
	// checkKeyStrength: an RSA modulus has 2048 to 4096 bits and the exponent 65537, and a curve
	// is P-256 or P-384.
	checkKeyStrength Check = "key-strength"
	// checkSANOnClient: a request for a client or recovery certificate has no
	// subjectAltName, not even an empty one.
	checkSANOnClient Check = "san-on-client"
	// checkSANMissing: a serving request has a DNS name or an IP address.
	checkSANMissing Check = "san-missing"
	// checkSANKind: SANs are only DNS names and IP addresses.
	checkSANKind Check = "san-kind"
	// checkSANCount: there are at most [maxSANs] SANs.
	checkSANCount Check = "san-count"
	// checkSANForm: a DNS name is a DNS-1123 subdomain in upper or lower case, is not a
	// wildcard, and does not end like an IP address. The extension is not critical.
	checkSANForm Check = "san-form"
	// checkSANReserved: no SAN is a name or address of the API server or of a service, or
	// one that means only the local machine (loopback, unspecified, link-local, multicast).
	checkSANReserved Check = "san-reserved"
	// checkProviderIDMissing: the request claims a provider ID if [Policy.RequireProviderID]
	// is set.
	checkProviderIDMissing = oid.CheckProviderIDMissing

	// CheckMachineUnknown: there is a machine for the node name.
	CheckMachineUnknown Check = "machine-unknown"
	// CheckMachineNotReady: the machine of a request with a bootstrap token is ready to
	// bootstrap.
	CheckMachineNotReady Check = "machine-not-ready"
	// CheckMachineOtherNode: the machine is not recorded under another node name.
	CheckMachineOtherNode Check = "machine-other-node"
	// CheckProviderIDMismatch: the claimed provider ID is the machine's, if both are known.
	CheckProviderIDMismatch Check = "provider-id-mismatch"
	// CheckSANNotOwn: every SAN is one of the machine's.
	CheckSANNotOwn Check = "san-not-own"
	// CheckCredential: a requester that asks Kubernetes' own signer for a serving
	// certificate used a client certificate that was issued to this node through
	// attestation.
	CheckCredential Check = "requester-credential"

	// CheckSignature: the request's signature verifies under its own key. [PolicyChecks] does
	// not list it: it belongs to PKCS#10.
	CheckSignature Check = "request-signature"
	// CheckProviderVersion: the evidence has a version that the provider reads and that is
	// not below the minimum. It is a check of providers, as is the next one of [Verify].
	CheckProviderVersion Check = "provider-version"
	// CheckProviderResult: a provider's result is for the request that it was given.
	CheckProviderResult Check = "provider-result"
)

// The rules that [CA.Issue] adds.
const (
	// checkNotChecked: the request went through [Policy.Check].
	checkNotChecked Check = "not-checked"
	// checkVerifiedMachine: the verification says which machine it is.
	checkVerifiedMachine Check = "verified-machine"
	// checkVerifiedExpired: the NotAfter of the [Grant] is in the future.
	checkVerifiedExpired Check = "verified-expired"
	// checkProviderIDNotVouched: the claimed provider ID is the one vouched for.
	checkProviderIDNotVouched Check = "provider-id-not-vouched"
	// checkSANNotVouched: every SAN is vouched for.
	checkSANNotVouched Check = "san-not-vouched"
)

// rule is one row of the policy: its name, the purposes for which it is tried (nil: always,
// even if the signer's name has no purpose), and a function that reports what breaks the
// rule of that name and nothing else.
type rule struct {
	check    Check
	purposes []Purpose
	try      func(*run)
}

// The purposes that rules are for. They are never modified.
var (
	known   = []Purpose{PurposeClient, PurposeServing, PurposeRecovery}
	serving = []Purpose{PurposeServing}
)

// PolicyChecks returns the names of the rules of a [Policy] in the order in which they are tried and
// reported: those of the object, and those tried once the bundle and PKCS#10 request are read.
func PolicyChecks() (object, request []Check) {
	for _, row := range objectRules {
		object = append(object, row.check)
	}
	for _, row := range slices.Concat(requestRules, sanRules, machineRules) {
		request = append(request, row.check)
	}
	return object, request
}

// maxReports is how often one rule is reported, so that a request with thousands of faults
// does not produce megabytes of report.
const maxReports = 16

// run is one check of one request. Its out fills up as rules read the request; it is
// returned only if nothing was reported.
type run struct {
	out     *Checked
	policy  *Policy
	ctx     context.Context
	request *Request

	found       Errors
	undecided   error // of the first callback that could not answer: a retry
	rule        Check // the one being tried
	reportCount int   // of that rule
}

// try tries rules, in the order in which they are reported.
func (x *run) try(rules []rule) {
	for _, row := range rules {
		if row.purposes == nil || slices.Contains(row.purposes, x.out.purpose) {
			x.rule, x.reportCount = row.check, 0
			row.try(x)
		}
	}
}

// refuse reports that the rule being tried is broken.
func (x *run) refuse(got, want string) {
	if x.reportCount++; x.reportCount <= maxReports {
		x.found = append(x.found, &Error{Check: x.rule, Got: got, Want: want})
	}
}

// refuseErr adds the error of a parser or of the signature's check; nil adds nothing.
func (x *run) refuseErr(err error) {
	if err == nil {
		return
	}
	v, ok := errors.AsType[*Error](err)
	if !ok { // no parser returns another type; it is a refusal all the same
		v = &Error{Check: checkRequestDER, Got: "a request that does not parse", Err: err}
	}
	x.found = append(x.found, v)
}

// cannotDecide reports that a callback did not answer.
func (x *run) cannotDecide(err error) {
	x.undecided = cmp.Or(x.undecided, refusal.Retry(err))
}

// err returns the outcome: nil only if every rule was kept and every callback answered.
func (x *run) err() error {
	switch {
	case len(x.found) == 0:
		return x.undecided
	case x.undecided == nil:
		return x.found
	}
	return fmt.Errorf("%w; %w", x.found, x.undecided)
}
