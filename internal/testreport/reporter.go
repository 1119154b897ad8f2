package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// event is one line of go test -json (see go doc test2json). Build failures come
// with ImportPath instead of Package.
type event struct {
	Action  string
	Package string
	Test    string
	Output  string
}

// reporter turns the events of go test into lines for people. Output is kept until
// its test ends, because only then is it known whether anybody wants it.
type reporter struct {
	out       io.Writer
	failSkips bool
	allowSkip *regexp.Regexp // nil: no reason is allowed

	pending                 map[string]map[string][]string // package, then test ("" is the package itself)
	passed, failed, skipped int
	refused                 []string // skips that fail the run
	brokenPackages          int
}

// read consumes events until r ends. A line that is no event is printed as it is:
// go test writes some of its own errors so.
func (r *reporter) read(in io.Reader) error {
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			var e event
			if json.Unmarshal(line, &e) == nil && e.Action != "" {
				r.event(&e)
			} else {
				fmt.Fprint(r.out, string(line))
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (r *reporter) event(e *event) {
	switch {
	case e.Action == "build-output":
		fmt.Fprint(r.out, e.Output)
	case e.Action == "output":
		r.keep(e)
	case e.Test == "":
		r.packageEnd(e)
	default:
		r.testEnd(e)
	}
}

func (r *reporter) keep(e *event) {
	if r.pending == nil {
		r.pending = make(map[string]map[string][]string)
	}
	if r.pending[e.Package] == nil {
		r.pending[e.Package] = make(map[string][]string)
	}
	r.pending[e.Package][e.Test] = append(r.pending[e.Package][e.Test], e.Output)
}

func (r *reporter) testEnd(e *event) {
	output := r.pending[e.Package][e.Test]
	switch e.Action {
	case "pass":
		r.passed++
	case "fail":
		r.failed++
		fmt.Fprint(r.out, strings.Join(output, ""))
	case "skip":
		r.skipped++
		r.skip(e, reason(output))
	default: // run, pause, cont: nothing to say yet
		return
	}
	delete(r.pending[e.Package], e.Test)
}

func (r *reporter) skip(e *event, why string) {
	line := fmt.Sprintf("SKIP %s %s: %s", e.Package, e.Test, why)
	fmt.Fprintln(r.out, line)
	if r.failSkips && (r.allowSkip == nil || !r.allowSkip.MatchString(why)) {
		r.refused = append(r.refused, line)
	}
}

// packageEnd prints a package's own line. When it failed it prints all that is
// left of it too: a crash ends the binary in the middle of tests.
func (r *reporter) packageEnd(e *event) {
	left := r.pending[e.Package]
	switch e.Action {
	case "pass":
		for _, line := range left[""] {
			if strings.HasPrefix(line, "ok ") {
				fmt.Fprint(r.out, line)
			}
		}
	case "fail":
		r.brokenPackages++
		for _, test := range slices.Sorted(maps.Keys(left)) {
			if test != "" {
				fmt.Fprint(r.out, strings.Join(left[test], ""))
			}
		}
		fmt.Fprint(r.out, strings.Join(left[""], ""))
	case "skip": // a package without tests
	default: // start
		return
	}
	delete(r.pending, e.Package)
}

// reason is what a skipped test said, without the frame that go test puts around.
func reason(output []string) string {
	var said []string
	for _, line := range output {
		line = strings.TrimSpace(line)
		if line != "" && !strings.HasPrefix(line, "=== ") && !strings.HasPrefix(line, "--- ") {
			said = append(said, line)
		}
	}
	if said == nil {
		return "no reason given"
	}
	return strings.Join(said, " ")
}

// counts is the closing line.
func (r *reporter) counts() string {
	return fmt.Sprintf("%d passed, %d failed, %d skipped", r.passed, r.failed, r.skipped)
}

// verdict is nil if all that ran, ran well, and something did.
func (r *reporter) verdict() error {
	var errs []error
	if r.failed > 0 || r.brokenPackages > 0 {
		errs = append(errs, fmt.Errorf("%d tests failed in %d packages", r.failed, r.brokenPackages))
	}
	if r.passed+r.failed+r.skipped == 0 {
		errs = append(errs, errors.New("no test ran"))
	}
	if len(r.refused) > 0 {
		errs = append(errs, fmt.Errorf("%d tests skipped that must run:\n%s", len(r.refused), strings.Join(r.refused, "\n")))
	}
	return errors.Join(errs...)
}
