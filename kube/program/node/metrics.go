package node

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nodeattest/nodeattest/kube/authenticator"
	"github.com/nodeattest/nodeattest/kube/internal/httpserver"
)

const (
	// statusAge is how long one reading of the files serves all requests for the metrics.
	statusAge = time.Second
	// listenPause is the time between two tries to listen.
	listenPause = 30 * time.Second
)

// metricsServer serves the node's metrics to processes of this machine.
type metricsServer struct {
	address string
	status  func() *authenticator.Status
	log     *slog.Logger
	pause   time.Duration

	mu   sync.Mutex
	text []byte
	read time.Time
}

// run serves until ctx ends. The node's certificates do not depend on its metrics: where another process has
// taken the address, run logs it and tries again.
func (m *metricsServer) run(ctx context.Context) {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /metrics", m.serve)
	for {
		err := m.listen(ctx, mux)
		if ctx.Err() != nil {
			return
		}
		m.log.Error("the node's metrics are not served; it is tried again", "address", m.address, "after", m.pause.String(), "why", err.Error())
		select {
		case <-ctx.Done():
			return
		case <-time.After(m.pause):
		}
	}
}

func (m *metricsServer) listen(ctx context.Context, h http.Handler) error {
	l, err := httpserver.Local.ListenLocal(ctx, m.address)
	if err != nil {
		return err
	}
	s := httpserver.New(h, httpserver.Local, m.log.Handler())
	defer context.AfterFunc(ctx, func() { _ = s.Close() })() //goroutine: it runs net/http's code alone
	return errors.Join(s.Serve(l), ctx.Err())
}

func (m *metricsServer) serve(w http.ResponseWriter, _ *http.Request) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if now := time.Now(); m.text == nil || now.Sub(m.read).Abs() >= statusAge {
		var text metricsText
		writeMetrics(&text, m.status())
		m.text, m.read = text.Bytes(), now
	}
	w.Header().Set("Content-Type", metricsType)
	_, _ = w.Write(m.text)
}

// metricsText is the text format of Prometheus 0.0.4.
type metricsText struct{ bytes.Buffer }

// metricsType is the media type of the format.
const metricsType = "text/plain; version=0.0.4; charset=utf-8"

// head begins a metric.
func (m *metricsText) head(name, kind, help string) {
	fmt.Fprintf(m, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind)
}

// series writes one value. labels are names, each followed by its value.
func (m *metricsText) series(name string, value float64, labels ...string) {
	separator := "{"
	for i := 0; i+1 < len(labels); i += 2 {
		name, separator = fmt.Sprintf("%s%s%s=%q", name, separator, labels[i], label(labels[i+1])), ","
	}
	if separator == "," {
		name += "}"
	}
	fmt.Fprintf(m, "%s %s\n", name, strconv.FormatFloat(value, 'g', -1, 64))
}

// label returns a value that is a word of 1 to 64 ASCII letters and digits, and Other for everything else: the
// state file may be of an older program.
func label(text string) string {
	foreign := strings.IndexFunc(text, func(r rune) bool { return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') })
	if text == "" || len(text) > 64 || foreign >= 0 {
		return "Other"
	}
	return text
}

// writeMetrics writes the metrics of docs/monitoring.md. They hold no text of another program.
func writeMetrics(to *metricsText, s *authenticator.Status) {
	each := func(name, kind, help string, series func(name string, c *authenticator.CertificateStatus)) {
		to.head(name, kind, help)
		for i := range s.Certificates {
			series(name, &s.Certificates[i])
		}
	}
	each("nodeattest_node_certificate_not_after_seconds", "gauge", "When the stored certificate ends, in seconds since 1970, by purpose; 0 without a certificate.",
		func(name string, c *authenticator.CertificateStatus) {
			to.series(name, unixSeconds(c.NotAfter), "purpose", c.Purpose)
		})
	each("nodeattest_node_certificate_renew_seconds", "gauge", "When the renewal of the stored certificate is due, in seconds since 1970, by purpose; 0 without a certificate, or if it is not renewed.",
		func(name string, c *authenticator.CertificateStatus) {
			to.series(name, unixSeconds(c.Renew), "purpose", c.Purpose)
		})
	each("nodeattest_node_attempts_total", "counter", "Attempts to get a certificate that have ended, by purpose and result: obtained, denied, failed.",
		func(name string, c *authenticator.CertificateStatus) {
			to.series(name, float64(c.Obtained), "purpose", c.Purpose, "result", "obtained")
			to.series(name, float64(c.Denied), "purpose", c.Purpose, "result", "denied")
			to.series(name, float64(c.Failed), "purpose", c.Purpose, "result", "failed")
		})
	each("nodeattest_node_last_attempt_seconds", "gauge", "When the last attempt began, in seconds since 1970, by purpose and its result: obtained, denied, failed, unfinished.",
		func(name string, c *authenticator.CertificateStatus) {
			if c.LastResult != "" {
				to.series(name, unixSeconds(c.LastAttempt), "purpose", c.Purpose, "result", c.LastResult)
			}
		})
	each("nodeattest_node_failures", "gauge", "Attempts since the last certificate that failed or were denied, by purpose and the reason of the last one.",
		func(name string, c *authenticator.CertificateStatus) {
			if c.Failures > 0 {
				to.series(name, float64(c.Failures), "purpose", c.Purpose, "reason", c.LastReason)
			}
		})
	const problems = "nodeattest_node_problems"
	to.head(problems, "gauge", "Problems that need an administrator: kubelet-authenticator status has their texts.")
	to.series(problems, float64(len(s.Problems)))
}

func unixSeconds(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return float64(t.Unix())
}
