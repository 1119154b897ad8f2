package boundtokens_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/nodeattest/nodeattest/kube/boundtokens"
	"github.com/nodeattest/nodeattest/refusal"
)

const decisions = "nodeattest_token_decisions_total"

func TestObserver(t *testing.T) {
	registry := prometheus.NewRegistry()
	web, err := boundtokens.NewObserver(registry, "http")
	if err != nil {
		t.Fatal(err)
	}
	calls, err := boundtokens.NewObserver(registry, "grpc")
	if err != nil {
		t.Fatal(err)
	}
	name := &refusal.Error{Check: "node-name", Got: "node-b", Want: "node-a"}
	web(nil, time.Millisecond)
	web(name, time.Millisecond)
	web(fmt.Errorf("wrapped: %w", name), 3*time.Second)
	web(refusal.Retry(&refusal.Error{Check: "stale-answer"}), time.Second)
	web(errors.New("no check"), 0)
	web(&refusal.Error{Check: "\xff"}, 0)
	calls(&refusal.Error{Check: "node-certificate"}, 0)
	want := `
# HELP nodeattest_token_decisions_total Decisions about calls with a token from an attested node, by check: accepted, retry, or the check that refused.
# TYPE nodeattest_token_decisions_total counter
nodeattest_token_decisions_total{check="accepted",protocol="grpc"} 0
nodeattest_token_decisions_total{check="accepted",protocol="http"} 1
nodeattest_token_decisions_total{check="node-certificate",protocol="grpc"} 1
nodeattest_token_decisions_total{check="node-name",protocol="http"} 2
nodeattest_token_decisions_total{check="other",protocol="http"} 2
nodeattest_token_decisions_total{check="retry",protocol="grpc"} 0
nodeattest_token_decisions_total{check="retry",protocol="http"} 1
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), decisions); err != nil {
		t.Error(err)
	}
	rows := scrape(registry)
	for _, row := range []string{
		`nodeattest_token_decision_seconds_count{protocol="http",result="accepted"} 1`,
		`nodeattest_token_decision_seconds_count{protocol="http",result="refused"} 4`,
		`nodeattest_token_decision_seconds_sum{protocol="http",result="refused"} 3.001`,
		`nodeattest_token_decision_seconds_count{protocol="http",result="retry"} 1`,
		`nodeattest_token_decision_seconds_count{protocol="grpc",result="refused"} 1`,
	} {
		if !strings.Contains(rows, row+"\n") {
			t.Errorf("no %s in\n%s", row, rows)
		}
	}
}

// However many checks there are, at most 128 and three more have a series.
func TestObserverBounded(t *testing.T) {
	registry := prometheus.NewRegistry()
	observe, err := boundtokens.NewObserver(registry, "http")
	if err != nil {
		t.Fatal(err)
	}
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			for n := range 500 {
				observe(&refusal.Error{Check: refusal.Check(fmt.Sprint("check-", n))}, 0)
			}
		})
	}
	group.Wait()
	rows := scrape(registry)
	if got := strings.Count(rows, "\n"+decisions+"{"); got != 128+3 {
		t.Errorf("%d series, want 131", got)
	}
	if other := decisions + `{check="other",protocol="http"} 1488`; !strings.Contains(rows, other+"\n") {
		t.Errorf("no %s", other)
	}
}

func TestNewObserverRefuses(t *testing.T) {
	registry := prometheus.NewRegistry()
	for name, row := range map[string]struct {
		r        prometheus.Registerer
		protocol string
	}{"no registerer": {nil, "http"}, "no protocol": {registry, ""}, "no UTF-8": {registry, "\xff"}} {
		if observe, err := boundtokens.NewObserver(row.r, row.protocol); observe != nil || !errors.Is(err, refusal.CheckConfig) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	if _, err := boundtokens.NewObserver(registry, "http"); err != nil {
		t.Fatal(err)
	}
	if observe, err := boundtokens.NewObserver(registry, "http"); observe != nil || !errors.As(err, new(prometheus.AlreadyRegisteredError)) {
		t.Errorf("twice: got %v", err)
	}
}

func ExampleNewObserver() {
	registry := prometheus.NewRegistry()
	observe, err := boundtokens.NewObserver(registry, "http")
	if err != nil {
		fmt.Println(err)
		return
	}
	// options := cluster.HandlerOptions(); options.Observe = observe
	observe(nil, 2*time.Millisecond)
	observe(&refusal.Error{Check: "node-name", Got: "a token of node node-a", Want: "node node-b"}, time.Millisecond)
	for row := range strings.Lines(scrape(registry)) {
		if strings.HasPrefix(row, decisions) {
			fmt.Print(row)
		}
	}
	// Output:
	// nodeattest_token_decisions_total{check="accepted",protocol="http"} 1
	// nodeattest_token_decisions_total{check="node-name",protocol="http"} 1
	// nodeattest_token_decisions_total{check="retry",protocol="http"} 0
}

// scrape returns the page of metrics.
func scrape(registry *prometheus.Registry) string {
	w := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	text, _ := io.ReadAll(w.Result().Body)
	return string(text)
}
