package bootstraptoken

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/refusal"
	"github.com/nodeattest/nodeattest/secret"
)

func TestCreate(t *testing.T) {
	s, err := Create(CreateOptions{}, testNow.Add(time.Millisecond))
	if err != nil || s.Token.IsZero() {
		t.Fatalf("%v, %v", s, err)
	}
	want := &Secret{Token: s.Token, Expiration: testNow.Add(24 * time.Hour), Usages: Usages{true, true}, Groups: []string{nodeGroup}}
	if !reflect.DeepEqual(s, want) {
		t.Errorf("%+v, want %+v", s, want)
	}
	other, err := Create(CreateOptions{}, testNow)
	if err != nil || other.Token.Equal(s.Token) {
		t.Errorf("%v again, %v", other, err)
	}
	o, err := s.Object()
	if err != nil {
		t.Fatal(err)
	}
	if again, err := ParseSecretUnchecked(o); err != nil || !reflect.DeepEqual(again, s) {
		t.Errorf("%+v, %v", again, err)
	}
}

// TestCreateLabels: what programs find a token by is there when its Secret is made, read and
// written again.
func TestCreateLabels(t *testing.T) {
	options := CreateOptions{Labels: map[string]string{"example.com/pool": "a"}, Annotations: map[string]string{"example.com/node": "node-1"}, Groups: []string{nodeGroup}}
	s, err := Create(options, testNow)
	if err != nil {
		t.Fatal(err)
	}
	options.Labels["example.com/pool"], options.Groups[0] = "b", "system:masters" // the caller's own
	for range 2 {
		o, err := s.Object()
		if err != nil {
			t.Fatal(err)
		}
		if s, err = ParseSecretUnchecked(o); err != nil {
			t.Fatal(err)
		}
		if s.Labels["example.com/pool"] != "a" || s.Annotations.Reveal()["example.com/node"] != "node-1" || s.Groups[0] != nodeGroup {
			t.Errorf("%v, %v, %v", s.Labels, s.Annotations.Reveal(), s.Groups)
		}
	}
}

func TestCreateOptions(t *testing.T) {
	token := mustParse(t, testToken)
	for _, test := range []struct {
		name    string
		options CreateOptions
		want    Secret
	}{
		{"life", CreateOptions{TTL: time.Second}, Secret{Expiration: testNow.Add(time.Second), Usages: Usages{true, true}, Groups: []string{nodeGroup}}},
		{"for ever", CreateOptions{InsecureNeverExpires: true}, Secret{Usages: Usages{true, true}, Groups: []string{nodeGroup}}},
		{"signing alone", CreateOptions{Usages: Usages{Signing: true}, Description: "a"}, Secret{Description: "a", Expiration: testNow.Add(defaultTTL), Usages: Usages{Signing: true}}},
		{"no groups", CreateOptions{Groups: []string{}}, Secret{Expiration: testNow.Add(defaultTTL), Usages: Usages{true, true}}},
		{"groups", CreateOptions{Groups: []string{groupPrefix + "a"}}, Secret{Expiration: testNow.Add(defaultTTL), Usages: Usages{true, true}, Groups: []string{groupPrefix + "a"}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			test.options.Token, test.want.Token = token, token
			s, err := Create(test.options, testNow)
			if err != nil {
				t.Errorf("%s: %v", test.name, err)
				return
			}
			if len(s.Groups) == 0 {
				s.Groups = nil
			}
			if !reflect.DeepEqual(*s, test.want) {
				t.Errorf("%s: %+v, want %+v", test.name, s, test.want)
			}
		})
	}
}

func TestCreateRefuses(t *testing.T) {
	for name, test := range map[string]struct {
		now     time.Time
		options CreateOptions
		want    Check
	}{
		"no clock":          {time.Time{}, CreateOptions{}, refusal.CheckConfig},
		"a negative life":   {testNow, CreateOptions{TTL: -time.Hour}, refusal.CheckConfig},
		"half a second":     {testNow, CreateOptions{TTL: time.Second / 2}, refusal.CheckConfig},
		"nearly a second":   {testNow, CreateOptions{TTL: time.Second - 1}, refusal.CheckConfig},
		"a nanosecond":      {testNow, CreateOptions{TTL: 1}, refusal.CheckConfig},
		"less than nothing": {testNow, CreateOptions{TTL: -1}, refusal.CheckConfig},
		"an hour for ever":  {testNow, CreateOptions{TTL: time.Hour, InsecureNeverExpires: true}, refusal.CheckConfig},
		"a group":           {testNow, CreateOptions{Groups: []string{"system:masters"}}, checkGroups},
		"a description":     {testNow, CreateOptions{Description: "\xff"}, checkDescription},
		"an end after 9999": {time.Date(9999, 12, 31, 12, 0, 0, 0, time.UTC), CreateOptions{}, checkExpiration},
	} {
		t.Run(name, func(t *testing.T) {
			if s, err := Create(test.options, test.now); !errors.Is(err, test.want) || s != nil {
				t.Errorf("%s: %v, %v, want %v", name, s, err, test.want)
			}
		})
	}
}

func TestParseID(t *testing.T) {
	for s, want := range map[string]string{testID: testID, testToken: testID, "000000": "000000"} {
		t.Run(s, func(t *testing.T) {
			if got, err := ParseID(s); err != nil || got != want {
				t.Errorf("%q: %q, %v", s, got, err)
			}
		})
	}
	for _, s := range []string{"", "abcde", "abcdefg", "ABCDEF", testID + ".", testSecret, testToken + "0", SecretName(testID), " " + testID} {
		if got, err := ParseID(s); !errors.Is(err, checkToken) || got != "" || leaks(err.Error()) {
			t.Errorf("%q: %q, %v", s, got, err)
		}
	}
}

func TestTable(t *testing.T) {
	endless := &Secret{Token: mustParse(t, "000000.zzzzzzzzzzzzzzzz")}
	past := &Secret{Token: mustParse(t, "ffffff.zzzzzzzzzzzzzzzz"), Expiration: testNow.Add(-time.Hour), Usages: Usages{Signing: true}}
	want := "" +
		"TOKEN                     TTL         EXPIRES                USAGES                   DESCRIPTION                                                EXTRA GROUPS\n" +
		"abcdef.0123456789abcdef   59m         2026-11-21T13:00:00Z   authentication,signing   the first node                                             system:bootstrappers:kubeadm:default-node-token,system:bootstrappers:other\n" +
		"000000.zzzzzzzzzzzzzzzz   <forever>   <never>                <none>                   <none>                                                     <none>\n" +
		"ffffff.zzzzzzzzzzzzzzzz   <invalid>   2026-11-21T11:00:00Z   signing                  <none>                                                     <none>\n"
	secrets, now := []*Secret{goodSecret(t), endless, past}, testNow.Add(time.Second)
	if got := (View{InsecureShowSecrets: true}).Table(secrets, now); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	got := View{}.Table(secrets, now)
	if leaks(got) || strings.Contains(got, "zzzz") || strings.Count(got, secret.Redacted) != 3 {
		t.Errorf("\n%s", got)
	}
	if got := (View{}).Table(nil, now); got != "" {
		t.Errorf("%q for no token", got)
	}
}

// TestTableLine: what would break the line, or the terminal, is escaped.
func TestTableLine(t *testing.T) {
	s := &Secret{Token: mustParse(t, testToken), Description: "a\tb\nabcdef\x1b[31m \u202e ä 'q' \"\\"}
	got := View{}.Table([]*Secret{s}, testNow)
	if strings.Count(got, "\n") != 2 || !strings.Contains(got, `a\tb\nabcdef\x1b[31m \u202e ä 'q' "\`) {
		t.Errorf("%q", got)
	}
}

// TestShortDuration has the cases of k8s.io/apimachinery/pkg/util/duration and the
// boundaries between them.
func TestShortDuration(t *testing.T) {
	const day = 24 * time.Hour
	for d, want := range map[time.Duration]string{
		-2 * time.Second: "<invalid>", -2*time.Second + 1: "0s", -1: "0s", 0: "0s", time.Second - 1: "0s", time.Second: "1s",
		70 * time.Second: "1m", time.Minute - 1: "59s", time.Minute: "1m", time.Hour - 1: "59m", time.Hour: "1h", 70 * time.Minute: "1h",
		day - 1: "23h", day: "1d", 47 * time.Hour: "1d", 365*day - 1: "364d", 365 * day: "1y", 10 * 365 * day: "10y", -1 << 63: "<invalid>", 1<<63 - 1: "292y",
	} {
		if got := shortDuration(d); got != want {
			t.Errorf("%v: %s, want %s", d, got, want)
		}
	}
}
