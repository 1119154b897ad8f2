package jws

import (
	"errors"
	"net"
	"net/url"
	"strings"
)

// hosts are the hosts that a [RemoteKeySet] may ask, each as hostPort writes it.
type hosts map[string]bool

// allowedHosts are those of a configuration that was checked.
func allowedHosts(config *RemoteConfig) hosts {
	h := make(hosts)
	for _, text := range []string{config.Issuer, config.JWKSURL} {
		if u, err := checkURL(CheckRemote, "", text); err == nil {
			h[hostPort(u)] = true
		}
	}
	for _, host := range config.Hosts {
		if u, err := parseHost(host); err == nil {
			h[hostPort(u)] = true
		}
	}
	return h
}

// checkHosts checks the further hosts of a configuration.
func checkHosts(list []string) error {
	for _, host := range list {
		if _, err := parseHost(host); err != nil {
			return err
		}
	}
	return nil
}

// parseHost reads "name" or "name:port" as the URL of that host.
func parseHost(host string) (*url.URL, error) {
	u, err := url.Parse("https://" + host)
	if err != nil || u.Host != host || u.Hostname() == "" || strings.Contains(host, "*") {
		return nil, &Error{Check: CheckRemote, Got: "the host " + host + " in Hosts", Want: "name or name:port"}
	}
	return u, nil
}

// hostPort is the host of an https URL, in lower case, and its port.
func hostPort(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = "443"
	}
	return net.JoinHostPort(strings.ToLower(u.Hostname()), port)
}

// check refuses a URL as checkURL does, and with [CheckHost] one of another host.
func (h hosts) check(check Check, what, text string) error {
	u, err := checkURL(check, what, text)
	if err != nil {
		return err
	}
	if !h[hostPort(u)] {
		return &Error{Check: CheckHost, Got: what + " " + u.Host, Want: "the host that is configured, or one of Hosts"}
	}
	return nil
}

// checkURL checks that keys may be fetched from a URL: absolute, https, with a host,
// without a password and a fragment.
func checkURL(check Check, what, text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil {
		return nil, &Error{Check: check, Got: what + " that is no URL", Want: "an https URL"}
	}
	if u.Scheme != "https" || u.Hostname() == "" || u.User != nil || u.Fragment != "" {
		return nil, &Error{Check: check, Got: what + " " + u.Redacted(), Want: "an https URL with a host, without user and fragment"}
	}
	return u, nil
}

// withoutURL takes the URL out of an error of a client, which repeats it.
func withoutURL(err error) error {
	var e *url.Error
	if errors.As(err, &e) {
		return e.Err
	}
	return err
}
