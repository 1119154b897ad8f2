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
	cmd := exec.Command("python3", filepath.Join(module, "python", "replay_statements.py"), folder)
	var out, problems bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &problems
	err := cmd.Run()
	if exit := (*exec.ExitError)(nil); err != nil && (!errors.As(err, &exit) || exit.ExitCode() != 1) {
		t.Fatalf("%v\n%s", err, problems.String())
	}
	return out.String(), problems.String(), err == nil
}

// A second implementation, which knows only the specification and the README of the
// vectors, agrees with every vector of the class statement, and with every good answer
// on the road of the AK certificate.
func TestReplayInPython(t *testing.T) {
	var refused, accepted, elsewhere int
	for _, v := range loadAll(t).Vectors {
		onRoadEK := v.Environment != nil && (v.Environment.EKIssuers != nil || v.Environment.AllowedEKs != nil)
		isStatement := v.Level == LevelStatement || v.Level == LevelQuote || v.Level == LevelVerify && !onRoadEK
		switch {
		case v.Class == "statement" && v.Expect != "key-strength" && isStatement:
			refused++
		case v.Class == "statement":
			elsewhere++
		case v.Class == "accepted" && isStatement:
			accepted++
		}
	}
	stdout, stderr, ok := replayInPython(t, filepath.Join(module, "data"))
	want := fmt.Sprintf("%d refused and %d accepted replayed, 0 disagreements; %d of the class are about the request alone\n", refused, accepted, elsewhere)
	if !ok || stdout != want || refused < 235 || accepted < 70 || elsewhere > 1 {
		t.Errorf("got %s%swant %s", stdout, stderr, want)
	}
}

// Each change is of a folder with a refused statement and an accepted one, and with an
// answer of each kind.
func TestReplayInPythonBites(t *testing.T) {
	const attack, good = "statement/ak-can-decrypt.json", "accepted/tpm-statement.json"
	const quoted, goodQuote, quotedAnswer = "statement/quote-pcr-values-swapped.json", "accepted/quote-ecdsa.json", "accepted/quote-in-answer.json"
	const badAnswer, goodAnswer = "statement/ak-below-another-key.json", "accepted/baseline-ecdsa-p256-in-answer.json"
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
		"unknown check":      {vector(attack, func(v map[string]any) { v["expect"] = "ak-attribute" }), "unknown expectation 'ak-attribute'"},
		"another's check":    {vector(attack, func(v map[string]any) { v["expect"] = "key-strength" }), "unknown expectation 'key-strength'"},
		"no expectation":     {vector(attack, func(v map[string]any) { delete(v, "expect") }), "KeyError"},
		"an attack accepted": {vector(attack, func(v map[string]any) { v["expect"] = "" }), "contradicts its class"},
		"good evidence as an attack": {func(t *testing.T, dir string) {
			v := readVector(t, good)
			v["name"], v["class"], v["expect"] = "good", "statement", "ak-attributes"
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
		}), "refused by tpm-signature, want acceptance"},
		"an option":      {statement(good, func(s map[string]any) { s["options"] = []string{"requireTPMResident"} }), "refused by key-residency"},
		"unknown option": {statement(good, func(s map[string]any) { s["options"] = []string{"allowAll"} }), "unknown members or options ['allowAll']"},
		"a quote":        {vector(quoted, func(v map[string]any) { v["expect"] = "pcr-value" }), "refused by pcr-digest, want pcr-value"},
		"a quote's value": {vector(goodQuote, func(v map[string]any) {
			v["quote"].(map[string]any)["pcrs"].([]any)[3].(map[string]any)["value"] = strings.Repeat("A", 43) + "="
		}), "refused by pcr-digest, want acceptance"},
		"a quote's option": {vector(goodQuote, func(v map[string]any) {
			v["quote"].(map[string]any)["options"] = []string{"requireTPMResident"}
		}), "unknown members or options ['requireTPMResident']"},
		"a quote's result": {vector(goodQuote, func(v map[string]any) { v["result"] = map[string]any{"clockTrusted": false} }), "want {'clockTrusted': False}"},
		"a quote under another AK": {vector(goodQuote, func(v map[string]any) {
			v["quote"].(map[string]any)["akPublic"] = readVector(t, "accepted/quote-rsassa.json")["quote"].(map[string]any)["akPublic"]
		}), "refused by signature-scheme"},
		"other good PCRs": {vector(quotedAnswer, func(v map[string]any) {
			v["environment"].(map[string]any)["goodPCRs"].([]any)[0].(map[string]any)["index"] = 1
		}), "refused by pcr-policy"},
		"unknown member":          {statement(good, func(s map[string]any) { s["extra"] = "" }), "unknown members or options ['extra']"},
		"no base64":               {statement(good, func(s map[string]any) { s["attest"] = "*" }), "Error"},
		"no JSON":                 {func(t *testing.T, dir string) { write(t, dir, good, "x") }, "JSONDecodeError"},
		"another name":            {vector(good, func(v map[string]any) { v["name"] = "other" }), "calls itself"},
		"no environment":          {remove(EnvironmentFile), "environment.json"},
		"an answer's other check": {vector(badAnswer, func(v map[string]any) { v["expect"] = "tpm-signature" }), "refused by ak-parent, want tpm-signature"},
		"an answer for nobody's key": {vector(goodAnswer, func(v map[string]any) {
			v["environment"] = map[string]any{"ringKeys": []any{}}
		}), "IndexError"},
		"an answer under another secret": {func(t *testing.T, dir string) {
			e := readVector(t, EnvironmentFile)
			for _, k := range e["ringKeys"].([]any) {
				k.(map[string]any)["secret"] = "AAAA"
			}
			write(t, dir, EnvironmentFile, e)
		}, "refused by qualifying-data"},
		"an answer of residents": {vector(goodAnswer, func(v map[string]any) {
			v["result"] = map[string]any{"tpmResident": false}
		}), "want {'tpmResident': False}"},
		"no attacks":      {remove("statement"), "no vector to replay"},
		"nothing good":    {remove("accepted"), "no vector to replay"},
		"an empty folder": {func(t *testing.T, dir string) { remove("accepted")(t, dir); remove("statement")(t, dir) }, "no vector to replay"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			write(t, dir, attack, readVector(t, attack))
			for _, name := range []string{EnvironmentFile, good, badAnswer, goodAnswer, quoted, goodQuote, quotedAnswer} {
				write(t, dir, name, readVector(t, name))
			}
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
	data, err := os.ReadFile(filepath.Join(module, "data", name))
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
