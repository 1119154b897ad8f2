package authenticator

import (
	"strings"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/testkit"
)

// TestStatusText: what others have written changes nothing on a terminal.
func TestStatusText(t *testing.T) {
	const evil = "\x1b]0;owned\x07\x1b[2J\nCertificate:   client\n  state:       valid until 2099"
	s := &Status{NodeName: evil, Kind: evil, Server: evil, ClusterID: evil, Problems: []string{evil}, Certificates: []CertificateStatus{
		{Purpose: "client", SignerName: evil, File: evil, Subject: evil, Issuer: evil, CredentialID: evil, Names: []string{evil}, LastError: evil + strings.Repeat("long ", 200) + "the end"}}}
	var text strings.Builder
	testkit.MustDo(s.Write(&text, time.Now()))
	if strings.ContainsAny(text.String(), "\x1b\x07") || strings.Contains(text.String(), "\n  state:       valid") || !strings.Contains(text.String(), "the end") {
		t.Errorf("it prints %q", text.String())
	}
}

// TestStatusRefused: the certificate that the API server does not know, and the one before it.
func TestStatusRefused(t *testing.T) {
	f := newFakeAPI(t)
	a, _ := newNode(t, f, nil)
	for range 2 {
		testkit.MustDo(a.Rotate(t.Context()))
	}
	p := a.stored(ClientFile)
	testkit.MustDo(a.refuse(nil, p))
	if s := a.Status(); !s.Usable || len(s.Problems) != 1 || !strings.Contains(s.Problems[0], csr.CredentialID(p.Leaf)) {
		t.Errorf("status %+v", s)
	}
}
