package gke

import (
	"bytes"
	"context"
	"crypto"
	"errors"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/internal/message"

	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/tpm/statement"
	"github.com/nodeattest/nodeattest/attest/tpm/tpmcert"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/tpmsim"
)

func TestGKE(t *testing.T) {
	for _, withCertificate := range []bool{false, true} {
		f := newGKEFixture(t, withCertificate)
		p, request := f.provider(t), f.file(t)
		a, err := p.VerifyClientAttestationData(t.Context(), request.Parsed())
		if err != nil {
			t.Fatalf("certificate %t: %v", withCertificate, err)
		}
		if a.Verified.Machine != "gce:tpmsim-project/4242424242424242424" || a.Verified.NodeName != gkeNode || a.Verified.ProviderID == "" {
			t.Errorf("got %+v", a.Verified)
		}
		providers, err := csr.NewProviders(csr.ProvidersConfig{Providers: []csr.Registration{p.Registration()}, AuthorizedAttestors: []string{ProviderName}, BuiltInClient: []string{ProviderName}})
		if err != nil {
			t.Fatal(err)
		}
		for _, signer := range p.config.Policy.SignerNames {
			request.Spec.SignerName = signer
			accepted, err := providers.Verify(t.Context(), request)
			if err != nil {
				t.Fatalf("%s: %v", signer, err)
			}
			if accepted.MachineName != "machine-of-"+gkeNode {
				t.Errorf("machine %q", accepted.MachineName)
			}
		}
		r, err := p.examine(t.Context(), request)
		if err != nil {
			t.Fatal(err)
		}
		if r.Certified.TPMResident || (r.Chain != nil) != withCertificate || r.Claimed.Name != gkeNode {
			t.Errorf("got %+v", r)
		}
		if !withCertificate && (len(f.asked) == 0 || f.asked[0].ID != f.instance.InstanceID) {
			t.Errorf("asked %v", f.asked)
		}
	}
}

// TestGKEUnpadded: what the TPM hashed lacks the zero byte of a coordinate.
func TestGKEUnpadded(t *testing.T) {
	f := newGKEFixture(t, true)
	f.key = unpaddedKey(t)
	var err error
	if f.request, err = csr.Create(csr.PurposeClient, f.key, gkeNode, csr.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, area := range []*statement.Public{gkeArea(t, &f.key.PublicKey), publicArea(t, &f.key.PublicKey, testSoftwareAttributes, schemeECDSA)} {
		f.forgery.certifyExternal(area)
		if _, err := f.provider(t).VerifyClientAttestationData(t.Context(), f.file(t).Parsed()); err != nil {
			t.Error(err)
		}
	}
}

func TestGKERefuses(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*testing.T, *gkeFixture)
		want   error
	}{
		"forged magic": {func(_ *testing.T, f *gkeFixture) { f.forgery.patch = func(b []byte) []byte { b[0] = 0; return b } }, statement.CheckMagic},
		"a quote in place of the statement": {func(_ *testing.T, f *gkeFixture) {
			f.forgery.attest.Type, f.forgery.attest.Certified = tpm2.TPMSTAttestQuote, nil
			f.forgery.attest.Quote = &statement.QuoteInfo{Selections: []statement.PCRSelection{{Hash: tpm2.TPMAlgSHA256, Select: []byte{1, 0, 0}}}, PCRDigest: make([]byte, 32)}
		}, statement.CheckStatementType},
		"bytes after the statement":      {func(_ *testing.T, f *gkeFixture) { f.forgery.patch = func(b []byte) []byte { return append(b, 0) } }, statement.CheckAttestEncoding},
		"a statement of this SDK's join": {func(_ *testing.T, f *gkeFixture) { f.forgery.attest.ExtraData = make([]byte, 32) }, statement.CheckQualifyingData},
		"the Name of another key": {func(t *testing.T, f *gkeFixture) {
			f.forgery.certifyExternal(gkeArea(t, &softwareKeys.p256b().PublicKey))
		}, statement.CheckName},
		"a key with other attributes": {func(t *testing.T, f *gkeFixture) {
			f.forgery.certifyExternal(changed(t, gkeArea(t, &f.key.PublicKey), func(p *statement.Public) { p.Attributes |= statement.AttributeSensitiveDataOrigin }))
		}, statement.CheckName},
		"PSS": {func(_ *testing.T, f *gkeFixture) { f.forgery.scheme = schemeRSAPSS }, statement.CheckSignature},
		"SHA-384": {func(_ *testing.T, f *gkeFixture) {
			f.forgery.scheme = statement.KeyScheme{Alg: tpm2.TPMAlgRSASSA, Hash: tpm2.TPMAlgSHA384}
		}, statement.CheckSignature},
		"signed by another AK":    {func(t *testing.T, f *gkeFixture) { f.forgery.ak = newForger(t, softwareKeys.rsa2048b(), schemeRSASSA) }, statement.CheckSignature},
		"claims another instance": {func(_ *testing.T, f *gkeFixture) { other := f.instance; other.InstanceID++; f.json = gkeJSON(&other) }, CheckIdentity},
		"claims another project": {func(_ *testing.T, f *gkeFixture) {
			other := f.instance
			other.ProjectID = "other-project"
			f.json = gkeJSON(&other)
		}, CheckIdentity},
		"claims another project's number": {func(_ *testing.T, f *gkeFixture) {
			other := f.instance
			other.ProjectNumber++
			f.json = gkeJSON(&other)
		}, CheckIdentity},
		"claims another zone": {func(_ *testing.T, f *gkeFixture) {
			other := f.instance
			other.Zone = "us-central1-b"
			f.json = gkeJSON(&other)
		}, CheckIdentity},
		"claims another name": {func(_ *testing.T, f *gkeFixture) {
			other := f.instance
			other.InstanceName = "gke-pool-1-other"
			f.json = gkeJSON(&other)
		}, CheckIdentity},
		"asks for another node": {func(t *testing.T, f *gkeFixture) {
			var err error
			if f.request, err = csr.Create(csr.PurposeClient, f.key, "gke-pool-1-other", csr.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}, CheckIdentity},
		"another node and name, with the first one's certificate": {func(t *testing.T, f *gkeFixture) {
			other := f.instance
			other.InstanceName = "gke-pool-1-other"
			f.json = gkeJSON(&other)
			f.request, _ = csr.Create(csr.PurposeClient, f.key, other.InstanceName, csr.CreateOptions{})
		}, CheckIdentity},
		"no certificate":       {func(_ *testing.T, f *gkeFixture) { f.certificate = nil }, tpmcert.CheckCertificateMissing},
		"no certificate in it": {func(_ *testing.T, f *gkeFixture) { f.certificate = []byte{0x30, 0} }, tpmcert.CheckCertificateEncoding},
		"the EK's certificate": {func(t *testing.T, f *gkeFixture) { f.certificate = gkeEKCertificate(t, f) }, tpmcert.CheckCertificateKeyUsage},
		"an unknown root": {func(t *testing.T, f *gkeFixture) {
			f.ca, _ = tpmsim.NewCA(tpmsim.CAOptions{})
			f.certify(t, f.ak.private.Public())
		}, tpmcert.CheckCertificateChain},
		"an expired certificate": {func(_ *testing.T, f *gkeFixture) {
			f.config.Now = func() time.Time { return time.Now().AddDate(30, 0, 0) }
		}, tpmcert.CheckCertificateExpired},
		"an RSA key": {func(_ *testing.T, f *gkeFixture) {
			f.request, _ = csr.Create(csr.PurposeClient, softwareKeys.rsa2048b(), gkeNode, csr.CreateOptions{})
		}, statement.CheckKeyMismatch},
		"the request's own signature": {func(_ *testing.T, f *gkeFixture) {
			f.request = bytes.Clone(f.request)
			f.request[len(f.request)-1] ^= 1
		}, csr.CheckSignature},
		"two statements": {func(_ *testing.T, f *gkeFixture) {
			f.pem = func(b []byte) []byte { return append(b, b[bytes.Index(b, []byte("-----BEGIN ATTESTATION DATA")):]...) }
		}, csr.CheckBlockDuplicate},
		"a serving signer": {func(_ *testing.T, f *gkeFixture) { f.object.Spec.SignerName = csr.SignerKubeletServing }, csr.CheckProviderPurpose},
		"an unknown node": {func(_ *testing.T, f *gkeFixture) {
			f.request, _ = csr.Create(csr.PurposeClient, f.key, "nobody", csr.CreateOptions{})
		}, csr.CheckMachineUnknown},
		"no second proof": {func(_ *testing.T, f *gkeFixture) {
			f.config.SecondProof = secondProofFunc(func(*LimitedSubject) (*LimitedProof, error) { return nil, nil })
		}, CheckLimitedMissing},
		"a second proof of yesterday": {secondProof(func(p *LimitedProof) {
			p.IssuedAt, p.NotAfter = p.IssuedAt.AddDate(0, 0, -1), p.NotAfter.AddDate(0, 0, -1)
		}), CheckLimitedExpired},
		"a second proof without limit":       {secondProof(func(p *LimitedProof) { p.NotAfter = p.NotAfter.AddDate(0, 0, 1) }), CheckLimitedWindow},
		"a second proof of another machine":  {secondProof(func(p *LimitedProof) { p.Machine += "1" }), CheckLimitedMachine},
		"a second proof for another request": {secondProof(func(p *LimitedProof) { p.RequestHash[0]++ }), CheckLimitedRequest},
		"no member": {func(_ *testing.T, f *gkeFixture) {
			f.config.Authorizer = gkeAuthorizer(func(*Result) (*attest.Authorization, error) { return nil, nil })
		}, attest.CheckMembership},
		"a claimed provider ID": {func(_ *testing.T, f *gkeFixture) {
			f.request, _ = csr.Create(csr.PurposeClient, f.key, gkeNode, csr.CreateOptions{ProviderID: "gce://other"})
		}, attest.CheckProviderID},
	} {
		t.Run(name, func(t *testing.T) {
			f := newGKEFixture(t, true)
			c.change(t, f)
			_, err := f.provider(t).VerifyClientAttestationData(t.Context(), f.file(t).Parsed())
			if !errors.Is(err, c.want) {
				t.Fatalf("got %v, want %v", err, c.want)
			}
			if d := csr.Decide(err); d.Verdict != csr.VerdictDeny {
				t.Errorf("decision %v", d)
			}
		})
	}
}

func secondProof(change func(*LimitedProof)) func(*testing.T, *gkeFixture) {
	return func(_ *testing.T, f *gkeFixture) { f.config.SecondProof = goodSecondProof(change) }
}

// gkeEKCertificate certifies the AK's key as an EK: only the key usage tells.
func gkeEKCertificate(t *testing.T, f *gkeFixture) []byte {
	t.Helper()
	c, err := f.ca.IssueEK(f.ak.private.Public(), tpmsim.CertificateOptions{Style: tpmsim.StyleGoogle, Instance: &f.instance})
	if err != nil {
		t.Fatal(err)
	}
	return c.Raw
}

// TestGKEWithKey: the platform names the key.
func TestGKEWithKey(t *testing.T) {
	for name, c := range map[string]struct {
		answer func(csr.GKEIdentity) (crypto.PublicKey, error)
		want   error
		retry  bool
	}{
		"another machine's key":   {func(csr.GKEIdentity) (crypto.PublicKey, error) { return softwareKeys.rsa2048b().Public(), nil }, statement.CheckSignature, false},
		"a key of another kind":   {func(csr.GKEIdentity) (crypto.PublicKey, error) { return softwareKeys.p256b().Public(), nil }, nil, false},
		"a weak key":              {func(csr.GKEIdentity) (crypto.PublicKey, error) { return softwareKeys.rsa1024().Public(), nil }, statement.CheckWeakKey, false},
		"no such machine":         {func(csr.GKEIdentity) (crypto.PublicKey, error) { return nil, attest.NotMember("no such machine") }, attest.CheckMembership, false},
		"no key":                  {func(csr.GKEIdentity) (crypto.PublicKey, error) { return nil, nil }, attest.CheckMembership, false},
		"the platform's API down": {func(csr.GKEIdentity) (crypto.PublicKey, error) { return nil, errors.New("503") }, csr.ErrRetry, true},
	} {
		t.Run(name, func(t *testing.T) {
			f := newGKEFixture(t, false)
			f.config.AKPublicKey = func(_ context.Context, i csr.GKEIdentity) (crypto.PublicKey, error) { return c.answer(i) }
			_, err := f.provider(t).VerifyClientAttestationData(t.Context(), f.file(t).Parsed())
			if err == nil || c.want != nil && !errors.Is(err, c.want) {
				t.Fatalf("got %v, want %v", err, c.want)
			}
			if retry := csr.Decide(err).Verdict == csr.VerdictRetry; retry != c.retry {
				t.Errorf("retry %t: %v", retry, err)
			}
		})
	}
}

func TestGKERetries(t *testing.T) {
	for name, change := range map[string]func(*gkeFixture){
		"second proof": func(f *gkeFixture) {
			f.config.SecondProof = secondProofFunc(func(*LimitedSubject) (*LimitedProof, error) { return nil, errors.New("503") })
		},
		"membership": func(f *gkeFixture) {
			f.config.Authorizer = gkeAuthorizer(func(*Result) (*attest.Authorization, error) {
				return nil, errors.New("503")
			})
		},
	} {
		f := newGKEFixture(t, true)
		change(f)
		if _, err := f.provider(t).VerifyClientAttestationData(t.Context(), f.file(t).Parsed()); !errors.Is(err, csr.ErrRetry) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestNewGKEProviderRefuses(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"the loud option":   func(c *Config) { c.InsecureAllowNoChallenge = false },
		"the second proof":  func(c *Config) { c.SecondProof = nil },
		"membership":        func(c *Config) { c.Authorizer = nil },
		"the policy":        func(c *Config) { c.Policy = nil },
		"a way to the AK":   func(c *Config) { c.Issuers = nil },
		"the issuer's root": func(c *Config) { c.Issuers = []tpmcert.Issuer{{Profile: tpmcert.ProfileGoogle()}} },
		"a bounded proof":   func(c *Config) { c.SecondProofOptions = LimitedOptions{MaxWindow: 2 * message.MaxWindow} },
		"one way alone": func(c *Config) {
			c.AKPublicKey = func(context.Context, csr.GKEIdentity) (crypto.PublicKey, error) { return nil, nil }
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newGKEFixture(t, true).config
			change(&c)
			if _, err := NewProvider(c); err == nil {
				t.Errorf("without %s", name)
			}
		})
	}
	if _, err := NewProvider(Config{}); err == nil {
		t.Error("without a configuration")
	}
}

func TestGKEProviderServing(t *testing.T) {
	f := newGKEFixture(t, true)
	p := f.provider(t)
	for _, signer := range []string{csr.SignerKubeletServing, csr.SignerKubeAPIServerClientKubelet} {
		f.object.Spec.SignerName = signer
		if _, err := p.VerifyServingAttestationData(t.Context(), f.file(t).Parsed()); !errors.Is(err, csr.CheckProviderPurpose) {
			t.Errorf("%s: %v", signer, err)
		}
	}
	if _, err := p.VerifyClientAttestationData(t.Context(), nil); err == nil {
		t.Error("no request")
	}
	if _, err := p.MachineName(t.Context(), nil); !errors.Is(err, csr.CheckProviderResult) {
		t.Errorf("a name without a result: %v", err)
	}
}

func TestGKEPublic(t *testing.T) {
	area, err := gkePublic(softwareKeys.p384().Public())
	if err != nil {
		t.Fatal(err)
	}
	p, err := statement.ParsePublic(area)
	if err != nil || !p.SameKey(softwareKeys.p384().Public()) || p.Attributes != 0x40040 || p.NameAlg != tpm2.TPMAlgSHA256 {
		t.Errorf("got %+v, %v", p, err)
	}
	if _, err := gkePublic(softwareKeys.p224().Public()); err == nil {
		t.Error("P-224")
	}
}

// A certificate that names no machine is none of the machine that the request claims,
// whatever its issuer's profile reads.
func TestGKECertificateWithoutInstance(t *testing.T) {
	f := newGKEFixture(t, true)
	c, err := f.ca.IssueAK(f.ak.private.Public(), tpmsim.CertificateOptions{Style: tpmsim.StyleTCG})
	if err != nil {
		t.Fatal(err)
	}
	f.certificate = c.Raw
	f.config.Issuers[0].Profile = tpmcert.ProfileTCG()
	_, err = f.provider(t).VerifyClientAttestationData(t.Context(), f.file(t).Parsed())
	expectCheck(t, err, CheckIdentity)
}
