package kube

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os/exec"
	"runtime"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// inNetwork calls a function on a thread that is in the network of a process, and dies.
func inNetwork(pid int, do func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // for ever: the thread ends with this goroutine
		fd, err := unix.Open(fmt.Sprintf("/proc/%d/ns/net", pid), unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err == nil {
			err = errors.Join(unix.Setns(fd, unix.CLONE_NEWNET), unix.Close(fd))
		}
		if err == nil {
			err = do()
		}
		done <- err
	}()
	return <-done
}

// dial connects to an address in the machine's network.
func (b *box) dial(address string) (conn net.Conn, err error) {
	err = inNetwork(b.disk.cmd.Process.Pid, func() (err error) {
		conn, err = net.Dial("tcp", address)
		return err
	})
	return conn, err
}

// connect lays a wire from an address on the machine to the same one outside, which cut, or the
// end of the machine, takes away.
func (b *box) connect(t *testing.T, address string) (cut func()) {
	t.Helper()
	return b.wire(t, address, func() (net.Conn, error) { return net.Dial("tcp", address) })
}

// wire listens at an address on the machine, and carries each connection to one that dial makes.
func (b *box) wire(t *testing.T, address string, dial func() (net.Conn, error)) (cut func()) {
	t.Helper()
	var listener net.Listener
	if err := inNetwork(b.disk.cmd.Process.Pid, func() (err error) {
		listener, err = net.Listen("tcp", address)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	cut = carry(listener, dial)
	b.wires = append(b.wires, cut)
	return cut
}

// carry carries each connection of a listener to one that dial makes, until cut.
func carry(listener net.Listener, dial func() (net.Conn, error)) (cut func()) {
	var all sync.WaitGroup
	var mu sync.Mutex
	ends := map[net.Conn]bool{}
	closed := false
	connect := func(inside net.Conn) {
		outside, err := dial()
		if err != nil {
			_ = inside.Close()
			return
		}
		mu.Lock()
		ends[inside], ends[outside] = true, true
		if closed {
			_, _ = inside.Close(), outside.Close()
		}
		mu.Unlock()
		copy := func(to, from net.Conn) {
			_, _ = io.Copy(to, from)
			_, _ = to.Close(), from.Close()
			mu.Lock()
			delete(ends, to)
			mu.Unlock()
		}
		all.Go(func() { copy(inside, outside) })
		copy(outside, inside)
	}
	all.Go(func() {
		for {
			inside, err := listener.Accept()
			if err != nil {
				return
			}
			all.Go(func() { connect(inside) })
		}
	})
	return sync.OnceFunc(func() {
		_ = listener.Close()
		mu.Lock()
		closed = true
		for end := range ends {
			_ = end.Close()
		}
		mu.Unlock()
		all.Wait()
	})
}

// A hub is a network, 192.0.2.0/24, to which machines are plugged in.
type hub struct{ process *process }

// startHub starts a network without machines.
func startHub(t *testing.T) *hub {
	t.Helper()
	h := &hub{startAs(t, "hub", "unshare", t.TempDir(), "-n", "sh", "-c", "ip link add hub type bridge && ip link set hub up && exec sleep infinity")}
	h.process.ready(t, func() error {
		return exec.Command("nsenter", "-t", fmt.Sprint(h.process.cmd.Process.Pid), "-n", "ip", "link", "show", "hub").Run()
	})
	return h
}

// plug gives a machine an address in the network, 192.0.2.HOST, instead of the one it has.
func (h *hub) plug(t *testing.T, b *box, host int) {
	t.Helper()
	const script = `set -e
ip link del eth0
ip link add eth0 type veth peer name "port$1" netns "$2"
ip addr add "192.0.2.$1/24" dev eth0
ip link set eth0 up
ip route add default via 192.0.2.1
nsenter -t "$2" -n ip link set "port$1" master hub up
`
	cmd := exec.Command("nsenter", "-t", fmt.Sprint(b.disk.cmd.Process.Pid), "-n", "bash", "-c", script, "bash", fmt.Sprint(host), fmt.Sprint(h.process.cmd.Process.Pid))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("192.0.2.%d: %v: %s", host, err, out)
	}
}
