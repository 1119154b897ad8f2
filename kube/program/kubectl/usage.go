package kubectl

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/nodeattest/nodeattest/refusal"
)

// usage describes the commands whose name begins with the words before --help, with their flags; or else
// all commands and all flags.
func usage(w io.Writer, flags *pflag.FlagSet, own []string) {
	named := commands()
	words := strings.Join(flags.Args(), " ")
	longest := 0 // of the names that words begin with
	for _, c := range named {
		if name, _, _ := strings.Cut(c.name, " --"); strings.HasPrefix(words+" ", name+" ") {
			longest = max(longest, len(name))
		}
	}
	named = slices.DeleteFunc(named, func(c command) bool {
		name, _, _ := strings.Cut(c.name, " --")
		return len(name) < longest || !strings.HasPrefix(words+" ", name+" ") && !strings.HasPrefix(name+" ", words+" ")
	})
	if words == "" || len(named) == 0 {
		usageOfAll(w, flags)
		return
	}
	for i, c := range named {
		if i != 0 {
			fmt.Fprintln(w)
		}
		usageOf(w, &c, flags, own)
	}
}

// usageOfAll describes all commands and flags.
func usageOfAll(w io.Writer, flags *pflag.FlagSet) {
	fmt.Fprint(w, "usage: kubectl nodeattest COMMAND [flags]\n\n")
	for _, c := range commands() {
		fmt.Fprintf(w, "  %-20s %s\n", strings.TrimSpace(c.name+" "+c.arguments), c.help)
	}
	fmt.Fprintf(w, "\nflags:\n%s", flags.FlagUsages())
}

// usageOf describes a command and its own flags. Their texts begin with the commands that take them.
func usageOf(w io.Writer, c *command, flags *pflag.FlagSet, own []string) {
	fmt.Fprintf(w, "usage: kubectl nodeattest %s [flags]\n\n%s\n", strings.TrimSpace(c.name+" "+c.arguments), c.help)
	of := pflag.NewFlagSet(c.name, pflag.ContinueOnError)
	of.SortFlags = false
	flags.VisitAll(func(f *pflag.Flag) {
		if slices.Contains(own, f.Name) && slices.Contains(c.flags, f.Name) || c.name == publishCommand && f.Name == "server" {
			of.AddFlag(f)
		}
	})
	if of.HasFlags() {
		fmt.Fprintf(w, "\nflags:\n%s", of.FlagUsages())
	}
	if c.files == nil {
		fmt.Fprintln(w, "\nThe flags for the connection to the cluster are those of kubectl: see kubectl nodeattest --help")
	}
}

// missing refuses a command line without a flag that its command needs, or with two that exclude each other,
// before the cluster is asked.
func (p *plugin) missing(c *command) error {
	lacks := ""
	switch c.name {
	case "approve":
		if p.machine == "" {
			lacks = "approve takes NODE and --machine, both as kubectl nodeattest pending shows them, or --existing-nodes"
		}
	case "rebind":
		if p.machine == "" {
			lacks = "rebind takes --machine"
		}
	case "adopt":
		if (p.machineUID == "") == (p.providerID == "") {
			lacks = "adopt takes --machine-uid or --provider-id"
		}
	case "release":
		if p.dryRun != "none" && p.dryRun != "server" {
			lacks = "--dry-run=" + refusal.Text(p.dryRun) + ": want none or server"
		}
	case "token":
		if p.newNode && p.machine != "" {
			lacks = "token takes one of --new and --machine: a node without a record has no machine"
		}
	case "cluster-info verify":
		if p.tokenFile == "" {
			lacks = "cluster-info verify takes --token-file"
		}
	case publishCommand:
		if p.publishServer == "" || p.ca == "" {
			lacks = "cluster-info publish takes --server and --ca"
		}
	}
	if lacks != "" {
		return fmt.Errorf("%s; %w", lacks, errUsage)
	}
	return checkOutput(p.output)
}
