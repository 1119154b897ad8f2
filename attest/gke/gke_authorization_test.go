package gke

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"math/big"
	"net/netip"
	"reflect"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/csr"
)

// Whatever an authorizer vouches for reaches the issuer: each field by itself, those
// that are added one day too.
func TestAuthorizationVerified(t *testing.T) {
	f := newGKEFixture(t, false)
	r, err := f.provider(t).examine(t.Context(), f.file(t))
	if err != nil {
		t.Fatal(err)
	}
	a := attest.Authorization{ProviderID: "gce://p/z/n", DNSNames: []string{"n.example"}, IPAddresses: []netip.Addr{netip.MustParseAddr("192.0.2.7")},
		NotAfter: time.Now().Add(time.Hour)}
	whole := a.Verified(r.Checked, r.Machine)
	for n := range reflect.TypeFor[attest.Authorization]().NumField() {
		field := reflect.TypeFor[attest.Authorization]().Field(n)
		if !field.IsExported() { // tried below
			continue
		}
		t.Run(field.Name, func(t *testing.T) {
			without := a
			v := reflect.ValueOf(&without).Elem().Field(n)
			if v.IsZero() {
				t.Fatal("not filled in by this test")
			}
			v.SetZero()
			if reflect.DeepEqual(without.Verified(r.Checked, r.Machine), whole) {
				t.Error("it makes no difference to the issuer")
			}
		})
	}
	for n := range reflect.TypeFor[csr.Verified]().NumField() {
		if field := reflect.TypeFor[csr.Verified]().Field(n); field.Name != "Record" && reflect.ValueOf(whole).Elem().Field(n).IsZero() {
			t.Errorf("csr.Verified.%s is not filled in", field.Name)
		}
	}
	whole.DNSNames[0], whole.IPAddresses[0] = "x", netip.Addr{}
	if a.DNSNames[0] == "x" || !a.IPAddresses[0].IsValid() {
		t.Error("it shares memory with the authorization")
	}
}

// nodeCA issues for one signer.
func nodeCA(t *testing.T, signer string) *csr.CA {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ca"}, KeyUsage: x509.KeyUsageCertSign,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(1000 * time.Hour), BasicConstraintsValid: true, IsCA: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	ca, err := csr.NewCA([]*x509.Certificate{certificate}, key, csr.CAConfig{SignerNames: []string{signer}})
	if err != nil {
		t.Fatal(err)
	}
	return ca
}

// A certificate for a GKE node ends with its authorization, whatever it asks for.
func TestGKECertificateEndsWithItsAuthorization(t *testing.T) {
	f := newGKEFixture(t, true)
	f.object.Spec.SignerName = "cluster.x-k8s.io/kube-apiserver-client-kubelet-gke"
	f.object.Spec.ExpirationSeconds = new(int32(24 * 3600))
	ca := nodeCA(t, f.object.Spec.SignerName)
	authorization := attest.Authorization{ProviderID: "gce://x"}
	f.config.Authorizer = gkeAuthorizer(func(*Result) (*attest.Authorization, error) {
		return &authorization, nil
	})
	for name, end := range map[string]time.Time{
		"in ten minutes": time.Now().Add(10 * time.Minute).Truncate(time.Second),
		"without an end": {},
	} {
		t.Run(name, func(t *testing.T) {
			authorization.NotAfter = end
			a, err := f.provider(t).VerifyClientAttestationData(t.Context(), f.file(t).Parsed())
			if err != nil {
				t.Fatal(err)
			}
			issued, err := ca.Issue(t.Context(), a.Checked, a.Verified)
			if err != nil {
				t.Fatal(err)
			}
			if got := issued.Certificate.NotAfter; end.IsZero() != got.After(time.Now().Add(time.Hour)) || !end.IsZero() && !got.Equal(end) {
				t.Errorf("the certificate ends at %s, its authorization at %s", got, end)
			}
		})
	}
	t.Run("in the past", func(t *testing.T) {
		authorization.NotAfter = time.Now().Add(-time.Minute)
		a, err := f.provider(t).VerifyClientAttestationData(t.Context(), f.file(t).Parsed())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := ca.Issue(t.Context(), a.Checked, a.Verified); !errors.Is(err, csr.CheckVerifiedExpired) {
			t.Errorf("got %v, want %v", err, csr.CheckVerifiedExpired)
		}
	})
}

// GKE's provider makes of its authorizer's answers what the Verifier makes of them.
func TestGKEMembership(t *testing.T) {
	wrapped := errors.New("directory")
	for name, c := range map[string]struct {
		authorization *attest.Authorization
		err           error
		want          error
		verdict       csr.Verdict
	}{
		"refused":                  {nil, attest.NotMember("no"), attest.CheckMembership, csr.VerdictDeny},
		"refused by a bare check":  {nil, attest.CheckMembership, attest.CheckMembership, csr.VerdictDeny},
		"refused, wrapped":         {nil, errors.Join(wrapped, attest.CheckMembership), attest.CheckMembership, csr.VerdictDeny},
		"not decided":              {nil, wrapped, csr.ErrRetry, csr.VerdictRetry},
		"nothing said":             {nil, nil, attest.CheckMembership, csr.VerdictDeny},
		"an answer with a refusal": {&attest.Authorization{}, attest.NotMember("no"), attest.CheckMembership, csr.VerdictDeny},
	} {
		t.Run(name, func(t *testing.T) {
			f := newGKEFixture(t, false)
			f.config.Authorizer = gkeAuthorizer(func(*Result) (*attest.Authorization, error) {
				return c.authorization, c.err
			})
			a, err := f.provider(t).VerifyClientAttestationData(t.Context(), f.file(t).Parsed())
			if a != nil || !errors.Is(err, c.want) || csr.Decide(err).Verdict != c.verdict {
				t.Errorf("got %v, %v with verdict %v, want %v", a, err, csr.Decide(err).Verdict, c.want)
			}
		})
	}
}

// What an authorizer has to record with the certificate reaches the issuer.
func TestAuthorizationRecords(t *testing.T) {
	f, written := newGKEFixture(t, true), []csr.IssuedRecord{}
	f.object.Spec.SignerName = "cluster.x-k8s.io/kube-apiserver-client-kubelet-gke"
	f.config.Authorizer = attest.AuthorizerFunc(func(_ context.Context, r *attest.Result, _ *csr.Request) (*attest.Authorization, error) {
		return &attest.Authorization{ProviderID: "gce://x"}, r.WhenIssued(func(_ context.Context, issued csr.IssuedRecord) error {
			written = append(written, issued)
			return nil
		})
	})
	attested, err := f.provider(t).VerifyClientAttestationData(t.Context(), f.file(t).Parsed())
	if err != nil {
		t.Fatal(err)
	}
	issued, err := nodeCA(t, attested.Checked.SignerName()).Issue(t.Context(), attested.Checked, attested.Verified)
	if err != nil || len(written) != 1 || written[0] != issued.Record {
		t.Errorf("got %+v, %v, want the record of %+v", written, err, issued)
	}
}
