package vector

import (
	"context"
	"crypto/x509"
	"errors"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/tpm/tpmcert"
	"github.com/nodeattest/nodeattest/internal/forge"
	"github.com/nodeattest/nodeattest/internal/message"
	"github.com/nodeattest/nodeattest/oid"
)

// EK is an EK as a node presents it: what attest.PresentedEK has.
type EK struct {
	// Certificates are the EK certificate, as it stands in NV, and those above it.
	Certificates [][]byte `json:"certificates,omitempty"`
	// PublicKey is a SubjectPublicKeyInfo, of an EK without a certificate.
	PublicKey []byte `json:"publicKey,omitempty"`
}

// EKIssuer is an issuer of EK certificates: its Roots and Intermediates in DER.
type EKIssuer struct {
	Roots         [][]byte `json:"roots"`
	Intermediates [][]byte `json:"intermediates,omitempty"`
	// Profile says what its certificates look like; absent: all that the TCG's EK
	// Credential Profile asks for, as tpmcert.EKProfileTCG says.
	Profile *EKProfile `json:"profile,omitempty"`
	// CRLs are its revocation lists, DER. RequireCRL refuses a certificate of the
	// chain, the root aside, without a list.
	CRLs       [][]byte `json:"crls,omitempty"`
	RequireCRL bool     `json:"requireCRL,omitempty"`
}

// EKProfile is a tpmcert.EKProfile.
type EKProfile struct {
	// Name is for people.
	Name string `json:"name"`
	// Extensions are dotted decimals of extensions that must be there.
	Extensions []string `json:"extensions,omitempty"`
	// RequireSpecification asks for the TPM specification attribute.
	RequireSpecification bool `json:"requireSpecification,omitempty"`
	// Tolerances are the faults that are let through, by the names of the fields of
	// tpmcert.EKProfile and tpmcert.EKEncoding.
	Tolerances []string `json:"tolerances,omitempty"`
}

// DeniedTPM is a tpmcert.DeniedTPM.
type DeniedTPM struct {
	// Vendor is the manufacturer's name, Model the model, absent for any.
	Vendor string `json:"vendor"`
	Model  string `json:"model,omitempty"`
	// First and Last bound the firmware version, both included: the major version in
	// the high 16 bits, the minor one in the low.
	First uint32 `json:"first"`
	Last  uint32 `json:"last"`
	// Reason is for people.
	Reason string `json:"reason"`
}

func (p *EKProfile) profile() tpmcert.EKProfile {
	if p == nil {
		return tpmcert.EKProfileTCG()
	}
	out := tpmcert.EKProfile{Name: p.Name, RequireSpecification: p.RequireSpecification, Extensions: each(p.Extensions, oid.Parse)}
	for _, name := range p.Tolerances {
		if setOption(&out.Encoding, name) != nil {
			forge.Check(setOption(&out, name))
		}
	}
	return out
}

// eks is nil where nothing says which EKs are trusted.
func (e *Environment) eks() *tpmcert.EKVerifier {
	if len(e.EKIssuers) == 0 && len(e.AllowedEKs) == 0 {
		return nil
	}
	c := tpmcert.EKVerifierConfig{
		Allowed: each(e.AllowedEKs, func(id string) (attest.Identity, error) { return attest.Identity(id), nil }),
		Denied:  each(e.DeniedTPMs, func(d DeniedTPM) (tpmcert.DeniedTPM, error) { return tpmcert.DeniedTPM(d), nil }),
	}
	for _, i := range e.EKIssuers {
		issuer := tpmcert.EKIssuer{RequireCRL: i.RequireCRL, Roots: each(i.Roots, x509.ParseCertificate),
			Intermediates: each(i.Intermediates, x509.ParseCertificate), Profile: i.Profile.profile()}
		if i.CRLs != nil {
			issuer.CRLs = forge.Must(tpmcert.NewCRLStore(i.CRLs...))
		}
		c.Issuers = append(c.Issuers, issuer)
	}
	return forge.Must(tpmcert.NewEKVerifier(c))
}

// verify gives the EK to tpmcert.EKVerifier.Verify.
func (k *EK) verify(ctx context.Context, e *Environment) (*Result, error) {
	verifier := e.eks()
	if verifier == nil {
		return nil, &brokenVector{errors.New("an environment that trusts no EKs")}
	}
	ek, err := tpmcert.ParseEKPresented(k.Certificates, k.PublicKey)
	if err != nil {
		return nil, err
	}
	facts, err := verifier.Verify(ctx, ek, nil, e.Now, nil)
	if err != nil {
		return nil, err
	}
	return &Result{Machine: string(facts.Identity), Profile: facts.Profile, Source: string(facts.Source),
		Tolerances: append([]string{}, facts.Tolerances...)}, nil
}

// Credential is a challenge on the road of the EK certificate, and the TPM that it
// reaches: an EK whose private key is known, and an AK's Name. Acceptance means that
// the credential opens to Result.Secret.
type Credential struct {
	// Challenge is DER.
	Challenge []byte `json:"challenge"`
	// EK is the EK's private key, PKCS#8.
	EK []byte `json:"ek"`
	// AKName is the Name of the AK that the TPM has loaded.
	AKName []byte `json:"akName"`
}

// open parses the challenge and opens its credential. A secret that does not follow
// from the binding under the environment's challenge keys is an error too.
func (c *Credential) open(e *Environment) (*Result, error) {
	key := forge.Must(x509.ParsePKCS8PrivateKey(c.EK))
	challenge, err := message.ParseChallenge(c.Challenge)
	if err != nil {
		return nil, err
	}
	if challenge.Credential == nil {
		return nil, &brokenVector{errors.New("a challenge without a credential")}
	}
	secret, err := forge.OpenCredential(key, c.AKName, (*attest.Credential)(challenge.Credential))
	if err == nil && !e.gave(challenge, secret) {
		err = errors.New("the credential's secret does not follow from its binding")
	}
	return &Result{Secret: secret}, err
}
