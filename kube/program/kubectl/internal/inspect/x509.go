package inspect

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/nodeattest/nodeattest/attest/tpm/tpmcert"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/oid"
)

const (
	maxCertificate = 64 << 10 // bytes given to crypto/x509
	maxRSABits     = 8192     // of keys whose signatures are checked
)

// request shows a PKCS#10 request: RFC 2986.
func (t *tree) request(b []byte) {
	r, err := csr.ParsePKCS10(b)
	if err != nil {
		t.fault("refused: " + err.Error())
		if r, err = csr.ParseForeignPKCS10(b); err != nil {
			t.in("DER", "", func() { t.outline(b, 0, private) })
			return
		}
	}
	t.line("subject", quoted(r.CSR.Subject.String()))
	t.key(r.CSR.PublicKey, r.CSR.RawSubjectPublicKeyInfo)
	for _, e := range r.CSR.Extensions {
		t.extension(e)
	}
	for _, id := range r.OtherAttributes {
		t.in("attribute "+nameOf(id), "", func() {
			if value, ok := r.Attribute(id); ok && id == oid.IDAAAttestation {
				t.binary(value)
			} else {
				t.line("value", sizeOf(len(value))+", not shown")
			}
		})
	}
	t.line("signed with", r.CSR.SignatureAlgorithm.String())
	if k, ok := r.CSR.PublicKey.(*rsa.PublicKey); ok && k.N.BitLen() > maxRSABits {
		t.line("self-signature", "not checked: the key is too large")
	} else if err := r.CheckSignature(); err != nil {
		t.line("self-signature", "DOES NOT HOLD: "+err.Error())
	} else {
		t.line("self-signature", "holds")
	}
}

// certificate shows a certificate: RFC 5280, 4.1. The attributes of a TPM in an EK certificate are read by
// tpmcert.
func (t *tree) certificate(b []byte) {
	c, err := x509.ParseCertificate(b[:min(len(b), maxCertificate)])
	if err != nil {
		t.refuse(b, err)
		return
	}
	t.line("serial", fmt.Sprintf("0x%x", c.SerialNumber))
	t.line("signed with", c.SignatureAlgorithm.String())
	t.line("issuer", quoted(c.Issuer.String()))
	t.line("not before", c.NotBefore.UTC().Format(time.RFC3339))
	t.line("not after", c.NotAfter.UTC().Format(time.RFC3339))
	t.line("subject", quoted(c.Subject.String()))
	t.line("certificate authority", map[bool]string{false: "no", true: "YES"}[c.IsCA])
	var usages []string
	for bit := x509.KeyUsageDigitalSignature; bit <= x509.KeyUsageDecipherOnly; bit <<= 1 {
		if c.KeyUsage&bit != 0 {
			usages = append(usages, bit.String())
		}
	}
	t.line("key usage", strings.Join(usages, ", "))
	ek, ekErr := tpmcert.ParseEK(b)
	if c.PublicKey == nil && ekErr == nil {
		c.PublicKey = ek.PublicKey
	}
	t.key(c.PublicKey, c.RawSubjectPublicKeyInfo)
	for _, e := range c.Extensions {
		t.extension(e)
		if oid.SubjectDirectoryAttributes.Equal(e.Id) && ekErr != nil {
			t.fault("refused as a TPM's certificate: " + ekErr.Error())
		}
	}
	if ekErr == nil {
		t.field("TPM", reflect.ValueOf(ek.Directory))
		t.field("TPM specification", reflect.ValueOf(ek.Specification))
	}
}

// extension shows an X.509 extension, whose content is public.
func (t *tree) extension(e pkix.Extension) {
	id, _ := oid.FromASN1(e.Id)
	t.in("extension "+nameOf(id), map[bool]string{true: "critical"}[e.Critical], func() {
		if !oid.KubernetesNodeProviderIdentifier.Equal(e.Id) {
			t.outline(e.Value, 0, public)
		} else if id, err := oid.UnmarshalProviderID(e.Value); err == nil {
			t.line("provider ID", quoted(id))
		} else if g, gceErr := oid.ParseGCEInstance(e.Value); gceErr == nil {
			t.field("GCE instance", reflect.ValueOf(g))
		} else {
			t.refuse(e.Value, err)
		}
	})
}

// key writes the type of a key, and the digest that identities contain. Its encoding may be nil.
func (t *tree) key(key crypto.PublicKey, spki []byte) {
	kind := "of an unknown type"
	switch key := key.(type) {
	case *rsa.PublicKey:
		kind = fmt.Sprintf("RSA, %d bits, exponent %d", key.N.BitLen(), key.E)
	case *ecdsa.PublicKey:
		kind = "ECDSA, " + key.Curve.Params().Name
	case ed25519.PublicKey:
		kind = "Ed25519"
	}
	t.line("key", kind)
	if hash, err := csr.SPKIHash(key); err == nil {
		t.line("key digest", fmt.Sprintf("sha256:%x", hash))
		if spki != nil && !csr.IsCanonicalSPKI(spki) {
			t.line("encoding", "NOT the canonical one, over which the digest is")
		}
	}
}
