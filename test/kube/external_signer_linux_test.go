package kube

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nodeattest/nodeattest/test/controlplane"
)

// signerClient is a client of the external signer's socket: it prints "served" if the server begins to speak
// HTTP/2, and "disconnected" if it hangs up.
const signerClient = `import socket
s = socket.socket(socket.AF_UNIX)
s.settimeout(20)
s.connect("/run/external-jwt-signer/socket")
try:
    s.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0")
    print("served" if s.recv(9) else "disconnected")
except (ConnectionResetError, BrokenPipeError):
    print("disconnected")
`

// TestExternalSignerUnits runs external-jwt-signer with its units and its configuration file, as they are in
// externalsigner/deploy, under systemd: root is served, also by a call that it makes while the program is dead,
// and the program's own user is not.
func TestExternalSignerUnits(t *testing.T) {
	t.Parallel()
	const deploy = "../../externalsigner/deploy/"
	b := startBox(t, "signer", boxNeeds(t, 2), filepath.Join(t.TempDir(), "no-tpm"))
	log := filepath.Join(b.dir, "external-jwt-signer.log")
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("%s", controlplane.Tail(log))
		}
	})
	b.put(t, "/usr/local/bin/external-jwt-signer", 0o755, read(t, buildFolder(t, "../externalsigner/cmd/external-jwt-signer")))
	for from, to := range map[string]string{
		"config.yaml": "/etc/external-jwt-signer/config.yaml", "external-jwt-signer.sysusers": "/etc/sysusers.d/external-jwt-signer.conf",
		"external-jwt-signer.service": "/etc/systemd/system/external-jwt-signer.service",
		"external-jwt-signer.socket":  "/etc/systemd/system/external-jwt-signer.socket",
	} {
		b.put(t, to, 0o644, read(t, deploy+from))
	}
	b.put(t, "/etc/systemd/system/external-jwt-signer.service.d/log.conf", 0o644,
		fmt.Appendf(nil, "[Service]\nStandardOutput=append:%s\nStandardError=append:%[1]s\n", log))
	b.put(t, "/etc/client.py", 0o644, []byte(signerClient))
	b.run(t, `systemd-sysusers
(umask 077; openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out /etc/external-jwt-signer/key.pem)
chown external-jwt-signer /etc/external-jwt-signer/key.pem
systemctl daemon-reload
systemctl start external-jwt-signer.socket`)
	dial := func(as string) string {
		t.Helper()
		return strings.TrimSpace(b.run(t, as+"/usr/bin/python3 /etc/client.py"))
	}
	if got := dial(""); got != "served" {
		t.Errorf("root, whose connection starts the service: %s", got)
	}
	if got := dial("runuser -u external-jwt-signer -- "); got != "disconnected" {
		t.Errorf("the program's own user: %s", got)
	}
	const get = "/usr/bin/python3 -c 'import sys, urllib.request as u; print(u.urlopen(sys.argv[1]).read().decode())' http://127.0.0.1:8086/"
	for command, want := range map[string]string{
		"stat -c '%a %U' /run/external-jwt-signer":                "700 external-jwt-signer",
		"stat -c '%a %U' /var/lib/external-jwt-signer/state.json": "600 external-jwt-signer",
		get + "readyz": "ok",
		get + "metrics | grep -o 'user not allowed.*'":                                      `user not allowed"} 1`,
		"grep -c Seccomp:.*2 /proc/$(systemctl show -P MainPID external-jwt-signer)/status": "1",
	} {
		if got := strings.TrimSpace(b.run(t, command)); got != want {
			t.Errorf("%s: %s, want %s", command, got, want)
		}
	}

	b.run(t, "systemctl kill -s KILL external-jwt-signer")
	if got := dial(""); got != "served" {
		t.Errorf("a client while the program is dead: %s", got)
	}
	b.run(t, "echo >>/etc/external-jwt-signer/config.yaml; chmod 0750 /run/external-jwt-signer")
	if got := dial(""); got != "disconnected" {
		t.Errorf("with a folder that others can read: %s", got)
	}
	b.run(t, "chmod 0700 /run/external-jwt-signer")
	eventually(t, func() error { // as its configuration has changed
		if n := strings.TrimSpace(b.run(t, "systemctl show -P NRestarts external-jwt-signer")); n != "2" {
			return fmt.Errorf("%s restarts: %w", n, errNotYet)
		}
		return nil
	})
	if got := dial(""); got != "served" {
		t.Errorf("after the restart: %s", got)
	}
}
