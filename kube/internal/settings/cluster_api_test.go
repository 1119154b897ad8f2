package settings

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/refusal"
)

// byMachines is the shipped file with Machines of Cluster API in the place of the inventory's file, as
// its comment has them.
func byMachines(t *testing.T) string {
	t.Helper()
	lines := regexp.MustCompile(`(?m)^  # (clusterAPI:|  (?:kubeconfig|namespace|cluster): \S+)$`)
	text := shipped(t)
	if n := len(lines.FindAllString(text, -1)); n != 4 {
		t.Fatalf("%d lines on clusterAPI in a comment, want 4", n)
	}
	return strings.NewReplacer("\n  file: /etc/nodeattest/inventory.yaml\n", "\n", "\n  namespace: nodeattest-system\n  keyRingSecret: challenge-keys\n", "\n").
		Replace(lines.ReplaceAllString(text, "  $1"))
}

// TestClusterAPI: the section of the shipped file's comment is one, and lease and challenge keys are those
// of its Cluster unless the file says otherwise.
func TestClusterAPI(t *testing.T) {
	good := byMachines(t)
	s := testkit.Must(Parse([]byte(good)))
	if from := s.Inventory.ClusterAPI; s.Inventory.File != "" || *from != (ClusterAPI{Kubeconfig: "/etc/nodeattest/management/kubeconfig", Namespace: "example", Cluster: "example-1"}) {
		t.Errorf("%+v, %+v", s.Inventory, from)
	}
	if c := s.Cluster; c.Namespace != "nodeattest-system" || s.Home() != "example" || c.KeyRingSecret != "example-1-challenge-keys" || c.CAFile != "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt" {
		t.Errorf("defaults: %+v", c)
	}
	if _, err := s.OpenInventory(); !errors.Is(err, refusal.CheckConfig) {
		t.Errorf("read as a file: %v", err)
	}
	const kubeconfig = "    kubeconfig: /etc/nodeattest/management/kubeconfig\n"
	for name, row := range map[string]struct {
		with           []string
		want           string // of the error; "": good
		ns, secret, ca string
	}{
		"other names":              {with: []string{"cluster:\n", "cluster:\n  namespace: keys\n  keyRingSecret: ring\n"}, ns: "keys", secret: "ring", ca: "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt"},
		"both":                     {with: []string{"  clusterAPI:\n", "  file: /inventory.yaml\n  clusterAPI:\n"}, want: "inventory.file and clusterAPI both, want one of them"},
		"neither":                  {with: []string{"  clusterAPI:\n", "  #\n", kubeconfig, "", "    namespace: example\n", "", "    cluster: example-1\n", ""}, want: "inventory.file"},
		"no namespace":             {with: []string{"namespace: example\n", "namespace: ''\n"}, want: `inventory.clusterAPI.namespace "", want the namespace of a Cluster`},
		"a namespace in capitals":  {with: []string{"namespace: example\n", "namespace: Example\n"}, want: "inventory.clusterAPI.namespace"},
		"a namespace with a dot":   {with: []string{"namespace: example\n", "namespace: a.b\n"}, want: "inventory.clusterAPI.namespace"},
		"no cluster":               {with: []string{"    cluster: example-1\n", ""}, want: `inventory.clusterAPI.cluster "", want the name of a Cluster`},
		"a cluster with a slash":   {with: []string{"cluster: example-1", "cluster: example/example-1"}, want: "inventory.clusterAPI.cluster"},
		"a short token":            {with: []string{"    cluster: example-1\n", "    cluster: example-1\n    bootstrapTokenTTL: 29s\n"}, want: "inventory.clusterAPI.bootstrapTokenTTL 29s, want 0, or 30s or more"},
		"a token's life":           {with: []string{"    cluster: example-1\n", "    cluster: example-1\n    renewPoolTokens: true\n    bootstrapTokenTTL: 30s\n"}, secret: "example-1-challenge-keys", ns: "nodeattest-system", ca: "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt"},
		"an unknown field":         {with: []string{"    cluster: example-1\n", "    cluster: example-1\n    clusterName: x\n"}, want: "clusterName"},
		"a section of nothing":     {with: []string{"  clusterAPI:\n", "  clusterAPI: {}\n", kubeconfig, "", "    namespace: example\n", "", "    cluster: example-1\n", ""}, want: "inventory.clusterAPI.namespace"},
		"the management's CA":      {with: []string{kubeconfig, ""}, want: "cluster.caFile, want the CA of the nodes' cluster"},
		"a CA, on the management":  {with: []string{kubeconfig, "", "cluster:\n", "cluster:\n  caFile: /ca.crt\n"}, ns: "nodeattest-system", secret: "example-1-challenge-keys", ca: "/ca.crt"},
		"ids, on the management":   {with: []string{kubeconfig, "", "cluster:\n", "cluster:\n  ids: [c]\n"}, ns: "nodeattest-system", secret: "example-1-challenge-keys", ca: "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt"},
		"a name too long for keys": {with: []string{"cluster: example-1", "cluster: " + strings.Repeat("a", 250)}, want: "cluster.keyRingSecret"},
	} {
		t.Run(name, func(t *testing.T) {
			text := strings.NewReplacer(row.with...).Replace(good)
			s, err := Parse([]byte(text))
			switch {
			case row.want != "":
				if !errors.Is(err, refusal.CheckConfig) && row.want != "clusterName" || err == nil || !strings.Contains(err.Error(), row.want) {
					t.Errorf("got %v, want an error with %q", err, row.want)
				}
			case err != nil:
				t.Error(err)
			case s.Cluster.Namespace != row.ns || s.Cluster.KeyRingSecret != row.secret || s.Cluster.CAFile != row.ca || s.Home() != "example":
				t.Errorf("got %+v, want %+v", s.Cluster, row)
			}
		})
	}
}

// TestFollowClusterAPI: a program by Machines tries a changed file without a file of machines.
func TestFollowClusterAPI(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "config.yaml")
	text := "apiVersion: config.nodeattest.github.io/v1alpha1\nkind: NodeAttestation\ncluster: {ids: [c]}\ntpm: {allowedEKs: ['ek:sha256:" + strings.Repeat("0a", 32) +
		"']}\ninventory: {clusterAPI: {namespace: example, cluster: example-1}}\nmembership: {mode: Inventory, road: ek, identityClass: RSA-2048}\n"
	testkit.MustDo(os.WriteFile(path, []byte(text), 0o600))
	s, err := Read(path)
	if err != nil {
		t.Fatal(err)
	}
	if changed, err := s.changed(); changed || err != nil {
		t.Errorf("as it is: %t, %v", changed, err)
	}
	testkit.MustDo(os.WriteFile(path, []byte(strings.Replace(text, "cluster: example-1", "cluster: example-2", 1)), 0o600))
	if changed, err := s.changed(); !changed || err != nil {
		t.Errorf("of another Cluster: %t, %v", changed, err)
	}
}
