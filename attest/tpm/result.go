package tpm

import (
	"crypto"
	"crypto/x509"
	"encoding/hex"
	"fmt"
	"slices"
	"time"

	"github.com/google/go-tpm/tpm2"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/refusal"
)

// Result is what a verification found out about a node.
type Result struct {
	// Stage says whether the node has answered a challenge yet.
	Stage Stage
	// Road is the road that the trust went.
	Road Road
	// Machine is the machine's identity. MachineKey is SHA-256 of the canonical
	// SubjectPublicKeyInfo of the key that carries the trust: on [RoadAK] the AK's, on
	// [RoadEK] the EK's.
	Machine    Identity
	MachineKey [HashSize]byte
	// NodeName, SignerName and Purpose are what the request asks for, checked by
	// the policy.
	NodeName   string
	SignerName string
	Purpose    csr.Purpose
	// RequestHash is SHA-256 of the CertificationRequestInfo.
	RequestHash [HashSize]byte
	// ClaimedProviderID is the provider ID in the request, empty where there is
	// none. It is the node's claim; Authorization.ProviderID is what was vouched
	// for.
	ClaimedProviderID string
	// Authorization is what the [Authorizer] vouched for.
	Authorization Authorization

	// EK is what is known of the EK on [RoadEK], nil on [RoadAK].
	EK *EKFacts
	// Profile is the name of the issuer's profile, empty where an EK is trusted
	// without its certificate.
	Profile string
	// Chain is the verified chain, the certificate of the AK (on [RoadEK]: of the EK)
	// first and the root last. It is nil where an EK is trusted without its
	// certificate.
	Chain []*x509.Certificate
	// Directory is the manufacturer, model and version of the TPM where the
	// certificate states them; never an identity.
	Directory DirectoryName
	// OneAKPerMachine is the issuer's promise of that name ([Profile]).
	OneAKPerMachine bool

	// AKPublic is the AK's TPMT_PUBLIC and AKName its TPM Name, as the node sent it. On
	// [RoadAK] it is consistent with the certificate; on [RoadEK] it is proven at
	// [StageAnswer].
	AKPublic *Public
	AKName   []byte
	// AKPrimary says that the AK is a primary key of the endorsement, owner or
	// platform hierarchy, by the statement's qualified signer, so that every bit of
	// AKPublic is what the AK's TPM knows. It is unset at [StageHello].
	AKPrimary bool
	// Key is the certified key, KeyAttributes its attributes. At [StageHello]
	// both are unset.
	Key           crypto.PublicKey
	KeyAttributes Attributes
	// TPMResident says that the certified key lives in the TPM: fixedTPM and
	// fixedParent, and a qualified name that differs from its Name. A software key
	// that was loaded into the TPM to be certified is not resident.
	TPMResident bool
	// SignatureHash is the hash of the statement's signature.
	SignatureHash crypto.Hash
	// Clock is what the TPM said of its clock, nil at [StageHello].
	Clock *Clock
	// Measured is the verified quote and the event log as it came; nil where the answer
	// carried no quote, and at [StageHello].
	Measured *Measured
	// IssuedAt and NotAfter are the challenge's window, zero at [StageHello].
	IssuedAt, NotAfter time.Time

	checked  *csr.Checked
	profile  *Profile
	pending  *pending      // of the decision about membership, nil before it
	verified *csr.Verified // nil until the authorizer has decided about an answer
}

// Checked is the request as the policy passed it, for [csr.CA.Issue].
func (r *Result) Checked() *csr.Checked { return r.checked }

// Clock is clockInfo and firmwareVersion of a statement (TPM 2.0 Part 2, section
// 10.11.1). A TPM obfuscates ResetCount, RestartCount and FirmwareVersion for
// keys outside the endorsement and platform hierarchies.
type Clock struct {
	// Milliseconds is the TPM's clock.
	Milliseconds uint64
	ResetCount   uint32
	RestartCount uint32
	// Safe is false if the clock may have stepped back.
	Safe            bool
	FirmwareVersion uint64
	// Plain says that the counts and the firmware version are the true ones: the
	// statement's qualified signer is the AK as a primary key of the endorsement
	// hierarchy. Otherwise they are good for comparison with others of the same
	// AK only.
	Plain bool
}

// fillStatement takes over what the statement says.
func (r *Result) fillStatement(in *certifyInput) {
	r.AKName = in.akName
	r.Key = in.key
	r.KeyAttributes = in.public.Attributes
	r.TPMResident = in.tpmResident()
	r.SignatureHash = hashOf(in.sig.Hash)
	plain := in.signedByPrimary(tpm2.TPMRHEndorsement)
	r.AKPrimary = plain || in.signedByPrimary(tpm2.TPMRHOwner) || in.signedByPrimary(tpm2.TPMRHPlatform)
	r.Clock = &Clock{
		Milliseconds:    in.attest.Clock,
		ResetCount:      in.attest.ResetCount,
		RestartCount:    in.attest.RestartCount,
		Safe:            in.attest.Safe,
		FirmwareVersion: in.attest.FirmwareVersion,
		Plain:           plain,
	}
}

// Standing says how far a fact can be relied on.
type Standing string

const (
	// Proven by a signature over this challenge.
	Proven Standing = "proven"
	// Asserted by the issuer of the certificate, or by who else vouches for the EK.
	Asserted Standing = "asserted"
	// Vouched for by the control plane's own Authorizer.
	Vouched Standing = "vouched"
	// Claimed by the node and checked against nothing.
	Claimed Standing = "claimed"
)

// Fact is one statement about a node with its standing: Name says what it is
// about, Value what it says, both for people.
type Fact struct {
	Standing Standing
	Name     string
	Value    string
}

// String returns the fact in one line, for example "proven: request 3f0a…".
func (f Fact) String() string { return string(f.Standing) + ": " + f.Name + " " + f.Value }

// Facts lists what is known, with its standing, in a fixed order: the difference
// between what was proven, what an issuer asserts, what the authorizer vouched
// for and what the node claims.
func (r *Result) Facts() []Fact {
	facts := r.machineFacts()
	if r.Directory.Manufacturer != "" {
		facts = append(facts, Fact{Asserted, "TPM model", fmt.Sprintf("%s %s %s", r.Directory.Manufacturer, r.Directory.Model, r.Directory.Version)})
	}
	if r.Stage != StageAnswer {
		return append(facts, r.claims()...)
	}
	facts = append(facts,
		Fact{Proven, "challenge", "of " + r.IssuedAt.UTC().Format(time.RFC3339) + ", answered by the AK"},
		Fact{Proven, "request", hex.EncodeToString(r.RequestHash[:])})
	// The AK says where the key lives. That the AK tells the truth is its issuer's word
	// on road AK; on road EK it follows from its attributes.
	standing, residence := Asserted, "in software"
	if r.Road == RoadEK {
		standing = Proven
	}
	if r.TPMResident {
		residence = "in the TPM"
	}
	facts = append(facts,
		Fact{standing, "key residence", residence + " (" + r.KeyAttributes.String() + ")"})
	facts = append(facts, r.measuredFacts(standing)...)
	facts = append(facts, Fact{Vouched, "node", r.NodeName})
	if id := r.Authorization.ProviderID; id != "" {
		facts = append(facts, Fact{Vouched, "provider ID", id})
	}
	return append(facts, r.claims()...)
}

// machineFacts says what carries the trust.
func (r *Result) machineFacts() []Fact {
	if r.Road == RoadAK {
		return []Fact{
			{Asserted, "machine", string(r.Machine)},
			{Asserted, "restricted AK in a TPM", "by " + r.issuer() + " (" + r.Profile + ")"},
		}
	}
	vouches := "by " + string(r.EK.Source)
	if len(r.Chain) != 0 {
		vouches = "by " + r.issuer() + " (" + r.Profile + ")"
	}
	tpm := Fact{Asserted, "EK in a TPM", vouches}
	if r.Stage != StageAnswer { // an EK certificate is public
		return []Fact{{Claimed, "machine", string(r.Machine)}, tpm}
	}
	return []Fact{
		{Proven, "machine", string(r.Machine)},
		tpm,
		{Proven, "restricted AK", "in the TPM of that EK (" + r.AKPublic.Attributes.String() + ")"},
	}
}

func (r *Result) issuer() string {
	if len(r.Chain) == 0 {
		return refusal.OrNothing("")
	}
	return r.Chain[0].Issuer.String()
}

func (r *Result) claims() []Fact {
	if r.ClaimedProviderID == "" || r.ClaimedProviderID == r.Authorization.ProviderID {
		return nil
	}
	return []Fact{{Claimed, "provider ID", r.ClaimedProviderID}}
}

// Verified returns what the issuer of the certificate needs to know. It returns nil
// until the [Authorizer] has decided, and so inside of it, at [StageHello], since
// nothing may be issued for a hello, and for a Result that no [Verifier] made. Changing
// the Result changes nothing in it.
func (r *Result) Verified() *csr.Verified {
	if r.verified == nil {
		return nil
	}
	v := *r.verified
	v.DNSNames, v.IPAddresses = slices.Clone(v.DNSNames), slices.Clone(v.IPAddresses)
	return &v
}
