package attesttest

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"math/big"
	"slices"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/document"
	"github.com/nodeattest/nodeattest/csr"
)

// device is a kind of evidence as a stranger would write it: a company certifies the keys of
// its machines, and a machine signs documents itself. Each field but the last two is a check
// that it forgets.
type device struct {
	signature, value, identity bool // unsigned, or read from an unsigned field
	undated                    bool // documents have no date
	chainless                  bool // certificates are by anybody
	company                    *company
}

type deviceDocument struct {
	Certificate []byte
	Signature   []byte
	Machine     string
	Time        int64
	Value       []byte
}

func (k *device) digest(d deviceDocument) []byte {
	d.Signature = nil
	if k.value {
		d.Value = nil
	}
	if k.identity {
		d.Machine = ""
	}
	der, _ := asn1.Marshal(d)
	digest := sha256.Sum256(der)
	return digest[:]
}

const checkDevice attest.Check = "device-document"

func (k *device) read(data []byte) (d deviceDocument, leaf *x509.Certificate, c *document.Claims, err error) {
	rest, err := asn1.Unmarshal(data, &d)
	if err == nil && len(rest) == 0 {
		leaf, err = x509.ParseCertificate(d.Certificate)
	}
	if leaf == nil {
		return d, nil, nil, &attest.Error{Check: checkDevice, Got: "no document", Err: err}
	}
	c = &document.Claims{Machine: attest.Identity("device:" + leaf.Subject.SerialNumber), Value: d.Value}
	if k.identity {
		c.Machine = attest.Identity(d.Machine)
	}
	return d, leaf, c, nil
}

func (k *device) Read(data []byte) (*document.Claims, error) {
	_, _, c, err := k.read(data)
	return c, err
}

func (k *device) Verify(_ context.Context, data []byte, q *attest.Inquiry) (*document.Claims, error) {
	d, leaf, c, err := k.read(data)
	if err != nil {
		return nil, err
	}
	if err := leaf.CheckSignatureFrom(k.company.ca); err != nil && !k.chainless {
		return nil, &attest.Error{Check: checkDevice, Got: "somebody's certificate", Err: err}
	}
	key, ok := leaf.PublicKey.(*ecdsa.PublicKey)
	if !k.signature && !(ok && ecdsa.VerifyASN1(key, k.digest(d), d.Signature)) {
		return nil, &attest.Error{Check: checkDevice, Got: "somebody's signature"}
	}
	if age := q.Now.Sub(time.Unix(d.Time, 0)); !k.undated && (age < 0 || age > time.Minute) {
		return nil, &attest.Error{Check: checkDevice, Got: "an old document"}
	}
	return c, nil
}

// company certifies machines.
type company struct {
	key      *ecdsa.PrivateKey
	ca       *x509.Certificate
	machines map[string]*deviceMachine
}

func newCompany(t testing.TB) *company {
	t.Helper()
	c := &company{machines: map[string]*deviceMachine{}}
	c.ca, c.key = c.certify(t, "", nil, nil)
	for _, name := range []string{MachineOne, MachineTwo, Stranger} {
		m := &deviceMachine{name: name}
		m.certificate, m.key = c.certify(t, name, c.ca, c.key)
		c.machines[name] = m
	}
	return c
}

// certify makes a key and its certificate, which is a CA's if there is none above it.
func (c *company) certify(t testing.TB, name string, above *x509.Certificate, by *ecdsa.PrivateKey) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{SerialNumber: name}, BasicConstraintsValid: true}
	if above == nil {
		template.IsCA, template.KeyUsage, above, by = true, x509.KeyUsageCertSign, template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, above, key.Public(), by)
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return certificate, key
}

// deviceMachine is a machine of a company, as a source of a kind.
type deviceMachine struct {
	name        string
	key         *ecdsa.PrivateKey
	certificate *x509.Certificate
	kind        *device
	at          time.Time
}

func (c *company) sources(k *device) func(string, time.Time) document.Source {
	return func(machine string, at time.Time) document.Source {
		m := *c.machines[machine]
		m.kind, m.at = k, at
		return &m
	}
}

func (m *deviceMachine) Machine(context.Context) (attest.Identity, error) {
	return attest.Identity("device:" + m.name), nil
}

func (m *deviceMachine) Document(_ context.Context, value []byte) (_ []byte, err error) {
	d := deviceDocument{Certificate: m.certificate.Raw, Machine: "device:" + m.name, Value: value}
	if !m.kind.undated {
		d.Time = m.at.Unix()
	}
	if d.Signature, err = m.key.Sign(rand.Reader, m.kind.digest(d), nil); err != nil {
		return nil, err
	}
	return asn1.Marshal(d)
}

// world is a world in which the kind is tried.
func (k *device) world(t *testing.T) *World {
	t.Helper()
	k.company = newCompany(t)
	kind, err := document.NewKind(document.KindConfig{Provider: "device", Identities: []attest.Grammar{{Kind: "device"}}, ValueSize: 32, Platform: k})
	if err != nil {
		t.Fatal(err)
	}
	return NewWorld(t, WorldOptions{Documents: &Documents{Kind: kind, Source: k.company.sources(k), Attacker: newCompany(t).sources(k), Undated: k.undated}})
}

// TestBlindAttacks: what a kind of a stranger's forgets is named by attacks that know nothing
// of its documents, and nothing is named that it does right.
func TestBlindAttacks(t *testing.T) {
	for name, c := range map[string]struct {
		kind device
		want []string
	}{
		"nothing forgotten":          {device{}, nil},
		"no dates":                   {device{undated: true}, nil},
		"no signature checked":       {device{signature: true}, []string{"document-bytes-not-covered", "document-value-replaced"}},
		"no certificate checked":     {device{chainless: true}, []string{"document-forged"}},
		"the value is not signed":    {device{value: true}, []string{"document-value-replaced"}},
		"the identity is not signed": {device{identity: true}, []string{"document-identity-replaced"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := c.kind.world(t)
			expectGotIn(t, realProvider(t, w.Config), w, c.want)
		})
	}
}

// ticketProvider admits whom a ticket names: the machine's name, and a code over it and the
// request.
type ticketProvider struct {
	null
	w      *World
	covers func(machine, code []byte, c csr.PKCS10) bool
}

func (p *ticketProvider) verify(ctx context.Context, r *csr.Parsed) (*csr.Attested, error) {
	a, err := p.stamp(ctx, r)
	if err != nil {
		return nil, err
	}
	b := a.Checked().Bundle()
	machine, code, found := bytes.Cut(b.Data, []byte{0})
	if b.Provider != "ticket/v1" || !found || !p.covers(machine, code, a.Checked().PKCS10()) {
		return nil, naiveRefusal("ticket")
	}
	if err := p.w.Member(a.Checked().NodeName(), string(machine)); err != nil {
		return nil, &csr.Error{Check: "ticket", Got: string(machine), Err: err}
	}
	return a, nil
}

func (p *ticketProvider) VerifyClientAttestationData(ctx context.Context, r *csr.Parsed) (*csr.Attested, error) {
	return p.verify(ctx, r)
}

func (p *ticketProvider) VerifyServingAttestationData(ctx context.Context, r *csr.Parsed) (*csr.Attested, error) {
	return p.verify(ctx, r)
}

// TestBlindAttacksOnEvidence: evidence that is no document is attacked in the same way.
func TestBlindAttacksOnEvidence(t *testing.T) {
	code := func(machine []byte, info [32]byte) []byte {
		sum := sha256.Sum256(slices.Concat([]byte("secret of the platform"), machine, info[:]))
		return sum[:]
	}
	for name, c := range map[string]struct {
		covers func(machine, got []byte, c csr.PKCS10) bool
		want   []string
	}{
		"nothing forgotten": {func(machine, got []byte, c csr.PKCS10) bool { return bytes.Equal(got, code(machine, c.InfoHash)) }, nil},
		"the name": {func(_, got []byte, c csr.PKCS10) bool {
			return slices.ContainsFunc([]string{MachineOne, MachineTwo, Stranger}, func(m string) bool { return bytes.Equal(got, code([]byte(m), c.InfoHash)) })
		}, []string{"evidence-identity-replaced"}},
		"the second half": {func(machine, got []byte, c csr.PKCS10) bool {
			return len(got) == 32 && bytes.Equal(got[:16], code(machine, c.InfoHash)[:16])
		}, []string{"evidence-bytes-not-covered", "evidence-last-byte-changed"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := NewWorld(t, WorldOptions{Provider: "ticket", Prove: func(_ context.Context, _ csr.Provider, a *Applicant) (*csr.Bundle, error) {
				info := [32]byte{}
				if r, err := csr.ParsePKCS10(a.Request); err == nil {
					info = r.InfoHash
				}
				data := slices.Concat([]byte(a.Machine), []byte{0}, code([]byte(a.Machine), info))
				return &csr.Bundle{Request: a.Request, Provider: "ticket/v1", Data: data}, nil
			}})
			expectGotIn(t, &ticketProvider{null{w.Config.Policy}, w, c.covers}, w, append(c.want, "evidence-of-yesterday")) // a ticket has no date
		})
	}
}
