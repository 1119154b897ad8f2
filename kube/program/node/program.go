// Package node is the program kubelet-authenticator, for a main function that adds kinds of evidence to
// the built-in ones:
//
//	func main() { os.Exit(node.Main(os.Args[1:], os.Stdout, os.Stderr, rack)) }
//
// Package controlplane takes the control plane's side of such a kind.
package node

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/nodeattest/nodeattest/attest/tpm/statement"
	"github.com/nodeattest/nodeattest/kube/authenticator"
	"github.com/nodeattest/nodeattest/kube/internal/httpserver"
	"github.com/nodeattest/nodeattest/recovered"
	"github.com/nodeattest/nodeattest/refusal"
)

// defaultConfig is the program's configuration file.
const defaultConfig = "/etc/kubernetes/kubelet-authenticator.yaml"

// Evidence is a kind of evidence in addition to the built-in ones.
type Evidence struct {
	// Name is the Provider of the attest.Prover, and the name of its section below evidence in the
	// configuration file.
	Name string
	// Open makes the evidence, for example with authenticator.EvidenceOf. decode reads the section
	// into a pointer to a struct whose fields have JSON tags: an unknown field, or a value of the
	// wrong type, is an error. For providerID: auto, the evidence must have the method
	//
	//	ProviderID(ctx context.Context) (string, error)
	Open func(decode func(into any) error) (authenticator.Evidence, error)
}

// Main is the program kubelet-authenticator. It runs the command of args, and returns its exit status:
// 0, 1 after an error, 2 after a wrong command line, 3 if discover does not find the cluster or migrate gets no
// certificate in time, and 4, 5 or 6 if doctor finds the machine, the cluster or the kubelet's configuration broken.
// Two commands read no configuration: discover, which finds the cluster of a machine that has none, and
// roots check, which compares downloaded certificates with the list of docs/vendor-roots.md. identity and
// doctor need none on a machine with a TPM.
func Main(args []string, stdout, stderr io.Writer, kinds ...Evidence) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	log.SetOutput(io.Discard) // net/http logs unsolicited responses there, which may contain a token
	err := run(ctx, args, stdout, stderr, kinds)
	if err != nil {
		for line := range strings.SplitSeq(err.Error(), "\n") {
			fmt.Fprintln(stderr, "kubelet-authenticator:", refusal.Escape(line))
		}
	}
	return exitStatus(err)
}

func exitStatus(err error) int {
	var failed *broken
	switch {
	case errors.Is(err, errCommandLine):
		return 2
	case errors.Is(err, errUndecided):
		return 3
	case errors.As(err, &failed):
		return int(failed.class)
	case err != nil:
		return 1
	}
	return 0
}

// errCommandLine is an invalid command line.
var errCommandLine = errors.New("wrong command line")

// errNotUsable is the error of status if the node has no usable client certificate.
var errNotUsable = errors.New("the node has no usable client certificate")

// run is the program.
func run(ctx context.Context, args []string, stdout, stderr io.Writer, kinds []Evidence) error {
	from, args, done, err := parseLine(args, stdout, stderr)
	if done || err != nil {
		return err
	}
	from.kinds = kinds
	command, rest := args[0], args[1:]
	if done, err := withoutConfig(ctx, command, rest, from, stdout, stderr); done {
		return err
	}
	s, err := from.read()
	if err != nil {
		return err
	}
	c, err := s.config(kinds)
	if err != nil {
		return fmt.Errorf("%s: %w", from.file, err)
	}
	if command == "enrol" { // which needs no cluster
		return enrol(ctx, &c, rest, stdout)
	}
	f, err := s.follower()
	if err != nil {
		return fmt.Errorf("%s: %w", from.file, err)
	}
	level := slog.LevelInfo
	if command != "daemon" {
		level = slog.LevelWarn
	}
	c.Log = slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: level}))
	c.Kubelet.Parent = command == "credential"
	c.Ready = func() { notify("READY=1\nSTATUS=running; kubelet-authenticator status shows the certificates") }
	if f != nil {
		f.log, c.Untrusted = c.Log, f.distrust
	}
	used := c
	if command == "migrate" { // which checks the kubelet's files by itself: that they are plain is no fault
		used.Kubelet = authenticator.Kubelet{}
	}
	a, err := authenticator.New(used)
	if err != nil {
		return err
	}
	switch command {
	case "credential":
		return credential(ctx, a, stdout)
	case "daemon":
		if s.Metrics != "" {
			if err := httpserver.CheckLocal("metrics", s.Metrics); err != nil {
				return fmt.Errorf("%s: %w", from.file, err)
			}
		}
		notify("STATUS=waiting for the kubelet's serving certificate")
		return daemon(ctx, a, f, &metricsServer{address: s.Metrics, status: a.Status, log: c.Log, pause: listenPause})
	case "rotate":
		return rotate(ctx, a, stdout)
	case "migrate":
		return migrate(ctx, a, &c, s.Kubeconfig, from.file, rest, stdout, stderr)
	}
	return status(a, f, &c, rest, stdout)
}

// daemon renews the certificates until ctx ends. Meanwhile it keeps the kubeconfig current, with a follower,
// and serves the metrics, if they have an address.
func daemon(ctx context.Context, a *authenticator.Authenticator, f *follower, m *metricsServer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var running []<-chan error
	if f != nil {
		ticker := time.NewTicker(min(tick, f.interval/10))
		defer ticker.Stop()
		running = append(running, recovered.Go(func() error {
			f.run(ctx, ticker.C)
			return nil
		}))
	}
	if m.address != "" {
		running = append(running, recovered.Go(func() error {
			m.run(ctx)
			return nil
		}))
	}
	err := a.Run(ctx)
	cancel()
	for _, ended := range running {
		err = errors.Join(err, <-ended)
	}
	return err
}

// execInfo is the environment variable that client-go sets for a plugin.
const execInfo = "KUBERNETES_EXEC_INFO"

func credential(ctx context.Context, a *authenticator.Authenticator, stdout io.Writer) error {
	if err := authenticator.CheckExecInfoVariable(os.Getenv(execInfo)); err != nil {
		return err
	}
	c, err := a.Credential(ctx)
	if err != nil {
		return err
	}
	return json.NewEncoder(stdout).Encode(c)
}

// report is the output of status.
type report struct {
	*authenticator.Status
	EndorsementPassword string     `json:"endorsementPassword,omitempty"` // its file
	Discovery           *following `json:"discovery,omitempty"`
}

func statusFlags(form *string) *flag.FlagSet {
	flags := flag.NewFlagSet("status", flag.ContinueOnError) // errors go to standard error
	flags.StringVar(form, "o", "text", "text or json")
	return flags
}

func status(a *authenticator.Authenticator, f *follower, c *authenticator.Config, args []string, stdout io.Writer) error {
	var form string
	if err := statusFlags(&form).Parse(args); err != nil {
		return errCommandLine
	}
	s := report{Status: a.Status()}
	err := checkEnded(c.Dir)
	if err != nil {
		s.Problems = append(s.Problems, err.Error())
	}
	kept := keptPassword(c.Kind)
	if kept != "" {
		if s.EndorsementPassword, err = kept.state(); err != nil {
			s.Problems = append(s.Problems, err.Error())
		}
	}
	if f != nil {
		record, problems := f.status()
		s.Discovery, s.Problems = &record, append(s.Problems, problems...)
	}
	switch form {
	case "text":
		if f != nil {
			fmt.Fprintf(stdout, "Discovery document: last verified %s\n", s.Discovery.verified())
		}
		if kept != "" {
			fmt.Fprintf(stdout, "TPM's endorsement password: %s\n", refusal.Escape(s.EndorsementPassword))
		}
		err = s.Write(stdout, time.Now())
	case "json":
		e := json.NewEncoder(stdout)
		e.SetIndent("", "  ")
		err = e.Encode(s)
	default:
		return fmt.Errorf("%w: -o %s, want text or json", errCommandLine, refusal.Quote(form))
	}
	if err == nil && !s.Usable {
		err = errNotUsable
	}
	return err
}

func rotate(ctx context.Context, a *authenticator.Authenticator, stdout io.Writer) error {
	if err := a.Rotate(ctx); err != nil {
		return err
	}
	return a.Status().Write(stdout, time.Now())
}

// notify sends the state to systemd, for a service of Type=notify (sd_notify(3)). Without systemd it does
// nothing.
func notify(state string) {
	socket := os.Getenv("NOTIFY_SOCKET")
	if socket == "" {
		return
	}
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		return
	}
	_, _ = conn.Write([]byte(state)) // systemd restarts the service if it is not notified in time
	_ = conn.Close()
}

// readEventLog reads the firmware's event log.
func readEventLog(path string) func(context.Context) ([]byte, error) {
	return func(context.Context) ([]byte, error) { return readFile(path, statement.MaxEventLogSize) }
}
