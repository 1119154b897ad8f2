package e2e

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/attesttest"
	"github.com/nodeattest/nodeattest/claims"
	"github.com/nodeattest/nodeattest/claims/audit"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/jws"
	"github.com/nodeattest/nodeattest/test/controlplane"
)

// The audience of a service that checks tokens, and the node that is not attested.
const (
	vault     = "https://vault.example"
	otherNode = "node-2"
)

// TestTokenRequest has an attested node ask for tokens with the certificate that attestation
// gave it, as a kubelet does for its pods. kube-apiserver issues tokens for the node's own pods
// and for audiences that their volumes name. A service accepts such a token from this node
// alone, and the audit log leads from the token to the certificate.
func TestTokenRequest(t *testing.T) {
	log := filepath.Join(t.TempDir(), "audit.log")
	policy := controlplane.Write(t, t.TempDir(), "audit.yaml", []byte(`apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules: [{level: Metadata}]
`))
	c := startCluster(t, "--audit-policy-file="+policy, "--audit-log-path="+log, "--audit-log-mode=blocking")
	issued, node := c.attestedNode(t)
	c.makeAccount(t)
	c.makeNode(t, issued.Record.NodeName, issued.Record.ProviderID)
	c.makeNode(t, otherNode, "")
	own, others := c.makePod(t, "own", issued.Record.NodeName), c.makePod(t, "others", otherNode)
	other := c.client(t, c.user(t, csr.NodeUserPrefix+otherNode, csr.NodesGroup))

	ask := func(as kubernetes.Interface, change func(*authenticationv1.TokenRequestSpec)) (string, error) {
		request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
			Audiences:      []string{vault},
			BoundObjectRef: &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: own.Name, UID: own.UID},
		}}
		change(&request.Spec)
		made, err := as.CoreV1().ServiceAccounts(tenant).CreateToken(t.Context(), account, request, metav1.CreateOptions{})
		if err != nil {
			return "", err
		}
		return made.Status.Token, nil
	}
	var token string
	eventually(t, func() (err error) { // admission learns of the pod a moment later
		token, err = ask(node, func(*authenticationv1.TokenRequestSpec) {})
		return err
	})
	for _, tt := range []struct {
		name   string
		as     kubernetes.Interface
		change func(*authenticationv1.TokenRequestSpec)
		want   string
	}{
		{"by another node", other, func(*authenticationv1.TokenRequestSpec) {}, "bound to a pod scheduled on a different node"},
		{"another node's pod", node, func(s *authenticationv1.TokenRequestSpec) {
			s.BoundObjectRef.Name, s.BoundObjectRef.UID = others.Name, others.UID
		}, "bound to a pod scheduled on a different node"},
		{"an audience that no volume has", node, func(s *authenticationv1.TokenRequestSpec) {
			s.Audiences = []string{"https://else.example"}
		}, "not found in pod spec volume"},
		{"bound to nothing", node, func(s *authenticationv1.TokenRequestSpec) { s.BoundObjectRef = nil }, "not bound to a pod"},
		{"a pod without UID", node, func(s *authenticationv1.TokenRequestSpec) { s.BoundObjectRef.UID = "" }, "without a uid"},
		{"a pod of another UID", node, func(s *authenticationv1.TokenRequestSpec) {
			s.BoundObjectRef.UID = others.UID
		}, "does not match the UID in record"},
	} {
		if _, err := ask(tt.as, tt.change); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want forbidden, with %q", tt.name, err, tt.want)
		} else {
			t.Logf("refused, %s: %v", tt.name, err)
		}
	}
	result := c.acceptedOnNode(t, token, issued, own)
	traced(t, log, result, issued.Record.CredentialID, issued.Record.NodeName)
}

// attestedNode has a node join by attestation, and returns the issued certificate and the node's
// connection with it.
func (c *cluster) attestedNode(t *testing.T) (*csr.Issued, kubernetes.Interface) {
	t.Helper()
	n := attesttest.NewNode(t, attesttest.NodeOptions{Road: attest.RoadEK})
	plane := attesttest.NewControlPlane(t, n)
	var err error
	plane.CA, err = csr.NewCA([]*x509.Certificate{c.ca.Cert}, c.ca.Key, csr.CAConfig{
		ClusterIDs: []string{attesttest.ClusterID}, SignerNames: []string{csr.SignerClientTPM},
	})
	if err != nil {
		t.Fatal(err)
	}
	issued, err := plane.Join(t.Context(), n)
	if err != nil {
		t.Fatal(err)
	}
	return issued, c.certified(t, tls.Certificate{Certificate: [][]byte{issued.Certificate.Raw}, PrivateKey: n.Key})
}

func (c *cluster) makeNode(t *testing.T, name, providerID string) {
	t.Helper()
	_, err := c.admin.CoreV1().Nodes().Create(t.Context(), &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NodeSpec{ProviderID: providerID},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

// makePod makes a pod on a node, with a volume for a token for the vault.
func (c *cluster) makePod(t *testing.T, name, node string) *corev1.Pod {
	t.Helper()
	token := corev1.VolumeProjection{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Audience: vault, Path: "token"}}
	var made *corev1.Pod
	eventually(t, func() (err error) { // admission learns of the service account a moment later
		made, err = c.admin.CoreV1().Pods(tenant).Create(t.Context(), &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: corev1.PodSpec{NodeName: node, ServiceAccountName: account, AutomountServiceAccountToken: new(bool),
				Containers: []corev1.Container{{Name: "c", Image: "none"}},
				Volumes: []corev1.Volume{{Name: "token", VolumeSource: corev1.VolumeSource{
					Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{token}}}}}},
		}, metav1.CreateOptions{})
		return err
	})
	return made
}

// acceptedOnNode checks the token as the service does, by TokenReview and by our validator:
// both state pod and node, and ours accepts the token from the attested node alone.
func (c *cluster) acceptedOnNode(t *testing.T, token string, issued *csr.Issued, pod *corev1.Pod) *claims.Result {
	t.Helper()
	record := issued.Record
	v, err := claims.NewValidator(claims.ValidatorConfig{
		Issuers: map[string]jws.KeySet{issuer: c.keys(t)}, Audiences: []string{vault},
		Objects: liveObjects{c.admin}, InsecureAllowReplay: true,
		Node: claims.NodeCheck{FindMachine: func(_ context.Context, node string) (*claims.RegisteredMachine, error) {
			if node != record.NodeName {
				return nil, claims.ErrNotFound
			}
			return &claims.RegisteredMachine{Identity: record.Machine, UID: record.MachineUID, ProviderID: record.ProviderID}, nil
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	attested, err := claims.AttestedNodeFromRecord(issued.Certificate, &claims.CertificateRecord{
		CredentialID: record.CredentialID, NodeName: record.NodeName,
		Machine: record.Machine, MachineUID: record.MachineUID, ProviderID: record.ProviderID,
	}, claims.NodeCertificateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	result, facts, err := v.ValidateOnNode(t.Context(), token, attested)
	if err != nil {
		t.Fatal(err)
	}
	want := claims.FactRegisteredMachine | claims.FactRegisteredMachineUID | claims.FactRegisteredProviderID | claims.FactCertificateProviderID
	if !facts.Facts.Has(want) {
		t.Errorf("the facts are %s, want also %s", facts.Facts, want)
	}
	for want, change := range map[claims.Check]func(*claims.AttestedNode){
		"node-name":          func(n *claims.AttestedNode) { n.Name = otherNode },
		"registered-machine": func(n *claims.AttestedNode) { n.Machine = "ek:sha256:" + strings.Repeat("00", 32) },
	} {
		thief := *attested
		change(&thief)
		if _, _, err := v.ValidateOnNode(t.Context(), token, &thief); !errors.Is(err, want) {
			t.Errorf("the token from another machine: %v, want %s", err, want)
		}
	}

	review := c.review(t, token, vault)
	extra := map[string][]string{}
	for key, values := range review.User.Extra {
		extra[key] = values
	}
	const prefix = "authentication.kubernetes.io/"
	if diff := cmp.Diff(map[string][]string{
		prefix + "credential-id": {result.Claims.CredentialID()}, prefix + "node-name": {record.NodeName}, prefix + "node-uid": {facts.Node.UID},
		prefix + "pod-name": {pod.Name}, prefix + "pod-uid": {string(pod.UID)},
	}, extra); diff != "" || !review.Authenticated || !slices.Equal(review.Audiences, []string{vault}) {
		t.Errorf("TokenReview: %v, audiences %q, extras wanted (-) and stated (+):\n%s", review.Authenticated, review.Audiences, diff)
	}
	if review := c.review(t, token); review.Authenticated { // whose audience it lacks
		t.Error("TokenReview accepts the token for the API server")
	}
	t.Logf("the token is accepted from node %s: %s", attested.Name, facts.Facts)
	return result
}

// traced follows the token through the audit log to the certificate with which the node asked.
func traced(t *testing.T, log string, result *claims.Result, certificate, node string) {
	t.Helper()
	file := audit.Log{Name: log, Open: func() (io.ReadCloser, error) { return os.Open(log) }}
	eventually(t, func() error {
		chain, err := audit.Trace(t.Context(), result.Claims.CredentialID(), file)
		if err != nil {
			return err
		}
		name, err := chain.Node()
		if err != nil {
			return err
		}
		if last := chain.Links[len(chain.Links)-1].CredentialID; last != certificate || name != node || len(chain.Links) != 2 {
			t.Errorf("the token was issued to %s with the credential %q, want %s with %q", name, last, node, certificate)
		}
		t.Logf("audit log: %s was issued to %s with %s", result.Claims.CredentialID(), name, certificate)
		return nil
	})
}
