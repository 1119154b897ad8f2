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
	rbacv1 "k8s.io/api/rbac/v1"
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
	for file, replicas := range map[string]int32{"deployment.yaml": 2, "signer/deployment.yaml": 2, "insecure/deployment.yaml": 1} {
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

// TestBoundTokensExample: the example service runs under its own account, in a namespace without the
// secrets of the others, and its one account has the rights of the page alone; of its ports, the network
// admits callers to the two with mutual TLS.
func TestBoundTokensExample(t *testing.T) {
	const name = "boundtokens-example"
	accounts, bindings := objects[corev1.ServiceAccount](t, "boundtokens/rbac.yaml", "ServiceAccount"), objects[rbacv1.ClusterRoleBinding](t, "boundtokens/rbac.yaml", "ClusterRoleBinding")
	deployments := objects[appsv1.Deployment](t, "boundtokens/deployment.yaml", "Deployment")
	if len(accounts) != 1 || len(bindings) != 1 || len(deployments) != 1 {
		t.Fatalf("%d accounts, %d bindings, %d Deployments", len(accounts), len(bindings), len(deployments))
	}
	d, pod := &deployments[0], &deployments[0].Spec.Template
	want := []rbacv1.Subject{{Kind: "ServiceAccount", Name: name, Namespace: name}}
	if accounts[0].Name != name || accounts[0].Namespace != name || bindings[0].RoleRef.Name != name || !reflect.DeepEqual(bindings[0].Subjects, want) ||
		d.Namespace != name || pod.Spec.ServiceAccountName != name {
		t.Errorf("account %s/%s, bound %v to %s, pods in %s as %s", accounts[0].Namespace, accounts[0].Name, bindings[0].Subjects, bindings[0].RoleRef.Name, d.Namespace, pod.Spec.ServiceAccountName)
	}
	ports := map[string]int32{}
	for _, p := range pod.Spec.Containers[0].Ports {
		ports[p.Name] = p.ContainerPort
	}
	policies, services := objects[networkingv1.NetworkPolicy](t, "boundtokens/deployment.yaml", "NetworkPolicy"), objects[corev1.Service](t, "boundtokens/deployment.yaml", "Service")
	var admitted, served []string
	for _, p := range policies[0].Spec.Ingress[0].Ports {
		admitted = append(admitted, p.Port.StrVal)
	}
	for _, p := range services[0].Spec.Ports {
		served = append(served, p.TargetPort.StrVal)
	}
	selected := policies[0].Spec.PodSelector.MatchLabels
	if !reflect.DeepEqual(ports, map[string]int32{"https": 8443, "grpc": 8444, "health": 8080}) || !slices.Equal(admitted, []string{"https", "grpc"}) || !slices.Equal(served, admitted) ||
		!reflect.DeepEqual(selected, pod.Labels) || !reflect.DeepEqual(services[0].Spec.Selector, pod.Labels) || !reflect.DeepEqual(d.Spec.Selector.MatchLabels, pod.Labels) {
		t.Errorf("ports %v, of which the policy admits to %v, the Service leads to %v; pods %v, policy of %v", ports, admitted, served, pod.Labels, selected)
	}
}
