package e2e

import (
	"context"
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/nodeattest/nodeattest/attest/attesttest"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/test/controlplane"
)

// The user of the control plane's side, the ID of another requester's bootstrap token, and
// the secret half of all tokens.
const (
	controllerUser = "nodeattest-controller"
	otherTokenID   = "others"
	tokenSecret    = "0123456789abcdef"
)

// cluster is a running kube-apiserver.
type cluster struct {
	ca       *controlplane.Authority
	url      string
	dir      string            // for files of this test
	accounts *ecdsa.PrivateKey // signs service-account tokens
	admin    *kubernetes.Clientset
}

// issuer is the cluster's issuer of service-account tokens, and the audience of its
// own server.
const issuer = controlplane.Issuer

// newCluster starts a cluster with bootstrap tokens and the roles of both sides of a
// join.
func newCluster(t *testing.T) *cluster {
	t.Helper()
	c := startCluster(t)
	makeToken(t, c.admin, attesttest.TokenID)
	makeToken(t, c.admin, otherTokenID)
	makeRoles(t, c.admin)
	for _, tokenID := range []string{attesttest.TokenID, otherTokenID} {
		c.await(t, c.bootstrapper(tokenID), authorizationv1.ResourceAttributes{Verb: "create", Resource: "certificatesigningrequests"})
	}
	c.await(t, c.controller(t), authorizationv1.ResourceAttributes{Verb: "update", Resource: "certificatesigningrequests", Subresource: "approval"})
	return c
}

// startCluster starts etcd and kube-apiserver, and stops them when the test ends. Of
// a flag that is given twice the server takes the last.
func startCluster(t *testing.T, flags ...string) *cluster {
	t.Helper()
	return startServer(t, func(usual []string) []string { return append(usual, flags...) })
}

// startServer is startCluster with changes of kube-apiserver's flags.
func startServer(t *testing.T, change func(flags []string) []string) *cluster {
	t.Helper()
	bin, dir, ports := controlplane.Binaries(t), t.TempDir(), controlplane.FreePorts(t, 3)
	c := &cluster{ca: controlplane.NewAuthority(t), url: "https://127.0.0.1:" + ports[2], dir: dir, accounts: controlplane.NewKey(t)}
	etcd, flagsOfEtcd := controlplane.Etcd(dir, ports[0], ports[1])
	start(t, filepath.Join(bin, "etcd"), dir, flagsOfEtcd...).ready(t, func() error { return controlplane.Healthy(etcd + "/readyz") })
	server := start(t, filepath.Join(bin, "kube-apiserver"), dir, change(c.ca.APIServer(t, dir, etcd, ports[2], c.accounts))...)
	c.admin = c.client(t, c.user(t, "admin", "system:masters"))
	server.ready(t, func() error {
		return c.admin.Discovery().RESTClient().Get().AbsPath("/readyz").Do(context.Background()).Error()
	})
	version, err := c.admin.Discovery().ServerVersion()
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("kube-apiserver %s, built with %s", version.GitVersion, version.GoVersion)
	return c
}

// startControllers starts some controllers of kube-controller-manager.
func (c *cluster) startControllers(t *testing.T, names ...string) {
	t.Helper()
	port := controlplane.FreePorts(t, 1)[0]
	config := c.kubeconfig(t, "system:kube-controller-manager")
	start(t, filepath.Join(controlplane.Binaries(t), "kube-controller-manager"), c.dir,
		"--kubeconfig="+config, "--authentication-kubeconfig="+config, "--authorization-kubeconfig="+config,
		"--bind-address=127.0.0.1", "--secure-port="+port, "--leader-elect=false", "--profiling=false",
		"--use-service-account-credentials=true", "--root-ca-file="+filepath.Join(c.dir, "ca.crt"),
		"--service-account-private-key-file="+filepath.Join(c.dir, "accounts.key"),
		"--flex-volume-plugin-dir="+filepath.Join(c.dir, "flex"),
		"--controllers="+strings.Join(names, ","),
	).ready(t, func() error {
		insecure := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
		response, err := insecure.Get("https://127.0.0.1:" + port + "/healthz")
		if err == nil {
			err = response.Body.Close()
		}
		return err
	})
}

// kubeconfig writes the file with which a program connects as a user of the
// cluster's CA, and returns its path.
func (c *cluster) kubeconfig(t *testing.T, name string, groups ...string) string {
	t.Helper()
	user := c.user(t, name, groups...)
	return controlplane.Kubeconfig(t, c.dir, strings.ReplaceAll(name, ":", "-")+".kubeconfig", &clientcmdapi.Cluster{Server: c.url, CertificateAuthorityData: user.CAData},
		&clientcmdapi.AuthInfo{ClientCertificateData: user.CertData, ClientKeyData: user.KeyData})
}

// await waits until the server knows a user, and the user's right to certificate
// requests: it learns of tokens and roles a moment after they are stored.
func (c *cluster) await(t *testing.T, config *rest.Config, right authorizationv1.ResourceAttributes) {
	t.Helper()
	right.Group = certificatesv1.GroupName
	reviews := c.client(t, config).AuthorizationV1().SelfSubjectAccessReviews()
	eventually(t, func() error {
		review, err := reviews.Create(t.Context(), &authorizationv1.SelfSubjectAccessReview{
			Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &right},
		}, metav1.CreateOptions{})
		if err == nil && !review.Status.Allowed {
			err = fmt.Errorf("not allowed to %s %s: %s", right.Verb, right.Resource, review.Status.Reason)
		}
		return err
	})
}

// eventually repeats a step that the server cannot take yet.
func eventually(t *testing.T, step func() error) {
	t.Helper()
	var err error
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		if err = step(); err == nil {
			return
		}
	}
	t.Fatal(err)
}

// config connects without credentials.
func (c *cluster) config() *rest.Config {
	return &rest.Config{
		Host:            c.url,
		TLSClientConfig: rest.TLSClientConfig{CAData: controlplane.CertificatePEM(c.ca.Cert)},
		QPS:             -1, // no throttling in a test
		Timeout:         30 * time.Second,
	}
}

// user connects with a certificate of the cluster's CA.
func (c *cluster) user(t *testing.T, name string, groups ...string) *rest.Config {
	t.Helper()
	config := c.config()
	config.CertData, config.KeyData = c.ca.Issue(t, pkix.Name{CommonName: name, Organization: groups}, x509.ExtKeyUsageClientAuth)
	return config
}

// bootstrapper connects with a bootstrap token.
func (c *cluster) bootstrapper(tokenID string) *rest.Config {
	return c.bearer(tokenID + "." + tokenSecret)
}

// bearer connects with a bearer token.
func (c *cluster) bearer(token string) *rest.Config {
	config := c.config()
	config.BearerToken = token
	return config
}

// controller connects as the control plane's side.
func (c *cluster) controller(t *testing.T) *rest.Config {
	t.Helper()
	return c.user(t, controllerUser)
}

func (c *cluster) client(t *testing.T, config *rest.Config) *kubernetes.Clientset {
	t.Helper()
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// makeToken makes a bootstrap token as kubeadm would. makeRoles gives all tokens the
// same rights.
func makeToken(t *testing.T, admin kubernetes.Interface, id string) {
	t.Helper()
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "bootstrap-token-" + id},
		Type:       corev1.SecretTypeBootstrapToken,
		StringData: map[string]string{
			"token-id":                       id,
			"token-secret":                   tokenSecret,
			"expiration":                     time.Now().Add(time.Hour).UTC().Format(time.RFC3339),
			"usage-bootstrap-authentication": "true",
		},
	}
	eventually(t, func() error { // the server makes the namespace after it is ready
		_, err := admin.CoreV1().Secrets(metav1.NamespaceSystem).Create(t.Context(), secret, metav1.CreateOptions{})
		return err
	})
}

// makeRoles lets bootstrap tokens file requests, with Kubernetes' own role for it,
// and the control plane's side decide about the two signers and no others.
func makeRoles(t *testing.T, admin kubernetes.Interface) {
	t.Helper()
	const group = certificatesv1.GroupName
	roles := admin.RbacV1().ClusterRoles()
	_, err := roles.Create(t.Context(), &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: controllerUser},
		Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{group}, Resources: []string{"certificatesigningrequests"}, Verbs: []string{"get", "list", "watch"}},
			{APIGroups: []string{group}, Resources: []string{"certificatesigningrequests/approval", "certificatesigningrequests/status"}, Verbs: []string{"update"}},
			{APIGroups: []string{group}, Resources: []string{"signers"}, ResourceNames: []string{csr.SignerChallengeTPM, csr.SignerClientTPM}, Verbs: []string{"approve"}},
			{APIGroups: []string{group}, Resources: []string{"signers"}, ResourceNames: []string{csr.SignerClientTPM}, Verbs: []string{"sign"}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range []struct {
		role    string
		subject rbacv1.Subject
	}{
		{"system:node-bootstrapper", rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: csr.BootstrappersGroup}},
		{controllerUser, rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: controllerUser}},
	} {
		_, err := admin.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "e2e-"},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: b.role},
			Subjects:   []rbacv1.Subject{b.subject},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
}
