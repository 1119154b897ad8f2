package tpm

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/rsa"
	"crypto/x509"
	"fmt"
	"slices"
	"strconv"

	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/tpm/statement"
	"github.com/nodeattest/nodeattest/attest/tpm/tpmcert"
	"github.com/nodeattest/nodeattest/internal/tpmwire"
	"github.com/nodeattest/nodeattest/oid"
	"github.com/nodeattest/nodeattest/refusal"
)

// Details holds a TPM's evidence in addition to the facts of an [attest.Result].
// [DetailsOf] returns it.
type Details struct {
	// EK holds the facts about the EK on [attest.RoadEK], nil on [attest.RoadAK].
	EK *tpmcert.EKFacts
	// Profile is the name of the issuer's profile, empty if an EK is trusted without its
	// certificate.
	Profile string
	// Chain is the verified chain, the certificate of the AK (on [attest.RoadEK], of the EK)
	// first and the root last. It is nil if an EK is trusted without its certificate.
	Chain []*x509.Certificate
	// Directory is the manufacturer, model and version of the TPM, where the certificate
	// states them. It is never an identity.
	Directory tpmcert.DirectoryName

	// AKPublic is the AK's TPMT_PUBLIC as the node sent it, and AKName its TPM Name. On
	// [attest.RoadAK] it is consistent with the certificate; on [attest.RoadEK] it is proven
	// at [attest.StageAnswer].
	AKPublic *statement.Public
	AKName   []byte
	// AKPrimary says that the AK is a primary key of the endorsement, owner or platform
	// hierarchy, by the statement's qualified signer, so that every bit of AKPublic is what
	// the AK's TPM knows. This field and those below are unset at [attest.StageHello].
	AKPrimary bool
	// KeyAttributes are the certified key's attributes.
	KeyAttributes statement.Attributes
	// SignatureHash is the hash of the statement's signature.
	SignatureHash crypto.Hash
	// Clock is the TPM's clock, as the statement has it.
	Clock *Clock
	// Measured is the verified quote, and the event log as received; nil if the answer
	// carried no quote.
	Measured *Measured

	profile    *tpmcert.Profile
	providerID string
	resident   bool
	values     map[string][]byte
}

// ProviderID is the provider ID that the verified certificate of the AK or the EK states
// ([oid.KubernetesNodeProviderIdentifier]), "" if it states none. For the machine that Google's
// names it is gce://<project ID>/<zone>/<instance name>.
func (d *Details) ProviderID() string { return d.providerID }

// EndorsementKey is the verified EK, an *rsa.PublicKey or *ecdsa.PublicKey; nil on [attest.RoadAK].
func (d *Details) EndorsementKey() crypto.PublicKey {
	if d.EK == nil {
		return nil
	}
	return d.EK.PublicKey
}

// readProviderID reads it. A malformed provider ID is refused, whatever the issuer's profile: it
// could not be compared with the inventory.
func (d *Details) readProviderID() (err error) {
	if len(d.Chain) == 0 {
		return nil
	}
	for _, e := range d.Chain[0].Extensions {
		if !oid.KubernetesNodeProviderIdentifier.Equal(e.Id) {
			continue
		}
		m, bad := oid.ParseGCEInstance(e.Value)
		if bad == nil {
			d.providerID = "gce://" + m.ProjectID + "/" + m.Zone + "/" + m.InstanceName
		} else if d.providerID, err = oid.UnmarshalProviderID(e.Value); err != nil {
			return &refusal.Error{Check: checkStatedProviderID, Got: "an extension " + oid.KubernetesNodeProviderIdentifier.Name() + " that states no provider ID", Want: "one, or Google's instance identity", Err: bad}
		}
	}
	return nil
}

// checkStatedProviderID: a certificate states a provider ID that cannot be read.
const checkStatedProviderID refusal.Check = "stated-provider-id"

// DetailsOf returns the details of a result of this kind, or nil for a result of another
// kind.
func DetailsOf(r *attest.Result) *Details {
	d, _ := r.Details.(*Details)
	return d
}

// Clock holds clockInfo and firmwareVersion of a statement (TPM 2.0 Part 2, section 10.11.1).
// A TPM obfuscates ResetCount, RestartCount and FirmwareVersion for keys outside the
// endorsement and platform hierarchies.
type Clock struct {
	// Milliseconds is the TPM's clock.
	Milliseconds uint64
	ResetCount   uint32
	RestartCount uint32
	// Safe is false if the clock may have stepped back.
	Safe            bool
	FirmwareVersion uint64
	// Plain says that the counts and the firmware version are the true ones: the statement's
	// qualified signer is the AK as a primary key of the endorsement hierarchy. Otherwise
	// they are useful only for comparison with others of the same AK.
	Plain bool
}

// fillStatement copies the fields of the certify statement.
func (d *Details) fillStatement(in *statement.CertifyInput) {
	d.AKName = in.AKName
	d.KeyAttributes = in.Public.Attributes
	d.resident = in.TPMResident()
	d.SignatureHash = tpmwire.HashOf(in.Sig.Hash)
	plain := in.SignedByPrimary(tpm2.TPMRHEndorsement)
	d.AKPrimary = plain || in.SignedByPrimary(tpm2.TPMRHOwner) || in.SignedByPrimary(tpm2.TPMRHPlatform)
	d.Clock = &Clock{
		Milliseconds:    in.Attest.Clock,
		ResetCount:      in.Attest.ResetCount,
		RestartCount:    in.Attest.RestartCount,
		Safe:            in.Attest.Safe,
		FirmwareVersion: in.Attest.FirmwareVersion,
		Plain:           plain,
	}
	d.values[labelCertify] = in.Attest.ExtraData
}

// fillQuote copies the verified quote, if there is one.
func (d *Details) fillQuote(a *answer) {
	if a.quoted == nil {
		return
	}
	trust := statement.AKByIssuer
	if a.road == attest.RoadEK {
		trust = statement.AKByCredential
	}
	d.Measured = &Measured{Quote: a.quoted.Quoted(&statement.AK{Trust: trust}), EventLog: a.eventLog}
	d.values[labelQuote] = a.quoted.Attest.ExtraData
}

// findings returns the part that the join needs. The AK says where the key lives. That the AK
// tells the truth is its issuer's word on road AK, and follows from its attributes on road
// EK.
func (d *Details) findings(road attest.Road, machine attest.Identity, kind *Kind) *attest.Findings {
	standing := attest.Asserted
	f := &attest.Findings{Machine: machine, Values: d.values, Details: d}
	if d.profile != nil && machine.Kind() == tpmcert.AKIdentityKind && !d.profile.OneAKPerMachine {
		f.ManyIdentities = manyAKs(d.profile)
	}
	if road == attest.RoadAK && kind.manyNames != "" {
		f.ManyIdentities = kind.manyNames
	}
	if d.everyCustomers(kind) {
		f.ManyIdentities = everyCustomer(d.Profile)
	}
	if road == attest.RoadEK {
		standing = attest.Proven
		f.IdentityClass = keyAlgorithm(d.EK.PublicKey)
	}
	f.MachineStanding = standing
	f.Facts = func() []attest.Fact { return d.facts(road, standing) }
	if d.Clock != nil {
		f.TPMResident, f.ResidenceStanding, f.Residence = d.resident, standing, d.residence
	}
	return f
}

func (d *Details) residence() string {
	where := "in software"
	if d.resident {
		where = "in the TPM"
	}
	return where + " (" + d.KeyAttributes.String() + ")"
}

// facts returns the facts that the trust rests on, for human readers.
func (d *Details) facts(road attest.Road, standing attest.Standing) []attest.Fact {
	name, by := "restricted AK in a TPM", ""
	if road == attest.RoadEK {
		name, by = "EK in a TPM", string(d.EK.Source)
	}
	if len(d.Chain) != 0 {
		by = d.Chain[0].Issuer.String() + " (" + d.Profile + ")"
	}
	facts := []attest.Fact{{Standing: attest.Asserted, Name: name, Value: "by " + by}}
	if road == attest.RoadEK && d.Clock != nil {
		facts = append(facts, attest.Fact{Standing: attest.Proven, Name: "restricted AK", Value: "in the TPM of that EK (" + d.AKPublic.Attributes.String() + ")"})
	}
	if d.Directory.Manufacturer != "" {
		facts = append(facts, attest.Fact{Standing: attest.Asserted, Name: "TPM model",
			Value: fmt.Sprintf("%s %s %s", d.Directory.Manufacturer, d.Directory.Model, d.Directory.Version)})
	}
	if d.Measured != nil {
		for _, p := range d.Measured.Quote.PCRs() {
			facts = append(facts, attest.Fact{Standing: standing, Name: "PCR", Value: p.String()})
		}
	}
	return facts
}

// manyAKs says why AKs do not count machines under a profile.
func manyAKs(p *tpmcert.Profile) string {
	return "profile " + p.Name + ", which names machines by their AK and does not promise one AK a machine (OneAKPerMachine)"
}

// everyCustomers reports whether the profile's issuer certifies the machines of every customer of a
// platform, and the profile does not narrow them to the operator's. An issuer that names machines
// as Google does counts as one, with a mark or without.
func everyCustomers(p *tpmcert.Profile) bool {
	google := func(s tpmcert.IdentitySource) bool { return s.Kind() == (tpmcert.GCEIdentity{}).Kind() }
	return len(p.Projects) == 0 && (p.EveryCustomer || slices.ContainsFunc(p.Identity, google))
}

// everyCustomers reports it of the issuer of this machine's certificate. Of EKs only the profile's name
// is known.
func (d *Details) everyCustomers(kind *Kind) bool {
	if d.profile != nil {
		return everyCustomers(d.profile)
	}
	return len(d.Chain) > 0 && slices.ContainsFunc(kind.eks.Profiles(), func(p tpmcert.EKProfile) bool {
		return p.Name == d.Profile && p.EveryCustomer && len(p.Projects) == 0
	})
}

// everyCustomer says why trust on first use accepts no machine under a profile.
func everyCustomer(profile string) string {
	return "profile " + profile + ", whose issuer certifies the machines of every customer of a platform (EveryCustomer), and which no Projects narrow"
}

// keyAlgorithm names the algorithm of an EK, for example "RSA-2048" or "P-256"; "" for kinds
// that no EK has.
func keyAlgorithm(key crypto.PublicKey) string {
	switch k := key.(type) {
	case *rsa.PublicKey:
		return "RSA-" + strconv.Itoa(k.N.BitLen())
	case *ecdsa.PublicKey:
		return k.Curve.Params().Name
	}
	return ""
}

// checkAKParent: the AK is not a primary key, and its issuer's profile does not admit others;
// or the public area that was sent is not the AK's own.
const checkAKParent refusal.Check = "ak-parent"

// checkProfile checks against the profile of the issuer that certified the AK. The
// statement's checks considered only whether any issuer allows SHA-1. On road EK there is no
// profile to check: SHA-1 was refused, and the credential names the AK wherever in the TPM it
// is.
func (d *Details) checkProfile(road attest.Road) error {
	switch {
	case road == attest.RoadEK:
	case d.SignatureHash == crypto.SHA1 && !d.profile.InsecureAllowSHA1Signature:
		return &refusal.Error{Check: statement.CheckSignatureHash, Got: "SHA1", Want: "SHA256, SHA384 or SHA512, by profile " + d.Profile}
	case !d.AKPrimary && !d.profile.AllowAKBelowOtherKeys:
		return &refusal.Error{Check: checkAKParent, Got: "a qualified signer that is not the AK as a primary key",
			Want: "one, by profile " + d.Profile}
	}
	return nil
}
