// Command kubectl-nodeattest is a kubectl plugin for people who run a cluster whose nodes
// attest themselves. It shows what became of a node's request, and changes by hand which
// machine is which node:
//
//	kubectl nodeattest explain REQUEST
//	kubectl nodeattest pending
//	kubectl nodeattest approve REQUEST [--machine-uid UID] [--provider-id ID] [--existing-node]
//	kubectl nodeattest rebind NODE (--request REQUEST | --machine IDENTITY)
//	kubectl nodeattest adopt NODE --machine-uid UID
//	kubectl nodeattest release NODE
//
// It takes kubectl's flags for the connection (--kubeconfig, --context, --user, --as and so
// on), and --namespace for the namespace of the controller's configuration. What a user needs
// to be allowed to do is in kube/deploy/operator.yaml. The exit status is 0 on success, 1
// after an error, 2 after a wrong command line.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/runtime"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/kube/api/v1alpha1"
	"github.com/nodeattest/nodeattest/kube/internal/settings"
	"github.com/nodeattest/nodeattest/refusal"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	status := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(status)
}

// plugin is one run of the program.
type plugin struct {
	client    client.Client
	kinds     []attest.Kind
	namespace string
	out       io.Writer
	now       func() time.Time
	options
}

// options are the flags of the commands.
type options struct {
	machineUID, providerID, request, machine string
	existingNode                             bool
}

// command is one of the program's commands.
type command struct {
	name, arguments, help string
	// argument says whether it takes one.
	argument bool
	flags    []string
	run      func(p *plugin, ctx context.Context, argument string) error
}

func commands() []command {
	return []command{
		{"explain", "REQUEST", "show each rule for a certificate request, and who has to act next", true, nil, (*plugin).explain},
		{"pending", "", "list the machines that were refused and may be admitted", false, nil, (*plugin).pending},
		{"approve", "REQUEST", "admit the machine of a refused request as the node that it wants to be", true, []string{"machine-uid", "provider-id", "machine", "existing-node"}, (*plugin).approve},
		{"rebind", "NODE", "give a node another machine, whose board was replaced", true, []string{"request", "machine"}, (*plugin).rebind},
		{"adopt", "NODE", "give a node's record the UID of another Machine of the inventory", true, []string{"machine-uid"}, (*plugin).adopt},
		{"release", "NODE", "say that a node's machine is gone", true, nil, (*plugin).release},
	}
}

// errUsage says that the command line is wrong.
var errUsage = errors.New("see kubectl nodeattest --help")

// run is the program. It returns the exit status.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	err := try(ctx, args, stdout, stderr)
	switch {
	case err == nil, errors.Is(err, pflag.ErrHelp):
		return 0
	case errors.Is(err, errUsage):
		fmt.Fprintf(stderr, "error: %s\n", refusal.Escape(err.Error()))
		return 2
	}
	fmt.Fprintf(stderr, "error: %s\n", refusal.Escape(err.Error()))
	return 1
}

func try(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	kinds, err := settings.Readers()
	if err != nil {
		return err
	}
	p := &plugin{out: stdout, now: time.Now, kinds: kinds}
	flags := pflag.NewFlagSet("kubectl nodeattest", pflag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.SortFlags = false
	flags.StringVar(&p.machineUID, "machine-uid", "", "approve, adopt: the UID of the inventory's Machine")
	flags.StringVar(&p.providerID, "provider-id", "", "approve: the machine's provider ID")
	flags.StringVar(&p.machine, "machine", "", "approve, rebind: the machine's identity, such as ek:sha256:...")
	flags.StringVar(&p.request, "request", "", "rebind: the machine's refused request")
	flags.BoolVar(&p.existingNode, "existing-node", false, "approve: also where there is a Node of that name")
	own := []string{"machine-uid", "provider-id", "machine", "request", "existing-node"}
	rules, overrides := clientcmd.NewDefaultClientConfigLoadingRules(), &clientcmd.ConfigOverrides{}
	flags.StringVar(&rules.ExplicitPath, "kubeconfig", "", "path of the kubeconfig")
	clientcmd.BindOverrideFlags(overrides, flags, clientcmd.RecommendedConfigOverrideFlags(""))
	flags.Usage = func() { usage(stderr, flags) }
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, pflag.ErrHelp) {
			return err
		}
		return fmt.Errorf("%w; %w", err, errUsage)
	}
	c, argument, err := commandOf(flags, own)
	if err != nil {
		return err
	}
	if p.namespace = overrides.Context.Namespace; p.namespace == "" {
		p.namespace = defaultNamespace
	}
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides).ClientConfig()
	if err != nil {
		return err
	}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientscheme.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			return err
		}
	}
	if p.client, err = client.New(config, client.Options{Scheme: scheme}); err != nil {
		return err
	}
	return c.run(p, ctx, argument)
}

// commandOf finds the command, and checks the arguments and flags against what it takes.
func commandOf(flags *pflag.FlagSet, own []string) (*command, string, error) {
	args := flags.Args()
	if len(args) == 0 {
		return nil, "", fmt.Errorf("a command is missing; %w", errUsage)
	}
	all := commands()
	n := slices.IndexFunc(all, func(c command) bool { return c.name == args[0] })
	if n < 0 {
		return nil, "", fmt.Errorf("there is no command %s; %w", refusal.Quote(args[0]), errUsage)
	}
	c, want := &all[n], 1
	if c.argument {
		want = 2
	}
	if len(args) != want {
		return nil, "", fmt.Errorf("%s takes %s; %w", c.name, refusal.OrNothing(c.arguments), errUsage)
	}
	var err error
	flags.Visit(func(f *pflag.Flag) {
		if slices.Contains(own, f.Name) && !slices.Contains(c.flags, f.Name) {
			err = fmt.Errorf("%s takes no --%s; %w", c.name, f.Name, errUsage)
		}
	})
	return c, args[want-1], err
}

func usage(w io.Writer, flags *pflag.FlagSet) {
	fmt.Fprint(w, "usage: kubectl nodeattest COMMAND [flags]\n\n")
	for _, c := range commands() {
		fmt.Fprintf(w, "  %-17s %s\n", c.name+" "+c.arguments, c.help)
	}
	fmt.Fprintf(w, "\nflags:\n%s", flags.FlagUsages())
}
