package gke

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/tpm/statement"
	"github.com/nodeattest/nodeattest/attest/tpm/tpmcert"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/oid"
	"github.com/nodeattest/nodeattest/tpmsim"
)

const gkeNode = "gke-pool-1-node"

// gkeFixture is a good request of GKE's dialect, in the parts that a test changes.
type gkeFixture struct {
	ca          *tpmsim.CA
	instance    oid.GCEInstance // in the AK certificate
	ak          *forger
	key         *ecdsa.PrivateKey
	forgery     *forgery
	json        string
	certificate []byte
	request     []byte // PKCS#10
	object      csr.Request
	config      Config
	asked       []csr.GKEIdentity
	pem         func([]byte) []byte
}

func newGKEFixture(t testing.TB, withCertificate bool) *gkeFixture {
	t.Helper()
	f := &gkeFixture{instance: *tpmsim.DefaultInstance(), ak: newForger(t, softwareKeys.rsa2048(), schemeRSASSA), key: softwareKeys.p256()}
	f.instance.InstanceName = gkeNode
	var err error
	if f.ca, err = tpmsim.NewCA(tpmsim.CAOptions{}); err != nil {
		t.Fatal(err)
	}
	f.json = gkeJSON(&f.instance)
	f.certify(t, f.ak.private.Public())
	f.forgery = goodForgery(t, f.ak, f.key.Public())
	f.forgery.attest.ExtraData = nil
	f.forgery.certifyExternal(gkeArea(t, &f.key.PublicKey))
	if f.request, err = csr.Create(csr.PurposeClient, f.key, gkeNode, csr.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	f.object = csr.Request{Metadata: csr.Metadata{Name: "node-csr-1", UID: "1"}, Spec: csr.Spec{
		SignerName: csr.SignerKubeAPIServerClientKubelet, Usages: csr.Usages(csr.PurposeClient, true), ExpirationSeconds: new(int32(3600)),
		Username: "system:bootstrap:abc123", Groups: []string{"system:bootstrappers", "system:authenticated"}}}
	f.config = Config{InsecureAllowNoChallenge: true, Policy: gkePolicy(),
		SecondProof: goodSecondProof(nil),
		Authorizer: gkeAuthorizer(func(r *Result) (*attest.Authorization, error) {
			if r.Machine != "gce:tpmsim-project/4242424242424242424" {
				return nil, attest.NotMember(string(r.Machine))
			}
			return &attest.Authorization{ProviderID: "gce://tpmsim-project/us-central1-a/" + gkeNode}, nil
		})}
	if withCertificate {
		f.config.Issuers = []tpmcert.Issuer{{Roots: []*x509.Certificate{f.ca.Root()}, Intermediates: f.ca.Intermediates(), Profile: tpmcert.ProfileGoogle()}}
		return f
	}
	f.certificate = nil
	f.config.AKPublicKey = func(_ context.Context, claimed csr.GKEIdentity) (crypto.PublicKey, error) {
		f.asked = append(f.asked, claimed)
		if claimed.ID != f.instance.InstanceID {
			return nil, attest.NotMember("no such instance")
		}
		return f.ak.private.Public(), nil
	}
	return f
}

func gkeJSON(i *oid.GCEInstance) string {
	return fmt.Sprintf(`{"zone":%q,"id":%d,"name":%q,"project_id":%d,"project_name":%q}`, i.Zone, i.InstanceID, i.InstanceName, i.ProjectNumber, i.ProjectID)
}

func gkePolicy() *csr.Policy {
	return &csr.Policy{SignerNames: []string{csr.SignerKubeAPIServerClientKubelet, "cluster.x-k8s.io/kube-apiserver-client-kubelet-gke"},
		Machines: func(_ context.Context, name string, _ *csr.Request) (*csr.Machine, error) {
			if name != gkeNode && name != "gke-pool-1-other" {
				return nil, csr.ErrNoMachine
			}
			return &csr.Machine{Name: "machine-of-" + name, NodeName: name, BootstrapReady: true}, nil
		}}
}

// certify makes the AK certificate, with the extension of the fixture's instance.
func (f *gkeFixture) certify(t testing.TB, key crypto.PublicKey) {
	t.Helper()
	c, err := f.ca.IssueAK(key, tpmsim.CertificateOptions{Style: tpmsim.StyleGoogle, Instance: &f.instance})
	if err != nil {
		t.Fatal(err)
	}
	f.certificate = c.Raw
}

// gkeArea is the public area of a TLS key as a GKE node's TPM hashes it: without the
// zero bytes at the front of a coordinate.
func gkeArea(t testing.TB, key *ecdsa.PublicKey) *statement.Public {
	t.Helper()
	p := publicArea(t, key, testSoftwareAttributes, schemeECDSA)
	return changed(t, p, func(p *statement.Public) { p.X, p.Y = withoutLeadingZeros(p.X), withoutLeadingZeros(p.Y) })
}

// file puts the parts together.
func (f *gkeFixture) file(t testing.TB) *csr.Request {
	t.Helper()
	e := f.forgery.evidence(t)
	v, err := statement.ParseSignature(e.Signature)
	if err != nil {
		t.Fatal(err)
	}
	signature := v.RSA
	if signature == nil {
		signature = append(v.R, v.S...)
	}
	f.encode(e.Attest, signature)
	return &f.object
}

func (f *gkeFixture) encode(attest, signature []byte) {
	var out []byte
	for _, b := range []pem.Block{{Type: csr.BlockRequest, Bytes: f.request}, {Type: csr.BlockProposalData, Bytes: attest},
		{Type: csr.BlockGKESignature, Bytes: signature}, {Type: csr.BlockGKEIdentity, Bytes: []byte(f.json)},
		{Type: csr.BlockGKECertificate, Bytes: f.certificate}} {
		if b.Bytes != nil {
			out = append(out, pem.EncodeToMemory(&b)...)
		}
	}
	if f.pem != nil {
		out = f.pem(out)
	}
	f.object.Spec.Request = out
}

func (f *gkeFixture) provider(t testing.TB) *Provider {
	t.Helper()
	p, err := NewProvider(f.config)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// unpaddedKey is a P-256 key with a coordinate that begins with a zero byte.
func unpaddedKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	for {
		k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		if point, err := k.PublicKey.Bytes(); err == nil && (point[1] == 0 || point[33] == 0) {
			return k
		}
	}
}

// secondProofFunc is a TimeLimitedVerifier made of a function.
type secondProofFunc func(*LimitedSubject) (*LimitedProof, error)

func (f secondProofFunc) VerifyTimeLimited(_ context.Context, s *LimitedSubject, _ *csr.Request) (*LimitedProof, error) {
	return f(s)
}

// goodSecondProof gives a proof of the last minute, with one change.
func goodSecondProof(change func(*LimitedProof)) TimeLimitedVerifier {
	return secondProofFunc(func(s *LimitedSubject) (*LimitedProof, error) {
		p := &LimitedProof{Machine: s.Machine, RequestHash: s.RequestHash, IssuedAt: time.Now().Add(-time.Minute), NotAfter: time.Now().Add(time.Minute)}
		if change != nil {
			change(p)
		}
		return p, nil
	})
}

// gkeAuthorizer asks f about the details.
func gkeAuthorizer(f func(*Result) (*attest.Authorization, error)) attest.Authorizer {
	return attest.AuthorizerFunc(func(_ context.Context, r *attest.Result, _ *csr.Request) (*attest.Authorization, error) {
		return f(r.Details.(*Result))
	})
}
