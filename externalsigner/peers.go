package externalsigner

import (
	"errors"
	"net"
	"slices"
	"sync"
)

// maxConnections is how many connections one user may have. kube-apiserver has one.
const maxConnections = 16

// The reasons for which a client is refused, as the metrics show them.
const (
	unknownUser        = "unknown user"
	userNotAllowed     = "user not allowed"
	socketRefused      = "socket refused"
	tooManyConnections = "too many connections"
)

// peers is a listener that accepts the connections of allowed users alone.
type peers struct {
	*Listener
	server *Server

	mu   sync.Mutex
	open map[uint32]int // connections of each allowed user
}

// Accept returns the next connection of an allowed user. Others are closed, logged and counted.
func (p *peers) Accept() (net.Conn, error) {
	for {
		c, err := p.bare.AcceptUnix()
		if err != nil {
			return nil, err
		}
		if accepted := p.admit(c); accepted != nil {
			return accepted, nil
		}
		_ = c.Close()
	}
}

// admit decides about a connection: nil for one that is refused.
func (p *peers) admit(c *net.UnixConn) net.Conn {
	uid, pid, err := credentials(c)
	reason := unknownUser
	if err == nil {
		reason, err = p.decide(uid)
	}
	if err == nil {
		return &connection{Conn: c, give: sync.OnceFunc(func() { p.give(uid) })}
	}
	p.server.metrics.refuse(reason)
	p.server.log.warn(refusedKey{reason, uid}, "client refused: its connection is closed",
		"reason", reason, "uid", uid, "pid", pid, "error", err)
	return nil
}

// decide takes a place for a connection of a user, or says why the user gets no place.
func (p *peers) decide(uid uint32) (reason string, err error) {
	if !slices.Contains(p.server.config.AllowedUIDs, uid) {
		return userNotAllowed, errUser
	}
	if err := p.check(); err != nil {
		return socketRefused, err
	}
	if !p.take(uid) {
		return tooManyConnections, errConnections
	}
	return "", nil
}

// Addr is the address of the socket.
func (p *peers) Addr() net.Addr { return p.bare.Addr() }

var (
	errUser        = errors.New("its user is not in allowedUIDs")
	errConnections = errors.New("its user has 16 connections already")
)

// refusedKey says which refusals share a limit of log lines.
type refusedKey struct {
	reason string
	uid    uint32
}

func (p *peers) take(uid uint32) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.open[uid] >= maxConnections {
		return false
	}
	p.open[uid]++
	p.server.metrics.connections.Add(1)
	return true
}

func (p *peers) give(uid uint32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open[uid]--
	p.server.metrics.connections.Add(-1)
}

// A connection gives its place back once it is closed.
type connection struct {
	net.Conn
	give func()
}

// Close closes the connection.
func (c *connection) Close() error {
	defer c.give()
	return c.Conn.Close()
}
