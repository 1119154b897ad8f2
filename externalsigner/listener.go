package externalsigner

import "net"

// Listener listens on a Unix socket that only allowed users can reach.
type Listener struct {
	bare net.Listener
}

// Listen listens on a Unix socket at an absolute path.
func Listen(path string) (*Listener, error) {
	bare, err := net.Listen("unix", path)
	if err != nil {
		return nil, err
	}
	return &Listener{bare: bare}, nil
}
