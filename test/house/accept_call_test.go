package house_test

import (
	"context"
	"crypto"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"
)

// This file is compiled twice: with the tests of this package, and in each module with the table
// of calls that acceptance.generate writes. It uses nothing of this repository.

// A fill is the content of an argument or a receiver.
type fill int

const (
	absent  fill = iota // nil, or the zero value
	empty               // not nil, with nothing in it
	nested              // a value in every exported field, down to some depth, each empty
	unknown             // the same with texts, numbers and bytes that match nothing
	fills
)

// String returns the name of a fill.
func (f fill) String() string { return [...]string{"nil", "empty", "nested", "unknown"}[f] }

// A callable is an exported function that can accept, or a method with its receiver first.
type callable struct {
	name  string
	f     any
	waits bool // as long as its context does
}

// An outcome is the first call of a function that accepted, and the first that panicked.
type outcome struct {
	Name, Accepts, Panics string
	Calls                 int
}

// caller calls functions with nothing good.
type caller struct {
	stubs   []any // one for each interface
	answers fill  // of stubs and callbacks
	asked   bool  // for one
	ended   bool  // every context
}

// outcomes calls every function with every fill of each argument, or, where that is too often,
// with one that differs from the others.
func (c *caller) outcomes(all []callable) (list []outcome) {
	for _, one := range all {
		f := reflect.ValueOf(one.f)
		o := outcome{Name: one.name}
		c.ended = one.waits
		eachFilling(f.Type().NumIn(), func(filling []fill) {
			c.asked = true
			for c.answers = absent; c.asked && c.answers < fills; c.answers++ {
				c.asked = false
				o.Calls++
				accepts, panics := c.call(f, filling)
				if accepts && o.Accepts == "" {
					o.Accepts = fmt.Sprint(filling, " answered by ", c.answers)
				}
				if panics != "" && o.Panics == "" {
					o.Panics = fmt.Sprint(filling, " answered by ", c.answers, ": ", panics)
				}
			}
		})
		list = append(list, o)
	}
	return list
}

// maxProduct is how many arguments are filled in every combination.
const maxProduct = 4

func eachFilling(n int, do func([]fill)) {
	filling := make([]fill, n)
	if n <= maxProduct {
		var all func(i int)
		all = func(i int) {
			if i == n {
				do(filling)
				return
			}
			for filling[i] = absent; filling[i] < fills; filling[i]++ {
				all(i + 1)
			}
		}
		all(0)
		return
	}
	for common := range fills {
		for i := range n {
			for other := range fills {
				for j := range filling {
					filling[j] = common
				}
				filling[i] = other
				do(filling)
			}
		}
	}
}

// call reports whether the last result is true or no error, and the value it panicked with. A function that
// calls a method of a nil interface may panic, as in the standard library.
func (c *caller) call(f reflect.Value, filling []fill) (accepts bool, panics string) {
	defer func() {
		p := recover()
		_, runtime := p.(runtime.Error)
		for i, fill := range filling {
			if runtime && fill == absent && f.Type().In(i).Kind() == reflect.Interface && strings.Contains(fmt.Sprint(p), "nil pointer") {
				return
			}
		}
		if p != nil {
			panics = strings.SplitN(fmt.Sprint(p), "\n", 2)[0]
		}
	}()
	args := make([]reflect.Value, len(filling))
	for i, fill := range filling {
		args[i] = c.value(f.Type().In(i), fill, 0)
	}
	var results []reflect.Value
	if f.Type().IsVariadic() {
		results = f.CallSlice(args)
	} else {
		results = f.Call(args)
	}
	last := results[len(results)-1]
	if last.Kind() == reflect.Bool {
		return last.Bool(), ""
	}
	return last.IsNil(), ""
}

// deepest is how many structs are filled inside each other.
const deepest = 4

// value makes a value of a type.
func (c *caller) value(t reflect.Type, f fill, depth int) reflect.Value {
	v := reflect.New(t).Elem()
	if f == absent || depth > deepest {
		return v
	}
	switch t {
	case reflect.TypeFor[time.Time]():
		if f == unknown {
			v.Set(reflect.ValueOf(time.Date(2026, 11, 20, 10, 0, 0, 1, time.UTC)))
		}
		return v
	case reflect.TypeFor[context.Context]():
		ctx := context.Background()
		if f == empty || c.ended {
			ended, cancel := context.WithCancel(ctx)
			cancel()
			ctx = ended
		}
		v.Set(reflect.ValueOf(ctx))
		return v
	}
	below := f
	if f == nested && depth == deepest {
		below = empty
	}
	switch t.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(t.Elem()))
		if f > empty {
			v.Elem().Set(c.value(t.Elem(), below, depth+1))
		}
	case reflect.Struct:
		for i := range t.NumField() {
			if f > empty && t.Field(i).IsExported() {
				v.Field(i).Set(c.value(t.Field(i).Type, below, depth+1))
			}
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(t, 0, 1))
		if f > empty {
			v.Set(reflect.Append(v, c.value(t.Elem(), below, depth+1)))
		}
	case reflect.Array:
		for i := range t.Len() {
			v.Index(i).Set(c.value(t.Elem(), below, depth+1))
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(t))
		if f > empty {
			v.SetMapIndex(c.value(t.Key(), below, depth+1), c.value(t.Elem(), below, depth+1))
		}
	case reflect.Func:
		v.Set(reflect.MakeFunc(t, func([]reflect.Value) []reflect.Value {
			results := make([]reflect.Value, t.NumOut())
			for i := range results {
				results[i] = c.answer(t.Out(i))
			}
			return results
		}))
	case reflect.Interface:
		if s := c.stub(t); s != nil {
			v.Set(reflect.ValueOf(s))
		}
	default:
		if f == unknown {
			setUnknown(v)
		}
	}
	return v
}

func setUnknown(v reflect.Value) {
	switch {
	case v.Kind() == reflect.String:
		v.SetString("unknown")
	case v.Kind() == reflect.Bool:
		v.SetBool(true)
	case v.CanInt():
		v.SetInt(99)
	case v.CanUint():
		v.SetUint(99)
	}
}

// answer returns the values of a stub or a callback: never an error.
func (c *caller) answer(t reflect.Type) reflect.Value {
	c.asked = true
	if t == reflect.TypeFor[error]() {
		return reflect.Zero(t)
	}
	return c.value(t, c.answers, 0)
}

// stub returns something that implements an interface, or nil.
func (c *caller) stub(t reflect.Type) any {
	for _, s := range append([]any{fmt.Errorf("unknown"), strings.NewReader("unknown"), io.Discard, unknownSigner{}}, c.stubs...) {
		if reflect.TypeOf(s).Implements(t) {
			return s
		}
	}
	return nil
}

// unknownSigner signs with no key.
type unknownSigner struct{}

func (unknownSigner) Public() crypto.PublicKey { return nil }

func (unknownSigner) Sign(io.Reader, []byte, crypto.SignerOpts) ([]byte, error) { return nil, nil }

// calling is the caller that the generated stubs answer for.
var calling caller

// given is one result of a generated stub.
func given[T any]() (result T) {
	v := calling.answer(reflect.TypeFor[T]())
	reflect.ValueOf(&result).Elem().Set(v)
	return result
}

// writeOutcomes is the generated program.
func writeOutcomes(all []callable, stubs []any) error {
	calling.stubs = stubs
	text, err := json.Marshal(calling.outcomes(all))
	if err != nil {
		return err
	}
	return os.WriteFile(os.Getenv("OUTCOMES"), text, 0o600)
}

func TestCallerFindsWhatAccepts(t *testing.T) {
	type inside struct{ Deep *struct{ Name string } }
	var c caller
	for name, row := range map[string]struct {
		f               any
		accepts, panics bool
	}{
		"refuses":               {func(string) error { return io.EOF }, false, false},
		"accepts":               {func(string) error { return nil }, true, false},
		"accepts nil":           {func(p *int) bool { return p == nil }, true, false},
		"accepts empty":         {func(p *int) bool { return p != nil && *p == 0 }, true, false},
		"accepts a nil context": {func(ctx context.Context) bool { return ctx == nil }, true, false},
		"accepts nested":        {func(i inside) bool { return i.Deep != nil && i.Deep.Name == "" }, true, false},
		"accepts the unknown":   {func(i inside) bool { return i.Deep != nil && i.Deep.Name == "unknown" }, true, false},
		"accepts a mixture":     {func(a, b, _, _, _, _ []byte) bool { return a == nil && b != nil }, true, false},
		"panics":                {func(p *int) bool { return *p < 0 }, false, true},
		"believes a callback":   {func(f func() (bool, error)) bool { ok, err := f(); return ok && err == nil }, true, true},
		"asks a callback":       {func(f func() error) error { return f() }, true, true},
		"an interface":          {func(r io.Reader) error { _, err := r.Read(nil); return err }, true, false},
		"an interface's answer": {func(s fmt.Stringer) bool { return s != nil && s.String() == "unknown" }, false, false},
	} {
		o := c.outcomes([]callable{{name, row.f, false}})[0]
		if (o.Accepts != "") != row.accepts || (o.Panics != "") != row.panics || o.Calls == 0 {
			t.Errorf("%s: got %+v", name, o)
		}
	}
	_ = given[int]()
	_ = writeOutcomes
}
