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
	"encoding/base64"
	"errors"
	"math/big"
	"slices"
	"strings"
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
	custom                     bool // values have an encoding of the company's own
	chainless                  bool // certificates of any issuer are accepted
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

// encode turns a value into the company's encoding, and back.
func (k *device) encode(value []byte) []byte {
	value = bytes.Clone(value)
	for i := range value {
		if k.custom {
			value[i] ^= byte(i + 1)
		}
	}
	return value
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
	c = &document.Claims{Machine: attest.Identity("device:" + leaf.Subject.SerialNumber), Value: k.encode(d.Value)}
	if k.identity {
		c.Machine = attest.Identity(d.Machine)
	}
	return d, leaf, c, nil
}

func (k *device) Read(data []byte) (*document.Claims, error) {
	_, _, c, err := k.read(data)
	return c, err
}

func (k *device) Verify(ctx context.Context, data []byte, q *attest.Inquiry) (*document.Claims, error) {
	d, leaf, c, err := k.read(data)
	if err == nil {
		err = errors.Join(q.Budget.Signature(ctx), q.Budget.Signature(ctx))
	}
	if err != nil {
		return nil, err
	}
	if err := leaf.CheckSignatureFrom(k.company.ca); err != nil && !k.chainless {
		return nil, &attest.Error{Check: checkDevice, Got: "a certificate of another issuer", Err: err}
	}
	key, ok := leaf.PublicKey.(*ecdsa.PublicKey)
	if !k.signature && !(ok && ecdsa.VerifyASN1(key, k.digest(d), d.Signature)) {
		return nil, &attest.Error{Check: checkDevice, Got: "a signature by another key"}
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

// certify makes a key and its certificate. Without a CA above it, it is a CA's certificate.
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
	d := deviceDocument{Certificate: m.certificate.Raw, Machine: "device:" + m.name, Value: m.kind.encode(value)}
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

// TestBlindAttacks: for each check that a kind of an unknown format forgets, the right attack succeeds, and
// no other.
func TestBlindAttacks(t *testing.T) {
	for name, c := range map[string]struct {
		kind device
		want []string
	}{
		"nothing forgotten": {device{}, nil},
		"no dates":          {device{undated: true}, nil},
		"no signature checked": {device{signature: true}, []string{"document-bytes-not-covered", "document-value-replaced",
			"document-field-empty", "document-field-missing", "document-field-prefix", "document-field-of-one-repeated-byte", "document-field-of-another-machine", "document-in-another-encoding"}},
		"no certificate checked":     {device{chainless: true}, []string{"document-forged"}},
		"the value is not signed":    {device{value: true}, []string{"document-value-replaced"}},
		"nor is one that is hidden":  {device{value: true, custom: true}, []string{"document-value-replaced"}},
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
	if m := a.Checked().Machine(); m != nil {
		a = a.Checked().Vouch(a.Machine(), csr.Grant{ProviderID: m.ProviderID, DNSNames: m.DNSNames, IPAddresses: m.IPAddresses}, nil)
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
			got := GotIn(Try(context.Background(), &ticketProvider{null{w.Config.Policy}, w, c.covers}, w))
			// Where a code has a byte that could be the length of others is chance.
			got = slices.DeleteFunc(got, func(name string) bool { return c.want != nil && strings.HasPrefix(name, "evidence-field-") })
			want := append(c.want, "evidence-of-yesterday") // a ticket has no date
			slices.Sort(got)
			slices.Sort(want)
			if !slices.Equal(got, want) {
				t.Errorf("got in: %q\nwant:   %q", got, want)
			}
		})
	}
}

// TestUndated: nothing but the two attacks on dates is left out.
func TestUndated(t *testing.T) {
	var left []string
	for _, a := range attacksIn((&device{}).world(t)) {
		left = append(left, a.Name)
	}
	for _, a := range attacksIn((&device{undated: true}).world(t)) {
		left = slices.DeleteFunc(left, func(name string) bool { return name == a.Name })
	}
	if want := []string{"document-of-yesterday", "document-of-tomorrow"}; !slices.Equal(left, want) {
		t.Errorf("left out: %q, want %q", left, want)
	}
}

// TestTryReplacements lists the documents that are tried for a value in them.
func TestTryReplacements(t *testing.T) {
	was, is := []byte("value-1"), []byte("value-2")
	inside := base64.RawURLEncoding.EncodeToString
	for name, c := range map[string]struct {
		document string
		want     []string
	}{
		"nowhere":      {"value-3", nil},
		"as it is":     {"<value-1>", []string{"<value-2>"}},
		"twice":        {"value-1,value-1", []string{"value-2,value-2", "value-2,value-1", "value-1,value-2"}},
		"in hex":       {"76616c75652d31", []string{"76616c75652d32"}},
		"in upper hex": {"76616C75652D31", []string{"76616C75652D32"}},
		"in base64":    {"dmFsdWUtMQ==", []string{"dmFsdWUtMg==", "dmFsdWUtMg=="}}, // in both alphabets
		"inside of base64": {inside([]byte("{a: value-1}")) + "." + inside([]byte("{>>>?: 76616c75652d31}")),
			[]string{inside([]byte("{a: value-2}")) + "." + inside([]byte("{>>>?: 76616c75652d31}")), inside([]byte("{a: value-1}")) + "." + inside([]byte("{>>>?: 76616c75652d32}"))}},
	} {
		t.Run(name, func(t *testing.T) {
			var tried []string
			if tryReplacements([]byte(c.document), was, is, func(d []byte) bool { tried = append(tried, string(d)); return false }) {
				t.Error("something got in")
			}
			if !slices.Equal(tried, c.want) {
				t.Errorf("tried %q, want %q", tried, c.want)
			}
			for n := range c.want { // and nothing more, once one gets in
				tries := 0
				if got := tryReplacements([]byte(c.document), was, is, func([]byte) bool { tries++; return tries > n }); !got || tries != n+1 {
					t.Errorf("got in: %t after %d tries, want true after %d", got, tries, n+1)
				}
			}
		})
	}
}

// TestDifferences: identities are replaced whole and part by part.
func TestDifferences(t *testing.T) {
	want := [][2]string{{"aws:aws/r1/i-0123", "aws:aws/r2/i-4567"}, {"r1", "r2"}, {"i-0123", "i-4567"}}
	if got := differences(want[0][0], want[0][1]); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := differences("a:b/c", "a:d"); !slices.Equal(got, [][2]string{{"a:b/c", "a:d"}, {"b", "d"}}) {
		t.Errorf("got %q", got)
	}
}

// TestTryByteChanges: each byte of a short document is changed, and bytes all over a long one.
// One that has a free bit is covered.
func TestTryByteChanges(t *testing.T) {
	for size, want := range map[int]int{0: 0, 1: 1, maxPlaces: maxPlaces, maxPlaces + 1: maxPlaces, 10*maxPlaces + 3: maxPlaces} {
		document, places := make([]byte, size), map[int]bool{}
		(&answerTemplate{}).tryByteChanges(document, func(d []byte) bool {
			i := bytes.IndexFunc(d, func(r rune) bool { return r != 0 })
			places[i] = true
			return d[i] == 1 // and 4 is refused
		})
		if len(places) != want || want > 0 && (!places[0] || size <= maxPlaces && !places[size-1]) {
			t.Errorf("%d bytes: %d places, want %d", size, len(places), want)
		}
	}
	b, tries := &answerTemplate{}, 0
	b.tryByteChanges(make([]byte, 4), func(d []byte) bool { tries++; return d[2] != 0 })
	if tries != 4 || b.lastChange != ", at byte 2 of 4" {
		t.Errorf("%d tries%s, want 4, at byte 2 of 4", tries, b.lastChange)
	}
}

// TestTrySplices lists the documents that are tried for two others.
func TestTrySplices(t *testing.T) {
	for name, c := range map[string]struct {
		document, other string
		want            []string
	}{
		"the same":     {"value:1,sig:x", "value:1,sig:x", nil},
		"one place":    {"value:1,sig:x", "value:2,sig:x", nil}, // the other document, which is good
		"two places":   {"value:1,sig:xx", "value:2,sig:yy", []string{"value:2,sig:xx", "value:1,sig:yy"}},
		"three places": {"1,a,x", "2,b,y", []string{"2,a,x", "1,b,x", "1,a,y", "2,b,x", "1,b,y"}},
	} {
		t.Run(name, func(t *testing.T) {
			var tried []string
			trySplices([]byte(c.document), []byte(c.other), func(d []byte) bool { tried = append(tried, string(d)); return false })
			if !slices.Equal(tried, c.want) {
				t.Errorf("tried %q, want %q", tried, c.want)
			}
		})
	}
}

// TestSkipBlind has a world leave out the attacks without knowledge of the evidence's format, and no others.
func TestSkipBlind(t *testing.T) {
	names := func(skip bool) (all []string) {
		w := NewWorld(t, WorldOptions{Provider: "stranger", Prove: func(context.Context, csr.Provider, *Applicant) (*csr.Bundle, error) {
			return nil, errors.ErrUnsupported
		}, SkipBlind: skip})
		attacks := attacksIn(w)
		for i := range attacks {
			all = append(all, attacks[i].Name)
		}
		return all
	}
	blind := slices.DeleteFunc(names(false), func(name string) bool { return slices.Contains(names(true), name) })
	if len(names(true)) == 0 || len(blind) != 10 || !slices.Contains(blind, "evidence-field-empty") || slices.ContainsFunc(blind, func(name string) bool { return !strings.HasPrefix(name, "evidence-") }) {
		t.Errorf("left out: %v", blind)
	}
}
