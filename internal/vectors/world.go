package main

import (
	"context"
	"encoding/hex"
	"errors"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	tpmkind "github.com/nodeattest/nodeattest/attest/tpm"
	"github.com/nodeattest/nodeattest/attest/tpm/tpmkey"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/forge"
	"github.com/nodeattest/nodeattest/internal/vector"
	"github.com/nodeattest/nodeattest/oid"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// The values of the good node and of its control plane.
const (
	clusterID  = "vectors"
	providerID = "sim://vectors/node-1"
	bootstrap  = "system:bootstrap:abc123"
)

// world is a TPM, a CA, keys, and the control plane's environment.
type world struct {
	*forge.Bench
	ctx context.Context
	set vector.Set

	tpm    *tpmsim.TPM
	shared *tpmkey.Shared

	good, goodHello  *csr.Request
	goodTPMChallenge []byte
}

// generate makes everything. It needs the in-process simulator.
func generate() (set *vector.Set, messages *messages, err error) {
	defer forge.Caught(&err)
	w := &world{ctx: context.Background(), Bench: &forge.Bench{Now: time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC), ClusterID: clusterID, ProviderID: providerID, Bootstrap: bootstrap}}
	w.open()
	defer func() { err = errors.Join(err, w.tpm.Close()) }()
	w.CA = w.tpm.CA()
	w.MakeKeys(true)
	w.makeEnvironment()
	w.makeGood()

	w.accepted()
	w.acceptedParts()
	w.statements()
	w.tpmStatements()
	w.certificates()
	w.bindings()
	w.answersMixed()
	w.challenges()
	w.nodes()
	w.pems()
	w.requests()
	w.extensions()
	w.roadEK()
	w.quotes()
	w.quotedAnswers()
	w.registry()
	w.firstUse()
	w.eksAlone()
	w.withdrawals()
	w.boots()
	w.credentials()
	w.akTrusts()
	w.tokens()
	w.signers()
	return &w.set, w.messages(), nil
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
		Issuers:    []vector.Issuer{{Roots: [][]byte{w.tpm.CA().Root().Raw}, Profile: profileTCG()}},
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

// profileTCG is tpmcert.ProfileTCG in JSON.
func profileTCG() vector.Profile {
	return vector.Profile{Name: "TCG AK", KeyUsage: []string{"digitalSignature"},
		ExtKeyUsage: []string{oid.TCGKpAIKCertificate.String()}, Identity: []string{"othername", "ak"}}
}

// issuersWith is the common environment's issuer with a changed profile.
func (w *world) issuersWith(change func(*vector.Profile)) []vector.Issuer {
	p := profileTCG()
	change(&p)
	return []vector.Issuer{{Roots: [][]byte{w.tpm.CA().Root().Raw}, Profile: p}}
}

// makeGood has the simulator's RSA AK say hello and answer a challenge.
func (w *world) makeGood() {
	n := w.tpmNode(tpmkind.GCERSA(), nil)
	w.goodHello = n.hello(w)
	w.goodTPMChallenge = n.challenge(w)
	w.good = n.answer(w, w.goodTPMChallenge)
}

// add keeps a vector.
func (w *world) add(v *vector.Vector) { w.set.Vectors = append(w.set.Vectors, v) }
