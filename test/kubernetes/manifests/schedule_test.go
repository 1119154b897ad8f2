package manifests

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"
)

// TestControlPlanes: the Deployments' pods run on the nodes of control planes, and there alone:
// whatever value the label has, and before a cloud controller has initialized the node.
func TestControlPlanes(t *testing.T) {
	const label = "node-role.kubernetes.io/control-plane"
	taint := func(key string) corev1.Taint {
		return corev1.Taint{Key: key, Value: "true", Effect: corev1.TaintEffectNoSchedule}
	}
	for _, name := range []string{controller, "Deployment nodeattest-system/node-attestation-signer", "Deployment nodeattest-system/bootstrap-signer", "Deployment nodeattest-system/bootstrap-cleaner"} {
		for what, row := range map[string]struct {
			labels map[string]string
			taints []corev1.Taint
			runs   bool
		}{
			"kubeadm":            {map[string]string{label: ""}, []corev1.Taint{taint(label)}, true},
			"k3s and RKE2":       {map[string]string{label: "true"}, nil, true},
			"in a cloud":         {map[string]string{label: ""}, []corev1.Taint{taint(label), taint("node.cloudprovider.kubernetes.io/uninitialized")}, true},
			"without a network":  {map[string]string{label: ""}, []corev1.Taint{taint(label), taint("node.kubernetes.io/not-ready")}, true},
			"another's machines": {map[string]string{label: ""}, []corev1.Taint{taint("example.com/dedicated")}, false},
			"a worker":           {nil, nil, false},
		} {
			t.Run(name+" on "+what, func(t *testing.T) {
				deployment, ok := objects(t)[name].(*appsv1.Deployment)
				if !ok {
					t.Fatal("no Deployment")
				}
				pod := &corev1.Pod{Spec: deployment.Spec.Template.Spec}
				node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: row.labels}, Spec: corev1.NodeSpec{Taints: row.taints}}
				matches, err := nodeaffinity.GetRequiredNodeAffinity(pod).Match(node)
				if err != nil {
					t.Fatal(err)
				}
				_, kept := helpers.FindMatchingUntoleratedTaint(klog.Background(), node.Spec.Taints, pod.Spec.Tolerations, nil, false)
				if runs := matches && !kept; runs != row.runs {
					t.Errorf("it runs there: %t, want %t", runs, row.runs)
				}
			})
		}
	}
}
