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
	rule  Check
	stage stage
	check func(*run)
}

// policyTable is the whole policy, in the order in which it is tried and reported.
// It is never written. The encoding's own rules are in Parse and ParsePKCS10.
var policyTable = [...]policyRule{
	{CheckRequestClosed, stageObject, (*run).checkRequestClosed},
	{CheckSignerName, stageObject, (*run).checkSignerName},
	{CheckRequestUsername, stageObject, (*run).checkRequestUsername},
	{CheckRequestGroups, stageObject, (*run).checkRequestGroups},
	{CheckRequesterPurpose, stageObject, (*run).checkRequesterPurpose},
	{CheckUsages, stageObject, (*run).checkUsages},
	{CheckExpiration, stageObject, (*run).checkExpiration},

	{CheckAttestationProvider, stageRequest, (*run).checkAttestationProvider},
	{CheckSubjectCommonName, stageRequest, (*run).checkSubjectCommonName},
	{CheckSubjectOrganization, stageRequest, (*run).checkSubjectOrganization},
	{CheckSubjectExtraRDN, stageRequest, (*run).checkSubjectExtraRDN},
	{CheckSubjectMultiValue, stageRequest, (*run).checkSubjectMultiValue},
	{CheckRequesterOtherNode, stageRequest, (*run).checkRequesterOtherNode},
	{CheckAttributeNotAllowed, stageRequest, (*run).checkAttributeNotAllowed},
	{CheckExtensionNotAllowed, stageRequest, (*run).checkExtensionNotAllowed},
	{CheckFlag, stageRequest, (*run).checkFlag},
	{CheckKeyType, stageRequest, (*run).checkKeyType},
	{CheckKeyStrength, stageRequest, (*run).checkKeyStrength},
	{CheckSANOnClient, stageRequest, (*run).checkSanOnClient},
	{CheckSANMissing, stageRequest, (*run).checkSanMissing},
	{CheckSANKind, stageRequest, (*run).checkSanKind},
	{CheckSANCount, stageRequest, (*run).checkSanCount},
	{CheckSANForm, stageRequest, (*run).checkSanForm},
	{CheckSANReserved, stageRequest, (*run).checkSanReserved},
	{CheckProviderIDMissing, stageRequest, (*run).checkProviderIDMissing},

	{CheckMachineUnknown, stageMachine, (*run).checkMachineUnknown},
	{CheckMachineNotReady, stageMachine, (*run).checkMachineNotReady},
	{CheckMachineOtherNode, stageMachine, (*run).checkMachineOtherNode},
	{CheckProviderIDMismatch, stageMachine, (*run).checkProviderIDMismatch},
	{CheckSANNotOwn, stageMachine, (*run).checkSanNotOwn},
	{CheckCredential, stageMachine, (*run).checkCredential},
}

// PolicyChecks returns the names of the rules of a [Policy] in the order in which
// they are tried and reported.
func PolicyChecks() []Check {
	names := make([]Check, len(policyTable))
	for i := range policyTable {
		names[i] = policyTable[i].rule
	}
	return names
}

// maxReports is how often one rule is reported, so that a request with thousands of
// faults makes no report of megabytes.
const maxReports = 16

// run is one check of one request. Its out fills up as rules read the request; it is
// given out only where nothing was reported.
type run struct {
	out     *Checked
	policy  *Policy
	ctx     context.Context
	request *Request

	provider    string // that the signer name selects
	sans        sans
	noMachine   bool // the inventory is certain that there is none
	found       Errors
	undecided   error // the first callback that could not answer
	rule        Check // the one being tried
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
		x.found = append(x.found, &Error{Check: x.rule, Got: got, Want: want})
	}
}

// refuseErr reports what a parser or the signature's check has found; nil is fine.
func (x *run) refuseErr(err error) {
	if err == nil {
		return
	}
	var v *Error
	if !errors.As(err, &v) {
		v = &Error{Check: CheckRequestDER, Got: "a request that does not parse", Err: err}
	}
	x.found = append(x.found, v)
}

// cannotDecide reports that a callback did not answer.
func (x *run) cannotDecide(err error) {
	if x.undecided == nil {
		x.undecided = err
	}
}

// broken says whether a rule has been reported.
func (x *run) broken(rule Check) bool {
	for _, v := range x.found {
		if v.Check == rule {
			return true
		}
	}
	return false
}

// read reads the bundle and the request in it, or takes what was read before. Where it
// returns false nothing more can be said about the request.
func (x *run) read(parsed *Parsed) bool {
	var err error
	if x.out.bundle, err = parsed.Bundle(); err == nil {
		x.out.pkcs10, err = parsed.PKCS10()
	}
	x.refuseErr(err)
	return err == nil
}

// err is the outcome: nil only where every rule was kept and every callback
// answered.
func (x *run) err() error {
	switch {
	case len(x.found) == 0 && x.undecided == nil:
		return nil
	case x.undecided == nil:
		return x.found
	case len(x.found) == 0:
		return Retry(x.undecided)
	}
	return fmt.Errorf("%w; %w", x.found, Retry(x.undecided))
}
