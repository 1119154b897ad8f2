package jws

import (
	"errors"
	"net/http"
	"net/url"
	"strings"
	"testing"
)

// A jwks_uri and a redirect lead to the configured host or to one of Hosts, and nothing is
// asked of any other.
func TestRemoteKeySetHosts(t *testing.T) {
	const internal = "https://metadata.internal/keys"
	body := jwksOf(t, forgers()[ES256].key)
	for name, test := range map[string]struct {
		keySet   string
		redirect bool // keySet is where the host's own key set redirects to
		hosts    []string
		want     Check // empty: the key is found
	}{
		"its own host":                   {keySet: "https://issuer.example/keys"},
		"its own host, redirect":         {keySet: "https://issuer.example/keys2", redirect: true},
		"its own host in upper case":     {keySet: "https://ISSUER.example/keys"},
		"its own port, said":             {keySet: "https://issuer.example:443/keys"},
		"a listed host":                  {keySet: internal, hosts: []string{"a.example", "metadata.internal"}},
		"a listed host, redirect":        {keySet: internal, hosts: []string{"METADATA.internal:443"}, redirect: true},
		"a listed port":                  {keySet: "https://issuer.example:8443/keys", hosts: []string{"issuer.example:8443"}},
		"an internal host":               {keySet: internal, want: CheckHost},
		"an internal host, redirect":     {keySet: internal, redirect: true, want: CheckHost},
		"an address":                     {keySet: "https://169.254.169.254/keys", want: CheckHost},
		"another port":                   {keySet: "https://issuer.example:8443/keys", want: CheckHost},
		"another port, redirect":         {keySet: "https://issuer.example:8443/keys", redirect: true, want: CheckHost},
		"another port of a listed host":  {keySet: "https://a.example:6443/keys", hosts: []string{"a.example"}, want: CheckHost},
		"below the host":                 {keySet: "https://keys.issuer.example/keys", want: CheckHost},
		"below a listed host":            {keySet: "https://keys.a.example/keys", hosts: []string{"a.example"}, want: CheckHost},
		"the host with a dot":            {keySet: "https://issuer.example./keys", want: CheckHost},
		"the host as a user":             {keySet: "https://issuer.example@metadata.internal/keys", want: CheckDiscovery},
		"http of the host":               {keySet: "http://issuer.example/keys", want: CheckDiscovery},
		"a listed host's plain http":     {keySet: "http://a.example/keys", hosts: []string{"a.example"}, want: CheckDiscovery},
		"http of the host, redirect":     {keySet: "http://issuer.example/keys", redirect: true, want: CheckFetch},
		"a listed host's http, redirect": {keySet: "http://a.example/keys", hosts: []string{"a.example"}, redirect: true, want: CheckFetch},
	} {
		t.Run(name, func(t *testing.T) {
			set, issuer, _ := newRemote(t, func(c *RemoteConfig) { c.JWKSURL, c.Issuer, c.Hosts = "", testIssuer, test.hosts })
			named := test.keySet
			if test.redirect {
				named = "https://issuer.example/moved"
			}
			issuer.set(func(r *http.Request) (*http.Response, error) {
				switch {
				case r.URL.String() == discoveryURL(testIssuer):
					return respond(r, http.StatusOK, `{"issuer":"`+testIssuer+`","jwks_uri":"`+named+`"}`), nil
				case r.URL.Path == "/moved":
					return respond(r, http.StatusFound, "", "Location: "+test.keySet), nil
				case test.want != "":
					t.Errorf("%s was asked", r.URL)
				}
				return respond(r, http.StatusOK, body), nil
			})
			keys, err := set.Keys(t.Context(), "k")
			switch {
			case test.want == "" && (err != nil || len(keys) != 1):
				t.Errorf("%d keys, %v", len(keys), err)
			case test.want != "" && (!errors.Is(err, test.want) || !errors.Is(err, ErrRetry)):
				t.Errorf("got %v, want %v", err, test.want)
			}
		})
	}
}

// What the other side chose, the text of its status and of a URL that it named, is not in
// an error as it is.
func TestRemoteKeySetErrorText(t *testing.T) {
	set, issuer, _ := newRemote(t, nil)
	issuer.set(func(r *http.Request) (*http.Response, error) {
		response := respond(r, http.StatusTeapot, "")
		response.Status = "418 echo\x1b[2J"
		return response, nil
	})
	_, err := set.Keys(t.Context(), "k")
	if !errors.Is(err, CheckFetch) || strings.Contains(err.Error(), "echo") {
		t.Errorf("got %v", err)
	}

	set, issuer, _ = newRemote(t, nil)
	issuer.fail()
	_, err = set.Keys(t.Context(), "k")
	var client *url.Error // repeats the URL
	if !errors.Is(err, errDown) || errors.As(err, &client) {
		t.Errorf("got %v", err)
	}
}
