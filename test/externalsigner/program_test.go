package externalsigner

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"sigs.k8s.io/yaml"

	"github.com/nodeattest/nodeattest/test/controlplane"
)

// The times of a rotation in tests: a new key is published for publish before it signs, which is longer than the
// API servers keep the keys.
const (
	hint    = "1s"
	publish = "3s"
	retain  = "2h"
	reload  = "100ms"
)

// A signer is the running external-jwt-signer.
type signer struct {
	*process
	socket string
	status string // the URL of its health and metrics
}

// signerFolder makes the folder of a signer's files and socket. It is not below a test's folder, whose name makes
// paths too long for a socket.
func signerFolder(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "signer")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// newSigner writes the configuration of a signer into its folder, with the fields of a test, and returns the
// signer, which is not started.
func newSigner(t *testing.T, program, dir string, fields map[string]any) *signer {
	t.Helper()
	address := "127.0.0.1:" + controlplane.FreePorts(t, 1)[0]
	s := &signer{socket: filepath.Join(dir, "run", "socket"), status: "http://" + address}
	config := map[string]any{
		"apiVersion": "config.nodeattest.github.io/v1alpha1", "kind": "ExternalSigner", "issuer": controlplane.Issuer,
		"socket": s.socket, "statusAddress": address, "allowedUIDs": []int{os.Getuid()}, "refreshHint": hint,
		"stateFile": filepath.Join(dir, "state.json"), "publish": publish, "retain": retain, "reloadInterval": reload,
	}
	maps.Copy(config, fields)
	text, err := yaml.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Dir(s.socket), 0o700); err != nil {
		t.Fatal(err)
	}
	name := filepath.Base(program)
	s.process = &process{
		name: name, log: filepath.Join(dir, name+".log"), path: program, dir: dir,
		args: []string{"--config", controlplane.Write(t, dir, "config.yaml", text)},
	}
	return s
}

// startSigner starts external-jwt-signer, and stops it when the test ends.
func startSigner(t *testing.T, dir string, fields map[string]any) *signer {
	t.Helper()
	s := newSigner(t, signerProgram(t), dir, fields)
	s.begin(t)
	return s
}

// signerProgram builds external-jwt-signer.
func signerProgram(t *testing.T) string {
	t.Helper()
	return build(t, filepath.Join("..", "..", "externalsigner", "cmd", "external-jwt-signer"), "CGO_ENABLED=0")
}

// begin starts the signer for the first time.
func (s *signer) begin(t *testing.T) {
	t.Helper()
	s.launch(t)
	t.Cleanup(func() { controlplane.Stop(t, s.name, s.log, s.cmd, s.done) })
	s.awaitSocket(t)
}

// awaitSocket waits until the signer has its socket.
func (s *signer) awaitSocket(t *testing.T) {
	t.Helper()
	s.ready(t, func() error {
		_, err := os.Stat(s.socket)
		return err
	})
}

// metrics returns the signer's metrics.
func (s *signer) metrics(t *testing.T) string {
	t.Helper()
	response, err := http.Get(s.status + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// dial connects to the signer.
func (s *signer) dial() (*grpc.ClientConn, error) {
	return grpc.NewClient("unix://"+s.socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
}

// writeKey replaces a file of a private key as an administrator should: at once.
func writeKey(t *testing.T, path string, keys ...crypto.Signer) {
	t.Helper()
	var text []byte
	for _, key := range keys {
		der, err := x509.MarshalPKCS8PrivateKey(key)
		if err != nil {
			t.Fatal(err)
		}
		text = append(text, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})...)
	}
	replaceFile(t, path, text)
}

// newECDSA makes a key on a curve.
func newECDSA(t *testing.T, curve elliptic.Curve) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(curve, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// newRSA makes a key of 2048 bits.
func newRSA(t *testing.T) *rsa.PrivateKey {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// replaceFile replaces a file that only its owner reads.
func replaceFile(t *testing.T, path string, text []byte) {
	t.Helper()
	next := controlplane.Write(t, filepath.Dir(path), fmt.Sprintf(".%s.new", filepath.Base(path)), text)
	if err := os.Rename(next, path); err != nil {
		t.Fatal(err)
	}
}
