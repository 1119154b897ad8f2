// Package manifests looks at the manifests of module kube with Kubernetes' own packages.
package manifests

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/pod-security-admission/admission"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
)

const controller = "Deployment nodeattest-system/node-attestation-controller"

// objects returns the objects of Kubernetes' own kinds in the manifests, by kind and name. A
// field that Kubernetes does not know fails the test. Of what kustomize changes, only the
// image is in a pod.
func objects(t *testing.T) map[string]runtime.Object {
	t.Helper()
	decoder := serializer.NewCodecFactory(scheme.Scheme, serializer.EnableStrict).UniversalDeserializer()
	all := make(map[string]runtime.Object)
	err := filepath.WalkDir("../../../kube/deploy", func(name string, _ fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(name) != ".yaml" || strings.HasSuffix(name, "-patch.yaml") { // of policies, which have no pod
			return err
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		for manifest := range bytes.SplitSeq(text, []byte("\n---\n")) {
			o, kind, err := decoder.Decode(manifest, nil, nil)
			if runtime.IsNotRegisteredError(err) || runtime.IsMissingKind(err) {
				continue
			}
			if err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			named, err := meta.Accessor(o)
			if err != nil {
				return err
			}
			all[kind.Kind+" "+named.GetNamespace()+"/"+named.GetName()] = o
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// refused says why Pod Security's level "restricted" refuses the pods of an object, or
// nothing. An object without pods is not ok.
func refused(t *testing.T, o runtime.Object) (reason string, ok bool) {
	t.Helper()
	evaluator, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		t.Fatal(err)
	}
	meta, spec, err := admission.DefaultPodSpecExtractor{}.ExtractPodSpec(o)
	if err != nil || spec == nil {
		return "", false
	}
	restricted := api.LevelVersion{Level: api.LevelRestricted, Version: api.LatestVersion()}
	result := policy.AggregateCheckResults(evaluator.EvaluatePod(restricted, meta, spec))
	return result.ForbiddenDetail(), true
}

// TestPodSecurity: the namespace of the manifests accepts only pods of the level
// "restricted". Here that is found before a cluster refuses them.
func TestPodSecurity(t *testing.T) {
	workloads := make(map[string]bool)
	for name, o := range objects(t) {
		reason, ok := refused(t, o)
		if reason != "" {
			t.Errorf("%s is not restricted: %s", name, reason)
		}
		if ok {
			workloads[name] = true
		}
	}
	for _, want := range []string{controller, "Deployment nodeattest-system/node-attestation-signer", "Deployment nodeattest-system/bootstrap-signer", "Deployment nodeattest-system/bootstrap-cleaner"} {
		if !workloads[want] {
			t.Errorf("nothing looked at %s, only at %v", want, workloads)
		}
	}
}

func TestPodSecurityBites(t *testing.T) {
	always, root := true, int64(0)
	for name, change := range map[string]func(pod *corev1.PodSpec, c *corev1.Container){
		"host namespaces": func(pod *corev1.PodSpec, _ *corev1.Container) { pod.HostNetwork = true },
		"hostPath": func(pod *corev1.PodSpec, _ *corev1.Container) {
			pod.Volumes[0].VolumeSource = corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/dev"}}
		},
		"runAsNonRoot":              func(pod *corev1.PodSpec, _ *corev1.Container) { pod.SecurityContext.RunAsNonRoot = nil },
		"runAsUser=0":               func(pod *corev1.PodSpec, _ *corev1.Container) { pod.SecurityContext.RunAsUser = &root },
		"seccompProfile":            func(pod *corev1.PodSpec, _ *corev1.Container) { pod.SecurityContext.SeccompProfile = nil },
		"allowPrivilegeEscalation":  func(_ *corev1.PodSpec, c *corev1.Container) { c.SecurityContext.AllowPrivilegeEscalation = nil },
		"unrestricted capabilities": func(_ *corev1.PodSpec, c *corev1.Container) { c.SecurityContext.Capabilities = nil },
		"privileged":                func(_ *corev1.PodSpec, c *corev1.Container) { c.SecurityContext.Privileged = &always },
	} {
		t.Run(name, func(t *testing.T) {
			deployment, ok := objects(t)[controller].(*appsv1.Deployment)
			if !ok {
				t.Fatal("no Deployment")
			}
			pod := &deployment.Spec.Template.Spec
			change(pod, &pod.Containers[0])
			if reason, _ := refused(t, deployment); !strings.Contains(reason, name) {
				t.Errorf("refused for %q", reason)
			}
		})
	}
}
