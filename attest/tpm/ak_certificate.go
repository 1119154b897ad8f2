package tpm

import (
	"context"
	"crypto"
	"crypto/x509"
	"errors"
	"fmt"
	"time"

	"github.com/nodeattest/nodeattest/csr"
)

// AKCertificate is what a verified AK certificate says.
type AKCertificate struct {
	// Key is the AK, an *rsa.PublicKey or an *ecdsa.PublicKey.
	Key crypto.PublicKey
	// Chain is the verified chain, the AK certificate first and the root last.
	Chain []*x509.Certificate
	// Machine is the machine's identity in the form that the profile looks for.
	Machine Identity
	// Directory is the manufacturer, model and version of the TPM where the
	// certificate states them; never an identity.
	Directory DirectoryName
	// Profile is the profile of the issuer under which the certificate holds. Its
	// tolerances are for the caller to grant: to a statement by this AK for example
	// InsecureAllowSHA1Signature.
	Profile Profile
}

// VerifyAKCertificate checks an AK certificate and the chain that came with it,
// leaf first and root left out, DER, under a list of trusted issuers at the time
// now. It is the part of a [Verifier] that evidence of other dialects needs too,
// together with [VerifyCertify]. The issuers are made ready at each call and
// nothing is remembered: for requests in number make a Verifier.
//
// A refusal is an [*Error] with the check that failed. An issuer without roots or
// with an incomplete profile is an error of another kind, and so is an empty list.
func VerifyAKCertificate(issuers []Issuer, certificates [][]byte, now time.Time) (*AKCertificate, error) {
	if len(issuers) == 0 {
		return nil, errors.New("attest: AK certificate: no issuers")
	}
	if now.IsZero() {
		return nil, errors.New("attest: AK certificate: no time")
	}
	if err := checkOtherNames(issuers); err != nil {
		return nil, fmt.Errorf("attest: AK certificate: %w", err)
	}
	var v Verifier
	known := newLinkMemory()
	for n := range issuers {
		i, err := newIssuer(&issuers[n], known)
		if err != nil {
			return nil, fmt.Errorf("attest: AK certificate: issuer %d: %w", n, err)
		}
		v.issuers = append(v.issuers, i)
	}
	p, err := parsePresented(certificates)
	if err != nil {
		return nil, err
	}
	if err := checkKeyStrength(p.leaf.PublicKey); err != nil {
		return nil, err
	}
	sum, err := csr.SPKIHash(p.leaf.PublicKey)
	if err != nil {
		return nil, &Error{Check: CheckIdentity, Got: "an AK certificate for another kind of key", Want: "RSA or ECDSA", Err: err}
	}
	r := &Result{}
	if err := v.trust(context.Background(), newWork(MaxChainLinks+MaxFailedLinks), &presentedNode{presented: p, akKey: p.leaf.PublicKey, machineKey: sum}, r, now); err != nil {
		return nil, err
	}
	return &AKCertificate{Key: p.leaf.PublicKey, Chain: r.Chain, Machine: r.Machine, Directory: r.Directory, Profile: *r.profile}, nil
}
