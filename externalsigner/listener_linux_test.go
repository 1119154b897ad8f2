package externalsigner

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	externaljwt "k8s.io/externaljwt/apis/v1"

	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/refusal"
)

// TestMain is a process of another user, or one that systemd has passed a socket, where a test starts it.
func TestMain(m *testing.M) {
	switch os.Getenv("EXTERNALSIGNER_TEST") {
	case "client":
		os.Exit(beClient(os.Getenv("EXTERNALSIGNER_SOCKET")))
	case "activated":
		os.Exit(beActivated(os.Getenv("EXTERNALSIGNER_SOCKET")))
	case "killed":
		l := testkit.Must(Listen(os.Getenv("EXTERNALSIGNER_SOCKET")))
		fmt.Println("listens")
		_, _ = io.ReadAll(os.Stdin)
		_ = l.Close()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// beClient exits with 0 if the server replies, and with 3 if it hangs up.
func beClient(path string) int {
	c, err := net.Dial("unix", path)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 4
	}
	testkit.MustDo(c.SetDeadline(time.Now().Add(20 * time.Second)))
	_, _ = io.WriteString(c, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00") // and empty settings
	if n, _ := c.Read(make([]byte, 9)); n > 0 {
		return 0
	}
	return 3
}

// beActivated takes over the socket, if it is passed for this process.
func beActivated(path string) int {
	if os.Getenv("LISTEN_PID") == "self" {
		testkit.MustDo(os.Setenv("LISTEN_PID", strconv.Itoa(os.Getpid())))
	}
	l, err := Listen(path)
	if err != nil {
		fmt.Println(err)
		return 1
	}
	if os.Getenv("LISTEN_FDS") != "" {
		fmt.Println("LISTEN_FDS is still there")
	}
	fmt.Printf("lock %t\n", l.lock != nil)
	c, err := l.bare.Accept()
	if err == nil {
		_, err = io.WriteString(c, "x")
	}
	fmt.Println(err, l.Close())
	return 0
}

// child makes a process of this test's program.
func child(t testing.TB, what, path string, uid uint32) *exec.Cmd {
	t.Helper()
	program := testkit.Must(os.Executable())
	if uid != 0 { // which cannot read the folders of go test
		folder := newFolder(t)
		testkit.MustDo(os.Chmod(folder, 0o755))
		copied := filepath.Join(folder, "test")
		testkit.MustDo(os.WriteFile(copied, testkit.Must(os.ReadFile(program)), 0o755))
		program = copied
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, program)
	cmd.Env = append(os.Environ(), "EXTERNALSIGNER_TEST="+what, "EXTERNALSIGNER_SOCKET="+path)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}, Pdeathsig: syscall.SIGKILL}
	return cmd
}

// asRoot skips a test that needs processes of other users.
func asRoot(t testing.TB) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root: run the test as root")
	}
}

// TestUsers: users that are in the list are served, and others disconnected, logged with their numbers and
// counted.
func TestUsers(t *testing.T) {
	asRoot(t)
	name := "externalsigner-test-" + strconv.Itoa(os.Getpid())
	s := serve(t, ServerConfig{AllowedUIDs: []uint32{4242}}, testkit.Must(ListenInsecureAbstract(name)))
	if err := child(t, "client", "@"+name, 4242).Run(); err != nil {
		t.Errorf("the allowed user: %v\n%s", err, s.log)
	}
	if s.log.String() != "" {
		t.Errorf("logged: %s", s.log)
	}
	for _, uid := range []uint32{0, 4243} {
		cmd := child(t, "client", "@"+name, uid)
		if err := cmd.Run(); cmd.ProcessState.ExitCode() != 3 {
			t.Errorf("user %d: %v", uid, err)
		}
		want(t, "log", s.log.String(), fmt.Sprintf(`msg="client refused: its connection is closed" reason="user not allowed" uid=%d pid=%d`,
			uid, cmd.Process.Pid))
	}
	s.wantMetrics(t, `refused_clients_total{reason="user not allowed"} 2`)
	testkit.NoError(t, s.Ready(t.Context()))

	if _, err := ListenInsecureAbstract(name); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("a second one: %v", err)
	}
	for _, bad := range []string{"", "@a", "a\x00b", strings.Repeat("a", 107)} {
		if _, err := ListenInsecureAbstract(bad); !errors.Is(err, refusal.CheckConfig) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// TestRootAlone: the default is root.
func TestRootAlone(t *testing.T) {
	asRoot(t)
	name := "externalsigner-root-" + strconv.Itoa(os.Getpid())
	serve(t, ServerConfig{}, testkit.Must(ListenInsecureAbstract(name)))
	testkit.NoError(t, child(t, "client", "@"+name, 0).Run())
	if cmd := child(t, "client", "@"+name, 1000); cmd.Run() == nil || cmd.ProcessState.ExitCode() != 3 {
		t.Errorf("user 1000: %v", cmd.ProcessState)
	}
}

// TestFolderRefused makes the smallest changes to a good folder.
func TestFolderRefused(t *testing.T) {
	for name, row := range map[string]struct {
		change func(above, folder string) string // returns the folder to listen in
		want   string
	}{
		"group reads":     {func(_, f string) string { testkit.MustDo(os.Chmod(f, 0o740)); return f }, "0700"},
		"group writes":    {func(_, f string) string { testkit.MustDo(os.Chmod(f, 0o770)); return f }, "its owner can write to"},
		"others pass":     {func(_, f string) string { testkit.MustDo(os.Chmod(f, 0o701)); return f }, "0700"},
		"owner cannot":    {func(_, f string) string { testkit.MustDo(os.Chmod(f, 0o500)); return f }, "0700"},
		"sticky":          {func(_, f string) string { testkit.MustDo(os.Chmod(f, 0o700|os.ModeSticky)); return f }, "0700"},
		"setgid":          {func(_, f string) string { testkit.MustDo(os.Chmod(f, 0o700|os.ModeSetgid)); return f }, "0700"},
		"another user's":  {func(_, f string) string { testkit.MustDo(os.Chown(f, 4242, 0)); return f }, "owner 4242"},
		"group above":     {func(a, f string) string { testkit.MustDo(os.Chmod(a, 0o770)); return f }, "on the way"},
		"others above":    {func(a, f string) string { testkit.MustDo(os.Chmod(a, 0o777)); return f }, "on the way"},
		"another's above": {func(a, f string) string { testkit.MustDo(os.Chown(a, 4242, 0)); return f }, "owner 4242"},
		"a link": {func(a, f string) string {
			testkit.MustDo(os.Symlink(f, a+"/link"))
			return a + "/link"
		}, "symbolic link"},
		"a link above": {func(a, f string) string {
			testkit.MustDo(os.Symlink(a, a+"/link"))
			return a + "/link/" + filepath.Base(f)
		}, "symbolic link"},
		"no folder": {func(a, _ string) string {
			testkit.MustDo(os.WriteFile(a+"/file", nil, 0o700))
			return a + "/file"
		}, "a folder"},
		"nothing": {func(a, _ string) string { return a + "/none" }, "no such file"},
	} {
		t.Run(name, func(t *testing.T) {
			if strings.Contains(row.want, "4242") {
				asRoot(t)
			}
			above := newFolder(t)
			folder := filepath.Join(above, "f")
			testkit.MustDo(os.Mkdir(folder, 0o700))
			testkit.NoError(t, testkit.Must(Listen(filepath.Join(folder, "s"))).Close())
			path := filepath.Join(row.change(above, folder), "s")
			_, err := Listen(path)
			if !errors.Is(err, checkSocket) || !strings.Contains(err.Error(), row.want) {
				t.Errorf("got %v, want %q", err, row.want)
			}
			if _, err := os.Lstat(path); err == nil {
				t.Error("there is a socket")
			}
		})
	}
	for _, bad := range []string{"", "s", "./s", "/tmp/../s", "/tmp//s", "/tmp/s/", "@s", "/tmp/\x00s", "/" + strings.Repeat("a", maxPath)} {
		if _, err := Listen(bad); !errors.Is(err, refusal.CheckConfig) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// TestRestart: a living signer keeps its socket, and a dead one does not.
func TestRestart(t *testing.T) {
	path := filepath.Join(newFolder(t), "s")
	cmd := child(t, "killed", path, uint32(os.Getuid()))
	out, in := testkit.Must(cmd.StdoutPipe()), testkit.Must(cmd.StdinPipe())
	testkit.MustDo(cmd.Start())
	defer in.Close()
	if n, err := out.Read(make([]byte, 8)); n != 8 {
		t.Fatal(err)
	}
	if _, err := Listen(path); !errors.Is(err, checkSocket) || !strings.Contains(err.Error(), "lock") {
		t.Errorf("a socket in use: %v", err)
	}
	if mode := testkit.Must(os.Lstat(path)).Mode(); mode != os.ModeSocket|0o600 {
		t.Errorf("mode %s", mode)
	}
	testkit.MustDo(cmd.Process.Kill())
	_ = cmd.Wait()
	if _, err := os.Lstat(path); err != nil {
		t.Fatalf("kill -9 leaves the socket behind: %v", err)
	}
	l := testkit.Must(Listen(path))
	testkit.NoError(t, l.Close())

	other := testkit.Must(net.Listen("unix", path)) // of a program without the lock
	defer other.Close()
	if _, err := Listen(path); !errors.Is(err, checkSocket) || !strings.Contains(err.Error(), "listens on") {
		t.Errorf("another program's socket: %v", err)
	}
	path += "2"
	testkit.MustDo(os.WriteFile(path, nil, 0o600))
	if _, err := Listen(path); !errors.Is(err, checkSocket) {
		t.Errorf("a file: %v", err)
	}
	testkit.MustDo(os.Symlink("s", path+".l"))
	if _, err := Listen(path + ".l"); !errors.Is(err, checkSocket) {
		t.Errorf("a link: %v", err)
	}
	testkit.MustDo(os.Symlink("s", path+"3.lock"))
	if _, err := Listen(path + "3"); err == nil {
		t.Error("a lock that is a link is opened")
	}
}

// TestSwapped: a folder that changes after the start is noticed: the server is not ready, and serves no
// new client.
func TestSwapped(t *testing.T) {
	for name, row := range map[string]struct {
		change func(path string)
		refuse bool // a client that reaches the socket
	}{
		"another mode": {func(path string) { testkit.MustDo(os.Chmod(filepath.Dir(path), 0o750)) }, true},
		"another socket": {func(path string) {
			testkit.MustDo(os.Rename(path, path+"0"))
			testkit.MustDo(os.WriteFile(path, nil, 0o600))
			testkit.MustDo(os.Rename(path, path+"1"))
			testkit.MustDo(os.Rename(path+"0", path)) // the same again
			testkit.MustDo(os.Link(path, path+"0"))
			testkit.MustDo(os.Rename(path+"1", path))
		}, false},
		"another folder": {func(path string) {
			folder := filepath.Dir(path)
			testkit.MustDo(os.Rename(folder, folder+"0"))
			testkit.MustDo(os.Mkdir(folder, 0o700))
			testkit.MustDo(os.Rename(folder+"0/s", path))
			testkit.MustDo(os.RemoveAll(folder + "0"))
		}, true},
		"no socket": {func(path string) { testkit.MustDo(os.Remove(path)) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, ServerConfig{}, nil)
			testkit.Must(s.client(t).Metadata(t.Context(), &externaljwt.MetadataRequest{}))
			testkit.NoError(t, s.Ready(t.Context()))
			row.change(s.path)
			if err := s.Ready(t.Context()); !errors.Is(err, checkSocket) {
				t.Errorf("ready: %v", err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			defer cancel()
			if _, err := s.client(t).Metadata(ctx, &externaljwt.MetadataRequest{}); err == nil {
				t.Error("a new client is served")
			}
			if row.refuse {
				want(t, "log", s.log.String(), `reason="socket refused" uid=`)
			}
		})
	}
}

// unixPath is the path of a socket on which the test listens.
func unixPath(t testing.TB) string {
	t.Helper()
	path := filepath.Join(newFolder(t), "s")
	l := testkit.Must(net.Listen("unix", path))
	t.Cleanup(func() { _ = l.Close() })
	return path
}

// TestActivated takes over sockets that a process passes as systemd does.
func TestActivated(t *testing.T) {
	folder := newFolder(t)
	path := filepath.Join(folder, "s")
	unix := func(network, path string) *os.File {
		if network == "unix" {
			l := testkit.Must(net.ListenUnix(network, &net.UnixAddr{Name: path, Net: network}))
			l.SetUnlinkOnClose(false)
			return testkit.Must(l.File())
		}
		return testkit.Must(testkit.Must(net.ListenUnixgram(network, &net.UnixAddr{Name: path, Net: network})).File())
	}
	passed := unix("unix", path)
	tcp := testkit.Must(testkit.Must(net.Listen("tcp", "127.0.0.1:0")).(*net.TCPListener).File())
	connected := testkit.Must(testkit.Must(net.Dial("unix", unixPath(t))).(*net.UnixConn).File())
	for _, row := range []struct {
		name     string
		f        *os.File
		pid, fds string
		want     string // of the output
	}{
		{"the socket", passed, "self", "1", "lock false\n"},
		{"it again", passed, "self", "1", "lock false\n"}, // after a restart
		{"two", passed, "self", "2", "LISTEN_FDS"},
		{"none", passed, "self", "0", "LISTEN_FDS"},
		{"no number", passed, "self", "", "LISTEN_FDS"},
		{"no process", passed, "x", "1", "LISTEN_PID"},
		{"another process", passed, "1", "1", "listens on"},
		{"another path", unix("unix", path+"2"), "self", "1", "want ListenStream="},
		{"abstract", unix("unix", "@externalsigner-"+strconv.Itoa(os.Getpid())), "self", "1", "want ListenStream="},
		{"datagrams", unix("unixgram", path+"3"), "self", "1", "want ListenStream="},
		{"TCP", tcp, "self", "1", "want ListenStream="},
		{"a connection", connected, "self", "1", "socket"},
		{"a file", testkit.Must(os.Open("/dev/null")), "self", "1", "no socket"},
	} {
		t.Run(row.name, func(t *testing.T) {
			cmd := child(t, "activated", path, uint32(os.Getuid()))
			cmd.ExtraFiles, cmd.Env = []*os.File{row.f}, append(cmd.Env, "LISTEN_PID="+row.pid, "LISTEN_FDS="+row.fds, "LISTEN_FDNAMES=a")
			var out strings.Builder
			cmd.Stdout, cmd.Stderr = &out, &out
			testkit.MustDo(cmd.Start())
			if strings.HasPrefix(row.want, "lock") {
				c := testkit.Must(net.Dial("unix", path))
				defer c.Close()
				testkit.MustDo(c.SetDeadline(time.Now().Add(20 * time.Second)))
				if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
					t.Error(err)
				}
			}
			err := cmd.Wait()
			want(t, "output", out.String(), row.want)
			if (err == nil) != strings.HasPrefix(row.want, "lock") || strings.Contains(out.String(), "still") {
				t.Errorf("%v: %s", err, out.String())
			}
		})
	}
}

// TestFlood: clients that are refused by the thousand fill no log, and keep no others away.
func TestFlood(t *testing.T) {
	asRoot(t)
	name := "externalsigner-flood-" + strconv.Itoa(os.Getpid())
	s := serve(t, ServerConfig{AllowedUIDs: []uint32{4242}}, testkit.Must(ListenInsecureAbstract(name)))
	const floods, each = 4, 1000
	var flood sync.WaitGroup
	for range floods {
		flood.Go(func() {
			for range each {
				if c, err := net.Dial("unix", "@"+name); err == nil { // by root, that is not allowed
					_, _ = c.Read(make([]byte, 1))
					_ = c.Close()
				}
			}
		})
	}
	if err := child(t, "client", "@"+name, 4242).Run(); err != nil {
		t.Errorf("the allowed user: %v", err)
	}
	flood.Wait()
	if lines := strings.Count(s.log.String(), "\n"); lines > 2*logBurst {
		t.Errorf("%d lines", lines)
	}
	s.wantMetrics(t, fmt.Sprintf(`refused_clients_total{reason="user not allowed"} %d`, floods*each))
}

// TestConnections: a user who has as many connections as it may, silent ones, gets no further one until one
// of them is closed. One that never says a word is closed after the time of a handshake.
func TestConnections(t *testing.T) {
	s := serve(t, ServerConfig{}, nil)
	var open []net.Conn
	for range maxConnections {
		c := testkit.Must(net.Dial("unix", s.path))
		defer c.Close()
		open = append(open, c)
	}
	eventually(t, "all are counted", func() bool { return s.metrics.connections.Load() == maxConnections })
	last := testkit.Must(net.Dial("unix", s.path))
	defer last.Close()
	testkit.MustDo(last.SetDeadline(time.Now().Add(20 * time.Second)))
	if n, err := last.Read(make([]byte, 1)); n != 0 || err == nil {
		t.Errorf("read %d bytes: %v", n, err)
	}
	want(t, "log", s.log.String(), `reason="too many connections" uid=`)
	s.wantMetrics(t, `refused_clients_total{reason="too many connections"} 1`)
	_ = open[0].Close()
	eventually(t, "one is gone", func() bool { return s.metrics.connections.Load() < maxConnections })
	testkit.Must(s.client(t).Metadata(t.Context(), &externaljwt.MetadataRequest{}))
	eventually(t, "silent ones are closed", func() bool { return s.metrics.connections.Load() == 1 })
}

// FuzzPassedSockets: no value of the variables takes a descriptor that is not meant for this process.
func FuzzPassedSockets(f *testing.F) {
	testkit.BeginFuzz(f)
	for _, seed := range [][2]string{{"", ""}, {"7", "1"}, {"7", "2"}, {"07", "1"},
		{"8", "x"}, {"-7", "1"}, {"x", "1"}, {"7", "+1"}, {"4294967303", "1"}} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, pid, fds string) {
		n, err := passedSockets(pid, fds, 7)
		if n != 0 && (n != 1 || err != nil || strings.TrimLeft(pid, "0") != "7" || fds != "1") {
			t.Errorf("%q, %q: %d, %v", pid, fds, n, err)
		}
		if err != nil && !errors.Is(err, refusal.CheckConfig) {
			t.Error(err)
		}
	})
}
