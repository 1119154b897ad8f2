package attest

import (
	"crypto/x509"
	"errors"
	"strings"
	"time"

	"github.com/nodeattest/nodeattest/csr"
)

// presentedNode is what a node sent of itself, read and consistent, but not
// trusted yet.
type presentedNode struct {
	*presented
	akPublic   *Public
	machineKey [HashSize]byte
}

// readNode reads the AK and its certificate and checks that they are of one key.
func readNode(akPublic []byte, certificates [][]byte) (*presentedNode, error) {
	ak, err := ParsePublic(akPublic)
	if err != nil {
		return nil, err
	}
	p, err := parsePresented(certificates)
	if err != nil {
		return nil, err
	}
	if !ak.SameKey(p.leaf.PublicKey) {
		return nil, &Error{Check: CheckAKMismatch, Got: "the AK certificate of another key", Want: "the key of akPublic"}
	}
	sum, err := csr.SPKIHash(p.leaf.PublicKey)
	if err != nil {
		return nil, &Error{Check: CheckIdentity, Got: "an AK certificate for another kind of key", Want: "RSA or ECDSA", Err: err}
	}
	return &presentedNode{presented: p, akPublic: ak, machineKey: sum}, nil
}

// trust finds the issuer under which the AK certificate holds, and fills the
// result from it. An issuer whose roots do not fit is passed over; one whose
// roots fit and whose profile does not decides the error.
func (v *Verifier) trust(node *presentedNode, r *Result, now time.Time) error {
	if err := checkValidity(node.leaf, now); err != nil {
		return err
	}
	if err := checkCriticalExtensions(node.leaf); err != nil {
		return err
	}
	var chainErr, profileErr error
	for _, i := range v.issuers {
		chain, err := i.verify(node.presented, now)
		if err != nil {
			if chainErr == nil || errors.Is(chainErr, CheckCertificateChain) {
				chainErr = err // that a chain is out of date says more than that it is unknown
			}
			continue
		}
		if err := i.profile.check(node.leaf, node.san); err != nil {
			if profileErr == nil {
				profileErr = err
			}
			continue
		}
		return fillTrust(r, i, chain, node)
	}
	if profileErr != nil {
		return profileErr
	}
	return chainErr
}

func fillTrust(r *Result, i *issuer, chain []*x509.Certificate, node *presentedNode) error {
	for _, s := range i.profile.Identity {
		id, err := node.identify(s)
		if err != nil && !hasOwnCheck(err) {
			err = &Error{Check: CheckIdentity, Got: "a certificate that the source of identities refuses", Err: err}
		}
		if err != nil {
			return err
		}
		if id != "" {
			r.Machine = id
			break
		}
	}
	switch kind, rest, ok := strings.Cut(string(r.Machine), ":"); {
	case r.Machine == "":
		return &Error{Check: CheckIdentity, Got: "none of the forms of profile " + i.profile.Name, Want: "a machine identity"}
	case !ok || kind == "" || rest == "":
		return &Error{Check: CheckIdentity, Got: string(r.Machine), Want: "a kind, a colon and a name"}
	}
	r.Profile = i.profile.Name
	r.Chain = chain
	r.Directory = node.san.directory
	r.OneAKPerMachine = i.profile.OneAKPerMachine
	r.profile = &i.profile
	return nil
}

// identify asks a source, and answers for those in the box from what has been read
// of the certificate already.
func (n *presentedNode) identify(s IdentitySource) (Identity, error) {
	switch s := s.(type) {
	case AKIdentity:
		return digestIdentity("ak", n.machineKey), nil
	case OtherNameIdentity:
		return s.find(n.san)
	}
	return s.Identify(n.leaf)
}

func hasOwnCheck(err error) bool {
	_, ok := errors.AsType[Check](err)
	return ok
}
