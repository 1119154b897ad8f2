package document_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"log"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/document"
	"github.com/nodeattest/nodeattest/csr"
)

// checkCloud: a document is not one that the cloud signed.
const checkCloud attest.Check = "cloud-document"

// cloudDocument is a document of a cloud: signed JSON about a machine, over a value that
// the machine gave.
type cloudDocument struct {
	Machine   string
	Nonce     []byte
	Signature []byte `json:",omitempty"`
}

func (d cloudDocument) signed() []byte {
	d.Signature = nil
	data, _ := json.Marshal(d) // never fails
	return data
}

// readCloud reads a document, and refuses every other encoding of the same contents.
func readCloud(data []byte) (*cloudDocument, error) {
	d := &cloudDocument{}
	err := json.Unmarshal(data, d)
	if again, _ := json.Marshal(d); err != nil || !bytes.Equal(again, data) {
		return nil, &attest.Error{Check: checkCloud, Got: "another document", Want: "JSON as the cloud writes it", Err: err}
	}
	return d, nil
}

// cloudPlatform is the control plane's side of the kind, with the cloud's public key.
type cloudPlatform struct{ key ed25519.PublicKey }

// Read reads a document and verifies nothing.
func (p cloudPlatform) Read(data []byte) (*document.Claims, error) {
	d, err := readCloud(data)
	if err != nil {
		return nil, err
	}
	return &document.Claims{Machine: attest.Identity("cloud:" + d.Machine), Value: d.Nonce}, nil
}

// Verify verifies the signature and reads what it is over.
func (p cloudPlatform) Verify(ctx context.Context, data []byte, q *attest.Inquiry) (*document.Claims, error) {
	d, err := readCloud(data)
	if err != nil {
		return nil, err
	}
	if err := q.Budget.Signature(ctx); err != nil {
		return nil, err
	}
	if !ed25519.Verify(p.key, d.signed(), d.Signature) {
		return nil, &attest.Error{Check: checkCloud, Got: "another signature", Want: "the cloud's"}
	}
	return p.Read(data)
}

// cloudMachine is the node's side: it asks the cloud for documents about itself. This one
// has the cloud's key in its hand; a real one asks an address such as 169.254.169.254.
type cloudMachine struct {
	name  string
	cloud ed25519.PrivateKey
}

func (m cloudMachine) Machine(context.Context) (attest.Identity, error) {
	return attest.Identity("cloud:" + m.name), nil
}

func (m cloudMachine) Document(_ context.Context, value []byte) ([]byte, error) {
	d := cloudDocument{Machine: m.name, Nonce: value}
	d.Signature = ed25519.Sign(m.cloud, d.signed())
	return json.Marshal(d)
}

// A kind of evidence of one's own, on both sides, and a join with it. The two types above
// are all that its author writes.
func Example() {
	ctx := context.Background()
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		log.Fatal(err)
	}
	verifier, err := newCloudVerifier(public)
	if err != nil {
		log.Fatal(err)
	}

	// The node.
	prover, err := document.NewProver("cloud", 1, cloudMachine{"vm-17", private})
	if err != nil {
		log.Fatal(err)
	}
	attester, err := attest.NewAttester(prover)
	if err != nil {
		log.Fatal(err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		log.Fatal(err)
	}
	request, err := csr.Create(csr.PurposeClient, key, "node-1", csr.CreateOptions{})
	if err != nil {
		log.Fatal(err)
	}
	subject := attest.Subject{Request: request, SignerName: "cluster.x-k8s.io/kube-apiserver-client-kubelet-cloud", ClusterID: "cluster-1"}

	// Hello, challenge, answer. On Kubernetes both are filed at the API server.
	hello, err := attester.Hello(ctx, subject)
	if err != nil {
		log.Fatal(err)
	}
	challenge, err := verifier.Challenge(ctx, filed(hello))
	if err != nil {
		log.Fatal(err)
	}
	answer, err := attester.Answer(ctx, challenge, key, subject)
	if err != nil {
		log.Fatal(err)
	}
	result, err := verifier.Verify(ctx, filed(answer))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(result.MachineStanding, result.Machine, "is", result.NodeName)
	// Output: asserted cloud:vm-17 is node-1
}

// newCloudVerifier is a control plane that knows one machine, as node-1.
func newCloudVerifier(cloud ed25519.PublicKey) (*attest.Verifier, error) {
	kind, err := document.NewKind(document.KindConfig{Provider: "cloud", Identities: []attest.Grammar{{Kind: "cloud"}}, ValueSize: 32, Platform: cloudPlatform{cloud}})
	if err != nil {
		return nil, err
	}
	ring, err := attest.NewStaticKeyRing(attest.NewRingKey(time.Now()))
	if err != nil {
		return nil, err
	}
	return attest.NewVerifier(attest.VerifierConfig{
		KeyRing: ring,
		Kinds:   []attest.Kind{kind},
		Policy: &csr.Policy{
			ClusterIDs:  []string{"cluster-1"},
			SignerNames: []string{"cluster.x-k8s.io/kube-apiserver-client-kubelet-cloud"},
			Machines: func(_ context.Context, q csr.Question) (*csr.Machine, error) {
				return &csr.Machine{Name: "vm-17", NodeName: q.NodeName, BootstrapReady: true}, nil
			},
		},
		Authorizer: attest.AuthorizerFunc(func(_ context.Context, r *attest.Result) (*attest.Authorization, error) {
			if r.Machine != "cloud:vm-17" || r.NodeName != "node-1" {
				return nil, attest.NotMember("machine " + string(r.Machine) + " is not that of " + r.NodeName)
			}
			return r.Admit("node-1"), nil
		}),
	})
}

// filed is the request as the server has it: by whom is from its own authentication, here of a
// bootstrap token.
func filed(spec *csr.Spec) *csr.Request {
	by := csr.User{Username: csr.BootstrapUserPrefix + "abcdef", Groups: []string{"system:bootstrappers", csr.AuthenticatedGroup}}
	return csr.Filed(spec, by, time.Now())
}
