package jws

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/refusal"
)

const testIssuer = "https://issuer.example/tenant"

// newOIDC makes a set for testIssuer, which answers with these bodies by URL. A URL that
// is not there is not found; a body that is a https or http URL is a redirect.
func newOIDC(t testing.TB, issuerURL string, bodies map[string]string) (*RemoteKeySet, *fakeIssuer) {
	t.Helper()
	set, issuer, _ := newRemote(t, func(c *RemoteConfig) { c.JWKSURL, c.Issuer = "", issuerURL })
	issuer.set(func(r *http.Request) (*http.Response, error) {
		body, ok := bodies[r.URL.String()]
		switch {
		case !ok:
			return respond(r, http.StatusNotFound, "no"), nil
		case strings.HasPrefix(body, "http"):
			return respond(r, http.StatusFound, "", "Location: "+body), nil
		}
		return respond(r, http.StatusOK, body), nil
	})
	return set, issuer
}

func jwksOf(t testing.TB, keys ...*Key) string {
	t.Helper()
	body, err := MarshalJWKS(keys)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

// The document is what kube-apiserver serves (pkg/serviceaccount/openidmetadata.go), and
// other issuers' have more members.
func TestRemoteKeySetDiscovery(t *testing.T) {
	for issuerURL, at := range map[string]string{
		testIssuer:               testIssuer + "/.well-known/openid-configuration",
		testIssuer + "/":         testIssuer + "/.well-known/openid-configuration",
		"https://issuer.example": "https://issuer.example/.well-known/openid-configuration",
	} {
		t.Run(issuerURL, func(t *testing.T) {
			set, issuer := newOIDC(t, issuerURL, map[string]string{
				at: `{"issuer":"` + issuerURL + `","jwks_uri":"` + keySetURL + `","response_types_supported":["id_token"],` +
					`"subject_types_supported":["public"],"id_token_signing_alg_values_supported":["RS256"],"claims":{"a":[1]}}`,
				keySetURL: jwksOf(t, forgers()[ES256].key),
			})
			wantKeys(t, set, issuer, "k", 1, 2)
			wantKeys(t, set, issuer, "k", 1, 0)
		})
	}
}

// A fetched set that has unfit keys serves the others, and the status says why the rest are
// left out, until a set has none.
func TestRemoteKeySetUnfit(t *testing.T) {
	set, issuer, now := newRemote(t, nil)
	unfit := `{"keys":[{"kty":"EC","use":"enc","kid":"other"},` + rfcKey + `]}`
	issuer.set(func(r *http.Request) (*http.Response, error) { return respond(r, http.StatusOK, unfit), nil })
	wantKeys(t, set, issuer, "k", 1, 1)
	if s := set.Status(); s.Keys != 1 || s.Err != nil || !errors.Is(s.Unfit, checkKeyUse) || !strings.Contains(s.Unfit.Error(), `"other"`) {
		t.Errorf("got %+v", s)
	}
	issuer.serve(t, []*Key{named(t, "k")})
	now.Advance(time.Hour)
	wantKeys(t, set, issuer, "k", 1, 1)
	if s := set.Status(); s.Unfit != nil {
		t.Errorf("got %+v", s)
	}
	issuer.set(func(r *http.Request) (*http.Response, error) {
		return respond(r, http.StatusOK, `{"keys":[{"kty":"EC","use":"enc"}]}`), nil
	})
	now.Advance(time.Hour)
	wantRetry(t, set, "new", checkKeyUse) // the reason, not only that there is no key
}

// A set that the client did not decode is refused by the name of its encoding.
func TestRemoteKeySetContentEncoding(t *testing.T) {
	for coding, want := range map[string]int{"gzip": 0, "identity": 1} {
		set, issuer, _ := newRemote(t, nil)
		issuer.serve(t, []*Key{named(t, "k")}, "Content-Encoding: "+coding)
		if want > 0 {
			wantKeys(t, set, issuer, "k", want, 1)
			continue
		}
		wantRetry(t, set, "k", checkFetch)
		if err := set.Status().Err; err == nil || !strings.Contains(err.Error(), coding) {
			t.Errorf("got %v", err)
		}
	}
}

func TestRemoteKeySetDiscoveryRefuses(t *testing.T) {
	const good = `"jwks_uri":"` + keySetURL + `"`
	for name, test := range map[string]struct {
		document string
		want     Check
	}{
		"another issuer":     {`{"issuer":"https://issuer.example/other",` + good + `}`, checkIssuer},
		"a slash more":       {`{"issuer":"` + testIssuer + `/",` + good + `}`, checkIssuer},
		"a port more":        {`{"issuer":"https://issuer.example:443/tenant",` + good + `}`, checkIssuer},
		"upper case":         {`{"issuer":"https://ISSUER.example/tenant",` + good + `}`, checkIssuer},
		"no issuer":          {`{` + good + `}`, checkIssuer},
		"issuer in two":      {`{"issuer":"` + testIssuer + `","issuer":"` + testIssuer + `",` + good + `}`, checkDiscovery},
		"issuer in case":     {`{"issuer":"` + testIssuer + `","Issuer":"` + testIssuer + `",` + good + `}`, checkDiscovery},
		"issuer null":        {`{"issuer":null,` + good + `}`, checkDiscovery},
		"http keys":          {`{"issuer":"` + testIssuer + `","jwks_uri":"http://issuer.example/keys"}`, checkDiscovery},
		"relative keys":      {`{"issuer":"` + testIssuer + `","jwks_uri":"/keys"}`, checkDiscovery},
		"no keys":            {`{"issuer":"` + testIssuer + `"}`, checkDiscovery},
		"not JSON":           {`<html>`, checkDiscovery},
		"something after":    {`{"issuer":"` + testIssuer + `",` + good + `} {}`, checkDiscovery},
		"too long":           {`{"issuer":"` + testIssuer + `",` + good + strings.Repeat(" ", maxDiscoverySize) + `}`, checkFetch},
		"a redirect to http": {"http://issuer.example/document", checkFetch},
		"a redirect in rings": {
			testIssuer + "/.well-known/openid-configuration", checkFetch},
	} {
		t.Run(name, func(t *testing.T) {
			set, issuer := newOIDC(t, testIssuer, map[string]string{
				testIssuer + "/.well-known/openid-configuration": test.document,
				keySetURL: jwksOf(t, forgers()[ES256].key),
				// Plain http would answer well, if it were asked.
				"http://issuer.example/keys":     jwksOf(t, forgers()[ES256].key),
				"http://issuer.example/document": `{"issuer":"` + testIssuer + `",` + good + `}`,
			})
			if _, err := set.Keys(context.Background(), "k"); !errors.Is(err, test.want) || !errors.Is(err, refusal.ErrRetry) {
				t.Errorf("%s: got %v, want %v", name, err, test.want)
			}
			if got := issuer.requests.Load(); got > maxRedirects+1 {
				t.Errorf("%s: %d requests", name, got)
			}
		})
	}
}

// A redirect to an allowed host is followed; the caller's own policy may refuse it, and its client
// is left as it was.
func TestRemoteKeySetRedirect(t *testing.T) {
	bodies := map[string]string{
		keySetURL:                         "https://elsewhere.example/keys",
		"https://elsewhere.example/keys":  "https://elsewhere.example/keys2",
		"https://elsewhere.example/keys2": jwksOf(t, forgers()[ES256].key),
	}
	answer := func(r *http.Request) (*http.Response, error) {
		if body := bodies[r.URL.String()]; !strings.HasPrefix(body, "https") {
			return respond(r, http.StatusOK, body), nil
		}
		return respond(r, http.StatusMovedPermanently, "", "Location: "+bodies[r.URL.String()]), nil
	}
	set, issuer, _ := newRemote(t, func(c *RemoteConfig) { c.Hosts = []string{"elsewhere.example"} })
	issuer.set(answer)
	wantKeys(t, set, issuer, "k", 1, 3)

	errPolicy := errors.New("not there")
	var client *http.Client
	set, issuer, _ = newRemote(t, func(c *RemoteConfig) {
		c.Hosts = []string{"elsewhere.example"}
		client = c.Client
		client.CheckRedirect = func(next *http.Request, _ []*http.Request) error {
			if next.URL.Host != "issuer.example" {
				return errPolicy
			}
			return nil
		}
	})
	issuer.set(answer)
	wantRetry(t, set, "k", errPolicy)

	set, issuer, _ = newRemote(t, func(c *RemoteConfig) {
		c.Client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
		client = c.Client
	})
	issuer.set(answer)
	wantRetry(t, set, "k", checkFetch)
	if client.CheckRedirect(nil, nil) != http.ErrUseLastResponse { //nolint:errorlint // as net/http compares
		t.Error("the caller's client was changed")
	}
}

func TestRemoteKeySetResponseRefused(t *testing.T) {
	good := jwksOf(t, forgers()[ES256].key)
	two := jwksOf(t, forgers()[ES256].key, named(t, "z"))
	many := make([]*Key, maxFetchedKeys+1)
	for i := range many {
		many[i] = named(t, fmt.Sprint(i))
	}
	for name, test := range map[string]struct {
		status int
		body   string
		want   Check
	}{
		"an error":         {500, good, checkFetch},
		"not found":        {404, good, checkFetch},
		"another success":  {203, good, checkFetch},
		"not modified":     {304, "", checkFetch},
		"no body":          {200, "", checkKeySet},
		"not JSON":         {200, "<html>", checkKeySet},
		"no keys":          {200, `{"keys":[]}`, checkKeySet},
		"no usable key":    {200, `{"keys":[{"kty":"EC","use":"enc"}]}`, checkKeySet},
		"too many keys":    {200, jwksOf(t, many...), checkKeySet},
		"too long":         {200, good + strings.Repeat(" ", maxFetchedSize), checkFetch},
		"one key ID twice": {200, strings.Replace(two, `"kid":"z"`, `"kid":"k"`, 1), checkKeySet},
		"a symmetric key":  {200, `{"keys":[{"kty":"oct","k":"AAAA","alg":"HS256"}]}`, checkPrivate},
	} {
		t.Run(name, func(t *testing.T) {
			set, issuer, now := newRemote(t, nil)
			wantKeys(t, set, issuer, "k", 1, 1)
			issuer.set(func(r *http.Request) (*http.Response, error) { return respond(r, test.status, test.body), nil })
			now.Advance(minRefetch)
			wantRetry(t, set, "x", test.want)
			// The held keys stay.
			wantKeys(t, set, issuer, "k", 1, 0)
			if !errors.Is(set.Status().Err, test.want) {
				t.Errorf("%s: %v", name, set.Status().Err)
			}
		})
	}
}

// A body that breaks off is no answer.
func TestRemoteKeySetBodyBreaksOff(t *testing.T) {
	set, issuer, _ := newRemote(t, nil)
	issuer.set(func(r *http.Request) (*http.Response, error) {
		response := respond(r, http.StatusOK, "")
		response.Body = brokenBody{}
		return response, nil
	})
	wantRetry(t, set, "k", errDown)
	wantRetry(t, set, "k", checkFetch)
}

type brokenBody struct{}

func (brokenBody) Read(p []byte) (int, error) { return copy(p, "{"), errDown }
func (brokenBody) Close() error               { return nil }

func FuzzDiscovery(f *testing.F) {
	testkit.BeginFuzz(f)
	f.Add([]byte(`{"issuer":"` + testIssuer + `","jwks_uri":"` + keySetURL + `"}`))
	allowed := hosts{"issuer.example:443": true}
	f.Add([]byte(`{"jwks_uri":"https://ISSUER.example:443","issuer":"` + testIssuer + `","x":[{}]}`))
	f.Add([]byte(`{"issuer":"https://b","jwks_uri":"http://a"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		keySet, err := parseDiscovery(data, testIssuer, allowed)
		if err != nil {
			var e *Error
			if keySet != "" || !errors.As(err, &e) {
				t.Errorf("%q, %v", keySet, err)
			}
			return
		}
		if u, err := url.Parse(keySet); err != nil || u.Scheme != "https" || !strings.EqualFold(u.Hostname(), "issuer.example") {
			t.Errorf("accepted %q", keySet)
		}
		again := fmt.Sprintf(`{"issuer":%s,"jwks_uri":%s}`, appendString(nil, testIssuer), appendString(nil, keySet))
		if got, err := parseDiscovery([]byte(again), testIssuer, allowed); got != keySet || err != nil {
			t.Errorf("%q, %v after %q", got, err, keySet)
		}
	})
}

func TestMaxAge(t *testing.T) {
	for _, test := range []struct {
		lines []string // of Cache-Control
		age   string
		want  time.Duration
	}{
		{nil, "", unstatedAge},
		{[]string{""}, "", unstatedAge},
		{[]string{"public"}, "10", unstatedAge},
		{[]string{"public, max-age=3600"}, "", time.Hour},
		{[]string{"MAX-AGE=60"}, "", time.Minute},
		{[]string{`max-age="60"`}, "", time.Minute},
		{[]string{" , ,max-age=60 ,"}, "", time.Minute},
		{[]string{"max-age=60"}, "20", 40 * time.Second},
		{[]string{"max-age=60"}, "61", 0},
		{[]string{"max-age=60"}, "soon", time.Minute},
		{[]string{"max-age=60, max-age=30"}, "", 30 * time.Second},
		{[]string{"max-age=30", "max-age=60"}, "", 30 * time.Second},
		{[]string{"max-age=0"}, "", 0},
		{[]string{"max-age"}, "", 0},
		{[]string{"max-age="}, "", 0},
		{[]string{"max-age=-1"}, "", 0},
		{[]string{"max-age=1.5"}, "", 0},
		{[]string{"max-age=1h"}, "", 0},
		{[]string{"max-age=99999999999999999999999"}, "", 1 << 31 * time.Second},
		{[]string{"s-maxage=60"}, "", unstatedAge},
		{[]string{"max-age=60, no-store"}, "", 0},
		{[]string{"max-age=60", "No-Cache"}, "", 0},
		{[]string{`max-age=60, no-cache="Set-Cookie"`}, "", 0},
	} {
		t.Run(fmt.Sprint(test.want), func(t *testing.T) {
			header := http.Header{"Cache-Control": test.lines}
			if test.age != "" {
				header.Set("Age", test.age)
			}
			if got := maxAge(header); got != test.want {
				t.Errorf("%q, age %q: got %v, want %v", test.lines, test.age, got, test.want)
			}
		})
	}
}

func FuzzMaxAge(f *testing.F) {
	f.Add("public, max-age=3600", "1")
	f.Add(`no-cache, max-age="0"`, "")
	f.Add("max-age=18446744073709551616", "-1")
	f.Fuzz(func(t *testing.T, line, age string) {
		got := maxAge(http.Header{"Cache-Control": {line}, "Age": {age}})
		if got < 0 || got > 1<<31*time.Second {
			t.Errorf("%q, %q: %v", line, age, got)
		}
	})
}

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
		"an internal host":               {keySet: internal, want: checkHost},
		"an internal host, redirect":     {keySet: internal, redirect: true, want: checkHost},
		"an address":                     {keySet: "https://169.254.169.254/keys", want: checkHost},
		"another port":                   {keySet: "https://issuer.example:8443/keys", want: checkHost},
		"another port, redirect":         {keySet: "https://issuer.example:8443/keys", redirect: true, want: checkHost},
		"another port of a listed host":  {keySet: "https://a.example:6443/keys", hosts: []string{"a.example"}, want: checkHost},
		"below the host":                 {keySet: "https://keys.issuer.example/keys", want: checkHost},
		"below a listed host":            {keySet: "https://keys.a.example/keys", hosts: []string{"a.example"}, want: checkHost},
		"the host with a dot":            {keySet: "https://issuer.example./keys", want: checkHost},
		"the host as a user":             {keySet: "https://issuer.example@metadata.internal/keys", want: checkDiscovery},
		"http of the host":               {keySet: "http://issuer.example/keys", want: checkDiscovery},
		"a listed host's plain http":     {keySet: "http://a.example/keys", hosts: []string{"a.example"}, want: checkDiscovery},
		"http of the host, redirect":     {keySet: "http://issuer.example/keys", redirect: true, want: checkFetch},
		"a listed host's http, redirect": {keySet: "http://a.example/keys", hosts: []string{"a.example"}, redirect: true, want: checkFetch},
	} {
		t.Run(name, func(t *testing.T) {
			set, issuer, _ := newRemote(t, func(c *RemoteConfig) { c.JWKSURL, c.Issuer, c.Hosts = "", testIssuer, test.hosts })
			named := test.keySet
			if test.redirect {
				named = "https://issuer.example/moved"
			}
			issuer.set(func(r *http.Request) (*http.Response, error) {
				switch {
				case r.URL.String() == testIssuer+"/.well-known/openid-configuration":
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
			case test.want != "" && (!errors.Is(err, test.want) || !errors.Is(err, refusal.ErrRetry)):
				t.Errorf("got %v, want %v", err, test.want)
			}
		})
	}
}

// Text that the other side chose, of its status and of a URL that it named, is not in
// an error as it is.
func TestRemoteKeySetErrorText(t *testing.T) {
	set, issuer, _ := newRemote(t, nil)
	issuer.set(func(r *http.Request) (*http.Response, error) {
		response := respond(r, http.StatusTeapot, "")
		response.Status = "418 echo\x1b[2J"
		return response, nil
	})
	_, err := set.Keys(t.Context(), "k")
	if !errors.Is(err, checkFetch) || strings.Contains(err.Error(), "echo") {
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
