package program

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	externaljwt "k8s.io/externaljwt/apis/v1"

	"github.com/nodeattest/nodeattest/internal/testkit"
)

// A started program runs in this process.
type started struct {
	folder, address string
	log             *testkit.Log
	done            chan error
}

// newFolder makes a folder with a key.
func newFolder(t testing.TB) string {
	t.Helper()
	folder := testkit.Must(os.MkdirTemp("", "p"))
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	key := testkit.Must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	der := testkit.Must(x509.MarshalPKCS8PrivateKey(key))
	testkit.MustDo(os.WriteFile(folder+"/key.pem", pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), 0o600))
	return folder
}

// text is a configuration file in the folder; more are lines of it.
func text(folder string, more ...string) string {
	return fmt.Sprintf("apiVersion: %s\nkind: %s\nissuer: https://issuer.example\nsocket: %[3]s/socket\n"+
		"stateFile: %[3]s/state.json\npublish: 1h\nretain: 2h\nstatusAddress: \"0\"\n", apiVersion, fileKind, folder) +
		strings.Join(more, "\n") + "\n"
}

func write(folder, text string) string {
	path := filepath.Join(folder, "config.yaml")
	testkit.MustDo(os.WriteFile(path+".new", []byte(text), 0o600))
	testkit.MustDo(os.Rename(path+".new", path))
	return path
}

func start(t testing.TB, folder, text string) *started {
	t.Helper()
	l := testkit.Must(net.Listen("tcp", "127.0.0.1:0"))
	s := &started{folder: folder, address: l.Addr().String(), log: new(testkit.Log), done: make(chan error, 1)}
	testkit.MustDo(l.Close())
	path := write(folder, strings.Replace(text, `statusAddress: "0"`, "statusAddress: "+s.address, 1))
	ctx, cancel := context.WithCancel(context.Background())
	go func() { s.done <- run(ctx, path, nil, slog.New(slog.NewTextHandler(s.log, nil)), 20*time.Millisecond) }()
	t.Cleanup(func() {
		cancel()
		select {
		case <-s.done:
		case <-time.After(20 * time.Second):
			t.Errorf("the program does not end: %s", s.log)
		}
	})
	return s
}

func (s *started) get(path string) (int, string) {
	r, err := http.Get("http://" + s.address + path)
	if err != nil {
		return 0, err.Error()
	}
	defer r.Body.Close()
	body, _ := io.ReadAll(r.Body)
	return r.StatusCode, string(body)
}

func eventually(t testing.TB, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("after 20 s still not: %s", what)
		}
	}
}

// TestRun starts the program, and changes its configuration to one that it cannot read, and to another.
func TestRun(t *testing.T) {
	folder := newFolder(t)
	s := start(t, folder, text(folder, "keyFile: "+folder+"/key.pem"))
	eventually(t, "ready", func() bool { status, _ := s.get("/readyz"); return status == http.StatusOK })
	c := testkit.Must(grpc.NewClient("unix://"+folder+"/socket", grpc.WithTransportCredentials(insecure.NewCredentials())))
	defer c.Close()
	keys := testkit.Must(externaljwt.NewExternalJWTSignerClient(c).FetchKeys(t.Context(), &externaljwt.FetchKeysRequest{}))
	if len(keys.Keys) != 1 || keys.RefreshHintSeconds != 300 {
		t.Errorf("got %v", keys)
	}
	if status, body := s.get("/healthz"); status != http.StatusOK || body != "ok\n" {
		t.Errorf("/healthz: %d %s", status, body)
	}
	var body string
	eventually(t, "the call counted", func() bool { // its client has the answer before it is
		_, body = s.get("/metrics")
		return strings.Contains(body, `nodeattest_external_signer_calls_total{method="FetchKeys",code="OK"} 1`)
	})
	for _, line := range []string{
		fmt.Sprintf(`nodeattest_external_signer_signing_key_timestamp_seconds{kid="%s"} `, keys.Keys[0].KeyId),
		`nodeattest_external_signer_keys{of="signer"} 1`, `nodeattest_external_signer_keys{of="peers"} 0`,
		"nodeattest_external_signer_reload_failures_total 0",
	} {
		if !strings.Contains(body, line) {
			t.Errorf("no %q in the metrics:\n%s", line, body)
		}
	}
	if status, _ := s.get("/"); status != http.StatusNotFound {
		t.Errorf("/: %d", status)
	}

	write(folder, "kind: x\n")
	eventually(t, "the error", func() bool { return strings.Contains(s.log.String(), "the last version stays in use") })
	time.Sleep(100 * time.Millisecond)
	if n := strings.Count(s.log.String(), "the last version stays in use"); n != 1 {
		t.Errorf("logged %d times", n)
	}
	testkit.MustDo(os.Chmod(folder, 0o750))
	if status, body := s.get("/readyz"); status != http.StatusServiceUnavailable || strings.Contains(body, folder) ||
		!strings.Contains(s.log.String(), "not ready") {
		t.Errorf("a folder that others can read: %d %s\n%s", status, body, s.log)
	}
	testkit.MustDo(os.Chmod(folder, 0o700))
	if status, _ := s.get("/readyz"); status != http.StatusOK {
		t.Errorf("ready again: %d", status)
	}

	write(folder, text(folder, "keyFile: "+folder+"/key.pem"))
	select {
	case err := <-s.done:
		s.done <- nil
		if err != nil || !strings.Contains(s.log.String(), "configuration changed") {
			t.Errorf("got %v: %s", err, s.log)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("the program does not end")
	}
}

// TestRunRefuses: an error at the start names what is wrong, and leaves no socket behind.
func TestRunRefuses(t *testing.T) {
	for name, row := range map[string]struct {
		more string
		mode os.FileMode // of the file
		want string
	}{
		"no key file":         {"keyFile: /nonexistent", 0o600, "/nonexistent"},
		"others write it":     {"keyFile: KEY", 0o622, "mode -rw--w--w-"},
		"retained too short":  {"keyFile: KEY\nmaxLifetime: 3h", 0o600, "MaxLifetime"},
		"published too short": {"keyFile: KEY\nrefreshHint: 3h", 0o600, "RefreshHint"},
		"no such address":     {"keyFile: KEY\n", 0o600, "statusAddress"},
		"an unknown field":    {"keyFile: KEY\nx: 1", 0o600, "unknown field"},
	} {
		t.Run(name, func(t *testing.T) {
			folder := newFolder(t)
			file := text(folder, strings.ReplaceAll(row.more, "KEY", folder+"/key.pem"))
			if row.want == "statusAddress" {
				file = strings.Replace(file, `statusAddress: "0"`, "statusAddress: 192.0.2.1:1", 1) // of no interface
			}
			path := write(folder, file)
			testkit.MustDo(os.Chmod(path, row.mode))
			var log bytes.Buffer
			if status := Main([]string{"--config", path}, io.Discard, &log); status != 1 || !strings.Contains(log.String(), row.want) {
				t.Errorf("status %d, want %q:\n%s", status, row.want, log.String())
			}
			if _, err := os.Lstat(folder + "/socket"); err == nil {
				t.Error("the socket is still there")
			}
		})
	}
}

// TestConfigFolder: a configuration that another user could replace by an older one of ours is refused.
func TestConfigFolder(t *testing.T) {
	folder := newFolder(t)
	sub := folder + "/etc"
	testkit.MustDo(os.Mkdir(sub, 0o755))
	path := write(sub, text(folder, "keyFile: "+folder+"/key.pem"))
	if _, _, err := readSettings(path, nil); err != nil {
		t.Error(err)
	}
	for _, mode := range []os.FileMode{0o757, 0o775} {
		testkit.MustDo(os.Chmod(sub, mode))
		if _, _, err := readSettings(path, nil); err == nil || !strings.Contains(err.Error(), "configuration "+path) {
			t.Errorf("%o: got %v", mode, err)
		}
	}
}

// TestCommands runs command lines.
func TestCommands(t *testing.T) {
	folder := newFolder(t)
	path := write(folder, text(folder, "keyFile: "+folder+"/key.pem"))
	for line, row := range map[string]struct {
		status      int
		out, stderr string
	}{
		"--version":                      {0, name + " ", ""},
		"--help":                         {0, "", "configuration `file`"},
		"-h":                             {0, "", "external-jwt-signer public-key [--config FILE]"},
		"public-key --help":              {0, "", "external-jwt-signer kubeadm-patch [--socket PATH] MANIFEST"},
		"--unknown":                      {2, "", "not defined"},
		"word":                           {2, "", `unexpected argument "word": see external-jwt-signer --help`},
		"--config /nonexistent":          {1, "", "/nonexistent"},
		"public-key --config " + path:    {0, "BEGIN PUBLIC KEY", ""},
		"public-key --config /none":      {1, "", "public-key: configuration /none"},
		"public-key word":                {2, "", "unexpected argument"},
		"kubeadm-patch":                  {2, "", "MANIFEST"},
		"kubeadm-patch --socket /a /not": {1, "", "/not"},
	} {
		t.Run(line, func(t *testing.T) {
			var out, stderr bytes.Buffer
			status := Main(strings.Fields(line), &out, &stderr)
			if status != row.status || !strings.Contains(out.String(), row.out) ||
				!strings.Contains(strings.ReplaceAll(stderr.String(), "configuration file", "configuration `file`"), row.stderr) {
				t.Errorf("status %d, want %d\n%s%s", status, row.status, out.String(), stderr.String())
			}
		})
	}
}

// TestKeySource: a key of a Go function signs, and its section is read strictly.
func TestKeySource(t *testing.T) {
	key := testkit.Must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	type section struct {
		Slot int `json:"slot"`
	}
	source := KeySource{Name: "module", Open: func(decode func(any) error) (crypto.Signer, error) {
		var s section
		if err := decode(&s); err != nil {
			return nil, err
		}
		if s.Slot != 7 {
			return nil, errors.New("no such slot")
		}
		return key, nil
	}}
	none := KeySource{Name: "none", Open: func(func(any) error) (crypto.Signer, error) { return nil, nil }}
	for more, want := range map[string]string{
		"module: {slot: 7}":                           "",
		"module: {slot: 8}":                           "module: no such slot",
		"module: {slot: 7, x: 1}":                     "unknown field",
		"module: {Slot: 7}":                           "unknown field",
		"module: 7":                                   "not an object",
		"none: {}":                                    "no key",
		"module: {slot: 7}\nnone: {}":                 "2 sections",
		"module: {slot: 7}\nkeyFile: /key":            "2 sections",
		"module: {slot: 7}\ntpm: {device: /dev/null}": "2 sections",
		"other: {}":                                   "unknown field",
		"":                                            "0 sections",
	} {
		t.Run(more, func(t *testing.T) {
			s, err := parseSettings([]byte(text("/f", more)), []KeySource{source, none})
			switch {
			case want == "" && (err != nil || s.Signer != crypto.Signer(key)):
				t.Errorf("got %v", err)
			case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
				t.Errorf("got %v, want %q", err, want)
			}
		})
	}
}

// TestStatusFlooded: clients that send nothing take a bounded number of connections, and leave soon.
func TestStatusFlooded(t *testing.T) {
	folder := newFolder(t)
	s := start(t, folder, text(folder, "keyFile: "+folder+"/key.pem"))
	eventually(t, "ready", func() bool { status, _ := s.get("/readyz"); return status == http.StatusOK })
	for range 2 * statusConnections {
		c := testkit.Must(net.Dial("tcp", s.address))
		defer c.Close()
	}
	eventually(t, "served again", func() bool { status, _ := s.get("/healthz"); return status == http.StatusOK })
}
