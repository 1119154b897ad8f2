package promtext

import (
	"errors"
	"strings"
	"testing"
)

// TestWriter writes the text format by the rules of Prometheus' page on it ("Text-based format").
func TestWriter(t *testing.T) {
	var text strings.Builder
	w := Writer{W: &text}
	w.Head("a_total", Counter, "Help.")
	w.Series("a_total", 0)
	w.Series("a_total", 1.5e9, "kid", "a\"b\\c\nd\xff", "le", "+Inf")
	const want = "# HELP a_total Help.\n# TYPE a_total counter\na_total 0\n" + `a_total{kid="a\"b\\c\nd�",le="+Inf"} 1.5e+09` + "\n"
	if text.String() != want || w.Err != nil {
		t.Errorf("got %q, %v, want %q", text.String(), w.Err, want)
	}
}

type full struct{ writes int }

func (f *full) Write([]byte) (int, error) {
	f.writes++
	return 0, errors.New("full")
}

// TestWriterFails: after an error nothing more is written.
func TestWriterFails(t *testing.T) {
	f := new(full)
	w := Writer{W: f}
	w.Series("a", 1)
	w.Series("b", 2)
	if w.Err == nil || f.writes != 1 {
		t.Errorf("%d writes, %v", f.writes, w.Err)
	}
}
