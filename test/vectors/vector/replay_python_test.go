package vector

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/refusal"
)

// replayInPython runs the script that shares no code with the SDK on a folder of vectors, and on
// a page if there is one.
func replayInPython(t *testing.T, arguments ...string) (stdout, stderr string, ok bool) {
	t.Helper()
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("python3 is not installed: apt-get install -y python3")
	}
	cmd := exec.Command("python3", append([]string{filepath.Join(module, "python", "replay_join.py")}, arguments...)...)
	var out, problems bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &problems
	err := cmd.Run()
	if exit := (*exec.ExitError)(nil); err != nil && (!errors.As(err, &exit) || exit.ExitCode() != 1) {
		t.Fatalf("%v\n%s", err, problems.String())
	}
	return out.String(), problems.String(), err == nil
}

// protocol is the page that the script was written from.
const protocol = "../../../docs/protocol.md"

// A second implementation, which knows only docs/protocol.md and the README of the vectors,
// agrees with every vector of the join and makes the worked example's values again.
func TestReplayInPython(t *testing.T) {
	counts := map[string]int{}
	for _, v := range loadAll(t).Vectors {
		decided := v.Expect != "" && v.Environment != nil && v.Environment.FirstUse != nil
		levels := []string{LevelStatement, LevelQuote, LevelChallenge, LevelNode, LevelVerify, LevelCredential}
		if slices.Contains(levels, v.Level) && !decided {
			counts[v.Class]++
		}
	}
	stdout, stderr, ok := replayInPython(t, filepath.Join(module, "data"), protocol)
	want := fmt.Sprintf("%d statements, %d bindings and %d accepted replayed, 0 disagreements; 32 values of the worked example\n",
		counts["statement"], counts["binding"], counts["accepted"])
	if !ok || stdout != want || counts["statement"] < 240 || counts["binding"] < 290 || counts["accepted"] < 90 {
		t.Errorf("got %s%swant %s", stdout, stderr, want)
	}
	t.Log(stdout)
}

// moreFaults are faults in addition to a vector's: members of the environment, in JSON.
var moreFaults = map[string]string{
	"another cluster":      `{"clusterIDs":["elsewhere"]}`,
	"a stale ring":         `{"ringReadAt":"2026-03-02T11:00:00Z"}`,
	"another ring":         `{"ringKeys":[{"id":"0011223344556677","secret":"QUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUE=","activeAt":"2026-03-02T11:00:00Z"}]}`,
	"another secret":       `{"ringKeys":[{"id":"6e36d3ebf85c9cc8","secret":"QUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUE=","activeAt":"2026-03-02T11:00:00Z"}]}`,
	"no machines":          `{"machines":[]}`,
	"no members":           `{"members":[]}`,
	"a late verifier":      `{"now":"2026-03-02T13:30:00Z"}`,
	"an early verifier":    `{"now":"2026-03-02T11:58:00Z"}`,
	"a quote is demanded":  `{"goodPCRs":[{"bank":11,"index":7,"value":"QUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUE="}]}`,
	"a key in the TPM":     `{"requireTPMResident":true}`,
	"only the road of EKs": `{"issuers":[],"allowedEKs":["ek:sha256:0000000000000000000000000000000000000000000000000000000000000000"]}`,
}

// Where an input has two faults, both implementations find the same one: the checks come in the
// order that the page says.
func TestOrderInPython(t *testing.T) {
	set, dir, count := loadAll(t), t.TempDir(), 0
	write(t, dir, EnvironmentFile, readVector(t, EnvironmentFile))
	for _, v := range set.Vectors {
		firstUse := v.Environment != nil && v.Environment.FirstUse != nil
		foreign := strings.HasPrefix(v.Name, "google-") || strings.HasPrefix(v.Name, "oem-") // whose identities the script does not read
		if !slices.Contains([]string{"statement", "binding", "accepted"}, v.Class) || v.Level != LevelVerify && v.Level != LevelChallenge || firstUse || foreign {
			continue
		}
		for fault, members := range moreFaults {
			raw := readVector(t, v.Class+"/"+v.Name+".json")
			own, _ := raw["environment"].(map[string]any)
			if own == nil {
				own = map[string]any{}
			}
			var more Environment
			for _, into := range []any{&own, &more} {
				if err := json.Unmarshal([]byte(members), into); err != nil {
					t.Fatal(err)
				}
			}
			_, err := v.run(t.Context(), set.Environment.With(v.Environment).With(&more))
			refused, isOne := errors.AsType[*refusal.Error](err)
			if many, ok := errors.AsType[csr.Errors](err); ok && len(many) > 1 {
				continue // the policy reports every rule
			}
			raw["environment"], raw["class"], raw["name"], raw["expect"] = own, "accepted", v.Name+", "+fault, ""
			delete(raw, "retry")
			delete(raw, "result")
			if isOne {
				raw["class"], raw["expect"], raw["retry"] = strings.Replace(v.Class, "accepted", "binding", 1), string(refused.Check), errors.Is(err, refusal.ErrRetry)
			} else if err != nil {
				t.Fatalf("%s, %s: %v", v.Name, fault, err)
			}
			count++
			write(t, dir, fmt.Sprint(raw["class"], "/", raw["name"], ".json"), raw)
		}
	}
	stdout, stderr, ok := replayInPython(t, dir)
	if t.Logf("%d inputs: %s", count, stdout); !ok || count < 3000 {
		t.Errorf("%d inputs, %s", count, stderr)
	}
}

// A change of the worked example does not go unnoticed.
func TestExampleInPythonBites(t *testing.T) {
	page, err := os.ReadFile(protocol)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, name := range []string{EnvironmentFile, "statement/ak-can-decrypt.json", "binding/nonce.json", "accepted/tpm-statement.json"} {
		write(t, dir, name, readVector(t, name))
	}
	for name, c := range map[string]struct{ old, changed, want string }{
		"nothing":          {"", "", ""},
		"a derived value":  {"\nS = f4", "\nS = f5", "S is f5"},
		"a key":            {"\nK = 84", "\nK = 85", "S is f4"},
		"a name":           {"clusterID = vectors", "clusterID = vector", "hello is"},
		"the requester":    {"requester = system", "requester = System", "binding is"},
		"the answer's PEM": {"\nZf35FmemP4OIIvJYst5FfYqVwNhk7fa2AiBmKH6zxDq", "\nZf35FmemP4OIIvJYst5FfYqVwNhk7fa2AiBmKH6zxDr", "the PEM of the hello is"},
		"a TPM's bytes":    {"attest =\n    ff", "attest =\n    fe", "Refused: attest-magic"},
		"a signature":      {"signature =\n    00140", "signature =\n    00160", "the PEM of the answer is"},
		"a time":           {"verified = 2026-03-02T12", "verified = 2026-03-02T13", "Refused: hello-expired"},
		"an EK":            {"\nekPoint =\n    ", "\nekPoint =\n    00", "ekPoint is 00"},
		"no example":       {"<!-- example", "<!-- sample", "no worked example"},
		"a missing value":  {"\nekPrivate =", "\nother =", "KeyError: 'ekPrivate'"},
	} {
		t.Run(name, func(t *testing.T) {
			changed := strings.Replace(string(page), c.old, c.changed, 1)
			if changed == string(page) && c.want != "" {
				t.Fatalf("the page has no %q", c.old)
			}
			write(t, dir, "page.md", changed)
			_, stderr, ok := replayInPython(t, dir, filepath.Join(dir, "page.md"))
			if ok != (c.want == "") || !strings.Contains(stderr, c.want) {
				t.Errorf("want %q, got %s", c.want, stderr)
			}
		})
	}
}

// Each change is of a folder with a refused statement and an accepted one, and with an
// answer of each kind.
func TestReplayInPythonBites(t *testing.T) {
	const attack, good = "statement/ak-can-decrypt.json", "accepted/tpm-statement.json"
	const quoted, goodQuote, quotedAnswer = "statement/quote-pcr-values-swapped.json", "accepted/quote-ecdsa.json", "accepted/quote-in-answer.json"
	const badAnswer, goodAnswer = "statement/ak-below-another-key.json", "accepted/baseline-ecdsa-p256-in-answer.json"
	const stale, hello, node, credential = "binding/ring-stale.json", "accepted/ek-p256-in-hello.json", "binding/node-for-another-request.json", "accepted/credential-p256.json"
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
		"unknown check":      {vector(attack, func(v map[string]any) { v["expect"] = "ak-attribute" }), "refused by ak-attributes, want ak-attribute"},
		"another's check":    {vector(attack, func(v map[string]any) { v["expect"] = "key-strength" }), "refused by ak-attributes, want key-strength"},
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
		"another result": {vector(good, func(v map[string]any) { v["result"] = map[string]any{"tpmResident": true} }), "want tpmResident True"},
		"unknown result": {vector(good, func(v map[string]any) { v["result"] = map[string]any{"machine": "x"} }), "want machine x"},
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
		"a quote's result": {vector(goodQuote, func(v map[string]any) { v["result"] = map[string]any{"clockTrusted": false} }), "want clockTrusted False"},
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
		}), "refused by ring-key, want acceptance"},
		"an answer under another secret": {func(t *testing.T, dir string) {
			e := readVector(t, EnvironmentFile)
			for _, k := range e["ringKeys"].([]any) {
				k.(map[string]any)["secret"] = "AAAA"
			}
			write(t, dir, EnvironmentFile, e)
		}, "refused by qualifying-data"},
		"an answer of residents": {vector(goodAnswer, func(v map[string]any) {
			v["result"] = map[string]any{"tpmResident": false}
		}), "want tpmResident False"},
		"a final refusal":      {vector(stale, func(v map[string]any) { delete(v, "retry") }), "refused by ring-stale, want ring-stale"},
		"a hello's binding":    {vector(hello, func(v map[string]any) { v["object"].(map[string]any)["spec"].(map[string]any)["username"] = "x" }), "another binding"},
		"another node's check": {vector(node, func(v map[string]any) { v["expect"] = "binding-signer" }), "refused by binding-request, want binding-signer"},
		"another TPM's secret": {vector(credential, func(v map[string]any) { v["result"] = map[string]any{"secret": "AAAA"} }), "want secret AAAA"},
		"another credential's AK": {vector(credential, func(v map[string]any) {
			v["credential"].(map[string]any)["akName"] = "AAsA"
		}), "refused by credential-integrity, want acceptance"},
		"no bindings":     {remove("binding"), "no vector to replay"},
		"no attacks":      {remove("statement"), "no vector to replay"},
		"nothing good":    {remove("accepted"), "no vector to replay"},
		"an empty folder": {func(t *testing.T, dir string) { remove("accepted")(t, dir); remove("statement")(t, dir) }, "no vector to replay"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			write(t, dir, attack, readVector(t, attack))
			for _, name := range []string{EnvironmentFile, good, badAnswer, goodAnswer, quoted, goodQuote, quotedAnswer, stale, hello, node, credential} {
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
