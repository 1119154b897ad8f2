// Package node is the program kubelet-authenticator, for a main function that adds kinds
// of evidence to those in the box:
//
//	func main() { os.Exit(node.Main(os.Args[1:], os.Stdout, os.Stderr, rack)) }
//
// The control plane's side of such a kind is for package controlplane.
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
	"github.com/nodeattest/nodeattest/kube/internal/configfile"
	"github.com/nodeattest/nodeattest/refusal"
)

// defaultConfig is the program's configuration file.
const defaultConfig = "/etc/kubernetes/kubelet-authenticator.yaml"

// Evidence is a kind of evidence that the program can present beside those in the box.
type Evidence struct {
	// Name is the kind's name, that of the attest.Prover, and of its section below evidence in
	// the configuration file.
	Name string
	// Open makes the kind, such as with authenticator.EvidenceOf. decode reads the section into a
	// pointer to a struct whose fields have JSON tags: an unknown field, or a value of the
	// wrong type, is an error. A kind that has the method
	//
	//	ProviderID(ctx context.Context) (string, error)
	//
	// is asked by it for the machine's provider ID where the file says providerID: auto.
	Open func(decode func(into any) error) (authenticator.Evidence, error)
}

// Main is the program kubelet-authenticator. It runs the command that args name, and returns
// its exit status: 0, 1 after an error, 2 after a wrong command line. The command roots check
// holds downloaded certificates against the list of docs/vendor-roots.md, and takes no
// configuration.
func Main(args []string, stdout, stderr io.Writer, kinds ...Evidence) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	log.SetOutput(io.Discard) // net/http writes there what a server sends unasked, such as a token that it repeats
	err := run(ctx, args, stdout, stderr, kinds)
	if err != nil {
		for line := range strings.SplitSeq(err.Error(), "\n") {
			fmt.Fprintln(stderr, "kubelet-authenticator:", refusal.Escape(line))
		}
	}
	switch {
	case errors.Is(err, errCommandLine):
		return 2
	case err != nil:
		return 1
	}
	return 0
}

// errCommandLine is a command line that is not understood.
var errCommandLine = errors.New("wrong command line")

// errNotUsable has status fail if the node has no certificate.
var errNotUsable = errors.New("there is no client certificate that works")

// run is the program.
func run(ctx context.Context, args []string, stdout, stderr io.Writer, kinds []Evidence) error {
	flags := flag.NewFlagSet("kubelet-authenticator", flag.ContinueOnError)
	flags.SetOutput(stderr)
	path := flags.String("config", defaultConfig, "the program's file, of kind "+settingsKind)
	flags.Usage = func() {
		fmt.Fprintln(stderr, "kubelet-authenticator [--config FILE] credential | daemon | status [-o json] | rotate | enrol --ca FILE (--dir FOLDER | --url URL --server-ca FILE) | roots check FILE...")
		flags.PrintDefaults()
	}
	if err := flags.Parse(args); err != nil {
		return errCommandLine
	}
	command := flags.Arg(0)
	if command == "" && os.Getenv(execInfo) != "" {
		command = "credential"
	}
	if command == "roots" {
		return roots(flags.Args()[1:], stdout, time.Now())
	}
	var kept passwordFile
	do, ok := map[string]func(context.Context, *authenticator.Authenticator, []string, io.Writer) error{
		"credential": credential, "daemon": daemon, "rotate": rotate,
		"status": func(_ context.Context, a *authenticator.Authenticator, args []string, stdout io.Writer) error {
			return status(a, kept, args, stdout)
		},
	}[command]
	if !ok && command != "enrol" {
		flags.Usage()
		return fmt.Errorf("%w: command %s, want credential, daemon, status, rotate, enrol or roots", errCommandLine, refusal.Quote(command))
	}
	text, err := readFile(*path, configfile.MaxSize)
	if err != nil {
		return err
	}
	s, err := parseSettings(text)
	if err != nil {
		return fmt.Errorf("%s: %w", *path, err)
	}
	c, err := s.config(kinds)
	if err != nil {
		return fmt.Errorf("%s: %w", *path, err)
	}
	kept = keptPassword(c.Kind)
	if command == "enrol" { // before there is a cluster
		return enrol(ctx, &c, flags.Args()[1:], stdout)
	}
	level := slog.LevelInfo
	if command != "daemon" {
		level = slog.LevelWarn
	}
	c.Log = slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: level}))
	c.Kubelet.Parent = command == "credential"
	c.Ready = func() { notify("READY=1\nSTATUS=the node has its certificates") }
	a, err := authenticator.New(c)
	if err != nil {
		return err
	}
	return do(ctx, a, flags.Args()[min(1, flags.NArg()):], stdout)
}

// execInfo is the environment variable that client-go sets for a plugin.
const execInfo = "KUBERNETES_EXEC_INFO"

func credential(ctx context.Context, a *authenticator.Authenticator, _ []string, stdout io.Writer) error {
	if err := authenticator.CheckExecInfoVariable(os.Getenv(execInfo)); err != nil {
		return err
	}
	c, err := a.Credential(ctx)
	if err != nil {
		return err
	}
	return json.NewEncoder(stdout).Encode(c)
}

func daemon(ctx context.Context, a *authenticator.Authenticator, _ []string, _ io.Writer) error {
	notify("STATUS=getting the node's certificates")
	return a.Run(ctx)
}

// report is what status prints.
type report struct {
	*authenticator.Status
	EndorsementPassword string `json:"endorsementPassword,omitempty"` // where it is, not what
}

func status(a *authenticator.Authenticator, kept passwordFile, args []string, stdout io.Writer) error {
	flags := flag.NewFlagSet("status", flag.ContinueOnError) // errors go to standard error
	form := flags.String("o", "text", "text or json")
	if err := flags.Parse(args); err != nil {
		return errCommandLine
	}
	s := report{Status: a.Status()}
	var err error
	if kept != "" {
		if s.EndorsementPassword, err = kept.state(); err != nil {
			s.Problems = append(s.Problems, err.Error())
		}
	}
	switch *form {
	case "text":
		if kept != "" {
			fmt.Fprintf(stdout, "TPM's endorsement password: %s\n", refusal.Escape(s.EndorsementPassword))
		}
		err = s.Write(stdout, time.Now())
	case "json":
		e := json.NewEncoder(stdout)
		e.SetIndent("", "  ")
		err = e.Encode(s)
	default:
		return fmt.Errorf("%w: -o %s, want text or json", errCommandLine, refusal.Quote(*form))
	}
	if err == nil && !s.Usable {
		err = errNotUsable
	}
	return err
}

func rotate(ctx context.Context, a *authenticator.Authenticator, _ []string, stdout io.Writer) error {
	if err := a.Rotate(ctx); err != nil {
		return err
	}
	return a.Status().Write(stdout, time.Now())
}

// notify tells systemd about the state as a service of Type=notify does (sd_notify(3)).
// Without systemd it does nothing.
func notify(state string) {
	socket := os.Getenv("NOTIFY_SOCKET")
	if socket == "" {
		return
	}
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		return
	}
	_, _ = conn.Write([]byte(state)) // this is only a courtesy
	_ = conn.Close()
}

// readEventLog reads the firmware's event log.
func readEventLog(path string) func(context.Context) ([]byte, error) {
	return func(context.Context) ([]byte, error) { return readFile(path, statement.MaxEventLogSize) }
}
