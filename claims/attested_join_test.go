package claims_test

import (
	"crypto/tls"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/nodeattest/nodeattest/attest/attesttest"
	"github.com/nodeattest/nodeattest/claims"
	"github.com/nodeattest/nodeattest/claims/claimstest"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// A joinedCluster is a cluster of two nodes that joined by TPM attestation, with a pod of
// shop/cart on each, and a service that takes tokens from attested nodes only.
type joinedCluster struct {
	*claimstest.Cluster

	server  *httptest.Server
	facts   claims.Facts // of the last accepted request
	refusal error        // of the last refused one
}

// TestAttestedJoin joins node-a with the in-process simulator and node-b with swtpm, and
// then lets each present both nodes' tokens.
func TestAttestedJoin(t *testing.T) {
	theirs := tpmsim.Swtpm(t, tpmsim.Options{})
	machines := []*attesttest.Node{
		attesttest.NewNode(t, attesttest.NodeOptions{Name: "node-a", ProviderID: "sim:///node-a"}),
		attesttest.NewNode(t, attesttest.NodeOptions{Name: "node-b", ProviderID: "sim:///node-b", TPM: theirs}),
	}
	plane := attesttest.NewControlPlane(t, machines...)
	c, nodes := &joinedCluster{Cluster: claimstest.New(t, claimstest.Options{})}, map[string]*claimstest.Node{}
	for _, machine := range machines {
		issued, err := plane.Join(t.Context(), machine)
		if err != nil {
			t.Fatal(err)
		}
		r := issued.Record
		if nodes[machine.Name], err = c.AddNode(claimstest.Node{
			Certificate: &tls.Certificate{Certificate: [][]byte{issued.Certificate.Raw}, PrivateKey: machine.Key}, CA: plane.CACert,
			Record: &claims.CertificateRecord{CredentialID: r.CredentialID, NodeName: r.NodeName, NodeUID: r.NodeUID,
				Machine: r.Machine, MachineUID: r.MachineUID, ProviderID: r.ProviderID},
		}); err != nil {
			t.Fatal(err)
		}
		c.Put("pods", claims.Object{Namespace: "shop", Name: "cart-on-" + machine.Name, ServiceAccountName: "cart", NodeName: machine.Name})
	}
	c.serve(t)

	nodeA, nodeB := nodes["node-a"], nodes["node-b"]
	tokenA, tokenB := c.issue(t, "node-a"), c.issue(t, "node-b")
	c.want(t, nodeA, tokenA, 200, "")
	c.want(t, nodeB, tokenB, 200, "")
	c.want(t, nodeB, tokenA, 401, claims.Check("node-name"))
	c.want(t, nodeA, tokenB, 401, claims.Check("node-name"))
	c.want(t, nil, tokenA, 403, claims.Check("node-certificate"))

	// Another machine is node-b now.
	if _, err := c.AddNode(claimstest.Node{Name: "node-b"}); err != nil {
		t.Fatal(err)
	}
	c.want(t, nodeB, tokenB, 401, claims.Check("node-uid"))
	c.want(t, nodeB, c.issue(t, "node-b"), 401, claims.Check("registered-machine"))

	// The Node is made again: tokens and pods of the old one are worth nothing.
	c.Put("nodes", claims.Object{Name: "node-a", ProviderID: "sim:///node-a"})
	c.want(t, nodeA, tokenA, 401, claims.Check("node-uid"))
	c.Delete("nodes", "", "node-a")
	c.want(t, nodeA, tokenA, 401, claims.Check("node-gone"))
}

// serve starts the service behind the handler.
func (c *joinedCluster) serve(t *testing.T) {
	t.Helper()
	config := c.ValidatorConfig()
	config.Replay, config.InsecureAllowReplay = nil, true
	config.Node.Require = claims.FactCertificateProviderID | claims.FactRegisteredProviderID | claims.FactRegisteredMachine
	validator, err := claims.NewValidator(config)
	if err != nil {
		t.Fatal(err)
	}
	opts := c.HandlerOptions()
	opts.Refused = func(_ *http.Request, err error) { c.refusal = err }
	handler, err := claims.NewHandler(validator, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		who, _ := claims.WorkloadFrom(r.Context())
		c.facts = who.Facts.Facts
		_, _ = io.WriteString(w, who.Result.Username())
	}), opts)
	if err != nil {
		t.Fatal(err)
	}
	c.server = httptest.NewUnstartedServer(handler)
	c.server.TLS = &tls.Config{ClientAuth: tls.VerifyClientCertIfGiven, ClientCAs: c.ClientCAs()}
	c.server.StartTLS()
	t.Cleanup(c.server.Close)
}

func (c *joinedCluster) issue(t *testing.T, nodeName string) string {
	t.Helper()
	token, err := c.Token(t.Context(), "shop", "cart", claimstest.TokenOptions{Pod: "cart-on-" + nodeName})
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// want sends a token from a node, nil for a client without a certificate.
func (c *joinedCluster) want(t *testing.T, from *claimstest.Node, token string, status int, check claims.Check) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, c.server.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	c.facts, c.refusal = 0, nil
	response, err := from.Client(c.server, token).Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	wantBody := "system:serviceaccount:shop:cart"
	if check != "" {
		wantBody = "refused: " + string(check) + "\n"
	}
	if response.StatusCode != status || string(body) != wantBody {
		t.Errorf("%d %q (%v), want %d %q", response.StatusCode, body, c.refusal, status, wantBody)
	}
	const all = claims.FactNodeName | claims.FactNodeUID | claims.FactCertificateProviderID |
		claims.FactRegisteredProviderID | claims.FactRegisteredMachine | claims.FactRegisteredMachineUID
	if check == "" && c.facts != all {
		t.Errorf("stands on %v, want %v", c.facts, all)
	}
}
