package tpm

import (
	"context"
	"crypto"
	"crypto/elliptic"
	"crypto/x509"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/oid"
)

// The window and the age of an answer, at each end and one beyond.
func TestEndsOfTimes(t *testing.T) {
	issued := chainTime
	for name, c := range map[string]struct {
		window       int64         // seconds
		created, now time.Duration // since issuedAt
		want         Check
	}{
		"no time at all":         {0, 0, 0, ""},
		"the longest window":     {3600, time.Hour, time.Hour, ""},
		"a second longer":        {3601, 0, 0, CheckBindingWindow},
		"an end before":          {-1, 0, 0, CheckBindingWindow},
		"as early as may be":     {60, -time.Minute, 0, ""},
		"a nanosecond earlier":   {60, -time.Minute - 1, 0, CheckAnswerEarly},
		"as late as may be":      {60, time.Minute, time.Minute, ""},
		"a nanosecond later":     {60, time.Minute + 1, time.Minute + 1, CheckAnswerLate},
		"as old as may be":       {60, 0, MaxAnswerAge, ""},
		"a nanosecond older":     {60, 0, MaxAnswerAge + 1, CheckAnswerOld},
		"a nanosecond to come":   {60, 1, 0, CheckFuture},
		"created when looked at": {60, 1, 1, ""},
	} {
		t.Run(name, func(t *testing.T) {
			b := &Binding{IssuedAt: issued.Unix(), NotAfter: issued.Unix() + c.window}
			request := &csr.Request{Metadata: csr.Metadata{CreationTimestamp: issued.Add(c.created)}}
			checkOutcome(t, checkTimes(b, request, issued.Add(c.now)), c.want)
		})
	}
}

// The profile of the very issuer that certified the AK decides, and road EK has none.
func TestProfileOfStatement(t *testing.T) {
	strict, sha1, below := &Profile{}, &Profile{InsecureAllowSHA1Signature: true}, &Profile{AllowAKBelowOtherKeys: true}
	for name, c := range map[string]struct {
		result Result
		want   Check
	}{
		"a primary key":             {Result{Road: RoadAK, SignatureHash: crypto.SHA256, AKPrimary: true, profile: strict}, ""},
		"over SHA-384":              {Result{Road: RoadAK, SignatureHash: crypto.SHA384, AKPrimary: true, profile: strict}, ""},
		"over SHA-1":                {Result{Road: RoadAK, SignatureHash: crypto.SHA1, AKPrimary: true, profile: strict}, CheckSignatureHash},
		"over SHA-1, let through":   {Result{Road: RoadAK, SignatureHash: crypto.SHA1, AKPrimary: true, profile: sha1}, ""},
		"over SHA-1, by another's":  {Result{Road: RoadAK, SignatureHash: crypto.SHA1, AKPrimary: true, profile: below}, CheckSignatureHash},
		"no primary key":            {Result{Road: RoadAK, SignatureHash: crypto.SHA256, profile: strict}, CheckAKParent},
		"no primary key, admitted":  {Result{Road: RoadAK, SignatureHash: crypto.SHA256, profile: below}, ""},
		"no primary key, another's": {Result{Road: RoadAK, SignatureHash: crypto.SHA256, profile: sha1}, CheckAKParent},
		"on road EK":                {Result{Road: RoadEK, SignatureHash: crypto.SHA256}, ""},
	} {
		t.Run(name, func(t *testing.T) { checkOutcome(t, checkProfileOfStatement(&c.result), c.want) })
	}
}

// saying is a source of identities that always says the same.
type saying struct {
	id  Identity
	err error
}

func (s saying) Identify(*x509.Certificate) (Identity, error) { return s.id, s.err }

// The first identity counts, a source that fails is never passed over, and an identity
// has a kind and a name.
func TestSourcesOfIdentity(t *testing.T) {
	down := errors.New("down")
	for name, c := range map[string]struct {
		sources []IdentitySource
		want    Check
		machine Identity
	}{
		"the first":               {[]IdentitySource{saying{"a:1", nil}, saying{"b:2", nil}}, "", "a:1"},
		"the second":              {[]IdentitySource{saying{}, saying{"b:2", nil}, saying{"", down}}, "", "b:2"},
		"none":                    {[]IdentitySource{saying{}}, CheckIdentity, ""},
		"one that fails":          {[]IdentitySource{saying{"", down}, AKIdentity{}}, CheckIdentity, ""},
		"fails, with an identity": {[]IdentitySource{saying{"a:1", down}, AKIdentity{}}, CheckIdentity, ""},
		"fails with its check":    {[]IdentitySource{saying{"", NotMember("gone")}, AKIdentity{}}, CheckMembership, ""},
		"no colon":                {[]IdentitySource{saying{"a", nil}}, CheckIdentity, ""},
		"no kind":                 {[]IdentitySource{saying{":a", nil}}, CheckIdentity, ""},
		"no name":                 {[]IdentitySource{saying{"a:", nil}}, CheckIdentity, ""},
		"a colon":                 {[]IdentitySource{saying{":", nil}}, CheckIdentity, ""},
		"two colons":              {[]IdentitySource{saying{"a:b:c", nil}}, "", "a:b:c"},
	} {
		t.Run(name, func(t *testing.T) {
			root := LabCA("root", "root", newTestKey(t))
			profile := ProfileTCG()
			profile.Identity = c.sources
			issuers := []Issuer{{Roots: []*x509.Certificate{labParsed(t, root.Sign(t, root.Key))}, Profile: profile}}
			got, err := VerifyAKCertificate(issuers, [][]byte{leafUnder(t, root)}, chainTime)
			checkOutcome(t, err, c.want)
			if err == nil && got.Machine != c.machine {
				t.Errorf("machine %s", got.Machine)
			}
		})
	}
}

// What is refused of an AK certificate before its chain.
func TestAKCertificatesBeforeTheirChain(t *testing.T) {
	root := LabCA("root", "root", newTestKey(t))
	issuers := []Issuer{{Roots: []*x509.Certificate{labParsed(t, root.Sign(t, root.Key))}, Profile: ProfileTCG()}}
	if _, err := VerifyAKCertificate(issuers, [][]byte{leafUnder(t, root)}, time.Time{}); err == nil || hasCheck(err) {
		t.Errorf("no time: %v", err)
	}
	if _, err := VerifyAKCertificate(nil, [][]byte{leafUnder(t, root)}, chainTime); err == nil || hasCheck(err) {
		t.Errorf("no issuers: %v", err)
	}
	for name, spki := range labStrangeSPKIs() {
		t.Run(name, func(t *testing.T) {
			leaf := LabAK("root", newTestKey(t).Public())
			leaf.SPKI, leaf.Algorithm = spki, labAlgorithm(root.Key.Public())
			_, err := VerifyAKCertificate(issuers, [][]byte{leaf.Sign(t, root.Key)}, chainTime)
			checkOutcome(t, err, CheckWeakKey)
		})
	}
	t.Run("two manufacturers", func(t *testing.T) {
		leaf := LabAK("root", newTestKey(t).Public())
		leaf.Algorithm = labAlgorithm(root.Key.Public())
		leaf.Extensions[3].Value = sanOf(directoryName([]attribute{{oid.TCGAtTPMManufacturer, "id:49465800"}}, []attribute{{oid.TCGAtTPMManufacturer, "id:414D4400"}}))
		_, err := VerifyAKCertificate(issuers, [][]byte{leaf.Sign(t, root.Key)}, chainTime)
		checkOutcome(t, err, CheckSubjectAltName)
	})
}

// An authorizer's own refusal stays as it is, one that it wraps becomes one that
// csr.Decide denies, and everything else is tried again.
func TestErrorsOfAuthorizers(t *testing.T) {
	gone := NotMember("gone")
	other := &Error{Check: CheckProviderID, Err: CheckMembership}
	for name, c := range map[string]struct {
		err         error
		same, retry bool
	}{
		"its own":          {gone, true, false},
		"its own, wrapped": {errors.Join(errors.New("db"), gone), true, false},
		"the bare check":   {CheckMembership, false, false},
		"under another":    {other, false, false},
		"none":             {errors.New("db"), false, true},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := (&membership{}).decide(t.Context(), func(context.Context) (*Authorization, error) { return nil, c.err })
			if (err == c.err || err.Error() == c.err.Error()) != c.same || errors.Is(err, csr.ErrRetry) != c.retry {
				t.Errorf("got %v", err)
			}
			if want := csr.VerdictDeny; !c.retry && csr.Decide(err).Verdict != want {
				t.Errorf("the decision is %v", csr.Decide(err))
			}
		})
	}
	if StageHello.String() != "hello" || StageAnswer.String() != "answer" || !strings.HasPrefix(Stage(0).String(), "stage") {
		t.Error("names of stages")
	}
}

// GKE's nodes have keys on three curves, and their area is made for no other.
func TestPublicAreasOfGKE(t *testing.T) {
	for name, c := range map[string]struct {
		key  crypto.PublicKey
		want Check
	}{
		"P-256": {ecdsaKey(t, elliptic.P256()).Public(), ""},
		"P-384": {ecdsaKey(t, elliptic.P384()).Public(), ""},
		"P-521": {ecdsaKey(t, elliptic.P521()).Public(), ""},
		"P-224": {ecdsaKey(t, elliptic.P224()).Public(), CheckPoint},
		"RSA":   {rsaTestKeys()[0].Public(), CheckKeyMismatch},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := gkePublic(c.key)
			checkOutcome(t, err, c.want)
		})
	}
}

// Half of what is to be verified is nothing.
func TestHalfOfACertifyStatement(t *testing.T) {
	f := goodForgery(t, newForger(t, softwareKeys.p256(), schemeECDSA), softwareKeys.p256b().Public())
	if got, err := VerifyCertify(nil, &f.options); err == nil || got != nil {
		t.Error("no evidence: accepted")
	}
	if got, err := VerifyCertify(&CertifyEvidence{}, nil); err == nil || got != nil {
		t.Error("no options: accepted")
	}
}
