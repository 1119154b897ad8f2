package bootstraptoken

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/secret"
)

func viewSecrets(t testing.TB) []*Secret {
	return []*Secret{goodSecret(t), {Token: mustParse(t, "000000.zzzzzzzzzzzzzzzz")}}
}

// The texts are those of kubeadm 1.36 for the same two Secrets.
const (
	viewJSON = `{
    "kind": "BootstrapToken",
    "apiVersion": "output.kubeadm.k8s.io/v1alpha3",
    "token": "abcdef.0123456789abcdef",
    "description": "the first node",
    "expires": "2026-11-21T13:00:00Z",
    "usages": [
        "authentication",
        "signing"
    ],
    "groups": [
        "system:bootstrappers:kubeadm:default-node-token",
        "system:bootstrappers:other"
    ]
}
{
    "kind": "BootstrapToken",
    "apiVersion": "output.kubeadm.k8s.io/v1alpha3",
    "token": "000000.zzzzzzzzzzzzzzzz"
}
`
	viewYAML = `apiVersion: output.kubeadm.k8s.io/v1alpha3
description: the first node
expires: "2026-11-21T13:00:00Z"
groups:
- system:bootstrappers:kubeadm:default-node-token
- system:bootstrappers:other
kind: BootstrapToken
token: abcdef.0123456789abcdef
usages:
- authentication
- signing
---
apiVersion: output.kubeadm.k8s.io/v1alpha3
kind: BootstrapToken
token: 000000.zzzzzzzzzzzzzzzz
`
)

func hidden(s string) string {
	return strings.NewReplacer("0123456789abcdef", secret.Redacted, "zzzzzzzzzzzzzzzz", secret.Redacted).Replace(s)
}

func TestViewJSON(t *testing.T) {
	shown, err := View{InsecureShowSecrets: true}.JSON(viewSecrets(t))
	if err != nil || string(shown) != viewJSON {
		t.Errorf("%s, %v", shown, err)
	}
	text, err := View{}.JSON(viewSecrets(t))
	if err != nil || string(text) != hidden(viewJSON) {
		t.Errorf("%s, %v", text, err)
	}
	if text, err := (View{}).JSON(nil); err != nil || len(text) != 0 {
		t.Errorf("%s, %v", text, err)
	}
}

func TestViewYAML(t *testing.T) {
	shown, err := View{InsecureShowSecrets: true}.YAML(viewSecrets(t))
	if err != nil || string(shown) != viewYAML {
		t.Errorf("%s, %v", shown, err)
	}
	text, err := View{}.YAML(viewSecrets(t))
	if err != nil || string(text) != hidden(viewYAML) {
		t.Errorf("%s, %v", text, err)
	}
	if text, err := (View{}).YAML(nil); err != nil || len(text) != 0 {
		t.Errorf("%s, %v", text, err)
	}
}

// TestViewTimes: machines get UTC seconds, whatever the Secret says.
func TestViewTimes(t *testing.T) {
	s := goodSecret(t)
	s.Expiration = testNow.Add(1500 * time.Millisecond).In(time.FixedZone("", 7200))
	text, err := View{}.JSON([]*Secret{s})
	if err != nil || !strings.Contains(string(text), `"expires": "2026-11-21T12:00:01Z"`) {
		t.Errorf("%s, %v", text, err)
	}
}

// TestViewText: a description cannot break out of its place.
func TestViewText(t *testing.T) {
	for _, description := range []string{"a\nkind: Secret", "\"}", "---\n", "<b>&", "\u2028", "null", "12", "2026-11-21T12:00:00Z", "- a", "#", "\x1b[2J", "{a: b}", "a: b", "*a", "!t"} {
		s := &Secret{Token: mustParse(t, testToken), Description: description}
		text, err := View{}.JSON([]*Secret{s})
		var o viewObject
		if err != nil || json.Unmarshal(text, &o) != nil || o.Description != description {
			t.Errorf("%q: %s, %v", description, text, err)
		}
		text, err = View{}.YAML([]*Secret{s})
		if err != nil {
			t.Fatal(err)
		}
		root, err := parseYAML(text, CheckManifest)
		if err != nil || len(root.node.Content) != 8 || root.node.Content[3].Value != description || root.node.Content[3].Tag != "!!str" {
			t.Errorf("%q: %s, %v", description, text, err)
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
