package externalsigner

import (
	"context"
	"crypto/ecdsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/nodeattest/nodeattest/test/controlplane"
)

// A cluster is etcd, and the API servers that store their objects there and have one CA.
type cluster struct {
	ca       *controlplane.Authority
	etcd     string
	accounts *ecdsa.PrivateKey // of the API servers that sign by themselves
}

// An apiServer is a running kube-apiserver.
type apiServer struct {
	*process
	cluster *cluster
	url     string
	admin   *kubernetes.Clientset // may do everything
}

// startCluster starts etcd and a kube-apiserver, and stops them when the test ends. The API server
// signs at the external signer at the socket, and has neither of the two flags for key files. Without
// a socket it signs by itself. Of a flag that is given twice it takes the last.
func startCluster(t *testing.T, socket string, flags ...string) *apiServer {
	t.Helper()
	dir, ports := t.TempDir(), controlplane.FreePorts(t, 2)
	c := &cluster{ca: controlplane.NewAuthority(t), accounts: controlplane.NewKey(t)}
	url, flagsOfEtcd := controlplane.Etcd(dir, ports[0], ports[1])
	c.etcd = url
	etcd := start(t, filepath.Join(controlplane.Binaries(t), "etcd"), dir, flagsOfEtcd...)
	etcd.ready(t, func() error { return controlplane.Healthy(url + "/readyz") })
	return c.startServer(t, socket, flags...)
}

// startServer starts one more API server of the cluster.
func (c *cluster) startServer(t *testing.T, socket string, flags ...string) *apiServer {
	t.Helper()
	dir, port := t.TempDir(), controlplane.FreePorts(t, 1)[0]
	usual := signingFlags(c.ca.APIServer(t, dir, c.etcd, port, c.accounts), socket)
	s := &apiServer{cluster: c, url: "https://127.0.0.1:" + port}
	s.admin = s.client(t, "admin", "system:masters")
	s.process = start(t, filepath.Join(controlplane.Binaries(t), "kube-apiserver"), dir, append(usual, flags...)...)
	s.awaitReady(t)
	version, err := s.admin.Discovery().ServerVersion()
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("kube-apiserver %s, built with %s", version.GitVersion, version.GoVersion)
	return s
}

// signingFlags changes the flags of an API server so that it signs at a socket.
func signingFlags(flags []string, socket string) []string {
	if socket == "" {
		return flags
	}
	flags = slices.DeleteFunc(slices.Clone(flags), func(flag string) bool {
		return strings.HasPrefix(flag, "--service-account-key-file=") || strings.HasPrefix(flag, "--service-account-signing-key-file=")
	})
	return append(flags, "--service-account-signing-endpoint="+socket)
}

// restart ends the API server and starts it with other flags, at the same port.
func (s *apiServer) restart(t *testing.T, flags []string) {
	t.Helper()
	s.stop(t)
	s.args = flags
	s.launch(t)
	s.awaitReady(t)
}

func (s *apiServer) awaitReady(t *testing.T) {
	t.Helper()
	s.ready(t, func() error {
		return s.admin.Discovery().RESTClient().Get().AbsPath("/readyz").Do(context.Background()).Error()
	})
}

// user connects with a certificate of the cluster's CA.
func (s *apiServer) user(t *testing.T, name string, groups ...string) *rest.Config {
	t.Helper()
	config := &rest.Config{
		Host:            s.url,
		TLSClientConfig: rest.TLSClientConfig{CAData: controlplane.CertificatePEM(s.cluster.ca.Cert)},
		QPS:             -1, // no throttling in a test
		WarningHandler:  rest.NoWarnings{},
		Timeout:         time.Minute, // kube-apiserver ends a request after 34 s
	}
	config.CertData, config.KeyData = s.cluster.ca.Issue(t, pkix.Name{CommonName: name, Organization: groups}, x509.ExtKeyUsageClientAuth)
	return config
}

func (s *apiServer) client(t *testing.T, name string, groups ...string) *kubernetes.Clientset {
	t.Helper()
	client, err := kubernetes.NewForConfig(s.user(t, name, groups...))
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// eventually repeats a step that the server cannot take yet.
func eventually(t *testing.T, step func() error) {
	t.Helper()
	var err error
	for deadline := time.Now().Add(controlplane.Patience); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		if err = step(); err == nil {
			return
		}
	}
	t.Fatal(err)
}
