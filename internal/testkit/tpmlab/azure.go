package tpmlab

import (
	"bytes"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"testing"
	"time"

	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/internal/testkit"
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
}

// AzureHierarchies are both of them, below one root, valid for a day before and after now.
func AzureHierarchies(t testing.TB) []*AzureHierarchy {
	t.Helper()
	now, all := time.Now(), []oid.OID{oid.AzureKpAK, oid.TCGKpEKCertificate, oid.TCGKpAIKCertificate}
	ca := func(parent *CA, name string, usages []oid.OID, pathLen int) *CA {
		return Sign(t, parent, name, func(c *x509.Certificate) {
			c.NotBefore, c.NotAfter = now.Add(-24*time.Hour), now.Add(24*time.Hour)
			c.KeyUsage |= x509.KeyUsageDigitalSignature | x509.KeyUsageCRLSign
			if usages != nil {
				c.ExtraExtensions = []pkix.Extension{Usages(usages...)}
			}
			c.MaxPathLen, c.MaxPathLenZero = pathLen, pathLen == 0
		})
	}
	root := ca(nil, "Azure Virtual TPM Root Certificate Authority 2023", nil, -1)
	upper := ca(root, "Azure Cloud Virtual TPM CA 2025", all, 1)
	cloud := ca(upper, "Azure Cloud Virtual TPM CA - 11", all, 0)
	global := ca(root, "Global Virtual TPM CA - 03", all[1:], 0)
	return []*AzureHierarchy{
		{"Azure Cloud Virtual TPM CA", root.Cert, []*x509.Certificate{cloud.Cert, upper.Cert}, cloud, []string{"http://127.0.0.1/cert.cer"}},
		{"Global Virtual TPM CA", root.Cert, []*x509.Certificate{global.Cert}, global, nil},
	}
}

// azureAKCertificate is the index of an AK's certificate.
const azureAKCertificate tpm2.TPMHandle = 0x01c101d0

// AzureVM are the options of a TPM of a virtual machine of Azure's, with a persistent AK.
func AzureVM() tpmsim.Options {
	return tpmsim.Options{EKs: []tpmsim.Algorithm{}, AKs: []tpmsim.AK{{Template: azureAK(), Handle: 0x81000003, CertificateIndex: azureAKCertificate}}}
}

// Provision certifies the AK of such a TPM, again if need be, with the certificate in a padded
// index with a password of its own.
func (h *AzureHierarchy) Provision(t testing.TB, tpm *tpmsim.TPM) *x509.Certificate {
	t.Helper()
	certificate := Issued(t, &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: "378964f8555f.TrustedVM.Azure.windows.net"},
		NotBefore: time.Now().Add(-24 * time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtraExtensions:       []pkix.Extension{Usages(oid.AzureKpAK, oid.TCGKpAIKCertificate)},
		IssuingCertificateURL: h.urls,
	}, h.ca, tpm.AKPublic(tpmsim.RSA2048))
	testkit.NoError(t, tpm.DeleteNV(azureAKCertificate))
	padded := append(bytes.Clone(certificate.Raw), make([]byte, 2048-len(certificate.Raw))...)
	WriteAzureNV(t, tpm, azureAKCertificate, tpm2.TPMANV{AuthRead: true, OwnerRead: true, NoDA: true}, padded)
	return certificate
}

// azureAK is the template of the AKs of Azure's virtual machines.
func azureAK() *tpm2.TPMTPublic {
	return &tpm2.TPMTPublic{
		Type: tpm2.TPMAlgRSA, NameAlg: tpm2.TPMAlgSHA256,
		ObjectAttributes: tpm2.TPMAObject{FixedTPM: true, FixedParent: true, SensitiveDataOrigin: true, UserWithAuth: true, NoDA: true, Restricted: true, SignEncrypt: true},
		Parameters: tpm2.NewTPMUPublicParms(tpm2.TPMAlgRSA, &tpm2.TPMSRSAParms{KeyBits: 2048,
			Scheme: tpm2.TPMTRSAScheme{Scheme: tpm2.TPMAlgRSASSA, Details: tpm2.NewTPMUAsymScheme(tpm2.TPMAlgRSASSA, &tpm2.TPMSSigSchemeRSASSA{HashAlg: tpm2.TPMAlgSHA256})}}),
	}
}
