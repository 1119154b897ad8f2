package clusterinfo

import (
	"context"
	"crypto/x509"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodeattest/nodeattest/bootstraptoken"
	"github.com/nodeattest/nodeattest/bootstraptoken/bootstraptokentest"
	"github.com/nodeattest/nodeattest/kube/internal/objectstore"
	"github.com/nodeattest/nodeattest/refusal"
)

// stored returns the ConfigMap, which must exist.
func stored(t *testing.T, c client.Client) *corev1.ConfigMap {
	t.Helper()
	object := new(corev1.ConfigMap)
	if err := c.Get(t.Context(), Key(), object); err != nil {
		t.Fatal(err)
	}
	return object
}

// foreign stores a document as another program does.
func foreign(t *testing.T, c client.Client, kubeconfig string) {
	t.Helper()
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: Key().Namespace, Name: Key().Name}, Data: map[string]string{bootstraptoken.KubeconfigKey: kubeconfig}}
	if err := c.Create(t.Context(), object); err != nil {
		t.Fatal(err)
	}
}

func text(t *testing.T, info *bootstraptoken.ClusterInfo) string {
	t.Helper()
	kubeconfig, err := info.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return string(kubeconfig)
}

// writes publishes and wants one result.
func writes(t *testing.T, c client.Client, info *bootstraptoken.ClusterInfo, opts Options, want bool) {
	t.Helper()
	if changed, err := Write(t.Context(), c, info, opts); err != nil || changed != want {
		t.Fatalf("got %v, %v, want %v", changed, err, want)
	}
}

// refuses publishes, and wants an error and the ConfigMap unchanged.
func refuses(t *testing.T, store *objectstore.Store, info *bootstraptoken.ClusterInfo, opts Options, want string) error {
	t.Helper()
	store.Counts() // discards the counts so far
	changed, err := Write(t.Context(), store, info, opts)
	if _, n := store.Counts(); err == nil || changed || n != 0 || !strings.Contains(err.Error(), want) {
		t.Fatalf("got %v, %v and %d writes, want %q", changed, err, n, want)
	}
	return err
}

// TestWriteThroughRotation: each step of a rotation is published, and a CA under which the server still
// serves is not dropped. Signatures stay, for the signer to replace.
func TestWriteThroughRotation(t *testing.T) {
	store, cluster := objectstore.New(), bootstraptokentest.New(t, bootstraptokentest.Options{})
	first := cluster.Info()
	writes(t, store, first, Options{}, true)
	if object := stored(t, store); object.Data[bootstraptoken.KubeconfigKey] != text(t, first) || !Published(object) {
		t.Fatalf("got %+v", object)
	}
	writes(t, store, first, Options{Dial: unreachable}, false) // nothing is dialled
	object := stored(t, store)
	object.Data["jws-kubeconfig-abcdef"], object.Data["other"] = "a signature", "kept"
	if err := store.Update(t.Context(), object); err != nil {
		t.Fatal(err)
	}
	if err := cluster.AddCA(); err != nil {
		t.Fatal(err)
	}
	both := cluster.Info()
	writes(t, store, both, Options{}, true)
	if object := stored(t, store); object.Data["jws-kubeconfig-abcdef"] != "a signature" || object.Data["other"] != "kept" || !Published(object) {
		t.Errorf("got %+v", object)
	}
	last := &bootstraptoken.ClusterInfo{Server: both.Server, CAs: both.CAs[1:]}
	err := refuses(t, store, last, Options{}, "still serves under the CA")
	if cut, ok := errors.AsType[*CutOffError](err); !ok || !cut.CA.Equal(first.CAs[0]) || !strings.Contains(err.Error(), first.Pins()[0].String()) {
		t.Errorf("got %v", err)
	}
	if err := refuses(t, store, last, Options{Dial: unreachable}, "could not be reached"); !errors.Is(err, refusal.ErrRetry) {
		t.Errorf("got %v", err)
	}
	if err := cluster.UseNewCA(); err != nil {
		t.Fatal(err)
	}
	writes(t, store, last, Options{}, true)
}

func unreachable(context.Context, string, string) (net.Conn, error) {
	return nil, errors.New("no route")
}

// TestWriteForAnotherServer: the previous document's server is asked too while a CA of it is dropped, and
// only then.
func TestWriteForAnotherServer(t *testing.T) {
	store, old, other := objectstore.New(), bootstraptokentest.New(t, bootstraptokentest.Options{}), bootstraptokentest.New(t, bootstraptokentest.Options{})
	writes(t, store, old.Info(), Options{}, true)
	err := refuses(t, store, other.Info(), Options{}, "server "+old.URL()+" still serves")
	if cut, ok := errors.AsType[*CutOffError](err); !ok || cut.Server != old.URL() {
		t.Errorf("got %v", err)
	}
	both := &bootstraptoken.ClusterInfo{Server: other.URL(), CAs: append(other.Info().CAs, old.Info().CAs...)}
	away := func(ctx context.Context, network, address string) (net.Conn, error) {
		if address == old.Address() {
			return unreachable(ctx, network, address)
		}
		return new(net.Dialer).DialContext(ctx, network, address)
	}
	if err := refuses(t, store, other.Info(), Options{Dial: away}, "server "+old.URL()+" could not be reached"); !errors.Is(err, refusal.ErrRetry) {
		t.Errorf("got %v", err)
	}
	writes(t, store, both, Options{Dial: away}, true)
	writes(t, store, other.Info(), Options{Dial: away}, true)
}

// TestWriteLeavesOthersAlone: another program's document, or one that it changed, is replaced only where
// that is asked for; an equal one is not written, and one that cannot be read is never replaced.
func TestWriteLeavesOthersAlone(t *testing.T) {
	cluster := bootstraptokentest.New(t, bootstraptokentest.Options{})
	info := cluster.Info()
	elsewhere := &bootstraptoken.ClusterInfo{Server: cluster.URL() + "/path", CAs: info.CAs}
	t.Run("kubeadm's", func(t *testing.T) {
		store := objectstore.New()
		foreign(t, store, text(t, elsewhere))
		if err := refuses(t, store, info, Options{}, "another program"); !errors.Is(err, ErrForeign) {
			t.Errorf("got %v", err)
		}
		writes(t, store, info, Options{Replace: true}, true)
		writes(t, store, elsewhere, Options{}, true) // ours now
	})
	t.Run("ours, changed by another", func(t *testing.T) {
		store := objectstore.New()
		writes(t, store, info, Options{}, true)
		object := stored(t, store)
		object.Data[bootstraptoken.KubeconfigKey] += "# changed\n"
		if err := store.Update(t.Context(), object); err != nil {
			t.Fatal(err)
		}
		if err := refuses(t, store, info, Options{}, "another program"); !errors.Is(err, ErrForeign) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("equal", func(t *testing.T) {
		store := objectstore.New()
		foreign(t, store, text(t, info))
		writes(t, store, info, Options{}, false)
		writes(t, store, info, Options{Replace: true}, true)
		if !Published(stored(t, store)) {
			t.Error("it is not ours")
		}
	})
	t.Run("without a kubeconfig", func(t *testing.T) {
		store := objectstore.New()
		foreign(t, store, "")
		writes(t, store, info, Options{}, true)
	})
	for name, change := range map[string][2]string{
		"insecure":          {"    server:", "    insecure-skip-tls-verify: true\n    server:"},
		"with a credential": {"users: null", "users: [{name: a, user: {token: sesame}}]"},
		"http":              {"https://", "http://"},
	} {
		t.Run(name, func(t *testing.T) {
			store := objectstore.New()
			foreign(t, store, strings.Replace(text(t, info), change[0], change[1], 1))
			err := refuses(t, store, info, Options{Replace: true}, "delete the ConfigMap")
			if strings.Contains(err.Error(), "sesame") {
				t.Errorf("it shows the credential: %v", err)
			}
		})
	}
}

// TestWriteRefuses: a server that does not verify, CAs that are not valid now, and values that make no document.
func TestWriteRefuses(t *testing.T) {
	cluster, other := bootstraptokentest.New(t, bootstraptokentest.Options{}), bootstraptokentest.New(t, bootstraptokentest.Options{})
	ca := cluster.Info().CAs[0]
	for name, row := range map[string]struct {
		server string
		cas    []*x509.Certificate
		now    time.Time
		want   string
	}{
		"another CA":      {cluster.URL(), other.Info().CAs, time.Now(), "server-certificate"},
		"expired":         {cluster.URL(), cluster.Info().CAs, ca.NotAfter.Add(time.Second), "take it out"},
		"not yet valid":   {cluster.URL(), cluster.Info().CAs, ca.NotBefore.Add(-time.Second), "take it out"},
		"no CA":           {cluster.URL(), nil, time.Now(), "no-ca"},
		"http":            {"http://127.0.0.1", cluster.Info().CAs, time.Now(), "server-url-scheme"},
		"a user":          {strings.Replace(cluster.URL(), "://", "://a:b@", 1), cluster.Info().CAs, time.Now(), "a URL with a user"},
		"no such server":  {"https://127.0.0.1:1", cluster.Info().CAs, time.Now(), "could not be reached"},
		"no such address": {"https://name.invalid", cluster.Info().CAs, time.Now(), "could not be reached"},
	} {
		t.Run(name, func(t *testing.T) {
			info := &bootstraptoken.ClusterInfo{Server: row.server, CAs: row.cas}
			refuses(t, objectstore.New(), info, Options{Now: func() time.Time { return row.now }}, row.want)
		})
	}
}

// TestWriteMeanwhile: a ConfigMap that changes between reading and writing stays.
func TestWriteMeanwhile(t *testing.T) {
	store, cluster := objectstore.New(), bootstraptokentest.New(t, bootstraptokentest.Options{})
	writes(t, store, cluster.Info(), Options{}, true)
	if err := cluster.AddCA(); err != nil {
		t.Fatal(err)
	}
	meanwhile := func(ctx context.Context, network, address string) (net.Conn, error) {
		object := stored(t, store)
		set(&object.Data, "other", address+time.Now().String())
		if err := store.Update(ctx, object); err != nil {
			t.Error(err)
		}
		return new(net.Dialer).DialContext(ctx, network, address)
	}
	before := stored(t, store).Data[bootstraptoken.KubeconfigKey]
	if changed, err := Write(t.Context(), store, cluster.Info(), Options{Dial: meanwhile}); err == nil {
		t.Errorf("got %v, %v, want a conflict", changed, err)
	}
	if stored(t, store).Data[bootstraptoken.KubeconfigKey] != before {
		t.Error("it was written")
	}
}

// TestWriteOtherServers: a server that is named by an address that its certificate lacks, as those behind a load
// balancer are, keeps the CA under which it serves, also while its certificate has ended.
func TestWriteOtherServers(t *testing.T) {
	keepsCA(t, time.Now())
	keepsCA(t, time.Now().AddDate(-1, 0, -1))
}

func keepsCA(t *testing.T, made time.Time) {
	t.Helper()
	store, balancer := objectstore.New(), bootstraptokentest.New(t, bootstraptokentest.Options{})
	behind := bootstraptokentest.New(t, bootstraptokentest.Options{Now: func() time.Time { return made }})
	both := &bootstraptoken.ClusterInfo{Server: balancer.URL(), CAs: append(balancer.Info().CAs, behind.Info().CAs...)}
	writes(t, store, both, Options{}, true)
	const other = "https://127.0.0.9:6443" // which no certificate has
	opts := Options{Servers: []string{other}, Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
		if address == "127.0.0.9:6443" {
			address = behind.Address()
		}
		return new(net.Dialer).DialContext(ctx, network, address)
	}}
	err := refuses(t, store, balancer.Info(), opts, "server "+other+" still serves under the CA")
	if cut, ok := errors.AsType[*CutOffError](err); !ok || !cut.CA.Equal(behind.Info().CAs[0]) {
		t.Errorf("got %v", err)
	}
	behind = balancer
	writes(t, store, balancer.Info(), opts, true)
}

// TestWriteDropsEndedCA: a CA that has ended verifies nothing, and does not have to be kept for a server with an old
// certificate of it.
func TestWriteDropsEndedCA(t *testing.T) {
	store, cluster := objectstore.New(), bootstraptokentest.New(t, bootstraptokentest.Options{})
	old := bootstraptokentest.New(t, bootstraptokentest.Options{Now: func() time.Time { return time.Now().AddDate(-20, 0, 0) }})
	foreign(t, store, text(t, &bootstraptoken.ClusterInfo{Server: old.URL(), CAs: append(old.Info().CAs, cluster.Info().CAs...)}))
	writes(t, store, cluster.Info(), Options{Replace: true}, true)
}

// TestWriteSaysTheSame: an error about a server that breaks connections off is the same each time, so that it is
// logged once.
func TestWriteSaysTheSame(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() { //goroutine: the server
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Read(make([]byte, 1))
			_ = conn.(*net.TCPConn).SetLinger(0) // a reset
			_ = conn.Close()
		}
	}()
	info := bootstraptokentest.New(t, bootstraptokentest.Options{}).Info()
	info.Server = "https://" + l.Addr().String()
	first := refuses(t, objectstore.New(), info, Options{}, "could not be reached")
	if second := refuses(t, objectstore.New(), info, Options{}, "could not be reached"); second.Error() != first.Error() {
		t.Errorf("first\n%v, then\n%v", first, second)
	}
}
