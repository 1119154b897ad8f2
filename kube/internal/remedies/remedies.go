// Package remedies says what ends a denial of a certificate request, for the two programs that show one: the
// operator's and the node's.
package remedies

import (
	"slices"
	"strings"

	"github.com/nodeattest/nodeattest/refusal"
)

// A Remedy is the action that ends a refusal.
type Remedy int

// The remedies.
const (
	Unknown        Remedy = iota
	FileAgain             // the node does so without help
	NewChallenge          // likewise
	AddMachine            // to the inventory
	MatchMachine          // of the inventory
	AdmitMachine          // to the records, or not
	ReleaseName           // of a machine that cannot attest
	OwnCertificate        // of the kubelet-authenticator
	OtherCluster
	OtherRequest // or other evidence
	MendSettings // the controller's
)

// checks lists the checks that a node's request can break, by remedy. The others have OtherRequest.
var checks = map[Remedy]string{
	FileAgain:      "answer-early answer-late answer-old hello-expired ec2-request-time",
	NewChallenge:   "ring-key",
	AddMachine:     "inventory-machine machine-not-ready machine-other-node machine-unknown",
	MatchMachine:   "provider-id provider-id-evidence provider-id-mismatch provider-id-not-vouched san-not-own san-not-vouched",
	OwnCertificate: "inherited-expired inherited-machine inherited-node inherited-purpose requester-credential",
	OtherCluster:   "binding-cluster",
	MendSettings:   "no-challenge provider-purpose provider-result",
	ReleaseName:    "insecure-name-attested insecure-name-used insecure-node-exists",
	AdmitMachine: "not-a-member registry-claim registry-conflict registry-machine registry-machine-uid registry-name " +
		"registry-node-without-record registry-provider-id registry-requester registry-reserved registry-resting registry-scope",
}

// Of finds the remedy for a denial, by the reason and message of its condition. One whose message names its
// check is of the controller.
func Of(reason, message string) Remedy {
	for r, texts := range checks {
		if slices.ContainsFunc(strings.Fields(texts), func(check string) bool { return Reason(check) == reason }) {
			return r
		}
	}
	if slices.ContainsFunc(strings.Fields(message), func(word string) bool { return Reason(strings.TrimRight(word, ":,;")) == reason }) {
		return OtherRequest
	}
	return Unknown
}

// Known reports whether a reason of a condition is that of a check on the lists of this package, so that it
// has one of a fixed set of values.
func Known(reason string) bool {
	for _, texts := range checks {
		if slices.ContainsFunc(strings.Fields(texts), func(check string) bool { return Reason(check) == reason }) {
			return true
		}
	}
	return false
}

// Reason is a check's text as the reason of a condition.
func Reason(check string) string { return (&refusal.Error{Check: refusal.Check(check)}).Reason() }
