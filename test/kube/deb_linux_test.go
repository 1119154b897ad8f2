package kube

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nodeattest/nodeattest/test/controlplane"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// debOf makes a package as scripts/release.sh does, of the folder of an archive with this tree's program.
func debOf(t *testing.T, version string) []byte {
	t.Helper()
	folder, path := t.TempDir(), filepath.Join(t.TempDir(), "made.deb")
	if err := os.CopyFS(filepath.Join(folder, "node"), os.DirFS(filepath.Join(root, "kube", "deploy", "node"))); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(buildProgram(t, "kubelet-authenticator"), filepath.Join(folder, "kubelet-authenticator")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"LICENSE", "THIRD_PARTY", "sbom.cdx.json"} {
		controlplane.Write(t, folder, name, []byte(name))
	}
	cmd := exec.Command("go", "run", "-C", filepath.Join(root, "tools"), "./deb", "-o", path, "-version", version, "-arch", "amd64", folder)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%q: %v: %s", cmd.Args, err, out)
	}
	return read(t, path)
}

// withDocs gives a machine a folder of its own for the examples of packages.
func (b *box) withDocs(t *testing.T) {
	t.Helper()
	b.run(t, "mount -t tmpfs none /usr/share/doc")
}

// dpkgState prints the files that a package must leave alone: configuration, keys, passwords and drop-ins.
const dpkgState = "find /etc/kubernetes /var/lib/nodeattest-tpm /var/lib/kubelet-authenticator/kept.pem /etc/systemd/system/kubelet-authenticator.service.d -type f | sort | " +
	"xargs -I FILE sh -c 'sha256sum FILE; stat -c \"%a %U\" FILE'"

// TestDeb installs, upgrades, removes and purges the package of the kubelet-authenticator on a machine with
// systemd. It enables nothing, and loses no key, no configuration and no drop-in.
func TestDeb(t *testing.T) {
	t.Parallel()
	g := boxNeeds(t, 2)
	device := tpmsim.Swtpm(t, tpmsim.Options{PersistEKs: true})
	m := &member{box: startBox(t, "deb-1", g, strings.TrimPrefix(device.TCTI(), "swtpm:path=")), c: &cluster{url: "https://127.0.0.1:1"}, device: device}
	m.withDocs(t)
	m.put(t, "/var/cache/old.deb", 0o644, debOf(t, "v1.0.0-rc.1"))
	m.put(t, "/var/cache/new.deb", 0o644, debOf(t, "v1.0.0"))

	m.run(t, "dpkg -i /var/cache/old.deb")
	m.is(t, map[string]string{
		"systemctl is-enabled kubelet-authenticator || true":                                     "disabled",
		"systemctl is-active kubelet-authenticator || true":                                      "inactive",
		"dpkg -L kubelet-authenticator | grep -E '^/(etc|usr/local|var)' || true":                "",
		"dpkg-query -W -f '${Version}${Conffiles}' kubelet-authenticator":                        "1.0.0~rc.1",
		"dpkg --verify kubelet-authenticator":                                                    "",
		"systemctl show -P FragmentPath kubelet-authenticator | sed 's,^/usr,,'":                 "/lib/systemd/system/kubelet-authenticator.service",
		"ls /usr/share/doc/kubelet-authenticator/examples | tr '\\n' ' '":                        "10-kubeadm.conf kubelet-authenticator.conf kubelet-authenticator.yaml kubelet.conf",
		"grep -c /usr/bin/kubelet-authenticator /usr/share/doc/*/examples/kubelet.conf":          "1",
		"grep -rlE 'systemctl.* (enable|start|unmask)' /var/lib/dpkg/info/kubelet-auth* || true": "",
	})

	m.installExamples(t, "")
	m.put(t, "/etc/kubernetes/pki/ca.crt", 0o644, controlplane.CertificatePEM(controlplane.NewAuthority(t).Cert))
	m.run(t, `mkdir -p /etc/systemd/system/kubelet-authenticator.service.d /var/lib/kubelet-authenticator /var/lib/nodeattest-tpm
printf '[Service]\nEnvironment=A=b\n' >/etc/systemd/system/kubelet-authenticator.service.d/mine.conf
(umask 077; echo key >/var/lib/kubelet-authenticator/kept.pem; echo password >/var/lib/nodeattest-tpm/endorsement-password)
systemctl daemon-reload
systemctl enable kubelet-authenticator
systemctl --no-block start kubelet-authenticator`)
	first, state := m.mainPID(t, "0"), m.run(t, dpkgState)
	stayed := func(after string) {
		t.Helper()
		if now := m.run(t, dpkgState); now != state {
			t.Errorf("after %s:\n%s\nwant\n%s", after, now, state)
		}
	}

	m.run(t, "dpkg -i /var/cache/new.deb")
	m.mainPID(t, first)
	m.is(t, map[string]string{
		"dpkg-query -W -f '${Version}' kubelet-authenticator": "1.0.0",
		"systemctl is-enabled kubelet-authenticator":          "enabled",
	})
	stayed("an upgrade")

	m.run(t, "dpkg -r kubelet-authenticator")
	m.is(t, map[string]string{
		"systemctl show -P MainPID kubelet-authenticator":                                                             "0",
		"ls /usr/bin/kubelet-authenticator /usr/lib/systemd/system/kubelet-authenticator.service 2>/dev/null || true": "",
		"pgrep -x kubelet-authent || true":                                                                            "",
	})
	stayed("a removal")
	m.run(t, "dpkg -i /var/cache/new.deb")
	m.is(t, map[string]string{"systemctl is-enabled kubelet-authenticator": "enabled", "systemctl is-active kubelet-authenticator || true": "inactive"})

	said := m.run(t, "dpkg -P kubelet-authenticator 2>&1")
	for _, folder := range []string{"/var/lib/kubelet-authenticator", "/var/lib/nodeattest-tpm", "/etc/kubernetes"} {
		if !strings.Contains(said, folder+" stays") {
			t.Errorf("a purge does not name %s: %s", folder, said)
		}
	}
	m.is(t, map[string]string{"ls /etc/systemd/system/*.wants 2>/dev/null | grep kubelet-auth || true": "", "dpkg-query -W kubelet-authenticator 2>/dev/null || true": ""})
	stayed("a purge")
}

// is holds the outputs of commands, without space around them, to the right ones.
func (m *member) is(t *testing.T, want map[string]string) {
	t.Helper()
	for command, want := range want {
		if got := strings.TrimSpace(m.run(t, command)); got != want {
			t.Errorf("%s: %q, want %q", command, got, want)
		}
	}
}

// mainPID waits until the service has another process than before, and returns it.
func (m *member) mainPID(t *testing.T, before string) (now string) {
	t.Helper()
	m.eventually(t, func() error {
		if now = strings.TrimSpace(m.run(t, "systemctl show -P MainPID kubelet-authenticator")); now == before || now == "0" {
			return fmt.Errorf("process %s: %w", now, errNotYet)
		}
		return nil
	})
	return now
}

// installExamples copies the package's examples as docs/install.md does, and makes the changes that a machine needs.
func (m *member) installExamples(t *testing.T, token string) {
	t.Helper()
	blocks := partOfPage(t, "install.md", "sh").steps(t, "A node")
	m.run(t, blocks[1])
	change := m.changes(t, token)
	for _, name := range []string{"kubelet-authenticator.yaml", "kubelet-authenticator.conf", "kubelet.conf"} {
		path := "/etc/kubernetes/" + name
		m.put(t, path, 0o600, []byte(change.Replace(m.run(t, "cat "+path))))
	}
}
