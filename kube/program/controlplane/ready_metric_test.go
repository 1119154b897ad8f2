package controlplane

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/nodeattest/nodeattest/internal/testkit"
)

// TestReadyMetric: the metric says of each check whether it passes now.
func TestReadyMetric(t *testing.T) {
	p, failing := newProbed(nil), errors.New("stale")
	testkit.MustDo(p.AddReadyzCheck("caches", func(r *http.Request) error { return r.Context().Err() }))
	testkit.MustDo(p.AddReadyzCheck("key-ring", func(*http.Request) error { return failing }))
	const head = "# HELP nodeattest_ready Whether a readiness check passes, by check: 1 or 0. The log says why one does not.\n# TYPE nodeattest_ready gauge\n" +
		`nodeattest_ready{check="caches"} 1` + "\n"
	for value, err := range map[string]error{"0": failing, "1": nil} {
		failing = err
		if err := testutil.CollectAndCompare(newReadiness(p), strings.NewReader(head+`nodeattest_ready{check="key-ring"} `+value+"\n")); err != nil {
			t.Error(err)
		}
	}
}
