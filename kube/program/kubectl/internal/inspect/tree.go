package inspect

import (
	"bytes"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/tpm/statement"
	"github.com/nodeattest/nodeattest/refusal"
)

// Limits of the output. An input of MaxSize bytes can hold a million empty elements, which
// no person reads.
const (
	maxLines  = 20000
	maxFaults = 50
)

// A tree is the output: lines, each indented below the item that it is part of.
type tree struct {
	out    bytes.Buffer
	kinds  []attest.Kind
	depth  int
	lines  int
	faults []string
}

// line writes a name and a value, escaped. All output goes through it.
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
	t.out.WriteString(strings.Repeat("  ", t.depth) + refusal.Escape(name) + "\n")
}

// in writes a line, and below it the output of inside.
func (t *tree) in(name, value string, inside func()) {
	t.line(name, value)
	t.depth++
	inside()
	t.depth--
}

// fault writes why reading stopped here. Faults beyond maxFaults are not recorded: one is
// enough to fail.
func (t *tree) fault(why string) {
	t.line("!! "+why, "")
	if len(t.faults) < maxFaults {
		t.faults = append(t.faults, refusal.Escape(why))
	}
}

// fields writes the exported fields of a structure under the module's names. Fields that are
// zero or empty are left out.
func (t *tree) fields(v reflect.Value) {
	for i := range v.NumField() {
		if f := v.Type().Field(i); f.IsExported() && f.Name != "Raw" { // Raw repeats the whole structure
			t.field(f.Name, v.Field(i))
		}
	}
	if p, ok := reflect.TypeAssert[statement.PCRSelection](v); ok {
		t.line("PCRs", strings.Trim(fmt.Sprint(p.PCRs()), "[]"))
	}
}

func (t *tree) field(name string, v reflect.Value) {
	if v.IsZero() || v.Kind() == reflect.Slice && v.Len() == 0 {
		return
	}
	switch x := v.Interface().(type) {
	case []byte:
		if !t.known(name, x) {
			t.line(name, refusal.Hex(x))
		}
	case tpm2.TPMAlgID:
		t.line(name, statement.KeyScheme{Alg: x}.String())
	case tpm2.TPMST, tpm2.TPMECCCurve:
		t.line(name, fmt.Sprintf("0x%04x", x))
	case time.Time:
		t.line(name, x.UTC().Format(time.RFC3339))
	case statement.Attributes:
		t.line(name, fmt.Sprintf("%s (0x%08x)", x, uint32(x)))
	case fmt.Stringer:
		t.line(name, x.String())
	default:
		t.plain(name, v)
	}
}

// plain writes a value according to its kind.
func (t *tree) plain(name string, v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		t.field(name, v.Elem())
	case reflect.Struct:
		t.in(name, "", func() { t.fields(v) })
	case reflect.String:
		t.line(name, quoted(v.String()))
	case reflect.Array: // a digest
		t.line(name, fmt.Sprintf("%x", v.Interface()))
	case reflect.Slice:
		t.in(name, "", func() {
			for i := range v.Len() {
				t.field(strings.TrimSuffix(name, "s")+fmt.Sprintf(" %d", i+1), v.Index(i))
			}
		})
	case reflect.Map:
		t.line(name, refusal.Text(fmt.Sprint(v)))
	default:
		t.line(name, fmt.Sprint(v.Interface()))
	}
}

// quoted returns a text from the input in quotes, shortened if it is long.
func quoted(s string) string { return `"` + refusal.Text(s) + `"` }

func sizeOf(n int) string {
	if n == 1 {
		return "1 byte"
	}
	return strconv.Itoa(n) + " bytes"
}
