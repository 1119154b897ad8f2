package names

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/nodeattest/nodeattest/refusal"
)

// ServingDNS returns a DNS name in lower case, since names have no case (RFC 4343), or "" and the form that is
// wanted of one that no certificate can have.
func ServingDNS(name string) (lower, want string) {
	lower = Lower(name)
	switch {
	case !ValidNode(lower):
		return "", "a DNS name, without wildcard and trailing dot"
	case endsInNumber(lower):
		return "", "a DNS name whose last part is no number: clients could take it for an IPv4 address"
	}
	return lower, ""
}

// endsInNumber reports whether the last label is a number, decimal or hexadecimal, so that a
// client could take the name for an IPv4 address (WHATWG URL, "ends in a number checker").
// No public or private zone has such a name. name is in lower case.
func endsInNumber(name string) bool {
	label := name[strings.LastIndexByte(name, '.')+1:]
	if digits, ok := strings.CutPrefix(label, "0x"); ok {
		return strings.Trim(digits, "0123456789abcdef") == ""
	}
	return strings.Trim(label, "0123456789") == ""
}

// Reserved are the names and addresses of a cluster that no node may have, in addition to those that no node
// ever has. The zero value adds nothing.
type Reserved struct {
	// DNSNames are names, in upper or lower case; a dot in front stands for all names below.
	DNSNames []string
	// IPs are the networks; IPv4 mapped into IPv6 means IPv4.
	IPs []netip.Prefix
}

// DNS reports whether a name in lower case is reserved: that of the API server or a service, every
// machine's name for itself, or one of DNSNames.
func (r *Reserved) DNS(name string) bool {
	const api = "kubernetes.default"
	return name == "kubernetes" || name == api || strings.HasPrefix(name, api+".") ||
		name == "localhost" || strings.HasSuffix(name, ".localhost") ||
		strings.HasSuffix(name, ".svc") || strings.HasSuffix(name, ".cluster.local") ||
		slices.ContainsFunc(r.DNSNames, func(reserved string) bool {
			reserved = Lower(reserved)
			return reserved == name || strings.HasPrefix(reserved, ".") && len(name) > len(reserved) && strings.HasSuffix(name, reserved)
		})
}

// IP reports whether an address in its canonical form is not one node's only, is in one of IPs, or
// leads to an IPv4 address of which the same holds.
func (r *Reserved) IP(a netip.Addr) bool {
	if a.IsLoopback() || a.IsMulticast() || a.IsLinkLocalUnicast() {
		return true
	}
	if a.Is4() && (a.As4()[0] >= 240 || a.As4()[0] == 0) {
		return true // class E with broadcast, and this network (RFC 1122, 3.2.1.3)
	}
	if in, ok := embeddedIPv4(a); ok && r.IP(in) {
		return true
	}
	return slices.ContainsFunc(r.IPs, func(prefix netip.Prefix) bool {
		in := prefix.Addr()
		return prefix.Contains(a) || in.Is4In6() && a.Is4() && netip.PrefixFrom(in.Unmap(), max(prefix.Bits()-96, 0)).Contains(a)
	})
}

// translated are the prefixes of IPv6 addresses whose last 32 bits are an IPv4
// address: NAT64 (RFC 6052), its translated form (RFC 2765), and the old compatible
// form (RFC 4291, 2.5.5.1). They are never modified.
var translated = [...]netip.Prefix{
	netip.MustParsePrefix("64:ff9b::/96"),
	netip.MustParsePrefix("::ffff:0:0:0/96"),
	netip.MustParsePrefix("::/96"),
}

// embeddedIPv4 returns the IPv4 address that traffic to an IPv6 address may end up at. That
// of 6to4 (RFC 3056) follows the first 16 bits.
func embeddedIPv4(a netip.Addr) (netip.Addr, bool) {
	b := a.As16() // an IPv4 address begins with zeros here, and is in no IPv6 prefix
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

// Check refuses names and addresses that no certificate can have, or that are reserved, with
// [refusal.CheckConfig].
func (r *Reserved) Check(names []string, addresses []netip.Addr) error {
	for _, name := range names {
		switch lower, want := ServingDNS(name); {
		case want != "":
			return refusal.Config("DNS name", refusal.Quote(name), want)
		case r.DNS(lower):
			return refusal.Config("DNS name", refusal.Quote(name), "no name of a service, of every machine, or that is reserved")
		}
	}
	for _, ip := range addresses {
		switch {
		case !ip.IsValid() || ip.Zone() != "":
			return refusal.Config("IP address", refusal.Quote(ip.String()), "one without a zone")
		case r.IP(ip.Unmap()):
			return refusal.Config("IP address", ip.String(), "one that only this node has, and that is not reserved")
		}
	}
	return nil
}
