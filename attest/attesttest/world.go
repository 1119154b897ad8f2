package attesttest

import (
	"cmp"
	"context"
	"crypto"
	"crypto/x509"
	"errors"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/document"
	"github.com/nodeattest/nodeattest/attest/tpm"
	"github.com/nodeattest/nodeattest/attest/tpm/tpmcert"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/forge"
	"github.com/nodeattest/nodeattest/internal/message"
	"github.com/nodeattest/nodeattest/refusal"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// The machines of a [World]. The first two are members: [MachineOne] may be node-1,
// [MachineTwo] node-2. Nobody expects [Stranger], though the issuer of AK certificates knows
// it like any other machine.
const (
	MachineOne = "machine-1"
	MachineTwo = "machine-2"
	Stranger   = "machine-3"
)

// NodeName2 is the node that [MachineTwo] may be; [MachineOne] may be [NodeName].
const NodeName2 = "node-2"

// WorldOptions say which world a provider is tried in. Each zero field is a sensible default.
type WorldOptions struct {
	// Provider is the name of the provider in signer names; "" means
	// tpm.Provider.
	Provider string
	// RequireTPMResident makes the world require TLS keys that live in the TPM, and adds the
	// attacks on that. For TPM evidence.
	RequireTPMResident bool
	// RequireQuote makes the world require a quote over good values of PCRs 0 to 7, and adds
	// the attacks on that. For TPM evidence.
	RequireQuote bool
	// Roads are those that the provider supports; nil means both. On any other, honest
	// machines must be refused too. For TPM evidence.
	Roads []attest.Road
	// Prove makes the evidence of honest machines; nil makes that of package attest on Roads.
	// If it is set, the attacks on TPM evidence are left out. Some requests are malformed on
	// purpose (csr.ParsePKCS10 refuses them), and get evidence all the same.
	Prove func(ctx context.Context, provider csr.Provider, a *Applicant) (*csr.Bundle, error)
	// Documents are another kind of evidence, in place of TPM evidence. Provider is then the
	// kind's name.
	Documents *Documents
}

// Applicant is an honest machine that asks for a certificate, as WorldOptions.Prove
// sees it.
type Applicant struct {
	// Machine is one of [MachineOne], [MachineTwo] and [Stranger].
	Machine string
	// Request is the PKCS#10 request, DER, and Key its key.
	Request []byte
	Key     crypto.Signer
	// Object is the object that the evidence will be filed in: everything except spec.request
	// is there. A hello has the same requester, usages and lifetime.
	Object csr.Request

	join forge.Join
}

// World is what a provider under test is put into: two machines that are members of the
// cluster, one that is not, an issuer of AK and EK certificates, an inventory, a CA and a
// clock. Nothing in it needs a TPM or cgo. It is for one test at a time.
type World struct {
	// Config is what a provider of TPM evidence is made from. A provider of another kind uses
	// its policy and clock, and decides about membership by WorldOptions.Prove's own machines.
	Config attest.VerifierConfig
	// TPM is what the kind of TPM evidence in Config is made from; nothing with
	// WorldOptions.Prove.
	TPM tpm.KindConfig

	challengeSigner string
	options         WorldOptions
	bench           *forge.Bench                      // machines, and what evidence is made with
	ca              *csr.CA                           // of the cluster
	ekOwner         map[[message.HashSize]byte]string // the EKs on the members' list, by digest, and whose they are

	inventory
}

// NewWorld makes a world for one provider.
func NewWorld(t testing.TB, opts WorldOptions) *World {
	t.Helper()
	return opened[*World](t)(OpenWorld(opts))
}

// OpenWorld is [NewWorld] for use outside tests.
func OpenWorld(opts WorldOptions) (*World, error) {
	w := &World{options: opts, ekOwner: map[[message.HashSize]byte]string{}}
	w.options.Provider = cmp.Or(w.options.Provider, tpm.Provider)
	switch d := opts.Documents; {
	case opts.Prove != nil:
		w.options.Roads = []attest.Road{attest.RoadAK} // only for the names of attacks
	case d != nil:
		w.options.Provider, w.options.Roads = d.Kind.Describe().Provider, []attest.Road{attest.RoadDocument}
	case len(opts.Roads) == 0:
		w.options.Roads = bothRoads()
	}
	w.known = map[string]*csr.Machine{
		NodeName: {Name: MachineOne, NodeName: NodeName, ProviderID: ProviderID, BootstrapReady: true,
			DNSNames: []string{"node-1.example.com"}, IPAddresses: []netip.Addr{netip.MustParseAddr("192.0.2.1")}},
		NodeName2: {Name: MachineTwo, NodeName: NodeName2, BootstrapReady: true,
			DNSNames: []string{"node-2.example.com"}, IPAddresses: []netip.Addr{netip.MustParseAddr("192.0.2.2")}},
		"node-3": {Name: "machine-of-node-3", NodeName: "node-3"}, // not ready
		// The inventory knows these by something that no evidence of the world's machines shows.
		"node-7": {Name: MachineOne, NodeName: "node-7", BootstrapReady: true, Identity: "another:machine"},
		"node-8": {Name: MachineOne, NodeName: "node-8", BootstrapReady: true, Provider: "another"},
	}
	w.admits = func(m *csr.Machine, r *attest.Result) bool { return w.expects(m.Name, r.Road, r.Machine, r.MachineKey) }
	return w, w.open()
}

// open makes what evidence is made with, and the configuration that trusts it.
func (w *World) open() (err error) {
	defer forge.Caught(&err)
	w.bench = &forge.Bench{Now: time.Now().Truncate(time.Second), ClusterID: ClusterID, ProviderID: ProviderID,
		Bootstrap: csr.BootstrapUserPrefix + TokenID, Quoted: w.options.RequireQuote}
	for name, make := range map[*string]func(string) (string, error){
		&w.bench.Client: csr.SignerClient, &w.bench.Serving: csr.SignerServing, &w.challengeSigner: csr.SignerChallenge} {
		*name = forge.Must(make(w.options.Provider))
	}
	w.bench.CA = forge.Must(tpmsim.NewCA(tpmsim.CAOptions{Now: w.Now}))
	w.bench.MakeKeys(nil)
	w.bench.MakeMachines()
	for name, m := range w.bench.Machines {
		w.ekOwner[forge.Must(csr.SPKIHash(m.EK.Public))] = name
	}
	for _, ek := range w.bench.WeakEKs {
		w.ekOwner[forge.Must(csr.SPKIHash(ek.Public))] = MachineOne
	}
	w.Config = attest.VerifierConfig{
		KeyRing:            forge.Must(attest.NewStaticKeyRing(w.bench.Ring, w.bench.Retired)),
		Policy:             &csr.Policy{ClusterIDs: []string{ClusterID}, SignerNames: []string{w.bench.Client, w.bench.Serving}, Machines: w.machine, Now: w.Now},
		Authorizer:         &authority{&w.inventory},
		RequireTPMResident: w.options.RequireTPMResident,
		Now:                w.Now,
	}
	w.ca, _ = newClusterCA(w.Config.Policy, w.Now)
	switch {
	case w.options.Documents != nil:
		w.Config.Kinds = []attest.Kind{w.options.Documents.Kind}
	case w.options.Prove == nil:
		w.configureTPM()
	}
	return nil
}

// configureTPM opens the roads, and says what must be quoted.
func (w *World) configureTPM() {
	roots := []*x509.Certificate{w.bench.CA.Root()}
	if w.opens(attest.RoadAK) {
		w.TPM.AKIssuers = []tpmcert.Issuer{{Roots: roots, Profile: tpmcert.ProfileTCG()}}
	}
	if w.opens(attest.RoadEK) {
		w.TPM.EKs = forge.Must(tpmcert.NewEKVerifier(tpmcert.EKVerifierConfig{
			Issuers: []tpmcert.EKIssuer{{Roots: roots, Profile: tpmcert.EKProfileTCG()}}}))
	}
	if w.options.RequireQuote {
		w.TPM.QuotePolicy = forge.Must(tpm.NewPCRPolicy(w.bench.QuoteBy(w.bench.AKP256).PCRs))
	}
	w.Config.Kinds = []attest.Kind{forge.Must(tpm.NewKind(w.TPM))}
}

func bothRoads() []attest.Road { return []attest.Road{attest.RoadAK, attest.RoadEK} }

func (w *World) opens(road attest.Road) bool { return slices.Contains(w.options.Roads, road) }

// Now is the world's clock. It stands still, except for one day that [Run] lets pass on each
// road.
func (w *World) Now() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.bench.Now
}

func (w *World) advance(d time.Duration) {
	w.locked(func() { w.bench.Now = w.bench.Now.Add(d) })
}

func (w *World) setDown(down bool) {
	w.locked(func() { w.down = down })
}

// Member answers whether a machine may be a node, as a provider's own list would: the machine
// is the name that the world's inventory has for the node. The error is csr.ErrNoMachine, or
// one that matches refusal.ErrRetry if the list does not answer.
func (w *World) Member(nodeName, machine string) error {
	m, err := w.machine(context.Background(), csr.Question{NodeName: nodeName})
	switch {
	case errors.Is(err, errDown):
		return refusal.Retry(err)
	case err != nil:
		return err
	case m.Name != machine:
		return csr.ErrNoMachine
	}
	return nil
}

// expects says whether a machine is known by an identity or, on the road of the EK, by an EK.
func (w *World) expects(machine string, road attest.Road, identity attest.Identity, key [message.HashSize]byte) bool {
	switch road {
	case attest.RoadEK:
		return w.ekOwner[key] == machine
	case attest.RoadDocument:
		own, err := w.options.Documents.Source(machine, time.Time{}).Machine(context.Background())
		return err == nil && own == identity
	}
	return string(identity) == forge.Identity(machine)
}

// Documents are what the author of a kind of evidence by documents (package attest/document)
// gives to a [World], so that [Run] can attack it. Some attacks know nothing of the format:
// they change one byte after the other, which finds what no signature covers, and they replace
// what a document says by the right value or by another identity.
type Documents struct {
	// Kind is the control plane's side, as used in World.Config.
	Kind attest.Kind
	// Source is the node's side on one of the machines of the world, with the platform's clock
	// stopped at that time. Two for one machine name the same identity.
	Source func(machine string, at time.Time) document.Source
	// Attacker is like Source, but signs the documents with its own key.
	Attacker func(machine string, at time.Time) document.Source
	// Undated says that documents have no date, so that only the challenge, which they cover,
	// makes them new. Those of another day are then no attacks.
	Undated bool
}

// version is the newest version of the data format that the kind reads.
func (d *Documents) version() int { return slices.Max(d.Kind.Describe().Versions) }

// forged makes the same for package forge.
func (d *Documents) forged(ctx context.Context, format string) *forge.Documents {
	return &forge.Documents{
		Format:   format,
		Identity: func(machine string) string { return string(forge.Must(d.Source(machine, time.Time{}).Machine(ctx))) },
		Sign: func(machine string, at time.Time, value []byte, attacker bool) []byte {
			source := d.Source
			if attacker {
				source = d.Attacker
			}
			return forge.Must(source(machine, at).Document(ctx, value))
		},
	}
}

// join is what an honest machine does: hello, the provider's own challenge, answer.
func (d *Documents) join(ctx context.Context, a *attempt, applicant *Applicant) (*csr.Bundle, error) {
	attester := forge.Must(attest.NewAttester(forge.Must(document.NewProver(a.options.Provider, d.version(), d.Source(applicant.Machine, a.Now())))))
	subject := attest.Subject{Request: applicant.Request, SignerName: applicant.Object.Spec.SignerName, ClusterID: ClusterID}
	object := applicant.Object
	object.Spec.Request = forge.Must(attester.Hello(ctx, subject)).Request
	challenge, err := a.challenge(ctx, &object)
	if err != nil {
		return nil, err
	}
	answer, err := attester.Answer(ctx, challenge, applicant.Key, subject)
	if err != nil {
		return nil, err
	}
	return csr.Parse(answer.Request)
}
