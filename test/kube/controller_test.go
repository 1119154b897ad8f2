package kube

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	authenticationv1 "k8s.io/api/authentication/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
	managerconfig "sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/attesttest"
	"github.com/nodeattest/nodeattest/attest/membership"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/kube/controller"
	"github.com/nodeattest/nodeattest/kube/keyring"
	"github.com/nodeattest/nodeattest/kube/registry"
	"github.com/nodeattest/nodeattest/test/controlplane"
)

const (
	namespace = "nodeattest-system"
	// controllerUser is the service account of the shipped manifests.
	controllerUser = "system:serviceaccount:" + namespace + ":" + controller.DefaultName
	tokenSecret    = "0123456789abcdef"
	// otherTokenID is a bootstrap token that is not the node's.
	otherTokenID = "others"
)

// prepare makes the other objects that a join needs: the shipped manifests
// and two bootstrap tokens.
func (c *cluster) prepare(t *testing.T) {
	t.Helper()
	c.applyCRDs(t)
	c.namespaces(t)
	c.apply(t, "rbac.yaml")
	for _, id := range []string{attesttest.TokenID, otherTokenID} {
		c.makeToken(t, id)
	}
}

// namespaces waits until the API server has made its namespaces.
func (c *cluster) namespaces(t *testing.T) {
	t.Helper()
	for _, name := range []string{metav1.NamespaceDefault, metav1.NamespaceSystem} {
		eventually(t, func() error { return c.admin.Get(t.Context(), client.ObjectKey{Name: name}, new(corev1.Namespace)) })
	}
}

// makeToken makes a bootstrap token, with extra groups.
func (c *cluster) makeToken(t *testing.T, id string, groups ...string) {
	t.Helper()
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "bootstrap-token-" + id, Namespace: metav1.NamespaceSystem},
		Type:       corev1.SecretTypeBootstrapToken,
		StringData: map[string]string{
			"token-id": id, "token-secret": tokenSecret, "usage-bootstrap-authentication": "true",
			"expiration": time.Now().Add(time.Hour).UTC().Format(time.RFC3339),
		},
	}
	if len(groups) > 0 {
		secret.StringData["auth-extra-groups"] = strings.Join(groups, ",")
	}
	eventually(t, func() error { return c.admin.Create(t.Context(), secret) })
}

// kubeconfig writes a kubeconfig for a user and returns its path.
func (c *cluster) kubeconfig(t *testing.T, file, user string, groups ...string) string {
	t.Helper()
	as := c.user(t, user, groups...)
	return c.writeKubeconfig(t, file, &clientcmdapi.AuthInfo{ClientCertificateData: as.CertData, ClientKeyData: as.KeyData})
}

func (c *cluster) writeKubeconfig(t *testing.T, file string, as *clientcmdapi.AuthInfo) string {
	t.Helper()
	return controlplane.Kubeconfig(t, c.dir, file, &clientcmdapi.Cluster{Server: c.url, CertificateAuthorityData: controlplane.CertificatePEM(c.ca.Cert)}, as)
}

// serviceAccountToken makes a token such as a pod has, for an hour.
func (c *cluster) serviceAccountToken(t *testing.T, namespace, name string) string {
	t.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	hour := int64(3600)
	token := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &hour}}
	eventually(t, func() error { return c.admin.SubResource("token").Create(t.Context(), account, token) })
	return token.Status.Token
}

// startSigner starts kube-controller-manager with the controllers that approve and sign, as
// kubeadm does: each with its own service account and rights. Arguments of a test are added.
func (c *cluster) startSigner(t *testing.T, arguments ...string) *process {
	t.Helper()
	path := c.kubeconfig(t, "signer.kubeconfig", "system:kube-controller-manager")
	return start(t, filepath.Join(controlplane.Binaries(t), "kube-controller-manager"), c.dir, append(arguments,
		"--kubeconfig="+path, "--authentication-kubeconfig="+path, "--authorization-kubeconfig="+path,
		"--bind-address=127.0.0.1", "--secure-port="+controlplane.FreePorts(t, 1)[0], "--leader-elect=false", "--profiling=false",
		"--use-service-account-credentials=true",
		"--cluster-signing-cert-file="+filepath.Join(c.dir, "ca.crt"),
		"--cluster-signing-key-file="+controlplane.Write(t, c.dir, "ca.Key", controlplane.PrivatePEM(t, c.ca.Key)),
		"--cluster-signing-duration="+cmp.Or(c.signingDuration, "1h"), "--flex-volume-plugin-dir="+filepath.Join(c.dir, "flex"),
		"--controllers=certificatesigningrequest-signing-controller,certificatesigningrequest-approving-controller",
	)...)
}

// logs are the controllers' logs.
type logs struct {
	mu    sync.Mutex
	lines []string
}

func (l *logs) logger(name string) logr.Logger {
	return funcr.New(func(prefix, args string) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.lines = append(l.lines, name+" "+prefix+" "+args)
	}, funcr.Options{})
}

func (l *logs) all() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]string(nil), l.lines...)
}

// plane is the control plane's side, as a program would make it from its configuration.
type plane struct {
	config     attest.VerifierConfig
	clusterIDs []string
	logs       logs
	inv        *inventory
}

// inventory knows a Machine for each node name, unless it is away.
type inventory struct {
	away  atomic.Bool
	asked atomic.Int32
}

var errAway = errors.New("the inventory is away")

func (i *inventory) machine(_ context.Context, q csr.Question) (*csr.Machine, error) {
	i.asked.Add(1)
	if i.away.Load() {
		return nil, errAway
	}
	nodeName := q.NodeName
	return &csr.Machine{Name: "machine-" + nodeName, UID: "uid-of-" + nodeName, NodeName: nodeName, BootstrapReady: true, DNSNames: []string{nodeName}}, nil
}

// run starts a replica of the controller as its service account.
func (p *plane) run(t *testing.T, c *cluster, name string) {
	t.Helper()
	m, err := manager.New(c.user(t, controllerUser, "system:serviceaccounts"), manager.Options{
		Scheme: c.scheme, Metrics: server.Options{BindAddress: "0"}, Logger: p.logs.logger(name),
		Controller: managerconfig.Controller{SkipNameValidation: new(true)},
	})
	if err != nil {
		t.Fatal(err)
	}
	ring := new(attest.KeyRing)
	keeper, err := keyring.New(keyring.Config{Reader: m.GetAPIReader(), Writer: m.GetClient(), Ring: ring,
		Secret: client.ObjectKey{Namespace: namespace, Name: "challenge-keys"}})
	if err != nil {
		t.Fatal(err)
	}
	machines, err := registry.New(membership.Scope{Cluster: p.clusterIDs[0], Road: attest.RoadEK, IdentityClass: "RSA-2048"}, m.GetAPIReader(), m.GetClient(), registry.Options{})
	if err != nil {
		t.Fatal(err)
	}
	first, err := membership.NewFirstUse(membership.FirstUseConfig{Registry: machines, MaxLifetime: time.Hour,
		NodeExists: func(ctx context.Context, name string) (bool, error) {
			err := m.GetAPIReader().Get(ctx, client.ObjectKey{Name: name}, new(corev1.Node))
			if apierrors.IsNotFound(err) {
				return false, nil
			}
			return err == nil, err
		}})
	if err != nil {
		t.Fatal(err)
	}
	config := p.config
	config.KeyRing, config.Authorizer = ring, first
	config.Policy = &csr.Policy{ClusterIDs: p.clusterIDs, SignerNames: []string{csr.SignerKubeAPIServerClientKubelet}, Machines: p.inv.machine, MaxLifetime: time.Hour}
	verifier, err := attest.NewVerifier(config)
	if err != nil {
		t.Fatal(err)
	}
	reconciler, err := controller.New(controller.Config{
		Providers: controller.Of(verifier), Registry: machines, EveryReplica: true,
		Serving: &csr.Policy{ClusterIDs: p.clusterIDs, SignerNames: []string{csr.SignerKubeletServing}, Machines: p.inv.machine, BuiltInSignerDuration: time.Hour},
	})
	if err == nil {
		err = reconciler.SetupWithManager(m)
	}
	if err == nil {
		err = m.Add(keeper)
	}
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- m.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("%s: %v", name, err)
		}
	})
}

// bearer connects with a bootstrap token.
func (c *cluster) bearer(t *testing.T, tokenID string) *rest.Config {
	t.Helper()
	return c.withToken(t, tokenID+"."+tokenSecret)
}

// withToken is the configuration of a client that has a token and no certificate.
func (c *cluster) withToken(t *testing.T, token string) *rest.Config {
	t.Helper()
	config := c.user(t, "stranger")
	config.CertData, config.KeyData, config.BearerToken = nil, nil, token
	return config
}

// file files a request and returns it as the server stored it.
func file(t *testing.T, as client.Client, spec *csr.Spec) *certificatesv1.CertificateSigningRequest {
	t.Helper()
	object := requestOf(spec)
	eventually(t, func() error { return as.Create(t.Context(), object) })
	return object
}

func requestOf(spec *csr.Spec) *certificatesv1.CertificateSigningRequest {
	object := &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "e2e-"},
		Spec:       certificatesv1.CertificateSigningRequestSpec{Request: spec.Request, SignerName: spec.SignerName, ExpirationSeconds: spec.ExpirationSeconds},
	}
	for _, usage := range spec.Usages {
		object.Spec.Usages = append(object.Spec.Usages, certificatesv1.KeyUsage(usage))
	}
	return object
}

// decided waits for a decision about a request: a condition, and where that approves, a
// certificate.
func decided(t *testing.T, as client.Client, object *certificatesv1.CertificateSigningRequest) *certificatesv1.CertificateSigningRequest {
	t.Helper()
	eventually(t, func() error {
		if err := as.Get(t.Context(), client.ObjectKeyFromObject(object), object); err != nil {
			return err
		}
		if len(object.Status.Conditions) == 0 || object.Status.Conditions[0].Type == certificatesv1.CertificateApproved && len(object.Status.Certificate) == 0 {
			return fmt.Errorf("request %s is not decided: %+v", object.Name, object.Status)
		}
		return nil
	})
	return object
}

var errNotChallenged = errors.New("not challenged")

// challenged files a node's hello and returns the challenge.
func challenged(t *testing.T, as client.Client, n *attesttest.Node) ([]byte, error) {
	t.Helper()
	hello, err := n.Attester.Hello(t.Context(), n.Subject)
	if err != nil {
		t.Fatal(err)
	}
	object := decided(t, as, file(t, as, hello))
	challenge, err := attest.ChallengeOf(controller.Request(object))
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %s", errNotChallenged, object.Status.Conditions[0].Reason, object.Status.Conditions[0].Message)
	}
	return challenge, nil
}

// answers has a node attest up to its answer, which is not filed.
func answers(t *testing.T, as client.Client, n *attesttest.Node) *csr.Spec {
	t.Helper()
	challenge, err := challenged(t, as, n)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := n.Attester.Answer(t.Context(), challenge, n.Certified, n.Subject)
	if err != nil {
		t.Fatal(err)
	}
	return answer
}
