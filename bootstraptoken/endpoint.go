package bootstraptoken

import (
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"

	"github.com/nodeattest/nodeattest/refusal"
)

// The reasons for which an API server's URL is refused.
const (
	// CheckServer: not https://host[:port][/path] in plain ASCII, with a host that is
	// a DNS name or an IP address: no query, fragment, dot segments or empty port.
	CheckServer Check = "server-url"
	// CheckServerScheme: the URL's scheme is not https.
	CheckServerScheme Check = "server-url-scheme"
)

const wantServer = "https://host[:port][/path]"

// parseServer reads an API server's URL. What it takes is written in YAML without
// quotes.
func parseServer(s string) (*url.URL, error) {
	if s == "" || len(s) > MaxServerSize {
		return nil, &Error{Check: CheckServer, Got: strconv.Itoa(len(s)) + " bytes", Want: wantServer}
	}
	bad := func(why string) (*url.URL, error) {
		return nil, &Error{Check: CheckServer, Got: why, Want: wantServer}
	}
	for i := range len(s) {
		if !inURL(s[i]) {
			return bad("a URL with the character " + refusal.Quote(s[i:i+1]))
		}
	}
	u, err := url.Parse(s)
	if err != nil {
		return bad("a text that is no URL")
	}
	if u.User != nil {
		return nil, &Error{Check: CheckCredentials, Got: "a URL with a user", Want: wantServer}
	}
	if u.Scheme != "https" {
		return nil, &Error{Check: CheckServerScheme, Got: strconv.Quote(u.Scheme), Want: "https"}
	}
	if !strings.HasPrefix(s, "https://") {
		return bad("a URL that does not begin with https://")
	}
	if !isHost(u.Hostname()) {
		return bad("the host " + strconv.Quote(u.Host))
	}
	if port := u.Port(); port != "" {
		if _, err := strconv.ParseUint(port, 10, 16); err != nil || port[0] == '0' {
			return bad("the port " + strconv.Quote(port))
		}
	} else if strings.HasSuffix(u.Host, ":") {
		return bad("an empty port")
	}
	if strings.HasSuffix(s, ":") || strings.Contains(u.EscapedPath(), "//") {
		return bad("the path " + strconv.Quote(u.EscapedPath()))
	}
	for segment := range strings.SplitSeq(u.Path, "/") {
		if segment == "." || segment == ".." {
			return bad("a path with the segment " + segment)
		}
	}
	return u, nil
}

// parseAddress reads an API server's address as people write it: a host or host:port,
// or its URL.
func parseAddress(s string) (*url.URL, error) {
	if strings.Contains(s, "://") {
		return parseServer(s)
	}
	if ip, err := netip.ParseAddr(s); err == nil && ip.Is6() {
		s = "[" + s + "]"
	}
	if strings.Contains(s, "/") {
		return nil, &Error{Check: CheckServer, Got: "an address with a path and no scheme", Want: "host[:port] or " + wantServer}
	}
	return parseServer("https://" + s)
}

func inURL(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || strings.IndexByte("-._~:/[]@%+,=", c) >= 0
}

// isHost reports whether s is an IP address without a zone, or looks like a DNS name.
func isHost(s string) bool {
	if strings.Contains(s, ":") {
		ip, err := netip.ParseAddr(s)
		return err == nil && ip.Is6() && ip.Zone() == ""
	}
	if len(s) > 253 {
		return false
	}
	for label := range strings.SplitSeq(strings.TrimSuffix(s, "."), ".") {
		if label == "" || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' {
			return false
		}
		for i := range len(label) {
			c := label[i]
			if !('0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || c == '-' || c == '_') {
				return false
			}
		}
	}
	return true
}

// below is the URL of a path, which needs no escapes, under the API server at u.
func below(u *url.URL, path string) *url.URL {
	full := *u
	full.RawPath = strings.TrimSuffix(u.EscapedPath(), "/") + path
	full.Path, _ = url.PathUnescape(full.RawPath) // as url.Parse did
	return &full
}

// withoutQuery is a server's URL for people.
func withoutQuery(u *url.URL) string { return u.Scheme + "://" + u.Host + u.EscapedPath() }

// sameServer reports whether two server URLs name one host, port and path.
func sameServer(a, b *url.URL) bool {
	port := func(u *url.URL) string {
		if p := u.Port(); p != "" {
			return p
		}
		return "443"
	}
	return net.JoinHostPort(strings.ToLower(a.Hostname()), port(a)) == net.JoinHostPort(strings.ToLower(b.Hostname()), port(b)) &&
		strings.TrimSuffix(a.EscapedPath(), "/") == strings.TrimSuffix(b.EscapedPath(), "/")
}
