package csr

import (
	"errors"

	"github.com/nodeattest/nodeattest/refusal"
)

// findMachine asks for the machine, once the request names a node.
func (x *run) findMachine() {
	if x.nodeName == "" {
		return
	}
	machine, err := x.policy.Machines(x.ctx, x.nodeName, x.request)
	switch {
	case err == nil && machine != nil:
		x.machine = machine
		x.own = ownMachine{uid: machine.UID, identity: machine.Identity, providerID: machine.ProviderID, nodeUID: machine.NodeUID}
	case err == nil:
		x.cannotDecide(errNothing)
	case errors.Is(err, ErrNoMachine) && !undecided(err):
		x.noMachine = true
	default:
		x.cannotDecide(err)
	}
}

// errNothing is a callback that gives neither an answer nor an error.
const errNothing Error = "the callback returned nothing"

func (x *run) machineUnknown() {
	if x.noMachine {
		x.violations = append(x.violations, &Violation{Check: RuleMachineUnknown,
			Got: "node " + refusal.Quote(x.nodeName), Want: "the name of a known machine", Err: ErrNoMachine})
	}
}

func (x *run) machineNotReady() {
	if x.machine != nil && !x.machine.BootstrapReady {
		x.refuse("machine "+refusal.Quote(x.machine.Name)+" that is not ready to bootstrap", "a ready one")
	}
}

func (x *run) machineOtherNode() {
	if x.machine != nil && x.machine.NodeName != "" && x.machine.NodeName != x.nodeName {
		x.refuse("machine "+refusal.Quote(x.machine.Name)+" of node "+refusal.Quote(x.machine.NodeName), "the machine of node "+x.nodeName)
	}
}

func (x *run) providerIDMismatch() {
	claimed, own := x.pkcs10.ProviderID, x.own.providerID
	if own != "" && claimed != "" && claimed != own {
		x.refuse(refusal.Quote(claimed), "the machine's, "+refusal.Quote(own))
	}
}

func (x *run) sanNotOwn() {
	if x.machine == nil {
		return
	}
	for _, name := range x.dnsNames {
		if !hasName(x.machine.DNSNames, name) {
			x.refuse(refusal.Quote(name), "a name of machine "+refusal.Quote(x.machine.Name))
		}
	}
	for _, address := range x.ipAddresses {
		if !hasAddress(x.machine.IPAddresses, address) {
			x.refuse(address.String(), "an address of machine "+refusal.Quote(x.machine.Name))
		}
	}
}

func (x *run) credential() {
	if x.Checked.signerName != SignerKubeletServing || x.nodeName == "" {
		return
	}
	const want = "a client certificate that was issued to this node through attestation"
	id := x.credentialID
	if id == "" {
		x.refuse("no credential ID", want)
		return
	}
	record, err := x.policy.Records(x.ctx, id)
	switch {
	case err == nil && record == nil:
		x.cannotDecide(errNothing)
	case err == nil:
		if !record.ClientOf(x.nodeName, id) {
			x.refuse(refusal.Quote(id)+" of node "+refusal.Quote(record.NodeName), want)
		}
	case errors.Is(err, ErrNoRecord) && !undecided(err):
		x.refuse(refusal.Quote(id)+", which is not recorded", want)
	default:
		x.cannotDecide(err)
	}
}
