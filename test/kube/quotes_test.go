package kube

import (
	"strings"
	"testing"

	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/tpmsim"
)

// TestQuotes has the controller's binary ask for good PCRs: a machine joins and renews while it
// shows them, and is refused without a quote, and when it has booted something else.
func TestQuotes(t *testing.T) {
	t.Parallel()
	program, authenticator := buildProgram(t, "node-attestation-controller"), buildProgram(t, "kubelet-authenticator")
	c := startCluster(t)
	c.prepare(t)
	c.startSigner(t)
	device := tpmsim.Swtpm(t, tpmsim.Options{PersistEKs: true}) // nothing was measured into its PCRs
	c.knowMachines(t, device, "node-1")
	r := c.startController(t, program, "controller", func(config map[string]any) {
		config["membership"].(map[string]any)["mode"] = "FirstUse"
		config["tpm"].(map[string]any)["goodPCRs"] = []any{map[string]any{"0": strings.Repeat("00", 32), "7": strings.Repeat("00", 32)}}
	})
	r.isReady(t)

	if got := c.install(t, authenticator, "node-1", device, nil).refused(t); !strings.Contains(got, "QuoteMissing") {
		t.Errorf("without a quote: got %s, want QuoteMissing", got)
	}
	m := c.install(t, authenticator, "node-1", device, func(config map[string]any) {
		config["evidence"].(map[string]any)["tpm"].(map[string]any)["quote"] = true
	})
	c.joinsAndRenews(t, m)
	extend := tpm2.PCRExtend{PCRHandle: tpm2.AuthHandle{Handle: 7, Auth: tpm2.PasswordAuth(nil)},
		Digests: tpm2.TPMLDigestValues{Digests: []tpm2.TPMTHA{{HashAlg: tpm2.TPMAlgSHA256, Digest: make([]byte, 32)}}}}
	if _, err := extend.Execute(device); err != nil {
		t.Fatal(err)
	}
	if _, stderr, err := m.run(t.Context(), "rotate"); err == nil || !strings.Contains(stderr, "PcrPolicy") {
		t.Errorf("after another boot: got %v: %s, want PcrPolicy", err, stderr)
	}
	r.checkLog(t)
	r.stop(t)
}
