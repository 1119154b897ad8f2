package main

import (
	"bufio"
	"encoding/hex"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/nodeattest/nodeattest/refusal"
)

// Limits of the output. An input of maxInput bytes can hold a million empty elements,
// which nobody reads.
const (
	maxLines  = 20000
	maxFaults = 50
	maxText   = 1100 // runes of one text; the longest provider ID has 1024 bytes
	maxHex    = 68   // bytes of one value; the longest TPM Name has 66
)

// A tree is the output: lines, each indented below what it is a part of.
type tree struct {
	w      *bufio.Writer
	path   []string // the names of the nodes around the next line
	lines  int
	faults []string // where and why reading stopped, each time
	parts  parts
}

func newTree(w io.Writer) *tree { return &tree{w: bufio.NewWriter(w)} }

// close reports whether everything could be written.
func (t *tree) close() error { return t.w.Flush() }

// line writes a name and a value. It is the only place that writes, so that what it
// escapes stays escaped.
func (t *tree) line(name, value string) {
	switch t.lines++; {
	case t.lines > maxLines:
		return
	case t.lines == maxLines:
		t.faults = append(t.faults, fmt.Sprintf("more than %d lines: the rest is not shown", maxLines))
		name, value = "!! too long", "the rest is not shown"
	}
	if value != "" {
		name += ": " + value
	}
	_, _ = t.w.WriteString(strings.Repeat("  ", len(t.path)) + refusal.Escape(name) + "\n") // close has the error
}

// in writes a line, and below it what inside writes.
func (t *tree) in(name, value string, inside func()) {
	t.line(name, value)
	t.path = append(t.path, refusal.Escape(name))
	inside()
	t.path = t.path[:len(t.path)-1]
}

// fault writes why reading stopped here. More than maxFaults are counted for nothing:
// one is enough to fail.
func (t *tree) fault(why string) {
	t.line("!! "+why, "")
	if len(t.faults) < maxFaults {
		t.faults = append(t.faults, refusal.Escape(strings.Join(t.path, " > ")+": "+why))
	}
}

// stop is a fault at a byte.
func (t *tree) stop(at int, why string) { t.fault("byte " + strconv.Itoa(at) + ": " + why) }

// quoted writes a text from the input, shortened where it is very long.
func quoted(s string) string {
	if utf8.RuneCountInString(s) <= maxText {
		return strconv.Quote(s)
	}
	return strconv.Quote(string([]rune(s)[:maxText/2])) + "… (" + sizeOf(len(s)) + ")"
}

// hexOf writes bytes from the input, shortened where there are many.
func hexOf(b []byte) string {
	switch {
	case len(b) == 0:
		return "empty"
	case len(b) <= maxHex:
		return hex.EncodeToString(b)
	}
	return hex.EncodeToString(b[:32]) + "… (" + sizeOf(len(b)) + ")"
}

func sizeOf(n int) string {
	if n == 1 {
		return "1 byte"
	}
	return strconv.Itoa(n) + " bytes"
}

func yesNo(yes bool) string {
	if yes {
		return "yes"
	}
	return "NO"
}
