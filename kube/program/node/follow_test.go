package node

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/bootstraptoken"
	"github.com/nodeattest/nodeattest/bootstraptoken/bootstraptokentest"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/kube/internal/configfile"
	"github.com/nodeattest/nodeattest/refusal"
)

// joined is a follower of a cluster, with the files that discover wrote.
type joined struct {
	*follower
	t   testing.TB
	log bytes.Buffer
	// began and ahead are the clock.
	began time.Time
	ahead atomic.Int64
}

// newJoined discovers a cluster, and follows it.
func newJoined(t testing.TB, cluster *bootstraptokentest.Cluster) *joined {
	t.Helper()
	b := newBare(t, cluster)
	if status, _, err := b.run(t.Context(), append([]string{"--token-file", b.token, "--insecure-skip-ca-pins"}, cluster.Address())...); status != 0 {
		t.Fatal(err)
	}
	text := "apiVersion: " + configfile.APIVersion + "\nkind: " + settingsKind + "\nstateDir: " + t.TempDir() +
		"\nkubeconfig: " + filepath.Join(b.dir, "kubelet-authenticator.conf") + "\ndiscovery: {}\n"
	s := testkit.Must(parseSettings([]byte(text)))
	j := &joined{follower: testkit.Must(s.follower()), t: t, began: time.Now()}
	j.follower.log = slog.New(slog.NewTextHandler(&j.log, nil))
	j.network = b.network
	j.network.Timeout = 2 * time.Second
	j.network.Now = func() time.Time { return j.began.Add(time.Duration(j.ahead.Load())) }
	j.kubeadmCA, j.kubeletConf = filepath.Join(b.dir, "pki-ca.crt"), filepath.Join(b.dir, "kubelet.conf")
	return j
}

// own reads the node's files.
func (j *joined) own() *own {
	j.t.Helper()
	return testkit.Must(readOwn(j.kubeconfig))
}

// problems returns the problems that the command status lists.
func (j *joined) problems() string {
	_, problems := j.status()
	return strings.Join(problems, "\n")
}

// step refreshes as the daemon does.
func (j *joined) step() error {
	err := j.refresh(j.t.Context())
	j.note(err)
	return err
}

// TestFollow: a node follows the cluster through the rotation of its CA. One that was off in between says
// in one sentence that an operator has to discover the cluster again; then it follows again.
func TestFollow(t *testing.T) {
	cluster := bootstraptokentest.New(t, bootstraptokentest.Options{})
	node, sleeper := newJoined(t, cluster), newJoined(t, cluster)
	before := testkit.Must(os.ReadFile(node.own().caFile))
	for _, row := range []struct {
		name   string
		change func() error
		cas    int
	}{
		{"nothing has changed", func() error { return nil }, 1},
		{"a new CA", cluster.AddCA, 2},
		{"the API server's certificate is the new CA's", cluster.UseNewCA, 2},
		{"the old CA is gone", cluster.DropOldCAs, 1},
	} {
		testkit.MustDo(row.change())
		if err := node.step(); err != nil || !within(node.own().cas, cluster.Info().CAs) || len(node.own().cas) != row.cas || node.problems() != "" {
			t.Fatalf("%s: %v; %d CAs, and %q", row.name, err, len(node.own().cas), node.problems())
		}
		if cache := testkit.Must(bootstraptoken.ReadCacheFile(node.path(cacheFile))); !cache.Info.Equal(cluster.Info()) || cache.Verified.IsZero() {
			t.Errorf("%s: the cache has %+v", row.name, cache)
		}
	}
	if now := testkit.Must(os.ReadFile(node.own().caFile)); bytes.Equal(now, before) {
		t.Error("the file has not changed")
	}
	if n := strings.Count(node.log.String(), "replaced the cluster's CAs"); n != 2 {
		t.Errorf("%d changes are logged:\n%s", n, &node.log)
	}

	for range 2 {
		if err := sleeper.step(); !errors.Is(err, bootstraptoken.CheckCertificate) || !bytes.Equal(testkit.Must(os.ReadFile(sleeper.own().caFile)), before) {
			t.Errorf("got %v", err)
		}
	}
	if text := sleeper.problems(); strings.Count(text, "\n") != 0 || !strings.Contains(text, "kubelet-authenticator discover --replace") {
		t.Errorf("the problems are %s", text)
	}
	if n := strings.Count(sleeper.log.String(), "not refreshed"); n != 1 {
		t.Errorf("it is logged %d times:\n%s", n, &sleeper.log)
	}
	t.Logf("%s", sleeper.problems())
	b := newBare(t, cluster)
	b.dir = filepath.Dir(sleeper.kubeconfig)
	if status, out, err := b.run(t.Context(), append([]string{"--replace"}, b.pinned(cluster.Info().Pins()[0], cluster.Address())...)...); status != 0 {
		t.Fatalf("%v: %s", err, out)
	}
	if err := sleeper.step(); err != nil || sleeper.problems() != "" {
		t.Errorf("discovered again: %v, %q", err, sleeper.problems())
	}
	for _, r := range cluster.Requests() {
		if r.Header.Get("Authorization") != "" {
			t.Error("a token was sent")
		}
	}
}

// TestFollowKeeps: after an error the node's files are as before.
func TestFollowKeeps(t *testing.T) {
	other := bootstraptokentest.New(t, bootstraptokentest.Options{})
	answer := func(code int) func(*bootstraptokentest.Cluster, *joined) {
		return func(c *bootstraptokentest.Cluster, _ *joined) {
			c.Intercept(func(http.Handler) http.Handler {
				return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) })
			})
		}
	}
	for name, row := range map[string]struct {
		breaks func(c *bootstraptokentest.Cluster, j *joined)
		check  refusal.Check
	}{
		"anonymous may not read": {answer(http.StatusForbidden), "forbidden"},
		"an error of the server": {answer(http.StatusInternalServerError), "http-status"},
		"no document":            {func(c *bootstraptokentest.Cluster, _ *joined) { c.SetData(nil) }, "http-status"},
		"an empty bundle": {func(c *bootstraptokentest.Cluster, _ *joined) {
			c.SetData(testkit.Must((&bootstraptoken.ClusterInfo{Server: c.URL(), SystemRoots: true}).Data()))
		}, "no-ca"},
		"a document that locks out": {func(c *bootstraptokentest.Cluster, _ *joined) {
			c.SetData(testkit.Must((&bootstraptoken.ClusterInfo{Server: c.URL(), CAs: other.Info().CAs}).Data()))
		}, "ca-lockout"},
		"a document of credentials": {func(c *bootstraptokentest.Cluster, _ *joined) {
			data := c.Data()
			data[bootstraptoken.KubeconfigKey] = strings.Replace(data[bootstraptoken.KubeconfigKey], "users: null", "users: [{name: a, user: {token: b}}]", 1)
			c.SetData(data)
		}, "kubeconfig-credentials"},
		"CAs that other users can write": {func(_ *bootstraptokentest.Cluster, j *joined) {
			testkit.MustDo(os.Chmod(j.own().caFile, 0o666))
		}, "file"},
		"a new CA, and a link that other users can replace": {func(c *bootstraptokentest.Cluster, j *joined) {
			open := filepath.Join(j.t.TempDir(), "open")
			testkit.MustDo(os.Mkdir(open, 0o700))
			testkit.MustDo(os.Symlink(j.own().caFile, filepath.Join(open, "ca.crt")))
			testkit.MustDo(os.Chmod(open, 0o777))
			text := string(testkit.Must(os.ReadFile(j.kubeconfig)))
			testkit.MustDo(os.WriteFile(j.kubeconfig, []byte(strings.Replace(text, j.own().caFile, filepath.Join(open, "ca.crt"), 1)), 0o600))
			testkit.MustDo(c.AddCA())
		}, "file"},
		"a new CA, and kubeadm's file": {func(c *bootstraptokentest.Cluster, j *joined) {
			j.kubeadmCA = j.own().caFile
			testkit.MustDo(c.AddCA())
		}, refusal.CheckConfig},
		"CAs in the kubeconfig": {func(_ *bootstraptokentest.Cluster, j *joined) {
			text := string(testkit.Must(os.ReadFile(j.kubeconfig)))
			testkit.MustDo(os.WriteFile(j.kubeconfig, []byte(strings.Replace(text, "certificate-authority: ", "certificate-authority-data: YQ== # ", 1)), 0o600))
		}, refusal.CheckConfig},
		"another name of the server": {func(_ *bootstraptokentest.Cluster, j *joined) {
			text := string(testkit.Must(os.ReadFile(j.kubeconfig)))
			testkit.MustDo(os.WriteFile(j.kubeconfig, []byte(strings.Replace(text, "    server:", "    tls-server-name: a\n    server:", 1)), 0o600))
		}, refusal.CheckConfig},
	} {
		t.Run(name, func(t *testing.T) {
			c := bootstraptokentest.New(t, bootstraptokentest.Options{})
			j := newJoined(t, c)
			testkit.MustDo(j.step())
			ca := j.own().caFile
			row.breaks(c, j)
			files := []string{ca, j.kubeconfig, j.path(cacheFile)}
			var before [3][]byte
			for i, path := range files {
				before[i] = testkit.Must(os.ReadFile(path))
			}
			err := j.step()
			if !errors.Is(err, row.check) || !strings.Contains(j.problems(), string(row.check)) || !strings.Contains(j.log.String(), "stay as they are") {
				t.Errorf("got %v, want %s; the status has %q", err, row.check, j.problems())
			}
			for i, path := range files {
				if !bytes.Equal(before[i], testkit.Must(os.ReadFile(path))) {
					t.Errorf("%s has changed", path)
				}
			}
		})
	}
}

// twoServers are two API servers, each with a certificate of a CA of one key; only the first one's CA is
// known by its certificate.
func twoServers(t *testing.T) (first, second *bootstraptokentest.Cluster) {
	t.Helper()
	key := testkit.Must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	first = bootstraptokentest.New(t, bootstraptokentest.Options{CAKey: key})
	return first, bootstraptokentest.New(t, bootstraptokentest.Options{CAKey: key, Token: first.Token()})
}

// TestFollowDrops: a CA that the document has dropped stays while a server serves by it.
func TestFollowDrops(t *testing.T) {
	cluster, late := twoServers(t)
	impostor := bootstraptokentest.New(t, bootstraptokentest.Options{}) // of a CA that the node never knew
	j := newJoined(t, cluster)
	j.addresses = []string{late.Address(), impostor.Address(), "127.0.0.1:1"}
	testkit.MustDo(cluster.AddCA())
	testkit.MustDo(j.step())
	testkit.MustDo(cluster.UseNewCA())
	testkit.MustDo(cluster.DropOldCAs())
	if err := j.step(); !errors.Is(err, checkInUse) || !strings.Contains(j.problems(), late.Address()) || strings.Contains(j.problems(), "discover --replace") || len(j.own().cas) != 2 {
		t.Errorf("got %v, and %d CAs; the status has %q", err, len(j.own().cas), j.problems())
	}
	testkit.MustDo(late.AddCA())
	testkit.MustDo(late.UseNewCA()) // no longer the old one's
	if err := j.step(); err != nil || len(j.own().cas) != 1 || j.problems() != "" {
		t.Errorf("got %v, and %d CAs: %q", err, len(j.own().cas), j.problems())
	}
}

// TestFollowMoves: the cluster's new server goes into the node's own kubeconfig once it answers, and never
// into the kubelet's; a server that the operator has chosen stays.
func TestFollowMoves(t *testing.T) {
	cluster, moved := twoServers(t)
	publish := func(server string) {
		cluster.SetData(testkit.Must((&bootstraptoken.ClusterInfo{Server: server, CAs: cluster.Info().CAs}).Data()))
	}
	j, chosen := newJoined(t, cluster), newJoined(t, cluster)
	kubelet := "apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {server: '" + cluster.URL() + "', certificate-authority: " + j.own().caFile + "}}]\n" +
		"contexts: [{name: x, context: {cluster: c}}]\ncurrent-context: x\n"
	testkit.MustDo(os.WriteFile(j.kubeletConf, []byte(kubelet), 0o600))
	testkit.MustDo(j.step())
	publish("https://127.0.0.1:1")
	if err := j.step(); !errors.Is(err, refusal.ErrRetry) || j.own().server != cluster.URL() {
		t.Errorf("a server that does not run: %v, %s", err, j.own().server)
	}
	publish(bootstraptokentest.New(t, bootstraptokentest.Options{}).URL())
	if err := j.step(); !errors.Is(err, bootstraptoken.CheckCertificate) || j.own().server != cluster.URL() || strings.Contains(j.problems(), "discover --replace") {
		t.Errorf("a server of another CA: %v, %s, and %q", err, j.own().server, j.problems())
	}
	publish(moved.URL())
	if err := j.step(); err != nil || j.own().server != moved.URL() {
		t.Fatalf("got %v, and the server %s", err, j.own().server)
	}
	if token := testkit.Must(readKubeconfig(j.kubeconfig)).BearerToken; token != cluster.Token().Reveal() {
		t.Error("the kubeconfig has lost the token")
	}
	if info := testkit.Must(os.Stat(j.kubeconfig)); info.Mode() != 0o600 {
		t.Errorf("mode %s", info.Mode())
	}
	if text := j.problems(); strings.Count(text, "\n") != 0 || !strings.Contains(text, moved.URL()) || !strings.Contains(text, "restart the kubelet") {
		t.Errorf("the problems are %q", text)
	}
	if string(testkit.Must(os.ReadFile(j.kubeletConf))) != kubelet {
		t.Error("the kubelet's kubeconfig has changed")
	}
	t.Logf("%s", j.problems())
	testkit.MustDo(chosen.step()) // its server was never the document's
	publish(cluster.URL())
	if err := chosen.step(); err != nil || chosen.own().server != cluster.URL() || chosen.problems() != "" {
		t.Errorf("got %v, the server %s, and %q", err, chosen.own().server, chosen.problems())
	}
}

// TestFollowWritesCA: kubeadm's file is replaced with writeCA alone, never made, and keeps its mode. Without
// it, the status names the file of the kubelet that lacks a CA.
func TestFollowWritesCA(t *testing.T) {
	cluster := bootstraptokentest.New(t, bootstraptokentest.Options{})
	j := newJoined(t, cluster)
	old := testkit.Must(os.ReadFile(j.own().caFile))
	testkit.MustDo(cluster.AddCA())
	j.writeCA = true
	testkit.MustDo(j.step())
	if _, err := os.Stat(j.kubeadmCA); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it was made: %v", err)
	}
	testkit.MustDo(os.WriteFile(j.kubeadmCA, old, 0o600))
	testkit.MustDo(os.Chmod(j.kubeadmCA, 0o644))
	testkit.MustDo(os.WriteFile(j.kubeletConf, []byte("apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {server: '"+cluster.URL()+"', certificate-authority: "+j.kubeadmCA+"}}]\n"+
		"contexts: [{name: x, context: {cluster: c}}]\ncurrent-context: x\n"), 0o600))
	j.writeCA = false
	testkit.MustDo(j.step())
	if text := j.problems(); !bytes.Equal(testkit.Must(os.ReadFile(j.kubeadmCA)), old) || strings.Count(text, "\n") != 0 || !strings.Contains(text, "discovery.writeCA") {
		t.Errorf("without writeCA: %q", text)
	}
	t.Logf("%s", j.problems())
	j.writeCA = true
	testkit.MustDo(j.step())
	if cas := testkit.Must(readCAs(j.kubeadmCA)); !within(cluster.Info().CAs, cas) || j.problems() != "" {
		t.Errorf("with writeCA: %d CAs, %q", len(cas), j.problems())
	}
	if info := testkit.Must(os.Stat(j.kubeadmCA)); info.Mode() != 0o644 {
		t.Errorf("mode %s", info.Mode())
	}
}

// TestFollowClock: the node asks once an interval, give or take a fifth, sooner after an error, and at the
// first certificate that does not verify; also after the clock was set back.
func TestFollowClock(t *testing.T) {
	cluster := bootstraptokentest.New(t, bootstraptokentest.Options{})
	j := newJoined(t, cluster)
	ctx, cancel := context.WithCancel(t.Context())
	ticks, done := make(chan time.Time), make(chan struct{})
	go func() { //goroutine: the test waits for it
		defer close(done)
		j.run(ctx, ticks)
	}()
	defer func() { cancel(); <-done }()
	asked := func(move time.Duration) int {
		before := len(cluster.Requests())
		j.ahead.Add(int64(move))
		ticks <- time.Time{}
		ticks <- time.Time{} // the first one has been handled
		return len(cluster.Requests()) - before
	}
	for _, row := range []struct {
		name   string
		before func()
		move   time.Duration
		want   int
	}{
		{"at the start", nil, 0, 1},
		{"before four fifths", nil, 47 * time.Minute, 0},
		{"after six fifths", nil, 26 * time.Minute, 1},
		{"the clock goes back", nil, -2 * time.Hour, 1},
		{"the first failure", func() { cluster.SetData(nil) }, 73 * time.Minute, 0}, // counted below
		{"soon after a failure", nil, 3 * time.Minute, 0},
		{"the next attempt after one", nil, 4 * time.Minute, 0},
	} {
		if row.before != nil {
			row.before()
		}
		got := asked(row.move)
		switch row.name {
		case "the first failure", "the next attempt after one":
			if got == 0 { // an unknown number: it asks until time is up
				t.Errorf("%s: it did not ask", row.name)
			}
		default:
			if got != row.want {
				t.Errorf("%s: it asked %d times, want %d", row.name, got, row.want)
			}
		}
	}
	testkit.MustDo(cluster.AddCA()) // the document is there again
	if got := asked(10 * time.Minute); got != 1 {
		t.Errorf("it asked %d times", got)
	}
	j.distrust() // within a minute after the last
	if got := asked(time.Second); got != 0 {
		t.Errorf("a certificate did not verify just after a refresh: it asked %d times", got)
	}
	j.ahead.Add(int64(2 * time.Minute))
	j.distrust()
	j.distrust()
	testkit.MustDo(cluster.AddCA())
	asked(0)
	for deadline := time.Now().Add(5 * time.Second); len(j.own().cas) != 3; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("a certificate did not verify: %d CAs", len(j.own().cas))
		}
	}
}

// TestFollowSettings: without the section there is no follower, and a bad one is refused.
func TestFollowSettings(t *testing.T) {
	head := "apiVersion: " + configfile.APIVersion + "\nkind: " + settingsKind + "\n"
	for name, row := range map[string]struct {
		text string
		want refusal.Check
		is   bool
	}{
		"no section":         {"", "", false},
		"an empty one":       {"discovery: {}", "", true},
		"all":                {"discovery: {addresses: [a, 'b:6443', 'https://c/d', '[fd00::1]:1'], interval: 10m, writeCA: true}", "", true},
		"an unknown field":   {"discovery: {address: a}", refusal.CheckConfig, false},
		"http":               {"discovery: {addresses: ['http://a']}", refusal.CheckConfig, false},
		"no address":         {"discovery: {addresses: ['']}", refusal.CheckConfig, false},
		"a token":            {"discovery: {addresses: ['a:b@c']}", refusal.CheckConfig, false},
		"a short interval":   {"discovery: {interval: 1s}", refusal.CheckConfig, false},
		"a negative one":     {"discovery: {interval: -1h}", refusal.CheckConfig, false},
		"a long one":         {"discovery: {interval: 1000h}", refusal.CheckConfig, false},
		"too many addresses": {"discovery: {addresses: [" + strings.Repeat("a, ", 60) + "a]}", refusal.CheckConfig, false},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := parseSettings([]byte(head + row.text + "\n"))
			var f *follower
			if err == nil {
				f, err = s.follower()
			}
			if row.want == "" && err != nil || row.want != "" && !errors.Is(err, row.want) || (f != nil) != row.is {
				t.Fatalf("got %+v, %v, want %q", f, err, row.want)
			}
			if name == "an empty one" && (f.interval != time.Hour || f.writeCA || f.kubeconfig != defaultKubeconfig || f.stateDir != defaultState || f.kubeadmCA != "/etc/kubernetes/pki/ca.crt") {
				t.Errorf("the defaults are %+v", f)
			}
			if name == "all" && (f.interval != 10*time.Minute || !f.writeCA || len(f.addresses) != 4) {
				t.Errorf("got %+v", f)
			}
		})
	}
}

// TestAround: four fifths to six fifths.
func TestAround(t *testing.T) {
	least, most := time.Hour, time.Hour
	for range 10000 {
		d := around(time.Hour)
		least, most = min(least, d), max(most, d)
	}
	if least < 48*time.Minute || least > 49*time.Minute || most > 72*time.Minute || most < 71*time.Minute {
		t.Errorf("%s to %s", least, most)
	}
}

// TestFollowControlPlane: on a machine of the control plane kubeadm's file says who is a client of
// kube-apiserver. It is not written, even if the authenticator's kubeconfig names it.
func TestFollowControlPlane(t *testing.T) {
	for _, named := range []bool{false, true} {
		cluster := bootstraptokentest.New(t, bootstraptokentest.Options{})
		j := newJoined(t, cluster)
		j.writeCA = true
		if named {
			j.kubeadmCA = j.own().caFile
		}
		old := testkit.Must(os.ReadFile(j.own().caFile))
		testkit.MustDo(os.WriteFile(j.kubeadmCA, old, 0o600))
		testkit.MustDo(os.WriteFile(filepath.Join(filepath.Dir(j.kubeadmCA), "apiserver.crt"), nil, 0o600))
		if err := j.step(); err != nil {
			t.Errorf("nothing has changed: %v", err)
		}
		testkit.MustDo(cluster.AddCA())
		if err := j.step(); !errors.Is(err, refusal.CheckConfig) || !strings.Contains(j.problems(), "kube-apiserver") || !bytes.Equal(testkit.Must(os.ReadFile(j.kubeadmCA)), old) {
			t.Errorf("named %v: got %v", named, err)
		}
		t.Logf("%s", j.problems())
	}
}

// TestFollowMeanwhile: files that an operator has replaced while the daemon asked are not written over.
func TestFollowMeanwhile(t *testing.T) {
	move := func(c *bootstraptokentest.Cluster) error {
		data, err := (&bootstraptoken.ClusterInfo{Server: strings.Replace(c.URL(), "127.0.0.1", "localhost", 1), CAs: c.Info().CAs}).Data()
		c.SetData(data)
		return err
	}
	for name, row := range map[string]struct {
		change func(c *bootstraptokentest.Cluster) error
		at     int32 // the request
	}{"new CAs": {(*bootstraptokentest.Cluster).AddCA, 1}, "a new server": {move, 1}, "a new server, which is asked": {move, 2}} {
		t.Run(name, func(t *testing.T) {
			cluster, other := bootstraptokentest.New(t, bootstraptokentest.Options{}), bootstraptokentest.New(t, bootstraptokentest.Options{})
			j, b := newJoined(t, cluster), newBare(t, other)
			b.dir = filepath.Dir(j.kubeconfig)
			testkit.MustDo(j.step())
			testkit.MustDo(row.change(cluster))
			var asked atomic.Int32
			cluster.Intercept(func(next http.Handler) http.Handler {
				return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if asked.Add(1) == row.at {
						if status, out, err := b.run(t.Context(), append([]string{"--replace"}, b.pinned(other.Info().Pins()[0], other.Address())...)...); status != 0 {
							t.Errorf("%v: %s", err, out)
						}
					}
					next.ServeHTTP(w, r)
				})
			})
			err := j.step()
			if own := j.own(); !errors.Is(err, refusal.ErrRetry) || own.server != other.URL() || !within(own.cas, other.Info().CAs) {
				t.Errorf("got %v, and the server %s with the CAs %s, want %s and %s", err, own.server, pins(own.cas), other.URL(), pins(other.Info().CAs))
			}
			if err := j.step(); err != nil {
				t.Errorf("the next time: %v", err)
			}
		})
	}
}

// TestFollowWallClock: the daemon's times are the wall clock's, which goes on while the machine sleeps.
func TestFollowWallClock(t *testing.T) {
	f := testkit.Must((&settings{Discovery: &discoverySettings{}}).follower())
	if now := f.network.Now(); now != now.Round(0) || time.Since(now).Abs() > time.Minute {
		t.Errorf("got %s", now)
	}
}

// TestFollowDropsForKubelet: a CA stays while the kubelet's server serves by it, in the file that the kubelet shares
// with the authenticator and in kubeadm's.
func TestFollowDropsForKubelet(t *testing.T) {
	for _, shared := range []bool{true, false} {
		cluster, late := twoServers(t)
		j := newJoined(t, cluster)
		testkit.MustDo(cluster.AddCA())
		testkit.MustDo(j.step())
		testkit.MustDo(cluster.UseNewCA())
		testkit.MustDo(cluster.DropOldCAs())
		ca := j.own().caFile
		if !shared { // the authenticator's was discovered anew
			ca, j.writeCA = j.kubeadmCA, true
			testkit.MustDo(os.WriteFile(ca, testkit.Must(os.ReadFile(j.own().caFile)), 0o600))
			testkit.MustDo(os.WriteFile(j.own().caFile, certificatesPEM(cluster.Info().CAs), 0o600))
		}
		testkit.MustDo(os.WriteFile(j.kubeletConf, []byte("apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {server: '"+late.URL()+"', certificate-authority: "+ca+"}}]\n"+
			"contexts: [{name: x, context: {cluster: c}}]\ncurrent-context: x\n"), 0o600))
		if err := j.step(); !errors.Is(err, checkInUse) || !strings.Contains(j.problems(), late.Address()) || len(testkit.Must(readCAs(ca))) != 2 {
			t.Errorf("shared %v: got %v, and %d CAs; the status has %q", shared, err, len(testkit.Must(readCAs(ca))), j.problems())
		}
		testkit.MustDo(late.AddCA())
		testkit.MustDo(late.UseNewCA()) // no longer the old one's
		if err := j.step(); err != nil || len(testkit.Must(readCAs(ca))) != 1 {
			t.Errorf("shared %v: got %v, and %d CAs", shared, err, len(testkit.Must(readCAs(ca))))
		}
	}
}
