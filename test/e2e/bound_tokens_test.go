package e2e

import (
	"context"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/nodeattest/nodeattest/claims"
	"github.com/nodeattest/nodeattest/claims/apiserver"
	"github.com/nodeattest/nodeattest/jws"
	"github.com/nodeattest/nodeattest/refusal"
	"github.com/nodeattest/nodeattest/test/controlplane"
)

const (
	tenant  = "default"
	account = "builder"
)

// liveObjects gets objects from the API server, each time anew.
type liveObjects struct{ client kubernetes.Interface }

func (liveObjects) ReadsLive() {}

func (l liveObjects) Get(ctx context.Context, resource, namespace, name string) (*claims.Object, error) {
	core, options := l.client.CoreV1(), metav1.GetOptions{}
	o, meta, err := &claims.Object{Namespace: namespace, Name: name}, metav1.Object(nil), error(nil)
	switch resource {
	case "serviceaccounts":
		meta, err = core.ServiceAccounts(namespace).Get(ctx, name, options)
	case "secrets":
		meta, err = core.Secrets(namespace).Get(ctx, name, options)
	case "pods":
		var pod *corev1.Pod
		pod, err = core.Pods(namespace).Get(ctx, name, options)
		meta, o.ServiceAccountName, o.NodeName = pod, pod.Spec.ServiceAccountName, pod.Spec.NodeName
	case "nodes":
		var node *corev1.Node
		node, err = core.Nodes().Get(ctx, name, options)
		meta, o.ProviderID = node, node.Spec.ProviderID
	default:
		return nil, claims.NewNotFound(resource, name)
	}
	if err != nil {
		return nil, lookup(resource, name, err)
	}
	o.UID = string(meta.GetUID())
	if deleted := meta.GetDeletionTimestamp(); deleted != nil {
		o.Deleted = &deleted.Time
	}
	return o, nil
}

func lookup(resource, name string, err error) error {
	if apierrors.IsNotFound(err) {
		return claims.NewNotFound(resource, name)
	}
	return err
}

// TestBoundTokens issues tokens with a real kube-apiserver, and compares both validators
// with its TokenReview: while the objects are there, and after each was deleted and
// made again.
func TestBoundTokens(t *testing.T) {
	c := startCluster(t)
	keys := c.keys(t)
	v := &validators{cluster: c, objects: liveObjects{c.admin}}
	var err error
	if v.kubernetes, err = apiserver.NewValidator(apiserver.ValidatorConfig{
		Issuers: []string{issuer}, Keys: keys, Objects: v.objects, Audiences: []string{issuer},
	}); err != nil {
		t.Fatal(err)
	}
	config := claims.ValidatorConfig{
		Issuers: map[string]jws.KeySet{issuer: keys}, Objects: v.objects, Audiences: []string{issuer}, InsecureAPIServerAudience: true, InsecureAllowReplay: true,
	}
	bound, err := claims.NewValidator(config)
	if err != nil {
		t.Fatal(err)
	}
	config.InsecureAllowUnbound = true // as kube-apiserver does
	if v.strict, err = claims.NewValidator(config); err != nil {
		t.Fatal(err)
	}
	c.makeAccount(t)
	for _, tt := range []struct {
		name, kind string
	}{
		{"plain", ""}, {"pod", "Pod"}, {"node", "Node"}, {"secret", "Secret"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			uid := c.makeObjects(t)[tt.kind]
			token := c.requestToken(t, tt.kind, uid)
			v.accept(t, token)
			if _, err := bound.Validate(t.Context(), token); errors.Is(err, claims.Check("unbound-token")) != (tt.kind == "") {
				t.Errorf("without InsecureAllowUnbound: %v", err)
			}
			v.refuse(t, token[:len(token)-2]+flip(token[len(token)-2:]), false)
			c.deleteObject(t, tt.kind)
			v.refuse(t, token, true)
			c.makeAccount(t)
			if again := c.makeObjects(t)[tt.kind]; tt.kind != "" && again == uid {
				t.Fatal("the object has its old UID")
			}
			v.refuse(t, token, true)
		})
	}
	t.Run("pod without its node", v.testPodWithoutNode)
}

// testPodWithoutNode deletes the Node of a pod that stays. kube-apiserver still accepts the pod's tokens: it gets
// the Node only for tokens that are bound to a Node. The validator that decides as kube-apiserver accepts them
// too. The strict one refuses them, also after the Node was made again.
func (v *validators) testPodWithoutNode(t *testing.T) {
	c := v.cluster
	uids := c.makeObjects(t)
	used, unused := c.requestToken(t, "Pod", uids["Pod"]), c.requestToken(t, "Pod", uids["Pod"])
	ofNode := c.requestToken(t, "Node", uids["Node"])
	v.accept(t, used)
	for step, want := range []claims.Check{"node-gone", "node-uid"} {
		if step == 0 {
			c.deleteObject(t, "Node")
		} else if again := c.makeObjects(t); again["Node"] == uids["Node"] || again["Pod"] != uids["Pod"] {
			t.Fatalf("the objects have the UIDs %v, and had %v: want another Node", again, uids)
		}
		v.refuse(t, ofNode, true)                      // so TokenReview knows that the Node is gone
		for _, token := range []string{used, unused} { // TokenReview remembers the first for some seconds
			if review := c.review(t, token); !review.Authenticated {
				t.Errorf("TokenReview refuses a pod's token: %s", review.Error)
			}
			if _, err := v.kubernetes.Validate(t.Context(), token); err != nil {
				t.Errorf("as kube-apiserver: %v", err)
			}
			if _, err := v.strict.Validate(t.Context(), token); !errors.Is(err, want) {
				t.Errorf("strict: %v, want %s", err, want)
			} else {
				t.Logf("accepted as kube-apiserver does, and strict refused: %v", err)
			}
		}
	}
}

// keys are the keys with which kube-apiserver signs tokens, as it publishes them.
func (c *cluster) keys(t *testing.T) *jws.StaticKeySet {
	t.Helper()
	served, err := c.admin.Discovery().RESTClient().Get().AbsPath("/openid/v1/jwks").DoRaw(t.Context())
	if n := strings.Count(string(served), `"kid"`); err != nil || n != 2 {
		t.Fatalf("kube-apiserver serves %s, %v, want its key twice", served, err)
	}
	published, err := jws.ParseJWKS(served)
	if err != nil || len(published) != 1 {
		t.Fatalf("%d keys, %v, want one", len(published), err)
	}
	keys, err := jws.NewStaticKeySet(published...)
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

// flip gives another signature of the same length.
func flip(end string) string {
	if end[0] == 'A' {
		return "B" + end[1:]
	}
	return "A" + end[1:]
}

type validators struct {
	cluster    *cluster
	objects    claims.Objects
	kubernetes *apiserver.Validator
	strict     *claims.Validator
}

// accept checks that both validators and TokenReview accept the token, and state the same user.
func (v *validators) accept(t *testing.T, token string) {
	t.Helper()
	var review *authenticationv1.TokenReviewStatus
	eventually(t, func() error { // the server may still have the object that was there before
		if review = v.cluster.review(t, token); !review.Authenticated {
			return fmt.Errorf("TokenReview refuses: %s", review.Error)
		}
		return nil
	})
	lenient, err := v.kubernetes.Validate(t.Context(), token)
	if err != nil {
		t.Fatalf("as kube-apiserver: %v", err)
	}
	strict, err := v.strict.Validate(t.Context(), token)
	if err != nil {
		t.Fatalf("strict: %v", err)
	}
	want := map[string][]string{}
	for key, values := range review.User.Extra {
		want[key] = values
	}
	for _, result := range []*claims.Result{lenient, strict} {
		if diff := cmp.Diff(want, result.Extra()); diff != "" {
			t.Errorf("extras of TokenReview (-) and ours (+):\n%s", diff)
		}
		if result.Username() != review.User.Username || result.UID() != review.User.UID ||
			!cmp.Equal(without(result.Groups(), ""), without(review.User.Groups, "system:authenticated")) {
			t.Errorf("the user is %s %s %q, TokenReview's %+v", result.Username(), result.UID(), result.Groups(), review.User)
		}
	}
	t.Logf("extras: %s", strings.Join(slices.Sorted(maps.Keys(want)), " "))
	claimsOf := lenient.Claims
	encoded, err := claimsOf.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := jws.Parse(token)
	if err != nil {
		t.Fatal(err)
	}
	if got := string(parsed.UnverifiedPayload()); got != string(encoded) {
		t.Errorf("kube-apiserver encodes %s, we %s", got, encoded)
	}
}

// refuse checks that all three refuse the token. The validator that decides as kube-apiserver has TokenReview's
// message. The API server remembers for some seconds that a token was good.
func (v *validators) refuse(t *testing.T, token string, gone bool) {
	t.Helper()
	_, err := v.kubernetes.Validate(t.Context(), token)
	if err == nil {
		t.Fatal("as kube-apiserver: accepted")
	}
	if _, err := v.strict.Validate(t.Context(), token); err == nil || errors.Is(err, refusal.ErrRetry) {
		t.Errorf("strict: %v, want a refusal", err)
	}
	eventually(t, func() error {
		status := v.cluster.review(t, token)
		switch {
		case status.Authenticated:
			return errors.New("TokenReview accepts")
		case gone && !strings.Contains(status.Error, err.Error()):
			return fmt.Errorf("TokenReview says %q, we %q", status.Error, err)
		}
		return nil
	})
	t.Logf("refused: %v", err)
}

// review is TokenReview's decision, for audiences other than the API server's if any are given.
func (c *cluster) review(t *testing.T, token string, audiences ...string) *authenticationv1.TokenReviewStatus {
	t.Helper()
	review, err := c.admin.AuthenticationV1().TokenReviews().Create(t.Context(), &authenticationv1.TokenReview{
		Spec: authenticationv1.TokenReviewSpec{Token: token, Audiences: audiences},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return &review.Status
}

// requestToken has kube-apiserver issue a token.
func (c *cluster) requestToken(t *testing.T, kind string, uid types.UID) string {
	t.Helper()
	request := &authenticationv1.TokenRequest{}
	if kind != "" {
		request.Spec.BoundObjectRef = &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: kind, Name: objectName, UID: uid}
	}
	issued, err := c.admin.CoreV1().ServiceAccounts(tenant).CreateToken(t.Context(), account, request, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return issued.Status.Token
}

// objectName is the name of the pod, the node and the Secret.
const objectName = "bound"

func (c *cluster) makeAccount(t *testing.T) {
	t.Helper()
	eventually(t, func() error {
		_, err := c.admin.CoreV1().ServiceAccounts(tenant).Create(t.Context(), &corev1.ServiceAccount{
			ObjectMeta: metav1.ObjectMeta{Name: account},
		}, metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			return nil
		}
		return err
	})
}

// makeObjects creates the missing objects, and returns the UIDs by kind.
func (c *cluster) makeObjects(t *testing.T) map[string]types.UID {
	t.Helper()
	uids := make(map[string]types.UID)
	keep := func(kind string, uid types.UID, err error) {
		if err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatal(err)
		}
		uids[kind] = uid
	}
	meta := metav1.ObjectMeta{Name: objectName}
	_, err := c.admin.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: meta}, metav1.CreateOptions{})
	keep("Node", "", err)
	_, err = c.admin.CoreV1().Secrets(tenant).Create(t.Context(), &corev1.Secret{ObjectMeta: meta}, metav1.CreateOptions{})
	keep("Secret", "", err)
	eventually(t, func() error { // admission learns of the service account a moment later
		_, err = c.admin.CoreV1().Pods(tenant).Create(t.Context(), &corev1.Pod{
			ObjectMeta: meta,
			Spec: corev1.PodSpec{NodeName: objectName, ServiceAccountName: account, AutomountServiceAccountToken: new(bool),
				Containers: []corev1.Container{{Name: "c", Image: "none"}}},
		}, metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			return nil
		}
		return err
	})
	node, err := c.admin.CoreV1().Nodes().Get(t.Context(), objectName, metav1.GetOptions{})
	keep("Node", node.UID, err)
	secret, err := c.admin.CoreV1().Secrets(tenant).Get(t.Context(), objectName, metav1.GetOptions{})
	keep("Secret", secret.UID, err)
	pod, err := c.admin.CoreV1().Pods(tenant).Get(t.Context(), objectName, metav1.GetOptions{})
	keep("Pod", pod.UID, err)
	return uids
}

// deleteObject deletes one object at once: of a plain token the service account.
func (c *cluster) deleteObject(t *testing.T, kind string) {
	t.Helper()
	now := metav1.DeleteOptions{GracePeriodSeconds: new(int64)}
	var err error
	switch kind {
	case "":
		err = c.admin.CoreV1().ServiceAccounts(tenant).Delete(t.Context(), account, now)
	case "Pod":
		err = c.admin.CoreV1().Pods(tenant).Delete(t.Context(), objectName, now)
	case "Node":
		err = c.admin.CoreV1().Nodes().Delete(t.Context(), objectName, now)
	case "Secret":
		err = c.admin.CoreV1().Secrets(tenant).Delete(t.Context(), objectName, now)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestForeignIssuer has a real kube-apiserver authenticate a token that our issuer
// made, with the keys from our discovery document.
func TestForeignIssuer(t *testing.T) {
	ca, dir := controlplane.NewAuthority(t), t.TempDir()
	cert, certKey := ca.Issue(t, pkix.Name{CommonName: "issuer"}, x509.ExtKeyUsageServerAuth, net.IPv4(127, 0, 0, 1))
	port := controlplane.FreePorts(t, 1)[0]
	ours := "https://127.0.0.1:" + port
	signer, err := jws.NewSigner(controlplane.NewKey(t), jws.SignerOptions{Type: jws.TypeJWT})
	if err != nil {
		t.Fatal(err)
	}
	set, err := jws.MarshalJWKS([]*jws.Key{signer.Key()})
	if err != nil {
		t.Fatal(err)
	}
	handler := http.NewServeMux()
	handler.HandleFunc("/.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"issuer":%q,"jwks_uri":%q,"response_types_supported":["id_token"],"subject_types_supported":["public"],`+
			`"id_token_signing_alg_values_supported":[%q]}`, ours, ours+"/openid/v1/jwks", signer.Key().Algorithm())
	})
	handler.HandleFunc("/openid/v1/jwks", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(set) })
	server := &http.Server{Addr: "127.0.0.1:" + port, Handler: handler}
	served := make(chan error, 1)
	go func() {
		served <- server.ListenAndServeTLS(controlplane.Write(t, dir, "issuer.crt", cert), controlplane.Write(t, dir, "issuer.key", certKey))
	}()
	t.Cleanup(func() {
		_ = server.Close()
		<-served
	})

	const audience = "https://api.example"
	config := fmt.Sprintf(`apiVersion: apiserver.config.k8s.io/v1
kind: AuthenticationConfiguration
jwt:
- issuer:
    url: %s
    audiences: [%q]
    certificateAuthority: %q
  claimMappings:
    username: {claim: sub, prefix: "ours:"}
    groups: {expression: '["namespace:" + claims["kubernetes.io"].namespace]'}
`, ours, audience, controlplane.CertificatePEM(ca.Cert))
	c := startCluster(t, "--authentication-config="+controlplane.Write(t, dir, "authentication.yaml", []byte(config)))

	objects := &claims.MemoryObjects{}
	objects.Put("serviceaccounts", claims.Object{Namespace: tenant, Name: account, UID: "1"})
	i, err := apiserver.NewIssuer(apiserver.IssuerConfig{
		Issuer: ours, APIAudiences: []string{audience}, Signer: signer, Objects: objects,
	})
	if err != nil {
		t.Fatal(err)
	}
	issued, err := i.Issue(t.Context(), &apiserver.TokenRequest{Namespace: tenant, Name: account})
	if err != nil {
		t.Fatal(err)
	}
	who := func(token string) (authenticationv1.UserInfo, error) {
		review, err := c.client(t, c.bearer(token)).AuthenticationV1().SelfSubjectReviews().
			Create(t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
		if err != nil {
			return authenticationv1.UserInfo{}, err
		}
		return review.Status.UserInfo, nil
	}
	var user authenticationv1.UserInfo
	eventually(t, func() (err error) { // the server fetches the keys in the background
		user, err = who(issued.Token.Reveal())
		return err
	})
	if want := "ours:" + claims.MakeSubject(tenant, account); user.Username != want || !slices.Contains(user.Groups, "namespace:"+tenant) {
		t.Errorf("the API server takes our token for %+v, want %s", user, want)
	}
	before, after, _ := strings.Cut(issued.Token.Reveal(), ".")
	if _, err := who(before + "." + flip(after)); !apierrors.IsUnauthorized(err) {
		t.Errorf("with one bit changed: %v, want unauthorized", err)
	}
	verifyWithGoOIDC(t, ours, audience, ca.Cert, issued.Token.Reveal())
}
