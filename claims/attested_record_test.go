package claims

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/nodeattest/nodeattest/refusal"
)

// recordOf is the record of a certificate that was issued for the world's node.
func recordOf(cert *x509.Certificate) *CertificateRecord {
	return &CertificateRecord{
		CredentialID: credentialID(cert), NodeName: "node-a", NodeUID: "node-uid",
		Machine: "ek:sha256:aa", MachineUID: "machine-uid", ProviderID: "gce://p/z/a",
	}
}

func TestAttestedNodeFromRecord(t *testing.T) {
	ca := newNodeCA(t)
	cert := ca.issue(t, nodeTemplate(t, "node-a")).Leaf
	if id := credentialID(cert); len(id) != len("X509SHA256=")+64 || strings.ToLower(id[11:]) != id[11:] {
		t.Error(id)
	}
	node, err := AttestedNodeFromRecord(cert, recordOf(cert), NodeCertificateOptions{})
	if err != nil || *node != *attested() {
		t.Errorf("got %+v, %v, want %+v", node, err, attested())
	}
	for name, change := range map[string]func(r *CertificateRecord){
		"another certificate's":   func(r *CertificateRecord) { r.CredentialID = credentialID(ca.cert) },
		"no certificate's":        func(r *CertificateRecord) { r.CredentialID = "" },
		"another node's":          func(r *CertificateRecord) { r.NodeName = "node-b" },
		"another provider ID's":   func(r *CertificateRecord) { r.ProviderID = "gce://p/z/b" },
		"without the provider ID": func(r *CertificateRecord) { r.ProviderID = "" },
		"without a machine":       func(r *CertificateRecord) { r.Machine = "" },
	} {
		t.Run(name, func(t *testing.T) {
			record := recordOf(cert)
			change(record)
			node, err := AttestedNodeFromRecord(cert, record, NodeCertificateOptions{})
			if wantCheck(t, err, CheckNodeCertificate); node != nil {
				t.Errorf("refused with %+v", node)
			}
		})
	}
	_, err = AttestedNodeFromRecord(cert, nil, NodeCertificateOptions{})
	wantCheck(t, err, CheckNodeCertificate)
	_, err = AttestedNodeFromRecord(ca.cert, recordOf(ca.cert), NodeCertificateOptions{})
	wantCheck(t, err, CheckNodeCertificate)
}

// TestHandlerUnattested: a certificate that says nothing but a node's name is no attested
// node's, whoever signed it, unless somebody wants it so.
func TestHandlerUnattested(t *testing.T) {
	plain := nodeTemplate(t, "node-a")
	plain.ExtraExtensions = nil // as kube-controller-manager's signer issues it
	for name, tt := range map[string]struct {
		change func(c *ValidatorConfig)
		status int
	}{
		"by default":        {nil, 401},
		"as somebody wants": {func(c *ValidatorConfig) { c.Node.InsecureAllowUnattested = true }, 200},
	} {
		t.Run(name, func(t *testing.T) {
			w := serve(t, HandlerOptions{}, tt.change)
			certificate := w.ca.issue(t, plain)
			response, body := w.get(t, &certificate, "Bearer "+w.token(t))
			if response.StatusCode != tt.status {
				t.Errorf("%d %q, want %d", response.StatusCode, body, tt.status)
			}
			if tt.status != 200 {
				wantCheck(t, w.refused[0], CheckFacts)
			}
		})
	}
}

// TestHandlerRecords: the records know which certificates were issued through attestation,
// to which machine and for which Node object.
func TestHandlerRecords(t *testing.T) {
	records := map[string]*CertificateRecord{}
	var fail error
	w := serve(t, HandlerOptions{Records: func(_ context.Context, id string) (*CertificateRecord, error) {
		if fail != nil {
			return records[id], fail
		}
		if r, ok := records[id]; ok {
			return r, nil
		}
		return nil, ErrNotFound
	}}, func(c *ValidatorConfig) {
		c.Node.Require = FactAttestedUID | FactRegisteredMachine | FactRegisteredMachineUID
	})
	good := w.ca.issue(t, nodeTemplate(t, "node-a"))
	plain := nodeTemplate(t, "node-a")
	plain.ExtraExtensions = nil
	unrecorded := w.ca.issue(t, plain)
	record := recordOf(good.Leaf)
	records[record.CredentialID] = record
	want := func(certificate *tls.Certificate, status int, check Check) {
		t.Helper()
		w.refused = nil
		response, body := w.get(t, certificate, "Bearer "+w.token(t))
		if response.StatusCode != status {
			t.Errorf("%d %q, want %d", response.StatusCode, body, status)
		}
		if check != "" {
			wantCheck(t, w.refused[0], check)
		}
	}
	want(&good, 200, "")
	want(&unrecorded, 403, CheckNodeCertificate)
	want(nil, 403, CheckNodeCertificate)
	fail = errDead
	want(&good, 503, ErrRetry)
	fail = nil
	records[record.CredentialID] = nil
	want(&good, 503, ErrRetry)
	records[record.CredentialID] = record

	// The Node is made again, with all else as it was: the certificate that was issued for
	// the one before is worth nothing with a new token.
	w.objects.node.UID, w.claims.Kubernetes.Node.UID = "node-uid-2", "node-uid-2"
	want(&good, 401, CheckAttestedUID)
	record.NodeUID = "node-uid-2"
	want(&good, 200, "")
	// The name goes to another machine, whose object has the provider ID of the first.
	w.machine.UID = "machine-uid-2"
	want(&good, 401, CheckRegisteredMachineUID)
}

// TestNewHandlerRecords: what can never be met is noticed when the handler is made.
func TestNewHandlerRecords(t *testing.T) {
	w := newWorld(t)
	records := func(context.Context, string) (*CertificateRecord, error) { return nil, ErrNotFound }
	node := func(*http.Request) (*AttestedNode, error) { return attested(), nil }
	for name, tt := range map[string]struct {
		require Facts
		opts    HandlerOptions
		want    error
	}{
		"the machine of no record":          {FactRegisteredMachine, HandlerOptions{}, refusal.CheckConfig},
		"the machine's object of no record": {FactRegisteredMachineUID, HandlerOptions{}, refusal.CheckConfig},
		"the Node's UID of no record":       {FactAttestedUID | FactNodeName, HandlerOptions{}, refusal.CheckConfig},
		"the certificate's provider ID":     {FactCertificateProviderID | FactRegisteredProviderID, HandlerOptions{}, nil},
		"the machine of a record":           {FactRegisteredMachine, HandlerOptions{Records: records}, nil},
		"the machine of a Node":             {FactRegisteredMachine, HandlerOptions{Node: node}, nil},
		"Node and Records":                  {0, HandlerOptions{Node: node, Records: records}, refusal.CheckConfig},
		"Node and Certificate":              {0, HandlerOptions{Node: node, Certificate: NodeCertificateOptions{RequireProviderID: true}}, refusal.CheckConfig},
		"Node and a certificate's clock":    {0, HandlerOptions{Node: node, Certificate: NodeCertificateOptions{Now: w.clock}}, refusal.CheckConfig},
	} {
		t.Run(name, func(t *testing.T) {
			config := w.strictConfig()
			config.Node.Require = tt.require
			if _, err := NewHandler(w.strictWith(t, config), http.NotFoundHandler(), tt.opts); !errors.Is(err, tt.want) {
				t.Errorf("got %v, want %v", err, tt.want)
			}
		})
	}
}
