package kube

import (
	"encoding/hex"
	"strings"
	"testing"

	"github.com/nodeattest/nodeattest/internal/testkit/tpmlab"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// TestQuotes has the controller's binary ask for good PCRs: a machine joins and renews while it
// shows them, and is refused without a quote, and when it has booted something else.
func TestQuotes(t *testing.T) {
	t.Parallel()
	program, authenticator := buildProgram(t, "node-attestation-controller"), buildProgram(t, "kubelet-authenticator")
	c := startJoinable(t)
	device := tpmsim.Swtpm(t, tpmsim.Options{PersistEKs: true}) // nothing is measured into its PCRs: no value of a good machine
	tpmlab.ExtendPCR(t, device, 0)
	tpmlab.ExtendPCR(t, device, 7)
	good := hex.EncodeToString(tpmlab.ExtendedPCR())
	c.knowMachines(t, device, "node-1")
	r := c.startController(t, program, "controller", func(config map[string]any) {
		config["membership"].(map[string]any)["mode"] = "FirstUse"
		config["tpm"].(map[string]any)["goodPCRs"] = []any{map[string]any{"0": good, "7": good}}
	})
	r.isReady(t)

	if got := c.install(t, authenticator, "node-1", device, nil).refused(t); !strings.Contains(got, "QuoteMissing") {
		t.Errorf("without a quote: got %s, want QuoteMissing", got)
	}
	m := c.install(t, authenticator, "node-1", device, func(config map[string]any) {
		config["evidence"].(map[string]any)["tpm"].(map[string]any)["quote"] = true
	})
	c.joinsAndRenews(t, m)
	tpmlab.ExtendPCR(t, device, 7)
	if _, stderr, err := m.run(t.Context(), "rotate"); err == nil || !strings.Contains(stderr, "PcrPolicy") {
		t.Errorf("after another boot: got %v: %s, want PcrPolicy", err, stderr)
	}
	r.checkLog(t)
	r.stop(t)
}
