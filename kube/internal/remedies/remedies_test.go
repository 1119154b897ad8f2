package remedies

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/refusal"
)

// sourceOf returns the code of the module and of module kube, without tests and this package.
func sourceOf(t *testing.T) string {
	t.Helper()
	var all strings.Builder
	root := filepath.Join("..", "..", "..")
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && slices.Contains([]string{"explain", "remedies", "test", "testdata", "tools", "examples", "vectors", ".git"}, d.Name()):
			return filepath.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		text, err := os.ReadFile(path)
		all.Write(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all.String()
}

// TestRemedies compares the table of remedies with the code's checks.
func TestRemedies(t *testing.T) {
	source, seen := sourceOf(t), map[string]bool{}
	for r, texts := range checks {
		for check := range strings.FieldsSeq(texts) {
			reason := Reason(check)
			if seen[reason] {
				t.Errorf("%s: it, or another check with its reason, is there twice", check)
			}
			seen[reason] = true
			if !strings.Contains(source, `"`+check+`"`) {
				t.Errorf("%s has a remedy, and no code has that check", check)
			}
			if got := Of(reason, ""); got != r {
				t.Errorf("%s: got remedy %d, want %d", check, got, r)
			}
		}
	}
	for name, row := range map[string]struct {
		condition csr.Condition
		want      Remedy
	}{
		"a check":            {condition(csr.Decide(&refusal.Error{Check: "ak-mismatch", Got: "a", Want: "b"})), OtherRequest},
		"several checks":     {condition(csr.Decide(csr.Errors{{Check: "usages", Got: "a"}, {Check: "key-type", Got: "b"}})), OtherRequest},
		"a check of a kind":  {condition(csr.Decide(&refusal.Error{Check: "acme-seal", Err: errors.New("no seal")})), OtherRequest},
		"another approver's": {csr.Condition{Reason: "PolicyViolation", Message: "violates policy 7"}, Unknown},
		"no reason":          {csr.Condition{}, Unknown},
	} {
		if got := Of(row.condition.Reason, row.condition.Message); got != row.want {
			t.Errorf("%s: got remedy %d for %+v, want %d", name, got, row.condition, row.want)
		}
	}
}

// condition returns the condition of a decision.
func condition(d csr.UnplacedDecision) csr.Condition {
	return csr.Condition{Reason: d.Reason, Message: d.Message}
}
