package node

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-tpm/tpm2"
	"github.com/google/go-tpm/tpm2/transport"

	"github.com/nodeattest/nodeattest/attest/tpm"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/internal/testkit/mounttest"
	"github.com/nodeattest/nodeattest/internal/testkit/tpmlab"
	"github.com/nodeattest/nodeattest/kube/authenticator"
	"github.com/nodeattest/nodeattest/kube/internal/configfile"
	"github.com/nodeattest/nodeattest/refusal"
	"github.com/nodeattest/nodeattest/secret"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// managedBy is evidence of a TPM whose password the program keeps in a file.
func managedBy(device *tpmsim.TPM, file string) string {
	return "{device: " + strings.TrimPrefix(device.TCTI(), "swtpm:path=") + ", endorsementPassword: managed, endorsementPasswordFile: " + file + "}"
}

// opens opens the kind of a section, as before a hello.
func opens(t *testing.T, section string) error {
	t.Helper()
	c := testkit.Must(configOf(section))
	p, err := c.Kind.Open(t.Context())
	if err != nil {
		return err
	}
	return p.Close()
}

// makesAK reports whether a program with that password can make an attestation key.
func makesAK(t *testing.T, device transport.TPM, password []byte) bool {
	t.Helper()
	_, err := tpm.AKPublic(t.Context(), device, tpm.AKSource{Template: tpm.AKTemplateECDSAP256()}, secret.New(password))
	if err != nil && !errors.Is(err, tpm.ErrHierarchyPassword) {
		t.Fatal(err)
	}
	return err == nil
}

// wrongPasswords is how many the TPM counts.
func wrongPasswords(t *testing.T, device transport.TPM) uint32 {
	t.Helper()
	got := testkit.Must(tpm2.GetCapability{Capability: tpm2.TPMCapTPMProperties, Property: uint32(tpm2.TPMPTLockoutCounter), PropertyCount: 1}.Execute(device))
	properties, err := got.CapabilityData.Data.TPMProperties()
	if err != nil || len(properties.TPMProperty) != 1 || properties.TPMProperty[0].Property != tpm2.TPMPTLockoutCounter {
		t.Fatalf("%+v, %v", properties, err)
	}
	return properties.TPMProperty[0].Value
}

// TestManagedPassword: the program makes a password before its first message, and sets it again
// after TPM2_Clear. No program makes an attestation key without its file.
func TestManagedPassword(t *testing.T) {
	device := tpmsim.Swtpm(t, tpmsim.Options{})
	folder := filepath.Join(mounttest.Disk(t), "tpm")
	file := filepath.Join(folder, "password")
	section := managedBy(device, file)
	var first []byte
	for _, when := range []string{"at the first start", "again", "after a reset", "after TPM2_Clear"} {
		switch when {
		case "after a reset":
			testkit.MustDo(device.Reset())
		case "after TPM2_Clear":
			testkit.Must((tpm2.Clear{AuthHandle: tpm2.AuthHandle{Handle: tpm2.TPMRHLockout, Auth: tpm2.PasswordAuth(nil)}}).Execute(device))
			if !makesAK(t, device, nil) {
				t.Error("TPM2_Clear left the password")
			}
		}
		if err := opens(t, section); err != nil {
			t.Fatalf("%s: %v", when, err)
		}
		text := testkit.Must(os.ReadFile(file))
		if first == nil {
			first = text
		}
		if !bytes.Equal(text, first) || len(text) != 33 {
			t.Errorf("%s: the file has %d bytes, the first ones: %t", when, len(text), bytes.Equal(text, first))
		}
		if makesAK(t, device, nil) || makesAK(t, device, []byte("guessed")) || !makesAK(t, device, text[:32]) {
			t.Errorf("%s: another password than that of the file makes attestation keys, or none does", when)
		}
	}
	for path, mode := range map[string]fs.FileMode{folder: 0o700, file: 0o600} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != mode {
			t.Errorf("%s: %v, %v", path, info.Mode(), err)
		}
	}
	if n := wrongPasswords(t, device); n != 0 {
		t.Errorf("the TPM counts %d wrong passwords", n)
	}
	c := testkit.Must(configOf("{endorsementPasswordFile: " + file + "}")) // and an operator can take it over
	if password := c.Kind.(*authenticator.TPM).Options.EndorsementPassword; !makesAK(t, device, password.Reveal()) {
		t.Error("the file is not read as an operator's")
	}
}

// TestManagedPasswordOfACertifiedKey: a key with a certificate is made with the password, too.
func TestManagedPasswordOfACertifiedKey(t *testing.T) {
	device := tpmsim.Swtpm(t, tpmsim.Options{EKs: []tpmsim.Algorithm{}, AKs: []tpmsim.AK{
		{Algorithm: tpmsim.P256, TemplateIndex: templateAt, NonceIndex: nonceAt, CertificateIndex: certificateAt}}})
	section := strings.Replace(managedBy(device, filepath.Join(mounttest.Disk(t), "tpm", "password")), "{", "{ak: "+operatorsKey()+", ", 1)
	for range 2 {
		if err := opens(t, section); err != nil {
			t.Error(err)
		}
	}
	if makesAK(t, device, nil) {
		t.Error("there is no password")
	}
}

// TestNoRoom fills a TPM behind a socket with what programs that were killed leave there.
func TestNoRoom(t *testing.T) {
	device := tpmsim.Swtpm(t, tpmsim.Options{EKs: []tpmsim.Algorithm{}, AKs: []tpmsim.AK{
		{Algorithm: tpmsim.P256, TemplateIndex: templateAt, NonceIndex: nonceAt, CertificateIndex: certificateAt}}})
	kept := managedBy(device, filepath.Join(mounttest.Disk(t), "tpm", "password"))
	certified := "{device: " + strings.TrimPrefix(device.TCTI(), "swtpm:path=") + ", ak: " + operatorsKey() + "}"
	for _, section := range []string{certified, kept} {
		for range 3 {
			testkit.Must((tpm2.CreatePrimary{PrimaryHandle: tpm2.TPMRHOwner, InPublic: tpm2.New2B(tpm2.ECCSRKTemplate)}).Execute(device))
		}
		if err := opens(t, section); err != nil {
			t.Errorf("%s: %v", section, err)
		}
	}
}

// TestManagedPasswordAfterACrash: of two steps, file and TPM, only the first was done.
func TestManagedPasswordAfterACrash(t *testing.T) {
	device := tpmsim.Swtpm(t, tpmsim.Options{})
	file := filepath.Join(mounttest.Disk(t), "password")
	testkit.MustDo(os.WriteFile(file, []byte(strings.Repeat("p", 32)+"\n"), 0o600))
	testkit.MustDo(opens(t, managedBy(device, file)))
	if makesAK(t, device, nil) || !makesAK(t, device, bytes.Repeat([]byte("p"), 32)) {
		t.Error("the TPM has not the password of the file")
	}
}

// TestManagedPasswordRefused: a password that the program did not set, or cannot store. Nothing is
// changed, a hello is not made, and the TPM counts no wrong password, however often it is tried.
func TestManagedPasswordRefused(t *testing.T) {
	const remedy = "an operator puts the file of this TPM back, or clears the TPM (TPM2_Clear"
	device := tpmsim.Swtpm(t, tpmsim.Options{})
	disk, writable := readOnly(t, mounttest.Disk(t))
	good := []byte(strings.Repeat("p", 32) + "\n")
	for name, row := range map[string]struct {
		theirs  string // the password that the TPM has
		prepare func(t *testing.T, file string) error
		file    string // "": one that is prepared
		want    string
		is      error
	}{
		"a lost file":                {theirs: "theirs", want: "there is no file: " + remedy, is: tpm.ErrHierarchyPassword},
		"another program's password": {"theirs", func(_ *testing.T, file string) error { return os.WriteFile(file, good, 0o600) }, "", remedy, tpm.ErrHierarchyPassword},
		"a file that others may read": {"", func(_ *testing.T, file string) error {
			return errors.Join(os.WriteFile(file, good, 0o600), os.Chmod(file, 0o640))
		}, "", "mode -rw-r-----, want 0600", refusal.Check("password-file")},
		"another user's file": {"", func(_ *testing.T, file string) error {
			return errors.Join(os.WriteFile(file, good, 0o600), os.Chown(file, 1, 1))
		}, "", "got owner 1", refusal.Check("password-file")},
		"a symbolic link":            {"", func(t *testing.T, file string) error { return os.Symlink(written(t, "password", good), file) }, "", "a symbolic link", refusal.Check("password-file")},
		"a folder":                   {"", func(_ *testing.T, file string) error { return os.Mkdir(file, 0o700) }, "", "a regular file", refusal.Check("password-file")},
		"a file of another form":     {"", func(_ *testing.T, file string) error { return os.WriteFile(file, good[1:], 0o600) }, "", "32 characters of base64url and a line feed", refusal.Check("password-file")},
		"a folder that others write": {"", func(_ *testing.T, file string) error { return os.Chmod(filepath.Dir(file), 0o770) }, "", "file", refusal.Check("file")},
		"no folder above it":         {"", nil, "/nonexistent/tpm/password", "/nonexistent/tpm", fs.ErrNotExist},
		"a read-only disk":           {"", nil, disk + "/tpm/password", "read-only file system", syscall.EROFS},
	} {
		t.Run(name, func(t *testing.T) {
			if name == "another user's file" && os.Geteuid() != 0 {
				t.Skip("giving a file away takes root")
			}
			file := row.file
			if file == "" {
				file = filepath.Join(mounttest.Disk(t), "password")
			}
			if row.prepare != nil {
				testkit.MustDo(row.prepare(t, file))
			}
			tpmlab.SetHierarchyPassword(t, device, tpm2.TPMRHEndorsement, nil, []byte(row.theirs))
			before, _ := os.ReadFile(file)
			for range 5 {
				err := opens(t, managedBy(device, file))
				if !errors.Is(err, row.is) || !strings.Contains(err.Error(), row.want) || strings.Contains(err.Error(), string(good[:32])) {
					t.Fatalf("got %v, want an error with %q", err, row.want)
				}
			}
			if after, _ := os.ReadFile(file); !bytes.Equal(after, before) {
				t.Errorf("the file has %q, and had %q", after, before)
			}
			if n := wrongPasswords(t, device); n != 0 || !makesAK(t, device, []byte(row.theirs)) {
				t.Errorf("the TPM counts %d wrong passwords, or has another one", n)
			}
			tpmlab.SetHierarchyPassword(t, device, tpm2.TPMRHEndorsement, []byte(row.theirs), nil)
		})
	}
	writable() // and then it goes on
	if err := opens(t, managedBy(device, disk+"/tpm/password")); err != nil || makesAK(t, device, nil) {
		t.Errorf("got %v", err)
	}
}

// readOnly returns a directory under another path, where it is read-only until the function is called.
func readOnly(t *testing.T, dir string) (path string, writable func()) {
	t.Helper()
	path = t.TempDir()
	err := syscall.Mount(dir, path, "", syscall.MS_BIND, "")
	if errors.Is(err, syscall.EPERM) {
		t.Skip("a mount takes root")
	}
	testkit.MustDo(err)
	t.Cleanup(func() { testkit.MustDo(syscall.Unmount(path, syscall.MNT_DETACH)) })
	set := func(flags uintptr) {
		testkit.MustDo(syscall.Mount("", path, "", syscall.MS_REMOUNT|syscall.MS_BIND|flags, ""))
	}
	set(syscall.MS_RDONLY)
	return path, func() { set(0) }
}

// TestPasswordPage runs the commands of docs/kinds-of-evidence.md: the password is emptied, the TPM
// is cleared, and then no other program can clear it.
func TestPasswordPage(t *testing.T) {
	page := testkit.Must(os.ReadFile(filepath.Join("..", "..", "..", "docs", "kinds-of-evidence.md")))
	lines := regexp.MustCompile(`(?m)^(tpm2_|head ).*$`).FindAllString(string(page), -1)
	if len(lines) != 3 {
		t.Fatalf("the page has %q", lines)
	}
	x := tpmlab.StartTools(t)
	file, lockout := filepath.Join(x.Dir, "tpm", "password"), filepath.Join(x.Dir, "lockout")
	x.Write("lockout", []byte("lockout\n"))
	at := strings.NewReplacer(defaultPassword, file, "/root/tpm-lockout-password", lockout)
	shell := func(line string) ([]byte, error) {
		cmd := exec.CommandContext(t.Context(), "sh", "-c", line)
		cmd.Env = x.Env
		return cmd.CombinedOutput()
	}
	for n, line := range lines {
		if err := opens(t, managedBy(x.TPM, file)); err != nil || makesAK(t, x.TPM, nil) {
			t.Fatalf("before %s: %v", line, err)
		}
		if n == 1 {
			testkit.MustDo(os.Remove(file))
		}
		if out, err := shell(at.Replace(line)); err != nil {
			t.Fatalf("%s: %v: %s", line, err, out)
		}
		if open := n < 2; makesAK(t, x.TPM, nil) != open {
			t.Errorf("after %s the hierarchy is open: want %t", line, open)
		}
	}
	if out, err := shell(lines[1]); err == nil {
		t.Errorf("%s: %s", lines[1], out)
	}
}

// TestPasswordSettings reads who makes the password, and where it is.
func TestPasswordSettings(t *testing.T) {
	theirs := written(t, "theirs", []byte("theirs\n"))
	for section, want := range map[string]struct {
		kept passwordFile
		err  string
	}{
		"{}": {},
		"{endorsementPasswordFile: " + theirs + "}":                                                                        {},
		"{endorsementPassword: managed}":                                                                                   {kept: "/var/lib/nodeattest-tpm/endorsement-password"},
		"{endorsementPassword: managed, endorsementPasswordFile: /a/../b}":                                                 {kept: "/b"},
		"{endorsementPassword: managed, ak: gce-ecc}":                                                                      {kept: defaultPassword},
		"{endorsementPassword: managed, ak: oem}":                                                                          {kept: defaultPassword},
		"{endorsementPassword: managed, ak: " + operatorsKey() + "}":                                                       {kept: defaultPassword},
		"{endorsementPassword: Managed}":                                                                                   {err: `evidence.tpm.endorsementPassword "Managed", want managed, or ""`},
		"{endorsementPassword: s3cret}":                                                                                    {err: "put a password into endorsementPasswordFile"},
		"{endorsementPassword: managed, endorsementPasswordFile: b}":                                                       {err: `evidence.tpm.endorsementPasswordFile "b", want an absolute path`},
		"{endorsementPassword: managed, ak: azure-rsa}":                                                                    {err: "without the hierarchy's password"},
		`{endorsementPassword: managed, ak: {handle: "0x81020001", certificateIndex: "0x01800a00"}}`:                       {err: "without the hierarchy's password"},
		"{endorsementPassword: managed, endorsementPasswordFile: /var/lib/kubelet-authenticator/password}":                 {err: "a file outside /var/lib/kubelet-authenticator"},
		"{endorsementPassword: managed, endorsementPasswordFile: /var/lib/kubelet-authenticator/../../lib/other/password}": {kept: "/var/lib/other/password"},
	} {
		c, err := configOf(section)
		if (err == nil) != (want.err == "") || err != nil && !strings.Contains(err.Error(), want.err) {
			t.Errorf("%s: got %v, want %q", section, err, want.err)
		} else if got := keptPassword(c.Kind); err == nil && got != want.kept {
			t.Errorf("%s: got %q, want %q", section, got, want.kept)
		}
	}
}

// TestStatusOfPassword: status shows the file of the password, and never the password.
func TestStatusOfPassword(t *testing.T) {
	dir := mounttest.Disk(t)
	file := filepath.Join(dir, "tpm", "password")
	config := written(t, "config.yaml", []byte("apiVersion: "+configfile.APIVersion+"\nkind: "+settingsKind+"\nnodeName: node-1\nstateDir: "+filepath.Join(dir, "state")+
		"\nkubeconfig: /nonexistent\nevidence: {tpm: {endorsementPassword: managed, endorsementPasswordFile: "+file+"}}\nkubelet: {processes: false, flagFiles: []}\n"))
	status := func(form string) string {
		t.Helper()
		var out, errs bytes.Buffer
		if err := run(t.Context(), []string{"-config", config, "status", "-o", form}, &out, &errs, nil); !errors.Is(err, errNotUsable) {
			t.Fatalf("%v: %s", err, &errs)
		}
		if strings.Contains(out.String(), "pppp") {
			t.Errorf("it shows the password: %s", &out)
		}
		return out.String()
	}
	if got := status("text"); !strings.Contains(got, "TPM's endorsement password: not set yet; it will be in "+file+"\n") {
		t.Errorf("before: %s", got)
	}
	testkit.MustDo(errors.Join(os.Mkdir(filepath.Dir(file), 0o700), os.WriteFile(file, []byte(strings.Repeat("p", 32)+"\n"), 0o600)))
	if got := status("text"); !strings.Contains(got, "TPM's endorsement password: set, in "+file+"\n") || strings.Contains(got, "endorsement password in") {
		t.Errorf("with a file: %s", got)
	}
	testkit.MustDo(os.Chmod(file, 0o644))
	var got struct {
		NodeName, EndorsementPassword string
		Problems                      []string
	}
	if err := json.Unmarshal([]byte(status("json")), &got); err != nil || got.NodeName != "node-1" || got.EndorsementPassword != "in "+file ||
		!strings.Contains(strings.Join(got.Problems, "\n"), "endorsement password in "+file+": file: got mode -rw-r--r--, want 0600") {
		t.Errorf("a file that others may read: %+v, %v", got, err)
	}
}

// TestManagedPasswordInMemory: the program makes no password where a restart of the machine loses it.
// The hierarchy is as it was, and the TPM counts no wrong password.
func TestManagedPasswordInMemory(t *testing.T) {
	if !mounttest.Enter(t) {
		return
	}
	dir := mounttest.Disk(t)
	device := tpmsim.Swtpm(t, tpmsim.Options{})
	for name, in := range mounttest.InMemory(t, dir) {
		folder := filepath.Join(in, "nodeattest-tpm")
		file := filepath.Join(folder, "endorsement-password")
		if err := opens(t, managedBy(device, file)); !errors.Is(err, refusal.Check("file")) {
			t.Errorf("%s: got %v", name, err)
		} else if !strings.Contains(err.Error(), "endorsementPasswordFile") {
			t.Errorf("%s: the error does not say which field: %v", name, err)
		}
		if _, err := os.Stat(folder); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: there is a folder: %v", name, err)
		}
		if _, err := passwordFile(file).state(); !errors.Is(err, refusal.Check("file")) {
			t.Errorf("%s: status: got %v", name, err)
		}
		if !makesAK(t, device, nil) || wrongPasswords(t, device) != 0 {
			t.Errorf("%s: the TPM has another password, or counts %d wrong ones", name, wrongPasswords(t, device))
		}
	}
	if err := opens(t, managedBy(device, filepath.Join(dir, "over-disk", "tpm", "password"))); err != nil {
		t.Errorf("an overlay over a disk: %v", err)
	}
	if makesAK(t, device, nil) {
		t.Error("there is no password")
	}
}
