// Package promtext writes metrics in the text format of Prometheus 0.0.4.
package promtext

import (
	"fmt"
	"io"
	"strconv"
	"strings"
)

// ContentType is the media type of the format.
const ContentType = "text/plain; version=0.0.4; charset=utf-8"

// Type is the type of a metric.
type Type string

// The types that are written.
const (
	Counter   Type = "counter"
	Gauge     Type = "gauge"
	Histogram Type = "histogram"
)

// Writer writes metrics, each with all its series after its Head.
type Writer struct {
	W   io.Writer
	Err error // the first error of W
}

// Head begins a metric.
func (w *Writer) Head(name string, t Type, help string) {
	w.print("# HELP %s %s\n# TYPE %s %s\n", name, help, name, t)
}

// Series writes one value. labels are names, each followed by its value.
func (w *Writer) Series(name string, value float64, labels ...string) {
	var b strings.Builder
	for i := 0; i+1 < len(labels); i += 2 {
		separator := byte(',')
		if i == 0 {
			separator = '{'
		}
		b.WriteByte(separator)
		b.WriteString(labels[i] + `="` + escape.Replace(strings.ToValidUTF8(labels[i+1], "�")) + `"`)
	}
	if b.Len() != 0 {
		b.WriteByte('}')
	}
	w.print("%s%s %s\n", name, b.String(), strconv.FormatFloat(value, 'g', -1, 64))
}

// escape escapes the value of a label.
var escape = strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`)

func (w *Writer) print(format string, args ...any) {
	if w.Err == nil {
		_, w.Err = fmt.Fprintf(w.W, format, args...)
	}
}
