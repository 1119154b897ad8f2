package membership

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"math/big"
	"slices"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/message"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/refusal"
)

// Where a csr.CA of ours signs, the name is reserved when it is verified, and bound with
// the record of the certificate.
func TestFirstUseOwnSigners(t *testing.T) {
	f := newFirstUse(t, Scope{})
	f.own = []string{csr.SignerClientTPM}
	count := &countingRegistry{Registry: f.registry}
	f.c.Registry = count
	admitted := func() *attest.Result {
		r := answerOf(t, "node-1", "gce:p/1")
		testkit.NoError(t, attest.AskMembership(t.Context(), f, r))
		return r
	}
	admitted() // the controller
	if r := f.record(t, "node-1"); r.State != StateReserved || count.calls() != [4]int{1, 0, 1, 0} {
		t.Fatalf("got %+v", r)
	}
	signer := admitted()
	issued := testkit.Must(signer.Attested().Record(nil))
	issued.CredentialID = "X509SHA256=00"
	for name, change := range map[string]func(r *csr.IssuedRecord){
		"of another machine":  func(r *csr.IssuedRecord) { r.Machine = "gce:p/2" },
		"beyond the last end": func(r *csr.IssuedRecord) { r.NotAfter = r.NotAfter.Add(message.MaxAnswerAge + time.Second) },
	} {
		other := issued
		change(&other)
		if err := signer.Attested().Grant().Record(t.Context(), other); !errors.Is(err, checkRegistryClaim) || f.record(t, "node-1").State != StateReserved {
			t.Errorf("a certificate %s: got %v", name, err)
		}
	}
	count.calls()
	testkit.NoError(t, signer.Attested().Grant().Record(t.Context(), issued))
	r := f.record(t, "node-1")
	if r.State != StateBound || len(r.Issued) != 1 || r.Issued[0].CredentialID != issued.CredentialID || r.LastEnd.Before(issued.NotAfter) {
		t.Errorf("got %+v", r)
	}
	if got := count.calls(); got != [4]int{0, 0, 0, 1} {
		t.Errorf("got %v look-ups, Reserve and Bind, want one Bind", got)
	}
	// A node that is released in between gets no certificate.
	late := admitted()
	testkit.Must(f.registry.Release(t.Context(), "node-1", "uid-1"))
	if err := late.Attested().Grant().Record(t.Context(), issued); !errors.Is(err, CheckRegistryResting) || !errors.Is(err, attest.CheckMembership) {
		t.Errorf("after its release: got %v, want %v", err, CheckRegistryResting)
	}
}

// caOf is a CA of some signers.
func caOf(t *testing.T, signers ...string) *csr.CA {
	t.Helper()
	key := testkit.Must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ca"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
	der := testkit.Must(x509.CreateCertificate(rand.Reader, template, template, key.Public(), key))
	certificate := testkit.Must(x509.ParseCertificate(der))
	ca := testkit.Must(csr.NewCA([]*x509.Certificate{certificate}, key, csr.CAConfig{SignerNames: signers, ClusterIDs: []string{testCluster}}))
	return ca
}

// The signers for which CA.Issue binds the name: the CA's and OwnSignersElsewhere, never Kubernetes' own, to
// which an approval is enough.
func TestFirstUseWhoseCABinds(t *testing.T) {
	const client, serving, kubernetes = csr.SignerClientTPM, csr.SignerServingTPM, csr.SignerKubeAPIServerClientKubelet
	for name, c := range map[string]struct {
		ca        *csr.CA
		elsewhere []string
		want      []string // nil if it is refused
	}{
		"no signer":              {nil, nil, []string{}},
		"the CA":                 {caOf(t, client, serving), nil, []string{client, serving}},
		"the CA, and another":    {caOf(t, client), []string{serving}, []string{client, serving}},
		"another":                {nil, []string{client}, []string{client}},
		"the CA, but Kubernetes": {caOf(t, client, kubernetes), nil, []string{client}},
		"only Kubernetes":        {caOf(t, kubernetes), nil, nil},
		"a zero CA":              {new(csr.CA), nil, nil},
		"Kubernetes elsewhere":   {nil, []string{client, kubernetes}, nil},
		"a foreign signer":       {nil, []string{"example.com/signer"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			config := newFirstUse(t, Scope{}).c
			config.OwnCA, config.OwnSignersElsewhere = c.ca, c.elsewhere
			f, err := NewFirstUse(config)
			if c.want == nil {
				if !errors.Is(err, refusal.CheckConfig) {
					t.Errorf("got %v", err)
				}
				return
			}
			if err != nil || !slices.Equal(f.own, c.want) {
				t.Errorf("got %v, %v, want %v", f, err, c.want)
			}
		})
	}
}
