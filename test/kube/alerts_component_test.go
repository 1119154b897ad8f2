package kube

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"sigs.k8s.io/yaml"

	"github.com/nodeattest/nodeattest/test/controlplane"
	"github.com/nodeattest/nodeattest/test/monitoring"
)

// TestMonitoringComponent: kustomize adds the dashboard and a policy that admits Prometheus to the metrics' ports.
func TestMonitoringComponent(t *testing.T) {
	t.Parallel()
	shipped, err := filepath.Abs(filepath.Join("..", "..", "kube", "deploy"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	relative, err := filepath.Rel(dir, shipped)
	if err != nil {
		t.Fatal(err)
	}
	controlplane.Write(t, dir, "kustomization.yaml", []byte("resources: ["+relative+"]\ncomponents: ["+relative+"/monitoring]\n"))
	out, err := exec.CommandContext(t.Context(), filepath.Join(controlplane.Binaries(t), "kubectl"), "kustomize", dir).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var dashboard, policy bool
	for object := range strings.SplitSeq(string(out), "\n---\n") {
		switch {
		case strings.Contains(object, "name: nodeattest-dashboard\n"):
			var m corev1.ConfigMap
			if err := yaml.UnmarshalStrict([]byte(object), &m); err != nil {
				t.Fatal(err)
			}
			dashboard = m.Data["dashboard.json"] == monitoring.Read(t, "dashboard.json") && m.Labels["grafana_dashboard"] == "1" && m.Namespace == namespace
		case strings.Contains(object, "name: nodeattest-metrics\n"):
			var p networkingv1.NetworkPolicy
			if err := yaml.UnmarshalStrict([]byte(object), &p); err != nil {
				t.Fatal(err)
			}
			ports := ""
			for _, port := range p.Spec.Ingress[0].Ports {
				ports += " " + port.Port.String()
			}
			policy = ports == " 8080 8082 8084 8086" && len(p.Spec.Ingress) == 1 && len(p.Spec.Ingress[0].From) == 1
		}
	}
	if !dashboard || !policy {
		t.Errorf("dashboard %t, policy %t", dashboard, policy)
	}
}
