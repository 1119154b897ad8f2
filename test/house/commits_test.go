package house_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// gitRepository makes a repository with scripts/commits.sh and one commit, whose message
// breaks the rules. The function that it returns runs git there.
func gitRepository(t *testing.T) (root string, git func(args ...string) string) {
	t.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("no git: apt-get install git")
	}
	script, err := os.ReadFile("scripts/commits.sh")
	if err != nil {
		t.Fatal(err)
	}
	root = fixture(t, map[string]string{"scripts/commits.sh": string(script)})
	git = func(args ...string) string {
		t.Helper()
		cmd := exec.Command("git", append([]string{"-C", root, "-c", "user.name=A", "-c", "user.email=a@example.org"}, args...)...)
		cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL="+os.DevNull, "GIT_CONFIG_SYSTEM="+os.DevNull)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("git %q: %v\n%s", args, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	git("init", "-q", "-b", "main")
	git("add", ".")
	git("commit", "-q", "-m", "The base is not checked.")
	return root, git
}

// checkCommits runs scripts/commits.sh.
func checkCommits(root string, base ...string) (string, error) {
	out, err := exec.Command("bash", append([]string{filepath.Join(root, "scripts", "commits.sh")}, base...)...).CombinedOutput()
	return string(out), err
}

func TestCommitMessages(t *testing.T) {
	const body = "\n\nWhy it is so.\n"
	for name, test := range map[string]struct{ message, want string }{
		"good":                      {"scripts: messages of commits are checked" + body, ""},
		"72 characters":             {strings.Repeat("a", 72) + body, ""},
		"72 characters, more bytes": {strings.Repeat("ä", 72) + body, ""},
		"73 characters":             {strings.Repeat("a", 73) + body, "the subject has 73 characters, more than 72"},
		"a period":                  {"Messages are checked." + body, "the subject ends in a period"},
		"no body":                   {"Messages are checked", "there is no body that says why"},
		"a body of spaces":          {"Messages are checked\n\n \t\n", "there is no body that says why"},
		"no blank line":             {"Messages are checked\nWhy it is so.\n", "the second line is not blank"},
		"a body behind a blank":     {"Messages are checked\nand more\n\nWhy it is so.\n", "the second line is not blank"},
		"a refused word":            {"No" + "body reads it" + body, `the subject has "no` + "body\""},
		"a part of that word":       {"Anotherno" + "body reads it" + body, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root, git := gitRepository(t)
			base := git("rev-parse", "HEAD")
			git("commit", "-q", "--allow-empty", "--cleanup=verbatim", "-m", test.message)
			git("commit", "-q", "--allow-empty", "-m", "A good one behind it", "-m", "Why.")
			out, err := checkCommits(root, base)
			switch {
			case test.want == "" && (err != nil || !strings.HasPrefix(out, "ok, 2 since")):
				t.Errorf("refused: %v\n%s", err, out)
			case test.want != "" && (err == nil || !strings.HasSuffix(out, "; "+test.want+"\n") || strings.Count(out, "\n") != 1):
				t.Errorf("%v, want %q, in\n%s", err, test.want, out)
			}
		})
	}
}

// TestCommitMessagesOfMerges: a merge needs no body, and its subject keeps the rules.
func TestCommitMessagesOfMerges(t *testing.T) {
	root, git := gitRepository(t)
	base := git("rev-parse", "HEAD")
	git("switch", "-q", "-c", "side")
	git("commit", "-q", "--allow-empty", "-m", "A change in private words", "-m", "Why.")
	git("switch", "-q", "main")
	git("merge", "-q", "--no-ff", "-m", "Merge side", "side")
	if out, err := checkCommits(root, base); err != nil || !strings.HasPrefix(out, "ok, 2 since") {
		t.Errorf("%v\n%s", err, out)
	}
	git("commit", "-q", "--allow-empty", "--amend", "-m", "Merge side.")
	if out, err := checkCommits(root, base); err == nil || !strings.HasSuffix(out, "; the subject ends in a period\n") {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestCommitMessagesWithoutHistory: nothing can be said where the base is not there.
func TestCommitMessagesWithoutHistory(t *testing.T) {
	root, git := gitRepository(t)
	git("commit", "-q", "--allow-empty", "-m", "No body")
	base := git("rev-parse", "HEAD~")
	shallow := filepath.Join(t.TempDir(), "shallow")
	git("clone", "-q", "--depth", "1", "file://"+root, shallow)
	archive := t.TempDir()
	if err := os.CopyFS(filepath.Join(archive, "scripts"), os.DirFS(filepath.Join(root, "scripts"))); err != nil {
		t.Fatal(err)
	}
	for name, run := range map[string]func() (string, error){
		"the script's own base": func() (string, error) { return checkCommits(root) },
		"a shallow clone":       func() (string, error) { return checkCommits(shallow, base) },
		"an archive":            func() (string, error) { return checkCommits(archive, base) },
	} {
		if out, err := run(); err != nil || !strings.HasPrefix(out, "NOT CHECKED, the history since ") {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
}
