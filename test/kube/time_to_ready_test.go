package kube

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	certutil "k8s.io/client-go/util/cert"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/kube/authenticator"
	"github.com/nodeattest/nodeattest/kube/controller"
	"github.com/nodeattest/nodeattest/test/controlplane"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// The ways to a Ready node that TestTimeToReady compares.
const (
	plainWay   = "plain"    // kubelet TLS bootstrap, as kubeadm sets it up
	shippedWay = "attested" // the daemon, and the kubelet as soon as systemd would start it
	pluginWay  = "plugin"   // the kubelet without a daemon
)

// plainToken is the ID of the bootstrap token of plain nodes, whose requests Kubernetes' own approver approves.
const plainToken = "plain0"

// settle is the time before each turn in which the machine rests from the one before, and from making a TPM.
const settle = 700 * time.Millisecond

// A readyTurn has the seconds from the start of the first program of a node.
type readyTurn struct {
	certificate, node, ready float64
	parts                    map[string]float64 // of the authenticator's attempt, by their names in its log
}

// readiness is the cluster of the test.
type readiness struct {
	*cluster
	program string
	tpms    *tpmsim.CA
	watch   client.WithWatch
	plane   *replica
	turns   map[string][]readyTurn
}

// turnsToReady is how many nodes become Ready by each way.
func turnsToReady() int {
	if os.Getenv(longVar) != "" {
		return 20
	}
	return 2
}

// TestTimeToReady has real kubelets become Ready by turns, attested and plain, and prints the medians of the seconds
// from the start of a node's first program to its certificate, to its Node object, and to Ready, and the parts of the
// attested certificate. In plain turns, the controller is stopped (SIGSTOP). The test makes the mounts and the
// self-signed serving certificate of each kubelet before its turn: an RSA key takes 20 to 200 ms at random, which would hide
// the difference.
func TestTimeToReady(t *testing.T) {
	kubeletNeeds(t)
	r := &readiness{cluster: startJoinable(t), program: buildProgram(t, "kubelet-authenticator"), tpms: newCA(t, ""), turns: map[string][]readyTurn{}}
	const plainGroup = csr.BootstrappersGroup + ":plain"
	r.makeToken(t, plainToken, plainGroup)
	r.binds(t, "plain-autoapprove", "system:certificates.k8s.io:certificatesigningrequests:nodeclient", group(plainGroup))
	r.binds(t, "plain-bootstrap", "system:node-bootstrapper", group(plainGroup))
	var names []string
	ways := []string{plainWay, shippedWay, pluginWay}
	for n := range turnsToReady() {
		for _, way := range ways {
			names = append(names, fmt.Sprintf("%s-%d", way, n+1))
		}
	}
	r.knowMachines(t, tpmsim.Swtpm(t, tpmsim.Options{CA: r.tpms}), names...)
	r.plane = r.startController(t, buildProgram(t, controller.DefaultName), "controller", func(config map[string]any) {
		config["membership"].(map[string]any)["mode"] = "FirstUse"
	}, "--leader-elect=false")
	r.plane.isReady(t)
	var err error
	if r.watch, err = client.NewWithWatch(r.user(t, "watcher", "system:masters"), client.Options{Scheme: r.scheme}); err != nil {
		t.Fatal(err)
	}
	for n, name := range names {
		way := ways[n%len(ways)]
		t.Run(name, func(t *testing.T) { r.turns[way] = append(r.turns[way], r.join(t, way, name)) })
	}
	if t.Failed() {
		return
	}
	r.report(t)
}

// join has one node become Ready.
func (r *readiness) join(t *testing.T, way, name string) (took readyTurn) {
	m := r.machine(t, way, name)
	events := r.nodeEvents(t, name)
	var certificate chan time.Time
	var began time.Time
	var log *process
	switch way {
	case plainWay:
		if err := r.plane.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := r.plane.cmd.Process.Signal(syscall.SIGCONT); err != nil {
				t.Error(err)
			}
		}()
		bootstrap := m.kubeconfig(t, "bootstrap", &clientcmdapi.AuthInfo{Token: plainToken + "." + tokenSecret})
		start := m.prepareKubelet(t, strings.Replace(kubeletConfig, "rotateCertificates: false", "rotateCertificates: true", 1), "")
		certificate = r.fileSeen(t, filepath.Join(m.dir, "pki", "kubelet-client-current.pem"))
		start("--bootstrap-kubeconfig="+bootstrap, "--kubeconfig="+filepath.Join(m.dir, "kubelet.kubeconfig"))
		release := held(t, m)
		time.Sleep(settle)
		began = time.Now()
		release()
	default:
		start := m.prepareKubelet(t, kubeletConfig, "")
		kubeconfig := m.kubeconfig(t, "kubelet", &clientcmdapi.AuthInfo{Exec: &clientcmdapi.ExecConfig{APIVersion: "client.authentication.k8s.io/v1",
			Command: m.program, Args: []string{"-config", m.config, "credential"}, InteractiveMode: clientcmdapi.NeverExecInteractiveMode}})
		certificate = r.fileSeen(t, filepath.Join(m.dir, "state", authenticator.ClientFile))
		start("--kubeconfig=" + kubeconfig)
		release, socket := held(t, m), listenNotify(t, m.dir)
		time.Sleep(settle)
		began = time.Now()
		if way == shippedWay {
			t.Setenv("NOTIFY_SOCKET", socket.LocalAddr().String())
			log = startAs(t, "daemon", r.program, m.dir, "-config", m.config, "daemon")
			waitNotified(t, socket)
		}
		release()
	}
	took.certificate = at(t, "its certificate", certificate).Sub(began).Seconds()
	took.node = at(t, "its Node", events.made).Sub(began).Seconds()
	took.ready = at(t, "Ready", events.ready).Sub(began).Seconds()
	if log != nil {
		took.parts = partsOf(t, log.text(t))
	}
	return took
}

// machine makes what a node has before its first program starts.
func (r *readiness) machine(t *testing.T, way, name string) *nodeMachine {
	t.Helper()
	m := &nodeMachine{c: r.cluster, name: name, dir: t.TempDir()}
	if way != plainWay {
		m = r.install(t, r.program, name, tpmsim.Swtpm(t, tpmsim.Options{CA: r.tpms, PersistEKs: true}), nil)
	}
	serving, key, err := certutil.GenerateSelfSignedCertKey(name, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	pki := filepath.Join(m.dir, "pki")
	if err := os.Mkdir(pki, 0o700); err != nil {
		t.Fatal(err)
	}
	controlplane.Write(t, pki, "kubelet.crt", serving)
	controlplane.Write(t, pki, "kubelet.key", key)
	if err := syscall.Mkfifo(filepath.Join(m.dir, "hold"), 0o600); err != nil {
		t.Fatal(err)
	}
	return m
}

// held waits until all is there for the kubelet, and returns what starts it.
func held(t *testing.T, m *nodeMachine) (release func()) {
	t.Helper()
	fifo, err := os.OpenFile(filepath.Join(m.dir, "hold"), os.O_WRONLY, 0) // waits for the one that reads
	if err != nil {
		t.Fatal(err)
	}
	return func() {
		_, err := fifo.WriteString("\n")
		if err := errors.Join(err, fifo.Close()); err != nil {
			t.Fatal(err)
		}
	}
}

// fileSeen reports when a file is there first.
func (r *readiness) fileSeen(t *testing.T, path string) chan time.Time {
	t.Helper()
	at := make(chan time.Time, 1)
	ctx := t.Context()
	go func() {
		for ctx.Err() == nil {
			if _, err := os.Stat(path); err == nil {
				at <- time.Now()
				return
			}
			time.Sleep(2 * time.Millisecond)
		}
	}()
	return at
}

// nodeEvents are the times of a Node's events.
type nodeEvents struct{ made, ready chan time.Time }

func (r *readiness) nodeEvents(t *testing.T, name string) *nodeEvents {
	t.Helper()
	e := &nodeEvents{make(chan time.Time, 1), make(chan time.Time, 1)}
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	w, err := r.watch.Watch(ctx, new(corev1.NodeList), client.MatchingFields{"metadata.name": name})
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		defer w.Stop()
		for event := range w.ResultChan() {
			node, ok := event.Object.(*corev1.Node)
			if !ok {
				continue
			}
			select {
			case e.made <- time.Now():
			default:
			}
			if slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
				return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
			}) {
				e.ready <- time.Now()
				return
			}
		}
	}()
	return e
}

// at waits for the time of an event.
func at(t *testing.T, what string, event chan time.Time) time.Time {
	t.Helper()
	select {
	case at := <-event:
		return at
	case <-time.After(patience):
		t.Fatal("the node has waited too long for " + what)
		return time.Time{}
	}
}

// partsOf reads the line of the certificate in a daemon's log.
func partsOf(t *testing.T, log string) map[string]float64 {
	t.Helper()
	parts := map[string]float64{}
	for line := range strings.Lines(log) {
		if !strings.Contains(line, "certificate obtained") || !strings.Contains(line, "purpose=client") {
			continue
		}
		for _, name := range []string{"took", "evidence", "network", "controller"} {
			found := regexp.MustCompile(` ` + name + `=(\S+)`).FindStringSubmatch(line)
			if found == nil {
				t.Fatalf("no %s in %s", name, line)
			}
			d, err := time.ParseDuration(found[1])
			if err != nil {
				t.Fatal(err)
			}
			parts[name] = d.Seconds()
		}
	}
	return parts
}

// median is that of one figure of all turns by a way.
func (r *readiness) median(way string, of func(readyTurn) float64) float64 {
	var all []float64
	for _, one := range r.turns[way] {
		all = append(all, of(one))
	}
	slices.Sort(all)
	return (all[(len(all)-1)/2] + all[len(all)/2]) / 2
}

// report prints the medians, and holds the longer run against the documented limits.
func (r *readiness) report(t *testing.T) {
	t.Helper()
	for _, row := range []struct {
		name string
		of   func(readyTurn) float64
		most map[string]float64 // of a node, as a multiple of a plain one
	}{
		{"certificate", func(x readyTurn) float64 { return x.certificate }, nil},
		{"Node", func(x readyTurn) float64 { return x.node }, nil},
		{"Ready", func(x readyTurn) float64 { return x.ready }, map[string]float64{shippedWay: 1.08, pluginWay: 1.25}},
	} {
		plain := r.median(plainWay, row.of)
		text := fmt.Sprintf("%-11s plain %.3f s", row.name, plain)
		for _, way := range []string{shippedWay, pluginWay} {
			text += fmt.Sprintf("; %s %.3f s, %.2f times", way, r.median(way, row.of), r.median(way, row.of)/plain)
		}
		t.Log(text)
		for way, most := range row.most {
			if ratio := r.median(way, row.of) / plain; ratio > most && os.Getenv(longVar) != "" { // a short run says too little
				t.Errorf("%s, %s, takes %.2f times as long as plain, want at most %.2f", row.name, way, ratio, most)
			}
		}
	}
	var text []string
	for _, name := range []string{"took", "evidence", "network", "controller"} {
		text = append(text, fmt.Sprintf("%s %.3f s", name, r.median(shippedWay, func(x readyTurn) float64 { return x.parts[name] })))
	}
	t.Logf("the attempt of the daemon: %s", strings.Join(text, ", "))
	t.Logf("%d turns each, %s", len(r.turns[plainWay]), processor())
}

// processor is the name of the processor.
func processor() string {
	text, _ := os.ReadFile("/proc/cpuinfo")
	found := regexp.MustCompile(`(?m)^model name\s*:\s*(.*)$`).FindSubmatch(text)
	if found == nil {
		return "processor unknown"
	}
	return string(found[1])
}
