package attest

import (
	"bytes"
	"crypto"
	"crypto/rsa"
	"crypto/sha1"
	"crypto/x509"
	"encoding/hex"
	"fmt"
	"github.com/nodeattest/nodeattest/refusal"
	"strconv"
	"sync"
	"time"

	"github.com/nodeattest/nodeattest/csr"
)

// MaxCRLSize bounds the DER of one certificate revocation list, in bytes.
const MaxCRLSize = 16 << 20

// Checks of revocation.
const (
	// CheckRevoked: a certificate of the chain is revoked.
	CheckRevoked Check = "certificate-revoked"
	// CheckRevocationUnknown: a revocation list is missing where the issuer asks for
	// one, is past its NextUpdate, or is not signed by the issuer that it names.
	// Always together with [csr.ErrRetry]: it is the control plane that lacks
	// something, not the node.
	CheckRevocationUnknown Check = "certificate-revocation-unknown"
	// CheckCRL: a revocation list cannot be read, or is of a kind that is not
	// understood (a delta, one with a scope, an indirect one).
	CheckCRL Check = "crl"
)

// CRLStore holds the certificate revocation lists of issuers (RFC 5280, 5). Whoever
// runs the control plane fetches them and calls Replace; nothing is fetched here. The
// zero value is empty and ready; it is safe for use from many goroutines.
type CRLStore struct {
	mu    sync.RWMutex
	lists map[string][]*crl // by the issuer's name
}

// crl is one list with its serials looked up by their bytes.
type crl struct {
	list     *x509.RevocationList
	revoked  map[string]int // reason
	mu       sync.Mutex
	signedBy *x509.Certificate // the issuer that was found to have signed it, or nil
}

// NewCRLStore returns a store with the given lists, each in DER.
func NewCRLStore(lists ...[]byte) (*CRLStore, error) {
	s := &CRLStore{}
	if err := s.Replace(lists...); err != nil {
		return nil, err
	}
	return s, nil
}

// Replace takes the given lists, each in DER, in the place of all that the store held.
// Signatures are checked when a list is used, as its issuer is known then. If one list
// cannot be read the store stays as it was; the error is an [*Error] with [CheckCRL]
// and says which list, counted from 0.
func (s *CRLStore) Replace(lists ...[]byte) error {
	made := map[string][]*crl{}
	for n, der := range lists {
		c, err := parseCRL(der)
		if err != nil {
			return &Error{Check: CheckCRL, Got: "list " + strconv.Itoa(n), Want: "a whole CRL in DER", Err: err}
		}
		name := string(c.list.RawIssuer)
		made[name] = append(made[name], c)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lists = made
	return nil
}

func parseCRL(der []byte) (*crl, error) {
	if len(der) > MaxCRLSize {
		return nil, fmt.Errorf("%d bytes, at most %d", len(der), MaxCRLSize)
	}
	list, err := x509.ParseRevocationList(der)
	if err != nil {
		return nil, err
	}
	if len(list.Raw) != len(der) {
		return nil, fmt.Errorf("%d bytes behind the list", len(der)-len(list.Raw))
	}
	for _, e := range list.Extensions {
		if e.Critical {
			return nil, fmt.Errorf("critical extension %s (a delta, or a scope)", e.Id)
		}
	}
	c := &crl{list: list, revoked: make(map[string]int, len(list.RevokedCertificateEntries))}
	for i := range list.RevokedCertificateEntries {
		entry := &list.RevokedCertificateEntries[i]
		for _, e := range entry.Extensions {
			if e.Critical {
				return nil, fmt.Errorf("an entry with critical extension %s", e.Id)
			}
		}
		c.revoked[string(entry.SerialNumber.Bytes())] = entry.ReasonCode
	}
	return c, nil
}

// find returns the lists of one issuer.
func (s *CRLStore) find(issuer *x509.Certificate) []*crl {
	if s == nil {
		return nil
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.lists[string(issuer.RawSubject)]
}

// isSignedBy reports whether the issuer signed the list, and remembers it. SHA-1 is
// looked at where the profile lets SHA-1 through.
func (c *crl) isSignedBy(issuer *x509.Certificate, allowSHA1 bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	sha1Signed := c.list.SignatureAlgorithm == x509.SHA1WithRSA
	if sha1Signed && !allowSHA1 || issuer.KeyUsage != 0 && issuer.KeyUsage&x509.KeyUsageCRLSign == 0 {
		return false
	}
	if c.signedBy != nil {
		return bytes.Equal(c.signedBy.RawSubjectPublicKeyInfo, issuer.RawSubjectPublicKeyInfo)
	}
	if sha1Signed {
		key, err := rsaKeyOf(issuer)
		if err != nil {
			return false
		}
		sum := sha1.Sum(c.list.RawTBSRevocationList)
		if rsa.VerifyPKCS1v15(key, crypto.SHA1, sum[:], c.list.Signature) != nil {
			return false
		}
	} else if issuer.CheckSignature(c.list.SignatureAlgorithm, c.list.RawTBSRevocationList, c.list.Signature) != nil {
		return false
	}
	c.signedBy = issuer
	return true
}

// checkRevocation looks each certificate of a verified chain up, the root aside.
func (i *ekIssuer) checkRevocation(chain []*x509.Certificate, now time.Time) error {
	if i.crls == nil {
		return nil
	}
	for n, c := range chain[:len(chain)-1] {
		issuer := chain[n+1]
		current, stale := false, false
		for _, l := range i.crls.find(issuer) {
			if !l.isSignedBy(issuer, i.profile.InsecureAllowSHA1Links) {
				continue
			}
			// What a list revoked stays revoked, however old the list is.
			if reason, ok := l.revoked[string(c.SerialNumber.Bytes())]; ok && reason != reasonRemoveFromCRL {
				return &Error{Check: CheckRevoked, Got: "certificate " + hex.EncodeToString(c.SerialNumber.Bytes()) + " of " +
					refusal.OrNothing(issuer.Subject.String()) + ", revoked for reason " + strconv.Itoa(reason), Want: "one that is not"}
			}
			if now.Before(l.list.ThisUpdate) || !l.list.NextUpdate.IsZero() && now.After(l.list.NextUpdate) {
				stale = true
			} else {
				current = true
			}
		}
		if !current && (stale || i.requireCRL) {
			return revocationUnknown(issuer, stale)
		}
	}
	return nil
}

const reasonRemoveFromCRL = 8 // RFC 5280, 5.3.1

func revocationUnknown(issuer *x509.Certificate, stale bool) error {
	got := "no revocation list"
	if stale {
		got = "a revocation list outside its time"
	}
	return &Error{Check: CheckRevocationUnknown, Got: got + " of " + refusal.OrNothing(issuer.Subject.String()),
		Want: "a current one", Err: csr.ErrRetry}
}
