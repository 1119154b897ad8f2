package httpserver

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"sync"
)

// Listen listens at a TCP address. The listener accepts every connection at once, so that no
// client waits behind others. At a limit it closes another connection for it: of the address that
// has most, the oldest whose request has not arrived, else the oldest. A client that is served in
// milliseconds is not reached by that, and one that waits loses its own connections.
func (l Limits) Listen(ctx context.Context, address string) (net.Listener, error) {
	bare, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	return l.bound(bare), nil
}

func (l Limits) bound(bare net.Listener) *listener {
	return &listener{Listener: bare, limits: l, of: map[netip.Prefix]*address{}}
}

type listener struct {
	net.Listener
	limits Limits

	mu   sync.Mutex
	open []*conn // the oldest first
	of   map[netip.Prefix]*address
}

// An address has some open connections.
type address struct{ open int }

// A conn is an accepted connection.
type conn struct {
	net.Conn
	listener *listener
	from     netip.Prefix
	of       *address
	served   bool // its request has arrived; guarded by the listener's mu
}

// Accept accepts a connection, and closes another one where that one is too many.
func (l *listener) Accept() (net.Conn, error) {
	bare, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &conn{Conn: bare, listener: l, from: From(bare.RemoteAddr().String())}
	if evicted := l.add(c); evicted != nil {
		_ = evicted.Close()
	}
	return c, nil
}

// add counts a connection, and takes out the one that is to be closed for it, if it is too many.
func (l *listener) add(c *conn) (evicted *conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.of = l.of[c.from]; c.of == nil {
		c.of = new(address)
		l.of[c.from] = c.of
	}
	own := c.of.open >= l.limits.PerAddress
	if own || len(l.open) >= l.limits.Connections {
		for _, o := range l.open {
			switch {
			case own && o.of != c.of:
			case evicted == nil, o.of.open > evicted.of.open, o.of.open == evicted.of.open && evicted.served && !o.served:
				evicted = o
			}
		}
	}
	c.of.open++
	l.open = append(l.open, c)
	if evicted != nil {
		l.forget(evicted)
	}
	return evicted
}

// remove forgets a connection.
func (l *listener) remove(c *conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.forget(c)
}

// forget is remove with mu held.
func (l *listener) forget(c *conn) {
	n := slices.Index(l.open, c)
	if n < 0 {
		return
	}
	l.open = slices.Delete(l.open, n, n+1)
	if c.of.open--; c.of.open == 0 {
		delete(l.of, c.from)
	}
}

// arrived notes that the connection's request has arrived.
func (c *conn) arrived() {
	c.listener.mu.Lock()
	defer c.listener.mu.Unlock()
	c.served = true
}

func (c *conn) Close() error {
	c.listener.remove(c)
	return c.Conn.Close()
}

// From returns the address of a client for which limits are counted: the whole of IPv4, a /64 of
// IPv6, since a host there has that many. remote is the RemoteAddr of a request.
func From(remote string) netip.Prefix {
	at, err := netip.ParseAddrPort(remote)
	if err != nil {
		return netip.Prefix{} // all that are no TCP connections are one
	}
	address := at.Addr().Unmap().WithZone("")
	bits := address.BitLen()
	if address.Is6() {
		bits = 64
	}
	return netip.PrefixFrom(address, bits).Masked()
}
