package explain

import (
	"slices"
	"strings"

	"github.com/nodeattest/nodeattest/refusal"
)

// A remedy is the action that ends a refusal.
type remedy int

const (
	unknownRemedy  remedy = iota
	fileAgain             // the node does so without help
	newChallenge          // likewise
	addMachine            // to the inventory
	matchMachine          // of the inventory
	admitMachine          // to the records, or not
	releaseName           // of a machine that cannot attest
	ownCertificate        // of the kubelet-authenticator
	otherCluster
	otherRequest // or other evidence
	mendSettings // the controller's
)

// remedies lists the checks that a node's request can break, by remedy.
var remedies = map[remedy]string{
	fileAgain:      "answer-early answer-late answer-old hello-expired ec2-request-time",
	newChallenge:   "ring-key",
	addMachine:     "inventory-machine machine-not-ready machine-other-node machine-unknown",
	matchMachine:   "provider-id provider-id-evidence provider-id-mismatch provider-id-not-vouched san-not-own san-not-vouched",
	ownCertificate: "inherited-expired inherited-machine inherited-node inherited-purpose requester-credential",
	otherCluster:   "binding-cluster",
	mendSettings:   "no-challenge provider-purpose provider-result",
	releaseName:    "insecure-name-attested insecure-name-used insecure-node-exists",
	admitMachine: "not-a-member registry-claim registry-conflict registry-machine registry-machine-uid registry-name " +
		"registry-node-without-record registry-provider-id registry-requester registry-reserved registry-resting registry-scope",
	otherRequest: "provider-version attestation-provider bundle-statements message-encoding message-size message-version work-budget " +
		// the request
		"attribute-not-allowed bundle-base64 bundle-block bundle-provider bundle-size " +
		"expiration extension-not-allowed flag key-strength key-type request-attributes request-der " +
		"request-extensions request-groups request-key-encoding request-provider-id request-signature request-signature-algorithm request-size " +
		"request-subject-encoding request-username request-version request-x509 requester-other-node requester-purpose san-count san-form san-kind " +
		"san-missing san-on-client san-reserved signer-name subject-common-name subject-extra-rdn " +
		"subject-multi-value subject-organization usages provider-id-critical provider-id-duplicate provider-id-encoding provider-id-missing " +
		"provider-id-size provider-id-text " +
		// the join
		"binding-ak-name binding-expiration binding-machine-key binding-request binding-requester binding-road binding-signer binding-window " +
		"key-mismatch key-not-resident machine-claim machine-identity qualifying-data " +
		// a TPM's evidence
		"ak-attributes ak-is-certified-key ak-mismatch ak-parent ak-scheme attest-encoding attest-magic attest-size attest-type certified-name " +
		"certified-qualified-name key-attributes key-point key-residency key-residency-claim name-algorithm pcr-bank pcr-digest pcr-duplicate " +
		"pcr-missing pcr-not-quoted pcr-policy pcr-resettable pcr-selection pcr-value public-encoding public-size qualified-signer quote-boot " +
		"quote-missing quote-policy signature-encoding signature-hash signature-length signature-range signature-scheme " +
		"tpm-key-strength tpm-key-type tpm-signature tpm-signature-size " +
		"event-data event-log-encoding event-log-missing event-log-replay event-log-uncovered event-log-unextended secure-boot " +
		"certificate-chain certificate-encoding certificate-expired certificate-ext-key-usage certificate-extension certificate-is-ca " +
		"certificate-key-usage certificate-missing certificate-not-yet-valid certificate-order certificate-policy certificate-project certificate-revoked " +
		"certificate-sha1 certificate-subject-alt-name certificate-tpm-specification " +
		"ek-certificate-encoding ek-chain-encoding ek-identity " +
		"ek-key-encoding ek-roca ek-sources ek-type ek-untrusted tpm-denied " +
		"gce-instance-encoding gce-instance-number gce-instance-size gce-instance-text stated-provider-id " +
		// a cloud's documents
		"azure-certificate azure-certificate-name azure-document-algorithm azure-document-attributes azure-document-cached azure-document-encoding " +
		"azure-document-nonce azure-document-signature azure-document-signers azure-document-time azure-subscription " +
		"awsid-algorithm awsid-attributes awsid-certificate-expired awsid-claims awsid-digest awsid-encoding awsid-future awsid-region " +
		"awsid-signature awsid-signer awsid-size " +
		"ec2-account ec2-arn ec2-encoding ec2-partition ec2-region ec2-request-credential ec2-request-headers ec2-request-host " +
		"ec2-request-method ec2-request-path ec2-request-query ec2-request-signed-headers ec2-request-value ec2-role ec2-session " +
		"ec2-sts-refused " +
		"document-certificate-chain document-certificate-expired document-certificate-not-yet-valid " +
		"gce-audience gce-claims gce-expired gce-future gce-issuer gce-lifetime gce-machine gce-project gce-token-size " +
		"nitro-certificate nitro-document-algorithm nitro-document-encoding nitro-document-kind nitro-document-nonce nitro-document-signature " +
		"nitro-document-time nitro-document-user-data nitro-module nitro-pcrs nitro-tpm " +
		"algorithm base64url critical-header form header jws-signature jws-signature-size key-id token-size",
}

// remedyOf finds the remedy for the reason of a decision.
func remedyOf(reason string) remedy {
	for r, checks := range remedies {
		if slices.ContainsFunc(strings.Fields(checks), func(check string) bool { return reasonOf(check) == reason }) {
			return r
		}
	}
	return unknownRemedy
}

// reasonOf is a check's text as the reason of a condition.
func reasonOf(check string) string { return (&refusal.Error{Check: refusal.Check(check)}).Reason() }
