package kube

import (
	"bufio"
	"bytes"
	"fmt"
	"github.com/nodeattest/nodeattest/test/controlplane"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// A page is one of docs, whose blocks of code a test runs: each of them.
type page struct{ blocks []*block }

// A block is what stands between fences, under a heading.
type block struct {
	heading, language, text string
	taken                   bool
}

// readPage reads the blocks of some languages. When the test ends, each must have been taken.
func readPage(t *testing.T, name string, languages ...string) *page {
	t.Helper()
	p := partOfPage(t, name, languages...)
	t.Cleanup(func() {
		for _, b := range p.blocks {
			if !b.taken && !t.Failed() {
				t.Errorf("docs/%s: no step takes the block of %s under %q:\n%s", name, b.language, b.heading, b.text)
			}
		}
	})
	return p
}

// partOfPage reads the blocks of some languages, for a test that takes some of them.
func partOfPage(t *testing.T, name string, languages ...string) *page {
	t.Helper()
	text := controlplane.Read(t, filepath.Join("..", "..", "docs", name))
	p, heading := new(page), ""
	for _, found := range regexp.MustCompile("(?ms)^#+ ([^\n]*)$|^```(\\w+)\n(.*?)^```$").FindAllStringSubmatch(string(text), -1) {
		if heading += found[1]; found[1] != "" {
			heading = found[1]
		} else if slices.Contains(languages, found[2]) {
			p.blocks = append(p.blocks, &block{heading: heading, language: found[2], text: found[3]})
		}
	}
	return p
}

// take returns the one block of a language under a heading.
func (p *page) take(t *testing.T, heading, language string) string {
	t.Helper()
	var found []*block
	for _, b := range p.blocks {
		if b.heading == heading && b.language == language {
			found = append(found, b)
		}
	}
	if len(found) != 1 {
		t.Fatalf("%d blocks of %s under %q, want 1", len(found), language, heading)
	}
	found[0].taken = true
	return found[0].text
}

// steps takes the blocks of sh under some headings, in their order.
func (p *page) steps(t *testing.T, headings ...string) (texts []string) {
	t.Helper()
	for _, b := range p.blocks {
		if b.language == "sh" && slices.Contains(headings, b.heading) {
			b.taken = true
			texts = append(texts, b.text)
		}
	}
	return texts
}

// commands returns the lines of the blocks of sh that have not been taken, of which there is one.
func (p *page) commands(t *testing.T) (lines []string) {
	t.Helper()
	for _, b := range p.blocks {
		if b.language == "sh" && !b.taken {
			b.taken = true
			for line := range strings.Lines(b.text) {
				lines = append(lines, strings.TrimSpace(line))
			}
		}
	}
	if len(lines) == 0 {
		t.Fatal("no commands")
	}
	return lines
}

// shell is a shell in which one command runs after the other, as on a terminal.
type shell struct {
	in  io.Writer
	out *bufio.Reader
	// clone is where the page's clone is.
	clone string
}

// startShell starts a shell in a folder, which ends with the test.
func startShell(t *testing.T, folder string, env ...string) *shell {
	t.Helper()
	cmd := exec.Command("bash")
	cmd.Dir, cmd.Env = folder, append(os.Environ(), env...)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = cmd.Stdout
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	s := &shell{in: in, out: bufio.NewReader(out)}
	t.Cleanup(func() {
		_ = in.Close()
		_, _ = io.Copy(io.Discard, s.out)
		_ = cmd.Wait()
	})
	return s
}

// run types one command and returns its output. It must succeed.
func (s *shell) run(t *testing.T, command string) string {
	t.Helper()
	out, err := s.try(t, command)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// try types one command and returns its output, with an error if it fails.
func (s *shell) try(t *testing.T, command string) (string, error) {
	t.Helper()
	const mark = "=== status "
	fmt.Fprintf(s.in, "%s\nprintf '\\n%s%%d\\n' $?\n", command, mark)
	var out bytes.Buffer
	for {
		line, err := s.out.ReadString('\n')
		if err != nil {
			t.Fatalf("the shell has ended after %s: %v\n%s", command, err, out.Bytes())
		}
		if status, ok := strings.CutPrefix(line, mark); ok {
			t.Logf("$ %s\n%s", command, out.Bytes())
			if status = strings.TrimSpace(status); status != "0" {
				return out.String(), fmt.Errorf("%s: status %s: %s", command, status, bytes.TrimSpace(out.Bytes()))
			}
			return out.String(), nil
		}
		out.WriteString(line)
	}
}
