package secret_test

import (
	"bytes"
	"encoding/gob"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/nodeattest/nodeattest/secret"
)

const password = "correct horse"

// Holders have a secret in every kind of field.
type (
	exported struct{ Secret secret.Value[string] }
	hidden   struct{ secret secret.Value[string] }
	pointers struct {
		Exported *secret.Value[string]
		hidden   *secret.Value[string]
	}
	deep struct {
		hidden  []hidden
		byName  map[string]hidden
		any     any
		pointer *hidden
		Bytes   secret.Value[[]byte]
		bytes   secret.Value[[]byte]
		data    secret.Value[map[string][]byte]
		array   secret.Value[[13]byte]
	}
)

func holders() map[string]any {
	v := secret.New(password)
	b := secret.New([]byte(password))
	h := hidden{v}
	d := deep{
		hidden: []hidden{h}, byName: map[string]hidden{"a": h}, any: h, pointer: &h, Bytes: b, bytes: b,
		data: secret.New(map[string][]byte{"password": []byte(password)}), array: secret.New([13]byte([]byte(password))),
	}
	return map[string]any{
		"value": v, "pointer": &v, "exported": exported{v}, "exported, by pointer": &exported{v},
		"hidden": h, "hidden, by pointer": &h, "pointers": pointers{&v, &v}, "pointers, by pointer": &pointers{&v, &v},
		"deep": d, "deep, by pointer": &d, "slice": []any{v, h, d}, "map": map[string]any{"v": v, "h": h, "d": d},
	}
}

func TestShowsNothing(t *testing.T) {
	for name, v := range holders() {
		t.Run(name, func(t *testing.T) {
			for verb := range strings.SplitSeq("v +v #v s q x X d T t b o O c U e E f F g G p w", " ") {
				check(t, verb, fmt.Sprintf("%"+verb, v))
			}
			check(t, "error", fmt.Errorf("%v %w", v, errors.New("x")).Error())
			var out bytes.Buffer
			for _, h := range []slog.Handler{slog.NewTextHandler(&out, nil), slog.NewJSONHandler(&out, nil)} {
				slog.New(h).With("with", v).WithGroup("group").Info("message", "v", v)
			}
			check(t, "slog", out.String())
			j, _ := json.Marshal(v)
			check(t, "json", string(j))
			x, _ := xml.Marshal(v)
			check(t, "xml", string(x))
			var g bytes.Buffer
			_ = gob.NewEncoder(&g).Encode(v)
			check(t, "gob", g.String())
		})
	}
}

func check(t *testing.T, how, shown string) {
	t.Helper()
	for _, needle := range []string{
		password, password[:8], fmt.Sprintf("%x", password[:8]), fmt.Sprintf("%X", password[:8]),
		"Y29ycmVjdC", "99 111 114", "0x63, 0x6f", "63 6f 72",
	} {
		if strings.Contains(shown, needle) {
			t.Errorf("%s shows %q: %q", how, needle, shown)
		}
	}
}

func TestValue(t *testing.T) {
	var none secret.Value[[]byte]
	if !none.IsZero() || none.Reveal() != nil || none.String() != "" {
		t.Errorf("the zero value holds %q", none.Reveal())
	}
	empty := secret.New([]byte{})
	if empty.IsZero() || empty.String() != secret.Redacted {
		t.Error("an empty secret is none")
	}
	if got := secret.New(password).Reveal(); got != password {
		t.Errorf("got %q", got)
	}
}

// TestRefusesEncoding: a secret is neither stored by accident, nor is what stands in
// its place in a log read back as one.
func TestRefusesEncoding(t *testing.T) {
	v := secret.New(password)
	if err := gob.NewEncoder(new(bytes.Buffer)).Encode(v); !errors.Is(err, secret.ErrEncoding) {
		t.Errorf("gob: got %v, want ErrEncoding", err)
	}
	if err := v.GobDecode(nil); !errors.Is(err, secret.ErrEncoding) {
		t.Errorf("gob: got %v, want ErrEncoding", err)
	}
	if err := json.Unmarshal([]byte(`"[secret]"`), &v); !errors.Is(err, secret.ErrEncoding) {
		t.Errorf("json: got %v, want ErrEncoding", err)
	}
	if v.Reveal() != password {
		t.Error("a decoder changed it")
	}
}

func ExampleValue() {
	options := struct {
		User     string
		Password secret.Value[[]byte]
	}{"admin", secret.New([]byte("correct horse"))}

	fmt.Printf("%+v\n", options)
	fmt.Println(len(options.Password.Reveal()))
	// Output:
	// {User:admin Password:[secret]}
	// 13
}
