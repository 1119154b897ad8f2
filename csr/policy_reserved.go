package csr

import (
	"net/netip"
	"strings"
)

// endsInNumber says whether the last label is a number, decimal or hexadecimal, so
// that a client could take the name for an IPv4 address (WHATWG URL, "ends in a
// number checker"). No public or private zone is named so. name is in lower case.
func endsInNumber(name string) bool {
	label := name[strings.LastIndexByte(name, '.')+1:]
	if digits, ok := strings.CutPrefix(label, "0x"); ok {
		return strings.Trim(digits, "0123456789abcdef") == ""
	}
	return strings.Trim(label, "0123456789") == ""
}

// reservedName judges a name in lower case.
func (p *Policy) reservedName(name string) bool {
	const api = "kubernetes.default"
	switch {
	case name == "kubernetes", name == api, strings.HasPrefix(name, api+"."),
		name == "localhost", strings.HasSuffix(name, ".localhost"),
		strings.HasSuffix(name, ".svc"), strings.HasSuffix(name, ".cluster.local"):
		return true
	}
	for _, reserved := range p.ReservedDNSNames {
		if equalLower(reserved, name) {
			return true
		}
		if strings.HasPrefix(reserved, ".") && len(name) > len(reserved) && equalLower(reserved, name[len(name)-len(reserved):]) {
			return true
		}
	}
	return false
}

// reservable says whether an entry of ReservedDNSNames can be, or be the end of, a
// name that sanForm lets through; if not it would reserve nothing.
func reservable(entry string) bool {
	name := strings.ToLower(strings.TrimPrefix(entry, "."))
	return ValidNodeName(name) && !endsInNumber(name)
}

// reservedIP judges an address in its canonical form.
func (p *Policy) reservedIP(a netip.Addr) bool {
	if a.IsLoopback() || a.IsMulticast() || a.IsLinkLocalUnicast() {
		return true
	}
	if a.Is4() && (a.As4()[0] >= 240 || a.As4()[0] == 0) {
		return true // class E with broadcast, and this network (RFC 1122, 3.2.1.3)
	}
	if in, ok := embeddedIPv4(a); ok && p.reservedIP(in) {
		return true
	}
	for _, prefix := range p.ReservedIPs {
		if prefix.Contains(a) {
			return true
		}
		if in := prefix.Addr(); in.Is4In6() && a.Is4() &&
			netip.PrefixFrom(in.Unmap(), max(prefix.Bits()-96, 0)).Contains(a) {
			return true
		}
	}
	return false
}

// translated are the prefixes of IPv6 addresses whose last 32 bits are an IPv4
// address: NAT64 (RFC 6052), its translated form (RFC 2765), and the old compatible
// form (RFC 4291, 2.5.5.1). They are never written.
var translated = [...]netip.Prefix{
	netip.MustParsePrefix("64:ff9b::/96"),
	netip.MustParsePrefix("::ffff:0:0:0/96"),
	netip.MustParsePrefix("::/96"),
}

// embeddedIPv4 is the IPv4 address that traffic to an IPv6 address may end at. That
// of 6to4 (RFC 3056) stands behind the first 16 bits.
func embeddedIPv4(a netip.Addr) (netip.Addr, bool) {
	b := a.As16() // that of an IPv4 address begins with zeros, and is in no prefix of IPv6
	if b[0] == 0x20 && b[1] == 0x02 {
		return netip.AddrFrom4([4]byte(b[2:6])), true
	}
	for _, prefix := range translated {
		if prefix.Contains(a) {
			return netip.AddrFrom4([4]byte(b[12:])), true
		}
	}
	return netip.Addr{}, false
}
