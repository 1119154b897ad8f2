package tpm

import (
	"context"
	"crypto"
	"crypto/x509"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nodeattest/nodeattest/csr"
)

// presentedNode is what a node sent of itself, read and consistent, but not
// trusted yet.
type presentedNode struct {
	road Road
	// On road AK the certificates are the AK's, on road EK the EK's.
	*presented
	ek         *presentedEK
	akPublic   *Public
	akKey      crypto.PublicKey
	machineKey [HashSize]byte
}

// readNode reads what the node's road has: the AK, and the AK's certificate or the EK.
// The key that is read here is the only one that counts from then on: for trust,
// membership, the binding and the credential.
func readNode(road Road, akPublic, ekPublic []byte, certificates [][]byte) (*presentedNode, error) {
	ak, err := ParsePublic(akPublic)
	if err != nil {
		return nil, err
	}
	if road == RoadEK {
		return readNodeWithEK(ak, ekPublic, certificates)
	}
	return readNodeWithAK(ak, certificates)
}

// readNodeWithEK reads the one EK, and the AK's key out of its public area: what the
// area says is proven by the credential, which is for the area's Name.
func readNodeWithEK(ak *Public, ekPublic []byte, certificates [][]byte) (*presentedNode, error) {
	ek, err := readEK(certificates, ekPublic)
	if err != nil {
		return nil, err
	}
	if _, err := ekParametersOf(ek.key); err != nil {
		return nil, err
	}
	key, err := ak.Key()
	if err != nil {
		return nil, err
	}
	return &presentedNode{road: RoadEK, ek: ek, akPublic: ak, akKey: key, machineKey: ek.digest}, nil
}

// readNodeWithAK reads the AK's certificate and checks that both are of one key.
func readNodeWithAK(ak *Public, certificates [][]byte) (*presentedNode, error) {
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
	return &presentedNode{road: RoadAK, presented: p, akPublic: ak, akKey: p.leaf.PublicKey, machineKey: sum}, nil
}

// trust decides whether the key that carries the trust can be trusted, and fills the
// result from what is known of it.
func (v *Verifier) trust(ctx context.Context, w *work, node *presentedNode, r *Result, now time.Time) error {
	if node.road == RoadAK {
		return v.trustAK(ctx, w, node, r, now)
	}
	facts, err := v.eks.verifyEK(ctx, w, node.ek, r.checked.Machine(), now)
	if err != nil {
		return err
	}
	r.EK = facts
	r.Machine = facts.Identity
	r.Profile = facts.Profile
	r.Chain = facts.Chain
	r.Directory = facts.Directory
	return nil
}

// trustAK finds the issuer under which the AK certificate holds, and fills the
// result from it. An issuer whose roots do not fit is passed over; one whose
// roots fit and whose profile does not decides the error.
func (v *Verifier) trustAK(ctx context.Context, w *work, node *presentedNode, r *Result, now time.Time) error {
	if err := checkValidity(node.leaf, now); err != nil {
		return err
	}
	if err := checkCriticalExtensions(node.leaf); err != nil {
		return err
	}
	var chainErr, profileErr error
	for _, i := range v.issuers {
		chain, err := i.verify(ctx, w, node.presented, now)
		if err := ctx.Err(); err != nil {
			return csr.Retry(fmt.Errorf("attest: stopped between two issuers: %w", err))
		}
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
	switch kind, rest, _ := strings.Cut(string(r.Machine), ":"); {
	case r.Machine == "":
		return &Error{Check: CheckIdentity, Got: "none of the forms of profile " + i.profile.Name, Want: "a machine identity"}
	case kind == "" || rest == "":
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
