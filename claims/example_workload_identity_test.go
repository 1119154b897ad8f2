package claims_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"

	"github.com/nodeattest/nodeattest/attest/attesttest"
	"github.com/nodeattest/nodeattest/claims"
	"github.com/nodeattest/nodeattest/claims/claimstest"
)

// A service that gives something to a workload only if its token comes from the very machine
// that the token was issued for. Two machines join a cluster with simulated TPMs; the token of a
// pod on node-a is presented from node-a, and then from where it must not work.
func Example_workloadIdentity() {
	cluster, err := claimstest.Open(claimstest.Options{})
	if err != nil {
		log.Fatal(err)
	}
	nodeA, nodeB := joinMachine(cluster, "node-a"), joinMachine(cluster, "node-b")
	cluster.Put("pods", claims.Object{Namespace: "shop", Name: "cart-0", ServiceAccountName: "cart", NodeName: "node-a"})
	token, err := cluster.Token(context.Background(), "shop", "cart", claimstest.TokenOptions{Pod: "cart-0"})
	if err != nil {
		log.Fatal(err)
	}

	config := cluster.ValidatorConfig()                   // issuers and their keys, audiences, objects, registry of machines
	config.Replay, config.InsecureAllowReplay = nil, true // a token may come with each request: it is worth nothing elsewhere
	validator, err := claims.NewValidator(config)
	if err != nil {
		log.Fatal(err)
	}
	handler, err := claims.NewHandler(validator, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		who, _ := claims.WorkloadFrom(r.Context())
		fmt.Fprintf(w, "%s on %s\n", who.Result.Username(), who.Node.Name)
	}), cluster.HandlerOptions()) // records of the certificates that were issued through attestation
	if err != nil {
		log.Fatal(err)
	}
	service := httptest.NewUnstartedServer(handler)
	service.TLS = &tls.Config{
		ClientAuth: tls.VerifyClientCertIfGiven, ClientCAs: cluster.ClientCAs(), // the CAs that sign for attested nodes, and no other
		SessionTicketsDisabled: true, // a ticket is good without the node's key
	}
	service.StartTLS()
	defer service.Close()

	present := func(from *claimstest.Node) {
		response, err := from.Client(service, token).Get(service.URL)
		if err != nil {
			log.Fatal(err)
		}
		defer func() { _ = response.Body.Close() }()
		body, _ := io.ReadAll(response.Body)
		fmt.Printf("%d %s", response.StatusCode, body)
	}
	present(nodeA)
	present(nodeB) // attested just as well
	present(nil)   // a machine that never joined
	cluster.Delete("nodes", "", "node-a")
	present(nodeA)
	// Output:
	// 200 system:serviceaccount:shop:cart on node-a
	// 401 refused: node-name
	// 403 refused: node-certificate
	// 401 refused: node-gone
}

// joinMachine has a machine join: hello, challenge, answer, certificate.
func joinMachine(cluster *claimstest.Cluster, name string) *claimstest.Node {
	machine, err := attesttest.OpenNode(attesttest.NodeOptions{Name: name, ProviderID: "sim://" + name})
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = machine.Close() }() // a process has only one simulated TPM
	plane, err := attesttest.OpenControlPlane(machine)
	if err != nil {
		log.Fatal(err)
	}
	issued, err := plane.Join(context.Background(), machine)
	if err != nil {
		log.Fatal(err)
	}
	r := issued.Record
	node, err := cluster.AddNode(claimstest.Node{
		Certificate: &tls.Certificate{Certificate: [][]byte{issued.Certificate.Raw}, PrivateKey: machine.Key}, CA: plane.CACert,
		Record: &claims.CertificateRecord{CredentialID: r.CredentialID, NodeName: r.NodeName, NodeUID: r.NodeUID,
			Machine: r.Machine, MachineUID: r.MachineUID, ProviderID: r.ProviderID},
	})
	if err != nil {
		log.Fatal(err)
	}
	return node
}
