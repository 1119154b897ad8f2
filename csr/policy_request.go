package csr

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rsa"
	"fmt"
	"slices"
	"strconv"
	"strings"

	cryptobyteasn1 "golang.org/x/crypto/cryptobyte/asn1"

	"github.com/nodeattest/nodeattest/oid"
	"github.com/nodeattest/nodeattest/refusal"
)

// requestRules need the PKCS#10 request as well.
var requestRules = []rule{
	{CheckAttestationProvider, nil, func(x *run) {
		evidence := x.out.bundle.Provider
		name, _, _ := strings.Cut(evidence, "/")
		switch {
		case x.provider == name || x.provider == "": // the same, or one of Kubernetes' signers, which select none
		case x.provider == ProviderInsecure && name == "":
		case x.provider == ProviderInsecure:
			x.refuse(refusal.Quote(evidence), "no evidence")
		default:
			x.refuseErr(otherEvidence(evidence, x.provider))
		}
	}},
	{CheckSubjectCommonName, known, func(x *run) {
		prefix := purposes[x.out.purpose].prefix
		name, fault := x.one(oid.CommonName)
		if fault == "" {
			// crypto/x509 has made a string of it already.
			text, ok := x.out.pkcs10.CSR.Subject.CommonName, false
			if text != string(name) {
				text = string(name)
			}
			if x.out.nodeName, ok = nodeNameAfter(prefix, text); ok {
				return
			}
			fault = refusal.Quote(text)
		}
		x.refuse(fault, "one common name, "+prefix+" and a node name")
	}},
	{CheckSubjectOrganization, known, func(x *run) {
		organization := purposes[x.out.purpose].organization
		name, fault := x.one(oid.Organization)
		if fault == "" {
			if string(name) == organization {
				return
			}
			fault = refusal.Quote(string(name))
		}
		x.refuse(fault, "one organization, "+organization)
	}},
	{CheckSubjectExtraRDN, nil, func(x *run) {
		for i := range x.out.pkcs10.Subject {
			switch id := x.out.pkcs10.Subject[i].Type; id {
			case oid.CommonName, oid.Organization:
			case oid.KubernetesUID:
				x.refuse("a user's UID ("+id.String()+")", "CN and O only")
			default:
				x.refuse("attribute "+id.String(), "CN and O only")
			}
		}
	}},
	{CheckSubjectMultiValue, nil, func(x *run) {
		subject := x.out.pkcs10.Subject
		if n := len(subject); n > 0 && subject[n-1].RDN < n-1 { // RDNs count from 0, and none is empty
			x.refuse("several attributes in one RDN", "one attribute in each")
		}
	}},
	{CheckRequesterOtherNode, nil, func(x *run) {
		own := x.out.requester.NodeName
		if own != "" && x.out.nodeName != "" && own != x.out.nodeName {
			x.refuse(refusal.Quote(x.out.nodeName), "the requester's own node, "+own)
		}
	}},
	{CheckAttributeNotAllowed, nil, func(x *run) {
		for _, id := range x.out.pkcs10.OtherAttributes {
			x.refuse("attribute "+id.String(), "extensionRequest only")
		}
	}},
	{CheckExtensionNotAllowed, nil, func(x *run) {
		extensions := x.out.pkcs10.CSR.Extensions
		for i := range extensions {
			id := extensions[i].Id
			isFlag := x.policy.Flag != nil && id.Equal(x.policy.Flag)
			if !isFlag && !oid.KubernetesNodeProviderIdentifier.Equal(id) && !oid.SubjectAltName.Equal(id) { // the san- rules judge that
				x.refuse("extension "+id.String(), "provider ID and, for serving, SANs")
			}
		}
	}},
	{CheckFlag, nil, func(x *run) {
		if x.policy.Flag == nil {
			return
		}
		set, err := HasFlag(x.out.pkcs10.CSR.Extensions, x.policy.Flag)
		x.refuseErr(err)
		if err == nil && !set && x.policy.RequireFlag {
			x.refuse("no flag", "extension "+x.policy.Flag.String())
		}
	}},
	{CheckKeyType, nil, func(x *run) {
		switch key := x.out.pkcs10.CSR.PublicKey.(type) {
		case *rsa.PublicKey, *ecdsa.PublicKey:
		default:
			x.refuse(fmt.Sprintf("%T", key), "RSA or ECDSA")
		}
	}},
	{CheckKeyStrength, nil, (*run).checkKeyStrength},
}

// one returns the value of the subject's one attribute of a type. Where there is none, or
// more than one, or one that is no text, it says so instead.
func (x *run) one(id oid.OID) (value []byte, fault string) {
	var tag cryptobyteasn1.Tag
	count := 0
	for _, a := range x.out.pkcs10.Subject {
		if a.Type == id {
			value, tag = a.Value, cryptobyteasn1.Tag(a.Tag)
			count++
		}
	}
	switch {
	case count != 1:
		return nil, strconv.Itoa(count) + " of them"
	case tag == cryptobyteasn1.UTF8String, tag == cryptobyteasn1.PrintableString, tag == cryptobyteasn1.IA5String:
		return value, ""
	}
	return nil, "no text (tag " + strconv.Itoa(int(tag)) + ")"
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
		return slices.Contains(policyCurves[:2], c)
	}
	return slices.Contains(p.Curves, c)
}
