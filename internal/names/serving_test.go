package names

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/nodeattest/nodeattest/refusal"
)

// TestCheck tries names that can be in a certificate, in whatever case, and names that cannot.
func TestCheck(t *testing.T) {
	none := new(Reserved)
	for _, name := range []string{"node-1", "Node-1.EXAMPLE", "10-0-0-1.example", "rack.0xg", "666.example", "1a", "kubernetes-1", "Kubernetes.example", "x.kubernetes.default", "a.svc.example"} {
		if err := none.Check([]string{"node-2", name}, nil); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, want := range map[string]string{
		"":                   "DNS name",
		"*.example":          "wildcard",
		"node-1.":            "trailing dot",
		"a b":                "a DNS name",
		"node_1":             "a DNS name",
		"rac\u212a":          "a DNS name", // which folds to a k
		"666":                "number",
		"rack1.12":           "number",
		"Rack.0X1F":          "number",
		"192.0.2.7":          "number",
		"Localhost":          "every machine",
		"KUBERNETES":         "service",
		"a.Svc":              "service",
		"kubernetes.Default": "service",
	} {
		err := none.Check([]string{"node-2", name}, nil)
		if !errors.Is(err, refusal.CheckConfig) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", name, err, want)
		}
	}
	for _, ip := range []string{"192.0.2.7", "10.0.0.1", "2001:db8::1", "::ffff:192.0.2.7", "64:ff9b::192.0.2.7"} {
		if err := none.Check(nil, []netip.Addr{netip.MustParseAddr(ip)}); err != nil {
			t.Errorf("%s: %v", ip, err)
		}
	}
	for _, ip := range []string{"127.0.0.1", "fe80::1", "2001:db8::1%eth0", "::", "::1", "240.0.0.1", "224.0.0.1", "::ffff:127.0.0.1", "64:ff9b::127.0.0.1", "2002:7f00:1::1"} {
		if err := none.Check(nil, []netip.Addr{netip.MustParseAddr(ip)}); !errors.Is(err, refusal.CheckConfig) {
			t.Errorf("%s: %v", ip, err)
		}
	}
	if err := none.Check(nil, make([]netip.Addr, 1)); !errors.Is(err, refusal.CheckConfig) {
		t.Errorf("no address: %v", err)
	}
}

// TestReserved: names and networks of a cluster are in no certificate, however they are spelled.
func TestReserved(t *testing.T) {
	r := &Reserved{DNSNames: []string{"API.example", ".Corp.example"}, IPs: []netip.Prefix{netip.MustParsePrefix("10.96.0.9/12"), netip.MustParsePrefix("::ffff:192.0.2.0/120"), netip.MustParsePrefix("2001:db8::/64")}}
	for name, reserved := range map[string]bool{"api.example": true, "Api.Example": true, "a.corp.EXAMPLE": true, "a.b.corp.example": true,
		"corp.example": false, "xcorp.example": false, "x.api.example": false, "node-1": false} {
		if err := r.Check([]string{name}, nil); (err != nil) != reserved {
			t.Errorf("%s: %v", name, err)
		}
	}
	for ip, reserved := range map[string]bool{"10.96.0.1": true, "10.111.255.255": true, "::ffff:10.96.0.1": true, "64:ff9b::10.96.0.1": true, "192.0.2.7": true, "2001:db8::1": true,
		"10.112.0.1": false, "192.0.3.7": false, "2001:db8:0:1::1": false} {
		if err := r.Check(nil, []netip.Addr{netip.MustParseAddr(ip)}); (err != nil) != reserved {
			t.Errorf("%s: %v", ip, err)
		}
	}
}
