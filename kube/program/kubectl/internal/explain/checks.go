package explain

import (
	"slices"
	"strings"

	"github.com/nodeattest/nodeattest/csr"
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

// remedies lists checks that a node's request can break, by remedy. The others have otherRequest.
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
}

// remedyOf finds the remedy for a denial. One whose message names its check is of the controller.
func remedyOf(d *csr.Condition) remedy {
	for r, checks := range remedies {
		if slices.ContainsFunc(strings.Fields(checks), func(check string) bool { return reasonOf(check) == d.Reason }) {
			return r
		}
	}
	if slices.ContainsFunc(strings.Fields(d.Message), func(word string) bool { return reasonOf(strings.TrimRight(word, ":,;")) == d.Reason }) {
		return otherRequest
	}
	return unknownRemedy
}

// reasonOf is a check's text as the reason of a condition.
func reasonOf(check string) string { return (&refusal.Error{Check: refusal.Check(check)}).Reason() }
