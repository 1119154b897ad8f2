package main

import (
	"context"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/nodeattest/nodeattest/kube/deploy"
	"github.com/nodeattest/nodeattest/test/controlplane"
)

// A cluster is etcd, kube-apiserver and kube-controller-manager, with kubeadm's flags where they bear on
// certificate requests, and etcd without fsync.
type cluster struct {
	t    testing.TB
	bin  string
	dir  string
	ca   *controlplane.Authority
	url  string
	etcd string // its URL

	admin    client.Client
	http     *http.Client // the admin's
	database *program     // etcd
	server   *program     // kube-apiserver
	manager  *program     // kube-controller-manager
}

// startCluster starts the programs. Kubernetes' own signer signs for at most lifetime, and makes at most qps
// requests a second with each of its two controllers.
func startCluster(t testing.TB, lifetime time.Duration, qps int) *cluster {
	ports := controlplane.FreePorts(t, 4)
	c := &cluster{t: t, bin: controlplane.Binaries(t), dir: t.TempDir(), ca: controlplane.NewAuthority(t)}
	c.url = "https://127.0.0.1:" + ports[2]
	etcd, flags := controlplane.Etcd(c.dir, ports[0], ports[1])
	c.etcd = etcd
	c.database = c.start("etcd", filepath.Join(c.bin, "etcd"), nil, append(flags, "--quota-backend-bytes=8589934592")...)
	c.database.ready(func() error { return controlplane.Healthy(etcd + "/readyz") })
	c.connect()
	flags = c.ca.APIServer(t, c.dir, etcd, ports[2], controlplane.NewKey(t))
	c.server = c.start("kube-apiserver", filepath.Join(c.bin, "kube-apiserver"), nil, append(flags, "--profiling=true")...)
	c.server.ready(c.serves)
	for _, name := range []string{metav1.NamespaceDefault, metav1.NamespaceSystem} {
		c.eventually(func() error { return c.admin.Get(t.Context(), client.ObjectKey{Name: name}, new(corev1.Namespace)) })
	}
	path := c.kubeconfig("manager.kubeconfig", "system:kube-controller-manager")
	c.manager = c.start("kube-controller-manager", filepath.Join(c.bin, "kube-controller-manager"), nil,
		"--kubeconfig="+path, "--authentication-kubeconfig="+path, "--authorization-kubeconfig="+path,
		"--bind-address=127.0.0.1", "--secure-port="+ports[3], "--leader-elect=false", "--profiling=false",
		"--use-service-account-credentials=true",
		"--cluster-signing-cert-file="+filepath.Join(c.dir, "ca.crt"),
		"--cluster-signing-key-file="+controlplane.Write(t, c.dir, "ca.key", controlplane.PrivatePEM(t, c.ca.Key)),
		"--cluster-signing-duration="+lifetime.String(), fmt.Sprintf("--kube-api-qps=%d", qps), fmt.Sprintf("--kube-api-burst=%d", qps*3/2),
		"--controllers=certificatesigningrequest-signing-controller,certificatesigningrequest-approving-controller,"+
			"certificatesigningrequest-cleaner-controller")
	return c
}

// connect makes the clients of the administrator.
func (c *cluster) connect() {
	config := &rest.Config{Host: c.url, QPS: -1, Timeout: 30 * time.Second, WarningHandler: rest.NoWarnings{},
		TLSClientConfig: rest.TLSClientConfig{CAData: controlplane.CertificatePEM(c.ca.Cert)}}
	admin := pkix.Name{CommonName: "admin", Organization: []string{"system:masters"}}
	config.CertData, config.KeyData = c.ca.Issue(c.t, admin, x509.ExtKeyUsageClientAuth)
	web, err := rest.HTTPClientFor(config)
	c.check(err)
	c.http = web
	scheme := runtime.NewScheme()
	c.check(clientscheme.AddToScheme(scheme))
	c.admin, err = client.New(config, client.Options{Scheme: scheme, HTTPClient: web})
	c.check(err)
}

// profile writes where the API server's processor time goes, for the next 20 seconds.
func (c *cluster) profile(file string) {
	answer, err := c.http.Get(c.url + "/debug/pprof/profile?seconds=20")
	if err == nil {
		defer answer.Body.Close()
		var text []byte
		if text, err = io.ReadAll(answer.Body); err == nil {
			err = os.WriteFile(file, text, 0o644)
		}
	}
	if err != nil {
		c.t.Logf("no profile: %v", err)
	}
}

// serves reports whether the API server is ready.
func (c *cluster) serves() error {
	answer, err := c.http.Get(c.url + "/readyz")
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("kube-apiserver: %s", answer.Status)
	}
	return nil
}

func (c *cluster) check(err error) {
	if err != nil {
		c.t.Helper()
		c.t.Fatal(err)
	}
}

// eventually repeats a step that the server cannot take yet.
func (c *cluster) eventually(step func() error) {
	c.t.Helper()
	var err error
	for deadline := time.Now().Add(controlplane.Patience); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		if err = step(); err == nil {
			return
		}
	}
	c.t.Fatal(err)
}

// kubeconfig writes the file with which a program connects as a user.
func (c *cluster) kubeconfig(file, user string) string {
	cert, key := c.ca.Issue(c.t, pkix.Name{CommonName: user}, x509.ExtKeyUsageClientAuth)
	return c.kubeconfigOf(file, &clientcmdapi.AuthInfo{ClientCertificateData: cert, ClientKeyData: key})
}

func (c *cluster) kubeconfigOf(file string, as *clientcmdapi.AuthInfo) string {
	server := &clientcmdapi.Cluster{Server: c.url, CertificateAuthorityData: controlplane.CertificatePEM(c.ca.Cert)}
	return controlplane.Kubeconfig(c.t, c.dir, file, server, as)
}

// apply makes the objects of shipped files.
func (c *cluster) apply(patterns ...string) {
	for _, pattern := range patterns {
		manifests, err := deploy.Manifests(pattern)
		c.check(err)
		for _, manifest := range manifests {
			o := new(unstructured.Unstructured)
			c.check(yaml.UnmarshalStrict(manifest, &o.Object))
			c.eventually(func() error { return c.admin.Create(c.t.Context(), o.DeepCopy()) })
		}
	}
}

// tokens makes the bootstrap token of each node.
func (c *cluster) tokens(nodes int) {
	work, failed := make(chan int), make(chan error, 1)
	var done sync.WaitGroup
	for range 16 {
		done.Go(func() {
			for i := range work {
				err := c.admin.Create(c.t.Context(), &corev1.Secret{
					ObjectMeta: metav1.ObjectMeta{Name: "bootstrap-token-" + tokenID(i), Namespace: metav1.NamespaceSystem},
					Type:       corev1.SecretTypeBootstrapToken,
					StringData: map[string]string{"token-id": tokenID(i), "token-secret": tokenSecret, "usage-bootstrap-authentication": "true",
						"expiration": time.Now().Add(24 * time.Hour).UTC().Format(time.RFC3339)},
				})
				if err != nil {
					select {
					case failed <- err:
					default:
					}
				}
			}
		})
	}
	for i := range nodes {
		work <- i
	}
	close(work)
	done.Wait()
	select {
	case err := <-failed:
		c.t.Fatal(err)
	default:
	}
}

// autoApprove has Kubernetes' own approver approve what nodes request, as kubeadm does.
func (c *cluster) autoApprove() {
	const nodes, machines, approves = "system:nodes", "system:bootstrappers", "system:certificates.k8s.io:certificatesigningrequests:"
	for role, group := range map[string]string{
		"system:node-bootstrapper": machines, approves + "nodeclient": machines, approves + "selfnodeclient": nodes,
	} {
		c.check(c.admin.Create(c.t.Context(), &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "size:" + role},
			RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
			Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: group}}}))
	}
}

// throttle has the API server refuse every request of nodes, of machines with a bootstrap token and of the
// controller with status 429 (API priority and fairness), until the function that it returns is called.
func (c *cluster) throttle() (end func()) {
	const name = "size-throttle"
	shares := int32(0)
	level := &flowcontrolv1.PriorityLevelConfiguration{ObjectMeta: metav1.ObjectMeta{Name: name}}
	level.Spec = flowcontrolv1.PriorityLevelConfigurationSpec{
		Type: flowcontrolv1.PriorityLevelEnablementLimited, Limited: &flowcontrolv1.LimitedPriorityLevelConfiguration{
			NominalConcurrencyShares: &shares, LendablePercent: new(int32), BorrowingLimitPercent: new(int32),
			LimitResponse: flowcontrolv1.LimitResponse{Type: flowcontrolv1.LimitResponseTypeReject}}}
	var groups []flowcontrolv1.Subject
	for _, group := range []string{"system:nodes", "system:bootstrappers", "system:serviceaccounts:" + namespace} {
		groups = append(groups, flowcontrolv1.Subject{Kind: flowcontrolv1.SubjectKindGroup, Group: &flowcontrolv1.GroupSubject{Name: group}})
	}
	flow := &flowcontrolv1.FlowSchema{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: flowcontrolv1.FlowSchemaSpec{
		PriorityLevelConfiguration: flowcontrolv1.PriorityLevelConfigurationReference{Name: name}, MatchingPrecedence: 2,
		Rules: []flowcontrolv1.PolicyRulesWithSubjects{{Subjects: groups, ResourceRules: []flowcontrolv1.ResourcePolicyRule{{
			Verbs: []string{"*"}, APIGroups: []string{"*"}, Resources: []string{"*"}, ClusterScope: true, Namespaces: []string{"*"}}}}}}}
	c.check(c.admin.Create(c.t.Context(), level))
	c.check(c.admin.Create(c.t.Context(), flow))
	return func() {
		for _, o := range []client.Object{flow, level} {
			if err := c.admin.Delete(context.WithoutCancel(c.t.Context()), o); !apierrors.IsNotFound(err) {
				c.check(err)
			}
		}
	}
}
