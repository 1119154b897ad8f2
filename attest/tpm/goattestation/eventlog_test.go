package goattestation

import (
	"bytes"
	"context"
	"crypto"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	goattest "github.com/google/go-attestation/attest"
	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/attest/tpm/eventlog"
	"github.com/nodeattest/nodeattest/attest/tpm/statement"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/internal/testkit/softak"
	"github.com/nodeattest/nodeattest/internal/testkit/tpmlab"
	"github.com/nodeattest/nodeattest/refusal"
)

// Logs without a quote replay to the values that the reference computes, in every bank that
// they have; go-attestation reads them, so these are its events.
func TestEventLogsOfTheCorpus(t *testing.T) {
	logs := map[string][]byte{"azure": tpmlab.Corpus(t, "azure-vtpm-linux", "eventlog.bin")}
	for _, name := range []string{"coreos_36_shielded_vm_no_secure_boot_eventlog", "crypto_agile_eventlog", "ebs_event_missing_eventlog",
		"option_rom_eventlog", "sb_cert_eventlog", "short_no_action_eventlog", "ubuntu_2104_shielded_vm_no_secure_boot_eventlog"} {
		logs[name] = tpmlab.Corpus(t, "eventlogs", name)
	}
	var windows struct{ Log struct{ Raw []byte } }
	if err := json.Unmarshal(tpmlab.Corpus(t, "eventlogs", "windows_gcp_shielded_vm.json"), &windows); err != nil {
		t.Fatal(err)
	}
	logs["windows"] = windows.Log.Raw
	testEventLogs(t, logs, map[string]string{
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
func TestEventLogsOfTPMTools(t *testing.T) {
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
	testEventLogs(t, logs, map[string]string{
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

// testEventLogs replays logs and compares the results on Secure Boot: the state, and how many
// certificates PK, KEK, db and the authorities have.
func testEventLogs(t *testing.T, logs map[string][]byte, want map[string]string) {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(logs)) {
		log := throughClient(t, logs[name])
		parsed, err := goattest.ParseEventLog(log)
		if err != nil {
			t.Fatal(err)
		}
		bank, alg := tpm2.TPMAlgSHA256, goattest.HashSHA256
		if !slices.Contains(parsed.Algs, alg) || !hasDigests(parsed, alg) { // a log may name a bank and not serve it
			bank, alg = tpm2.TPMAlgSHA1, goattest.HashSHA1
		}
		pcrs := reference(parsed, bank, alg)
		l, err := eventlog.Replay(log, quoted(t, pcrs), nil)
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
		_, err = eventlog.Replay(log, quoted(t, pcrs), nil)
		tpmlab.ExpectCheck(t, err, refusal.Check("event-log-replay"))
	}
}

// throughClient is a log as a Prover gets it by way of go-attestation's TPM.
func throughClient(t *testing.T, log []byte) []byte {
	t.Helper()
	channel := testkit.Must(NewChannel(fixed{}, func(context.Context) ([]byte, error) { return log, nil }))
	client := testkit.Must(goattest.OpenTPM(&goattest.OpenConfig{CommandChannel: channel}))
	got, err := EventLog(client)(t.Context())
	if err != nil || !bytes.Equal(got, log) {
		t.Fatalf("a log of %d bytes has %d, %v", len(log), len(got), err)
	}
	return got
}

func hasDigests(parsed *goattest.EventLog, alg goattest.HashAlg) bool {
	return !slices.ContainsFunc(parsed.Events(alg), func(e goattest.Event) bool { return len(e.Digest) == 0 })
}

// reference extends PCRs 0 to 7 from zeros, and PCR 0 from the locality that the log says.
func reference(parsed *goattest.EventLog, bank tpm2.TPMAlgID, alg goattest.HashAlg) []statement.PCR {
	const noAction = 3 // EV_NO_ACTION
	hash := map[tpm2.TPMAlgID]crypto.Hash{tpm2.TPMAlgSHA1: crypto.SHA1, tpm2.TPMAlgSHA256: crypto.SHA256}[bank]
	var pcrs []statement.PCR
	for i := range 8 {
		p := statement.PCR{Bank: bank, Index: i, Value: make([]byte, hash.Size())}
		for _, e := range parsed.Events(alg) {
			if locality, ok := bytes.CutPrefix(e.Data, []byte("StartupLocality\x00")); ok && i == 0 && e.Type == noAction {
				p.Value[len(p.Value)-1] = locality[0]
			}
			if e.Index == i && e.Type != noAction {
				h := hash.New()
				h.Write(p.Value)
				h.Write(e.Digest)
				p.Value = h.Sum(nil)
			}
		}
		pcrs = append(pcrs, p)
	}
	return pcrs
}

// quoted is a quote over just these values of one bank, signed by a key in software.
func quoted(t *testing.T, pcrs []statement.PCR) *statement.Quoted {
	t.Helper()
	ak := softak.NewAK(tpmlab.NewP256(t), softak.ECDSA)
	sum, indexes := sha256.New(), []int(nil)
	for _, p := range pcrs {
		sum.Write(p.Value)
		indexes = append(indexes, p.Index)
	}
	selection := testkit.Must(statement.NewPCRSelection(pcrs[0].Bank, indexes...))
	raw := testkit.Must((&statement.Attestation{Type: tpm2.TPMSTAttestQuote, QualifiedSigner: ak.Primary(),
		Quote: &statement.QuoteInfo{Selections: []statement.PCRSelection{selection}, PCRDigest: sum.Sum(nil)}}).Marshal())
	evidence := &statement.QuoteEvidence{Attest: raw, Signature: testkit.Must(ak.Sign(softak.ECDSA, raw).Marshal()), PCRs: pcrs}
	q, err := statement.VerifyQuote(evidence, statement.QuoteOptions{AK: statement.AKFromCredential(ak.Public.Raw),
		InsecureEmptyQualifyingData: true, InsecureAllowSHA1Bank: true})
	if err != nil {
		t.Fatal(err)
	}
	return q
}
