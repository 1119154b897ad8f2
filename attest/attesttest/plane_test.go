package attesttest_test

import (
	"context"
	"crypto/x509"
	"net/netip"
	"testing"

	"github.com/nodeattest/nodeattest/attest/attesttest"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/oid"
)

func TestTwoLines(t *testing.T) {
	node := attesttest.NewNode(t, attesttest.NodeOptions{})
	plane := attesttest.NewControlPlane(t, node)
	issued, err := plane.Join(context.Background(), node)
	if err != nil {
		t.Fatal(err)
	}
	if got := issued.Certificate.Subject.String(); got != "CN=system:node:node-1,O=system:nodes" {
		t.Errorf("subject %q", got)
	}
	if id, err := oid.ParseProviderID(issued.Certificate.Extensions); err != nil || id != attesttest.ProviderID {
		t.Errorf("provider ID %q, %v", id, err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(plane.CACert)
	if _, err := issued.Certificate.Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}); err != nil {
		t.Error(err)
	}
}

func TestServing(t *testing.T) {
	node := attesttest.NewNode(t, attesttest.NodeOptions{Purpose: csr.PurposeServing,
		DNSNames: []string{"node-1.example.com"}, IPAddresses: []netip.Addr{netip.MustParseAddr("192.0.2.7")}})
	plane := attesttest.NewControlPlane(t, node)
	issued, err := plane.Join(context.Background(), node)
	if err != nil {
		t.Fatal(err)
	}
	if got := issued.Certificate.DNSNames; len(got) != 1 || got[0] != "node-1.example.com" {
		t.Errorf("DNS names %q", got)
	}
	if got := issued.Certificate.IPAddresses; len(got) != 1 || got[0].String() != "192.0.2.7" {
		t.Errorf("IP addresses %v", got)
	}
}
