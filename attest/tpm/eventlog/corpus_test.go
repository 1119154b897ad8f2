package eventlog

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/attest/tpm/statement"
	"github.com/nodeattest/nodeattest/internal/testkit"
)

func corpus(t testing.TB, path ...string) []byte {
	t.Helper()
	dir := os.Getenv("NODEATTEST_CORPUS")
	if dir == "" {
		t.Skip("NODEATTEST_CORPUS is not set: it names a directory of recorded event logs")
	}
	b, err := os.ReadFile(filepath.Join(append([]string{dir}, path...)...))
	testkit.NoError(t, err)
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
	testkit.NoError(t, json.Unmarshal(read("pcrs.json"), &values))
	for _, v := range values {
		e.PCRs = append(e.PCRs, statement.PCR{Bank: tpm2.TPMAlgSHA256, Index: v.Index, Value: v.Digest})
	}
	q, err := statement.VerifyQuote(e, statement.QuoteOptions{AK: statement.AKFromCredential(read("ak.tpmt")), InsecureEmptyQualifyingData: true})
	testkit.NoError(t, err)
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
	testkit.NoError(t, json.Unmarshal(corpus(t, "eventlogs", "windows_gcp_shielded_vm.json"), &dump))
	e := &statement.QuoteEvidence{Attest: dump.Quote.Quote, Signature: dump.Quote.Signature}
	for _, p := range dump.Log.PCRs {
		e.PCRs = append(e.PCRs, statement.PCR{Bank: tpm2.TPMAlgSHA1, Index: p.Index, Value: p.Digest})
	}
	q, err := statement.VerifyQuote(e, statement.QuoteOptions{AK: statement.AKFromCredential(dump.AK.Public), InsecureEmptyQualifyingData: true,
		InsecureAllowSHA1Signature: true, InsecureAllowSHA1Bank: true})
	testkit.NoError(t, err)
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
			testkit.NoError(t, err)
			state, err := l.SecureBoot(c.bank)
			testkit.NoError(t, err)
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
