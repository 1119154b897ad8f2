package controlplane

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/membership"
	"github.com/nodeattest/nodeattest/internal/testkit"
)

// fakeRecords are the last ends of names.
type fakeRecords struct {
	membership.Lookups
	ends map[string]time.Time
}

func (f fakeRecords) Lookup(_ context.Context, name string) (*membership.Record, error) {
	end, ok := f.ends[name]
	switch {
	case name == "node-error":
		return nil, errors.New("no answer")
	case name == "node-attested":
		return nil, &attest.Error{Check: membership.CheckRegistryScope}
	case !ok:
		return nil, nil
	}
	return &membership.Record{Claim: membership.Claim{NodeName: name}, LastEnd: end}, nil
}

// TestEnds: the metrics and the log say which nodes have no evidence, and when each one's
// certificate ends.
func TestEnds(t *testing.T) {
	names := []string{"node-1", "node-2", "node-error", "node-attested"}
	end := time.Unix(2000000000, 0)
	r := prometheus.NewRegistry()
	e := testkit.Must(newEnds(func() []string { return names }, fakeRecords{ends: map[string]time.Time{"node-1": end}}, r))
	now := time.Unix(1900000000, 0)
	e.now = func() time.Time { return now }
	var said strings.Builder
	ctx := log.IntoContext(t.Context(), funcr.New(func(_, args string) { said.WriteString(args + "\n") }, funcr.Options{}))
	gauges := func() map[string]float64 {
		families := testkit.Must(r.Gather())
		got := map[string]float64{}
		for _, f := range families {
			for _, m := range f.GetMetric() {
				name := f.GetName()
				for _, l := range m.GetLabel() {
					name += " " + l.GetValue()
				}
				got[name] = m.GetGauge().GetValue()
			}
		}
		return got
	}
	e.look(ctx)
	if got := gauges(); !maps.Equal(got, map[string]float64{"nodeattest_insecure_nodes": 4, "nodeattest_insecure_not_after_seconds node-1": 2e9, "nodeattest_insecure_not_after_seconds node-2": 0,
		"nodeattest_insecure_not_after_seconds node-attested": 0}) {
		t.Errorf("metrics %v", got)
	}
	for _, want := range []string{"INSECURE: any holder of a bootstrap token", `"node"="node-1"`, "2033-05-18", "kubectl nodeattest release node-1", "no answer"} {
		if !strings.Contains(said.String(), want) {
			t.Errorf("the log does not have %s:\n%s", want, &said)
		}
	}
	if strings.Count(said.String(), "failed to read when") != 1 {
		t.Errorf("the log:\n%s", &said)
	}
	if e.used("node-2", end); gauges()["nodeattest_insecure_not_after_seconds node-2"] != 2e9 {
		t.Error("a name that has just been used has no end")
	}
	said.Reset()
	names = []string{"node-2"} // the entry of the other was taken away
	now = now.Add(24*time.Hour - 1)
	e.look(ctx)
	if got := gauges(); said.Len() != 0 || !maps.Equal(got, map[string]float64{"nodeattest_insecure_nodes": 1, "nodeattest_insecure_not_after_seconds node-2": 0}) {
		t.Errorf("then %v, and said %s", got, &said)
	}
	now = now.Add(1)
	if e.look(ctx); !strings.Contains(said.String(), "INSECURE") {
		t.Error("after a day it does not say so again")
	}
}

// TestInsecureCommandLine: the mode is off by default, and takes both the flag and the section.
func TestInsecureCommandLine(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config.yaml")
	config := "apiVersion: config.nodeattest.github.io/v1alpha1\nkind: NodeAttestation\ncluster: {ids: [c], caFile: none.crt}\n" +
		"tpm: {allowedEKs: ['ek:sha256:00']}\ninventory: {file: none.yaml}\nmembership: {mode: Inventory, road: ek}\n"
	for name, row := range map[string]struct {
		program       func(args []string, stderr *bytes.Buffer) int
		args, section string
		status        int
		want          string
	}{
		"the flag, without the section": {func(a []string, b *bytes.Buffer) int { return Signer(a, b) }, "--insecure", "", 1, "no insecureSigner"},
		"the section, without the flag": {func(a []string, b *bytes.Buffer) int { return Signer(a, b) }, "--debug", "insecureSigner: {certificateFile: a, keyFile: b}\n", 1, "there is nothing to sign"},
		"both":                          {func(a []string, b *bytes.Buffer) int { return Signer(a, b) }, "--insecure", "insecureSigner: {certificateFile: a, keyFile: b}\n", 1, "insecureSigner: open a"},
		"the controller":                {func(a []string, b *bytes.Buffer) int { return Controller(a, b) }, "--insecure", "", 2, "flag provided but not defined: -insecure"},
	} {
		t.Run(name, func(t *testing.T) {
			testkit.MustDo(os.WriteFile(path, []byte(config+row.section), 0o600))
			var said bytes.Buffer
			if status := row.program([]string{row.args, "--config", path}, &said); status != row.status || !strings.Contains(said.String(), row.want) {
				t.Errorf("status %d, want %d and %q:\n%s", status, row.status, row.want, &said)
			}
		})
	}
}
