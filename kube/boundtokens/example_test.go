package boundtokens_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"

	"k8s.io/client-go/rest"

	"github.com/nodeattest/nodeattest/claims"
	"github.com/nodeattest/nodeattest/claims/claimstest"
	"github.com/nodeattest/nodeattest/jws"
	"github.com/nodeattest/nodeattest/kube/boundtokens"
)

// exampleCluster is a cluster with two attested nodes, a pod on node-a with its token, and an API server.
func exampleCluster() (api *fakeAPI, cluster *claimstest.Cluster, nodeA, nodeB *claimstest.Node, token string) {
	cluster, err := claimstest.Open(claimstest.Options{})
	if err != nil {
		log.Fatal(err)
	}
	api = newFakeAPI()
	api.serve(cluster)
	for name, node := range map[string]**claimstest.Node{"node-a": &nodeA, "node-b": &nodeB} {
		if *node, err = cluster.AddNode(claimstest.Node{Name: name}); err != nil {
			log.Fatal(err)
		}
		api.bind(*node)
	}
	cluster.Put("pods", claims.Object{Namespace: "shop", Name: "cart-0", ServiceAccountName: "cart", NodeName: "node-a"})
	if token, err = cluster.Token(context.Background(), "shop", "cart", claimstest.TokenOptions{Pod: "cart-0"}); err != nil {
		log.Fatal(err)
	}
	return api, cluster, nodeA, nodeB, token
}

// A service that takes a pod's token only from the attested machine for which it was issued. In a pod,
// rest.InClusterConfig is its connection to the API server.
func Example() {
	api, simulated, nodeA, nodeB, token := exampleCluster()
	defer api.Close()

	cluster, err := boundtokens.New(api.config(), boundtokens.Options{})
	if err != nil {
		log.Fatal(err)
	}
	config := cluster.ValidatorConfig(claimstest.Audience) // the service's own name
	config.InsecureAllowReplay = true                      // a token comes with each request: it is worth nothing elsewhere
	validator, err := claims.NewValidator(config)
	if err != nil {
		log.Fatal(err)
	}
	handler, err := claims.NewHandler(validator, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		who, _ := claims.WorkloadFrom(r.Context())
		fmt.Fprintf(w, "%s on %s\n", who.Result.Username(), who.Node.Name)
	}), cluster.HandlerOptions())
	if err != nil {
		log.Fatal(err)
	}
	service := httptest.NewUnstartedServer(handler)
	service.TLS = &tls.Config{
		ClientAuth: tls.VerifyClientCertIfGiven, ClientCAs: simulated.ClientCAs(), // the CA of the nodes' certificates
		SessionTicketsDisabled: true, // a ticket is good without the node's key
	}
	service.StartTLS()
	defer service.Close()

	for _, from := range []*claimstest.Node{nodeA, nodeB, nil} {
		response, err := from.Client(service, token).Get(service.URL)
		if err != nil {
			log.Fatal(err)
		}
		body, _ := io.ReadAll(response.Body)
		_ = response.Body.Close()
		fmt.Printf("%d %s", response.StatusCode, body)
	}
	// Output:
	// 200 system:serviceaccount:shop:cart on node-a
	// 401 refused: node-name
	// 403 refused: node-certificate
}

// A service that has the keys of the cluster's issuer verifies tokens itself, and reads the service
// account and the pod of a token in place of a TokenReview.
func ExampleCluster_ValidatorConfig() {
	api, simulated, nodeA, _, token := exampleCluster()
	defer api.Close()
	cluster, err := boundtokens.New(api.config(), boundtokens.Options{})
	if err != nil {
		log.Fatal(err)
	}
	config := cluster.ValidatorConfig(claimstest.Audience)
	config.InsecureAllowReplay = true
	config.Review = nil
	config.Issuers = map[string]jws.KeySet{simulated.Issuer(): simulated.KeySet()} // such as a jws.RemoteKeySet
	validator, err := claims.NewValidator(config)
	if err != nil {
		log.Fatal(err)
	}
	result, facts, err := validator.ValidateOnNode(context.Background(), token, nodeA.Attested)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(result.Username(), "by", facts.Facts)

	simulated.Delete("pods", "shop", "cart-0")
	_, _, err = validator.ValidateOnNode(context.Background(), token, nodeA.Attested)
	fmt.Println(err)
	// Output:
	// system:serviceaccount:shop:cart by node-name,node-uid,attested-uid,certificate-provider-id,registered-provider-id,registered-machine,registered-machine-uid
	// pod-gone: got none, want pod cart-0: pods "cart-0" not found
}

// An API server without TLS is refused: its answers decide who is let in.
func ExampleNew() {
	_, err := boundtokens.New(&rest.Config{Host: "http://10.0.0.1"}, boundtokens.Options{})
	fmt.Println(err)
	// Output: configuration: got rest.Config with a Host that is no https://host[:port][/path], want the API server's URL
}
