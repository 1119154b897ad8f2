package membership

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"math/big"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/message"
	"github.com/nodeattest/nodeattest/internal/testkit"
)

// endWorld is a cluster whose node-1 has a client certificate, with a clock, trust on first use of
// testLifetime and signers that would give 30 days.
type endWorld struct {
	*testing.T
	*firstUse
	ca, insecure *csr.CA
	caKey        *ecdsa.PrivateKey
	leaf         csr.IssuedRecord // of node-1's client certificate
}

const (
	endMachine attest.Identity = "gce:p/1"
	endCap                     = 30 * 24 * time.Hour
)

func newEndWorld(t *testing.T) *endWorld {
	w := &endWorld{T: t, firstUse: newFirstUse(t, Scope{})}
	w.ca = w.newCA(csr.SignerClientTPM, csr.SignerServingTPM, csr.SignerRecoveryTPM)
	w.insecure = w.newCA(csr.SignerClientInsecure)
	config := w.c
	config.OwnCA = w.ca
	w.FirstUse = testkit.Must(NewFirstUse(config))
	return w
}

func (w *endWorld) newCA(signers ...string) *csr.CA {
	w.Helper()
	key := testkit.Must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	w.caKey = key
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ca"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign, NotBefore: w.at.AddDate(0, 0, -1), NotAfter: w.at.AddDate(1, 0, 0)}
	der := testkit.Must(x509.CreateCertificate(rand.Reader, template, template, key.Public(), key))
	certificate := testkit.Must(x509.ParseCertificate(der))
	ca := testkit.Must(csr.NewCA([]*x509.Certificate{certificate}, key, csr.CAConfig{SignerNames: signers, ClusterIDs: []string{testCluster}, MaxLifetime: endCap, Now: func() time.Time { return w.at }}))
	return ca
}

// ask has a policy check a request of node-1 for a lifetime; 0 requests no lifetime.
func (w *endWorld) ask(signer string, seconds int32) *csr.Checked {
	w.Helper()
	key := testkit.Must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	purpose := testkit.Must(csr.PurposeOf(signer))
	options, by := csr.CreateOptions{}, csr.User{Username: csr.BootstrapUserPrefix + "abcdef", Groups: []string{csr.BootstrappersGroup, csr.AuthenticatedGroup}}
	if purpose == csr.PurposeServing {
		options.DNSNames = []string{"node-1"}
	}
	if purpose != csr.PurposeClient {
		by = csr.User{Username: csr.NodeUserPrefix + "node-1", Groups: []string{csr.NodesGroup, csr.AuthenticatedGroup},
			Extra: map[string][]string{csr.ExtraCredentialID: {w.leaf.CredentialID}}}
	}
	der := testkit.Must(csr.Create(purpose, key, "node-1", options))
	bundle := &csr.Bundle{Request: der, Provider: "tpm/v1", Data: []byte{0x30, 0}}
	if signer == csr.SignerKubeletServing || signer == csr.SignerClientInsecure {
		bundle.Provider, bundle.Data = "", nil
	}
	spec := testkit.Must(bundle.Spec(signer, seconds))
	machine := csr.Machine{Name: "m", UID: "uid-1", NodeName: "node-1", BootstrapReady: true, DNSNames: []string{"node-1"}}
	if signer == csr.SignerClientInsecure {
		machine.Provider = csr.ProviderOf(signer)
	}
	policy := &csr.Policy{SignerNames: []string{signer}, ClusterIDs: []string{testCluster}, MaxLifetime: endCap, BuiltInSignerDuration: 12 * time.Hour,
		IssuedRecord: IssuedRecords(w.registry), Now: func() time.Time { return w.at },
		Machines: func(context.Context, csr.Question) (*csr.Machine, error) { return &machine, nil }}
	checked := testkit.Must(policy.Check(w.Context(), csr.Filed(spec, by, w.at).Parsed()))
	return checked
}

// attested returns the attestation of node-1: by evidence, by its client certificate or, for the insecure
// signer, without proof.
func (w *endWorld) attested(checked *csr.Checked) (*csr.Attested, error) {
	switch checked.SignerName() {
	case csr.SignerKubeletServing:
		return checked.Inherit(w.at)
	case csr.SignerClientInsecure:
		return checked.Vouch("insecure:node-1", csr.Grant{}, nil), nil
	}
	r := attest.NewResult(attest.StageAnswer, checked)
	r.Machine, r.Provider = endMachine, "tpm"
	err := attest.AskMembership(w.Context(), w.FirstUse, r)
	return r.Attested(), err
}

// sign has the signer sign. Kubernetes' own does so for whatever is approved, for as long as the
// request asks, a minute later.
func (w *endWorld) sign(attested *csr.Attested) (*csr.IssuedRecord, error) {
	w.Helper()
	checked := attested.Checked()
	given := checked.BuiltInLifetime()
	if given == 0 {
		ca := w.ca
		if checked.SignerName() == csr.SignerClientInsecure {
			ca = w.insecure
		}
		issued, err := ca.Issue(w.Context(), attested)
		if err != nil {
			return nil, err
		}
		return &issued.Record, nil
	}
	if d := attested.Decision(); d.Verdict != csr.VerdictApprove {
		return nil, errors.New(d.Message)
	}
	subject, usage := pkix.Name{CommonName: csr.NodeUserPrefix + "node-1", Organization: []string{csr.NodesGroup}}, x509.ExtKeyUsageClientAuth
	if checked.Purpose() == csr.PurposeServing {
		usage = x509.ExtKeyUsageServerAuth
	}
	signed := w.at.Add(time.Minute)
	template := &x509.Certificate{SerialNumber: big.NewInt(2), Subject: subject, NotBefore: signed.Add(-5 * time.Minute), NotAfter: signed.Add(given), ExtKeyUsage: []x509.ExtKeyUsage{usage}}
	der := testkit.Must(x509.CreateCertificate(rand.Reader, template, template, checked.PKCS10().CSR.PublicKey, w.caKey))
	leaf := testkit.Must(x509.ParseCertificate(der))
	record, err := attested.Record(leaf)
	if err != nil {
		w.Fatalf("a certificate of %s was not approved: %v", checked.SignerName(), err)
	}
	if checked.Purpose() == csr.PurposeClient { // as a controller does
		testkit.Must(w.registry.Bind(w.Context(), w.record(w.T, "node-1"), time.Time{}, &record))
	}
	return &record, nil
}

// join has node-1 get its client certificate from a signer: ours gives a day, Kubernetes' 12 hours.
func (w *endWorld) join(signer string) {
	w.Helper()
	attested := testkit.Must(w.attested(w.ask(signer, 0)))
	leaf := testkit.Must(w.sign(attested))
	w.leaf = *leaf
}

// noReason as the reason has the bound checked; another text says why there is no bound.
const noReason = ""

// TestEnds: each grant has an end, and no certificate of any signer outlasts it. The table has a cell for
// each signer and each bound: with every requested lifetime the certificate ends in time or is refused, and
// with at least one it is issued.
func TestEnds(t *testing.T) {
	const (
		byEvidence = "trust on first use never sees it; the CA's MaxLifetime holds, and kube/internal/insecure keeps the name until the end"
		noRest     = "no name rests for a recovery certificate: who has one must attest"
		noInherit  = "no certificate is inherited from it"
	)
	bounds := []string{"Until", "NotAfter", "MaxLifetime", "rest of the name", "serving certificates"}
	for _, s := range []struct {
		signer  string
		reasons [5]string // in the order of bounds
	}{
		{csr.SignerClientTPM, [5]string{}},
		{csr.SignerServingTPM, [5]string{4: noInherit}},
		{csr.SignerRecoveryTPM, [5]string{3: noRest, 4: noInherit}},
		{csr.SignerClientInsecure, [5]string{2: byEvidence, 3: byEvidence, 4: noInherit}},
		{csr.SignerKubeAPIServerClientKubelet, [5]string{}},
		{csr.SignerKubeletServing, [5]string{4: noInherit}},
	} {
		for i, bound := range bounds {
			t.Run(s.signer+", "+bound, func(t *testing.T) {
				if s.reasons[i] != noReason {
					t.Log(s.reasons[i])
					return
				}
				got := 0
				for _, age := range []time.Duration{0, 10 * time.Hour, 23*time.Hour + 58*time.Minute} {
					for _, seconds := range []int32{0, 600, 3600, 12 * 3600, 24 * 3600, 24*3600 + 1, 30 * 24 * 3600} {
						if checkEnds(t, s.signer, bound, age, seconds) {
							got++
						}
					}
				}
				if got == 0 {
					t.Error("no node gets a certificate")
				}
			})
		}
	}
}

// checkEnds asks for one certificate, and reports whether there is one.
func checkEnds(t *testing.T, signer, bound string, age time.Duration, seconds int32) bool {
	t.Helper()
	w := newEndWorld(t)
	w.join(csr.SignerClientTPM)
	w.at = w.at.Add(age)
	at := fmt.Sprintf("%d s, by a client certificate of %s", seconds, age)
	checked := w.ask(signer, seconds)
	attested, err := w.attested(checked)
	if err != nil {
		return false
	}
	latest := w.at.Add(20 * time.Minute)
	switch bound {
	case "Until":
		attested = attested.Until(latest)
	case "NotAfter":
		grant := attested.Grant()
		grant.NotAfter = latest
		attested = checked.Vouch(attested.Machine(), grant, nil)
	case "MaxLifetime": // plus the time in which an answer can be verified
		latest = w.at.Add(testLifetime + message.MaxAnswerAge)
	}
	leaf, err := w.sign(attested)
	if err != nil {
		return false
	}
	if bound == "serving certificates" {
		w.leaf = *leaf
		serving, err := w.attested(w.ask(csr.SignerKubeletServing, seconds))
		if err != nil {
			return false
		}
		if leaf, err = w.sign(serving); err != nil {
			return false
		}
	}
	if bound == "rest of the name" || bound == "serving certificates" {
		latest = w.rests(at)
	}
	if leaf.NotAfter.After(latest) {
		t.Errorf("%s: a certificate until %s, want until %s", at, leaf.NotAfter, latest)
	}
	return true
}

// rests has node-1's machine released, and returns until when no other machine gets its name.
func (w *endWorld) rests(at string) time.Time {
	w.Helper()
	end := w.record(w.T, "node-1").LastEnd
	if released, err := w.registry.Release(w.Context(), "node-1", "uid-1"); err != nil || !released {
		w.Fatalf("%s: %t, %v", at, released, err)
	}
	w.at = end
	other := Claim{NodeName: "node-1", Machine: "gce:p/2", MachineUID: "uid-2"}
	if _, err := w.registry.Reserve(w.Context(), other, w.at.Add(reservation)); !errors.Is(err, CheckRegistryResting) {
		w.Errorf("%s: another machine gets the name at its last end: %v", at, err)
	}
	return end
}

// TestServingOfAnHonestKubelet: a kubelet states no lifetime. Where Kubernetes' own signer makes both
// of its certificates, for as long, it gets one as long as its client certificate lasts; also where a
// longer one is ours, in the first part of its life, and it waits in the last.
func TestServingOfAnHonestKubelet(t *testing.T) {
	for name, c := range map[string]struct {
		signer string
		age    time.Duration
		want   csr.Verdict
	}{
		"of Kubernetes' signer, at once":      {csr.SignerKubeAPIServerClientKubelet, 0, csr.VerdictApprove},
		"of Kubernetes' signer, when renewed": {csr.SignerKubeAPIServerClientKubelet, 10 * time.Hour, csr.VerdictApprove},
		"ours, at once":                       {csr.SignerClientTPM, 0, csr.VerdictApprove},
		"ours, before it is too late":         {csr.SignerClientTPM, 13 * time.Hour, csr.VerdictApprove},
		"ours, too late":                      {csr.SignerClientTPM, 15 * time.Hour, csr.VerdictRetry},
	} {
		t.Run(name, func(t *testing.T) {
			w := newEndWorld(t)
			w.join(c.signer)
			w.at = w.at.Add(c.age)
			attested, err := w.attested(w.ask(csr.SignerKubeletServing, 0))
			if err != nil || attested.Decision().Verdict != c.want {
				t.Errorf("got %+v, %v, want %v", attested.Decision(), err, c.want)
			}
		})
	}
}
