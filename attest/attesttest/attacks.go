package attesttest

import (
	"bytes"
	"context"
	"errors"
	"net"
	"strconv"
	"time"

	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/forge"
	"github.com/nodeattest/nodeattest/internal/message"
)

func (w *World) honestRequests() []Attack {
	return []Attack{
		{Name: "honest-client", Class: classHonest, Description: "An honest machine asks for a client certificate.", make: wish{challenged: true}.make},
		{Name: "honest-serving", Class: classHonest, Description: "An honest node asks for a serving certificate.", make: wish{challenged: true, good: w.bench.NodeServes}.make},
		{Name: "honest-second-machine", Class: classHonest, Description: "Another honest machine asks for a client certificate.", make: wish{challenged: true, machine: MachineTwo, change: as(NodeName2)}.make},
		{Name: "honest-annotated", Class: classHonest, Description: "An honest request has annotations that mean nothing.", make: wish{challenged: true, change: onObject(func(r *csr.Request) {
			r.Metadata.Annotations = map[string]string{"cluster-x-k8s-io/tpm-endorsement-key": "nobody's", "cluster.x-k8s.io/kubelet-authenticator-attestation-versions": "x/v1"}
		})}.make},
	}
}

// requestAttacks are the attacks of the vectors on requests and their PEM, with evidence for
// the changed request, and those for which there is no vector.
func (w *World) requestAttacks() []Attack {
	var out []Attack
	for _, t := range w.bench.RequestTables() {
		for _, a := range t.Attacks {
			if name := a.Live(); name != "" {
				out = append(out, asked(classRequest, name, a.What, wish{good: t.Good, change: a.Change}))
			}
		}
	}
	for _, a := range w.bench.LivePEMs(w.format()) {
		out = append(out, asked(classRequest, a.Name, a.What, wish{pem: a.Change}))
	}
	return append(append(out, w.objectAttacks()...), w.bundleAttacks()...)
}

// format is the kind's name and the newest version of its data format.
func (w *World) format() string {
	version := 1
	if w.options.Documents != nil {
		version = w.options.Documents.version()
	}
	return w.options.Provider + "/v" + strconv.Itoa(version)
}

func (w *World) objectAttacks() []Attack {
	ask := func(name, what string, change func(*forge.Asked)) Attack {
		return asked(classRequest, name, what, wish{change: change})
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
		return asked(classRequest, name, what, wish{change: onBundle(how)})
	}
	unknown := w.options.Provider + "/v999999999"
	return []Attack{
		bundle("provider-another", "The evidence says that it is another provider's.", func(b *csr.Bundle) { b.Provider = "another/v1" }),
		bundle("provider-version-unknown", "The evidence has a version that nobody writes.", func(b *csr.Bundle) { b.Provider = unknown }),
		asked(classRequest, "provider-version-annotated", "The evidence has a version that nobody writes, and an annotation says that it is supported.", wish{change: func(a *forge.Asked) {
			a.OnBundle(func(b *csr.Bundle) { b.Provider = unknown })
			a.OnObject(func(r *csr.Request) {
				r.Metadata.Annotations = map[string]string{"cluster.x-k8s.io/kubelet-authenticator-attestation-versions": unknown}
			})
		}}),
		bundle("no-evidence", "There is no evidence.", func(b *csr.Bundle) { b.Provider, b.Data = "", nil }),
		bundle("evidence-of-one-byte", "The evidence is one zero byte.", func(b *csr.Bundle) { b.Data = []byte{0} }),
		asked(classRequest, "serving-for-another-node", "Node-2 asks for a serving certificate of node-1.", wish{good: w.bench.NodeServes,
			change: func(a *forge.Asked) { a.Username = csr.NodeUserPrefix + NodeName2 }}),
	}
}

// evidenceAttacks put good evidence where it does not belong.
func (w *World) evidenceAttacks() []Attack {
	other := func(i wish) func(context.Context, *attempt, *Applicant) (*csr.Bundle, error) {
		change := i.change
		i.change = func(a *forge.Asked) {
			a.PKCS10.Key = w.bench.TLS2
			if change != nil {
				change(a)
			}
		}
		return func(ctx context.Context, a *attempt, applicant *Applicant) (*csr.Bundle, error) {
			source, _ := a.applicant(i)
			return a.prove(ctx, source, false)
		}
	}
	data := func(name, what string, change func([]byte) []byte) Attack {
		return asked(classBinding, name, what, wish{change: onBundle(func(b *csr.Bundle) { b.Data = change(bytes.Clone(b.Data)) })})
	}
	return []Attack{
		asked(classBinding, "evidence-of-another-key", "Node-1's evidence for one key follows its request for another.", wish{prove: other(wish{})}),
		asked(classBinding, "evidence-of-another-node", "Node-2's evidence follows a request for node-1.", wish{prove: other(wish{machine: MachineTwo, change: as(NodeName2)})}),
		asked(classBinding, "evidence-of-a-client-for-serving", "Evidence for a client certificate follows a request for a serving certificate.", wish{good: w.bench.NodeServes, prove: other(wish{})}),
		data("evidence-first-byte-changed", "The evidence's first byte was changed.", func(b []byte) []byte { b[0] ^= 1; return b }),
		data("evidence-byte-changed", "A byte in the middle of the evidence was changed.", func(b []byte) []byte { b[len(b)/2] ^= 1; return b }),
		data("evidence-last-byte-changed", "The evidence's last byte was changed.", func(b []byte) []byte { b[len(b)-1] ^= 1; return b }),
		data("evidence-truncated", "The evidence lacks its last byte.", func(b []byte) []byte { return b[:len(b)-1] }),
		data("evidence-extended", "A byte follows the evidence.", func(b []byte) []byte { return append(b, 0) }),
		{Name: "evidence-of-yesterday", Class: classBinding, Description: "A request that was good yesterday is filed again today.", make: filedAgain},
	}
}

// filedAgain takes an honest request and lets a day pass, permanently.
func filedAgain(ctx context.Context, a *attempt) (*csr.Request, error) {
	request, err := wish{challenged: true}.make(ctx, a)
	if err != nil {
		return nil, errors.Join(errForgery, err)
	}
	a.advance(24 * time.Hour)
	request.Metadata.CreationTimestamp = a.Now().Add(-time.Minute)
	return request, nil
}

// machineAttacks are requests from machines that may not be the node they name.
func machineAttacks() []Attack {
	return []Attack{
		asked(classBinding, "stranger", "A machine that nobody expects, but with good evidence, wants to be node-1.", wish{machine: Stranger}),
		asked(classBinding, "stranger-with-annotation", "The same machine says in an annotation that it has machine-1's endorsement key.", wish{machine: Stranger, change: onObject(func(r *csr.Request) {
			r.Metadata.Annotations = map[string]string{"cluster-x-k8s-io/tpm-endorsement-key": MachineOne}
		})}),
		asked(classBinding, "machine-of-another-node", "Machine-2 wants to be node-1.", wish{machine: MachineTwo}),
		asked(classBinding, "second-name-for-a-machine", "Machine-1 wants to be node-2.", wish{change: as(NodeName2)}),
		asked(classBinding, "node-unknown", "Machine-1 wants to be a node that is in no inventory.", wish{change: as("node-9")}),
		asked(classBinding, "node-not-ready", "Machine-1 wants to be a node whose machine is not ready.", wish{change: as("node-3")}),
		asked(classBinding, "inventory-of-another-machine", "Machine-1 wants to be a node for whose machine the inventory has another identity.", wish{change: as("node-7")}),
		asked(classBinding, "inventory-of-another-provider", "Machine-1 wants to be a node whose machine the inventory knows by another provider's evidence.", wish{change: as("node-8")}),
		asked(classBinding, "node-of-nobody-by-stranger", "A machine that nobody expects wants to be a node that is in no inventory.", wish{machine: Stranger, change: as("node-9")}),
	}
}

func as(node string) func(*forge.Asked) { return func(a *forge.Asked) { a.As(node) } }

func onObject(how func(*csr.Request)) func(*forge.Asked) {
	return func(a *forge.Asked) { a.OnObject(how) }
}

func onBundle(how func(*csr.Bundle)) func(*forge.Asked) {
	return func(a *forge.Asked) { a.OnBundle(how) }
}

// wish is what an applicant asks for. The zero value is node-1 asking for a client certificate
// with a bootstrap token.
type wish struct {
	machine    string                                                                           // "" is MachineOne
	good       func() *forge.Asked                                                              // nil is a bootstrap token for a client certificate
	change     func(*forge.Asked)                                                               // of good's result
	pem        func(string) string                                                              // changes the PEM
	challenged bool                                                                             // honest evidence results from the provider's own challenge, if it has one
	prove      func(ctx context.Context, a *attempt, applicant *Applicant) (*csr.Bundle, error) // nil is honest evidence
}

// errForgery says that an attack could not be made.
var errForgery = errors.New("attesttest: an attack could not be made")

// made has an attack made. A step of package forge that failed is an error.
func (a *Attack) made(ctx context.Context, at *attempt) (_ *csr.Request, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = errors.Join(errForgery, forge.Recovered(r))
		}
	}()
	return a.make(ctx, at)
}

// applicant makes the request and the object of a wish.
func (w *World) applicant(i wish) (*Applicant, *forge.Asked) {
	good := i.good
	if good == nil {
		good = w.bench.BootstrapAsks
	}
	asked := good()
	if i.change != nil {
		i.change(asked)
	}
	a := &Applicant{Machine: i.machine, Request: asked.Asks(), Key: asked.PKCS10.Key, Object: *asked.Encode(), join: asked.Join}
	if a.Machine == "" {
		a.Machine = MachineOne
	}
	a.join.Request, a.join.Key, a.Object.Spec.Request = a.Request, a.Key, nil
	return a, asked
}

// make makes the request object of a wish, with honest evidence for what is asked.
func (i wish) make(ctx context.Context, a *attempt) (*csr.Request, error) {
	applicant, asked := a.applicant(i)
	prove := i.prove
	if prove == nil {
		prove = func(ctx context.Context, a *attempt, applicant *Applicant) (*csr.Bundle, error) {
			return a.prove(ctx, applicant, i.challenged)
		}
	}
	bundle, err := prove(ctx, a, applicant)
	if err != nil {
		return nil, err
	}
	request := asked.Filed(bundle)
	if i.pem != nil {
		request.Spec.Request = []byte(i.pem(string(request.Spec.Request)))
	}
	return request, nil
}

// prove makes honest evidence. For attacks the world makes its own challenge, so that a
// provider that refuses to challenge does not hide whether it would have let the answer in.
func (a *attempt) prove(ctx context.Context, applicant *Applicant, challenged bool) (*csr.Bundle, error) {
	switch {
	case a.options.Prove != nil:
		return a.options.Prove(ctx, a.provider, applicant)
	case !challenged:
		return a.try(ctx).On(applicant.Machine, applicant.join).Bundle(), nil
	case a.options.Documents != nil:
		return a.options.Documents.join(ctx, a, applicant)
	}
	return a.try(ctx).Prove(applicant.Machine, applicant.join)
}

// try is the attempt in the form that package forge takes.
func (a *attempt) try(ctx context.Context) *forge.Try {
	t := &forge.Try{Bench: a.bench, Road: a.road, Challenge: func(hello *csr.Request) (*message.Challenge, error) {
		der, err := a.challenge(ctx, hello)
		if err != nil {
			return nil, err
		}
		return message.ParseChallenge(der)
	}}
	if a.options.Documents != nil {
		t.Documents = a.options.Documents.forged(ctx, a.format())
	}
	return t
}

// challenge has the provider challenge a hello.
func (a *attempt) challenge(ctx context.Context, hello *csr.Request) ([]byte, error) {
	challenger, ok := a.provider.(csr.Challenger)
	if !ok {
		return nil, forge.Shut("the provider is no csr.Challenger, and WorldOptions.Prove is not set")
	}
	hello.Spec.SignerName = a.challengeSigner
	return challenger.Challenge(ctx, hello)
}

// asked is an attack that consists of a wish.
func asked(class, name, what string, i wish) Attack {
	return Attack{Name: name, Class: class, Description: what, make: i.make}
}
