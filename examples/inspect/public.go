package main

import (
	"fmt"

	"github.com/nodeattest/nodeattest/attest/tpm"
)

// A role says what a public area is there for.
type role int

const (
	roleUnknown role = iota
	roleAK
	roleCertified
)

// showPublic reads a TPMT_PUBLIC: TPM 2.0 Library, Part 2, 12.2.4.
func showPublic(r *reader, as role) {
	r.strictly(r.publicFields, func(raw []byte) error {
		p, err := tpm.ParsePublic(raw)
		if err != nil {
			return err
		}
		r.t.line("Name, computed", fmt.Sprintf("%x", p.Name()))
		if key, err := p.Key(); err != nil {
			r.t.line("key", "none: "+err.Error())
		} else {
			r.t.showKey(key)
		}
		if as == roleUnknown {
			as = roleCertified
			if p.Attributes.Has(tpm.AttributeRestricted | tpm.AttributeSign) {
				as = roleAK
			}
		}
		switch {
		case as == roleAK && r.t.parts.ak == nil:
			r.t.parts.ak = p
		case as == roleCertified && r.t.parts.public == nil:
			r.t.parts.public = p
		}
		return nil
	})
}

func (r *reader) publicFields() {
	kind := r.algorithmOf("type")
	r.algorithmOf("nameAlg")
	if v, ok := r.uint("objectAttributes", 4); ok {
		r.t.line("objectAttributes", fmt.Sprintf("%s (0x%08x)", tpm.Attributes(v), v))
	}
	r.sizedLine("authPolicy")
	switch kind {
	case 0x0001:
		r.symmetric()
		r.scheme("scheme")
		r.count("keyBits", 2)
		if v, ok := r.uint("exponent", 4); ok {
			stands := ""
			if v == 0 {
				stands = ", which stands for 65537"
			}
			r.t.line("exponent", fmt.Sprint(v, stands))
		}
		r.sizedLine("modulus")
	case 0x0023:
		r.symmetric()
		r.scheme("scheme")
		if v, ok := r.uint("curve", 2); ok {
			names := map[uint64]string{3: "P-256", 4: "P-384", 5: "P-521", 0x10: "BN P256", 0x20: "SM2 P256"}
			r.t.line("curve", fmt.Sprintf("%s (0x%04x)", orUnknown(names[v]), v))
		}
		r.scheme("kdf")
		r.sizedLine("x")
		r.sizedLine("y")
	default:
		r.stop("type: only RSA and ECC keys are read")
	}
}

// symmetric reads a TPMT_SYM_DEF_OBJECT.
func (r *reader) symmetric() {
	if r.algorithmOf("symmetric") == 0x0010 {
		return
	}
	r.count("symmetric keyBits", 2)
	r.algorithmOf("symmetric mode")
}

// scheme reads a TPMT_RSA_SCHEME, TPMT_ECC_SCHEME or TPMT_KDF_SCHEME.
func (r *reader) scheme(name string) {
	alg := r.algorithmOf(name)
	switch alg {
	case 0x0010, 0x0015: // NULL and RSAES have nothing behind them
		return
	case 0x0014, 0x0016, 0x0017, 0x0018, 0x0019, 0x001a, 0x001b, 0x001c, 0x001d, 0x0007, 0x0020, 0x0021, 0x0022:
	default:
		r.stop("%s: %s is none", name, algorithmName(alg))
	}
	r.algorithmOf(name + " hash")
	if alg == 0x001a {
		r.count(name+" count", 2)
	}
}

func orUnknown(name string) string {
	if name == "" {
		return "unknown"
	}
	return name
}
