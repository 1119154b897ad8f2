package deploy

import (
	"bytes"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// objects returns the objects of a kind in a file.
func objects[T any](t *testing.T, file, kind string) (found []T) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for manifest := range bytes.SplitSeq(text, []byte("\n---\n")) {
		var header metav1.TypeMeta
		if err := yaml.Unmarshal(manifest, &header); err != nil {
			t.Fatal(err)
		}
		if header.Kind != kind {
			continue
		}
		var o T
		if err := yaml.UnmarshalStrict(manifest, &o); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		found = append(found, o)
	}
	return found
}

// TestDeployments: for all Deployments, where their pods run, which a drain may evict, and which clients
// may connect to them.
func TestDeployments(t *testing.T) {
	policies := objects[networkingv1.NetworkPolicy](t, "network.yaml", "NetworkPolicy")
	if len(policies) != 1 || policies[0].Namespace != "nodeattest-system" || !slices.Equal(policies[0].Spec.PolicyTypes, []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}) || len(policies[0].Spec.Ingress) != 0 {
		t.Fatalf("network.yaml: %+v, want one policy that admits nothing", policies)
	}
	if list, err := os.ReadFile("kustomization.yaml"); err != nil || !strings.Contains(string(list), "\n  - network.yaml\n") {
		t.Errorf("kustomization.yaml does not have network.yaml: %v", err)
	}
	for file, replicas := range map[string]int32{"deployment.yaml": 2, "signer/deployment.yaml": 2, "insecure/deployment.yaml": 1, "bootstrap/signer.yaml": 2, "bootstrap/cleaner.yaml": 2} {
		deployments, budgets := objects[appsv1.Deployment](t, file, "Deployment"), objects[policyv1.PodDisruptionBudget](t, file, "PodDisruptionBudget")
		if len(deployments) != 1 || len(budgets) != int(replicas)-1 || *deployments[0].Spec.Replicas != replicas {
			t.Fatalf("%s: %d Deployments, %d budgets", file, len(deployments), len(budgets))
		}
		d := &deployments[0]
		pod := &d.Spec.Template
		for _, taint := range []corev1.Taint{
			{Key: "node-role.kubernetes.io/control-plane", Effect: corev1.TaintEffectNoSchedule},
			{Key: "node-role.kubernetes.io/control-plane", Value: "true", Effect: corev1.TaintEffectNoSchedule}, // k3s and RKE2
			{Key: "CriticalAddonsOnly", Value: "true", Effect: corev1.TaintEffectNoExecute},
		} {
			if !slices.ContainsFunc(pod.Spec.Tolerations, func(o corev1.Toleration) bool {
				return o.Key == taint.Key && (o.Operator == corev1.TolerationOpExists || o.Value == taint.Value) && (o.Effect == "" || o.Effect == taint.Effect)
			}) {
				t.Errorf("%s: no pod runs on a machine with %s", file, taint.ToString())
			}
		}
		for name, value := range policies[0].Spec.PodSelector.MatchLabels {
			if pod.Labels[name] != value {
				t.Errorf("%s: network.yaml is not about its pods, which have %v", file, pod.Labels)
			}
		}
		for _, b := range budgets {
			if b.Spec.MaxUnavailable.IntValue() != 1 || b.Spec.UnhealthyPodEvictionPolicy == nil || *b.Spec.UnhealthyPodEvictionPolicy != policyv1.AlwaysAllow || !reflect.DeepEqual(b.Spec.Selector, d.Spec.Selector) {
				t.Errorf("%s: a drain may wait for pods that are not ready: %+v", file, b.Spec)
			}
		}
	}
}
