package tpmsim

import (
	"bytes"
	"crypto/x509/pkix"
	"encoding/asn1"
	"fmt"
	"slices"

	"golang.org/x/crypto/cryptobyte"
	cbasn1 "golang.org/x/crypto/cryptobyte/asn1"

	"github.com/nodeattest/nodeattest/oid"
)

// subjectAltName makes the SAN of a TPM certificate: the directory name and, where
// there is one, the other name (RFC 5280, section 4.2.1.6). It is critical, as it
// must be where the subject is empty.
func subjectAltName(d Directory, other *OtherName, singleRDN bool) (pkix.Extension, error) {
	var b cryptobyte.Builder
	b.AddASN1(cbasn1.SEQUENCE, func(b *cryptobyte.Builder) {
		if other != nil {
			b.AddASN1(cbasn1.Tag(0).ContextSpecific().Constructed(), func(b *cryptobyte.Builder) {
				oid.Add(b, other.Type)
				b.AddASN1(cbasn1.Tag(0).ContextSpecific().Constructed(), func(b *cryptobyte.Builder) {
					b.AddBytes(other.Value)
				})
			})
		}
		// Name is a CHOICE, so the implicit tag of directoryName becomes explicit.
		b.AddASN1(cbasn1.Tag(4).ContextSpecific().Constructed(), func(b *cryptobyte.Builder) {
			b.AddASN1(cbasn1.SEQUENCE, func(b *cryptobyte.Builder) { addDirectory(b, d, singleRDN) })
		})
	})
	return extension(oid.SubjectAltName, true, &b)
}

// addDirectory adds the RDNs of a directory name: one for each attribute, or one for
// all, whose order is then that of DER's SET OF.
func addDirectory(b *cryptobyte.Builder, d Directory, singleRDN bool) {
	attributes := [][]byte{
		attribute(b, oid.TCGAtTPMManufacturer, d.Manufacturer),
		attribute(b, oid.TCGAtTPMModel, d.Model),
		attribute(b, oid.TCGAtTPMVersion, d.Version),
	}
	if singleRDN {
		slices.SortFunc(attributes, bytes.Compare)
		b.AddASN1(cbasn1.SET, func(b *cryptobyte.Builder) { b.AddBytes(bytes.Join(attributes, nil)) })
		return
	}
	for _, a := range attributes {
		b.AddASN1(cbasn1.SET, func(b *cryptobyte.Builder) { b.AddBytes(a) })
	}
}

// attribute encodes an AttributeTypeAndValue with a UTF8String. A failure becomes
// the error of the builder for which it is made.
func attribute(parent *cryptobyte.Builder, o oid.OID, value string) []byte {
	var b cryptobyte.Builder
	b.AddASN1(cbasn1.SEQUENCE, func(b *cryptobyte.Builder) {
		oid.Add(b, o)
		b.AddASN1(cbasn1.UTF8String, func(b *cryptobyte.Builder) { b.AddBytes([]byte(value)) })
	})
	der, err := b.Bytes()
	if err != nil {
		parent.SetError(err)
	}
	return der
}

// tpmSpecification makes the subject directory attributes with the TPM specification
// attribute: family "2.0", level 0, revision 138 (EK Credential Profile 2.6, section
// 3.2).
func tpmSpecification() (pkix.Extension, error) {
	var b cryptobyte.Builder
	b.AddASN1(cbasn1.SEQUENCE, func(b *cryptobyte.Builder) {
		b.AddASN1(cbasn1.SEQUENCE, func(b *cryptobyte.Builder) {
			oid.Add(b, oid.TCGAtTPMSpecification)
			b.AddASN1(cbasn1.SET, func(b *cryptobyte.Builder) {
				b.AddASN1(cbasn1.SEQUENCE, func(b *cryptobyte.Builder) {
					b.AddASN1(cbasn1.UTF8String, func(b *cryptobyte.Builder) { b.AddBytes([]byte("2.0")) })
					b.AddASN1Int64(0)
					b.AddASN1Int64(138)
				})
			})
		})
	})
	return extension(oid.SubjectDirectoryAttributes, false, &b)
}

// certificatePolicy makes certificate policies that hold one, critical and without
// qualifiers.
func certificatePolicy(policy oid.OID) (pkix.Extension, error) {
	var b cryptobyte.Builder
	b.AddASN1(cbasn1.SEQUENCE, func(b *cryptobyte.Builder) {
		b.AddASN1(cbasn1.SEQUENCE, func(b *cryptobyte.Builder) { oid.Add(b, policy) })
	})
	return extension(oid.CertificatePolicies, true, &b)
}

// instanceIdentity makes Google's instance-identity extension.
func instanceIdentity(i *oid.GCEInstance) (pkix.Extension, error) {
	value, err := i.Marshal()
	if err != nil {
		return pkix.Extension{}, fmt.Errorf("tpmsim: instance identity: %w", err)
	}
	var b cryptobyte.Builder
	b.AddBytes(value)
	return extension(oid.KubernetesNodeProviderIdentifier, false, &b)
}

func extension(o oid.OID, critical bool, value *cryptobyte.Builder) (pkix.Extension, error) {
	der, err := value.Bytes()
	if err != nil {
		return pkix.Extension{}, fmt.Errorf("tpmsim: extension %v: %w", o, err)
	}
	id, err := asn1OID(o)
	return pkix.Extension{Id: id, Critical: critical, Value: der}, err
}

func asn1OID(o oid.OID) (asn1.ObjectIdentifier, error) {
	id, ok := o.ASN1()
	if !ok {
		return nil, fmt.Errorf("%w: crypto/x509 cannot hold the identifier %v", ErrOptions, o)
	}
	return id, nil
}
