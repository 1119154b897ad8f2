package node

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/kube/authenticator"
)

// scrape reads the metrics over a socket.
func scrape(ctx context.Context, path string) (string, error) {
	over := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://node/metrics", nil)
	if err != nil {
		return "", err
	}
	response, err := over.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	return string(text), err
}

// TestMetrics: the daemon's metrics hold numbers and words of the program's own, over a socket that waits for
// its turn where another process listens.
func TestMetrics(t *testing.T) {
	folder := t.TempDir()
	path := filepath.Join(folder, "metrics.sock")
	other := testkit.Must(net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"}))
	logged, calls := new(testkit.Log), 0
	s := &authenticator.Status{Problems: []string{"a secret"}, Certificates: []authenticator.CertificateStatus{
		{Purpose: "client", Subject: "a secret", NotAfter: time.Unix(2e9, 0), Renew: time.Unix(1.9e9, 0), LastAttempt: time.Unix(1.8e9, 0), LastResult: "obtained", Obtained: 3, Denied: 2, Failed: 1},
		{Purpose: "serving", LastAttempt: time.Unix(1.7e9, 0), LastResult: "denied", LastReason: "NotAMember", LastError: "a secret", Failures: 4, Denied: 4},
		{Purpose: "recovery", Failures: 1, LastReason: "a secret\n", LastResult: "a secret"},
	}}
	m := &metricsServer{address: "unix:" + path, log: slog.New(slog.NewTextHandler(logged, nil)), pause: 10 * time.Millisecond,
		status: func() *authenticator.Status { calls++; return s }}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); m.run(ctx) }()
	for !strings.Contains(logged.String(), "the node's metrics are not served") {
		time.Sleep(time.Millisecond)
	}
	_ = other.Close()
	text, err := "", fmt.Errorf("not asked")
	for began := time.Now(); err != nil && time.Since(began) < 10*time.Second; time.Sleep(5 * time.Millisecond) {
		text, err = scrape(ctx, path)
	}
	testkit.MustDo(err)
	if again := testkit.Must(scrape(ctx, path)); again != text || calls != 1 {
		t.Errorf("read %d times for two requests", calls)
	}
	for _, row := range []string{
		`nodeattest_node_certificate_not_after_seconds{purpose="client"} 2e+09`, `nodeattest_node_certificate_not_after_seconds{purpose="serving"} 0`,
		`nodeattest_node_certificate_renew_seconds{purpose="client"} 1.9e+09`, `nodeattest_node_attempts_total{purpose="client",result="obtained"} 3`,
		`nodeattest_node_attempts_total{purpose="client",result="denied"} 2`, `nodeattest_node_attempts_total{purpose="client",result="failed"} 1`,
		`nodeattest_node_last_attempt_seconds{purpose="client",result="obtained"} 1.8e+09`, `nodeattest_node_failures{purpose="serving",reason="NotAMember"} 4`,
		`nodeattest_node_failures{purpose="recovery",reason="Other"} 1`, `nodeattest_node_last_attempt_seconds{purpose="recovery",result="Other"} 0`, "nodeattest_node_problems 1",
	} {
		if !strings.Contains(text, row+"\n") {
			t.Errorf("no %s in\n%s", row, text)
		}
	}
	if strings.Contains(text, "secret") || strings.Contains(text, `failures{purpose="client"`) {
		t.Errorf("foreign text, or failures of a certificate that has none:\n%s", text)
	}
	stop()
	<-done
	if _, err := os.Lstat(path); err == nil {
		t.Error("the socket stays")
	}
}

func TestMetricsLabel(t *testing.T) {
	for text, want := range map[string]string{
		"": "Other", "NotAMember": "NotAMember", "A1": "A1", "a b": "Other", "a-b": "Other", "a\n": "Other", "\u00e9": "Other", "a\xff": "Other",
		strings.Repeat("a", 64): strings.Repeat("a", 64), strings.Repeat("a", 65): "Other",
	} {
		if got := label(text); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}

// TestMetricsAddress: the daemon does not start with an address that other machines reach.
func TestMetricsAddress(t *testing.T) {
	dir := testkit.Must(filepath.EvalSymlinks(t.TempDir()))
	config := filepath.Join(dir, "kubelet-authenticator.yaml")
	write := func(address string) {
		text := strings.Replace(read(t, "kubelet-authenticator.yaml"), `metrics: ""`, `metrics: "`+address+`"`, 1)
		testkit.MustDo(os.WriteFile(config, []byte(strings.Replace(text, "/var/lib/kubelet-authenticator", dir+"/state", 1)), 0o600))
	}
	for _, address := range []string{"0.0.0.0:9105", "node-1:9105", ":9105", "unix:metrics.sock", "unix:" + dir + "/metrics.sock"} {
		write(address)
		if address[0] == 'u' && len(address) > 20 {
			testkit.MustDo(os.Chmod(dir, 0o755)) //nolint:gosec // the mode that is refused
		}
		var stderr strings.Builder
		if status := Main([]string{"--config", config, "daemon"}, io.Discard, &stderr); status != 1 || !strings.Contains(stderr.String(), config) || !strings.Contains(stderr.String(), "metrics") {
			t.Errorf("%s: status %d, %s", address, status, stderr.String())
		}
	}
}
