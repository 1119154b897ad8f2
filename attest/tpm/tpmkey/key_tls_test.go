package tpmkey

import (
	"bufio"
	"bytes"
	"context"
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/internal/testkit/tpmlab"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// tlsConfigs are a server's and a client's that trust the one certificate they both
// have and demand the other's.
func tlsConfigs(t testing.TB, k *Key) (server, client *tls.Config) {
	t.Helper()
	cert, roots := selfSigned(t, k)
	server = &tls.Config{Certificates: []tls.Certificate{cert}, ClientCAs: roots, ClientAuth: tls.RequireAndVerifyClientCert}
	client = &tls.Config{Certificates: []tls.Certificate{cert}, RootCAs: roots, ServerName: "node"}
	return server, client
}

// listen starts a TLS server that echoes one line a connection.
func listen(t *testing.T, config *tls.Config) net.Listener {
	t.Helper()
	l, err := tls.Listen("tcp", "127.0.0.1:0", config)
	testkit.NoError(t, err)
	var wg sync.WaitGroup
	t.Cleanup(func() { l.Close(); wg.Wait() })
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer c.Close()
				c.SetDeadline(time.Now().Add(60 * time.Second))
				line, err := bufio.NewReader(c).ReadString('\n')
				if err == nil {
					_, _ = io.WriteString(c, line)
				}
			})
		}
	})
	return l
}

func echo(ctx context.Context, address string, config *tls.Config) error {
	d := tls.Dialer{NetDialer: &net.Dialer{Timeout: 60 * time.Second}, Config: config}
	c, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(60 * time.Second))
	if _, err := io.WriteString(c, "hello\n"); err != nil {
		return err
	}
	line, err := bufio.NewReader(c).ReadString('\n')
	if err == nil && line != "hello\n" {
		err = fmt.Errorf("echo: %q", line)
	}
	return err
}

// 100 handshakes at a time, each with two signatures by keys in one TPM.
func TestTPMKeyConcurrentHandshakes(t *testing.T) {
	tpm := tpmlab.NewTPM(t)
	shared := Share(tpm)
	for _, opts := range []Options{{}, {Password: hidden([]byte("secret")), PCRs: pcr23}} {
		k, err := Create(t.Context(), shared, ECDSAP256, opts)
		testkit.NoError(t, err)
		server, client := tlsConfigs(t, k)
		address := listen(t, server).Addr().String()
		errs := make(chan error, 100)
		for range cap(errs) {
			go func() { errs <- echo(t.Context(), address, client) }()
		}
		for range cap(errs) {
			if err := <-errs; err != nil {
				t.Error(err)
			}
		}
		if err := k.Close(); err != nil {
			t.Error(err)
		}
	}
	tpmlab.CheckNothingLoaded(t, tpm)
}

// Each side with the other's openssl program, in both versions and with both kinds of
// key, made, saved and loaded again.
func TestTPMKeyWithOpenSSLPrograms(t *testing.T) {
	if _, err := exec.LookPath("openssl"); err != nil {
		t.Skip("openssl is not installed: apt-get install -y openssl")
	}
	tpm := Share(tpmsim.Swtpm(t, tpmlab.Bare()))
	for _, kind := range []Algorithm{ECDSAP256, RSA2048} {
		k, err := Load(t.Context(), tpm, throughFile(t, mustTPMKey(t, tpm, kind)), LoadOptions{})
		testkit.NoError(t, err)
		ours, _ := selfSigned(t, k)
		files := opensslFiles(t, ours.Certificate[0])
		for _, version := range []string{"-tls1_2", "-tls1_3"} {
			t.Run(kind.String()+version, func(t *testing.T) {
				certificates := []tls.Certificate{ours}
				server := &tls.Config{Certificates: certificates, ClientCAs: files.theirs(t), ClientAuth: tls.RequireAndVerifyClientCert}
				files.sClient(t, listen(t, server).Addr().String(), version)
				files.sServer(t, &tls.Config{Certificates: certificates, RootCAs: files.theirs(t), ServerName: "node"}, version)
			})
		}
	}
}

// tlsFiles are in one directory: ours.pem, our certificate; theirs.pem and theirs.key, made by the
// openssl program.
type tlsFiles string

func opensslFiles(t *testing.T, ours []byte) tlsFiles {
	t.Helper()
	dir := tlsFiles(t.TempDir())
	b := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ours})
	testkit.NoError(t, os.WriteFile(dir.path("ours.pem"), b, 0o600))
	out, err := exec.Command("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
		"-subj", "/CN=node", "-addext", "subjectAltName=DNS:node", "-days", "1",
		"-keyout", dir.path("theirs.key"), "-out", dir.path("theirs.pem")).CombinedOutput()
	if err != nil {
		t.Fatalf("openssl req: %v\n%s", err, out)
	}
	return dir
}

func (d tlsFiles) path(name string) string { return filepath.Join(string(d), name) }

func (d tlsFiles) theirs(t *testing.T) *x509.CertPool {
	t.Helper()
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(readAll(t, d.path("theirs.pem"))) {
		t.Fatal("no certificate")
	}
	return pool
}

// sClient is openssl's client at a server of ours.
func (d tlsFiles) sClient(t *testing.T, address, version string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, "openssl", "s_client", "-connect", address, "-servername", "node", version,
		"-CAfile", d.path("ours.pem"), "-verify_return_error", "-verify_hostname", "node",
		"-cert", d.path("theirs.pem"), "-key", d.path("theirs.key"), "-ign_eof", "-quiet")
	cmd.Stdin = strings.NewReader("hello\n")
	var log bytes.Buffer
	cmd.Stderr = &log
	out, err := cmd.Output()
	if err != nil || !bytes.Contains(out, []byte("hello")) {
		t.Errorf("openssl s_client %s: %v, %q\n%s", version, err, out, log.String())
	}
}

// sServer is a client of ours at openssl's server.
func (d tlsFiles) sServer(t *testing.T, client *tls.Config, version string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	cmd := exec.CommandContext(ctx, "openssl", "s_server", "-accept", "127.0.0.1:0", version, "-Verify", "1",
		"-verify_return_error", "-CAfile", d.path("ours.pem"), "-cert", d.path("theirs.pem"), "-key", d.path("theirs.key"), "-rev")
	out, err := cmd.StdoutPipe()
	testkit.NoError(t, err)
	var log bytes.Buffer
	cmd.Stderr = &log
	testkit.NoError(t, cmd.Start())
	defer func() { cancel(); _ = cmd.Wait() }()
	address := ""
	for lines := bufio.NewScanner(out); address == "" && lines.Scan(); {
		if _, a, ok := strings.Cut(lines.Text(), "ACCEPT "); ok {
			address = a
		}
	}
	go func() { _, _ = io.Copy(io.Discard, out) }()
	d2 := tls.Dialer{NetDialer: &net.Dialer{Timeout: 30 * time.Second}, Config: client}
	c, err := d2.DialContext(ctx, "tcp", address)
	if err != nil {
		t.Fatalf("openssl s_server %s: %v\n%s", version, err, log.String())
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(30 * time.Second))
	if _, err := io.WriteString(c, "hello\n"); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(c).ReadString('\n'); err != nil || line != "olleh\n" { // -rev turns it round
		t.Errorf("openssl s_server %s: got %q, %v", version, line, err)
	}
}

// A key without a password is no use after its PCRs changed, in the middle of a
// server's life.
func TestTPMKeyServerWhosePCRsChange(t *testing.T) {
	tpm := tpmlab.NewTPM(t)
	shared := Share(tpm)
	k, err := Create(t.Context(), shared, ECDSAP256, Options{PCRs: pcr23})
	testkit.NoError(t, err)
	server, client := tlsConfigs(t, k)
	var seen error
	server.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		return &tls.Certificate{Certificate: server.Certificates[0].Certificate, PrivateKey: watched{k, &seen}}, nil
	}
	client.Certificates = nil
	server.ClientAuth = tls.NoClientCert
	for _, want := range []error{nil, ErrPCRPolicy} {
		if want != nil {
			tpmlab.ExtendPCR(t, shared, 23)
		}
		one, other := net.Pipe()
		one.SetDeadline(time.Now().Add(30 * time.Second))
		other.SetDeadline(time.Now().Add(30 * time.Second))
		done := make(chan error, 1)
		go func() {
			err := tls.Server(one, server).HandshakeContext(t.Context())
			if err != nil {
				one.Close() // a pipe has no buffer for the two alerts
			}
			done <- err
		}()
		clientErr := tls.Client(other, client).HandshakeContext(t.Context())
		serverErr := <-done
		if (clientErr == nil) != (want == nil) || (serverErr == nil) != (want == nil) || !errors.Is(seen, want) {
			t.Errorf("want %v, got client %v, server %v, key %v", want, clientErr, serverErr, seen)
		}
		one.Close()
		other.Close()
	}
}

// watched is a signer whose last error is kept: crypto/tls does not wrap it.
type watched struct {
	crypto.Signer
	last *error
}

func (w watched) Sign(random io.Reader, digest []byte, opts crypto.SignerOpts) (sig []byte, err error) {
	sig, err = w.Signer.Sign(random, digest, opts)
	*w.last = err
	return sig, err
}
