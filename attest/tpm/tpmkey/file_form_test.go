package tpmkey

import (
	"errors"
	"strings"
	"testing"
)

// Each way of spoiling a key file's form has a text of its own.
func TestParseTPMKeyFileSaysWhatIsWrong(t *testing.T) {
	good := otherKeyFile
	if _, err := ParseFile([]byte(good)); err != nil {
		t.Fatal(err)
	}
	lines := strings.SplitAfter(good, "\n")
	seen := map[string]string{}
	for name, c := range map[string]struct{ in, want string }{
		"CR LF":                  {strings.ReplaceAll(good, "\n", "\r\n"), "CR LF"},
		"a comment in front":     {"# key\n" + good, "text in front"},
		"an empty line in front": {"\n" + good, "empty lines in front"},
		"an empty line after":    {good + "\n", "empty lines after"},
		"text after":             {good + "# key\n", "text after"},
		"no line feed":           {strings.TrimSuffix(good, "\n"), "no line feed"},
		"a second block":         {good + good, "another block"},
		"a header":               {strings.Replace(good, "KEY-----\n", "KEY-----\nA: b\n\n", 1), "headers"},
		"an empty line inside":   {lines[0] + lines[1] + "\n" + strings.Join(lines[2:], ""), "empty line in it"},
		"other line lengths":     {lines[0] + strings.TrimSuffix(lines[1], "\n") + strings.Join(lines[2:], ""), "64 characters"},
		"no block":               {"# key\n", "no PEM block"},
	} {
		t.Run(name, func(t *testing.T) {
			f, err := ParseFile([]byte(c.in))
			if f != nil || !errors.Is(err, checkFile) || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("got %v, want ErrTPMKeyFile with %q", err, c.want)
			}
			if other := seen[err.Error()]; other != "" {
				t.Errorf("the same text as for %s: %v", other, err)
			}
			seen[err.Error()] = name
		})
	}
}
