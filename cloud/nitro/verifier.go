package nitro

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/sha512"
	"crypto/x509"
	"math/big"
	"slices"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/cloud/internal/chain"
	"github.com/nodeattest/nodeattest/refusal"
)

// Checks on a document's signature and time.
const (
	// checkCertificate: the certificate that signs is a CA or is not for signatures, or one below
	// the root does not have a key on P-384.
	checkCertificate refusal.Check = "nitro-certificate"
	// checkSignature: the signature is not that of the certificate's key over the
	// document.
	checkSignature refusal.Check = "nitro-document-signature"
	// checkTime: the document is from the future, or from a time when its certificate was
	// not valid.
	checkTime refusal.Check = "nitro-document-time"
)

// maxSkew is how far the platform's clock may be ahead.
const maxSkew = time.Minute

// skewed is the time at which the certificates are verified: now, or the beginning of the leaf
// that the platform made just now by a clock that is ahead.
func (d *Document) skewed(now time.Time) time.Time {
	if begins := d.leaf.NotBefore; begins.After(now) && !begins.After(now.Add(maxSkew)) {
		return begins
	}
	return now
}

// VerifierConfig configures a [Verifier].
type VerifierConfig struct {
	// Roots are AWS' roots, at least one. A document that includes another root is refused.
	// The documentation of Nitro Enclaves says where they are; the DER of root G1 (CN
	// aws.nitro-enclaves, 2019-10-28 to 2049-10-28) has the SHA-256
	// 641a0321a3e244efe456463195d606317ed7cdcc3c1756e09893f3c68f79bb5b.
	Roots []*x509.Certificate
}

// Verifier verifies documents of NitroTPMs. It is safe for concurrent use.
type Verifier struct{ roots []*x509.Certificate }

// NewVerifier makes a verifier. The error matches [refusal.CheckConfig].
func NewVerifier(config VerifierConfig) (*Verifier, error) {
	if len(config.Roots) == 0 || !chain.AllCAs(config.Roots) {
		return nil, refusal.Config("Roots", "", "at least one, and only CAs")
	}
	return &Verifier{slices.Clone(config.Roots)}, nil
}

// Verify verifies a document at a time and returns its contents. Whether it answers a
// challenge, and which machine it is about, is for the caller to check: the documents of all
// customers of AWS verify. The error is an [*attest.Error] with a check of this package, or
// matches [refusal.ErrRetry] if the context ended.
func (v *Verifier) Verify(ctx context.Context, document []byte, now time.Time) (*Document, error) {
	return v.verify(ctx, document, now, attest.NewBudget(12)) // as many as an answer may cost
}

func (v *Verifier) verify(ctx context.Context, document []byte, now time.Time, budget *attest.Budget) (*Document, error) {
	d, err := parseInsecure(document)
	if err != nil {
		return nil, err
	}
	if err := v.trust(ctx, d, now, budget); err != nil {
		return nil, err
	}
	return d, nil
}

// trust verifies the chain, the times and the signature of a document.
func (v *Verifier) trust(ctx context.Context, d *Document, now time.Time, budget *attest.Budget) error {
	path, err := v.path(d)
	if err != nil {
		return err
	}
	key, err := d.checkLeaf()
	if err != nil {
		return err
	}
	for _, c := range path[1 : len(path)-1] { // a stranger's may be on P-521, where signatures take four times as long
		if _, err := keyOf(c); err != nil {
			return err
		}
	}
	at := d.skewed(now)
	if err := chain.CheckTime(d.leaf, at); err != nil {
		return err
	}
	// Certificates have times in seconds, documents in milliseconds.
	if made := d.Timestamp.Truncate(time.Second); made.After(now.Add(maxSkew)) || chain.CheckTime(d.leaf, made) != nil {
		return checkTime.Refuse("a document of "+stamp(made), "one of the time of its certificate, and until "+stamp(now))
	}
	if err := chain.Verify(ctx, path, at, x509.ExtKeyUsageAny, budget); err != nil {
		return err
	}
	if err := budget.Signature(ctx); err != nil {
		return err
	}
	digest := sha512.Sum384(d.envelope.toBeSigned())
	r, s := d.envelope.signature[:signatureSize/2], d.envelope.signature[signatureSize/2:]
	if !ecdsa.Verify(key, digest[:], new(big.Int).SetBytes(r), new(big.Int).SetBytes(s)) {
		return checkSignature.Refuse("another signature", "that of the certificate's key over the document")
	}
	d.Chain = path
	return nil
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// path is the one chain that a document has: the certificate, then cabundle from end to
// beginning, where one of our roots must be. A root elsewhere in it does not count.
func (v *Verifier) path(d *Document) ([]*x509.Certificate, error) {
	n := slices.IndexFunc(v.roots, func(root *x509.Certificate) bool { return bytes.Equal(d.cabundle[0], root.Raw) })
	if n < 0 {
		return nil, chain.CheckChain.Refuse("a cabundle that begins with another certificate", "one of the roots")
	}
	path := []*x509.Certificate{d.leaf}
	for _, der := range slices.Backward(d.cabundle[1:]) {
		c, err := chain.Parse(der)
		if err != nil {
			return nil, &refusal.Error{Check: checkEncoding, Got: "a bad certificate in cabundle", Want: "X.509", Err: err}
		}
		path = append(path, c)
	}
	return append(path, v.roots[n]), nil
}

// checkLeaf checks that the certificate is one that signs documents.
func (d *Document) checkLeaf() (*ecdsa.PublicKey, error) {
	key, err := keyOf(d.leaf)
	if err != nil {
		return nil, err
	}
	if d.leaf.IsCA || d.leaf.KeyUsage&x509.KeyUsageDigitalSignature == 0 {
		return nil, checkCertificate.Refuse("a CA, or no key usage digitalSignature", "a certificate for signatures")
	}
	return key, nil
}

func keyOf(c *x509.Certificate) (*ecdsa.PublicKey, error) {
	key, ok := c.PublicKey.(*ecdsa.PublicKey)
	if !ok || key.Curve != elliptic.P384() {
		return nil, checkCertificate.Refuse("a key of another kind: "+c.PublicKeyAlgorithm.String(), "ECDSA on P-384")
	}
	return key, nil
}
