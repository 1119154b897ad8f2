package csr_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"fmt"
	"log"
	"math/big"
	"time"

	"github.com/nodeattest/nodeattest/csr"
)

// Example is the whole way of a request, without Kubernetes: a node sends one, and a server
// of one's own files, checks, vouches and issues.
//
// The server has no evidence to verify, so it takes its inventory's word: a caller with a
// bootstrap token may be any machine that is ready and that the inventory says can prove nothing.
// Package attest proves which machine it is.
func Example() {
	now := time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)
	s, err := newServer(func() time.Time { return now })
	if err != nil {
		log.Fatal(err)
	}
	// The user comes from the server's authentication, never from the body.
	user := csr.User{Username: csr.BootstrapUserPrefix + "abcdef", Groups: []string{csr.BootstrappersGroup, csr.AuthenticatedGroup}}
	for _, name := range []string{"node-1", "node-2"} {
		body, err := nodeRequest(name)
		if err != nil {
			log.Fatal(err)
		}
		issued, decision := s.handle(context.Background(), body, user)
		fmt.Println(name+":", decision.Verdict, decision.Reason)
		if issued != nil {
			fmt.Println(issued.Certificate.Subject, "until", issued.Certificate.NotAfter.Format(time.DateTime))
			fmt.Println("recorded for", issued.Record.Machine)
		}
	}
	// Output:
	// node-1: approve RequestAccepted
	// CN=system:node:node-1,O=system:nodes until 2026-11-20 11:00:00
	// recorded for inventory:machine-1
	// node-2: deny MachineUnknown
}

// nodeRequest is the node's side: its request for a certificate of an hour.
func nodeRequest(nodeName string) ([]byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	der, err := csr.Create(csr.PurposeClient, key, nodeName, csr.CreateOptions{})
	if err != nil {
		return nil, err
	}
	spec, err := (&csr.Bundle{Request: der}).Spec(csr.SignerClientInsecure, 3600)
	if err != nil {
		return nil, err
	}
	return json.Marshal(spec)
}

// server is the control plane's side.
type server struct {
	policy *csr.Policy
	ca     *csr.CA
	now    func() time.Time
}

func newServer(now func() time.Time) (*server, error) {
	signers, clusters := []string{csr.SignerClientInsecure}, []string{"shop.example"}
	machines := map[string]csr.Machine{ // by the name of the node
		"node-1": {Name: "machine-1", NodeName: "node-1", Provider: csr.ProviderOf(csr.SignerClientInsecure), ProviderID: "metal://rack-1/slot-7", BootstrapReady: true},
	}
	policy := &csr.Policy{SignerNames: signers, ClusterIDs: clusters, Now: now,
		Machines: func(_ context.Context, q csr.Question) (*csr.Machine, error) {
			if m, ok := machines[q.NodeName]; ok {
				return &m, nil
			}
			return nil, csr.ErrNoMachine
		}}
	if err := policy.Validate(); err != nil {
		return nil, err
	}
	chain, key, err := newChain(now())
	if err != nil {
		return nil, err
	}
	ca, err := csr.NewCA(chain, key, csr.CAConfig{SignerNames: signers, ClusterIDs: clusters, Now: now})
	return &server{policy, ca, now}, err
}

// handle decides about the body of a request and issues the certificate.
func (s *server) handle(ctx context.Context, body []byte, user csr.User) (*csr.Issued, csr.UnplacedDecision) {
	attested, err := s.verify(ctx, body, user)
	if err != nil {
		return nil, csr.Decide(err)
	}
	issued, err := s.ca.Issue(ctx, attested)
	if err != nil {
		return nil, csr.Decide(err)
	}
	return issued, attested.Decision()
}

func (s *server) verify(ctx context.Context, body []byte, user csr.User) (*csr.Attested, error) {
	var spec csr.Spec // takes nothing that the server has to say
	if err := json.Unmarshal(body, &spec); err != nil {
		return nil, err
	}
	request := csr.Filed(&spec, user, s.now())
	checked, err := s.policy.Check(ctx, request.Parsed())
	if err != nil {
		return nil, err
	}
	// Here stands what verifies the evidence, in checked.Bundle().Data.
	machine := checked.Machine()
	return checked.Vouch("inventory:"+machine.Name, csr.Grant{ProviderID: machine.ProviderID}, nil), nil
}

// newChain makes a certificate authority of one certificate.
func newChain(now time.Time) ([]*x509.Certificate, *ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "nodes' CA"},
		NotBefore: now.Add(-time.Hour), NotAfter: now.AddDate(5, 0, 0),
		BasicConstraintsValid: true, IsCA: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, nil, err
	}
	certificate, err := x509.ParseCertificate(der)
	return []*x509.Certificate{certificate}, key, err
}
