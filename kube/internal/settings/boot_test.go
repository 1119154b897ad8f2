package settings

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/tpm"
	"github.com/nodeattest/nodeattest/attest/tpm/eventlog"
	"github.com/nodeattest/nodeattest/attest/tpm/statement"
	"github.com/nodeattest/nodeattest/attest/tpm/tpmcert"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/internal/testkit/tpmlab"
	"github.com/nodeattest/nodeattest/refusal"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// bench is a machine that boots, and a control plane that judges it.
type bench struct {
	w      *world
	device *tpmsim.TPM
	ek     attest.Identity
}

func newBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{w: newWorld(t)}
	b.device = tpmsim.New(t, tpmsim.Options{CA: b.w.vendor})
	b.ek = testkit.Must(tpmcert.ParseEK(b.device.EKCertificate(tpmsim.RSA2048).Raw)).Identity()
	return b
}

// reboots resets the machine and returns the log of its new boot.
func (b *bench) reboots(t *testing.T, secureBoot bool, kernel string) []byte {
	t.Helper()
	testkit.MustDo(b.device.Reset())
	return tpmlab.Boot(t, b.device, tpmlab.BootEvents(secureBoot, kernel))
}

// joins has the machine join with these fields in the section tpm. A nil log is not sent, and a quote only if
// quotes is set.
func (b *bench) joins(t *testing.T, fields string, quotes bool, log []byte) (*Boot, error) {
	t.Helper()
	origin := tpm.EKRSA2048()
	options := tpm.ProverOptions{EK: &origin, Intermediates: [][]byte{b.w.vendor.EKIntermediate().Raw}}
	if quotes {
		options.Quote = tpm.DefaultPCRs()
	}
	if log != nil {
		options.EventLog = func(context.Context) ([]byte, error) { return log, nil }
	}
	prover := testkit.Must(tpm.NewProver(b.device, tpm.AKSource{Template: tpm.AKTemplateECDSAP256()}, options))
	defer func() { testkit.MustDo(prover.Close()) }()
	p := b.w.plane(t, "machines: [{nodeName: node-1, identity: '"+string(b.ek)+"'}]",
		"akIssuers: [{rootsFile: @/ak.pem, profile: google}]", "ekIssuers: [{rootsFile: @/ak.pem, profile: tcg}]"+fields, "road: ak", "road: ek, identityClass: RSA-2048")
	err := p.join(t, prover, "node-1", csr.SignerClientTPM)
	return p.boot, err
}

// good returns the values of the machine's PCRs now, as a set of goodPCRs.
func (b *bench) good(t *testing.T) string {
	t.Helper()
	boot, err := b.joins(t, "", true, nil)
	testkit.MustDo(err)
	var set []string
	for _, p := range boot.PCRs {
		set = append(set, fmt.Sprintf("%d: '%x'", p.Index, p.Value))
	}
	return "{" + strings.Join(set, ", ") + "}"
}

// TestSecureBoot: require and observe see the same; only require refuses, with what to do. Each wrong log is
// one that a machine with Secure Boot off can send.
func TestSecureBoot(t *testing.T) {
	b := newBench(t)
	on := b.reboots(t, true, "kernel 1")
	before := slices.Clone(on)
	for name, row := range map[string]struct {
		quotes bool
		log    []byte
		state  SecureBootState
		want   refusal.Check
		says   string
	}{
		"on":                  {true, on, SecureBootOn, "", ""},
		"no quote":            {false, nil, SecureBootUnknown, tpm.CheckQuoteMissing, "set quote: true in evidence.tpm"},
		"no log":              {true, nil, SecureBootUnknown, "event-log-missing", "set evidence.tpm.eventLog"},
		"cut off in an event": {true, on[:len(on)-40], SecureBootUnknown, "event-log-encoding", ""},
		"cut off after one":   {true, on[:300], SecureBootUnknown, "", ""},
		"padded with zeros":   {true, append(slices.Clone(on), make([]byte, 4096)...), SecureBootOn, "", ""},
		"padded with ones":    {true, append(slices.Clone(on), bytes.Repeat([]byte{1}, 4096)...), SecureBootUnknown, "", ""},
		"of another boot":     {true, tpmlab.EventLog(tpmlab.BootEvents(true, "kernel 2")), SecureBootUnknown, "event-log-replay", ""},
		"the longest":         {true, append(slices.Clone(on), make([]byte, statement.MaxEventLogSize-len(on))...), SecureBootOn, "", ""},
	} {
		t.Run(name, func(t *testing.T) { b.checkJudged(t, row.quotes, row.log, row.state, row.want, row.says) })
	}
	off := b.reboots(t, false, "kernel 1")
	renamed := tpmlab.BootEvents(false, "kernel 1")
	asOn := tpmlab.BootEvents(true, "kernel 1")
	for n := range renamed {
		if renamed[n].PCR == 7 && strings.Contains(renamed[n].Data, "\x01\x00\x00\x00\x00\x00\x00\x00S\x00") {
			renamed[n].Measured, renamed[n].Data = renamed[n].Data, asOn[n].Data
		}
	}
	hidden := tpmlab.BootEvents(false, "kernel 1")
	for n := range hidden {
		if hidden[n].PCR == 7 {
			hidden[n].Measured, hidden[n].Type, hidden[n].Data = hidden[n].Data, 0x80008401, "vendor"
		}
	}
	for name, row := range map[string]struct {
		log   []byte
		state SecureBootState
		want  refusal.Check
		says  string
	}{
		"off":                       {off, SecureBootOff, eventlog.CheckSecureBoot, "turn it on in the firmware settings"},
		"off, shown as on":          {tpmlab.EventLog(renamed), SecureBootUnknown, eventlog.CheckSecureBoot, ""},
		"off, by renamed events":    {tpmlab.EventLog(hidden), SecureBootUnknown, eventlog.CheckSecureBoot, ""},
		"off, with the log of then": {before, SecureBootUnknown, "event-log-replay", ""},
	} {
		t.Run(name, func(t *testing.T) { b.checkJudged(t, true, row.log, row.state, row.want, row.says) })
	}
}

func (b *bench) checkJudged(t *testing.T, quotes bool, log []byte, state SecureBootState, want refusal.Check, says string) {
	t.Helper()
	seen, err := b.joins(t, ", secureBoot: observe", quotes, log)
	if err != nil || seen.SecureBoot != state || (len(seen.Wrong) != 0) != (state != SecureBootOn) || seen.Machine != b.ek || quotes != (len(seen.PCRs) == 8) {
		t.Errorf("observe: got %v, %+v, want %s", err, seen, state)
	}
	required, err := b.joins(t, ", secureBoot: require", quotes, log)
	if (err == nil) != (state == SecureBootOn) || want != "" && !errors.Is(err, want) || err != nil && !strings.Contains(err.Error(), says) || required.SecureBoot != state {
		t.Errorf("require: got %v, %+v, want %s %q", err, required, want, says)
	}
	if err != nil {
		t.Log(err)
	}
	if d := csr.Decide(err); err != nil && (d.Verdict != csr.VerdictDeny || fmt.Sprint(seen.Wrong[0]) != fmt.Sprint(required.Wrong[0])) {
		t.Errorf("decision %+v; %v, %v", d, seen.Wrong, required.Wrong)
	}
	if unread, err := b.joins(t, "", quotes, log); err != nil || unread.SecureBoot != "" || unread.Judged != quotes || len(unread.Wrong) != 0 {
		t.Errorf("nothing asked: got %v, %+v", err, unread)
	}
}

// TestBothPolicies: goodPCRs and secureBoot are judged together, and the reasons of both are kept.
func TestBothPolicies(t *testing.T) {
	b := newBench(t)
	b.reboots(t, true, "kernel 1")
	first := b.good(t)
	on := b.reboots(t, true, "kernel 2")
	second := b.good(t)
	sets := ", goodPCRs: [" + first + ", " + second + "]"
	if boot, err := b.joins(t, sets+", secureBoot: require", true, on); err != nil || boot.GoodPCRs != 1 || boot.SecureBoot != SecureBootOn {
		t.Errorf("the second set: got %v, %+v", err, boot)
	}
	if boot, err := b.joins(t, ", goodPCRs: ["+first+"], secureBoot: observe", true, on); !errors.Is(err, refusal.Check("pcr-policy")) || boot.GoodPCRs != -1 || boot.SecureBoot != SecureBootOn || len(boot.Wrong) != 1 {
		t.Errorf("another kernel: got %v, %+v", err, boot)
	}
	if boot, err := b.joins(t, sets+", secureBoot: require", true, nil); !errors.Is(err, refusal.Check("event-log-missing")) || boot.GoodPCRs != 1 || len(boot.Wrong) != 1 {
		t.Errorf("no log: got %v, %+v", err, boot)
	}
	if boot, err := b.joins(t, sets+", secureBoot: observe", false, nil); !errors.Is(err, tpm.CheckQuoteMissing) || len(boot.Wrong) != 1 || len(boot.PCRs) != 0 {
		t.Errorf("no quote: got %v, %+v", err, boot)
	}
	off := b.reboots(t, false, "kernel 3")
	if boot, err := b.joins(t, sets+", secureBoot: require", true, off); !errors.Is(err, refusal.Check("pcr-policy")) || len(boot.Wrong) != 2 || boot.SecureBoot != SecureBootOff {
		t.Errorf("wrong by both: got %v, %+v", err, boot)
	}
}

// TestBootPolicyRefused: what would let every machine pass, or none, is refused at the start.
func TestBootPolicyRefused(t *testing.T) {
	separator := testkit.Must(hex.DecodeString("3d458cfe55cc03ea1f443f1562beec8df51c75e14a9fcf9a7234a13f198e7969")) // what firmware leaves in PCRs 2, 3 and 6 of many machines
	w := newWorld(t)
	good := "'" + strings.Repeat("01", 32) + "'"
	for name, row := range map[string]struct{ field, want string }{ // "": it is accepted
		"require":               {"secureBoot: require", ""},
		"observe":               {"secureBoot: observe", ""},
		"another value":         {"secureBoot: enforce", `"enforce"`},
		"in capitals":           {"secureBoot: Require", `"Require"`},
		"a truth value":         {"secureBoot: true", "secureBoot"},
		"an empty set":          {"goodPCRs: [{}]", "no PCR"},
		"one of two empty":      {"goodPCRs: [{7: " + good + "}, {}]", "set 1"},
		"zeros":                 {"goodPCRs: [{0: '" + zeros[:64] + "'}]", "nothing was measured"},
		"zeros above 7":         {"goodPCRs: [{8: '" + zeros[:64] + "', 9: '" + zeros[:64] + "'}]", "most machines"},
		"separators alone":      {fmt.Sprintf("goodPCRs: [{2: '%x', 3: '%[1]x'}]", separator), "most machines"},
		"a separator and more":  {fmt.Sprintf("goodPCRs: [{2: '%x', 7: %s}]", separator, good), ""},
		"a PCR that is no PCR":  {"goodPCRs: [{32: " + good + "}]", "pcr-selection"},
		"one that can be reset": {"goodPCRs: [{16: " + good + "}]", "pcr-resettable"},
		"too short":             {"goodPCRs: [{7: '01'}]", "pcr-value"},
		"both":                  {"goodPCRs: [{7: " + good + "}], secureBoot: require", ""},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := w.settings("akIssuers: [{rootsFile: @/ak.pem, profile: google}]", "akIssuers: [{rootsFile: @/ak.pem, profile: google}], "+row.field)
			if err == nil {
				_, err = s.Kinds()
			}
			if (err != nil) != (row.want != "") || err != nil && !strings.Contains(err.Error(), row.want) {
				t.Errorf("got %v, want %q", err, row.want)
			}
		})
	}
	if _, err := w.settings("akIssuers: [{rootsFile: @/ak.pem, profile: google}]", "secureBoot: require"); err == nil {
		t.Error("without TPMs: accepted")
	}
}
