package csr

import (
	"errors"

	"github.com/nodeattest/nodeattest/refusal"
)

// findMachine asks for the machine, once the request names a node. It reports one that the
// inventory is certain not to have.
func (x *run) findMachine() {
	if x.out.nodeName == "" {
		return
	}
	machine, err := x.policy.Machines(x.ctx, x.out.nodeName, x.request)
	switch {
	case err == nil && machine != nil:
		x.out.machine = machine
		x.out.own = ownMachine{uid: machine.UID, identity: machine.Identity, providerID: machine.ProviderID, nodeUID: machine.NodeUID}
	case err == nil:
		x.cannotDecide(errNothing)
	case errors.Is(err, ErrNoMachine) && !undecided(err):
		x.refuseErr(&Error{Check: CheckMachineUnknown,
			Got: "node " + refusal.Quote(x.out.nodeName), Want: "the name of a known machine", Err: ErrNoMachine})
	default:
		x.cannotDecide(err)
	}
}

// errNothing is a callback that gives neither an answer nor an error.
var errNothing = errors.New("the callback returned nothing")

// machineRules need the machine as well, as far as there is one.
var machineRules = []rule{
	{CheckProviderIDMissing, nil, func(x *run) {
		if x.policy.RequireProviderID && x.out.pkcs10.ProviderID == "" {
			x.refuse("no provider ID", "one")
		}
	}},
	{CheckMachineUnknown, nil, (*run).findMachine},
	{CheckMachineNotReady, nil, func(x *run) {
		if m := x.out.machine; m != nil && !m.BootstrapReady {
			x.refuse("machine "+refusal.Quote(m.Name)+" that is not ready to bootstrap", "a ready one")
		}
	}},
	{CheckMachineOtherNode, nil, func(x *run) {
		if m := x.out.machine; m != nil && m.NodeName != "" && m.NodeName != x.out.nodeName {
			x.refuse("machine "+refusal.Quote(m.Name)+" of node "+refusal.Quote(m.NodeName), "the machine of node "+x.out.nodeName)
		}
	}},
	{CheckProviderIDMismatch, nil, func(x *run) {
		claimed, own := x.out.pkcs10.ProviderID, x.out.own.providerID
		if own != "" && claimed != "" && claimed != own {
			x.refuse(refusal.Quote(claimed), "the machine's, "+refusal.Quote(own))
		}
	}},
	{CheckSANNotOwn, nil, func(x *run) {
		if m := x.out.machine; m != nil {
			for _, san := range x.out.sansBeside(m.DNSNames, m.IPAddresses) {
				x.refuse(san, "a name or address of machine "+refusal.Quote(m.Name))
			}
		}
	}},
	{CheckCredential, nil, (*run).checkCredential},
}

func (x *run) checkCredential() {
	if x.out.signerName != SignerKubeletServing || x.out.nodeName == "" {
		return
	}
	const want = "a client certificate that was issued to this node through attestation"
	id := x.out.credentialID
	if id == "" {
		x.refuse("no credential ID", want)
		return
	}
	record, err := x.policy.Records(x.ctx, id)
	switch {
	case err == nil && record == nil:
		x.cannotDecide(errNothing)
	case err == nil:
		if !record.ClientOf(x.out.nodeName, id) {
			x.refuse(refusal.Quote(id)+" of node "+refusal.Quote(record.NodeName), want)
		}
	case errors.Is(err, ErrNoRecord) && !undecided(err):
		x.refuse(refusal.Quote(id)+", which is not recorded", want)
	default:
		x.cannotDecide(err)
	}
}
