package externalsigner

import (
	"context"
	"crypto/elliptic"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodeattest/nodeattest/attest/tpm/tpmkey"
)

const (
	// callLimit is how long external-jwt-signer lets a call wait for its key.
	callLimit = 5 * time.Second
	// strangers is how many requests with unknown key IDs an API server gets while its signer is dead.
	strangers = 2000
	// atTheirMost is when the requests all wait: kube-apiserver ends each after 30 seconds.
	atTheirMost = 8 * time.Second
)

// deadFor is how long signers are dead: 100 seconds with NODEATTEST_LONG=1, for which a TokenRequest is not
// waited for, and 10 seconds otherwise.
func deadFor() time.Duration {
	if os.Getenv("NODEATTEST_LONG") == "1" {
		return 100 * time.Second
	}
	return 10 * time.Second
}

// TestOutage looks at an API server while its signer hangs, because the TPM does, and while it is dead, and
// measures when the first token is issued after a restart: of a signer that makes its socket, and of one that
// is given it, as systemd does. Tokens with known keys are accepted all the while.
func TestOutage(t *testing.T) {
	t.Parallel()
	dir, device := signerFolder(t), newTPM(t)
	key := filepath.Join(dir, "key.pem")
	device.writeKey(t, key, tpmkey.ECDSAP256)
	gate := newGate(t, filepath.Join(dir, "tpm"), device.path)
	own := startSigner(t, dir, map[string]any{"tpm": map[string]any{"device": gate.path, "keyFile": key}})
	given := startActivated(t)

	server := startCluster(t, own.socket)
	activated := server.cluster.startServer(t, given.socket)
	pod := server.makePod(t)
	server.token(t, pod)
	activated.token(t, pod)

	t.Run("hanging", func(t *testing.T) { testHanging(t, gate, server, pod) })
	t.Run("dead", func(t *testing.T) { testDead(t, [2]*signer{own, given}, [2]*apiServer{server, activated}, pod) })
}

// testHanging has the TPM of a signer hang. Each request of a token fails at the signer's limit, and none later.
func testHanging(t *testing.T, gate *gate, server *apiServer, pod *corev1.Pod) {
	fresh := server.token(t, pod)
	gate.close()
	began := time.Now()
	var requests sync.WaitGroup
	for range 10 {
		requests.Go(func() {
			_, err := server.issue(t.Context(), pod)
			if took := time.Since(began); err == nil || took < callLimit-time.Second || took > callLimit+10*time.Second {
				t.Errorf("a TokenRequest ended after %s with %v, want an error after %s", took.Round(time.Millisecond), err, callLimit)
			}
		})
	}
	if err := server.review(t.Context(), fresh); err != nil {
		t.Errorf("a known token while the signer hangs: %v", err)
	}
	requests.Wait()
	t.Logf("10 TokenRequests failed after %s", time.Since(began).Round(time.Millisecond))
	gate.open()
	t.Logf("the TPM answers again: the first token after %s", server.firstToken(t, pod))
}

// testDead kills both signers and starts them again. The first server gets requests with unknown key IDs meanwhile.
func testDead(t *testing.T, signers [2]*signer, servers [2]*apiServer, pod *corev1.Pod) {
	fresh, before := servers[0].token(t, pod), servers[0].load(t)
	for _, s := range signers {
		s.kill(t)
	}
	began := time.Now()
	asked := make(chan string, 1)
	go func() {
		_, err := servers[0].issue(context.Background(), pod)
		asked <- fmt.Sprintf("after %s: %v", time.Since(began).Round(time.Millisecond), err)
	}()
	unknown := servers[0].askAsStrangers(t, fresh)
	if err := servers[0].review(t.Context(), fresh); err != nil {
		t.Errorf("a known token while the signer is dead: %v", err)
	}
	time.Sleep(time.Until(began.Add(atTheirMost)))
	during := servers[0].load(t)
	time.Sleep(time.Until(began.Add(deadFor())))

	var restarted sync.WaitGroup
	for i, name := range []string{"its own socket", "a socket that outlives it"} {
		signers[i].launch(t)
		restarted.Go(func() {
			t.Logf("%s: dead for %s, the first token %s after the restart", name, deadFor(), servers[i].firstToken(t, pod))
		})
	}
	restarted.Wait()
	t.Logf("a TokenRequest of the moment of death ended %s", <-asked)
	t.Logf("%d requests with unknown key IDs: %s", strangers, unknown())
	var after serverLoad
	eventually(t, func() error {
		if after = servers[0].load(t); after.goroutines > before.goroutines+strangers/10 {
			return fmt.Errorf("kube-apiserver has %s after the outage, and had %s", after, before)
		}
		return nil
	})
	t.Logf("kube-apiserver: before %s; signer dead, %d requests waiting: %s; after %s", before, strangers, during, after)
}

// firstToken is how long it takes until a token is issued.
func (s *apiServer) firstToken(t *testing.T, pod *corev1.Pod) time.Duration {
	t.Helper()
	began := time.Now()
	eventually(t, func() error {
		_, err := s.issue(t.Context(), pod)
		return err
	})
	return time.Since(began).Round(time.Millisecond)
}

// askAsStrangers sends requests at once, each with a key ID of its own in the header of a good token, and returns a
// function that waits for the answers.
func (s *apiServer) askAsStrangers(t *testing.T, token string) (answers func() string) {
	t.Helper()
	roots := x509.NewCertPool()
	roots.AddCert(s.cluster.ca.Cert)
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, ForceAttemptHTTP2: true}}
	_, rest, _ := strings.Cut(token, ".")
	var requests sync.WaitGroup
	var mu sync.Mutex
	counts := map[string]int{}
	for i := range strangers {
		requests.Go(func() {
			request, err := http.NewRequest(http.MethodGet, s.url+"/api", nil)
			if err != nil {
				t.Error(err)
				return
			}
			header := fmt.Sprintf(`{"alg":"ES256","kid":"unknown-%d","typ":"JWT"}`, i)
			request.Header.Set("Authorization", "Bearer "+base64.RawURLEncoding.EncodeToString([]byte(header))+"."+rest)
			answer := "no answer"
			if response, err := client.Do(request); err == nil {
				response.Body.Close()
				answer = response.Status
			}
			mu.Lock()
			defer mu.Unlock()
			counts[answer]++
		})
	}
	return func() string {
		requests.Wait()
		client.CloseIdleConnections()
		var all []string
		for _, answer := range slices.Sorted(maps.Keys(counts)) {
			all = append(all, fmt.Sprintf("%d times %s", counts[answer], answer))
		}
		if counts["200 OK"] != 0 {
			t.Errorf("a token with an unknown key ID is accepted")
		}
		return strings.Join(all, ", ")
	}
}

// A serverLoad is how much an API server has in memory.
type serverLoad struct{ goroutines, bytes int }

func (l serverLoad) String() string {
	return fmt.Sprintf("%d goroutines, %d MiB", l.goroutines, l.bytes>>20)
}

// load reads the load from the API server's metrics.
func (s *apiServer) load(t *testing.T) serverLoad {
	t.Helper()
	metrics := s.metrics(t)
	return serverLoad{metric(t, metrics, "go_goroutines"), metric(t, metrics, "process_resident_memory_bytes")}
}

// metrics returns the API server's metrics.
func (s *apiServer) metrics(t *testing.T) string {
	t.Helper()
	text, err := s.admin.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// metric returns the value of one metric, named with its labels.
func metric(t *testing.T, metrics, name string) int {
	t.Helper()
	for line := range strings.Lines(metrics) {
		value, ok := strings.CutPrefix(strings.TrimSpace(line), name+" ")
		if !ok {
			continue
		}
		number, err := strconv.ParseFloat(value, 64)
		if err != nil {
			t.Fatal(err)
		}
		return int(number)
	}
	t.Fatalf("no metric %s", name)
	return 0
}

// startActivated starts a signer that is given its socket (sd_listen_fds(3)), by this test in place of systemd:
// the socket stays when the signer has ended, and connections wait there for the next one.
func startActivated(t *testing.T) *signer {
	t.Helper()
	dir := signerFolder(t)
	key := filepath.Join(dir, "key.pem")
	writeKey(t, key, newECDSA(t, elliptic.P256()))
	s := newSigner(t, signerProgram(t), dir, map[string]any{"keyFile": key})
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: s.socket})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	if err := os.Chmod(s.socket, 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := listener.File()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	s.files, s.env = []*os.File{file}, []string{"LISTEN_FDS=1"}
	s.args = append([]string{"-c", `export LISTEN_PID=$$; exec "$0" "$@"`, s.path}, s.args...)
	s.path = "/bin/sh"
	s.begin(t)
	return s
}

// A gate stands between a signer and the socket of its TPM. A closed gate lets nothing through, and waits.
type gate struct {
	path string
	mu   sync.RWMutex // held for writing while the gate is closed
}

func newGate(t *testing.T, path, device string) *gate {
	t.Helper()
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	g := &gate{path: path}
	var connections sync.WaitGroup
	connections.Go(func() {
		for {
			from, err := listener.Accept()
			if err != nil {
				return
			}
			connections.Go(func() {
				defer from.Close()
				if err := g.pass(from, device); err != nil && !errors.Is(err, net.ErrClosed) {
					t.Logf("gate to the TPM: %v", err)
				}
			})
		}
	})
	t.Cleanup(func() {
		listener.Close()
		connections.Wait()
	})
	return g
}

// pass connects a client to the device, once the gate is open.
func (g *gate) pass(from net.Conn, device string) error {
	g.mu.RLock()
	defer g.mu.RUnlock()
	to, err := net.Dial("unix", device)
	if err != nil {
		return err
	}
	defer to.Close()
	go func() {
		_, _ = io.Copy(to, from)
		to.Close()
	}()
	_, err = io.Copy(from, to)
	return err
}

func (g *gate) close() { g.mu.Lock() }
func (g *gate) open()  { g.mu.Unlock() }
