package node

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/bootstraptoken"
	"github.com/nodeattest/nodeattest/bootstraptoken/bootstraptokentest"
	"github.com/nodeattest/nodeattest/internal/safefile"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/refusal"
)

// A bare is a machine with nothing but a token's file.
type bare struct {
	t       testing.TB
	dir     string // of the files that discover writes
	token   string // its file
	secret  string // the secret half of the token
	stdin   io.Reader
	network bootstraptoken.Network
}

// newBare makes a machine for a cluster. Discovery gives up after a short time.
func newBare(t testing.TB, cluster *bootstraptokentest.Cluster) *bare {
	t.Helper()
	folder := t.TempDir()
	_, secret, _ := strings.Cut(cluster.Token().Reveal(), ".")
	b := &bare{t: t, dir: filepath.Join(folder, "kubernetes"), token: filepath.Join(folder, "token"), secret: secret, stdin: strings.NewReader("")}
	testkit.MustDo(os.WriteFile(b.token, []byte(cluster.Token().Reveal()+"\n"), 0o600))
	b.network = bootstraptoken.Network{MinBackoff: time.Millisecond, MaxBackoff: 20 * time.Millisecond}
	return b
}

// run runs the command, and returns its exit status, its output and its error. Neither has the secret.
func (b *bare) run(ctx context.Context, args ...string) (status int, out string, err error) {
	b.t.Helper()
	var stdout, stderr bytes.Buffer
	d := newDiscovery(b.stdin)
	d.network = b.network
	err = d.command(ctx, append([]string{"--dir", b.dir, "--timeout", "30s"}, args...), &stdout, &stderr)
	if text := stdout.String() + stderr.String() + errorText(err); strings.Contains(text, b.secret) {
		b.t.Errorf("the token is shown: %s", text)
	}
	return exitStatus(err), stdout.String(), err
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// files returns the content of both files, "" for one that is missing.
func (b *bare) files() (ca, kubeconfig string) {
	text := func(name string) string {
		content, err := os.ReadFile(filepath.Join(b.dir, name))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			b.t.Fatal(err)
		}
		return string(content)
	}
	return text("ca.crt"), text("kubelet-authenticator.conf")
}

// pinned returns the arguments of discovery by a token at addresses.
func (b *bare) pinned(pin bootstraptoken.Pin, addresses ...string) []string {
	return append([]string{"--token-file", b.token, "--ca-cert-hash", pin.String()}, addresses...)
}

// TestDiscover: the files lead the authenticator to the cluster, by the pinned CA alone, and a second run
// changes nothing.
func TestDiscover(t *testing.T) {
	cluster := bootstraptokentest.New(t, bootstraptokentest.Options{})
	pin := cluster.Info().Pins()[0]
	testkit.MustDo(cluster.AddCA()) // without a pin
	b := newBare(t, cluster)
	status, out, err := b.run(t.Context(), b.pinned(pin, cluster.Address())...)
	if status != 0 || strings.Count(out, "wrote: ") != 2 || strings.Count(out, "not trusted, without a pin: ") != 1 || !strings.Contains(out, pin.String()) {
		t.Fatalf("status %d, %v:\n%s", status, err, out)
	}
	for _, name := range []string{"ca.crt", "kubelet-authenticator.conf"} {
		if info := testkit.Must(os.Stat(filepath.Join(b.dir, name))); info.Mode() != 0o600 {
			t.Errorf("%s has mode %s", name, info.Mode())
		}
	}
	config := testkit.Must(readKubeconfig(filepath.Join(b.dir, "kubelet-authenticator.conf")))
	cas := testkit.Must(bootstraptoken.ParseCAs(config.CAData))
	if config.Host != cluster.URL() || config.BearerToken != cluster.Token().Reveal() || len(cas) != 1 || !cas[0].Equal(cluster.Info().CAs[0]) {
		t.Errorf("got %s with %d CAs", config.Host, len(cas))
	}
	for _, r := range cluster.Requests() {
		if r.Header.Get("Authorization") != "" || len(r.TLS.PeerCertificates) != 0 {
			t.Errorf("a credential was sent to %s", r.URL)
		}
	}
	ca, kubeconfig := b.files()
	status, out, err = b.run(t.Context(), b.pinned(pin, cluster.Address())...)
	if again, conf := b.files(); status != 0 || strings.Count(out, "unchanged: ") != 2 || again != ca || conf != kubeconfig {
		t.Errorf("again: status %d, %v:\n%s", status, err, out)
	}
	t.Run("without pins", func(t *testing.T) {
		b := newBare(t, cluster)
		status, _, err := b.run(t.Context(), "--token-file", b.token, "--insecure-skip-ca-pins", cluster.Address())
		if ca, _ := b.files(); status != 0 || strings.Count(ca, "BEGIN") != 2 {
			t.Errorf("status %d, %v: %s", status, err, ca)
		}
	})
}

// TestDiscoverRefuses has one row for each way in which discovery fails: its check and exit status. No
// file is written.
func TestDiscoverRefuses(t *testing.T) {
	cluster := bootstraptokentest.New(t, bootstraptokentest.Options{})
	pin, address := cluster.Info().Pins()[0], cluster.Address()
	other := bootstraptokentest.New(t, bootstraptokentest.Options{}) // another cluster, with another token
	redirects := bootstraptokentest.New(t, bootstraptokentest.Options{Token: cluster.Token()})
	redirects.Intercept(func(http.Handler) http.Handler { return http.RedirectHandler(cluster.URL(), http.StatusFound) })
	forbids := bootstraptokentest.New(t, bootstraptokentest.Options{Token: cluster.Token()})
	forbids.Intercept(func(http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) })
	})
	b := newBare(t, cluster)
	file := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(t.TempDir(), name)
		testkit.MustDo(os.WriteFile(path, []byte(text), 0o600))
		testkit.MustDo(os.Chmod(path, mode))
		return path
	}
	document := string(testkit.Must(cluster.Info().Marshal()))
	good := file("document", document, 0o600)
	withToken := strings.Replace(document, "users: null", "users: [{name: a, user: {token: abcdef.0123456789abcdef}}]", 1)
	if withToken == document {
		t.Fatal("the document has no users")
	}
	revealed := cluster.Token().Reveal()
	for name, row := range map[string]struct {
		args   []string
		status int
		check  refusal.Check
	}{
		"two sources":              {append([]string{"--discovery-file", good}, b.pinned(pin, address)...), 2, refusal.CheckConfig},
		"a document and a pin":     {[]string{"--discovery-file", good, "--ca-cert-hash", pin.String()}, 2, refusal.CheckConfig},
		"a document and addresses": {[]string{"--discovery-file", good, address}, 2, refusal.CheckConfig},
		"no source":                {nil, 2, refusal.CheckConfig},
		"no token":                 {[]string{"--ca-cert-hash", pin.String(), address}, 2, refusal.CheckConfig},
		"no address":               {[]string{"--token-file", b.token, "--ca-cert-hash", pin.String()}, 2, refusal.CheckConfig},
		"no pin":                   {[]string{"--token-file", b.token, address}, 2, refusal.CheckConfig},
		"a pin, and none":          {append([]string{"--insecure-skip-ca-pins"}, b.pinned(pin, address)...), 2, refusal.CheckConfig},
		"no pin's form":            {[]string{"--token-file", b.token, "--ca-cert-hash", "sha256:00", address}, 2, "ca-pin"},
		"a bearer in addition":     {append([]string{"--tls-bootstrap-token-file", b.token}, b.pinned(pin, address)...), 2, refusal.CheckConfig},
		"the token as address":     {append(b.pinned(pin), revealed), 2, refusal.CheckConfig},
		"the token as file":        {[]string{"--token-file", revealed}, 2, refusal.CheckConfig},
		"the token of a flag":      {[]string{"--discovery-file=" + revealed}, 2, refusal.CheckConfig},
		"http":                     {b.pinned(pin, "http://"+address), 2, "server-url-scheme"},
		"http of a document":       {[]string{"--discovery-file", "http://127.0.0.1/doc"}, 2, "server-url-scheme"},
		"a password in a URL":      {[]string{"--discovery-file", "https://a:b@127.0.0.1/doc"}, 2, "kubeconfig-credentials"},
		"a flag after an address":  {b.pinned(pin, address, "--replace"), 2, "server-url"},
		"no time":                  {append([]string{"--timeout", "0s"}, b.pinned(pin, address)...), 2, refusal.CheckConfig},
		"a token that all can read": {[]string{"--token-file", file("token", revealed, 0o644), "--ca-cert-hash", pin.String(), address},
			1, safefile.CheckFile},
		"no token in the file": {[]string{"--token-file", file("token", "Bearer "+revealed, 0o600), "--ca-cert-hash", pin.String(), address},
			1, "bootstrap-token"},
		"a document with credentials": {[]string{"--discovery-file", file("document", withToken, 0o600)}, 1, "kubeconfig-credentials"},
		"a document of others":        {[]string{"--discovery-file", file("document", document, 0o666)}, 1, safefile.CheckFile},
		"no document":                 {[]string{"--discovery-file", file("document", "a: b", 0o600)}, 1, "kubeconfig"},
		// Not decided: any host on the network path could have sent the answer.
		"a wrong pin":                {b.pinned(other.Info().Pins()[0], address), 3, bootstraptoken.CheckPinned},
		"another secret":             {b.pinned(pin, cluster.NewImpostor(t, bootstraptokentest.WrongSecret).Address()), 3, bootstraptoken.CheckSignature},
		"an unknown ID":              {b.pinned(pin, other.Address()), 3, "cluster-info-no-signature"},
		"the CA of a former node":    {b.pinned(pin, cluster.NewImpostor(t, bootstraptokentest.WrongCA).Address()), 3, bootstraptoken.CheckPinned},
		"another CA in the second":   {b.pinned(pin, cluster.NewImpostor(t, bootstraptokentest.Relay).Address()), 3, bootstraptoken.CheckCertificate},
		"a redirect":                 {b.pinned(pin, redirects.Address()), 3, "redirect"},
		"a server that forbids":      {b.pinned(pin, forbids.Address()), 3, "forbidden"},
		"a server that does not run": {b.pinned(pin, "127.0.0.1:1"), 3, refusal.ErrRetry},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := &bare{t: t, dir: filepath.Join(t.TempDir(), "kubernetes"), secret: b.secret, stdin: strings.NewReader(""), network: b.network}
			args := row.args
			if row.status == 3 {
				args = append([]string{"--timeout", "3s"}, args...) // for an answer of a busy machine
			}
			status, out, err := b.run(t.Context(), args...)
			if status != row.status || !errors.Is(err, row.check) || strings.Contains(out, "wrote") {
				t.Errorf("status %d and %v, want %d and %s:\n%s", status, err, row.status, row.check, out)
			}
			if ca, kubeconfig := b.files(); ca+kubeconfig != "" {
				t.Errorf("it wrote %s%s", ca, kubeconfig)
			}
			t.Logf("%d: %v", status, err)
		})
	}
}

// TestDiscoverFolder: a folder that other users can write to is refused before any server is asked.
func TestDiscoverFolder(t *testing.T) {
	cluster := bootstraptokentest.New(t, bootstraptokentest.Options{})
	b := newBare(t, cluster)
	testkit.MustDo(os.Mkdir(b.dir, 0o700))
	testkit.MustDo(os.Chmod(b.dir, 0o770))
	status, _, err := b.run(t.Context(), b.pinned(cluster.Info().Pins()[0], cluster.Address())...)
	if status != 1 || !errors.Is(err, safefile.CheckFile) || len(cluster.Requests()) != 0 {
		t.Errorf("status %d, %v, after %d requests", status, err, len(cluster.Requests()))
	}
}

// TestDiscoverReplaces: a file that differs stays, and so does the other one, until --replace.
func TestDiscoverReplaces(t *testing.T) {
	cluster := bootstraptokentest.New(t, bootstraptokentest.Options{})
	for name, row := range map[string]struct {
		file, text string
		mode       os.FileMode
	}{
		"a CA":                     {"ca.crt", "another", 0o644},
		"a kubeconfig":             {"kubelet-authenticator.conf", "another", 0o600},
		"a kubeconfig for readers": {"kubelet-authenticator.conf", "", 0o644},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBare(t, cluster)
			testkit.MustDo(os.Mkdir(b.dir, 0o700))
			path := filepath.Join(b.dir, row.file)
			testkit.MustDo(os.WriteFile(path, []byte(row.text), 0o600))
			testkit.MustDo(os.Chmod(path, row.mode))
			args := b.pinned(cluster.Info().Pins()[0], cluster.Address())
			status, out, err := b.run(t.Context(), args...)
			if ca, kubeconfig := b.files(); status != 1 || !errors.Is(err, safefile.CheckFile) || !strings.Contains(errorText(err), path) || ca+kubeconfig != row.text {
				t.Errorf("status %d, %v:\n%s\nthe files are %s%s", status, err, out, ca, kubeconfig)
			}
			status, out, err = b.run(t.Context(), append([]string{"--replace"}, args...)...)
			if status != 0 || strings.Count(out, "wrote: ") != 2 {
				t.Errorf("to replace: status %d, %v:\n%s", status, err, out)
			}
			if _, err := readKubeconfig(filepath.Join(b.dir, "kubelet-authenticator.conf")); err != nil {
				t.Error(err)
			}
		})
	}
	t.Run("a link", func(t *testing.T) {
		b := newBare(t, cluster)
		testkit.MustDo(os.Mkdir(b.dir, 0o700))
		target := filepath.Join(t.TempDir(), "target")
		testkit.MustDo(os.WriteFile(target, []byte("x"), 0o600))
		testkit.MustDo(os.Symlink(target, filepath.Join(b.dir, "ca.crt")))
		args := b.pinned(cluster.Info().Pins()[0], cluster.Address())
		if status, _, err := b.run(t.Context(), args...); status != 1 || !errors.Is(err, safefile.CheckFile) {
			t.Errorf("status %d, %v", status, err)
		}
		if status, _, err := b.run(t.Context(), append([]string{"--replace"}, args...)...); status != 0 || string(testkit.Must(os.ReadFile(target))) != "x" {
			t.Errorf("to replace: status %d, %v", status, err)
		}
	})
}

// TestDiscoverDocument reads the document from a file, standard input and an https server.
func TestDiscoverDocument(t *testing.T) {
	cluster := bootstraptokentest.New(t, bootstraptokentest.Options{})
	document := testkit.Must(cluster.Info().Marshal())
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/document":
			_, _ = w.Write(document)
		case "/large":
			_, _ = w.Write(make([]byte, 300<<10))
		case "/plain":
			http.Redirect(w, r, "http://"+r.Host+"/document", http.StatusFound)
		default:
			http.Redirect(w, r, "/document", http.StatusFound)
		}
	}))
	defer server.Close()
	roots := x509.NewCertPool()
	roots.AddCert(server.Certificate())
	b := newBare(t, cluster)
	path := filepath.Join(t.TempDir(), "document")
	testkit.MustDo(os.WriteFile(path, document, 0o600))
	for name, row := range map[string]struct {
		source string
		stdin  io.Reader
		roots  *x509.CertPool
		status int
		check  refusal.Check
	}{
		"a file":                    {source: path},
		"standard input":            {source: "-", stdin: bytes.NewReader(document)},
		"standard input of text":    {source: "-", stdin: strings.NewReader("text"), status: 1, check: "kubeconfig"},
		"standard input of no end":  {source: "-", stdin: endless{}, status: 3},
		"a large standard input":    {source: "-", stdin: io.LimitReader(zeros{}, 300<<10), status: 1, check: "kubeconfig"},
		"a server":                  {source: server.URL + "/document?key=hunter2", roots: roots},
		"a server that redirects":   {source: server.URL + "/other", roots: roots, status: 1, check: checkRedirect},
		"a redirect to http":        {source: server.URL + "/plain", roots: roots, status: 1, check: "redirect"},
		"a large document":          {source: server.URL + "/large", roots: roots, status: 1, check: "reply"},
		"a server that is not ours": {source: server.URL + "/document", roots: x509.NewCertPool(), status: 1, check: bootstraptoken.CheckCertificate},
	} {
		t.Run(name, func(t *testing.T) {
			b := &bare{t: t, dir: filepath.Join(t.TempDir(), "kubernetes"), token: b.token, secret: b.secret, stdin: row.stdin, network: b.network}
			b.network.SystemRoots = row.roots
			timeout := "30s"
			if row.status == 3 {
				timeout = "300ms"
			}
			status, out, err := b.run(t.Context(), "--timeout", timeout, "--discovery-file", row.source, "--tls-bootstrap-token-file", b.token)
			if status != row.status || row.check != "" && !errors.Is(err, row.check) || strings.Contains(errorText(err), "hunter2") {
				t.Fatalf("status %d, %v, want %d and %s:\n%s", status, err, row.status, row.check, out)
			}
			if row.status != 0 {
				return
			}
			config := testkit.Must(readKubeconfig(filepath.Join(b.dir, "kubelet-authenticator.conf")))
			if config.Host != cluster.URL() || config.BearerToken != cluster.Token().Reveal() || len(config.CAData) == 0 {
				t.Errorf("got %+v", config)
			}
		})
	}
	t.Run("of the system's roots, without a token", func(t *testing.T) {
		b := newBare(t, cluster)
		b.stdin = bytes.NewReader(testkit.Must((&bootstraptoken.ClusterInfo{Server: "https://api.example.com", SystemRoots: true}).Marshal()))
		status, out, err := b.run(t.Context(), "--discovery-file", "-")
		ca, kubeconfig := b.files()
		if status != 0 || ca != "" || strings.Contains(kubeconfig, "certificate-authority") || strings.Contains(kubeconfig, "token:") {
			t.Errorf("status %d, %v:\n%s\n%s", status, err, out, kubeconfig)
		}
	})
}

// endless is a terminal without input.
type endless struct{}

func (endless) Read([]byte) (int, error) {
	time.Sleep(time.Minute)
	return 0, io.EOF
}

// zeros has no end.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

// commandVar has this test's program run a command of the real one.
const commandVar = "NODEATTEST_TEST_COMMAND"

func TestMain(m *testing.M) {
	if command := os.Getenv(commandVar); command != "" {
		text := testkit.Must(base64.StdEncoding.DecodeString(command))
		os.Exit(Main(strings.Split(string(text), "\n"), os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}
