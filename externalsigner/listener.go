package externalsigner

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/nodeattest/nodeattest/internal/safefile"
	"github.com/nodeattest/nodeattest/refusal"
)

// checkSocket: the socket, its folder or a folder above it is one that other users could replace, or
// another process listens on it.
const checkSocket refusal.Check = "socket"

// maxPath is the maximum length of a socket's path or abstract name in bytes (sun_path in unix(7), less
// a NUL).
const maxPath = 107

// Listener listens on a Unix socket. [Listen] and [ListenInsecureAbstract] make one.
type Listener struct {
	bare *net.UnixListener
	lock *os.File // held as long as the socket is ours; nil for a socket of systemd or an abstract name

	path           string // "": an abstract name
	folder, socket os.FileInfo
}

// Close stops listening, and removes a socket that [Listen] created. [Server.Serve] calls it.
func (l *Listener) Close() error {
	if l == nil || l.bare == nil {
		return nil
	}
	err := l.bare.Close()
	if l.lock != nil {
		err = errors.Join(err, l.lock.Close())
	}
	return err
}

// check refuses the socket if its folder would be refused by now, or if it is no longer the socket, or
// the folder, that it was at the start: clients reach another one. An abstract name has no folder.
func (l *Listener) check() error {
	if l.path == "" {
		return nil
	}
	folder, err := checkFolder(filepath.Dir(l.path))
	if err != nil {
		return err
	}
	socket, err := os.Lstat(l.path)
	switch {
	case err != nil:
		return &refusal.Error{Check: checkSocket, Err: err}
	case !os.SameFile(folder, l.folder) || !os.SameFile(socket, l.socket):
		return checkSocket.Refuse("another socket or folder at "+l.path+" than at the start", "the one on which the signer listens: restart it")
	}
	return nil
}

// checkPath refuses the path of a socket that the kernel, or a reader of the configuration, would take
// for another one.
func checkPath(path string) error {
	switch {
	case !filepath.IsAbs(path) || filepath.Clean(path) != path || strings.Contains(path, "\x00"):
		return refusal.Config("socket", refusal.Quote(path), "an absolute path without . and ..")
	case len(path) > maxPath:
		return refusal.Config("socket", refusal.Quote(path), "a path of at most 107 bytes")
	}
	return nil
}

// checkFolder refuses the folder of a socket unless its mode is 0700, its owner this user or root, and no
// other user can replace it, or a folder above it. No part of its path may be a symbolic link.
func checkFolder(folder string) (os.FileInfo, error) {
	var info os.FileInfo
	for at := folder; ; at = filepath.Dir(at) {
		part, err := os.Lstat(at)
		switch {
		case err != nil:
			return nil, &refusal.Error{Check: checkSocket, Err: err}
		case !part.IsDir():
			return nil, checkSocket.Refuse(at+" of mode "+part.Mode().String(), "a folder: no part of the socket's path may be a symbolic link")
		case info == nil:
			info = part
		}
		if at == filepath.Dir(at) {
			break
		}
	}
	if err := safefile.CheckWay(folder); err != nil {
		want := "one that root or the signer's user alone can replace"
		return nil, &refusal.Error{Check: checkSocket, Got: "folder " + folder, Want: want, Err: err}
	}
	if mode := info.Mode(); mode != os.ModeDir|0o700 {
		return nil, checkSocket.Refuse("folder "+folder+" of mode "+mode.String(), "drwx------ (0700)")
	}
	return info, nil
}
