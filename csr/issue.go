package csr

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/nodeattest/nodeattest/internal/der"
	"github.com/nodeattest/nodeattest/oid"
	"github.com/nodeattest/nodeattest/refusal"
)

// Issued is a certificate and what to remember about it.
type Issued struct {
	// Certificate is the node's certificate.
	Certificate *x509.Certificate
	// PEM is what goes into status.certificate: the certificate, then the CAs above it
	// without the root, as CERTIFICATE blocks only.
	PEM []byte
	// Record is what to keep, so that the node can later be recognised by this certificate.
	Record IssuedRecord
}

// Issue makes the certificate that a checked request asks for and a verification
// vouches for.
//
// The subject is rebuilt from the purpose and the node's name, so that it is one of the
// three of [Purpose] and nothing else. The extensions are key usage and extended key usage
// as asked for, basicConstraints (no CA), the two key identifiers, the SANs that a serving
// request asks for, and the provider ID that is vouched for. A SAN or provider ID that is
// asked for and not vouched for is refused, never left out. The serial number is random, of
// 159 bits.
//
// Validity begins at most [Backdate] before now. It ends at the earliest of: now plus the
// lifetime asked for, now plus the CA's cap, the end of every certificate in the CA's chain,
// and the NotAfter of the [Grant].
//
// A machine that [Checked.Vouch] refuses gets its error. Other broken rules, all of them,
// are returned as [Errors]: the checks that begin with verified-, "provider-id-not-vouched", "san-not-vouched", and [CheckSignerName] for a hello, which
// gets a challenge and no certificate. A signature that does not verify is an [*Error] with
// [CheckSignature]. A chain that is not valid now, a
// ctx that is done, and a key that does not sign give [refusal.ErrRetry]; a signer that is not this
// CA's gives [ErrOtherSigner]. The new certificate is verified against the CA before it is
// returned, and its record is given to Record of the [Grant]. If that returns an error, Issue
// returns the error and withholds the certificate. A request that was checked over an hour ago gives
// [refusal.ErrRetry]: verify it again. So does a time of the check that is as far ahead, since
// then the policy has another clock. A request that was checked for another cluster than the CA's is
// refused as "verified-cluster".
//
// Issue does not ask whether the request was approved: on Kubernetes a signer looks at the
// conditions, and verifies the evidence again, before it calls Issue.
func (ca *CA) Issue(ctx context.Context, attested *Attested) (*Issued, error) {
	if ca == nil || len(ca.chain) == 0 {
		return nil, refusal.Config("CA", "that NewCA did not make", "one of NewCA")
	}
	checked := attested.sound()
	if checked == nil {
		return nil, Errors{{Check: checkNotChecked, Got: "a request that no policy has checked"}}
	}
	if !slices.Contains(ca.config.SignerNames, checked.signerName) {
		return nil, fmt.Errorf("%w: %s", ErrOtherSigner, refusal.Quote(checked.signerName))
	}
	now := ca.config.Now()
	if err := cmp.Or(begun(ctx), checked.fresh(now), attested.fault); err != nil {
		return nil, err
	}
	if violations := attested.faults(ca.config.ClusterIDs, now); len(violations) > 0 {
		return nil, violations
	}
	if err := cmp.Or(checked.CheckSignature(), ca.usableAt(now)); err != nil {
		return nil, err
	}
	template, err := ca.template(attested, now)
	if err != nil {
		return nil, err
	}
	certificate, err := ca.sign(template, checked, now)
	if err != nil {
		return nil, err
	}
	record := attested.record().with(certificate)
	if attested.grant.Record != nil {
		if err := attested.grant.Record(ctx, record); err != nil {
			return nil, err
		}
	}
	return &Issued{Certificate: certificate, PEM: append(encodeCertificate(certificate.Raw), ca.chainPEM...), Record: record}, nil
}

// faults compares the grant with the request.
func (a *Attested) faults(clusters []string, now time.Time) Errors {
	c, v := a.checked, a.grant
	claimed := cmp.Or(c.pkcs10.ProviderID, v.ProviderID) // a request that claims none gets the granted one
	same, got, want := oid.SameProviderID(claimed, v.ProviderID)
	all := faults{
		{c.filedUnder != c.signerName, CheckSignerName, refusal.Quote(c.filedUnder), c.signerName + ": a hello gets no certificate"},
		{!subset(c.clusters, clusters), checkVerifiedCluster, "a request to cluster " + refusal.Quotes(c.clusters), refusal.Quotes(clusters)},
		{a.machine == "", checkVerifiedMachine, "no machine identity", "one"},
		a.ended(now),
		{!same, checkProviderIDNotVouched, got, want},
	}.all()
	for _, san := range c.sansBeside(v.DNSNames, v.IPAddresses) {
		all = append(all, &Error{Check: checkSANNotVouched, Got: san, Want: "a name or address that is vouched for"})
	}
	return all
}

// checkVerifiedCluster: the verification is for the cluster of the CA.
const checkVerifiedCluster Check = "verified-cluster"

// subset reports whether others contains all of some.
func subset(some, others []string) bool {
	return !slices.ContainsFunc(some, func(name string) bool { return !slices.Contains(others, name) })
}

func rfc3339(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// sign makes the certificate and verifies it before returning it.
func (ca *CA) sign(template *x509.Certificate, c *Checked, now time.Time) (*x509.Certificate, error) {
	der, err := x509.CreateCertificate(rand.Reader, template, ca.chain[0], c.pkcs10.CSR.PublicKey, ca.key.Reveal())
	if err != nil {
		return nil, refusal.Retry(fmt.Errorf("signing the certificate: %w", err))
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("csr: the new certificate: %w", err)
	}
	if _, err := certificate.Verify(x509.VerifyOptions{Roots: ca.roots, CurrentTime: now, KeyUsages: template.ExtKeyUsage}); err != nil {
		return nil, fmt.Errorf("csr: the new certificate does not verify under its CA: %w", err)
	}
	if err := checkIssued(certificate, template, c); err != nil {
		return nil, err
	}
	return certificate, nil
}

// template returns the certificate to be signed. crypto/x509 makes its serial number:
// random, positive, and at most 20 bytes long (RFC 5280, 4.1.2.2).
func (ca *CA) template(attested *Attested, now time.Time) (*x509.Certificate, error) {
	c, v := attested.checked, &attested.grant
	commonName, organization := c.purpose.SubjectNames(c.nodeName)
	keyID, err := der.KeyIdentifier(c.pkcs10.CSR.RawSubjectPublicKeyInfo)
	if err != nil || commonName == "" {
		return nil, Errors{{Check: checkNotChecked, Got: "a request that no policy has checked", Err: err}}
	}
	end := attested.end(ca.end(c, now))
	t := &x509.Certificate{
		Subject:               pkix.Name{CommonName: commonName, Organization: []string{organization}},
		NotBefore:             now.Add(-min(Backdate, end.Sub(now)/10)).UTC().Truncate(time.Second),
		NotAfter:              end,
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{purposes[c.purpose].extKeyUsage},
		BasicConstraintsValid: true,
		SubjectKeyId:          keyID,
	}
	if !t.NotAfter.After(now) {
		return nil, refusal.Retry(fmt.Errorf("the certificate would end at %s, before it is used", t.NotAfter.Format(time.RFC3339)))
	}
	if c.keyEncipherment {
		t.KeyUsage |= x509.KeyUsageKeyEncipherment
	}
	if c.purpose == PurposeServing {
		t.DNSNames = slices.Clone(c.dnsNames)
		for _, address := range c.ipAddresses {
			t.IPAddresses = append(t.IPAddresses, net.IP(address.AsSlice()))
		}
	}
	if v.ProviderID != "" {
		extension, err := oid.ProviderIDExtension(v.ProviderID)
		if err != nil {
			return nil, fmt.Errorf("csr: the provider ID that is vouched for: %w", err)
		}
		t.ExtraExtensions = []pkix.Extension{extension}
	}
	return t, nil
}

// end returns when a certificate ends that the CA makes, whatever is vouched for.
func (ca *CA) end(c *Checked, now time.Time) time.Time {
	lifetime := ca.config.MaxLifetime
	if c.purpose == PurposeRecovery {
		lifetime = ca.config.MaxRecoveryLifetime
	}
	if c.lifetime != 0 {
		lifetime = min(lifetime, c.lifetime)
	}
	end := now.Add(lifetime)
	for _, issuer := range ca.chain {
		if issuer.NotAfter.Before(end) {
			end = issuer.NotAfter
		}
	}
	return end
}

// allowedExtensions are the extensions that an issued certificate may have.
var allowedExtensions = [...]oid.OID{oid.KeyUsage, oid.ExtendedKeyUsage, oid.BasicConstraints,
	oid.AuthorityKeyIdentifier, oid.SubjectKeyIdentifier, oid.SubjectAltName, oid.KubernetesNodeProviderIdentifier}

// checkIssued reads the new certificate as others will, and compares it with the template and
// the request. It finds nothing unless crypto/x509 or this package is at fault.
func checkIssued(got, want *x509.Certificate, c *Checked) error {
	fault := ""
	switch {
	case got.Subject.CommonName != want.Subject.CommonName || !slices.Equal(got.Subject.Organization, want.Subject.Organization) || len(got.Subject.Names) != 2:
		fault = "subject " + got.Subject.String()
	case got.IsCA || got.KeyUsage != want.KeyUsage || !slices.Equal(got.ExtKeyUsage, want.ExtKeyUsage) || len(got.UnknownExtKeyUsage) != 0:
		fault = "usages"
	case !got.NotBefore.Equal(want.NotBefore) || !got.NotAfter.Equal(want.NotAfter):
		fault = "validity"
	case !bytes.Equal(got.RawSubjectPublicKeyInfo, c.pkcs10.CSR.RawSubjectPublicKeyInfo):
		fault = "public key"
	case !slices.Equal(got.DNSNames, want.DNSNames) || !slices.EqualFunc(got.IPAddresses, want.IPAddresses, net.IP.Equal) ||
		len(got.EmailAddresses)+len(got.URIs) != 0:
		fault = "SANs"
	}
	granted := 0
	for _, e := range got.Extensions {
		if !slices.ContainsFunc(allowedExtensions[:], func(o oid.OID) bool { return o.Equal(e.Id) }) {
			fault = "extension " + e.Id.String()
		}
		if slices.ContainsFunc(want.ExtraExtensions, func(w pkix.Extension) bool { return w.Id.Equal(e.Id) && bytes.Equal(w.Value, e.Value) }) {
			granted++
		} else if oid.KubernetesNodeProviderIdentifier.Equal(e.Id) {
			fault = "provider ID"
		}
	}
	if granted != len(want.ExtraExtensions) {
		fault = "no provider ID"
	}
	if fault != "" {
		return fmt.Errorf("csr: the new certificate is not the one that was meant: %s", fault)
	}
	return nil
}
