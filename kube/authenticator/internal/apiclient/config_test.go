package apiclient

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"errors"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/refusal"
)

func TestLoad(t *testing.T) {
	t.Parallel()
	const password = "hunter2-hunter3"
	for name, c := range map[string]*rest.Config{
		"nothing":        nil,
		"no server":      {},
		"http":           {Host: "http://api.example:6443"},
		"no scheme":      {Host: "api.example:6443"},
		"an address":     {Host: "192.0.2.1:6443"},
		"no host":        {Host: "https://:6443"},
		"no URL":         {Host: "https://user:" + password + "@api example"},
		"a user":         {Host: "https://user:" + password + "@api.example"},
		"a query":        {Host: "https://api.example?to=http://x"},
		"a plugin":       {Host: "https://api.example", ExecProvider: &clientcmdapi.ExecConfig{Command: "x"}},
		"an old plugin":  {Host: "https://api.example", AuthProvider: &clientcmdapi.AuthProviderConfig{Name: "x"}},
		"not verified":   {Host: "https://api.example", TLSClientConfig: rest.TLSClientConfig{Insecure: true}},
		"own connection": {Host: "https://api.example", Transport: http.DefaultTransport},
		"no CA":          {Host: "https://api.example", TLSClientConfig: rest.TLSClientConfig{CAData: []byte("x")}},
		"no key":         {Host: "https://api.example", TLSClientConfig: rest.TLSClientConfig{CertData: []byte("x"), KeyData: []byte("y")}},
		"two of them":    {Host: "https://api.example", BearerToken: testToken, Username: "user", Password: password},
	} {
		t.Run(name, func(t *testing.T) {
			made, err := Connect(c, nil)
			if !errors.Is(err, refusal.CheckConfig) || made != nil || strings.Contains(err.Error(), password) {
				t.Errorf("got %v", err)
			}
		})
	}
}

// TestLoadFiles: what files contain is read once.
func TestLoadFiles(t *testing.T) {
	t.Parallel()
	s := newServer(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+testToken {
			t.Errorf("got %q", r.Header.Get("Authorization"))
		}
		answer(w, http.StatusOK, request("a"))
	})
	c, dir := s.config(), t.TempDir()
	write := func(name string, text []byte) string {
		path := filepath.Join(dir, name)
		testkit.MustDo(os.WriteFile(path, text, 0o600))
		return path
	}
	c.CAFile, c.CAData = write("ca.crt", c.CAData), nil
	c.BearerTokenFile, c.BearerToken = write("token", []byte(testToken+"\n")), ""
	made := connect(t, c, nil)
	testkit.MustDo(os.RemoveAll(dir))
	if _, err := made.get(t.Context(), request("a")); err != nil {
		t.Error(err)
	}
	if _, err := Connect(c, nil); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without its files: got %v", err)
	}
	dir = t.TempDir()
	c.CAFile = write("ca.crt", nil)
	c.BearerTokenFile = write("token", make([]byte, maxTokenSize+1))
	if _, err := Load(c); err == nil {
		t.Error("a token without end")
	}
}

func TestCAs(t *testing.T) {
	t.Parallel()
	key := testkit.Must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	one, two := newCA(t, "one", nil), &testCA{key: key}
	two.cert = two.sign(t, "two", key)
	c := &rest.Config{TLSClientConfig: rest.TLSClientConfig{CAData: append([]byte("text around them\n"), caData(one.cert, two.cert)...)}}
	if all, err := CAs(c); err != nil || len(all) != 2 || !all[1].Equal(two.cert) {
		t.Errorf("got %v, %v", all, err)
	}
	if all, err := CAs(&rest.Config{}); all != nil || err != nil {
		t.Errorf("none: got %v, %v", all, err)
	}
}
