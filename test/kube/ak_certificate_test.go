package kube

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/google/go-tpm/tpm2"
	"golang.org/x/crypto/cryptobyte"
	cbasn1 "golang.org/x/crypto/cryptobyte/asn1"

	"github.com/nodeattest/nodeattest/attest"
	tpmkind "github.com/nodeattest/nodeattest/attest/tpm"
	"github.com/nodeattest/nodeattest/attest/tpm/tpmcert"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/oid"
	"github.com/nodeattest/nodeattest/test/controlplane"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// An operator's CA certifies the keys at these indexes, as the document of 2018 has it.
const (
	akCertificateAt tpm2.TPMHandle = 0x01800a00
	akTemplateAt    tpm2.TPMHandle = 0x01800a01
	akNonceAt       tpm2.TPMHandle = 0x01800a02
)

// asset is a name of a machine in an operator's books.
func asset(t *testing.T, name string) *tpmsim.OtherName {
	t.Helper()
	b := cryptobyte.NewBuilder(nil)
	b.AddASN1(cbasn1.UTF8String, func(b *cryptobyte.Builder) { b.AddBytes([]byte(name)) })
	return &tpmsim.OtherName{Type: oid.PermanentIdentifier, Value: b.BytesOrPanic()}
}

// A certifiedMachine is a TPM with an AK that a CA has certified.
type certifiedMachine struct {
	device *tpmsim.TPM
	ak     any // as the node's file has it
	from   tpmcert.IdentitySource
	leaf   tpmsim.Algorithm
	// password is where the program keeps the endorsement hierarchy's; "" for none.
	password string
}

// operators is a machine whose key an operator's CA has certified under a name.
func operators(t *testing.T, ca *tpmsim.CA, issuer, name string) *certifiedMachine {
	t.Helper()
	device := tpmsim.Swtpm(t, tpmsim.Options{CA: ca, EKs: []tpmsim.Algorithm{}, OtherName: asset(t, name), AKs: []tpmsim.AK{
		{Algorithm: tpmsim.P256, TemplateIndex: akTemplateAt, NonceIndex: akNonceAt, CertificateIndex: akCertificateAt}}})
	index := func(i tpm2.TPMHandle) string { return fmt.Sprintf("0x%08x", uint32(i)) }
	return &certifiedMachine{device, map[string]any{"templateIndex": index(akTemplateAt), "nonceIndex": index(akNonceAt), "certificateIndex": index(akCertificateAt)},
		tpmcert.OtherNameIdentity{Issuer: issuer}, tpmsim.P256, ""}
}

// machine is the identity that the certificate gives.
func (m *certifiedMachine) machine(t *testing.T) attest.Identity {
	t.Helper()
	id, err := m.from.Identify(m.device.AKCertificate(m.leaf))
	if err != nil || id == "" {
		t.Fatalf("got identity %q, %v", id, err)
	}
	return id
}

// installCertified installs the authenticator on such a machine, as the node of a name.
func (c *cluster) installCertified(t *testing.T, program, name string, m *certifiedMachine) *nodeMachine {
	t.Helper()
	return c.install(t, program, name, nil, func(config map[string]any) {
		config["evidence"] = map[string]any{"tpm": map[string]any{"device": strings.TrimPrefix(m.device.TCTI(), "swtpm:path="), "ak": m.ak}}
		if m.password != "" {
			managed(m.password)(config)
		}
	})
}

// TestAKCertificates runs the node's binary with each AK that has a certificate, against the
// controller's binary: AKs with a name in the node's file, and AKs of two operators' CAs,
// whose certificates are where the operators say, and give machines the same names.
func TestAKCertificates(t *testing.T) {
	t.Parallel()
	program, authenticator := buildProgram(t, "node-attestation-controller"), buildProgram(t, "kubelet-authenticator")
	c := startJoinable(t)

	cas := map[string]*tpmsim.CA{}
	for _, name := range []string{"a", "b", "google", "acme"} {
		ca := newCA(t, name)
		cas[name] = ca
	}
	google := func(n uint64, algorithm tpmsim.Algorithm, ak string) *certifiedMachine {
		instance := vm("example-project", n)
		return &certifiedMachine{tpmsim.Swtpm(t, tpmsim.Options{CA: cas["google"], Instance: &instance, AKs: []tpmsim.AK{{Algorithm: algorithm}}}), ak, tpmcert.GCEIdentity{}, algorithm, ""}
	}
	iak := tpmkind.IAKTemplates(controlplane.NewKey(t).Public())[0]
	machines := map[string]*certifiedMachine{
		"gce-rsa": google(1, tpmsim.RSA2048, "gce-rsa"),
		"gce-ecc": google(2, tpmsim.P256, "gce-ecc"),
		"oem": {tpmsim.Swtpm(t, tpmsim.Options{CA: cas["acme"], Device: tpmsim.DefaultDevice(), AKs: []tpmsim.AK{{Algorithm: tpmsim.P256, Template: iak, CertificateIndex: 0x01c90100, Chain: true}}}),
			"oem", tpmcert.HardwareIdentity{Issuer: "acme"}, tpmsim.P256, ""},
		"own-a": operators(t, cas["a"], "a", "rack-7"),
		"own-b": operators(t, cas["b"], "b", "rack-7"),
	}
	var inventory strings.Builder
	inventory.WriteString("machines:\n")
	for name, m := range machines {
		fmt.Fprintf(&inventory, "- {nodeName: %s, identity: '%s'}\n", name, m.machine(t))
	}
	controlplane.Write(t, c.dir, "inventory.yaml", []byte(inventory.String()))
	issuer := func(name, profile string, more map[string]any) map[string]any {
		entry := map[string]any{"profile": profile, "rootsFile": controlplane.Write(t, c.dir, name+".pem", controlplane.CertificatePEM(cas[name].Root())),
			"intermediatesFile": controlplane.Write(t, c.dir, name+"-intermediates.pem", controlplane.CertificatePEM(cas[name].AKIntermediate()))}
		maps.Copy(entry, more)
		return entry
	}
	own := func(name string) map[string]any {
		return issuer(name, "tcg", map[string]any{"othername": map[string]any{"issuer": name, "types": []string{oid.PermanentIdentifier.String()}}})
	}
	controller := func(name string, issuers ...any) *replica {
		r := c.startController(t, program, name, func(config map[string]any) {
			config["tpm"] = map[string]any{"akIssuers": issuers}
			config["membership"] = map[string]any{"mode": "Inventory", "kind": "tpm", "road": "ak"}
		})
		r.isReady(t)
		return r
	}

	others := []any{issuer("google", "google", map[string]any{"projects": []string{"example-project"}}), issuer("acme", "oem-hwserial", map[string]any{"maker": "acme"})}
	r := controller("controller", append(others, own("a"), own("b"))...)
	nodes := map[string]*nodeMachine{}
	for name, m := range machines {
		nodes[name] = c.installCertified(t, authenticator, name, m)
		t.Run(name, func(t *testing.T) { c.joinsAndRenews(t, nodes[name]) })
	}
	for name, as := range map[string]string{"own-a": "own-b", "own-b": "own-a", "gce-rsa": "gce-ecc", "oem": "own-a"} {
		t.Run(name+" as "+as, func(t *testing.T) {
			if got := c.installCertified(t, authenticator, as, machines[name]).refused(t); !strings.Contains(got, "NotAMember") {
				t.Errorf("got %s, want NotAMember", got)
			}
		})
	}
	t.Run("an operator's machine of another CA", func(t *testing.T) {
		stranger := newCA(t, "a")
		if got := c.installCertified(t, authenticator, "own-a", operators(t, stranger, "a", "rack-7")).refused(t); !strings.Contains(got, "CertificateChain") {
			t.Errorf("got %s, want CertificateChain", got)
		}
	})
	r.checkLog(t)
	if status := r.stop(t); status != 0 {
		t.Errorf("status %d; the end of the log:\n%s", status, r.tail())
	}

	t.Run("a CA that is trusted no more", func(t *testing.T) {
		r := controller("without-a", append(others, own("b"))...)
		for name, want := range map[string]string{"own-a": "CertificateChain", "own-b": ""} {
			_, stderr, err := nodes[name].run(t.Context(), "rotate")
			if (err == nil) != (want == "") || !strings.Contains(stderr, want) {
				t.Errorf("%s: got %v: %s, want %q", name, err, stderr, want)
			}
		}
		if filed := c.filedBy(t, csr.NodeUserPrefix+"own-b"); filed != 4 {
			t.Errorf("%d requests as the node, want 4", filed)
		}
		r.stop(t)
	})
	c.testContradictedProviderIDs(t, program, authenticator, cas["google"], others[0].(map[string]any))
}
