package tpm

import (
	"cmp"
	"context"
	"crypto"
	"crypto/rand"
	"fmt"
	"reflect"
	"slices"
	"strconv"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/tpm/internal/tpmop"
	"github.com/nodeattest/nodeattest/attest/tpm/statement"
	"github.com/nodeattest/nodeattest/attest/tpm/tpmcert"
	"github.com/nodeattest/nodeattest/internal/der"
	"github.com/nodeattest/nodeattest/internal/message"
	"github.com/nodeattest/nodeattest/oid"
	"github.com/nodeattest/nodeattest/refusal"
)

// Provider is the name of this kind of evidence in signer names and, with "/v1" after it,
// in the block KUBELET AUTHENTICATOR ATTESTATION PROVIDER.
const Provider = "tpm"

// Labels of the qualifying data ([attest.Label]).
const (
	labelCertify = "certify"
	labelQuote   = "quote"
)

// KindConfig configures a [Kind]. At least one of AKIssuers and EKs must be set: a road that
// has nothing to trust is closed.
type KindConfig struct {
	// AKIssuers are the trusted issuers of AK certificates. They open [attest.RoadAK].
	AKIssuers []tpmcert.Issuer
	// EKs decides which EKs are trusted. It opens [attest.RoadEK].
	EKs *tpmcert.EKVerifier
	// QuotePolicy, if set, decides about what each node booted; an answer without a quote is
	// then refused. Nil means that a quote is verified if there is one, and nothing more is
	// required: an Authorizer finds it in Details.Measured.
	QuotePolicy QuotePolicy
	// QuoteOptional has QuotePolicy decide about answers without a quote, too: it gets a Measured
	// whose Quote is nil, and must refuse where it needs one. [PCRPolicy] and eventlog.BootPolicy do.
	QuoteOptional bool
}

// Kind is the TPM's evidence on the control plane's side, an [attest.Kind]. The zero Kind
// trusts no issuer: it reads messages and verifies none.
type Kind struct {
	aks         *tpmcert.AKVerifier // nil if the road is closed
	eks         *tpmcert.EKVerifier // likewise
	quotePolicy QuotePolicy
	quoteless   bool // KindConfig.QuoteOptional
	allowSHA1   bool // some issuer allows it
	manyNames   string
}

// NewKind makes the kind. The error matches [refusal.CheckConfig] and names the field.
func NewKind(config KindConfig) (*Kind, error) {
	if len(config.AKIssuers) == 0 && config.EKs == nil {
		return nil, refusal.Config("AKIssuers and EKs", "", "one of them: no road is open")
	}
	if v, ok := config.QuotePolicy.(interface{ Validate() error }); ok {
		if err := v.Validate(); err != nil {
			return nil, &refusal.Error{Check: refusal.CheckConfig, Got: "an unusable QuotePolicy", Err: err}
		}
	}
	k := &Kind{eks: config.EKs, quotePolicy: config.QuotePolicy, quoteless: config.QuoteOptional}
	if len(config.AKIssuers) == 0 {
		return k, nil
	}
	var err error
	if k.aks, err = tpmcert.NewAKVerifier(config.AKIssuers); err != nil {
		return nil, err
	}
	profiles := k.aks.Profiles()
	for n, p := range profiles {
		k.allowSHA1 = k.allowSHA1 || p.InsecureAllowSHA1Signature
		if !reflect.DeepEqual(p.Identity, profiles[0].Identity) {
			k.manyNames = "issuers 0 and " + strconv.Itoa(n) + ", which may give one machine two identities, as they name machines by other fields"
		}
	}
	return k, nil
}

// formatVersion is the version of the data format.
const formatVersion = 1

// grammarOf is the grammar of a kind of identity; a source of the caller's own has none.
func grammarOf(kind string) attest.Grammar {
	all := tpmcert.Grammars()
	if i := slices.IndexFunc(all, func(g attest.Grammar) bool { return g.Kind == kind }); i >= 0 {
		return all[i]
	}
	return attest.Grammar{Kind: kind}
}

// Describe opens the roads on which there is something to trust.
func (k *Kind) Describe() attest.Description {
	d := attest.Description{Provider: Provider, Versions: []int{formatVersion}, Statements: []attest.Label{
		{Name: labelCertify, Size: message.HashSize},
		{Name: labelQuote, Size: message.HashSize, Optional: true},
	}}
	if k.aks != nil {
		road := attest.OpenRoad{Road: attest.RoadAK, Machine: attest.Asserted, Residence: attest.Asserted, ManyIdentities: k.manyNames}
		for n, p := range k.aks.Profiles() {
			for _, s := range p.Identity {
				road.Identities = append(road.Identities, grammarOf(s.Kind()))
				if s.Kind() == tpmcert.AKIdentityKind && !p.OneAKPerMachine {
					road.ManyIdentities = "issuer " + strconv.Itoa(n) + " has " + manyAKs(&p)
				}
			}
			if everyCustomers(&p) {
				road.ManyIdentities = "issuer " + strconv.Itoa(n) + " has " + everyCustomer(p.Name)
			}
		}
		d.Roads = append(d.Roads, road)
	}
	if k.eks != nil {
		road := attest.OpenRoad{Road: attest.RoadEK, Identities: []attest.Grammar{{Kind: "ek"}}, Machine: attest.Proven, Residence: attest.Proven}
		for n, p := range k.eks.Profiles() {
			if p.EveryCustomer && len(p.Projects) == 0 {
				road.ManyIdentities = "EK issuer " + strconv.Itoa(n) + " has " + everyCustomer(p.Name)
			}
		}
		d.Roads = append(d.Roads, road)
	}
	return d
}

// evidence is the part that hello and answer share: after read, parsed and consistent.
type evidence struct {
	kind         *Kind
	certificates [][]byte

	road     attest.Road
	ak       *tpmcert.AKPresented // nil on road EK
	ek       *tpmcert.EKPresented // nil on road AK
	akPublic *statement.Public
	akName   []byte // once it has been needed
	akKey    crypto.PublicKey
}

// read parses the evidence of the node's road: the AK, and the EK or the AK's certificate, which
// must be for the key of the public area. Trust, membership, the binding and the credential use the
// key that is read here, and no other. On road EK the AK's key is that of its public area: the
// credential is for the area's Name, and so proves the area.
func (e *evidence) read(road message.Road, akPublic, ekPublic []byte) (err error) {
	e.road = attest.Road(road)
	if e.akPublic, err = statement.ParsePublic(akPublic); err != nil {
		return err
	}
	if e.road == attest.RoadEK {
		if e.ek, err = tpmcert.ParseEKPresented(e.certificates, ekPublic); err != nil {
			return err
		}
		if _, err = tpmop.EKParametersOf(e.ek.Key()); err == nil {
			e.akKey, err = e.akPublic.Key()
		}
		return err
	}
	if e.ak, err = tpmcert.ParseAKPresented(e.certificates); err != nil {
		return err
	}
	if e.akKey = e.ak.Leaf().PublicKey; !e.akPublic.SameKey(e.akKey) {
		return &refusal.Error{Check: statement.CheckAKMismatch, Got: "the AK certificate of another key", Want: "the key of akPublic"}
	}
	return nil
}

// present names the machine by the key that carries the trust.
func (e *evidence) present() (*attest.Presented, error) {
	p := &attest.Presented{Road: e.road}
	if e.road == attest.RoadEK {
		e.akName = e.akPublic.Name()
		p.MachineKey, p.AKName, p.Machine = e.ek.SPKI(), e.akName, e.ek.Identity()
	} else if p.MachineKey = e.ak.SPKI(); p.MachineKey == nil {
		return nil, &refusal.Error{Check: attest.CheckIdentity, Got: "an AK certificate for another kind of key", Want: "RSA or ECDSA"}
	}
	return p, nil
}

// trust decides whether the key that carries the trust can be trusted.
func (e *evidence) trust(ctx context.Context, q *attest.Inquiry) (*Details, attest.Identity, error) {
	d := &Details{AKPublic: e.akPublic, values: map[string][]byte{}}
	if e.road == attest.RoadAK {
		c, err := e.kind.aks.Verify(ctx, e.ak, q.Now, q.Budget)
		if err != nil {
			return nil, "", err
		}
		d.Profile, d.Chain, d.Directory = c.Profile.Name, c.Chain, c.Directory
		d.profile = &c.Profile
		return d, c.Machine, d.readProviderID()
	}
	facts, err := e.kind.eks.Verify(ctx, e.ek, q.Machine, q.Now, q.Budget)
	if err != nil && len(e.certificates) != 0 { // an operator who knows the machine may list it
		err = fmt.Errorf("%w; the EK is %s", err, e.ek.Identity())
	}
	if err != nil {
		return nil, "", err
	}
	d.EK, d.Profile, d.Chain, d.Directory = facts, facts.Profile, facts.Chain, facts.Directory
	return d, facts.Identity, d.readProviderID()
}

// hello is the hello of a TPM.
type hello struct {
	evidence
	message *message.Hello
}

// ReadHello parses the only statement, nodeattest-hello.
func (k *Kind) ReadHello(e *attest.Evidence) (attest.HelloEvidence, error) {
	if !e.Is(oid.NodeAttestHello) {
		return nil, &refusal.Error{Check: attest.CheckStatements, Got: e.Types(), Want: "one hello"}
	}
	m, err := message.ParseHello(e.Statements[0].DER)
	if err != nil {
		return nil, err
	}
	return &hello{evidence: evidence{kind: k, certificates: e.Certificates}, message: m}, nil
}

func (h *hello) Head() attest.Head {
	return attest.Head{Road: attest.Road(h.message.Road), ClusterID: h.message.ClusterID, TargetSigner: h.message.TargetSigner}
}

func (h *hello) Present() (*attest.Presented, error) {
	if err := h.read(h.message.Road, h.message.AKPublic, h.message.EKPublic); err != nil {
		return nil, err
	}
	if err := statement.CheckAKPublic(h.akPublic); err != nil {
		return nil, err
	}
	return h.present()
}

// Trust trusts the AK or the EK. An EK certificate is public: who presents it is not known
// before the answer.
func (h *hello) Trust(ctx context.Context, q *attest.Inquiry) (*attest.Findings, error) {
	d, machine, err := h.trust(ctx, q)
	if err != nil {
		return nil, err
	}
	f := d.findings(h.road, machine, h.kind)
	if h.road == attest.RoadEK {
		f.MachineStanding = attest.Claimed
	}
	return f, nil
}

// Seal makes a credential for the EK and the AK's Name on road EK.
func (h *hello) Seal(ctx context.Context, q *attest.Inquiry, secret []byte) (*attest.Credential, error) {
	if h.road == attest.RoadAK {
		return nil, nil
	}
	if err := q.Budget.Encryption(ctx); err != nil {
		return nil, err
	}
	return makeCredential(rand.Reader, h.ek.Key(), h.akPublic.Name(), secret)
}

// answer is the answer of a TPM.
type answer struct {
	evidence
	certify  *statement.CertifyEvidence
	proof    *message.Proof
	binding  *message.Binding
	quote    *statement.QuoteEvidence // nil without a quote
	eventLog []byte                   // likewise

	in     statement.CertifyInput
	quoted *statement.QuoteInput // nil if there is no quote
}

// ReadAnswer parses an answer: certify, then proof, then optionally a quote, optionally
// followed by an event log, and nothing else.
func (k *Kind) ReadAnswer(e *attest.Evidence) (attest.AnswerEvidence, error) {
	e = cmp.Or(e, new(attest.Evidence))
	order := []oid.OID{oid.TCGAttestTPMCertify, oid.NodeAttestProof, oid.NodeAttestQuote, oid.NodeAttestEventLog}
	if n := len(e.Statements); n < 2 || n > len(order) || !e.Is(order[:n]...) {
		return nil, &refusal.Error{Check: attest.CheckStatements, Got: e.Types(), Want: "certify and proof, then quote and event log if any"}
	}
	a := &answer{evidence: evidence{kind: k, certificates: e.Certificates}}
	var err error
	if a.certify, err = statement.ParseTCGAttestCertify(e.Statements[0].DER); err != nil {
		return nil, err
	}
	if a.certify.Public == nil {
		return nil, der.Fault("certify", "tpmTPublic", "the certified key's TPMT_PUBLIC")
	}
	if a.proof, a.binding, err = message.ParseProof(e.Statements[1].DER); err != nil {
		return nil, err
	}
	if len(e.Statements) > 2 {
		if a.quote, err = statement.ParseQuote(e.Statements[2].DER); err != nil {
			return nil, err
		}
	}
	if len(e.Statements) > 3 {
		if a.eventLog, err = statement.ParseEventLog(e.Statements[3].DER); err != nil {
			return nil, err
		}
	}
	return a, nil
}

func (a *answer) Binding() []byte { return a.proof.Binding }

// Echo is Binding, parsed: package attest asks for it.
func (a *answer) Echo() *message.Binding { return a.binding }

func (a *answer) Present() (*attest.Presented, error) {
	if err := a.read(a.binding.Road, a.proof.AKPublic, a.proof.EKPublic); err != nil {
		return nil, err
	}
	return a.present()
}

// Check checks everything about the certify statement and the quote but their signatures.
func (a *answer) Check(q *attest.Inquiry) error {
	a.in = statement.CertifyInput{
		AK:     a.akPublic,
		AKName: a.akName,
		AKKey:  a.akKey,
		Covers: func(data []byte) error { return q.Covers(labelCertify, data) },
		Options: statement.CertifyOptions{
			Key:                        q.Key,
			InsecureAllowSHA1Signature: a.kind.allowSHA1 && a.road == attest.RoadAK,
			RequireTPMResident:         q.RequireTPMResident,
		},
	}
	if err := a.in.Parse(a.certify, nil); err != nil {
		return err
	}
	if err := a.in.CheckBeforeSignature(); err != nil {
		return err
	}
	return a.checkQuote(q.Covers)
}

// Verify verifies the signatures, the trust in the AK or the EK, the requirements of the issuer's
// profile and of the deny-list, and the quote policy.
func (a *answer) Verify(ctx context.Context, q *attest.Inquiry) (*attest.Findings, error) {
	if err := q.Budget.Signature(ctx); err != nil {
		return nil, err
	}
	if err := a.in.CheckSignature(); err != nil {
		return nil, err
	}
	if a.quoted != nil {
		if err := q.Budget.Signature(ctx); err != nil {
			return nil, err
		}
		if err := a.quoted.CheckSignature(); err != nil {
			return nil, err
		}
	}
	d, machine, err := a.trust(ctx, q)
	if err != nil {
		return nil, err
	}
	d.fillStatement(&a.in)
	d.fillQuote(a)
	if err := d.checkProfile(a.road); err != nil {
		return nil, err
	}
	if a.road == attest.RoadEK && d.Clock.Plain {
		if err := a.kind.eks.CheckFirmware(d.Directory, d.Clock.FirmwareVersion); err != nil {
			return nil, err
		}
	}
	if err := a.checkQuotePolicy(ctx, d.Measured, machine, q.Budget); err != nil {
		return nil, err
	}
	return d.findings(a.road, machine, a.kind), nil
}
