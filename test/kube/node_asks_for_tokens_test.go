package kube

import (
	"crypto/x509"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodeattest/nodeattest/claims"
	"github.com/nodeattest/nodeattest/jws"
	"github.com/nodeattest/nodeattest/kube/authenticator"
	"github.com/nodeattest/nodeattest/kube/nodetls"
	"github.com/nodeattest/nodeattest/test/controlplane"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// The audience of a service that checks tokens, and the account of the pods.
const (
	vaultAudience = "https://vault.example"
	podAccount    = "cart"
)

// TestNodeAsksForTokens has an attested node ask for tokens of pods with the certificate that
// kubelet-authenticator keeps. kube-apiserver, with NodeRestriction and the Node authorizer, issues
// them for the node's own pods and for audiences of their volumes, and for nothing else. Token and
// TokenReview state the pod, the Node and the token's ID.
func TestNodeAsksForTokens(t *testing.T) {
	t.Parallel()
	c := startJoinable(t)
	device := tpmsim.Swtpm(t, tpmsim.Options{PersistEKs: true})
	c.firstUse(t, device, "node-1")
	m := c.install(t, buildProgram(t, "kubelet-authenticator"), "node-1", device, nil)
	m.credential(t)
	c.makePodAccount(t)
	node, other := c.makeNode(t, "node-1"), c.makeNode(t, "node-2")
	own, others, moves := c.makePod(t, "own", node.Name, podAccount, vaultAudience), c.makePod(t, "others", other.Name, podAccount, vaultAudience), c.makePod(t, "moves", node.Name, podAccount, vaultAudience)
	certificate, api := m.asNode(t)
	c.recorded(t, node.Name, certificate)

	var token, moved string
	eventually(t, func() (err error) { // admission learns of a pod a moment later
		if token, err = askToken(t, api, own.Name, own.UID, vaultAudience); err == nil {
			moved, err = askToken(t, api, moves.Name, moves.UID, vaultAudience)
		}
		return err
	})
	c.checkStated(t, token, own, node)

	c.deletePod(t, moves)
	there := c.makePod(t, moves.Name, other.Name, podAccount, vaultAudience)
	for _, tt := range []struct {
		name     string
		pod      string
		uid      types.UID
		audience string
		want     string
	}{
		{"another node's pod", others.Name, others.UID, vaultAudience, "bound to a pod scheduled on a different node"},
		{"an audience that no volume has", own.Name, own.UID, "https://else.example", "is not authorized to request tokens for"},
		{"the API server's audience", own.Name, own.UID, controlplane.Issuer, "is not authorized to request tokens for"},
		{"a pod that moved, by its old UID", moves.Name, moves.UID, vaultAudience, "does not match the UID in record"},
		{"a pod that moved, by its new UID", there.Name, there.UID, vaultAudience, "bound to a pod scheduled on a different node"},
		{"a pod that is gone", "gone", own.UID, vaultAudience, `pod "gone" not found`},
		{"a pod without UID", own.Name, "", vaultAudience, "without a uid"},
		{"no pod", "", "", vaultAudience, "not bound to a pod"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var err error
			eventually(t, func() error { // the same for a pod that is elsewhere now
				if _, err = askToken(t, api, tt.pod, tt.uid, tt.audience); err != nil && strings.Contains(err.Error(), tt.want) {
					return nil
				}
				return fmt.Errorf("got %v, want %q", err, tt.want)
			})
			if !apierrors.IsForbidden(err) && !apierrors.IsNotFound(err) {
				t.Errorf("got %v, want it forbidden", err)
			}
			t.Logf("kube-apiserver refuses: %v", err)
		})
	}
	if review := c.reviewToken(t, moved); review.Authenticated {
		t.Errorf("the token of the pod of before: %+v", review)
	} else {
		t.Logf("the token of a pod that moved: %s", review.Error)
	}
	if _, err := askToken(t, api, own.Name, own.UID, vaultAudience); err != nil {
		t.Errorf("the own pod, after all this: %v", err)
	}
}

// checkStated compares a token, and kube-apiserver's TokenReview of it, with the objects.
func (c *cluster) checkStated(t *testing.T, token string, pod *corev1.Pod, node *corev1.Node) {
	t.Helper()
	parsed, err := jws.Parse(token)
	if err != nil {
		t.Fatal(err)
	}
	stated, err := claims.Parse(parsed.UnverifiedPayload())
	if err != nil {
		t.Fatal(err)
	}
	k := stated.Kubernetes
	switch {
	case k.Node == nil || k.Node.Name != node.Name || k.Node.UID != string(node.UID):
		t.Errorf("the token states the node %+v, want %s %s", k.Node, node.Name, node.UID)
	case k.Pod == nil || k.Pod.Name != pod.Name || k.Pod.UID != string(pod.UID):
		t.Errorf("the token states the pod %+v, want %s %s", k.Pod, pod.Name, pod.UID)
	case stated.ID == "" || len(stated.Audiences) != 1 || stated.Audiences[0] != vaultAudience:
		t.Errorf("the token states %+v", stated)
	}
	review := c.reviewToken(t, token)
	if !review.Authenticated || review.User.Username != "system:serviceaccount:"+pod.Namespace+":"+podAccount {
		t.Errorf("TokenReview: %+v", review)
	}
	for key, want := range map[string]string{
		"credential-id": "JTI=" + stated.ID, "node-name": node.Name, "node-uid": string(node.UID), "pod-name": pod.Name, "pod-uid": string(pod.UID),
	} {
		if got := review.User.Extra["authentication.kubernetes.io/"+key]; len(got) != 1 || got[0] != want {
			t.Errorf("TokenReview: %s is %q, want %q", key, got, want)
		}
	}
	t.Logf("the token states pod %s, node %s %s and JTI %s, and so does TokenReview", k.Pod.Name, k.Node.Name, k.Node.UID, stated.ID)
}

// reviewToken has kube-apiserver review a token for the vault.
func (c *cluster) reviewToken(t *testing.T, token string) authenticationv1.TokenReviewStatus {
	t.Helper()
	review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token, Audiences: []string{vaultAudience}}}
	if err := c.admin.Create(t.Context(), review); err != nil {
		t.Fatal(err)
	}
	return review.Status
}

// askToken asks for a token bound to a pod, or to nothing if the pod is "".
func askToken(t *testing.T, as kubernetes.Interface, pod string, uid types.UID, audience string) (string, error) {
	t.Helper()
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: []string{audience}}}
	if pod != "" {
		request.Spec.BoundObjectRef = &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod, UID: uid}
	}
	issued, err := as.CoreV1().ServiceAccounts(metav1.NamespaceDefault).CreateToken(t.Context(), podAccount, request, metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	return issued.Status.Token, nil
}

// asNode returns the API server's client of a program next to the kubelet, and its certificate.
func (m *nodeMachine) asNode(t *testing.T) (*x509.Certificate, kubernetes.Interface) {
	t.Helper()
	own := m.ownCertificate(t)
	config := own.TLSConfig()
	config.RootCAs = x509.NewCertPool()
	config.RootCAs.AddCert(m.c.ca.Cert)
	now, err := config.GetClientCertificate(nil)
	if err != nil {
		t.Fatal(err)
	}
	api, err := kubernetes.NewForConfig(&rest.Config{Host: m.c.url, Transport: own.Transport(&http.Transport{TLSClientConfig: config}), QPS: -1})
	if err != nil {
		t.Fatal(err)
	}
	return now.Leaf, api
}

func (m *nodeMachine) certificateFile() string {
	return filepath.Join(m.dir, "state", authenticator.ClientFile)
}

// ownCertificate opens the file of the node's certificate.
func (m *nodeMachine) ownCertificate(t *testing.T) *nodetls.Certificate {
	t.Helper()
	own, err := nodetls.Open(m.certificateFile(), nodetls.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return own
}

func (c *cluster) makePodAccount(t *testing.T) {
	t.Helper()
	if err := c.admin.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: podAccount}}); err != nil {
		t.Fatal(err)
	}
}

func (c *cluster) makeNode(t *testing.T, name string) *corev1.Node {
	t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if err := c.admin.Create(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	return node
}

// makePod makes a pod on a node, with a volume for a token for each audience; "" is the API server's.
func (c *cluster) makePod(t *testing.T, name, node, account string, audiences ...string) *corev1.Pod {
	t.Helper()
	var tokens []corev1.VolumeProjection
	for i, audience := range audiences {
		tokens = append(tokens, corev1.VolumeProjection{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Audience: audience, Path: fmt.Sprint("token-", i)}})
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: name},
		Spec: corev1.PodSpec{NodeName: node, ServiceAccountName: account, AutomountServiceAccountToken: new(bool),
			Containers: []corev1.Container{{Name: "c", Image: "none"}},
			Volumes:    []corev1.Volume{{Name: "tokens", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: tokens}}}}},
	}
	eventually(t, func() error { // admission learns of the account, or the end of the pod of before, a moment later
		made := pod.DeepCopy()
		if err := c.admin.Create(t.Context(), made); err != nil {
			return err
		}
		pod = made
		return nil
	})
	return pod
}

// deletePod deletes a pod at once, as no kubelet ends it.
func (c *cluster) deletePod(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	if err := c.admin.Delete(t.Context(), pod.DeepCopy(), client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
}
