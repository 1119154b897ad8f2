package bootstraptoken

import (
	"cmp"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
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

// inURL are the characters that a server's URL may have.
const inURL = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-._~:/[]@%+,="

// parseServer reads an API server's URL. What it takes is written in YAML without
// quotes.
func parseServer(s string) (*url.URL, error) {
	u, err := parseURL(s)
	if err != nil {
		return nil, err
	}
	path, port := u.EscapedPath(), u.Port()
	_, err = strconv.ParseUint(port, 10, 16)
	dots := func(segment string) bool { return segment == "." || segment == ".." }
	var why string
	switch other := strings.TrimLeft(s, inURL); {
	case other != "":
		why = "a URL with the character " + refusal.Quote(other[:1])
	case !strings.HasPrefix(s, "https://"):
		why = "a URL that does not begin with https://"
	case port != "" && (err != nil || port[0] == '0'):
		why = "the port " + strconv.Quote(port)
	case strings.HasSuffix(u.Host, ":"):
		why = "an empty port"
	case strings.HasSuffix(s, ":") || strings.Contains(path, "//"), slices.ContainsFunc(strings.Split(u.Path, "/"), dots):
		why = "the path " + strconv.Quote(path)
	default:
		return u, nil
	}
	return nil, &Error{Check: CheckServer, Got: why, Want: wantServer}
}

// parseURL reads an https URL of at most [MaxServerSize] bytes, without a user.
func parseURL(s string) (*url.URL, error) {
	if s == "" || len(s) > MaxServerSize {
		return nil, &Error{Check: CheckServer, Got: strconv.Itoa(len(s)) + " bytes", Want: wantServer}
	}
	u, err := url.Parse(s)
	if err != nil {
		return nil, &Error{Check: CheckServer, Got: "a text that is no URL", Want: wantServer}
	}
	return u, checkURL(u)
}

func checkURL(u *url.URL) error {
	switch {
	case u.User != nil:
		return &Error{Check: CheckCredentials, Got: "a URL with a user", Want: wantServer}
	case u.Scheme != "https":
		return &Error{Check: CheckServerScheme, Got: refusal.Quote(u.Scheme), Want: "https"}
	case !isHost(u.Hostname()):
		return &Error{Check: CheckServer, Got: "the host " + refusal.Quote(u.Host), Want: "a DNS name or an IP address"}
	}
	return nil
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

// dnsName is what looks like a DNS name: labels with dots between them, and perhaps one after.
var dnsName = regexp.MustCompile(`\A` + dnsLabel + `(\.` + dnsLabel + `)*\.?\z`)

const dnsLabel = `[0-9A-Za-z_]([0-9A-Za-z_-]{0,61}[0-9A-Za-z_])?`

// isHost reports whether s is an IP address without a zone, or looks like a DNS name.
func isHost(s string) bool {
	if strings.Contains(s, ":") {
		ip, err := netip.ParseAddr(s)
		return err == nil && ip.Is6() && ip.Zone() == ""
	}
	return len(s) <= 253 && dnsName.MatchString(s)
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
	return strings.EqualFold(a.Hostname(), b.Hostname()) && cmp.Or(a.Port(), "443") == cmp.Or(b.Port(), "443") &&
		strings.TrimSuffix(a.EscapedPath(), "/") == strings.TrimSuffix(b.EscapedPath(), "/")
}
