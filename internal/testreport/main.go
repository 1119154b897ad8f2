// Testreport runs go test and says what a person must know: each package's line,
// the whole output of each failed test, each skipped test with its reason, and
// last the counts. Plain go test hides skips unless -v buries them among all that
// passed.
//
//	testreport [-fail-skips [-allow-skip REGEXP]] [-counts FILE] [--] GO-TEST-ARGUMENTS
//
// It fails if go test fails, if no test ran at all, and, with -fail-skips, if a
// test was skipped for a reason that -allow-skip does not match.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
)

func main() {
	if err := run(os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "testreport:", err)
		os.Exit(1)
	}
}

func run(args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("testreport", flag.ContinueOnError)
	flags.SetOutput(stderr)
	failSkips := flags.Bool("fail-skips", false, "fail if a test was skipped")
	allowSkip := flags.String("allow-skip", "", "with -fail-skips: reasons to allow, a regular `expression`")
	counts := flags.String("counts", "", "write the line with the counts to this `file` too")
	if err := flags.Parse(args); err != nil {
		return err
	}
	r := &reporter{out: stdout, failSkips: *failSkips}
	if *allowSkip != "" {
		var err error
		if r.allowSkip, err = regexp.Compile(*allowSkip); err != nil {
			return fmt.Errorf("-allow-skip: %w", err)
		}
	}
	testErr := goTest(r, flags.Args(), stderr)
	line := r.counts()
	fmt.Fprintln(stdout, line)
	if *counts != "" {
		if err := os.WriteFile(*counts, []byte(line+"\n"), 0o644); err != nil {
			return err
		}
	}
	return errors.Join(testErr, r.verdict())
}

// goTest runs go test -json with args and feeds r with what it prints.
func goTest(r *reporter, args []string, stderr io.Writer) error {
	cmd := exec.Command("go", append([]string{"test", "-json"}, args...)...)
	cmd.Stderr = stderr
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	readErr := r.read(pipe)
	if readErr != nil {
		// Without a reader go test would block on a full pipe.
		_, _ = io.Copy(io.Discard, pipe)
	}
	if err := cmd.Wait(); err != nil {
		return errors.Join(fmt.Errorf("go test: %w", err), readErr)
	}
	return readErr
}
