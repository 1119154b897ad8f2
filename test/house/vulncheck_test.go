package house_test

import (
	"bytes"
	"compress/gzip"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"
)

// unreachable is a database at which nothing listens.
const unreachable = "http://127.0.0.1:1"

// day is the date so many days ago, as snapshots have it.
func day(ago int) string { return time.Now().UTC().AddDate(0, 0, -ago).Format(time.DateOnly) }

// vulnerable is the database's entry of a module of which every version has a vulnerability.
func vulnerable(module, pkg, events string) string {
	return `{"schema_version": "1.3.1", "id": "GO-2020-9999", "modified": "2020-01-01T00:00:00Z", "summary": "A test",
"affected": [{"package": {"name": "` + module + `", "ecosystem": "Go"},
"ranges": [{"type": "SEMVER", "events": [{"introduced": "0"}` + events + `]}],
"ecosystem_specific": {"imports": [{"path": "` + pkg + `"}]}}],
"database_specific": {"url": "https://pkg.go.dev/vuln/GO-2020-9999"}}`
}

// snapshot writes a database with one entry, of a day.
func snapshot(t *testing.T, day, entry string) string {
	t.Helper()
	id := regexp.MustCompile(`GO-[0-9]+-[0-9]+`).FindString(entry)
	return fixture(t, map[string]string{"date": day + "\n", id + ".json": entry})
}

// mirror serves a database without entries, of a day.
func mirror(t *testing.T, day string) string {
	t.Helper()
	texts := map[string]string{
		"/index/db.json.gz":      `{"modified":"` + day + `T00:00:00Z"}`,
		"/index/modules.json.gz": `[]`,
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, ok := texts[r.URL.Path]
		if !ok {
			http.NotFound(w, r)
			return
		}
		var zipped bytes.Buffer
		z := gzip.NewWriter(&zipped)
		if _, err := z.Write([]byte(text)); err != nil || z.Close() != nil {
			t.Error("not compressed")
		}
		_, _ = w.Write(zipped.Bytes())
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// vulncheck runs the script on the module in a folder.
func vulncheck(t *testing.T, folder string, environment ...string) (string, bool) {
	t.Helper()
	cmd := exec.Command("bash", "scripts/vulncheck.sh", folder)
	cmd.Env = append(os.Environ(), "NO_SKIPS=", "NODEATTEST_VULNDB=")
	cmd.Env = append(cmd.Env, environment...)
	out, err := cmd.CombinedOutput()
	return string(out), err == nil
}

// callsCryptobyte is a module that calls a package of golang.org/x/crypto, in the version
// that is required here.
func callsCryptobyte(t *testing.T) string {
	t.Helper()
	require := regexp.MustCompile(`golang.org/x/crypto v\S+`).FindString(readFile(t, "go.mod"))
	if require == "" {
		t.Fatal("go.mod does not require golang.org/x/crypto")
	}
	return fixture(t, map[string]string{
		"main.go": "package main\n\nimport \"golang.org/x/crypto/cryptobyte\"\n\nfunc main() { cryptobyte.NewBuilder(nil) }\n",
		"go.mod":  "module example.org/calls\n\ngo 1.26.0\n\nrequire " + require + "\n",
		"go.sum":  readFile(t, "go.sum"),
	})
}

// goAttestation is the database's entry GO-2026-5298 on go-attestation, with other symbols and events.
func goAttestation(symbols, events string) string {
	entry := vulnerable("github.com/google/go-attestation", "github.com/google/go-attestation/attest/internal", events)
	entry = strings.ReplaceAll(entry, "GO-2020-9999", "GO-2026-5298")
	return strings.Replace(entry, `internal"}`, `internal", "symbols": [`+symbols+`]}`, 1)
}

// callsGoAttestation is a module that reads Secure Boot with go-attestation.
func callsGoAttestation(t *testing.T) string {
	t.Helper()
	const folder = "attest/tpm/goattestation/"
	goMod := regexp.MustCompile(`(?m)^.*github.com/nodeattest/.*\n`).ReplaceAllString(readFile(t, folder+"go.mod"), "")
	return fixture(t, map[string]string{
		"main.go": "package main\n\nimport \"github.com/google/go-attestation/attest\"\n\nfunc main() { attest.ParseSecurebootState(nil) }\n",
		"go.mod":  "module example.org/calls\n" + goMod,
		"go.sum":  readFile(t, folder+"go.sum"),
	})
}

// TestVulnerabilities looks for vulnerabilities in a database that answers, in snapshots
// or without one: "not checked" differs from "nothing found".
func TestVulnerabilities(t *testing.T) {
	if testing.Short() {
		t.Skip("runs govulncheck")
	}
	prints := fixture(t, map[string]string{"main.go": "package main\n\nimport \"fmt\"\n\nfunc main() { fmt.Println() }\n"})
	unused := vulnerable("example.org/unused", "example.org/unused", "")
	standard := vulnerable("stdlib", "fmt", `, {"fixed": "99.1.0"}`)
	crypto := vulnerable("golang.org/x/crypto", "golang.org/x/crypto/cryptobyte", "")
	broken := fixture(t, map[string]string{"main.go": "package main\n\nfunc main() { nothing() }\n"})
	// In the adapter nothing calls the function that GO-2026-5298 is about.
	const adapter, faulty = "./attest/tpm/goattestation", `"parseEfiSignatureList"`
	caller := callsGoAttestation(t)
	const notChecked, failed, ok = "NOT CHECKED", "FAILED", ": ok"
	for name, test := range map[string]struct {
		folder, database, snapshot string
		want                       []string
	}{
		"a mirror":                                    {prints, mirror(t, day(90)), "", []string{ok, "of " + day(90)}},
		"a mirror that is old":                        {prints, mirror(t, day(91)), "", []string{notChecked, "91 days old, want at most 90"}},
		"a mirror in a folder":                        {prints, "file://" + snapshot(t, day(0), unused), "", []string{notChecked, "NODEATTEST_VULNDB"}},
		"none":                                        {prints, unreachable, "", []string{notChecked, "cannot be reached", "names none"}},
		"a snapshot":                                  {prints, unreachable, snapshot(t, day(90), unused), []string{ok, "of " + day(90)}},
		"a snapshot that is old":                      {prints, unreachable, snapshot(t, day(91), unused), []string{notChecked, "91 days old, want at most 90"}},
		"a snapshot of tomorrow":                      {prints, unreachable, snapshot(t, day(-1), unused), []string{notChecked, "it is of " + day(-1)}},
		"a snapshot without a date":                   {prints, unreachable, snapshot(t, "", unused), []string{notChecked, "its date is ''"}},
		"a snapshot that is not there":                {prints, unreachable, "none", []string{notChecked, "its date is ''"}},
		"vulnerable":                                  {callsCryptobyte(t), unreachable, snapshot(t, day(0), crypto), []string{failed, "GO-2020-9999"}},
		"vulnerable standard library":                 {prints, unreachable, snapshot(t, day(0), standard), []string{ok, "of this Go, mended in go99.1", "GO-2020-9999"}},
		"go-attestation, in its adapter":              {adapter, unreachable, snapshot(t, day(0), goAttestation("", "")), []string{ok + ", accepted: GO-2026-5298"}},
		"go-attestation, its faulty function":         {adapter, unreachable, snapshot(t, day(0), goAttestation(faulty, "")), []string{ok + "\n"}},
		"go-attestation, mended later":                {adapter, unreachable, snapshot(t, day(0), goAttestation("", `, {"fixed": "99.1.0"}`)), []string{failed, "GO-2026-5298"}},
		"go-attestation, elsewhere":                   {caller, unreachable, snapshot(t, day(0), goAttestation("", "")), []string{failed, "GO-2026-5298"}},
		"go-attestation, its faulty function, called": {caller, unreachable, snapshot(t, day(0), goAttestation(faulty, "")), []string{failed, "GO-2026-5298"}},
		"a module that does not compile":              {broken, unreachable, snapshot(t, day(0), unused), []string{failed, "nothing"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			noSkips := []string{"1"}
			if test.want[0] == notChecked {
				noSkips = []string{"", "1"}
			}
			for _, noSkips := range noSkips {
				said, passed := vulncheck(t, test.folder, "GOVULNDB="+test.database, "NODEATTEST_VULNDB="+test.snapshot, "NO_SKIPS="+noSkips)
				for _, want := range test.want {
					if !strings.Contains(said, want) {
						t.Errorf("it does not say %q", want)
					}
				}
				if want := strings.HasPrefix(test.want[0], ok) || test.want[0] == notChecked && noSkips == ""; passed != want {
					t.Errorf("with NO_SKIPS=%s: passed %v, want %v", noSkips, passed, want)
				}
				if t.Failed() {
					t.Fatal(said)
				}
			}
		})
	}
}
