package attesttest

import (
	"cmp"
	"context"
	"crypto"
	"crypto/sha256"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-tpm/tpm2/transport"

	"github.com/nodeattest/nodeattest/attest"
	tpmkind "github.com/nodeattest/nodeattest/attest/tpm"
	"github.com/nodeattest/nodeattest/attest/tpm/statement"
	"github.com/nodeattest/nodeattest/attest/tpm/tpmcert"
	"github.com/nodeattest/nodeattest/attest/tpm/tpmkey"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// Values that a node and a control plane of this package share unless told
// otherwise.
const (
	// ClusterID is the cluster's name on both sides.
	ClusterID = "attesttest"
	// NodeName is the first node's name.
	NodeName = "node-1"
	// ProviderID is its provider ID.
	ProviderID = "sim://attesttest/node-1"
	// TokenID is the bootstrap token that a node uses.
	TokenID = "attest"
)

// NodeOptions describe a node. Each field has a default.
type NodeOptions struct {
	// Name is the node's name; "" means [NodeName].
	Name string
	// ProviderID is the one that the node claims; "" means [ProviderID].
	ProviderID string
	// ClusterID is the cluster that it means to join; "" means [ClusterID].
	ClusterID string
	// TPM is the node's TPM; nil means a new in-process simulator, which the node then closes.
	TPM *tpmsim.TPM
	// TPMOptions are for that simulator.
	TPMOptions tpmsim.Options
	// AK says where the attestation key comes from. The zero value is the RSA key from Google
	// Compute Engine's NV indexes, with which tpmsim provisions its TPMs.
	AK tpmkind.AKSource
	// Road is the one that the node takes; zero is attest.RoadAK.
	Road attest.Road
	// EK says where the endorsement key comes from, on attest.RoadEK. The zero value
	// is tpm.EKRSA2048(), with which tpmsim provisions its TPMs.
	EK tpmkind.EKOrigin
	// BareEK makes the node present the EK without a certificate; the control plane then lists
	// the EK.
	BareEK bool
	// Certificates are the chain of the AK or, on attest.RoadEK, of the EK, DER, leaf first; nil
	// means the certificate in NV and the CA's intermediate.
	Certificates [][]byte
	// Profile is the profile of the AK certificate's issuer; the zero value means
	// tpmcert.ProfileTCG.
	Profile tpmcert.Profile
	// Key is the kubelet's TLS key in software; nil means a new P-256 key.
	Key crypto.Signer
	// TPMKey, if set, makes the TLS key in the TPM instead.
	TPMKey tpmkey.Algorithm
	// Quote and EventLog are those of tpm.ProverOptions; nil means none.
	Quote    []statement.PCRSelection
	EventLog func(ctx context.Context) ([]byte, error)
	// Purpose is the certificate's; zero means csr.PurposeClient.
	Purpose csr.Purpose
	// DNSNames and IPAddresses are the SANs of a request for serving.
	DNSNames    []string
	IPAddresses []netip.Addr
	// ExpirationSeconds is the lifetime to ask for; 0 means none.
	ExpirationSeconds int32
}

// Node is a node with a TPM. Its fields may be changed between calls, for tests
// of what must be refused.
type Node struct {
	// NodeOptions are complete: defaults are filled in, and Key is the TLS key, also if it is in
	// the TPM.
	NodeOptions
	// Shared is the access to the TPM that everything else in the node uses.
	Shared transport.TPM
	// Attester makes the node's messages.
	Attester *attest.Attester
	// Certified is the TLS key as it is presented to the TPM.
	Certified tpmkey.Certifiable
	// Subject is the subject of the node's messages; Subject.Request is the PKCS#10 request.
	Subject attest.Subject
	// Username and Groups are the requester's, as the API server would set them.
	Username string
	Groups   []string

	prover attest.Prover
	closes []io.Closer // in this order
}

// NewNode returns a node and closes it when the test ends. It fails the test if no TPM is
// available.
func NewNode(t testing.TB, opts NodeOptions) *Node {
	t.Helper()
	n := opened[*Node](t)(OpenNode(opts))
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Errorf("attesttest: %v", err)
		}
	})
	return n
}

// opened makes a New function of an Open function: an error fails the test.
func opened[T any](t testing.TB) func(T, error) T {
	t.Helper()
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatalf("attesttest: %v", err)
		}
		return v
	}
}

// OpenNode returns a node for use outside tests; the caller closes it.
func OpenNode(opts NodeOptions) (*Node, error) {
	opts.Name, opts.ProviderID = cmp.Or(opts.Name, NodeName), cmp.Or(opts.ProviderID, ProviderID)
	opts.ClusterID, opts.Purpose = cmp.Or(opts.ClusterID, ClusterID), cmp.Or(opts.Purpose, csr.PurposeClient)
	opts.AK, opts.EK = cmp.Or(opts.AK, tpmkind.GCERSA()), cmp.Or(opts.EK, tpmkind.EKRSA2048())
	if opts.Profile.Name == "" {
		opts.Profile = tpmcert.ProfileTCG()
	}
	if opts.BareEK {
		opts.EK.CertificateIndex = 0
	}
	n := &Node{NodeOptions: opts, Username: csr.BootstrapUserPrefix + TokenID, Groups: []string{"system:bootstrappers", "system:authenticated"}}
	if err := n.prepare(); err != nil {
		_ = n.Close()
		return nil, err
	}
	return n, nil
}

func (n *Node) prepare() (err error) {
	defer caught(&err)
	if n.TPM == nil {
		n.TPM = must(tpmsim.Open(n.TPMOptions))
		n.closes = append(n.closes, n.TPM)
	}
	n.Shared = tpmkey.Share(n.TPM)
	n.prepareKey()
	options := tpmkind.ProverOptions{Certificates: n.Certificates, Quote: n.Quote, EventLog: n.EventLog}
	above := n.TPM.CA().AKIntermediate()
	if n.Road == attest.RoadEK {
		options.EK, above = &n.EK, n.TPM.CA().EKIntermediate()
	}
	if len(n.Certificates) == 0 {
		options.Intermediates = [][]byte{above.Raw}
	}
	n.prover = must(tpmkind.NewProver(n.Shared, n.AK, options))
	n.Attester = must(attest.NewAttester(n.prover))
	n.Subject = attest.Subject{ClusterID: n.ClusterID, ExpirationSeconds: n.ExpirationSeconds, SignerName: csr.SignerClientTPM}
	if n.Purpose == csr.PurposeServing {
		n.Subject.SignerName = csr.SignerServingTPM
		n.Username, n.Groups = csr.NodeUserPrefix+n.Name, []string{"system:nodes", "system:authenticated"}
	}
	n.Subject.Request, err = csr.Create(n.Purpose, n.Key, n.Name, csr.CreateOptions{ProviderID: n.ProviderID, DNSNames: n.DNSNames, IPAddresses: n.IPAddresses})
	return err
}

func (n *Node) prepareKey() {
	if n.TPMKey != 0 {
		resident := must(tpmkey.Create(context.Background(), n.Shared, n.TPMKey, tpmkey.Options{}))
		n.Key, n.Certified, n.closes = resident, resident, append([]io.Closer{resident}, n.closes...)
		return
	}
	if n.Key == nil {
		n.Key = newKey()
	}
	n.Certified = must(tpmkey.SoftwareKey(n.Key))
}

// Close closes the node's key in the TPM, and the TPM if the node opened it.
func (n *Node) Close() error {
	var errs []error
	for _, c := range n.closes {
		errs = append(errs, c.Close())
	}
	n.closes = nil
	return errors.Join(errs...)
}

// Roots are the roots of the issuer of the node's AK and EK certificates.
func (n *Node) Roots() []*x509.Certificate { return []*x509.Certificate{n.TPM.CA().Root()} }

// Hello returns the request object with the node's hello, created at the given
// time.
func (n *Node) Hello(ctx context.Context, created time.Time) (*csr.Request, error) {
	spec, err := n.Attester.Hello(ctx, n.Subject)
	if err != nil {
		return nil, err
	}
	return n.Object(spec, created), nil
}

// Answer returns the request object with the node's answer to a challenge,
// created at the given time.
func (n *Node) Answer(ctx context.Context, challenge []byte, created time.Time) (*csr.Request, error) {
	spec, err := n.Attester.Answer(ctx, challenge, n.Certified, n.Subject)
	if err != nil {
		return nil, err
	}
	return n.Object(spec, created), nil
}

// Object returns the object that the API server would keep for a spec that this node files.
func (n *Node) Object(spec *csr.Spec, created time.Time) *csr.Request {
	r := csr.Filed(spec, csr.User{Username: n.Username, Groups: n.Groups}, created)
	r.APIVersion, r.Kind = "certificates.k8s.io/v1", "CertificateSigningRequest"
	r.Metadata.Name, r.Metadata.UID = "csr-"+n.Name, "6f2b0f6a-0000-4000-8000-000000000001"
	return r
}

// identity returns the machine's identity: by the profile from the AK certificate, or the EK's.
func (n *Node) identity() (id attest.Identity, err error) {
	defer caught(&err)
	ctx := context.Background()
	err = n.prover.Use(ctx, attest.StageHello, func(s attest.Session) (err error) {
		if p := must(s.Present()); p.Road == attest.RoadEK {
			id = attest.Identity(fmt.Sprintf("ek:sha256:%x", sha256.Sum256(p.MachineKey)))
			return nil
		}
		hello := must(s.Hello(ctx, attest.Head{ClusterID: n.ClusterID, TargetSigner: n.Subject.SignerName}))
		leaf := must(x509.ParseCertificate(hello.Certificates[0]))
		for _, source := range n.Profile.Identity {
			if id, err = source.Identify(leaf); id != "" || err != nil {
				return err
			}
		}
		return errors.New("attesttest: the AK certificate names no machine")
	})
	return id, err
}
