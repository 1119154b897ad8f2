package bootstraptokentest_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/attest/tpm/tpmkey"
	"github.com/nodeattest/nodeattest/bootstraptoken"
	"github.com/nodeattest/nodeattest/bootstraptoken/bootstraptokentest"
	"github.com/nodeattest/nodeattest/tpmsim"
)

func discover(t *testing.T, cluster *bootstraptokentest.Cluster) *bootstraptoken.Discovered {
	t.Helper()
	found, err := bootstraptoken.Discover(t.Context(), cluster.DiscoverConfig())
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// Both keys in one TPM: the server's handshakes are signed there.
func TestClusterInTPM(t *testing.T) {
	shared := tpmkey.Share(tpmsim.New(t, tpmsim.Options{}))
	var keys [2]*tpmkey.Key
	for i := range keys {
		var err error
		if keys[i], err = tpmkey.Create(t.Context(), shared, tpmkey.ECDSAP256, tpmkey.Options{}); err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := keys[i].Close(); err != nil {
				t.Error(err)
			}
		}()
	}
	cluster := bootstraptokentest.New(t, bootstraptokentest.Options{CAKey: keys[0], ServingKey: keys[1]})
	if found := discover(t, cluster); !found.Info.Equal(cluster.Info()) {
		t.Errorf("found %+v", found.Info)
	}
	if err := cluster.Close(); err != nil {
		t.Error(err)
	}
}

// A key of the caller's own making in the TPM.
func TestClusterWithKeys(t *testing.T) {
	inTPM, err := tpmkey.Create(t.Context(), tpmsim.New(t, tpmsim.Options{}), tpmkey.RSA2048, tpmkey.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := inTPM.Close(); err != nil {
			t.Error(err)
		}
	}()
	caKey, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	found := discover(t, bootstraptokentest.New(t, bootstraptokentest.Options{CAKey: caKey, ServingKey: inTPM}))
	if !caKey.PublicKey.Equal(found.Info.CAs[0].PublicKey) {
		t.Error("the CA has another key")
	}
}

func TestClusterOptions(t *testing.T) {
	token, err := bootstraptoken.Parse("abcdef.0123456789abcdef")
	if err != nil {
		t.Fatal(err)
	}
	late := func() time.Time { return time.Now().AddDate(20, 0, 0) }
	cluster := bootstraptokentest.New(t, bootstraptokentest.Options{Token: token, Server: "https://api.example.com", Now: late})
	found := discover(t, cluster)
	if !cluster.Token().Equal(token) || found.Info.Server != "https://api.example.com" || found.Verified.Before(time.Now().AddDate(19, 0, 0)) {
		t.Errorf("found %+v", found)
	}
}

func TestOpenFails(t *testing.T) {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	for name, opts := range map[string]bootstraptokentest.Options{
		"CA's key": {CAKey: brokenKey{key}},
		"server":   {Server: "http://a"},
	} {
		if cluster, err := bootstraptokentest.Open(opts); err == nil || cluster != nil {
			t.Errorf("%s: %v, %v", name, cluster, err)
		}
	}
	if impostor, err := bootstraptokentest.New(t, bootstraptokentest.Options{}).Impostor(0); err == nil || impostor != nil {
		t.Errorf("impostor 0: %v, %v", impostor, err)
	}
}

// brokenKey does not sign.
type brokenKey struct{ ed25519.PrivateKey }

func (k brokenKey) Sign(io.Reader, []byte, crypto.SignerOpts) ([]byte, error) {
	return nil, errors.New("broken")
}

func TestSecret(t *testing.T) {
	cluster := bootstraptokentest.New(t, bootstraptokentest.Options{})
	name := bootstraptoken.SecretName(cluster.Token().ID())
	object, err := cluster.Secret(t.Context(), bootstraptoken.Namespace, name)
	if err != nil {
		t.Fatal(err)
	}
	if decoded, err := bootstraptoken.ParseSecretUnchecked(object); err != nil || !decoded.Token.Equal(cluster.Token()) {
		t.Errorf("%v, %v", decoded, err)
	}
	for _, other := range [][2]string{{bootstraptoken.Namespace, "x"}, {"kube-public", name}} {
		if _, err := cluster.Secret(t.Context(), other[0], other[1]); !errors.Is(err, bootstraptoken.ErrNotFound) {
			t.Errorf("%s: %v", other, err)
		}
	}
}

// Sign takes the signature away once the token has ended.
func TestSign(t *testing.T) {
	now := time.Now()
	cluster := bootstraptokentest.New(t, bootstraptokentest.Options{Now: func() time.Time { return now }})
	for _, signed := range []bool{true, false} {
		if err := cluster.Sign(); err != nil {
			t.Fatal(err)
		}
		if _, ok := cluster.Data()["jws-kubeconfig-"+cluster.Token().ID()]; ok != signed {
			t.Errorf("signed: %v, want %v", ok, signed)
		}
		now = now.Add(24 * time.Hour)
	}
}

// The API server knows its tokens' bearers, and allows them only to read
// cluster-info.
func TestAPIServer(t *testing.T) {
	cluster := bootstraptokentest.New(t, bootstraptokentest.Options{})
	roots, err := cluster.Info().Roots()
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, DisableKeepAlives: true}}
	const clusterInfo = "/api/v1/namespaces/kube-public/configmaps/cluster-info"
	for name, test := range map[string]struct {
		method, path, authorization string
		status                      int
		says                        string
	}{
		"anonymous":        {"GET", clusterInfo, "", 200, "kubeconfig"},
		"bearer":           {"GET", clusterInfo, "Bearer " + cluster.Token().Reveal(), 200, "kubeconfig"},
		"unknown bearer":   {"GET", clusterInfo, "Bearer abcdef.0123456789abcdef", 401, "Unauthorized"},
		"no bearer":        {"GET", clusterInfo, "Basic YTpi", 401, "Unauthorized"},
		"writing":          {"PUT", clusterInfo, "", 403, "system:anonymous"},
		"another object":   {"GET", "/api/v1/namespaces/kube-public/configmaps/other", "", 403, "system:anonymous"},
		"list":             {"GET", "/api/v1/namespaces/kube-public/configmaps", "", 403, "system:anonymous"},
		"Secrets":          {"GET", "/api/v1/namespaces/kube-system/secrets", "", 403, "system:anonymous"},
		"bearer's Secrets": {"GET", "/api/v1/namespaces/kube-system/secrets", "Bearer " + cluster.Token().Reveal(), 403, "system:bootstrap:" + cluster.Token().ID()},
	} {
		t.Run(name, func(t *testing.T) {
			request, err := http.NewRequestWithContext(t.Context(), test.method, cluster.URL()+test.path, nil)
			if err != nil {
				t.Fatal(err)
			}
			if test.authorization != "" {
				request.Header.Set("Authorization", test.authorization)
			}
			response, err := client.Do(request)
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(response.Body)
			response.Body.Close()
			if err != nil || response.StatusCode != test.status || !strings.Contains(string(body), test.says) || !json.Valid(body) {
				t.Errorf("%s: %d, %s, %v", name, response.StatusCode, body, err)
			}
		})
	}
	requests := cluster.Requests()
	if len(requests) != 9 || requests[0].URL.Path == "" || requests[0].Header == nil {
		t.Errorf("%d requests", len(requests))
	}
}

// TestIntercept: what intercepts the API server answers in its place or lets it answer, and nil
// takes it away.
func TestIntercept(t *testing.T) {
	cluster := bootstraptokentest.New(t, bootstraptokentest.Options{})
	broken := func(http.Handler) http.Handler { return http.RedirectHandler("/x", http.StatusFound) }
	var passed atomic.Int32
	count := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			passed.Add(1)
			next.ServeHTTP(w, r)
		})
	}
	cluster.Intercept(broken)
	if _, err := bootstraptoken.Refresh(t.Context(), cluster.Info(), bootstraptoken.RefreshOptions{}); !errors.Is(err, bootstraptoken.Check("redirect")) {
		t.Errorf("broken: %v", err)
	}
	cluster.Intercept(count)
	discover(t, cluster)
	cluster.Intercept(nil)
	discover(t, cluster)
	if got, all := passed.Load(), len(cluster.Requests()); got != 2 || all != 5 {
		t.Errorf("%d requests passed, %d in all", got, all)
	}
}

// A caller that changes an answer does not change the cluster.
func TestDataIsACopy(t *testing.T) {
	cluster := bootstraptokentest.New(t, bootstraptokentest.Options{})
	data := cluster.Data()
	data[bootstraptoken.KubeconfigKey] = "x"
	cluster.SetData(cluster.Data())
	discover(t, cluster)
	cluster.SetData(data)
	data["y"] = "z"
	if _, ok := cluster.Data()["y"]; ok {
		t.Error("SetData keeps the caller's map")
	}
}
