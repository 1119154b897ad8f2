package claimstest_test

import (
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/attest/attesttest"
	"github.com/nodeattest/nodeattest/claims"
	"github.com/nodeattest/nodeattest/claims/claimstest"
)

// serve starts a service that takes tokens from attested nodes alone.
func (c *trial) serve(t *testing.T, opts claims.HandlerOptions) *httptest.Server {
	t.Helper()
	c.config.Replay, c.config.InsecureAllowReplay = nil, true
	validator, err := claims.NewValidator(c.config)
	if err != nil {
		t.Fatal(err)
	}
	handler, err := claims.NewHandler(validator, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		who, _ := claims.WorkloadFrom(r.Context())
		fmt.Fprintln(w, who.Result.Username(), "on", who.Node.Name)
	}), opts)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(handler)
	server.TLS = &tls.Config{ClientAuth: tls.VerifyClientCertIfGiven, ClientCAs: c.ClientCAs(), SessionTicketsDisabled: true}
	server.StartTLS()
	t.Cleanup(server.Close)
	return server
}

// ask sends the token from a node.
func ask(t *testing.T, server *httptest.Server, from *claimstest.Node, token string) string {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := from.Client(server, token).Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint(response.StatusCode, " ", string(body))
}

const served = "200 system:serviceaccount:shop:cart on node-a\n"

// TestHandler: a service over TLS sees each change, and serves the same request without it.
func TestHandler(t *testing.T) {
	for name, tt := range map[string]struct {
		want   string
		change func(t *testing.T, c *trial)
	}{
		"nothing changed":     {served, func(*testing.T, *trial) {}},
		"another node":        {"401 refused: node-name\n", func(t *testing.T, c *trial) { c.node = c.addNode(t, "node-b") }},
		"no certificate":      {"403 refused: node-certificate\n", func(_ *testing.T, c *trial) { c.node = nil }},
		"no token":            {"401 refused: bearer-token\n", func(_ *testing.T, c *trial) { c.token = "" }},
		"certificate expired": {"403 refused: node-certificate\n", func(_ *testing.T, c *trial) { c.Advance(25 * time.Hour) }},
		"record gone": {"403 refused: node-certificate\n", func(_ *testing.T, c *trial) {
			c.Delete("records", "", c.node.Record.CredentialID)
		}},
		"records do not answer": {"503 refused: retry\n", func(_ *testing.T, c *trial) { c.Break("records", claimstest.Fail) }},
		"objects do not answer": {"503 refused: retry\n", func(_ *testing.T, c *trial) { c.Break("nodes", claimstest.Fail) }},
		"record is too new": {"403 refused: node-certificate\n", func(t *testing.T, c *trial) {
			c.Break("records", claimstest.Stale)
			c.node = c.addNode(t, "node-a")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			c := newTrial(t)
			server := c.serve(t, c.HandlerOptions())
			c.issue(t)
			tt.change(t, c)
			if got := ask(t, server, c.node, c.token); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// TestCertificateAlone: a service without records learns the provider ID from the certificate.
func TestCertificateAlone(t *testing.T) {
	c := newTrial(t)
	opts := c.HandlerOptions()
	opts.FindRecord, opts.Certificate.RequireProviderID = nil, true
	c.issue(t)
	if got := ask(t, c.serve(t, opts), c.node, c.token); got != served {
		t.Errorf("got %q, want %q", got, served)
	}
}

// TestJoinedNode adds a machine that joined with a TPM, with the certificate that it got.
func TestJoinedNode(t *testing.T) {
	machine := attesttest.NewNode(t, attesttest.NodeOptions{Name: "node-a", ProviderID: "sim://node-a"})
	plane := attesttest.NewControlPlane(t, machine)
	issued, err := plane.Join(t.Context(), machine)
	if err != nil {
		t.Fatal(err)
	}
	c, r := newTrial(t), issued.Record
	joined := claimstest.Node{
		Certificate: &tls.Certificate{Certificate: [][]byte{issued.Certificate.Raw}, PrivateKey: machine.Key}, CA: plane.CACert,
		Record: &claims.CertificateRecord{CredentialID: r.CredentialID, NodeName: r.NodeName, NodeUID: r.NodeUID,
			Machine: r.Machine, MachineUID: r.MachineUID, ProviderID: r.ProviderID},
	}
	former := c.node
	if c.node, err = c.AddNode(joined); err != nil {
		t.Fatal(err)
	}
	server := c.serve(t, c.HandlerOptions())
	c.issue(t)
	if got := ask(t, server, c.node, c.token); got != served {
		t.Errorf("got %q, want %q", got, served)
	}
	if got, want := ask(t, server, former, c.token), "401 refused: attested-uid\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	other := *joined.Record
	other.CredentialID += "0"
	for name, n := range map[string]claimstest.Node{
		"no record":             {Certificate: joined.Certificate, CA: joined.CA},
		"no CA":                 {Certificate: joined.Certificate, Record: joined.Record},
		"no certificate":        {Name: "node-c", CA: joined.CA, Record: joined.Record},
		"an empty certificate":  {Certificate: &tls.Certificate{}, CA: joined.CA, Record: joined.Record},
		"another certificate's": {Certificate: joined.Certificate, CA: joined.CA, Record: &other},
		"not DER":               {Certificate: &tls.Certificate{Certificate: [][]byte{{1}}}, CA: joined.CA, Record: joined.Record},
		"a malformed name":      {Name: "a b"},
		"a malformed ID":        {Name: "node-c", ProviderID: strings.Repeat("x", 1025)},
	} {
		if n, err := c.AddNode(n); err == nil || n != nil {
			t.Errorf("%s: %v, %v", name, n, err)
		}
	}
}
