package csr

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"

	cryptobyteasn1 "golang.org/x/crypto/cryptobyte/asn1"

	"github.com/nodeattest/nodeattest/internal/nodename"
	"github.com/nodeattest/nodeattest/refusal"
)

// names returns how many names the request asks for.
func (x *run) names() int { return len(x.out.pkcs10.CSR.DNSNames) + len(x.out.pkcs10.CSR.IPAddresses) }

// sanRules are the rules for the names in a request.
var sanRules = []rule{
	{checkSANOnClient, []Purpose{PurposeClient, PurposeRecovery}, func(x *run) {
		if x.out.pkcs10.sans.present {
			x.refuse("a subjectAltName extension", "none in a "+x.out.purpose.String()+" certificate")
		}
	}},
	{checkSANMissing, serving, func(x *run) {
		if x.names() == 0 {
			x.refuse("no DNS name and no IP address", "one or more")
		}
	}},
	{checkSANKind, serving, func(x *run) {
		for _, tag := range x.out.pkcs10.sans.other {
			x.refuse(generalName(tag), "DNS names and IP addresses only")
		}
	}},
	{checkSANCount, serving, func(x *run) {
		if x.names() > maxSANs {
			x.refuse(strconv.Itoa(x.names())+" names", "at most "+strconv.Itoa(maxSANs))
		}
	}},
	{checkSANForm, serving, (*run).checkSANForm},
	{checkSANReserved, serving, func(x *run) {
		for _, san := range x.out.sansThat(x.policy.reservedName, x.policy.reservedIP) {
			x.refuse(san, "no name of a service or of the machine to itself, an address that only the node has")
		}
	}},
}

// generalName returns the name of a kind of GeneralName in RFC 5280.
func generalName(tag cryptobyteasn1.Tag) string {
	names := [...]string{"otherName", "rfc822Name", "dNSName", "x400Address", "directoryName",
		"ediPartyName", "uniformResourceIdentifier", "iPAddress", "registeredID"}
	if i := int(tag & 0x1f); tag&0xc0 == 0x80 && i < len(names) {
		return names[i]
	}
	return "a name with tag " + strconv.Itoa(int(tag))
}

// checkSANForm keeps the well-formed names for the rules after it, and for the certificate.
// A critical extension is for requests without a subject (RFC 5280, 4.2.1.6), and a node's
// request has one.
func (x *run) checkSANForm() {
	if x.out.pkcs10.sans.critical {
		x.refuse("a critical subjectAltName extension", "one that is not critical")
	}
	if x.names() > maxSANs {
		return
	}
	for _, name := range x.out.pkcs10.CSR.DNSNames {
		if !nodename.Valid(name) || endsInNumber(name) {
			x.refuse(refusal.Quote(name), "a lower-case DNS name without wildcard")
			continue
		}
		x.out.dnsNames = append(x.out.dnsNames, name)
	}
	for _, ip := range x.out.pkcs10.CSR.IPAddresses {
		address, ok := netip.AddrFromSlice(ip)
		if !ok {
			x.refuse(strconv.Itoa(len(ip))+" bytes of address", "4 or 16")
			continue
		}
		x.out.ipAddresses = append(x.out.ipAddresses, address.Unmap())
	}
}

// sansThat returns the names and addresses of the certificate, as an error shows them, for
// which these functions return true.
func (c *Checked) sansThat(name func(string) bool, address func(netip.Addr) bool) (found []string) {
	for _, n := range c.dnsNames {
		if name(n) {
			found = append(found, refusal.Quote(n))
		}
	}
	for _, a := range c.ipAddresses {
		if address(a) {
			found = append(found, a.String())
		}
	}
	return found
}

// sansBeside returns the names and addresses that are not in these lists. Names there may be
// in upper or lower case, and IPv4 addresses in either form. An address with a zone is never
// equal.
func (c *Checked) sansBeside(names []string, addresses []netip.Addr) []string {
	return c.sansThat(
		func(n string) bool {
			return !slices.ContainsFunc(names, func(own string) bool { return equalLower(own, n) })
		},
		func(a netip.Addr) bool {
			return !slices.ContainsFunc(addresses, func(own netip.Addr) bool { return own.Unmap() == a })
		})
}

// equalLower compares s, whose ASCII letters may be in upper or lower case, with lower,
// which is lower-case ASCII. A non-ASCII letter that folds to an ASCII one is longer.
func equalLower(s, lower string) bool { return len(s) == len(lower) && strings.EqualFold(s, lower) }

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

// reservedName judges a name in lower case.
func (p *Policy) reservedName(name string) bool {
	const api = "kubernetes.default"
	switch {
	case name == "kubernetes", name == api, strings.HasPrefix(name, api+"."),
		name == "localhost", strings.HasSuffix(name, ".localhost"),
		strings.HasSuffix(name, ".svc"), strings.HasSuffix(name, ".cluster.local"):
		return true
	}
	return slices.ContainsFunc(p.ReservedDNSNames, func(reserved string) bool {
		below := strings.HasPrefix(reserved, ".") && len(name) > len(reserved)
		return equalLower(reserved, name) || below && equalLower(reserved, name[len(name)-len(reserved):])
	})
}

// reservable reports whether an entry of ReservedDNSNames can be, or be the end of, a name
// that checkSANForm accepts; if not, it would reserve nothing.
func reservable(entry string) bool {
	name := strings.ToLower(strings.TrimPrefix(entry, "."))
	return nodename.Valid(name) && !endsInNumber(name)
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
	return slices.ContainsFunc(p.ReservedIPs, func(prefix netip.Prefix) bool {
		in := prefix.Addr() // IPv4 mapped into IPv6 reserves IPv4
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
