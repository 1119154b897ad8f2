package main

import (
	"context"
	_ "embed" // for the catalogue
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/go-tpm/tpm2/transport"

	"github.com/nodeattest/nodeattest/attest"
	tpmkind "github.com/nodeattest/nodeattest/attest/tpm"
	"github.com/nodeattest/nodeattest/attest/tpm/statement"
	"github.com/nodeattest/nodeattest/attest/tpm/tpmkey"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/message"
	"github.com/nodeattest/nodeattest/oid"
	"github.com/nodeattest/nodeattest/secret"
	"github.com/nodeattest/nodeattest/test/vectors/forge"
	"github.com/nodeattest/nodeattest/test/vectors/vector"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// The values of the good node and its control plane.
const (
	clusterID  = "vectors"
	providerID = "sim://vectors/node-1"
	bootstrap  = "system:bootstrap:abc123"
)

// world is a TPM, a CA, keys, and the control plane's environment.
type world struct {
	*forge.Bench
	ctx   context.Context
	set   vector.Set
	class string // of the attacks that are being made
	// singles are the catalogue's entries for inputs that are still to be made.
	singles map[string]forge.Attack[struct{}]

	tpm    *tpmsim.TPM
	shared transport.TPM

	good, goodHello  *csr.Request
	goodTPMChallenge []byte
}

// generate makes everything. It needs the in-process simulator.
func generate() (*vector.Set, *messages) {
	w := &world{ctx: context.Background(), Bench: &forge.Bench{Now: time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC), ClusterID: clusterID, ProviderID: providerID, Bootstrap: bootstrap}}
	w.singles = map[string]forge.Attack[struct{}]{}
	for _, a := range forge.Rows[struct{}](catalogue, "single inputs") {
		w.singles[a.Name] = a
	}
	w.open()
	defer func() { forge.Check(w.tpm.Close()) }()
	w.CA = w.tpm.CA()
	w.MakeKeys(rsaKey)
	w.makeEnvironment()
	w.makeGood()
	w.accepted()
	for _, c := range []struct {
		class string
		make  []func()
	}{
		// The order matters: a CA counts its certificates.
		{"statement", []func(){w.statements, w.tpmStatements, w.quotes, w.akTrusts}},
		{"certificate", []func(){w.certificates, w.eksAlone, w.withdrawals, w.issuers}},
		{"binding", []func(){w.bindings, w.answersMixed, w.challenges, w.nodes, w.quotedAnswers, w.registry, w.firstUse, w.credentials}},
		{"boot", []func(){w.boots}},
		{"request", []func(){w.pems, w.requests, w.extensions}},
		{"token", []func(){w.tokens, w.signers}},
	} {
		w.class = c.class
		for _, make := range c.make {
			make()
		}
	}
	w.roadEK()
	w.oems()
	w.googlesMachines()
	if len(w.singles) > 0 {
		forge.Check(fmt.Errorf("nothing makes %q", slices.Collect(maps.Keys(w.singles))))
	}
	return &w.set, w.messages()
}

func (w *world) open() {
	w.tpm = forge.Must(tpmsim.Open(tpmsim.Options{
		Seed:      []byte(forge.Seed),
		AKs:       []tpmsim.AK{{Algorithm: tpmsim.RSA2048}, {Algorithm: tpmsim.P256}},
		OtherName: forge.MachineName("machine-1"),
		Now:       func() time.Time { return w.Now },
	}))
	w.shared = tpmkey.Share(w.tpm)
	w.Stranger = forge.Must(tpmsim.NewCA(tpmsim.CAOptions{Name: "stranger", Seed: []byte(forge.Seed + " stranger"),
		Now: func() time.Time { return w.Now }}))
}

// ringKey is a challenge key in JSON.
func ringKey(k attest.RingKey) vector.RingKey {
	s := k.Secret.Reveal()
	return vector.RingKey{ID: hex.EncodeToString(k.ID[:]), Secret: s[:], ActiveAt: k.ActiveAt, RetiredAt: k.RetiredAt}
}

func (w *world) makeEnvironment() {
	w.set.Environment = vector.Environment{
		Now:        w.Now,
		ClusterIDs: []string{clusterID},
		RingKeys:   []vector.RingKey{ringKey(w.Retired), ringKey(w.Ring), ringKey(w.Later)},
		Issuers:    []vector.Issuer{{Roots: [][]byte{w.CA.Root().Raw}, Profile: profileTCG()}},
		Policy: &vector.Policy{
			SignerNames:      []string{csr.SignerClientTPM, csr.SignerServingTPM, csr.SignerRecoveryTPM, csr.SignerKubeletServing},
			ReservedIPs:      []string{"10.96.0.0/12"},
			ReservedDNSNames: []string{"api.example.com"},
		},
		Machines: []vector.Machine{
			{Asked: forge.NodeName, Name: "machine-1", NodeName: forge.NodeName, ProviderID: providerID, BootstrapReady: true,
				DNSNames: []string{"node-1.example.com", "api.example.com", "kubernetes.default.svc"}, IPAddresses: []string{"192.0.2.1", "10.96.0.1", "127.0.0.1"}},
			{Asked: forge.OtherNode, Name: "machine-2", NodeName: forge.OtherNode, BootstrapReady: true,
				DNSNames: []string{"node-2.example.com"}, IPAddresses: []string{"192.0.2.2"}},
			{Asked: "node-3", Name: "machine-3", NodeName: "node-3"},
			{Asked: "node-4", Name: "machine-1", NodeName: forge.NodeName, BootstrapReady: true},
		},
		Members: []vector.Member{
			{NodeName: forge.NodeName, Machine: forge.Identity("machine-1"), ProviderID: providerID,
				DNSNames: []string{"node-1.example.com"}, IPAddresses: []string{"192.0.2.1"}},
			{NodeName: forge.OtherNode, Machine: forge.Identity("machine-2")},
		},
		Records: []vector.Record{
			{CredentialID: forge.CredentialOne, NodeName: forge.NodeName, SignerName: csr.SignerClientTPM},
			{CredentialID: forge.CredentialTwo, NodeName: forge.OtherNode, SignerName: csr.SignerClientTPM},
		},
	}
}

// trusting is an environment that trusts another root for AK certificates.
func trusting(root []byte) *vector.Environment {
	return &vector.Environment{Issuers: []vector.Issuer{{Roots: [][]byte{root}, Profile: profileTCG()}}}
}

// profileTCG is tpmcert.ProfileTCG in JSON.
func profileTCG() vector.Profile {
	return vector.Profile{Name: "TCG AK", KeyUsage: []string{"digitalSignature"},
		ExtKeyUsage: []string{oid.TCGKpAIKCertificate.String()}, Identity: []string{"othername", "ak"}}
}

// issuersWith is the common environment's issuer with a changed profile.
func (w *world) issuersWith(change func(*vector.Profile)) []vector.Issuer {
	p := profileTCG()
	change(&p)
	return []vector.Issuer{{Roots: [][]byte{w.CA.Root().Raw}, Profile: p}}
}

// makeGood makes the simulator's RSA AK say hello and answer a challenge.
func (w *world) makeGood() {
	n := w.tpmNode(tpmkind.GCERSA(), nil)
	w.goodHello = n.hello(w)
	w.goodTPMChallenge = n.challenge(w)
	w.good = n.answer(w, w.goodTPMChallenge)
}

// catalogue has a table of inputs in each section.
//
//go:embed inputs.md
var catalogue string

// listed are the inputs in a section of inputs.md, each with what makes it.
func listed[T any](section string, inputs map[string]T) []forge.Attack[T] {
	return forge.Listed(catalogue, section, inputs)
}

// hello is the object of a hello, asked one that the node policy alone sees.
type (
	hello struct{ *csr.Request }
	asked struct{ *csr.Request }
)

// single returns the catalogue's entry for an input that is in none of its tables: each once.
func (w *world) single(name string) (what, expect string) {
	a, found := w.singles[name]
	if !found {
		forge.Check(fmt.Errorf("%s is not among the single inputs, or there twice", name))
	}
	delete(w.singles, name)
	return a.What, a.Expect
}

// refuse adds a single input that a check refuses; refuseAs adds any other one.
func (w *world) refuse(name string, in any, env *vector.Environment) *vector.Vector {
	what, expect := w.single(name)
	return w.refuseAs(name, what, expect, in, env)
}

func (w *world) refuseAs(name, what, expect string, in any, env *vector.Environment) *vector.Vector {
	v := w.keep(name, what, in, env)
	v.Class, v.Expect = w.class, expect
	return v
}

// accept adds a single input that is accepted, with that result; acceptAs adds any other one.
func (w *world) accept(name string, in any, env *vector.Environment, result *vector.Result) {
	what, _ := w.single(name)
	w.acceptAs(name, what, in, env, result)
}

func (w *world) acceptAs(name, what string, in any, env *vector.Environment, result *vector.Result) {
	v := w.keep(name, what, in, env)
	v.Class, v.Result = "accepted", result
}

// keep adds a vector, whose level is determined by its input.
func (w *world) keep(name, what string, in any, env *vector.Environment) *vector.Vector {
	v := &vector.Vector{Name: name, Description: what, Environment: env}
	switch in := in.(type) {
	case *csr.Request:
		v.Level, v.Object = vector.LevelVerify, &vector.Object{Request: in}
	case *forge.Forgery:
		v.Level, v.Object = vector.LevelVerify, &vector.Object{Request: in.Answer()}
	case *forge.Parts:
		v.Level, v.Object = vector.LevelVerify, &vector.Object{Request: in.Together()}
		if in.Hello != nil {
			v.Level = vector.LevelChallenge
		}
	case hello:
		v.Level, v.Object = vector.LevelChallenge, &vector.Object{Request: in.Request}
	case asked:
		v.Level, v.Object = vector.LevelRequest, &vector.Object{Request: in.Request}
	case *forge.Asked:
		v.Level, v.Object, v.TargetSigner = vector.LevelRequest, &vector.Object{Request: in.Encode()}, in.Target
	default:
		v.SetInput(in)
	}
	w.set.Vectors = append(w.set.Vectors, v)
	return v
}

// tpmNode is a node with an AK in the simulator.
type tpmNode struct {
	forge.Join
	attester  *attest.Attester
	public    *statement.Public
	certified tpmkey.Certifiable
}

// tpmNode makes a node whose AK comes from source. Its certificate is in NV, or is issued
// here.
func (w *world) tpmNode(source tpmkind.AKSource, j *forge.Join) *tpmNode {
	if j == nil {
		j = &forge.Join{}
	}
	n := &tpmNode{Join: w.Defaults(*j)}
	n.public = forge.Must(tpmkind.AKPublic(w.ctx, w.shared, source, secret.Value[[]byte]{}))
	o := tpmkind.ProverOptions{}
	if source.CertificateIndex != 0 {
		o.Intermediates = [][]byte{w.tpm.CA().AKIntermediate().Raw}
	} else {
		leaf := forge.Must(w.tpm.CertifyAK(forge.Must(n.public.Key())))
		o.Certificates = [][]byte{leaf.Raw, w.tpm.CA().AKIntermediate().Raw}
	}
	n.attester = forge.Must(attest.NewAttester(forge.Must(tpmkind.NewProver(w.shared, source, o))))
	if resident, ok := n.Key.(*tpmkey.Key); ok {
		n.certified = resident
	} else {
		n.certified = forge.Must(tpmkey.SoftwareKey(rawKey(n.Key)))
	}
	return n
}

func (n *tpmNode) subject() attest.Subject {
	return attest.Subject{Request: n.Request, SignerName: n.Signer, ClusterID: n.Cluster, ExpirationSeconds: n.Expiration}
}

func (n *tpmNode) hello(w *world) *csr.Request {
	return n.Object(bundleOf(n.attester.Hello(w.ctx, n.subject())), csr.SignerChallengeTPM, w.Now.Add(-time.Minute))
}

func (n *tpmNode) challenge(w *world) []byte {
	b := n.Binding(w.Bench, forge.Must(n.public.Key()))
	secret, _ := n.Secrets(b)
	return forge.Must((&message.Challenge{Binding: *b, Clear: secret}).Marshal())
}

func (n *tpmNode) answer(w *world, challenge []byte) *csr.Request {
	return n.Object(bundleOf(n.attester.Answer(w.ctx, challenge, n.certified, n.subject())), n.Signer, w.AnsweredAt())
}

// bundleOf is the bundle that an attester made.
func bundleOf(spec *csr.Spec, err error) *csr.Bundle {
	return forge.Must(csr.Parse(forge.Must(spec, err).Request))
}
