package bootstraptoken

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/secret"
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
		{end, time.Time{}, true}, // a clock that is not set
		{time.Time{}, end, false},
		{time.Time{}, time.Time{}, false},
	} {
		t.Run(fmt.Sprint(test.end), func(t *testing.T) {
			if got := (&Secret{Expiration: test.end}).Expired(test.now); got != test.want {
				t.Errorf("expiration %v at %v: %v", test.end, test.now, got)
			}
		})
	}
}

func TestUser(t *testing.T) {
	s := &Secret{Token: mustParse(t, testToken), Groups: []string{groupPrefix + "b", groupPrefix + "a", groupPrefix + "b"}}
	user := s.User()
	if want := []string{defaultGroup, groupPrefix + "a", groupPrefix + "b"}; user.Name != "system:bootstrap:abcdef" || !slices.Equal(user.Groups, want) {
		t.Errorf("%+v", user)
	}
	if s.Groups[0] != groupPrefix+"b" {
		t.Error("the Secret's groups were sorted")
	}
}

// groupTable holds Kubernetes' cases (k8s.io/cluster-bootstrap/token/util,
// TestValidateBootstrapGroupName) and more.
var groupTable = map[string]bool{
	groupPrefix + "foo": true, groupPrefix + "foo:bar:baz": true, groupPrefix + "foo-bar-42": true, groupPrefix + "a": true,
	groupPrefix + "-a": true, groupPrefix + ":a": true, groupPrefix + strings.Repeat("x", 256): true, groupPrefix + strings.Repeat(":", 255) + "0": true,
	groupPrefix + "Foo": false, "foo": false, groupPrefix: false, groupPrefix + " ": false, groupPrefix + "*": false, groupPrefix + "foo:": false,
	groupPrefix + "foo-": false, groupPrefix + `<script> alert("scary?!") </script>`: false, groupPrefix + strings.Repeat("x", 257): false,
	defaultGroup: false, "": false, " " + groupPrefix + "a": false, groupPrefix + "a ": false, groupPrefix + "a\n": false, groupPrefix + "a,b": false,
	"system:masters": false, "system:bootstrappersx": false, "System:bootstrappers:a": false, groupPrefix + "ä": false, groupPrefix + "a_b": false,
}

func TestGroupPattern(t *testing.T) {
	for group, want := range groupTable {
		if got := groupPattern().MatchString(group); got != want {
			t.Errorf("%.60q: %v, want %v", group, got, want)
		}
	}
}

func goodSecret(t testing.TB) *Secret {
	t.Helper()
	return &Secret{
		Token: mustParse(t, testToken), Description: "the first node", Expiration: testNow.Add(time.Hour),
		Usages: Usages{Signing: true, Authentication: true}, Groups: []string{nodeGroup, groupPrefix + "other"},
	}
}

func goodObject(t testing.TB) *Object {
	t.Helper()
	o, err := goodSecret(t).Object()
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func TestSecretObject(t *testing.T) {
	want := &Object{
		Namespace: "kube-system", Name: "bootstrap-token-abcdef", Type: "bootstrap.kubernetes.io/token",
		Data: secret.New(map[string][]byte{
			"token-id": []byte("abcdef"), "token-secret": []byte(testSecret), "description": []byte("the first node"),
			"expiration": []byte("2026-11-21T13:00:00Z"), "usage-bootstrap-signing": []byte("true"),
			"usage-bootstrap-authentication": []byte("true"),
			"auth-extra-groups":              []byte("system:bootstrappers:kubeadm:default-node-token,system:bootstrappers:other"),
		}),
	}
	if got := goodObject(t); !reflect.DeepEqual(got, want) {
		t.Errorf("got %v with %v", got, got.Data.Reveal())
	}
	least, err := (&Secret{Token: mustParse(t, testToken)}).Object()
	if err != nil || len(least.Data.Reveal()) != 2 {
		t.Errorf("%v, %v", least.Data, err)
	}
}

func TestSecretObjectExpiration(t *testing.T) {
	for _, test := range []struct {
		end  time.Time
		want string
	}{
		{testNow.Add(999 * time.Millisecond), "2026-11-21T12:00:00Z"}, // never longer than told
		{testNow.In(time.FixedZone("", 3600)), "2026-11-21T12:00:00Z"},
		{time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC), "9999-12-31T23:59:59Z"},
		{time.Date(0, 1, 1, 0, 0, 0, 0, time.UTC), "0000-01-01T00:00:00Z"},
		{time.Date(1, 1, 1, 0, 0, 1, 0, time.UTC), "0001-01-01T00:00:01Z"},
		{time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC), ""},
		{time.Date(-1, 1, 1, 0, 0, 0, 0, time.UTC), ""},
		{time.Date(1, 1, 1, 0, 0, 0, 1, time.UTC), ""}, // would read as "never"
	} {
		t.Run(fmt.Sprint(test.end), func(t *testing.T) {
			s := goodSecret(t)
			s.Expiration = test.end
			o, err := s.Object()
			if test.want == "" {
				if !errors.Is(err, checkExpiration) {
					t.Errorf("%v: %v, want %v", test.end, err, checkExpiration)
				}
				return
			}
			if err != nil || string(o.Data.Reveal()[keyExpiration]) != test.want {
				t.Errorf("%v: %s, %v", test.end, o.Data.Reveal()[keyExpiration], err)
			}
		})
	}
}

func TestSecretObjectRefuses(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*Secret)
		want   Check
	}{
		"no token":              {func(s *Secret) { s.Token = Token{} }, checkToken},
		"description not UTF-8": {func(s *Secret) { s.Description = "a\xff" }, checkDescription},
		"a group too many":      {func(s *Secret) { s.Groups = append(s.Groups, "system:masters") }, checkGroups},
		"an empty group":        {func(s *Secret) { s.Groups = append(s.Groups, "") }, checkGroups},
		"two groups in one":     {func(s *Secret) { s.Groups = []string{nodeGroup + "," + nodeGroup} }, checkGroups},
		"too much":              {func(s *Secret) { s.Description = strings.Repeat("a", maxSecretSize) }, checkSize},
	} {
		t.Run(name, func(t *testing.T) {
			s := goodSecret(t)
			test.change(s)
			if o, err := s.Object(); !errors.Is(err, test.want) || o != nil {
				t.Errorf("%s: %v, %v, want %v", name, o, err, test.want)
			}
		})
	}
}

// TestSecretObjectIsACopy: an object that is changed does not change the Secret.
func TestSecretObjectIsACopy(t *testing.T) {
	s := goodSecret(t)
	o, err := s.Object()
	if err != nil {
		t.Fatal(err)
	}
	clear(o.Data.Reveal()[keySecret])
	if s.Token.Reveal() != testToken {
		t.Error("the token has changed")
	}
}

// As much data as a Secret may have, and one byte more.
func TestSecretSizeLimit(t *testing.T) {
	o := goodObject(t)
	data, size := o.Data.Reveal(), 0
	delete(data, keyDescription)
	for key, value := range data {
		size += len(key) + len(value)
	}
	room := maxSecretSize - size - len(keyDescription)
	for more, want := range map[int]error{0: nil, 1: checkSize} {
		data[keyDescription] = bytes.Repeat([]byte("a"), room+more)
		s, err := ParseSecretUnchecked(o)
		if !errors.Is(err, want) {
			t.Errorf("%d more: %v, want %v", more, err, want)
		}
		if err != nil {
			continue
		}
		s.Description += "a"
		if _, err := s.Object(); !errors.Is(err, checkSize) {
			t.Errorf("encoded: %v, want %v", err, checkSize)
		}
	}
}

func TestDescribe(t *testing.T) {
	for value, want := range map[string]string{
		"":                                    `""`,
		"abcdef":                              `"abcdef"`,
		"bootstrap-token-abcdef":              `"bootstrap-token-abcdef"`,
		SecretType:                            `"bootstrap.kubernetes.io/token"`,
		nodeGroup:                             `"system:bootstrappers:kubeadm:default-node-token"`,
		"2026-11-21T12:00:00Z":                `"2026-11-21T12:00:00Z"`,
		testSecret:                            "16 bytes",
		testToken:                             "23 bytes",
		"bootstrap-token-" + testToken:        "39 bytes",
		strings.ToUpper(testSecret):           "16 bytes",
		testSecret[1:]:                        "15 bytes",
		"a\n\x1b[31m":                         `"a\n\x1b[31m"`,
		strings.Repeat("a-", 50):              `"` + strings.Repeat("a-", 40) + `"... (100 bytes)`,
		strings.Repeat("a-", 50) + testSecret: "116 bytes",
	} {
		t.Run(value, func(t *testing.T) {
			if got := describe([]byte(value)); got != want {
				t.Errorf("%q: %s, want %s", value, got, want)
			}
		})
	}
}

// leaks reports whether an error or an output holds the test token's secret.
func leaks(text string) bool { return strings.Contains(strings.ToLower(text), testSecret) }

// Every type that can hold a token's secret, by itself and in what holds it.
func TestSecretsAreNotShown(t *testing.T) {
	raw := []byte(testSecret)
	token := mustParse(t, testToken)
	s := Secret{Token: token, Description: "text", Expiration: time.Unix(1e9, 0), Groups: []string{nodeGroup},
		Annotations: secret.New(map[string]string{"kubectl.kubernetes.io/last-applied-configuration": `{"stringData":{"token-secret":"` + testSecret + `"}}`})}
	o, err := s.Object()
	if err != nil {
		t.Fatal(err)
	}
	t.Run("Token", func(t *testing.T) { testkit.CheckSecrets(t, token, raw) })
	t.Run("Secret", func(t *testing.T) { testkit.CheckSecrets(t, s, raw) })
	t.Run("Object", func(t *testing.T) { testkit.CheckSecrets(t, *o, raw) })
	t.Run("data", func(t *testing.T) { testkit.CheckSecrets(t, o.Data, raw) })
	t.Run("CreateOptions", func(t *testing.T) { testkit.CheckSecrets(t, CreateOptions{Token: token}, raw) })
	t.Run("DiscoverConfig", func(t *testing.T) { testkit.CheckSecrets(t, DiscoverConfig{Token: token}, raw) })
	t.Run("RefreshOptions", func(t *testing.T) { testkit.CheckSecrets(t, RefreshOptions{Token: token}, raw) })
	t.Run("Tokens", func(t *testing.T) { testkit.CheckSecrets(t, map[string][]Token{"a": {token}}, raw) })
	t.Run("Objects", func(t *testing.T) { testkit.CheckSecrets(t, []*Object{o}, raw) })
}

func TestTokenText(t *testing.T) {
	token := mustParse(t, testToken)
	for _, format := range []string{"%v", "%s", "%+v"} {
		if got := fmt.Sprintf(format, token); got != "abcdef.[secret]" {
			t.Errorf("%s gives %s", format, got)
		}
	}
	text, err := json.Marshal(map[string]any{"token": token, "none": Token{}})
	if err != nil || string(text) != `{"none":"no token","token":"abcdef.[secret]"}` {
		t.Errorf("%s, %v", text, err)
	}
	o := Object{Namespace: Namespace, Name: "bootstrap-token-abcdef", Type: SecretType}
	if got := fmt.Sprint(o); got != `Secret "bootstrap-token-abcdef" in "kube-system" of type "bootstrap.kubernetes.io/token"` {
		t.Error(got)
	}
}

// TestTokenIsNotComparable: == would say that two readings of one token differ.
func TestTokenIsNotComparable(t *testing.T) {
	if reflect.TypeFor[Token]().Comparable() {
		t.Error("Token can be compared with ==")
	}
}
