package settings

import (
	"bytes"
	"cmp"
	"crypto/x509"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodeattest/nodeattest/attest/tpm"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/refusal"
)

// InsecureSigner is the section of a node-attestation-signer that runs with --insecure. It has a CA
// of its own: an API server that trusts it for clients accepts the name that a node claims.
type InsecureSigner struct {
	// CertificateFile, KeyFile, MetricsAddress and HealthAddress are as in Signer; empty
	// addresses: "127.0.0.1:8084" and ":8085".
	CertificateFile string `json:"certificateFile"`
	KeyFile         string `json:"keyFile"`
	// MaxLifetime is how long a certificate lives, a minute to a year; 0 means a year. None is
	// renewed.
	MaxLifetime    metav1.Duration `json:"maxLifetime"`
	MetricsAddress string          `json:"metricsAddress"`
	HealthAddress  string          `json:"healthAddress"`
}

// maxInsecureLifetime is the longest lifetime of a certificate without evidence. There is no renewal,
// so it is not short.
const maxInsecureLifetime = 365 * 24 * time.Hour

func (i *InsecureSigner) complete() {
	i.MetricsAddress = cmp.Or(i.MetricsAddress, "127.0.0.1:8084")
	i.HealthAddress = cmp.Or(i.HealthAddress, ":8085")
	i.MaxLifetime.Duration = cmp.Or(i.MaxLifetime.Duration, maxInsecureLifetime)
}

// check refuses the CA of the signer of nodes that attest: a party that trusts a CA trusts all its
// certificates.
func (i *InsecureSigner) check(attested *Signer) error {
	switch {
	case i == nil:
	case i.CertificateFile == "" || i.KeyFile == "":
		return refusal.Config("insecureSigner.certificateFile and keyFile", "", "two paths")
	case i.CertificateFile == attested.CertificateFile || i.KeyFile == attested.KeyFile:
		return refusal.Config("insecureSigner.certificateFile and keyFile", "those of signer", "a CA of its own")
	case i.MaxLifetime.Duration < csr.MinLifetime || i.MaxLifetime.Duration > maxInsecureLifetime:
		return refusal.Config("insecureSigner.maxLifetime", i.MaxLifetime.Duration.String(), "a minute to "+maxInsecureLifetime.String())
	}
	return nil
}

// CheckInsecureCA refuses the cluster's CA, and a CA below it: a party that trusts the certificates of
// attested nodes would trust certificates without evidence, too.
func (s *Settings) CheckInsecureCA() error {
	chain, err := readCertificates(s.InsecureSigner.CertificateFile)
	if err != nil {
		return fmt.Errorf("settings: insecureSigner: %w", err)
	}
	cas, err := s.clusterCAs()
	if err != nil {
		return err
	}
	for _, ca := range cas {
		if slices.ContainsFunc(chain, func(c *x509.Certificate) bool {
			return bytes.Equal(c.RawSubjectPublicKeyInfo, ca.RawSubjectPublicKeyInfo) || c.CheckSignatureFrom(ca) == nil
		}) {
			return refusal.Config("insecureSigner.certificateFile", "of the cluster's CA, or of one below it", "a CA of its own")
		}
	}
	return nil
}

// noEvidence is the Evidence of a machine that cannot attest.
const noEvidence = "none"

// setKind sets the kind of evidence by which a machine is known. A machine without evidence has no
// identity, and gets certificates of [csr.SignerClientInsecure] alone.
func (s *Settings) setKind(m *Machine) error {
	if m.Evidence == "" {
		m.Kind = cmp.Or(m.Kind, s.Membership.Kind)
		if m.Kind != tpm.Provider && s.find(m.Kind) == nil {
			return refusal.Config("kind", refusal.Quote(m.Kind), "a kind of evidence, such as tpm, gce, azure, nitro or ec2")
		}
		return nil
	}
	switch {
	case m.Evidence != noEvidence:
		return refusal.Config("evidence", refusal.Quote(m.Evidence), noEvidence+", or a kind")
	case s.InsecureSigner == nil:
		return refusal.Config("evidence", noEvidence, "a section insecureSigner in the configuration, without which no signer serves such a machine")
	case m.Kind+m.Identity != "":
		return refusal.Config("kind and identity", refusal.Quote(m.Kind)+" and "+refusal.Quote(m.Identity), "neither: a machine with evidence: none proves nothing")
	case len(m.DNSNames)+len(m.IPAddresses) != 0:
		return refusal.Config("dnsNames and ipAddresses", "some", "none: a machine with evidence: none gets no serving certificate")
	}
	m.Kind = csr.ProviderOf(csr.SignerClientInsecure)
	return nil
}
