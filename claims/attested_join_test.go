package claims_test

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/nodeattest/nodeattest/attest/attesttest"
	"github.com/nodeattest/nodeattest/claims"
	"github.com/nodeattest/nodeattest/claims/apiserver"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/jws"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// A joinedCluster is a cluster of two nodes that joined by TPM attestation, with a pod of
// shop/cart on each, and a service that takes tokens from attested nodes only.
type joinedCluster struct {
	joined

	issuer  *apiserver.Issuer
	objects *claims.MemoryObjects
	server  *httptest.Server
	facts   claims.Facts // of the last accepted request
	refusal error        // of the last refused one
}

// TestAttestedJoin joins node-a with the in-process simulator and node-b with swtpm, and
// then lets each present both nodes' tokens.
func TestAttestedJoin(t *testing.T) {
	theirs := tpmsim.Swtpm(t, tpmsim.Options{})
	nodeA := attesttest.NewNode(t, attesttest.NodeOptions{Name: "node-a", ProviderID: "sim:///node-a"})
	nodeB := attesttest.NewNode(t, attesttest.NodeOptions{Name: "node-b", ProviderID: "sim:///node-b", TPM: theirs})
	plane := attesttest.NewControlPlane(t, nodeA, nodeB)
	c := &joinedCluster{joined{map[string]csr.IssuedRecord{}, x509.NewCertPool(), map[string]*tls.Certificate{}}, nil, &claims.MemoryObjects{}, nil, 0, nil}
	c.cas.AddCert(plane.CACert)
	for _, node := range []*attesttest.Node{nodeA, nodeB} {
		issued, err := plane.Join(t.Context(), node)
		if err != nil {
			t.Fatal(err)
		}
		c.records[node.Name] = issued.Record
		c.clients[node.Name] = &tls.Certificate{Certificate: [][]byte{issued.Certificate.Raw}, PrivateKey: node.Key}
		c.objects.Put("nodes", claims.Object{Name: node.Name, UID: node.Name + "-uid", ProviderID: node.ProviderID})
		c.objects.Put("pods", claims.Object{Namespace: "shop", Name: "cart-on-" + node.Name, UID: "cart-on-" + node.Name + "-uid",
			ServiceAccountName: "cart", NodeName: node.Name,
		})
	}
	c.objects.Put("serviceaccounts", claims.Object{Namespace: "shop", Name: "cart", UID: "cart-uid"})
	c.serve(t)

	tokenA, tokenB := c.issue(t, "node-a"), c.issue(t, "node-b")
	c.want(t, "node-a", tokenA, 200, "")
	c.want(t, "node-b", tokenB, 200, "")
	c.want(t, "node-b", tokenA, 401, claims.Check("node-name"))
	c.want(t, "node-a", tokenB, 401, claims.Check("node-name"))
	c.want(t, "", tokenA, 403, claims.Check("node-certificate"))

	// Another machine has got a certificate for node-b's name, as its record says.
	record := c.records["node-b"]
	record.Machine = "ak:sha256:another"
	c.records["node-b"] = record
	c.want(t, "node-b", tokenB, 401, claims.Check("registered-machine"))

	// The Node is made again: tokens and pods of the old one are worth nothing.
	c.objects.Put("nodes", claims.Object{Name: "node-a", UID: "another-uid", ProviderID: "sim:///node-a"})
	c.want(t, "node-a", tokenA, 401, claims.Check("node-uid"))
	c.objects.Delete("nodes", "", "node-a")
	c.want(t, "node-a", tokenA, 401, claims.Check("node-gone"))
}

// serve starts the service behind the handler.
func (c *joinedCluster) serve(t *testing.T) {
	t.Helper()
	signer := exampleSigner()
	keys, err := jws.NewStaticKeySet(signer.Key())
	if err != nil {
		t.Fatal(err)
	}
	c.issuer, err = apiserver.NewIssuer(apiserver.IssuerConfig{
		Issuer: exampleIssuer, APIAudiences: []string{exampleIssuer},
		Signer: signer, Objects: c.objects,
	})
	if err != nil {
		t.Fatal(err)
	}
	registry := joined{records: maps.Clone(c.records)} // of the machines that joined
	validator, err := claims.NewValidator(claims.ValidatorConfig{
		Issuers: map[string]jws.KeySet{exampleIssuer: keys}, Audiences: []string{exampleAudience}, Objects: c.objects, InsecureAllowReplay: true,
		Node: claims.NodeCheck{
			FindMachine: registry.machine,
			Require:     claims.FactCertificateProviderID | claims.FactRegisteredProviderID | claims.FactRegisteredMachine,
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	handler, err := claims.NewHandler(validator, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		who, _ := claims.WorkloadFrom(r.Context())
		c.facts = who.Facts.Facts
		_, _ = io.WriteString(w, who.Result.Username())
	}), claims.HandlerOptions{FindRecord: c.record, Refused: func(_ *http.Request, err error) { c.refusal = err }})
	if err != nil {
		t.Fatal(err)
	}
	c.server = httptest.NewUnstartedServer(handler)
	c.server.TLS = &tls.Config{ClientAuth: tls.VerifyClientCertIfGiven, ClientCAs: c.cas}
	c.server.StartTLS()
	t.Cleanup(c.server.Close)
}

func (c *joinedCluster) issue(t *testing.T, nodeName string) string {
	t.Helper()
	issued, err := c.issuer.Issue(t.Context(), &apiserver.TokenRequest{
		Namespace: "shop", Name: "cart", Audiences: []string{exampleAudience},
		BoundObject: &apiserver.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: "cart-on-" + nodeName},
	})
	if err != nil {
		t.Fatal(err)
	}
	return issued.Token.Reveal()
}

// want sends a token from a node, "" for a client without a certificate.
func (c *joinedCluster) want(t *testing.T, from, token string, status int, check claims.Check) {
	t.Helper()
	transport := c.server.Client().Transport.(*http.Transport).Clone()
	defer transport.CloseIdleConnections()
	if certificate := c.clients[from]; certificate != nil {
		transport.TLSClientConfig.Certificates = []tls.Certificate{*certificate}
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, c.server.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	c.facts, c.refusal = 0, nil
	response, err := (&http.Client{Transport: transport}).Do(r)
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
		t.Errorf("from %q: %d %q (%v), want %d %q", from, response.StatusCode, body, c.refusal, status, wantBody)
	}
	const all = claims.FactNodeName | claims.FactNodeUID | claims.FactCertificateProviderID | claims.FactRegisteredProviderID | claims.FactRegisteredMachine
	if check == "" && c.facts != all {
		t.Errorf("from %q: stands on %v, want %v", from, c.facts, all)
	}
}
