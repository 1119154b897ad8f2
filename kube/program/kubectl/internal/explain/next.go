package explain

import (
	"cmp"
	"fmt"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/membership"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/kube/internal/remedies"
)

// Who has to act.
const (
	noAction   = "no action is needed"
	node       = "the node"
	controller = "the controller"
	signer     = "the signer"
	operator   = "an operator"
	owner      = "the node's administrator"
)

// slow is the longest that a working controller or signer takes.
const slow = 30 * time.Second

// next says who has to act.
func (x *Explanation) next(f *Facts, held *membership.Held) Next {
	r := x.Request
	age := f.Now.Sub(r.Metadata.CreationTimestamp)
	switch d := x.Decision; {
	case len(r.Status.Certificate) != 0:
		return Next{noAction, "the certificate is in status.certificate"}
	case d == nil && age > slow && r.Spec.SignerName == csr.SignerClientInsecure:
		return Next{operator, fmt.Sprintf("undecided for %s: check that the component insecure is deployed and that the configuration has insecureSigner", age.Round(time.Second))}
	case d == nil && age > slow:
		return Next{operator, fmt.Sprintf("undecided for %s: check that node-attestation-controller runs, is ready and serves signer %s", age.Round(time.Second), r.Spec.SignerName)}
	case d == nil:
		return Next{controller, "it has not decided yet"}
	case d.Reason == attest.ReasonChallenge && x.Message == MessageHello:
		return x.nextOfChallenge(f, d)
	case d.Type == csr.ConditionApproved && age > slow:
		return Next{operator, "it is approved, but not signed: check that the signer of " + r.Spec.SignerName + " runs"}
	case d.Type == csr.ConditionApproved:
		return Next{signer, "it is approved; the certificate will follow"}
	case d.Type == csr.ConditionFailed:
		return Next{operator, "an account other than the controller approved it, or it could not be signed; find out which account approves requests for " + r.Spec.SignerName}
	}
	return x.nextOfDenial(held)
}

// nextOfChallenge handles the denial of a hello, which is how its challenge travels.
func (x *Explanation) nextOfChallenge(f *Facts, d *csr.Condition) Next {
	for _, other := range f.Related {
		if !isChallenge(other.Spec.SignerName) && !other.Metadata.CreationTimestamp.Before(x.Request.Metadata.CreationTimestamp) {
			return Next{noAction, "the denial carries the challenge, as intended; the node has answered with " + other.Metadata.Name}
		}
	}
	if f.Now.Sub(d.LastUpdateTime) > time.Hour {
		return Next{node, "the denial carries the challenge, as intended; the node did not answer in time and will file a new request"}
	}
	return Next{node, "the denial carries the challenge, as intended; the node answers it within ten minutes with another request"}
}

// nextOfDenial says what to do about the broken rule. It advises nothing about evidence that it cannot
// read: the requester may be anyone.
func (x *Explanation) nextOfDenial(held *membership.Held) Next {
	if x.unread != "" {
		return Next{operator, "this program cannot read evidence of " + x.unread + ": see the log and the Event of the controller that decides about it"}
	}
	switch remedies.Of(x.Decision.Reason, x.Decision.Message) {
	case remedies.FileAgain:
		return Next{node, "it will file a new request; if that is late again, check the node's clock and the controller's load"}
	case remedies.NewChallenge:
		return Next{node, "the key of the challenge was deleted or belongs to another cluster; the node will file a new request"}
	case remedies.AdmitMachine:
		return x.nextOfMembership(held)
	case remedies.ReleaseName:
		return Next{operator, "a machine without evidence gets a node name once: if that machine is gone or was reinstalled, run kubectl delete node " + x.NodeName +
			" and kubectl nodeattest release " + x.NodeName + "; the node then files a new request; otherwise another machine tried to become that node"}
	case remedies.AddMachine:
		return Next{operator, "the inventory has no machine that may be node " + x.NodeName + " now: add it there; the node then files a new request"}
	case remedies.MatchMachine:
		return Next{operator, "the name, address or provider ID that is BROKEN above is not in the inventory for node " + x.NodeName +
			": if it is the node's, add it to the inventory, otherwise remove it from the Node; the node then files a new request"}
	case remedies.OwnCertificate:
		return Next{owner, "the kubelet used a certificate that was not issued to this machine through attestation: configure it to use the client certificate of kubelet-authenticator"}
	case remedies.OtherCluster:
		return Next{owner, "the node's configuration names another cluster"}
	case remedies.MendSettings:
		return Next{operator, "the controller's configuration does not serve this request or its kind of evidence: see the controller's log"}
	case remedies.OtherRequest:
		return Next{owner, "the request or its evidence is wrong: correct the rules that are BROKEN above, and do not approve the request as it is"}
	}
	return Next{operator, "find out which account denied it and why: this program does not know the reason " + x.Decision.Reason}
}

// nextOfMembership handles a machine whose evidence is good but which may not be this node.
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
		return Next{operator, "the inventory knows node " + name + " by " + x.byOther + ": an attacker on the machine may want weaker evidence to be accepted; if it is to attest by " +
			x.Reading.Provider + " from now on, change kind in its entry, and run kubectl nodeattest release " + name}
	case x.admitted && x.Reading.Road == attest.RoadDocument && len(r.Issued) != 0 && x.Request.User.Username != csr.NodeUserPrefix+name:
		return Next{operator, "the machine is node " + name + ", and asks for a certificate of another key with a bootstrap token: " +
			"if the node has lost its key, run kubectl nodeattest release " + name}
	case x.admitted:
		return Next{node, "it is admitted by now and will file a new request"}
	case r != nil && r.State == membership.StateResting && r.Machine == machine && held.Machine == nil:
		return Next{noAction, "the name rests until " + r.LastEnd.Format(time.RFC3339) + ", as this machine was released; if that was a mistake: " + approve}
	case r != nil && r.State == membership.StateResting:
		return Next{noAction, "the name rests until " + r.LastEnd.Format(time.RFC3339) + ", when the last certificate of its former machine has expired"}
	case held.Machine != nil && held.Machine.NodeName != name:
		return Next{operator, "the machine is node " + held.Machine.NodeName + "; if it is to be " + name + ": kubectl nodeattest release " + held.Machine.NodeName}
	case r != nil && machine != "" && r.Machine != machine:
		return Next{operator, "node " + name + " is another machine; if the machine was replaced: kubectl nodeattest rebind " + name + " --machine " + string(machine) + ", otherwise an attacker may want to be that node"}
	case r != nil && machine == "":
		return Next{operator, "the record of node " + name + " is of machine " + string(r.Machine) + ", and this program cannot tell whether that machine filed the request: see the Event; " +
			"if another one did, and the machine was not replaced, an attacker may want to be that node"}
	case r != nil && x.Decision.Reason == remedies.Reason("registry-provider-id"):
		return Next{operator, "the record of node " + name + " has a provider ID that differs from the inventory or the machine's evidence; if it is the same machine, renamed or spelled differently: " +
			"kubectl nodeattest adopt " + name + " --provider-id ID, with the new ID"}
	case r != nil:
		return Next{operator, "the record of node " + name + " has another Machine or provider ID; if the inventory was moved: kubectl nodeattest adopt " + name + " --machine-uid UID"}
	}
	return Next{operator, "if the machine may be node " + name + ": " + approve}
}
