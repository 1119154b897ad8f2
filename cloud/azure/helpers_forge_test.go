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

// authority is a certificate and its key.
type authority struct {
	Certificate *x509.Certificate
	Key         crypto.Signer
}

// serial numbers are random, as real CAs' are.
func newSerial() (*big.Int, error) {
	return rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
}

// issue makes a certificate for a key; parent nil is the certificate itself.
func issue(template *x509.Certificate, key crypto.Signer, parent *authority) (*authority, error) {
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
	return &authority{c, key}, err
}

// forge signs attested documents as Azure's Instance Metadata Service does, below a root
// and two intermediates, as since 2026.
type forge struct {
	root, cross, issuing *authority
	// leaf is the signer's; it lives from a month before Now to five months after.
	leaf *authority
}

// leafNames are the names of a leaf: a region's, and that of all.
func leafNames() []string { return []string{"eastus.metadata.azure.com", "metadata.azure.com"} }

// newForge makes the certificates, as they are at a time.
func newForge(now time.Time) (*forge, error) {
	a := &forge{}
	for _, step := range []struct {
		out    **authority
		parent **authority
		name   string
		life   time.Duration
		path   int
	}{
		{&a.root, nil, "Fake Global Root G2", 20, 4},
		{&a.cross, &a.root, "Fake TLS RSA Root G2", 3, 1},
		{&a.issuing, &a.cross, "Fake TLS G2 RSA CA OCSP 02", 3, 0},
	} {
		key, err := rsa.GenerateKey(rand.Reader, 2048)
		if err != nil {
			return nil, err
		}
		template := caTemplate(step.name, now.Add(-year), now.Add(step.life*year))
		template.MaxPathLen, template.MaxPathLenZero = step.path, step.path == 0
		if step.out == &a.issuing {
			template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
		}
		var parent *authority
		if step.parent != nil {
			parent = *step.parent
		}
		if *step.out, err = issue(template, key, parent); err != nil {
			return nil, err
		}
	}
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return nil, err
	}
	a.leaf, err = issue(a.leafTemplate(now), key, a.issuing)
	return a, err
}

const year = 365 * 24 * time.Hour

// caTemplate is the template of a CA.
func caTemplate(name string, from, to time.Time) *x509.Certificate {
	return &x509.Certificate{Subject: pkix.Name{Country: []string{"US"}, Organization: []string{"Fake Corporation"}, CommonName: name},
		NotBefore: from, NotAfter: to, BasicConstraintsValid: true, IsCA: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign}
}

// leafTemplate is that of a signer's certificate.
func (a *forge) leafTemplate(now time.Time) *x509.Certificate {
	return &x509.Certificate{Subject: pkix.Name{Country: []string{"US"}, Organization: []string{"Fake Corporation"}, CommonName: "metadata.azure.com"},
		NotBefore: now.Add(-year / 12), NotAfter: now.Add(5 * year / 12), BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames: leafNames(), IssuingCertificateURL: []string{"http://www.microsoft.com/pkiops/certs/fake.crt"}}
}

// newLeaf makes a signer whose key is anotherKey.
func (a *forge) newLeaf(template *x509.Certificate) (*authority, error) {
	return issue(template, anotherKey(), a.issuing)
}

// jsonContent is the JSON of a document, in the order of the service's.
type jsonContent struct {
	LicenseType    string    `json:"licenseType"`
	Nonce          string    `json:"nonce"`
	Plan           jsonPlan  `json:"plan"`
	SKU            string    `json:"sku"`
	SubscriptionID string    `json:"subscriptionId"`
	TimeStamp      jsonTimes `json:"timeStamp"`
	VMID           string    `json:"vmId"`
}

// jsonPlan is empty for most images.
type jsonPlan struct {
	Name      string `json:"name"`
	Product   string `json:"product"`
	Publisher string `json:"publisher"`
}

// jsonTimes has times as 01/02/06 15:04:05 -0000.
type jsonTimes struct {
	CreatedOn string `json:"createdOn"`
	ExpiresOn string `json:"expiresOn"`
}

// newContent is a document's content, of a time. Without a nonce it has the one that
// the service writes.
func newContent(subscriptionID, vmID, nonce string, at time.Time) *jsonContent {
	const format = "01/02/06 15:04:05 -0000"
	end := at.UTC().Add(6 * time.Hour)
	if nonce == "" {
		nonce = end.Format("20060102-150405")
	}
	return &jsonContent{Nonce: nonce, SubscriptionID: subscriptionID, VMID: vmID,
		TimeStamp: jsonTimes{at.UTC().Format(format), end.Format(format)}}
}

// document is a good document, DER.
func (a *forge) document(c *jsonContent) ([]byte, error) {
	content, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	return newParts(content, a.leaf).marshal()
}

// parts is the parts of a document, each of which an attacker may change.
type parts struct {
	Content      []byte
	Digests      []([]byte) // AlgorithmIdentifiers, DER
	Certificates [][]byte   // DER
	CRLs         []byte     // DER of the whole [1], or nothing
	Signers      []signerParts
	Behind       []byte // the whole
}

// signerParts is one signer. Sign nil signs as the service does.
type signerParts struct {
	Content           []byte // in place of everything
	Version           int64
	Signer            *authority
	Names             *x509.Certificate // whose issuer and serial number it gives
	Digest, Algorithm []byte            // AlgorithmIdentifiers, DER
	Signed, Unsigned  []byte            // DER of the whole [0] and [1], or nothing
	Signature         []byte            // in place of a good one
	Over              []byte            // the signed bytes, nil for the content
	AfterSignature    []byte
}

// AlgorithmIdentifiers of documents, with NULL.
func sha256WithRSA() []byte { return algorithm(0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 0x0b) }
func rsaEncryption() []byte { return algorithm(0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 1) }
func sha256Digest() []byte  { return algorithm(0x60, 0x86, 0x48, 1, 0x65, 3, 4, 2, 1) }
func sha1Digest() []byte    { return algorithm(0x2b, 14, 3, 2, 26) }
func rsaPSS() []byte        { return algorithm(0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 10) }

func algorithm(id ...byte) []byte {
	return tlv(0x30, tlv(0x06, id), []byte{5, 0})
}

// tlv is one element of DER.
func tlv(tag asn1.Tag, parts ...[]byte) []byte {
	var b cryptobyte.Builder
	b.AddASN1(tag, func(b *cryptobyte.Builder) {
		for _, p := range parts {
			b.AddBytes(p)
		}
	})
	return b.BytesOrPanic()
}

// newParts is a good one.
func newParts(content []byte, leaf *authority) *parts {
	return &parts{Content: content, Digests: [][]byte{sha256WithRSA()}, Certificates: [][]byte{leaf.Certificate.Raw},
		Signers: []signerParts{newSigner(leaf)}}
}

// newSigner is a good one.
func newSigner(leaf *authority) signerParts {
	return signerParts{Version: 1, Signer: leaf, Names: leaf.Certificate, Digest: sha256WithRSA(), Algorithm: rsaEncryption()}
}

// marshal signs and writes it.
func (p *parts) marshal() ([]byte, error) {
	signers := make([][]byte, len(p.Signers))
	for n := range p.Signers {
		var err error
		if signers[n], err = p.Signers[n].marshal(p.Content); err != nil {
			return nil, err
		}
	}
	body := tlv(0x30, []byte{2, 1, 1}, tlv(0x31, p.Digests...),
		tlv(0x30, tlv(0x06, []byte{0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 7, 1}), tlv(0xa0, tlv(0x04, p.Content))),
		tlv(0xa0, p.Certificates...), p.CRLs, tlv(0x31, signers...))
	whole := tlv(0x30, tlv(0x06, []byte{0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 7, 2}), tlv(0xa0, body))
	return append(whole, p.Behind...), nil
}

func (s *signerParts) marshal(content []byte) ([]byte, error) {
	if s.Content != nil {
		return tlv(0x30, s.Content), nil
	}
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
	parts := slices.Concat(b.BytesOrPanic(), s.Digest, s.Signed, s.Algorithm, tlv(0x04, signature), s.Unsigned, s.AfterSignature)
	return tlv(0x30, parts), nil
}
