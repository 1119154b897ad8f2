package tpm_test

import (
	"crypto"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	joined "github.com/nodeattest/nodeattest/attest/join"
	"github.com/nodeattest/nodeattest/attest/membership"
	tpmkind "github.com/nodeattest/nodeattest/attest/tpm"
	"github.com/nodeattest/nodeattest/attest/tpm/statement"
	"github.com/nodeattest/nodeattest/attest/tpm/tpmcert"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/internal/testkit/tpmlab"
)

// pythonNode is a node that was written from docs/protocol.md, with a TPM by tpm2-tools.
type pythonNode struct {
	*tpmlab.Tools
	script string
	config map[string]any
}

// newPythonNode makes the node's keys, or skips. ek is the kind of EK, "" for the road of the AK.
func newPythonNode(t *testing.T, ek, clusterID string) *pythonNode {
	t.Helper()
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("python3 is not installed: apt-get install -y python3")
	}
	script, err := filepath.Abs("../../vectors/python/answer_with_tools.py")
	testkit.NoError(t, err)
	n := &pythonNode{tpmlab.StartTools(t), script, map[string]any{"clusterID": clusterID, "signerName": csr.SignerClientTPM,
		"nodeName": "node-1", "expirationSeconds": 3600, "ek": ek}}
	n.configure("", nil)
	n.run("keys")
	return n
}

// configure changes a value of the node, if a name is given, and tells it.
func (n *pythonNode) configure(name string, value any) {
	n.T.Helper()
	if name != "" {
		n.config[name] = value
	}
	text, err := json.Marshal(n.config)
	if err != nil {
		n.T.Fatal(err)
	}
	n.Write("node.json", text)
}

func (n *pythonNode) run(command string) {
	n.T.Helper()
	if out, err := n.Try("python3 " + n.script + " " + command + " " + n.Dir); err != nil {
		n.T.Fatalf("%s: %v\n%s", command, err, out)
	}
}

// file files the node's request with a control plane.
func (n *pythonNode) file(plane *joined.Plane, name string) *joined.Reply {
	n.T.Helper()
	var spec csr.Spec
	if err := json.Unmarshal(n.Read(name), &spec); err != nil {
		n.T.Fatal(err)
	}
	user := csr.User{Username: "system:bootstrap:abcdef", Groups: []string{"system:bootstrappers", "system:authenticated"}}
	return plane.Handle(n.T.Context(), csr.Filed(&spec, user, tpmlab.Time))
}

// key is a key of the TPM, by the file with its public area.
func (n *pythonNode) key(file string) crypto.PublicKey {
	n.T.Helper()
	public, err := statement.ParsePublic(n.Read(file))
	if err != nil {
		n.T.Fatal(err)
	}
	key, err := public.Key()
	if err != nil {
		n.T.Fatal(err)
	}
	return key
}

// trustedAK has a CA certify the node's AK, and returns the kind that trusts the CA and the
// machine's identity.
func (n *pythonNode) trustedAK() (tpmkind.KindConfig, attest.Identity) {
	n.T.Helper()
	ca := tpmlab.Sign(n.T, nil, "issuer of AKs", nil)
	c, err := tpmcert.CreateAKCertificate(n.T.Context(), tpmcert.AKTemplate{Key: n.key("ak.pub"), PermanentIdentifier: "machine-1",
		NotBefore: tpmlab.Time.Add(-time.Hour), NotAfter: tpmlab.Time.Add(time.Hour)}, ca.Cert, ca.Key)
	if err != nil {
		n.T.Fatal(err)
	}
	n.Write("certs.pem", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Chain[0].Raw}))
	return tpmkind.KindConfig{AKIssuers: []tpmcert.Issuer{{Roots: []*x509.Certificate{ca.Cert}, Profile: tpmcert.ProfileTCG()}}}, c.Machine
}

// knownEK returns the kind that trusts the node's EK, and the machine's identity.
func (n *pythonNode) knownEK() (tpmkind.KindConfig, attest.Identity) {
	n.T.Helper()
	digest, err := csr.SPKIHash(n.key("ek.pub"))
	if err != nil {
		n.T.Fatal(err)
	}
	machine := attest.Identity(fmt.Sprintf("ek:sha256:%x", digest))
	eks, err := tpmcert.NewEKVerifier(tpmcert.EKVerifierConfig{Allowed: []attest.Identity{machine}})
	if err != nil {
		n.T.Fatal(err)
	}
	return tpmkind.KindConfig{EKs: eks}, machine
}

// A node that was written from docs/protocol.md in another language joins, on each road, with
// a key in its TPM; and it does not answer another node's challenge.
func TestPythonNodeJoins(t *testing.T) {
	ca := tpmlab.Sign(t, nil, "cluster", nil)
	clusterID, err := attest.ClusterID(ca.Cert)
	testkit.NoError(t, err)
	for name, c := range map[string]struct {
		ek    string
		trust func(*pythonNode) (tpmkind.KindConfig, attest.Identity)
	}{
		"AK certificate": {"", (*pythonNode).trustedAK},
		"RSA EK":         {"rsa", (*pythonNode).knownEK},
		"P-256 EK":       {"ecc", (*pythonNode).knownEK},
	} {
		t.Run(name, func(t *testing.T) {
			n := newPythonNode(t, c.ek, clusterID)
			config, machine := c.trust(n)
			kind, err := tpmkind.NewKind(config)
			testkit.NoError(t, err)
			members, err := membership.ParseStaticList([]byte(string(machine) + " node-1\n"))
			testkit.NoError(t, err)
			plane, err := joined.NewPlane(joined.Config{Chain: []*x509.Certificate{ca.Cert}, Key: ca.Key, Kinds: []attest.Kind{kind}, Members: members,
				Now: func() time.Time { return tpmlab.Time }})
			testkit.NoError(t, err)
			n.run("hello")
			reply := n.file(plane, "hello.json")
			if reply.Err != nil || reply.Decision.Reason != attest.ReasonChallenge {
				t.Fatalf("hello: %+v, %v", reply.Decision, reply.Err)
			}
			n.Write("challenge", []byte(reply.Decision.Message))
			n.refuses("clusterID", "another", "binding-cluster")
			n.refuses("signerName", csr.SignerRecoveryTPM, "binding-signer")
			n.refuses("expirationSeconds", 7200, "binding-expiration")
			n.run("answer")
			reply = n.file(plane, "answer.json")
			if reply.Err != nil || reply.Issued == nil {
				t.Fatalf("answer: %+v, %v", reply.Decision, reply.Err)
			}
			if r := reply.Result; r.Machine != machine || r.NodeName != "node-1" || !r.TPMResident {
				t.Errorf("machine %s as %s, resident %t", r.Machine, r.NodeName, r.TPMResident)
			}
		})
	}
}

// refuses has the node, with another value of its own, refuse the challenge.
func (n *pythonNode) refuses(name string, value any, check string) {
	n.T.Helper()
	own := n.config[name]
	n.configure(name, value)
	if out, err := n.Try("python3 " + n.script + " answer " + n.Dir); err == nil || !strings.Contains(out, "refused: "+check) {
		n.T.Errorf("%s %v: %v, %s, want %s", name, value, err, out, check)
	}
	n.configure(name, own)
}
