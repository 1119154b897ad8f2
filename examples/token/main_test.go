package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nodeattest/nodeattest/bootstraptoken"
)

var (
	noon  = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	token = regexp.MustCompile(`\A[a-z0-9]{6}\.[a-z0-9]{16}\n\z`)
)

// run runs the program over a folder, at a time.
func run(t *testing.T, dir string, now time.Time, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	p := &program{now: func() time.Time { return now }, stdout: &out, stderr: &errs}
	status = p.run(append([]string{"-dir", dir}, args...))
	return status, out.String(), errs.String()
}

// ok runs the program, which must succeed in silence, and returns what it prints.
func ok(t *testing.T, dir string, now time.Time, args ...string) string {
	t.Helper()
	status, stdout, stderr := run(t, dir, now, args...)
	if status != 0 || stderr != "" {
		t.Fatalf("token %q: status %d\n%s", args, status, stderr)
	}
	return stdout
}

// put stores a token that the test knows.
func put(t *testing.T, dir, text string, options bootstraptoken.CreateOptions) {
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
	if err := folder(dir).add(o); err != nil {
		t.Fatal(err)
	}
}

func same(t *testing.T, got, want string) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("output (-want +got):\n%s", diff)
	}
}

// TestLife is a token from its creation to its end.
func TestLife(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "tokens")
	same(t, ok(t, dir, noon, "list"), "")
	first := ok(t, dir, noon, "create", "-ttl", "1h", "-description", "rack 7")
	second := ok(t, dir, noon, "create")
	if !token.MatchString(first) || !token.MatchString(second) || first == second {
		t.Fatalf("%q, %q", first, second)
	}
	list := ok(t, dir, noon, "list", "-insecure-show-secrets")
	for _, text := range []string{first, second} {
		if !strings.Contains(list, strings.TrimSpace(text)) {
			t.Errorf("%q is not in\n%s", text, list)
		}
	}
	same(t, ok(t, dir, noon, "sweep"), "look again at 2026-11-21T13:00:00Z\n")
	firstID, secondID := first[:6], second[:6]
	same(t, ok(t, dir, noon.Add(time.Hour), "sweep"), "bootstrap-token-"+firstID+" has expired and is deleted\nlook again at 2026-11-21T14:00:00Z\n")
	same(t, ok(t, dir, noon, "delete", strings.TrimSpace(second)), "bootstrap token \""+secondID+"\" deleted\n")
	same(t, ok(t, dir, noon, "list"), "")
	same(t, ok(t, dir, noon, "sweep"), "nothing else expires\n")
}

func TestGenerate(t *testing.T) {
	dir := t.TempDir()
	if got := ok(t, dir, noon, "generate"); !token.MatchString(got) {
		t.Errorf("%q", got)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 0 {
		t.Errorf("generate stored %v, %v", entries, err)
	}
}

func TestList(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, "abcdef.0123456789abcdef", bootstraptoken.CreateOptions{TTL: 90 * time.Minute, Description: "rack 7"})
	put(t, dir, "uvwxyz.0123456789abcdef", bootstraptoken.CreateOptions{InsecureNeverExpires: true, Usages: bootstraptoken.Usages{Signing: true}})
	same(t, ok(t, dir, noon, "list"), ""+
		"TOKEN             TTL         EXPIRES                USAGES                   DESCRIPTION                                                EXTRA GROUPS\n"+
		"abcdef.[secret]   1h          2026-11-21T13:30:00Z   authentication,signing   rack 7                                                     system:bootstrappers:kubeadm:default-node-token\n"+
		"uvwxyz.[secret]   <forever>   <never>                signing                  <none>                                                     <none>\n")
	if got := ok(t, dir, noon, "list", "-insecure-show-secrets"); !strings.Contains(got, "abcdef.0123456789abcdef ") {
		t.Error(got)
	}
}

// TestListSaysWhatItRefuses: a broken Secret is no reason to show nothing, nor to be silent.
func TestListSaysWhatItRefuses(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, "abcdef.0123456789abcdef", bootstraptoken.CreateOptions{})
	good, err := os.ReadFile(filepath.Join(dir, "bootstrap-token-abcdef.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"bootstrap-token-aaaaaa.yaml": strings.Replace(string(good), "name: bootstrap-token-abcdef", "name: bootstrap-token-aaaaaa", 1),
		"bootstrap-token-bbbbbb.yaml": string(good),
		"broken.yaml":                 "token-secret: 0123456789abcdef",
		"notes.txt":                   "no manifest",
	} {
		t.Run(name, func(t *testing.T) {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		})
	}
	status, stdout, stderr := run(t, dir, noon, "list")
	if status != 1 || strings.Count(stdout, "\n") != 2 || !strings.Contains(stdout, "abcdef.[secret]") {
		t.Errorf("status %d\n%s", status, stdout)
	}
	same(t, stderr, `token: "bootstrap-token-bbbbbb.yaml": the manifest of another name, Secret "bootstrap-token-abcdef" in "kube-system" of type "bootstrap.kubernetes.io/token"
"broken.yaml": manifest: got line 1, column 15: a member that is not known, want no such member
"bootstrap-token-aaaaaa" is refused: bootstrap-token-id: got "abcdef", want "aaaaaa"
`)
}

func TestCreateManifest(t *testing.T) {
	dir := t.TempDir()
	text := ok(t, dir, noon, "create", "-o", "yaml", "-usages", "authentication", "-groups", "system:bootstrappers:a,system:bootstrappers:b")
	o, err := bootstraptoken.ParseManifest([]byte(text))
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	s, err := bootstraptoken.ParseSecretUnchecked(o)
	if err != nil || s.Usages.Signing || len(s.Groups) != 2 || !s.Expiration.Equal(noon.Add(24*time.Hour)) {
		t.Errorf("%+v, %v", s, err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 0 {
		t.Errorf("stored %v, %v", entries, err)
	}
}

// TestFilesAreForTheOwner: whoever reads a manifest can join.
func TestFilesAreForTheOwner(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("Windows has no file modes")
	}
	dir := filepath.Join(t.TempDir(), "tokens")
	id := ok(t, dir, noon, "create")[:6]
	for name, want := range map[string]os.FileMode{dir: 0o700, filepath.Join(dir, "bootstrap-token-"+id+".yaml"): 0o600} {
		if info, err := os.Stat(name); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v", name, info.Mode(), err)
		}
	}
	object := &bootstraptoken.Object{Name: "bootstrap-token-" + id}
	if err := folder(dir).add(object); err == nil {
		t.Error("a token was written over")
	}
}

// TestNoTokenBesideTheCode: without -dir nothing is written to the folder in which the
// program runs, which is that of the sources in the commands above.
func TestNoTokenBesideTheCode(t *testing.T) {
	home, here := t.TempDir(), t.TempDir()
	for _, name := range []string{"HOME", "XDG_CONFIG_HOME", "AppData", "home"} {
		t.Setenv(name, home)
	}
	t.Chdir(here)
	want, err := usersFolder()
	if err != nil || !strings.HasPrefix(string(want), home) {
		t.Fatalf("%q, %v: not below %q", want, err, home)
	}
	create := func() int {
		p := &program{now: func() time.Time { return noon }, stdout: io.Discard, stderr: io.Discard}
		return p.run([]string{"create"})
	}
	if status := create(); status != 0 {
		t.Fatalf("status %d", status)
	}
	if objects, unread := want.read(); len(objects) != 1 || unread != nil {
		t.Errorf("%q has %v, %v", want, objects, unread)
	}
	for _, name := range []string{"HOME", "XDG_CONFIG_HOME", "AppData", "home"} {
		t.Setenv(name, "")
	}
	if status := create(); status != 1 {
		t.Errorf("without a home: status %d, want 1", status)
	}
	if entries, err := os.ReadDir(here); err != nil || len(entries) != 0 {
		t.Errorf("written beside the code: %v, %v", entries, err)
	}
}

func TestWrongUse(t *testing.T) {
	for name, args := range map[string][]string{
		"no command":       {},
		"no such command":  {"make"},
		"no such flag":     {"list", "-all"},
		"no such output":   {"list", "-o", "xml"},
		"no such manifest": {"create", "-o", "xml"},
		"no such usage":    {"create", "-usages", "signing,cooking"},
		"an argument":      {"generate", "two"},
		"create what":      {"create", "abcdef"},
		"list what":        {"list", "abcdef"},
		"sweep what":       {"sweep", "abcdef"},
		"delete nothing":   {"delete"},
		"a life in words":  {"create", "-ttl", "long"},
	} {
		t.Run(name, func(t *testing.T) {
			status, stdout, stderr := run(t, t.TempDir(), noon, args...)
			if status != 2 || stdout != "" || !strings.Contains(stderr, "usage: token") {
				t.Errorf("%s: status %d, %q, %q", name, status, stdout, stderr)
			}
		})
	}
	if status, _, stderr := run(t, t.TempDir(), noon, "list", "-h"); status != 0 || !strings.Contains(stderr, "usage: token") {
		t.Errorf("status %d, %q", status, stderr)
	}
}

func TestRefused(t *testing.T) {
	for name, test := range map[string]struct {
		args []string
		want string
	}{
		"no such token":     {[]string{"delete", "abcdef"}, "no such file"},
		"no ID":             {[]string{"delete", "../../abcdef"}, "token"},
		"a foreign group":   {[]string{"create", "-groups", "system:masters"}, "auth-extra-groups"},
		"a negative life":   {[]string{"create", "-ttl", "-1h"}, "TTL"},
		"an end and no end": {[]string{"create", "-ttl", "1h", "-insecure-never-expires"}, "TTL"},
	} {
		t.Run(name, func(t *testing.T) {
			status, stdout, stderr := run(t, t.TempDir(), noon, test.args...)
			if status != 1 || stdout != "" || !strings.Contains(stderr, test.want) {
				t.Errorf("%s: status %d, %q, %q", name, status, stdout, stderr)
			}
		})
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, command := range []string{"list", "create", "sweep"} {
		if status, _, stderr := run(t, file, noon, command); status != 1 || stderr == "" {
			t.Errorf("%s in a folder that is a file: status %d, %q", command, status, stderr)
		}
	}
}

// TestSweepKeepsWhatItCannotRead: Kubernetes' token cleaner would delete it.
func TestSweepKeepsWhatItCannotRead(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, "abcdef.0123456789abcdef", bootstraptoken.CreateOptions{})
	name := filepath.Join(dir, "bootstrap-token-abcdef.yaml")
	good, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	bad := regexp.MustCompile(`expiration: .*`).ReplaceAll(good, []byte("expiration: dG9tb3Jyb3c=")) // "tomorrow"
	if err := os.WriteFile(name, bad, 0o600); err != nil {
		t.Fatal(err)
	}
	status, stdout, stderr := run(t, dir, noon, "sweep")
	if status != 1 || stdout != "nothing else expires\n" || !strings.Contains(stderr, `got "tomorrow", want a time of RFC 3339`) {
		t.Errorf("status %d, %q, %q", status, stdout, stderr)
	}
	if _, err := os.Stat(name); err != nil {
		t.Error(err)
	}
}
