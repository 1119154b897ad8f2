package tpmcert

import (
	"crypto/sha256"
	"crypto/x509"
	"errors"
	"strconv"
	"sync/atomic"

	"github.com/nodeattest/nodeattest/internal/dn"
	"github.com/nodeattest/nodeattest/refusal"
)

// maxCRLSize bounds the DER of one certificate revocation list, in bytes.
const maxCRLSize = 16 << 20

// checkCRL: a revocation list cannot be read, is of an unsupported kind (delta, scoped or
// indirect), does not say how long it is current, or cannot be used under the issuer it is
// configured for.
const checkCRL refusal.Check = "crl"

// CRLStore holds the certificate revocation lists of issuers (RFC 5280, 5). The operator of
// the control plane fetches them and calls Replace; nothing is fetched here. The zero value
// is empty, for a program that starts before it has fetched them: until the first Replace,
// every EK certificate under the issuer's roots is the check "certificate-revocation-unknown",
// to be tried again. An issuer without lists has no CRLStore. It is safe for concurrent use by
// multiple goroutines.
//
// A list applies to the CA that it names, however the name is spelled: the string type,
// letter case and repeated white space do not matter (RFC 5280, 7.1). It must be signed by
// that CA's key, over SHA-256 or stronger unless the issuer's profile allows SHA-1, and the
// CA must be allowed to sign lists (cRLSign).
type CRLStore struct {
	set atomic.Pointer[crlSet]
}

// crlSet is the immutable content of a store at one time.
type crlSet []*crl

// NewCRLStore returns a store with the given lists, at least one, each in DER.
func NewCRLStore(lists ...[]byte) (*CRLStore, error) {
	s := &CRLStore{}
	if err := s.Replace(lists...); err != nil {
		return nil, err
	}
	return s, nil
}

// Replace replaces everything in the store with the given lists, each in DER of at most 16 MiB.
// If a list cannot be read, the store stays as it was, and the error is a [*refusal.Error]
// with the check "crl" that says which list, counted from 0.
//
// Signatures are checked against the CAs of the issuers the lists belong to: by
// [NewEKVerifier] and, after a later Replace, by the first request. In that case, lists that
// NewEKVerifier would refuse make every EK certificate under the issuer's roots
// "certificate-revocation-unknown".
func (s *CRLStore) Replace(lists ...[]byte) error {
	if len(lists) == 0 {
		return checkCRL.Refuse("no list", "at least one; without new lists, do not call Replace, and the present ones stay")
	}
	var made crlSet
	for n, der := range lists {
		c, err := parseCRL(der)
		if err != nil {
			return &refusal.Error{Check: checkCRL, Got: "list " + strconv.Itoa(n), Want: "a whole CRL in DER with nextUpdate", Err: err}
		}
		made = append(made, c)
	}
	s.set.Store(&made)
	return nil
}

// check refuses lists that these CAs show to be unusable.
func (s crlSet) check(cas []*x509.Certificate, allowSHA1 bool) error {
	for n, c := range s {
		if err := c.check(cas, allowSHA1); err != nil {
			return &refusal.Error{Check: checkCRL, Got: "list " + strconv.Itoa(n) + " of " + c.head.Issuer.String(),
				Want: "one that can be used under the issuer's roots and intermediates", Err: err}
		}
	}
	return nil
}

// check refuses a list that none of the CAs it names can use, and one that a CA signed under a
// name that none of them has: no lookup would ever find it. A list that names none of them and
// is signed by none of them may be that of a CA that the node sends.
func (c *crl) check(cas []*x509.Certificate, allowSHA1 bool) (fault error) {
	for _, ca := range cas {
		if c.issuer != dn.Key(ca.RawSubject) {
			continue
		}
		if fault = c.usableBy(ca, allowSHA1); fault == nil {
			return nil
		}
	}
	signed := &x509.Certificate{AuthorityKeyId: c.head.AuthorityKeyId} // as dn compares it
	for _, ca := range cas {
		if fault == nil && dn.SameKeyIdentifier(signed, ca) && c.isSignedBy(ca) {
			fault = errors.New("signed by the key of " + ca.Subject.String() + ", which has another name")
		}
	}
	return fault
}

// errCRLEmpty: nothing can be decided yet.
var errCRLEmpty = errors.New("the store has not been filled yet")

// usableBy returns why the list does not count as one of the given CA, or nil if it does.
func (c *crl) usableBy(ca *x509.Certificate, allowSHA1 bool) error {
	switch a := c.head.SignatureAlgorithm; {
	case (a == x509.SHA1WithRSA || a == x509.ECDSAWithSHA1) && !allowSHA1:
		return errors.New("signed over SHA-1, which takes the tolerance InsecureAllowSHA1Links")
	case ca.KeyUsage != 0 && ca.KeyUsage&x509.KeyUsageCRLSign == 0:
		return errors.New("of a CA that may not sign lists: its key usage lacks cRLSign")
	case !c.isSignedBy(ca):
		return errors.New("not signed by the key of the CA that it names")
	}
	return nil
}

// maxCRLSigners bounds the keys that a list remembers, whether or not they signed it.
const maxCRLSigners = 32

// isSignedBy reports whether the key of a CA signed the list, and remembers the result. The
// entries are read when the first key is found to have signed it.
func (c *crl) isSignedBy(ca *x509.Certificate) bool {
	key := sha256.Sum256(ca.RawSubjectPublicKeyInfo)
	c.mu.Lock()
	defer c.mu.Unlock()
	signed, known := c.signers[key]
	if known {
		return signed
	}
	signer := x509.Certificate{PublicKey: keyOf(ca)}
	signed = signer.CheckSignature(c.head.SignatureAlgorithm, c.tbs, c.head.Signature) == nil
	if len(c.signers) >= maxCRLSigners {
		clear(c.signers)
	}
	c.signers[key] = signed
	if signed && c.revoked == nil {
		c.revoked = newSerialIndex(c.entries, c.numEntries)
	}
	return signed
}
