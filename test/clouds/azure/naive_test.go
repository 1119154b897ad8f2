// Package azure compares the verifier of Azure's documents with plain readings of them.
package azure

import (
	"bytes"
	"crypto"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/asn1"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/smallstep/pkcs7"
)

// naive verifies documents as plainly as can be, with another library's reading of PKCS#7,
// and can be told to forget checks: then it has the faults that others had.
type naive struct {
	roots, intermediates *x509.CertPool
	now                  time.Time
	forget               []string
}

func newNaive(e *environment, forget ...string) *naive {
	n := &naive{x509.NewCertPool(), x509.NewCertPool(), e.Time, forget}
	for _, c := range e.roots {
		n.roots.AddCert(c)
	}
	for _, c := range e.intermediates {
		n.intermediates.AddCert(c)
	}
	return n
}

func (n *naive) forgets(check string) bool { return slices.Contains(n.forget, check) }

func (n *naive) must(check string, ok bool) error {
	if ok || n.forgets(check) {
		return nil
	}
	return errors.New(check)
}

// verify returns nil for a document that it takes.
func (n *naive) verify(der []byte) error {
	if err := n.must("size", len(der) <= 16<<10); err != nil {
		return err
	}
	p, err := pkcs7.Parse(der)
	if err != nil {
		return err
	}
	if len(p.Signers) == 0 || len(p.Certificates) == 0 {
		return errors.New("nothing signed")
	}
	signer, named := p.Certificates[0], false
	for _, c := range p.Certificates {
		if id := p.Signers[0].IssuerAndSerialNumber; c.SerialNumber.Cmp(id.SerialNumber) == 0 && bytes.Equal(c.RawIssuer, id.IssuerName.FullBytes) {
			signer, named = c, true
		}
	}
	anchored := signer
	if n.forgets("actual-signer") {
		anchored = p.Certificates[0]
	}
	return errors.Join(n.must("der", strictSignedData(der)),
		n.must("one-certificate", len(p.Certificates) == 1), n.must("one-signer", len(p.Signers) == 1), n.must("actual-signer", named),
		n.checkAlgorithms(p, der), n.checkLeaf(anchored), n.checkChain(anchored), n.checkSignature(p, signer), n.checkContent(p.Content))
}

// strictSignedData reports whether it is DER of the expected shape.
func strictSignedData(der []byte) bool {
	var outer struct {
		Type    asn1.ObjectIdentifier
		Content struct {
			Version      int
			Digests      asn1.RawValue
			Content      asn1.RawValue
			Certificates asn1.RawValue `asn1:"tag:0"`
			Signers      asn1.RawValue `asn1:"set"`
		} `asn1:"explicit,tag:0"`
	}
	rest, err := asn1.Unmarshal(der, &outer)
	if err != nil || len(rest) > 0 || outer.Content.Version != 1 || !bytes.HasPrefix(outer.Content.Content.Bytes, []byte(oidData)) {
		return false
	}
	var signer struct {
		Version   int
		ID        asn1.RawValue
		Digest    asn1.RawValue
		Signed    asn1.RawValue `asn1:"optional,tag:0"`
		Algorithm asn1.RawValue
		Signature []byte
		Unsigned  asn1.RawValue `asn1:"optional,tag:1"`
	}
	rest, err = asn1.Unmarshal(outer.Content.Signers.Bytes, &signer)
	if err != nil {
		return false
	}
	again, err := asn1.Marshal(signer)
	return err == nil && signer.Version == 1 && len(rest)+len(again) == len(outer.Content.Signers.Bytes)
}

func (n *naive) checkAlgorithms(p *pkcs7.PKCS7, der []byte) error {
	s := p.Signers[0]
	sha := s.DigestAlgorithm.Algorithm.Equal(pkcs7.OIDEncryptionAlgorithmRSASHA256) || s.DigestAlgorithm.Algorithm.Equal(pkcs7.OIDDigestAlgorithmSHA256)
	digest, _ := asn1.Marshal(s.DigestAlgorithm)
	return errors.Join(
		n.must("algorithm", sha && bytes.Count(der, append([]byte{0x31, byte(len(digest))}, digest...)) == 1 && len(s.DigestAlgorithm.Parameters.FullBytes) == 2),
		n.must("algorithm", s.DigestEncryptionAlgorithm.Algorithm.Equal(pkcs7.OIDEncryptionAlgorithmRSA)),
		n.must("attributes", len(s.AuthenticatedAttributes) == 0 && len(s.UnauthenticatedAttributes) == 0))
}

func (n *naive) checkLeaf(c *x509.Certificate) error {
	key, _ := c.PublicKey.(*rsa.PublicKey)
	named := slices.ContainsFunc(c.DNSNames, func(name string) bool {
		return name == domain || strings.HasSuffix(name, "."+domain) && (n.forgets("label") || !strings.HasPrefix(name, ".") && !strings.Contains(name, ".."))
	})
	var elements []asn1.RawValue
	_, err := asn1.Unmarshal(c.Raw, &elements)
	return errors.Join(n.must("elements", err == nil && len(elements) == 3), n.must("name", named), n.must("key", key != nil && key.N.BitLen() >= 2048),
		n.must("usage", slices.Contains(c.ExtKeyUsage, x509.ExtKeyUsageServerAuth) && c.KeyUsage&x509.KeyUsageDigitalSignature != 0 && !c.IsCA))
}

func (n *naive) checkChain(c *x509.Certificate) error {
	if n.forgets("chain") {
		return nil
	}
	o := x509.VerifyOptions{Roots: n.roots, Intermediates: n.intermediates, CurrentTime: n.now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}}
	if n.forgets("validity") {
		o.CurrentTime = c.NotBefore.Add(c.NotAfter.Sub(c.NotBefore) / 2)
	}
	_, err := c.Verify(o)
	return err
}

// checkSignature checks it over the content, or where attributes are let pass over those.
func (n *naive) checkSignature(p *pkcs7.PKCS7, signer *x509.Certificate) error {
	if n.forgets("signature") {
		return nil
	}
	signed := p.Content
	if s := p.Signers[0]; len(s.AuthenticatedAttributes) > 0 {
		signed = attributesOver(p.Content)
	}
	digest := sha256.Sum256(signed)
	key, ok := signer.PublicKey.(*rsa.PublicKey)
	if !ok {
		return errors.New("no RSA key")
	}
	return rsa.VerifyPKCS1v15(key, crypto.SHA256, digest[:], p.Signers[0].EncryptedDigest)
}

func (n *naive) checkContent(content []byte) error {
	if n.forgets("json") {
		return nil
	}
	if err := flatNames(json.NewDecoder(bytes.NewReader(content))); err != nil {
		return err
	}
	var d struct {
		VMID           string `json:"vmId"`
		SubscriptionID string `json:"subscriptionId"`
		Nonce          string `json:"nonce"`
		TimeStamp      struct {
			CreatedOn string `json:"createdOn"`
			ExpiresOn string `json:"expiresOn"`
		} `json:"timeStamp"`
	}
	if err := json.Unmarshal(content, &d); err != nil {
		return err
	}
	if err := n.must("size", len(d.VMID) <= 64 && len(d.SubscriptionID) <= 64 && len(d.Nonce) <= 64); err != nil {
		return err
	}
	created, err1 := time.Parse("01/02/06 15:04:05 -0700", d.TimeStamp.CreatedOn)
	expires, err2 := time.Parse("01/02/06 15:04:05 -0700", d.TimeStamp.ExpiresOn)
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	_, offset := created.Zone()
	return errors.Join(n.must("time", !n.now.Before(created.Add(-time.Minute)) && !n.now.After(expires)), n.must("zone", offset == 0))
}

// flatNames refuses a name twice in one object, in whatever letters.
func flatNames(d *json.Decoder) error {
	type level struct {
		names map[string]bool // nil in an array
		name  bool            // comes next
	}
	var levels []*level
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		var top *level
		if len(levels) > 0 {
			top = levels[len(levels)-1]
		}
		if text, ok := token.(string); ok && top != nil && top.name {
			if top.names[strings.ToLower(text)] {
				return fmt.Errorf("%s twice", text)
			}
			top.names[strings.ToLower(text)], top.name = true, false
			continue
		}
		if top != nil && top.names != nil {
			top.name = true
		}
		switch token {
		case json.Delim('{'):
			levels = append(levels, &level{map[string]bool{}, true})
		case json.Delim('['):
			levels = append(levels, &level{})
		case json.Delim('}'), json.Delim(']'):
			levels = levels[:len(levels)-1]
		}
	}
}
