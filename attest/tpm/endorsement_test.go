package tpm

import (
	"bytes"
	"context"
	"encoding/binary"

	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-tpm/tpm2"
	"github.com/google/go-tpm/tpm2/transport"

	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/internal/testkit/mounttest"
	"github.com/nodeattest/nodeattest/internal/testkit/tpmlab"

	"github.com/nodeattest/nodeattest/attest/tpm/internal/tpmop"
	"github.com/nodeattest/nodeattest/refusal"

	"github.com/nodeattest/nodeattest/secret"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// checkEndorsementIs fails the test unless password, and no other, opens the
// endorsement hierarchy.
func checkEndorsementIs(t testing.TB, tpm transport.TPM, password []byte) {
	t.Helper()
	source := AKSource{Template: AKTemplateECDSAP256()}
	if _, err := akOf(t, tpm, source, password); err != nil {
		t.Errorf("the password does not open the hierarchy: %v", err)
	}
	if len(password) != 0 {
		if _, err := akOf(t, tpm, source, nil); !errors.Is(err, ErrHierarchyPassword) {
			t.Errorf("without a password: got %v, want ErrHierarchyPassword", err)
		}
	}
	tpmlab.CheckNothingLoaded(t, tpm)
}

func checkFiles(t testing.TB, dir string, want ...string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	testkit.NoError(t, err)
	var got []string
	for _, e := range entries {
		got = append(got, e.Name())
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("files (-want +got): %s", diff)
	}
}

func readAll(t testing.TB, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	testkit.NoError(t, err)
	return b
}

func TestEndorsementPasswordFirstAndSecondRun(t *testing.T) {
	tpm := tpmlab.NewTPM(t)
	dir := mounttest.Disk(t)
	path := filepath.Join(dir, "endorsement")
	first, err := EndorsementPassword(t.Context(), tpm, path)
	testkit.NoError(t, err)
	if len(first.Reveal()) != 32 || !bytes.Equal(readAll(t, path), append(bytes.Clone(first.Reveal()), '\n')) {
		t.Errorf("%d bytes, and %d in the file", len(first.Reveal()), len(readAll(t, path)))
	}
	if info, err := os.Stat(path); err != nil || info.Mode() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	checkFiles(t, dir, "endorsement")
	checkEndorsementIs(t, tpm, first.Reveal())

	faulty := tpmsim.Faulty(tpm, nil)
	second, err := EndorsementPassword(t.Context(), faulty, path)
	if err != nil || !bytes.Equal(first.Reveal(), second.Reveal()) {
		t.Errorf("second run: another password, or error %v", err)
	}
	if tpmlab.Count(faulty, tpm2.TPMCCHierarchyChanegAuth) != 0 {
		t.Error("the second run set the password again")
	}
	checkEndorsementIs(t, tpm, first.Reveal())
}

func TestEndorsementPasswordsDiffer(t *testing.T) {
	seen := map[string]bool{}
	dir := mounttest.Disk(t)
	for _, name := range []string{"a", "b", "c"} {
		content, err := newPasswordFile(filepath.Join(dir, name))
		testkit.NoError(t, err)
		if seen[string(content)] {
			t.Error("the same password twice")
		}
		seen[string(content)] = true
	}
}

// Every command fails in every way, as a crash at that place would look. Whatever
// was done by then, the next run completes it.
func TestEndorsementPasswordAfterACrash(t *testing.T) {
	commands := endorsementPasswordCommands(t)
	for n := 1; n <= len(commands); n++ {
		for name, faults := range map[string]func(int) tpmsim.Faults{
			"before": tpmsim.DropAt, "after": tpmsim.LoseAt,
		} {
			t.Run(fmt.Sprintf("%s %d", name, n), func(t *testing.T) {
				tpm := tpmlab.NewTPM(t)
				dir := mounttest.Disk(t)
				path := filepath.Join(dir, "endorsement")
				faulty := tpmsim.Faulty(tpm, faults(n))
				shared := tpmop.Share(faulty)
				first, err := EndorsementPassword(t.Context(), shared, path)
				// What TPM2_ContextSave gives would only save time.
				lossless := name == "after" && commands[n-1] == tpm2.TPMCCContextSave
				if !lossless && (err == nil || !first.IsZero()) || lossless && err != nil {
					t.Fatalf("crash %s command %d, %v: got error %v", name, n, commands[n-1], err)
				}
				faulty.SetFaults(nil) // a resource manager would flush at the end of the process
				testkit.NoError(t, shared.FlushLeft(t.Context()))
				password, err := EndorsementPassword(t.Context(), tpm, path)
				if err != nil {
					t.Fatalf("crash %s command %d, next run: %v", name, n, err)
				}
				checkFiles(t, dir, "endorsement")
				checkEndorsementIs(t, tpm, password.Reveal())
			})
		}
	}
}

func endorsementPasswordCommands(t *testing.T) []tpm2.TPMCC {
	t.Helper()
	tpm, err := tpmsim.Open(tpmlab.Bare())
	testkit.NoError(t, err)
	defer tpm.Close()
	faulty := tpmsim.Faulty(tpm, nil)
	if _, err := EndorsementPassword(t.Context(), faulty, filepath.Join(mounttest.Disk(t), "endorsement")); err != nil {
		t.Fatal(err)
	}
	return faulty.Commands()
}

func TestEndorsementPasswordCancelled(t *testing.T) {
	tpm := tpmlab.NewTPM(t)
	path := filepath.Join(mounttest.Disk(t), "endorsement")
	ctx, cancel := context.WithCancel(t.Context())
	faulty := tpmsim.Faulty(tpm, tpmsim.At(1, tpmsim.Fault{Before: cancel}))
	if _, err := EndorsementPassword(ctx, faulty, path); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want context.Canceled", err)
	}
	password, err := EndorsementPassword(t.Context(), tpm, path)
	testkit.NoError(t, err)
	checkEndorsementIs(t, tpm, password.Reveal())
}

// A TPM that does not say whether the hierarchy has a password is asked by the empty one.
func TestEndorsementPasswordOfASilentTPM(t *testing.T) {
	tpm := tpmlab.NewTPM(t)
	silent := &tpmlab.Altered{TPM: tpm, Code: tpm2.TPMCCGetCapability, Alter: func(b []byte) {
		if len(b) >= 27 && tpm2.TPMPT(binary.BigEndian.Uint32(b[19:])) == tpm2.TPMPTPermanent {
			binary.BigEndian.PutUint32(b[19:], uint32(tpm2.TPMPTStartupClear))
		}
	}}
	dir := mounttest.Disk(t)
	path := filepath.Join(dir, "endorsement")
	first, err := EndorsementPassword(t.Context(), silent, path)
	testkit.NoError(t, err)
	checkEndorsementIs(t, tpm, first.Reveal())
	if second, err := EndorsementPassword(t.Context(), silent, path); err != nil || !bytes.Equal(first.Reveal(), second.Reveal()) {
		t.Errorf("again: another password, or error %v", err)
	}
	if _, err := EndorsementPassword(t.Context(), silent, filepath.Join(dir, "other")); !errors.Is(err, ErrHierarchyPassword) {
		t.Errorf("no file: got %v, want ErrHierarchyPassword", err)
	}
	checkFiles(t, dir, "endorsement")
}

// A hierarchy that is switched off is said to be, and gets no password.
func TestEndorsementPasswordSwitchedOff(t *testing.T) {
	tpm := tpmlab.NewTPM(t)
	tpmlab.SwitchOff(t, tpm, tpm2.TPMRHEndorsement)
	_, err := EndorsementPassword(t.Context(), tpm, filepath.Join(mounttest.Disk(t), "endorsement"))
	if !errors.Is(err, tpm2.TPMRCHierarchy) || errors.Is(err, refusal.ErrRetry) || !strings.Contains(err.Error(), "the endorsement hierarchy is switched off") {
		t.Errorf("got %v", err)
	}
	testkit.NoError(t, tpm.Reset())
	checkEndorsementIs(t, tpm, nil)
}

func TestEndorsementPasswordOfSomebodyElse(t *testing.T) {
	tpm := tpmlab.NewTPM(t)
	dir := mounttest.Disk(t)
	path := filepath.Join(dir, "endorsement")
	theirs := []byte("theirs")
	tpmlab.SetHierarchyPassword(t, tpm, tpm2.TPMRHEndorsement, nil, theirs)

	if _, err := EndorsementPassword(t.Context(), tpm, path); !errors.Is(err, ErrHierarchyPassword) {
		t.Errorf("no file: got %v, want ErrHierarchyPassword", err)
	}
	checkFiles(t, dir)

	content, err := newPasswordFile(path)
	testkit.NoError(t, err)
	_, err = EndorsementPassword(t.Context(), tpm, path)
	if !errors.Is(err, ErrHierarchyPassword) || !errors.Is(err, tpm2.TPMRCBadAuth) {
		t.Errorf("another password in the file: got %v, want ErrHierarchyPassword and TPM_RC_BAD_AUTH", err)
	}
	if strings.Contains(err.Error(), string(content[:32])) {
		t.Errorf("the error shows the password: %v", err)
	}
	if !bytes.Equal(readAll(t, path), content) {
		t.Error("the file was changed")
	}
	checkEndorsementIs(t, tpm, theirs)
}

// TPM2_Clear empties the password. The file's is set again.
func TestEndorsementPasswordAfterClear(t *testing.T) {
	tpm := tpmlab.NewTPM(t)
	path := filepath.Join(mounttest.Disk(t), "endorsement")
	first, err := EndorsementPassword(t.Context(), tpm, path)
	testkit.NoError(t, err)
	auth := tpm2.AuthHandle{Handle: tpm2.TPMRHLockout, Auth: tpm2.PasswordAuth(nil)}
	if _, err := (tpm2.Clear{AuthHandle: auth}).Execute(tpm); err != nil {
		t.Fatal(err)
	}
	checkEndorsementIs(t, tpm, nil)
	second, err := EndorsementPassword(t.Context(), tpm, path)
	if err != nil || !bytes.Equal(first.Reveal(), second.Reveal()) {
		t.Fatalf("another password, or error %v", err)
	}
	checkEndorsementIs(t, tpm, first.Reveal())
}

func TestEndorsementPasswordRefusesFiles(t *testing.T) {
	good := strings.Repeat("A", 32) + "\n"
	for name, content := range map[string]string{
		"empty": "", "no line feed": good[:32], "short": good[1:], "long": good + "\n", "CR LF": good[:31] + "\r\n",
		"other characters": strings.Repeat("+", 32) + "\n", "line feeds": strings.Repeat("\n", 33),
		"very long": strings.Repeat("A", 1<<20),
	} {
		t.Run(name, func(t *testing.T) {
			tpm := tpmlab.NewTPM(t)
			path := filepath.Join(mounttest.Disk(t), "endorsement")
			testkit.NoError(t, os.WriteFile(path, []byte(content), 0o600))
			password, err := EndorsementPassword(t.Context(), tpm, path)
			if !errors.Is(err, checkPasswordFile) || !password.IsZero() {
				t.Errorf("got %v, want checkPasswordFile", err)
			}
			if string(readAll(t, path)) != content {
				t.Error("the file was changed")
			}
			checkEndorsementIs(t, tpm, nil)
		})
	}
}

// Two users of one TPM that do not know of each other start at the same time.
func TestEndorsementPasswordRace(t *testing.T) {
	for range 10 {
		raceForPassword(t)
	}
}

func raceForPassword(t *testing.T) {
	tpm, err := tpmsim.Open(tpmlab.Bare())
	testkit.NoError(t, err)
	defer tpm.Close()
	path := filepath.Join(mounttest.Disk(t), "endorsement")
	var wg sync.WaitGroup
	passwords := make([]secret.Value[[]byte], 2)
	for i := range passwords {
		wg.Go(func() {
			var err error
			if passwords[i], err = EndorsementPassword(t.Context(), tpm, path); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for _, p := range passwords {
		if !bytes.Equal(p.Reveal(), passwords[0].Reveal()) {
			t.Error("two passwords")
		}
	}
	checkEndorsementIs(t, tpm, passwords[0].Reveal())
}

// The worst interleaving: another process does everything between our look at the
// TPM and ours at the file, and another sets the password just before we do.
func TestEndorsementPasswordOvertaken(t *testing.T) {
	for _, overtakenAt := range []tpm2.TPMCC{tpm2.TPMCCGetCapability, tpm2.TPMCCHierarchyChanegAuth} {
		tpm, err := tpmsim.Open(tpmlab.Bare())
		testkit.NoError(t, err)
		path := filepath.Join(mounttest.Disk(t), "endorsement")
		var theirs secret.Value[[]byte]
		overtake := func() {
			if theirs.IsZero() {
				if theirs, err = EndorsementPassword(t.Context(), tpm, path); err != nil {
					t.Error(err)
				}
			}
		}
		slow := tpmsim.Faulty(tpm, nil)
		if overtakenAt == tpm2.TPMCCGetCapability { // after it
			a := &tpmlab.Altered{TPM: tpm, Code: overtakenAt, Alter: func([]byte) { overtake() }}
			slow = tpmsim.Faulty(a, nil)
		} else { // before it
			slow.SetFaults(tpmsim.Every(overtakenAt, tpmsim.Fault{Before: overtake}))
		}
		ours, err := EndorsementPassword(t.Context(), slow, path)
		if err != nil || !bytes.Equal(ours.Reveal(), theirs.Reveal()) {
			t.Errorf("overtaken at 0x%x: another password, or error %v", overtakenAt, err)
		}
		checkEndorsementIs(t, tpm, theirs.Reveal())
		tpm.Close()
	}
}

func FuzzParsePasswordFile(f *testing.F) {
	f.Add([]byte(strings.Repeat("A", 32) + "\n"))
	f.Add([]byte(strings.Repeat("-_", 16) + "\n"))
	f.Add([]byte(strings.Repeat("=", 32) + "\n"))
	f.Add([]byte("\n"))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, content []byte) {
		password, err := parsePasswordFile(content)
		if err != nil {
			return
		}
		if len(password) != 32 || bytes.ContainsAny(password, "\r\n\x00") || !bytes.Equal(content, append(bytes.Clone(password), '\n')) {
			t.Fatalf("%q gives %q", content, password)
		}
	})
}

// Passwords in a file: 32 characters of base64url and a line feed.
func TestFormOfPasswordFiles(t *testing.T) {
	good := strings.Repeat("aZ09-_", 6)[:endorsementPasswordSize]
	if p, err := parsePasswordFile([]byte(good + "\n")); err != nil || string(p) != good {
		t.Fatalf("%q, %v", p, err)
	}
	for _, c := range []byte("\x00 /:@[`{+=\n\x7f\xff") {
		if _, err := parsePasswordFile([]byte(good[1:] + string([]byte{c}) + "\n")); !errors.Is(err, checkPasswordFile) {
			t.Errorf("with %q: %v", c, err)
		}
	}
	for _, c := range []byte("09azAZ-_") {
		if _, err := parsePasswordFile([]byte(good[1:] + string([]byte{c}) + "\n")); err != nil {
			t.Errorf("with %q: %v", c, err)
		}
	}
	for name, content := range map[string]string{
		"nothing": "", "a line feed": "\n", "one short": good[1:] + "\n", "one more": good + "a\n", "no line feed": good + "a", "a blank": good + " ", "CR LF": good + "\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := parsePasswordFile([]byte(content)); !errors.Is(err, checkPasswordFile) {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
	tpm := tpmsim.Faulty(tpmlab.NewTPM(t), nil)
	_, err := EndorsementPassword(t.Context(), tpm, filepath.Join(mounttest.Disk(t), "none", "password"))
	if !errors.Is(err, fs.ErrNotExist) || errors.Is(err, checkPasswordFile) {
		t.Errorf("no directory: %v", err)
	}
	_, err = EndorsementPassword(t.Context(), tpm, mounttest.Disk(t)+"/")
	if err == nil || tpmlab.Count(tpm, tpm2.TPMCCHierarchyChanegAuth) != 0 {
		t.Errorf("no name: %v", err)
	}
}
