package csr_test

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/oid"
	"github.com/nodeattest/nodeattest/refusal"
)

// The inventory's machine is compared with the machine that any provider has found, wherever
// something comes of it: in [csr.Verify], a decision, a certificate and a record.
func TestInventoryHoldsEveryProvider(t *testing.T) {
	const check = csr.Check("inventory-machine")
	builtIn := func(f *requestFixture) {
		f.request.Spec.SignerName, f.target = csr.SignerKubeAPIServerClientKubelet, csr.SignerKubeAPIServerClientKubelet
	}
	insecure := func(f *requestFixture) {
		f.request.Spec.SignerName, f.target = csr.SignerClientInsecure, csr.SignerClientInsecure
		f.provider, f.data = "", nil
	}
	for name, c := range map[string]struct {
		change             func(*requestFixture)
		provider, identity string
		refused            bool
	}{
		"nothing is stated":                {nil, "", "", false},
		"its identity":                     {nil, "", goodIdentity, false},
		"its provider":                     {nil, "tpm", "", false},
		"both":                             {nil, "tpm", goodIdentity, false},
		"another identity":                 {nil, "tpm", goodIdentity + "0", true},
		"the beginning of its identity":    {nil, "", goodIdentity[:len(goodIdentity)-1], true},
		"another provider":                 {nil, "gce", goodIdentity, true},
		"built-in: chosen by the evidence": {builtIn, "tpm", goodIdentity, false},
		"built-in: another provider":       {builtIn, "gce", "", true},
		"built-in: no evidence":            {func(f *requestFixture) { builtIn(f); f.provider, f.data = "", nil }, "tpm", "", true},
		"insecure: its own":                {insecure, "insecure", "", false},
		"insecure: none is stated":         {insecure, "", "", true},
		"insecure: a machine with a TPM":   {insecure, "tpm", "", true},
		"insecure: by another identity":    {insecure, "insecure", "ek:sha256:00", true},
	} {
		t.Run(name, func(t *testing.T) {
			f := goodFixture(csr.SignerClientTPM, csr.RequesterBootstrap)
			if c.change != nil {
				c.change(f)
			}
			f.machine.Provider, f.machine.Identity = c.provider, c.identity
			a := f.mustCheck(t).Vouch(goodIdentity, csr.Grant{}, nil)
			opts := goodOptions()
			opts.SignerNames = []string{f.target}
			_, issued := newCA(t, opts).Issue(t.Context(), a)
			_, recorded := a.Record(nil)
			decided := error(nil)
			if d := a.Decision(); d.Verdict != csr.VerdictApprove {
				decided = check
				if d.Verdict != csr.VerdictDeny || d.Detail == "" {
					t.Errorf("decided: %+v", d)
				}
			}
			for what, err := range map[string]error{"issued": issued, "recorded": recorded, "decided": decided, "checked": a.Check(f.request.Parsed())} {
				if (err != nil) != c.refused || err != nil && !errors.Is(err, check) {
					t.Errorf("%s: got %v", what, err)
				}
			}
		})
	}
}

// A request that no policy has checked has no machine.
func TestCheckMachineOfNothing(t *testing.T) {
	for name, c := range map[string]*csr.Checked{"nil": nil, "zero": new(csr.Checked)} {
		if err := c.CheckMachine(goodIdentity); !errors.Is(err, csr.CheckProviderResult) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

// An authorizer may name the machine of a pool, whose UID the inventory cannot tell by the node's
// name. The inventory's own UID stands.
func TestMachineUIDThatIsVouchedFor(t *testing.T) {
	for name, c := range map[string]struct{ inventory, vouched, want string }{
		"no UID": {"", "", ""}, "the inventory's": {"uid-1", "", "uid-1"}, "of a slot": {"", "slot-7", "slot-7"},
		"the same": {"uid-1", "uid-1", "uid-1"}, "another": {"uid-1", "uid-2", "refused"}, "a longer one": {"uid-1", "uid-11", "refused"},
	} {
		t.Run(name, func(t *testing.T) {
			f := goodFixture(csr.SignerClientTPM, csr.RequesterBootstrap)
			f.machine.UID = c.inventory
			a := f.mustCheck(t).Vouch(goodIdentity, csr.Grant{MachineUID: c.vouched}, nil)
			got := "refused"
			if issued, err := newCA(t, goodOptions()).Issue(t.Context(), a); err == nil {
				got = issued.Record.MachineUID
			}
			record, err := a.Record(nil)
			if got != c.want || (err != nil) != (c.want == "refused") || err == nil && record.MachineUID != c.want {
				t.Errorf("got %q, record of %q, %v, want %q", got, record.MachineUID, err, c.want)
			}
		})
	}
}

// A provider ID that the inventory contradicts is neither approved, for a signer of Kubernetes' or of
// ours, nor recorded nor issued. "none" in an inventory is a word about the machine, and no provider ID.
func TestProviderIDThatIsVouchedFor(t *testing.T) {
	for name, c := range map[string]struct{ inventory, vouched, want string }{
		"no ID": {"", "", ""}, "the inventory's": {"test://1", "test://1", "test://1"}, "not known in the inventory": {"", "test://1", "test://1"},
		"not vouched for": {"test://1", "", ""}, "another": {"test://1", "test://2", "refused"}, "of an instance": {"aws:////i-1", "aws:///a/i-1", "aws:///a/i-1"},
		"none, ever": {"none", "", ""}, "the inventory's none": {"none", "none", ""}, "one instead of none": {"none", "test://1", "refused"},
	} {
		t.Run(name, func(t *testing.T) {
			f := goodFixture(csr.SignerClientTPM, csr.RequesterBootstrap)
			f.machine.ProviderID = c.inventory
			a := f.mustCheck(t).Vouch(goodIdentity, csr.Grant{ProviderID: c.vouched}, nil)
			got := "refused"
			if issued, err := newCA(t, goodOptions()).Issue(t.Context(), a); err == nil {
				got, _ = oid.ParseProviderID(issued.Certificate.Extensions)
			} else if !errors.Is(err, csr.CheckProviderIDMismatch) {
				t.Errorf("got %v", err)
			}
			record, err := a.Record(nil)
			if got != c.want || (err != nil) != (c.want == "refused") || err == nil && record.ProviderID != c.want || (a.Decision().Verdict == csr.VerdictDeny) != (c.want == "refused") {
				t.Errorf("got %q, record of %q, %v, %v, want %q", got, record.ProviderID, err, a.Decision(), c.want)
			}
		})
	}
}

// A name and a bootstrap token are not enough for a machine that is known by its TPM, on the CA
// of the insecure provider either.
func TestInsecureProviderHasOnlyItsOwnMachines(t *testing.T) {
	for name, c := range map[string]struct {
		machine csr.Machine
		refused bool
	}{
		"its own":               {csr.Machine{Provider: "insecure"}, false},
		"of no provider":        {csr.Machine{}, true},
		"of the TPM's":          {csr.Machine{Provider: "tpm", Identity: goodIdentity}, true},
		"with a TPM's identity": {csr.Machine{Provider: "insecure", Identity: goodIdentity}, true},
		"by an identity":        {csr.Machine{Identity: goodIdentity}, true},
	} {
		t.Run(name, func(t *testing.T) {
			f, p := insecureFixture(t)
			f.machine.Provider, f.machine.Identity = c.machine.Provider, c.machine.Identity
			f.encode(t)
			a, err := csr.Verify(t.Context(), p, f.request)
			if (err != nil) != c.refused || c.refused && (a != nil || csr.Decide(err).Verdict != csr.VerdictDeny) {
				t.Errorf("got %v, %v", a, err)
			}
		})
	}
}

// A machine of an inventory has nothing that the policy refuses in every request.
func TestCheckMachine(t *testing.T) {
	policy := &csr.Policy{ReservedDNSNames: []string{".corp.example"}, ReservedIPs: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/12")}}
	for name, c := range map[string]struct {
		change func(*csr.Machine)
		ok     bool
	}{
		"good":            {func(*csr.Machine) {}, true},
		"no provider ID":  {func(m *csr.Machine) { m.ProviderID = "" }, true},
		"none ever":       {func(m *csr.Machine) { m.ProviderID = "none" }, true},
		"a provider ID":   {func(m *csr.Machine) { m.ProviderID = "metal" }, false},
		"a space":         {func(m *csr.Machine) { m.ProviderID += " " }, false},
		"no node":         {func(m *csr.Machine) { m.NodeName = "" }, false},
		"a reserved name": {func(m *csr.Machine) { m.DNSNames = []string{"api.corp.example"} }, false},
		"a service's IP":  {func(m *csr.Machine) { m.IPAddresses = []netip.Addr{netip.MustParseAddr("10.96.0.1")} }, false},
		"a wildcard name": {func(m *csr.Machine) { m.DNSNames = []string{"*.example"} }, false},
	} {
		m := csr.Machine{NodeName: "node-1", ProviderID: "metal://1", DNSNames: []string{"node-1.example"}, IPAddresses: []netip.Addr{netip.MustParseAddr("192.0.2.1")}}
		c.change(&m)
		if err := policy.CheckMachine(&m); (err == nil) != c.ok || err != nil && !errors.Is(err, refusal.CheckConfig) {
			t.Errorf("%s: %v", name, err)
		}
		if got, want := m.KnownProviderID(), strings.TrimPrefix(m.ProviderID, "none"); got != want {
			t.Errorf("%s: known is %q", name, got)
		}
	}
}
