package bootstraptoken_test

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/bootstraptoken"
	"github.com/nodeattest/nodeattest/bootstraptoken/bootstraptokentest"

	"github.com/nodeattest/nodeattest/refusal"
)

// giveUp returns a context that ends once so many connections were opened, for tests of
// what never gets better.
func giveUp(t *testing.T, network *bootstraptoken.Network, connections int32) context.Context {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	dial := network.Dial
	if dial == nil {
		dial = new(net.Dialer).DialContext
	}
	var opened atomic.Int32
	network.Dial = func(dialling context.Context, name, address string) (net.Conn, error) {
		if opened.Add(1) > connections {
			cancel()
			return nil, context.Canceled
		}
		return dial(dialling, name, address)
	}
	return ctx
}

func TestDiscover(t *testing.T) {
	cluster := bootstraptokentest.New(t, bootstraptokentest.Options{})
	found, err := bootstraptoken.Discover(t.Context(), cluster.DiscoverConfig())
	if err != nil {
		t.Fatal(err)
	}
	if !found.Info.Equal(cluster.Info()) || string(found.Kubeconfig) != cluster.Data()[bootstraptoken.KubeconfigKey] ||
		found.Address != cluster.URL() || found.Verified.IsZero() || len(found.Unpinned) != 0 {
		t.Errorf("found %+v", found)
	}
	checkAnonymous(t, cluster, 2)
}

// checkAnonymous wants n requests, none of which says who the client is.
func checkAnonymous(t *testing.T, cluster *bootstraptokentest.Cluster, n int) {
	t.Helper()
	requests := cluster.Requests()
	if len(requests) != n {
		t.Errorf("%d requests, want %d", len(requests), n)
	}
	for _, r := range requests {
		if r.Method != "GET" || r.Header.Get("Authorization") != "" || len(r.TLS.PeerCertificates) != 0 || r.Header.Get("Cookie") != "" {
			t.Errorf("request %+v", r)
		}
		for name, values := range r.Header {
			if token := cluster.Token(); !token.IsZero() && strings.Contains(strings.Join(values, " "), strings.Split(token.Reveal(), ".")[1]) {
				t.Errorf("header %s has the secret", name)
			}
		}
	}
}

// Behind any impostor the cluster may be there a moment later: it is asked again, and the error
// has the fault.
func TestDiscoverRefusesImpostors(t *testing.T) {
	cluster := bootstraptokentest.New(t, bootstraptokentest.Options{})
	for _, test := range []struct {
		name string
		kind bootstraptokentest.Impostor
		want bootstraptoken.Check
	}{
		{"wrong secret", bootstraptokentest.WrongSecret, bootstraptoken.CheckSignature},
		{"wrong CA", bootstraptokentest.WrongCA, bootstraptoken.CheckPinned},
		{"mixed bundle", bootstraptokentest.MixedBundle, bootstraptoken.CheckCertificate},
		{"tampered kubeconfig", bootstraptokentest.TamperedKubeconfig, bootstraptoken.CheckSignature},
		{"relay", bootstraptokentest.Relay, bootstraptoken.CheckCertificate},
	} {
		t.Run(test.name, func(t *testing.T) {
			impostor := cluster.NewImpostor(t, test.kind)
			cfg := cluster.DiscoverConfig()
			cfg.Addresses = []string{impostor.Address()}
			impatient := cfg
			found, err := bootstraptoken.Discover(giveUp(t, &impatient.Network, 4), impatient)
			if found != nil || !errors.Is(err, test.want) || !errors.Is(err, refusal.ErrRetry) {
				t.Errorf("%+v, %v, want %v", found, err, test.want)
			}
			var byAddress *bootstraptoken.DiscoverError
			if !errors.As(err, &byAddress) || len(byAddress.Addresses) != 1 || byAddress.Addresses[0].Address != impostor.URL() || !errors.Is(byAddress.Addresses[0].Err, test.want) {
				t.Errorf("%v does not name %s", err, impostor.URL())
			}
			checkAnonymous(t, impostor, len(impostor.Requests()))
			if n := len(impostor.Requests()); n < 2 {
				t.Errorf("asked %d times", n)
			}

			// The genuine cluster after it is found all the same.
			cfg.Addresses = append(cfg.Addresses, cluster.Address())
			if found, err = bootstraptoken.Discover(t.Context(), cfg); err != nil || found.Address != cluster.URL() {
				t.Errorf("%+v, %v", found, err)
			}
		})
	}
}

// first has the first connections go to another address.
func first(network *bootstraptoken.Network, connections int32, address string) {
	var opened atomic.Int32
	network.Dial = func(ctx context.Context, name, to string) (net.Conn, error) {
		if opened.Add(1) <= connections {
			to = address
		}
		return new(net.Dialer).DialContext(ctx, name, to)
	}
}

// A dialler that panics, in a goroutine of the transport, has not connected: the next try does.
func TestDiscoverDialPanics(t *testing.T) {
	cluster := bootstraptokentest.New(t, bootstraptokentest.Options{})
	cfg := cluster.DiscoverConfig()
	var dialled atomic.Int32
	cfg.Network.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		if dialled.Add(1) == 1 {
			panic("a bug of the dialler")
		}
		return new(net.Dialer).DialContext(ctx, network, address)
	}
	if found, err := bootstraptoken.Discover(t.Context(), cfg); err != nil || found.Address != cluster.URL() {
		t.Errorf("%+v, %v", found, err)
	}
}

// Who wins the race for the first connections, to an address that is the cluster's, does not
// end the search.
func TestDiscoverAfterImpostors(t *testing.T) {
	cluster := bootstraptokentest.New(t, bootstraptokentest.Options{})
	for name, test := range map[string]struct {
		kind        bootstraptokentest.Impostor
		connections int32
	}{
		"wrong secret":        {bootstraptokentest.WrongSecret, 3},
		"tampered kubeconfig": {bootstraptokentest.TamperedKubeconfig, 1},
		"relay":               {bootstraptokentest.Relay, 2},
		"relay, then cluster": {bootstraptokentest.Relay, 1},
		"mixed bundle":        {bootstraptokentest.MixedBundle, 2},
		"wrong CA":            {bootstraptokentest.WrongCA, 2}, // signed earlier by the token, when the cluster had other CAs
	} {
		t.Run(name, func(t *testing.T) {
			cfg := cluster.DiscoverConfig()
			first(&cfg.Network, test.connections, cluster.NewImpostor(t, test.kind).Address())
			if found, err := bootstraptoken.Discover(t.Context(), cfg); err != nil || !found.Info.Equal(cluster.Info()) {
				t.Errorf("%+v, %v", found, err)
			}
		})
	}
}

// An old document, which the token signed and an attacker kept, does not end the search either.
func TestDiscoverAfterReplay(t *testing.T) {
	cluster := bootstraptokentest.New(t, bootstraptokentest.Options{})
	replay := cluster.NewImpostor(t, bootstraptokentest.Relay)
	if err := cluster.AddCA(); err != nil {
		t.Fatal(err)
	}
	cfg := cluster.DiscoverConfig()
	first(&cfg.Network, 1, replay.Address())
	if found, err := bootstraptoken.Discover(t.Context(), cfg); err != nil || !found.Info.Equal(cluster.Info()) {
		t.Errorf("%+v, %v", found, err)
	}
}

// Without pins, any holder of the token can impersonate the cluster, as the option's name says.
func TestDiscoverInsecureSkipCAPins(t *testing.T) {
	cluster := bootstraptokentest.New(t, bootstraptokentest.Options{})
	impostor := cluster.NewImpostor(t, bootstraptokentest.WrongCA)
	cfg := cluster.DiscoverConfig()
	cfg.Addresses, cfg.Pins, cfg.InsecureSkipCAPins = []string{impostor.Address()}, nil, true
	found, err := bootstraptoken.Discover(t.Context(), cfg)
	if err != nil || !found.Info.Equal(impostor.Info()) {
		t.Errorf("%+v, %v", found, err)
	}
	// But not who relays.
	cfg.Addresses = []string{cluster.NewImpostor(t, bootstraptokentest.Relay).Address()}
	if _, err := bootstraptoken.Discover(giveUp(t, &cfg.Network, 2), cfg); !errors.Is(err, bootstraptoken.CheckCertificate) {
		t.Errorf("%v, want %v", err, bootstraptoken.CheckCertificate)
	}
}

func TestDiscoverTrustsPinnedCAsAlone(t *testing.T) {
	cluster := bootstraptokentest.New(t, bootstraptokentest.Options{})
	pins := cluster.Info().Pins()
	if err := cluster.AddCA(); err != nil {
		t.Fatal(err)
	}
	cfg := cluster.DiscoverConfig()
	cfg.Pins = pins
	found, err := bootstraptoken.Discover(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	all := cluster.Info().CAs
	if len(found.Info.CAs) != 1 || !found.Info.CAs[0].Equal(all[0]) || len(found.Unpinned) != 1 || !found.Unpinned[0].Equal(all[1]) {
		t.Errorf("trusts %d CAs, leaves out %d", len(found.Info.CAs), len(found.Unpinned))
	}
	// The pin of the CA that does not serve yet is not enough.
	cfg.Pins = cluster.Info().Pins()[1:]
	impatient := cfg
	if _, err := bootstraptoken.Discover(giveUp(t, &impatient.Network, 2), impatient); !errors.Is(err, bootstraptoken.CheckCertificate) {
		t.Errorf("%v, want %v", err, bootstraptoken.CheckCertificate)
	}
	if err := cluster.UseNewCA(); err != nil {
		t.Fatal(err)
	}
	if _, err := bootstraptoken.Discover(t.Context(), cfg); err != nil {
		t.Error(err)
	}
}

// The cluster's CA is below a root, the signed bundle has both, and only the root has a pin. A
// server that sends nothing but its own certificate is verified by the CA, which Refresh
// trusts afterwards; but not if the root may sign only some names.
func TestDiscoverBelowPinnedRoot(t *testing.T) {
	caKey, rootKey := newKey(t), newKey(t)
	cluster := bootstraptokentest.New(t, bootstraptokentest.Options{CAKey: caKey})
	for name, names := range map[string][]string{"any names": nil, "some names": {"example.com"}} {
		t.Run(name, func(t *testing.T) {
			template := *cluster.Info().CAs[0]
			ca := template
			template.Subject.CommonName, template.PermittedDNSDomains, template.PublicKey = "root", names, rootKey.Public()
			root := signedBy(t, &template, &template, rootKey.Public(), rootKey)
			below := signedBy(t, &ca, root, caKey.Public(), rootKey)
			bundle := &bootstraptoken.ClusterInfo{Server: cluster.URL(), CAs: []*x509.Certificate{below, root}}
			kubeconfig, err := bundle.Marshal()
			if err != nil {
				t.Fatal(err)
			}
			cluster.SetData(signed(t, cluster, string(kubeconfig)))
			cfg := cluster.DiscoverConfig()
			cfg.Pins = bundle.Pins()[1:]
			found, err := bootstraptoken.Discover(giveUp(t, &cfg.Network, 2), cfg)
			if names != nil {
				want := below.Subject.String() + ", which is below name constraints"
				if !errors.Is(err, bootstraptoken.CheckCertificate) || !errors.Is(err, refusal.ErrRetry) || !strings.Contains(err.Error(), want) {
					t.Errorf("%v does not say %q", err, want)
				}
				return
			}
			if err != nil || !found.Info.Equal(bundle) || len(found.Unpinned) != 0 {
				t.Fatalf("%+v, %v", found, err)
			}
			opts := hasty()
			opts.Pins = cfg.Pins
			if found, err = bootstraptoken.Refresh(t.Context(), found.Info, opts); err != nil || !found.Info.Equal(bundle) {
				t.Errorf("refreshed: %+v, %v", found, err)
			}
		})
	}
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func signedBy(t *testing.T, template, parent *x509.Certificate, public crypto.PublicKey, key crypto.Signer) *x509.Certificate {
	t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, template, parent, public, key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

func TestDiscoverConfigIsChecked(t *testing.T) {
	cluster := bootstraptokentest.New(t, bootstraptokentest.Options{})
	for name, test := range map[string]struct {
		change func(*bootstraptoken.DiscoverConfig)
		want   bootstraptoken.Check
	}{
		"no token":         {func(c *bootstraptoken.DiscoverConfig) { c.Token = bootstraptoken.Token{} }, bootstraptoken.Check("bootstrap-token")},
		"no pins":          {func(c *bootstraptoken.DiscoverConfig) { c.Pins = nil }, refusal.CheckConfig},
		"zero pin":         {func(c *bootstraptoken.DiscoverConfig) { c.Pins = append(c.Pins, bootstraptoken.Pin{}) }, bootstraptoken.Check("ca-pin")},
		"pins and none":    {func(c *bootstraptoken.DiscoverConfig) { c.InsecureSkipCAPins = true }, refusal.CheckConfig},
		"no address":       {func(c *bootstraptoken.DiscoverConfig) { c.Addresses = nil }, refusal.CheckConfig},
		"65 addresses":     {func(c *bootstraptoken.DiscoverConfig) { c.Addresses = make([]string, 65) }, refusal.CheckConfig},
		"empty address":    {func(c *bootstraptoken.DiscoverConfig) { c.Addresses = []string{""} }, bootstraptoken.Check("server-url")},
		"http":             {func(c *bootstraptoken.DiscoverConfig) { c.Addresses = []string{"http://" + cluster.Address()} }, bootstraptoken.Check("server-url-scheme")},
		"a user":           {func(c *bootstraptoken.DiscoverConfig) { c.Addresses = []string{"me:pw@" + cluster.Address()} }, bootstraptoken.Check("kubeconfig-credentials")},
		"negative timeout": {func(c *bootstraptoken.DiscoverConfig) { c.Network.Timeout = -1 }, refusal.CheckConfig},
		"negative backoff": {func(c *bootstraptoken.DiscoverConfig) { c.Network.MinBackoff = -1 }, refusal.CheckConfig},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := cluster.DiscoverConfig()
			test.change(&cfg)
			if found, err := bootstraptoken.Discover(t.Context(), cfg); !errors.Is(err, test.want) || found != nil {
				t.Errorf("%s: %v, want %v", name, err, test.want)
			}
		})
	}
	if n := len(cluster.Requests()); n != 0 {
		t.Errorf("%d requests were made", n)
	}
	if _, err := bootstraptoken.Discover(t.Context(), bootstraptoken.DiscoverConfig{}); err == nil {
		t.Error("the zero DiscoverConfig was accepted")
	}
}

// An API server that is not ready yet is tried again.
func TestDiscoverWaits(t *testing.T) {
	for name, fault := range map[string]fault{
		"401": {status: 401}, "403": {status: 403}, "404": {status: 404}, "429": {status: 429}, "500": {status: 500}, "503": {status: 503},
		"hangs up": {hangUp: true},
	} {
		t.Run(name, func(t *testing.T) {
			cluster := bootstraptokentest.New(t, bootstraptokentest.Options{})
			fault.requests = 3
			cluster.Intercept(fault.before)
			if _, err := bootstraptoken.Discover(t.Context(), cluster.DiscoverConfig()); err != nil {
				t.Fatal(err)
			}
			if n := len(cluster.Requests()); n < 5 {
				t.Errorf("%d requests, want 5 or more", n)
			}
		})
	}
}

// The statuses that say who may read have a check of their own.
func TestDiscoverForbidden(t *testing.T) {
	cluster := bootstraptokentest.New(t, bootstraptokentest.Options{})
	for status, want := range map[int]bool{400: false, 401: true, 402: false, 403: true, 404: false} {
		cluster.Intercept(fault{status: status}.before)
		cfg := cluster.DiscoverConfig()
		_, err := bootstraptoken.Discover(giveUp(t, &cfg.Network, 1), cfg)
		if errors.Is(err, bootstraptoken.Check("forbidden")) != want || errors.Is(err, bootstraptoken.Check("http-status")) == want || !errors.Is(err, refusal.ErrRetry) {
			t.Errorf("%d: %v", status, err)
		}
	}
}

// A signature that is not there yet is waited for, an object too.
func TestDiscoverWaitsForTheSignature(t *testing.T) {
	for name, data := range map[string]map[string]string{
		"no object":                nil,
		"no data":                  {},
		"no signature":             {bootstraptoken.KubeconfigKey: "x"},
		"empty signature":          {bootstraptoken.KubeconfigKey: "x", bootstraptoken.SignatureKeyPrefix + "abcdef": ""},
		"another token's":          {bootstraptoken.KubeconfigKey: "x", bootstraptoken.SignatureKeyPrefix + "ghijkl": "y"},
		"signature, no kubeconfig": {bootstraptoken.SignatureKeyPrefix + "abcdef": "y"},
	} {
		t.Run(name, func(t *testing.T) {
			token, err := bootstraptoken.Parse("abcdef.0123456789abcdef")
			if err != nil {
				t.Fatal(err)
			}
			cluster := bootstraptokentest.New(t, bootstraptokentest.Options{Token: token})
			good := cluster.Data()
			cluster.SetData(data)
			cfg := cluster.DiscoverConfig()
			ctx := giveUp(t, &cfg.Network, 2)
			_, err = bootstraptoken.Discover(ctx, cfg)
			if !errors.Is(err, refusal.ErrRetry) || !errors.Is(err, context.Canceled) {
				t.Errorf("%v, want %v", err, refusal.ErrRetry)
			}
			done := make(chan error, 1)
			go func() {
				_, err := bootstraptoken.Discover(t.Context(), cluster.DiscoverConfig())
				done <- err
			}()
			before := len(cluster.Requests())
			for len(cluster.Requests()) < before+2 {
				time.Sleep(time.Millisecond)
			}
			cluster.SetData(good)
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
	}
}

// Unverified data is no answer: the search goes on until time is up, and then
// the error names the last fault.
func TestDiscoverAfterForgedReplies(t *testing.T) {
	object := func(data string) []byte {
		return []byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"cluster-info","namespace":"kube-public"},"data":` + data + `}`)
	}
	for name, test := range map[string]struct {
		fault fault
		want  bootstraptoken.Check
	}{
		"redirect":             {fault{location: "https://127.0.0.1:1/x"}, bootstraptoken.Check("redirect")},
		"redirect to itself":   {fault{location: "/api/v1/namespaces/kube-public/configmaps/cluster-info", status: 307}, bootstraptoken.Check("redirect")},
		"HTML":                 {fault{contentType: "text/html", body: object("{}")}, bootstraptoken.Check("reply")},
		"no content type":      {fault{body: object("{}")}, bootstraptoken.Check("reply")},
		"a broken parameter":   {fault{contentType: "application/json; a", body: object("{}")}, bootstraptoken.Check("reply")},
		"as large as may be":   {fault{contentType: "application/json", body: make([]byte, bootstraptoken.MaxConfigMapSize)}, bootstraptoken.Check("cluster-info-object")},
		"protobuf":             {fault{contentType: "application/vnd.kubernetes.protobuf", body: object("{}")}, bootstraptoken.Check("reply")},
		"too large":            {fault{contentType: "application/json", body: make([]byte, bootstraptoken.MaxConfigMapSize+1)}, bootstraptoken.Check("reply")},
		"no JSON":              {fault{contentType: "application/json", body: []byte("apiVersion: v1")}, bootstraptoken.Check("cluster-info-object")},
		"JSON cut off":         {fault{contentType: "application/json", body: []byte("{")}, bootstraptoken.Check("cluster-info-object")},
		"another object":       {fault{contentType: "application/json", body: []byte(`{"apiVersion":"v1","kind":"Status"}`)}, bootstraptoken.Check("cluster-info-object")},
		"kubeconfig too large": {fault{contentType: "application/json", body: object(`{"kubeconfig":"` + strings.Repeat("x", bootstraptoken.MaxKubeconfigSize+1) + `"}`)}, bootstraptoken.Check("kubeconfig")},
		"data twice":           {fault{contentType: "application/json", body: object(`{"kubeconfig":"a","kubeconfig":"b"}`)}, bootstraptoken.Check("cluster-info-object")},
		"a number for a text":  {fault{contentType: "application/json", body: object(`{"kubeconfig":1}`)}, bootstraptoken.Check("cluster-info-object")},
	} {
		t.Run(name, func(t *testing.T) {
			cluster := bootstraptokentest.New(t, bootstraptokentest.Options{})
			cluster.Intercept(test.fault.before)
			cfg := cluster.DiscoverConfig()
			_, err := bootstraptoken.Discover(giveUp(t, &cfg.Network, 3), cfg)
			if !errors.Is(err, test.want) || !errors.Is(err, refusal.ErrRetry) || !errors.Is(err, context.Canceled) {
				t.Errorf("%v, want %v", err, test.want)
			}
			if n := len(cluster.Requests()); n != 3 {
				t.Errorf("%d requests, want 3", n)
			}
			test.fault.requests = 2
			cluster.Intercept(test.fault.before)
			if found, err := bootstraptoken.Discover(t.Context(), cluster.DiscoverConfig()); err != nil || !found.Info.Equal(cluster.Info()) {
				t.Errorf("after two of them: %+v, %v", found, err)
			}
		})
	}
}

// A signed document is refused if it identifies no cluster.
func TestDiscoverRefusesSignedDocuments(t *testing.T) {
	cluster := bootstraptokentest.New(t, bootstraptokentest.Options{})
	good := cluster.Data()[bootstraptoken.KubeconfigKey]
	ca := "    certificate-authority-data: "
	start := strings.Index(good, ca)
	end := start + strings.Index(good[start:], "\n") + 1
	for name, test := range map[string]struct {
		kubeconfig string
		want       bootstraptoken.Check
	}{
		"credentials":   {strings.Replace(good, "users: null", "users:\n- name: a\n  user:\n    token: secret", 1), bootstraptoken.Check("kubeconfig-credentials")},
		"http":          {strings.Replace(good, "https://", "http://", 1), bootstraptoken.Check("server-url-scheme")},
		"insecure":      {strings.Replace(good, "    server:", "    insecure-skip-tls-verify: true\n    server:", 1), bootstraptoken.Check("kubeconfig-insecure-skip-tls-verify")},
		"no CA":         {good[:start] + good[end:], bootstraptoken.Check("no-ca")},
		"no kubeconfig": {"{}", bootstraptoken.Check("kubeconfig")},
	} {
		t.Run(name, func(t *testing.T) {
			cluster.SetData(map[string]string{bootstraptoken.KubeconfigKey: test.kubeconfig})
			if err := cluster.Sign(); err != nil {
				t.Fatal(err)
			}
			cfg := cluster.DiscoverConfig()
			_, err := bootstraptoken.Discover(giveUp(t, &cfg.Network, 2), cfg)
			if !errors.Is(err, test.want) || !errors.Is(err, refusal.ErrRetry) {
				t.Errorf("%s: %v, want %v", name, err, test.want)
			}
			if err != nil && strings.Contains(err.Error(), "secret") {
				t.Errorf("%s: the error repeats the credential: %v", name, err)
			}
		})
	}
}

// The second, verified fetch must say the same as the first.
func TestDiscoverAgreement(t *testing.T) {
	cluster := bootstraptokentest.New(t, bootstraptokentest.Options{})
	good := cluster.Data()
	cfg := cluster.DiscoverConfig()
	for name, test := range map[string]struct {
		second map[string]string
		want   bootstraptoken.Check
		retry  bool
	}{
		"another kubeconfig": {signed(t, cluster, good[bootstraptoken.KubeconfigKey]+"\n"), bootstraptoken.Check("cluster-info-agreement"), true},
		"no kubeconfig":      {map[string]string{"x": "y"}, bootstraptoken.Check("cluster-info-kubeconfig"), true},
		"another signature":  {map[string]string{bootstraptoken.KubeconfigKey: good[bootstraptoken.KubeconfigKey], bootstraptoken.SignatureKeyPrefix + cfg.Token.ID(): "a..b"}, bootstraptoken.CheckSignature, false},
		"no signature":       {map[string]string{bootstraptoken.KubeconfigKey: good[bootstraptoken.KubeconfigKey]}, bootstraptoken.Check("cluster-info-no-signature"), true},
	} {
		t.Run(name, func(t *testing.T) {
			connections := 0
			cfg := cfg
			cfg.Network.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
				connections++
				cluster.SetData(good)
				if connections%2 == 0 {
					cluster.SetData(test.second)
				}
				return new(net.Dialer).DialContext(ctx, network, address)
			}
			ctx := giveUp(t, &cfg.Network, 4)
			_, err := bootstraptoken.Discover(ctx, cfg)
			if !errors.Is(err, test.want) || errors.Is(err, refusal.ErrRetry) != test.retry {
				t.Errorf("%s: %v, want %v", name, err, test.want)
			}
		})
	}
}

// A bad answer of the verified server is refused at once.
func TestDiscoverBelievesTheVerifiedServer(t *testing.T) {
	cluster := bootstraptokentest.New(t, bootstraptokentest.Options{})
	cfg := cluster.DiscoverConfig()
	connections := 0
	cfg.Network.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		if connections++; connections == 2 {
			cluster.Intercept(fault{location: "/elsewhere"}.before)
		}
		return new(net.Dialer).DialContext(ctx, network, address)
	}
	_, err := bootstraptoken.Discover(t.Context(), cfg)
	if !errors.Is(err, bootstraptoken.Check("redirect")) || errors.Is(err, refusal.ErrRetry) || connections != 2 {
		t.Errorf("%v after %d connections, want %v", err, connections, bootstraptoken.Check("redirect"))
	}
}

// signed is the data with a kubeconfig that the first token signed.
func signed(t *testing.T, cluster *bootstraptokentest.Cluster, kubeconfig string) map[string]string {
	t.Helper()
	object, err := (&bootstraptoken.Secret{Token: cluster.Token(), Usages: bootstraptoken.Usages{Signing: true}}).Object()
	if err != nil {
		t.Fatal(err)
	}
	signing, err := bootstraptoken.Sign(map[string]string{bootstraptoken.KubeconfigKey: kubeconfig}, []*bootstraptoken.Object{object}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return signing.Data
}

func TestDiscoverContext(t *testing.T) {
	cluster := bootstraptokentest.New(t, bootstraptokentest.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := bootstraptoken.Discover(ctx, cluster.DiscoverConfig()); !errors.Is(err, context.Canceled) || !errors.Is(err, refusal.ErrRetry) {
		t.Errorf("canceled before: %v", err)
	}
	// A server that does not answer, and a client that stops waiting for it.
	cluster.Intercept(fault{delay: time.Hour}.before)
	ctx, cancel = context.WithCancel(t.Context())
	defer cancel()
	cfg := cluster.DiscoverConfig()
	dialled := make(chan bool, 1)
	cfg.Network.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		select {
		case dialled <- true:
		default:
		}
		return new(net.Dialer).DialContext(ctx, network, address)
	}
	go func() { <-dialled; cancel() }()
	if _, err := bootstraptoken.Discover(ctx, cfg); !errors.Is(err, context.Canceled) || !errors.Is(err, refusal.ErrRetry) {
		t.Errorf("canceled while it waits: %v", err)
	}
	// Its own time, against an unreachable server.
	cfg = cluster.DiscoverConfig()
	cfg.Network.Timeout = 10 * time.Millisecond
	cfg.Network.Dial = func(ctx context.Context, _, _ string) (net.Conn, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if _, err := bootstraptoken.Discover(t.Context(), cfg); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, refusal.ErrRetry) {
		t.Errorf("time is up: %v", err)
	}
	// A request that takes too long does not keep the next address waiting.
	other := bootstraptokentest.New(t, bootstraptokentest.Options{})
	cfg = other.DiscoverConfig()
	cfg.Addresses = []string{cluster.Address(), other.Address()}
	cfg.Network.RequestTimeout = 2 * time.Second
	cfg.Network.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		if address == cluster.Address() {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		return new(net.Dialer).DialContext(ctx, network, address)
	}
	if found, err := bootstraptoken.Discover(t.Context(), cfg); err != nil || found.Address != other.URL() {
		t.Errorf("%+v, %v", found, err)
	}
}

// A status is explained. The search goes on: until a pinned CA has verified it, the answer may be
// an attacker's.
func TestDiscoverStatus(t *testing.T) {
	cluster := bootstraptokentest.New(t, bootstraptokentest.Options{})
	for status, want := range map[int]struct {
		check bootstraptoken.Check
		says  string
	}{
		http.StatusUnauthorized:       {"forbidden", "no anonymous requests"},
		http.StatusForbidden:          {"forbidden", "RoleBinding for system:anonymous"},
		http.StatusNotFound:           {"http-status", "no ConfigMap cluster-info"},
		http.StatusServiceUnavailable: {"http-status", "got 503, want 200"},
	} {
		cluster.Intercept(fault{status: status}.before)
		cfg := cluster.DiscoverConfig()
		ctx := giveUp(t, &cfg.Network, 1)
		_, err := bootstraptoken.Discover(ctx, cfg)
		if !errors.Is(err, want.check) || !errors.Is(err, refusal.ErrRetry) || !strings.Contains(err.Error(), want.says) {
			t.Errorf("%d: %v, want %q", status, err, want.says)
		}
		info, network := cluster.Info(), bootstraptoken.Network{}
		ctx = giveUp(t, &network, 1)
		if _, err := bootstraptoken.Refresh(ctx, info, bootstraptoken.RefreshOptions{Network: network}); !errors.Is(err, want.check) || errors.Is(err, refusal.ErrRetry) != (want.check != "forbidden") || !strings.Contains(err.Error(), want.says) {
			t.Errorf("%d, of a cluster that is known: %v, want %q", status, err, want.says)
		}
	}
}

// A page in place of a document, as a portal or a proxy sends it, is called one.
func TestDiscoverPage(t *testing.T) {
	const page = "\n<!DOCTYPE html><html><body>Please log in</body></html>"
	cluster := bootstraptokentest.New(t, bootstraptokentest.Options{})
	for kind, check := range map[string]bootstraptoken.Check{"text/html; charset=utf-8": "reply", "application/json": "cluster-info-object"} {
		cluster.Intercept(func(http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", kind)
				_, _ = io.WriteString(w, page)
			})
		})
		cfg := cluster.DiscoverConfig()
		ctx := giveUp(t, &cfg.Network, 1)
		if _, err := bootstraptoken.Discover(ctx, cfg); !errors.Is(err, check) || !errors.Is(err, refusal.ErrRetry) || !strings.Contains(err.Error(), "a web page") {
			t.Errorf("%s: %v", kind, err)
		}
	}
	if _, err := bootstraptoken.DiscoverReader(strings.NewReader(page)); !errors.Is(err, bootstraptoken.Check("kubeconfig")) || !strings.Contains(err.Error(), "a web page") {
		t.Errorf("in a file: %v", err)
	}
}

// The error has the fault of each address, from before time was up.
func TestDiscoverErrorNamesAddresses(t *testing.T) {
	cluster := bootstraptokentest.New(t, bootstraptokentest.Options{})
	impostor := cluster.NewImpostor(t, bootstraptokentest.WrongSecret)
	cluster.Intercept(fault{status: http.StatusForbidden}.before)
	cfg := cluster.DiscoverConfig()
	cfg.Addresses = []string{impostor.Address(), cluster.URL(), cluster.Address()}
	ctx := giveUp(t, &cfg.Network, 3)
	_, err := bootstraptoken.Discover(ctx, cfg)
	var byAddress *bootstraptoken.DiscoverError
	if !errors.As(err, &byAddress) || len(byAddress.Addresses) != 2 {
		t.Fatalf("%v, want two addresses", err)
	}
	first, second := byAddress.Addresses[0], byAddress.Addresses[1]
	if first.Address != impostor.URL() || !errors.Is(first.Err, bootstraptoken.CheckSignature) || !errors.Is(first.Err, refusal.ErrRetry) {
		t.Errorf("first %+v", first)
	}
	var own *bootstraptoken.Error
	if !errors.As(second.Err, &own) || own.Check != refusal.ErrRetry || !errors.As(own.Err, &own) || own.Check != bootstraptoken.Check("forbidden") {
		t.Errorf("%v is not one retry of one check", second.Err)
	}
	if second.Address != cluster.URL() || !errors.Is(second.Err, bootstraptoken.Check("forbidden")) || !errors.Is(second.Err, refusal.ErrRetry) {
		t.Errorf("second %+v", second)
	}
	if !errors.Is(err, refusal.ErrRetry) || !errors.Is(err, context.Canceled) {
		t.Errorf("%v does not say that time was up", err)
	}
	for _, want := range []string{impostor.URL(), cluster.URL(), "403"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q does not say %s", err, want)
		}
	}
	if strings.Contains(err.Error(), strings.Split(cluster.Token().Reveal(), ".")[1]) {
		t.Error("the error has the secret")
	}
}

// The error has the last fault at each address.
func TestDiscoverTellsTheLastFault(t *testing.T) {
	cluster := bootstraptokentest.New(t, bootstraptokentest.Options{})
	cfg := cluster.DiscoverConfig()
	cfg.Addresses = []string{cluster.NewImpostor(t, bootstraptokentest.WrongCA).Address(), cluster.Address()}
	connections := 0
	cfg.Network.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		if address == cluster.Address() {
			connections++
			cluster.Intercept(fault{status: 500}.before)
			if connections == 3 {
				cluster.Intercept(fault{location: "/elsewhere"}.before)
			}
		}
		return new(net.Dialer).DialContext(ctx, network, address)
	}
	_, err := bootstraptoken.Discover(giveUp(t, &cfg.Network, 6), cfg)
	if !errors.Is(err, bootstraptoken.Check("redirect")) || errors.Is(err, bootstraptoken.Check("http-status")) || !errors.Is(err, bootstraptoken.CheckPinned) || !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want %v", err, bootstraptoken.Check("redirect"))
	}
}

// A proxy is used if the caller names one, and not because of the environment.
func TestDiscoverProxy(t *testing.T) {
	cluster := bootstraptokentest.New(t, bootstraptokentest.Options{})
	t.Setenv("HTTPS_PROXY", "http://127.0.0.1:1")
	cfg := cluster.DiscoverConfig()
	if _, err := bootstraptoken.Discover(t.Context(), cfg); err != nil {
		t.Error(err)
	}
	// A proxy over https would be dialled with the server's TLS configuration, which skips verification.
	cfg.Network.Proxy = func(*http.Request) (*url.URL, error) { return url.Parse("https://user:password@127.0.0.1:1") }
	_, err := bootstraptoken.Discover(t.Context(), cfg)
	if !errors.Is(err, refusal.CheckConfig) || errors.Is(err, refusal.ErrRetry) || strings.Contains(err.Error(), "password") {
		t.Errorf("a proxy over TLS: %v, want %v", err, refusal.CheckConfig)
	}
}

// Addresses are hosts, hosts with a port, or URLs.
func TestDiscoverAddresses(t *testing.T) {
	cluster := bootstraptokentest.New(t, bootstraptokentest.Options{Hosts: []string{"api.example.com"}})
	for _, address := range []string{cluster.Address(), cluster.URL(), cluster.URL() + "/", "api.example.com", "::1", "[::1]:443", "https://api.example.com"} {
		cfg := cluster.DiscoverConfig()
		cfg.Addresses = []string{address}
		cfg.Network.Dial = func(ctx context.Context, network, to string) (net.Conn, error) {
			if !strings.HasPrefix(address, "127") && !strings.HasPrefix(address, "https://127") && !strings.HasSuffix(to, ":443") {
				t.Errorf("%s: dials %s", address, to)
			}
			return new(net.Dialer).DialContext(ctx, network, cluster.Address())
		}
		if _, err := bootstraptoken.Discover(t.Context(), cfg); err != nil {
			t.Errorf("%s: %v", address, err)
		}
	}
	// The name that was asked for must be in the certificate.
	cfg := cluster.DiscoverConfig()
	cfg.Addresses = []string{"other.example.com"}
	cfg.Network.Dial = func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, cluster.Address())
	}
	if _, err := bootstraptoken.Discover(giveUp(t, &cfg.Network, 2), cfg); !errors.Is(err, bootstraptoken.CheckCertificate) {
		t.Errorf("%v, want %v", err, bootstraptoken.CheckCertificate)
	}
}

// An expired certificate is judged by the caller's clock.
func TestDiscoverClock(t *testing.T) {
	cluster := bootstraptokentest.New(t, bootstraptokentest.Options{})
	cfg := cluster.DiscoverConfig()
	cfg.Network.Now = func() time.Time { return time.Now().AddDate(2, 0, 0) }
	if _, err := bootstraptoken.Discover(giveUp(t, &cfg.Network, 2), cfg); !errors.Is(err, bootstraptoken.CheckCertificate) {
		t.Errorf("%v, want %v", err, bootstraptoken.CheckCertificate)
	}
}
