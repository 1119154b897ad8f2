package boundtokens_test

import (
	"errors"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/kube/boundtokens"
	"github.com/nodeattest/nodeattest/refusal"
)

// TestNoAnswer: whatever is no answer of an API server decides nothing. No request is repeated.
func TestNoAnswer(t *testing.T) {
	for name, answer := range map[string]http.HandlerFunc{
		"too many requests": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Retry-After", "60")
			status(http.StatusTooManyRequests, "TooManyRequests")(w, r)
		},
		"forbidden":                     status(403, "Forbidden"),
		"unauthorized":                  status(401, "Unauthorized"),
		"down":                          status(503, "ServiceUnavailable"),
		"not found, by a proxy":         send(404, "404 page not found"),
		"not found, without a reason":   status(404, ""),
		"not found, of another code":    send(404, `{"kind":"Status","reason":"NotFound","code":403}`),
		"too large":                     send(200, `{"kind":"`+strings.Repeat("x", 4<<20)+`"}`),
		"an error that is too large":    send(500, strings.Repeat("x", 5<<20)),
		"no JSON":                       send(200, "<html>"),
		"nothing":                       send(200, ""),
		"a list":                        send(200, `{"kind":"NodeList","metadata":{}}`),
		"a connection that breaks off":  func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"an answer that ends too early": func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Content-Length", "9") },
	} {
		t.Run(name, func(t *testing.T) {
			api, cluster := newCluster(t, boundtokens.Options{})
			for _, path := range []string{recordPath, nodePath, reviewPath} {
				api.set(path, answer)
			}
			for _, err := range ask(t, cluster) {
				wantError(t, err, refusal.ErrRetry)
			}
			if len(api.asked) != 4 {
				t.Errorf("asked %q", api.asked)
			}
		})
	}
}

// ask asks each question once.
func ask(t *testing.T, cluster *boundtokens.Cluster) []error {
	t.Helper()
	_, record := cluster.FindRecord(t.Context(), "node-a", credential)
	_, machine := cluster.FindMachine(t.Context(), "node-a")
	_, object := cluster.Get(t.Context(), "nodes", "", "node-a")
	_, review := cluster.Review(t.Context(), "the.to.ken", []string{"a"})
	return []error{record, machine, object, review}
}

// TestHangingServer: a server that accepts connections and says nothing, or stops in the middle of an
// answer, is given up after Timeout.
func TestHangingServer(t *testing.T) {
	listener := testkit.Must(net.Listen("tcp", "127.0.0.1:0"))
	t.Cleanup(func() { _ = listener.Close() })
	const limit = 50 * time.Millisecond
	silent := testkit.Must(boundtokens.New(&rest.Config{Host: "https://" + listener.Addr().String()}, boundtokens.Options{Timeout: limit}))
	api, stops := newCluster(t, boundtokens.Options{Timeout: limit})
	end := make(chan struct{})
	t.Cleanup(func() { close(end) })
	for _, path := range []string{recordPath, nodePath, reviewPath} {
		api.set(path, func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte("{"))
			_ = http.NewResponseController(w).Flush()
			<-end
		})
	}
	for name, cluster := range map[string]*boundtokens.Cluster{"silent": silent, "stops": stops} {
		began := time.Now()
		for _, err := range ask(t, cluster) {
			wantError(t, err, refusal.ErrRetry)
		}
		if took := time.Since(began); took < 4*limit || took > 4*limit+3*time.Second {
			t.Errorf("%s: 4 requests took %s, want at least %s", name, took, 4*limit)
		}
	}
}

// TestServerGone: no API server, or one of another CA, decides nothing.
func TestServerGone(t *testing.T) {
	api, cluster := newCluster(t, boundtokens.Options{})
	config := api.config()
	config.CAData = nil
	other := testkit.Must(boundtokens.New(config, boundtokens.Options{}))
	for _, err := range ask(t, other) {
		wantError(t, err, refusal.ErrRetry)
	}
	if api.asked != nil {
		t.Errorf("asked %q", api.asked)
	}
	api.Close()
	for _, err := range ask(t, cluster) {
		wantError(t, err, refusal.ErrRetry)
	}
}

func TestNew(t *testing.T) {
	for name, tt := range map[string]struct {
		config *rest.Config
		opts   boundtokens.Options
	}{
		"no config":          {nil, boundtokens.Options{}},
		"not verified":       {&rest.Config{Host: "https://127.0.0.1", TLSClientConfig: rest.TLSClientConfig{Insecure: true}}, boundtokens.Options{}},
		"without TLS":        {&rest.Config{Host: "http://127.0.0.1"}, boundtokens.Options{}},
		"no URL":             {&rest.Config{Host: "https://127.0.0.1:x"}, boundtokens.Options{}},
		"a password":         {&rest.Config{Host: "https://a:b@127.0.0.1"}, boundtokens.Options{}},
		"no CA":              {&rest.Config{Host: "https://127.0.0.1", TLSClientConfig: rest.TLSClientConfig{CAData: []byte("x")}}, boundtokens.Options{}},
		"a negative Timeout": {&rest.Config{Host: "https://127.0.0.1"}, boundtokens.Options{Timeout: -1}},
	} {
		t.Run(name, func(t *testing.T) {
			cluster, err := boundtokens.New(tt.config, tt.opts)
			if cluster != nil || !errors.Is(err, refusal.CheckConfig) || strings.Contains(err.Error(), "a:b") {
				t.Errorf("got %v, %v", cluster, err)
			}
		})
	}
	// A client that is shared by others is left as it is.
	testkit.Must(boundtokens.New(&rest.Config{Host: "127.0.0.1:6443"}, boundtokens.Options{}))
	if http.DefaultClient.Timeout != 0 || http.DefaultClient.CheckRedirect != nil {
		t.Error("New has changed http.DefaultClient")
	}
}

// TestZeroCluster: a Cluster that New did not make finds nothing.
func TestZeroCluster(t *testing.T) {
	for _, cluster := range []*boundtokens.Cluster{nil, {}} {
		for _, err := range ask(t, cluster) {
			if !errors.Is(err, refusal.CheckConfig) {
				t.Errorf("got %v", err)
			}
		}
	}
}
