package csr_test

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	cryptobyteasn1 "golang.org/x/crypto/cryptobyte/asn1"

	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/refusal"
)

// withSANs asks for these SANs and no others.
func withSANs(names ...generalName) func(*requestFixture) {
	return func(f *requestFixture) { f.builder.extensions[0] = sanExtension(names...) }
}

// owning makes the machine list everything that its test asks for, so that nothing
// but the rule under test can refuse it.
func owning(f *requestFixture, dns []string, ips ...string) {
	f.machine.DNSNames = append(f.machine.DNSNames, dns...)
	for _, ip := range ips {
		f.machine.IPAddresses = append(f.machine.IPAddresses, netip.MustParseAddr(ip))
	}
}

func TestPolicyRulesOfServingSANs(t *testing.T) {
	raw := func(tag cryptobyteasn1.Tag, value string) generalName {
		return generalName{tag, value}
	}
	context := func(n int) cryptobyteasn1.Tag { return cryptobyteasn1.Tag(n).ContextSpecific() }
	good := dnsSAN(goodNode)
	many := func(n int) func(*requestFixture) {
		return func(f *requestFixture) {
			var names []generalName
			for i := range n {
				name := fmt.Sprintf("n%d.example", i)
				names = append(names, dnsSAN(name))
				owning(f, []string{name})
			}
			withSANs(names...)(f)
		}
	}
	runRuleCases(t, csr.SignerServingTPM, csr.RequesterNode, []ruleCase{
		{"DNS name alone", withSANs(good), nil},
		{"IP address alone", withSANs(ipSAN("192.0.2.7")), nil},
		{"IPv6 address", withSANs(ipSAN("2001:db8::7")), nil},
		{"IPv4 address mapped into IPv6", withSANs(ipSAN("::ffff:192.0.2.7")), nil},
		{"machine lists the mapped form", func(f *requestFixture) {
			f.machine.IPAddresses = []netip.Addr{netip.MustParseAddr("::ffff:192.0.2.7")}
		}, nil},
		{"name that the machine lists in capitals", withSANs(dnsSAN("node-1.rack.example")), nil},
		{"name that the machine lists with a Kelvin sign", func(f *requestFixture) {
			f.machine.DNSNames = []string{"node-1.rac\u212a.example"}
			withSANs(dnsSAN("node-1.rack.example"))(f)
		}, rules(csr.CheckSANNotOwn)},
		{"the same name twice", withSANs(good, good), nil},

		{"no SAN extension", func(f *requestFixture) { f.builder.extensions = nil }, rules(csr.CheckSANMissing)},
		{"SAN of no kind that counts", withSANs(raw(context(1), "root@node-1")), rules(csr.CheckSANMissing, csr.CheckSANKind)},
		{"email", withSANs(good, raw(context(1), "root@node-1")), rules(csr.CheckSANKind)},
		{"URI", withSANs(good, raw(context(6), "spiffe://cluster/node-1")), rules(csr.CheckSANKind)},
		{"otherName", withSANs(good, raw(context(0).Constructed(), "\x06\x03\x2a\x03\x04\xa0\x03\x0c\x01x")), rules(csr.CheckSANKind)},
		{"directoryName", withSANs(good, raw(context(4).Constructed(), "\x30\x00")), rules(csr.CheckSANKind)},
		{"registeredID", withSANs(good, raw(context(8), "\x2a\x03\x04")), rules(csr.CheckSANKind)},
		{"DNS name in a constructed type", withSANs(good, raw(context(2).Constructed(), "x")), rules(csr.CheckSANKind)},

		{"100 names", many(100), nil},
		{"101 names", many(101), rules(csr.CheckSANCount)},

		{"critical extension", func(f *requestFixture) { f.builder.extensions[0].Critical = true }, rules(csr.CheckSANForm)},
		{"bytes after the names", func(f *requestFixture) {
			f.builder.extensions[0].Value = append(f.builder.extensions[0].Value, "hidden"...)
		}, rules(csr.CheckRequestExtensions)},
		{"a second list of names", func(f *requestFixture) {
			f.builder.extensions[0].Value = append(f.builder.extensions[0].Value, sanExtension(dnsSAN("kubernetes.default")).Value...)
		}, rules(csr.CheckRequestExtensions)},
		{"name in capitals", withSANs(dnsSAN("NODE-1.Rack.example")), nil},
		{"name in capitals that the machine has in others", func(f *requestFixture) {
			owning(f, []string{"ip-192-0-2-7.Somewhere.example"})
			withSANs(dnsSAN("ip-192-0-2-7.SOMEWHERE.example"))(f)
		}, nil},
		{"name of another node in capitals", withSANs(dnsSAN("NODE-2")), rules(csr.CheckSANNotOwn)},
		{"wildcard", func(f *requestFixture) {
			owning(f, []string{"*.rack.example"})
			withSANs(dnsSAN("*.rack.example"))(f)
		}, rules(csr.CheckSANForm)},
		{"empty DNS name", withSANs(good, dnsSAN("")), rules(csr.CheckSANForm)},
		{"name with a NUL", withSANs(dnsSAN("node-1\x00.evil.example")), rules(csr.CheckSANForm)},
		{"name with a trailing dot", withSANs(dnsSAN("node-1.")), rules(csr.CheckSANForm)},
		{"name with a space", withSANs(dnsSAN(" node-1")), rules(csr.CheckSANForm)},
		{"IP address as a DNS name", func(f *requestFixture) {
			owning(f, []string{"192.0.2.7"})
			withSANs(dnsSAN("192.0.2.7"))(f)
		}, rules(csr.CheckSANForm)},
		{"IPv4 address in hexadecimal as a DNS name", func(f *requestFixture) {
			owning(f, []string{"0xc0000207"})
			withSANs(dnsSAN("0xc0000207"))(f)
		}, rules(csr.CheckSANForm)},
		{"name with a hexadecimal end", func(f *requestFixture) {
			owning(f, []string{"192.0x207"})
			withSANs(dnsSAN("192.0x207"))(f)
		}, rules(csr.CheckSANForm)},
		{"name that ends in 0x, which reads as zero", func(f *requestFixture) {
			owning(f, []string{"192.0x"})
			withSANs(dnsSAN("192.0x"))(f)
		}, rules(csr.CheckSANForm)},
		{"name that ends nearly in hexadecimal", func(f *requestFixture) {
			owning(f, []string{"rack.0xg"})
			withSANs(dnsSAN("rack.0xg"))(f)
		}, nil},
		{"IPv4 address in another notation as a DNS name", func(f *requestFixture) {
			owning(f, []string{"3221225991"})
			withSANs(dnsSAN("3221225991"))(f)
		}, rules(csr.CheckSANForm)},

		{"name of another node", withSANs(dnsSAN("node-2")), rules(csr.CheckSANNotOwn)},
		{"name below its own", withSANs(dnsSAN("x.node-1")), rules(csr.CheckSANNotOwn)},
		{"name above its own", withSANs(dnsSAN("rack.example")), rules(csr.CheckSANNotOwn)},
		{"beginning of its own name", withSANs(dnsSAN("node")), rules(csr.CheckSANNotOwn)},
		{"address of another node", withSANs(ipSAN("192.0.2.8")), rules(csr.CheckSANNotOwn)},
		{"own name and another's address", withSANs(good, ipSAN("192.0.2.8")), rules(csr.CheckSANNotOwn)},
		{"IPv4-compatible IPv6 form of its address", withSANs(ipSAN("::192.0.2.7")), rules(csr.CheckSANNotOwn)},
		{"name of the node that the machine does not list", func(f *requestFixture) { f.machine.DNSNames = nil }, rules(csr.CheckSANNotOwn)},
		{"address with a zone in the inventory", func(f *requestFixture) {
			f.machine.IPAddresses = []netip.Addr{netip.MustParseAddr("2001:db8::9%eth0")}
			withSANs(ipSAN("2001:db8::9"))(f)
		}, rules(csr.CheckSANNotOwn)},
	})
}

// Names and addresses that no machine may have, though this one lists them all.
func TestPolicyRulesOfReservedSANs(t *testing.T) {
	var cases []ruleCase
	for _, name := range []string{
		"kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local",
		"kubernetes.default.svc.corp.example", "localhost", "a.localhost", "web.shop.svc", "web.shop.svc.cluster.local",
		"10-0-0-1.shop.pod.cluster.local", "api.cluster.example", "web.shop.svc.corp.example",
		"KUBERNETES", "Kubernetes.Default.svc", "x.SVC", "LOCALHOST", "a.Cluster.Local", "API.CLUSTER.EXAMPLE",
	} {
		cases = append(cases, ruleCase{name, func(f *requestFixture) {
			owning(f, []string{name})
			withSANs(dnsSAN(name))(f)
		}, rules(csr.CheckSANReserved)})
	}
	for _, name := range []string{"kubernetes-1", "mykubernetes", "kubernetes.example", "svc.corp.example", "api2.cluster.example", "localhost.example"} {
		cases = append(cases, ruleCase{name + " is free", func(f *requestFixture) {
			owning(f, []string{name})
			withSANs(dnsSAN(name))(f)
		}, nil})
	}
	for _, ip := range []string{
		"0.0.0.0", "0.1.2.3", "127.0.0.1", "127.8.8.8", "169.254.169.254", "224.0.0.1", "239.1.1.1", "255.255.255.255",
		"::", "::1", "fe80::1", "ff02::1", "::ffff:127.0.0.1", "::ffff:10.96.0.1",
		"240.0.0.1", "254.1.1.1", "::127.0.0.1", "::10.96.0.1", "::ffff:0:127.0.0.1", "64:ff9b::127.0.0.1", "64:ff9b::169.254.169.254",
		"64:ff9b::10.96.0.1", "2002:7f00:1::1", "2002:a60:1::1", "2002:f000:1::1", "64:ff9b::0.0.0.0", "64:ff9b::203.0.113.4",
		"10.96.0.1", "10.96.255.255", "198.51.100.1", "203.0.113.4", "2001:db8:ffff::1",
	} {
		cases = append(cases, ruleCase{ip, func(f *requestFixture) {
			owning(f, nil, ip)
			withSANs(ipSAN(ip))(f)
		}, rules(csr.CheckSANReserved)})
	}
	for _, ip := range []string{"10.95.255.255", "10.97.0.0", "198.51.100.2", "203.0.113.8", "2001:db8:fffe::1", "100.64.0.1", "223.255.255.255",
		"64:ff9b::192.0.2.7", "2002:c000:207::1", "::192.0.2.9", "::ffff:0:192.0.2.7", "64:ff9b:1::127.0.0.1"} {
		cases = append(cases, ruleCase{ip + " is free", func(f *requestFixture) {
			owning(f, nil, ip)
			withSANs(ipSAN(ip))(f)
		}, nil})
	}
	for i := range cases {
		change := cases[i].change
		cases[i].change = func(f *requestFixture) {
			f.policy.ReservedDNSNames = []string{"API.cluster.example", ".svc.Corp.example"}
			f.policy.ReservedIPs = []netip.Prefix{
				netip.MustParsePrefix("10.96.0.0/16"), netip.MustParsePrefix("198.51.100.1/32"),
				netip.MustParsePrefix("::ffff:203.0.113.0/125"), netip.MustParsePrefix("2001:db8:ffff::/48"),
			}
			change(f)
		}
	}
	runRuleCases(t, csr.SignerServingTPM, csr.RequesterNode, cases)
}

func TestPolicyRulesOfSANsOnClientCertificates(t *testing.T) {
	add := func(names ...generalName) func(*requestFixture) {
		return func(f *requestFixture) { f.builder.extensions = append(f.builder.extensions, sanExtension(names...)) }
	}
	cases := []ruleCase{
		{"own DNS name", add(dnsSAN(goodNode)), rules(csr.CheckSANOnClient)},
		{"own address", add(ipSAN("192.0.2.7")), rules(csr.CheckSANOnClient)},
		{"otherName", add(generalName{cryptobyteasn1.Tag(0).ContextSpecific().Constructed(), "\x06\x03\x2a\x03\x04\xa0\x03\x0c\x01x"}), rules(csr.CheckSANOnClient)},
		{"empty extension", add(), rules(csr.CheckSANOnClient)},
	}
	for _, class := range []csr.RequesterClass{csr.RequesterBootstrap, csr.RequesterNode, csr.RequesterRecovery} {
		t.Run(class.String(), func(t *testing.T) { runRuleCases(t, csr.SignerClientTPM, class, cases) })
	}
	runRuleCases(t, csr.SignerRecoveryTPM, csr.RequesterNode, cases)
}

func TestCheckedSANsAreCanonical(t *testing.T) {
	f := goodFixture(csr.SignerServingTPM, csr.RequesterNode)
	withSANs(dnsSAN("Node-1.RACK.example"), ipSAN("::ffff:192.0.2.7"), ipSAN("2001:db8::7"))(f)
	checked := f.mustCheck(t)
	if diff := cmp.Diff([]string{"node-1.rack.example"}, checked.DNSNames()); diff != "" {
		t.Error(diff)
	}
	want := []netip.Addr{netip.MustParseAddr("192.0.2.7"), netip.MustParseAddr("2001:db8::7")}
	if diff := cmp.Diff(want, checked.IPAddresses(), cmpopts.EquateComparable(netip.Addr{})); diff != "" {
		t.Error(diff)
	}
	checked.DNSNames()[0] = "changed"
	if !slices.Equal(checked.DNSNames(), []string{"node-1.rack.example"}) {
		t.Error("a caller can change the names that were checked")
	}
}

// A node may have the name 666, or rack1.12 (RFC 1123, 2.1), and has it in its request: the reason
// why its certificate does not have it is neither capitals nor a wildcard.
func TestRefusedSANSaysWhy(t *testing.T) {
	for name, want := range map[string]string{"666": "number", "rack1.12": "number", "worker.0x1F": "number", "*.rack.example": "wildcard", "node-1.": "trailing dot"} {
		f := goodFixture(csr.SignerServingTPM, csr.RequesterNode)
		owning(f, []string{name})
		withSANs(dnsSAN(name))(f)
		_, err := f.check(t)
		if !errors.Is(err, csr.CheckSANForm) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", name, err, want)
		}
		if _, err = csr.Create(csr.PurposeServing, p256Key(), goodNode, csr.CreateOptions{DNSNames: []string{name}}); !errors.Is(err, refusal.CheckConfig) || !strings.Contains(err.Error(), want) {
			t.Errorf("Create %s: %v, want %s", name, err, want)
		}
	}
}
