package attesttest_test

import (
	"bytes"
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/attest/attesttest"
	"github.com/nodeattest/nodeattest/csr"
)

// badge is the evidence of a stranger's provider: a MAC of the machine's key over its name, the request and
// the time.
type badge struct {
	Machine     string
	RequestHash []byte
	Time        int64
	Mac         []byte
}

func (b badge) mac(machine string) []byte {
	b.Mac = nil
	data, _ := json.Marshal(b)
	code := hmac.New(sha256.New, []byte("key of "+machine))
	code.Write(data)
	return code.Sum(nil)
}

// weakness replaces parts of a badgeProvider by weaker ones; the zero value replaces nothing.
type weakness struct {
	mac     func(got []byte, b badge) bool
	check   func(r *csr.Parsed) error // in front of everything else
	read    func(data []byte) (badge, error)
	request bool // is not compared
	undated bool
	machine func(b badge, r *csr.Request) string // for membership
	member  func(error) error
	grant   func(*csr.Checked) string
	serving func() (*csr.Attested, error)
}

type badgeProvider struct {
	weakness
	world *attesttest.World
}

func badgeRefusal(got string) error {
	return &csr.Error{Check: "badge", Got: got, Want: "the badge of a machine"}
}

func strictMAC(got []byte, b badge) bool { return hmac.Equal(got, b.mac(b.Machine)) }

func strictBadge(data []byte) (b badge, err error) {
	if b, err = looseBadge(data); err == nil {
		if again, _ := json.Marshal(b); !bytes.Equal(again, data) {
			return b, badgeRefusal("another encoding")
		}
	}
	return b, err
}

func looseBadge(data []byte) (b badge, err error) {
	if json.Unmarshal(data, &b) != nil {
		return b, badgeRefusal("no JSON")
	}
	return b, nil
}

func (p *badgeProvider) verify(ctx context.Context, r *csr.Parsed) (*csr.Attested, error) {
	if p.check != nil {
		if err := p.check(r); err != nil {
			return nil, err
		}
	}
	checked, err := p.world.Config.Policy.Check(ctx, r)
	if err != nil {
		return nil, p.refused(err)
	}
	bundle, read := checked.Bundle(), p.read
	if bundle.Provider != "badge/v1" {
		return nil, badgeRefusal(bundle.Provider)
	}
	if read == nil {
		read = strictBadge
	}
	b, err := read(bundle.Data)
	if err != nil {
		return nil, err
	}
	mac, hash, age := p.mac, checked.PKCS10().InfoHash, p.world.Now().Sub(time.Unix(b.Time, 0))
	if mac == nil {
		mac = strictMAC
	}
	switch {
	case !mac(b.Mac, b):
		return nil, badgeRefusal("another MAC")
	case !p.request && !bytes.Equal(b.RequestHash, hash[:]):
		return nil, badgeRefusal("another request")
	case !p.undated && (age < 0 || age > 15*time.Minute):
		return nil, badgeRefusal("an old badge")
	}
	machine := b.Machine
	if p.machine != nil {
		machine = p.machine(b, r.Request())
	}
	if err := p.refused(p.world.Member(checked.NodeName(), machine)); err != nil {
		return nil, err
	}
	m := checked.Machine()
	grant := csr.Grant{ProviderID: m.ProviderID, DNSNames: m.DNSNames, IPAddresses: m.IPAddresses}
	if p.grant != nil {
		grant.ProviderID = p.grant(checked)
	}
	return checked.Vouch("badge:"+machine, grant, nil), nil
}

func (p *badgeProvider) refused(err error) error {
	switch {
	case p.member != nil:
		return p.member(err)
	case errors.Is(err, csr.ErrNoMachine):
		return badgeRefusal("no member")
	}
	return err
}

func (p *badgeProvider) VerifyClientAttestationData(ctx context.Context, r *csr.Parsed) (*csr.Attested, error) {
	return p.verify(ctx, r)
}

func (p *badgeProvider) VerifyServingAttestationData(ctx context.Context, r *csr.Parsed) (*csr.Attested, error) {
	if p.serving != nil {
		return p.serving()
	}
	return p.verify(ctx, r)
}

func (p *badgeProvider) MachineName(_ context.Context, a *csr.Attested) (string, error) {
	return a.InventoryName()
}

// badgeWorld is the world of a stranger's provider.
func badgeWorld(t testing.TB, o attesttest.WorldOptions) *attesttest.World {
	o.Provider = "badge"
	if o.Prove == nil {
		o.Prove = proveBadge
	}
	return attesttest.NewWorld(t, o)
}

// proveBadge makes the badge of an honest machine.
func proveBadge(_ context.Context, _ csr.Provider, a *attesttest.Applicant) (*csr.Bundle, error) {
	parsed, err := csr.ParsePKCS10(a.Request)
	if err != nil {
		return nil, err
	}
	b := badge{Machine: a.Machine, RequestHash: parsed.InfoHash[:], Time: a.Object.Metadata.CreationTimestamp.Unix()}
	b.Mac = b.mac(a.Machine)
	data, err := json.Marshal(b)
	return &csr.Bundle{Request: a.Request, Provider: "badge/v1", Data: data}, err
}

// TestProveThatEndsEarly: where a provider challenges, Prove ends with the refusal of the hello. That is a
// right outcome for another machine, and none for evidence that machine-1 could not have either.
func TestProveThatEndsEarly(t *testing.T) {
	refused := &csr.Error{Check: "hello-check", Got: "a hello", Want: "another"}
	var w *attesttest.World
	var start time.Time
	for name, c := range map[string]struct {
		err  error
		when func(a *attesttest.Applicant) bool
		want string
	}{
		"a stranger's hello is refused": {refused, func(a *attesttest.Applicant) bool { return a.Machine == attesttest.Stranger }, ""},
		"every hello of the next day":   {refused, func(*attesttest.Applicant) bool { return w.Now().After(start) }, "stranger"},
		"and that is no refusal":        {errors.New("no platform"), func(a *attesttest.Applicant) bool { return a.Machine == attesttest.Stranger }, "stranger"},
		"an honest machine's hello":     {refused, func(a *attesttest.Applicant) bool { return a.Machine == attesttest.MachineTwo }, "honest-second-machine"},
	} {
		t.Run(name, func(t *testing.T) {
			w = badgeWorld(t, attesttest.WorldOptions{Prove: func(ctx context.Context, p csr.Provider, a *attesttest.Applicant) (*csr.Bundle, error) {
				if c.when(a) {
					return nil, c.err
				}
				return proveBadge(ctx, p, a)
			}})
			start = w.Now()
			said(t, attesttest.Try(t.Context(), &badgeProvider{world: w}, w), c.want)
		})
	}
}

// TestStrangersProviders prints the runner's report on a stranger's provider, and holds that it names
// each weakness by an attack on it.
func TestStrangersProviders(t *testing.T) {
	noServing := func() (*csr.Attested, error) { return nil, badgeRefusal("a request for serving") }
	for _, c := range []struct {
		name string
		weakness
		options attesttest.WorldOptions
		want    string // one of the attacks that are reported; "" for none
	}{
		{name: "as it should be"},
		{name: "an empty MAC is taken", weakness: weakness{mac: func(got []byte, b badge) bool { return len(got) == 0 || strictMAC(got, b) }}, want: "evidence-field-empty"},
		{name: "no MAC is taken", weakness: weakness{mac: func(got []byte, b badge) bool { return got == nil || strictMAC(got, b) }}, want: "evidence-field-missing"},
		{name: "a MAC is compared by its own length", weakness: weakness{mac: func(got []byte, b badge) bool { return len(got) > 0 && bytes.HasPrefix(b.mac(b.Machine), got) }}, want: "evidence-field-prefix"},
		{name: "a MAC of zeros is taken", weakness: weakness{mac: func(got []byte, b badge) bool { return bytes.Equal(got, make([]byte, 32)) || strictMAC(got, b) }}, want: "evidence-field-of-one-repeated-byte"},
		{name: "any machine's MAC is taken", weakness: weakness{mac: func(got []byte, b badge) bool {
			of := func(machine string) bool { b.Machine = machine; return hmac.Equal(got, b.mac(machine)) }
			return of(attesttest.MachineOne) || of(attesttest.MachineTwo) || of(attesttest.Stranger)
		}}, want: "evidence-field-of-another-machine"},
		{name: "a short MAC panics", weakness: weakness{mac: func(got []byte, b badge) bool { return got[31] == b.mac(b.Machine)[31] && strictMAC(got, b) }}, want: "evidence-field-empty"},
		{name: "the MAC is not compared", weakness: weakness{mac: func([]byte, badge) bool { return true }}, want: "evidence-identity-replaced"},
		{name: "the request is not compared", weakness: weakness{request: true}, want: "evidence-of-another-key"},
		{name: "no date", weakness: weakness{undated: true}, want: "evidence-of-yesterday"},
		{name: "any JSON of the same contents", weakness: weakness{read: looseBadge}, want: "evidence-in-another-encoding"},
		{name: "empty evidence is machine-1's", weakness: weakness{mac: func(got []byte, b badge) bool { return b.Machine == "" || strictMAC(got, b) },
			read: func(data []byte) (b badge, err error) {
				if err = json.Unmarshal(bytes.TrimSpace(data), &b); err != nil && !bytes.HasPrefix(data, []byte("{")) {
					return badge{}, nil
				}
				return strictBadge(data)
			}, request: true, undated: true, machine: func(b badge, _ *csr.Request) string { return cmp.Or(b.Machine, attesttest.MachineOne) }}, want: "evidence-of-one-repeated-byte"},
		{name: "the machine is the node's", weakness: weakness{machine: func(_ badge, r *csr.Request) string { return attesttest.MachineOne }}, want: "stranger"},
		{name: "the machine is an annotation", weakness: weakness{machine: func(b badge, r *csr.Request) string {
			return cmp.Or(r.Metadata.Annotations["cluster-x-k8s-io/tpm-endorsement-key"], b.Machine)
		}}, want: "stranger-with-annotation"},
		{name: "every machine is a member", weakness: weakness{member: func(err error) error {
			if errors.Is(err, csr.ErrNoMachine) {
				return nil
			}
			return err
		}, check: knownNodes}, want: "machine-of-another-node"},
		{name: "a claimed provider ID is granted", weakness: weakness{grant: func(c *csr.Checked) string { return c.PKCS10().ProviderID }}, want: "provider-id-claimed"},
		{name: "an inventory that is down refuses", weakness: weakness{member: func(err error) error {
			if err != nil {
				return badgeRefusal("no member")
			}
			return nil
		}}, want: "inventory-down"},
		{name: "refusals that are no refusals", weakness: weakness{mac: nil, member: func(err error) error {
			if err != nil {
				return errors.New("no")
			}
			return nil
		}}, want: "stranger"},
		{name: "the request is changed", weakness: weakness{check: func(r *csr.Parsed) error { r.Request().Metadata.Labels = map[string]string{"seen": "yes"}; return nil }}, want: "honest-client"},
		{name: "client certificates alone, unsaid", weakness: weakness{serving: noServing}, want: "honest-serving"},
		{name: "client certificates alone, said", weakness: weakness{serving: noServing}, options: attesttest.WorldOptions{ClientOnly: true}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := badgeWorld(t, c.options)
			said(t, attesttest.Try(t.Context(), &badgeProvider{c.weakness, w}, w), c.want)
		})
	}
}

// knownNodes refuses other nodes than the two.
func knownNodes(r *csr.Parsed) error {
	b, err := r.Bundle()
	if err != nil {
		return err
	}
	if p, err := csr.ParsePKCS10(b.Request); err != nil || !strings.HasSuffix(p.CSR.Subject.CommonName, ":node-1") && !strings.HasSuffix(p.CSR.Subject.CommonName, ":node-2") {
		return badgeRefusal("another node")
	}
	return nil
}

// said prints the attacks that the runner reports, and wants one of them, or none.
func said(t *testing.T, outcomes []attesttest.Outcome, want string) {
	t.Helper()
	got := attesttest.GotIn(outcomes)
	for _, o := range outcomes {
		if o.Fault != "" && (o.Name == want || want == "") {
			t.Logf("%s → %s: %s (and %d others)", t.Name(), o.Name, o.Fault, len(got)-1)
		}
	}
	if want == "" && len(got) > 0 || want != "" && !slices.Contains(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
