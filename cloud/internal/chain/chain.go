// Package chain verifies the certificate chains that clouds' documents are signed under: names
// decide first which certificates form a chain, and its cost is counted before any signature
// is checked.
package chain

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	goasn1 "encoding/asn1"
	"errors"
	"slices"
	"strconv"
	"time"

	"golang.org/x/crypto/cryptobyte"
	"golang.org/x/crypto/cryptobyte/asn1"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/internal/dn"
	"github.com/nodeattest/nodeattest/refusal"
)

// Checks on chains.
const (
	// CheckChain: no chain of valid signatures leads to one of the roots.
	CheckChain refusal.Check = "document-certificate-chain"
	// CheckExpired: a certificate of the chain has expired.
	CheckExpired refusal.Check = "document-certificate-expired"
	// CheckNotYetValid: a certificate of the chain is not yet valid.
	CheckNotYetValid refusal.Check = "document-certificate-not-yet-valid"
)

const (
	// MaxLinks limits the number of signatures in one chain.
	MaxLinks = 5
	// maxRSABits limits the size of the keys used to check signatures.
	maxRSABits = 8192
	// minRSABits is the smallest RSA key that counts.
	minRSABits = 2048
)

// Verify verifies one chain, leaf first and root last, at a time: validity, kinds of key,
// signatures from the leaf to the root, basic constraints, path lengths, names and the usage
// (RFC 5280, 6.1; the signatures and everything after them by crypto/x509). The root is
// trusted. No two certificates have one subject and key; for each, all those with its issuer's name,
// which crypto/x509 may try, are first counted in budget. The error is a [*refusal.Error] with a check
// of this package, or the budget's.
func Verify(ctx context.Context, path []*x509.Certificate, at time.Time, usage x509.ExtKeyUsage, budget *attest.Budget) error {
	if len(path) < 2 || len(path) > MaxLinks+1 {
		return refuse(strconv.Itoa(len(path))+" certificates", "2 to "+strconv.Itoa(MaxLinks+1), nil)
	}
	for n, c := range path {
		if within(path[:n], c) {
			return refuse("two certificates of "+Name(c.RawSubject)+" and one key", "one", nil)
		}
		if err := CheckTime(c, at); err != nil {
			return err
		}
		if !soundKey(c) {
			return refuse("a key of "+Name(c.RawSubject), "RSA of 2048 to 8192 bits, or ECDSA on a NIST curve", nil)
		}
	}
	options := x509.VerifyOptions{Roots: x509.NewCertPool(), Intermediates: x509.NewCertPool(), CurrentTime: at,
		KeyUsages: []x509.ExtKeyUsage{usage}}
	last := len(path) - 1
	spelled := dn.OneSpelling(path)
	options.Roots.AddCert(spelled[last])
	for _, c := range spelled[1:last] {
		options.Intermediates.AddCert(c)
	}
	for _, c := range spelled[:last] {
		for _, issuer := range spelled[1:] {
			if bytes.Equal(c.RawIssuer, issuer.RawSubject) {
				if err := budget.Signature(ctx); err != nil {
					return err
				}
			}
		}
	}
	if _, err := spelled[0].Verify(options); err != nil {
		return refuse("a chain that does not verify", "", err)
	}
	return nil
}

// Parse reads one certificate, and nothing but its three elements: crypto/x509 skips what
// stands behind the signature.
func Parse(der []byte) (*x509.Certificate, error) {
	c, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	in, body := cryptobyte.String(der), cryptobyte.String(nil)
	in.ReadASN1(&body, asn1.SEQUENCE)
	for _, tag := range []asn1.Tag{asn1.SEQUENCE, asn1.SEQUENCE, asn1.BIT_STRING} {
		body.SkipASN1(tag)
	}
	if !body.Empty() {
		return nil, errElements
	}
	return c, nil
}

// AllCAs reports whether all certificates are CA certificates, and no one is nil.
func AllCAs(list []*x509.Certificate) bool {
	return !slices.ContainsFunc(list, func(c *x509.Certificate) bool { return c == nil || !c.IsCA })
}

var errElements = errors.New("got something behind a certificate's signature")

// maxName is the length in bytes of the longest name that is shown.
const maxName = 1024

// Name shows the DER of a name for people. A stranger's name may be as long as a document, and
// costs the square of its length to show.
func Name(raw []byte) string {
	var name pkix.RDNSequence
	if len(raw) > maxName {
		return "with a name of " + strconv.Itoa(len(raw)) + " bytes"
	}
	if rest, err := goasn1.Unmarshal(raw, &name); err != nil || len(rest) != 0 {
		return "with a name that cannot be read"
	}
	return refusal.Text(name.String())
}

// CheckTime checks that a certificate is valid at a time.
func CheckTime(c *x509.Certificate, at time.Time) error {
	switch {
	case at.After(c.NotAfter):
		return &refusal.Error{Check: CheckExpired, Got: Name(c.RawSubject) + " until " + stamp(c.NotAfter), Want: "one at " + stamp(at)}
	case at.Before(c.NotBefore):
		return &refusal.Error{Check: CheckNotYetValid, Got: Name(c.RawSubject) + " from " + stamp(c.NotBefore), Want: "one at " + stamp(at)}
	}
	return nil
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

func refuse(got, want string, err error) error {
	return &refusal.Error{Check: CheckChain, Got: got, Want: want, Err: err}
}

// soundKey bounds the cost of a signature under the key, and the key's weakness.
func soundKey(c *x509.Certificate) bool {
	switch key := c.PublicKey.(type) {
	case *rsa.PublicKey:
		return key.N.BitLen() >= minRSABits && key.N.BitLen() <= maxRSABits
	case *ecdsa.PublicKey:
		return key.Curve == elliptic.P256() || key.Curve == elliptic.P384() || key.Curve == elliptic.P521()
	}
	return false
}

// maxPaths bounds the chains that [Paths] returns, and maxSteps the certificates that it
// looks at.
const (
	maxPaths = 4
	maxSteps = 256
)

// Pool is a set of certificates by the [dn.Key] of their subject. The zero value is empty.
type Pool map[string][]*x509.Certificate

// NewPool makes a pool of certificates.
func NewPool(certificates ...[]*x509.Certificate) Pool {
	p := Pool{}
	for _, list := range certificates {
		for _, c := range list {
			subject := dn.Key(c.RawSubject)
			p[subject] = append(p[subject], c)
		}
	}
	return p
}

// At returns the certificates of the pool that are good at a time.
func (p Pool) At(now time.Time) Pool {
	good := Pool{}
	for subject, list := range p {
		for _, c := range list {
			if CheckTime(c, now) == nil {
				good[subject] = append(good[subject], c)
			}
		}
	}
	return good
}

// In returns the certificates of a chain that are in the pool.
func (p Pool) In(path []*x509.Certificate) (list []*x509.Certificate) {
	for _, c := range path {
		if slices.Contains(p[dn.Key(c.RawSubject)], c) {
			list = append(list, c)
		}
	}
	return list
}

// search assembles chains.
type search struct {
	roots, intermediates []Pool
	at                   time.Time
	valid, ended         [][]*x509.Certificate
	missing              *x509.Certificate
	depth, steps         int
}

// Paths returns the chains from a leaf to a root that the names, key identifiers and places of
// certificates allow, at most four, beginning with those whose certificates are valid at the
// time. No signature is checked. If no chain exists, missing is the certificate furthest from
// the leaf whose issuer is in none of the pools.
func Paths(leaf *x509.Certificate, roots Pool, at time.Time, intermediates ...Pool) (paths [][]*x509.Certificate, missing *x509.Certificate) {
	s := &search{roots: []Pool{roots}, intermediates: intermediates, at: at}
	s.extend([]*x509.Certificate{leaf}, true)
	paths = append(s.valid, s.ended...)
	return paths[:min(len(paths), maxPaths)], s.missing
}

// extend puts each possible issuer on top of a chain.
func (s *search) extend(path []*x509.Certificate, valid bool) {
	top := path[len(path)-1]
	valid = valid && CheckTime(top, s.at) == nil
	if s.missing == nil || len(path) > s.depth {
		s.missing, s.depth = top, len(path)
	}
	if len(path) > MaxLinks {
		return
	}
	s.each(s.roots, path, func(root *x509.Certificate) {
		whole := append(slices.Clip(path), root)
		switch {
		case valid && CheckTime(root, s.at) == nil:
			s.valid = append(s.valid, whole)
		case len(s.ended) < maxPaths:
			s.ended = append(s.ended, whole)
		}
	})
	s.each(s.intermediates, path, func(c *x509.Certificate) { s.extend(append(slices.Clip(path), c), valid) })
}

// each calls f with each certificate that may be the issuer of a chain's top.
func (s *search) each(pools []Pool, path []*x509.Certificate, f func(*x509.Certificate)) {
	top := path[len(path)-1]
	issuer := dn.Key(top.RawIssuer)
	for _, p := range pools {
		for _, c := range p[issuer] {
			if s.steps == maxSteps || len(s.valid) == maxPaths {
				return
			}
			s.steps++
			if isCA(c) && dn.SameKeyIdentifier(top, c) && !within(path, c) {
				f(c)
			}
		}
	}
}

// Issued reports whether a certificate names that issuer, which may be one, by its name and,
// where both state it, by its key identifier. No signature is checked.
func Issued(c, issuer *x509.Certificate) bool {
	return isCA(issuer) && dn.NamesIssuer(c, issuer)
}

func isCA(c *x509.Certificate) bool { return c.BasicConstraintsValid && c.IsCA }

// within reports whether a chain already has a certificate with that subject and key.
func within(path []*x509.Certificate, c *x509.Certificate) bool {
	return slices.ContainsFunc(path, func(other *x509.Certificate) bool {
		return bytes.Equal(other.RawSubjectPublicKeyInfo, c.RawSubjectPublicKeyInfo) && dn.Equal(other.RawSubject, c.RawSubject)
	})
}
