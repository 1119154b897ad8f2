package secret_test

import (
	"bytes"
	"context"
	"encoding/gob"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"log/slog"
	"slices"
)

// A showing is how one way of writing rendered a value.
type showing struct {
	way    string
	output []byte
}

// The places in which a value of a static type can be.
type (
	exported[T any]   struct{ Field T }
	unexported[T any] struct{ field T }
	pointers[T any]   struct {
		Field *T
		field *T
	}
	collections[T any] struct {
		Slice  []T
		slice  []T
		Array  [1]T
		array  [1]T
		Map    map[string]T
		lookUp map[string]T
	}
	interfaces struct {
		Field any
		field any
	}
	failure[T any] struct{ value T }
)

// Error prints the fields of an error type that no rule covers.
func (f *failure[T]) Error() string { return fmt.Sprint("failed: ", f.value) }

// shown writes v, by itself and in every place, in every way. Equal outputs are listed once.
func shown[T any](v T) []showing {
	var all []showing
	seen := map[string]bool{}
	for _, p := range []struct {
		name  string
		value any
	}{
		{"alone", v},
		{"by pointer", &v},
		{"in an exported field", exported[T]{v}},
		{"in an exported field, by pointer", &exported[T]{v}},
		{"in an unexported field", unexported[T]{v}},
		{"in an unexported field, by pointer", &unexported[T]{v}},
		{"two fields down", unexported[unexported[T]]{unexported[T]{v}}},
		{"by pointer in a field", &pointers[T]{&v, &v}},
		{"in collections", &collections[T]{[]T{v}, []T{v}, [1]T{v}, [1]T{v}, map[string]T{"k": v}, map[string]T{"k": v}}},
		{"in an interface", &interfaces{v, v}},
		{"by pointer in an interface", interfaces{&v, &v}},
		{"in a slice", []T{v}},
		{"by pointer in a slice", []*T{&v}},
		{"in a map", map[string]T{"k": v}},
		{"in an error", &failure[T]{v}},
		{"in a wrapped error", fmt.Errorf("outer: %w", errors.Join(&failure[T]{v}, fmt.Errorf("%v", v)))},
	} {
		for _, s := range slices.Concat(formatted(p.value), logged(p.value), encoded(p.value)) {
			if !seen[string(s.output)] {
				seen[string(s.output)] = true
				all = append(all, showing{p.name + ", " + s.way, s.output})
			}
		}
	}
	return all
}

// formatted is package fmt with every verb that it has, and one that it does not have, with
// the flags that change how bytes are written.
func formatted(v any) []showing {
	all := []showing{{"fmt.Sprint", []byte(fmt.Sprint(v))}, {"fmt.Sprintln", []byte(fmt.Sprintln(v))}}
	for _, flags := range []string{"", "+", "#", " ", "# ", "0"} {
		for _, verb := range "vsqxXdoObcUtTpegwz" {
			format := "%" + flags + string(verb)
			all = append(all, showing{"fmt " + format, fmt.Appendf(nil, format, v)})
		}
	}
	return all
}

// logged is log/slog: both handlers, the value as an attribute, in a group, and as an
// attribute of the logger.
func logged(v any) []showing {
	var all []showing
	for name, handler := range map[string]func(*bytes.Buffer) slog.Handler{
		"slog.TextHandler": func(b *bytes.Buffer) slog.Handler { return slog.NewTextHandler(b, nil) },
		"slog.JSONHandler": func(b *bytes.Buffer) slog.Handler { return slog.NewJSONHandler(b, nil) },
	} {
		var b bytes.Buffer
		l := slog.New(handler(&b))
		l.Info("message", "attribute", v)
		l.Info("message", slog.Group("group", "attribute", v))
		l.With("attribute", v).LogAttrs(context.Background(), slog.LevelInfo, "message", slog.Any("again", v))
		all = append(all, showing{name, b.Bytes()})
	}
	return all
}

// encoded is the output of the standard library's encoders, or their error, which may contain the
// value.
func encoded(v any) []showing {
	var all []showing
	add := func(way string, output []byte, err error) {
		all = append(all, showing{way, output})
		if err != nil {
			all = append(all, showing{way + "'s error", []byte(err.Error())})
		}
	}
	output, err := json.Marshal(v)
	add("encoding/json", output, err)
	output, err = xml.Marshal(v)
	add("encoding/xml", output, err)
	output, err = gobEncoded(v)
	add("encoding/gob", output, err)
	return all
}

// gobEncoded returns a panic as an error: gob panics on an interface that is embedded in a
// type that encodes itself.
func gobEncoded(v any) (output []byte, err error) {
	var b bytes.Buffer
	defer func() {
		if p := recover(); p != nil {
			output, err = b.Bytes(), fmt.Errorf("panic: %v", p)
		}
	}()
	err = gob.NewEncoder(&b).Encode(v)
	return b.Bytes(), err
}
