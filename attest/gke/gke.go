package gke

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/x509"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/tpm/statement"
	"github.com/nodeattest/nodeattest/attest/tpm/tpmcert"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/message"
	"github.com/nodeattest/nodeattest/internal/typednil"
	"github.com/nodeattest/nodeattest/refusal"
)

// ProviderName is the name of [Provider] in signer names.
const ProviderName = "gke"

// Provider verifies requests as Google Kubernetes Engine's nodes filed them until
// 2024 (cloud-provider-gcp, cmd/gke-exec-auth-plugin and cmd/gcp-controller-manager):
// see [csr.GKEBundle]. It is a [csr.Provider] for client certificates.
//
// Nothing in such a request is fresh. The statement has no qualifying data, so it is valid for
// as long as its key, for every cluster and every requester. The [Config.SecondProof] makes up
// for part of that; what remains possible is replay of one machine's request within that
// proof's time. New nodes use attest.Attester.
type Provider struct {
	config Config
	aks    *tpmcert.AKVerifier // nil with AKPublicKey
}

// Config is what a [Provider] is made from. All fields except the last two are needed, but
// exactly one of AKPublicKey and Issuers.
type Config struct {
	// InsecureAllowNoChallenge must be set: it says that evidence without a challenge is
	// accepted, with everything that [Provider] says about it.
	InsecureAllowNoChallenge bool
	// Policy is the node policy. Its signers issue client certificates: GKE's nodes used
	// [csr.SignerKubeAPIServerClientKubelet]; the name that selects this provider is that of
	// [csr.SignerClient] for [ProviderName].
	Policy *csr.Policy
	// AKPublicKey asks the platform for the AK of the virtual machine that the request claims
	// to come from, as GKE's approver did (Compute Engine's getShieldedInstanceIdentity,
	// signingKey.ekPub): an *rsa.PublicKey of 2048 bits or more. That this key is a restricted
	// one in that machine's TPM is the platform's word. If there is no such machine, the error
	// is [attest.NotMember]'s; other errors mean that it could not find out.
	AKPublicKey func(ctx context.Context, claimed csr.GKEIdentity) (crypto.PublicKey, error)
	// Issuers are the issuers of AK certificates, under [tpmcert.ProfileGoogle] or a profile
	// that reads the same extension. The certificate is the one in the request, which must
	// name the machine that the request claims to come from. GKE's nodes sent no certificates
	// above it, so Issuer.Intermediates must hold them.
	Issuers []tpmcert.Issuer
	// SecondProof verifies the secondary time-limited attestation that the Cluster API
	// proposal requires ("Secure providers") where there is no challenge: something other than
	// the statement that shows that this machine is asking now, such as an identity token of
	// the platform.
	SecondProof TimeLimitedVerifier
	// Authorizer decides about membership. Result.Details is a *[Result].
	Authorizer attest.Authorizer

	// SecondProofOptions say how long a second proof may last; the zero value is the strict
	// form. Its clock is Now unless it has its own.
	SecondProofOptions LimitedOptions
	// Now is the clock; nil means time.Now.
	Now func() time.Time
}

// Result is what a request of GKE's dialect shows.
type Result struct {
	// Claimed is the block VM IDENTITY. Its ID, ProjectID, ProjectNumber, Zone and Name are
	// those of the machine whose AK signed, according to the AK certificate or
	// [Config.AKPublicKey].
	Claimed csr.GKEIdentity
	// Machine is gce:<project>/<instance id>.
	Machine attest.Identity
	// AKKey is the AK's public key.
	AKKey crypto.PublicKey
	// Chain is the verified chain of the AK certificate; nil with AKPublicKey.
	Chain []*x509.Certificate
	// Certified is what the statement says.
	Certified *statement.Certified
	// Checked is the request as the policy passed it.
	Checked *csr.Checked
}

// CheckIdentity: the request claims to come from a machine other than the one that its AK
// certificate names, or asks for the name of another machine.
const CheckIdentity Check = "gke-identity"

// NewProvider checks the configuration. An error matches [refusal.CheckConfig] and names the
// field.
func NewProvider(c Config) (*Provider, error) {
	switch {
	case !c.InsecureAllowNoChallenge:
		return nil, refusal.Config("InsecureAllowNoChallenge", "", "it set: the evidence has no challenge")
	case c.SecondProof == nil:
		return nil, refusal.Config("SecondProof", "", "one")
	case (c.AKPublicKey == nil) == (len(c.Issuers) == 0):
		return nil, refusal.Config("AKPublicKey and Issuers", "that are both there, or neither", "one of them")
	case c.SecondProofOptions.MaxWindow < 0 || c.SecondProofOptions.MaxWindow > message.MaxWindow:
		return nil, refusal.Config("SecondProofOptions.MaxWindow", c.SecondProofOptions.MaxWindow.String(), "up to "+message.MaxWindow.String())
	}
	if err := c.Policy.Validate(); err != nil {
		return nil, &Error{Check: refusal.CheckConfig, Got: "an unusable Policy", Err: err}
	}
	p := &Provider{config: c}
	road := attest.OpenRoad{Provider: ProviderName, Road: attest.RoadAK, Identities: []string{"gce"}, Machine: attest.Asserted, Residence: attest.Asserted}
	if typednil.Is(c.Authorizer) {
		return nil, refusal.Config("Authorizer", "", "one")
	}
	if checker, ok := c.Authorizer.(attest.AuthorizerChecker); ok {
		if err := checker.CheckAuthorizer([]attest.OpenRoad{road}); err != nil {
			return nil, &Error{Check: refusal.CheckConfig, Got: "an unusable Authorizer", Err: err}
		}
	}
	p.config.Policy = c.Policy.Clone()
	if len(c.Issuers) > 0 {
		var err error
		if p.aks, err = tpmcert.NewAKVerifier(c.Issuers); err != nil {
			return nil, err
		}
	}
	if p.config.Now == nil {
		p.config.Now = time.Now
	}
	if p.config.SecondProofOptions.Now == nil {
		p.config.SecondProofOptions.Now = p.config.Now
	}
	return p, nil
}

// Registration is what [csr.NewProviders] needs to know about the provider. GKE's requests
// name no version of their data.
func (p *Provider) Registration() csr.Registration {
	r := csr.Registration{Name: ProviderName, Provider: p}
	if p.config.Policy != nil {
		r.SignerNames = slices.Clone(p.config.Policy.SignerNames)
	}
	return r
}

// VerifyClientAttestationData verifies a request for a client certificate. The checks run in
// this order, and the first that fails is the error: encoding, node policy, the claimed
// machine and its AK, the statement (see [statement.VerifyCertify]), the request's signature,
// the second proof, membership.
func (p *Provider) VerifyClientAttestationData(ctx context.Context, parsed *csr.Parsed) (*csr.Attested, error) {
	request := parsed.Request()
	r, err := p.examine(ctx, request)
	if err != nil {
		return nil, err
	}
	found := r.result()
	if err := p.authorize(ctx, r, found, request); err != nil {
		return nil, err
	}
	return &csr.Attested{Checked: r.Checked, Verified: found.Authorization.Verified(r.Checked, r.Machine), Details: found}, nil
}

// VerifyServingAttestationData refuses: GKE's nodes attested client certificates.
func (p *Provider) VerifyServingAttestationData(_ context.Context, request *csr.Parsed) (*csr.Attested, error) {
	if err := csr.CheckPurpose(request.Request(), false); err != nil {
		return nil, err
	}
	return nil, &Error{Check: csr.CheckProviderPurpose, Got: "a request for a client certificate", Want: "serving"}
}

// MachineName is the machine's name in the inventory of the policy.
func (p *Provider) MachineName(_ context.Context, attested *csr.Attested) (string, error) {
	return attested.InventoryName()
}

// examine checks everything except the second proof and membership: its result may be used to
// ask about these, and for nothing else.
func (p *Provider) examine(ctx context.Context, request *csr.Request) (*Result, error) {
	if err := csr.CheckPurpose(request, false); err != nil {
		return nil, err
	}
	bundle, err := csr.ParseGKE(request.Spec.Request)
	if err != nil {
		return nil, err
	}
	r := &Result{Claimed: bundle.Identity, Machine: attest.Identity("gce:" + bundle.Identity.ProjectID + "/" + strconv.FormatUint(bundle.Identity.ID, 10))}
	if r.Checked, err = p.checkPolicy(ctx, request, bundle); err != nil {
		return nil, err
	}
	if r.Checked.NodeName() != bundle.Identity.Name {
		return nil, &Error{Check: CheckIdentity, Got: "instance " + bundle.Identity.Name, Want: "instance " + r.Checked.NodeName() + ", like the node"}
	}
	key := r.Checked.PKCS10().CSR.PublicKey
	public, err := gkePublic(key)
	if err != nil {
		return nil, err
	}
	if err := p.findAK(ctx, r, bundle); err != nil {
		return nil, err
	}
	r.Certified, err = statement.VerifyCertify(
		&statement.CertifyEvidence{Attest: bundle.Attest, Signature: bundle.Signature, Public: public,
			RawSignature: &statement.RawScheme{Alg: tpm2.TPMAlgRSASSA, Hash: tpm2.TPMAlgSHA256}},
		statement.CertifyOptions{AK: statement.AKFromIssuer(r.AKKey, nil), InsecureEmptyQualifyingData: true, Key: key})
	if err != nil {
		return nil, err
	}
	return r, r.Checked.CheckSignature()
}

// checkPolicy checks the request against the node policy, which does not read the dialect.
func (p *Provider) checkPolicy(ctx context.Context, request *csr.Request, bundle *csr.GKEBundle) (*csr.Checked, error) {
	parsed := request.ParsedAs(&csr.Bundle{Request: bundle.Request, Provider: ProviderName + "/v1", Data: bundle.Attest})
	return p.config.Policy.CheckUnsigned(ctx, parsed, request.Spec.SignerName)
}

// findAK asks the platform for the AK, or reads its certificate.
func (p *Provider) findAK(ctx context.Context, r *Result, bundle *csr.GKEBundle) error {
	if ask := p.config.AKPublicKey; ask != nil {
		key, err := ask(ctx, bundle.Identity)
		switch {
		case errors.Is(err, attest.CheckMembership):
			return err
		case err != nil:
			return csr.Retry(err)
		case key == nil:
			return attest.NotMember("machine " + string(r.Machine) + " (the platform gave no key)")
		}
		r.AKKey = key
		return nil
	}
	if bundle.Certificate == nil {
		return &Error{Check: tpmcert.CheckCertificateMissing, Want: "an AK certificate"}
	}
	presented, err := tpmcert.ParseAKPresented([][]byte{bundle.Certificate})
	if err != nil {
		return err
	}
	found, err := p.aks.Verify(ctx, presented, p.config.Now(), nil)
	if err != nil {
		return err
	}
	instance, err := tpmcert.GceInstance(presented.Leaf())
	if err != nil {
		return err
	}
	c := bundle.Identity
	if instance == nil || instance.InstanceID != c.ID || instance.ProjectID != c.ProjectID || instance.ProjectNumber != c.ProjectNumber ||
		instance.Zone != c.Zone || instance.InstanceName != c.Name {
		return &Error{Check: CheckIdentity, Got: "the AK certificate of " + string(found.Machine), Want: "one of " + string(r.Machine) + ", " + c.Zone + ", " + c.Name}
	}
	r.AKKey, r.Chain = found.Key, found.Chain
	return nil
}

// result is what an authorizer is asked about. Everything except the second proof and
// membership has been checked.
func (r *Result) result() *attest.Result {
	found := attest.NewResult(attest.StageAnswer, r.Checked)
	found.Provider, found.Road = ProviderName, attest.RoadAK
	found.Machine, found.MachineStanding = r.Machine, attest.Asserted
	found.ClaimedProviderID = r.Checked.ClaimedProviderID()
	found.TPMResident, found.ResidenceStanding = r.Certified.TPMResident, attest.Asserted
	found.Details = r
	return found
}

// authorize asks for the second proof, and then for membership.
func (p *Provider) authorize(ctx context.Context, r *Result, found *attest.Result, request *csr.Request) error {
	if err := ctx.Err(); err != nil {
		return csr.Retry(err)
	}
	if err := p.checkSecondProof(ctx, r, request); err != nil {
		return err
	}
	return attest.Admit(ctx, p.config.Authorizer, found, request)
}

func (p *Provider) checkSecondProof(ctx context.Context, r *Result, request *csr.Request) error {
	subject := &LimitedSubject{Machine: r.Machine, NodeName: r.Checked.NodeName(), SignerName: r.Checked.SignerName(),
		RequestHash: r.Checked.PKCS10().InfoHash}
	_, err := CheckTimeLimited(ctx, p.config.SecondProof, subject, request, p.config.SecondProofOptions)
	if csr.Decide(err).Verdict == csr.VerdictRetry {
		return csr.Retry(err)
	}
	return err
}

// gkePublic is the public area that GKE's nodes loaded their TLS key with: they did not send
// it. Name algorithm SHA-256, sign and userWithAuth, ECDSA with SHA-256 (cloud-provider-gcp,
// pkg/tpmattest). In what their TPM hashed, coordinates have no leading zero bytes; the check
// of the Name tries every width.
func gkePublic(key crypto.PublicKey) ([]byte, error) {
	ec, ok := key.(*ecdsa.PublicKey)
	if !ok {
		return nil, &Error{Check: statement.CheckKeyMismatch, Got: "a request with another kind of key", Want: "ECDSA, as GKE's nodes have"}
	}
	curve, ok := map[elliptic.Curve]tpm2.TPMECCCurve{elliptic.P256(): tpm2.TPMECCNistP256, elliptic.P384(): tpm2.TPMECCNistP384,
		elliptic.P521(): tpm2.TPMECCNistP521}[ec.Curve]
	point, err := ec.Bytes()
	if !ok || err != nil {
		return nil, &Error{Check: statement.CheckPoint, Got: "a request with a key on another curve", Want: "P-256, P-384 or P-521", Err: err}
	}
	half := len(point) / 2
	null := statement.KeyScheme{Alg: tpm2.TPMAlgNull}
	return (&statement.Public{Type: tpm2.TPMAlgECC, NameAlg: tpm2.TPMAlgSHA256, Attributes: statement.AttributeSign | statement.AttributeUserWithAuth,
		Symmetric: statement.SymmetricScheme{Alg: tpm2.TPMAlgNull}, Scheme: statement.KeyScheme{Alg: tpm2.TPMAlgECDSA, Hash: tpm2.TPMAlgSHA256},
		KDF: null, Curve: curve, X: point[1 : 1+half], Y: point[1+half:]}).Marshal()
}

// Check names one check of a verification; see [refusal.Check].
type Check = refusal.Check

// Error is a refusal: the check that failed, what was found and what was expected; see
// [refusal.Error].
type Error = refusal.Error
