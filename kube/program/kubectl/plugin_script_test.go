package kubectl

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/nodeattest/nodeattest/kube/program/controlplane"
)

// TestScripts runs testdata/*.txt, each in a folder of its own with the files of fixtures. A
// line is a comment, or one of these, with fields in single quotes where they have spaces:
//
//	run ARGUMENTS            runs the plugin; < FILE at the end is its standard input
//	status N                 is the exit status of the last run, which was 0 otherwise
//	[!] stdout|stderr REGEXP matches its output, or not
//	edit FILE OLD NEW        replaces a text that is in the file
func TestScripts(t *testing.T) {
	scripts, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(scripts) == 0 {
		t.Fatal("no scripts", err)
	}
	for _, script := range scripts {
		text, err := os.ReadFile(script)
		if err != nil {
			t.Fatal(err)
		}
		t.Run(filepath.Base(script), func(t *testing.T) {
			files := fixtures(t)
			t.Chdir(t.TempDir())
			for name, content := range files {
				if err := os.WriteFile(name, content, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			s := &scripted{t: t}
			for n, line := range strings.Split(string(text), "\n") {
				if fields := fieldsOf(line); len(fields) != 0 && !strings.HasPrefix(line, "#") {
					s.where = filepath.Base(script) + ":" + strconv.Itoa(n+1) + ": " + line
					s.do(fields)
				}
			}
			s.do([]string{"run", "--help"}) // looks at the last status
		})
	}
}

var field = regexp.MustCompile(`'[^']*'|\S+`)

func fieldsOf(line string) []string {
	fields := field.FindAllString(line, -1)
	for i := range fields {
		fields[i] = strings.Trim(fields[i], "'")
	}
	return fields
}

// scripted is one run of a script.
type scripted struct {
	t        *testing.T
	where    string
	out, err bytes.Buffer
	status   int // of the last run, until a line checks it
}

func (s *scripted) do(f []string) {
	s.t.Helper()
	not := f[0] == "!"
	if not {
		f = f[1:]
	}
	switch {
	case f[0] == "run":
		if s.status != 0 {
			s.t.Errorf("before %s: status %d\n%s", s.where, s.status, &s.err)
		}
		var in []byte
		if n := len(f) - 2; n > 0 && f[n] == "<" {
			in, _ = os.ReadFile(f[n+1])
			f = f[:n]
		}
		s.out.Reset()
		s.err.Reset()
		s.status = run(s.t.Context(), streams{bytes.NewReader(in), &s.out, &s.err}, []controlplane.Plugin{strange()}, f[1:])
	case f[0] == "status" && len(f) == 2:
		if strconv.Itoa(s.status) != f[1] {
			s.t.Errorf("%s: got status %d\n%s%s", s.where, s.status, &s.out, &s.err)
		}
		s.status = 0
	case (f[0] == "stdout" || f[0] == "stderr") && len(f) == 2:
		text := map[string]*bytes.Buffer{"stdout": &s.out, "stderr": &s.err}[f[0]].String()
		if regexp.MustCompile("(?m)"+f[1]).MatchString(text) == not {
			s.t.Errorf("%s: got\n%s", s.where, text)
		}
	case f[0] == "edit" && len(f) == 4:
		text, err := os.ReadFile(f[1])
		if err != nil || !bytes.Contains(text, []byte(f[2])) {
			s.t.Fatalf("%s: %v, or it has no such text:\n%s", s.where, err, text)
		}
		if err := os.WriteFile(f[1], bytes.ReplaceAll(text, []byte(f[2]), []byte(strings.ReplaceAll(f[3], `\n`, "\n"))), 0o600); err != nil {
			s.t.Fatal(err)
		}
	default:
		s.t.Fatalf("%s: no such line", s.where)
	}
}
