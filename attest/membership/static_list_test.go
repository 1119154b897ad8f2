package membership

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/internal/testkit"
)

const (
	testDigest  = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	goodMembers = "# rack 1\n\nek:sha256:" + testDigest + " node-1\ngce:proj/42 node-2 gce://proj/zone/node-2\n#\nrow:7 node-3\n"
)

// marshal writes a list without the lines meant for human readers.
func marshal(l *StaticList) string {
	var b strings.Builder
	for _, m := range l.Members() {
		b.WriteString(string(m.Machine) + " " + m.NodeName)
		if m.ProviderID != "" {
			b.WriteString(" " + m.ProviderID)
		}
		if m.Provider != "" {
			b.WriteString(" " + providerField + m.Provider)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

func TestParseStaticList(t *testing.T) {
	l := testkit.Must(ParseStaticList([]byte(goodMembers)))
	want := []Member{{Machine: "ek:sha256:" + testDigest, NodeName: "node-1"}, {Machine: "gce:proj/42", NodeName: "node-2", ProviderID: "gce://proj/zone/node-2"}, {Machine: "row:7", NodeName: "node-3"}}
	if got := l.Members(); !slices.Equal(got, want) {
		t.Errorf("got %+v", got)
	}
	if got, want := marshal(l), "ek:sha256:"+testDigest+" node-1\ngce:proj/42 node-2 gce://proj/zone/node-2\nrow:7 node-3\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	// An editor or a ConfigMap may leave out the last line feed.
	if cut, err := ParseStaticList([]byte(strings.TrimSuffix(goodMembers, "\n"))); err != nil || !slices.Equal(cut.Members(), want) {
		t.Errorf("without the last line feed: %v", err)
	}
	made, err := NewStaticList(want)
	if err != nil || marshal(made) != marshal(l) {
		t.Errorf("made of members: %v", err)
	}
}

// TestParseStaticListProviderIDs: provider IDs that differ in case are two, but Azure's.
func TestParseStaticListProviderIDs(t *testing.T) {
	if l, err := ParseStaticList([]byte("row:7 node-3 aws:///z/I\nrow:8 node-4 aws:///z/i\nrow:9 node-5\nrow:10 node-6\n")); err != nil || len(l.Members()) != 4 {
		t.Error(err)
	}
}

func TestParseStaticListRefuses(t *testing.T) {
	for name, text := range map[string]string{
		"a digest of no key": "sha256:00 node-3\n",
		"CRLF":               "row:7 node-3\r\n",
		"empty CRLF line":    "\r\n",
		"one field":          "row:7\n",
		"four fields":        "row:7 node-3 p://x y\n",
		"two spaces":         "row:7  node-3\n",
		"tab":                "row:7\tnode-3\n",
		"space in front":     " row:7 node-3\n",
		"space after":        "row:7 node-3 \n",
		"indented comment":   " # x\n",
		"no identity":        "row7 node-3\n",
		"short digest":       "ek:sha256:0123 node-3\n",
		"upper-case digest":  "ek:sha256:" + strings.ToUpper(testDigest) + " node-3\n",
		"no node name":       "row:7 Node_3\n",
		"machine twice":      "row:7 node-3\nrow:7 node-4\n",
		"node twice":         "row:7 node-3\nrow:8 node-3\n",
		"line twice":         "row:7 node-3\nrow:7 node-3\n",
		"provider ID twice":  "row:7 node-3 p://x\nrow:8 node-4 p://x\n",
		"provider ID twice, and another's between": "row:7 node-3 p://x\nrow:9 node-5 p://X\nrow:8 node-4 p://x\n",
		"twice, of Azure":                          "row:7 node-3 azure:///x\nrow:8 node-4 azure:///X\n",
		"not UTF-8":                                "row:\xff node-3\n",
		"NUL in provider ID":                       "row:7 node-3 p://\x00\n",
		"long provider ID":                         "row:7 node-3 p://" + strings.Repeat("p", 1021) + "\n",
		"provider of nothing":                      "row:7 node-3 provider=\n",
		"provider with NUL":                        "row:7 node-3 provider=a\x00\n",
		"long provider":                            "row:7 node-3 provider=" + strings.Repeat("p", 64) + "\n",
		"slash in provider":                        "row:7 node-3 provider=a/b\n",
		"two providers":                            "row:7 node-3 provider=a provider=b\n",
		"byte order mark":                          "\ufeffrow:7 node-3\n",
		"over the size":                            strings.Repeat("#\n", maxMemberListSize/2+1),
		"good, then not good":                      goodMembers + "row:8\n",

		"provider misspelt":               "row:7 node-3 provder=tpm\n",
		"provider misspelt, after an ID":  "row:7 node-3 p://x provder=tpm\n",
		"provider misspelt, with slashes": "row:7 node-3 provder=tpm://x\n",
		"provider in capitals":            "row:7 node-3 Provider=tpm\n",
		"provider before the ID":          "row:7 node-3 provider=tpm p://x\n",
		"provider ID without a scheme":    "row:7 node-3 x\n",
		"provider ID of nothing":          "row:7 node-3 ://x\n",
		"provider ID without the rest":    "row:7 node-3 p://\n",
		"provider ID with one slash":      "row:7 node-3 p:/x\n",
	} {
		t.Run(name, func(t *testing.T) {
			if l, err := ParseStaticList([]byte(text)); l != nil || !errors.Is(err, checkMemberList) {
				t.Errorf("%s: got %v", name, err)
			}
		})
	}
	for _, field := range []string{"p://x", "p:///zone/x", "p://x?a=b", "provider=p", "p://x provider=p"} {
		if _, err := ParseStaticList([]byte("row:7 node-3 " + field + "\n")); err != nil {
			t.Errorf("%s: got %v", field, err)
		}
	}
	_, err := ParseStaticList([]byte(goodMembers + "row:8\n"))
	if err == nil || !strings.Contains(err.Error(), "line 7") {
		t.Errorf("got %v, want line 7", err)
	}
	if _, err := ParseStaticList([]byte(goodMembers + "row:8 node-4 provder=tpm\n")); err == nil || !strings.Contains(err.Error(), "line 7") || !strings.Contains(err.Error(), "provider=<name>") {
		t.Errorf("got %v, want line 7 and how to write it", err)
	}
	if _, err := NewStaticList([]Member{{Machine: "row:1", NodeName: "a"}, {Machine: "row:1", NodeName: "b"}}); !errors.Is(err, checkMemberList) || !strings.Contains(err.Error(), "member 2") {
		t.Errorf("got %v, want member 2", err)
	}
}

// Errors name characters that an editor on Windows, or a cloud's list of machines, leaves in a list.
func TestParseStaticListSaysWhat(t *testing.T) {
	for text, want := range map[string]string{
		"row:7 pool-vmss00000A\n":          "lower-case: pool-vmss00000a",
		"row:7 Node_3\n":                   `lower-case letters, digits, "-" and "."`,
		"row:7 node-3\r\n":                 "line 1: got a carriage return",
		"# machines\r\n\r\nrow:7 node-3\n": "line 2: got a carriage return",
		"row:7\tnode-3\n":                  "line 1: got a tab",
		"\ufeffrow:7 node-3\n":             "line 1: got a byte order mark",
		"row:7 node-3 provider=Azure\n":    `line 1: got provider="Azure"`,
		"row:7 node-3 provider=a.b\n":      "inner hyphens",
		"row:7 node-3 provider=-\n":        "inner hyphens",
	} {
		if _, err := ParseStaticList([]byte(text)); !errors.Is(err, checkMemberList) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q in it", text, err, want)
		}
	}
	if l, err := ParseStaticList([]byte("# one\r\n#\ttwo\nrow:7 node-3 provider=a-1\n")); err != nil || len(l.Members()) != 1 {
		t.Errorf("what people read is theirs: %v", err)
	}
}

func TestStaticListAuthorize(t *testing.T) {
	l := testkit.Must(ParseStaticList([]byte("gce:p/1 node-1\ngce:p/2 node-2 test://1\ngce:p/3 node-3 test://3\n")))
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
			a, err := asked(t, l, answerOf(t, c.node, c.machine))
			if c.ok && (err != nil || a.ProviderID != "test://1" || len(a.DNSNames) != 2) || !c.ok && !errors.Is(err, attest.CheckMembership) {
				t.Errorf("%s as %s: got %+v, %v", c.machine, c.node, a, err)
			}
		})
	}
	empty := testkit.Must(ParseStaticList(nil))
	if _, err := empty.Authorize(context.Background(), answerOf(t, "node-1", "gce:p/1")); !errors.Is(err, attest.CheckMembership) {
		t.Errorf("an empty list: got %v", err)
	}
}

// Every line is held to the kinds of evidence that are open: a typing mistake in one of many is
// told when the verifier is made, with the spelling to write where there is one.
func TestStaticListLinesFit(t *testing.T) {
	lower := attest.Grammar{Kind: "azure", Parse: func(id attest.Identity) (attest.Identity, error) {
		return attest.Identity(strings.ToLower(string(id))), nil
	}}
	open := append(ofTPM("", attest.RoadAK, attest.RoadEK), attest.OpenRoad{Provider: "azure", Road: attest.RoadDocument, Identities: []attest.Grammar{lower}})
	open[0].Identities = append(open[0].Identities, attest.Grammar{Kind: "ak"})
	const machine = "azure:8a205152-b25a-417f-a676-80465535a6c9/b1310a36-d400-46f6-82cb-6217df846586"
	many := goodMembers[:strings.Index(goodMembers, "#\n")] // two lines that fit
	for name, c := range map[string]struct{ line, want string }{
		"good":                    {"gce:p/3 node-3", ""},
		"good, of a document":     {machine + " node-3 provider=azure", ""},
		"an unknown kind":         {"gec:p/3 node-3", "gec:p/3, want one of kind"},
		"an EK as a document":     {"ek:sha256:" + testDigest[:63] + "0 node-3 provider=azure", "got evidence of azure, which is not open for ek:"},
		"a document as a TPM":     {machine + " node-3", "want one of kind"},
		"a misspelt provider":     {machine + " node-3 provider=axure", "got evidence of axure, which is not open"},
		"a document's, not said":  {machine + " node-3", "are found with provider=azure in the line"},
		"another kind's provider": {"gce:p/3 node-3 provider=azure", "gce:p/3, want one of kind"},
		"an identity in capitals": {"azure:" + strings.ToUpper(machine[6:]) + " node-3 provider=azure", "want it as " + machine},
	} {
		t.Run(name, func(t *testing.T) {
			l := testkit.Must(ParseStaticList([]byte(many + c.line + "\n")))
			err := attest.CheckAuthorizer(l, attest.Opening{Roads: open})
			if c.want == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if !errors.Is(err, checkMemberList) || !strings.Contains(err.Error(), "member 3, node node-3: ") || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want member 3 and %q", err, c.want)
			}
		})
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
			if !errors.Is(err, checkMemberList) {
				t.Errorf("got %v", err)
			}
			return
		}
		again, err := ParseStaticList([]byte(marshal(l)))
		if err != nil || !slices.Equal(again.Members(), l.Members()) {
			t.Errorf("%q: %v", marshal(l), err)
		}
		// Written again, the list is the same without comments.
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
		if got := marshal(l); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

// An identity counts on the road on which it is found, and on no other.
func TestStaticListLooksAtTheRoad(t *testing.T) {
	l := testkit.Must(ParseStaticList([]byte("ek:sha256:" + testDigest + " node-1\ngce:p/1 node-2\n")))
	for _, c := range []struct {
		name, node string
		machine    attest.Identity
		road       attest.Road
		ok         bool
	}{
		{"EK on its road", "node-1", "ek:sha256:" + testDigest, attest.RoadEK, true},
		{"EK on the other road", "node-1", "ek:sha256:" + testDigest, attest.RoadAK, false},
		{"instance on its road", "node-2", "gce:p/1", attest.RoadAK, true},
		{"instance on the other road", "node-2", "gce:p/1", attest.RoadEK, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := answerOf(t, c.node, c.machine)
			r.Road = c.road
			if _, err := asked(t, l, r); (err == nil) != c.ok || err != nil && !errors.Is(err, attest.CheckMembership) {
				t.Errorf("got %v, want admitted %t", err, c.ok)
			}
		})
	}
}

// A list of the largest size, one over it, and other fields that are refused.
func TestStaticListLimits(t *testing.T) {
	line := "gce:p/1 node-1\n"
	full := make([]byte, 0, maxMemberListSize+1)
	for len(full) < maxMemberListSize-len(line) {
		full = append(full, '#', '\n')
	}
	full = append(full[:maxMemberListSize-len(line)], line...)
	full[maxMemberListSize-len(line)-1] = '\n'
	if l, err := ParseStaticList(full); err != nil || len(l.Members()) != 1 || len(full) != maxMemberListSize {
		t.Errorf("%d bytes: got %v", len(full), err)
	}
	if _, err := ParseStaticList(append(full, '\n')); !errors.Is(err, checkMemberList) {
		t.Errorf("one byte more: got %v", err)
	}
	if _, err := NewStaticList([]Member{{Machine: "gce:p/1", NodeName: "node-1", ProviderID: "p://a b"}}); !errors.Is(err, checkMemberList) {
		t.Errorf("a space in the provider ID: got %v", err)
	}
	if _, err := NewStaticList([]Member{{Machine: "gce:p/1", NodeName: "node-1", Provider: "a b"}}); !errors.Is(err, checkMemberList) {
		t.Errorf("a space in the provider: got %v", err)
	}
	if _, err := ParseStaticList([]byte("gce:p/1 node-1 provider=" + strings.Repeat("p", 63))); err != nil {
		t.Errorf("the longest provider: got %v", err)
	}
	if err := (*StaticList)(nil).CheckAuthorizer(attest.Opening{Roads: ofTPM("", attest.RoadEK)}); !errors.Is(err, errNoList) {
		t.Errorf("a nil list: got %v", err)
	}
	if _, err := (&StaticList{}).Authorize(t.Context(), &attest.Result{}); !errors.Is(err, errNoList) {
		t.Errorf("a zero list: got %v", err)
	}
}
