package kube

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/nodeattest/nodeattest/attest/attesttest"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/test/controlplane"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// TestFlood has a stranger with one bootstrap token file large requests before the controller
// starts, with the memory that the Deployment gives it, and many small ones while nodes join
// and renew. Only the stranger may notice.
func TestFlood(t *testing.T) {
	t.Parallel()
	large, small, newcomers := 102, 2400, 3
	if os.Getenv(longVar) != "" {
		large, small, newcomers = 1026, 24000, 10
	}
	c := startJoinable(t)
	ca := newCA(t, "")
	program, machines := buildProgram(t, "kubelet-authenticator"), []*nodeMachine(nil)
	inventory := []byte("machines:\n")
	for i := range newcomers + 2 {
		token, device := fmt.Sprintf("node%02d", i), tpmsim.Swtpm(t, tpmsim.Options{CA: ca, PersistEKs: true})
		c.makeToken(t, token)
		m := c.install(t, program, "node-"+strconv.Itoa(i), device, func(config map[string]any) { config["lifetime"] = "1h" })
		m.kubeconfig(t, "bootstrap", &api.AuthInfo{Token: token + "." + tokenSecret})
		machines, inventory = append(machines, m), append(inventory, "- nodeName: "+m.name+"\n"...)
	}
	controlplane.Write(t, c.dir, "inventory.yaml", inventory)
	controlplane.Write(t, c.dir, "ek-roots.pem", controlplane.CertificatePEM(ca.Root()))
	old, others := machines[:2], machines[2:]

	stranger := c.client(t, c.bearer(t, attesttest.TokenID))
	c.flood(t, stranger, large, 190<<10, 256<<10)
	limits := deployed(t, "deployment.yaml")
	r := c.startController(t, limits.wrap(t, c.dir, buildProgram(t, "node-attestation-controller")), "controller", func(config map[string]any) {
		config["membership"].(map[string]any)["mode"] = "FirstUse"
	})
	began := time.Now()
	r.isReady(t)
	together(t, old, "credential")
	t.Logf("%d large requests: ready, and two nodes have joined, after %s", large, time.Since(began).Round(100*time.Millisecond))
	c.allDecided(t)
	limits.check(t, r)

	r.kill(t)
	if err := r.launch(); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error { // the lease of the one that was killed has to end
		if n := strings.Count(r.text(t), "Successfully acquired lease"); n != 2 {
			return fmt.Errorf("it has led %d times", n)
		}
		return nil
	})
	r.isReady(t)
	limits.check(t, r)

	var flooding sync.WaitGroup
	flooding.Go(func() { c.flood(t, stranger, small, 300, 0) })
	began = time.Now()
	eventually(t, func() error {
		if n := c.filedBy(t, csr.BootstrapUserPrefix+attesttest.TokenID); n < large+small/20 {
			return fmt.Errorf("%d requests", n)
		}
		return nil
	})
	var joining sync.WaitGroup
	joining.Go(func() { together(t, old, "rotate") })
	together(t, others, "credential")
	joining.Wait()
	t.Logf("%d nodes have joined, and two renewed, in %s", len(others), time.Since(began).Round(100*time.Millisecond))
	flooding.Wait()
	limits.check(t, r)
	if r.ended() || strings.Contains(r.text(t), "panic: ") {
		t.Errorf("it has ended:\n%s", r.tail())
	}
	decisions := 0.0
	for _, n := range counted(t, r, "nodeattest_decisions_total") {
		decisions += n
	}
	waits := counted(t, r, "nodeattest_rate_limited_total")[""]
	t.Logf("%.0f decisions, for which requesters waited %.0f times; %.0f requests left for later lists",
		decisions, waits, counted(t, r, "nodeattest_requests_left_out_total")[""])
	if waits > decisions+10 {
		t.Error("it looks at requests for nothing")
	}
}

// together runs a command on machines at once, and each comes to its end at the first try.
func together(t *testing.T, machines []*nodeMachine, command string) {
	t.Helper()
	var all sync.WaitGroup
	for _, m := range machines {
		all.Go(func() {
			if _, stderr, err := m.run(t.Context(), command); err != nil {
				t.Errorf("%s of %s: %v: %s", command, m.name, err, stderr)
			}
		})
	}
	all.Wait()
}

// flood files hellos with evidence and an annotation of a size, which are nonsense.
func (c *cluster) flood(t *testing.T, as client.Client, n, evidence, annotation int) {
	t.Helper()
	key := controlplane.NewKey(t)
	request, err := csr.Create(csr.PurposeClient, key, "flood", csr.CreateOptions{})
	if err != nil {
		t.Error(err)
		return
	}
	spec, err := (&csr.Bundle{Request: request, Provider: "tpm/v1", Data: bytes.Repeat([]byte{7}, evidence*3/4)}).Spec(csr.SignerKubeAPIServerClientKubelet, 3600)
	if err != nil {
		t.Error(err)
		return
	}
	spec.SignerName = csr.SignerChallengeTPM
	began, left := time.Now(), atomic.Int64{}
	left.Store(int64(n))
	var filing sync.WaitGroup
	for range 8 {
		filing.Go(func() {
			for left.Add(-1) >= 0 {
				o := requestOf(spec)
				if annotation != 0 {
					o.Annotations = map[string]string{"example.com/a": strings.Repeat("a", annotation-100)}
				}
				if err := retried(func() error { return as.Create(t.Context(), o) }); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	filing.Wait()
	t.Logf("%d requests of %d bytes filed in %s", n, len(base64.StdEncoding.EncodeToString(spec.Request))+annotation, time.Since(began).Round(100*time.Millisecond))
}

// allDecided waits until no request is undecided.
func (c *cluster) allDecided(t *testing.T) {
	t.Helper()
	for next := ""; ; {
		var page certificatesv1.CertificateSigningRequestList
		eventually(t, func() error {
			if err := c.admin.List(t.Context(), &page, client.Limit(50), client.Continue(next)); err != nil {
				return err
			}
			for i := range page.Items {
				if len(page.Items[i].Status.Conditions) == 0 {
					next = ""
					return fmt.Errorf("%s is not decided", page.Items[i].Name)
				}
			}
			return nil
		})
		if next = page.Continue; next == "" {
			return
		}
	}
}

// limits are the memory of a container.
type limits struct {
	group  string // the control group; "" if none can be made here
	memory int64
	golang string // GOMEMLIMIT
}

// deployed reads them from the Deployment in a file, and makes a control group that has them.
func deployed(t *testing.T, file string) *limits {
	t.Helper()
	text := controlplane.Read(t, filepath.Join("..", "..", "kube", "deploy", file))
	text, _, _ = bytes.Cut(text, []byte("\n---\n"))
	var d appsv1.Deployment
	if err := yaml.UnmarshalStrict(text, &d); err != nil {
		t.Fatal(err)
	}
	container := &d.Spec.Template.Spec.Containers[0]
	l := &limits{memory: container.Resources.Limits.Memory().Value()}
	for _, e := range container.Env {
		if e.Name == "GOMEMLIMIT" {
			l.golang = e.Value
		}
	}
	for root, file := range map[string]string{"/sys/fs/cgroup": "memory.max", "/sys/fs/cgroup/memory": "memory.limit_in_bytes"} {
		group, err := os.MkdirTemp(root, "nodeattest-")
		if err != nil {
			continue
		}
		t.Cleanup(func() { _ = os.Remove(group) })
		limit, err := os.OpenFile(filepath.Join(group, file), os.O_WRONLY, 0)
		if err == nil {
			_, err = limit.WriteString(strconv.FormatInt(l.memory, 10))
			limit.Close()
		}
		if err == nil {
			l.group = group
		}
	}
	t.Logf("limits: %+v", l)
	return l
}

// wrap returns a program that runs another one within the limits.
func (l *limits) wrap(t *testing.T, dir, program string) string {
	t.Helper()
	script := "#!/bin/sh\nexport GOMEMLIMIT=" + l.golang + "\n"
	if l.group != "" {
		script += "echo $$ >" + l.group + "/cgroup.procs\n"
	}
	path := controlplane.Write(t, dir, "limited", []byte(script+"exec "+program+" \"$@\"\n"))
	if err := os.Chmod(path, 0o700); err != nil {
		t.Fatal(err)
	}
	return path
}

var peak = regexp.MustCompile(`VmHWM:\s+(\d+) kB`)

// check compares the most memory that a program has had with its limit.
func (l *limits) check(t *testing.T, r *replica) {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", r.cmd.Process.Pid))
	m := peak.FindSubmatch(status)
	if err != nil || m == nil {
		t.Fatalf("%s has ended: %v\n%s", r.name, err, r.tail())
	}
	kilobytes, err := strconv.ParseInt(string(m[1]), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s had at most %d MiB of its %d MiB", r.name, kilobytes>>10, l.memory>>20)
	if kilobytes<<10 > l.memory*3/4 {
		t.Error("want a quarter of it to spare")
	}
}
