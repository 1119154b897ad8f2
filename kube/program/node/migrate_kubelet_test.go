package node

import (
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/internal/testkit"
)

// TestMigrateReady: the kubelet is Ready if it has said so, and has renewed its Lease, since a time.
func TestMigrateReady(t *testing.T) {
	since := time.Date(2026, 7, 1, 12, 0, 0, 500_000_000, time.UTC)
	for name, row := range map[string]struct {
		ready, heartbeat, lease, want string
		status                        int
	}{
		"ready":             {"True", "2026-07-01T12:00:03Z", "2026-07-01T12:00:02.000001Z", "", 200},
		"in that second":    {"True", "2026-07-01T12:00:00Z", "2026-07-01T12:00:00.600000Z", "", 200},
		"not ready":         {"False", "2026-07-01T12:00:03Z", "2026-07-01T12:00:02.000001Z", "not Ready: no network", 200},
		"unknown":           {"Unknown", "2026-07-01T12:00:03Z", "2026-07-01T12:00:02.000001Z", "not Ready", 200},
		"ready before":      {"True", "2026-07-01T11:59:59Z", "2026-07-01T12:00:02.000001Z", "not reported its state since", 200},
		"a Lease of before": {"True", "2026-07-01T12:00:03Z", "2026-07-01T12:00:00.400000Z", "not renewed its Lease since", 200},
		"refused":           {"True", "2026-07-01T12:00:03Z", "2026-07-01T12:00:02.000001Z", "403 Forbidden", 403},
		"no condition":      {"", "", "2026-07-01T12:00:02.000001Z", "no condition Ready", 200},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.WriteHeader(row.status)
				switch {
				case r.URL.Path == "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/worker-1":
					fmt.Fprintf(w, `{"spec":{"renewTime":%q}}`, row.lease)
				case r.URL.Path != "/api/v1/nodes/worker-1" || row.ready == "":
					fmt.Fprint(w, `{"status":{"conditions":[]}}`)
				default:
					fmt.Fprintf(w, `{"status":{"conditions":[{"type":"DiskPressure","status":"False"},{"type":"Ready","status":%q,"message":"no network","lastHeartbeatTime":%q}]}}`, row.ready, row.heartbeat)
				}
			}))
			defer server.Close()
			kubeconfig := filepath.Join(t.TempDir(), "kubelet.conf")
			ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
			text := strings.NewReplacer("https://192.0.2.1:6443", server.URL, "AAAA", base64.StdEncoding.EncodeToString(ca),
				"client-certificate: "+plainPair, "token: t", "    client-key: "+plainPair+"\n", "").Replace(joinedConf)
			testkit.MustDo(os.WriteFile(kubeconfig, []byte(text), 0o600))
			err := kubeletReady(t.Context(), kubeconfig, "worker-1", since)
			if (err == nil) != (row.want == "") || err != nil && !strings.Contains(err.Error(), row.want) {
				t.Errorf("got %v, want %q", err, row.want)
			}
		})
	}
	if err := kubeletReady(t.Context(), filepath.Join(t.TempDir(), "none"), "worker-1", since); err == nil {
		t.Error("no kubeconfig is taken")
	}
}

// FuzzMigratePlan: no file of the kubelet's has the planning fail otherwise than by an error, and what it
// makes of a kubeconfig is one that it does not change again.
func FuzzMigratePlan(f *testing.F) {
	testkit.BeginFuzz(f)
	f.Add([]byte(joinedConf))
	f.Add([]byte(packagedDropIn))
	f.Add([]byte(strings.Replace(joinedConf, "kind: Config\n", "kind: Config\npreferences: {}\n", 1)))
	f.Add([]byte("current-context: ''\ncontexts: [{name: ''}]\n"))
	command := []string{"/usr/local/bin/kubelet-authenticator", "credential"}
	f.Fuzz(func(t *testing.T, text []byte) {
		if dropIn, err := newDropIn("drop-in", string(text)); (dropIn == "") == (err == nil) || strings.Contains(dropIn, "=--bootstrap-kubeconfig") {
			t.Errorf("got %q, %v", dropIn, err)
		}
		conf, done, err := newKubeletConf("kubelet.conf", text, command)
		if err != nil || done {
			if conf != nil {
				t.Errorf("got %q, %v", conf, err)
			}
			return
		}
		if _, done, err := newKubeletConf("kubelet.conf", conf, command); !done || err != nil {
			t.Errorf("%q is no kubeconfig with a plugin: %v", conf, err)
		}
	})
}
