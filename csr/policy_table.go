package csr

import (
	"context"
	"errors"
	"fmt"
)

// stage is when a rule is tried, by what it needs to have been read.
type stage int

const (
	stageObject  stage = iota + 1 // the object's metadata, spec and status
	stageRequest                  // the PKCS#10 request as well
	stageMachine                  // the machine as well
)

// policyRule is one row of the policy: a name, and a function that reports what
// breaks the rule of that name and nothing else.
type policyRule struct {
	rule  Rule
	stage stage
	check func(*run)
}

// policyTable is the whole policy, in the order in which it is tried and reported.
// It is never written. The encoding's own rules are in Parse and ParsePKCS10.
var policyTable = [...]policyRule{
	{RuleRequestClosed, stageObject, (*run).requestClosed},
	{RuleSignerName, stageObject, (*run).signerName},
	{RuleRequestUsername, stageObject, (*run).requestUsername},
	{RuleRequestGroups, stageObject, (*run).requestGroups},
	{RuleRequesterPurpose, stageObject, (*run).requesterPurpose},
	{RuleUsages, stageObject, (*run).usages},
	{RuleExpiration, stageObject, (*run).expiration},

	{RuleAttestationProvider, stageRequest, (*run).attestationProvider},
	{RuleSubjectCommonName, stageRequest, (*run).subjectCommonName},
	{RuleSubjectOrganization, stageRequest, (*run).subjectOrganization},
	{RuleSubjectExtraRDN, stageRequest, (*run).subjectExtraRDN},
	{RuleSubjectMultiValue, stageRequest, (*run).subjectMultiValue},
	{RuleRequesterOtherNode, stageRequest, (*run).requesterOtherNode},
	{RuleAttributeNotAllowed, stageRequest, (*run).attributeNotAllowed},
	{RuleExtensionNotAllowed, stageRequest, (*run).extensionNotAllowed},
	{RuleFlag, stageRequest, (*run).flag},
	{RuleKeyType, stageRequest, (*run).keyType},
	{RuleKeyStrength, stageRequest, (*run).keyStrength},
	{RuleSANOnClient, stageRequest, (*run).sanOnClient},
	{RuleSANMissing, stageRequest, (*run).sanMissing},
	{RuleSANKind, stageRequest, (*run).sanKind},
	{RuleSANCount, stageRequest, (*run).sanCount},
	{RuleSANForm, stageRequest, (*run).sanForm},
	{RuleSANReserved, stageRequest, (*run).sanReserved},
	{RuleProviderIDMissing, stageRequest, (*run).providerIDMissing},

	{RuleMachineUnknown, stageMachine, (*run).machineUnknown},
	{RuleMachineNotReady, stageMachine, (*run).machineNotReady},
	{RuleMachineOtherNode, stageMachine, (*run).machineOtherNode},
	{RuleProviderIDMismatch, stageMachine, (*run).providerIDMismatch},
	{RuleSANNotOwn, stageMachine, (*run).sanNotOwn},
	{RuleCredential, stageMachine, (*run).credential},
}

// PolicyRules returns the names of the rules of a [Policy] in the order in which
// they are tried and reported.
func PolicyRules() []Rule {
	names := make([]Rule, len(policyTable))
	for i := range policyTable {
		names[i] = policyTable[i].rule
	}
	return names
}

// maxReports is how often one rule is reported, so that a request with thousands of
// faults makes no report of megabytes.
const maxReports = 16

// run is one check of one request. The embedded Checked fills up as rules read the
// request; it is given out only where nothing was reported.
type run struct {
	*Checked
	policy  *Policy
	ctx     context.Context
	request *Request

	provider    string // that the signer name selects
	sans        sans
	noMachine   bool // the inventory is certain that there is none
	violations  Violations
	undecided   error // the first callback that could not answer
	rule        Rule  // the one being tried
	reportCount int   // of that rule
}

// try tries every rule of one stage.
func (x *run) try(s stage) {
	for i := range policyTable {
		row := &policyTable[i]
		if row.stage == s {
			x.rule, x.reportCount = row.rule, 0
			row.check(x)
		}
	}
}

// refuse reports that the rule being tried is broken.
func (x *run) refuse(got, want string) {
	if x.reportCount++; x.reportCount <= maxReports {
		x.violations = append(x.violations, &Violation{Check: x.rule, Got: got, Want: want})
	}
}

// refuseErr reports what a parser or the signature's check has found; nil is fine.
func (x *run) refuseErr(err error) {
	if err == nil {
		return
	}
	var v *Violation
	if !errors.As(err, &v) {
		v = &Violation{Check: RuleRequestDER, Got: "a request that does not parse", Err: err}
	}
	x.violations = append(x.violations, v)
}

// cannotDecide reports that a callback did not answer.
func (x *run) cannotDecide(err error) {
	if x.undecided == nil {
		x.undecided = err
	}
}

// broken says whether a rule has been reported.
func (x *run) broken(rule Rule) bool {
	for _, v := range x.violations {
		if v.Check == rule {
			return true
		}
	}
	return false
}

// parse reads the bundle and the request in it. Where it returns false nothing more
// can be said about the request.
func (x *run) parse() bool {
	var err error
	if x.bundle, err = Parse(x.request.Spec.Request); err != nil {
		x.refuseErr(err)
		return false
	}
	if x.pkcs10, err = ParsePKCS10(x.bundle.Request); err != nil {
		x.refuseErr(err)
		return false
	}
	return true
}

// err is the outcome: nil only where every rule was kept and every callback
// answered.
func (x *run) err() error {
	switch {
	case len(x.violations) == 0 && x.undecided == nil:
		return nil
	case x.undecided == nil:
		return x.violations
	case len(x.violations) == 0:
		return Retry(x.undecided)
	}
	return fmt.Errorf("%w; %w", x.violations, Retry(x.undecided))
}
