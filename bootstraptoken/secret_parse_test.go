package bootstraptoken

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/refusal"
	"github.com/nodeattest/nodeattest/secret"
)

func TestParseSecret(t *testing.T) {
	got, err := ParseSecretUnchecked(goodObject(t))
	if err != nil || !reflect.DeepEqual(got, goodSecret(t)) || !got.Token.Equal(mustParse(t, testToken)) {
		t.Fatalf("%+v, %v", got, err)
	}
	least := &Secret{Token: mustParse(t, testToken)}
	o, err := least.Object()
	if err != nil {
		t.Fatal(err)
	}
	if got, err = ParseSecretUnchecked(o); err != nil || !reflect.DeepEqual(got, least) {
		t.Fatalf("%+v, %v", got, err)
	}
}

// Keys that are not known, as k0s writes them for its workers, stop no reader: kube-apiserver
// looks at none of them. Only who writes the Secret again would lose them.
func TestParseSecretUnknownKey(t *testing.T) {
	for key, value := range map[string]string{
		"usage-bootstrap-api-auth": "true", "usage-bootstrap-api-worker-calls": "true", "auth-groups": nodeGroup, testSecret: "",
	} {
		t.Run(key, func(t *testing.T) {
			o := goodObject(t)
			setData(key, value)(o)
			user, err := Authenticate(t.Context(), testToken, func(context.Context, string, string) (*Object, error) { return o, nil }, testNow)
			if err != nil || !reflect.DeepEqual(user, goodSecret(t).User()) {
				t.Errorf("got %v, %v", user, err)
			}
			if found, refused := List([]*Object{o}); len(found) != 1 {
				t.Errorf("listed: %v, %v", found, refused)
			}
			if signed, err := Sign(map[string]string{KubeconfigKey: "a"}, []*Object{o}, testNow); err != nil || signed.Data[SignatureKeyPrefix+testID] == "" {
				t.Errorf("signed: %+v, %v", signed, err)
			}
			s, err := ParseSecretUnchecked(o)
			if err != nil {
				t.Fatal(err)
			}
			written, err := s.Object()
			if !errors.Is(err, checkUnknownKey) || written != nil || leaks(err.Error()) || leaks(fmt.Sprintf("%+v", s)) {
				t.Errorf("written again: %v, %v", written, err)
			}
		})
	}
}

// A change makes an object that ParseSecretUnchecked refuses with want.
type change struct {
	name   string
	change func(*Object)
	want   Check
}

func setData(key, value string) func(*Object) {
	return func(o *Object) { o.Data.Reveal()[key] = []byte(value) }
}

func dropData(key string) func(*Object) { return func(o *Object) { delete(o.Data.Reveal(), key) } }

// refusals are the smallest changes of a good object, in the order of the checks.
var refusals = []change{
	{"no namespace", func(o *Object) { o.Namespace = "" }, checkNamespace},
	{"another namespace", func(o *Object) { o.Namespace = "kube-public" }, checkNamespace},
	{"namespace in capitals", func(o *Object) { o.Namespace = "Kube-system" }, checkNamespace},
	{"no name", func(o *Object) { o.Name = "" }, checkName},
	{"the prefix alone", func(o *Object) { o.Name = secretNamePrefix }, checkName},
	{"a name without its prefix", func(o *Object) { o.Name = testID }, checkName},
	{"a name in capitals", func(o *Object) { o.Name = secretNamePrefix + "ABCDEF" }, checkName},
	{"a long ID in the name", func(o *Object) { o.Name += "0" }, checkName},
	{"the whole token in the name", func(o *Object) { o.Name = secretNamePrefix + testToken }, checkName},
	{"deleted", func(o *Object) { o.Deleted = &testNow }, checkDeleted},
	{"deleted in year one", func(o *Object) { o.Deleted = new(time.Time) }, checkDeleted},
	{"no type", func(o *Object) { o.Type = "" }, checkType},
	{"Opaque", func(o *Object) { o.Type = "Opaque" }, checkType},
	{"type in capitals", func(o *Object) { o.Type = "Bootstrap.kubernetes.io/token" }, checkType},
	{"too much data", setData("description", strings.Repeat("a", maxSecretSize)), checkSize},
	{"no data", func(o *Object) { o.Data = secret.Value[map[string][]byte]{} }, checkSecret},
	{"no secret", dropData("token-secret"), checkSecret},
	{"an empty secret", setData("token-secret", ""), checkSecret},
	{"a short secret", setData("token-secret", testSecret[1:]), checkSecret},
	{"a secret in capitals", setData("token-secret", strings.ToUpper(testSecret)), checkSecret},
	{"a secret and a line break", setData("token-secret", testSecret+"\n"), checkSecret},
	{"the whole token as secret", setData("token-secret", testToken), checkSecret},
	{"no ID", dropData("token-id"), checkID},
	{"another ID", setData("token-id", "abcdeg"), checkID},
	{"an ID in capitals", setData("token-id", "ABCDEF"), checkID},
	{"an ID and a line break", setData("token-id", testID+"\n"), checkID},
	{"the secret as ID", setData("token-id", testSecret), checkID},
	{"an empty expiration", setData("expiration", ""), checkExpiration},
	{"an expiration in words", setData("expiration", "tomorrow"), checkExpiration},
	{"an expiration in seconds", setData("expiration", "1795262400"), checkExpiration},
	{"an expiration without zone", setData("expiration", "2026-11-21T13:00:00"), checkExpiration},
	{"an expiration with a space", setData("expiration", "2026-11-21 13:00:00Z"), checkExpiration},
	{"an expiration in lower case", setData("expiration", "2026-11-21t13:00:00z"), checkExpiration},
	{"an expiration with a line break", setData("expiration", "2026-11-21T13:00:00Z\n"), checkExpiration},
	{"an expiration with a comma", setData("expiration", "2026-11-21T13:00:00,5Z"), checkExpiration},
	{"an expiration with a short hour", setData("expiration", "2026-11-21T9:00:00Z"), checkExpiration},
	{"an expiration on a day that is not", setData("expiration", "2026-02-29T13:00:00Z"), checkExpiration},
	{"an expiration in a leap second", setData("expiration", "2026-12-31T23:59:60Z"), checkExpiration},
	{"an expiration that reads as never", setData("expiration", "0001-01-01T00:00:00Z"), checkExpiration},
	{"an expiration that reads as never elsewhere", setData("expiration", "0001-01-01T01:00:00+01:00"), checkExpiration},
	{"an expiration with the zone 24:00", setData("expiration", "2026-11-21T13:00:00+24:00"), checkExpiration},
	{"an expiration with the zone +01:60", setData("expiration", "2026-11-21T13:00:00+01:60"), checkExpiration},
	{"the secret as expiration", setData("expiration", testSecret), checkExpiration},
	{"usage True", setData("usage-bootstrap-signing", "True"), checkUsage},
	{"usage TRUE", setData("usage-bootstrap-authentication", "TRUE"), checkUsage},
	{"usage 1", setData("usage-bootstrap-authentication", "1"), checkUsage},
	{"usage yes", setData("usage-bootstrap-signing", "yes"), checkUsage},
	{"usage with a space", setData("usage-bootstrap-signing", "true "), checkUsage},
	{"usage with a line break", setData("usage-bootstrap-signing", "true\n"), checkUsage},
	{"the secret as usage", setData("usage-bootstrap-signing", testSecret), checkUsage},
	{"the group system:masters", setData("auth-extra-groups", "system:masters"), checkGroups},
	{"the default group", setData("auth-extra-groups", defaultGroup), checkGroups},
	{"a trailing comma", setData("auth-extra-groups", nodeGroup+","), checkGroups},
	{"a space after a comma", setData("auth-extra-groups", nodeGroup+", "+nodeGroup), checkGroups},
	{"a comma alone", setData("auth-extra-groups", ","), checkGroups},
	{"a semicolon", setData("auth-extra-groups", nodeGroup+";"+nodeGroup), checkGroups},
	{"a description not in UTF-8", setData("description", "a\xff"), checkDescription},
	{"a key in capitals", setData("Expiration", "2026-11-21T13:00:00Z"), checkUnknownKey},
	{"a usage in another case", setData("usage-Bootstrap-signing", "true"), checkUnknownKey},
}

func TestParseSecretRefuses(t *testing.T) {
	for _, test := range refusals {
		o := goodObject(t)
		test.change(o)
		for _, decode := range []func() (*Secret, error){
			func() (*Secret, error) { return ParseSecretUnchecked(o) },
			func() (*Secret, error) { return ParseSecretFor(o, Usages{Authentication: true}, testNow) },
			func() (*Secret, error) { return ParseSecretFor(o, Usages{Signing: true}, testNow) },
		} {
			s, err := decode()
			if !errors.Is(err, test.want) || s != nil {
				t.Errorf("%s: %v, %v, want %v", test.name, s, err, test.want)
			}
			if errors.Is(err, refusal.ErrRetry) || leaks(err.Error()) {
				t.Errorf("%s: %v", test.name, err)
			}
		}
	}
	if _, err := ParseSecretUnchecked(nil); !errors.Is(err, checkName) {
		t.Error(err)
	}
}

// TestParseSecretOrder breaks two rules at a time: the earlier check of kube-apiserver's order
// is the one that is named.
func TestParseSecretOrder(t *testing.T) {
	order := []Check{checkNamespace, checkName, checkDeleted, checkType, checkSize, checkSecret, checkID, checkExpiration, checkUsage, checkGroups, checkDescription, checkUnknownKey}
	for i, first := range refusals {
		for _, second := range refusals[i+1:] {
			if first.want == second.want || first.name == "no data" || second.name == "no data" {
				continue
			}
			o := goodObject(t)
			second.change(o)
			first.change(o)
			if first.want == checkSize && second.want == checkDescription {
				continue // both are about one value
			}
			if _, err := ParseSecretUnchecked(o); !errors.Is(err, first.want) {
				t.Errorf("%s and %s: %v, want %v", first.name, second.name, err, first.want)
			}
		}
		if !slices.Contains(order, first.want) || i > 0 && slices.Index(order, refusals[i-1].want) > slices.Index(order, first.want) {
			t.Errorf("%s is not in order", first.name)
		}
	}
}

func TestParseSecretTakes(t *testing.T) {
	for name, test := range map[string]struct {
		change, same func(*Object)
	}{
		"usage false":         {setData(keySigning, "false"), dropData(keySigning)},
		"usage empty":         {setData(keyAuthentication, ""), dropData(keyAuthentication)},
		"groups empty":        {setData(keyGroups, ""), dropData(keyGroups)},
		"description empty":   {setData(keyDescription, ""), dropData(keyDescription)},
		"no expiration":       {dropData(keyExpiration), dropData(keyExpiration)},
		"no usages":           {dropData(keySigning), dropData(keySigning)},
		"description of text": {setData(keyDescription, "ä\n\t\U0001f600"), setData(keyDescription, "ä\n\t\U0001f600")},
	} {
		t.Run(name, func(t *testing.T) {
			o, want := goodObject(t), goodObject(t)
			test.change(o)
			test.same(want)
			s, err := ParseSecretUnchecked(o)
			if err != nil {
				t.Errorf("%s: %v", name, err)
				return
			}
			if back, err := s.Object(); err != nil || !reflect.DeepEqual(back, want) {
				t.Errorf("%s: %v, %v", name, back.Data, err)
			}
		})
	}
	for text, want := range map[string]time.Time{
		"2026-11-21T15:00:00+02:00": testNow.Add(time.Hour),
		"2026-11-21T13:00:00.25Z":   testNow.Add(time.Hour + 250*time.Millisecond),
		"2026-11-21T13:00:00-00:00": testNow.Add(time.Hour),
	} {
		t.Run(text, func(t *testing.T) {
			o := goodObject(t)
			setData(keyExpiration, text)(o)
			if s, err := ParseSecretUnchecked(o); err != nil || !s.Expiration.Equal(want) {
				t.Errorf("%s: %v, %v", text, s, err)
			}
		})
	}
}

func TestParseSecretFor(t *testing.T) {
	both, sign, auth := Usages{Signing: true, Authentication: true}, Usages{Signing: true}, Usages{Authentication: true}
	end := testNow.Add(time.Hour)
	for _, test := range []struct {
		name    string
		allowed Usages
		wanted  Usages
		now     time.Time
		want    error
	}{
		{"all", both, both, testNow, nil},
		{"less than allowed", both, sign, testNow, nil},
		{"the last instant", both, auth, end.Add(-time.Nanosecond), nil},
		{"the end itself", both, auth, end, checkExpired},
		{"later", both, auth, end.Add(time.Second), checkExpired},
		{"no authentication", sign, auth, testNow, checkUsage},
		{"no signing", auth, sign, testNow, checkUsage},
		{"one of two", auth, both, testNow, checkUsage},
		{"nothing", Usages{}, auth, testNow, checkUsage},
		{"nothing wanted", both, Usages{}, testNow, refusal.CheckConfig},
		{"expired before usage", sign, auth, end, checkExpired},
		{"no clock", both, both, time.Time{}, refusal.CheckConfig},
	} {
		t.Run(test.name, func(t *testing.T) {
			secret := goodSecret(t)
			secret.Usages = test.allowed
			o, err := secret.Object()
			if err != nil {
				t.Fatal(err)
			}
			s, err := ParseSecretFor(o, test.wanted, test.now)
			if !errors.Is(err, test.want) || (s == nil) != (test.want != nil) {
				t.Errorf("%s: %v, %v, want %v", test.name, s, err, test.want)
			}
		})
	}
	// Expiration and usage come before the groups, as in kube-apiserver.
	o := goodObject(t)
	setData(keyGroups, ",")(o)
	if _, err := ParseSecretFor(o, auth, end); !errors.Is(err, checkExpired) {
		t.Error(err)
	}
	dropData(keyAuthentication)(o)
	if _, err := ParseSecretFor(o, auth, testNow); !errors.Is(err, checkUsage) {
		t.Error(err)
	}
}

func FuzzParseSecret(f *testing.F) {
	good := goodObject(f)
	add := func(o *Object) {
		f.Add(o.Namespace, o.Name, o.Type, o.Deleted != nil, o.Data.Reveal()[keyID], o.Data.Reveal()[keySecret], o.Data.Reveal()[keyExpiration], o.Data.Reveal()[keyDescription], o.Data.Reveal()[keySigning], o.Data.Reveal()[keyAuthentication], o.Data.Reveal()[keyGroups], "", int64(0))
	}
	add(good)
	for _, test := range refusals {
		o := &Object{Namespace: good.Namespace, Name: good.Name, Type: good.Type, Data: secret.New(maps.Clone(good.Data.Reveal()))}
		test.change(o)
		if len(o.Data.Reveal()[keyDescription]) < 1000 {
			add(o)
		}
	}
	f.Fuzz(func(t *testing.T, namespace, name, kind string, deleted bool, id, text, expiration, description, signing, authentication, groups []byte, extra string, seconds int64) {
		o := &Object{Namespace: namespace, Name: name, Type: kind, Data: secret.New(map[string][]byte{
			keyID: id, keySecret: text, keyExpiration: expiration, keyDescription: description,
			keySigning: signing, keyAuthentication: authentication, keyGroups: groups,
		})}
		if deleted {
			o.Deleted = &testNow
		}
		if extra != "" {
			o.Data.Reveal()[extra] = []byte("true")
		}
		maps.DeleteFunc(o.Data.Reveal(), func(_ string, value []byte) bool { return value == nil })
		now := testNow.Add(time.Duration(seconds % (1 << 33) * int64(time.Second)))
		neverMoreThanKubernetes(t, o, now)
		s, err := ParseSecretUnchecked(o)
		if err != nil {
			return
		}
		back, err := s.Object()
		if errors.Is(err, checkUnknownKey) && s.unknown != "" {
			return
		}
		if err != nil {
			t.Fatalf("%v cannot be encoded: %v", s, err)
		}
		again, err := ParseSecretUnchecked(back)
		if err != nil || !again.Expiration.Equal(s.Expiration.Truncate(time.Second)) || !again.Token.Equal(s.Token) ||
			again.Description != s.Description || again.Usages != s.Usages || !slices.Equal(again.Groups, s.Groups) {
			t.Fatalf("%+v is encoded and read as %+v, %v", s, again, err)
		}
	})
}

// rfc3339 is the grammar of section 5.6, in upper case; the ranges are time.Parse's to
// check, but for the zone.
var rfc3339 = regexp.MustCompile(`\A[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])\z`)

var timeSeeds = []string{
	"2026-11-21T13:00:00Z", "2026-11-21T13:00:00.5Z", "2026-11-21T13:00:00+23:59", "2026-11-21T13:00:00.123456789-00:00",
	"2026-11-21T13:00:00,5Z", "2026-11-21T9:00:00Z", "2026-11-21T9:00:00.00Z", "2026-11-21T13:00:00+24:00", "2026-11-21T13:00:00+01:60",
	"2026-11-21T13:00:00", "2026-11-21T13:00:00z", "2026-11-21t13:00:00Z", "2026-11-21 13:00:00Z", "2026-11-21T13:00:60Z", "2026-11-21T24:00:00Z",
	"2026-11-21T13:00:00.Z", "2026-11-21T13:00Z", "2026-02-29T00:00:00Z", "0000-01-01T00:00:00Z", "0001-01-01T00:00:00Z", "10000-01-01T00:00:00Z", "", "Z", "2026-11-21T9:00:00,5Z",
	"2026-11-21T13:00:00+0100", "2026-11-21T13:00:00+1:00", " 2026-11-21T13:00:00Z", "2026-11-21T13:00:00Z\n",
}

func checkTime(t *testing.T, s string) {
	got, err := decodeExpiration(map[string][]byte{keyExpiration: []byte(s)})
	want, wantErr := time.Parse(time.RFC3339, s)
	if (err == nil) != (wantErr == nil && !want.IsZero() && rfc3339.MatchString(s)) {
		t.Errorf("%q: %v; time.Parse says %v, the grammar %v", s, err, wantErr, rfc3339.MatchString(s))
	}
	if err == nil && !got.Equal(want) || err != nil && (!got.IsZero() || !errors.Is(err, checkExpiration)) {
		t.Errorf("%q: %v, %v, want %v", s, got, err, want)
	}
}

func TestDecodeExpiration(t *testing.T) {
	taken := 0
	for _, s := range timeSeeds {
		checkTime(t, s)
		if _, err := decodeExpiration(map[string][]byte{keyExpiration: []byte(s)}); err == nil {
			taken++
		}
	}
	if taken != 5 {
		t.Errorf("%d of the times are taken, want 5", taken)
	}
}

func FuzzDecodeExpiration(f *testing.F) {
	for _, s := range timeSeeds {
		f.Add(s)
	}
	f.Fuzz(checkTime)
}
