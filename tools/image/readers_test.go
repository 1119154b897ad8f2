package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// made makes an image of files and returns the paths of its archive and of its one layer.
func made(t *testing.T, args ...string) (archive, layer string) {
	t.Helper()
	dir := t.TempDir()
	archive, layer = filepath.Join(dir, "image.tar"), filepath.Join(dir, "layer.tar")
	if err := run(append([]string{"-o", archive, "-tag", "example.com/nodeattest:v1"}, args...), io.Discard); err != nil {
		t.Fatal(err)
	}
	tag, err := name.NewTag("example.com/nodeattest:v1")
	if err != nil {
		t.Fatal(err)
	}
	image, err := tarball.ImageFromPath(archive, &tag)
	if err != nil {
		t.Fatal(err)
	}
	layers, err := image.Layers()
	if err != nil || len(layers) != 1 {
		t.Fatal(len(layers), err)
	}
	r, err := layers[0].Uncompressed()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	w, err := os.Create(layer)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(w, r); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return archive, layer
}

// program runs a program, which must write nothing to stderr and succeed, and returns its output.
func program(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil || stderr.Len() != 0 {
		t.Fatalf("%s: %v\n%s", cmd, err, &stderr)
	}
	return string(out)
}

// filesIn are the files below a folder: mode, and whole text.
func filesIn(t *testing.T, root string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := fs.WalkDir(os.DirFS(root), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		text, err := os.ReadFile(filepath.Join(root, path))
		files[path] = fmt.Sprintf("%o %s", info.Mode().Perm(), text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// read has Python read an archive: a line for each file, with its mode and text.
const read = `
import sys, tarfile
for m in (a := tarfile.open(sys.argv[1], "r:")):
    if m.isfile(): print(m.name, "%o" % m.mode, a.extractfile(m).read().hex())
`

// TestReaders has programs that are not written in Go read the layer and the archive around
// it. They see the files as they are, at any size.
func TestReaders(t *testing.T) {
	for _, size := range []int{0, 162, 512, 70_000} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			text := strings.Repeat("x", size)
			path := filepath.Join(t.TempDir(), "program")
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			archive, layer := made(t, path)
			root := t.TempDir()
			program(t, exec.Command("tar", "-xpf", layer, "-C", root))
			program(t, exec.Command("tar", "-tf", archive))
			got := filesIn(t, root)
			if want := "755 " + text; got["program"] != want {
				t.Errorf("tar: %.20q of %d bytes, want %.20q of %d", got["program"], len(got["program"]), want, len(want))
			}
			var lines []string
			for name, file := range got {
				mode, text, _ := strings.Cut(file, " ")
				lines = append(lines, fmt.Sprintf("%s %s %x", name, mode, text))
			}
			want := slices.Sorted(slices.Values(lines))
			if said := slices.Sorted(strings.Lines(program(t, exec.Command("python3", "-c", read, layer)))); strings.Join(said, "") != strings.Join(want, "\n")+"\n" {
				t.Errorf("Python reads other files: %.200q, want %.200q", said, want)
			}
			program(t, exec.Command("python3", "-c", read, archive))
		})
	}
}

// authority is a CA of the test's own, as PEM, and a certificate of it for this machine.
func authority(t *testing.T) (roots string, served tls.Certificate) {
	t.Helper()
	issue := func(template, above *x509.Certificate, by *ecdsa.PrivateKey) (*x509.Certificate, *ecdsa.PrivateKey) {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		if above == nil {
			above, by = template, key
		}
		template.SerialNumber, template.NotAfter = big.NewInt(1), time.Now().Add(time.Hour)
		der, err := x509.CreateCertificate(rand.Reader, template, above, key.Public(), by)
		if err != nil {
			t.Fatal(err)
		}
		c, err := x509.ParseCertificate(der)
		if err != nil {
			t.Fatal(err)
		}
		return c, key
	}
	ca, key := issue(&x509.Certificate{Subject: pkix.Name{CommonName: "a CA of the operator's"}, IsCA: true, BasicConstraintsValid: true}, nil, nil)
	leaf, own := issue(&x509.Certificate{IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}, ca, key)
	path := filepath.Join(t.TempDir(), "roots.pem")
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ca.Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	return path, tls.Certificate{Certificate: [][]byte{leaf.Raw}, PrivateKey: own}
}

// fetcher builds a static program that fetches keys as the controller does.
func fetcher(t *testing.T) string {
	t.Helper()
	const core = "github.com/nodeattest/nodeattest"
	repository, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	sums, err := os.ReadFile(filepath.Join(repository, "go.sum"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod": "module fetch\n\ngo 1.26.0\n\nrequire " + core + " v0.0.0\n\nreplace " + core + " => " + repository + "\n",
		"go.sum": string(sums),
		"main.go": `package main

import (
	"context"
	"fmt"
	"net/http"
	"os"

	"` + core + `/jws"
)

func main() {
	set, err := jws.NewRemoteKeySet(jws.RemoteConfig{Client: http.DefaultClient, JWKSURL: os.Args[1]})
	if err != nil {
		panic(err)
	}
	keys, err := set.Keys(context.Background(), "google")
	if err != nil {
		fmt.Println(err)
	}
	for _, k := range keys {
		fmt.Println(k.KeyID())
	}
}
`} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command("go", "build", "-mod=mod", "-o", "fetch", ".")
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return filepath.Join(dir, "fetch")
}

// TestFetch runs a program in the image's own root, as its own user. It fetches keys over
// HTTPS from a server under a CA of the bundle, and from no other.
func TestFetch(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("chroot needs root")
	}
	const keys = `{"keys":[{"kty":"OKP","crv":"Ed25519","kid":"google","use":"sig","alg":"EdDSA","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}`
	fetch := fetcher(t)
	roots, served := authority(t)
	_, strange := authority(t)
	_, layer := made(t, "-roots", roots, fetch)
	root := filepath.Join(t.TempDir(), "root")
	if err := os.Mkdir(root, 0o755); err != nil {
		t.Fatal(err)
	}
	program(t, exec.Command("tar", "-xpf", layer, "-C", root))
	for name, c := range map[string]struct {
		certificate tls.Certificate
		want        string
	}{"a CA of the bundle": {served, "google\n"}, "another CA": {strange, "certificate signed by unknown authority"}} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				_, _ = io.WriteString(w, keys)
			}))
			server.TLS = &tls.Config{Certificates: []tls.Certificate{c.certificate}}
			server.StartTLS()
			defer server.Close()
			cmd := exec.Command("/fetch", server.URL)
			cmd.Dir, cmd.Env = "/", []string{}
			cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root, Credential: &syscall.Credential{Uid: 65532, Gid: 65532}}
			if got := program(t, cmd); !strings.Contains(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

// TestRoots: the bundle is Mozilla's without the roots that it trusts only up to a day, which a
// file cannot say, and the operator's.
func TestRoots(t *testing.T) {
	own, _ := authority(t)
	bundle := func(args ...string) string {
		_, layer := made(t, args...)
		root := t.TempDir()
		program(t, exec.Command("tar", "-xpf", layer, "-C", root))
		files := filesIn(t, root)
		if got := slices.Sorted(maps.Keys(files)); !slices.Equal(got, []string{"etc/ssl/certs/ca-certificates.crt", "main.go"}) {
			t.Errorf("files %q", got)
		}
		mode, text, _ := strings.Cut(files["etc/ssl/certs/ca-certificates.crt"], " ")
		if mode != "644" {
			t.Errorf("mode %s", mode)
		}
		return text
	}
	alone, with := bundle("main.go"), bundle("-roots", own, "main.go")
	pool, count := x509.NewCertPool(), strings.Count(alone, "-----BEGIN CERTIFICATE-----")
	if !pool.AppendCertsFromPEM([]byte(alone)) || count < 100 {
		t.Errorf("%d roots", count)
	}
	if got := len(regexp.MustCompile(`(?m)^# .*(GTS Root R1|DigiCert Global Root G2)`).FindAllString(alone, -1)); got != 2 {
		t.Errorf("%d of the roots of Google and Microsoft", got)
	}
	text, err := os.ReadFile(own)
	if err != nil {
		t.Fatal(err)
	}
	if with != alone+string(text) {
		t.Error("the operator's roots do not follow")
	}
	for name, text := range map[string]string{"nothing": "", "no certificate": "-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n", "a key": "-----BEGIN PRIVATE KEY-----\nAA==\n-----END PRIVATE KEY-----\n", "trailing text": string(text) + "x"} {
		path := filepath.Join(t.TempDir(), "roots.pem")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := run([]string{"-o", path + ".tar", "-roots", path, "main.go"}, io.Discard); err == nil {
			t.Errorf("%s: an image was made", name)
		}
	}
}
