package node

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nodeattest/nodeattest/internal/testkit"
)

// TestReadKubeconfig reads a file of the node's own: where the API server is, its CA by path,
// and a bootstrap token or, once the node has joined, nothing.
func TestReadKubeconfig(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"ca.crt": "CA", "token": "abcdef.0123456789abcdef\n", "client.pem": "PAIR"} {
		testkit.MustDo(os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	const token, server = "abcdef.0123456789abcdef", "https://192.0.2.1:6443"
	t.Setenv("KUBERNETES_MASTER", "https://192.0.2.9")
	for name, row := range map[string]struct{ cluster, user, token, pair, want string }{
		"a token":                 {"server: " + server + ", certificate-authority: " + dir + "/ca.crt", "token: " + token, token, "", ""},
		"a path next to it":       {"server: " + server + ", certificate-authority: ca.crt", "token: " + token, token, "", ""},
		"data over a path":        {"server: " + server + ", certificate-authority: none, certificate-authority-data: Q0E=", "", "", "", ""},
		"a token's file":          {"server: " + server + ", certificate-authority: ca.crt", "tokenFile: token", token, "", ""},
		"a certificate":           {"server: " + server + ", certificate-authority: ca.crt", "client-certificate: client.pem, client-key: client.pem", "", "PAIR", ""},
		"a proxy with a password": {"server: " + server + ", certificate-authority: ca.crt, proxy-url: 'http://user:hunter2@192.0.2.2:3128'", "", "", "", ""},
		"no file of that name":    {"server: " + server + ", certificate-authority: none.crt", "", "", "", "none.crt"},
		"no server":               {"certificate-authority: ca.crt", "", "", "", "no server"},
		"a proxy of no address":   {"server: " + server + ", proxy-url: 'http://user:hunter2@pro xy:1'", "", "", "", "proxy-url of the kubeconfig"},
		"a proxy of another kind": {"server: " + server + ", proxy-url: 'ftp://user:hunter2@proxy'", "", "", "", "proxy-url of the kubeconfig"},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := readKubeconfig(kubeconfigIn(t, dir, row.cluster, row.user))
			switch {
			case row.want != "":
				if err == nil || !strings.Contains(err.Error(), row.want) || strings.Contains(err.Error(), "hunter2") {
					t.Errorf("got %v, want %q", err, row.want)
				}
			case err != nil:
				t.Error(err)
			case c.Host != server || string(c.CAData) != "CA" || c.CAFile != "" || c.BearerToken != row.token || c.BearerTokenFile != "" || string(c.CertData) != row.pair || string(c.KeyData) != row.pair:
				t.Errorf("got %+v", c)
			}
		})
	}
	for name, text := range map[string]string{"empty": "", "no context": "apiVersion: v1\nkind: Config\n", "no user in the context": "apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {server: 'https://192.0.2.1'}}]\n" +
		"contexts: [{name: x, context: {cluster: c}}]\ncurrent-context: x\n"} {
		path := filepath.Join(dir, "kubeconfig")
		testkit.MustDo(os.WriteFile(path, []byte(text), 0o600))
		if c, err := readKubeconfig(path); (err == nil) != (name == "no user in the context") || err == nil && c.BearerToken != "" {
			t.Errorf("%s: got %+v, %v", name, c, err)
		}
	}
	none := filepath.Join(dir, "none", "kubeconfig") // the error names the file, and not the folder alone
	if _, err := readKubeconfig(none); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), none) {
		t.Errorf("no file: got %v", err)
	}
}

// kubeconfigIn writes a kubeconfig with these fields of its cluster and its user.
func kubeconfigIn(t *testing.T, dir, cluster, user string) string {
	t.Helper()
	path := filepath.Join(dir, "kubeconfig")
	if err := os.WriteFile(path, []byte("apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {"+cluster+"}}]\ncontexts: [{name: x, context: {cluster: c, user: u}}]\n"+
		"current-context: x\nusers: [{name: u, user: {"+user+"}}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
