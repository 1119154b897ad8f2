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
	return &listener{Listener: bare, limits: l, of: map[netip.Prefix]int{}}
}

type listener struct {
	net.Listener
	limits Limits

	mu   sync.Mutex
	open []*conn // the oldest first
	of   map[netip.Prefix]int
}

// A conn is an accepted connection.
type conn struct {
	net.Conn
	listener *listener
	from     netip.Prefix
	served   bool // its request has arrived; guarded by the listener's mu
}

// Accept accepts a connection, and closes another one where that one is too many.
func (l *listener) Accept() (net.Conn, error) {
	bare, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &conn{Conn: bare, listener: l, from: From(bare.RemoteAddr().String())}
	l.mu.Lock()
	evicted := l.evicted(c.from)
	l.open = append(l.open, c)
	l.of[c.from]++
	l.mu.Unlock()
	if evicted != nil {
		_ = evicted.Close()
	}
	return c, nil
}

// evicted takes out the connection that is to be closed for a new one, or none.
func (l *listener) evicted(from netip.Prefix) *conn {
	own := l.of[from] >= l.limits.PerAddress
	if !own && len(l.open) < l.limits.Connections {
		return nil
	}
	var worst *conn
	for _, c := range l.open {
		switch n := l.of[c.from]; {
		case own && c.from != from:
		case worst == nil, n > l.of[worst.from], n == l.of[worst.from] && worst.served && !c.served:
			worst = c
		}
	}
	l.remove(worst)
	return worst
}

// remove forgets a connection. It is called with mu held.
func (l *listener) remove(c *conn) {
	n := slices.Index(l.open, c)
	if n < 0 {
		return
	}
	l.open = slices.Delete(l.open, n, n+1)
	if l.of[c.from]--; l.of[c.from] == 0 {
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
	c.listener.mu.Lock()
	c.listener.remove(c)
	c.listener.mu.Unlock()
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
