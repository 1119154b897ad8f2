package boundtokens_test

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodeattest/nodeattest/claims"
	"github.com/nodeattest/nodeattest/claims/apiserver"
	"github.com/nodeattest/nodeattest/claims/claimstest"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/jws"
	"github.com/nodeattest/nodeattest/kube/api/v1alpha1"
	"github.com/nodeattest/nodeattest/kube/boundtokens"
)

// serve answers for the objects and the tokens of a cluster as kube-apiserver does.
func (f *fakeAPI) serve(cluster *claimstest.Cluster) {
	objects := func(resource, kind, namespace string) {
		for _, name := range []string{"node-a", "node-b", "cart-0", "cart"} {
			path := "/api/v1/" + resource + "/" + name
			if namespace != "" {
				path = "/api/v1/namespaces/" + namespace + "/" + resource + "/" + name
			}
			f.set(path, func(w http.ResponseWriter, r *http.Request) {
				o, err := cluster.Objects().Get(r.Context(), resource, namespace, name)
				if err != nil {
					status(http.StatusNotFound, metav1.StatusReasonNotFound)(w, r)
					return
				}
				meta := metav1.ObjectMeta{Name: name, Namespace: namespace, UID: types.UID(o.UID)}
				send(http.StatusOK, map[string]any{"kind": kind, "apiVersion": "v1", "metadata": meta,
					"spec": map[string]string{"serviceAccountName": o.ServiceAccountName, "nodeName": o.NodeName, "providerID": o.ProviderID}})(w, r)
			})
		}
	}
	objects("nodes", "Node", "")
	objects("pods", "Pod", "shop")
	objects("serviceaccounts", "PartialObjectMetadata", "shop")
	f.set(reviewPath, func(w http.ResponseWriter, r *http.Request) { review(cluster, w, r) })
}

// review answers a TokenReview.
func review(cluster *claimstest.Cluster, w http.ResponseWriter, r *http.Request) {
	var o authenticationv1.TokenReview
	_ = json.NewDecoder(r.Body).Decode(&o)
	v, err := apiserver.NewValidator(apiserver.ValidatorConfig{Release: apiserver.Kubernetes136, Issuers: []string{cluster.Issuer()}, Keys: cluster.KeySet(),
		Objects: cluster.Objects(), Audiences: []string{cluster.Issuer()}})
	var result *claims.Result
	if err == nil {
		result, err = v.Validate(r.Context(), o.Spec.Token, o.Spec.Audiences...)
	}
	if err != nil {
		o.Status.Error = err.Error()
	} else {
		o.Status = authenticationv1.TokenReviewStatus{Authenticated: true, Audiences: result.Audiences,
			User: authenticationv1.UserInfo{Username: result.Username(), UID: result.UID(), Groups: append(result.Groups(), "system:authenticated"), Extra: map[string]authenticationv1.ExtraValue{}}}
		for key, values := range result.Extra() {
			o.Status.User.Extra[key] = values
		}
	}
	send(http.StatusCreated, &o)(w, r)
}

// bind records a machine that attested as a node.
func (f *fakeAPI) bind(n *claimstest.Node) {
	end := metav1.NewTime(time.Now().Add(24 * time.Hour))
	f.put("/apis/nodeattest.github.io/v1alpha1/attestednodes/"+n.Name, &v1alpha1.AttestedNode{
		TypeMeta:   metav1.TypeMeta{Kind: "AttestedNode", APIVersion: v1alpha1.GroupVersion().String()},
		ObjectMeta: metav1.ObjectMeta{Name: n.Name, UID: "record-of-" + types.UID(n.Name)},
		Spec: v1alpha1.AttestedNodeSpec{
			Scope: "ek P-256", Machine: n.Machine, MachineUID: n.Record.MachineUID, ProviderID: n.ProviderID, State: v1alpha1.NodeBound, LastEnd: &end,
			Certificates: []v1alpha1.IssuedCertificate{{
				CredentialID: n.Record.CredentialID, SignerName: csr.SignerClientTPM, Machine: n.Machine, MachineUID: n.Record.MachineUID, NodeUID: n.Record.NodeUID,
				ProviderID: n.ProviderID, RequestUID: "request", SPKISHA256: strings.Repeat("0", 64), NotAfter: end,
			}},
		},
	})
}

// A trial is a service of a cluster with two attested nodes, and a pod on the first.
type trial struct {
	*claimstest.Cluster
	api          *fakeAPI
	nodeA, nodeB *claimstest.Node
	service      *httptest.Server
	token        string
}

// newTrial makes the service validate tokens by TokenReview, or by keys.
func newTrial(t *testing.T, byKeys bool) *trial {
	t.Helper()
	x := &trial{Cluster: claimstest.New(t, claimstest.Options{}), api: newFakeAPI()}
	t.Cleanup(x.api.Close)
	x.api.serve(x.Cluster)
	x.nodeA, x.nodeB = x.join(t, "node-a"), x.join(t, "node-b")
	x.Put("pods", claims.Object{Namespace: "shop", Name: "cart-0", ServiceAccountName: "cart", NodeName: "node-a"})
	x.issue(t)

	cluster, err := boundtokens.New(x.api.config(), boundtokens.Options{})
	if err != nil {
		t.Fatal(err)
	}
	config := cluster.ValidatorConfig(claimstest.Audience)
	config.InsecureAllowReplay = true
	if byKeys {
		config.Review, config.Issuers = nil, map[string]jws.KeySet{x.Issuer(): x.KeySet()}
	}
	validator, err := claims.NewValidator(config)
	if err != nil {
		t.Fatal(err)
	}
	handler, err := claims.NewHandler(validator, http.HandlerFunc(hello), cluster.HandlerOptions())
	if err != nil {
		t.Fatal(err)
	}
	x.service = httptest.NewUnstartedServer(handler)
	x.service.TLS = &tls.Config{ClientAuth: tls.VerifyClientCertIfGiven, ClientCAs: x.ClientCAs(), SessionTicketsDisabled: true}
	x.service.StartTLS()
	t.Cleanup(x.service.Close)
	return x
}

func hello(w http.ResponseWriter, r *http.Request) {
	who, _ := claims.WorkloadFrom(r.Context())
	fmt.Fprintf(w, "%s on %s by %s", who.Result.Username(), who.Node.Name, who.Facts.Facts)
}

func (x *trial) join(t *testing.T, name string) *claimstest.Node {
	t.Helper()
	node, err := x.AddNode(claimstest.Node{Name: name})
	if err != nil {
		t.Fatal(err)
	}
	x.api.bind(node)
	return node
}

func (x *trial) issue(t *testing.T) {
	t.Helper()
	var err error
	if x.token, err = x.Token(t.Context(), "shop", "cart", claimstest.TokenOptions{Pod: "cart-0"}); err != nil {
		t.Fatal(err)
	}
}

// TestService presents a pod's token from its own attested node, and changes one thing at a time.
func TestService(t *testing.T) {
	const accepted = "system:serviceaccount:shop:cart on node-a by node-name,node-uid,attested-uid,certificate-provider-id,registered-provider-id,registered-machine,registered-machine-uid"
	rows := map[string]struct {
		change           func(t *testing.T, x *trial) *claimstest.Node
		code             int
		byReview, byKeys string // where they differ
	}{
		"its own node":   {func(_ *testing.T, x *trial) *claimstest.Node { return x.nodeA }, 200, accepted, accepted},
		"another node":   {func(_ *testing.T, x *trial) *claimstest.Node { return x.nodeB }, 401, "node-name", "node-name"},
		"no certificate": {func(*testing.T, *trial) *claimstest.Node { return nil }, 403, "node-certificate", "node-certificate"},
		"no record": {func(_ *testing.T, x *trial) *claimstest.Node {
			x.api.set(recordPath, nil)
			return x.nodeA
		}, 403, "node-certificate", "node-certificate"},
		"another machine's certificate of the name": {func(t *testing.T, x *trial) *claimstest.Node {
			x.join(t, "node-a")
			return x.nodeA
		}, 403, "node-certificate", "node-certificate"},
		"another audience": {func(t *testing.T, x *trial) *claimstest.Node {
			var err error
			if x.token, err = x.Token(t.Context(), "shop", "cart", claimstest.TokenOptions{Pod: "cart-0", Audiences: []string{"x"}}); err != nil {
				t.Fatal(err)
			}
			return x.nodeA
		}, 401, "audience", "audience"},
		"pod deleted": {func(_ *testing.T, x *trial) *claimstest.Node {
			x.Delete("pods", "shop", "cart-0")
			return x.nodeA
		}, 401, "token-review", "pod-gone"},
		"Node made again": {func(_ *testing.T, x *trial) *claimstest.Node {
			x.Put("nodes", claims.Object{Name: "node-a", ProviderID: x.nodeA.ProviderID})
			return x.nodeA
		}, 401, "node-uid", "node-uid"},
		"the key withdrawn": {func(t *testing.T, x *trial) *claimstest.Node {
			if err := x.RotateKey(nil); err != nil {
				t.Fatal(err)
			}
			return x.nodeA
		}, 401, "token-review", "no-key"},
		"no right to review": {func(_ *testing.T, x *trial) *claimstest.Node {
			x.api.set(reviewPath, status(403, "Forbidden"))
			x.api.set("/api/v1/namespaces/shop/pods/cart-0", status(403, "Forbidden"))
			return x.nodeA
		}, 503, "retry", "retry"},
		"no right to get Nodes": {func(_ *testing.T, x *trial) *claimstest.Node {
			x.api.set(nodePath, status(403, "Forbidden"))
			return x.nodeA
		}, 503, "retry", "retry"},
		"no right to get AttestedNodes": {func(_ *testing.T, x *trial) *claimstest.Node {
			x.api.set(recordPath, status(403, "Forbidden"))
			return x.nodeA
		}, 503, "retry", "retry"},
	}
	for name, tt := range rows {
		for _, byKeys := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, by keys %t", name, byKeys), func(t *testing.T) {
				x := newTrial(t, byKeys)
				from := tt.change(t, x)
				want := tt.byReview
				if byKeys {
					want = tt.byKeys
				}
				if tt.code != 200 {
					want = "refused: " + want + "\n"
				}
				response, err := from.Client(x.service, x.token).Get(x.service.URL)
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = response.Body.Close() }()
				body, _ := io.ReadAll(response.Body)
				if response.StatusCode != tt.code || string(body) != want {
					t.Errorf("got %d %q, want %d %q", response.StatusCode, body, tt.code, want)
				}
			})
		}
	}
}

// TestRequests: a request costs a TokenReview or the objects of the token, the Node, and the record
// twice.
func TestRequests(t *testing.T) {
	const record, node = "GET " + recordPath, "GET " + nodePath
	for byKeys, want := range map[bool][]string{
		false: {record, "POST " + reviewPath, node, record},
		true:  {record, "GET /api/v1/namespaces/shop/serviceaccounts/cart", "GET /api/v1/namespaces/shop/pods/cart-0", node, record},
	} {
		x := newTrial(t, byKeys)
		response, err := x.nodeA.Client(x.service, x.token).Get(x.service.URL)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		var asked []string
		for _, request := range x.api.asked {
			method, path, _ := strings.Cut(request, " ")
			path, _, _ = strings.Cut(path, " ")
			asked = append(asked, method+" "+path)
		}
		if fmt.Sprint(asked) != fmt.Sprint(want) {
			t.Errorf("by keys %t: asked %q, want %q", byKeys, asked, want)
		}
	}
}
