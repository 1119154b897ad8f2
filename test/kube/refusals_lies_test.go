package kube

import (
	"errors"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/message"
	"github.com/nodeattest/nodeattest/kube/controller"
	"github.com/nodeattest/nodeattest/oid"
	"github.com/nodeattest/nodeattest/refusal"
	"github.com/nodeattest/nodeattest/test/vectors/forge"
)

// unfiled are the attacks that no client can file, and why.
var unfiled = map[string]string{
	"request-denied": "kube-apiserver drops the status of what is created", "request-failed": "the same", "request-signed": "the same", "request-being-deleted": "the same",
	"groups-without-authenticated": "kube-apiserver adds that group",
	"machine-not-ready":            "an inventory file has only machines that are ready", "machine-of-another-node": "an inventory file has no other name for a machine",
	"answer-old": "kube-apiserver says when an answer was filed",
}

// elsewhere are checks that refuse an attack before the one that package forge names, where both
// roads are open.
var elsewhere = map[string]string{
	"echo-road": "binding-ak-name", "echo-roads-mixed-ak-name": "binding-ak-name", "echo-roads-mixed-ek-public": "ek-sources",
	"answer-by-another-machine": "binding-ak-name", "ak-public-of-another-key": "binding-ak-name", "ak-off-the-curve": "key-point",
}

// notChallenged is the object of a hello that got no challenge.
type notChallenged struct {
	error
	object *certificatesv1.CertificateSigningRequest
}

// try is an attempt with the controller's own challenges.
func (l *liars) try(t *testing.T) *forge.Try {
	return &forge.Try{Bench: l.bench, Road: l.road, Challenge: func(hello *csr.Request) (*message.Challenge, error) {
		as := l.as(t, hello.User)
		object := decided(t, l.admin, file(t, as, &hello.Spec))
		as.filed(t, object)
		challenge, err := attest.ChallengeOf(controller.Request(object))
		if err != nil {
			return nil, notChallenged{err, object}
		}
		return message.ParseChallenge(challenge)
	}}
}

// asked is a request with evidence for it of a machine, as an answer.
func (l *liars) asked(t *testing.T, machine string, good func() *forge.Asked, change func(*forge.Asked)) *csr.Request {
	asked := good()
	change(asked)
	asked.Username = l.tokenUser(t, asked.Username, asked.Groups)
	join := asked.Join
	join.Request, join.Key = asked.Asks(), asked.PKCS10.Key
	return asked.Filed(l.try(t).On(machine, join).Bundle())
}

// requests ask for the wrong thing, or are of the wrong requester.
func (l *liars) requests(t *testing.T) (lies []*lie) {
	for _, table := range l.bench.RequestTables() {
		for _, a := range table.Attacks {
			if unfiled[a.Name] == "" {
				lies = append(lies, &lie{name: a.Name, checks: a.Checks(), request: l.asked(t, forge.MachineOne, table.Good, a.Change)})
			}
		}
	}
	return lies
}

// texts are wrong in their PEM.
func (l *liars) texts(t *testing.T) (lies []*lie) {
	for _, a := range forge.PEMAttacks() {
		request := l.asked(t, forge.MachineOne, l.bench.BootstrapAsks, same)
		request.Spec.Request = []byte(a.Change(string(request.Spec.Request)))
		lies = append(lies, &lie{name: a.Name, checks: a.Checks(), request: request})
	}
	return lies
}

func same(*forge.Asked) {}

// plain omits the evidence.
func plain(b *csr.Bundle) { b.Provider, b.Data = "", nil }

// kubeletServes is how a kubelet asks Kubernetes' signer for its serving certificate.
func kubeletServes(a *forge.Asked) {
	a.Signer = csr.SignerKubeletServing
	a.OnBundle(plain)
}

// builtIn asks Kubernetes' signer, for a lifetime.
func builtIn(seconds int32) func(*forge.Asked) {
	return func(a *forge.Asked) { a.Signer, a.Expiration = csr.SignerKubeAPIServerClientKubelet, seconds }
}

// evidence is wrong in its statements, its certificates or its challenge.
func (l *liars) evidence(t *testing.T) (lies []*lie) {
	for _, a := range l.bench.LiveAttacks(l.road, true) {
		if unfiled[a.Name] != "" {
			continue
		}
		if l.bench.Now = time.Now(); strings.HasSuffix(a.Name, "not-yet-valid") {
			l.bench.Now = l.bench.Now.Add(time.Minute) // until it is looked at
		}
		made := &lie{name: a.Name, checks: a.Expect}
		if also := elsewhere[a.Name]; also != "" {
			made.checks = append(made.checks, also)
		}
		var err error
		made.request, err = a.Make(l.try(t))
		var shut forge.Shut
		var denied notChallenged
		switch {
		case errors.As(err, &shut):
			t.Logf("%s: %v", a.Name, err)
			continue
		case errors.As(err, &denied):
			made.object = denied.object
		case err != nil:
			t.Errorf("%s: %v", a.Name, err)
			continue
		}
		lies = append(lies, made)
	}
	return lies
}

// others are lies about machines and in hellos, and at the signers of Kubernetes.
func (l *liars) others(t *testing.T) (lies []*lie) {
	l.bench.Now = time.Now()
	add := func(name string, check refusal.Check, request *csr.Request) {
		lies = append(lies, &lie{name: name, checks: []string{string(check)}, request: request})
	}
	bootstrap, node := l.bench.BootstrapAsks, l.bench.NodeAsks
	add("another-machine", "not-a-member", l.asked(t, forge.MachineTwo, bootstrap, same))
	add("a-stranger", "not-a-member", l.asked(t, forge.MachineThree, bootstrap, same))
	add("another-name", "not-a-member", l.asked(t, forge.MachineOne, bootstrap, func(a *forge.Asked) { a.As(forge.OtherNode) }))
	add("a-name-of-no-machine", csr.CheckMachineUnknown, l.asked(t, forge.MachineOne, bootstrap, func(a *forge.Asked) { a.As("node-9") }))
	add("an-answer-at-the-signer-of-challenges", "bundle-statements", l.asked(t, forge.MachineOne, bootstrap, func(a *forge.Asked) { a.Signer = csr.SignerChallengeTPM }))

	m := l.bench.Machines[forge.MachineOne]
	hello := func(change func(*forge.Join)) *csr.Request {
		j := l.bench.Defaults(forge.Join{EK: m.EK})
		change(&j)
		return l.bench.Hello(j, m.AK.Public.Raw, forge.Sources{Chain: m.EK.Chain})
	}
	add("a-hello-to-another-cluster", attest.CheckBindingCluster, hello(func(j *forge.Join) { j.Cluster = "other" }))
	add("a-hello-for-a-signer-that-is-not-served", csr.CheckSignerName, hello(func(j *forge.Join) { j.Signer = csr.SignerClientInsecure }))
	add("a-hello-for-system-masters", "subject-organization", hello(func(j *forge.Join) {
		asked := bootstrap()
		asked.Subject[0] = forge.Text(oid.Organization, "system:masters")
		j.Request, j.Key = asked.Asks(), asked.PKCS10.Key
	}))
	add("a-hello-of-a-person", "request-username", hello(func(j *forge.Join) { j.Username = "alice" }))

	add("a-lifetime-over-a-day", "expiration", l.asked(t, forge.MachineOne, bootstrap, builtIn(24*60*60+1)))
	add("a-plain-request", csr.CheckAttestationProvider, l.asked(t, forge.MachineOne, node, func(a *forge.Asked) { builtIn(3600)(a); a.OnBundle(plain) }))
	serves := l.asked(t, forge.MachineOne, l.bench.NodeServes, kubeletServes)
	unattested := l.certified(t, serves.User)
	return append(lies,
		&lie{name: "a-kubelet-that-is-not-attested", checks: []string{string(csr.CheckCredential)}, request: serves,
			as: unattested, why: unattested.user.Extra[csr.ExtraCredentialID][0]},
		&lie{name: "an-administrator-as-a-kubelet", checks: []string{string(csr.CheckCredential)}, request: serves,
			as: l.impersonated(t, serves.User), why: "no credential ID"})
}
