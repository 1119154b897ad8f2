package httpserver

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"github.com/nodeattest/nodeattest/internal/safefile"
	"github.com/nodeattest/nodeattest/refusal"
)

// unixPrefix begins the address of a Unix socket; its path follows.
const unixPrefix = "unix:"

// maxSocket is the maximum length of a socket's path in bytes (sun_path in unix(7), less a NUL).
const maxSocket = 107

// wantLocal are the addresses that CheckLocal takes.
const wantLocal = "127.0.0.1:PORT, [::1]:PORT, or unix: with the socket's absolute path, at most 107 bytes without . and .."

// CheckLocal refuses every address but these, which no other machine reaches: 127.0.0.1 or [::1] with a
// port, and "unix:" with the absolute path of a socket. A socket's folder must exist with mode 0700, and
// root and this process's user alone may be able to replace it, or a folder above it. The error is
// [refusal.CheckConfig] for the field, or [safefile.CheckFile] for the folder.
func CheckLocal(field, address string) error {
	path, socket := strings.CutPrefix(address, unixPrefix)
	if !socket {
		at, err := netip.ParseAddrPort(address)
		if err != nil || at.Addr() != netip.AddrFrom4([4]byte{127, 0, 0, 1}) && at.Addr() != netip.IPv6Loopback() || at.Port() == 0 {
			return refusal.Config(field, refusal.Quote(address), wantLocal)
		}
		return nil
	}
	if !filepath.IsAbs(path) || filepath.Clean(path) != path || len(path) > maxSocket || strings.Contains(path, "\x00") {
		return refusal.Config(field, refusal.Quote(address), wantLocal)
	}
	folder := filepath.Dir(path)
	if err := safefile.CheckWay(folder); err != nil {
		return err
	}
	info, err := os.Lstat(folder)
	if err != nil {
		return err
	}
	if mode := info.Mode(); mode != os.ModeDir|0o700 {
		return safefile.CheckFile.Refuse("folder "+folder+" of mode "+mode.String(), "drwx------ (0700) for the socket of "+field)
	}
	return nil
}

// ListenLocal listens at an address that [CheckLocal] has taken. A socket has mode 0600, and takes the
// place of one on which no process listens.
func (l Limits) ListenLocal(ctx context.Context, address string) (net.Listener, error) {
	path, socket := strings.CutPrefix(address, unixPrefix)
	if !socket {
		return l.Listen(ctx, address)
	}
	if err := safefile.RemoveStale(safefile.CheckFile, path); err != nil {
		return nil, err
	}
	bare, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, 0o600); err != nil { // until here the folder's mode keeps others away
		return nil, errors.Join(err, bare.Close())
	}
	return l.bound(bare), nil
}
