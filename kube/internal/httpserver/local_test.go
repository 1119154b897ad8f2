package httpserver

import (
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/nodeattest/nodeattest/internal/safefile"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/refusal"
)

// TestCheckLocal: what another machine could reach is refused, and so is all that is not an address.
func TestCheckLocal(t *testing.T) {
	for _, address := range []string{"127.0.0.1:9105", "[::1]:1"} {
		if err := CheckLocal("metrics", address); err != nil {
			t.Errorf("%s: %v", address, err)
		}
	}
	for _, address := range []string{
		"", ":9105", "0.0.0.0:9105", "[::]:9105", "127.0.0.2:9105", "localhost:9105", "192.0.2.1:9105", "[::1%lo]:9105", "[::ffff:127.0.0.1]:9105",
		"127.0.0.1", "127.0.0.1:0", "127.0.0.1:65536", "unix:", "unix:metrics.sock", "unix:/run/../tmp/a", "unix:/run//a", "unix:/a\x00b", "unix:@name", "/run/metrics.sock",
		"unix:/" + strings.Repeat("a", maxSocket),
	} {
		if err := CheckLocal("metrics", address); !errors.Is(err, refusal.CheckConfig) || !strings.Contains(err.Error(), "metrics") {
			t.Errorf("%q: got %v, want it refused", address, err)
		}
	}
}

// TestCheckLocalFolder: the folder of a socket is the process's own.
func TestCheckLocalFolder(t *testing.T) {
	if runtime.GOOS != "linux" {
		return // there are no such modes, or no such sockets
	}
	folder := filepath.Join(t.TempDir(), "run")
	testkit.MustDo(os.Mkdir(folder, 0o700))
	address := "unix:" + folder + "/metrics.sock"
	testkit.MustDo(CheckLocal("metrics", address))
	testkit.MustDo(os.Chmod(folder, 0o750))
	if err := CheckLocal("metrics", address); !errors.Is(err, safefile.CheckFile) || !strings.Contains(err.Error(), "0700") {
		t.Errorf("mode 0750: %v", err)
	}
	testkit.MustDo(os.Chmod(folder, 0o700))
	testkit.MustDo(os.Symlink(folder, folder+"2"))
	if err := CheckLocal("metrics", "unix:"+folder+"2/metrics.sock"); err == nil {
		t.Error("a symbolic link as folder is taken")
	}
	testkit.MustDo(os.Chmod(filepath.Dir(folder), 0o777)) //nolint:gosec // others may replace the folder
	if err := CheckLocal("metrics", address); !errors.Is(err, safefile.CheckFile) {
		t.Errorf("a folder that others can replace: %v", err)
	}
	if err := CheckLocal("metrics", "unix:"+folder+"/missing/a"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no folder: %v", err)
	}
}

// TestListenLocal: a socket has mode 0600, and takes the place of one that a process has left behind, and of
// nothing else.
func TestListenLocal(t *testing.T) {
	folder := t.TempDir()
	path := filepath.Join(folder, "s")
	address := "unix:" + path
	l := testkit.Must(Local.ListenLocal(t.Context(), address))
	if mode := testkit.Must(os.Lstat(path)).Mode(); mode != os.ModeSocket|0o600 {
		t.Errorf("mode %s", mode)
	}
	if _, err := Local.ListenLocal(t.Context(), address); !errors.Is(err, safefile.CheckFile) {
		t.Errorf("a second process: got %v", err)
	}
	go func() { _ = New(http.NotFoundHandler(), Local, nil).Serve(l) }()
	c := testkit.Must(net.Dial("unix", path))
	if _, err := c.Write([]byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n")); err != nil {
		t.Fatal(err)
	}
	if status, _ := reply(t, c); status != "404 Not Found" {
		t.Errorf("got %q", status)
	}
	_ = l.Close()
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket stays: %v", err)
	}
	stale := testkit.Must(net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"}))
	stale.SetUnlinkOnClose(false)
	_ = stale.Close()
	_ = testkit.Must(Local.ListenLocal(t.Context(), address)).Close()
	testkit.MustDo(os.WriteFile(path, nil, 0o600))
	if _, err := Local.ListenLocal(t.Context(), address); !errors.Is(err, safefile.CheckFile) {
		t.Errorf("a file: got %v", err)
	}
	_ = testkit.Must(Local.ListenLocal(t.Context(), "127.0.0.1:0")).Close()
}
