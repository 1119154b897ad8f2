package program

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/externalsigner/internal/keys"
	"github.com/nodeattest/nodeattest/internal/testkit"
)

const good = "apiVersion: " + apiVersion + "\nkind: " + fileKind + "\nissuer: https://i.example\nkeyFile: /key\n"

func TestParseSettings(t *testing.T) {
	s := testkit.Must(parseSettings([]byte(good+"publish: 90m\nallowedUIDs: [0, 65532]\n"), nil))
	if s.Socket != defaultSocket || s.StatusAddress != defaultStatusAddress || s.RefreshHint != defaultRefreshHint ||
		s.Publish != keys.Duration(90*time.Minute) ||
		!reflect.DeepEqual(s.AllowedUIDs, []uint32{0, 65532}) || s.Config.Issuer != "https://i.example" {
		t.Errorf("got %+v", s)
	}
	s = testkit.Must(parseSettings([]byte(good+"insecureAbstract: name\nstatusAddress: \"0\"\n"), nil))
	if s.Socket != "" || s.StatusAddress != nowhere {
		t.Errorf("got %+v", s)
	}
	for text, want := range map[string]string{
		"":                                              "not an object",
		"[]":                                            "not an object",
		good + "x: 1\n":                                 `unknown field "x"`,
		good + "KeyFile: /key\n":                        `unknown field "KeyFile"`,
		good + "issuer: https://i.example\n":            `already set`,
		good + "---\n" + good:                           "more than one document",
		good + "allowedUIDs: [-1]\n":                    "allowedUIDs",
		good + "allowedUIDs: [4294967296]\n":            "allowedUIDs",
		good + "allowedUIDs: root\n":                    "allowedUIDs",
		good + "publish: 90\n":                          "publish",
		good + "publish: soon\n":                        "duration",
		good + "socket: /s\ninsecureAbstract: n\n":      "insecureAbstract",
		good + "statusAddress: localhost\n":             "statusAddress",
		good + "tpm: {}\n":                              "2 sections",
		strings.Replace(good, "keyFile: /key\n", "", 1): "0 sections",
		strings.Replace(good, fileKind, "NodeAttestation", 1): "apiVersion and kind",
		strings.Replace(good, "config.", "", 1):               "apiVersion and kind",
	} {
		t.Run(want, func(t *testing.T) {
			if _, err := parseSettings([]byte(text), nil); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want %q", err, want)
			}
		})
	}
}

// FuzzSettings: no file makes the program panic, and one that is read names one key.
func FuzzSettings(f *testing.F) {
	testkit.BeginFuzz(f)
	f.Add([]byte(good))
	f.Add(testkit.Must(os.ReadFile("../deploy/config.yaml")))
	f.Add([]byte(good + "tpm: {device: /dev/tpmrm0, keyFile: /k}\nallowedUIDs: [0]\npublish: 1h\n"))
	f.Add([]byte(`{"a": &a [*a]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		if len(text) > 1<<12 {
			return
		}
		s, err := parseSettings(text, nil)
		if err == nil && (s.Kind != fileKind || (s.KeyFile == "") == (s.TPM == nil) || s.Socket == "" && s.InsecureAbstract == "") {
			t.Errorf("%q: %+v", text, s)
		}
	})
}

// fields are the names of the fields of the configuration file.
func fields(of reflect.Type) (names []string) {
	for f := range of.Fields() {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case options == "inline":
			names = append(names, fields(f.Type)...)
		case name != "-" && name != "":
			names = append(names, name)
		}
	}
	return names
}

// TestConfigFile: deploy/config.yaml has every field, is read, and its comments name the defaults.
func TestConfigFile(t *testing.T) {
	text := string(testkit.Must(os.ReadFile("../deploy/config.yaml")))
	s := testkit.Must(parseSettings([]byte(text), nil))
	comments := regexp.MustCompile(`(?m)^# ([a-zA-Z]+:( |$).*)`)
	for _, name := range fields(reflect.TypeFor[settings]()) {
		if !regexp.MustCompile(`(?m)^(# )?` + name + `: `).MatchString(text) {
			t.Errorf("no field %s", name)
		}
	}
	withDefaults := regexp.MustCompile(`(?m)^# tpm: .*\n`).ReplaceAllString(text, "")
	same := testkit.Must(parseSettings([]byte(comments.ReplaceAllString(withDefaults, "$1")), nil))
	for _, said := range []struct {
		name      string
		got, want any
	}{
		{"socket", same.Socket, s.Socket}, {"statusAddress", same.StatusAddress, s.StatusAddress},
		{"refreshHint", same.RefreshHint, s.RefreshHint},
		{"maxLifetime", time.Duration(same.MaxLifetime), 3607 * time.Second}, {"allowedUIDs", same.AllowedUIDs, []uint32{0}},
		{"maxWaitingCalls", same.MaxWaitingCalls, 64}, {"callTimeout", time.Duration(same.CallTimeout), 5 * time.Second},
		{"reloadInterval", time.Duration(same.ReloadInterval), 10 * time.Second}, {"insecureAbstract", same.InsecureAbstract, ""},
	} {
		if !reflect.DeepEqual(said.got, said.want) {
			t.Errorf("%s: the comment says %v, the program takes %v", said.name, said.got, said.want)
		}
	}
}

// TestUnits: the units have the program's socket, its configuration and its folders.
func TestUnits(t *testing.T) {
	for file, lines := range map[string][]string{
		"external-jwt-signer.service": {
			"ExecStart=/usr/local/bin/" + name + " --config " + defaultConfig,
			"RuntimeDirectory=" + strings.TrimPrefix(filepath.Dir(defaultSocket), "/run/"),
			"RuntimeDirectoryMode=0700", "RuntimeDirectoryPreserve=yes", "Restart=always", "User=" + name,
			"StateDirectory=" + name, "Requires=" + name + ".socket",
			"NoNewPrivileges=yes", "CapabilityBoundingSet=", "ProtectSystem=strict", "LimitCORE=0",
		},
		"external-jwt-signer.socket": {"ListenStream=" + defaultSocket, "DirectoryMode=0700", "SocketMode=0600",
			"SocketUser=" + name, "Accept=no"},
		"external-jwt-signer.sysusers": {"u " + name + ` - "Signs service-account tokens"`},
	} {
		text := "\n" + string(testkit.Must(os.ReadFile("../deploy/"+file)))
		for _, line := range lines {
			if !strings.Contains(text, "\n"+line+"\n") {
				t.Errorf("%s: no line %s", file, line)
			}
		}
		if strings.Contains(text, "PrivateUsers=") && !strings.Contains(text, "No PrivateUsers=") {
			t.Errorf("%s: in a user namespace of its own the program does not see who connects", file)
		}
	}
}

// TestProgramsPage: docs/programs.md has a row for each field of the configuration file.
func TestProgramsPage(t *testing.T) {
	page := string(testkit.Must(os.ReadFile("../../docs/programs.md")))
	for _, field := range fields(reflect.TypeFor[settings]()) {
		if field != "apiVersion" && field != "kind" && !strings.Contains(page, "\n| `"+field+"` | ") {
			t.Errorf("no row for %s", field)
		}
	}
}
