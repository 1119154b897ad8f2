package apiserver

import (
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/nodeattest/nodeattest/jws"
	"github.com/nodeattest/nodeattest/refusal"
)

// A recordedDiscovery is a configuration and what kube-apiserver serves for it.
type recordedDiscovery struct {
	What            string   `json:"what"`
	Issuer          string   `json:"issuer"`
	KeySetURL       string   `json:"key_set_url"`
	ExternalAddress string   `json:"external_address"`
	Excluded        []string `json:"excluded"`
	Error           string   `json:"error"`
	Configuration   string   `json:"configuration"`
	KeySet          string   `json:"key_set"`
}

func (r *recordedDiscovery) config() OIDCConfig {
	return OIDCConfig{Issuer: r.Issuer, KeySetURL: r.KeySetURL, ExternalAddress: r.ExternalAddress}
}

// recordedDiscoveries returns the cases and the keys of all of them.
func recordedDiscoveries(t testing.TB) ([]recordedDiscovery, []*jws.Key) {
	t.Helper()
	var file struct {
		Keys  string              `json:"keys"`
		Cases []recordedDiscovery `json:"cases"`
	}
	recording(t, "oidc.json", &file)
	keys, err := jws.ParseJWKS([]byte(file.Keys))
	if err != nil {
		t.Fatal(err)
	}
	if len(file.Cases) < 10 || len(keys) != 5 {
		t.Fatalf("%d cases, %d keys", len(file.Cases), len(keys))
	}
	return file.Cases, keys
}

// published are the keys that kube-apiserver does not exclude from discovery.
func (r *recordedDiscovery) published(keys []*jws.Key) []*jws.Key {
	return slices.DeleteFunc(slices.Clone(keys), func(k *jws.Key) bool { return slices.Contains(r.Excluded, k.KeyID()) })
}

func TestRenderLikeKubernetes(t *testing.T) {
	cases, keys := recordedDiscoveries(t)
	for _, r := range cases {
		t.Run(r.What, func(t *testing.T) {
			config := r.config()
			got, err := config.Render(r.published(keys))
			if r.Error != "" {
				if got != nil || !errors.Is(err, refusal.CheckConfig) {
					t.Errorf("got %v, want an error like %q", err, r.Error)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if string(got.Configuration) != r.Configuration {
				t.Errorf("got  %s\nwant %s", got.Configuration, r.Configuration)
			}
			if string(got.KeySet) != r.KeySet {
				t.Errorf("got  %s\nwant %s", got.KeySet, r.KeySet)
			}
		})
	}
}

func TestRenderRefuses(t *testing.T) {
	cases, keys := recordedDiscoveries(t)
	public, _, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	edwards, err := jws.NewKey(public, nil)
	if err != nil {
		t.Fatal(err)
	}
	pss, err := jws.NewKey(keys[0].Public(), &jws.KeyOptions{Algorithm: jws.PS256})
	if err != nil {
		t.Fatal(err)
	}
	good := cases[0].config()
	for what, published := range map[string][]*jws.Key{
		"none":        nil,
		"nil":         {nil},
		"Ed25519":     {edwards},
		"another alg": {keys[0], pss},
	} {
		if got, err := good.Render(published); got != nil || !errors.Is(err, refusal.CheckConfig) {
			t.Errorf("%s: %v", what, err)
		}
	}
	long := strings.Repeat("a", MaxURLSize)
	for what, config := range map[string]OIDCConfig{
		"no issuer":         {ExternalAddress: "h"},
		"no host":           {Issuer: "https:///path", ExternalAddress: "h"},
		"a long issuer":     {Issuer: "https://" + long, ExternalAddress: "h"},
		"a long address":    {Issuer: "https://h", ExternalAddress: "h" + long},
		"a long URL":        {Issuer: "https://h", KeySetURL: "https://" + long},
		"a malformed URL":   {Issuer: "https://h", KeySetURL: "https://h/%zz"},
		"no URL of the set": {Issuer: "https://h", KeySetURL: "jwks"},
	} {
		if got, err := config.Render([]*jws.Key{keys[0]}); got != nil || !errors.Is(err, refusal.CheckConfig) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// FuzzRender: no issuer or address makes a document that names an http URL, or panics.
func FuzzRender(f *testing.F) {
	cases, keys := recordedDiscoveries(f)
	for _, r := range cases {
		f.Add(r.Issuer, r.KeySetURL, r.ExternalAddress)
	}
	f.Fuzz(func(t *testing.T, issuer, keySetURL, address string) {
		config := OIDCConfig{Issuer: issuer, KeySetURL: keySetURL, ExternalAddress: address}
		got, err := config.Render([]*jws.Key{keys[1]})
		if err != nil {
			if !errors.Is(err, refusal.CheckConfig) {
				t.Fatal(err)
			}
			return
		}
		url, err := config.check()
		if err != nil || !strings.HasPrefix(strings.ToLower(url), "https://") || !strings.HasPrefix(strings.ToLower(issuer), "https://") {
			t.Fatalf("%s: %q, %v", got.Configuration, url, err)
		}
	})
}
