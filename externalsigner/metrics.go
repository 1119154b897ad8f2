package externalsigner

import (
	"cmp"
	"context"
	"io"
	"maps"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"
	externaljwt "k8s.io/externaljwt/apis/v1"

	"github.com/nodeattest/nodeattest/externalsigner/internal/promtext"
)

// bounds are the upper bounds of a call's duration in seconds, of the buckets of the histogram.
var bounds = []float64{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10}

// metrics count what clients do. Their labels have few values, whatever clients send.
type metrics struct {
	connections atomic.Int64
	waiting     atomic.Int64

	mu      sync.Mutex
	refused map[string]uint64
	calls   map[call]uint64
	took    map[string]*histogram // by method
}

// call is a kind of call.
type call struct{ method, code string }

// histogram counts durations.
type histogram struct {
	buckets []uint64 // of bounds, each without those of the buckets before
	count   uint64
	sum     float64
}

func newMetrics() *metrics {
	m := &metrics{refused: map[string]uint64{}, calls: map[call]uint64{}, took: map[string]*histogram{}}
	for _, reason := range []string{unknownUser, userNotAllowed, socketRefused, tooManyConnections} {
		m.refused[reason] = 0 // so that the first refusal is an increase
	}
	return m
}

func (m *metrics) refuse(reason string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.refused[reason]++
}

func (m *metrics) ended(method string, code codes.Code, seconds float64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.calls[call{method, code.String()}]++
	h := m.took[method]
	if h == nil {
		h = &histogram{buckets: make([]uint64, len(bounds))}
		m.took[method] = h
	}
	h.count++
	h.sum += seconds
	if i, _ := slices.BinarySearch(bounds, seconds); i < len(bounds) {
		h.buckets[i]++
	}
}

// methods are the names of the methods, by their paths.
var methods = map[string]string{
	externaljwt.ExternalJWTSigner_Sign_FullMethodName:      "Sign",
	externaljwt.ExternalJWTSigner_FetchKeys_FullMethodName: "FetchKeys",
	externaljwt.ExternalJWTSigner_Metadata_FullMethodName:  "Metadata",
}

type methodKey struct{}

// TagRPC notes the method of a call; [metrics.HandleRPC] counts it.
func (m *metrics) TagRPC(ctx context.Context, info *stats.RPCTagInfo) context.Context {
	return context.WithValue(ctx, methodKey{}, cmp.Or(methods[info.FullMethodName], "other"))
}

// HandleRPC counts a call that has ended, whether or not its message arrived.
func (m *metrics) HandleRPC(ctx context.Context, s stats.RPCStats) {
	if end, ok := s.(*stats.End); ok {
		method, _ := ctx.Value(methodKey{}).(string)
		m.ended(method, status.Code(end.Error), end.EndTime.Sub(end.BeginTime).Seconds())
	}
}

// TagConn and HandleConn have nothing to count: the listener counts connections.
func (m *metrics) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

// HandleConn counts nothing.
func (m *metrics) HandleConn(context.Context, stats.ConnStats) {}

// WriteMetrics writes the server's metrics in the text format of Prometheus: calls by method and code, how
// long they took, calls that wait, connections, and refused clients by reason. docs/programs.md has a
// table. The error is the writer's.
func (s *Server) WriteMetrics(w io.Writer) error {
	if s == nil || s.log == nil {
		return errServer
	}
	m, out := s.metrics, promtext.Writer{W: w}
	m.mu.Lock()
	defer m.mu.Unlock()

	name := "nodeattest_external_signer_calls_total"
	out.Head(name, promtext.Counter, "Calls that have ended, by method and gRPC code.")
	for _, c := range slices.SortedFunc(maps.Keys(m.calls), func(a, b call) int {
		return cmp.Or(cmp.Compare(a.method, b.method), cmp.Compare(a.code, b.code))
	}) {
		out.Series(name, float64(m.calls[c]), "method", c.method, "code", c.code)
	}

	name = "nodeattest_external_signer_call_seconds"
	out.Head(name, promtext.Histogram, "How long calls took, by method.")
	for _, method := range slices.Sorted(maps.Keys(m.took)) {
		h, sum := m.took[method], uint64(0)
		for i, n := range h.buckets {
			sum += n
			out.Series(name+"_bucket", float64(sum), "method", method, "le", strconv.FormatFloat(bounds[i], 'g', -1, 64))
		}
		out.Series(name+"_bucket", float64(h.count), "method", method, "le", "+Inf")
		out.Series(name+"_sum", h.sum, "method", method)
		out.Series(name+"_count", float64(h.count), "method", method)
	}

	name = "nodeattest_external_signer_waiting_calls"
	out.Head(name, promtext.Gauge, "Calls of Sign that wait for a signature.")
	out.Series(name, float64(m.waiting.Load()))

	name = "nodeattest_external_signer_connections"
	out.Head(name, promtext.Gauge, "Open connections of clients.")
	out.Series(name, float64(m.connections.Load()))

	name = "nodeattest_external_signer_refused_clients_total"
	out.Head(name, promtext.Counter, "Clients whose connection was closed, by reason.")
	for _, reason := range slices.Sorted(maps.Keys(m.refused)) {
		out.Series(name, float64(m.refused[reason]), "reason", reason)
	}
	return out.Err
}
