package tpm

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"testing"
	"time"

	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/attest"
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
	config      GKEConfig
	asked       []csr.GKEIdentity
	pem         func([]byte) []byte
}

func newGKEFixture(t testing.TB, withCertificate bool) *gkeFixture {
	t.Helper()
	f := &gkeFixture{instance: *tpmsim.DefaultInstance(), ak: newForger(t, softwareKeys.rsa2048(), schemeRSASSA), key: softwareKeys.p256()}
	f.instance.InstanceName = gkeNode
	var err error
	if f.ca, err = tpmsim.NewCA(nil); err != nil {
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
	f.config = GKEConfig{InsecureAllowNoChallenge: true, Policy: gkePolicy(),
		SecondProof: goodSecondProof(nil),
		Authorizer: gkeAuthorizer(func(r *GKEResult) (*attest.Authorization, error) {
			if r.Machine != "gce:tpmsim-project/4242424242424242424" {
				return nil, attest.NotMember(string(r.Machine))
			}
			return &attest.Authorization{ProviderID: "gce://tpmsim-project/us-central1-a/" + gkeNode}, nil
		})}
	if withCertificate {
		f.config.Issuers = []Issuer{{Roots: []*x509.Certificate{f.ca.Root()}, Intermediates: f.ca.Intermediates(), Profile: ProfileGoogle()}}
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
	c, err := f.ca.IssueAK(key, &tpmsim.AKCertificateOptions{Style: tpmsim.StyleGoogle, Instance: &f.instance})
	if err != nil {
		t.Fatal(err)
	}
	f.certificate = c.Raw
}

// gkeArea is the public area of a TLS key as a GKE node's TPM hashes it: without the
// zero bytes at the front of a coordinate.
func gkeArea(t testing.TB, key *ecdsa.PublicKey) *Public {
	t.Helper()
	p := publicArea(t, key, testSoftwareAttributes, schemeECDSA)
	return changed(t, p, func(p *Public) { p.X, p.Y = withoutLeadingZeros(p.X), withoutLeadingZeros(p.Y) })
}

// file puts the parts together.
func (f *gkeFixture) file(t testing.TB) *csr.Request {
	t.Helper()
	e := f.forgery.evidence(t)
	v, err := ParseSignature(e.Signature)
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

func (f *gkeFixture) provider(t testing.TB) *GKEProvider {
	t.Helper()
	p, err := NewGKEProvider(f.config)
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

// certifyLikeGKE has a TPM do what GKE's node did: load the software key, and certify
// it with the AK and no qualifying data. It returns the signed bytes and the bare
// signature.
func certifyLikeGKE(t testing.TB, tpm *tpmsim.TPM, key *ecdsa.PrivateKey) (attest, signature []byte) {
	t.Helper()
	h := &handles{tpm: tpm}
	source := GCERSA()
	ak, err := loadAK(t.Context(), h, &source, nil)
	if err != nil {
		t.Fatal(err)
	}
	point, _ := key.PublicKey.Bytes()
	private, _ := key.Bytes()
	strip := func(b []byte) []byte { return new(big.Int).SetBytes(b).Bytes() }
	loaded, err := tpm2.LoadExternal{Hierarchy: tpm2.TPMRHNull,
		InPrivate: tpm2.New2B(tpm2.TPMTSensitive{SensitiveType: tpm2.TPMAlgECC,
			Sensitive: tpm2.NewTPMUSensitiveComposite(tpm2.TPMAlgECC, &tpm2.TPM2BECCParameter{Buffer: private})}),
		InPublic: tpm2.New2B(tpm2.TPMTPublic{Type: tpm2.TPMAlgECC, NameAlg: tpm2.TPMAlgSHA256,
			ObjectAttributes: tpm2.TPMAObject{UserWithAuth: true, SignEncrypt: true},
			Parameters: tpm2.NewTPMUPublicParms(tpm2.TPMAlgECC, &tpm2.TPMSECCParms{CurveID: tpm2.TPMECCNistP256,
				Scheme: tpm2.TPMTECCScheme{Scheme: tpm2.TPMAlgECDSA, Details: tpm2.NewTPMUAsymScheme(tpm2.TPMAlgECDSA, &tpm2.TPMSSigSchemeECDSA{HashAlg: tpm2.TPMAlgSHA256})}}),
			Unique: tpm2.NewTPMUPublicID(tpm2.TPMAlgECC, &tpm2.TPMSECCPoint{X: tpm2.TPM2BECCParameter{Buffer: strip(point[1:33])}, Y: tpm2.TPM2BECCParameter{Buffer: strip(point[33:])}})}),
	}.Execute(tpm)
	if err != nil {
		t.Fatal(err)
	}
	rsp, err := tpm2.Certify{
		ObjectHandle: tpm2.AuthHandle{Handle: loaded.ObjectHandle, Name: loaded.Name, Auth: tpm2.PasswordAuth(nil)},
		SignHandle:   tpm2.AuthHandle{Handle: ak.handle, Name: tpm2.TPM2BName{Buffer: ak.name}, Auth: tpm2.PasswordAuth(nil)},
		InScheme:     tpm2.TPMTSigScheme{Scheme: tpm2.TPMAlgNull},
	}.Execute(tpm)
	if err != nil {
		t.Fatal(err)
	}
	sig, err := rsp.Signature.Signature.RSASSA()
	if err != nil {
		t.Fatal(err)
	}
	if err := flushContext(tpm, loaded.ObjectHandle); err != nil {
		t.Error(err)
	}
	if err := h.flushAll(); err != nil {
		t.Error(err)
	}
	return rsp.CertifyInfo.Bytes(), sig.Sig.Buffer
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
func gkeAuthorizer(f func(*GKEResult) (*attest.Authorization, error)) attest.Authorizer {
	return attest.AuthorizerFunc(func(_ context.Context, r *attest.Result, _ *csr.Request) (*attest.Authorization, error) {
		return f(r.Details.(*GKEResult))
	})
}
