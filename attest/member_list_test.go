package attest

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const (
	testDigest  = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	goodMembers = "# rack 1\n\nek:sha256:" + testDigest + " node-1\ngce:proj/42 node-2 gce://proj/zone/node-2\n#\nrow:7 node-3\n"
)

func TestParseStaticList(t *testing.T) {
	l, err := ParseStaticList([]byte(goodMembers))
	if err != nil {
		t.Fatal(err)
	}
	want := []Member{{"ek:sha256:" + testDigest, "node-1", ""}, {"gce:proj/42", "node-2", "gce://proj/zone/node-2"}, {"row:7", "node-3", ""}}
	if got := l.Members(); !slices.Equal(got, want) {
		t.Errorf("got %+v", got)
	}
	if got, want := string(l.Marshal()), "ek:sha256:"+testDigest+" node-1\ngce:proj/42 node-2 gce://proj/zone/node-2\nrow:7 node-3\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	made, err := NewStaticList(want)
	if err != nil || !bytes.Equal(made.Marshal(), l.Marshal()) {
		t.Errorf("made of members: %v", err)
	}
	path := filepath.Join(t.TempDir(), "members")
	if err := os.WriteFile(path, []byte(goodMembers), 0o644); err != nil {
		t.Fatal(err)
	}
	if read, err := ReadStaticList(path); err != nil || !slices.Equal(read.Members(), want) {
		t.Errorf("from a file: %v", err)
	}
	if _, err := ReadStaticList(path + "-absent"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("an absent file: got %v", err)
	}
}

func TestParseStaticListRefuses(t *testing.T) {
	for name, text := range map[string]string{
		"no line feed":        "row:7 node-3",
		"CRLF":                "row:7 node-3\r\n",
		"empty CRLF line":     "\r\n",
		"one field":           "row:7\n",
		"four fields":         "row:7 node-3 p://x y\n",
		"two spaces":          "row:7  node-3\n",
		"tab":                 "row:7\tnode-3\n",
		"space in front":      " row:7 node-3\n",
		"space behind":        "row:7 node-3 \n",
		"indented comment":    " # x\n",
		"no identity":         "row7 node-3\n",
		"short digest":        "ek:sha256:0123 node-3\n",
		"upper-case digest":   "ek:sha256:" + strings.ToUpper(testDigest) + " node-3\n",
		"no node name":        "row:7 Node_3\n",
		"machine twice":       "row:7 node-3\nrow:7 node-4\n",
		"node twice":          "row:7 node-3\nrow:8 node-3\n",
		"line twice":          "row:7 node-3\nrow:7 node-3\n",
		"not UTF-8":           "row:\xff node-3\n",
		"NUL in provider ID":  "row:7 node-3 p\x00\n",
		"long provider ID":    "row:7 node-3 " + strings.Repeat("p", 1025) + "\n",
		"byte order mark":     "\ufeffrow:7 node-3\n",
		"over the size":       strings.Repeat("#\n", MaxMemberListSize/2+1),
		"good, then not good": goodMembers + "row:8\n",
	} {
		if l, err := ParseStaticList([]byte(text)); l != nil || !errors.Is(err, ErrMemberList) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	_, err := ParseStaticList([]byte(goodMembers + "row:8\n"))
	if err == nil || !strings.Contains(err.Error(), "line 7") {
		t.Errorf("got %v, want line 7", err)
	}
	if _, err := NewStaticList([]Member{{"row:1", "a", ""}, {"row:1", "b", ""}}); !errors.Is(err, ErrMemberList) || !strings.Contains(err.Error(), "member 2") {
		t.Errorf("got %v, want member 2", err)
	}
}

func TestStaticListAuthorize(t *testing.T) {
	l, err := ParseStaticList([]byte("gce:p/1 node-1\ngce:p/2 node-2 test://1\ngce:p/3 node-3 test://3\n"))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		node    string
		machine Identity
		ok      bool
	}{
		{"node-1", "gce:p/1", true}, {"node-2", "gce:p/2", true},
		{"node-1", "gce:p/2", false}, {"node-2", "gce:p/1", false}, {"node-4", "gce:p/1", false}, {"node-1", "gce:p/4", false}, {"node-1", "", false},
		{"node-3", "gce:p/3", false}, // the inventory has another provider ID
	} {
		a, err := l.Authorize(context.Background(), answerOf(t, c.node, c.machine), nil)
		if c.ok && (err != nil || a.ProviderID != "test://1" || len(a.DNSNames) != 2) || !c.ok && !errors.Is(err, CheckMembership) {
			t.Errorf("%s as %s: got %+v, %v", c.machine, c.node, a, err)
		}
	}
	empty, err := ParseStaticList(nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := empty.Authorize(context.Background(), answerOf(t, "node-1", "gce:p/1"), nil); !errors.Is(err, CheckMembership) {
		t.Errorf("an empty list: got %v", err)
	}
}

func FuzzParseStaticList(f *testing.F) {
	f.Add([]byte(goodMembers))
	f.Add([]byte(""))
	f.Add([]byte("row:7 node-3\nrow:7 node-4\n"))
	f.Add([]byte("othername:1.2.3:MAA x\nak:sha256:" + testDigest + " y\n"))
	f.Add([]byte("row:7 node-3 \n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		l, err := ParseStaticList(text)
		if err != nil {
			if !errors.Is(err, ErrMemberList) {
				t.Errorf("got %v", err)
			}
			return
		}
		again, err := ParseStaticList(l.Marshal())
		if err != nil || !slices.Equal(again.Members(), l.Members()) {
			t.Errorf("%q: %v", l.Marshal(), err)
		}
		// What is written is what was read, without the lines for people.
		var lines []string
		for line := range strings.Lines(string(text)) {
			if line != "\n" && line[0] != '#' {
				lines = append(lines, line)
			}
		}
		if got := string(l.Marshal()); got != strings.Join(lines, "") {
			t.Errorf("got %q, want %q", got, strings.Join(lines, ""))
		}
	})
}

func TestParseIdentity(t *testing.T) {
	good := []string{"ek:sha256:" + testDigest, "ak:sha256:" + testDigest, "gce:p/0", "gce:example.com:p/18446744073709551615",
		"othername:1.2.3:MAA", "othername:2.25.274969308675442717258829974567625345604:BQA", "row:7", "a-1:x:y/z"}
	for _, s := range good {
		if id, err := ParseIdentity(s); err != nil || string(id) != s {
			t.Errorf("%q: got %q, %v", s, id, err)
		}
	}
	for _, s := range []string{"", ":", "x", "x:", ":x", "X:y", "1x:y", "-:y", "x y:z", "x:y z", "x:y\n", "x:\xff", "x:" + strings.Repeat("y", MaxIdentitySize),
		"ek:" + testDigest, "ek:sha1:" + testDigest, "ek:sha256:" + testDigest + "00", "ek:sha256:" + testDigest[1:], "ak:sha256:" + strings.ToUpper(testDigest),
		"ek:sha256:" + strings.Repeat("g", 64), "gce:p", "gce:/1", "gce:p/", "gce:p/01", "gce:p/-1", "gce:p/+1", "gce:p/18446744073709551616", "gce:p/1/2",
		"othername:1.2.3", "othername:1.2.3:", "othername:1.02.3:MAA", "othername::MAA", "othername:1.2.3:MAA=", "othername:1.2.3:MA+", "othername:1.2.3:MAB"} {
		if id, err := ParseIdentity(s); !errors.Is(err, CheckIdentity) {
			t.Errorf("%q: got %q, %v", s, id, err)
		}
	}
}
