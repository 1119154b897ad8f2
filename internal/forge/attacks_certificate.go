package forge

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"time"

	"github.com/nodeattest/nodeattest/oid"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// unknownCritical is an extension that nobody knows.
var unknownCritical = []pkix.Extension{{Id: asn1.ObjectIdentifier{2, 999, 2}, Critical: true, Value: []byte{5, 0}}}

// AKCertificates have the issuer of AK certificates certify the right AK in a wrong way.
func (w *Bench) AKCertificates() []CertificateAttack {
	none, encipher := x509.KeyUsage(0), x509.KeyUsageKeyEncipherment
	both, certSign := x509.KeyUsageDigitalSignature|encipher, x509.KeyUsageDigitalSignature|x509.KeyUsageCertSign
	return []CertificateAttack{
		{Name: "certificate-expired", What: "The AK certificate ended an hour ago.", Expect: "certificate-expired", Change: tpmsim.AKCertificateOptions{NotBefore: w.Now.Add(-2 * time.Hour), NotAfter: w.Now.Add(-time.Hour)}},
		{Name: "certificate-expired-by-a-second", What: "The AK certificate ended a second ago.", Expect: "certificate-expired", Change: tpmsim.AKCertificateOptions{NotBefore: w.Now.Add(-2 * time.Hour), NotAfter: w.Now.Add(-time.Second)}},
		{Name: "certificate-not-yet-valid", What: "The AK certificate begins in a second.", Expect: "certificate-not-yet-valid", Change: tpmsim.AKCertificateOptions{NotBefore: w.Now.Add(time.Second), NotAfter: w.Now.Add(time.Hour)}},
		{Name: "ca-certificate-as-ak-certificate", What: "The AK certificate says that it is a CA's.", Expect: "certificate-is-ca", Change: tpmsim.AKCertificateOptions{IsCA: true}},
		{Name: "unknown-critical-extension", live: "certificate-unknown-critical-extension", What: "The AK certificate has a critical extension that nobody knows.", Expect: "certificate-extension", Change: tpmsim.AKCertificateOptions{Extra: unknownCritical}},
		{Name: "ext-key-usage-missing", What: "The AK certificate has no extended key usage, which the issuer's profile asks for.", Expect: "certificate-ext-key-usage", Change: tpmsim.AKCertificateOptions{ExtKeyUsage: []oid.OID{}}},
		{Name: "ext-key-usage-of-an-ek", What: "The AK certificate has the extended key usage of EK certificates.", Expect: "certificate-ext-key-usage", Change: tpmsim.AKCertificateOptions{ExtKeyUsage: []oid.OID{oid.TCGKpEKCertificate}}},
		{Name: "ext-key-usage-of-ak-and-ek", What: "The AK certificate has the extended key usages of AK and EK certificates.", Expect: "certificate-ext-key-usage", Change: tpmsim.AKCertificateOptions{ExtKeyUsage: []oid.OID{oid.TCGKpAIKCertificate, oid.TCGKpEKCertificate}}},
		{Name: "ext-key-usage-any", What: "The AK certificate has anyExtendedKeyUsage and not the AK's.", Expect: "certificate-ext-key-usage", Change: tpmsim.AKCertificateOptions{ExtKeyUsage: []oid.OID{oid.AnyExtendedKeyUsage}}},
		{Name: "key-usage-missing", What: "The AK certificate has no key usage.", Expect: "certificate-key-usage", Change: tpmsim.AKCertificateOptions{KeyUsage: &none}},
		{Name: "key-usage-of-an-ek", What: "The AK certificate has the key usage of an RSA EK's.", Expect: "certificate-key-usage", Change: tpmsim.AKCertificateOptions{KeyUsage: &encipher}},
		{Name: "key-usage-of-ak-and-ek", What: "The AK certificate has the key usages of an AK and of an RSA EK.", Expect: "certificate-key-usage", Change: tpmsim.AKCertificateOptions{KeyUsage: &both}},
		{Name: "key-usage-of-a-ca", What: "The AK certificate may sign certificates.", Expect: "certificate-key-usage", Change: tpmsim.AKCertificateOptions{KeyUsage: &certSign}},
		{Name: "google-certificate-under-the-tcg-profile", What: "The AK certificate has the form of another issuer, without extended key usage.", Expect: "certificate-ext-key-usage", Change: tpmsim.AKCertificateOptions{Style: tpmsim.StyleGoogle}},
	}
}

// EKCertificates have a vendor certify the right EK in a wrong way.
func (w *Bench) EKCertificates() []CertificateAttack {
	sign, none := x509.KeyUsageDigitalSignature, []oid.OID{}
	return []CertificateAttack{

		{Name: "ek-certificate-expired", live: "certificate-expired", What: "The EK certificate ended a second ago.", Expect: "certificate-expired", Change: tpmsim.AKCertificateOptions{NotAfter: w.Now.Add(-time.Second)}},
		{Name: "ek-certificate-not-yet-valid", live: "certificate-not-yet-valid", What: "The EK certificate begins in a second.", Expect: "certificate-not-yet-valid", Change: tpmsim.AKCertificateOptions{NotBefore: w.Now.Add(time.Second)}},
		{Name: "ek-certificate-without-ext-key-usage", live: "ext-key-usage-missing", What: "The EK certificate has no extended key usage.", Expect: "certificate-ext-key-usage", Change: tpmsim.AKCertificateOptions{ExtKeyUsage: none}},
		{Name: "ek-certificate-for-platforms-too", What: "The extended key usage of the EK certificate lists a platform certificate's too.", Expect: "certificate-ext-key-usage", Change: tpmsim.AKCertificateOptions{ExtKeyUsage: []oid.OID{oid.TCGKpEKCertificate, oid.TCGKpPlatformCertificate}}},
		{Name: "ek-certificate-with-the-key-usage-of-an-ak", live: "key-usage-of-an-ak", What: "The key usage of the EK certificate is digitalSignature.", Expect: "certificate-key-usage", Change: tpmsim.AKCertificateOptions{KeyUsage: &sign}},
		{Name: "ek-certificate-is-ca", live: "ca-certificate-as-ek-certificate", What: "The EK certificate is a CA's.", Expect: "certificate-is-ca", Change: tpmsim.AKCertificateOptions{IsCA: true}},
		{Name: "ek-certificate-without-directory-name", live: "certificate-without-a-directory-name", What: "The EK certificate names no manufacturer, model and version.", Expect: "certificate-subject-alt-name", Change: tpmsim.AKCertificateOptions{NoSAN: true}},
		{Name: "ek-certificate-without-basic-constraints", What: "The EK certificate has no basic constraints.", Expect: "certificate-extension", Change: tpmsim.AKCertificateOptions{Edit: func(c *x509.Certificate) { c.BasicConstraintsValid = false }}},
		{Name: "ek-certificate-with-an-unknown-critical-extension", live: "certificate-unknown-critical-extension", What: "The EK certificate has a critical extension that nobody knows.", Expect: "certificate-extension", Change: tpmsim.AKCertificateOptions{Extra: unknownCritical}},
	}
}
