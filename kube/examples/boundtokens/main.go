// Boundtokens is a service that knows the machine: it answers a workload with its name, over HTTPS and
// gRPC, if the workload's token comes from the very node that it was issued for. The caller is an agent of
// the node, which shows the node's own client certificate and the token of a pod there.
//
//	boundtokens --audience https://service.example --certificate DIR --client-ca ca.crt
//
// Component kube/deploy/boundtokens runs it with the least rights. It logs the reason of each refusal, and
// counts decisions at http://…:8080/metrics.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"flag"
	"fmt"
	"log"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/nodeattest/nodeattest/claims"
	"github.com/nodeattest/nodeattest/kube/boundtokens"
)

func main() {
	var s settings
	flag.StringVar(&s.audience, "audience", "", "the audience that tokens must have: this service's, never the API server's")
	flag.StringVar(&s.certificate, "certificate", "", "the folder with tls.crt and tls.key of this service")
	flag.StringVar(&s.clientCA, "client-ca", "", "the file with the CAs that sign the nodes' client certificates, and no other")
	flag.StringVar(&s.kubeconfig, "kubeconfig", "", "how the API server is reached; none means as the pod's service account")
	flag.StringVar(&s.https, "https", ":8443", "the address for HTTPS")
	flag.StringVar(&s.grpc, "grpc", ":8444", "the address for gRPC")
	flag.StringVar(&s.health, "health", ":8080", "the address for /healthz and /metrics, without TLS")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, s); err != nil {
		log.Fatal(err)
	}
}

type settings struct {
	audience, certificate, clientCA, kubeconfig string
	https, grpc, health                         string
}

// run serves until the context ends.
func run(ctx context.Context, s settings) error {
	config, err := clientcmd.BuildConfigFromFlags("", s.kubeconfig)
	if err != nil {
		return err
	}
	cluster, err := boundtokens.New(config, boundtokens.Options{})
	if err != nil {
		return err
	}
	validation := cluster.ValidatorConfig(s.audience)
	validation.InsecureAllowReplay = true // a token comes with each request, and is worth nothing elsewhere
	validator, err := claims.NewValidator(validation)
	if err != nil {
		return err
	}
	mutual, err := s.tls()
	if err != nil {
		return err
	}
	service, err := newService(validator, cluster.HandlerOptions(), mutual)
	if err != nil {
		return err
	}
	var listeners [3]net.Listener
	for i, address := range []string{s.https, s.grpc, s.health} {
		if listeners[i], err = net.Listen("tcp", address); err != nil {
			return err
		}
	}
	log.Printf("serving HTTPS at %s, gRPC at %s, health and metrics at %s", listeners[0].Addr(), listeners[1].Addr(), listeners[2].Addr())
	return service.serve(ctx, listeners)
}

// tls is the configuration of both servers.
func (s settings) tls() (*tls.Config, error) {
	pem, err := os.ReadFile(s.clientCA)
	if err != nil {
		return nil, fmt.Errorf("--client-ca: %w", err)
	}
	cas := x509.NewCertPool()
	if !cas.AppendCertsFromPEM(pem) {
		return nil, errors.New("--client-ca: no certificate in " + s.clientCA)
	}
	own := func(*tls.ClientHelloInfo) (*tls.Certificate, error) { // read again at each handshake: it may be renewed
		pair, err := tls.LoadX509KeyPair(filepath.Join(s.certificate, "tls.crt"), filepath.Join(s.certificate, "tls.key"))
		return &pair, err
	}
	if _, err := own(nil); err != nil {
		return nil, fmt.Errorf("--certificate: %w", err)
	}
	return mutualTLS(own, cas), nil
}

// mutualTLS asks each client for a certificate of the CAs. One without gets the answer of the handler, not
// of TLS. There are no session tickets: a ticket is good without the node's key.
func mutualTLS(own func(*tls.ClientHelloInfo) (*tls.Certificate, error), cas *x509.CertPool) *tls.Config {
	return &tls.Config{
		GetCertificate: own, ClientAuth: tls.VerifyClientCertIfGiven, ClientCAs: cas,
		SessionTicketsDisabled: true, MinVersion: tls.VersionTLS12,
	}
}
