package kube

import (
	"fmt"
	"strings"
	"testing"

	"github.com/nodeattest/nodeattest/attest/tpm/tpmcert"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/testkit/tpmlab"
	"github.com/nodeattest/nodeattest/test/controlplane"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// TestAzureVTPM runs the node's binary on TPMs as Azure's virtual machines have them, one of
// each hierarchy, against the controller's binary. One node sends the CAs above its certificate,
// the other's are in the controller's file.
func TestAzureVTPM(t *testing.T) {
	t.Parallel()
	program, authenticator := buildProgram(t, "node-attestation-controller"), buildProgram(t, "kubelet-authenticator")
	c := startJoinable(t)

	hierarchies := tpmlab.AzureHierarchies(t)
	var inventory strings.Builder
	inventory.WriteString("machines:\n")
	devices := make([]*tpmsim.TPM, len(hierarchies))
	for n, h := range hierarchies {
		devices[n] = tpmsim.Swtpm(t, tpmlab.AzureVM())
		machine, err := tpmcert.AKIdentity{}.Identify(h.Provision(t, devices[n]))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&inventory, "- {nodeName: azure-%d, identity: '%s'}\n", n, machine)
	}
	controlplane.Write(t, c.dir, "inventory.yaml", []byte(inventory.String()))
	roots := controlplane.Write(t, c.dir, "azure.pem", controlplane.CertificatePEM(hierarchies[0].Root))
	intermediates := controlplane.Write(t, c.dir, "azure-intermediates.pem", certificatesPEM(hierarchies[1].Intermediates))
	controller := func(profile string) *replica {
		r := c.startController(t, program, "controller-"+profile, func(config map[string]any) {
			config["tpm"] = map[string]any{"akIssuers": []any{map[string]any{"rootsFile": roots, "intermediatesFile": intermediates, "profile": profile}}}
			config["membership"] = map[string]any{"mode": "Inventory", "kind": "tpm", "road": "ak"}
		})
		r.isReady(t)
		return r
	}
	install := func(n int, name string) *nodeMachine {
		return c.install(t, authenticator, name, nil, func(config map[string]any) {
			evidence := map[string]any{"device": strings.TrimPrefix(devices[n].TCTI(), "swtpm:path="), "ak": "azure-rsa", "quote": true}
			if n == 0 {
				evidence["intermediates"] = controlplane.Write(t, c.dir, "node-intermediates.pem", certificatesPEM(hierarchies[n].Intermediates))
			}
			config["evidence"] = map[string]any{"tpm": evidence}
		})
	}

	r := controller("azure")
	for n, h := range hierarchies {
		name := fmt.Sprintf("azure-%d", n)
		t.Run(h.Name, func(t *testing.T) {
			m := install(n, name)
			c.joinsAndRenews(t, m)
			h.Provision(t, devices[n]) // as Azure renews the AK's certificate
			if stdout, stderr, err := m.run(t.Context(), "rotate"); err != nil {
				t.Fatalf("%v: %s%s", err, stdout, stderr)
			}
			if filed := c.filedBy(t, csr.NodeUserPrefix+name); filed != 4 {
				t.Errorf("%d requests as the node, want 4", filed)
			}
		})
	}
	t.Run("another machine's name", func(t *testing.T) {
		if got := install(0, "azure-1").refused(t); !strings.Contains(got, "NotAMember") {
			t.Errorf("got %s", got)
		}
	})
	r.checkLog(t)
	if status := r.stop(t); status != 0 {
		t.Errorf("status %d; the end of the log:\n%s", status, r.tail())
	}
	for profile, want := range map[string]string{"google": "CertificateExtKeyUsage", "microsoft-aik": "SubjectAltName"} {
		t.Run("by the profile "+profile, func(t *testing.T) {
			r := controller(profile)
			for n := range hierarchies {
				if got := install(n, fmt.Sprintf("azure-%d", n)).refused(t); !strings.Contains(got, want) {
					t.Errorf("got %s, want %s", got, want)
				}
			}
			r.stop(t)
		})
	}
}
