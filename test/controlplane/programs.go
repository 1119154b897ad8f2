package controlplane

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Issuer is the clusters' issuer of service-account tokens, and the audience of their own
// servers.
const Issuer = "https://kubernetes.default.svc"

// Patience is how long a step is waited for that may come late: building machines are slow.
const Patience = 3 * time.Minute

// Etcd returns etcd's URL for clients, and the flags with which it serves at two ports of
// 127.0.0.1.
func Etcd(dir, port, peerPort string) (url string, flags []string) {
	url, peer := "http://127.0.0.1:"+port, "http://127.0.0.1:"+peerPort
	return url, []string{
		"--name=e2e", "--data-dir=" + filepath.Join(dir, "etcd"), "--unsafe-no-fsync", "--log-level=warn",
		"--listen-client-urls=" + url, "--advertise-client-urls=" + url,
		"--listen-peer-urls=" + peer, "--initial-advertise-peer-urls=" + peer, "--initial-cluster=e2e=" + peer,
	}
}

// APIServer writes the files of a kube-apiserver with bootstrap tokens, which serves at a port
// of 127.0.0.1, and returns its flags. Of one that is given twice it takes the last.
func (a *Authority) APIServer(t testing.TB, dir, etcd, port string, accounts *ecdsa.PrivateKey) []string {
	t.Helper()
	cert, key := a.Issue(t, pkix.Name{CommonName: "kube-apiserver"}, x509.ExtKeyUsageServerAuth, net.IPv4(127, 0, 0, 1))
	twice := bytes.Repeat(PublicPEM(t, accounts), 2) // and so it is in the key set that is served
	return []string{
		"--etcd-servers=" + etcd, "--bind-address=127.0.0.1", "--secure-port=" + port,
		"--advertise-address=127.0.0.1", "--endpoint-reconciler-type=none", "--service-cluster-ip-range=10.0.0.0/24",
		"--client-ca-file=" + Write(t, dir, "ca.crt", CertificatePEM(a.Cert)),
		"--tls-cert-file=" + Write(t, dir, "serving.crt", cert),
		"--tls-private-key-file=" + Write(t, dir, "serving.key", key),
		"--service-account-issuer=" + Issuer,
		"--service-account-key-file=" + Write(t, dir, "accounts.pub", twice),
		"--service-account-signing-key-file=" + Write(t, dir, "accounts.key", PrivatePEM(t, accounts)),
		"--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction",
		"--enable-bootstrap-token-auth=true", "--anonymous-auth=false", "--profiling=false",
	}
}

// Healthy asks a server whether it is.
func Healthy(url string) error {
	response, err := http.Get(url)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", url, response.Status)
	}
	return nil
}

// Ready waits until probe succeeds for a program that closes done when it has ended, and
// writes this log.
func Ready(t testing.TB, name, log string, done <-chan struct{}, probe func() error) {
	t.Helper()
	began := time.Now()
	var err error
	for time.Since(began) < Patience {
		if err = probe(); err == nil {
			t.Logf("%s is ready after %s", name, time.Since(began).Round(100*time.Millisecond))
			return
		}
		select {
		case <-done:
			t.Fatalf("%s ended before it was ready; the end of its log:\n%s", name, Tail(log))
		case <-time.After(100 * time.Millisecond):
		}
	}
	t.Fatalf("%s was not ready after %s: %v", name, Patience, err)
}

// Tail is the last lines of a log.
func Tail(log string) []byte {
	text, err := os.ReadFile(log)
	if err != nil {
		return []byte(err.Error())
	}
	lines := bytes.SplitAfter(text, []byte("\n"))
	return bytes.Join(lines[max(0, len(lines)-20):], nil)
}
