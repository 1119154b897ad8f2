package kube

import (
	"crypto/sha256"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nodeattest/nodeattest/attest"
	tpmkind "github.com/nodeattest/nodeattest/attest/tpm"
	"github.com/nodeattest/nodeattest/test/controlplane"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// ekIdentity is the identity of a TPM's RSA EK.
func ekIdentity(t *testing.T, device *tpmsim.TPM) string {
	t.Helper()
	ek := tpmkind.EKRSA2048()
	prover, err := tpmkind.NewProver(device, tpmkind.AKSource{Template: tpmkind.AKTemplateECDSAP256()}, tpmkind.ProverOptions{EK: &ek})
	if err != nil {
		t.Fatal(err)
	}
	var id string
	if err := prover.Use(t.Context(), attest.StageHello, func(s attest.Session) error {
		p, err := s.Present()
		if err == nil {
			id = fmt.Sprintf("ek:sha256:%x", sha256.Sum256(p.MachineKey))
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return id
}

// TestEKsWithoutCertificates runs the binaries with virtual TPMs that have no EK certificate: an EK on
// the controller's list joins and renews; another is refused by its name, and the node says what to list.
func TestEKsWithoutCertificates(t *testing.T) {
	t.Parallel()
	program := buildProgram(t, "kubelet-authenticator")
	c := startJoinable(t)
	ca := newCA(t, "")
	controlplane.Write(t, c.dir, "ek-roots.pem", controlplane.CertificatePEM(ca.Root()))
	controlplane.Write(t, c.dir, "inventory.yaml", []byte("machines: [{nodeName: node-1}, {nodeName: node-2}]\n"))
	bare := tpmsim.Options{CA: ca, EKs: []tpmsim.Algorithm{}}
	listed, unlisted := tpmsim.Swtpm(t, bare), tpmsim.Swtpm(t, bare)
	r := c.startController(t, buildProgram(t, "node-attestation-controller"), "controller", func(config map[string]any) {
		config["tpm"] = map[string]any{"allowedEKs": []string{ekIdentity(t, listed)},
			"ekIssuers": []any{map[string]any{"rootsFile": filepath.Join(c.dir, "ek-roots.pem"), "profile": "tcg"}}}
		config["membership"].(map[string]any)["mode"] = "FirstUse"
	})
	r.isReady(t)

	c.joinsAndRenews(t, c.install(t, program, "node-1", listed, nil))
	said, id := c.install(t, program, "node-2", unlisted, nil).refused(t), ekIdentity(t, unlisted)
	for _, want := range []string{"EkUntrusted", "got " + id + " without a certificate", "once tpm.allowedEKs of its config.yaml lists " + id} {
		if !strings.Contains(said, want) {
			t.Errorf("got %s, want %q", said, want)
		}
	}
	t.Log(said)
}
