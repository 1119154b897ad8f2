package vector

import (
	"context"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"strconv"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/tpm"
	"github.com/nodeattest/nodeattest/attest/tpm/tpmcert"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/message"
	"github.com/nodeattest/nodeattest/oid"
	"github.com/nodeattest/nodeattest/secret"
	"github.com/nodeattest/nodeattest/test/vectors/forge"
)

// Environment is the control plane that a vector meets: its clock, configuration and
// inventory. In a Vector, each member that is set replaces the common one.
type Environment struct {
	// Now is the verifier's clock.
	Now time.Time `json:"now,omitzero"`
	// ClusterIDs are the cluster's names.
	ClusterIDs []string `json:"clusterIDs,omitzero"`
	// RingKeys are the challenge keys, RingReadAt the time at which they were read; if it is
	// absent they never become stale.
	RingKeys   []RingKey `json:"ringKeys,omitzero"`
	RingReadAt time.Time `json:"ringReadAt,omitzero"`
	// Issuers are the trusted issuers of AK certificates.
	Issuers []Issuer `json:"issuers,omitzero"`
	// EKIssuers are the trusted issuers of EK certificates, AllowedEKs the identities of EKs
	// that are trusted without a chain. If both are absent, the road of the EK certificate is
	// closed.
	EKIssuers  []EKIssuer `json:"ekIssuers,omitzero"`
	AllowedEKs []string   `json:"allowedEKs,omitzero"`
	// DeniedTPMs are refused, also with a trusted issuer.
	DeniedTPMs []DeniedTPM `json:"deniedTPMs,omitzero"`
	// GoodPCRs must be quoted by every answer, with these values; absent: no answer
	// needs a quote.
	GoodPCRs []PCR `json:"goodPCRs,omitzero"`
	// Policy is the node policy.
	Policy *Policy `json:"policy,omitzero"`
	// Machines is the inventory.
	Machines []Machine `json:"machines,omitzero"`
	// Members says which machine may be which node.
	Members []Member `json:"members,omitzero"`
	// FirstUse, if present, decides instead of Members.
	FirstUse *FirstUse `json:"firstUse,omitempty"`
	// Records are the certificates that were issued through attestation.
	Records []Record `json:"records,omitzero"`
	// RequireTPMResident refuses keys outside the TPM.
	RequireTPMResident bool `json:"requireTPMResident,omitempty"`
}

// RingKey is a challenge key.
type RingKey struct {
	// ID is the identifier, 8 bytes in hexadecimal; Secret has 32 bytes.
	ID     string `json:"id"`
	Secret []byte `json:"secret"`
	// ActiveAt and RetiredAt are as in attest.RingKey.
	ActiveAt  time.Time `json:"activeAt"`
	RetiredAt time.Time `json:"retiredAt,omitzero"`
}

// Issuer is an issuer of AK certificates: its Roots in DER, and its Profile.
type Issuer struct {
	Roots   [][]byte `json:"roots"`
	Profile Profile  `json:"profile"`
}

// Profile is a tpmcert.Profile.
type Profile struct {
	// Name is for human readers.
	Name string `json:"name"`
	// KeyUsage uses the names of RFC 5280, section 4.2.1.3.
	KeyUsage []string `json:"keyUsage"`
	// ExtKeyUsage and Extensions are dotted decimals; NoExtKeyUsage admits certificates
	// without the former.
	ExtKeyUsage   []string `json:"extKeyUsage,omitempty"`
	NoExtKeyUsage bool     `json:"noExtKeyUsage,omitempty"`
	// RequireDirectoryName requires a TCG directory name.
	RequireDirectoryName bool     `json:"requireDirectoryName,omitempty"`
	Extensions           []string `json:"extensions,omitempty"`
	// Policies are dotted decimals. RequireHardwareModule and the four that admit what makers'
	// certificates lack are as in tpmcert.Profile.
	Policies                   []string `json:"policies,omitempty"`
	InsecureAllowNoPolicies    bool     `json:"insecureAllowNoPolicies,omitempty"`
	RequireHardwareModule      bool     `json:"requireHardwareModule,omitempty"`
	InsecureAllowNoSAN         bool     `json:"insecureAllowNoSAN,omitempty"`
	InsecureAllowDirectoryName bool     `json:"insecureAllowDirectoryName,omitempty"`
	InsecureAllowCA            bool     `json:"insecureAllowCA,omitempty"`
	// Identity lists the kinds "othername", "gce", "ak", "hwserial" and "chassis".
	Identity []string `json:"identity"`
	// AllowAKBelowOtherKeys and InsecureAllowSHA1Signature are as in tpmcert.Profile.
	AllowAKBelowOtherKeys      bool `json:"allowAKBelowOtherKeys,omitempty"`
	InsecureAllowSHA1Signature bool `json:"insecureAllowSHA1Signature,omitempty"`
}

// Policy is a csr.Policy without its callbacks: SignerNames, RequireProviderID,
// RequireFlag and ReservedDNSNames are as there.
type Policy struct {
	SignerNames       []string `json:"signerNames"`
	RequireProviderID bool     `json:"requireProviderID,omitempty"`
	// Flag is dotted decimal.
	Flag        string `json:"flag,omitempty"`
	RequireFlag bool   `json:"requireFlag,omitempty"`
	// ReservedIPs are prefixes.
	ReservedIPs      []string `json:"reservedIPs,omitempty"`
	ReservedDNSNames []string `json:"reservedDNSNames,omitempty"`
}

// Machine is the inventory's machine for the node name Asked: Name, UID, NodeName,
// ProviderID, DNSNames, IPAddresses and BootstrapReady of a csr.Machine.
type Machine struct {
	Asked          string   `json:"asked"`
	Name           string   `json:"name"`
	UID            string   `json:"uid,omitempty"`
	NodeName       string   `json:"nodeName"`
	ProviderID     string   `json:"providerID,omitempty"`
	DNSNames       []string `json:"dnsNames,omitempty"`
	IPAddresses    []string `json:"ipAddresses,omitempty"`
	BootstrapReady bool     `json:"bootstrapReady"`
}

// Member says that the machine with the identity Machine may be the node NodeName, and which
// ProviderID, DNSNames and IPAddresses are then vouched for.
type Member struct {
	NodeName    string   `json:"nodeName"`
	Machine     string   `json:"machine"`
	ProviderID  string   `json:"providerID,omitempty"`
	DNSNames    []string `json:"dnsNames,omitempty"`
	IPAddresses []string `json:"ipAddresses,omitempty"`
}

// Record is a certificate that was issued: CredentialID, NodeName and SignerName of a
// csr.IssuedRecord.
type Record struct {
	CredentialID string `json:"credentialID"`
	NodeName     string `json:"nodeName"`
	SignerName   string `json:"signerName"`
}

// With returns e with the members that are set in o replacing its own.
func (e *Environment) With(o *Environment) *Environment {
	if o == nil {
		return e
	}
	out := *e
	to, from := reflect.ValueOf(&out).Elem(), reflect.ValueOf(o).Elem()
	for i := range to.NumField() {
		if !from.Field(i).IsZero() {
			to.Field(i).Set(from.Field(i))
		}
	}
	return &out
}

// verifier makes the verifier that the environment describes.
func (e *Environment) verifier() *attest.Verifier {
	kind := tpm.KindConfig{EKs: e.eks()}
	c := attest.VerifierConfig{
		KeyRing:            e.ring(),
		Policy:             e.policy(),
		Authorizer:         &listed{decide: e.authorize},
		RequireTPMResident: e.RequireTPMResident,
		Now:                func() time.Time { return e.Now },
	}
	for i := range e.Issuers {
		kind.AKIssuers = append(kind.AKIssuers, e.Issuers[i].issuer(i))
	}
	if e.FirstUse != nil {
		c.Authorizer = e.FirstUse.authorizer(e.Now, e.ClusterIDs)
	}
	if e.GoodPCRs != nil {
		kind.QuotePolicy = forge.Must(tpm.NewPCRPolicy(pcrs(e.GoodPCRs)))
	}
	c.Kinds = []attest.Kind{forge.Must(tpm.NewKind(kind))}
	return forge.Must(attest.NewVerifier(c))
}

// Challenge returns the environment's verifier's answer to a hello, the DER of the challenge.
func (e *Environment) Challenge(ctx context.Context, hello *csr.Request) ([]byte, error) {
	return e.verifier().Challenge(ctx, hello)
}

func (e *Environment) ring() *attest.KeyRing {
	keys := each(e.RingKeys, func(k RingKey) (attest.RingKey, error) {
		key := attest.RingKey{ActiveAt: k.ActiveAt, RetiredAt: k.RetiredAt}
		id, err := hex.DecodeString(k.ID)
		if err != nil || len(id) != len(key.ID) || len(k.Secret) != message.SecretSize {
			return key, fmt.Errorf("ring key %q: want an identifier of 8 bytes and a secret of 32", k.ID)
		}
		key.ID, key.Secret = [8]byte(id), secret.New([message.SecretSize]byte(k.Secret))
		return key, nil
	})
	if e.RingReadAt.IsZero() {
		return forge.Must(attest.NewStaticKeyRing(keys...))
	}
	ring := new(attest.KeyRing)
	forge.Check(ring.Refresh(keys, e.RingReadAt))
	return ring
}

// listed is an authorizer that is asked at hellos too, and never checked: a vector may be
// about a scope that an operator could not have configured.
type listed struct {
	decide attest.AuthorizerFunc
	hello  func(ctx context.Context, r *attest.Result) error // nil asks decide
}

func (m *listed) Authorize(ctx context.Context, r *attest.Result) (*attest.Authorization, error) {
	return m.decide(ctx, r)
}

func (m *listed) AuthorizeHello(ctx context.Context, r *attest.Result) error {
	if m.hello != nil {
		return m.hello(ctx, r)
	}
	_, err := m.decide(ctx, r)
	return err
}

// authorize admits members, and no other machine.
func (e *Environment) authorize(_ context.Context, r *attest.Result) (*attest.Authorization, error) {
	for _, m := range e.Members {
		if m.NodeName == r.NodeName && m.Machine == string(r.Machine) {
			a := r.Admit(attest.KnownNode(m.NodeName))
			a.ProviderID, a.DNSNames, a.IPAddresses = m.ProviderID, m.DNSNames, each(m.IPAddresses, netip.ParseAddr)
			return a, nil
		}
	}
	return nil, attest.NotMember("machine " + string(r.Machine) + " as node " + r.NodeName)
}

func (e *Environment) policy() *csr.Policy {
	if e.Policy == nil {
		forge.Check(errors.New("no policy"))
	}
	p := &csr.Policy{
		ClusterIDs:        e.ClusterIDs,
		SignerNames:       e.Policy.SignerNames,
		Machines:          e.machine,
		IssuedRecord:      e.record,
		RequireProviderID: e.Policy.RequireProviderID,
		RequireFlag:       e.Policy.RequireFlag,
		ReservedIPs:       each(e.Policy.ReservedIPs, netip.ParsePrefix),
		ReservedDNSNames:  e.Policy.ReservedDNSNames,
	}
	if e.Policy.Flag != "" {
		p.Flag, _ = forge.Must(oid.Parse(e.Policy.Flag)).ASN1()
	}
	return p
}

func (e *Environment) machine(_ context.Context, q csr.Question) (*csr.Machine, error) {
	for _, m := range e.Machines {
		if m.Asked == q.NodeName {
			return &csr.Machine{Name: m.Name, UID: m.UID, NodeName: m.NodeName, ProviderID: m.ProviderID, DNSNames: m.DNSNames,
				IPAddresses: each(m.IPAddresses, netip.ParseAddr), BootstrapReady: m.BootstrapReady}, nil
		}
	}
	return nil, csr.ErrNoMachine
}

func (e *Environment) record(_ context.Context, id string, _ *csr.Request) (*csr.IssuedRecord, error) {
	for _, r := range e.Records {
		if r.CredentialID == id {
			return &csr.IssuedRecord{CredentialID: r.CredentialID, NodeName: r.NodeName, SignerName: r.SignerName}, nil
		}
	}
	return nil, csr.ErrNoRecord
}

// issuer makes the issuer, number n of the list.
func (i *Issuer) issuer(n int) tpmcert.Issuer {
	p := tpmcert.Profile{
		Name:                       i.Profile.Name,
		ExtKeyUsage:                each(i.Profile.ExtKeyUsage, oid.Parse),
		NoExtKeyUsage:              i.Profile.NoExtKeyUsage,
		RequireDirectoryName:       i.Profile.RequireDirectoryName,
		Extensions:                 each(i.Profile.Extensions, oid.Parse),
		Policies:                   each(i.Profile.Policies, oid.Parse),
		InsecureAllowNoPolicies:    i.Profile.InsecureAllowNoPolicies,
		RequireHardwareModule:      i.Profile.RequireHardwareModule,
		InsecureAllowNoSAN:         i.Profile.InsecureAllowNoSAN,
		InsecureAllowDirectoryName: i.Profile.InsecureAllowDirectoryName,
		InsecureAllowCA:            i.Profile.InsecureAllowCA,
		AllowAKBelowOtherKeys:      i.Profile.AllowAKBelowOtherKeys,
		InsecureAllowSHA1Signature: i.Profile.InsecureAllowSHA1Signature,
	}
	for _, usage := range i.Profile.KeyUsage {
		p.KeyUsage |= named("key usage", usage, map[string]x509.KeyUsage{"digitalSignature": x509.KeyUsageDigitalSignature})
	}
	other, name := tpmcert.OtherNameIdentity{}, "issuer-"+strconv.Itoa(n)
	if n > 0 {
		other.Issuer = name
	}
	for _, kind := range i.Profile.Identity {
		p.Identity = append(p.Identity, named("identity", kind,
			map[string]tpmcert.IdentitySource{"othername": other, "gce": tpmcert.GCEIdentity{}, "ak": tpmcert.AKIdentity{},
				"hwserial": tpmcert.HardwareIdentity{Issuer: name}, "chassis": tpmcert.ChassisIdentity{Issuer: name}}))
	}
	return tpmcert.Issuer{Roots: each(i.Roots, x509.ParseCertificate), Profile: p}
}

// named is the value with that name. An unknown name is a failure.
func named[T any](what, name string, values map[string]T) T {
	v, ok := values[name]
	if !ok {
		forge.Check(fmt.Errorf("unknown %s %q", what, name))
	}
	return v
}
