package eventlog

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/attesttest"
	"github.com/nodeattest/nodeattest/attest/tpm"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/refusal"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// bootTPM extends a TPM's PCRs as firmware would, and returns the log.
func bootTPM(t testing.TB, tpm *tpmsim.TPM, events ...logged) []byte {
	t.Helper()
	for _, e := range events {
		if e.typ == typeNoAction {
			continue
		}
		var digests tpm2.TPMLDigestValues
		for _, b := range banksOfTest {
			digests.Digests = append(digests.Digests, tpm2.TPMTHA{HashAlg: b, Digest: e.sum(b)})
		}
		if _, err := (tpm2.PCRExtend{
			PCRHandle: tpm2.AuthHandle{Handle: tpm2.TPMHandle(e.pcr), Auth: tpm2.PasswordAuth(nil)},
			Digests:   digests,
		}).Execute(tpm); err != nil {
			t.Fatal(err)
		}
	}
	return writeLog(events...)
}

func TestJoinOnTheSimulator(t *testing.T) {
	testJoin(t, tpmsim.New(t, tpmsim.Options{}))
}

func TestJoinOnSwtpm(t *testing.T) {
	testJoin(t, tpmsim.Swtpm(t, tpmsim.Options{}))
}

// A machine boots, joins, and shows its boot; the control plane demands Secure Boot.
func testJoin(t *testing.T, device *tpmsim.TPM) {
	ctx := context.Background()
	boot := wholeBoot("\x01")
	log := bootTPM(t, device, boot...)
	sent := log
	node := attesttest.NewNode(t, attesttest.NodeOptions{TPM: device, Quote: tpm.DefaultPCRs(),
		EventLog: func(context.Context) ([]byte, error) { return sent, nil }})
	plane := attesttest.NewControlPlane(t, node)
	plane.TPM.QuotePolicy = &BootPolicy{RequireSecureBoot: true, Predicate: func(_ context.Context, l *Log) error {
		events, err := l.EventsOf(tpm2.TPMAlgSHA256, 4)
		if err != nil {
			return err
		}
		if string(events[0].Digest) != string(digest(tpm2.TPMAlgSHA256, []byte("boot loader"))) {
			return errors.New("another boot loader")
		}
		return nil
	}}
	verifier, err := verifierOf(plane)
	testkit.NoError(t, err)
	join := func() error {
		request, err := plane.Evidence(ctx, node)
		testkit.NoError(t, err)
		_, err = verifier.Verify(ctx, request)
		return err
	}
	expectCheck(t, join(), "")

	forged := wholeBoot("\x01")
	forged[2].digest = "another boot loader"
	for _, c := range []struct {
		log  []byte
		want refusal.Check
	}{
		{writeLog(forged...), checkReplay},
		{log[:len(log)-1], checkEncoding},
		{writeLog(boot[:len(boot)-1]...), checkReplay},
	} {
		sent = c.log
		expectCheck(t, join(), c.want)
	}

	// Something is measured that the log does not say.
	sent = log
	bootTPM(t, device, logged{5, 0x80000007, "a program", ""})
	expectCheck(t, join(), checkReplay)
}

// verifierOf is a control plane's verifier after its kind of evidence was changed.
func verifierOf(plane *attesttest.ControlPlane) (*attest.Verifier, error) {
	kind, err := tpm.NewKind(plane.TPM)
	if err != nil {
		return nil, err
	}
	plane.Config.Kinds = []attest.Kind{kind}
	return attest.NewVerifier(plane.Config)
}

// A machine whose Secure Boot is off has a TPM, into which its root measures a good boot after
// the true one: no log makes it join.
func TestJoinShowsAnotherBoot(t *testing.T) {
	device := tpmsim.New(t, tpmsim.Options{})
	off, on := wholeBoot("\x00"), secureBootOfTest("\x01")
	measured := append(off, on...)
	bootTPM(t, device, measured...)
	first := len(off) - len(on) // of PCR 7
	var sent []byte
	node := attesttest.NewNode(t, attesttest.NodeOptions{TPM: device, Quote: tpm.DefaultPCRs(),
		EventLog: func(context.Context) ([]byte, error) { return sent, nil }})
	plane := attesttest.NewControlPlane(t, node)
	plane.TPM.QuotePolicy = &BootPolicy{RequireSecureBoot: true}
	verifier, err := verifierOf(plane)
	testkit.NoError(t, err)
	for name, as := range map[string]func(e logged) logged{
		"as it was":       func(e logged) logged { return e },
		"of another type": func(e logged) logged { return shown(e, 0x800000e3, e.data) },
		"hidden":          func(e logged) logged { return shown(e, 0x800000e3, "vendor") },
	} {
		t.Run(name, func(t *testing.T) {
			sent = writeLog(append(measured[:first:first], showAll(measured[first:], len(on), as)...)...)
			request, err := plane.Evidence(t.Context(), node)
			testkit.NoError(t, err)
			_, err = verifier.Verify(t.Context(), request)
			expectCheck(t, err, CheckSecureBoot)
		})
	}
}
