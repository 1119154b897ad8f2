package azure

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"math/big"
	"slices"
	"time"

	"golang.org/x/crypto/cryptobyte"
	"golang.org/x/crypto/cryptobyte/asn1"
)

// Authority is a certificate and its key.
type Authority struct {
	Certificate *x509.Certificate
	Key         crypto.Signer
}

// serial numbers are random, as those of real CAs.
func newSerial() (*big.Int, error) {
	return rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
}

// Issue makes a certificate for a key; parent nil is the certificate itself.
func Issue(template *x509.Certificate, key crypto.Signer, parent *Authority) (*Authority, error) {
	if template.SerialNumber == nil {
		serial, err := newSerial()
		if err != nil {
			return nil, err
		}
		template.SerialNumber = serial
	}
	issuer, signer := template, key
	if parent != nil {
		issuer, signer = parent.Certificate, parent.Key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, issuer, key.Public(), signer)
	if err != nil {
		return nil, err
	}
	c, err := x509.ParseCertificate(der)
	return &Authority{c, key}, err
}

// Azure signs attested documents as Azure's Instance Metadata Service does, below a root
// and two intermediates, as since 2026.
type Azure struct {
	Root, Cross, Issuing *Authority
	// Leaf is the signer's; it lives from a month before Now to five months after.
	Leaf *Authority
}

// AzureNames are the names of a leaf: a region's, and that of all.
func AzureNames() []string { return []string{"eastus.metadata.azure.com", "metadata.azure.com"} }

// NewAzure makes the certificates, as they are at a time.
func NewAzure(now time.Time) (*Azure, error) {
	a := &Azure{}
	for _, step := range []struct {
		out    **Authority
		parent **Authority
		name   string
		life   time.Duration
		path   int
	}{
		{&a.Root, nil, "Fake Global Root G2", 20, 4},
		{&a.Cross, &a.Root, "Fake TLS RSA Root G2", 3, 1},
		{&a.Issuing, &a.Cross, "Fake TLS G2 RSA CA OCSP 02", 3, 0},
	} {
		key, err := rsa.GenerateKey(rand.Reader, 2048)
		if err != nil {
			return nil, err
		}
		template := CA(step.name, now.Add(-year), now.Add(step.life*year))
		template.MaxPathLen, template.MaxPathLenZero = step.path, step.path == 0
		if step.out == &a.Issuing {
			template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
		}
		var parent *Authority
		if step.parent != nil {
			parent = *step.parent
		}
		if *step.out, err = Issue(template, key, parent); err != nil {
			return nil, err
		}
	}
	leaf, err := a.NewLeaf(a.LeafTemplate(now))
	a.Leaf = leaf
	return a, err
}

const year = 365 * 24 * time.Hour

// CA is the template of a CA.
func CA(name string, from, to time.Time) *x509.Certificate {
	return &x509.Certificate{Subject: pkix.Name{Country: []string{"US"}, Organization: []string{"Fake Corporation"}, CommonName: name},
		NotBefore: from, NotAfter: to, BasicConstraintsValid: true, IsCA: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign}
}

// LeafTemplate is that of a signer's certificate.
func (a *Azure) LeafTemplate(now time.Time) *x509.Certificate {
	return &x509.Certificate{Subject: pkix.Name{Country: []string{"US"}, Organization: []string{"Fake Corporation"}, CommonName: "metadata.azure.com"},
		NotBefore: now.Add(-year / 12), NotAfter: now.Add(5 * year / 12), BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames: AzureNames(), IssuingCertificateURL: []string{"http://www.microsoft.com/pkiops/certs/fake.crt"}}
}

// NewLeaf makes a signer with a key of its own.
func (a *Azure) NewLeaf(template *x509.Certificate) (*Authority, error) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return nil, err
	}
	return Issue(template, key, a.Issuing)
}

// AzureContent is the JSON of a document, in the order of the service's.
type AzureContent struct {
	LicenseType    string         `json:"licenseType"`
	Nonce          string         `json:"nonce"`
	Plan           AzurePlan      `json:"plan"`
	SKU            string         `json:"sku"`
	SubscriptionID string         `json:"subscriptionId"`
	TimeStamp      AzureTimeStamp `json:"timeStamp"`
	VMID           string         `json:"vmId"`
}

// AzurePlan is empty for most images.
type AzurePlan struct {
	Name      string `json:"name"`
	Product   string `json:"product"`
	Publisher string `json:"publisher"`
}

// AzureTimeStamp has times as 01/02/06 15:04:05 -0000.
type AzureTimeStamp struct {
	CreatedOn string `json:"createdOn"`
	ExpiresOn string `json:"expiresOn"`
}

// NewAzureContent is a document's content, of a time. Without a nonce it has the one that
// the service writes.
func NewAzureContent(subscriptionID, vmID, nonce string, at time.Time) *AzureContent {
	const format = "01/02/06 15:04:05 -0000"
	end := at.UTC().Add(6 * time.Hour)
	if nonce == "" {
		nonce = end.Format("20060102-150405")
	}
	return &AzureContent{Nonce: nonce, SubscriptionID: subscriptionID, VMID: vmID,
		TimeStamp: AzureTimeStamp{at.UTC().Format(format), end.Format(format)}}
}

// Document is a good document, DER.
func (a *Azure) Document(c *AzureContent) ([]byte, error) {
	content, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	p := NewPKCS7(content, a.Leaf)
	return p.Marshal()
}

// PKCS7 is the parts of a document, each of which an attacker may change.
type PKCS7 struct {
	Content      []byte
	Digests      []([]byte) // AlgorithmIdentifiers, DER
	Certificates [][]byte   // DER
	CRLs         []byte     // DER of the whole [1], or nothing
	Signers      []SignerInfo
	Behind       []byte // the whole
}

// SignerInfo is one signer. Sign nil signs as the service does.
type SignerInfo struct {
	Version           int64
	Signer            *Authority
	Names             *x509.Certificate // whose issuer and serial number it gives
	Digest, Algorithm []byte            // AlgorithmIdentifiers, DER
	Signed, Unsigned  []byte            // DER of the whole [0] and [1], or nothing
	Signature         []byte            // in the place of a good one
	Over              []byte            // what is signed, nil for the content
	AfterSignature    []byte
}

// AlgorithmIdentifiers of documents, with NULL.
func SHA256WithRSA() []byte { return algorithm(0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 0x0b) }
func RSAEncryption() []byte { return algorithm(0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 1) }
func SHA256() []byte        { return algorithm(0x60, 0x86, 0x48, 1, 0x65, 3, 4, 2, 1) }
func SHA1() []byte          { return algorithm(0x2b, 14, 3, 2, 26) }
func RSAPSS() []byte        { return algorithm(0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 10) }

func algorithm(id ...byte) []byte {
	return TLV(0x30, TLV(0x06, id), []byte{5, 0})
}

// TLV is one element of DER.
func TLV(tag asn1.Tag, parts ...[]byte) []byte {
	var b cryptobyte.Builder
	b.AddASN1(tag, func(b *cryptobyte.Builder) {
		for _, p := range parts {
			b.AddBytes(p)
		}
	})
	return b.BytesOrPanic()
}

// NewPKCS7 is a good one.
func NewPKCS7(content []byte, leaf *Authority) *PKCS7 {
	return &PKCS7{Content: content, Digests: [][]byte{SHA256WithRSA()}, Certificates: [][]byte{leaf.Certificate.Raw},
		Signers: []SignerInfo{NewSignerInfo(leaf)}}
}

// NewSignerInfo is a good one.
func NewSignerInfo(leaf *Authority) SignerInfo {
	return SignerInfo{Version: 1, Signer: leaf, Names: leaf.Certificate, Digest: SHA256WithRSA(), Algorithm: RSAEncryption()}
}

// Marshal signs and writes it.
func (p *PKCS7) Marshal() ([]byte, error) {
	signers := make([][]byte, len(p.Signers))
	for n := range p.Signers {
		var err error
		if signers[n], err = p.Signers[n].marshal(p.Content); err != nil {
			return nil, err
		}
	}
	body := TLV(0x30, []byte{2, 1, 1}, TLV(0x31, p.Digests...),
		TLV(0x30, TLV(0x06, []byte{0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 7, 1}), TLV(0xa0, TLV(0x04, p.Content))),
		TLV(0xa0, p.Certificates...), p.CRLs, TLV(0x31, signers...))
	whole := TLV(0x30, TLV(0x06, []byte{0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 7, 2}), TLV(0xa0, body))
	return append(whole, p.Behind...), nil
}

func (s *SignerInfo) marshal(content []byte) ([]byte, error) {
	signature := s.Signature
	if signature == nil {
		over := content
		if s.Over != nil {
			over = s.Over
		}
		digest := sha256.Sum256(over)
		var err error
		if signature, err = s.Signer.Key.Sign(rand.Reader, digest[:], crypto.SHA256); err != nil {
			return nil, err
		}
	}
	var b cryptobyte.Builder
	b.AddASN1Int64(s.Version)
	b.AddASN1(asn1.SEQUENCE, func(b *cryptobyte.Builder) {
		b.AddBytes(s.Names.RawIssuer)
		b.AddASN1BigInt(s.Names.SerialNumber)
	})
	parts := slices.Concat(b.BytesOrPanic(), s.Digest, s.Signed, s.Algorithm, TLV(0x04, signature), s.Unsigned, s.AfterSignature)
	return TLV(0x30, parts), nil
}
