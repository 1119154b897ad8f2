package csr

import (
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/crypto/cryptobyte"
	cryptobyteasn1 "golang.org/x/crypto/cryptobyte/asn1"

	"github.com/nodeattest/nodeattest/internal/nodename"
	"github.com/nodeattest/nodeattest/oid"
	"github.com/nodeattest/nodeattest/refusal"
)

// sans is what a request's subjectAltName extension asks for.
type sans struct {
	present  bool
	critical bool
	other    []cryptobyteasn1.Tag // kinds that are neither DNS name nor IP address
}

// The two kinds of GeneralName (RFC 5280, 4.2.1.6) that a serving certificate has.
var (
	tagDNSName   = cryptobyteasn1.Tag(2).ContextSpecific()
	tagIPAddress = cryptobyteasn1.Tag(7).ContextSpecific()
)

// readSANs finds the extension and the kinds of names in it. crypto/x509 has read
// the names of the kinds that it knows, and says nothing of the others.
func readSANs(p *PKCS10) sans {
	var s sans
	for i := range p.CSR.Extensions {
		if !oid.SubjectAltName.Equal(p.CSR.Extensions[i].Id) {
			continue
		}
		s.present, s.critical = true, p.CSR.Extensions[i].Critical
		value, names := cryptobyte.String(p.CSR.Extensions[i].Value), cryptobyte.String(nil)
		if !value.ReadASN1(&names, cryptobyteasn1.SEQUENCE) {
			return s // ParsePKCS10 has refused such a request
		}
		for !names.Empty() && len(s.other) < maxReports {
			var name cryptobyte.String
			var tag cryptobyteasn1.Tag
			if !names.ReadAnyASN1(&name, &tag) {
				return s
			}
			if tag != tagDNSName && tag != tagIPAddress {
				s.other = append(s.other, tag)
			}
		}
	}
	return s
}

// serving says whether the names of the request are to be judged one by one.
func (x *run) serving() bool {
	return x.out.purpose == PurposeServing && len(x.out.pkcs10.CSR.DNSNames)+len(x.out.pkcs10.CSR.IPAddresses) <= MaxSANs
}

func (x *run) checkSanOnClient() {
	x.sans = readSANs(x.out.pkcs10)
	if x.sans.present && x.out.purpose != 0 && x.out.purpose != PurposeServing {
		x.refuse("a subjectAltName extension", "none in a "+x.out.purpose.String()+" certificate")
	}
}

func (x *run) checkSanMissing() {
	if x.out.purpose == PurposeServing && len(x.out.pkcs10.CSR.DNSNames)+len(x.out.pkcs10.CSR.IPAddresses) == 0 {
		x.refuse("no DNS name and no IP address", "one or more")
	}
}

func (x *run) checkSanKind() {
	if x.out.purpose != PurposeServing {
		return
	}
	for _, tag := range x.sans.other {
		x.refuse(generalName(tag), "DNS names and IP addresses only")
	}
}

// generalName names a kind of GeneralName as RFC 5280 does.
func generalName(tag cryptobyteasn1.Tag) string {
	names := [...]string{"otherName", "rfc822Name", "dNSName", "x400Address", "directoryName",
		"ediPartyName", "uniformResourceIdentifier", "iPAddress", "registeredID"}
	if i := int(tag & 0x1f); tag&0xc0 == 0x80 && i < len(names) {
		return names[i]
	}
	return "a name with tag " + strconv.Itoa(int(tag))
}

func (x *run) checkSanCount() {
	count := len(x.out.pkcs10.CSR.DNSNames) + len(x.out.pkcs10.CSR.IPAddresses)
	if x.out.purpose == PurposeServing && count > MaxSANs {
		x.refuse(strconv.Itoa(count)+" names", "at most "+strconv.Itoa(MaxSANs))
	}
}

// sanForm keeps the names of good form for the rules after it, and for the
// certificate. A critical extension is for requests without a subject (RFC 5280,
// 4.2.1.6), and a node's request has one.
func (x *run) checkSanForm() {
	if x.out.purpose == PurposeServing && x.sans.critical {
		x.refuse("a critical subjectAltName extension", "one that is not critical")
	}
	if !x.serving() {
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
		address, ok := canonicalIP(ip)
		if !ok {
			x.refuse(strconv.Itoa(len(ip))+" bytes of address", "4 or 16")
			continue
		}
		x.out.ipAddresses = append(x.out.ipAddresses, address)
	}
}

// canonicalIP gives an address its one form: IPv4 as such, no zone.
func canonicalIP(ip net.IP) (netip.Addr, bool) {
	a, ok := netip.AddrFromSlice(ip)
	return a.Unmap(), ok
}

func (x *run) checkSanReserved() {
	for _, name := range x.out.dnsNames {
		if x.policy.reservedName(name) {
			x.refuse(refusal.Quote(name), "no name of a service or of the machine to itself")
		}
	}
	for _, address := range x.out.ipAddresses {
		if x.policy.reservedIP(address) {
			x.refuse(address.String(), "an address that only the node has")
		}
	}
}

// equalLower compares s, whose ASCII letters may be in any case, with lower, whose
// letters are in lower case. Letters outside ASCII fold to nothing here.
func equalLower(s, lower string) bool {
	if len(s) != len(lower) {
		return false
	}
	for i := 0; i < len(s); i++ {
		c := s[i]
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		if c != lower[i] {
			return false
		}
	}
	return true
}

// hasAddress says whether an address is in a list that may hold IPv4 addresses in
// either form. One with a zone is never equal.
func hasAddress(list []netip.Addr, a netip.Addr) bool {
	return slices.ContainsFunc(list, func(own netip.Addr) bool { return own.Unmap() == a })
}

// hasName says whether a name in lower case is in a list of names in any case.
func hasName(list []string, name string) bool {
	return slices.ContainsFunc(list, func(own string) bool { return equalLower(own, name) })
}

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
// of 6to4 (RFC 3056) stands after the first 16 bits.
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
