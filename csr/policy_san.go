package csr

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"

	cryptobyteasn1 "golang.org/x/crypto/cryptobyte/asn1"

	"github.com/nodeattest/nodeattest/internal/names"
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
		for _, san := range x.out.sansThat(x.policy.reserved().DNS, x.policy.reserved().IP) {
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

// checkSANForm keeps the well-formed names, each once and in lower case, for the rules after it,
// and for the certificate: a kubelet asks for the Node's names, which clouds and DHCP servers may write in
// capitals.
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
		lower, want := names.ServingDNS(name)
		switch {
		case want != "":
			x.refuse(refusal.Quote(name), want)
		case !slices.Contains(x.out.dnsNames, lower):
			x.out.dnsNames = append(x.out.dnsNames, lower)
		}
	}
	for _, ip := range x.out.pkcs10.CSR.IPAddresses {
		address, ok := netip.AddrFromSlice(ip)
		switch address = address.Unmap(); {
		case !ok:
			x.refuse(strconv.Itoa(len(ip))+" bytes of address", "4 or 16")
		case !slices.Contains(x.out.ipAddresses, address):
			x.out.ipAddresses = append(x.out.ipAddresses, address)
		}
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
func (c *Checked) sansBeside(dnsNames []string, addresses []netip.Addr) []string {
	return c.sansThat(
		func(n string) bool {
			// n is lower-case ASCII. A letter beyond it that folds to one of ASCII is longer.
			return !slices.ContainsFunc(dnsNames, func(own string) bool { return len(own) == len(n) && strings.EqualFold(own, n) })
		},
		func(a netip.Addr) bool {
			return !slices.ContainsFunc(addresses, func(own netip.Addr) bool { return own.Unmap() == a })
		})
}

// reserved are what no node may have.
func (p *Policy) reserved() *names.Reserved {
	return &names.Reserved{DNSNames: p.ReservedDNSNames, IPs: p.ReservedIPs}
}
