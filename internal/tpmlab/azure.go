package tpmlab

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"math/big"
	"testing"
	"time"

	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/oid"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// An AzureHierarchy is one of those in which Azure certifies the attestation keys of its
// virtual machines, with the names, usages and lengths of paths that it had in 2026.
type AzureHierarchy struct {
	Name          string
	Root          *x509.Certificate
	Intermediates []*x509.Certificate // the one that issues AK certificates first

	ca   *CA
	urls []string // where the AK certificates say that their issuer's is
	now  time.Time
}

// AzureHierarchies are both of them, below one root, valid for a day before and after now.
func AzureHierarchies(t testing.TB, now time.Time) []*AzureHierarchy {
	t.Helper()
	all := []oid.OID{oid.AzureKpAK, oid.TCGKpEKCertificate, oid.TCGKpAIKCertificate}
	ca := func(parent *CA, name string, usages []oid.OID, pathLen int) *CA {
		return Sign(t, parent, name, func(c *x509.Certificate) {
			c.NotBefore, c.NotAfter = now.Add(-24*time.Hour), now.Add(24*time.Hour)
			c.KeyUsage |= x509.KeyUsageDigitalSignature | x509.KeyUsageCRLSign
			c.UnknownExtKeyUsage = identifiers(usages)
			c.MaxPathLen, c.MaxPathLenZero = pathLen, pathLen == 0
		})
	}
	root := ca(nil, "Azure Virtual TPM Root Certificate Authority 2023", nil, -1)
	upper := ca(root, "Azure Cloud Virtual TPM CA 2025", all, 1)
	cloud := ca(upper, "Azure Cloud Virtual TPM CA - 11", all, 0)
	global := ca(root, "Global Virtual TPM CA - 03", all[1:], 0)
	return []*AzureHierarchy{
		{"Azure Cloud Virtual TPM CA", root.Cert, []*x509.Certificate{cloud.Cert, upper.Cert}, cloud, []string{"http://127.0.0.1/cert.cer"}, now},
		{"Global Virtual TPM CA", root.Cert, []*x509.Certificate{global.Cert}, global, nil, now},
	}
}

// Provision makes a TPM one of a virtual machine of Azure's: a persistent AK, and its certificate
// in a padded index with a password of its own. For a TPM that is one already it renews the
// certificate. It returns that.
func (h *AzureHierarchy) Provision(t testing.TB, tpm *tpmsim.TPM) *x509.Certificate {
	t.Helper()
	const (
		ak    tpm2.TPMHandle = 0x81000003
		index tpm2.TPMHandle = 0x01c101d0
		size                 = 2048
	)
	public, err := tpm2.ReadPublic{ObjectHandle: ak}.Execute(tpm)
	if err != nil {
		Persist(t, tpm, tpm2.TPMRHEndorsement, azureAK(), ak)
		public, err = tpm2.ReadPublic{ObjectHandle: ak}.Execute(tpm)
	}
	noError(t, err)
	area, err := public.OutPublic.Contents()
	noError(t, err)
	key, err := tpm2.Pub(*area)
	noError(t, err)
	certificate := Issued(t, &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: "378964f8555f.TrustedVM.Azure.windows.net"},
		NotBefore: h.now.Add(-24 * time.Hour), NotAfter: h.now.Add(24 * time.Hour),
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature,
		UnknownExtKeyUsage:    identifiers([]oid.OID{oid.AzureKpAK, oid.TCGKpAIKCertificate}),
		IssuingCertificateURL: h.urls,
	}, h.ca, key)
	noError(t, tpm.DeleteNV(index))
	WriteAzureNV(t, tpm, index, tpm2.TPMANV{AuthRead: true, OwnerRead: true, NoDA: true}, append(certificate.Raw, make([]byte, size-len(certificate.Raw))...))
	return certificate
}

// azureAK is what the AKs of Azure's virtual machines are made from.
func azureAK() *tpm2.TPMTPublic {
	return &tpm2.TPMTPublic{
		Type: tpm2.TPMAlgRSA, NameAlg: tpm2.TPMAlgSHA256,
		ObjectAttributes: tpm2.TPMAObject{FixedTPM: true, FixedParent: true, SensitiveDataOrigin: true, UserWithAuth: true, NoDA: true, Restricted: true, SignEncrypt: true},
		Parameters: tpm2.NewTPMUPublicParms(tpm2.TPMAlgRSA, &tpm2.TPMSRSAParms{KeyBits: 2048,
			Scheme: tpm2.TPMTRSAScheme{Scheme: tpm2.TPMAlgRSASSA, Details: tpm2.NewTPMUAsymScheme(tpm2.TPMAlgRSASSA, &tpm2.TPMSSigSchemeRSASSA{HashAlg: tpm2.TPMAlgSHA256})}}),
	}
}

func identifiers(ids []oid.OID) (list []asn1.ObjectIdentifier) {
	for _, id := range ids {
		form, _ := id.ASN1()
		list = append(list, form)
	}
	return list
}
