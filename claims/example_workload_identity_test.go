package claims_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"

	"github.com/nodeattest/nodeattest/attest/attesttest"
	"github.com/nodeattest/nodeattest/claims"
	"github.com/nodeattest/nodeattest/claims/apiserver"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/jws"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// A service that gives something to a workload only if its token comes from the very machine
// that the token was issued for. Two machines join a cluster with simulated TPMs; the token of a
// pod on node-a is presented from node-a, and then from where it must not work.
func Example_workloadIdentity() {
	ctx := context.Background()
	join := joinMachines(ctx, "node-a", "node-b")
	token, keys, objects := tokenOnNodeA(ctx)

	validator, err := claims.NewValidator(claims.ValidatorConfig{
		Issuers: map[string]jws.KeySet{"https://kubernetes.default.svc": keys}, Audiences: []string{"https://identity.example"}, Objects: objects,
		InsecureAllowReplay: true, // a token may come with each request: it is worth nothing elsewhere
		Node:                claims.NodeCheck{FindMachine: join.machine},
	})
	if err != nil {
		log.Fatal(err)
	}
	handler, err := claims.NewHandler(validator, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		who, _ := claims.WorkloadFrom(r.Context())
		fmt.Fprintf(w, "%s on %s\n", who.Result.Username(), who.Node.Name)
	}), claims.HandlerOptions{FindRecord: join.record})
	if err != nil {
		log.Fatal(err)
	}
	service := httptest.NewUnstartedServer(handler)
	service.TLS = &tls.Config{
		ClientAuth: tls.VerifyClientCertIfGiven, ClientCAs: join.cas, // the CA that signs for attested nodes, and no other
		SessionTicketsDisabled: true, // a ticket is good without the node's key
	}
	service.StartTLS()
	defer service.Close()

	present := func(from *tls.Certificate) {
		client := service.Client().Transport.(*http.Transport).Clone()
		defer client.CloseIdleConnections()
		if from != nil {
			client.TLSClientConfig.Certificates = []tls.Certificate{*from}
		}
		r := httptest.NewRequest(http.MethodGet, service.URL, nil)
		r.Header.Set("Authorization", "Bearer "+token)
		response, err := client.RoundTrip(r)
		if err != nil {
			log.Fatal(err)
		}
		defer func() { _ = response.Body.Close() }()
		body, err := io.ReadAll(response.Body)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%d %s", response.StatusCode, body)
	}
	present(join.clients["node-a"])
	present(join.clients["node-b"]) // attested just as well
	present(nil)                    // a machine that never joined
	objects.Delete("nodes", "", "node-a")
	present(join.clients["node-a"])
	// Output:
	// 200 system:serviceaccount:shop:cart on node-a
	// 401 refused: node-name
	// 403 refused: node-certificate
	// 401 refused: node-gone
}

// joined has the control plane's records of the machines that joined, and their certificates.
type joined struct {
	records map[string]csr.IssuedRecord // by the node's name
	cas     *x509.CertPool
	clients map[string]*tls.Certificate
}

// joinMachines has machines join one after the other: a process has only one simulated TPM.
func joinMachines(ctx context.Context, names ...string) *joined {
	vendor, err := tpmsim.NewCA(tpmsim.CAOptions{}) // of all the TPMs
	if err != nil {
		log.Fatal(err)
	}
	all := &joined{map[string]csr.IssuedRecord{}, x509.NewCertPool(), map[string]*tls.Certificate{}}
	var plane *attesttest.ControlPlane
	for _, name := range names {
		node, err := attesttest.OpenNode(attesttest.NodeOptions{
			Name: name, ProviderID: "sim:///" + name, TPMOptions: tpmsim.Options{CA: vendor},
		})
		if err != nil {
			log.Fatal(err)
		}
		if plane == nil {
			plane, err = attesttest.OpenControlPlane(node)
		} else {
			err = plane.Admit(node) // this very TPM may be this node
		}
		if err != nil {
			log.Fatal(err)
		}
		issued, err := plane.Join(ctx, node) // hello, challenge, answer, certificate
		if err != nil {
			log.Fatal(err)
		}
		all.records[name] = issued.Record
		all.clients[name] = &tls.Certificate{Certificate: [][]byte{issued.Certificate.Raw}, PrivateKey: node.Key}
		if err := node.Close(); err != nil {
			log.Fatal(err)
		}
	}
	all.cas.AddCert(plane.CACert)
	return all
}

// machine is the registry: which machine is registered for a node's name.
func (j *joined) machine(_ context.Context, nodeName string) (*claims.RegisteredMachine, error) {
	record, ok := j.records[nodeName]
	if !ok {
		return nil, claims.ErrNotFound
	}
	return &claims.RegisteredMachine{Identity: record.Machine, ProviderID: record.ProviderID}, nil
}

// record returns which machine a certificate was issued to through attestation.
func (j *joined) record(_ context.Context, credentialID string) (*claims.CertificateRecord, error) {
	for name, r := range j.records {
		if r.ClientOf(name, credentialID) {
			return &claims.CertificateRecord{
				CredentialID: r.CredentialID, NodeName: r.NodeName, NodeUID: r.NodeUID,
				Machine: r.Machine, MachineUID: r.MachineUID, ProviderID: r.ProviderID,
			}, nil
		}
	}
	return nil, claims.ErrNotFound
}

// tokenOnNodeA is a token that the kubelet of node-a asked for, for a pod on its node.
func tokenOnNodeA(ctx context.Context) (token string, keys *jws.StaticKeySet, objects *claims.MemoryObjects) {
	objects = &claims.MemoryObjects{}
	objects.Put("nodes", claims.Object{Name: "node-a", UID: "node-uid", ProviderID: "sim:///node-a"})
	objects.Put("serviceaccounts", claims.Object{Namespace: "shop", Name: "cart", UID: "sa-uid"})
	objects.Put("pods", claims.Object{Namespace: "shop", Name: "cart-0", UID: "pod-uid", ServiceAccountName: "cart", NodeName: "node-a"})
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		log.Fatal(err)
	}
	signer, err := jws.NewSigner(key, jws.SignerOptions{})
	if err != nil {
		log.Fatal(err)
	}
	if keys, err = jws.NewStaticKeySet(signer.Key()); err != nil {
		log.Fatal(err)
	}
	issuer, err := apiserver.NewIssuer(apiserver.IssuerConfig{
		Issuer: "https://kubernetes.default.svc", APIAudiences: []string{"https://kubernetes.default.svc"},
		Signer: signer, Objects: objects,
	})
	if err != nil {
		log.Fatal(err)
	}
	issued, err := issuer.Issue(ctx, &apiserver.TokenRequest{
		Namespace: "shop", Name: "cart", Audiences: []string{"https://identity.example"},
		BoundObject: &apiserver.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: "cart-0"},
	})
	if err != nil {
		log.Fatal(err)
	}
	return issued.Token.Reveal(), keys, objects
}
