package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodeattest/nodeattest/bootstraptoken"
	"github.com/nodeattest/nodeattest/bootstraptoken/bootstraptokentest"
	"github.com/nodeattest/nodeattest/refusal"
	"github.com/nodeattest/nodeattest/test/controlplane"
)

// TestDiscoveryOfCluster has our client discover a real API server whose cluster-info
// Kubernetes' own controller signed, with a token that we encoded. The API server answers
// anonymous requests for that document only.
func TestDiscoveryOfCluster(t *testing.T) {
	c := startAnonymous(t, clusterInfoPath)
	c.startControllers(t, "bootstrap-signer-controller", "token-cleaner-controller")
	secret := c.newToken(t, nil)
	info := &bootstraptoken.ClusterInfo{Server: c.url}
	info.CAs = append(info.CAs, c.ca.Cert)
	c.publish(t, info)
	data := c.awaitSignature(t, secret.Token)

	// Kubernetes' controller and ours sign the same bytes.
	unsigned := maps.Clone(data)
	maps.DeleteFunc(unsigned, func(key, _ string) bool { return strings.HasPrefix(key, "jws-kubeconfig-") })
	object, err := secret.Object()
	if err != nil {
		t.Fatal(err)
	}
	signing, err := bootstraptoken.Sign(unsigned, []*bootstraptoken.Object{object}, time.Now())
	if err != nil || !signing.Changed {
		t.Fatalf("Sign: %+v, %v", signing, err)
	}
	if diff := cmp.Diff(data, signing.Data); diff != "" {
		t.Errorf("the bootstrap signer's data (-) and ours (+):\n%s", diff)
	}

	good := bootstraptoken.DiscoverConfig{Token: secret.Token, Addresses: []string{c.url}, Pins: info.Pins()}
	found, err := bootstraptoken.Discover(t.Context(), good)
	if err != nil {
		t.Fatal(err)
	}
	if !found.Info.Equal(info) {
		t.Errorf("discovered %v, want %v", found.Info, info)
	}
	c.refuseDiscovery(t, good)
	c.testAnonymous(t)

	review, err := c.client(t, c.bearer(secret.Token.Reveal())).AuthenticationV1().SelfSubjectReviews().
		Create(t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	user := secret.User()
	if got := review.Status.UserInfo; got.Username != user.Name || !cmp.Equal(without(got.Groups, "system:authenticated"), user.Groups) {
		t.Errorf("the API server takes the token for %s %q, we for %s %q", got.Username, got.Groups, user.Name, user.Groups)
	}

	list := c.kubeadm(t, "token", "list", "--kubeconfig", c.kubeconfig(t, "lister", "system:masters"))
	if !strings.Contains(list, secret.Token.Reveal()) || !strings.Contains(list, "for a test") {
		t.Errorf("kubeadm token list does not list the token: %q", strings.ReplaceAll(list, secret.Token.Reveal(), secret.Token.String()))
	}
	c.sweeps(t)
	c.testSecretLabels(t)
}

// refuseDiscovery changes one thing in each case.
func (c *cluster) refuseDiscovery(t *testing.T, good bootstraptoken.DiscoverConfig) {
	t.Helper()
	for _, tt := range []struct {
		name string
		want bootstraptoken.Check
		edit func(*bootstraptoken.DiscoverConfig)
	}{
		{"another secret", bootstraptoken.CheckSignature, func(d *bootstraptoken.DiscoverConfig) {
			d.Token = newToken(t, d.Token.ID(), "0000000000000000")
		}},
		{"an unknown id", refusal.ErrRetry, func(d *bootstraptoken.DiscoverConfig) {
			d.Token = newToken(t, "absent", "0000000000000000")
		}},
		{"another pin", bootstraptoken.CheckPinned, func(d *bootstraptoken.DiscoverConfig) {
			d.Pins = []bootstraptoken.Pin{{1}}
		}},
	} {
		bad, connections := good, 0
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		bad.Network.Dial = func(dialling context.Context, network, address string) (net.Conn, error) {
			if connections++; connections > 1 {
				cancel() // it would try again for minutes
			}
			return new(net.Dialer).DialContext(dialling, network, address)
		}
		tt.edit(&bad)
		if _, err := bootstraptoken.Discover(ctx, bad); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v", tt.name, err, tt.want)
		}
	}
}

// sweeps checks that Kubernetes' token cleaner deletes the token that Sweep names.
func (c *cluster) sweeps(t *testing.T) {
	t.Helper()
	short, err := bootstraptoken.Create(bootstraptoken.CreateOptions{TTL: 2 * time.Second}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	object, err := short.Object()
	if err != nil {
		t.Fatal(err)
	}
	c.create(t, object)
	sweeping, err := bootstraptoken.Sweep([]*bootstraptoken.Object{object}, short.Expiration)
	if err != nil || len(sweeping.Delete) != 1 {
		t.Errorf("Sweep at the expiration: %v, %v; want one to delete", sweeping, err)
	}
	eventually(t, func() error {
		_, err := c.admin.CoreV1().Secrets(metav1.NamespaceSystem).Get(t.Context(), object.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("the expired Secret is there: %v", err)
	})
	if time.Now().Before(short.Expiration) {
		t.Error("Kubernetes deleted the token before it expired")
	}
}

// TestDiscoveryByKubeadm has the real kubeadm discover what our code signed and serves.
func TestDiscoveryByKubeadm(t *testing.T) {
	c := &cluster{dir: t.TempDir()}
	double := bootstraptokentest.New(t, bootstraptokentest.Options{})
	token, pin := double.Token(), double.DiscoverConfig().Pins[0].String()
	for _, tt := range []struct {
		name  string
		token bootstraptoken.Token
		pin   string
		want  string
	}{
		{"good", token, pin, "Cluster info signature and contents are valid and TLS certificate validates against pinned roots"},
		{"another secret", newToken(t, token.ID(), "0000000000000000"), pin, "failed to verify JWS signature of received cluster info object"},
		{"an unknown id", newToken(t, "absent", "0000000000000000"), pin, "could not find a JWS signature in the cluster-info ConfigMap for token ID"},
		{"another pin", token, "sha256:" + strings.Repeat("0", 64), "are pinned"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			config := fmt.Sprintf(`apiVersion: kubeadm.k8s.io/v1beta4
kind: JoinConfiguration
discovery:
  bootstrapToken: {apiServerEndpoint: %q, token: %q, caCertHashes: [%q]}
nodeRegistration: {name: node-1, criSocket: "unix:///run/none.sock", ignorePreflightErrors: [all]}
timeouts: {discovery: 3s, kubernetesAPICall: 3s, tlsBootstrap: 3s, kubeletHealthCheck: 3s}
`, double.Address(), tt.token.Reveal(), tt.pin)
			eventually(t, func() error { // its three seconds may be over before it has an answer
				out := c.kubeadm(t, "join", "phase", "preflight", "-v=1", "--config", controlplane.Write(t, c.dir, "join.yaml", []byte(config)))
				if tt.name != "good" && strings.Contains(out, "Cluster info signature and contents are valid") {
					t.Fatal("kubeadm takes the cluster-info")
				}
				if !strings.Contains(out, tt.want) {
					return fmt.Errorf("kubeadm does not say %q:\n%s", tt.want, strings.ReplaceAll(out, tt.token.Reveal(), tt.token.String()))
				}
				return nil
			})
		})
	}
}

func newToken(t *testing.T, id, secret string) bootstraptoken.Token {
	t.Helper()
	token, err := bootstraptoken.New(id, secret)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// newToken makes a token, and its Secret in the cluster.
func (c *cluster) newToken(t *testing.T, options *bootstraptoken.CreateOptions) *bootstraptoken.Secret {
	t.Helper()
	if options == nil {
		options = &bootstraptoken.CreateOptions{Description: "for a test"}
	}
	secret, err := bootstraptoken.Create(*options, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	object, err := secret.Object()
	if err != nil {
		t.Fatal(err)
	}
	c.create(t, object)
	return secret
}

// create stores a Secret of ours in the API server.
func (c *cluster) create(t *testing.T, object *bootstraptoken.Object) {
	t.Helper()
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: object.Name, Labels: object.Labels, Annotations: object.Annotations.Reveal()},
		Type:       corev1.SecretType(object.Type),
		Data:       object.Data.Reveal(),
	}
	eventually(t, func() error { // the server makes the namespace after it is ready
		_, err := c.admin.CoreV1().Secrets(object.Namespace).Create(t.Context(), secret, metav1.CreateOptions{})
		return err
	})
}

// publish makes the cluster-info ConfigMap, and makes it public, as kubeadm does.
func (c *cluster) publish(t *testing.T, info *bootstraptoken.ClusterInfo) {
	t.Helper()
	data, err := info.Data()
	if err != nil {
		t.Fatal(err)
	}
	meta := metav1.ObjectMeta{Name: bootstraptoken.ClusterInfoName}
	eventually(t, func() error {
		_, err := c.admin.CoreV1().ConfigMaps(bootstraptoken.ClusterInfoNamespace).Create(t.Context(), &corev1.ConfigMap{ObjectMeta: meta, Data: data}, metav1.CreateOptions{})
		return err
	})
	_, err = c.admin.RbacV1().Roles(bootstraptoken.ClusterInfoNamespace).Create(t.Context(), &rbacv1.Role{
		ObjectMeta: meta,
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"configmaps"}, ResourceNames: []string{meta.Name}, Verbs: []string{"get"}}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.admin.RbacV1().RoleBindings(bootstraptoken.ClusterInfoNamespace).Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: meta,
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: meta.Name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "system:anonymous"}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

// awaitSignature waits until Kubernetes' controller has signed for a token.
func (c *cluster) awaitSignature(t *testing.T, token bootstraptoken.Token) map[string]string {
	t.Helper()
	var data map[string]string
	eventually(t, func() error {
		object, err := c.admin.CoreV1().ConfigMaps(bootstraptoken.ClusterInfoNamespace).Get(t.Context(), bootstraptoken.ClusterInfoName, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if data = object.Data; data["jws-kubeconfig-"+token.ID()] == "" {
			return errors.New("not signed yet")
		}
		return nil
	})
	return data
}

// kubeadm runs kubeadm and returns all that it prints.
func (c *cluster) kubeadm(t *testing.T, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(controlplane.Binaries(t), "kubeadm"), args...)
	cmd.Env = append(cmd.Environ(), "HOME="+c.dir, "KUBECONFIG=/dev/null")
	out, err := cmd.CombinedOutput()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return string(out)
}

// without is a sorted list without one value.
func without(list []string, value string) []string {
	list = slices.DeleteFunc(slices.Clone(list), func(s string) bool { return s == value })
	slices.Sort(list)
	return list
}
