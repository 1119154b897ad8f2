package deploy

import (
	"bytes"
	"os"
	"path/filepath"
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
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"
)

const (
	clusterVariable   = "${CLUSTER_NAME}"
	namespaceVariable = "${NAMESPACE}"
	clusterLabel      = "cluster.x-k8s.io/cluster-name"
)

// TestClusterAPIDeployments: of each Deployment for a management cluster, all is that of the one that runs
// on the cluster of the nodes, but what is listed here.
func TestClusterAPIDeployments(t *testing.T) {
	for file, like := range map[string]string{"clusterapi/deployment.yaml": "deployment.yaml", "clusterapi-signer/deployment.yaml": "signer/deployment.yaml"} {
		got, want := objects[appsv1.Deployment](t, file, "Deployment")[0], objects[appsv1.Deployment](t, like, "Deployment")[0]
		account := want.Name
		ofCluster := func(o *metav1.ObjectMeta) {
			o.Name, o.Namespace = o.Name+"-"+clusterVariable, namespaceVariable
		}
		ofCluster(&want.ObjectMeta)
		pod := &want.Spec.Template
		anti := pod.Spec.Affinity.PodAntiAffinity
		for _, labels := range []map[string]string{want.Labels, pod.Labels, want.Spec.Selector.MatchLabels, anti.PreferredDuringSchedulingIgnoredDuringExecution[0].PodAffinityTerm.LabelSelector.MatchLabels} {
			labels[clusterLabel] = clusterVariable
		}
		pod.Spec.ServiceAccountName = want.Name
		// It does not decide about the Nodes that it runs on.
		pod.Spec.PriorityClassName, pod.Spec.Affinity = "", &corev1.Affinity{PodAntiAffinity: anti}
		pod.Spec.Tolerations = slices.DeleteFunc(pod.Spec.Tolerations, func(o corev1.Toleration) bool {
			return o.Key == "node.kubernetes.io/not-ready" || o.Key == "node.cloudprovider.kubernetes.io/uninitialized"
		})
		c, mode := &pod.Spec.Containers[0], int32(0o440)
		c.Args = []string{"--config=/etc/nodeattest/config.yaml", "--kubeconfig=/etc/nodeattest/workload/kubeconfig"}
		c.VolumeMounts = slices.Insert(c.VolumeMounts, 1, corev1.VolumeMount{Name: "workload", MountPath: "/etc/nodeattest/workload", ReadOnly: true})
		pod.Spec.Volumes = slices.Insert(pod.Spec.Volumes, 1, corev1.Volume{Name: "workload", VolumeSource: corev1.VolumeSource{
			Secret: &corev1.SecretVolumeSource{SecretName: clusterVariable + "-" + account, DefaultMode: &mode}}})
		pod.Spec.Volumes[0].ConfigMap.Name += "-" + clusterVariable
		if len(pod.Spec.Volumes) > 2 {
			pod.Spec.Volumes[2].Secret.SecretName = clusterVariable + "-" + pod.Spec.Volumes[2].Secret.SecretName
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s differs from %s in more than is listed:\n%s\nwant\n%s", file, like, text(t, got), text(t, want))
		}
		budget, wanted := objects[policyv1.PodDisruptionBudget](t, file, "PodDisruptionBudget"), objects[policyv1.PodDisruptionBudget](t, like, "PodDisruptionBudget")[0]
		ofCluster(&wanted.ObjectMeta)
		wanted.Spec.Selector.MatchLabels[clusterLabel] = clusterVariable
		if len(budget) != 1 || !reflect.DeepEqual(budget[0], wanted) {
			t.Errorf("%s: the budgets are %s", file, text(t, budget))
		}
	}
	policy := objects[networkingv1.NetworkPolicy](t, "clusterapi/network.yaml", "NetworkPolicy")
	if len(policy) != 1 || len(policy[0].Spec.Ingress) != 0 || !slices.Equal(policy[0].Spec.PolicyTypes, []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}) ||
		!reflect.DeepEqual(policy[0].Spec.PodSelector.MatchLabels, map[string]string{"app.kubernetes.io/part-of": "nodeattest", clusterLabel: clusterVariable}) {
		t.Errorf("network.yaml: %s, want one policy that admits nothing to the Cluster's pods", text(t, policy))
	}
}

func text(t *testing.T, o any) string {
	t.Helper()
	out, err := yaml.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// TestClusterAPINames: every object for a management cluster is of one Cluster, in its namespace, and has
// a name that Kubernetes takes; each of its kustomizations lists every file, and each name that an object
// refers to is that of another one, or of one that docs/cluster-api.md has an operator make.
func TestClusterAPINames(t *testing.T) {
	made := []string{"ConfigMap node-attestation-" + clusterVariable, "Secret " + clusterVariable + "-node-attestation-controller",
		"Secret " + clusterVariable + "-node-attestation-signer", "Secret " + clusterVariable + "-node-attestation-signer-ca"}
	var all []string
	for _, folder := range []string{"clusterapi", "clusterapi-signer"} {
		var list struct{ Resources []string }
		kustomization, err := os.ReadFile(filepath.Join(folder, "kustomization.yaml"))
		if err == nil {
			err = yaml.Unmarshal(kustomization, &list)
		}
		if err != nil {
			t.Fatal(err)
		}
		files, err := filepath.Glob(folder + "/*.yaml")
		if err != nil || len(files) != len(list.Resources)+1 {
			t.Errorf("%s has %v, and applies %v, %v", folder, files, list.Resources, err)
		}
		for _, file := range list.Resources {
			for _, o := range partials(t, filepath.Join(folder, file)) {
				all = append(all, o.Kind+" "+o.Name)
				name := strings.ReplaceAll(o.Name, clusterVariable, "example-1")
				if o.Namespace != namespaceVariable || name == o.Name || len(validation.IsDNS1123Subdomain(name)) != 0 {
					t.Errorf("%s: %s %s in %s", file, o.Kind, o.Name, o.Namespace)
				}
			}
		}
	}
	known := append(all, made...)
	for _, folder := range []string{"clusterapi", "clusterapi-signer"} {
		refers := func(kind, name string) {
			t.Helper()
			if !slices.Contains(known, kind+" "+name) {
				t.Errorf("%s: no %s %s among %q", folder, kind, name, known)
			}
		}
		pod := objects[appsv1.Deployment](t, folder+"/deployment.yaml", "Deployment")[0].Spec.Template.Spec
		refers("ServiceAccount", pod.ServiceAccountName)
		for _, v := range pod.Volumes {
			if v.Secret != nil {
				refers("Secret", v.Secret.SecretName)
			} else {
				refers("ConfigMap", v.ConfigMap.Name)
			}
		}
		binding := objects[rbacv1.RoleBinding](t, folder+"/rbac.yaml", "RoleBinding")[0]
		refers("Role", binding.RoleRef.Name)
		if s := binding.Subjects[0]; len(binding.Subjects) != 1 || s.Namespace != namespaceVariable || s.Name != pod.ServiceAccountName {
			t.Errorf("%s: bound to %+v", folder, binding.Subjects)
		}
		for _, rule := range objects[rbacv1.Role](t, folder+"/rbac.yaml", "Role")[0].Rules {
			if slices.Contains(rule.Resources, "secrets") {
				refers("Secret", rule.ResourceNames[0])
			}
		}
	}
	if secrets := objects[corev1.Secret](t, "clusterapi/rbac.yaml", "Secret"); len(secrets) != 1 || len(secrets[0].Data)+len(secrets[0].StringData) != 0 {
		t.Errorf("%d Secrets, want one without data, so that to apply it leaves the keys as they are", len(secrets))
	}
}

// partials returns the metadata of a file's objects.
func partials(t *testing.T, file string) (found []metav1.PartialObjectMetadata) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for manifest := range bytes.SplitSeq(text, []byte("\n---\n")) {
		var o metav1.PartialObjectMetadata
		if err := yaml.Unmarshal(manifest, &o); err != nil || o.Name == "" {
			t.Fatalf("%s: %q, %v", file, o.Name, err)
		}
		found = append(found, o)
	}
	return found
}
