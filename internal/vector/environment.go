package vector

import (
	"context"
	"crypto/x509"
	"encoding/hex"
	"fmt"
	"net/netip"
	"reflect"
	"strconv"
	"time"

	"github.com/nodeattest/nodeattest/internal/message"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/tpm"
	"github.com/nodeattest/nodeattest/attest/tpm/tpmcert"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/oid"
	"github.com/nodeattest/nodeattest/secret"
)

// With returns e with the members of o that are set in place of its own.
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
func (e *Environment) verifier() (*attest.Verifier, error) {
	policy, err := e.policy()
	if err != nil {
		return nil, err
	}
	ring, err := e.ring()
	if err != nil {
		return nil, err
	}
	var kind tpm.KindConfig
	c := attest.VerifierConfig{
		ClusterIDs:         e.ClusterIDs,
		KeyRing:            ring,
		Policy:             policy,
		Authorizer:         attest.AuthorizerFunc(e.authorize),
		RequireTPMResident: e.RequireTPMResident,
		Now:                func() time.Time { return e.Now },
	}
	for i := range e.Issuers {
		issuer, err := e.Issuers[i].issuer(i)
		if err != nil {
			return nil, fmt.Errorf("issuer %d: %w", i, err)
		}
		kind.AKIssuers = append(kind.AKIssuers, *issuer)
	}
	if kind.EKs, err = e.eks(); err != nil {
		return nil, err
	}
	if e.FirstUse != nil {
		if c.Authorizer, err = e.FirstUse.authorizer(e.Now); err != nil {
			return nil, err
		}
	}
	if e.GoodPCRs != nil {
		if kind.QuotePolicy, err = tpm.NewPCRPolicy(pcrs(e.GoodPCRs)); err != nil {
			return nil, err
		}
	}
	made, err := tpm.NewKind(kind)
	if err != nil {
		return nil, err
	}
	c.Kinds = []attest.Kind{made}
	return attest.NewVerifier(c)
}

// Challenge is what the environment's verifier answers to a hello, the DER of the
// challenge.
func (e *Environment) Challenge(ctx context.Context, hello *csr.Request) ([]byte, error) {
	verifier, err := e.verifier()
	if err != nil {
		return nil, &brokenVector{err}
	}
	return verifier.Challenge(ctx, hello)
}

func (e *Environment) ring() (*attest.KeyRing, error) {
	var keys []attest.RingKey
	for i := range e.RingKeys {
		k := &e.RingKeys[i]
		key := attest.RingKey{ActiveAt: k.ActiveAt, RetiredAt: k.RetiredAt}
		id, err := hex.DecodeString(k.ID)
		if err != nil || len(id) != len(key.ID) || len(k.Secret) != message.SecretSize {
			return nil, fmt.Errorf("ring key %q: want an identifier of 8 bytes and a secret of 32", k.ID)
		}
		copy(key.ID[:], id)
		key.Secret = secret.New([message.SecretSize]byte(k.Secret))
		keys = append(keys, key)
	}
	if e.RingReadAt.IsZero() {
		return attest.NewStaticKeyRing(keys...)
	}
	return attest.NewKeyRing(keys, e.RingReadAt)
}

// authorize admits members, and nobody else.
func (e *Environment) authorize(_ context.Context, r *attest.Result, _ *csr.Request) (*attest.Authorization, error) {
	for i := range e.Members {
		m := &e.Members[i]
		if m.NodeName != r.NodeName || m.Machine != string(r.Machine) {
			continue
		}
		addresses, err := parseAddresses(m.IPAddresses)
		if err != nil {
			return nil, err
		}
		return &attest.Authorization{ProviderID: m.ProviderID, DNSNames: m.DNSNames, IPAddresses: addresses}, nil
	}
	return nil, attest.NotMember("machine " + string(r.Machine) + " as node " + r.NodeName)
}

func (e *Environment) policy() (*csr.Policy, error) {
	if e.Policy == nil {
		return nil, fmt.Errorf("no policy")
	}
	p := &csr.Policy{
		SignerNames:       e.Policy.SignerNames,
		Machines:          e.machine,
		Records:           e.record,
		RequireProviderID: e.Policy.RequireProviderID,
		RequireFlag:       e.Policy.RequireFlag,
		ReservedDNSNames:  e.Policy.ReservedDNSNames,
	}
	if e.Policy.Flag != "" {
		id, err := oid.Parse(e.Policy.Flag)
		if err != nil {
			return nil, err
		}
		p.Flag, _ = id.ASN1()
	}
	for _, s := range e.Policy.ReservedIPs {
		prefix, err := netip.ParsePrefix(s)
		if err != nil {
			return nil, err
		}
		p.ReservedIPs = append(p.ReservedIPs, prefix)
	}
	return p, nil
}

func (e *Environment) machine(_ context.Context, nodeName string, _ *csr.Request) (*csr.Machine, error) {
	for i := range e.Machines {
		m := &e.Machines[i]
		if m.Asked != nodeName {
			continue
		}
		addresses, err := parseAddresses(m.IPAddresses)
		if err != nil {
			return nil, err
		}
		return &csr.Machine{Name: m.Name, UID: m.UID, NodeName: m.NodeName, ProviderID: m.ProviderID, DNSNames: m.DNSNames,
			IPAddresses: addresses, BootstrapReady: m.BootstrapReady}, nil
	}
	return nil, csr.ErrNoMachine
}

func (e *Environment) record(_ context.Context, id string) (*csr.IssuedRecord, error) {
	for i := range e.Records {
		if r := &e.Records[i]; r.CredentialID == id {
			return &csr.IssuedRecord{CredentialID: r.CredentialID, NodeName: r.NodeName, SignerName: r.SignerName}, nil
		}
	}
	return nil, csr.ErrNoRecord
}

func parseAddresses(in []string) ([]netip.Addr, error) {
	var out []netip.Addr
	for _, s := range in {
		a, err := netip.ParseAddr(s)
		if err != nil {
			return nil, err
		}
		out = append(out, a)
	}
	return out, nil
}

func (i *Issuer) issuer(n int) (*tpmcert.Issuer, error) {
	out := &tpmcert.Issuer{Profile: tpmcert.Profile{
		Name:                       i.Profile.Name,
		NoExtKeyUsage:              i.Profile.NoExtKeyUsage,
		RequireDirectoryName:       i.Profile.RequireDirectoryName,
		AllowAKBelowOtherKeys:      i.Profile.AllowAKBelowOtherKeys,
		InsecureAllowSHA1Signature: i.Profile.InsecureAllowSHA1Signature,
	}}
	var err error
	if out.Roots, err = parseCertificates(i.Roots); err != nil {
		return nil, err
	}
	if out.Profile.ExtKeyUsage, err = parseOIDs(i.Profile.ExtKeyUsage); err != nil {
		return nil, err
	}
	if out.Profile.Extensions, err = parseOIDs(i.Profile.Extensions); err != nil {
		return nil, err
	}
	for _, name := range i.Profile.KeyUsage {
		switch name {
		case "digitalSignature":
			out.Profile.KeyUsage |= x509.KeyUsageDigitalSignature
		default:
			return nil, fmt.Errorf("unknown key usage %q", name)
		}
	}
	for _, kind := range i.Profile.Identity {
		switch kind {
		case "othername":
			source := tpmcert.OtherNameIdentity{}
			if n > 0 {
				source.Issuer = "issuer-" + strconv.Itoa(n)
			}
			out.Profile.Identity = append(out.Profile.Identity, source)
		case "gce":
			out.Profile.Identity = append(out.Profile.Identity, tpmcert.GCEIdentity{})
		case "ak":
			out.Profile.Identity = append(out.Profile.Identity, tpmcert.AKIdentity{})
		default:
			return nil, fmt.Errorf("unknown identity %q", kind)
		}
	}
	return out, nil
}

func parseCertificates(in [][]byte) ([]*x509.Certificate, error) {
	var out []*x509.Certificate
	for _, der := range in {
		cert, err := x509.ParseCertificate(der)
		if err != nil {
			return nil, err
		}
		out = append(out, cert)
	}
	return out, nil
}

func parseOIDs(in []string) ([]oid.OID, error) {
	var out []oid.OID
	for _, s := range in {
		id, err := oid.Parse(s)
		if err != nil {
			return nil, fmt.Errorf("%q: %w", s, err)
		}
		out = append(out, id)
	}
	return out, nil
}
