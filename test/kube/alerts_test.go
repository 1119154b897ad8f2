package kube

import (
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/nodeattest/nodeattest/test/controlplane"
	"github.com/nodeattest/nodeattest/test/monitoring"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// alertsFaster is how much shorter than shipped the ranges and times of the alerts are in this test: a minute is
// 0.6 s. The scrapes are 0.5 s apart, and a certificate lasts a minute.
const alertsFaster = 100

// alertPanels are the panels of the dashboard, by the scenario that they are for; the test makes up the series of
// the programs that it does not run.
var alertPanels = map[string][]string{
	"join": {"Decisions a second", "Time of a decision", "Challenges a second", "Nodes by their certificate", "Ready, by check", "Leader", "Age of the challenge key",
		"On the nodes: least left of a certificate", "On the nodes: attempts a second"},
	"refusal":         {"Refusals a second, by reason"},
	"flood":           {"Requests that wait", "Age of the oldest request that waits", "Requesters over their rate, a second"},
	"missed renewal":  {"On the nodes: failures since the last certificate"},
	"ways around":     {"Ways around attestation"},
	"others' metrics": {"Certificates signed a second", "Left of the signer's CA", "Cluster API: records by their Machine", "External signer: calls a second", "Workload tokens: decisions a second"},
}

// alerting is a cluster that Prometheus watches.
type alerting struct {
	*cluster
	prometheus *process
	server     *monitoring.Server
	config     map[string]any
	targets    []any
	nodes      []*nodeMachine
	devices    []*tpmsim.TPM
	missing    time.Time // from when on node-2 misses its renewal
}

// TestAlerts has Prometheus, with the configuration of the page, watch the real programs through a join, a
// refusal, a flood, a missed renewal and the loss of the controller: each alert fires in its own fault, and no
// other does; each panel of the dashboard has data in its scenario; and the page has each metric with its labels. It
// runs alone: on a busy machine, two scrapes that take half a second each are enough for an alert.
func TestAlerts(t *testing.T) {
	path, err := exec.LookPath("prometheus")
	if err != nil {
		t.Skip("prometheus is not installed: apt-get install prometheus")
	}
	a := newAlerting(t, path)
	main := a.replica(t, "controller", nil)
	main.isReady(t)
	a.seen(t, `leader_election_master_status{name=~"node-attestation-controller.*"} == 1`) // before, no controller leads

	a.scenario(t, "join", func() {
		for n := range 2 {
			a.joinNode(t, n)
		}
		a.seen(t, `nodeattest_node_attempts_total{result="obtained"} > 0`, `nodeattest_decisions_total{verdict="approve"}`, `nodeattest_challenges_total{state="answered"}`)
		if _, stderr, err := a.nodes[0].run(t.Context(), "rotate"); err != nil { // a rate is that of a second value
			t.Fatal(err, stderr)
		}
		a.panels(t, "join")
	})
	a.missing = time.Now().Add(35 * time.Second)
	if err := a.devices[1].Close(); err != nil { // the machine's TPM fails
		t.Fatal(err)
	}
	a.scenario(t, "refusal", func() {
		stranger := a.startNode(t, "node-3", tpmsim.Swtpm(t, tpmsim.Options{CA: a.devices[0].CA(), PersistEKs: true}))
		a.fires(t, "NodeAttestationRefusals")
		a.panels(t, "refusal") // which takes a second refusal
		stranger.stop(t)
	}, "NodeAttestationRefusals")
	a.scenario(t, "flood", func() {
		stranger, flooding := a.client(t, a.bearer(t, otherTokenID)), sync.WaitGroup{}
		flooding.Go(func() { a.flood(t, stranger, 400, 300, 0) })
		defer flooding.Wait()
		a.panels(t, "flood") // while requests wait
		a.fires(t, "NodeAttestationFlood")
	}, "NodeAttestationFlood")
	if err := a.admin.DeleteAllOf(t.Context(), new(certificatesv1.CertificateSigningRequest)); err != nil {
		t.Fatal(err)
	}
	a.scenario(t, "ways around", func() {
		binding := a.grants(t, "impersonator", []rbacv1.PolicyRule{{Verbs: []string{"impersonate"}, APIGroups: []string{""}, Resources: []string{"users"}}},
			rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: "support"})
		second := a.replica(t, "second", nil) // which looks at once
		a.fires(t, "NodeAttestationWaysAround")
		if err := a.admin.Delete(t.Context(), binding); err != nil {
			t.Fatal(err)
		}
		a.panels(t, "ways around")
		second.kill(t)
	}, "NodeAttestationWaysAround")
	a.scenario(t, "key ring", func() {
		third := a.replica(t, "third", func(config map[string]any) { config["cluster"].(map[string]any)["keyRingSecret"] = "missing" })
		a.fires(t, "NodeAttestationKeyRing")
		third.kill(t)
	}, "NodeAttestationKeyRing")
	a.scenario(t, "missed renewal", func() {
		a.fires(t, missedRenewal...)
		a.panels(t, "missed renewal")
	}, missedRenewal...)
	a.panels(t, "others' metrics")
	a.onPage(t)
	main.kill(t)
	a.fires(t, "NodeAttestationNoLeader", "NodeAttestationNodeRenewalFails")
}

// missedRenewal are the alerts about it, of the control plane and of the node.
var missedRenewal = []string{"NodeAttestationNodeRenewalFails", "NodeAttestationRenewalMissed"}

func newAlerting(t *testing.T, path string) *alerting {
	a := &alerting{cluster: startCluster(t), targets: []any{}}
	a.signingDuration = "1m"
	a.prepare(t)
	a.applyAdmission(t)
	a.applyWall(t)
	a.startSigner(t)
	ca := newCA(t, "")
	for range 2 {
		a.devices = append(a.devices, tpmsim.Swtpm(t, tpmsim.Options{CA: ca, PersistEKs: true}))
	}
	controlplane.Write(t, a.dir, "inventory.yaml", []byte("machines:\n- nodeName: node-1\n- nodeName: node-2\n- nodeName: flood\n"))
	controlplane.Write(t, a.dir, "ek-roots.pem", controlplane.CertificatePEM(ca.Root()))
	controlplane.Write(t, a.dir, "rules.yaml", []byte(monitoring.Faster(monitoring.Read(t, "rules.yaml"), alertsFaster)))
	if err := yaml.Unmarshal([]byte(readPage(t, "monitoring.md", "yaml").take(t, "What to scrape", "yaml")), &a.config); err != nil {
		t.Fatal(err)
	}
	a.config["global"] = map[string]any{"scrape_interval": "500ms", "scrape_timeout": "500ms", "evaluation_interval": "500ms"}
	others := map[string]any{"job_name": "others", "static_configs": []any{map[string]any{"targets": []any{strings.TrimPrefix(otherPrograms(t).URL, "http://")}}}}
	a.config["scrape_configs"] = append(a.config["scrape_configs"].([]any), others)
	port := controlplane.FreePorts(t, 1)[0]
	a.server = &monitoring.Server{URL: "http://127.0.0.1:" + port}
	a.writeConfig(t)
	a.prometheus = startAs(t, "prometheus", path, a.dir, "--config.file="+filepath.Join(a.dir, "prometheus.yml"), "--storage.tsdb.path="+filepath.Join(a.dir, "tsdb"),
		"--web.listen-address=127.0.0.1:"+port)
	a.prometheus.ready(t, func() error { return controlplane.Healthy(a.server.URL + "/-/ready") })
	return a
}

// otherPrograms serves the metrics of programs that this test does not run.
func otherPrograms(t *testing.T) *httptest.Server {
	var n atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, "nodeattest_signatures_total{signer=\"s\",result=\"signed\"} %[1]d\nnodeattest_ca_not_after_seconds 9e9\nnodeattest_cluster_api_records{machine=\"there\"} 3\n"+
			"nodeattest_external_signer_calls_total{method=\"Sign\",code=\"OK\"} %[1]d\nnodeattest_token_decisions_total{protocol=\"http\",check=\"accepted\"} %[1]d\n", n.Add(1))
	}))
	t.Cleanup(s.Close)
	return s
}

// writeConfig writes the page's configuration with the targets of this test, which Prometheus reads again.
func (a *alerting) writeConfig(t *testing.T) {
	t.Helper()
	a.config["scrape_configs"].([]any)[0].(map[string]any)["static_configs"] = []any{map[string]any{"targets": a.targets}}
	text, err := yaml.Marshal(a.config)
	if err != nil {
		t.Fatal(err)
	}
	controlplane.Write(t, a.dir, "prometheus.yml", text)
	if a.prometheus != nil {
		if err := a.prometheus.cmd.Process.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
	}
}

func (a *alerting) scrape(t *testing.T, address string) {
	a.targets = append(a.targets, address)
	a.writeConfig(t)
}

// replica starts a controller that is scraped.
func (a *alerting) replica(t *testing.T, name string, change func(config map[string]any)) *replica {
	t.Helper()
	r := a.startController(t, buildProgram(t, "node-attestation-controller"), name, func(config map[string]any) {
		config["membership"].(map[string]any)["mode"] = "FirstUse"
		if change != nil {
			change(config)
		}
	})
	a.scrape(t, strings.TrimSuffix(strings.TrimPrefix(r.metrics, "http://"), "/metrics"))
	return r
}

// startNode starts a node's daemon that is scraped.
func (a *alerting) startNode(t *testing.T, name string, device *tpmsim.TPM) *process {
	t.Helper()
	address := "127.0.0.1:" + controlplane.FreePorts(t, 1)[0]
	m := a.install(t, buildProgram(t, "kubelet-authenticator"), name, device, func(config map[string]any) { config["lifetime"], config["metrics"] = "10m", address })
	a.nodes = append(a.nodes, m)
	a.scrape(t, address)
	return startAs(t, name, m.program, m.dir, "--config", m.config, "daemon")
}

// joinNode has a node join, and makes its Node, as its kubelet would.
func (a *alerting) joinNode(t *testing.T, n int) {
	t.Helper()
	name := fmt.Sprintf("node-%d", n+1)
	a.startNode(t, name, a.devices[n])
	eventually(t, func() error {
		if s := a.nodes[n].status(t); !s.Usable {
			return fmt.Errorf("%s: %w: %s", name, errNotYet, s.Certificates[0].LastError)
		}
		return nil
	})
	if err := a.admin.Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
		t.Fatal(err)
	}
}

// fires waits until exactly these alerts fire, and possibly the missed renewal's.
func (a *alerting) fires(t *testing.T, alerts ...string) {
	t.Helper()
	eventually(t, func() error {
		if got := a.firing(t, 0); !slices.Equal(a.without(got, alerts), alerts) {
			return fmt.Errorf("%w: %q fire, want %q", errNotYet, got, alerts)
		}
		return nil
	})
}

func (a *alerting) firing(t *testing.T, milliseconds int64) []string {
	t.Helper()
	return a.server.Firing(t, milliseconds)
}

// without leaves out the alerts about the missed renewal, once it is missed, unless they are wanted.
func (a *alerting) without(alerts, wanted []string) []string {
	if a.missing.IsZero() || time.Now().Before(a.missing) {
		return alerts
	}
	return slices.DeleteFunc(slices.Clone(alerts), func(alert string) bool {
		return slices.Contains(missedRenewal, alert) && !slices.Contains(wanted, alert)
	})
}

// alertsTold is the least time over which Prometheus is asked which alerts have fired: two of its evaluations.
const alertsTold = time.Second

// scenario waits until no alert fires, and runs the scenario. Meanwhile no alert but its own has fired.
func (a *alerting) scenario(t *testing.T, name string, run func(), alerts ...string) {
	t.Helper()
	a.fires(t)
	began := time.Now()
	run()
	time.Sleep(time.Until(began.Add(alertsTold)))
	if fired := a.without(a.firing(t, time.Since(began).Milliseconds()), alerts); !slices.Equal(fired, alerts) {
		t.Errorf("%s: %q fired, want %q", name, fired, alerts)
	}
	t.Logf("%s: %q, %s", name, alerts, time.Since(began).Round(100*time.Millisecond))
}

// seen waits until Prometheus has series for each expression.
func (a *alerting) seen(t *testing.T, exprs ...string) {
	t.Helper()
	for _, expr := range exprs {
		eventually(t, func() error {
			if len(a.server.Query(t, expr)) == 0 {
				return fmt.Errorf("%s: %w", expr, errNotYet)
			}
			return nil
		})
	}
}

// panels waits until each query of the panels for a scenario has a value above zero.
func (a *alerting) panels(t *testing.T, scenario string) {
	t.Helper()
	all := map[string]monitoring.Panel{}
	for _, p := range monitoring.Panels(t) {
		all[p.Title] = p
	}
	for _, title := range alertPanels[scenario] {
		if len(all[title].Targets) == 0 {
			t.Errorf("no panel %q", title)
		}
		eventually(t, func() error {
			samples := a.server.Query(t, all[title].Targets[0].Expr)
			if !slices.ContainsFunc(samples, func(s monitoring.Sample) bool { return s.Value > 0 }) {
				return fmt.Errorf("panel %q: %w: %v", title, errNotYet, samples)
			}
			return nil
		})
	}
}

// pageMetric is a metric of the page with its labels.
var pageMetric = regexp.MustCompile("(?m)^\\| `(nodeattest_[a-z0-9_]+)(?:\\{([a-z_,]+)\\})?` \\|")

// onPage compares the metrics of the programs, with their labels, with the page's.
func (a *alerting) onPage(t *testing.T) {
	t.Helper()
	page := map[string]string{}
	for _, found := range pageMetric.FindAllStringSubmatch(string(controlplane.Read(t, filepath.Join("..", "..", "docs", "monitoring.md"))), -1) {
		labels := strings.Split(found[2], ",")
		slices.Sort(labels)
		page[found[1]] = strings.Trim(strings.Join(labels, ","), ",")
	}
	seen := map[string]bool{}
	for _, series := range a.server.Series(t, `{__name__=~"nodeattest_.+",job="nodeattest"}`) {
		name := series["__name__"]
		for _, suffix := range []string{"_bucket", "_sum", "_count"} {
			if base := strings.TrimSuffix(name, suffix); page[base] != "" {
				name = base
			}
		}
		for _, label := range []string{"__name__", "job", "instance", "le"} {
			delete(series, label)
		}
		labels, ok := page[name]
		if got := strings.Join(slices.Sorted(maps.Keys(series)), ","); !ok || got != labels {
			t.Errorf("%s has the labels %q, on the page %q (%t)", name, got, labels, ok)
		}
		seen[name] = true
	}
	titles := map[string]bool{}
	for _, of := range alertPanels {
		for _, title := range of {
			titles[title] = true
		}
	}
	for _, p := range monitoring.Panels(t) {
		if !titles[p.Title] {
			t.Errorf("panel %q: no scenario", p.Title)
		}
	}
	t.Logf("%d metrics of the programs are on the page with their labels", len(seen))
}
