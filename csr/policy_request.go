package csr

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rsa"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	cryptobyteasn1 "golang.org/x/crypto/cryptobyte/asn1"

	"github.com/nodeattest/nodeattest/oid"
	"github.com/nodeattest/nodeattest/refusal"
)

func (x *run) checkAttestationProvider() {
	name, _, _ := strings.Cut(x.out.bundle.Provider, "/")
	switch x.provider {
	case name, "":
		return // the same, or one of Kubernetes' signers, which select none
	case ProviderInsecure:
		if name != "" {
			x.refuse(refusal.Quote(x.out.bundle.Provider), "no evidence")
		}
		return
	}
	x.refuseErr(otherEvidence(x.out.bundle.Provider, x.provider))
}

// one returns the subject's one attribute of a type. Where there is none, or more
// than one, or one that is no text, it says so instead.
func (x *run) one(id oid.OID) (found *NameAttribute, fault string) {
	count := 0
	for i := range x.out.pkcs10.Subject {
		if a := &x.out.pkcs10.Subject[i]; a.Type == id {
			found = a
			count++
		}
	}
	if count != 1 {
		return nil, strconv.Itoa(count) + " of them"
	}
	switch cryptobyteasn1.Tag(found.Tag) {
	case cryptobyteasn1.UTF8String, cryptobyteasn1.PrintableString, cryptobyteasn1.IA5String:
		return found, ""
	}
	return nil, "no text (tag " + strconv.Itoa(int(found.Tag)) + ")"
}

func (x *run) checkSubjectCommonName() {
	if x.out.purpose == 0 {
		return
	}
	prefix, _ := x.out.purpose.subject()
	attribute, fault := x.one(oid.CommonName)
	if fault == "" {
		// crypto/x509 has made a string of it already.
		name := x.out.pkcs10.CSR.Subject.CommonName
		if name != string(attribute.Value) {
			name = string(attribute.Value)
		}
		var ok bool
		if x.out.nodeName, ok = nodeNameAfter(prefix, name); ok {
			return
		}
		fault = refusal.Quote(name)
	}
	x.refuse(fault, "one common name, "+prefix+" and a node name")
}

func (x *run) checkSubjectOrganization() {
	if x.out.purpose == 0 {
		return
	}
	_, organization := x.out.purpose.subject()
	attribute, fault := x.one(oid.Organization)
	if fault == "" {
		if string(attribute.Value) == organization {
			return
		}
		fault = refusal.Quote(string(attribute.Value))
	}
	x.refuse(fault, "one organization, "+organization)
}

func (x *run) checkSubjectExtraRDN() {
	for i := range x.out.pkcs10.Subject {
		switch a := &x.out.pkcs10.Subject[i]; a.Type {
		case oid.CommonName, oid.Organization:
		case oid.KubernetesUID:
			x.refuse("a user's UID ("+a.Type.String()+")", "CN and O only")
		default:
			x.refuse("attribute "+a.Type.String(), "CN and O only")
		}
	}
}

func (x *run) checkSubjectMultiValue() {
	for i := 1; i < len(x.out.pkcs10.Subject); i++ {
		if x.out.pkcs10.Subject[i].RDN == x.out.pkcs10.Subject[i-1].RDN {
			x.refuse("several attributes in one RDN", "one attribute in each")
			return
		}
	}
}

func (x *run) checkRequesterOtherNode() {
	own := x.out.requester.NodeName
	if own == "" || x.out.nodeName == "" || own == x.out.nodeName {
		return
	}
	x.refuse(refusal.Quote(x.out.nodeName), "the requester's own node, "+own)
}

func (x *run) checkAttributeNotAllowed() {
	for _, id := range x.out.pkcs10.OtherAttributes {
		x.refuse("attribute "+id.String(), "extensionRequest only")
	}
}

func (x *run) checkExtensionNotAllowed() {
	extensions := x.out.pkcs10.CSR.Extensions
	for i := range extensions {
		id := extensions[i].Id
		switch {
		case oid.KubernetesNodeProviderIdentifier.Equal(id):
		case oid.SubjectAltName.Equal(id): // the san- rules judge it
		case x.policy.Flag != nil && id.Equal(x.policy.Flag):
		default:
			x.refuse("extension "+id.String(), "provider ID and, for serving, SANs")
		}
	}
}

func (x *run) checkFlag() {
	if x.policy.Flag == nil {
		return
	}
	set, err := HasFlag(x.out.pkcs10.CSR.Extensions, x.policy.Flag)
	if v := (*Error)(nil); errors.As(err, &v) {
		x.refuse(v.Got, v.Want)
		return
	}
	if !set && x.policy.RequireFlag {
		x.refuse("no flag", "extension "+x.policy.Flag.String())
	}
}

func (x *run) checkKeyType() {
	switch key := x.out.pkcs10.CSR.PublicKey.(type) {
	case *rsa.PublicKey, *ecdsa.PublicKey:
	default:
		x.refuse(fmt.Sprintf("%T", key), "RSA or ECDSA")
	}
}

func (x *run) checkKeyStrength() {
	switch key := x.out.pkcs10.CSR.PublicKey.(type) {
	case *rsa.PublicKey:
		shortest := max(x.policy.MinRSABits, minRSABits)
		if bits := key.N.BitLen(); bits < shortest || bits > maxPolicyRSABit {
			x.refuse(strconv.Itoa(bits)+" bits", strconv.Itoa(shortest)+" to "+strconv.Itoa(maxPolicyRSABit))
		}
		if key.E != 65537 {
			x.refuse("exponent "+strconv.Itoa(key.E), "65537")
		}
		if key.N.Bit(0) == 0 {
			x.refuse("an even modulus", "a product of two primes")
		}
	case *ecdsa.PublicKey:
		if !x.policy.takesCurve(key.Curve) {
			x.refuse("curve "+key.Curve.Params().Name, "a curve that the policy takes")
		}
	}
}

func (p *Policy) takesCurve(c elliptic.Curve) bool {
	if p.Curves == nil {
		return c == elliptic.P256() || c == elliptic.P384()
	}
	return slices.Contains(p.Curves, c)
}

func (x *run) checkProviderIDMissing() {
	if x.policy.RequireProviderID && x.out.pkcs10.ProviderID == "" {
		x.refuse("no provider ID", "one")
	}
}
