package tpm

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/binary"
	"encoding/pem"
	"fmt"
	"math/big"
	"testing"
	"time"

	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/gke"
	"github.com/nodeattest/nodeattest/attest/tpm/statement"
	"github.com/nodeattest/nodeattest/attest/tpm/tpmcert"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/tpmwire"
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
	config      gke.Config
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
	f.config = gke.Config{InsecureAllowNoChallenge: true, Policy: gkePolicy(),
		SecondProof: goodSecondProof(nil),
		Authorizer: gkeAuthorizer(func(r *gke.Result) (*attest.Authorization, error) {
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

func (f *gkeFixture) provider(t testing.TB) *gke.Provider {
	t.Helper()
	p, err := gke.NewProvider(f.config)
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
type secondProofFunc func(*gke.LimitedSubject) (*gke.LimitedProof, error)

func (f secondProofFunc) VerifyTimeLimited(_ context.Context, s *gke.LimitedSubject, _ *csr.Request) (*gke.LimitedProof, error) {
	return f(s)
}

// goodSecondProof gives a proof of the last minute, with one change.
func goodSecondProof(change func(*gke.LimitedProof)) gke.TimeLimitedVerifier {
	return secondProofFunc(func(s *gke.LimitedSubject) (*gke.LimitedProof, error) {
		p := &gke.LimitedProof{Machine: s.Machine, RequestHash: s.RequestHash, IssuedAt: time.Now().Add(-time.Minute), NotAfter: time.Now().Add(time.Minute)}
		if change != nil {
			change(p)
		}
		return p, nil
	})
}

// gkeAuthorizer asks f about the details.
func gkeAuthorizer(f func(*gke.Result) (*attest.Authorization, error)) attest.Authorizer {
	return attest.AuthorizerFunc(func(_ context.Context, r *attest.Result, _ *csr.Request) (*attest.Authorization, error) {
		return f(r.Details.(*gke.Result))
	})
}

// testCA signs certificates.
type testCA struct {
	cert *x509.Certificate
	key  crypto.Signer
}

var chainTime = time.Date(2026, 6, 1, 0, 0, 0, 0, time.UTC)

func newTestKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// sign issues a certificate; edit may change the template. A nil parent is a
// root.
func sign(t testing.TB, parent *testCA, name string, edit func(*x509.Certificate)) *testCA {
	t.Helper()
	key := newTestKey(t)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()),
		Subject:      pkix.Name{CommonName: name},
		NotBefore:    chainTime.Add(-24 * time.Hour), NotAfter: chainTime.Add(24 * time.Hour),
		BasicConstraintsValid: true, IsCA: true, KeyUsage: x509.KeyUsageCertSign,
	}
	if edit != nil {
		edit(template)
	}
	issuerCert, signer := template, crypto.Signer(key)
	if parent != nil {
		issuerCert, signer = parent.cert, parent.key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, issuerCert, key.Public(), signer)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &testCA{cert, key}
}

var p256 = elliptic.P256()

const ownIndex tpm2.TPMHandle = 0x01800001

// certificateOf makes a certificate with an extension of some bytes.
func certificateOf(t testing.TB, extra int) []byte {
	t.Helper()
	key := newECDSA(t, p256)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "node"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		ExtraExtensions: []pkix.Extension{{Id: asn1.ObjectIdentifier{2, 999, 1}, Value: bytes.Repeat([]byte{5}, extra)}},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return der
}

const testIndex tpm2.TPMHandle = 0x01800001

// header puts a TCG_PCCLIENT_STORED_CERT header before a certificate.
func header(der []byte, withTag bool) []byte {
	if withTag {
		der = append([]byte{0x10, 0x02}, der...)
	}
	return append([]byte{0x10, 0x01, 0x00, byte(len(der) >> 8), byte(len(der))}, der...)
}

func withoutLeadingZeros(v []byte) []byte {
	for len(v) > 0 && v[0] == 0 {
		v = v[1:]
	}
	return v
}

func handleName(h tpm2.TPMHandle) []byte {
	return binary.BigEndian.AppendUint32(nil, uint32(h))
}

// appendName appends alg and the digest of message, or nothing for an algorithm
// that is not ours.
func appendName(out []byte, alg tpm2.TPMAlgID, message []byte) []byte {
	h := tpmwire.HashOf(alg)
	if h == 0 {
		return out
	}
	return tpmwire.AppendDigest(binary.BigEndian.AppendUint16(out, uint16(alg)), h, message)
}

// pcrsPerBank is how many PCRs a bank of a PC Client platform has: TCG PC Client
// Platform TPM Profile 1.05, 5.4.1.
const pcrsPerBank = 24

// quoteForgery is a quote before it is marshalled and signed, by a key in software. A
// test changes one thing of a good one.
type quoteForgery struct {
	ak        *forger
	attest    *statement.Attestation
	pcrs      []statement.PCR
	scheme    statement.KeyScheme
	patch     func(attest []byte) []byte
	signature func(*statement.Signature)
	options   statement.QuoteOptions
}

// goodQuoteForgery quotes PCRs 0 to 7 of SHA-256, by a primary key of the endorsement
// hierarchy.
func goodQuoteForgery(t testing.TB, ak *forger) *quoteForgery {
	t.Helper()
	selection, err := statement.NewPCRSelection(tpm2.TPMAlgSHA256, 0, 1, 2, 3, 4, 5, 6, 7)
	if err != nil {
		t.Fatal(err)
	}
	f := &quoteForgery{ak: ak, scheme: ak.public.Scheme, attest: &statement.Attestation{
		Type:            tpm2.TPMSTAttestQuote,
		QualifiedSigner: statement.QualifiedNameOfPrimary(tpm2.TPMRHEndorsement, ak.public.Name()),
		ExtraData:       testQualifyingData, Clock: 7, ResetCount: 1, Safe: true, FirmwareVersion: 1,
		Quote: &statement.QuoteInfo{},
	}}
	f.selectPCRs(selection)
	f.options = statement.QuoteOptions{AK: statement.AKFromCredential(ak.public.Raw), QualifyingData: testQualifyingData}
	return f
}

// selectPCRs quotes these, with values that follow from bank and index.
func (f *quoteForgery) selectPCRs(selections ...statement.PCRSelection) {
	f.attest.Quote.Selections, f.pcrs = selections, nil
	for _, s := range selections {
		for _, i := range s.PCRs() {
			value := bytes.Repeat([]byte{byte(0x10 + i)}, tpmwire.HashOf(s.Hash).Size())
			f.pcrs = append(f.pcrs, statement.PCR{Bank: s.Hash, Index: i, Value: value})
		}
	}
	f.digest()
}

// digest computes what the TPM would: written anew, as a reference.
func (f *quoteForgery) digest() {
	h := tpmwire.HashOf(f.scheme.Hash).New()
	for _, p := range f.pcrs {
		h.Write(p.Value)
	}
	f.attest.Quote.PCRDigest = h.Sum(nil)
}

func (f *quoteForgery) evidence(t testing.TB) *statement.QuoteEvidence {
	t.Helper()
	attest, err := f.attest.Marshal()
	if err != nil {
		t.Fatalf("Marshal: %v", err)
	}
	if f.patch != nil {
		attest = f.patch(attest)
	}
	v := f.ak.sign(t, f.scheme, attest)
	if f.signature != nil {
		f.signature(v)
	}
	sig, err := v.Marshal()
	if err != nil {
		t.Fatalf("Marshal: %v", err)
	}
	return &statement.QuoteEvidence{Attest: attest, Signature: sig, PCRs: f.pcrs}
}
