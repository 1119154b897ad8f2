package bootstraptoken

import (
	"errors"
	"strconv"
	"strings"
	"testing"

	"github.com/nodeattest/nodeattest/refusal"
)

func TestParseServer(t *testing.T) {
	for s, want := range map[string]string{
		"https://a":                       "https://a" + clusterInfoPath,
		"https://a/":                      "https://a" + clusterInfoPath,
		"https://10.0.0.1:6443":           "https://10.0.0.1:6443" + clusterInfoPath,
		"https://[2001:db8::1]:6443":      "https://[2001:db8::1]:6443" + clusterInfoPath,
		"https://[::1]":                   "https://[::1]" + clusterInfoPath,
		"https://API.example.com.:65535":  "https://API.example.com.:65535" + clusterInfoPath,
		"https://a_b.example.com/k8s/c-1": "https://a_b.example.com/k8s/c-1" + clusterInfoPath,
		"https://a/x%20y/%2F":             "https://a/x%20y/%2F" + clusterInfoPath,
		"https://a/k8s/":                  "https://a/k8s" + clusterInfoPath,
		"https://a/x:y@z,1=2+3":           "https://a/x:y@z,1=2+3" + clusterInfoPath,
	} {
		t.Run(s, func(t *testing.T) {
			u, err := parseServer(s)
			if err != nil {
				t.Errorf("%s: %v", s, err)
				return
			}
			if got := u.JoinPath(clusterInfoPath).String(); got != want {
				t.Errorf("%s: ConfigMap at %s, want %s", s, got, want)
			}
			if u.String() != s {
				t.Errorf("%s: reads as %s", s, u)
			}
		})
	}
}

func TestParseServerRefuses(t *testing.T) {
	for s, want := range map[string]Check{
		"":                                     checkServer,
		"https://":                             checkServer,
		"https:///path":                        checkServer,
		"https://:443":                         checkServer,
		"https://a:":                           checkServer,
		"https://a:0":                          checkServer,
		"https://a:01":                         checkServer,
		"https://a:65536":                      checkServer,
		"https://a:https":                      checkServer,
		"https://a?b=c":                        checkServer,
		"https://a#b":                          checkServer,
		"https://a/b?":                         checkServer,
		"https://a/b#":                         checkServer,
		"https://a b":                          checkServer,
		"https://a\n":                          checkServer,
		" https://a":                           checkServer,
		"https://a/b:":                         checkServer,
		"https://a//b":                         checkServer,
		"https://a/../b":                       checkServer,
		"https://a/./b":                        checkServer,
		"https://a/%2e%2e/b":                   checkServer,
		"https://a/%zz":                        checkServer,
		"https://a\\b":                         checkServer,
		"https://é":                            checkServer,
		"https://-a":                           checkServer,
		"https://a..b":                         checkServer,
		"https://.a":                           checkServer,
		"https://" + strings.Repeat("a", 64):   checkServer,
		"https://" + strings.Repeat("a.", 150): checkServer,
		"https://a/" + strings.Repeat("a", 1<<11): checkServer,
		"https://[::1":             checkServer,
		"https://::1":              checkServer,
		"https://[10.0.0.1]":       checkServer,
		"https://[fe80::1%25eth0]": checkServer,
		"https://[::1]a":           checkServer,
		"https:a":                  checkServer,
		"http://a":                 checkServerScheme,
		"HTTPS://a":                checkServer,
		"a":                        checkServerScheme,
		"//a":                      checkServerScheme,
		"ftp://a":                  checkServerScheme,
		"unix:/run/a":              checkServerScheme,
		"https://me@a":             checkCredentials,
		"https://me:pw@a":          checkCredentials,
		"https://@a":               checkCredentials,
	} {
		t.Run(s, func(t *testing.T) {
			if u, err := parseServer(s); !errors.Is(err, want) {
				t.Errorf("%.40q: %v, %v, want %v", s, u, err, want)
			} else if strings.Contains(err.Error(), "pw") {
				t.Errorf("the error has the password: %v", err)
			}
		})
	}
}

func TestIsHost(t *testing.T) {
	label := strings.Repeat("a", 63)
	longest := strings.Repeat(label+".", 3) + strings.Repeat("a", 61) // 253 bytes
	for host, want := range map[string]bool{
		"a": true, "09azAZ": true, "a-b": true, "_a": true, "a_": true, "a.b.": true, "10.0.0.1": true, "::1": true, "2001:db8::1": true,
		label: true, label + "." + label: true, longest: true,
		"": false, ".": false, ".a": false, "a..b": false, "a..": false, "-a": false, "a-": false, "a.-b": false, "a-.b": false, "-": false,
		"a/b": false, "a@b": false, "a[b": false, "a`b": false, "a{b": false, "a b": false, "a+b": false, "a%41": false, "a~b": false, "\xc3\xa9": false, "a\n": false, "a\x00": false,
		"a" + label: false, label + "a": false, "a." + label + "a": false, longest + "a": false,
		"::1%eth0": false, "::g": false, "1:2": false, ":": false, "::ffff:10.0.0.1": true,
	} {
		t.Run(host, func(t *testing.T) {
			if got := isHost(host); got != want {
				t.Errorf("%v, want %v", got, want)
			}
		})
	}
}

func TestServerLimits(t *testing.T) {
	for server, want := range map[string]error{
		"https://a/" + strings.Repeat("a", maxServerSize-10): nil,
		"https://a/" + strings.Repeat("a", maxServerSize-9):  checkServer,
		"https://a:1":                     nil,
		"https://a:65535/":                nil,
		"https://a:65536/":                checkServer,
		"https://a:/b":                    checkServer,
		"https://a:10/b:":                 checkServer,
		"https://a/b//":                   checkServer,
		"https://a/b/..":                  checkServer,
		"https://a/b/.":                   checkServer,
		"https://a/b/...":                 nil,
		"https://a/az09AZ-._~:/[]@%25+,=": nil,
		"https://a/!":                     checkServer,
		"https://a/{":                     checkServer,
		"https://a/`":                     checkServer,
		"https://a/^":                     checkServer,
		"https://a/;":                     checkServer,
	} {
		t.Run(server[:min(len(server), 40)], func(t *testing.T) {
			if _, err := parseServer(server); !errors.Is(err, want) {
				t.Errorf("%v, want %v", err, want)
			}
		})
		documentWant := want
		if _, err := parseURL(server); len(server) >= maxServerSize && !errors.Is(err, documentWant) {
			t.Errorf("a document at %.20s: %v, want %v", server, err, documentWant)
		}
	}
}

func TestParseAddress(t *testing.T) {
	for s, want := range map[string]string{
		"a": "https://a", "a:6443": "https://a:6443", "10.0.0.1": "https://10.0.0.1", "::1": "https://[::1]", "[::1]": "https://[::1]",
		"[::1]:6443": "https://[::1]:6443", "2001:db8::1": "https://[2001:db8::1]", "https://a/b": "https://a/b",
	} {
		t.Run(s, func(t *testing.T) {
			if u, err := parseAddress(s); err != nil || u.String() != want {
				t.Errorf("%s: %v, %v, want %s", s, u, err, want)
			}
		})
	}
	for _, s := range []string{"", "a/b", "a:6443/b", "a:b:c", "fe80::1%eth0", "me@a", "http://a", "a?b", "://a", "//a"} {
		if u, err := parseAddress(s); err == nil {
			t.Errorf("%s: %v", s, u)
		}
	}
}

func TestSameServer(t *testing.T) {
	parse := func(s string) bool {
		a, _ := parseServer("https://a.example.com")
		b, err := parseServer(s)
		return err == nil && sameServer(a, b)
	}
	for _, s := range []string{"https://a.example.com", "https://A.example.com:443", "https://a.example.com/"} {
		if !parse(s) {
			t.Errorf("%s is another server", s)
		}
	}
	for _, s := range []string{"https://b.example.com", "https://a.example.com:6443", "https://a.example.com/b"} {
		if parse(s) {
			t.Errorf("%s is the same server", s)
		}
	}
}

// A server that is accepted is a plain YAML scalar, whatever it is.
func FuzzParseServer(f *testing.F) {
	for _, s := range []string{"https://a", "https://[::1]:6443/a", "http://a", "https://a:", "https://a/: b", "https://u@a", "https://a/%2e%2e"} {
		f.Add(s)
	}
	ca := newTestCA(f, "one")
	f.Fuzz(func(t *testing.T, s string) {
		u, err := parseServer(s)
		if err != nil {
			return
		}
		c := info(s, ca)
		written, err := c.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		back, err := ParseKubeconfig(written)
		if err != nil || back.Server != s {
			t.Fatalf("%q is written as %s, read as %+v, %v", s, written, back, err)
		}
		if at := u.JoinPath(clusterInfoPath); at.Scheme != "https" || at.Host != u.Host || !strings.HasSuffix(at.String(), clusterInfoPath) || at.User != nil {
			t.Fatalf("%q: %s", s, at)
		}
	})
}

// TestParseAddressesOnce: a server is asked once a round, however its address is spelled.
func TestParseAddressesOnce(t *testing.T) {
	for _, same := range [][]string{
		{"api.example:6443", "API.example:6443", "api.example.:6443", "https://api.example:6443/"},
		{"[fd00::1]:443", "fd00:0:0::1", "https://[FD00::1]"},
		{"10.0.0.1", "https://[::ffff:10.0.0.1]"},
	} {
		if servers, err := parseAddresses(append(same, "other.example", "other.example:6443", "https://other.example/x", "fd00::2", "10.0.0.2")); err != nil || len(servers) != 6 {
			t.Errorf("%v, %v, want the first and 5 others", servers, err)
		}
	}
}

func TestParseAddressesLimit(t *testing.T) {
	many := make([]string, 0, maxAddresses+1)
	for i := range maxAddresses + 1 {
		many = append(many, "a"+strconv.Itoa(i))
	}
	if servers, err := parseAddresses(many[:maxAddresses]); err != nil || len(servers) != maxAddresses {
		t.Errorf("%d servers, %v", len(servers), err)
	}
	if _, err := parseAddresses(many); !errors.Is(err, refusal.CheckConfig) {
		t.Errorf("%v, want %v", err, refusal.CheckConfig)
	}
}
