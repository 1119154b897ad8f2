package main

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/nodeattest/nodeattest/attest/attesttest"
	"github.com/nodeattest/nodeattest/attest/tpm/tpmkey"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// TestLive reads evidence of today's attester, so that the recorded inputs cannot grow
// old unnoticed: every part of it fits.
func TestLive(t *testing.T) {
	node, err := attesttest.OpenNode(attesttest.NodeOptions{TPMKey: tpmkey.ECDSAP256})
	if errors.Is(err, tpmsim.ErrNoCGO) {
		t.Skip(err)
	} else if err != nil {
		t.Fatal(err)
	}
	defer node.Close()
	answer := must(attesttest.NewControlPlane(t, node).Evidence(context.Background(), node))(t)
	status, out, stderr := inspect(t, must(json.Marshal(answer))(t))
	_, fit, _ := strings.Cut(out, "how the parts fit\n")
	if status != 0 || strings.Count(fit, ": yes") != 9 || strings.Contains(fit, "NO") {
		t.Errorf("status %d, %s\n%s", status, stderr, fit)
	}
}
