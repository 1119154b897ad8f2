//go:build !linux

package externalsigner

import (
	"errors"
	"net"

	"github.com/nodeattest/nodeattest/refusal"
)

// errSystem says why there is no listener.
var errSystem = &refusal.Error{Check: checkSocket, Got: "a system that does not tell which user connects to a socket (SO_PEERCRED)",
	Want: "Linux", Err: errors.ErrUnsupported}

// Listen is for Linux alone: the error wraps errors.ErrUnsupported.
func Listen(string) (*Listener, error) { return nil, errSystem }

// ListenInsecureAbstract is for Linux alone: the error wraps errors.ErrUnsupported.
func ListenInsecureAbstract(string) (*Listener, error) { return nil, errSystem }

func credentials(*net.UnixConn) (uid uint32, pid int32, err error) { return 0, 0, errSystem }
