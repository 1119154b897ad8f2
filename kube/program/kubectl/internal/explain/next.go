package explain

import (
	"cmp"
	"fmt"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/membership"
	"github.com/nodeattest/nodeattest/csr"
)

// Who has to act.
const (
	nobody     = "nobody"
	node       = "the node"
	controller = "the controller"
	signer     = "the signer"
	operator   = "an operator"
	owner      = "whoever set up the node"
)

// slow is the longest that a working controller or signer takes.
const slow = 30 * time.Second

// next says who has to act.
func (x *Explanation) next(f *Facts, held *membership.Held) Next {
	r := x.Request
	age := f.Now.Sub(r.Metadata.CreationTimestamp)
	switch d := x.Decision; {
	case len(r.Status.Certificate) != 0:
		return Next{nobody, "the certificate is in status.certificate"}
	case d == nil && age > slow && r.Spec.SignerName == csr.SignerClientInsecure:
		return Next{operator, fmt.Sprintf("nobody has decided for %s: see whether there are the component insecure and, in the configuration, insecureSigner", age.Round(time.Second))}
	case d == nil && age > slow:
		return Next{operator, fmt.Sprintf("nobody has decided for %s: check that node-attestation-controller runs, is ready and serves %s", age.Round(time.Second), r.Spec.SignerName)}
	case d == nil:
		return Next{controller, "it has not decided yet"}
	case d.Reason == attest.ReasonChallenge && x.Message == MessageHello:
		return x.nextOfChallenge(f, d)
	case d.Type == csr.ConditionApproved && age > slow:
		return Next{operator, "it is approved, but nobody has signed it: check that the signer of " + r.Spec.SignerName + " runs"}
	case d.Type == csr.ConditionApproved:
		return Next{signer, "it is approved; the certificate will follow"}
	case d.Type == csr.ConditionFailed:
		return Next{operator, "somebody other than the controller approved it, or it could not be signed; find out who approves requests for " + r.Spec.SignerName}
	}
	return x.nextOfDenial(held)
}

// nextOfChallenge handles the denial of a hello, which is how its challenge travels.
func (x *Explanation) nextOfChallenge(f *Facts, d *csr.Condition) Next {
	for _, other := range f.Related {
		if !isChallenge(other.Spec.SignerName) && !other.Metadata.CreationTimestamp.Before(x.Request.Metadata.CreationTimestamp) {
			return Next{nobody, "the denial carries the challenge, as it should; the node has answered with " + other.Metadata.Name}
		}
	}
	if f.Now.Sub(d.LastUpdateTime) > time.Hour {
		return Next{node, "the denial carries the challenge, as it should; the node did not answer in time, and files again by itself"}
	}
	return Next{node, "the denial carries the challenge, as it should; the node answers it within ten minutes with another request"}
}

// nextOfDenial says what to do about the broken rule. About evidence that it cannot read it
// has no advice: the requester may be anyone.
func (x *Explanation) nextOfDenial(held *membership.Held) Next {
	if x.unread != "" {
		return Next{operator, "this program cannot read evidence of " + x.unread + ": the log and the Event of the controller that decides about it say more"}
	}
	switch remedyOf(x.Decision.Reason) {
	case fileAgain:
		return Next{node, "it files again by itself; if it comes too late again, its clock or the controller is slow"}
	case newChallenge:
		return Next{node, "the challenge's key is gone or was never this cluster's; it files again by itself"}
	case admitMachine:
		return x.nextOfMembership(held)
	case releaseName:
		return Next{operator, "a machine that cannot attest gets the name of a node once: if that machine is gone, or is set up anew, kubectl delete node " + x.NodeName +
			" and kubectl nodeattest release " + x.NodeName + ", and the node files again; else somebody has tried to be that node"}
	case addMachine:
		return Next{operator, "the inventory has no machine that may be node " + x.NodeName + " now: add it there; the node then files again"}
	case matchMachine:
		return Next{operator, "the inventory does not have what is BROKEN above for node " + x.NodeName + ": a new name or address of the node, or another spelling of its provider ID; " +
			"if it is the node's, add it to the inventory, otherwise remove it from the Node; the node then files again"}
	case ownCertificate:
		return Next{owner, "the kubelet came with a certificate that was not issued to this machine through attestation: it has to use the kubelet-authenticator for its client certificate"}
	case otherCluster:
		return Next{owner, "the node's configuration names another cluster"}
	case mendSettings:
		return Next{operator, "the configuration of the controller does not fit the request, or the kind of its evidence: see the controller's log"}
	case otherRequest:
		return Next{owner, "the request or its evidence is wrong: mend what is BROKEN above, and do not admit the request as it is"}
	}
	return Next{operator, "find out who denied it and why: this program does not know the reason " + x.Decision.Reason}
}

// nextOfMembership handles a machine that is a TPM, or whatever it says it is, but may not be
// this node.
func (x *Explanation) nextOfMembership(held *membership.Held) Next {
	if held == nil {
		return Next{operator, "decide whether this machine may be node " + x.NodeName}
	}
	name, machine := x.NodeName, attest.Identity("")
	if x.Reading != nil {
		machine = x.Reading.Machine
	}
	// The commands name node and machine, as kubectl nodeattest pending shows them.
	approve := "kubectl nodeattest approve " + name + " --machine " + cmp.Or(string(machine), "IDENTITY, with the identity in the controller's log and Event")
	switch r := held.Name; {
	case x.byOther != "":
		return Next{operator, "the inventory knows node " + name + " by " + x.byOther + ": somebody on the machine may want weaker evidence; if it is to attest by " +
			x.Reading.Provider + " from now on, change kind in its entry, and run kubectl nodeattest release " + name}
	case x.admitted && x.Reading.Road == attest.RoadDocument && len(r.Issued) != 0 && x.Request.User.Username != csr.NodeUserPrefix+name:
		return Next{operator, "the machine is node " + name + ", and somebody on it asks for another key with a bootstrap token: " +
			"if it is the node, which has lost its key: kubectl nodeattest release " + name}
	case x.admitted:
		return Next{node, "it is admitted by now and files again by itself"}
	case r != nil && r.State == membership.StateResting && r.Machine == machine && held.Machine == nil:
		return Next{nobody, "the name rests until " + r.LastEnd.Format(time.RFC3339) + ", as this machine was released; if that was a mistake: " + approve}
	case r != nil && r.State == membership.StateResting:
		return Next{nobody, "the name rests until " + r.LastEnd.Format(time.RFC3339) + ", when the last certificate of its former machine has expired"}
	case held.Machine != nil && held.Machine.NodeName != name:
		return Next{operator, "the machine is node " + held.Machine.NodeName + "; if it is to be " + name + ": kubectl nodeattest release " + held.Machine.NodeName}
	case r != nil && machine != "" && r.Machine != machine:
		return Next{operator, "node " + name + " is another machine; if the machine was replaced: kubectl nodeattest rebind " + name + " --machine " + string(machine) + ", otherwise somebody wants to be that node"}
	case r != nil && machine == "":
		return Next{operator, "the record of node " + name + " is of machine " + string(r.Machine) + ", and this program cannot tell whether that machine files the request: see the Event; " +
			"if another one does, and nobody replaced the machine, somebody wants to be that node"}
	case r != nil && x.Decision.Reason == reasonOf("registry-provider-id"):
		return Next{operator, "the record of node " + name + " has another provider ID than the inventory or the machine's evidence; if it is the same machine, which was renamed or is spelled differently now: " +
			"kubectl nodeattest adopt " + name + " --provider-id ID, with the new ID"}
	case r != nil:
		return Next{operator, "the record of node " + name + " is of another Machine or provider ID; if the inventory was moved: kubectl nodeattest adopt " + name + " --machine-uid UID"}
	}
	return Next{operator, "if the machine may be node " + name + ": " + approve}
}
