package monitoring

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// healthy are the series of programs that do their work, in the notation of promtool: a value, and the amount
// by which it grows each minute for two hours. Time begins at 0.
var healthy = map[string]string{
	`nodeattest_decisions_total{message="hello",verdict="deny",reason="AttestationChallenge"}`: "0+1x120",
	`nodeattest_decisions_total{message="answer",verdict="approve",reason="RequestAccepted"}`:  "0+1x120",
	`nodeattest_decisions_total{message="answer",verdict="deny",reason="NotAMember"}`:          "5x120", // of long ago
	`nodeattest_decisions_total{message="answer",verdict="deny",reason="CertificateChain"}`:    "5x120",
	`nodeattest_rate_limited_total{controller="c"}`:                                            "0+20x120", // a rack that starts
	`nodeattest_requests_left_out_total{controller="c"}`:                                       "0x120",
	`nodeattest_requests_waiting{controller="c"}`:                                              "1x120",
	`nodeattest_requests_waiting_since_seconds{controller="c"}`:                                "0+60x120",
	`nodeattest_signatures_total{signer="s",result="signed"}`:                                  "0+1x120",
	`nodeattest_signatures_total{signer="s",result="failed"}`:                                  "1x120",
	`nodeattest_nodes{certificate="current"}`:                                                  "10x120",
	`nodeattest_nodes{certificate="late"}`:                                                     "0x120",
	`nodeattest_nodes{certificate="ended"}`:                                                    "0x120",
	`nodeattest_node_certificate_not_after_seconds{purpose="client",instance="n"}`:             "5000x120",
	`nodeattest_node_certificate_renew_seconds{purpose="client",instance="n"}`:                 "3590x120", // just now
	`nodeattest_node_certificate_not_after_seconds{purpose="serving",instance="n"}`:            "0x120",    // none yet
	`nodeattest_node_certificate_renew_seconds{purpose="serving",instance="n"}`:                "0x120",
	`nodeattest_boots_total{secure_boot="on",pcrs="good"}`:                                     "0+1x120",
	`nodeattest_boots_total{secure_boot="off",pcrs="good"}`:                                    "2x120",
	`nodeattest_inventory_parts{state="broken"}`:                                               "0x120",
	`nodeattest_inventory_refused_entries{}`:                                                   "0x120",
	`nodeattest_insecure_not_after_seconds{node="new"}`:                                        "0x120",
	`nodeattest_insecure_not_after_seconds{node="old"}`:                                        "10000000x120",
	`nodeattest_provider_ids_differ{}`:                                                         "0x120",
	`leader_election_master_status{name="node-attestation-controller",instance="a"}`:           "1x120",
	`leader_election_master_status{name="node-attestation-controller",instance="b"}`:           "0x120",
	`nodeattest_ready{check="caches"}`:                                                         "1x120",
	`nodeattest_ready{check="key-ring"}`:                                                       "1x120",
	`nodeattest_ready{check="ways-around"}`:                                                    "1x120",
	`nodeattest_ready{check="trust"}`:                                                          "1x120",
	`nodeattest_fetch_ok{kind="gce"}`:                                                          "1x120",
	`nodeattest_root_not_after_seconds{kind="tpm"}`:                                            "10000000x120",
	`nodeattest_ca_not_after_seconds{}`:                                                        "10000000x120",
	`nodeattest_ways_around{way="Impersonation"}`:                                              "0x120",
	`nodeattest_ways_around_looked_seconds{}`:                                                  "0+60x120",
	`nodeattest_bootstrap_refused{controller="signer"}`:                                        "0x120",
	`nodeattest_bootstrap_writes_total{controller="signer",result="failed"}`:                   "1x120",
	`nodeattest_cluster_api_records{machine="there"}`:                                          "10x120",
	`nodeattest_cluster_api_records{machine="missing"}`:                                        "1x120", // to be released
	`nodeattest_cluster_api_records{machine="held"}`:                                           "0x120",
	`nodeattest_cluster_api_records{machine="replaced"}`:                                       "0x120",
	`nodeattest_cluster_api_swept_seconds{}`:                                                   "0+60x120",
	`nodeattest_cluster_api_pool_token_failures_total{}`:                                       "1x120",
	`nodeattest_external_signer_calls_total{method="Sign",code="OK"}`:                          "0+9x120",
	`nodeattest_external_signer_calls_total{method="Sign",code="Internal"}`:                    "3x120",
	`nodeattest_external_signer_reload_failures_total{}`:                                       "1x120",
	`nodeattest_external_signer_state_failures_total{}`:                                        "1x120",
}

// faults are the series that each alert is for, in the place of the healthy ones of the same name; "-" is a
// missing one.
var faults = []struct {
	alert  string
	series map[string]string
}{
	{"NodeAttestationRefusals", map[string]string{`nodeattest_decisions_total{message="answer",verdict="deny",reason="NotAMember"}`: "5x50 6x70"}},
	{"NodeAttestationRefusals", map[string]string{`nodeattest_decisions_total{message="answer",verdict="deny",reason="RegistryName"}`: "_x55 1x65"}},
	{"NodeAttestationRefusals", map[string]string{`nodeattest_decisions_total{message="serving",verdict="fail",reason="InheritedNode"}`: "0x50 0+100x70",
		`nodeattest_rate_limited_total{controller="c"}`: "0+20x120"}},
	{"NodeAttestationInvalidRequests", map[string]string{`nodeattest_decisions_total{message="answer",verdict="deny",reason="CertificateChain"}`: "5x40 5+10x80"}},
	{"NodeAttestationFlood", map[string]string{`nodeattest_rate_limited_total{controller="c"}`: "0x50 0+600x70",
		`nodeattest_decisions_total{message="answer",verdict="deny",reason="CertificateChain"}`: "5x50 5+600x70", `nodeattest_requests_waiting_since_seconds{controller="c"}`: "0+60x10 600x110"}},
	{"NodeAttestationFlood", map[string]string{`nodeattest_requests_left_out_total{controller="c"}`: "0x50 0+1x70"}},
	{"NodeAttestationRequestsWaiting", map[string]string{`nodeattest_requests_waiting_since_seconds{controller="c"}`: "0+60x30 1800x90"}},
	{"NodeAttestationSigningFails", map[string]string{`nodeattest_signatures_total{signer="s",result="failed"}`: "1x50 2x70"}},
	{"NodeAttestationSigningFails", map[string]string{`nodeattest_signatures_total{signer="new",result="failed"}`: "_x55 1x65"}},
	{"NodeAttestationRenewalMissed", map[string]string{`nodeattest_nodes{certificate="late"}`: "0x50 1x70"}},
	{"NodeAttestationRenewalMissed", map[string]string{`nodeattest_nodes{certificate="ended"}`: "0x50 1x70"}},
	{"NodeAttestationNodeRenewalFails", map[string]string{`nodeattest_node_certificate_renew_seconds{purpose="client",instance="n"}`: "2000x120"}},
	{"NodeAttestationNodeRenewalFails", map[string]string{`nodeattest_node_certificate_renew_seconds{purpose="client",instance="n"}`: "3000x120",
		`nodeattest_node_certificate_not_after_seconds{purpose="client",instance="n"}`: "3500x120"}},
	{"NodeAttestationInsecureCertificateEnds", map[string]string{`nodeattest_insecure_not_after_seconds{node="old"}`: "1209600x120"}},
	{"NodeAttestationSecureBootOff", map[string]string{`nodeattest_boots_total{secure_boot="off",pcrs="good"}`: "2x50 3x70"}},
	{"NodeAttestationSecureBootOff", map[string]string{`nodeattest_boots_total{secure_boot="unknown",pcrs="good"}`: "_x55 1x65"}},
	{"NodeAttestationInventory", map[string]string{`nodeattest_inventory_parts{state="broken"}`: "0x50 1x70"}},
	{"NodeAttestationInventory", map[string]string{`nodeattest_inventory_refused_entries{}`: "0x50 2x70"}},
	{"NodeAttestationProviderIDsDiffer", map[string]string{`nodeattest_provider_ids_differ{}`: "0x50 1x70"}},
	{"NodeAttestationNoLeader", map[string]string{`leader_election_master_status{name="node-attestation-controller",instance="a"}`: "1x50 0x70"}},
	{"NodeAttestationNoLeader", map[string]string{`leader_election_master_status{name="node-attestation-controller",instance="a"}`: "-", `leader_election_master_status{name="node-attestation-controller",instance="b"}`: "-"}},
	{"NodeAttestationNotReady", map[string]string{`nodeattest_ready{check="caches"}`: "1x50 0x70"}},
	{"NodeAttestationKeyRing", map[string]string{`nodeattest_ready{check="key-ring"}`: "1x50 0x70"}},
	{"NodeAttestationTrust", map[string]string{`nodeattest_fetch_ok{kind="gce"}`: "1x40 0x80", `nodeattest_ready{check="trust"}`: "1x40 0x80"}},
	{"NodeAttestationTrust", map[string]string{`nodeattest_root_not_after_seconds{kind="tpm"}`: "2592000x120"}},
	{"NodeAttestationCAEnds", map[string]string{`nodeattest_ca_not_after_seconds{}`: "2592000x120"}},
	{"NodeAttestationWaysAround", map[string]string{`nodeattest_ways_around{way="Impersonation"}`: "0x50 1x70", `nodeattest_ready{check="ways-around"}`: "1x50 0x70"}},
	{"NodeAttestationWaysAround", map[string]string{`nodeattest_ways_around_looked_seconds{}`: "0+60x30 1800x90"}},
	{"NodeAttestationBootstrapObjects", map[string]string{`nodeattest_bootstrap_refused{controller="signer"}`: "0x50 1x70"}},
	{"NodeAttestationBootstrapObjects", map[string]string{`nodeattest_bootstrap_writes_total{controller="signer",result="failed"}`: "1x50 1+1x70"}},
	{"NodeAttestationRecordsWithoutMachine", map[string]string{`nodeattest_cluster_api_records{machine="held"}`: "0x40 1x80"}},
	{"NodeAttestationRecordsWithoutMachine", map[string]string{`nodeattest_cluster_api_records{machine="replaced"}`: "0x40 1x80"}},
	{"NodeAttestationRecordsWithoutMachine", map[string]string{`nodeattest_cluster_api_swept_seconds{}`: "-1200x120"}},
	{"NodeAttestationPoolTokens", map[string]string{`nodeattest_cluster_api_pool_token_failures_total{}`: "1x50 1+1x70"}},
	{"NodeAttestationExternalSigner", map[string]string{`nodeattest_external_signer_calls_total{method="Sign",code="Internal"}`: "3x57 4x63"}},
	{"NodeAttestationExternalSigner", map[string]string{`nodeattest_external_signer_calls_total{method="Sign",code="Unavailable"}`: "_x57 1x63"}},
	{"NodeAttestationExternalSignerFiles", map[string]string{`nodeattest_external_signer_reload_failures_total{}`: "1x50 2x70"}},
	{"NodeAttestationExternalSignerFiles", map[string]string{`nodeattest_external_signer_state_failures_total{}`: "1x50 2x70"}},
}

// rules are the alerts of the shipped file.
func rules(t *testing.T) (all []map[string]any) {
	t.Helper()
	var file struct {
		Groups []struct{ Rules []map[string]any }
	}
	if err := yaml.Unmarshal([]byte(Read(t, "rules.yaml")), &file); err != nil {
		t.Fatal(err)
	}
	for _, g := range file.Groups {
		all = append(all, g.Rules...)
	}
	return all
}

// promtool runs Prometheus' own tool.
func promtool(t *testing.T, args ...string) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "promtool", args...).CombinedOutput()
	if err != nil {
		t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// TestRules: each alert fires for its own series, an hour after they began, and no other does.
func TestRules(t *testing.T) {
	path, err := filepath.Abs(filepath.Join(folder, "rules.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	promtool(t, "check", "rules", path)
	type sample struct {
		Labels string `json:"labels"`
		Value  int    `json:"value"`
	}
	type series struct {
		Series string `json:"series"`
		Values string `json:"values"`
	}
	type query struct {
		Expr     string   `json:"expr"`
		EvalTime string   `json:"eval_time"`
		Samples  []sample `json:"exp_samples"`
	}
	type scenario struct {
		Name     string   `json:"name"`
		Interval string   `json:"interval"`
		Input    []series `json:"input_series"`
		Queries  []query  `json:"promql_expr_test"`
	}
	var scenarios []scenario
	add := func(name string, changed map[string]string, alerts ...string) {
		s := scenario{Name: name, Interval: "1m", Queries: []query{{Expr: `max by (alertname) (ALERTS{alertstate="firing"})`, EvalTime: "60m", Samples: []sample{}}}}
		values := maps.Clone(healthy)
		maps.Copy(values, changed)
		for _, name := range slices.Sorted(maps.Keys(values)) {
			if values[name] != "-" {
				s.Input = append(s.Input, series{name, values[name]})
			}
		}
		for _, alert := range alerts {
			s.Queries[0].Samples = append(s.Queries[0].Samples, sample{fmt.Sprintf("{alertname=%q}", alert), 1})
		}
		scenarios = append(scenarios, s)
	}
	add("healthy", nil)
	fires := map[string]bool{}
	for n, f := range faults {
		fires[f.alert] = true
		add(fmt.Sprintf("%d %s", n, f.alert), f.series, f.alert)
	}
	for _, rule := range rules(t) {
		if alert := rule["alert"].(string); !fires[alert] {
			t.Errorf("%s: no fault", alert)
		}
	}
	text, err := yaml.Marshal(map[string]any{"rule_files": []string{path}, "evaluation_interval": "1m", "tests": scenarios})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "rules_test.yaml")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	promtool(t, "test", "rules", file)
}

var metricName = regexp.MustCompile(`\b(?:nodeattest|leader_election)_[a-z0-9_]+`)

// TestSeries: the series of this test have all metrics of the alerts, and nothing else.
func TestSeries(t *testing.T) {
	used, recorded := map[string]bool{}, map[string]bool{}
	for _, rule := range rules(t) {
		for _, name := range metricName.FindAllString(rule["expr"].(string), -1) {
			used[name] = true
		}
	}
	for name := range healthy {
		metric, _, _ := strings.Cut(name, "{")
		recorded[metric] = true
		if !used[metric] && metric != "nodeattest_requests_waiting" {
			t.Errorf("%s: no alert has it", metric)
		}
	}
	for name := range used {
		if !recorded[name] {
			t.Errorf("no series of %s", name)
		}
	}
}

// TestFields: each alert says how bad it is, what happened, and where the page says what to do.
func TestFields(t *testing.T) {
	for _, rule := range rules(t) {
		labels, _ := rule["labels"].(map[string]any)
		annotations, _ := rule["annotations"].(map[string]any)
		severity, summary, page := labels["severity"], annotations["summary"], annotations["runbook_url"]
		if severity != "warning" && severity != "critical" || summary == nil || page != "https://github.com/nodeattest/nodeattest/blob/main/docs/monitoring.md#alerts" {
			t.Errorf("%s: severity %v, summary %v, page %v", rule["alert"], severity, summary, page)
		}
	}
}

func TestFaster(t *testing.T) {
	for text, want := range map[string]string{
		"rate(x[5m]) > 1": "rate(x[3000ms]) > 1", "x offset 15m": "x offset 9000ms", "        for: 1m\n": "        for: 600ms\n", "time() - x > 900": "time() - x > 900", "[2h]": "[72000ms]",
	} {
		if got := Faster(text, 100); got != want {
			t.Errorf("%s: got %s, want %s", text, got, want)
		}
	}
}
