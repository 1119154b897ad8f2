package eventlog

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	tcg "github.com/google/go-attestation/attest"
	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/attest/tpm/statement"
)

func corpus(t testing.TB, path ...string) []byte {
	t.Helper()
	dir := os.Getenv("NODEATTEST_CORPUS")
	if dir == "" {
		t.Skip("NODEATTEST_CORPUS is not set: it names a directory of recorded event logs")
	}
	b, err := os.ReadFile(filepath.Join(append([]string{dir}, path...)...))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// azure is a quote and a log of one production vTPM.
func azure(t testing.TB) (*statement.Quoted, []byte) {
	read := func(file string) []byte { return corpus(t, "azure-vtpm-linux", file) }
	e := &statement.QuoteEvidence{Attest: read("quote.bin"), Signature: read("quote.sig.raw.bin"),
		RawSignature: &statement.KeyScheme{Alg: tpm2.TPMAlgRSASSA, Hash: tpm2.TPMAlgSHA256}}
	var values []struct {
		Index  int    `json:"index"`
		Digest []byte `json:"digest"`
	}
	if err := json.Unmarshal(read("pcrs.json"), &values); err != nil {
		t.Fatal(err)
	}
	for _, v := range values {
		e.PCRs = append(e.PCRs, statement.PCR{Bank: tpm2.TPMAlgSHA256, Index: v.Index, Value: v.Digest})
	}
	q, err := statement.VerifyQuote(e, statement.QuoteOptions{AK: statement.AKFromCredential(read("ak.tpmt")), InsecureEmptyQualifyingData: true})
	if err != nil {
		t.Fatal(err)
	}
	return q, read("eventlog.bin")
}

// windows is a quote and a log of a shielded VM of GCE, of SHA-1 both.
func windows(t testing.TB) (*statement.Quoted, []byte) {
	var dump struct {
		AK    struct{ Public []byte }
		Quote struct{ Quote, Signature []byte }
		Log   struct {
			PCRs []struct {
				Index  int
				Digest []byte
			}
			Raw []byte
		}
	}
	if err := json.Unmarshal(corpus(t, "eventlogs", "windows_gcp_shielded_vm.json"), &dump); err != nil {
		t.Fatal(err)
	}
	e := &statement.QuoteEvidence{Attest: dump.Quote.Quote, Signature: dump.Quote.Signature}
	for _, p := range dump.Log.PCRs {
		e.PCRs = append(e.PCRs, statement.PCR{Bank: tpm2.TPMAlgSHA1, Index: p.Index, Value: p.Digest})
	}
	q, err := statement.VerifyQuote(e, statement.QuoteOptions{AK: statement.AKFromCredential(dump.AK.Public), InsecureEmptyQualifyingData: true,
		InsecureAllowSHA1Signature: true, InsecureAllowSHA1Bank: true})
	if err != nil {
		t.Fatal(err)
	}
	return q, dump.Log.Raw
}

// The two recordings of a quote and its log: they replay, and one changed event is
// refused wherever it is.
func TestReplayRecordings(t *testing.T) {
	for name, c := range map[string]struct {
		read    func(testing.TB) (*statement.Quoted, []byte)
		bank    tpm2.TPMAlgID
		options *Options
		enabled bool
	}{
		"azure":   {azure, tpm2.TPMAlgSHA256, nil, true},
		"windows": {windows, tpm2.TPMAlgSHA1, nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			q, log := c.read(t)
			l, err := Replay(log, q, c.options)
			if err != nil {
				t.Fatal(err)
			}
			state, err := l.SecureBoot(c.bank)
			if err != nil {
				t.Fatal(err)
			}
			if state.Enabled != c.enabled || len(state.PermittedKeys) == 0 || len(state.Authorities) == 0 {
				t.Errorf("enabled %v, %d keys, %d authorities", state.Enabled, len(state.PermittedKeys), len(state.Authorities))
			}
			for _, e := range l.Events() {
				at := bytes.Index(log, e.Digest)
				if at < 0 {
					t.Fatalf("PCR %d: a digest that is not in the log", e.PCR)
				}
				changed := bytes.Clone(log)
				for ; at >= 0; at = bytes.Index(changed, e.Digest) { // some digests occur again
					changed[at] ^= 1
				}
				if _, err := Replay(changed, q, c.options); err == nil {
					t.Errorf("PCR %d: another digest", e.PCR)
				}
			}
		})
	}
}

// Logs without a quote replay to the values that the reference computes, in every bank that
// they have; go-attestation reads them, so these are its events.
func TestReplayCorpusLogs(t *testing.T) {
	logs := map[string][]byte{"azure": corpus(t, "azure-vtpm-linux", "eventlog.bin")}
	for _, name := range []string{"coreos_36_shielded_vm_no_secure_boot_eventlog", "crypto_agile_eventlog", "ebs_event_missing_eventlog",
		"option_rom_eventlog", "sb_cert_eventlog", "short_no_action_eventlog", "ubuntu_2104_shielded_vm_no_secure_boot_eventlog"} {
		logs[name] = corpus(t, "eventlogs", name)
	}
	_, logs["windows"] = windows(t)
	testRealLogs(t, logs, map[string]string{
		"azure":   "on, 1 1 1 authorities 2",
		"windows": "on, 1 1 3 authorities 1",
		"coreos_36_shielded_vm_no_secure_boot_eventlog":   "off, 1 1 2 authorities 0",
		"crypto_agile_eventlog":                           "off, 1 1 3 authorities 0",
		"ebs_event_missing_eventlog":                      "off, 1 2 4 authorities 0",
		"option_rom_eventlog":                             "on, 1 2 3 authorities 2",
		"sb_cert_eventlog":                                "on, 1 1 4 authorities 3",
		"short_no_action_eventlog":                        "unknown: secure-boot: got no separator in PCR 7",
		"ubuntu_2104_shielded_vm_no_secure_boot_eventlog": "off, 1 1 2 authorities 0",
	})
}

// The logs that go-tpm-tools, the simulator's module, has for its own tests.
func TestReplayLogsOfTPMTools(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "github.com/google/go-tpm-tools").Output()
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(out)), "internal", "test", "eventlogs", "*.bin"))
	if err != nil {
		t.Fatal(err)
	}
	logs := make(map[string][]byte)
	for _, file := range files {
		if logs[filepath.Base(file)], err = os.ReadFile(file); err != nil {
			t.Fatal(err)
		}
	}
	testRealLogs(t, logs, map[string]string{
		"arch-linux-workstation.bin":                 "off, 1 2 3 authorities 0", // it has no variable SecureBoot
		"confidential-gke-debug-251000_eventlog.bin": "on, 1 1 1 authorities 2",
		"cos-101-amd-sev.bin":                        "on, 1 1 1 authorities 2",
		"cos-85-amd-sev.bin":                         "on, 1 1 1 authorities 3",
		"cos-93-amd-sev.bin":                         "on, 1 1 1 authorities 3",
		"debian-10.bin":                              "on, 1 1 2 authorities 2",
		"eventlogwithsp800155.bin":                   "on, 1 1 1 authorities 2",
		"gdc-host.bin":                               "off, 1 1 5 authorities 0",
		"glinux-alex.bin":                            "off, 0 1 4 authorities 0",
		"rhel8-uefi.bin":                             "on, 1 1 2 authorities 2",
		"ubuntu-1804-amd-sev.bin":                    "off, 1 1 2 authorities 0",
		"ubuntu-2104-no-dbx.bin":                     "off, 1 1 2 authorities 0",
		"ubuntu-2104-no-secure-boot.bin":             "off, 1 1 2 authorities 0",
		"ubuntu-2404-amd-sevsnp.bin":                 "off, 1 1 2 authorities 0",
	})
}

// testRealLogs replays logs and compares what is said of Secure Boot: the state, and how many
// certificates PK, KEK, db and the authorities have.
func testRealLogs(t *testing.T, logs map[string][]byte, want map[string]string) {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(logs)) {
		log := logs[name]
		parsed, err := tcg.ParseEventLog(log)
		if err != nil {
			t.Fatal(err)
		}
		bank, alg := tpm2.TPMAlgSHA256, tcg.HashSHA256
		if !slices.Contains(parsed.Algs, alg) || !hasDigests(parsed, alg) { // a log may name a bank and not serve it
			bank, alg = tpm2.TPMAlgSHA1, tcg.HashSHA1
		}
		pcrs := reference(parsed, bank, alg)
		l, err := Replay(log, quoted(t, pcrs...), nil)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		got := ""
		if state, err := l.SecureBoot(bank); err != nil {
			got = "unknown: " + err.Error()
		} else {
			got = fmt.Sprintf("%s, %d %d %d authorities %d", map[bool]string{true: "on", false: "off"}[state.Enabled],
				len(state.PlatformKeys), len(state.ExchangeKeys), len(state.PermittedKeys), len(state.Authorities))
		}
		t.Logf("%-50s replays in %s, Secure Boot %s", name, alg, got)
		if w := want[name]; w == "" || !strings.HasPrefix(got, w) {
			t.Errorf("%s: Secure Boot is %s, want %q", name, got, w)
		}
		pcrs[3].Value[5] ^= 1
		_, err = Replay(log, quoted(t, pcrs...), nil)
		expectCheck(t, err, checkReplay)
	}
}

func hasDigests(parsed *tcg.EventLog, alg tcg.HashAlg) bool {
	return !slices.ContainsFunc(parsed.Events(alg), func(e tcg.Event) bool { return len(e.Digest) == 0 })
}

// reference extends PCRs 0 to 7 from zeros, and PCR 0 from the locality that the log says.
func reference(parsed *tcg.EventLog, bank tpm2.TPMAlgID, alg tcg.HashAlg) []statement.PCR {
	var pcrs []statement.PCR
	for i := range 8 {
		p := measure(bank, i)
		for _, e := range parsed.Events(alg) {
			if locality, ok := bytes.CutPrefix(e.Data, []byte("StartupLocality\x00")); ok && i == 0 && Type(e.Type) == typeNoAction {
				p.Value[len(p.Value)-1] = locality[0]
			}
			if e.Index == i && Type(e.Type) != typeNoAction {
				p.Value = digest(bank, append(p.Value, e.Digest...))
			}
		}
		pcrs = append(pcrs, p)
	}
	return pcrs
}
