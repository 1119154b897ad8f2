package kubelet

import (
	"io"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Bounds of the files of one process, in bytes.
const (
	maxArguments = 128 << 10
	maxStatus    = 64 << 10
)

// Running returns the flags of the running kubelets, by process ID: only of processes of this user,
// which is root, in the pid namespace of /proc, as any user can start a process of this name. Linux
// only.
func Running() iter.Seq2[int, *Flags] {
	return func(yield func(int, *Flags) bool) {
		processes, _ := filepath.Glob("/proc/[0-9]*") // the only error is an invalid pattern
		for _, path := range processes {
			pid, err := strconv.Atoi(filepath.Base(path))
			if err != nil || !isOwn(pid) {
				continue
			}
			if f := Process(pid); f != nil && !yield(pid, f) {
				return
			}
		}
	}
}

// Process returns the flags of a process, or nil if it does not call itself a kubelet. Linux
// only.
func Process(pid int) *Flags {
	text := read(pid, "cmdline", maxArguments+1)
	arguments := strings.Split(strings.TrimSuffix(string(text), "\x00"), "\x00")
	if name := filepath.Base(arguments[0]); name != "kubelet" && (name != "hyperkube" || !slices.Contains(arguments, "kubelet")) {
		return nil
	}
	f := parseFlags(arguments)
	f.Cut = len(text) > maxArguments
	return f
}

// isOwn reports whether a process is this user's, in the pid namespace of /proc and not in one below it.
// Its real user must be this user, too: any user may start a setuid program.
func isOwn(pid int) bool {
	user, own, here := strconv.Itoa(os.Geteuid()), false, false
	for line := range strings.Lines(string(read(pid, "status", maxStatus))) { // proc_pid_status(5)
		switch words := strings.Fields(line); {
		case len(words) == 5 && words[0] == "Uid:":
			own = !slices.ContainsFunc(words[1:], func(id string) bool { return id != user })
		case len(words) == 2 && words[0] == "NSpid:":
			here = true
		}
	}
	return own && here
}

// read returns the beginning of a process's file, or nothing if there is no such process.
func read(pid int, file string, most int64) []byte {
	f, err := os.Open(filepath.Join("/proc", strconv.Itoa(pid), file))
	if err != nil {
		return nil
	}
	defer func() { _ = f.Close() }()
	text, err := io.ReadAll(io.LimitReader(f, most))
	if err != nil {
		return nil
	}
	return text
}
