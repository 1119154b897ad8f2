package externalsigner

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/nodeattest/nodeattest/internal/safefile"
	"github.com/nodeattest/nodeattest/refusal"
)

// Listen listens on a Unix socket at an absolute path of at most 107 bytes, in a folder of mode 0700 that
// is root's or the process's user's. No user but these two may be able to write to a folder above it,
// except to one with the sticky bit such as /tmp; and no part of the path is a symbolic link. All that is
// checked again for each client.
//
// If systemd has passed a socket to this process (sd_listen_fds(3): LISTEN_PID, LISTEN_FDS), that is the
// one, and it must be at this path. Otherwise the socket is created with mode 0600, in place of one on
// which no process listens. A file next to it, with the suffix .lock, keeps two processes from that.
//
// The error is [refusal.CheckConfig] for a path that is no such one or for LISTEN_FDS that is no number,
// "socket" for a folder or a socket that is refused, or the system's. Systems other than Linux do not tell
// who a client is: there the error wraps errors.ErrUnsupported.
func Listen(path string) (*Listener, error) {
	if err := checkPath(path); err != nil {
		return nil, err
	}
	folder, err := checkFolder(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	l := &Listener{path: path, folder: folder}
	if l.bare, err = activated(path); l.bare == nil && err == nil {
		err = l.create()
	}
	if err == nil {
		l.socket, err = os.Lstat(path)
	}
	if err == nil && l.socket.Mode().Type() != os.ModeSocket {
		err = checkSocket.Refuse(path+" of mode "+l.socket.Mode().String(), "a socket")
	}
	if err != nil {
		l.abandon()
		return nil, err
	}
	return l, nil
}

// ListenInsecureAbstract listens on a socket with a name in the abstract namespace (unix(7)), 1 to 106
// bytes without the leading NUL, that is written as "@name". It is insecure since there is no folder that
// keeps other users away: every process in the same network namespace, such as that of a pod in the
// host's network, can connect, and only [ServerConfig].AllowedUIDs keeps it from having tokens signed. Root
// of such a pod is root, unless the pod has a user namespace. A process that
// takes the name first, such as while the signer starts again, gives kube-apiserver keys of its own: its
// tokens are then accepted. Sockets of systemd, and errors, are as for [Listen].
func ListenInsecureAbstract(name string) (*Listener, error) {
	if name == "" || len(name) > maxPath-1 || strings.ContainsAny(name, "\x00@") {
		return nil, refusal.Config("abstract name", refusal.Quote(name), "1 to 106 bytes without NUL and @")
	}
	bare, err := activated("@" + name)
	if bare == nil && err == nil {
		bare, err = net.ListenUnix("unix", &net.UnixAddr{Name: "@" + name, Net: "unix"})
	}
	if err != nil {
		return nil, err
	}
	return &Listener{bare: bare}, nil
}

// create creates the socket, in place of one on which no process listens.
func (l *Listener) create() (err error) {
	if l.lock, err = os.OpenFile(l.path+".lock", os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o600); err != nil {
		return err
	}
	switch err := safefile.Lock(l.lock); {
	case errors.Is(err, safefile.ErrLocked):
		return checkSocket.Refuse("a process that holds the lock "+l.path+".lock", "one signer for the socket "+l.path)
	case err != nil:
		return &os.PathError{Op: "flock", Path: l.path + ".lock", Err: err}
	}
	if err := safefile.RemoveStale(checkSocket, l.path); err != nil {
		return err
	}
	if l.bare, err = net.ListenUnix("unix", &net.UnixAddr{Name: l.path, Net: "unix"}); err != nil {
		return err
	}
	return os.Chmod(l.path, 0o600) // until here the folder's mode keeps others away
}

// abandon releases what a Listener without a socket of its own holds.
func (l *Listener) abandon() {
	if l.bare != nil {
		_ = l.bare.Close()
	}
	if l.lock != nil {
		_ = l.lock.Close()
	}
}

// credentials returns the user and the process that connected, as the kernel noted them at that time. The
// process is for the log alone: it may have ended, and its number be another one's, by now.
func credentials(c *net.UnixConn) (uid uint32, pid int32, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, 0, err
	}
	var peer *syscall.Ucred
	controlled := raw.Control(func(fd uintptr) {
		peer, err = syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED)
	})
	if err := errors.Join(controlled, err); err != nil {
		return 0, 0, err
	}
	return peer.Uid, peer.Pid, nil
}
