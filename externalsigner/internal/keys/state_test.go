package keys

import (
	"bytes"
	"errors"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/jws"
)

// TestState refuses a state that this program did not write for this issuer, and says how to begin without it.
func TestState(t *testing.T) {
	change := func(from, to string) func(string) string {
		return func(text string) string { return strings.Replace(text, from, to, 1) }
	}
	for name, tt := range map[string]struct {
		change func(text string) string
		want   string
	}{
		"a later version":   {change(`"version": 1`, `"version": 2`), "version 2"},
		"no version":        {change(`"version": 1,`, ``), "version 0"},
		"an unknown member": {change(`"version": 1,`, `"version": 1, "newer": true,`), "another encoding"},
		"a member twice":    {change(`"version": 1,`, `"version": 1, "version": 1,`), "another encoding"},
		"another case":      {change(`"issuer"`, `"Issuer"`), "another encoding"},
		"another issuer":    {change("cluster.example", "another.example"), "the state of issuer"},
		"empty":             {func(string) string { return "" }, "damaged JSON"},
		"cut":               {func(text string) string { return text[:len(text)/2] }, "damaged JSON"},
		"text after it":     {func(text string) string { return text + "{}" }, "damaged JSON"},
		"no lists":          {change(`[]`, `null`), "another encoding"},
		"a malformed key":   {change(`"publicKey": "MF`, `"publicKey": "AA`), "malformed key"},
		"a point off its curve": {func(text string) string {
			at := strings.Index(text, `"publicKey": "`) + 100
			return text[:at] + string('A'+(text[at]-'A'+1)%26) + text[at+1:]
		}, "signer-state"},
		"no key ID":            {change(`"keyID": "`+id(1)+`"`, `"keyID": ""`), "no key ID"},
		"a key twice":          {func(text string) string { return strings.Replace(text, id(1), id(2), 1) }, "a key ID twice"},
		"two keys that sign":   {change(`"signsFrom": "2026-01-02T03:05:05Z"`, `"signsFrom": "0001-01-01T00:00:00Z"`), "position 1"},
		"too large":            {func(text string) string { return text + strings.Repeat(" ", maxStateFile) }, "a larger file"},
		"revoked IDs unsorted": {change(`"revokedKeyIDs": []`, `"revokedKeyIDs": [`+"\n    \"b\",\n    \"a\"\n  ]"), "unsorted"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.start()
			b.write("key.pem", privatePEM(2))
			b.pass(0)
			text := b.read("state.json")
			changed := tt.change(text)
			if changed == text {
				t.Fatal("not changed")
			}
			b.write("state.json", changed)
			b.refuses(tt.want)
			b.refuses("move the state away")
			b.write("state.json", text)
			b.start()
		})
	}
	t.Run("read by others", func(t *testing.T) {
		b := newBench(t)
		b.start()
		testkit.MustDo(os.Chmod(b.path("state.json"), 0o644))
		b.refuses("want 0600")
	})
	t.Run("a link", func(t *testing.T) {
		b := newBench(t)
		b.start()
		testkit.MustDo(os.Rename(b.path("state.json"), b.path("other.json")))
		testkit.MustDo(os.Symlink("other.json", b.path("state.json")))
		b.refuses("a symbolic link")
	})
	t.Run("no folder", func(t *testing.T) {
		b := newBench(t)
		b.config.StateFile = b.path("nowhere/state.json")
		b.refuses("no such file")
	})
}

// TestExpiredState starts with a state whose keys have all ended, and with one from the future.
func TestExpiredState(t *testing.T) {
	b := newBench(t)
	b.start()
	b.write("key.pem", privatePEM(2))
	b.pass(0)
	b.pass(publish)
	b.clock = b.clock.Add(1000 * time.Hour)
	b.start()
	b.wantSigns(2)
	b.wantKeys(2)
	b.write("key.pem", privatePEM(3))
	b.pass(0)
	b.pass(publish)
	b.clock = b.clock.Add(-1000 * time.Hour)
	b.start()
	b.wantSigns(3)
	b.wantKeys(2, 3)
}

// TestOlderState starts with a copy of the state from before a rotation: the key of the file signs once it has
// been published for Publish, and its tokens are accepted.
func TestOlderState(t *testing.T) {
	b := newBench(t)
	b.start()
	older := b.read("state.json")
	b.write("key.pem", privatePEM(2))
	b.pass(0)
	b.pass(publish)
	b.wantSigns(2)
	b.write("state.json", older)
	b.start()
	b.wantKeys(1, 2)
	if got := b.signs(); !strings.Contains(got, "no longer in") {
		t.Errorf("got %s", got)
	}
	b.pass(publish)
	b.wantSigns(2)
}

// TestStateGone writes a state again that has been removed.
func TestStateGone(t *testing.T) {
	b := newBench(t)
	b.start()
	text := b.read("state.json")
	testkit.MustDo(os.Remove(b.path("state.json")))
	b.pass(0)
	if got := b.read("state.json"); got != text {
		t.Errorf("got %s, want %s", got, text)
	}
}

// TestStateLeftovers removes the unfinished file of a killed program.
func TestStateLeftovers(t *testing.T) {
	b := newBench(t)
	b.write(".state.json.ABC.tmp", "half")
	b.start()
	if _, err := os.Stat(b.path(".state.json.ABC.tmp")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}

func fullState() *state {
	at := time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
	return &state{
		issuer:  "https://cluster.example",
		own:     []jws.PublishedKey{{Key: public(0)}, {Key: public(1), SignsFrom: at}, {Key: public(2), Until: at}},
		retired: []ending{{id(2), at}},
		peers:   []jws.PublishedKey{{Key: public(3)}, {Key: public(4), Until: at}},
		revoked: []string{"a", "b"},
	}
}

// FuzzState accepts only the one encoding of a state.
func FuzzState(f *testing.F) {
	testkit.BeginFuzz(f)
	for _, s := range []*state{fullState(), {issuer: "a"}, {}} {
		f.Add(testkit.Must(s.marshal()))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := parseState(text)
		if err != nil {
			return
		}
		again := testkit.Must(s.marshal())
		if back := testkit.Must(parseState(again)); !bytes.Equal(text, again) || !reflect.DeepEqual(s, back) {
			t.Errorf("%s is read as %s", text, again)
		}
	})
}

// TestStateRoundTrip keeps every member.
func TestStateRoundTrip(t *testing.T) {
	want := fullState()
	got := testkit.Must(parseState(testkit.Must(want.marshal())))
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
