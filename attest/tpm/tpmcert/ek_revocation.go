package tpmcert

import (
	"bytes"
	"cmp"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/nodeattest/nodeattest/internal/dn"
	"github.com/nodeattest/nodeattest/refusal"
)

// Checks of revocation.
const (
	// checkRevoked: a certificate of the chain is revoked.
	checkRevoked refusal.Check = "certificate-revoked"
	// checkRevocationUnknown: a CA of the chain has revocation lists but none that can be
	// used (past its NextUpdate, not signed by that CA, over SHA-1 without the tolerance, or
	// of a CA that may not sign lists), it has none and the issuer requires one, or the
	// issuer's store is empty. It always
	// comes with [refusal.ErrRetry]: it is the control plane that lacks something, not the
	// node.
	checkRevocationUnknown refusal.Check = "certificate-revocation-unknown"
)

// checkedLists is a result of crlSet.check, together with the set that it is about.
type checkedLists struct {
	set *crlSet
	err error
}

// lists returns the lists that an issuer's store holds now. It fails while the store is empty, or
// if the lists cannot be used under the issuer's CAs, which is checked once for each Replace.
func (i *ekIssuer) lists() (crlSet, error) {
	set := i.CRLs.set.Load()
	if set == nil {
		return nil, errCRLEmpty
	}
	if known := i.checked.Load(); known != nil && known.set == set {
		return *set, known.err
	}
	err := set.check(slices.Concat(i.Roots, i.Intermediates), i.Profile.InsecureAllowSHA1Links)
	i.checked.Store(&checkedLists{set, err})
	return *set, err
}

// revocation is the lists' verdict about one certificate.
type revocation struct {
	current bool  // a current list does not contain it
	fault   error // why some list does not count, or nil
}

// checkRevocation looks up each certificate of a verified chain, except the root, in the
// lists of all issuers: what one of them revokes, none of them vouches for.
func (v *EKVerifier) checkRevocation(chain []*x509.Certificate, now time.Time) error {
	for n, c := range chain[:len(chain)-1] {
		ca := chain[n+1]
		var r revocation
		var broken, missing error
		for _, i := range v.issuers {
			if i.CRLs == nil {
				continue
			}
			set, err := i.lists()
			if slices.ContainsFunc(i.Roots, chain[len(chain)-1].Equal) {
				broken = cmp.Or(broken, err)
				if i.RequireCRL {
					missing = errors.New("no list")
				}
			}
			if err := r.ask(set, c, ca, i.Profile.InsecureAllowSHA1Links, now); err != nil {
				return err
			}
		}
		if !r.current {
			broken = cmp.Or(broken, r.fault, missing)
		}
		if broken != nil {
			return &refusal.Error{Check: checkRevocationUnknown, Want: "a current one", Err: refusal.Retry(broken),
				Got: "no revocation list of " + ca.Subject.String() + " that can be used"}
		}
	}
	return nil
}

// ask looks up one certificate in the lists of its CA, by name or key.
func (r *revocation) ask(lists crlSet, c, ca *x509.Certificate, allowSHA1 bool, now time.Time) error {
	name, id := dn.Key(ca.RawSubject), ca.SubjectKeyId
	for _, l := range lists {
		if l.issuer != name && (len(id) == 0 || !bytes.Equal(l.head.AuthorityKeyId, id)) {
			continue
		}
		if err := l.usableBy(ca, allowSHA1); err != nil {
			r.fault = err
			continue
		}
		// A certificate that a list revokes stays revoked, however old the list is.
		if reason, revoked := l.revoked.find(c.SerialNumber); revoked {
			return checkRevoked.Refuse("certificate "+hex.EncodeToString(c.SerialNumber.Bytes())+" of "+ca.Subject.String()+", revoked for reason "+strconv.Itoa(reason),
				"one that is not")
		}
		switch {
		case l.issuer != name:
			r.fault = errors.New("of the CA's key under another name")
		case now.Before(l.head.ThisUpdate) || now.After(l.head.NextUpdate):
			r.fault = errors.New("outside its time")
		default:
			r.current = true
		}
	}
	return nil
}
