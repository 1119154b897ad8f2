package membership

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nodeattest/nodeattest/attest"
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
	want := []Member{{Machine: "ek:sha256:" + testDigest, NodeName: "node-1"}, {Machine: "gce:proj/42", NodeName: "node-2", ProviderID: "gce://proj/zone/node-2"}, {Machine: "row:7", NodeName: "node-3"}}
	if got := l.Members(); !slices.Equal(got, want) {
		t.Errorf("got %+v", got)
	}
	if got, want := string(l.Marshal()), "ek:sha256:"+testDigest+" node-1\ngce:proj/42 node-2 gce://proj/zone/node-2\nrow:7 node-3\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	// An editor or a ConfigMap may leave out the last line feed.
	if cut, err := ParseStaticList([]byte(strings.TrimSuffix(goodMembers, "\n"))); err != nil || !slices.Equal(cut.Members(), want) {
		t.Errorf("without the last line feed: %v", err)
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
		"a digest of no key":  "sha256:00 node-3\n",
		"CRLF":                "row:7 node-3\r\n",
		"empty CRLF line":     "\r\n",
		"one field":           "row:7\n",
		"four fields":         "row:7 node-3 p://x y\n",
		"two spaces":          "row:7  node-3\n",
		"tab":                 "row:7\tnode-3\n",
		"space in front":      " row:7 node-3\n",
		"space after":         "row:7 node-3 \n",
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
		"provider of nothing": "row:7 node-3 provider=\n",
		"provider with NUL":   "row:7 node-3 provider=a\x00\n",
		"long provider":       "row:7 node-3 provider=" + strings.Repeat("p", 64) + "\n",
		"slash in provider":   "row:7 node-3 provider=a/b\n",
		"two providers":       "row:7 node-3 provider=a provider=b\n",
		"byte order mark":     "\ufeffrow:7 node-3\n",
		"over the size":       strings.Repeat("#\n", MaxMemberListSize/2+1),
		"good, then not good": goodMembers + "row:8\n",
	} {
		t.Run(name, func(t *testing.T) {
			if l, err := ParseStaticList([]byte(text)); l != nil || !errors.Is(err, ErrMemberList) {
				t.Errorf("%s: got %v", name, err)
			}
		})
	}
	_, err := ParseStaticList([]byte(goodMembers + "row:8\n"))
	if err == nil || !strings.Contains(err.Error(), "line 7") {
		t.Errorf("got %v, want line 7", err)
	}
	if _, err := NewStaticList([]Member{{Machine: "row:1", NodeName: "a"}, {Machine: "row:1", NodeName: "b"}}); !errors.Is(err, ErrMemberList) || !strings.Contains(err.Error(), "member 2") {
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
		machine attest.Identity
		ok      bool
	}{
		{"node-1", "gce:p/1", true}, {"node-2", "gce:p/2", true},
		{"node-1", "gce:p/2", false}, {"node-2", "gce:p/1", false}, {"node-4", "gce:p/1", false}, {"node-1", "gce:p/4", false}, {"node-1", "", false},
		{"node-3", "gce:p/3", false}, // the inventory has another provider ID
	} {
		t.Run(fmt.Sprint(c.ok), func(t *testing.T) {
			a, err := l.Authorize(context.Background(), answerOf(t, c.node, c.machine), nil)
			if c.ok && (err != nil || a.ProviderID != "test://1" || len(a.DNSNames) != 2) || !c.ok && !errors.Is(err, attest.CheckMembership) {
				t.Errorf("%s as %s: got %+v, %v", c.machine, c.node, a, err)
			}
		})
	}
	empty, err := ParseStaticList(nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := empty.Authorize(context.Background(), answerOf(t, "node-1", "gce:p/1"), nil); !errors.Is(err, attest.CheckMembership) {
		t.Errorf("an empty list: got %v", err)
	}
}

// Azure's identifiers stand in lists in letters of both cases. One machine is listed once.
func TestStaticListOfAzure(t *testing.T) {
	const machine, node = "azure:8A205152-b25a-417f-a676-80465535a6c9/B1310A36-d400-46f6-82cb-6217df846586", " node-1\n"
	l, err := ParseStaticList([]byte(machine + node))
	if err != nil {
		t.Fatal(err)
	}
	if got := string(l.Marshal()); got != strings.ToLower(machine)+node {
		t.Errorf("got %q", got)
	}
	if _, err := ParseStaticList([]byte(machine + node + strings.ToLower(machine) + " node-2\n")); !errors.Is(err, ErrMemberList) {
		t.Errorf("listed twice: %v", err)
	}
}

func FuzzParseStaticList(f *testing.F) {
	f.Add([]byte(goodMembers))
	f.Add([]byte(""))
	f.Add([]byte("row:7 node-3\nrow:7 node-4\n"))
	f.Add([]byte("othername:1.2.3:MAA x\nak:sha256:" + testDigest + " y\n"))
	f.Add([]byte("azure:8A205152-b25a-417f-a676-80465535a6c9/B1310A36-d400-46f6-82cb-6217df846586 node-1\n"))
	f.Add([]byte("row:7 node-3 \n"))
	f.Add([]byte("row:7 node-3"))
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
		want := strings.Join(lines, "")
		if want != "" && !strings.HasSuffix(want, "\n") {
			want += "\n"
		}
		// Azure's identifiers are written in lower case.
		if got := string(l.Marshal()); got != want && !(strings.Contains(want, "azure:") && strings.EqualFold(got, want)) {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}
