package strictjson

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// read reads a whole text into what encoding/json makes of it with UseNumber.
func read(text []byte) (any, error) {
	r := NewReader(text)
	v, err := value(r)
	if err != nil {
		return nil, err
	}
	return v, r.End()
}

func value(r *Reader) (any, error) {
	switch r.Type() {
	case ObjectType:
		object := map[string]any{}
		return object, r.Object(func(name []byte) (err error) {
			object[string(name)], err = value(r)
			return err
		})
	case ArrayType:
		array := []any{}
		return array, r.Array(func() error {
			v, err := value(r)
			array = append(array, v)
			return err
		})
	case StringType:
		return r.String()
	case NumberType:
		text, err := r.Number()
		return json.Number(text), err
	case BooleanType:
		is := r.data[r.pos] == 't'
		return is, r.Skip()
	case NullType:
		return nil, r.Null()
	}
	return nil, r.Skip()
}

// byEncodingJSON is the reference. Numbers must fit float64, as where a program asks for
// no type.
func byEncodingJSON(text string) (any, error) {
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, err
	}
	var plain any
	return v, json.Unmarshal([]byte(text), &plain)
}

var accepted = []string{
	`{}`, `[]`, ` { } `, "\t[\r\n]", `null`, `true`, `false`, `""`, `0`, `-0`, `-1.5e+3`, `1E9`, `0.0`,
	`1.7976931348623157e308`, `1e-999`, `123456789012345678901234567890`, "1" + strings.Repeat("0", 308),
	`{"a":1,"b":{"a":[{"a":null}]}}`, `["a",["b"],true,false,null,-12]`,
	`"\"\\\/\b\f\n\r\t"`, `"\u0041\u00e9\u20AC"`, `"\ud83d\ude00"`, `"é€😀"`, `"\u0000"`, `"a b"`, `"\ufffd"`, "\"\ufffd\"",
	`{"":0}`, `{"alg":"ES256","algo":1}`, `{"\u0061":1,"b":2}`, `{"a":1,"á":2}`,
}

// refused is one text for each way to be refused, and the byte where it is seen.
var refused = []struct {
	text   string
	reason Reason
	offset int
}{
	{``, ErrSyntax, 0},
	{` `, ErrSyntax, 1},
	{`nul`, ErrSyntax, 0},
	{`True`, ErrSyntax, 0},
	{`tru`, ErrSyntax, 0},
	{`fals3`, ErrSyntax, 0},
	{"\x00", ErrSyntax, 0},
	{`{`, ErrSyntax, 1},
	{`{"a"}`, ErrSyntax, 4},
	{`{"a":}`, ErrSyntax, 5},
	{`{"a":1,}`, ErrSyntax, 7},
	{`{"a":1 "b":2}`, ErrSyntax, 7},
	{`{,}`, ErrSyntax, 1},
	{`{a:1}`, ErrSyntax, 1},
	{`{1:1}`, ErrType, 1},
	{`{"a":1`, ErrSyntax, 6},
	{`{"a":1]`, ErrSyntax, 6},
	{`[`, ErrSyntax, 1},
	{`[1,]`, ErrSyntax, 3},
	{`[,1]`, ErrSyntax, 1},
	{`[1 2]`, ErrSyntax, 3},
	{`[1}`, ErrSyntax, 2},
	{`]`, ErrSyntax, 0},
	{`01`, ErrTrailing, 1},
	{`-`, ErrSyntax, 1},
	{`+1`, ErrSyntax, 0},
	{`.5`, ErrSyntax, 0},
	{`1.`, ErrSyntax, 2},
	{`1e`, ErrSyntax, 2},
	{`1e+`, ErrSyntax, 3},
	{`NaN`, ErrSyntax, 0},
	{`1e309`, ErrRange, 0},
	{`1.7976931348623159e308`, ErrRange, 0},
	{`{"foo":1e999}`, ErrRange, 7},
	{`[-1E+999]`, ErrRange, 1},
	{"1" + strings.Repeat("0", 309), ErrRange, 0},
	{`"a`, ErrSyntax, 2},
	{`"\`, ErrSyntax, 1},
	{`"\x"`, ErrSyntax, 1},
	{`"\u12"`, ErrSyntax, 1},
	{`"\u12g4"`, ErrSyntax, 1},
	{`"\u123`, ErrSyntax, 1},
	{`"\u`, ErrSyntax, 1},
	{`"\v0041"`, ErrSyntax, 1},
	{"\"\n\"", ErrSyntax, 1},
	{"\"\x1f\"", ErrSyntax, 1},
	{`'a'`, ErrSyntax, 0},
	{"\"\xff\"", ErrUTF8, 1},
	{"\"\xed\xa0\x80\"", ErrUTF8, 1},
	{"\"\xc0\x80\"", ErrUTF8, 1},
	{`"\ud800"`, ErrUTF8, 1},
	{`"\ud83d\ude0`, ErrUTF8, 1},
	{`"\ud83dxude00"`, ErrUTF8, 1},
	{`"\ud83d\vde00"`, ErrUTF8, 1},
	{`"\ude00\ud83d"`, ErrUTF8, 1},
	{`"\ud83d\u0041"`, ErrUTF8, 1},
	{`{"a":1,"a":1}`, ErrDuplicate, 7},
	{`{"a":1,"\u0061":1}`, ErrDuplicate, 7},
	{`{"":1,"":1}`, ErrDuplicate, 6},
	{`{"b":{"a":1,"a":1}}`, ErrDuplicate, 12},
	{`[{"a":1,"a":1}]`, ErrDuplicate, 8},
	{`{"alg":1,"ALG":1}`, ErrCase, 9},
	{`{"kid":1,"\u212aid":1}`, ErrCase, 9}, // KELVIN SIGN
	{"{\"sub\":1,\"\u017fub\":1}", ErrCase, 9},
	{`{"a":1,"b":2,"A":3}`, ErrCase, 13},
	{`{}{}`, ErrTrailing, 2},
	{`{} x`, ErrTrailing, 3},
	{"{}\x00", ErrTrailing, 2},
	{`null null`, ErrTrailing, 5},
	{"\ufeff{}", ErrMark, 0},
	{"<!DOCTYPE html><html></html>", ErrPage, 0},
	{"\r\n <html>", ErrPage, 3},
	{"[<", ErrSyntax, 1},
	{"{}<", ErrTrailing, 2},
	{"a<", ErrSyntax, 0},
	{"\xff\xfe{\x00}\x00", ErrMark, 0},
	{"\xfe\xff\x00{\x00}", ErrMark, 0},
	{"{\ufeff}", ErrSyntax, 1},
	{strings.Repeat("[", MaxDepth+1) + strings.Repeat("]", MaxDepth+1), ErrDepth, MaxDepth},
	{strings.Repeat(`{"a":`, MaxDepth+1) + "1" + strings.Repeat("}", MaxDepth+1), ErrDepth, 5 * MaxDepth},
}

func TestAccepted(t *testing.T) {
	deepest := strings.Repeat("[", MaxDepth) + strings.Repeat("]", MaxDepth)
	for _, text := range append(accepted, deepest, manyMembers(few), manyMembers(few+1), manyMembers(MaxMembers)) {
		got, err := read([]byte(text))
		if err != nil {
			t.Errorf("%.64s: %v", text, err)
			continue
		}
		want, err := byEncodingJSON(text)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%.64s: got %v, want %v (%v)", text, got, want, err)
		}
		r := NewReader([]byte(" " + text + " "))
		if err := r.Skip(); err != nil || r.End() != nil {
			t.Errorf("%.64s: skip: %v", text, err)
		}
	}
}

func TestRefused(t *testing.T) {
	for _, test := range refused {
		for name, readIt := range map[string]func([]byte) (any, error){"read": read, "skip": skip} {
			// No byte after the text: to read one is a panic.
			text := slices.Clip([]byte(test.text))
			_, err := readIt(text)
			var e *Error
			if !errors.As(err, &e) || !errors.Is(err, test.reason) || e.Offset != test.offset {
				t.Errorf("%s %.40q: got %v, want %v at byte %d", name, test.text, err, test.reason, test.offset)
			}
		}
	}
}

func skip(text []byte) (any, error) {
	r := NewReader(text)
	if err := r.Skip(); err != nil {
		return nil, err
	}
	return nil, r.End()
}

// The wrong type is told from broken JSON, and from a number out of range.
func TestTypes(t *testing.T) {
	methods := map[string]func(r *Reader) error{
		"Object":  func(r *Reader) error { return r.Object(func([]byte) error { return r.Skip() }) },
		"Array":   func(r *Reader) error { return r.Array(r.Skip) },
		"Strings": func(r *Reader) error { _, err := r.Strings(); return err },
		"String":  func(r *Reader) error { _, err := r.String(); return err },
		"Text":    func(r *Reader) error { _, err := r.Text(); return err },
		"Number":  func(r *Reader) error { _, err := r.Number(); return err },
		"Int64":   func(r *Reader) error { _, err := r.Int64(); return err },
		"Null":    func(r *Reader) error { return r.Null() },
	}
	fits := map[string][]string{
		`{"a":1}`: {"Object"}, `["a"]`: {"Array", "Strings"}, `"a"`: {"String", "Text"}, `1`: {"Number", "Int64"},
		`true`: nil, `false`: nil, `null`: {"Null"},
	}
	for text, fitting := range fits {
		for name, method := range methods {
			want := error(ErrType)
			for _, f := range fitting {
				if f == name {
					want = nil
				}
			}
			if err := method(NewReader([]byte(text))); !errors.Is(err, want) {
				t.Errorf("%s of %s: got %v, want %v", name, text, err, want)
			}
			for _, broken := range []string{"?", "", " "} {
				if err := method(NewReader([]byte(broken))); !errors.Is(err, ErrSyntax) {
					t.Errorf("%s of %q: got %v", name, broken, err)
				}
			}
		}
	}
	for _, text := range []string{`[1]`, `["a",null]`, `["a",["b"]]`} {
		if list, err := NewReader([]byte(text)).Strings(); !errors.Is(err, ErrType) || list != nil {
			t.Errorf("Strings of %s: got %q, %v", text, list, err)
		}
	}
	if list, err := NewReader([]byte(`[]`)).Strings(); err != nil || list == nil || len(list) != 0 {
		t.Errorf("Strings of []: got %#v, %v", list, err)
	}
}

func TestInt64(t *testing.T) {
	for text, want := range map[string]int64{
		"0": 0, "-0": 0, "7": 7, "-7": -7, "9223372036854775807": 1<<63 - 1, "-9223372036854775808": -1 << 63,
	} {
		t.Run(text, func(t *testing.T) {
			if got, err := NewReader([]byte(text)).Int64(); err != nil || got != want {
				t.Errorf("%s: got %d, %v", text, got, err)
			}
		})
	}
	for _, text := range []string{"9223372036854775808", "-9223372036854775809", "1.0", "1e3", "1E0", "1e30", "0.5", strings.Repeat("9", 300)} {
		if got, err := NewReader([]byte(text)).Int64(); !errors.Is(err, ErrInteger) || got != 0 {
			t.Errorf("%.40s: got %d, %v", text, got, err)
		}
	}
}

// A value that is refused is told by its member.
func TestErrorNamesMember(t *testing.T) {
	for text, want := range map[string]string{
		`{"a":1,"exp":x}`: "exp", `{"a":{"b":[1,x]}}`: "b", `{"a":1,"a":1}`: "a", `{"a":[{"":x}]}`: "a", `[x]`: "", `{"a":1}x`: "",
	} {
		_, err := read([]byte(text))
		own, ok := errors.AsType[*Error](err)
		if !ok || own.Name != want {
			t.Errorf("%s: got %v, want %q", text, err, want)
		}
	}
}

// A callback that reads nothing, or that fails, ends the reading.
func TestCallbacks(t *testing.T) {
	own := errors.New("own")
	for _, text := range []string{`{"a":}`, `{"a":1}`, `{"a": 1}`} {
		r := NewReader([]byte(text))
		if err := r.Object(func([]byte) error { r.Type(); return nil }); !errors.Is(err, ErrSyntax) {
			t.Errorf("%s: got %v", text, err)
		}
		if err := NewReader([]byte(text)).Object(func([]byte) error { return own }); !errors.Is(err, own) {
			t.Errorf("%s: got %v", text, err)
		}
	}
	for _, text := range []string{`[1]`, `[1,]`} {
		r := NewReader([]byte(text))
		read := false
		err := r.Array(func() error {
			if read {
				return nil
			}
			read = true
			return r.Skip()
		})
		if text == `[1]` && err != nil || text != `[1]` && !errors.Is(err, ErrSyntax) {
			t.Errorf("%s: got %v", text, err)
		}
		if err := NewReader([]byte(text)).Array(func() error { return own }); !errors.Is(err, own) {
			t.Errorf("%s: got %v", text, err)
		}
	}
}

func TestErrorText(t *testing.T) {
	for want, text := range map[string]string{
		"strictjson: duplicate-name at byte 7: \"a\"": `{"a":1,"a":1}`,
		"strictjson: syntax at byte 1":                `{`,
	} {
		if _, err := read([]byte(text)); err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

// manyMembers is an object with n members of different names.
func manyMembers(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `,"m%d":0`, i)
	}
	return "{" + b.String()[1:] + "}"
}

// Names collide however many there are before them.
func TestManyMembers(t *testing.T) {
	for _, n := range []int{1, few - 1, few, few + 1, 3 * few, MaxMembers - 1} {
		object := strings.TrimSuffix(manyMembers(n), "}")
		for _, at := range []int{0, n / 2, n - 1} {
			for format, want := range map[string]Reason{`%s,"m%d":0}`: ErrDuplicate, `%s,"M%d":0}`: ErrCase, `%s,"\u004d%d":0}`: ErrCase} {
				if _, err := skip([]byte(fmt.Sprintf(format, object, at))); !errors.Is(err, want) {
					t.Errorf("%d members and m%d again: got %v, want %v", n, at, err, want)
				}
			}
		}
	}
	if _, err := skip([]byte(manyMembers(MaxMembers + 1))); !errors.Is(err, ErrMembers) {
		t.Errorf("got %v", err)
	}
}

// Reading a plain text allocates nothing at all, skipping it neither.
func TestAllocations(t *testing.T) {
	text := []byte(` {"alg":"RS256", "kid":"abc", "exp": 1700000000, "kubernetes.io": {"pod":{"name":"a","uid":"b"}}, "l":["a","b",1.5,true,null]} `)
	var exp int64
	var isRS256 bool
	read := func() {
		r := NewReader(text)
		err := r.Object(func(name []byte) (err error) {
			switch string(name) {
			case "alg":
				var alg []byte
				alg, err = r.Text()
				isRS256 = string(alg) == "RS256"
			case "exp":
				exp, err = r.Int64()
			default:
				err = r.Skip()
			}
			return err
		})
		if err != nil || r.End() != nil || exp != 1700000000 || !isRS256 {
			t.Fatal(err)
		}
	}
	if n := testing.AllocsPerRun(100, read); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestLinear bounds what 1 MiB of the worst texts allocates.
func TestLinear(t *testing.T) {
	const size = 1 << 20
	fill := func(before, s, after string) string {
		return before + strings.Repeat(s, (size-len(before)-len(after))/len(s)) + after
	}
	members := strings.TrimSuffix(manyMembers(MaxMembers), "}")
	for name, text := range map[string]string{
		"brackets":   fill("", "[", ""),
		"objects":    fill("", `{"a":`, ""),
		"strings":    fill("[", `"a",`, `"a"]`),
		"escapes":    fill(`"`, `\u0061`, `"`),
		"surrogates": fill(`"`, `\ud83d\ude00`, `"`),
		"spaces":     fill("", " ", "1"),
		"digits":     fill("", "1", ""),
		"one string": fill(`"`, "a", `"`),
		"elements":   fill("[", "{},", "{}]"),
		"members":    fill(members+`,"x":[`, manyMembers(100)+",", "0]}"),
		"long name":  fill(members+`,"`, "\u212a", `":0}`),
	} {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, _ = skip([]byte(text))
			runtime.ReadMemStats(&after)
			if got := after.TotalAlloc - before.TotalAlloc; got > 6*size {
				t.Errorf("%s: %d bytes allocated for %d", name, got, len(text))
			}
		})
	}
}

// FuzzReader holds that whatever is accepted, encoding/json accepts with the same
// values, and that Skip accepts the same texts.
func FuzzReader(f *testing.F) {
	for _, text := range accepted {
		f.Add(text)
	}
	for _, test := range refused {
		f.Add(test.text)
	}
	f.Add(manyMembers(3 * few))
	f.Fuzz(func(t *testing.T, text string) {
		got, err := read([]byte(text))
		if _, skipErr := skip([]byte(text)); (err == nil) != (skipErr == nil) {
			t.Fatalf("read: %v, skip: %v", err, skipErr)
		}
		if err != nil {
			return
		}
		want, err := byEncodingJSON(text)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("got %#v, want %#v (%v)", got, want, err)
		}
		n, err := NewReader([]byte(text)).Int64()
		var m int64
		if wantErr := json.Unmarshal([]byte(text), &m); err == nil && (wantErr != nil || n != m) {
			t.Fatalf("got %d, want %d (%v)", n, m, wantErr)
		}
	})
}

// FuzzFold holds the two ways to compare names against each other.
func FuzzFold(f *testing.F) {
	f.Add("kid", "\u212aid")
	f.Add("sub", "\u017fub")
	f.Add("a", "b")
	f.Add("ς", "Σ")
	f.Fuzz(func(t *testing.T, a, b string) {
		if got, want := fold([]byte(a)) == fold([]byte(b)), strings.EqualFold(a, b); got != want {
			t.Fatalf("%q and %q: got %v, want %v", a, b, got, want)
		}
	})
}

// TestSkipLoosely: only the value that is skipped may be ambiguous; it is JSON in any case.
func TestSkipLoosely(t *testing.T) {
	nested := func(levels int) string { return strings.Repeat("[", levels) + strings.Repeat("]", levels) }
	for text, want := range map[string]error{
		`{"a":{"b":1,"b":2,"B":3}}`: nil, `{"a":` + nested(9999) + `}`: nil, `{"a":` + nested(10000) + `}`: ErrDepth,
		`{"a":{},"a":{}}`: ErrDuplicate, `{"a":{"b":{"c":1,"c":2}},"A":1}`: ErrCase, `{"a":{"b"}}`: ErrSyntax, `{"a":1e999}`: ErrRange,
		`{"a":{},"x":{"b":1,"b":2}}`: ErrDuplicate, `{"a":{},"x":` + nested(MaxDepth) + `}`: ErrDepth,
	} {
		r := NewReader([]byte(text))
		err := r.Object(func(name []byte) error {
			if string(name) == "a" {
				return r.SkipLoosely()
			}
			return r.Skip()
		})
		if !errors.Is(err, want) {
			t.Errorf("%.40s: got %v, want %v", text, err, want)
		}
	}
}
