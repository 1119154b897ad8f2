package node

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/nodeattest/nodeattest/refusal"
)

// command describes a command to its user.
type command struct {
	name, args, does string
	flags            func() *flag.FlagSet // nil without flags
}

// commands returns the program's commands.
func commands() []command {
	return []command{
		{"credential", "", "is the kubelet's exec credential plugin: prints the client certificate, and gets one where it is missing", nil},
		{"daemon", "", "renews the certificates until it is ended, as the systemd service does", nil},
		{"status", "[-o json]", "prints the certificates and the problems; status 1 without a usable client certificate", func() *flag.FlagSet { return statusFlags(new(string)) }},
		{"rotate", "", "renews the certificates now", nil},
		{"enrol", "--ca FILE (--dir FOLDER | --url URL --server-ca FILE) [--ek NAME] [--owner-password-file FILE]",
			"has the operator's CA certify the machine's attestation key", func() *flag.FlagSet { return new(enrolFlags).set() }},
		{"identity", "[--device PATH] [--ek NAME] [--roots FILE] [--node NAME] [-o inventory]",
			"prints the machine's identity, or its line for the inventory; without a configuration file, of a TPM. It writes nothing", func() *flag.FlagSet { return new(identification).flags() }},
		{"doctor", "[--roots FILE]",
			"examines the machine, the cluster and the kubelet's configuration, and writes nothing; status 4 if the machine is broken, else 5 for the cluster, 6 for the kubelet",
			func() *flag.FlagSet { return new(examination).flags() }},
		{"migrate", "[--timeout TIME] [--ready-timeout TIME] [--undo]",
			"has the kubelet of a node that kubeadm joined use the plugin, and puts its files back if it is not ready in time; status 3 if no operator approves",
			func() *flag.FlagSet { return (&migration{readyLimit: readyLimit}).flags() }},
		{"roots", "check FILE...", "compares downloaded certificates of TPM vendors with the list of docs/vendor-roots.md; reads no configuration file", nil},
		{"discover", "ADDRESS...", "finds the cluster of a machine that has no configuration file; status 3 if it is not found in time", func() *flag.FlagSet { return new(discovery).flags(new([]string)) }},
	}
}

// parseLine parses the flags before the command. done says that the arguments asked for help or the version alone.
func parseLine(args []string, stdout, stderr io.Writer) (path source, rest []string, done bool, err error) {
	flags := flag.NewFlagSet("kubelet-authenticator", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&path.file, "config", defaultConfig, "the configuration file, of kind "+settingsKind)
	printVersion := flags.Bool("version", false, "print the program's version")
	flags.Usage = func() {}
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		usage(stdout, flags)
		return path, nil, true, nil
	case err != nil:
		usage(stderr, flags)
		return path, nil, true, errCommandLine
	case *printVersion:
		_, err := fmt.Fprintln(stdout, "kubelet-authenticator", version())
		return path, nil, true, err
	}
	flags.Visit(func(f *flag.Flag) { path.given = path.given || f.Name == "config" })
	rest = flags.Args()
	if len(rest) == 0 && os.Getenv(execInfo) != "" {
		rest = []string{"credential"}
	}
	name := ""
	if len(rest) != 0 {
		name = rest[0]
	}
	switch {
	case !slices.Contains(names(), name):
		usage(stderr, flags)
		return path, nil, true, fmt.Errorf("%w: command %s, want %s", errCommandLine, refusal.Quote(name), strings.Join(names(), ", "))
	case help(stdout, name, rest[1:]):
		return path, nil, true, nil
	}
	return path, rest, false, nil
}

// names returns the names of the commands.
func names() []string {
	var all []string
	for _, c := range commands() {
		all = append(all, c.name)
	}
	return all
}

// usage writes the help of the program.
func usage(w io.Writer, flags *flag.FlagSet) {
	fmt.Fprint(w, "usage: kubelet-authenticator [--config FILE] COMMAND\n\n")
	for _, c := range commands() {
		fmt.Fprintf(w, "  %s\n        %s\n", strings.TrimSpace(c.name+" "+c.args), c.does)
	}
	fmt.Fprint(w, "\nCOMMAND --help prints the flags of a command. Flags of all commands:\n")
	flags.SetOutput(w)
	flags.PrintDefaults()
}

// help writes the help of a command if the arguments ask for it.
func help(w io.Writer, name string, args []string) bool {
	n := slices.Index(names(), name)
	if n < 0 || !slices.ContainsFunc(args, func(arg string) bool { return slices.Contains([]string{"-h", "-help", "--help"}, arg) }) {
		return false
	}
	c := commands()[n]
	fmt.Fprintf(w, "usage: %s\n\n%s %s.\n", strings.TrimSpace("kubelet-authenticator [--config FILE] "+c.name+" "+c.args), c.name, c.does)
	if c.flags != nil {
		fmt.Fprint(w, "\nFlags:\n")
		flags := c.flags()
		flags.SetOutput(w)
		flags.PrintDefaults()
	}
	return true
}

// version returns the version of the program's module, which the Go command has written into it.
func version() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "unknown"
}

// withoutConfig runs a command that needs no configuration file, and reports whether it is one.
func withoutConfig(ctx context.Context, name string, args []string, from source, stdout, stderr io.Writer) (done bool, err error) {
	switch name {
	case "roots":
		return true, roots(args, stdout, time.Now())
	case "discover":
		return true, newDiscovery(os.Stdin).command(ctx, args, stdout, stderr)
	case "identity":
		return true, new(identification).command(ctx, args, from, stdout, stderr)
	case "doctor":
		return true, (&examination{now: time.Now}).command(ctx, args, from, stdout, stderr)
	}
	return false, nil
}
