package csr_test

import (
	"bytes"
	"context"
	"crypto"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/oid"
	"github.com/nodeattest/nodeattest/refusal"
)

func TestIssueClientCertificate(t *testing.T) {
	f := goodFixture(csr.SignerClientTPM, csr.RequesterBootstrap)
	f.request.Spec.Usages = csr.PurposeClient.Usages(true)
	checked := f.mustCheck(t)
	issued := mustIssue(t, newCA(t, goodOptions()), goodVerified(checked))
	c := issued.Certificate

	if got := c.Subject.String(); got != "CN=system:node:node-1,O=system:nodes" || len(c.Subject.Names) != 2 {
		t.Errorf("subject %q", got)
	}
	if c.KeyUsage != x509.KeyUsageDigitalSignature|x509.KeyUsageKeyEncipherment || !slices.Equal(c.ExtKeyUsage, []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}) || c.IsCA {
		t.Errorf("usages %v %v, CA %v", c.KeyUsage, c.ExtKeyUsage, c.IsCA)
	}
	if !c.NotBefore.Equal(time.Date(2026, 11, 20, 9, 55, 0, 0, time.UTC)) || !c.NotAfter.Equal(time.Date(2026, 11, 20, 11, 0, 0, 0, time.UTC)) {
		t.Errorf("valid from %v to %v", c.NotBefore, c.NotAfter)
	}
	if id, err := oid.ParseProviderID(c.Extensions); id != goodProviderID || err != nil {
		t.Errorf("provider ID %q, %v: it is vouched for, though not asked for", id, err)
	}
	if c.SerialNumber.Sign() <= 0 || c.SerialNumber.BitLen() < 100 || c.SerialNumber.BitLen() > 159 {
		t.Errorf("serial number of %d bits", c.SerialNumber.BitLen())
	}
	if len(c.SubjectKeyId) != 20 || len(c.AuthorityKeyId) == 0 {
		t.Errorf("key identifiers %x %x", c.SubjectKeyId, c.AuthorityKeyId)
	}
	wantExtensions := []oid.OID{oid.KeyUsage, oid.ExtendedKeyUsage, oid.BasicConstraints, oid.SubjectKeyIdentifier, oid.AuthorityKeyIdentifier, oid.KubernetesNodeProviderIdentifier}
	if got := extensionsOf(t, c); !slices.Equal(got, sorted(wantExtensions)) {
		t.Errorf("extensions %v, want %v", got, wantExtensions)
	}
	block, rest := pem.Decode(issued.PEM)
	if block == nil || block.Type != "CERTIFICATE" || len(block.Headers) != 0 || !bytes.Equal(block.Bytes, c.Raw) || len(rest) != 0 {
		t.Errorf("PEM %q", issued.PEM)
	}
	digest := sha256.Sum256(c.Raw)
	want := csr.IssuedRecord{
		CredentialID: "X509SHA256=" + hex.EncodeToString(digest[:]), NodeName: goodNode, SignerName: csr.SignerClientTPM,
		Machine: "ak:sha256:00ff", MachineUID: goodMachineUID, NodeUID: goodNodeUID, ProviderID: goodProviderID, FiledWith: goodCredential, RequestUID: "u", SPKIHash: sha256.Sum256(checked.PKCS10().CSR.RawSubjectPublicKeyInfo),
		NotBefore: c.NotBefore, NotAfter: c.NotAfter,
	}
	if diff := cmp.Diff(want, issued.Record); diff != "" {
		t.Errorf("record: -want +got\n%s", diff)
	}
	if csr.CredentialID(c) != want.CredentialID || !issued.Record.ClientOf(goodNode, want.CredentialID) {
		t.Errorf("credential ID %q", csr.CredentialID(c))
	}
}

func extensionsOf(t *testing.T, c *x509.Certificate) []oid.OID {
	t.Helper()
	var all []oid.OID
	for _, e := range c.Extensions {
		o, err := oid.FromASN1(e.Id)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, o)
	}
	return sorted(all)
}

func sorted(o []oid.OID) []oid.OID {
	o = slices.Clone(o)
	slices.Sort(o)
	return o
}

func TestIssueServingCertificate(t *testing.T) {
	f := goodFixture(csr.SignerServingTPM, csr.RequesterNode)
	withSANs(dnsSAN(goodNode), dnsSAN(goodNode), ipSAN("::ffff:192.0.2.7"))(f)
	checked := f.mustCheck(t)
	v := verifiedWith(checked, func(g *csr.Grant) { g.ProviderID = "" })
	c := mustIssue(t, newCA(t, goodOptions()), v).Certificate
	if !slices.Equal(c.DNSNames, []string{goodNode}) || len(c.IPAddresses) != 1 || !c.IPAddresses[0].Equal(net.IPv4(192, 0, 2, 7)) {
		t.Errorf("SANs %q %v: those asked for, once each", c.DNSNames, c.IPAddresses)
	}
	if c.KeyUsage != x509.KeyUsageDigitalSignature || !slices.Equal(c.ExtKeyUsage, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}) {
		t.Errorf("usages %v %v", c.KeyUsage, c.ExtKeyUsage)
	}
	if _, err := oid.ParseProviderID(c.Extensions); !errors.Is(err, oid.CheckProviderIDMissing) {
		t.Errorf("provider ID: %v", err)
	}
	if err := c.VerifyHostname("node-1"); err != nil {
		t.Error(err)
	}
}

func TestIssueRecoveryCertificate(t *testing.T) {
	f := goodFixture(csr.SignerRecoveryTPM, csr.RequesterNode)
	f.request.Spec.ExpirationSeconds = nil
	checked := f.mustCheck(t)
	opts := goodOptions()
	opts.MaxRecoveryLifetime = 90 * 24 * time.Hour
	issued := mustIssue(t, newCA(t, opts), goodVerified(checked))
	if got := issued.Certificate.Subject.String(); got != "CN=nodeattest:recovery:node-1,O=nodeattest:recovery" {
		t.Errorf("subject %q", got)
	}
	if got := issued.Certificate.NotAfter.Sub(issueTime.Truncate(time.Second)); got != 90*24*time.Hour {
		t.Errorf("lifetime %v", got)
	}
	if issued.Record.ClientOf(goodNode, issued.Record.CredentialID) {
		t.Error("a recovery certificate passes for a client certificate")
	}
}

// Every kind of CA key signs every kind of node key, and standard verification takes
// the result.
func TestIssueKeys(t *testing.T) {
	for caName, caKey := range map[string]crypto.Signer{"P-256": p256Key(), "P-384": p384Key(), "RSA": rsa2048(), "Ed25519": edKey()} {
		t.Run(caName, func(t *testing.T) {
			root := makeCA(t, caTemplate("CA "+caName), caKey, nil, nil)
			ca, err := csr.NewCA([]*x509.Certificate{root}, caKey, goodOptions())
			if err != nil {
				t.Fatal(err)
			}
			for name, key := range map[string]crypto.Signer{"P-256": newECDSAKey(p256Curve), "P-384": p384Key(), "RSA": rsa2048()} {
				t.Run(name, func(t *testing.T) {
					f := goodFixture(csr.SignerClientTPM, csr.RequesterBootstrap)
					f.builder.key = key
					checked := f.mustCheck(t)
					c := mustIssue(t, ca, goodVerified(checked)).Certificate
					if err := c.CheckSignatureFrom(root); err != nil {
						t.Errorf("CA %s, node %s: %v", caName, name, err)
					}
					if !key.Public().(interface{ Equal(crypto.PublicKey) bool }).Equal(c.PublicKey) {
						t.Errorf("CA %s, node %s: another key", caName, name)
					}
				})
			}
		})
	}
}

func TestIssueLifetimes(t *testing.T) {
	const none = -1
	for _, c := range []struct {
		name     string
		asked    int32 // seconds
		cap      time.Duration
		caLeft   time.Duration
		verified time.Duration // from issueTime; 0: no bound
		want     time.Duration // from issueTime's whole second
	}{
		{"asked", 3600, 0, 0, 0, time.Hour},
		{"least", 600, 0, 0, 0, 10 * time.Minute},
		{"nothing asked", none, 0, 0, 0, 24 * time.Hour},
		{"more than the default", 864000, 0, 0, 0, 24 * time.Hour},
		{"more than the cap", 864000, 48 * time.Hour, 0, 0, 48 * time.Hour},
		{"the least cap", none, time.Minute, 0, 0, time.Minute},
		{"nothing asked, a cap", none, 2 * time.Hour, 0, 0, 2 * time.Hour},
		{"CA ends first", 3600, 0, 20 * time.Minute, 0, 20 * time.Minute},
		{"verified bound first", 3600, 0, 0, 15 * time.Minute, 15 * time.Minute},
		{"verified bound last", 3600, 0, 0, 15 * time.Hour, time.Hour},
		{"all three", 3600, 30 * time.Minute, 20 * time.Minute, 15 * time.Minute, 15 * time.Minute},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := goodFixture(csr.SignerClientTPM, csr.RequesterBootstrap)
			f.request.Spec.ExpirationSeconds = &c.asked
			if c.asked == none {
				f.request.Spec.ExpirationSeconds = nil
			}
			template := caTemplate("CA")
			whole := issueTime.Truncate(time.Second)
			if c.caLeft != 0 {
				template.NotAfter = whole.Add(c.caLeft)
			}
			opts := goodOptions()
			opts.MaxLifetime = c.cap
			ca, err := csr.NewCA([]*x509.Certificate{makeCA(t, template, p256Key(), nil, nil)}, p256Key(), opts)
			if err != nil {
				t.Fatal(err)
			}
			checked := f.mustCheck(t)
			v := verifiedWith(checked, func(g *csr.Grant) {
				if c.verified != 0 {
					g.NotAfter = whole.Add(c.verified)
				}
			})
			got := mustIssue(t, ca, v).Certificate
			if !got.NotAfter.Equal(whole.Add(c.want)) {
				t.Errorf("ends at %v, want %v", got.NotAfter, whole.Add(c.want))
			}
			if early, most := whole.Sub(got.NotBefore), min(5*time.Minute, c.want/10); early > most || early < most-time.Second {
				t.Errorf("begins %v before, want %v", early, most)
			}
			// kubelets renew after 7/10 of the whole validity at the earliest
			if renewed := got.NotBefore.Add(got.NotAfter.Sub(got.NotBefore) * 7 / 10); renewed.Before(issueTime.Add(c.want / 2)) {
				t.Errorf("renewed at %v, in the first half of its time", renewed)
			}
			if got.NotAfter.After(issueTime.Add(c.want)) {
				t.Error("rounding made the certificate last longer")
			}
		})
	}
}

// The grant is compared with the checked request, field by field.
func TestIssueRefusesWhatIsNotVouchedFor(t *testing.T) {
	f := goodFixture(csr.SignerServingTPM, csr.RequesterNode)
	f.builder.extensions = append(f.builder.extensions, providerIDExtension(t, goodProviderID))
	checked := f.mustCheck(t)
	ca := newCA(t, goodOptions())
	for _, c := range []struct {
		name   string
		change func(*csr.Grant)
		want   []csr.Check
	}{
		{"nothing changed", func(*csr.Grant) {}, nil},
		{"over by a nanosecond", func(v *csr.Grant) { v.NotAfter = issueTime }, rules(csr.CheckVerifiedExpired)},
		{"no provider ID", func(v *csr.Grant) { v.ProviderID = "" }, rules(csr.CheckProviderIDNotVouched)},
		{"another provider ID", func(v *csr.Grant) { v.ProviderID = "test://other" }, rules(csr.CheckProviderIDMismatch)},
		{"DNS name not vouched for", func(v *csr.Grant) { v.DNSNames = []string{"other.example"} }, rules(csr.CheckSANNotVouched)},
		{"address not vouched for", func(v *csr.Grant) { v.IPAddresses = []netip.Addr{netip.MustParseAddr("192.0.2.8")} }, rules(csr.CheckSANNotVouched)},
	} {
		t.Run(c.name, func(t *testing.T) {
			issued, err := ca.Issue(context.Background(), verifiedWith(checked, c.change))
			if got := brokenRules(err); !slices.Equal(got, c.want) || (issued != nil) != (c.want == nil) {
				t.Errorf("broken %q, want %q (%v)", got, c.want, err)
			}
			if c.want != nil && csr.Decide(err).Verdict != csr.VerdictDeny {
				t.Errorf("decided %+v", csr.Decide(err))
			}
		})
	}
	if _, err := ca.Issue(t.Context(), checked.Vouch("", goodVerified(checked).Grant(), nil)); !slices.Equal(brokenRules(err), rules(csr.CheckVerifiedMachine)) {
		t.Errorf("no machine: %v", err)
	}
}

// The node, the inventory and the list each spell a machine of Azure as they found it. The
// certificate has the spelling that is vouched for.
func TestIssueProviderIDsOfAzure(t *testing.T) {
	f := goodFixture(csr.SignerClientTPM, csr.RequesterBootstrap)
	f.builder.extensions = append(f.builder.extensions, providerIDExtension(t, "azure:///vm"))
	f.machine.ProviderID = "azure:///VM"
	attested := verifiedWith(f.mustCheck(t), func(g *csr.Grant) { g.ProviderID = "azure:///Vm" })
	issued, err := newCA(t, goodOptions()).Issue(t.Context(), attested)
	if err != nil {
		t.Fatal(err)
	}
	if id, err := oid.ParseProviderID(issued.Certificate.Extensions); err != nil || id != "azure:///Vm" {
		t.Errorf("%q, %v", id, err)
	}
}

func TestIssueRefusesRequests(t *testing.T) {
	ctx := context.Background()
	ca := newCA(t, goodOptions())
	for name, a := range map[string]*csr.Attested{"nil": nil, "zero": {}, "of nothing": new(csr.Checked).Vouch("x", csr.Grant{}, nil)} {
		if _, err := ca.Issue(ctx, a); !errors.Is(err, csr.CheckNotChecked) {
			t.Errorf("%s: %v", name, err)
		}
	}
	t.Run("hello", func(t *testing.T) {
		f := goodFixture(csr.SignerClientTPM, csr.RequesterBootstrap)
		f.request.Spec.SignerName = csr.SignerChallengeTPM
		checked := f.mustCheck(t)
		f.request.Spec.SignerName = csr.SignerClientTPM // too late
		if _, err := ca.Issue(ctx, goodVerified(checked)); !errors.Is(err, csr.CheckSignerName) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("bad signature", func(t *testing.T) {
		f := goodFixture(csr.SignerClientTPM, csr.RequesterBootstrap)
		f.builder.badSignature = true
		f.encode(t)
		checked, err := f.policy.CheckUnsigned(ctx, f.request.Parsed(), csr.SignerClientTPM)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := ca.Issue(ctx, goodVerified(checked)); !errors.Is(err, csr.CheckSignature) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("signer of another CA", func(t *testing.T) {
		f := goodFixture(csr.SignerClientInsecure, csr.RequesterBootstrap)
		checked := f.mustCheck(t)
		_, err := ca.Issue(ctx, goodVerified(checked))
		if !errors.Is(err, csr.ErrOtherSigner) || csr.Decide(err).Verdict != csr.VerdictIgnore {
			t.Errorf("got %v", err)
		}
	})
	t.Run("cancelled", func(t *testing.T) {
		checked := goodFixture(csr.SignerClientTPM, csr.RequesterBootstrap).mustCheck(t)
		ctx, cancel := context.WithCancel(ctx)
		cancel()
		var none context.Context
		if _, err := ca.Issue(none, goodVerified(checked)); !errors.Is(err, refusal.ErrRetry) {
			t.Errorf("no context: %v", err)
		}
		if _, err := ca.Issue(ctx, goodVerified(checked)); !errors.Is(err, refusal.ErrRetry) || !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("malformed provider ID vouched for", func(t *testing.T) {
		f := goodFixture(csr.SignerClientTPM, csr.RequesterBootstrap)
		f.machine.ProviderID = ""
		checked := f.mustCheck(t)
		v := verifiedWith(checked, func(g *csr.Grant) { g.ProviderID = "a\nb" })
		if _, err := ca.Issue(ctx, v); !errors.Is(err, refusal.Check("provider-id-text")) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("zero CA", func(t *testing.T) {
		checked := goodFixture(csr.SignerClientTPM, csr.RequesterBootstrap).mustCheck(t)
		if _, err := new(csr.CA).Issue(ctx, goodVerified(checked)); !errors.Is(err, refusal.CheckConfig) {
			t.Errorf("got %v", err)
		}
	})
}

// Changing the object after the check changes nothing.
func TestIssueUsesWhatWasChecked(t *testing.T) {
	f := goodFixture(csr.SignerServingTPM, csr.RequesterNode)
	checked := f.mustCheck(t)
	*f.request.Spec.ExpirationSeconds = 86400
	f.request.User.Username = "system:node:node-2"
	f.request.Spec.Usages[0] = "key encipherment"
	f.request.Spec.SignerName = csr.SignerClientTPM
	clear(f.request.Spec.Request)
	f.machine.ProviderID = "test://other"
	c := mustIssue(t, newCA(t, goodOptions()), goodVerified(checked)).Certificate
	if c.NotAfter.Sub(c.NotBefore) != time.Hour+csr.Backdate || c.KeyUsage != x509.KeyUsageDigitalSignature || c.ExtKeyUsage[0] != x509.ExtKeyUsageServerAuth {
		t.Errorf("got %v, %v %v", c.NotAfter, c.KeyUsage, c.ExtKeyUsage)
	}
}

func TestIssueOutsideTheCAsTime(t *testing.T) {
	template := caTemplate("CA")
	for name, now := range map[string]time.Time{
		"before":        template.NotBefore.Add(-time.Second),
		"after":         template.NotAfter.Add(time.Second),
		"last second":   template.NotAfter,
		"long after":    template.NotAfter.Add(1e6 * time.Hour),
		"a zero clock":  {},
		"the Unix zero": time.Unix(0, 0),
	} {
		t.Run(name, func(t *testing.T) {
			f, opts := goodFixture(csr.SignerClientTPM, csr.RequesterBootstrap), goodOptions()
			opts.Now = func() time.Time { return now }
			f.policy.Now = opts.Now // just checked
			_, err := newCA(t, opts).Issue(context.Background(), goodVerified(f.mustCheck(t)))
			want := "the certificate authority"
			if now.Equal(template.NotAfter) {
				want = "the certificate would end"
			}
			if !errors.Is(err, refusal.ErrRetry) || !strings.Contains(err.Error(), want) || csr.Decide(err).Verdict != csr.VerdictRetry {
				t.Errorf("%v", err)
			}
		})
	}
}

// faultySigner is a CA key that fails, or signs with another key.
type faultySigner struct {
	crypto.Signer
	err   error
	other crypto.Signer
}

func (s *faultySigner) Sign(rand io.Reader, digest []byte, opts crypto.SignerOpts) ([]byte, error) {
	if s.err != nil {
		return nil, s.err
	}
	return s.other.Sign(rand, digest, opts)
}

func TestIssueWithAFaultyKey(t *testing.T) {
	checked := goodFixture(csr.SignerClientTPM, csr.RequesterBootstrap).mustCheck(t)
	root := makeCA(t, caTemplate("CA"), p256Key(), nil, nil)
	down := errors.New("HSM is down")
	for name, key := range map[string]*faultySigner{
		"down":        {Signer: p256Key(), err: down},
		"another key": {Signer: p256Key(), other: newECDSAKey(p256Curve)},
	} {
		ca, err := csr.NewCA([]*x509.Certificate{root}, key, goodOptions())
		if err != nil {
			t.Fatal(err)
		}
		issued, err := ca.Issue(context.Background(), goodVerified(checked))
		if issued != nil || !errors.Is(err, refusal.ErrRetry) || key.err != nil && !errors.Is(err, down) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A certificate that its own CA's constraints forbid never leaves.
func TestIssueVerifiesTheCertificate(t *testing.T) {
	f := goodFixture(csr.SignerServingTPM, csr.RequesterNode)
	checked := f.mustCheck(t)
	for name, change := range map[string]func(*x509.Certificate){
		"name constraints": func(c *x509.Certificate) {
			c.PermittedDNSDomains, c.PermittedDNSDomainsCritical = []string{"example"}, true
		},
		"other constraints": func(c *x509.Certificate) { c.ExcludedDNSDomains = []string{"node-1"} },
	} {
		template := caTemplate("CA")
		change(template)
		ca, err := csr.NewCA([]*x509.Certificate{makeCA(t, template, p256Key(), nil, nil)}, p256Key(), goodOptions())
		if err != nil {
			t.Fatal(err)
		}
		if issued, err := ca.Issue(context.Background(), goodVerified(checked)); issued != nil || err == nil {
			t.Errorf("%s: issued", name)
		}
	}
}

func TestIssueFromManyGoroutines(t *testing.T) {
	checked := goodFixture(csr.SignerClientTPM, csr.RequesterBootstrap).mustCheck(t)
	ca := newCA(t, goodOptions())
	var mu sync.Mutex
	serials := map[string]bool{}
	var wait sync.WaitGroup
	for range 8 {
		wait.Go(func() {
			issued, err := ca.Issue(context.Background(), goodVerified(checked))
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			serials[issued.Certificate.SerialNumber.String()] = true
		})
	}
	wait.Wait()
	if len(serials) != 8 {
		t.Errorf("%d serial numbers for 8 certificates", len(serials))
	}
}
