package externalsigner

import (
	"net"
	"os"
	"strconv"
	"syscall"

	"github.com/nodeattest/nodeattest/refusal"
)

// firstPassed is the first descriptor that systemd passes (SD_LISTEN_FDS_START).
const firstPassed = 3

// passedSockets returns how many sockets systemd has passed to the process pid, by the values of LISTEN_PID
// and LISTEN_FDS (sd_listen_fds(3)): 0 if both are empty or they are for another process, else 1, as more
// are refused.
func passedSockets(listenPID, listenFDs string, pid int) (int, error) {
	if listenPID == "" && listenFDs == "" {
		return 0, nil
	}
	to, err := strconv.ParseUint(listenPID, 10, 31)
	if err != nil || to == 0 {
		return 0, refusal.Config("LISTEN_PID", refusal.Quote(listenPID), "the number of a process")
	}
	if int(to) != pid {
		return 0, nil
	}
	if listenFDs != "1" {
		return 0, refusal.Config("LISTEN_FDS", refusal.Quote(listenFDs), "1: the socket unit has one ListenStream=")
	}
	return 1, nil
}

// activated returns the socket that systemd has passed, nil if it has not. It must be at the path.
func activated(path string) (*net.UnixListener, error) {
	n, err := passedSockets(os.Getenv("LISTEN_PID"), os.Getenv("LISTEN_FDS"), os.Getpid())
	if err != nil || n == 0 {
		return nil, err
	}
	for _, variable := range []string{"LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"} { // as they are not for children
		if err := os.Unsetenv(variable); err != nil {
			return nil, err
		}
	}
	syscall.CloseOnExec(firstPassed)
	return adopt(os.NewFile(firstPassed, "LISTEN_FDS"), path)
}

// adopt makes a listener of a socket at the path, and closes the file.
func adopt(f *os.File, path string) (*net.UnixListener, error) {
	defer f.Close()
	listens, err := syscall.GetsockoptInt(int(f.Fd()), syscall.SOL_SOCKET, syscall.SO_ACCEPTCONN)
	if err != nil {
		return nil, &refusal.Error{Check: checkSocket, Got: "a descriptor of systemd that is no socket", Want: "the socket " + path, Err: err}
	}
	l, err := net.FileListener(f)
	if err != nil {
		return nil, &refusal.Error{Check: checkSocket, Got: "a socket of systemd that is not of streams", Want: "the socket " + path, Err: err}
	}
	bare, unix := l.(*net.UnixListener)
	if !unix || bare.Addr().String() != path || listens != 1 {
		_ = l.Close()
		return nil, checkSocket.Refuse("systemd's socket "+l.Addr().Network()+" "+l.Addr().String(),
			"ListenStream="+path+", the socket of the configuration")
	}
	return bare, nil
}
