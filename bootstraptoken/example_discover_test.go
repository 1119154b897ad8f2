package bootstraptoken_test

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/nodeattest/nodeattest/bootstraptoken"
	"github.com/nodeattest/nodeattest/bootstraptoken/bootstraptokentest"
	"github.com/nodeattest/nodeattest/refusal"
)

// findCluster finds the cluster of a token: at addresses that nothing vouches for, by the pin of its CA.
func findCluster(ctx context.Context, token, pin string, addresses ...string) (*bootstraptoken.Discovered, error) {
	parsed, err := bootstraptoken.Parse(token)
	if err != nil {
		return nil, err
	}
	p, err := bootstraptoken.ParsePin(pin)
	if err != nil {
		return nil, err
	}
	return bootstraptoken.Discover(ctx, bootstraptoken.DiscoverConfig{Token: parsed, Pins: []bootstraptoken.Pin{p}, Addresses: addresses})
}

// A node that has a token, an address and a pin finds the cluster. The trusted cluster is
// in Info.
func ExampleDiscover() {
	cluster, err := bootstraptokentest.Open(bootstraptokentest.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = cluster.Close() }()

	token, pin := cluster.Token().Reveal(), cluster.Info().Pins()[0].String() // as the administrator was told
	found, err := findCluster(context.Background(), token, pin, cluster.Address())
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(found.Info.Server == cluster.URL(), len(found.Info.CAs), found.Info.CAs[0].Subject)
	// Output: true 1 CN=bootstraptokentest CA 1
}

// Servers that pass for the cluster are refused: one that does not know the token's secret, one
// that does and has a CA of its own, and one that changes the kubeconfig. Any host can send such
// an answer, so the node asks again until time is up.
func ExampleDiscover_impostors() {
	cluster, err := bootstraptokentest.Open(bootstraptokentest.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = cluster.Close() }()
	joining := cluster.DiscoverConfig()
	joining.Addresses, joining.Network.Timeout = nil, time.Second
	for _, kind := range []bootstraptokentest.Impostor{bootstraptokentest.WrongSecret, bootstraptokentest.WrongCA, bootstraptokentest.TamperedKubeconfig} {
		impostor, err := cluster.Impostor(kind)
		if err != nil {
			fmt.Println(err)
			return
		}
		defer func() { _ = impostor.Close() }()
		joining.Addresses = append(joining.Addresses, impostor.Address())
	}
	_, err = bootstraptoken.Discover(context.Background(), joining)
	if failed, ok := errors.AsType[*bootstraptoken.DiscoverError](err); ok {
		for _, a := range failed.Addresses {
			fmt.Println(errors.Is(a.Err, bootstraptoken.CheckSignature), errors.Is(a.Err, bootstraptoken.CheckPinned), errors.Is(a.Err, refusal.ErrRetry))
		}
	}
	// Output:
	// true false true
	// false true true
	// true false true
}

// A cluster that does not let everybody read its document is not asked twice. The error says
// which address failed why, and that it is no use to try again.
func ExampleDiscoverError() {
	cluster, err := bootstraptokentest.Open(bootstraptokentest.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = cluster.Close() }()
	cluster.Intercept(func(http.Handler) http.Handler { // to clients without a name
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) })
	})

	_, err = bootstraptoken.Refresh(context.Background(), cluster.Info(), bootstraptoken.RefreshOptions{})
	if failed, ok := errors.AsType[*bootstraptoken.DiscoverError](err); ok {
		for _, a := range failed.Addresses {
			fmt.Println(a.Address == cluster.URL(), errors.Is(a.Err, bootstraptoken.Check("forbidden")), errors.Is(a.Err, refusal.ErrRetry))
		}
	}
	// Output: true true false
}

// The control plane signs the discovery document for the tokens that may sign now, and
// takes the signatures of others away.
func ExampleSign() {
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	token, err := bootstraptoken.Parse("abcdef.0123456789abcdef")
	if err != nil {
		fmt.Println(err)
		return
	}
	secret := &bootstraptoken.Secret{Token: token, Expiration: now.Add(time.Hour), Usages: bootstraptoken.Usages{Signing: true}}
	object, err := secret.Object()
	if err != nil {
		fmt.Println(err)
		return
	}
	data := map[string]string{"kubeconfig": "apiVersion: v1\n", "jws-kubeconfig-ghijkl": "of a token that is gone"}

	signing, err := bootstraptoken.Sign(data, []*bootstraptoken.Object{object}, now)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(signing.Changed, slices.Sorted(maps.Keys(signing.Data)))
	fmt.Println(signing.Data["jws-kubeconfig-abcdef"])
	fmt.Println("again after", signing.Next.Sub(now))
	signing, err = bootstraptoken.Sign(signing.Data, []*bootstraptoken.Object{object}, now)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(signing.Changed)
	// Output:
	// true [jws-kubeconfig-abcdef kubeconfig]
	// eyJhbGciOiJIUzI1NiIsImtpZCI6ImFiY2RlZiJ9..K1chermAQEq0rdqy-ehj0VDfmA_ytv8Wzh9g26FldrE
	// again after 1h0m0s
	// false
}

// A discovery document must not tell a node who to be.
func ExampleParseKubeconfig() {
	_, err := bootstraptoken.ParseKubeconfig([]byte(`apiVersion: v1
kind: Config
clusters:
- name: ""
  cluster:
    server: https://api.example.com:6443
users:
- name: admin
  user:
    token: secret
`))
	fmt.Println(err)
	// Output: kubeconfig-credentials: got line 10, column 5: a user with more than a name, want no users
}

// From standard input, as in curl ... | join --discovery-file=-, and then a look at what
// the cluster itself says now.
func ExampleDiscoverReader() {
	cluster, err := bootstraptokentest.Open(bootstraptokentest.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = cluster.Close() }()
	stdin := strings.NewReader(cluster.Data()["kubeconfig"])

	found, err := bootstraptoken.DiscoverReader(stdin)
	if err != nil {
		fmt.Println(err)
		return
	}
	refreshed, err := bootstraptoken.Refresh(context.Background(), found.Info, bootstraptoken.RefreshOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(refreshed.Info.Equal(found.Info), found.Verified.IsZero(), refreshed.Verified.IsZero())
	// Output: true true false
}

// refreshFile asks the cluster in a file for its latest document, and keeps that in the file.
func refreshFile(ctx context.Context, path string) (next *bootstraptoken.Cache, changed bool, err error) {
	cache, err := bootstraptoken.ReadCacheFile(path)
	if err != nil {
		return nil, false, err
	}
	next, changed, err = cache.Refresh(ctx, bootstraptoken.RefreshOptions{})
	if err != nil {
		return nil, false, err
	}
	return next, changed, next.WriteFile(path)
}

// A client that refreshes its cache while the old CA and the new one are both published
// survives the rotation. One that slept meanwhile must discover the cluster again.
func ExampleCache() {
	ctx := context.Background()
	cluster, err := bootstraptokentest.Open(bootstraptokentest.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = cluster.Close() }()
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = os.RemoveAll(dir) }()
	file := filepath.Join(dir, "cluster.json")

	found, err := bootstraptoken.Discover(ctx, cluster.DiscoverConfig())
	if err != nil {
		fmt.Println(err)
		return
	}
	asleep := &bootstraptoken.Cache{Info: found.Info, Verified: found.Verified}
	if err := asleep.WriteFile(file); err != nil {
		fmt.Println(err)
		return
	}
	for _, rotate := range []func() error{cluster.AddCA, cluster.UseNewCA, cluster.DropOldCAs} {
		if err := rotate(); err != nil {
			fmt.Println(err)
			return
		}
		next, changed, err := refreshFile(ctx, file)
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(changed, len(next.Info.CAs), next.Info.CAs[len(next.Info.CAs)-1].Subject)
	}
	_, _, err = asleep.Refresh(ctx, bootstraptoken.RefreshOptions{})
	fmt.Println(errors.Is(err, bootstraptoken.CheckCertificate))
	// Output:
	// true 2 CN=bootstraptokentest CA 2
	// false 2 CN=bootstraptokentest CA 2
	// true 1 CN=bootstraptokentest CA 2
	// true
}

// Where there is no file system, or storage of one's own, a cache is bytes.
func ExampleParseCache() {
	cluster, err := bootstraptokentest.Open(bootstraptokentest.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = cluster.Close() }()
	stored, err := (&bootstraptoken.Cache{Info: cluster.Info()}).Marshal()
	if err != nil {
		fmt.Println(err)
		return
	}
	cache, err := bootstraptoken.ParseCache(stored)
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = bootstraptoken.ParseCache(append(stored, ' '))
	fmt.Println(cache.Info.Equal(cluster.Info()), errors.Is(err, bootstraptoken.Check("cache")))
	// Output: true true
}

// publish makes the data of the ConfigMap cluster-info: the cluster's address and CAs, signed by the
// tokens among the Secrets.
func publish(server string, cas []*x509.Certificate, secrets []*bootstraptoken.Object, now time.Time) (*bootstraptoken.Signing, error) {
	data, err := (&bootstraptoken.ClusterInfo{Server: server, CAs: cas}).Data()
	if err != nil {
		return nil, err
	}
	return bootstraptoken.Sign(data, secrets, now)
}

// A control plane publishes itself, and a node that has a token finds it.
func ExampleClusterInfo() {
	cluster, err := bootstraptokentest.Open(bootstraptokentest.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = cluster.Close() }()
	made, err := bootstraptoken.Create(bootstraptoken.CreateOptions{}, time.Now())
	if err != nil {
		fmt.Println(err)
		return
	}
	object, err := made.Object()
	if err != nil {
		fmt.Println(err)
		return
	}
	signing, err := publish(cluster.URL(), cluster.Info().CAs, []*bootstraptoken.Object{object}, time.Now())
	if err != nil {
		fmt.Println(err)
		return
	}
	cluster.SetData(signing.Data)

	found, err := findCluster(context.Background(), made.Token.Reveal(), cluster.Info().Pins()[0].String(), cluster.Address())
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(found.Info.Equal(cluster.Info()), signing.Next.Equal(made.Expiration))
	// Output: true true
}

// An operator asks whether nodes with a token will find the cluster.
func ExampleVerifyClusterInfo() {
	cluster, err := bootstraptokentest.Open(bootstraptokentest.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = cluster.Close() }()
	info, err := bootstraptoken.VerifyClusterInfo(cluster.Data(), cluster.Token())
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = bootstraptoken.VerifyClusterInfo(cluster.Data(), bootstraptoken.Generate())
	fmt.Println(info.Equal(cluster.Info()), errors.Is(err, bootstraptoken.Check("cluster-info-no-signature")))
	// Output: true true
}
