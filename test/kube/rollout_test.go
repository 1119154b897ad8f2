package kube

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodeattest/nodeattest/kube/controller"
	"github.com/nodeattest/nodeattest/test/controlplane"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// A rollout is a Deployment whose pods are as ready as processes of its program.
type rollout struct {
	*installation
	t *testing.T
}

// TestRollout enforces, and then has a user of the cluster open a way around attestation. A drain
// and a new image pass all the same; before the cluster enforces, a new replica waits. Pods that
// are not ready for another reason do not keep a drain from ending.
func TestRollout(t *testing.T) {
	t.Parallel()
	w := &installation{cluster: startCluster(t), program: buildProgram(t, "node-attestation-controller")}
	device := tpmsim.Swtpm(t, tpmsim.Options{})
	w.node = w.nodeOn(t, device, "node-1")
	w.knowMachines(t, device, "node-1")
	k := &operator{kubectl: filepath.Join(controlplane.Binaries(t), "kubectl"), dir: t.TempDir(), kubeconfig: w.kubeconfig(t, "admin.kubeconfig", "admin", "system:masters")}
	w.startSigner(t, "--controllers=deployment-controller,replicaset-controller,disruption-controller,resourcequota-controller")
	folder := overlay(t, w.node, controlplane.FreePorts(t, 4), "enforce")
	apply := func() {
		t.Helper()
		if _, err := k.plain(t.Context(), "apply", "-k", folder); err != nil {
			t.Fatal(err)
		}
	}
	apply()
	r := &rollout{w, t}
	const first, second = "registry.example/nodeattest:v1", "registry.example/nodeattest:v2"
	way := w.binds(t, "chart", "cluster-admin", rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: "chart", Name: "chart"})
	old := r.starts("first")
	old.ready(t, func() error {
		if status, text := body(t, old.health+"/readyz/ways-around"); status != http.StatusInternalServerError || counted(t, old, "nodeattest_ways_around_looked_seconds")[""] == 0 {
			return fmt.Errorf("before it enforces, with a way around: %d %s", status, text)
		}
		return nil
	})
	if r.since() {
		t.Error("it has noted that it enforces")
	}
	old.stop(t)
	if err := w.admin.Delete(t.Context(), way); err != nil {
		t.Fatal(err)
	}
	if err := old.launch(); err != nil { // which looks at once
		t.Fatal(err)
	}
	old.isReady(t)
	eventually(t, func() error {
		if !r.since() {
			return errors.New("it has not noted that it enforces")
		}
		return nil
	})
	r.readies(first, 2, corev1.ConditionTrue)

	w.binds(t, "chart", "cluster-admin", way.Subjects[0])
	next := r.starts("second")
	next.isReady(t)              // a new image, and another one of the old image
	eventually(t, func() error { // it is ready before its first look has ended
		if ways := counted(t, next, "nodeattest_ways_around"); ways[`way="Administration"`] != 1 {
			return fmt.Errorf("ways around: %v", ways)
		}
		return nil
	})
	old.isReady(t)
	r.drain(first)
	hold := r.pods(first)
	if err := r.evict(&hold[0]); err != nil {
		t.Errorf("the next drain: %v", err)
	}
	r.readies(first, 2, corev1.ConditionTrue)
	text := controlplane.Read(t, filepath.Join(folder, "kustomization.yaml"))
	controlplane.Write(t, folder, "kustomization.yaml", bytes.ReplaceAll(text, []byte("newTag: v1"), []byte("newTag: v2")))
	apply()
	eventually(t, func() error {
		r.set(r.pods(second), corev1.ConditionTrue)
		d := w.deployment(t, controller.DefaultName)
		if s := &d.Status; s.ObservedGeneration != d.Generation || s.UpdatedReplicas != 2 || s.AvailableReplicas != 2 || s.Replicas != 2 {
			return fmt.Errorf("the new image is not rolled out: %+v", *s)
		}
		return nil
	})
	if _, err := k.plain(t.Context(), "-n", namespace, "rollout", "status", "deployment", controller.DefaultName, "--timeout=10s"); err != nil {
		t.Error(err)
	}
	r.readies(second, 2, corev1.ConditionFalse) // for a reason of their own
	pods := r.pods(second)
	for i := range pods {
		if err := r.evict(&pods[i]); err != nil {
			t.Errorf("a drain of a pod that is not ready: %v", err)
		}
	}
}

// starts starts the Deployment's program with the Deployment's flags.
func (r *rollout) starts(name string) *replica {
	r.t.Helper()
	args := r.deployment(r.t, controller.DefaultName).Spec.Template.Spec.Containers[0].Args
	args = slices.DeleteFunc(slices.Clone(args), func(arg string) bool { return strings.HasPrefix(arg, "--config=") })
	return r.startController(r.t, r.program, name, func(config map[string]any) {
		config["membership"].(map[string]any)["mode"] = "FirstUse"
		config["controller"].(map[string]any)["insecureAllowWaysAround"] = false
	}, args...)
}

// since says whether the Lease says that the cluster enforces.
func (r *rollout) since() bool {
	r.t.Helper()
	var lease coordinationv1.Lease
	err := r.admin.Get(r.t.Context(), client.ObjectKey{Namespace: namespace, Name: controller.DefaultName}, &lease)
	if client.IgnoreNotFound(err) != nil {
		r.t.Fatal(err)
	}
	return lease.Annotations["nodeattest.github.io/enforced-since"] != ""
}

// pods returns the pods of an image that are not being deleted.
func (r *rollout) pods(image string) []corev1.Pod {
	r.t.Helper()
	var list corev1.PodList
	if err := r.admin.List(r.t.Context(), &list, client.InNamespace(namespace)); err != nil {
		r.t.Fatal(err)
	}
	return slices.DeleteFunc(list.Items, func(p corev1.Pod) bool {
		return p.DeletionTimestamp != nil || p.Spec.Containers[0].Image != image
	})
}

// set has pods run, and be as ready as told.
func (r *rollout) set(pods []corev1.Pod, ready corev1.ConditionStatus) {
	r.t.Helper()
	for i := range pods {
		p := &pods[i]
		p.Status.Phase = corev1.PodRunning
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: ready, LastTransitionTime: metav1.Now()}, {Type: corev1.PodScheduled, Status: corev1.ConditionTrue}}
		if err := r.admin.Status().Update(r.t.Context(), p); err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
			r.t.Fatal(err)
		}
	}
}

// readies waits until an image has so many pods, all as ready as told, and the budget knows.
func (r *rollout) readies(image string, n int, ready corev1.ConditionStatus) {
	r.t.Helper()
	healthy := int32(0)
	if ready == corev1.ConditionTrue {
		healthy = int32(n)
	}
	eventually(r.t, func() error {
		pods := r.pods(image)
		r.set(pods, ready)
		var b policyv1.PodDisruptionBudget
		if err := r.admin.Get(r.t.Context(), client.ObjectKey{Namespace: namespace, Name: controller.DefaultName}, &b); err != nil {
			return err
		}
		// An eviction takes from DisruptionsAllowed at once; the rest of the status comes later.
		if len(pods) != n || b.Status.CurrentHealthy != healthy || b.Status.ExpectedPods != int32(n) || b.Status.DisruptionsAllowed != max(0, healthy-1) {
			return fmt.Errorf("%d pods, of which the budget sees %+v", len(pods), b.Status)
		}
		return nil
	})
}

func (r *rollout) evict(p *corev1.Pod) error {
	return r.admin.SubResource("eviction").Create(r.t.Context(), p, &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: p.Name, Namespace: namespace}})
}

// drain evicts one pod, and no second one before its replacement is ready.
func (r *rollout) drain(image string) {
	r.t.Helper()
	pods := r.pods(image)
	if err := r.evict(&pods[0]); err != nil {
		r.t.Errorf("a drain: %v", err)
	}
	if err := r.evict(&pods[1]); !apierrors.IsTooManyRequests(err) {
		r.t.Errorf("a second drain at once: %v, want it to wait", err)
	}
	r.readies(image, 2, corev1.ConditionTrue)
}
