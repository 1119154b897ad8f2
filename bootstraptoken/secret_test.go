package bootstraptoken

import (
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// testNow is the present in the tests of tokens and their Secrets.
var testNow = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func TestExpired(t *testing.T) {
	end := testNow
	for _, test := range []struct {
		end, now time.Time
		want     bool
	}{
		{end, end.Add(-time.Nanosecond), false},
		{end, end, true}, // at the instant itself
		{end, end.Add(time.Nanosecond), true},
		{end, end.In(time.FixedZone("", 7200)), true},
		{end, time.Time{}, true}, // a clock that nobody set
		{time.Time{}, end, false},
		{time.Time{}, time.Time{}, false},
	} {
		if got := (&Secret{Expiration: test.end}).Expired(test.now); got != test.want {
			t.Errorf("expiration %v at %v: %v", test.end, test.now, got)
		}
	}
}

func TestUser(t *testing.T) {
	s := &Secret{Token: mustParse(t, testToken), Groups: []string{GroupPrefix + "b", GroupPrefix + "a", GroupPrefix + "b"}}
	user := s.User()
	if want := []string{DefaultGroup, GroupPrefix + "a", GroupPrefix + "b"}; user.Name != "system:bootstrap:abcdef" || !slices.Equal(user.Groups, want) {
		t.Errorf("%+v", user)
	}
	if s.Groups[0] != GroupPrefix+"b" {
		t.Error("the Secret's groups were sorted")
	}
}

// groupTable holds Kubernetes' cases (k8s.io/cluster-bootstrap/token/util,
// TestValidateBootstrapGroupName) and more.
var groupTable = map[string]bool{
	GroupPrefix + "foo": true, GroupPrefix + "foo:bar:baz": true, GroupPrefix + "foo-bar-42": true, GroupPrefix + "a": true,
	GroupPrefix + "-a": true, GroupPrefix + ":a": true, GroupPrefix + strings.Repeat("x", 256): true, GroupPrefix + strings.Repeat(":", 255) + "0": true,
	GroupPrefix + "Foo": false, "foo": false, GroupPrefix: false, GroupPrefix + " ": false, GroupPrefix + "*": false, GroupPrefix + "foo:": false,
	GroupPrefix + "foo-": false, GroupPrefix + `<script> alert("scary?!") </script>`: false, GroupPrefix + strings.Repeat("x", 257): false,
	DefaultGroup: false, "": false, " " + GroupPrefix + "a": false, GroupPrefix + "a ": false, GroupPrefix + "a\n": false, GroupPrefix + "a,b": false,
	"system:masters": false, "system:bootstrappersx": false, "System:bootstrappers:a": false, GroupPrefix + "ä": false, GroupPrefix + "a_b": false,
}

func TestIsGroup(t *testing.T) {
	pattern := regexp.MustCompile(`\Asystem:bootstrappers:[a-z0-9:-]{0,255}[a-z0-9]\z`)
	for group, want := range groupTable {
		if isGroup(group) != want || pattern.MatchString(group) != want {
			t.Errorf("%.60q: %v, the pattern says %v, want %v", group, isGroup(group), pattern.MatchString(group), want)
		}
	}
	for c := range 256 {
		for _, group := range []string{GroupPrefix + "a" + string([]byte{byte(c)}), GroupPrefix + string([]byte{byte(c)}) + "a"} {
			if isGroup(group) != pattern.MatchString(group) {
				t.Errorf("%q: %v", group, isGroup(group))
			}
		}
	}
}
