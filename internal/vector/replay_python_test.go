package vector

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// replayInPython runs the script that shares no code with the SDK on a folder of
// vectors.
func replayInPython(t *testing.T, folder string) (stdout, stderr string, ok bool) {
	t.Helper()
	for _, tool := range []string{"python3", "openssl"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("%s is not installed: apt-get install -y python3 openssl", tool)
		}
	}
	cmd := exec.Command("python3", "../../scripts/replay_statements.py", folder)
	var out, problems bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &problems
	err := cmd.Run()
	if exit := (*exec.ExitError)(nil); err != nil && (!errors.As(err, &exit) || exit.ExitCode() != 1) {
		t.Fatalf("%v\n%s", err, problems.String())
	}
	return out.String(), problems.String(), err == nil
}

// A second implementation, which knows only the specification and the README of the
// vectors, agrees with every vector of level statement.
func TestReplayInPython(t *testing.T) {
	set := loadAll(t)
	var refused, accepted, elsewhere int
	for _, v := range set.Vectors {
		switch {
		case v.Level != LevelStatement && v.Class == "statement":
			elsewhere++
		case v.Level == LevelStatement && v.Expect == "":
			accepted++
		case v.Level == LevelStatement:
			refused++
		}
	}
	stdout, stderr, ok := replayInPython(t, root)
	want := fmt.Sprintf("%d refused and %d accepted replayed, 0 disagreements; %d of the class are of other levels\n", refused, accepted, elsewhere)
	if !ok || stdout != want || refused < 90 || accepted < 15 {
		t.Errorf("got %s%swant %s", stdout, stderr, want)
	}
}

// Each change is of a folder with one refused vector and one accepted.
func TestReplayInPythonBites(t *testing.T) {
	const attack, good = "statement/ak-can-decrypt.json", "accepted/tpm-statement.json"
	vector := func(name string, how func(map[string]any)) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			v := readVector(t, name)
			how(v)
			write(t, dir, name, v)
		}
	}
	statement := func(name string, how func(map[string]any)) func(*testing.T, string) {
		return vector(name, func(v map[string]any) { how(v["statement"].(map[string]any)) })
	}
	remove := func(name string) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			if err := os.RemoveAll(filepath.Join(dir, name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, c := range map[string]struct {
		change func(t *testing.T, dir string)
		want   string // "" for agreement
	}{
		"nothing":            {func(*testing.T, string) {}, ""},
		"another check":      {vector(attack, func(v map[string]any) { v["expect"] = "ak-scheme" }), "refused by ak-attributes, want ak-scheme"},
		"unknown check":      {vector(attack, func(v map[string]any) { v["expect"] = "ak-attribute" }), "unknown expectation attest 'ak-attribute'"},
		"another package":    {vector(attack, func(v map[string]any) { v["package"] = "csr" }), "unknown expectation csr"},
		"no expectation":     {vector(attack, func(v map[string]any) { delete(v, "expect") }), "KeyError"},
		"an attack accepted": {vector(attack, func(v map[string]any) { v["expect"] = "" }), "contradicts its class"},
		"good evidence as an attack": {func(t *testing.T, dir string) {
			v := readVector(t, good)
			v["name"], v["class"], v["expect"], v["package"] = "good", "statement", "ak-attributes", "attest"
			write(t, dir, "statement/good.json", v)
		}, "accepted, want ak-attributes"},
		"an attack as good evidence": {func(t *testing.T, dir string) {
			v := readVector(t, attack)
			v["name"], v["class"], v["expect"] = "attack", "accepted", ""
			write(t, dir, "accepted/attack.json", v)
		}, "refused by ak-attributes, want acceptance"},
		"another result": {vector(good, func(v map[string]any) { v["result"] = map[string]any{"tpmResident": true} }), "want {'tpmResident': True}"},
		"unknown result": {vector(good, func(v map[string]any) { v["result"] = map[string]any{"machine": "x"} }), "want {'machine': 'x'}"},
		"a signature": {statement(good, func(s map[string]any) {
			s["signature"] = readStatement(t, "accepted/baseline-rsassa.json")["signature"]
		}), "refused by signature, want acceptance"},
		"an option":       {statement(good, func(s map[string]any) { s["options"] = []string{"requireTPMResident"} }), "refused by key-residency"},
		"unknown option":  {statement(good, func(s map[string]any) { s["options"] = []string{"allowAll"} }), "unknown members or options ['allowAll']"},
		"unknown member":  {statement(good, func(s map[string]any) { s["extra"] = "" }), "unknown members or options ['extra']"},
		"no base64":       {statement(good, func(s map[string]any) { s["attest"] = "*" }), "Error"},
		"no JSON":         {func(t *testing.T, dir string) { write(t, dir, good, "x") }, "JSONDecodeError"},
		"another name":    {vector(good, func(v map[string]any) { v["name"] = "other" }), "calls itself"},
		"no attacks":      {remove(attack), "no vector of level statement"},
		"nothing good":    {remove("accepted"), "no vector of level statement"},
		"an empty folder": {func(t *testing.T, dir string) { remove("accepted")(t, dir); remove("statement")(t, dir) }, "no vector of level statement"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			write(t, dir, attack, readVector(t, attack))
			write(t, dir, good, readVector(t, good))
			c.change(t, dir)
			stdout, stderr, ok := replayInPython(t, dir)
			if ok != (c.want == "") || !strings.Contains(stderr, c.want) || ok != strings.Contains(stdout, " 0 disagreements") {
				t.Errorf("success %t, want %q, got\n%s%s", ok, c.want, stdout, stderr)
			}
		})
	}
}

// readVector reads a vector as it stands there, absent members and all.
func readVector(t *testing.T, name string) map[string]any {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	var v map[string]any
	if err := json.Unmarshal(data, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

func readStatement(t *testing.T, name string) map[string]any {
	t.Helper()
	return readVector(t, name)["statement"].(map[string]any)
}
