package vector

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/tpm"
	"github.com/nodeattest/nodeattest/attest/tpm/eventlog"
	"github.com/nodeattest/nodeattest/attest/tpm/statement"
	"github.com/nodeattest/nodeattest/attest/tpm/tpmcert"
	"github.com/nodeattest/nodeattest/internal/message"
	"github.com/nodeattest/nodeattest/oid"
	"github.com/nodeattest/nodeattest/test/vectors/forge"
)

// verify passes the statement to statement.VerifyCertify.
func (s *Statement) verify() (*Result, error) {
	e := &statement.CertifyEvidence{Attest: s.Attest, Signature: s.Signature, Public: s.Public, RawSignature: s.RawSignature.scheme()}
	o := statement.CertifyOptions{QualifyingData: s.QualifyingData, AK: akOf(s.AKTrust, s.AKPublic, s.AKKey), Key: publicKey(s.Key)}
	for _, name := range s.Options {
		forge.Check(setOption(&o, name))
	}
	c, err := statement.VerifyCertify(e, o)
	if err != nil {
		return nil, err
	}
	return &Result{TPMResident: &c.TPMResident}, nil
}

// akOf is the AK of a vector, with the trust that it names. If it names none, the trust is in
// a credential if it has only the public area, and otherwise in an issuer.
func akOf(trust string, public, spki []byte) statement.AK {
	key := publicKey(spki)
	if trust == "" && key == nil && public == nil {
		return statement.AK{}
	}
	if trust == "" {
		trust = string(statement.AKByIssuer)
		if key == nil {
			trust = string(statement.AKByCredential)
		}
	}
	return named("akTrust", trust, map[string]statement.AK{
		string(statement.AKBySender):     statement.InsecureAKFromSender(key, public),
		string(statement.AKByCredential): statement.AKFromCredential(public),
		string(statement.AKByIssuer):     statement.AKFromIssuer(key, public),
	})
}

// scheme is nil if a signature is not bare.
func (r *RawSignature) scheme() *statement.KeyScheme {
	if r == nil {
		return nil
	}
	return &statement.KeyScheme{
		Alg: named("scheme", r.Scheme, map[string]tpm2.TPMAlgID{"rsassa": tpm2.TPMAlgRSASSA, "rsapss": tpm2.TPMAlgRSAPSS, "ecdsa": tpm2.TPMAlgECDSA}),
		Hash: named("hash", r.Hash, map[string]tpm2.TPMAlgID{
			"sha1": tpm2.TPMAlgSHA1, "sha256": tpm2.TPMAlgSHA256, "sha384": tpm2.TPMAlgSHA384, "sha512": tpm2.TPMAlgSHA512}),
	}
}

// setOption sets the boolean field with that name, which is in camel case or as in Go.
func setOption(options any, name string) error {
	if name != "" {
		field := reflect.ValueOf(options).Elem().FieldByName(strings.ToUpper(name[:1]) + name[1:])
		if field.IsValid() && field.Kind() == reflect.Bool {
			field.SetBool(true)
			return nil
		}
	}
	return fmt.Errorf("unknown option %q", name)
}

// Quote is one quote, the PCR values sent with it, and what both are checked against.
type Quote struct {
	// Attest is a TPMS_ATTEST; Signature is a TPMT_SIGNATURE unless RawSignature is set; both
	// are without an outer size.
	Attest       []byte        `json:"attest"`
	Signature    []byte        `json:"signature"`
	RawSignature *RawSignature `json:"rawSignature,omitempty"`
	// PCRs are the values that the node sends, in the node's order.
	PCRs []PCR `json:"pcrs"`
	// AKPublic is the AK's TPMT_PUBLIC, AKKey its SubjectPublicKeyInfo: one or both.
	AKPublic []byte `json:"akPublic,omitempty"`
	AKKey    []byte `json:"akKey,omitempty"`
	// AKTrust says where the trust in the AK comes from: "credential", "issuer" or "sender".
	// If absent, it is a credential if there is only AKPublic, otherwise an issuer.
	AKTrust string `json:"akTrust,omitempty"`
	// QualifyingData is the data that the quote must contain; null for a caller that supplies none.
	QualifyingData []byte `json:"qualifyingData"`
	// Selection is what must have been quoted, no more and no less; absent for a caller that
	// leaves that to the node.
	Selection []PCRSelection `json:"selection,omitzero"`
	// Options are names of fields of statement.QuoteOptions that are set, in camel case.
	Options []string `json:"options,omitempty"`
	// Asked is the PCR, without a value, whose value the caller requests from the verified
	// quote. A PCR that the quote does not cover is a refusal.
	Asked *PCR `json:"asked,omitempty"`
}

// PCR is one register: Bank is the number of its hash (TPM_ALG_ID: 4 SHA-1, 11
// SHA-256, 12 SHA-384, 13 SHA-512), Index counts from 0.
type PCR struct {
	Bank  tpm2.TPMAlgID `json:"bank"`
	Index int           `json:"index"`
	// Value is the register's digest.
	Value []byte `json:"value,omitempty"`
}

// PCRSelection is a TPMS_PCR_SELECTION: bit i%8 of octet i/8 selects PCR i.
type PCRSelection struct {
	// Hash is the number of the bank's hash; Select is the octets, at least one.
	Hash   tpm2.TPMAlgID `json:"bank"`
	Select []byte        `json:"select"`
}

func pcrs(in []PCR) []statement.PCR {
	return each(in, func(p PCR) (statement.PCR, error) { return statement.PCR(p), nil })
}

// verified passes the quote to statement.VerifyQuote.
func (q *Quote) verified() (*statement.Quoted, *Result, error) {
	e := &statement.QuoteEvidence{Attest: q.Attest, Signature: q.Signature, PCRs: pcrs(q.PCRs), RawSignature: q.RawSignature.scheme()}
	o := statement.QuoteOptions{QualifyingData: q.QualifyingData, AK: akOf(q.AKTrust, q.AKPublic, q.AKKey)}
	o.Selection = each(q.Selection, func(s PCRSelection) (statement.PCRSelection, error) { return statement.PCRSelection(s), nil })
	for _, name := range q.Options {
		forge.Check(setOption(&o, name))
	}
	quoted, err := statement.VerifyQuote(e, o)
	if err != nil {
		return nil, nil, err
	}
	found := &Result{ClockTrusted: &quoted.ClockTrusted}
	if q.Asked != nil {
		found.Value, err = quoted.Value(q.Asked.Bank, q.Asked.Index)
	}
	return quoted, found, err
}

func (q *Quote) verify() (*Result, error) {
	_, found, err := q.verified()
	return found, err
}

// Boot is a quote, the firmware's event log sent with it, and what both are checked against:
// Secure Boot must be on.
type Boot struct {
	// Quote is verified first, as for LevelQuote.
	Quote Quote `json:"quote"`
	// EventLog is a log of the TCG PC Client Platform Firmware Profile 1.06, 10.
	EventLog []byte `json:"eventLog,omitempty"`
	// Bank is the number of the hash of the bank that decides, absent for SHA-256; PCRs are
	// the PCRs that must be covered, explained and measured into, absent for 0 to 7.
	Bank tpm2.TPMAlgID `json:"bank,omitempty"`
	PCRs []int         `json:"pcrs,omitempty"`
	// Unexplained are PCRs that the log need not explain.
	Unexplained []int `json:"unexplained,omitempty"`
}

// judge passes the quote and the log to an eventlog.BootPolicy.
func (b *Boot) judge(ctx context.Context) error {
	quoted, _, err := b.Quote.verified()
	if err != nil {
		return err
	}
	policy := &eventlog.BootPolicy{Bank: b.Bank, PCRs: b.PCRs, RequireSecureBoot: true,
		Options: eventlog.Options{Unexplained: b.Unexplained}}
	return policy.CheckQuote(ctx, &tpm.Measured{Quote: quoted, EventLog: b.EventLog})
}

// EK is an EK as a node presents it: what tpmcert.EKPresented has.
type EK struct {
	// Certificates are the EK certificate, as it is stored in NV, and those above it.
	Certificates [][]byte `json:"certificates,omitempty"`
	// PublicKey is the SubjectPublicKeyInfo of an EK without a certificate.
	PublicKey []byte `json:"publicKey,omitempty"`
}

// EKIssuer is an issuer of EK certificates: its Roots and Intermediates in DER.
type EKIssuer struct {
	Roots         [][]byte `json:"roots"`
	Intermediates [][]byte `json:"intermediates,omitempty"`
	// Profile says what its certificates look like. If absent, they need everything that the
	// TCG's EK Credential Profile requires, as in tpmcert.EKProfileTCG.
	Profile *EKProfile `json:"profile,omitempty"`
	// CRLs are its revocation lists, DER. RequireCRL refuses a certificate of the chain,
	// except the root, without a list.
	CRLs       [][]byte `json:"crls,omitempty"`
	RequireCRL bool     `json:"requireCRL,omitempty"`
}

// EKProfile is a tpmcert.EKProfile.
type EKProfile struct {
	// Name is for human readers.
	Name string `json:"name"`
	// Extensions are dotted decimals of required extensions.
	Extensions []string `json:"extensions,omitempty"`
	// RequireSpecification requires the TPM specification attribute.
	RequireSpecification bool `json:"requireSpecification,omitempty"`
	// Tolerances are the faults that are tolerated, by the names of the fields of
	// tpmcert.EKProfile and tpmcert.EKEncoding.
	Tolerances []string `json:"tolerances,omitempty"`
}

// DeniedTPM is a tpmcert.DeniedTPM.
type DeniedTPM struct {
	// Vendor is the manufacturer's name; Model is the model, absent for any.
	Vendor string `json:"vendor"`
	Model  string `json:"model,omitempty"`
	// First and Last bound the firmware version, inclusive: the major version is in the high
	// 16 bits, the minor one in the low.
	First uint32 `json:"first"`
	Last  uint32 `json:"last"`
	// Reason is for human readers.
	Reason string `json:"reason"`
}

func (p *EKProfile) profile() tpmcert.EKProfile {
	if p == nil {
		return tpmcert.EKProfileTCG()
	}
	out := tpmcert.EKProfile{Name: p.Name, RequireSpecification: p.RequireSpecification, Extensions: each(p.Extensions, oid.Parse)}
	for _, name := range p.Tolerances {
		if setOption(&out.Encoding, name) != nil {
			forge.Check(setOption(&out, name))
		}
	}
	return out
}

// eks is nil if nothing says which EKs are trusted.
func (e *Environment) eks() *tpmcert.EKVerifier {
	if len(e.EKIssuers) == 0 && len(e.AllowedEKs) == 0 {
		return nil
	}
	c := tpmcert.EKVerifierConfig{
		Allowed: each(e.AllowedEKs, func(id string) (attest.Identity, error) { return attest.Identity(id), nil }),
		Denied:  each(e.DeniedTPMs, func(d DeniedTPM) (tpmcert.DeniedTPM, error) { return tpmcert.DeniedTPM(d), nil }),
	}
	for _, i := range e.EKIssuers {
		issuer := tpmcert.EKIssuer{RequireCRL: i.RequireCRL, Roots: each(i.Roots, x509.ParseCertificate),
			Intermediates: each(i.Intermediates, x509.ParseCertificate), Profile: i.Profile.profile()}
		if i.CRLs != nil {
			issuer.CRLs = forge.Must(tpmcert.NewCRLStore(i.CRLs...))
		}
		c.Issuers = append(c.Issuers, issuer)
	}
	return forge.Must(tpmcert.NewEKVerifier(c))
}

// verify passes the EK to tpmcert.EKVerifier.Verify.
func (k *EK) verify(ctx context.Context, e *Environment) (*Result, error) {
	verifier := e.eks()
	if verifier == nil {
		return nil, &brokenVector{errors.New("an environment that trusts no EKs")}
	}
	ek, err := tpmcert.ParseEKPresented(k.Certificates, k.PublicKey)
	if err != nil {
		return nil, err
	}
	facts, err := verifier.Verify(ctx, ek, nil, e.Now, nil)
	if err != nil {
		return nil, err
	}
	return &Result{Machine: string(facts.Identity), Profile: facts.Profile, Source: string(facts.Source),
		Tolerances: append([]string{}, facts.Tolerances...)}, nil
}

// Credential is a challenge on the road of the EK certificate, and the TPM that it reaches: an
// EK whose private key is known, and an AK's Name. Acceptance means that the credential opens
// to Result.Secret.
type Credential struct {
	// Challenge is DER.
	Challenge []byte `json:"challenge"`
	// EK is the EK's private key, PKCS#8.
	EK []byte `json:"ek"`
	// AKName is the Name of the AK that the TPM has loaded.
	AKName []byte `json:"akName"`
}

// open parses the challenge and opens its credential. A secret that is not derived from the
// binding under the environment's challenge keys is also an error.
func (c *Credential) open(e *Environment) (*Result, error) {
	key := forge.Must(x509.ParsePKCS8PrivateKey(c.EK))
	challenge, err := message.ParseChallenge(c.Challenge)
	if err != nil {
		return nil, err
	}
	if challenge.Credential == nil {
		return nil, &brokenVector{errors.New("a challenge without a credential")}
	}
	secret, err := forge.OpenCredential(key, c.AKName, (*attest.Credential)(challenge.Credential))
	if err == nil && !e.gave(challenge, secret) {
		err = errors.New("the credential's secret does not follow from its binding")
	}
	return &Result{Secret: secret}, err
}
