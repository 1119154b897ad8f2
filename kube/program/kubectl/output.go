package kubectl

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/nodeattest/nodeattest/refusal"
)

// The values of --output. Without one, a list is a table.
const (
	outputJSON = "json"
	outputWide = "wide"
	outputName = "name"
)

// outputVersion is the API version of the JSON documents: within it, members are added and no member
// is taken away or changed.
const outputVersion = "cli.nodeattest.github.io/v1alpha1"

// checkOutput refuses a value that --output does not have.
func checkOutput(output string) error {
	switch output {
	case "", outputJSON, outputWide, outputName:
		return nil
	}
	return fmt.Errorf("--output is %s: want json, wide or name; %w", refusal.Quote(output), errUsage)
}

// A column of a list's table.
type column[T any] struct {
	title string
	text  func(T) string
	wide  bool // only with -o wide
}

// A list is how a command prints its items.
type list[T any] struct {
	kind    string // of the JSON document, whose items are T's JSON
	name    func(T) string
	columns []column[T]
}

// print writes items in the form of --output. A name that is empty is left out of the list of names.
func (l *list[T]) print(p *plugin, items []T) error {
	switch p.output {
	case outputJSON:
		return l.writeJSON(p.out, items)
	case outputName:
		for _, item := range items {
			if name := l.name(item); name != "" {
				if _, err := fmt.Fprintln(p.out, refusal.Escape(name)); err != nil {
					return err
				}
			}
		}
		return nil
	}
	w := tabwriter.NewWriter(p.out, 0, 0, 2, ' ', 0)
	line := func(cell func(c column[T]) string) {
		var cells []string
		for _, c := range l.columns {
			if !c.wide || p.output == outputWide {
				cells = append(cells, cell(c))
			}
		}
		fmt.Fprintln(w, strings.Join(cells, "\t"))
	}
	line(func(c column[T]) string { return c.title })
	for _, item := range items {
		line(func(c column[T]) string { return refusal.Escape(c.text(item)) })
	}
	return w.Flush()
}

// writeJSON writes one JSON document in ASCII, with a line for each item.
func (l *list[T]) writeJSON(w io.Writer, items []T) error {
	if _, err := fmt.Fprintf(w, "{\"apiVersion\":%q,\"kind\":%q,\"items\":[", outputVersion, l.kind); err != nil {
		return err
	}
	between := "\n"
	for _, item := range items {
		text, err := json.Marshal(item)
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintf(w, "%s%s", between, asciiJSON(text)); err != nil {
			return err
		}
		between = ",\n"
	}
	_, err := fmt.Fprintln(w, "\n]}")
	return err
}

// asciiJSON escapes the characters of a JSON text that are not printable ASCII, which only strings have:
// a terminal acts on some of them, and an escape of another form would break the document.
func asciiJSON(text []byte) []byte {
	var b bytes.Buffer
	for _, r := range string(text) {
		switch {
		case r < utf8.RuneSelf-1:
			b.WriteRune(r)
		case r <= 0xffff:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			high, low := utf16.EncodeRune(r)
			fmt.Fprintf(&b, `\u%04x\u%04x`, high, low)
		}
	}
	return b.Bytes()
}
