package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"

	"github.com/nodeattest/nodeattest/bootstraptoken"
	"github.com/nodeattest/nodeattest/refusal"
)

var (
	noon  = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	token = regexp.MustCompile(`\A[a-z0-9]{6}\.[a-z0-9]{16}\n\z`)
)

// run runs the program at a time, with Secrets on standard input.
func run(now time.Time, secrets string, args ...string) (stdout, stderr string, err error) {
	var out, errs bytes.Buffer
	p := &program{now: now, in: strings.NewReader(secrets), out: &out, errs: &errs}
	err = p.run(args)
	return out.String(), errs.String(), err
}

// ok runs the program, which must succeed.
func ok(t *testing.T, now time.Time, secrets string, args ...string) (stdout, stderr string) {
	t.Helper()
	stdout, stderr, err := run(now, secrets, args...)
	if err != nil {
		t.Fatalf("token %q: %v", args, err)
	}
	return stdout, stderr
}

// stored returns manifests as kubectl get -o json returns their Secrets.
func stored(t *testing.T, manifests ...string) string {
	t.Helper()
	items := []any{}
	for _, text := range manifests {
		var item map[string]any
		if err := yaml.Unmarshal([]byte(text), &item); err != nil {
			t.Fatal(err)
		}
		items = append(items, item)
	}
	list, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "List", "items": items})
	if err != nil {
		t.Fatal(err)
	}
	return string(list)
}

// manifest is that of a token that the test knows.
func manifest(t *testing.T, text string, options bootstraptoken.CreateOptions) string {
	t.Helper()
	var err error
	if options.Token, err = bootstraptoken.Parse(text); err != nil {
		t.Fatal(err)
	}
	s, err := bootstraptoken.Create(options, noon)
	if err != nil {
		t.Fatal(err)
	}
	o, err := s.Object()
	if err != nil {
		t.Fatal(err)
	}
	made, err := o.RevealYAML()
	if err != nil {
		t.Fatal(err)
	}
	return string(made)
}

func same(t *testing.T, got, want string) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("output (-want +got):\n%s", diff)
	}
}

// TestLife is a token from its creation to its end.
func TestLife(t *testing.T) {
	first, text := ok(t, noon, "", "create", "-ttl", "1h", "-description", "rack 7")
	second, other := ok(t, noon, "", "create")
	if !token.MatchString(text) || !token.MatchString(other) || text == other {
		t.Fatalf("%q, %q", text, other)
	}
	secrets := stored(t, first, second)
	list, _ := ok(t, noon, secrets, "list", "-insecure-show-secrets")
	for _, text := range []string{text, other} {
		if !strings.Contains(list, strings.TrimSpace(text)) {
			t.Errorf("%q is not in\n%s", text, list)
		}
	}
	for _, sweep := range []struct {
		now       time.Time
		gone, end string
	}{
		{noon, "", "look again at 2026-11-21T13:00:00Z\n"},
		{noon.Add(time.Hour), "secret/bootstrap-token-" + text[:6] + "\n", "look again at 2026-11-21T14:00:00Z\n"},
		{noon.Add(24 * time.Hour), "secret/bootstrap-token-" + text[:6] + "\nsecret/bootstrap-token-" + other[:6] + "\n", ""},
	} {
		gone, end := ok(t, sweep.now, secrets, "sweep")
		same(t, gone, sweep.gone)
		same(t, end, sweep.end)
	}
	gone, _ := ok(t, noon, "", "delete", strings.TrimSpace(text), other[:6])
	same(t, gone, "secret/bootstrap-token-"+text[:6]+"\nsecret/bootstrap-token-"+other[:6]+"\n")
	for _, command := range []string{"list", "sweep"} {
		none, end := ok(t, noon, stored(t), command)
		same(t, none+end, "")
	}
}

func TestGenerate(t *testing.T) {
	if got, _ := ok(t, noon, "", "generate"); !token.MatchString(got) {
		t.Errorf("%q", got)
	}
}

func TestList(t *testing.T) {
	secrets := stored(t,
		manifest(t, "abcdef.0123456789abcdef", bootstraptoken.CreateOptions{TTL: 90 * time.Minute, Description: "rack 7"}),
		manifest(t, "uvwxyz.0123456789abcdef", bootstraptoken.CreateOptions{InsecureNeverExpires: true, Usages: bootstraptoken.Usages{Signing: true}}))
	list, _ := ok(t, noon, secrets, "list")
	same(t, list, ""+
		"TOKEN             TTL         EXPIRES                USAGES                   DESCRIPTION                                                EXTRA GROUPS\n"+
		"abcdef.[secret]   1h          2026-11-21T13:30:00Z   authentication,signing   rack 7                                                     system:bootstrappers:kubeadm:default-node-token\n"+
		"uvwxyz.[secret]   <forever>   <never>                signing                  <none>                                                     <none>\n")
	if list, _ := ok(t, noon, secrets, "list", "-insecure-show-secrets"); !strings.Contains(list, "abcdef.0123456789abcdef ") {
		t.Error(list)
	}
}

// TestListSaysWhatItRefuses: a broken Secret is no reason to show nothing, nor to be silent.
func TestListSaysWhatItRefuses(t *testing.T) {
	good := manifest(t, "abcdef.0123456789abcdef", bootstraptoken.CreateOptions{})
	list, _, err := run(noon, stored(t, strings.Replace(good, "name: bootstrap-token-abcdef", "name: bootstrap-token-aaaaaa", 1), good), "list")
	if err == nil || strings.Count(list, "\n") != 2 || !strings.Contains(list, "abcdef.[secret]") {
		t.Fatalf("%v\n%s", err, list)
	}
	same(t, err.Error(), `"bootstrap-token-aaaaaa" is refused: bootstrap-token-id: got "abcdef", want "aaaaaa"`)
}

func TestCreate(t *testing.T) {
	made, text := ok(t, noon, "", "create", "-authentication", "-groups", "system:bootstrappers:a,system:bootstrappers:b")
	list, _ := ok(t, noon, stored(t, made), "list")
	for _, want := range []string{text[:6], " 1d ", "2026-11-22T12:00:00Z", " authentication ", "system:bootstrappers:a,system:bootstrappers:b"} {
		if !strings.Contains(list, want) {
			t.Errorf("%q is not in\n%s", want, list)
		}
	}
}

func TestRefused(t *testing.T) {
	for name, test := range map[string]struct {
		args []string
		want string
	}{
		"no command":        {nil, "one of the commands"},
		"no such command":   {[]string{"make"}, "one of the commands"},
		"an argument":       {[]string{"generate", "two"}, "nothing after others"},
		"create what":       {[]string{"create", "abcdef"}, "nothing after others"},
		"delete nothing":    {[]string{"delete"}, "the tokens to delete"},
		"no ID":             {[]string{"delete", "../../abcdef"}, "bootstrap-token"},
		"a foreign group":   {[]string{"create", "-groups", "system:masters"}, "auth-extra-groups"},
		"a negative life":   {[]string{"create", "-ttl", "-1h"}, "TTL"},
		"an end and no end": {[]string{"create", "-ttl", "1h", "-insecure-never-expires"}, "TTL"},
		"list of nothing":   {[]string{"list"}, "EOF"},
		"sweep of nothing":  {[]string{"sweep"}, "EOF"},
	} {
		t.Run(name, func(t *testing.T) {
			stdout, stderr, err := run(noon, "", test.args...)
			if err == nil || stdout+stderr != "" || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%q, %q, %v", stdout, stderr, err)
			}
		})
	}
	if _, _, err := run(noon, `{"kind":"Secret","data":{}}`, "list"); err == nil || !strings.Contains(err.Error(), "no items") {
		t.Errorf("one Secret: %v", err)
	}
}

// TestSweepKeepsWhatItCannotRead: Kubernetes' token cleaner would delete it.
func TestSweepKeepsWhatItCannotRead(t *testing.T) {
	good := manifest(t, "abcdef.0123456789abcdef", bootstraptoken.CreateOptions{})
	bad := regexp.MustCompile(`expiration: .*`).ReplaceAllString(good, "expiration: "+base64.StdEncoding.EncodeToString([]byte("tomorrow")))
	gone, end, err := run(noon.AddDate(1, 0, 0), stored(t, bad), "sweep")
	if gone+end != "" || err == nil || !strings.Contains(err.Error(), `got "tomorrow", want a time of RFC 3339`) {
		t.Errorf("%q, %q, %v", gone, end, err)
	}
}

// TestSweepPassesOver Secrets that are being deleted already, and other Secrets.
func TestSweepPassesOver(t *testing.T) {
	good := manifest(t, "abcdef.0123456789abcdef", bootstraptoken.CreateOptions{})
	deleted := strings.Replace(good, "metadata:\n", "metadata:\n  deletionTimestamp: \"2026-11-21T12:00:00Z\"\n", 1)
	other := strings.Replace(good, bootstraptoken.SecretType, "Opaque", 1)
	gone, _ := ok(t, noon.AddDate(1, 0, 0), stored(t, deleted, other), "sweep")
	same(t, gone, "")
	if _, _, err := run(time.Time{}, stored(t, good), "sweep"); err == nil || !strings.Contains(err.Error(), refusal.CheckConfig.Error()) {
		t.Error(err)
	}
}
