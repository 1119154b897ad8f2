package main

import (
	"cmp"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/nodeattest/nodeattest/attest/tpm/tpmcert"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/oid"
)

const (
	maxCertificate = 64 << 10 // bytes that crypto/x509 gets to see
	maxRSABits     = 8192     // of keys that this program computes with
)

// showRequest shows a PKCS#10 request: RFC 2986.
func (t *tree) showRequest(b []byte) {
	request, err := csr.ParsePKCS10(b)
	if err != nil {
		t.fault("refused: " + err.Error())
		if request, err = csr.ParseForeignPKCS10(b); err != nil {
			t.in("outline", "", func() { t.outline(b, 0, private) })
			return
		}
	}
	if t.parts.request == nil {
		t.parts.request = request
	}
	t.names("subject", request.CSR.Subject)
	t.showKeyOf(request.CSR.PublicKey, request.CSR.RawSubjectPublicKeyInfo)
	for _, e := range request.CSR.Extensions {
		t.showExtension(e)
	}
	for _, id := range request.OtherAttributes {
		t.in("attribute "+nameOf(id), "", func() {
			if value, ok := request.Attribute(id); ok && id == oid.IDAAAttestation {
				t.showBinary(value)
			} else {
				t.line("value", sizeOf(len(value))+", not shown")
			}
		})
	}
	t.line("signed with", request.CSR.SignatureAlgorithm.String())
	if !computable(request.CSR.PublicKey) {
		t.line("self-signature", "not checked: the key is too large")
	} else if err := request.CheckSignature(); err != nil {
		t.line("self-signature", "DOES NOT HOLD: "+err.Error())
	} else {
		t.line("self-signature", "holds")
	}
}

// showCertificate shows a certificate: RFC 5280, 4.1. What a TPM's certificate says of
// the TPM comes from the SDK's own reader.
func (t *tree) showCertificate(b []byte) {
	c, err := x509.ParseCertificate(b[:min(len(b), maxCertificate)])
	if err != nil {
		t.refuse(b, err.Error())
		return
	}
	if len(t.parts.certificates) < maxChain {
		t.parts.certificates = append(t.parts.certificates, c)
	}
	t.line("serial", fmt.Sprintf("0x%x", c.SerialNumber))
	t.line("signed with", c.SignatureAlgorithm.String())
	t.names("issuer", c.Issuer)
	t.line("not before", c.NotBefore.UTC().Format(time.RFC3339))
	t.line("not after", c.NotAfter.UTC().Format(time.RFC3339))
	t.names("subject", c.Subject)
	t.line("certificate authority", map[bool]string{false: "no", true: "YES"}[c.IsCA])
	t.line("key usage", usages(c.KeyUsage))
	ek, ekErr := tpmcert.ParseEKCertificate(b, tpmcert.AnyEKEncoding())
	if key := c.PublicKey; key == nil && ekErr == nil {
		t.showKeyOf(ek.PublicKey, c.RawSubjectPublicKeyInfo)
	} else {
		t.showKeyOf(key, c.RawSubjectPublicKeyInfo)
	}
	for _, e := range c.Extensions {
		t.showExtension(e)
		if oid.SubjectDirectoryAttributes.Equal(e.Id) && ekErr != nil {
			t.fault("refused as a TPM's certificate: " + ekErr.Error())
		}
	}
	if ekErr == nil {
		t.field("TPM", reflect.ValueOf(ek.Directory))
		t.field("TPM specification", reflect.ValueOf(ek.Specification))
	}
}

// usages lists the bits of a keyUsage extension.
func usages(usage x509.KeyUsage) string {
	var set []string
	for i, name := range []string{"digitalSignature", "contentCommitment", "keyEncipherment", "dataEncipherment", "keyAgreement",
		"keyCertSign", "cRLSign", "encipherOnly", "decipherOnly"} {
		if usage>>i&1 == 1 {
			set = append(set, name)
		}
	}
	return cmp.Or(strings.Join(set, ", "), "not stated")
}

// names writes a distinguished name, a line for each attribute.
func (t *tree) names(name string, of pkix.Name) {
	t.in(name, "", func() {
		for _, n := range of.Names {
			t.line(nameOfASN1(n.Type), quoted(fmt.Sprint(n.Value)))
		}
	})
}

// showExtension shows an X.509 extension, whose content nobody needs to hide.
func (t *tree) showExtension(e pkix.Extension) {
	t.in("extension "+nameOfASN1(e.Id), map[bool]string{true: "critical"}[e.Critical], func() {
		if !oid.KubernetesNodeProviderIdentifier.Equal(e.Id) {
			t.outline(e.Value, 0, public)
		} else if id, err := oid.UnmarshalProviderID(e.Value); err == nil {
			t.line("provider ID", quoted(id))
		} else if g, gceErr := oid.ParseGCEInstance(e.Value); gceErr == nil {
			t.field("GCE instance", reflect.ValueOf(g))
		} else {
			t.refuse(e.Value, err.Error())
		}
	})
}

// showKeyOf shows the key that a certificate or a request carries; nil where crypto/x509
// does not know its kind.
func (t *tree) showKeyOf(key crypto.PublicKey, spki []byte) {
	if key == nil {
		t.line("key", "of a kind that Go does not read")
		return
	}
	t.showKey(key)
	if canonical, err := csr.CanonicalSPKI(key); err == nil && string(canonical) != string(spki) {
		t.line("encoding", "NOT the canonical one, over which the digest is")
	}
}

// showKeyInfo shows a SubjectPublicKeyInfo: RFC 5280, 4.1.2.7.
func (t *tree) showKeyInfo(b []byte) {
	key, err := x509.ParsePKIXPublicKey(b)
	if err != nil {
		t.refuse(b, err.Error())
		return
	}
	t.showKeyOf(key, b)
}

// showKey writes what a key is, and the digest that stands for it in identities.
func (t *tree) showKey(key crypto.PublicKey) {
	kind := fmt.Sprintf("%T", key)
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
	}
}

// computable reports whether a signature under the key takes little time to verify.
func computable(key crypto.PublicKey) bool {
	k, ok := key.(*rsa.PublicKey)
	return !ok || k.N.BitLen() <= maxRSABits
}

// nameOf gives an identifier's name and its number.
func nameOf(id oid.OID) string {
	if name := id.Name(); name != "" {
		return strings.TrimPrefix(name, "id-at-") + " (" + id.String() + ")"
	}
	return id.String()
}

func nameOfASN1(id asn1.ObjectIdentifier) string {
	known, err := oid.FromASN1(id)
	if err != nil {
		return id.String()
	}
	return nameOf(known)
}
