package attesttest

import (
	"net"

	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/forge"
)

func (w *World) honestRequests() []Attack {
	return []Attack{
		{Name: "honest-client", Class: classHonest, Description: "An honest machine asks for a client certificate.", make: honest(wish{})},
		{Name: "honest-serving", Class: classHonest, Description: "An honest node asks for a serving certificate.", make: honest(wish{good: w.bench.NodeServes})},
		{Name: "honest-second-machine", Class: classHonest, Description: "Another honest machine asks for a client certificate.", make: honest(wish{machine: MachineTwo, change: as(NodeName2)})},
		{Name: "honest-annotated", Class: classHonest, Description: "An honest request has annotations that mean nothing.", make: honest(wish{change: onObject(func(r *csr.Request) {
			r.Metadata.Annotations = map[string]string{csr.AnnotationEndorsementKey: "nobody's", csr.AnnotationVersions: "x/v1"}
		})})},
	}
}

// requestAttacks are those of the vectors on requests and their PEM, the evidence being
// for the changed request, and what there is no vector of.
func (w *World) requestAttacks() []Attack {
	var out []Attack
	for _, t := range w.bench.RequestTables() {
		for _, a := range t.Attacks {
			if name := a.Live(); name != "" {
				out = append(out, asked(ClassRequest, name, a.What, wish{good: t.Good, change: a.Change}))
			}
		}
	}
	for _, a := range w.bench.LivePEMs(w.options.Provider + "/v1") {
		out = append(out, asked(ClassRequest, a.Name, a.What, wish{pem: a.Change}))
	}
	return append(append(out, w.objectAttacks()...), w.bundleAttacks()...)
}

func (w *World) objectAttacks() []Attack {
	ask := func(name, what string, change func(*forge.Asked)) Attack {
		return asked(ClassRequest, name, what, wish{change: change})
	}
	return []Attack{
		ask("request-approved-and-failed", "Somebody else approved the request, and its signer gave up.", onObject(func(r *csr.Request) {
			r.Status.Conditions = []csr.Condition{{Type: csr.ConditionApproved, Status: "True"}, {Type: csr.ConditionFailed, Status: "True"}}
		})),
		ask("usages-missing", "No usages are asked for.", func(a *forge.Asked) { a.Usages = nil }),
		ask("signer-of-challenges", "An answer is filed under a signer of hellos, for which nobody signs.", func(a *forge.Asked) { a.Signer = w.challengeSigner }),
		ask("ip-address-on-client", "A client certificate is to have an address.", func(a *forge.Asked) {
			a.Extensions = append(a.Extensions, forge.SANOf(forge.IP(net.IP{192, 0, 2, 1})))
		}),
	}
}

// bundleAttacks are about provider and data, and about who asks for a serving certificate.
func (w *World) bundleAttacks() []Attack {
	bundle := func(name, what string, how func(*csr.Bundle)) Attack {
		return asked(ClassRequest, name, what, wish{change: onBundle(how)})
	}
	unknown := w.options.Provider + "/v999999999"
	return []Attack{
		bundle("provider-another", "The evidence says that it is another provider's.", func(b *csr.Bundle) { b.Provider = "another/v1" }),
		bundle("provider-version-unknown", "The evidence has a version that nobody writes.", func(b *csr.Bundle) { b.Provider = unknown }),
		asked(ClassRequest, "provider-version-annotated", "The evidence has a version that nobody writes, and an annotation says that it is supported.", wish{change: func(a *forge.Asked) {
			a.OnBundle(func(b *csr.Bundle) { b.Provider = unknown })
			a.OnObject(func(r *csr.Request) { r.Metadata.Annotations = map[string]string{csr.AnnotationVersions: unknown} })
		}}),
		bundle("no-evidence", "There is no evidence.", func(b *csr.Bundle) { b.Provider, b.Data = "", nil }),
		bundle("evidence-of-one-byte", "The evidence is one zero byte.", func(b *csr.Bundle) { b.Data = []byte{0} }),
		asked(ClassRequest, "serving-for-another-node", "Node-2 asks for a serving certificate of node-1.", wish{good: w.bench.NodeServes,
			change: func(a *forge.Asked) { a.Username = csr.NodeUserPrefix + NodeName2 }}),
	}
}
