package kube

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/test/controlplane"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// The addresses of the machine whose programs are flooded, and of the attackers: 192.0.2.10
// to 192.0.2.12.
const floodedAddress, floodingAddress = "192.0.2.1", "192.0.2.1%d"

// A site is two networks that the test makes, and that reach each other and nothing else: one of a
// machine of the control plane, and one of its attackers.
type site struct {
	*cluster
	machine, attackers *process
	until              time.Time
	opened             atomic.Int64
}

func newSite(t *testing.T, c *cluster) *site {
	t.Helper()
	for _, program := range []string{"unshare", "nsenter", "ip"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("networks of their own take %s: %v", program, err)
		}
	}
	if os.Geteuid() != 0 {
		t.Skip("networks of their own take root")
	}
	network := func(name, script string) *process {
		dir := t.TempDir()
		p := startAs(t, name, "unshare", dir, "-n", "bash", "-c", "set -e\nip link set lo up\n"+script+"\ntouch laid\nexec sleep infinity")
		p.ready(t, func() error {
			_, err := os.Stat(filepath.Join(dir, "laid"))
			return err
		})
		return p
	}
	s := &site{cluster: c, attackers: network("attackers", "")}
	s.machine = network("machine", fmt.Sprintf("ip link add eth0 type veth peer name eth1\nip link set eth1 netns %d\nip addr add %s/24 dev eth0\nip link set eth0 up",
		s.attackers.cmd.Process.Pid, floodedAddress))
	script := "ip link set eth1 up"
	for i := range 3 {
		script += fmt.Sprintf("\nip addr add "+floodingAddress+"/24 dev eth1", i)
	}
	if out, err := exec.Command("nsenter", "-t", strconv.Itoa(s.attackers.cmd.Process.Pid), "-n", "bash", "-c", "set -e\n"+script).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	server, err := url.Parse(c.url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup((&box{disk: s.machine}).connect(t, server.Host)) // its programs reach the API server
	return s
}

// inside runs a function in a network, on a thread that ends with it.
func inside(network *process, run func()) error {
	fd, err := unix.Open(fmt.Sprintf("/proc/%d/ns/net", network.cmd.Process.Pid), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		err := unix.Setns(fd, unix.CLONE_NEWNET)
		if err == nil {
			run()
		}
		done <- err
	}()
	return <-done
}

// A flooded listener: how an honest client asks it, and whether the server is ak-ca.
type listener struct {
	name, address, url string
	post               bool

	asked, failed, inRow, mostInRow int
	slowest                         time.Duration
}

// TestFloodedPorts has clients without credentials flood every port of the shipped programs from
// another network, each program with the memory of its Deployment: headers that never end, of
// 1 MiB and more, connections that stay silent, TLS without an end, and requests. Probes, metrics,
// enrolments and the renewals of a node pass all the while.
func TestFloodedPorts(t *testing.T) {
	t.Parallel()
	long := 30 * time.Second
	if os.Getenv(longVar) != "" {
		long = 5 * time.Minute
	}
	programs := map[string]string{"controller": buildProgram(t, "node-attestation-controller"), "signer": buildProgram(t, "node-attestation-signer")}
	c := startCluster(t)
	s := newSite(t, c)
	c.prepare(t)
	device := tpmsim.Swtpm(t, tpmsim.Options{PersistEKs: true})
	own := c.ownSigning(t, device, "node-1")
	m := c.install(t, buildProgram(t, "kubelet-authenticator"), "node-1", device, func(config map[string]any) { config["signerName"] = csr.SignerClientTPM })

	var listeners []*listener
	running, limited := map[string]*replica{}, map[string]*limits{}
	for i, name := range []string{"controller", "signer"} {
		health, metrics := fmt.Sprintf("%s:%d", floodedAddress, 8081+2*i), fmt.Sprintf("%s:%d", floodedAddress, 8080+2*i)
		path := c.programConfig(t, name, func(config map[string]any) {
			own(config)
			config[name].(map[string]any)["metricsAddress"] = metrics // the health address is the shipped one
		})
		limited[name] = deployed(t, map[string]string{"controller": "deployment.yaml", "signer": "signer/deployment.yaml"}[name])
		wrapped := s.wrap(t, limited[name], name, programs[name])
		running[name] = &replica{process: startAs(t, name, wrapped, c.dir, "--config="+path,
			"--kubeconfig="+c.writeKubeconfig(t, name+".kubeconfig", &clientcmdapi.AuthInfo{Token: c.serviceAccountToken(t, namespace, "node-attestation-"+name)}))}
		listeners = append(listeners, &listener{name: name + ", readiness", address: health, url: "http://" + health + "/readyz"},
			&listener{name: name + ", liveness", address: health, url: "http://" + health + "/healthz"}, &listener{name: name + ", metrics", address: metrics, url: "http://" + metrics + "/metrics"})
	}
	limited["ak-ca"] = deployed(t, "deployment.yaml")
	running["ak-ca"] = &replica{process: s.startAKCA(t, limited["ak-ca"])}
	listeners = append(listeners, &listener{name: "ak-ca", address: floodedAddress + ":8443", url: "https://" + floodedAddress + ":8443/enrol", post: true})
	honest := s.client()
	for _, l := range listeners {
		eventually(t, func() error { return l.ask(honest) })
	}
	together(t, []*nodeMachine{m}, "credential")

	s.until = time.Now().Add(long)
	var all sync.WaitGroup
	s.flood(t, &all, listeners)
	for _, l := range listeners {
		all.Go(func() { l.probe(s, honest) })
	}
	renewed, slowest := 0, time.Duration(0)
	for began := time.Now(); began.Before(s.until); began = time.Now() {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		_, stderr, err := m.run(ctx, "rotate")
		cancel()
		if err != nil {
			t.Errorf("renewal after %s: %v: %s", time.Since(began), err, stderr)
			break
		}
		renewed, slowest = renewed+1, max(slowest, time.Since(began))
	}
	all.Wait()
	t.Logf("%d connections flooded them in %s; %d renewals, the slowest in %s", s.opened.Load(), long, renewed, slowest.Round(time.Millisecond))
	if renewed < 3 {
		t.Errorf("%d renewals in %s", renewed, long)
	}
	for name, r := range running {
		r.name = name
		limited[name].check(t, r)
	}
	for _, l := range listeners {
		t.Logf("%s: %d asked, %d failed, at most %d in a row, the slowest reply after %s", l.name, l.asked, l.failed, l.mostInRow, l.slowest.Round(time.Millisecond))
		if l.mostInRow >= 3 || l.asked < 10 { // a kubelet's failureThreshold
			t.Errorf("%s: %d of %d failed, %d in a row", l.name, l.failed, l.asked, l.mostInRow)
		}
	}
}

// wrap returns a program that runs another one on the machine, within limits.
func (s *site) wrap(t *testing.T, l *limits, name, program string) string {
	t.Helper()
	dir := filepath.Join(s.dir, name)
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	return l.wrap(t, dir, fmt.Sprintf("nsenter -t %d -n %s", s.machine.cmd.Process.Pid, program))
}

// startAKCA starts ak-ca on the machine, over TLS.
func (s *site) startAKCA(t *testing.T, l *limits) *process {
	t.Helper()
	a, own := newAKCA(t, "ek:sha256:"+strings.Repeat("00", 32)+" node-2\n"), controlplane.NewAuthority(t)
	certificate, private := own.Issue(t, pkix.Name{CommonName: "ak-ca"}, x509.ExtKeyUsageServerAuth, net.ParseIP(floodedAddress))
	return startAs(t, "ak-ca", s.wrap(t, l, "ak-ca", a.program), a.dir, append(a.args, "--listen", ":8443",
		"--tls-certificate", controlplane.Write(t, a.dir, "tls.pem", certificate), "--tls-key", controlplane.Write(t, a.dir, "tls.key", private))...)
}

// client is an honest client on the machine, such as its kubelet. It waits for a second, as a
// kubelet's probes do.
func (s *site) client() *http.Client {
	return &http.Client{Timeout: time.Second, Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
		DialContext: func(ctx context.Context, network, address string) (c net.Conn, err error) {
			entered := inside(s.machine, func() { c, err = new(net.Dialer).DialContext(ctx, network, address) })
			return c, errors.Join(err, entered)
		}}}
}

func (l *listener) ask(client *http.Client) error {
	var response *http.Response
	var err error
	if l.post {
		response, err = client.Post(l.url, "application/json", strings.NewReader("{}"))
	} else {
		response, err = client.Get(l.url)
	}
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if text, err := io.ReadAll(response.Body); err != nil || response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s: %w", response.Status, text, errors.Join(err, errNotYet))
	}
	return nil
}

// probe asks each second.
func (l *listener) probe(s *site, client *http.Client) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for ; time.Now().Before(s.until); <-tick.C {
		began := time.Now()
		l.asked++
		if err := l.ask(client); err != nil {
			l.failed++
			l.inRow++
			l.mostInRow = max(l.mostInRow, l.inRow)
			continue
		}
		l.inRow, l.slowest = 0, max(l.slowest, time.Since(began))
	}
}

// flood keeps 160 connections open to each address, and opens one again that was closed.
func (s *site) flood(t *testing.T, all *sync.WaitGroup, listeners []*listener) {
	t.Helper()
	type wanted struct {
		address string
		how     int
	}
	addresses := map[string]bool{}
	for _, l := range listeners {
		addresses[l.address] = l.post
	}
	const each = 160
	open := make(chan wanted, each*len(addresses))
	for address := range addresses {
		for how := range each {
			open <- wanted{address, how}
		}
	}
	ctx, stop := context.WithDeadline(t.Context(), s.until)
	t.Cleanup(stop)
	var headers, line bytes.Buffer
	headers.WriteString("GET /readyz HTTP/1.1\r\nHost: x\r\n")
	for i := 0; headers.Len() < 1<<20-200; i++ {
		headers.WriteString(strconv.FormatInt(int64(i), 36) + ":\r\n")
	}
	line.WriteString("GET /readyz HTTP/1.1\r\nHost: x\r\nX: " + strings.Repeat("a", 1<<20))
	for i := range 3 {
		all.Go(func() {
			_ = inside(s.attackers, func() {
				from := &net.TCPAddr{IP: net.ParseIP(fmt.Sprintf(floodingAddress, i))}
				for {
					select {
					case <-ctx.Done():
						return
					case w := <-open:
						c, err := (&net.Dialer{LocalAddr: from, Timeout: time.Second}).DialContext(ctx, "tcp", w.address)
						all.Go(func() {
							if err == nil {
								s.opened.Add(1)
								attack(ctx, c, w.how, addresses[w.address], headers.Bytes(), line.Bytes())
							}
							select { // it leaves some of this machine to the others
							case <-ctx.Done():
							case <-time.After(200 * time.Millisecond):
							}
							open <- w
						})
					}
				}
			})
		})
	}
}

// attack sends and holds a connection, until the server closes it or ctx ends.
func attack(ctx context.Context, c net.Conn, how int, secure bool, headers, line []byte) {
	bare := c
	defer bare.Close()
	defer context.AfterFunc(ctx, func() { _ = bare.Close() })()
	if secure && how%2 == 0 {
		c = tls.Client(bare, &tls.Config{InsecureSkipVerify: true})
	}
	text := headers
	switch how % 8 {
	case 4, 5:
		text = line
	case 6:
		text = []byte("POST /enrol HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n{")
	case 7:
		text = nil
	}
	if how == 0 {
		text = []byte("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
	}
	_, _ = c.Write(text)
	_, _ = io.Copy(io.Discard, c)
}
