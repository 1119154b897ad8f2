package csr

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rsa"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/nodeattest/nodeattest/oid"
)

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
