package bootstraptoken

import (
	"bytes"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/secret"
)

func goodSecret(t testing.TB) *Secret {
	t.Helper()
	return &Secret{
		Token: mustParse(t, testToken), Description: "the first node", Expiration: testNow.Add(time.Hour),
		Usages: Usages{Signing: true, Authentication: true}, Groups: []string{NodeGroup, GroupPrefix + "other"},
	}
}

func goodObject(t testing.TB) *Object {
	t.Helper()
	o, err := goodSecret(t).Encode()
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func TestEncode(t *testing.T) {
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
	least, err := (&Secret{Token: mustParse(t, testToken)}).Encode()
	if err != nil || len(least.Data.Reveal()) != 2 {
		t.Errorf("%v, %v", least.Data, err)
	}
}

func TestEncodeExpiration(t *testing.T) {
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
		s := goodSecret(t)
		s.Expiration = test.end
		o, err := s.Encode()
		if test.want == "" {
			if !errors.Is(err, CheckExpiration) {
				t.Errorf("%v: %v, want %v", test.end, err, CheckExpiration)
			}
			continue
		}
		if err != nil || string(o.Data.Reveal()[keyExpiration]) != test.want {
			t.Errorf("%v: %s, %v", test.end, o.Data.Reveal()[keyExpiration], err)
		}
	}
}

func TestEncodeRefuses(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*Secret)
		want   Check
	}{
		"no token":              {func(s *Secret) { s.Token = Token{} }, CheckToken},
		"description not UTF-8": {func(s *Secret) { s.Description = "a\xff" }, CheckDescription},
		"a group too many":      {func(s *Secret) { s.Groups = append(s.Groups, "system:masters") }, CheckGroups},
		"an empty group":        {func(s *Secret) { s.Groups = append(s.Groups, "") }, CheckGroups},
		"two groups in one":     {func(s *Secret) { s.Groups = []string{NodeGroup + "," + NodeGroup} }, CheckGroups},
		"too much":              {func(s *Secret) { s.Description = strings.Repeat("a", MaxSecretSize) }, CheckSize},
	} {
		s := goodSecret(t)
		test.change(s)
		if o, err := s.Encode(); !errors.Is(err, test.want) || o != nil {
			t.Errorf("%s: %v, %v, want %v", name, o, err, test.want)
		}
	}
}

// TestEncodeIsACopy: an object that is changed does not change the Secret.
func TestEncodeIsACopy(t *testing.T) {
	s := goodSecret(t)
	o, err := s.Encode()
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
	room := MaxSecretSize - size - len(keyDescription)
	for more, want := range map[int]error{0: nil, 1: CheckSize} {
		data[keyDescription] = bytes.Repeat([]byte("a"), room+more)
		s, err := Decode(o)
		if !errors.Is(err, want) {
			t.Errorf("%d more: %v, want %v", more, err, want)
		}
		if err != nil {
			continue
		}
		s.Description += "a"
		if _, err := s.Encode(); !errors.Is(err, CheckSize) {
			t.Errorf("encoded: %v, want %v", err, CheckSize)
		}
	}
}
