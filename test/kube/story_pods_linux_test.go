package kube

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// staticPod is a pod that the kubelet of a worker runs by a file.
const staticPod = `apiVersion: v1
kind: Pod
metadata: {name: shop, namespace: default}
spec:
  containers: [{name: shop, image: "%s", imagePullPolicy: Never}]
`

// putPod has a node's kubelet run a static pod.
func (m *member) putPod(t *testing.T) {
	t.Helper()
	m.put(t, "/etc/kubernetes/manifests/shop.yaml", 0o600, fmt.Appendf(nil, staticPod, sandboxImage(t)))
}

// containers waits until each node has a pod and each container runs, and returns the ID and the count of restarts of
// each container.
func (s *story) containers(t *testing.T) map[string]string {
	t.Helper()
	found := map[string]string{}
	eventually(t, func() error {
		clear(found)
		var list corev1.PodList
		if err := s.admin.List(t.Context(), &list); err != nil {
			return err
		}
		nodes := maps.Clone(s.nodes)
		for i := range list.Items {
			p := &list.Items[i]
			for _, c := range p.Status.ContainerStatuses {
				if c.State.Running == nil {
					return fmt.Errorf("%w: container %s of %s does not run: %+v", errNotYet, c.Name, p.Name, c.State)
				}
				found[p.Namespace+"/"+p.Name+"/"+c.Name] = fmt.Sprintf("%s, restarts: %d", c.ContainerID, c.RestartCount)
				delete(nodes, p.Spec.NodeName)
			}
		}
		if len(nodes) != 0 {
			return fmt.Errorf("%w: no container runs on %v", errNotYet, slices.Collect(maps.Keys(nodes)))
		}
		return nil
	})
	return found
}

// checkPods compares the containers of before with those of now.
func (s *story) checkPods(t *testing.T, before map[string]string) {
	t.Helper()
	now, restarted := s.containers(t), 0
	for name, container := range before {
		if now[name] != container {
			restarted++
			t.Errorf("%s was %s, and is %s", name, container, now[name])
		}
	}
	t.Logf("%d containers, %d restarted", len(before), restarted)
}

// withoutOurs leaves the controller's pods out, which come and go with its Deployment.
func withoutOurs(containers map[string]string) map[string]string {
	maps.DeleteFunc(containers, func(name, _ string) bool { return strings.HasPrefix(name, namespace+"/") })
	return containers
}

// watchReady looks at a node until report logs for how long it had no Ready kubelet: from the kubelet's last stop
// until the first report of a Ready node after that.
func (s *story) watchReady(t *testing.T, w *member) (report func()) {
	t.Helper()
	type look struct {
		at, heartbeat time.Time
	}
	ctx, cancel := context.WithCancel(t.Context())
	var looks []look
	var looking sync.WaitGroup
	looking.Go(func() {
		for ctx.Err() == nil {
			var node corev1.Node
			if s.admin.Get(ctx, client.ObjectKey{Name: w.name}, &node) == nil {
				for _, c := range node.Status.Conditions {
					if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue {
						looks = append(looks, look{time.Now(), c.LastHeartbeatTime.Time})
					}
				}
			}
			time.Sleep(50 * time.Millisecond)
		}
	})
	return func() {
		t.Helper()
		cancel()
		looking.Wait()
		const layout = "Mon 2006-01-02 15:04:05.000000 MST"
		text := strings.TrimSpace(w.run(t, "systemctl show --timestamp=us+utc -P ActiveExitTimestamp kubelet"))
		stopped, err := time.Parse(layout, text)
		if err != nil {
			t.Fatal(err)
		}
		var last time.Time
		for _, l := range looks {
			if l.at.Before(stopped) {
				last = l.heartbeat
			} else if !l.heartbeat.Equal(last) {
				t.Logf("%s had no Ready kubelet for %.1f seconds", w.name, l.at.Sub(stopped).Seconds())
				return
			}
		}
		t.Errorf("%s has reported no Ready node since the kubelet's stop at %s, of %d looks", w.name, stopped, len(looks))
	}
}
