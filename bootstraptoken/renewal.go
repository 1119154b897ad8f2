package bootstraptoken

import (
	"time"

	"github.com/nodeattest/nodeattest/refusal"
)

// Owner is the kind of object that Cluster API made a token for. The empty Owner is refused.
type Owner string

// The owners of tokens.
const (
	OwnerMachine     Owner = "Machine"     // one machine, with the token in its boot data
	OwnerMachinePool Owner = "MachinePool" // machines that come and go, with one token in their shared boot data
)

// RenewalAction is the action that [Renew] decides on, in the words of its truth table.
type RenewalAction string

// The actions for a token.
const (
	RenewalKeep    RenewalAction = "keep"    // leave the Secret as it is
	RenewalExtend  RenewalAction = "extend"  // write the new expiration into the Secret
	RenewalReplace RenewalAction = "replace" // make a new token and put it into the boot data; the old one runs out
	RenewalRunOut  RenewalAction = "run out" // leave the Secret as it is, and never look again
	RenewalLost    RenewalAction = "lost"    // nothing can be done: the boot data has a token that is gone
)

// RenewalState is the state of a token and its owner, on which [Renew] decides.
type RenewalState struct {
	// Owner is the kind of object that the token is for.
	Owner Owner
	// KubeletAuthentication: nodes attest, so no request is approved because of a token alone
	// (in Cluster API's proposal, spec.security.kubeletAuthentication of the Cluster).
	KubeletAuthentication bool
	// Deleted: the owner is being deleted, or gone.
	Deleted bool
	// Joined: the machine has a nodeRef, which Cluster API sets once there is a Node with
	// the machine's provider ID; or the pool has as many nodeRefs as replicas.
	Joined bool
	// Exists: the token's Secret exists. If not, Expiration is ignored.
	Exists bool
	// Expiration is the Secret's; the zero time means that the token never expires.
	Expiration time.Time
	// TTL is how long a token that is made or extended now lives: at least 1 s. Cluster API's is
	// 15 minutes (--bootstrap-token-ttl).
	TTL time.Duration
}

// Renewal is the decision of [Renew] about a token.
type Renewal struct {
	// Action is what to do now.
	Action RenewalAction
	// Expiration is when the extended or new token expires: now plus the TTL, in whole seconds
	// UTC. It is the zero time for every other action.
	Expiration time.Time
	// Next is when to ask again: after a third of the TTL. It is the zero time for
	// RenewalRunOut and RenewalLost.
	Next time.Time
}

// Renew decides whether to extend, replace or keep the token in the boot data of a Machine or a
// MachinePool. "due" is an expiration at most 5/6 of the TTL from now, and "half" one less
// than 1/2 of the TTL from now, both including an expired one; "any" is every case not covered
// above. The first row that matches decides:
//
//	owner        kubelet authentication  owner is  token    action
//	any          any                     deleted   any      run out
//	any          any                     any       endless  extend
//	Machine      any                     joined    any      run out
//	Machine      any                     waiting   gone     lost
//	Machine      any                     waiting   due      extend
//	Machine      any                     waiting   any      keep
//	MachinePool  any                     any       gone     replace
//	MachinePool  no                      joined    half     replace
//	MachinePool  no                      joined    any      keep
//	MachinePool  any                     any       due      extend
//	MachinePool  any                     any       any      keep
//
// With kubelet authentication this follows the proposal (Cluster API, kubelet authentication,
// "Changes to token rotation"): a Machine's token lives until the machine has a Node and a
// provider ID; a pool's lives as long as the pool, without being replaced, because a token
// alone gets no certificate. Without it, this follows Cluster API 1.14
// (bootstrap/kubeadm/reconcilers/kubeadmconfig, kubeadmconfig_controller.go and token.go): the
// token of a complete pool is replaced, since it is good for any node. The proposal speaks of
// a Machine's token that ran out once InfrastructureReady was true; that was Cluster API in
// 2021.
//
// This is stricter than Cluster API in two ways. A token without an expiration, which a person
// made from a token of Cluster API, is given one. And nothing is done for an owner that is
// being deleted. As in Cluster API, an expired token that still exists is extended: its owner
// has no other.
//
// The error is [refusal.CheckConfig] for an owner or a TTL that is not set, and if now is
// the zero time.
func Renew(state RenewalState, now time.Time) (*Renewal, error) {
	switch {
	case now.IsZero():
		return nil, errClock()
	case state.Owner != OwnerMachine && state.Owner != OwnerMachinePool:
		return nil, refusal.Config("Owner", string(state.Owner), "Machine or MachinePool")
	case state.TTL < time.Second:
		return nil, refusal.Config("TTL", state.TTL.String(), "1s or more")
	}
	r := &Renewal{Action: state.action(now)}
	switch r.Action {
	case RenewalExtend, RenewalReplace:
		r.Expiration = now.Add(state.TTL).UTC().Truncate(time.Second)
		r.Next = now.Add(state.TTL / 3)
	case RenewalKeep:
		r.Next = now.Add(state.TTL / 3)
	}
	return r, nil
}

func (s *RenewalState) action(now time.Time) RenewalAction {
	due := !s.Expiration.After(now.Add(s.TTL - s.TTL/6))
	half := s.Expiration.Before(now.Add(s.TTL / 2))
	switch {
	case s.Deleted:
		return RenewalRunOut
	case s.Exists && s.Expiration.IsZero():
		return RenewalExtend
	case s.Owner == OwnerMachine && s.Joined:
		return RenewalRunOut
	case s.Owner == OwnerMachine && !s.Exists:
		return RenewalLost
	case !s.Exists:
		return RenewalReplace
	case s.Owner == OwnerMachinePool && !s.KubeletAuthentication && s.Joined:
		if half {
			return RenewalReplace
		}
		return RenewalKeep
	case due:
		return RenewalExtend
	}
	return RenewalKeep
}
