package bootstraptoken

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/refusal"
)

func TestCacheMarshal(t *testing.T) {
	ca := newTestCA(t, "one")
	cache := &Cache{Info: info("https://a:1", ca), Addresses: []string{"b"}, Verified: time.Date(2026, 5, 1, 14, 0, 0, 999, time.FixedZone("", 7200))}
	kubeconfig, err := json.Marshal(kubeadmKubeconfig("https://a:1", ca.pem()))
	if err != nil {
		t.Fatal(err)
	}
	want := `{"version":1,"kubeconfig":` + string(kubeconfig) + `,"addresses":["b"],"verified":"2026-05-01T12:00:00Z"}` + "\n"
	got, err := cache.Marshal()
	if err != nil || string(got) != want {
		t.Fatalf("%s, %v, want %s", got, err, want)
	}
	back, err := ParseCache(got)
	if err != nil || !back.Info.Equal(cache.Info) || back.Verified.Unix() != cache.Verified.Unix() {
		t.Errorf("%+v, %v", back, err)
	}
	for name, test := range map[string]struct {
		cache *Cache
		want  Check
	}{
		"zero":        {&Cache{}, checkServer},
		"no CA":       {&Cache{Info: &ClusterInfo{Server: "https://a"}}, checkNoCA},
		"bad address": {&Cache{Info: cache.Info, Addresses: []string{"http://b"}}, checkServerScheme},
		"too many":    {&Cache{Info: cache.Info, Addresses: make([]string, maxAddresses)}, refusal.CheckConfig},
	} {
		t.Run(name, func(t *testing.T) {
			if got, err := test.cache.Marshal(); !errors.Is(err, test.want) {
				t.Errorf("%s: %s, %v, want %v", name, got, err, test.want)
			}
		})
	}
}

func TestParseCacheRefuses(t *testing.T) {
	ca := newTestCA(t, "one")
	b, err := (&Cache{Info: info("https://a:1", ca), Addresses: []string{"b"}, Verified: time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)}).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	good := string(b)
	replace := func(old, new string) string { return strings.Replace(good, old, new, 1) }
	for name, file := range map[string]string{
		"nothing":             "",
		"null":                "null",
		"cut off":             good[:len(good)-3],
		"no line feed":        good[:len(good)-1],
		"a line feed more":    good + "\n",
		"a space":             replace(",", ", "),
		"another version":     replace(`"version":1`, `"version":2`),
		"no version":          replace(`"version":1,`, ``),
		"version twice":       replace(`{`, `{"version":1,`),
		"unknown member":      replace(`{`, `{"x":1,`),
		"in upper case":       replace(`"version"`, `"Version"`),
		"another order":       replace(`"addresses":["b"],"verified":"2026-05-01T12:00:00Z"`, `"verified":"2026-05-01T12:00:00Z","addresses":["b"]`),
		"another zone":        replace(`12:00:00Z`, `14:00:00+02:00`),
		"a fraction":          replace(`12:00:00Z`, `12:00:00.5Z`),
		"no time":             replace(`2026-05-01T12:00:00Z`, `now`),
		"bad address":         replace(`"b"`, `"http://b"`),
		"no addresses":        replace(`["b"]`, `[]`),
		"another kubeconfig":  replace(`contexts: null`, `contexts: []`),
		"a bad server":        replace(`https://a:1`, `http://a:1`),
		"credentials":         replace(`users: null`, `users: [{user: {token: a}}]`),
		"too large":           good + strings.Repeat(" ", maxCacheSize),
		"the kubeconfig bare": kubeadmKubeconfig("https://a:1", ca.pem()),
	} {
		t.Run(name, func(t *testing.T) {
			if file == good {
				t.Fatalf("%s: the file was not changed", name)
			}
			if c, err := ParseCache([]byte(file)); !errors.Is(err, checkCache) || c != nil {
				t.Errorf("%s: %+v, %v, want %v", name, c, err, checkCache)
			}
		})
	}
}

// The cause is in the error, and too large a cache is not read.
func TestParseCacheCauses(t *testing.T) {
	ca := newTestCA(t, "one")
	b, err := (&Cache{Info: info("https://a:1", ca), Addresses: []string{"b"}}).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	for old, test := range map[string]struct {
		new  string
		want error
	}{
		`https://a:1`:    {`http://a:1`, checkServerScheme},
		`"b"`:            {`"http://b"`, checkServerScheme},
		`contexts: null`: {`contexts: 1`, checkKubeconfig},
	} {
		t.Run(old, func(t *testing.T) {
			if _, err := ParseCache([]byte(strings.Replace(string(b), old, test.new, 1))); !errors.Is(err, checkCache) || !errors.Is(err, test.want) {
				t.Errorf("%s: %v, want %v", test.new, err, test.want)
			}
		})
	}
	for size, read := range map[int]bool{MaxCacheSize: true, maxCacheSize + 1: false} {
		_, err := ParseCache(append(b, strings.Repeat("x", size-len(b))...))
		var syntax *json.SyntaxError
		if !errors.Is(err, checkCache) || errors.As(err, &syntax) != read {
			t.Errorf("%d bytes: %v", size, err)
		}
	}
}

func FuzzParseCache(f *testing.F) {
	ca := newTestCA(f, "one")
	for _, c := range []*Cache{{Info: info("https://a:1", ca)}, {Info: info("https://a:1", ca), Addresses: []string{"b"}, Verified: time.Unix(1, 0)}, {Info: &ClusterInfo{Server: "https://a", SystemRoots: true}}} {
		b, err := c.Marshal()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
		f.Add(b[:len(b)-1])
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := ParseCache(data)
		if err != nil {
			if !errors.Is(err, checkCache) {
				t.Fatal(err)
			}
			return
		}
		if again, err := c.Marshal(); err != nil || !bytes.Equal(again, data) {
			t.Fatalf("%q is written as %q, %v", data, again, err)
		}
	})
}

// The error of a refused cache describes the fault.
func TestWordsOfCaches(t *testing.T) {
	good, err := (&Cache{Info: info("https://a", newTestCA(t, "one")), Verified: time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)}).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ from, to, got string }{
		"another version": {`"version":1`, `"version":2`, "version 2"},
		"no version":      {`"version":1,`, ``, "version 0"},
		"another time":    {"2026-05-01T12:00:00Z", "yesterday", "another form of the time"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := ParseCache(bytes.Replace(good, []byte(c.from), []byte(c.to), 1))
			var e *Error
			if !errors.Is(err, checkCache) || !errors.As(err, &e) || e.Got != c.got {
				t.Errorf("%s: got %v, want %s", name, err, c.got)
			}
		})
	}
}
