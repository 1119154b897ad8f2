package attesttest

import (
	"bytes"
	"context"
	"time"

	"github.com/nodeattest/nodeattest/csr"
)

// honestRequests are the requests that a provider must admit, one for each purpose that it serves.
func honestRequests() []Attack {
	honest := func(name, what string, i requestOptions) Attack {
		i.challenged = true
		return attackOf(classHonest, name, what, i)
	}
	return []Attack{
		honest("honest-client", "An honest machine asks for a client certificate.", requestOptions{}),
		honest("honest-serving", "An honest node asks for a serving certificate.", requestOptions{serving: true}),
		honest("honest-second-machine", "Another honest machine asks for a client certificate.", requestOptions{machine: MachineTwo, node: NodeName2}),
		honest("honest-annotated", "An honest request has annotations that mean nothing.", requestOptions{object: annotated(map[string]string{
			"cluster-x-k8s-io/tpm-endorsement-key": "ignored", annotationVersions: "x/v1"})}),
	}
}

// annotationVersions is set by control planes, never read from a request.
const annotationVersions = "cluster.x-k8s.io/kubelet-authenticator-attestation-versions"

func annotated(annotations map[string]string) func(*csr.Request) {
	return func(r *csr.Request) { r.Metadata.Annotations = annotations }
}

// requestAttacks change the object and the requester, with good evidence. csr.Policy checks everything
// else in a request, and a provider that did not call it cannot vouch.
func (w *World) requestAttacks() []Attack {
	object := func(name, what string, change func(*csr.Request)) Attack {
		return attackOf(classRequest, name, what, requestOptions{object: change})
	}
	bundle := func(name, what string, change func(*csr.Bundle)) Attack {
		return attackOf(classRequest, name, what, requestOptions{bundle: change})
	}
	unknown := w.options.Provider + "/v999999999"
	unread := func(b *csr.Bundle) { b.Provider = unknown }
	return []Attack{
		object("request-approved-and-failed", "An administrator approved the request, and its signer marked it as failed.", func(r *csr.Request) {
			r.Status.Conditions = []csr.Condition{{Type: csr.ConditionApproved, Status: "True"}, {Type: csr.ConditionFailed, Status: "True"}}
		}),
		object("usages-missing", "No usages are asked for.", func(r *csr.Request) { r.Spec.Usages = nil }),
		object("signer-of-challenges", "An answer is filed under a signer of hellos, which issues no certificates.", func(r *csr.Request) { r.Spec.SignerName = w.challenges }),
		attackOf(classRequest, "serving-for-another-node", "Node-2 asks for a serving certificate of node-1.",
			requestOptions{serving: true, object: func(r *csr.Request) { r.User.Username = csr.NodeUserPrefix + NodeName2 }}),
		bundle("provider-another", "The evidence says that it is another provider's.", func(b *csr.Bundle) { b.Provider = "another/v1" }),
		bundle("provider-version-unknown", "The evidence has an unknown version.", unread),
		attackOf(classRequest, "provider-version-annotated", "The evidence has an unknown version, and an annotation says that it is supported.",
			requestOptions{bundle: unread, object: annotated(map[string]string{annotationVersions: unknown})}),
		bundle("no-evidence", "There is no evidence.", func(b *csr.Bundle) { b.Provider, b.Data = "", nil }),
		bundle("evidence-of-one-byte", "The evidence is one zero byte.", func(b *csr.Bundle) { b.Data = []byte{0} }),
		withoutData("evidence-empty", "The evidence has length 0.", "-----BEGIN "+csr.BlockData+"-----\n-----END "+csr.BlockData+"-----\n"),
		withoutData("evidence-missing", "The request names a provider and has no evidence.", ""),
	}
}

// withoutData is an attack that has another end than the PEM block with the evidence.
func withoutData(name, what, end string) Attack {
	return Attack{Name: name, Class: classRequest, Description: what, make: func(ctx context.Context, a *attempt) (*csr.Request, error) {
		request, err := requestOptions{}.make(ctx, a)
		if err == nil {
			text := request.Spec.Request
			request.Spec.Request = append(bytes.Clone(text[:bytes.LastIndex(text, []byte("-----BEGIN"))]), end...)
		}
		return request, err
	}}
}

// evidenceAttacks use good evidence for another request, or change its bytes.
func (w *World) evidenceAttacks() []Attack {
	other := func(name, what string, i, from requestOptions) Attack {
		from.key, i.evidenceOf = w.other, &from
		return attackOf(classBinding, name, what, i)
	}
	data := func(name, what string, change func([]byte) []byte) Attack {
		return attackOf(classBinding, name, what, requestOptions{bundle: func(b *csr.Bundle) { b.Data = change(bytes.Clone(b.Data)) }})
	}
	return []Attack{
		other("evidence-of-another-key", "Node-1's evidence for one key follows its request for another.", requestOptions{}, requestOptions{}),
		other("evidence-of-another-node", "Node-2's evidence follows a request for node-1.", requestOptions{}, requestOptions{machine: MachineTwo, node: NodeName2}),
		other("evidence-of-a-client-for-serving", "Evidence for a client certificate follows a request for a serving certificate.", requestOptions{serving: true}, requestOptions{}),
		data("evidence-first-byte-changed", "The evidence's first byte was changed.", func(b []byte) []byte { b[0] ^= 1; return b }),
		data("evidence-byte-changed", "A byte in the middle of the evidence was changed.", func(b []byte) []byte { b[len(b)/2] ^= 1; return b }),
		data("evidence-last-byte-changed", "The evidence's last byte was changed.", func(b []byte) []byte { b[len(b)-1] ^= 1; return b }),
		data("evidence-truncated", "The evidence lacks its last byte.", func(b []byte) []byte { return b[:len(b)-1] }),
		data("evidence-extended", "A byte follows the evidence.", func(b []byte) []byte { return append(b, 0) }),
		{Name: "evidence-of-yesterday", Class: classBinding, Description: "A request that was good yesterday is filed again today.", make: filedAgain},
	}
}

// filedAgain returns an honest request of the day before. The world's clock stays a day later.
func filedAgain(ctx context.Context, a *attempt) (*csr.Request, error) {
	request := must(requestOptions{challenged: true}.make(ctx, a))
	a.locked(func() { a.now = a.now.Add(24 * time.Hour) })
	request.Metadata.CreationTimestamp = a.Now().Add(-time.Minute)
	return request, nil
}

// machineAttacks are requests from machines that may not be the node they name.
func machineAttacks() []Attack {
	return []Attack{
		attackOf(classBinding, "stranger", "An unknown machine with good evidence wants to be node-1.", requestOptions{machine: Stranger}),
		attackOf(classBinding, "stranger-with-annotation", "The same machine says in an annotation that it has machine-1's endorsement key.",
			requestOptions{machine: Stranger, object: annotated(map[string]string{"cluster-x-k8s-io/tpm-endorsement-key": MachineOne})}),
		attackOf(classBinding, "machine-of-another-node", "Machine-2 wants to be node-1.", requestOptions{machine: MachineTwo}),
		attackOf(classBinding, "second-name-for-a-machine", "Machine-1 wants to be node-2.", requestOptions{node: NodeName2}),
		attackOf(classBinding, "node-unknown", "Machine-1 wants to be a node that is in no inventory.", requestOptions{node: "node-9"}),
		attackOf(classBinding, "node-not-ready", "Machine-1 wants to be a node whose machine is not ready.", requestOptions{node: "node-3"}),
		attackOf(classBinding, "inventory-of-another-machine", "Machine-1 wants to be a node for whose machine the inventory has another identity.", requestOptions{node: "node-7"}),
		attackOf(classBinding, "inventory-of-another-provider", "Machine-1 wants to be a node whose machine the inventory knows by another provider's evidence.", requestOptions{node: "node-8"}),
		{Name: "provider-id-claimed", Class: classBinding, mayRetry: true,
			Description: "Machine-2 claims a provider ID, and the inventory has none for it.",
			make:        requestOptions{machine: MachineTwo, node: NodeName2, claims: "sim://attesttest/claimed"}.make},
		attackOf(classBinding, "unknown-node-by-stranger", "An unknown machine with good evidence wants to be a node that is in no inventory.", requestOptions{machine: Stranger, node: "node-9"}),
	}
}
