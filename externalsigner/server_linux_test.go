package externalsigner

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	externaljwt "k8s.io/externaljwt/apis/v1"

	"github.com/nodeattest/nodeattest/claims/extsigner"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/jws"
	"github.com/nodeattest/nodeattest/refusal"
)

// TestServe makes the three calls, which package extsigner decides about.
func TestServe(t *testing.T) {
	s := serve(t, ServerConfig{AllowedUIDs: []uint32{uint32(os.Getuid())}}, nil)
	c := s.client(t)
	m := testkit.Must(c.Metadata(t.Context(), &externaljwt.MetadataRequest{}))
	if m.MaxTokenExpirationSeconds != 3607 {
		t.Errorf("got %d s", m.MaxTokenExpirationSeconds)
	}
	keys := testkit.Must(c.FetchKeys(t.Context(), &externaljwt.FetchKeysRequest{}))
	if len(keys.Keys) != 1 || keys.RefreshHintSeconds != 60 ||
		time.Since(keys.DataTimestamp.AsTime()) > time.Minute || keys.Keys[0].ExcludeFromOidcDiscovery {
		t.Fatalf("got %v", keys)
	}
	segment := claimsOf(issuer)
	signed := testkit.Must(c.Sign(t.Context(), &externaljwt.SignJWTRequest{Claims: segment}))
	token := testkit.Must(jws.Parse(signed.Header + "." + segment + "." + signed.Signature))
	if token.KeyID() != keys.Keys[0].KeyId || token.Type() != jws.TypeJWT {
		t.Errorf("kid %s, want %s", token.KeyID(), keys.Keys[0].KeyId)
	}
	testkit.NoError(t, s.Ready(t.Context()))

	foreign := &externaljwt.SignJWTRequest{Claims: claimsOf("https://other.example")}
	if _, err := c.Sign(t.Context(), foreign); status.Code(err) != codes.InvalidArgument ||
		!strings.Contains(err.Error(), string(extsigner.CheckSignerClaims)) || !strings.Contains(err.Error(), "https://other.example") {
		t.Errorf("another issuer: %v", err)
	}
	want(t, "log", s.log.String(), `msg="call failed" method=Sign code=InvalidArgument`)
	s.wantMetrics(t, `calls_total{method="Sign",code="OK"} 1`, `calls_total{method="Sign",code="InvalidArgument"} 1`,
		`calls_total{method="FetchKeys",code="OK"} 1`, `call_seconds_count{method="Sign"} 2`,
		`call_seconds_bucket{method="Sign",le="+Inf"} 2`, "_connections 1\n")

	s.end()
	if _, err := os.Lstat(s.path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket is still there: %v", err)
	}
	if s.Ready(t.Context()) == nil {
		t.Error("ready after its end")
	}
	if err := s.Serve(t.Context(), nil); !errors.Is(err, refusal.CheckConfig) {
		t.Errorf("a second Serve: %v", err)
	}
}

func TestNewServerRefuses(t *testing.T) {
	good := ServerConfig{Service: newService(nil), Log: slog.New(slog.DiscardHandler)}
	testkit.Must(NewServer(good))
	for name, change := range map[string]func(c *ServerConfig){
		"no Service":         func(c *ServerConfig) { c.Service = nil },
		"no Log":             func(c *ServerConfig) { c.Log = nil },
		"the overflow user":  func(c *ServerConfig) { c.AllowedUIDs = []uint32{0, 65534} },
		"no user":            func(c *ServerConfig) { c.AllowedUIDs = []uint32{math.MaxUint32} },
		"17 users":           func(c *ServerConfig) { c.AllowedUIDs = make([]uint32, 17) },
		"calls below 0":      func(c *ServerConfig) { c.MaxWaitingCalls = -1 },
		"4097 calls":         func(c *ServerConfig) { c.MaxWaitingCalls = 4097 },
		"a time below 0":     func(c *ServerConfig) { c.CallTimeout = -1 },
		"more than a minute": func(c *ServerConfig) { c.CallTimeout = time.Minute + 1 },
	} {
		t.Run(name, func(t *testing.T) {
			config := good
			change(&config)
			if _, err := NewServer(config); !errors.Is(err, refusal.CheckConfig) {
				t.Errorf("got %v", err)
			}
		})
	}
	config := good
	config.AllowedUIDs, config.MaxWaitingCalls, config.CallTimeout = make([]uint32, 16), 4096, time.Minute
	testkit.Must(NewServer(config))
}

// TestWaiting: while as many calls wait as may, the next one fails at once, and keys are still to be had.
func TestWaiting(t *testing.T) {
	release := make(chan struct{})
	signer := signerFunc(func(ctx context.Context, _ []byte) (*jws.Signature, error) {
		select {
		case <-release:
		case <-ctx.Done():
		}
		return nil, refusal.Retry(errors.New("/dev/tpmrm0: not now"))
	})
	s := serve(t, ServerConfig{Service: newService(signer), CallTimeout: time.Minute}, nil)
	c, segment := s.client(t), claimsOf(issuer)
	failed := make([]error, defaultWaiting)
	var calls sync.WaitGroup
	for i := range failed {
		calls.Go(func() {
			_, failed[i] = c.Sign(t.Context(), &externaljwt.SignJWTRequest{Claims: segment})
		})
	}
	eventually(t, "64 calls wait", func() bool { return s.metrics.waiting.Load() == defaultWaiting })
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for range 100 { // which are not kept in the client, either
		_, err := c.Sign(ctx, &externaljwt.SignJWTRequest{Claims: segment})
		if status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "64 calls") {
			t.Fatalf("the 65th call: %v", err)
		}
	}
	testkit.Must(c.FetchKeys(t.Context(), &externaljwt.FetchKeysRequest{}))
	want(t, "log", s.log.String(), `msg="call failed" method=Sign code=ResourceExhausted`)
	s.wantMetrics(t, `calls_total{method="Sign",code="ResourceExhausted"} 100`, "waiting_calls 64\n")
	if n := strings.Count(s.log.String(), "ResourceExhausted"); n > 2*logBurst {
		t.Errorf("%d lines", n)
	}
	close(release)
	calls.Wait()
	for _, err := range failed {
		if status.Code(err) != codes.Unavailable || strings.Contains(err.Error(), "tpmrm0") {
			t.Errorf("a key that fails: %v", err)
		}
	}
	want(t, "log", s.log.String(), "/dev/tpmrm0: not now")
}

// TestTimeout: a call ends in time, with a signer that hangs as with a request that never arrives.
func TestTimeout(t *testing.T) {
	signer := signerFunc(func(ctx context.Context, _ []byte) (*jws.Signature, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	})
	s := serve(t, ServerConfig{Service: newService(signer), CallTimeout: 300 * time.Millisecond}, nil)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	began := time.Now()
	if _, err := s.client(t).Sign(ctx, &externaljwt.SignJWTRequest{Claims: claimsOf(issuer)}); status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("got %v", err)
	}
	streams := &grpc.StreamDesc{ClientStreams: true}
	stream := testkit.Must(dial(t, s.path).NewStream(ctx, streams, externaljwt.ExternalJWTSigner_Sign_FullMethodName))
	if err := stream.RecvMsg(new(externaljwt.SignJWTResponse)); status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("a call without a request: %v", err)
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("took %s", took)
	}
	s.wantMetrics(t, `calls_total{method="Sign",code="DeadlineExceeded"} 2`)
}

// TestSizes: what is larger than kube-apiserver's largest request is refused before it is read whole.
func TestSizes(t *testing.T) {
	c := serve(t, ServerConfig{}, nil).client(t)
	for size, code := range map[int]codes.Code{
		maxMessage - 4: codes.InvalidArgument, maxMessage + 1: codes.ResourceExhausted, 3 << 20: codes.ResourceExhausted,
	} {
		if _, err := c.Sign(t.Context(), &externaljwt.SignJWTRequest{Claims: strings.Repeat("a", size)}); status.Code(err) != code {
			t.Errorf("%d bytes: %v, want %s", size, err, code)
		}
	}
	ctx := metadata.AppendToOutgoingContext(t.Context(), "a", strings.Repeat("a", maxHeaders))
	if _, err := c.Metadata(ctx, &externaljwt.MetadataRequest{}); err == nil {
		t.Error("headers of more than 8 KiB are taken")
	}
	testkit.Must(c.Metadata(t.Context(), &externaljwt.MetadataRequest{}))
	other := status.Code(dial(t, "/nowhere").Invoke(t.Context(), "/x/y", &externaljwt.MetadataRequest{}, &externaljwt.MetadataResponse{}))
	if other != codes.Unavailable {
		t.Errorf("no server: %s", other)
	}
}

// TestStatusOf: the code says what is wrong, and the text nothing about keys.
func TestStatusOf(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	const secret = "/etc/keys/of/the/cluster"
	for name, row := range map[string]struct {
		ctx  context.Context
		err  error
		code codes.Code
	}{
		"claims":        {t.Context(), extsigner.CheckSignerClaims.Refuse("a", "b"), codes.InvalidArgument},
		"a key":         {t.Context(), refusal.Retry(errors.New(secret)), codes.Unavailable},
		"a bad key":     {t.Context(), errors.New(secret), codes.Internal},
		"the client":    {ended, extsigner.CheckSignerClaims.Refuse("a", "b"), codes.Canceled},
		"configuration": {t.Context(), refusal.Config("x", secret, "y"), codes.Internal},
	} {
		t.Run(name, func(t *testing.T) {
			if got := statusOf(row.ctx, row.err); got.Code() != row.code || strings.Contains(got.Message(), secret) {
				t.Errorf("got %v, want %s", got, row.code)
			}
		})
	}
}

// TestPanic: a signer that panics fails one call.
func TestPanic(t *testing.T) {
	signer := signerFunc(func(context.Context, []byte) (*jws.Signature, error) { panic("no session") })
	s := serve(t, ServerConfig{Service: newService(signer)}, nil)
	c := s.client(t)
	for range 2 {
		if _, err := c.Sign(t.Context(), &externaljwt.SignJWTRequest{Claims: claimsOf(issuer)}); status.Code(err) != codes.Internal {
			t.Errorf("got %v", err)
		}
	}
	want(t, "log", s.log.String(), "no session")
}

// TestEnd: calls in progress get their reply when the server ends, and one that hangs is not waited for.
func TestEnd(t *testing.T) {
	entered := make(chan struct{}, 1)
	signer := signerFunc(func(ctx context.Context, payload []byte) (*jws.Signature, error) {
		entered <- struct{}{}
		time.Sleep(200 * time.Millisecond)
		return nil, refusal.Retry(errors.New("later"))
	})
	s := serve(t, ServerConfig{Service: newService(signer)}, nil)
	c, failed := s.client(t), make(chan error, 1)
	go func() {
		_, err := c.Sign(context.Background(), &externaljwt.SignJWTRequest{Claims: claimsOf(issuer)})
		failed <- err
	}()
	<-entered
	began := time.Now()
	s.end()
	if err := <-failed; status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "logged the reason") {
		t.Errorf("the call in progress: %v", err)
	}
	if took := time.Since(began); took > 3*time.Second {
		t.Errorf("the end took %s", took)
	}
}

// TestLimitedLog: a flood of lines becomes a few, which say how many there were.
func TestLimitedLog(t *testing.T) {
	var to testkit.Log
	l, now := newLimitedLog(slog.New(slog.NewTextHandler(&to, nil))), time.Unix(1700000000, 0)
	l.now = func() time.Time { return now }
	for i := range 1000 {
		l.warn("a", "refused", "i", i)
	}
	if n := strings.Count(to.String(), "refused"); n != logBurst {
		t.Errorf("%d lines at once", n)
	}
	now = now.Add(logInterval)
	l.warn("a", "refused", "i", "next")
	l.warn("a", "refused", "i", "lost")
	want(t, "log", to.String(), "i=next dropped=990\n")
	now = now.Add(time.Hour)
	for range 1000 {
		l.warn("a", "refused")
	}
	if n := strings.Count(to.String(), "refused"); n != 2*logBurst+1 {
		t.Errorf("%d lines after an hour", n)
	}
	for i := range 10 * logKeys { // as many users as there may be
		for range 3 {
			l.warn(refusedKey{userNotAllowed, uint32(i)}, "other")
		}
	}
	if n := strings.Count(to.String(), "other"); n > 3*logKeys+logBurst || len(l.keys) > logKeys+1 {
		t.Errorf("%d lines, %d keys", n, len(l.keys))
	}
	l.warn(failedKey{"Sign", codes.Internal}, "a call failed") // which they do not keep from the log
	l.warn(refusedKey{tooManyConnections, 0}, "root refused")
	want(t, "log", to.String(), "a call failed", "root refused")
}

func ExampleServer_WriteMetrics() {
	s := testkit.Must(NewServer(ServerConfig{Service: newService(nil), Log: slog.New(slog.DiscardHandler)}))
	s.metrics.ended("Sign", codes.OK, 0.002)
	s.metrics.refuse(userNotAllowed)
	var text strings.Builder
	testkit.MustDo(s.WriteMetrics(&text))
	for line := range strings.Lines(text.String()) {
		if !strings.Contains(line, "_bucket") && !strings.HasPrefix(line, "#") {
			fmt.Print(line)
		}
	}
	// Output:
	// nodeattest_external_signer_calls_total{method="Sign",code="OK"} 1
	// nodeattest_external_signer_call_seconds_sum{method="Sign"} 0.002
	// nodeattest_external_signer_call_seconds_count{method="Sign"} 1
	// nodeattest_external_signer_waiting_calls 0
	// nodeattest_external_signer_connections 0
	// nodeattest_external_signer_refused_clients_total{reason="socket refused"} 0
	// nodeattest_external_signer_refused_clients_total{reason="too many connections"} 0
	// nodeattest_external_signer_refused_clients_total{reason="unknown user"} 0
	// nodeattest_external_signer_refused_clients_total{reason="user not allowed"} 1
}
