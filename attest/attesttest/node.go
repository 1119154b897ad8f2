package attesttest

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	tpmkind "github.com/nodeattest/nodeattest/attest/tpm"
	"github.com/nodeattest/nodeattest/attest/tpm/statement"
	"github.com/nodeattest/nodeattest/attest/tpm/tpmcert"
	"github.com/nodeattest/nodeattest/attest/tpm/tpmkey"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/message"
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
	// TokenID is the bootstrap token with which a node comes.
	TokenID = "attest"
)

// NodeOptions say what node is wanted. Nil and each zero field are a sensible
// default.
type NodeOptions struct {
	// Name is the node's name; "" means [NodeName].
	Name string
	// ProviderID is what the node claims; "" means [ProviderID].
	ProviderID string
	// ClusterID is the cluster that it means to join; "" means [ClusterID].
	ClusterID string
	// TPM is the node's; nil means a new in-process simulator, which the node then
	// closes.
	TPM *tpmsim.TPM
	// TPMOptions are for that simulator.
	TPMOptions tpmsim.Options
	// AK says where the attestation key comes from. The zero value is the RSA key
	// of Google Compute Engine's NV indexes, with which tpmsim provisions its TPMs.
	AK tpmkind.AKSource
	// Road is the one that the node goes; zero is attest.RoadAK.
	Road attest.Road
	// EK says where the endorsement key comes from, on attest.RoadEK. The zero value
	// is tpm.EKRSA2048(), with which tpmsim provisions its TPMs.
	EK tpmkind.EKOrigin
	// BareEK has the node present the EK without a certificate; the control plane then
	// has it on its list.
	BareEK bool
	// Certificates are those of the AK, on attest.RoadEK of the EK, DER, leaf first;
	// nil means the one in NV and the CA's intermediate.
	Certificates [][]byte
	// Profile is that of the issuer of the AK certificate; the zero value means
	// tpmcert.ProfileTCG.
	Profile tpmcert.Profile
	// EKProfile is that of the issuer of the EK certificate; the zero value means
	// tpmcert.EKProfileTCG.
	EKProfile tpmcert.EKProfile
	// Key is the kubelet's TLS key in software; nil means a new P-256 key.
	Key crypto.Signer
	// TPMKey, if set, makes the TLS key in the TPM instead.
	TPMKey tpmkey.Kind
	// Quote and EventLog are those of tpm.ProverOptions; nil means none.
	Quote    []statement.PCRSelection
	EventLog func(ctx context.Context) ([]byte, error)
	// Purpose is what the certificate is for; zero means csr.PurposeClient.
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
	// TPM is the node's TPM.
	TPM *tpmsim.TPM
	// Shared is the way to that TPM which everything else of the node uses.
	Shared *tpmkey.Shared
	// Attester makes the node's messages.
	Attester *attest.Attester
	// Name is the node's name, as in its request.
	Name string
	// ProviderID is what the request claims.
	ProviderID string
	// Key is the TLS key, Certified the same as the TPM is shown it.
	Key       crypto.Signer
	Certified tpmkey.Certifiable
	// Subject is what the node's messages are bound to; Subject.Request is the
	// PKCS#10 request.
	Subject attest.Subject
	// Purpose is what the certificate is for.
	Purpose csr.Purpose
	// Profile is that of the issuer of the AK certificate.
	Profile tpmcert.Profile
	// Road is the one that the node goes.
	Road attest.Road
	// EKProfile is that of the issuer of the EK certificate.
	EKProfile tpmcert.EKProfile
	// Username and Groups are the requester's, as the API server would set them.
	Username string
	Groups   []string

	ownsTPM  bool
	bareEK   bool
	resident *tpmkey.Key
}

// NewNode returns a node and closes it when the test ends. It fails the test if
// there is no TPM to be had.
func NewNode(t testing.TB, opts *NodeOptions) *Node {
	t.Helper()
	n, err := OpenNode(opts)
	if err != nil {
		t.Fatalf("attesttest: %v", err)
	}
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Errorf("attesttest: %v", err)
		}
	})
	return n
}

// OpenNode returns a node for use outside tests; the caller closes it.
func OpenNode(opts *NodeOptions) (*Node, error) {
	o := withDefaults(opts)
	n := &Node{TPM: o.TPM, Name: o.Name, ProviderID: o.ProviderID, Key: o.Key, Purpose: o.Purpose,
		Road: o.Road, bareEK: o.BareEK, Profile: o.Profile, EKProfile: o.EKProfile,
		Username: "system:bootstrap:" + TokenID, Groups: []string{"system:bootstrappers", "system:authenticated"}}
	if n.TPM == nil {
		tpm, err := tpmsim.Open(o.TPMOptions)
		if err != nil {
			return nil, err
		}
		n.TPM, n.ownsTPM = tpm, true
	}
	if err := n.prepare(&o); err != nil {
		_ = n.Close()
		return nil, err
	}
	return n, nil
}

func withDefaults(opts *NodeOptions) NodeOptions {
	o := NodeOptions{}
	if opts != nil {
		o = *opts
	}
	if o.Name == "" {
		o.Name = NodeName
	}
	if o.ProviderID == "" {
		o.ProviderID = ProviderID
	}
	if o.ClusterID == "" {
		o.ClusterID = ClusterID
	}
	if o.Purpose == 0 {
		o.Purpose = csr.PurposeClient
	}
	if o.Profile.Name == "" {
		o.Profile = tpmcert.ProfileTCG()
	}
	if o.EKProfile.Name == "" {
		o.EKProfile = tpmcert.EKProfileTCG()
	}
	if (o.AK == tpmkind.AKSource{}) {
		o.AK = tpmkind.GCERSA()
	}
	if (o.EK == tpmkind.EKOrigin{}) {
		o.EK = tpmkind.EKRSA2048()
	}
	if o.BareEK {
		o.EK.CertificateIndex = 0
	}
	return o
}

func (n *Node) prepare(o *NodeOptions) (err error) {
	n.Shared = tpmkey.Share(n.TPM)
	if err := n.prepareKey(o.TPMKey); err != nil {
		return err
	}
	options := tpmkind.ProverOptions{Certificates: o.Certificates, Quote: o.Quote, EventLog: o.EventLog}
	above := n.TPM.CA().AKIntermediate()
	if o.Road == attest.RoadEK {
		options.EK, above = &o.EK, n.TPM.CA().EKIntermediate()
	}
	if len(o.Certificates) == 0 {
		options.Intermediates = [][]byte{above.Raw}
	}
	prover, err := tpmkind.NewProver(n.Shared, o.AK, options)
	if err != nil {
		return err
	}
	if n.Attester, err = attest.NewAttester(prover); err != nil {
		return err
	}
	n.Subject = attest.Subject{ClusterID: o.ClusterID, ExpirationSeconds: o.ExpirationSeconds, SignerName: csr.SignerClientTPM}
	if n.Purpose == csr.PurposeServing {
		n.Subject.SignerName = csr.SignerServingTPM
		n.Username, n.Groups = "system:node:"+n.Name, []string{"system:nodes", "system:authenticated"}
	}
	n.Subject.Request, err = csr.Create(n.Purpose, n.Key, n.Name, csr.CreateOptions{ProviderID: n.ProviderID, DNSNames: o.DNSNames, IPAddresses: o.IPAddresses})
	return err
}

func (n *Node) prepareKey(kind tpmkey.Kind) (err error) {
	if kind != 0 {
		resident, err := tpmkey.Create(context.Background(), n.Shared, kind, tpmkey.Options{})
		if err != nil {
			return err
		}
		n.Key, n.Certified, n.resident = resident, resident, resident
		return nil
	}
	if n.Key == nil {
		if n.Key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
			return err
		}
	}
	n.Certified, err = tpmkey.SoftwareKey(n.Key)
	return err
}

// Close closes what the node opened: its key in the TPM, and the TPM if it was
// not given one.
func (n *Node) Close() error {
	var errs []error
	if n.resident != nil {
		errs = append(errs, n.resident.Close())
		n.resident = nil
	}
	if n.ownsTPM {
		n.ownsTPM = false
		errs = append(errs, n.TPM.Close())
	}
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

// Object returns the object that the API server would keep of a spec that this node
// files.
func (n *Node) Object(spec *csr.Spec, created time.Time) *csr.Request {
	r := &csr.Request{
		APIVersion: "certificates.k8s.io/v1", Kind: "CertificateSigningRequest",
		Metadata: csr.Metadata{Name: "csr-" + n.Name, UID: "6f2b0f6a-0000-4000-8000-000000000001", CreationTimestamp: created.Truncate(time.Second)},
		Spec:     *spec,
	}
	r.Spec.Username, r.Spec.Groups = n.Username, n.Groups
	return r
}

// identity is the machine's identity, as the profile finds it in the AK certificate,
// or the EK's.
func (n *Node) identity() (attest.Identity, error) {
	spec, err := n.Attester.Hello(context.Background(), n.Subject)
	if err != nil {
		return "", err
	}
	bundle, err := csr.Parse(spec.Request)
	if err != nil {
		return "", err
	}
	evidence, err := message.ParseBundle(bundle.Data)
	if err != nil {
		return "", err
	}
	if n.Road == attest.RoadEK {
		return ekIdentity(evidence)
	}
	leaf, err := x509.ParseCertificate(evidence.Certificates[0])
	if err != nil {
		return "", err
	}
	for _, s := range n.Profile.Identity {
		if id, err := s.Identify(leaf); id != "" || err != nil {
			return id, err
		}
	}
	return "", errors.New("attesttest: the AK certificate names no machine")
}

// ekIdentity is the identity of the EK in a hello.
func ekIdentity(evidence *message.Bundle) (attest.Identity, error) {
	if len(evidence.Certificates) != 0 {
		ek, err := tpmcert.ParseEKCertificate(evidence.Certificates[0], tpmcert.AnyEKEncoding())
		if err != nil {
			return "", err
		}
		return ek.Identity(), nil
	}
	hello, err := message.ParseHello(evidence.Statements[0].Stmt)
	if err != nil {
		return "", err
	}
	return attest.Identity(fmt.Sprintf("ek:sha256:%x", sha256.Sum256(hello.EKPublic))), nil
}

// subjectAltNames are the SANs of the node's request, which the inventory of a
// control plane that admits the node then has.
func (n *Node) subjectAltNames() ([]string, []netip.Addr, error) {
	request, err := x509.ParseCertificateRequest(n.Subject.Request)
	if err != nil {
		return nil, nil, err
	}
	var ips []netip.Addr
	for _, ip := range request.IPAddresses {
		addr, ok := netip.AddrFromSlice(ip)
		if !ok {
			return nil, nil, errors.New("attesttest: a bad IP address in the request")
		}
		ips = append(ips, addr.Unmap())
	}
	return request.DNSNames, ips, nil
}
