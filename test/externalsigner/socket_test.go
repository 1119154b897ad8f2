package externalsigner

import (
	"context"
	"crypto/elliptic"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	externaljwt "k8s.io/externaljwt/apis/v1"

	"github.com/nodeattest/nodeattest/attest/tpm/tpmkey"
	"github.com/nodeattest/nodeattest/claims"
	"github.com/nodeattest/nodeattest/claims/apiserver"
	"github.com/nodeattest/nodeattest/test/controlplane"
)

// socketClient connects to the Unix socket that is its argument, "@" for an abstract name, begins as a client of
// HTTP/2 does, and says whether the server replies or hangs up.
const socketClient = `
import socket, sys
s = socket.socket(socket.AF_UNIX)
s.settimeout(20)
try:
    s.connect(sys.argv[1].replace("@", "\0", 1))
    s.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0")
    print("served" if s.recv(9) else "disconnected")
except (ConnectionResetError, BrokenPipeError):
    print("disconnected")
except OSError as e:
    print(e.strerror)
`

// socketDial runs socketClient as a user, with the python3 of the distribution, which other users reach, by a
// wrapper such as unshare. It returns what the client says, and the number of its process.
func socketDial(t *testing.T, uid uint32, path string, wrapper ...string) (said string, pid int) {
	t.Helper()
	args := append(slices.Clone(wrapper), "/usr/bin/python3", "-c", socketClient, path)
	cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}, Pdeathsig: syscall.SIGKILL}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return strings.TrimSpace(string(out)), cmd.Process.Pid
}

// socketLog is the signer's log.
func (s *signer) socketLog(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(s.log)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// socketMetrics are the signer's metrics.
func (s *signer) socketMetrics(t *testing.T) string {
	t.Helper()
	var text []byte
	eventually(t, func() error {
		r, err := http.Get(s.status + "/metrics")
		if err != nil {
			return err
		}
		defer r.Body.Close()
		text, err = io.ReadAll(r.Body)
		return err
	})
	return string(text)
}

// socketRefused fails the test unless the signer has logged and counted that it refused one client.
func (s *signer) socketRefused(t *testing.T, uid uint32, pid int) {
	t.Helper()
	eventually(t, func() error {
		want := fmt.Sprintf(`"reason":"user not allowed","uid":%d,"pid":%d,`, uid, pid)
		for line := range strings.Lines(s.socketLog(t)) {
			if strings.Contains(line, want) {
				t.Log(strings.TrimSpace(line))
				return nil
			}
		}
		return fmt.Errorf("no line with %s in the log:\n%s", want, s.socketLog(t))
	})
	for line := range strings.Lines(s.socketMetrics(t)) {
		if strings.Contains(line, `refused_clients_total{reason="user not allowed"}`) {
			t.Log(strings.TrimSpace(line))
			if !strings.HasSuffix(line, " 1\n") {
				t.Error("counted otherwise")
			}
			return
		}
	}
	t.Error("not counted")
}

// TestSocket: the program serves root, and refuses another user at its socket and at an abstract name, sockets in
// folders that others can change, and the 65th call that waits.
func TestSocket(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root: processes of other users")
	}
	t.Run("another user", testSocketUser)
	t.Run("abstract name", testSocketAbstract)
	t.Run("folders", testSocketFolders)
	t.Run("waiting calls", testSocketWaiting)
}

// testSocketUser: the signer's own user reaches the socket, and is refused, as root alone is allowed.
func testSocketUser(t *testing.T) {
	const uid = 4242
	dir := signerFolder(t)
	key := filepath.Join(dir, "key.pem")
	writeKey(t, key, newECDSA(t, elliptic.P256()))
	s := newSigner(t, signerProgram(t), dir, map[string]any{"keyFile": key, "allowedUIDs": []int{}})
	socketGive(t, dir, uid)
	as := []string{"--reuid", strconv.Itoa(uid), "--regid", strconv.Itoa(uid), "--clear-groups", "--bounding-set=-all", s.path}
	s.args = append(as, s.args...)
	s.path = "/usr/bin/setpriv"
	socketReachable(t, signerProgram(t))
	s.begin(t)

	if said, _ := socketDial(t, 0, s.socket); said != "served" {
		t.Errorf("root: %s\n%s", said, s.socketLog(t))
	}
	said, pid := socketDial(t, uid, s.socket)
	if said != "disconnected" {
		t.Errorf("user %d: %s", uid, said)
	}
	s.socketRefused(t, uid, pid)
	if said, _ := socketDial(t, uid+1, s.socket); said != "Permission denied" {
		t.Errorf("a user whom the folder keeps away: %s", said)
	}
}

// socketGive gives a folder to a user.
func socketGive(t *testing.T, dir string, uid int) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(path, uid, uid)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// socketReachable lets other users run a program in a folder of this user's.
func socketReachable(t *testing.T, program string) {
	t.Helper()
	if err := os.Chmod(filepath.Dir(program), 0o755); err != nil {
		t.Fatal(err)
	}
}

// testSocketAbstract: a process in the host's network reaches the name, and is refused unless its user is allowed.
// A process in another network does not reach it.
func testSocketAbstract(t *testing.T) {
	dir := signerFolder(t)
	key := filepath.Join(dir, "key.pem")
	writeKey(t, key, newECDSA(t, elliptic.P256()))
	name := "nodeattest-" + strconv.Itoa(os.Getpid())
	s := newSigner(t, signerProgram(t), dir, map[string]any{"keyFile": key, "insecureAbstract": name, "socket": ""})
	s.launch(t)
	t.Cleanup(func() { controlplane.Stop(t, s.name, s.log, s.cmd, s.done) })
	eventually(t, func() error {
		if said, _ := socketDial(t, 0, "@"+name); said != "served" {
			return fmt.Errorf("root: %s", said)
		}
		return nil
	})
	said, pid := socketDial(t, 4242, "@"+name)
	if said != "disconnected" {
		t.Errorf("user 4242: %s", said)
	}
	s.socketRefused(t, 4242, pid)
	if said, _ := socketDial(t, 0, "@"+name, "unshare", "--net"); said != "Connection refused" {
		t.Errorf("another network: %s", said)
	}
}

// testSocketFolders: the program ends for a folder that is a link, or that a group can write to, and for a
// socket of systemd in one. It serves once the folder has mode 0700.
func testSocketFolders(t *testing.T) {
	program := signerProgram(t)
	for name, row := range map[string]struct {
		change func(t *testing.T, folder string)
		want   string
	}{
		"a link": {func(t *testing.T, folder string) {
			if err := os.Rename(folder, folder+"2"); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(folder+"2", folder); err != nil {
				t.Fatal(err)
			}
		}, "symbolic link"},
		"mode 0770": {func(t *testing.T, folder string) {
			if err := os.Chmod(folder, 0o770); err != nil {
				t.Fatal(err)
			}
		}, "drwxrwx---"},
		"mode 0700": {func(*testing.T, string) {}, ""},
	} {
		for _, wrapper := range []string{"", "systemd-socket-activate"} {
			t.Run(strings.TrimSpace(name+" "+wrapper), func(t *testing.T) {
				dir := signerFolder(t)
				key := filepath.Join(dir, "key.pem")
				writeKey(t, key, newECDSA(t, elliptic.P256()))
				s := newSigner(t, program, dir, map[string]any{"keyFile": key})
				row.change(t, filepath.Dir(s.socket))
				if wrapper != "" { // which starts the program for the first client
					s.args = append([]string{"-l", s.socket, s.path}, s.args...)
					s.path = wrapper
				}
				s.launch(t)
				t.Cleanup(func() { controlplane.Stop(t, s.name, s.log, s.cmd, s.done) })
				s.awaitSocketOrEnd(t)
				said, _ := socketDial(t, 0, s.socket)
				if row.want == "" {
					if said != "served" {
						t.Errorf("%s\n%s", said, s.socketLog(t))
					}
					return
				}
				select {
				case <-s.done:
				case <-time.After(controlplane.Patience):
					t.Fatal("the program does not end")
				}
				text := s.socketLog(t)
				if status := s.cmd.ProcessState.ExitCode(); status != 1 || said == "served" || !strings.Contains(text, row.want) {
					t.Errorf("status %d, the client is %s, want %q:\n%s", status, said, row.want, text)
				}
				t.Log(strings.TrimSpace(text[strings.LastIndex(strings.TrimSpace(text), "\n")+1:]))
			})
		}
	}
}

// awaitSocketOrEnd waits until there is a socket, or the program has ended.
func (s *signer) awaitSocketOrEnd(t *testing.T) {
	t.Helper()
	eventually(t, func() error {
		select {
		case <-s.done:
			return nil
		default:
		}
		_, err := os.Stat(s.socket)
		return err
	})
}

// testSocketWaiting: while the TPM does not answer, 64 calls wait, and the 65th is refused at once; keys are
// still to be had. All 64 get their signature when the TPM answers again.
func testSocketWaiting(t *testing.T) {
	const waiting = 64
	dir, device := signerFolder(t), newTPM(t)
	key := filepath.Join(dir, "key")
	device.writeKey(t, key, tpmkey.ECDSAP256)
	gate := socketGate(t, filepath.Join(dir, "tpm"), device.path)
	s := startSigner(t, dir, map[string]any{"tpm": map[string]any{"device": filepath.Join(dir, "tpm"), "keyFile": key}, "callTimeout": "1m"})
	conn, err := grpc.NewClient("unix://"+s.socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	c, request := externaljwt.NewExternalJWTSignerClient(conn), &externaljwt.SignJWTRequest{Claims: socketClaims(t)}
	eventually(t, func() error { _, err := c.Sign(t.Context(), request); return err })

	gate.Lock()
	var calls sync.WaitGroup
	var failed [waiting]error
	for i := range failed {
		calls.Go(func() { _, failed[i] = c.Sign(context.Background(), request) })
	}
	eventually(t, func() error {
		if !strings.Contains(s.socketMetrics(t), fmt.Sprintf("waiting_calls %d\n", waiting)) {
			return fmt.Errorf("not all calls wait")
		}
		return nil
	})
	began := time.Now()
	_, err = c.Sign(t.Context(), request)
	if status.Code(err) != codes.ResourceExhausted || time.Since(began) > 5*time.Second {
		t.Errorf("the 65th call: %v after %s", err, time.Since(began))
	}
	t.Logf("the 65th call: %v", err)
	if _, err := c.FetchKeys(t.Context(), new(externaljwt.FetchKeysRequest)); err != nil {
		t.Errorf("keys: %v", err)
	}
	gate.Unlock()
	calls.Wait()
	for i, err := range failed {
		if err != nil {
			t.Errorf("call %d: %v", i, err)
		}
	}
	if _, err := c.Sign(t.Context(), request); err != nil {
		t.Errorf("afterwards: %v", err)
	}
	for _, line := range []string{`calls_total{method="Sign",code="ResourceExhausted"} 1`, "waiting_calls 0"} {
		if !strings.Contains(s.socketMetrics(t), line+"\n") {
			t.Errorf("no %s in the metrics:\n%s", line, s.socketMetrics(t))
		}
	}
	if text := s.socketLog(t); !strings.Contains(text, `"code":"ResourceExhausted"`) {
		t.Errorf("not logged:\n%s", text)
	}
}

// socketGate listens at a path for a TPM's clients, and passes commands on while the lock is free.
func socketGate(t *testing.T, path, device string) *sync.Mutex {
	t.Helper()
	gate := new(sync.Mutex)
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			tpm, err := net.Dial("unix", device)
			if err != nil {
				client.Close()
				continue
			}
			go func() { _, _ = io.Copy(client, tpm); client.Close() }()
			go func() { _, _ = io.Copy(gated{tpm, gate}, client); tpm.Close() }()
		}
	}()
	return gate
}

// gated writes while a lock is free.
type gated struct {
	io.Writer
	gate *sync.Mutex
}

func (g gated) Write(p []byte) (int, error) {
	g.gate.Lock()
	defer g.gate.Unlock()
	return g.Writer.Write(p)
}

// socketClaims are claims of a pod's token, as kube-apiserver has them signed.
func socketClaims(t *testing.T) string {
	t.Helper()
	c, err := apiserver.NewClaims(apiserver.Bound{
		ServiceAccount: &claims.Object{Namespace: "shop", Name: "cart", UID: "4c2a"},
		Pod:            &claims.Object{Namespace: "shop", Name: "cart-0", UID: "9f31"},
	}, 3607, 0, []string{controlplane.Issuer}, "a1e1c1b5-5a5e-4d5e-8f5e-0123456789ab", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	c.Issuer = controlplane.Issuer
	payload, err := c.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return base64.RawURLEncoding.EncodeToString(payload)
}
