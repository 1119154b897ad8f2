package csr

import (
	"errors"

	"github.com/nodeattest/nodeattest/refusal"
)

// findMachine asks for the machine, once the request names a node.
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
		x.noMachine = true
	default:
		x.cannotDecide(err)
	}
}

// errNothing is a callback that gives neither an answer nor an error.
var errNothing = errors.New("the callback returned nothing")

func (x *run) checkMachineUnknown() {
	if x.noMachine {
		x.found = append(x.found, &Error{Check: CheckMachineUnknown,
			Got: "node " + refusal.Quote(x.out.nodeName), Want: "the name of a known machine", Err: ErrNoMachine})
	}
}

func (x *run) checkMachineNotReady() {
	if x.out.machine != nil && !x.out.machine.BootstrapReady {
		x.refuse("machine "+refusal.Quote(x.out.machine.Name)+" that is not ready to bootstrap", "a ready one")
	}
}

func (x *run) checkMachineOtherNode() {
	if x.out.machine != nil && x.out.machine.NodeName != "" && x.out.machine.NodeName != x.out.nodeName {
		x.refuse("machine "+refusal.Quote(x.out.machine.Name)+" of node "+refusal.Quote(x.out.machine.NodeName), "the machine of node "+x.out.nodeName)
	}
}

func (x *run) checkProviderIDMismatch() {
	claimed, own := x.out.pkcs10.ProviderID, x.out.own.providerID
	if own != "" && claimed != "" && claimed != own {
		x.refuse(refusal.Quote(claimed), "the machine's, "+refusal.Quote(own))
	}
}

func (x *run) checkSanNotOwn() {
	if x.out.machine == nil {
		return
	}
	for _, name := range x.out.dnsNames {
		if !hasName(x.out.machine.DNSNames, name) {
			x.refuse(refusal.Quote(name), "a name of machine "+refusal.Quote(x.out.machine.Name))
		}
	}
	for _, address := range x.out.ipAddresses {
		if !hasAddress(x.out.machine.IPAddresses, address) {
			x.refuse(address.String(), "an address of machine "+refusal.Quote(x.out.machine.Name))
		}
	}
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
