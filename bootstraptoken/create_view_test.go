package bootstraptoken

import (
	"strings"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/secret"
)

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
