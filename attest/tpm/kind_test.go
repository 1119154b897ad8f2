package tpm

import (
	"context"
	"crypto"
	"crypto/x509"
	"errors"
	"testing"
	"time"

	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/tpm/statement"
	"github.com/nodeattest/nodeattest/attest/tpm/tpmcert"
	"github.com/nodeattest/nodeattest/internal/der"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/internal/testkit/softak"
	"github.com/nodeattest/nodeattest/internal/testkit/tpmlab"
	"github.com/nodeattest/nodeattest/oid"
	"github.com/nodeattest/nodeattest/refusal"
)

// A kind that lacks something is refused when it is made.
func TestKindConfig(t *testing.T) {
	root := tpmlab.Sign(t, nil, "root", nil)
	ek := ekVerifierOf(t, trusting(tpmcert.EKProfileTCG(), root))
	one := tpmcert.Issuer{Roots: []*x509.Certificate{root.Cert}, Profile: tpmcert.ProfileTCG()}
	named, other := one, one
	named.Profile.Identity, other.Profile.Identity = []tpmcert.IdentitySource{tpmcert.OtherNameIdentity{}}, []tpmcert.IdentitySource{tpmcert.OtherNameIdentity{}}
	other.Roots = []*x509.Certificate{tpmlab.Sign(t, nil, "another root", nil).Cert}
	quotes, err := NewPCRPolicy([]statement.PCR{pcrOf(tpm2.TPMAlgSHA256, 7, 1)})
	testkit.NoError(t, err)
	for name, c := range map[string]struct {
		config KindConfig
		roads  []attest.Road // nil for a refusal
	}{
		"no road":                     {KindConfig{}, nil},
		"road AK alone":               {KindConfig{AKIssuers: []tpmcert.Issuer{one}}, []attest.Road{attest.RoadAK}},
		"road EK alone":               {KindConfig{EKs: ek}, []attest.Road{attest.RoadEK}},
		"both roads":                  {KindConfig{AKIssuers: []tpmcert.Issuer{one}, EKs: ek}, []attest.Road{attest.RoadAK, attest.RoadEK}},
		"a zero issuer":               {KindConfig{AKIssuers: []tpmcert.Issuer{{}}}, nil},
		"a zero issuer after another": {KindConfig{AKIssuers: []tpmcert.Issuer{one, {}}}, nil},
		"OtherNames of two roots":     {KindConfig{AKIssuers: []tpmcert.Issuer{named, other}}, nil},
		"a quote policy":              {KindConfig{EKs: ek, QuotePolicy: quotes}, []attest.Road{attest.RoadEK}},
		"one of others":               {KindConfig{EKs: ek, QuotePolicy: &anyBoot{}}, []attest.Road{attest.RoadEK}},
		"a zero one":                  {KindConfig{EKs: ek, QuotePolicy: &PCRPolicy{}}, nil},
		"a nil one":                   {KindConfig{EKs: ek, QuotePolicy: (*PCRPolicy)(nil)}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			k, err := NewKind(c.config)
			if c.roads == nil {
				if !errors.Is(err, refusal.CheckConfig) || k != nil {
					t.Errorf("got %v, want %v", err, refusal.CheckConfig)
				}
				return
			}
			testkit.NoError(t, err)
			d := k.Describe()
			if len(d.Roads) != len(c.roads) {
				t.Fatalf("got %+v", d.Roads)
			}
			for n := range c.roads {
				if d.Roads[n].Road != c.roads[n] {
					t.Errorf("got %v, want %v", d.Roads[n].Road, c.roads[n])
				}
			}
		})
	}
}

// Where a profile names machines by their AKs, the kind says so unless the issuer promises
// one AK a machine; and where two issuers name machines by different fields.
func TestKindSaysWhereIdentitiesAreMany(t *testing.T) {
	root := tpmlab.Sign(t, nil, "root", nil)
	promising, pointer := tpmcert.ProfileTCG(), tpmcert.ProfileAzure()
	google, unmarked, azure, windows := tpmcert.ProfileGoogle(), tpmcert.ProfileGoogle(), tpmcert.ProfileAzure(), tpmcert.ProfileMicrosoftAIK()
	google.Projects, unmarked.EveryCustomer = []string{"project"}, false
	promising.OneAKPerMachine, azure.OneAKPerMachine, windows.OneAKPerMachine = true, true, true
	pointer.Identity = []tpmcert.IdentitySource{&tpmcert.AKIdentity{}}
	for name, c := range map[string]struct {
		profiles []tpmcert.Profile
		many     bool
	}{
		"Google's":                        {[]tpmcert.Profile{google}, false},
		"Google's twice":                  {[]tpmcert.Profile{google, google}, false},
		"Google's, of every customer":     {[]tpmcert.Profile{google, tpmcert.ProfileGoogle()}, true},
		"the same without the mark":       {[]tpmcert.Profile{unmarked}, true},
		"Azure's, of one AK a machine":    {[]tpmcert.Profile{azure}, true},
		"Windows', of one AK a machine":   {[]tpmcert.Profile{windows}, true},
		"one that promises":               {[]tpmcert.Profile{promising}, false},
		"one that does not":               {[]tpmcert.Profile{tpmcert.ProfileAzure()}, true},
		"by different fields":             {[]tpmcert.Profile{google, google, promising}, true},
		"one that does not, by a pointer": {[]tpmcert.Profile{pointer}, true},
	} {
		t.Run(name, func(t *testing.T) {
			var config KindConfig
			for _, p := range c.profiles {
				config.AKIssuers = append(config.AKIssuers, tpmcert.Issuer{Roots: []*x509.Certificate{root.Cert}, Profile: p})
			}
			k, err := NewKind(config)
			testkit.NoError(t, err)
			if why := k.Describe().Roads[0].ManyIdentities; (why != "") != c.many {
				t.Errorf("got %q", why)
			}
		})
	}
}

// The profile of the very issuer that certified the AK decides, and road EK has none.
func TestProfileOfStatement(t *testing.T) {
	strict, sha1, below := &tpmcert.Profile{}, &tpmcert.Profile{InsecureAllowSHA1Signature: true}, &tpmcert.Profile{AllowAKBelowOtherKeys: true}
	for name, c := range map[string]struct {
		road    attest.Road
		details Details
		want    refusal.Check
	}{
		"a primary key":             {attest.RoadAK, Details{SignatureHash: crypto.SHA256, AKPrimary: true, profile: strict}, ""},
		"over SHA-384":              {attest.RoadAK, Details{SignatureHash: crypto.SHA384, AKPrimary: true, profile: strict}, ""},
		"over SHA-1":                {attest.RoadAK, Details{SignatureHash: crypto.SHA1, AKPrimary: true, profile: strict}, statement.CheckSignatureHash},
		"over SHA-1, let through":   {attest.RoadAK, Details{SignatureHash: crypto.SHA1, AKPrimary: true, profile: sha1}, ""},
		"over SHA-1, by another's":  {attest.RoadAK, Details{SignatureHash: crypto.SHA1, AKPrimary: true, profile: below}, statement.CheckSignatureHash},
		"no primary key":            {attest.RoadAK, Details{SignatureHash: crypto.SHA256, profile: strict}, checkAKParent},
		"no primary key, admitted":  {attest.RoadAK, Details{SignatureHash: crypto.SHA256, profile: below}, ""},
		"no primary key, another's": {attest.RoadAK, Details{SignatureHash: crypto.SHA256, profile: sha1}, checkAKParent},
		"on road EK":                {attest.RoadEK, Details{SignatureHash: crypto.SHA256}, ""},
	} {
		t.Run(name, func(t *testing.T) { tpmlab.ExpectCheck(t, c.details.checkProfile(c.road), c.want) })
	}
}

// Faults of an AK certificate that are refused before its chain.
func TestAKCertificatesBeforeTheirChain(t *testing.T) {
	root := tpmlab.CACert("root", "root", tpmlab.NewP256(t))
	issuers := []tpmcert.Issuer{{Roots: []*x509.Certificate{tpmlab.Parsed(t, root.Sign(t, root.Key))}, Profile: tpmcert.ProfileTCG()}}
	_, err := tpmcert.VerifyAKCertificate(issuers, [][]byte{leafUnder(t, root)}, time.Time{})
	if _, refused := errors.AsType[*refusal.Error](err); err == nil || refused {
		t.Errorf("no time: %v", err)
	}
	if _, err := tpmcert.VerifyAKCertificate(nil, [][]byte{leafUnder(t, root)}, tpmlab.Time); err == nil || !errors.Is(err, refusal.CheckConfig) {
		t.Errorf("no issuers: %v", err)
	}
	for name, spki := range tpmlab.StrangeSPKIs() {
		t.Run(name, func(t *testing.T) {
			leaf := tpmlab.AKCert("root", tpmlab.NewP256(t).Public())
			leaf.SPKI, leaf.Algorithm = spki, tpmlab.AlgorithmOf(root.Key.Public())
			_, err := tpmcert.VerifyAKCertificate(issuers, [][]byte{leaf.Sign(t, root.Key)}, tpmlab.Time)
			tpmlab.ExpectCheck(t, err, refusal.Check("tpm-key-strength"))
		})
	}
	t.Run("two manufacturers", func(t *testing.T) {
		leaf := tpmlab.AKCert("root", tpmlab.NewP256(t).Public())
		leaf.Algorithm = tpmlab.AlgorithmOf(root.Key.Public())
		leaf.Extensions[3].Value = tpmlab.Seq(tpmlab.DirectoryName([]tpmlab.Attribute{{ID: oid.TCGAtTPMManufacturer, Value: "id:49465800"}}, []tpmlab.Attribute{{ID: oid.TCGAtTPMManufacturer, Value: "id:414D4400"}}))
		_, err := tpmcert.VerifyAKCertificate(issuers, [][]byte{leaf.Sign(t, root.Key)}, tpmlab.Time)
		tpmlab.ExpectCheck(t, err, refusal.Check("certificate-subject-alt-name"))
	})
}

// Half of the evidence is refused.
func TestHalfOfACertifyStatement(t *testing.T) {
	f := goodCertifyForgery(t, softak.NewAK(tpmlab.P256(), softak.ECDSA), tpmlab.P256b().Public())
	if got, err := statement.VerifyCertify(nil, f.Options); err == nil || got != nil {
		t.Error("no evidence: accepted")
	}
	if got, err := statement.VerifyCertify(&statement.CertifyEvidence{}, statement.CertifyOptions{}); err == nil || got != nil {
		t.Error("no options: accepted")
	}
}

// Each public-key operation is counted before it is done: a spent budget refuses first.
func TestSpentBudgets(t *testing.T) {
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	other := softak.NewAK(tpmlab.P256b(), softak.ECDSA)
	seal := func(ctx context.Context, b *attest.Budget) error {
		_, err := (&hello{evidence: evidence{road: attest.RoadEK}}).Seal(ctx, &attest.Inquiry{Budget: b}, nil)
		return err
	}
	// The statement's signature holds, the quote's does not.
	verify := func(ctx context.Context, b *attest.Budget, quoted bool) error {
		a := quotedAnswer(t, func(f *quoteForgery) { f.ak = &softak.AK{Private: other.Private, Public: f.ak.Public} })
		covers := func(string, []byte) error { return nil }
		a.in.Covers = func([]byte) error { return nil }
		certify := goodCertifyForgery(t, softak.NewAK(tpmlab.P256(), softak.ECDSA), tpmlab.P256b().Public())
		a.in.Options.Key = certify.Options.Key
		testkit.NoError(t, a.in.Parse(certify.Evidence(t), nil))
		testkit.NoError(t, a.in.CheckBeforeSignature())
		if quoted {
			testkit.NoError(t, a.checkQuote(covers))
		}
		_, err := a.Verify(ctx, &attest.Inquiry{Budget: b})
		return err
	}
	alone := func(ctx context.Context, b *attest.Budget) error { return verify(ctx, b, false) }
	both := func(ctx context.Context, b *attest.Budget) error { return verify(ctx, b, true) }
	for name, c := range map[string]struct {
		run    func(context.Context, *attest.Budget) error
		ctx    context.Context
		budget *attest.Budget
		want   error
	}{
		"no credential":                {seal, t.Context(), attest.NewBudget(0), attest.CheckBudget},
		"a credential too late":        {seal, cancelled, attest.NewBudget(1), refusal.ErrRetry},
		"no signature":                 {alone, t.Context(), attest.NewBudget(0), attest.CheckBudget},
		"the statement's alone":        {both, t.Context(), attest.NewBudget(1), attest.CheckBudget},
		"the quote's too":              {both, t.Context(), attest.NewBudget(2), refusal.Check("tpm-signature")},
		"signatures that are too late": {alone, cancelled, attest.NewBudget(2), refusal.ErrRetry},
	} {
		t.Run(name, func(t *testing.T) {
			if err := c.run(c.ctx, c.budget); !errors.Is(err, c.want) {
				t.Errorf("got %v, want %v", err, c.want)
			}
		})
	}
}

// Each part of a certify statement is named by its refusal.
func TestFieldsOfCertifyStatement(t *testing.T) {
	a, none, over := tpmlab.Octets([]byte{1}), tpmlab.Octets(nil), tpmlab.Octets(make([]byte, der.MaxPublicSize+1))
	for name, c := range map[string]struct {
		der []byte
		bad string
	}{
		"no list":             {a, "certify frame"},
		"nothing":             {tpmlab.Seq(), "certify tpmSAttest"},
		"an empty attest":     {tpmlab.Seq(none, a, a), "certify tpmSAttest"},
		"a longer attest":     {tpmlab.Seq(over, a, a), "certify tpmSAttest"},
		"no signature":        {tpmlab.Seq(a), "certify signature"},
		"an empty signature":  {tpmlab.Seq(a, none, a), "certify signature"},
		"a longer signature":  {tpmlab.Seq(a, over, a), "certify signature"},
		"an empty public":     {tpmlab.Seq(a, a, none), "certify tpmTPublic"},
		"a longer public":     {tpmlab.Seq(a, a, over), "certify tpmTPublic"},
		"an empty one, again": {tpmlab.Seq(a, a, none, a), "certify tpmTPublic"},
		"something after":     {tpmlab.Seq(a, a, a, a), "certify frame"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := statement.ParseTCGAttestCertify(c.der)
			expectField(t, err, c.bad)
		})
	}
}
