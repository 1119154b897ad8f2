package eventlog

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/attesttest"
	"github.com/nodeattest/nodeattest/attest/tpm"
	"github.com/nodeattest/nodeattest/attest/tpm/statement"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/refusal"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// firmwarePCRs are the PCRs that firmware measures into.
var firmwarePCRs = []int{0, 1, 2, 3, 4, 5, 6, 7}

// wholeBoot measures into each of them; an empty secureBoot leaves PCR 7 out.
func wholeBoot(secureBoot string) []logged {
	boot := bootOfTest()
	for _, pcr := range []int{1, 2, 3, 6} {
		boot = append(boot, logged{pcr, typeSeparator, separator, ""})
	}
	if secureBoot == "" {
		return boot
	}
	return append(boot, secureBootOfTest(secureBoot)...)
}

// booted is a machine's boot with Secure Boot on ("\x01") or off, quoted in one bank.
func booted(t testing.TB, bank tpm2.TPMAlgID, secureBoot string, indexes ...int) *tpm.Measured {
	t.Helper()
	boot := wholeBoot(secureBoot)
	return &tpm.Measured{Quote: quoted(t, measureAll(bank, indexes, boot...)...), EventLog: writeLog(boot...)}
}

func TestPolicy(t *testing.T) {
	sha256, sha384, sha512, sha1 := tpm2.TPMAlgSHA256, tpm2.TPMAlgSHA384, tpm2.TPMAlgSHA512, tpm2.TPMAlgSHA1
	no := errors.New("no")
	on, off := booted(t, sha256, "\x01", firmwarePCRs...), booted(t, sha256, "\x00", firmwarePCRs...)
	seven := booted(t, sha256, "\x01", 7)
	without := &tpm.Measured{Quote: on.Quote}
	other := &tpm.Measured{Quote: on.Quote, EventLog: off.EventLog}
	early := wholeBoot("")
	reset := &tpm.Measured{Quote: quoted(t, append(measureAll(sha256, firmwarePCRs[:7], early...), measure(sha256, 7))...), EventLog: writeLog(early...)}
	asked := 0
	for _, c := range []struct {
		name   string
		policy *BootPolicy
		m      *tpm.Measured
		want   error
	}{
		{"nil", nil, on, tpm.CheckQuotePolicy},
		{"zero", &BootPolicy{}, on, tpm.CheckQuotePolicy},
		{"on", &BootPolicy{RequireSecureBoot: true}, on, nil},
		{"on, by name", &BootPolicy{Bank: sha256, PCRs: []int{7}, RequireSecureBoot: true}, seven, nil},
		{"off", &BootPolicy{RequireSecureBoot: true}, off, CheckSecureBoot},
		{"no log", &BootPolicy{RequireSecureBoot: true}, without, CheckMissing},
		{"the log of another boot", &BootPolicy{RequireSecureBoot: true}, other, checkReplay},
		{"PCR 7 left out", &BootPolicy{RequireSecureBoot: true, Options: Options{Unexplained: []int{7}}}, on, checkUncovered},
		{"PCR 4 left out", &BootPolicy{RequireSecureBoot: true, Options: Options{Unexplained: []int{4}}}, on, checkUncovered},
		{"PCR 4 left out and not asked for", &BootPolicy{PCRs: []int{7}, RequireSecureBoot: true, Options: Options{Unexplained: []int{4}}}, on, nil},
		{"fewer PCRs than by default", &BootPolicy{RequireSecureBoot: true}, seven, statement.CheckPCRNotQuoted},
		{"fewer PCRs than asked for", &BootPolicy{PCRs: []int{7, 14}, RequireSecureBoot: true}, on, statement.CheckPCRNotQuoted},
		{"no PCRs", &BootPolicy{PCRs: []int{}, Predicate: func(context.Context, *Log) error { return nil }}, on, tpm.CheckQuotePolicy},
		{"PCR 7 not asked for", &BootPolicy{PCRs: []int{0, 4}, RequireSecureBoot: true}, on, tpm.CheckQuotePolicy},
		{"nothing measured into PCR 7", &BootPolicy{RequireSecureBoot: true}, reset, checkUnextended},
		{"nothing measured, by a predicate", &BootPolicy{Predicate: func(context.Context, *Log) error { asked++; return nil }}, reset, checkUnextended},
		{"the bank of SHA-384 in place of SHA-256", &BootPolicy{RequireSecureBoot: true}, booted(t, sha384, "\x01", firmwarePCRs...), statement.CheckPCRNotQuoted},
		{"the bank of SHA-1 in place of SHA-256", &BootPolicy{RequireSecureBoot: true}, booted(t, sha1, "\x01", firmwarePCRs...), statement.CheckPCRNotQuoted},
		{"SHA-384", &BootPolicy{Bank: sha384, RequireSecureBoot: true}, booted(t, sha384, "\x01", firmwarePCRs...), nil},
		{"SHA-256 in place of SHA-384", &BootPolicy{Bank: sha384, RequireSecureBoot: true}, on, statement.CheckPCRNotQuoted},
		{"SHA-256 in place of SHA-512", &BootPolicy{Bank: sha512, RequireSecureBoot: true}, on, statement.CheckPCRNotQuoted},
		{"SHA-1", &BootPolicy{Bank: sha1, RequireSecureBoot: true}, booted(t, sha1, "\x01", firmwarePCRs...), tpm.CheckQuotePolicy},
		{"an unknown bank", &BootPolicy{Bank: tpm2.TPMAlgSM3256, RequireSecureBoot: true}, on, tpm.CheckQuotePolicy},
		{"a predicate", &BootPolicy{Predicate: func(_ context.Context, l *Log) error {
			asked++
			_, err := l.EventsOf(sha256, 7)
			return err
		}}, off, nil},
		{"a predicate about a PCR that is not quoted", &BootPolicy{PCRs: []int{7}, Predicate: func(_ context.Context, l *Log) error {
			_, err := l.EventsOf(sha256, 4)
			return err
		}}, seven, statement.CheckPCRNotQuoted},
		{"a predicate that refuses", &BootPolicy{RequireSecureBoot: true, Predicate: func(context.Context, *Log) error { return no }}, on, no},
		{"a predicate is not asked", &BootPolicy{RequireSecureBoot: true, Predicate: func(context.Context, *Log) error { asked++; return nil }}, off, CheckSecureBoot},
	} {
		t.Run(c.name, func(t *testing.T) {
			var policy tpm.QuotePolicy = c.policy
			if err := policy.CheckQuote(t.Context(), c.m); !errors.Is(err, c.want) {
				t.Errorf("got %v, want %v", err, c.want)
			}
			ours := errors.Is(c.want, tpm.CheckQuotePolicy)
			if valid := c.policy.Validate(); (valid != nil) != ours || ours && !errors.Is(policy.CheckQuote(t.Context(), c.m), refusal.ErrRetry) {
				t.Errorf("Validate: got %v", valid)
			}
		})
	}
	if asked != 1 {
		t.Errorf("asked %d times", asked)
	}
}

// A machine whose Secure Boot is off, and whose firmware extends one bank only: root
// fills the other bank in with the boot of its choice and quotes that. The policy names
// the bank, so that neither that bank nor both together pass.
func TestFilledInBank(t *testing.T) {
	truth, lie := wholeBoot("\x00"), wholeBoot("\x01")
	for _, c := range []struct {
		name     string
		measures tpm2.TPMAlgID // what firmware extends
		quotes   []tpm2.TPMAlgID
		fill     bool
		want     refusal.Check
	}{
		{"the other bank alone", tpm2.TPMAlgSHA256, []tpm2.TPMAlgID{tpm2.TPMAlgSHA384}, true, statement.CheckPCRNotQuoted},
		{"both banks", tpm2.TPMAlgSHA256, []tpm2.TPMAlgID{tpm2.TPMAlgSHA256, tpm2.TPMAlgSHA384}, true, checkReplay},
		{"the bank that counts, unextended", tpm2.TPMAlgSHA384, []tpm2.TPMAlgID{tpm2.TPMAlgSHA256}, false, checkReplay},
	} {
		t.Run(c.name, func(t *testing.T) {
			device := tpmsim.New(t, tpmsim.Options{})
			extendBank(t, device, c.measures, truth...)
			if c.fill {
				extendBank(t, device, tpm2.TPMAlgSHA384, lie...)
			}
			var selections []statement.PCRSelection
			for _, bank := range c.quotes {
				s, err := statement.NewPCRSelection(bank, firmwarePCRs...)
				testkit.NoError(t, err)
				selections = append(selections, s)
			}
			node := attesttest.NewNode(t, attesttest.NodeOptions{TPM: device, Road: attest.RoadEK, Quote: selections,
				EventLog: func(context.Context) ([]byte, error) { return writeLog(lie...), nil }})
			plane := attesttest.NewControlPlane(t, node)
			plane.TPM.QuotePolicy = &BootPolicy{RequireSecureBoot: true}
			verifier, err := verifierOf(plane)
			testkit.NoError(t, err)
			request, err := plane.Evidence(t.Context(), node)
			testkit.NoError(t, err)
			_, err = verifier.Verify(t.Context(), request)
			expectCheck(t, err, c.want)
		})
	}
}

// extendBank extends one bank alone, as any program of root's can.
func extendBank(t testing.TB, tpm *tpmsim.TPM, bank tpm2.TPMAlgID, events ...logged) {
	t.Helper()
	for _, e := range events {
		if e.typ == typeNoAction {
			continue
		}
		if _, err := (tpm2.PCRExtend{
			PCRHandle: tpm2.AuthHandle{Handle: tpm2.TPMHandle(e.pcr), Auth: tpm2.PasswordAuth(nil)},
			Digests:   tpm2.TPMLDigestValues{Digests: []tpm2.TPMTHA{{HashAlg: bank, Digest: e.sum(bank)}}},
		}).Execute(tpm); err != nil {
			t.Fatal(err)
		}
	}
}

// What Linux' IMA measures is refused with the field that leaves it out.
func TestReplayNamesUnexplained(t *testing.T) {
	boot := bootOfTest()
	q := quoted(t, measureAll(tpm2.TPMAlgSHA256, []int{0, 10}, append(slices.Clone(boot), logged{10, 0x0d, "IMA", ""})...)...)
	_, err := Replay(writeLog(boot...), q, nil)
	expectCheck(t, err, checkReplay)
	var e *refusal.Error
	if !errors.As(err, &e) || !strings.Contains(e.Want, "Options.Unexplained") {
		t.Errorf("%v does not say what to do", err)
	}
	if _, err := Replay(writeLog(boot...), q, &Options{Unexplained: []int{10}}); err != nil {
		t.Error(err)
	}
}

// A log of the largest size is read, and one byte more is not.
func TestEventLogSize(t *testing.T) {
	empty := len(writeLog(logged{4, 5, "", ""}))
	for size, want := range map[int]refusal.Check{statement.MaxEventLogSize: "", statement.MaxEventLogSize + 1: checkEncoding} {
		event := logged{4, 5, strings.Repeat("x", size-empty), ""}
		log := writeLog(event)
		if len(log) != size {
			t.Fatalf("%d bytes", len(log))
		}
		_, err := Replay(log, quoted(t, measure(tpm2.TPMAlgSHA256, 4, event)), nil)
		expectCheck(t, err, want)
	}
}
