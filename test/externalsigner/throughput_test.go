package externalsigner

import (
	"context"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	externaljwt "k8s.io/externaljwt/apis/v1"

	"github.com/nodeattest/nodeattest/attest/tpm/tpmkey"
	"github.com/nodeattest/nodeattest/test/controlplane"
)

const (
	// callers call at the same time, in turns of turnLength.
	callers    = 4
	turnLength = 300 * time.Millisecond
)

// turns is how often each way is measured: 21 times with NODEATTEST_LONG=1.
func turns() int {
	if os.Getenv("NODEATTEST_LONG") == "1" {
		return 21
	}
	return 3
}

// A rate is one way to have tokens signed, and how many a second it signed in each turn.
type rate struct {
	name string
	sign func(ctx context.Context) error
	got  []float64
}

func (r *rate) median() float64 {
	slices.Sort(r.got)
	return r.got[len(r.got)/2]
}

// TestTokensPerSecond measures TokenRequests at kube-apiserver with its own signer and with external-jwt-signer, and
// calls of Sign without kube-apiserver, by the kind of key. All take turns. docs/benchmarks.md has its figures.
func TestTokensPerSecond(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ofRSA := newRSA(t)
	usual := startCluster(t, "")
	servers := map[string]*apiServer{
		"ES256": usual,
		"RS256": usual.cluster.startServer(t, "", "--service-account-key-file="+rsaFile(t, dir, ofRSA),
			"--service-account-signing-key-file="+filepath.Join(dir, "rsa.pem")),
	}
	pod := usual.makePod(t)
	builtIn := map[string]*rate{}
	var all []*rate
	add := func(name string, sign func(context.Context) error) *rate {
		r := &rate{name: name, sign: sign}
		all = append(all, r)
		return r
	}
	for _, algorithm := range slices.Sorted(maps.Keys(servers)) {
		servers[algorithm].token(t, pod)
		builtIn[algorithm] = add("built in, "+algorithm, servers[algorithm].request(pod))
	}
	type kind struct {
		name, algorithm string
		through, alone  *rate
	}
	var kinds []*kind
	for _, k := range []*kind{
		{name: "file, ES256", algorithm: "ES256"}, {name: "file, RS256", algorithm: "RS256"}, {name: "TPM (swtpm), ES256", algorithm: "ES256"},
	} {
		s := startKind(t, k.name)
		server := usual.cluster.startServer(t, s.socket)
		k.through = add(k.name+" through kube-apiserver", server.request(pod))
		k.alone = add(k.name+" alone", s.request(t, server.token(t, pod)))
		kinds = append(kinds, k)
	}
	for range turns() {
		for _, r := range all {
			r.got = append(r.got, r.turn(t))
		}
	}
	t.Logf("%s; %d turns of %s with %d callers", cpuName(t), turns(), turnLength, callers)
	for _, r := range all {
		t.Logf("%-42s %6.0f tokens a second", r.name, r.median())
	}
	for _, k := range kinds {
		t.Logf("%-20s %5.2f × kube-apiserver's own signer with %s; without kube-apiserver %5.2f × that", k.name,
			k.through.median()/builtIn[k.algorithm].median(), k.algorithm, k.alone.median()/k.through.median())
	}
}

// startKind starts a signer with a kind of key.
func startKind(t *testing.T, kind string) *signer {
	t.Helper()
	dir := signerFolder(t)
	key := filepath.Join(dir, "key.pem")
	switch kind {
	case "file, RS256":
		writeKey(t, key, newRSA(t))
	case "file, ES256":
		writeKey(t, key, newECDSA(t, elliptic.P256()))
	default:
		device := newTPM(t)
		device.writeKey(t, key, tpmkey.ECDSAP256)
		return startSigner(t, dir, map[string]any{"tpm": map[string]any{"device": device.path, "keyFile": key}})
	}
	return startSigner(t, dir, map[string]any{"keyFile": key})
}

// rsaFile writes the key rsa.pem of an API server, and returns the path of its public half.
func rsaFile(t *testing.T, dir string, key *rsa.PrivateKey) string {
	t.Helper()
	writeKey(t, filepath.Join(dir, "rsa.pem"), key)
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		t.Fatal(err)
	}
	return controlplane.Write(t, dir, "rsa.pub", pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
}

// request requests a token at the API server.
func (s *apiServer) request(pod *corev1.Pod) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := s.issue(ctx, pod)
		return err
	}
}

// request has the signer sign the claims of a token once more.
func (s *signer) request(t *testing.T, token string) func(context.Context) error {
	t.Helper()
	connection, err := s.dial()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { connection.Close() })
	client, segments := externaljwt.NewExternalJWTSignerClient(connection), strings.Split(token, ".")
	return func(ctx context.Context) error {
		_, err := client.Sign(ctx, &externaljwt.SignJWTRequest{Claims: segments[1]})
		return err
	}
}

// turn measures one turn.
func (r *rate) turn(t *testing.T) float64 {
	t.Helper()
	var signed atomic.Int64
	var calling sync.WaitGroup
	began := time.Now()
	for range callers {
		calling.Go(func() {
			for time.Since(began) < turnLength {
				if err := r.sign(t.Context()); err != nil {
					t.Errorf("%s: %v", r.name, err)
					return
				}
				signed.Add(1)
			}
		})
	}
	calling.Wait()
	return float64(signed.Load()) / time.Since(began).Seconds()
}

// cpuName is the name of this machine's processor.
func cpuName(t *testing.T) string {
	t.Helper()
	name := regexp.MustCompile(`(?m)^model name\s*: (.*)$`).FindSubmatch(controlplane.Read(t, "/proc/cpuinfo"))
	if name == nil {
		return "a processor without a name"
	}
	return string(name[1])
}
