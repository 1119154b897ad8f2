package bootstraptoken_test

import (
	"context"
	"crypto/x509"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/bootstraptoken"
	"github.com/nodeattest/nodeattest/bootstraptoken/bootstraptokentest"
	"github.com/nodeattest/nodeattest/refusal"
)

// hasty are options that do not wait long between two rounds.
func hasty() bootstraptoken.RefreshOptions {
	return bootstraptoken.RefreshOptions{Network: bootstraptoken.Network{MinBackoff: time.Millisecond, MaxBackoff: 10 * time.Millisecond}}
}

// A client that joined with the pin of the old CA lives through a rotation: old, both, new.
// One that slept while there were both does not.
func TestRefreshThroughRotation(t *testing.T) {
	ctx := t.Context()
	cluster := bootstraptokentest.New(t, bootstraptokentest.Options{})
	found, err := bootstraptoken.Discover(ctx, cluster.DiscoverConfig())
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "cluster.json")
	client := &bootstraptoken.Cache{Info: found.Info, Verified: found.Verified}
	sleeper := client
	step := func(name string, change func() error, wantChanged bool, wantCAs int) {
		t.Helper()
		if err := change(); err != nil {
			t.Fatal(err)
		}
		next, changed, err := client.Refresh(ctx, hasty())
		if err != nil || changed != wantChanged || len(next.Info.CAs) != wantCAs || !next.Info.Equal(cluster.Info()) {
			t.Fatalf("%s: %+v, %v, %v", name, next, changed, err)
		}
		if err := next.WriteFile(path); err != nil {
			t.Fatal(err)
		}
		if client, err = bootstraptoken.ReadCacheFile(path); err != nil {
			t.Fatal(err)
		}
	}
	step("nothing new", func() error { return nil }, false, 1)
	step("both CAs", cluster.AddCA, true, 2)
	step("the server uses the new one", cluster.UseNewCA, false, 2)
	step("the new CA alone", cluster.DropOldCAs, true, 1)
	if client.Info.CAs[0].Equal(sleeper.Info.CAs[0]) {
		t.Error("the CA is the old one")
	}
	_, _, err = sleeper.Refresh(ctx, hasty())
	if !errors.Is(err, bootstraptoken.CheckCertificate) || errors.Is(err, refusal.ErrRetry) {
		t.Errorf("the sleeper: %v, want %v", err, bootstraptoken.CheckCertificate)
	}
	for _, r := range cluster.Requests() {
		if r.Header.Get("Authorization") != "" || len(r.TLS.PeerCertificates) != 0 {
			t.Errorf("request %+v", r)
		}
	}
}

// Pins keep CAs out that the cluster names later.
func TestRefreshWithPins(t *testing.T) {
	cluster := bootstraptokentest.New(t, bootstraptokentest.Options{})
	first := cluster.Info()
	if err := cluster.AddCA(); err != nil {
		t.Fatal(err)
	}
	opts := hasty()
	opts.Pins = first.Pins()
	found, err := bootstraptoken.Refresh(t.Context(), first, opts)
	if err != nil || !found.Info.Equal(first) || len(found.Unpinned) != 1 {
		t.Errorf("%+v, %v", found, err)
	}
	opts.Pins = cluster.Info().Pins()
	if found, err = bootstraptoken.Refresh(t.Context(), first, opts); err != nil || !found.Info.Equal(cluster.Info()) {
		t.Errorf("both pins: %+v, %v", found, err)
	}
	opts.Pins = cluster.Info().Pins()[1:]
	if _, err = bootstraptoken.Refresh(t.Context(), first, opts); !errors.Is(err, bootstraptoken.Check("ca-lockout")) {
		t.Errorf("the pin of the CA that does not serve: %v, want %v", err, bootstraptoken.Check("ca-lockout"))
	}
	opts.Pins = []bootstraptoken.Pin{{1}}
	if _, err = bootstraptoken.Refresh(t.Context(), first, opts); !errors.Is(err, bootstraptoken.CheckPinned) {
		t.Errorf("another pin: %v, want %v", err, bootstraptoken.CheckPinned)
	}
}

func TestRefreshRefuses(t *testing.T) {
	cluster := bootstraptokentest.New(t, bootstraptokentest.Options{})
	other := bootstraptokentest.New(t, bootstraptokentest.Options{})
	good := cluster.Data()
	kubeconfig := good[bootstraptoken.KubeconfigKey]
	document := func(info *bootstraptoken.ClusterInfo) map[string]string {
		data, err := info.Data()
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	for name, test := range map[string]struct {
		data  map[string]string
		want  bootstraptoken.Check
		retry bool
	}{
		"no object":           {nil, bootstraptoken.Check("http-status"), true},
		"no kubeconfig":       {map[string]string{"x": "y"}, bootstraptoken.Check("cluster-info-kubeconfig"), false},
		"no document":         {map[string]string{bootstraptoken.KubeconfigKey: "x"}, bootstraptoken.Check("kubeconfig"), false},
		"credentials":         {map[string]string{bootstraptoken.KubeconfigKey: strings.Replace(kubeconfig, "users: null", "users: [{user: {token: a}}]", 1)}, bootstraptoken.Check("kubeconfig-credentials"), false},
		"system roots":        {document(&bootstraptoken.ClusterInfo{Server: cluster.URL(), SystemRoots: true}), bootstraptoken.Check("no-ca"), false},
		"CAs of others alone": {document(&bootstraptoken.ClusterInfo{Server: cluster.URL(), CAs: other.Info().CAs}), bootstraptoken.Check("ca-lockout"), false},
	} {
		t.Run(name, func(t *testing.T) {
			cluster.SetData(test.data)
			opts := hasty()
			limited := giveUp(t, &opts.Network, 1)
			found, err := bootstraptoken.Refresh(limited, cluster.Info(), opts)
			if found != nil || !errors.Is(err, test.want) || errors.Is(err, refusal.ErrRetry) != test.retry {
				t.Errorf("%s: %+v, %v, want %v", name, found, err, test.want)
			}
		})
	}
	cluster.SetData(good)
	impostor := cluster.NewImpostor(t, bootstraptokentest.Relay)
	atImpostor := cluster.Info()
	atImpostor.Server = impostor.URL()
	for name, test := range map[string]struct {
		info   *bootstraptoken.ClusterInfo
		change func(*bootstraptoken.RefreshOptions)
		want   bootstraptoken.Check
	}{
		"nil":           {nil, nil, bootstraptoken.Check("server-url")},
		"zero":          {&bootstraptoken.ClusterInfo{}, nil, bootstraptoken.Check("server-url")},
		"no CA":         {&bootstraptoken.ClusterInfo{Server: cluster.URL()}, nil, bootstraptoken.Check("no-ca")},
		"an impostor":   {atImpostor, nil, bootstraptoken.CheckCertificate},
		"zero pin":      {cluster.Info(), func(o *bootstraptoken.RefreshOptions) { o.Pins = make([]bootstraptoken.Pin, 1) }, bootstraptoken.Check("ca-pin")},
		"bad address":   {cluster.Info(), func(o *bootstraptoken.RefreshOptions) { o.Addresses = []string{"http://a"} }, bootstraptoken.Check("server-url-scheme")},
		"another token": {cluster.Info(), func(o *bootstraptoken.RefreshOptions) { o.Token = other.Token() }, bootstraptoken.Check("cluster-info-no-signature")},
	} {
		t.Run(name, func(t *testing.T) {
			opts := hasty()
			if test.change != nil {
				test.change(&opts)
			}
			limited := giveUp(t, &opts.Network, 1)
			if found, err := bootstraptoken.Refresh(limited, test.info, opts); found != nil || !errors.Is(err, test.want) {
				t.Errorf("%s: %+v, %v, want %v", name, found, err, test.want)
			}
		})
	}
	opts := hasty()
	opts.Token = cluster.Token()
	if _, err := bootstraptoken.Refresh(t.Context(), cluster.Info(), opts); err != nil {
		t.Errorf("with the cluster's token: %v", err)
	}
}

// A cluster that does not publish says so once: the caller goes on with what there is.
func TestRefreshForbidden(t *testing.T) {
	for _, status := range []int{401, 403} {
		cluster := bootstraptokentest.New(t, bootstraptokentest.Options{})
		cluster.Intercept(fault{status: status}.before)
		opts := hasty()
		limited := giveUp(t, &opts.Network, 2)
		if _, err := bootstraptoken.Refresh(limited, cluster.Info(), opts); !errors.Is(err, bootstraptoken.Check("forbidden")) || errors.Is(err, refusal.ErrRetry) {
			t.Errorf("%d: %v, want %v", status, err, bootstraptoken.Check("forbidden"))
		}
		if n := len(cluster.Requests()); n != 1 {
			t.Errorf("%d: asked %d times", status, n)
		}
	}
}

// An address that refuses is left out of the rounds in which the others are tried again.
func TestRefreshLeavesWhoRefuses(t *testing.T) {
	cluster := bootstraptokentest.New(t, bootstraptokentest.Options{})
	cluster.Intercept(fault{status: 403}.before)
	opts := hasty()
	opts.Addresses = []string{"absent.example"}
	ctx, cancel := context.WithCancel(t.Context())
	tries := 0
	opts.Network.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		if address == cluster.Address() {
			return new(net.Dialer).DialContext(ctx, network, address)
		}
		if tries++; tries == 3 {
			cancel()
		}
		return nil, errors.New("unreachable")
	}
	if _, err := bootstraptoken.Refresh(ctx, cluster.Info(), opts); !errors.Is(err, context.Canceled) || !errors.Is(err, bootstraptoken.Check("forbidden")) {
		t.Errorf("%v, want both", err)
	}
	if n := len(cluster.Requests()); n != 1 || tries != 3 {
		t.Errorf("who refuses was asked %d times, the other %d times", n, tries)
	}
}

// A cluster that is known by the system's roots may name CAs of its own later.
func TestRefreshOfSystemRoots(t *testing.T) {
	cluster := bootstraptokentest.New(t, bootstraptokentest.Options{})
	info := &bootstraptoken.ClusterInfo{Server: cluster.URL(), SystemRoots: true}
	opts := hasty()
	opts.Network.SystemRoots = x509.NewCertPool()
	if _, err := bootstraptoken.Refresh(t.Context(), info, opts); !errors.Is(err, bootstraptoken.CheckCertificate) {
		t.Errorf("%v, want %v", err, bootstraptoken.CheckCertificate)
	}
	opts.Network.SystemRoots.AddCert(cluster.Info().CAs[0])
	found, err := bootstraptoken.Refresh(t.Context(), info, opts)
	if err != nil || !found.Info.Equal(cluster.Info()) {
		t.Errorf("%+v, %v", found, err)
	}
	data, err := info.Data()
	if err != nil {
		t.Fatal(err)
	}
	cluster.SetData(data)
	if found, err = bootstraptoken.Refresh(t.Context(), info, opts); err != nil || !found.Info.Equal(info) {
		t.Errorf("%+v, %v", found, err)
	}
}

// Servers migrate: the cache's addresses lead to the cluster where its server does not.
func TestCacheAddresses(t *testing.T) {
	cluster := bootstraptokentest.New(t, bootstraptokentest.Options{})
	moved := cluster.Info()
	moved.Server = "https://127.0.0.1:1"
	cache := &bootstraptoken.Cache{Info: moved, Addresses: []string{cluster.Address()}}
	next, changed, err := cache.Refresh(t.Context(), hasty())
	if err != nil {
		t.Fatal(err)
	}
	if !changed || next.Info.Server != cluster.URL() || !slices.Equal(next.Addresses, cache.Addresses) || next.Verified.IsZero() {
		t.Errorf("%+v, %v, %v", next, changed, err)
	}
	if cache.Info.Server != "https://127.0.0.1:1" || !cache.Verified.IsZero() {
		t.Error("the cache was changed")
	}
	if _, err := next.Marshal(); err != nil {
		t.Error(err)
	}
	cache.Addresses = nil
	opts := hasty()
	opts.Addresses = []string{cluster.Address()}
	if _, _, err := cache.Refresh(t.Context(), opts); err != nil {
		t.Error(err)
	}
	opts = hasty()
	limited := giveUp(t, &opts.Network, 1)
	if next, _, err := cache.Refresh(limited, opts); !errors.Is(err, refusal.ErrRetry) || !errors.Is(err, context.Canceled) || next != nil {
		t.Errorf("no server: %+v, %v", next, err)
	}
}

func TestCacheFile(t *testing.T) {
	cluster := bootstraptokentest.New(t, bootstraptokentest.Options{})
	dir := t.TempDir()
	path := filepath.Join(dir, "cluster.json")
	if _, err := bootstraptoken.ReadCacheFile(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v, want %v", err, fs.ErrNotExist)
	}
	cache := &bootstraptoken.Cache{Info: cluster.Info(), Addresses: []string{"a", "b:6443"}, Verified: time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)}
	for range 2 { // the second in place of the first
		if err := cache.WriteFile(path); err != nil {
			t.Fatal(err)
		}
		got, err := bootstraptoken.ReadCacheFile(path)
		if err != nil || !got.Info.Equal(cache.Info) || !slices.Equal(got.Addresses, cache.Addresses) || !got.Verified.Equal(cache.Verified) {
			t.Fatalf("%+v, %v", got, err)
		}
		cache.Addresses, cache.Verified = nil, time.Time{}
	}
	if err := (&bootstraptoken.Cache{}).WriteFile(path); !errors.Is(err, bootstraptoken.Check("server-url")) {
		t.Errorf("the zero Cache: %v", err)
	}
	if _, err := bootstraptoken.ReadCacheFile(path); err != nil {
		t.Errorf("after a write that failed: %v", err)
	}
	for _, bad := range []string{filepath.Join(dir, "absent", "x"), filepath.Join(dir, "sub")} {
		if strings.HasSuffix(bad, "sub") {
			if err := os.MkdirAll(filepath.Join(bad, "x"), 0o700); err != nil {
				t.Fatal(err)
			}
		}
		if err := cache.WriteFile(bad); err == nil {
			t.Errorf("%s was written", bad)
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 2 {
		t.Errorf("left in the directory: %v, %v", entries, err)
	}
	if _, err := bootstraptoken.ReadCacheFile(dir); err == nil {
		t.Error("a directory was read")
	}
	if err := os.WriteFile(path, make([]byte, bootstraptoken.MaxCacheSize+1), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := bootstraptoken.ReadCacheFile(path); !errors.Is(err, bootstraptoken.Check("cache")) {
		t.Errorf("a large file: %v", err)
	}
}
