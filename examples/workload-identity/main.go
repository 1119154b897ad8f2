// Workload-identity shows a service that gives something to a workload only if the
// workload's service-account token comes from the very machine that the token was issued
// for. Two machines join a cluster by TPM attestation; a pod on node-a gets a token; the
// token is presented from node-a, and then from where it must not work.
//
//	go run ./examples/workload-identity
//
// Everything is in this process and needs no network: the TPMs are simulated, the API
// server's objects are in memory, and the service listens on the loopback interface.
package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"

	"github.com/nodeattest/nodeattest/attest/attesttest"
	"github.com/nodeattest/nodeattest/claims"
	"github.com/nodeattest/nodeattest/claims/apiserver"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/jws"
	"github.com/nodeattest/nodeattest/tpmsim"
)

const (
	clusterIssuer = "https://kubernetes.default.svc"
	serviceName   = "https://identity.example" // the audience of tokens for the service
)

func main() {
	if err := run(context.Background(), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "workload-identity:", err)
		os.Exit(1)
	}
}

// run tells the story. It returns an error if a step fails, or if something that must be
// refused is not, or is refused by a check other than the one meant for it.
func run(ctx context.Context, w io.Writer) (err error) {
	defer caught(&err)
	fmt.Fprintln(w, "Two machines join the cluster with their TPMs")
	nodes := join(ctx, "node-a", "node-b")
	for _, n := range nodes.list {
		fmt.Fprintf(w, "  %s has a certificate for %s\n", n.name, n.issued.Certificate.Subject.CommonName)
	}

	c := newCluster(nodes)
	s := startService(c)
	defer s.Close()
	s.story = w

	fmt.Fprintln(w, "\nThe kubelet of node-a asks for a token for a pod on its node")
	token := must(c.issue(ctx, "cart-0"))
	node := token.Claims.Kubernetes.Node
	fmt.Fprintf(w, "  subject  %s\n  pod      %s\n  node     %s, UID %s\n", token.Claims.Subject, token.Claims.Kubernetes.Pod.Name, node.Name, node.UID)

	fmt.Fprintln(w, "\nThe pod presents it to a service, over a connection with its node's certificate")
	nodeA, nodeB := nodes.list[0], nodes.list[1]
	check(s.present(ctx, "from node-a", nodeA, token.Token.Reveal(), ""))

	fmt.Fprintln(w, "\nThe token is stolen")
	check(s.present(ctx, "from node-b, attested just as well", nodeB, token.Token.Reveal(), claims.CheckNodeName))
	check(s.present(ctx, "from a machine that never joined", machine{}, token.Token.Reveal(), claims.CheckNodeCertificate))

	fmt.Fprintln(w, "\nThe Node of node-a is deleted")
	c.objects.Delete("nodes", "", "node-a")
	check(s.present(ctx, "from node-a", nodeA, token.Token.Reveal(), claims.CheckNodeGone))
	c.askAPIServer(ctx, w, token.Token.Reveal())
	return nil
}

// A failure is a step that did not work. It ends the story in run.
type failure struct{ error }

func check(err error) {
	if err != nil {
		panic(failure{err})
	}
}

func must[T any](v T, err error) T {
	check(err)
	return v
}

// caught turns a failure into an error. It is deferred.
func caught(err *error) {
	switch r := recover().(type) {
	case nil:
	case failure:
		*err = r.error
	default:
		panic(r)
	}
}

// A machine is one that joined as a node, with what the control plane keeps about that.
type machine struct {
	name   string
	issued *csr.Issued
	key    any // the kubelet's TLS key
}

// machines holds all of them, and the CA that signs only for attested nodes.
type machines struct {
	list []machine
	ca   *x509.Certificate
}

// join lets machines join, one after the other, since a process has only one simulated TPM.
func join(ctx context.Context, names ...string) *machines {
	vendor := must(tpmsim.NewCA(tpmsim.CAOptions{})) // for all the TPMs
	var plane *attesttest.ControlPlane
	all := &machines{}
	for _, name := range names {
		n := must(attesttest.OpenNode(attesttest.NodeOptions{
			Name: name, ProviderID: "sim:///" + name, TPMOptions: tpmsim.Options{CA: vendor},
		}))
		defer func() { _ = n.Close() }() // also if a step fails
		if plane == nil {
			plane = must(attesttest.OpenControlPlane(n))
		} else {
			check(plane.Admit(n)) // this very TPM may be this node
		}
		issued := must(plane.Join(ctx, n)) // hello, challenge, answer, certificate
		check(n.Close())
		all.list = append(all.list, machine{name: name, issued: issued, key: n.Key})
	}
	all.ca = plane.CACert
	return all
}

// A cluster is an API server without the server: its objects and its token issuer.
type cluster struct {
	machines *machines
	objects  *claims.MemoryObjects
	issuer   *apiserver.Issuer
	keys     jws.KeySet
}

func newCluster(nodes *machines) *cluster {
	c := &cluster{machines: nodes, objects: &claims.MemoryObjects{}}
	for _, n := range nodes.list {
		c.objects.Put("nodes", claims.Object{Name: n.name, UID: "uid-of-" + n.name, ProviderID: "sim:///" + n.name})
	}
	c.objects.Put("serviceaccounts", claims.Object{Namespace: "shop", Name: "cart", UID: "uid-of-cart"})
	c.objects.Put("pods", claims.Object{Namespace: "shop", Name: "cart-0", UID: "uid-of-cart-0",
		ServiceAccountName: "cart", NodeName: "node-a",
	})
	signer := must(jws.NewSigner(must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader)), jws.SignerOptions{}))
	c.keys = must(jws.NewStaticKeySet(signer.Key()))
	c.issuer = must(apiserver.NewIssuer(apiserver.IssuerConfig{
		Policy: apiserver.Policy{Issuer: clusterIssuer, APIAudiences: []string{clusterIssuer}},
		Signer: signer, Objects: c.objects,
	}))
	return c
}

// issue answers a TokenRequest for a pod.
func (c *cluster) issue(ctx context.Context, pod string) (*apiserver.Issued, error) {
	return c.issuer.Issue(ctx, &apiserver.TokenRequest{
		Namespace: "shop", Name: "cart", Audiences: []string{serviceName},
		BoundObject: &apiserver.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: pod},
	})
}

// machine is the registry: which machine is registered for a node's name.
func (c *cluster) machine(_ context.Context, nodeName string) (*claims.RegisteredMachine, error) {
	for _, n := range c.machines.list {
		if n.name == nodeName {
			return &claims.RegisteredMachine{Identity: n.issued.Record.Machine, ProviderID: n.issued.Record.ProviderID}, nil
		}
	}
	return nil, claims.ErrNotFound
}

// askAPIServer shows what a TokenReview says about the token before the pod is deleted, and
// also after: kube-apiserver does not check the Node of a pod.
func (c *cluster) askAPIServer(ctx context.Context, w io.Writer, token string) {
	validator := must(apiserver.NewValidator(apiserver.ValidatorConfig{
		Issuers: []string{clusterIssuer}, Keys: c.keys, Objects: c.objects, Audiences: []string{clusterIssuer},
	}))
	result := must(validator.Validate(ctx, token, serviceName))
	fmt.Fprintf(w, "  in a TokenReview: accepted, %s\n", result.Username())

	fmt.Fprintln(w, "\nThe pod is deleted")
	c.objects.Delete("pods", "shop", "cart-0")
	_, err := validator.Validate(ctx, token, serviceName)
	if !errors.Is(err, claims.CheckPodGone) {
		check(fmt.Errorf("TokenReview after the pod is gone: got %w, want %w", err, claims.CheckPodGone))
	}
	fmt.Fprintf(w, "  in a TokenReview: REFUSED, %v\n", err)
}

// A service gives identities to workloads.
type service struct {
	*httptest.Server
	cluster *cluster
	story   io.Writer
	refusal error // the last one
}

// startService starts it with two requirements: a node's certificate and a token that was
// issued to a workload on that node.
func startService(c *cluster) *service {
	s := &service{cluster: c}
	validator := must(claims.NewValidator(claims.ValidatorConfig{
		Issuer: clusterIssuer, Keys: c.keys, Audiences: []string{serviceName}, Objects: c.objects,
		InsecureAllowReplay: true, // a token may come with each request: it is worth nothing elsewhere
		Node:                claims.NodeCheck{Machines: c.machine},
	}))
	identity := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		who, _ := claims.WorkloadFrom(r.Context())
		fmt.Fprintf(w, "%s on %s (%s)", who.Result.Username(), who.Node.Name, strings.ReplaceAll(who.Facts.Facts.String(), ",", ", "))
	})
	handler := must(claims.NewHandler(validator, identity, claims.HandlerOptions{
		Records: s.record,
		Refused: func(_ *http.Request, err error) { s.refusal = err },
	}))
	pool := x509.NewCertPool()
	pool.AddCert(c.machines.ca)
	s.Server = httptest.NewUnstartedServer(handler)
	s.TLS = &tls.Config{
		ClientAuth: tls.VerifyClientCertIfGiven, ClientCAs: pool, // so that the story sees the handler's own refusal
		SessionTicketsDisabled: true, // a ticket is good without the node's key
	}
	s.StartTLS()
	return s
}

// record returns which machine a certificate was issued to through attestation.
func (s *service) record(_ context.Context, credentialID string) (*claims.CertificateRecord, error) {
	for _, n := range s.cluster.machines.list {
		if r := n.issued.Record; r.ClientOf(n.name, credentialID) {
			return &claims.CertificateRecord{
				CredentialID: r.CredentialID, NodeName: r.NodeName, NodeUID: r.NodeUID,
				Machine: r.Machine, MachineUID: r.MachineUID, ProviderID: r.ProviderID,
			}, nil
		}
	}
	return nil, claims.ErrNotFound
}

// present sends a token from a machine; the zero machine has no certificate. The service
// must refuse the token by the check want, or accept it if want is "".
func (s *service) present(ctx context.Context, what string, from machine, token string, want claims.Check) (err error) {
	defer caught(&err)
	transport := s.Client().Transport.(*http.Transport).Clone()
	defer transport.CloseIdleConnections()
	if from.issued != nil {
		transport.TLSClientConfig.Certificates = []tls.Certificate{{Certificate: [][]byte{from.issued.Certificate.Raw}, PrivateKey: from.key}}
	}
	r := must(http.NewRequestWithContext(ctx, http.MethodGet, s.URL, nil))
	r.Header.Set("Authorization", "Bearer "+token)
	s.refusal = nil
	response := must((&http.Client{Transport: transport}).Do(r))
	defer func() { _ = response.Body.Close() }()
	body := must(io.ReadAll(response.Body))
	switch {
	case want == "" && response.StatusCode == http.StatusOK:
		fmt.Fprintf(s.story, "  %s: accepted\n    %s\n", what, body)
		return nil
	case want == "" || response.StatusCode == http.StatusOK || !errors.Is(s.refusal, want):
		return fmt.Errorf("%s: %s, refusal %v, want %q", what, response.Status, s.refusal, string(want))
	}
	fmt.Fprintf(s.story, "  %s: REFUSED, %s\n    %v\n", what, response.Status, s.refusal)
	return nil
}
