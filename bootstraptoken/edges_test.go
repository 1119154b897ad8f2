package bootstraptoken

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/refusal"
)

// A refused cache says what is wrong with it, where there is a word for it.
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

func TestShortestTTL(t *testing.T) {
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	for ttl, good := range map[time.Duration]bool{0: false, time.Second - 1: false, time.Second: true} {
		if _, err := Renew(RenewalState{Owner: OwnerMachine, TTL: ttl}, now); good != (err == nil) || !good && !errors.Is(err, refusal.CheckConfig) {
			t.Errorf("%v: %v", ttl, err)
		}
	}
}

func TestWordsOfYAML(t *testing.T) {
	for text, want := range map[string]string{
		"": "not YAML", "# nothing": "not YAML", "a: [": "line 1: not YAML", "a: b\n---\nc: d\n": "something after the first document",
	} {
		t.Run(text, func(t *testing.T) {
			_, err := parseYAML([]byte(text))
			var e *Error
			if !errors.Is(err, checkKubeconfig) || !errors.As(err, &e) || e.Got != want {
				t.Errorf("%q: got %v, want %s", text, err, want)
			}
		})
	}
}

// Empty means null or the type's zero value; false is empty for a Boolean only.
func TestEmptyValues(t *testing.T) {
	for text, want := range map[string]map[string]bool{
		"null":      {"!!str": true, "!!bool": true, "!!map": true, "!!seq": true},
		`""`:        {"!!str": true, "!!bool": false, "!!map": false},
		`"false"`:   {"!!str": false, "!!bool": false},
		"false":     {"!!str": false, "!!bool": true},
		"true":      {"!!bool": false},
		"{}":        {"!!map": true, "!!seq": false, "!!str": false},
		"[]":        {"!!seq": true, "!!map": false},
		"[a]":       {"!!seq": false},
		"{a: b}":    {"!!map": false},
		`"content"`: {"!!str": false},
	} {
		t.Run(text, func(t *testing.T) {
			v, err := parseYAML([]byte(text))
			if err != nil {
				t.Fatalf("%s: %v", text, err)
			}
			for tag, taken := range want {
				if err := empty(tag, checkProxy)(v); (err == nil) != taken || err != nil && !errors.Is(err, checkProxy) {
					t.Errorf("%s as %s: %v", text, tag, err)
				}
			}
		})
	}
}
