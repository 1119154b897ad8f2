package csr

import "slices"

// Clone returns a copy of p that shares no memory with it but what its functions refer
// to: what a verifier keeps, so that nobody changes its policy behind its back. The
// clone of nil is nil.
func (p *Policy) Clone() *Policy {
	if p == nil {
		return nil
	}
	c := *p
	c.SignerNames = slices.Clone(p.SignerNames)
	c.Flag = slices.Clone(p.Flag)
	c.Curves = slices.Clone(p.Curves)
	c.ReservedIPs = slices.Clone(p.ReservedIPs)
	c.ReservedDNSNames = slices.Clone(p.ReservedDNSNames)
	return &c
}
