// Package kubectl is the kubectl plugin of this module, kubectl nodeattest, for a main
// function that adds kinds of evidence to the built-in ones. It is for administrators of a
// cluster whose nodes attest themselves. It explains a node's request, shows and
// decides recorded requests from files, and changes which machine is recorded for a node:
//
//	kubectl nodeattest explain REQUEST
//	kubectl nodeattest pending [-o json|wide|name]
//	kubectl nodeattest nodes [-o json|wide|name]
//	kubectl nodeattest observed [-o json|wide|name] [--exit-code]
//	kubectl nodeattest measurements NODE [-o json|wide|name]
//	kubectl nodeattest measurements diff NODE [NODE] [-o json|wide|name] [--exit-code]
//	kubectl nodeattest measurements export [NODE...] [--pcrs LIST]
//	kubectl nodeattest approve NODE --machine IDENTITY [--machine-uid UID] [--provider-id ID] [--existing-node] [--without-inventory]
//	kubectl nodeattest approve --existing-nodes [NODE...] [--yes]
//	kubectl nodeattest rebind NODE --machine IDENTITY [--replaces IDENTITY] [--without-inventory] [--force]
//	kubectl nodeattest adopt NODE (--machine-uid UID | --provider-id ID) [--machine IDENTITY] [--without-inventory] [--force]
//	kubectl nodeattest release NODE [--machine IDENTITY] [--dry-run=server]
//	kubectl nodeattest release --gone [--yes]
//	kubectl nodeattest pool shut NAME
//	kubectl nodeattest pool open NAME
//	kubectl nodeattest token NODE [--machine IDENTITY | --new] [--join]
//	kubectl nodeattest cluster-info show
//	kubectl nodeattest cluster-info verify --token-file FILE
//	kubectl nodeattest cluster-info publish --server URL --ca FILE [--also-server URL]... [--replace]
//	kubectl nodeattest inspect FILE...
//	kubectl nodeattest verify FILE... --config FILE [--at TIME] [--key-ring FILE] [--records FILE]
//	kubectl nodeattest trace JTI=ID|X509SHA256=DIGEST --audit-log FILE [--audit-log FILE...] [--records FILE]
//	kubectl nodeattest static-policies FILE...
//
// A command that changes a record takes the identity of a machine, never the name of a request, which its
// requester chooses. Without the flag that names the recorded machine, rebind, adopt and release show
// it and ask; they do nothing if the record changes meanwhile. approve, rebind and adopt hold the machine,
// its UID and its provider ID against the inventory's entry for the node, which the controller does, too.
// approve --existing-nodes shows the machines that wait to be recorded as Nodes that exist and have no
// record, and asks. It refuses a Node by name if the inventory differs or does not have it, if several
// machines ask for it, or if the machine asks for several Nodes; and if another account than the node has
// filed the request, unless the inventory has the machine's identity.
//
// release --gone shows the nodes that the controller holds back because many Machines of Cluster API went
// missing at once, and asks. It releases each one that the controller still holds.
//
// measurements shows the PCR values that a node's machine last quoted, whether Secure Boot was on, and what was
// wrong; diff compares two nodes, or the last two boots of one. export prints the values of nodes as the goodPCRs
// of the controller's configuration.
//
// pool shut has no machine join by a MachinePool of Cluster API any more, and the controller delete its bootstrap
// tokens, until pool open. Its nodes go on.
//
// inspect and verify need no cluster; - is standard input. verify fetches nothing, unless the
// configuration has Google's keys or Azure's certificates fetched. trace finds in kube-apiserver's
// audit log who requested a credential, and in the cluster or a file of records to which machine the
// requester's certificate was issued; see package claims/audit. static-policies prints the admission
// policies of rendered manifests that refuse requests, as a file for kube-apiserver's own disk. The others take kubectl's
// flags for the connection (--kubeconfig, --context, --user, --as and so on), and --namespace
// for the namespace of the controller's configuration. The permissions that a user needs are
// in kube/deploy/operator.yaml, and for publish in kube/deploy/publisher.yaml. The exit status is 0
// on success, 1 after an error, 2 after a wrong command line. For observed --exit-code it is 1 while a node
// is left, and for measurements diff --exit-code if something differs. For verify it is 0 if every request is
// admitted, 1 if one is refused, and 2 if verify could not decide. For cluster-info publish it is 3 if a
// server could not be reached, so that it is not known under which CA it serves, and nothing was written.
// For trace it is 0 only if the credential goes back to a recorded machine.
package kubectl

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/runtime"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/kube/api/v1alpha1"
	"github.com/nodeattest/nodeattest/kube/internal/requests"
	"github.com/nodeattest/nodeattest/kube/internal/settings"
	"github.com/nodeattest/nodeattest/kube/program/controlplane"
	"github.com/nodeattest/nodeattest/kube/program/internal/version"
	"github.com/nodeattest/nodeattest/refusal"
)

// Main is the program kubectl-nodeattest. It runs the command that args name, and returns its
// exit status. Requests with evidence of a kind that is neither built in nor given are
// shown as such.
func Main(args []string, stdin io.Reader, stdout, stderr io.Writer, kinds ...controlplane.Plugin) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	return run(ctx, streams{stdin, stdout, stderr}, kinds, args)
}

// streams are the standard input, output and error.
type streams struct {
	in       io.Reader
	out, err io.Writer
}

// plugin is one run of the program.
type plugin struct {
	streams
	client    client.Client
	api       rest.Interface // of certificate requests
	others    []settings.Documents
	kinds     []attest.Kind // which read, and trust no issuer
	namespace string
	now       func() time.Time
	// reach connects to the cluster, for a command on files that may need one.
	reach func() error
	// terminal says that an operator at a terminal can be asked.
	terminal bool
	options
}

// options are the flags of the commands.
type options struct {
	machineUID, providerID, machine, replaces string
	existingNode, withoutInventory            bool
	yes                                       bool
	dryRun                                    string
	config, at, keyRing, records              string
	newNode, join, replace                    bool
	output                                    string
	exitCode, force                           bool
	pcrs                                      []int
	publishServer, ca, tokenFile              string
	auditLogs, alsoServers                    []string
}

// command is one of the program's commands.
type command struct {
	// name is one word, or two, of which the second may be a flag.
	name, arguments, help string
	// argument says whether it takes one. It takes more on files, and where a NODE in brackets follows.
	argument bool
	flags    []string
	run      func(p *plugin, ctx context.Context, argument string) error
	// files runs a command on files, which needs no cluster at first; run is nil.
	files func(p *plugin, ctx context.Context, names []string) error
}

const (
	publishCommand  = "cluster-info publish"
	existingCommand = "approve --existing-nodes"
	goneCommand     = "release --gone"
)

// flagCommands are the commands with a flag in their name.
var flagCommands = []string{existingCommand, goneCommand}

func commands() []command {
	return []command{
		{"explain", "REQUEST", "show each rule for a certificate request, and who has to act next", true, nil, (*plugin).explain, nil},
		{"pending", "", "list the refused machines that an administrator may approve", false, []string{"output"}, (*plugin).pending, nil},
		{"nodes", "", "list every node: how and until when it is attested, where its key is, or that it is plain or was never seen", false, []string{"output"}, (*plugin).nodes, nil},
		{"observed", "", "list the nodes without a record, and why their requests would be refused if attestation were enforced", false, []string{"output", "exit-code"}, (*plugin).observed, nil},
		{"measurements", "NODE", "show what a node's machine has booted: PCR values, Secure Boot, and what was wrong", true, []string{"output"}, (*plugin).measurements, nil},
		{"measurements diff", "NODE [NODE]", "show in what the boots of two nodes differ, or the last two of one", true, []string{"output", "exit-code"}, (*plugin).diffMeasurements, nil},
		{"measurements export", "[NODE...]", "print the measurements of nodes as tpm.goodPCRs of the controller's configuration", false, []string{"pcrs"}, (*plugin).exportMeasurements, nil},
		{"approve", "NODE", "record a refused machine as the node; pending shows both", true, []string{"machine-uid", "provider-id", "machine", "existing-node", "without-inventory"}, (*plugin).approve, nil},
		{existingCommand, "[NODE...]", "record all the machines that wait as Nodes that exist and have no record, or those of the Nodes given; shows them and asks", false,
			[]string{"existing-nodes", "yes"}, (*plugin).approveExisting, nil},
		{"rebind", "NODE", "record another machine for a node, such as after its board was replaced", true, []string{"machine", "replaces", "without-inventory", "force"}, (*plugin).rebind, nil},
		{"adopt", "NODE", "change the inventory UID or the provider ID in a node's record", true, []string{"machine-uid", "provider-id", "machine", "without-inventory", "force"}, (*plugin).adopt, nil},
		{"release", "NODE", "release a node whose machine is gone; approving the machine again undoes this", true, []string{"machine", "dry-run"}, (*plugin).release, nil},
		{goneCommand, "", "release the nodes that the controller leaves to an operator, as many Machines of Cluster API went missing at once; shows them and asks", false,
			[]string{"gone", "yes"}, (*plugin).releaseGone, nil},
		{"pool shut", "NAME", "let no more machines join by a MachinePool of Cluster API, and have its bootstrap tokens deleted; nodes that have joined go on", true, nil, (*plugin).shutPool, nil},
		{"pool open", "NAME", "let machines join again by a MachinePool that was shut", true, nil, (*plugin).openPool, nil},
		{"token", "NODE", "print a bootstrap token, valid for an hour, for a node whose certificates have all expired, or with --new for a machine of the inventory", true, []string{"machine", "new", "join"}, (*plugin).token, nil},
		{"cluster-info show", "", "show the discovery document, and what anonymous clients can read", false, nil, (*plugin).showClusterInfo, nil},
		{"cluster-info verify", "", "check that a token has signed the discovery document", false, []string{"token-file"}, (*plugin).verifyClusterInfo, nil},
		{publishCommand, "", "make or change the discovery document, and let anonymous clients read it", false, []string{"ca", "also-server", "replace"}, (*plugin).publishClusterInfo, nil},
		{"inspect", "FILE...", "show requests and evidence as a tree, without deciding about them", true, nil, nil, (*plugin).inspect},
		{"verify", "FILE...", "decide recorded requests with the controller's configuration", true, []string{"config", "at", "key-ring", "records"}, nil, (*plugin).verify},
		{"trace", "CREDENTIAL", "find the machine whose node requested a token (JTI=ID) or uses a certificate (X509SHA256=DIGEST)", true, []string{"audit-log", "records"}, nil, (*plugin).trace},
		{"static-policies", "FILE...", "print the admission policies of rendered manifests that refuse requests, as a file for the disk of kube-apiserver (docs/static-policies.md)", true, nil, nil, (*plugin).staticPolicies},
	}
}

// errUsage says that the command line is wrong.
var errUsage = errors.New("see kubectl nodeattest --help")

// exitStatus ends the program with a status and no further message.
type exitStatus int

func (s exitStatus) Error() string { return fmt.Sprintf("exit status %d", int(s)) }

// run is Main with a context.
func run(ctx context.Context, std streams, kinds []controlplane.Plugin, args []string) int {
	err := try(ctx, std, kinds, args)
	status, said := errors.AsType[exitStatus](err)
	switch {
	case err == nil, errors.Is(err, pflag.ErrHelp):
		return 0
	case said:
		return int(status)
	}
	report(std.err, err)
	if errors.Is(err, errUsage) {
		return 2
	}
	return 1
}

// report prints an error, in one line.
func report(w io.Writer, err error) { fmt.Fprintf(w, "error: %s\n", refusal.Escape(err.Error())) }

// newPlugin makes a plugin without a cluster. Its output is escaped for terminals.
func newPlugin(std streams, kinds []controlplane.Plugin) (*plugin, error) {
	p := &plugin{streams: streams{std.in, escaped{std.out}, escaped{std.err}}, now: time.Now, terminal: isTerminal(std.in)}
	for _, k := range kinds {
		p.others = append(p.others, settings.Documents(k))
	}
	var err error
	p.kinds, err = settings.Readers(p.others...)
	return p, err
}

// escaped writes lines as [refusal.Escape] has them. Each line is written at once.
type escaped struct{ io.Writer }

func (w escaped) Write(b []byte) (int, error) {
	lines := strings.Split(string(b), "\n")
	for i := range lines {
		lines[i] = refusal.Escape(lines[i])
	}
	if _, err := io.WriteString(w.Writer, strings.Join(lines, "\n")); err != nil {
		return 0, err
	}
	return len(b), nil
}

func try(ctx context.Context, std streams, kinds []controlplane.Plugin, args []string) error {
	p, err := newPlugin(std, kinds)
	if err != nil {
		return err
	}
	flags := pflag.NewFlagSet("kubectl nodeattest", pflag.ContinueOnError)
	flags.SetOutput(std.err)
	flags.SortFlags = false
	flags.StringVar(&p.machineUID, "machine-uid", "", "approve, adopt: the UID of the inventory's Machine")
	flags.StringVar(&p.providerID, "provider-id", "", "approve, adopt: the machine's provider ID")
	flags.StringVar(&p.machine, "machine", "", "the machine's identity, such as ek:sha256:...; approve, rebind: of the machine to record; adopt, release, token: of the recorded machine")
	flags.StringVar(&p.replaces, "replaces", "", "rebind: the identity of the machine recorded so far")
	flags.BoolVar(&p.existingNode, "existing-node", false, "approve: even if a Node of that name exists")
	flags.BoolVar(new(bool), "existing-nodes", false, "approve: the machines that wait as Nodes that exist and have no record")
	flags.BoolVar(&p.yes, "yes", false, "approve --existing-nodes, release --gone: do not ask")
	flags.BoolVar(new(bool), "gone", false, "release: the nodes whose Machines the controller does not find, and which it leaves to an operator")
	flags.BoolVar(&p.withoutInventory, "without-inventory", false, "approve, rebind, adopt: even if the inventory cannot be read")
	flags.BoolVar(&p.force, "force", false, "rebind, adopt: even if the inventory has something else; the controller refuses the machine until it agrees")
	flags.StringVar(&p.dryRun, "dry-run", "none", "release: with server, change nothing")
	flags.StringVar(&p.config, "config", "", "verify: the controller's configuration file")
	flags.StringVar(&p.at, "at", "", "verify: the time of the decision (RFC 3339); by default a second after the request was made")
	flags.StringVar(&p.keyRing, "key-ring", "", "verify: the challenge keys: the output of kubectl get secret -o json")
	flags.StringArrayVar(&p.auditLogs, "audit-log", nil, "trace: a file of an API server's audit log, also compressed with gzip; repeat the flag for each file")
	flags.StringVar(&p.records, "records", "", "verify, trace: the AttestedNodes, and optionally the Nodes: the output of kubectl get -o json")
	flags.BoolVar(&p.newNode, "new", false, "token: for a node that the inventory has and that has no record")
	flags.BoolVar(&p.join, "join", false, "token: also show the command by which the machine discovers the cluster; the token then signs the discovery document")
	flags.StringVar(&p.tokenFile, "token-file", "", "cluster-info verify: the file with the token; - is standard input")
	flags.StringVar(&p.ca, "ca", "", "cluster-info publish: the file with the CAs of the API servers, in PEM")
	flags.StringArrayVar(&p.alsoServers, "also-server", nil, "cluster-info publish: the URL of another API server, such as each one behind a load balancer, under whose CA no CA is dropped; may be repeated")
	flags.BoolVar(&p.replace, "replace", false, "cluster-info publish: also replace a document that another program, such as kubeadm, wrote")
	flags.StringVarP(&p.output, "output", "o", "", "nodes, observed, pending, measurements: json, wide or name; by default a table")
	flags.BoolVar(&p.exitCode, "exit-code", false, "observed, measurements diff: exit with status 1 while a node is left, or if something differs")
	flags.IntSliceVar(&p.pcrs, "pcrs", nil, "measurements export: the PCRs to take, such as 0,2,4,7; by default all that are quoted. Some machines have values of PCRs 1 and 5 of their own")
	own := []string{"output", "exit-code", "pcrs", "force", "machine-uid", "provider-id", "machine", "replaces", "existing-node", "existing-nodes", "gone", "yes", "without-inventory", "dry-run", "config", "at", "key-ring", "audit-log",
		"records", "new", "join", "token-file", "ca", "also-server", "replace"}
	tell := flags.Bool("version", false, "print the version of this program, and do nothing else")
	rules, overrides := clientcmd.NewDefaultClientConfigLoadingRules(), &clientcmd.ConfigOverrides{}
	flags.StringVar(&rules.ExplicitPath, "kubeconfig", "", "path of the kubeconfig")
	clientcmd.BindOverrideFlags(overrides, flags, clientcmd.RecommendedConfigOverrideFlags(""))
	server := flags.Lookup("server")
	server.Usage = "cluster-info publish: the URL of the API server in the document; others: " + server.Usage
	flags.Usage = func() { usage(p.out, flags, own) }
	switch err := flags.Parse(args); {
	case errors.Is(err, pflag.ErrHelp):
		return err
	case err != nil:
		return fmt.Errorf("%w; %w", err, errUsage)
	case *tell:
		_, err = fmt.Fprintln(p.out, "kubectl-nodeattest", version.Of())
		return err
	}
	c, arguments, err := commandOf(flags, own)
	if err == nil && c.name == publishCommand { // whose connection is the kubeconfig's
		p.publishServer, overrides.ClusterInfo.Server = overrides.ClusterInfo.Server, ""
	}
	if err == nil {
		err = p.missing(c)
	}
	switch {
	case err != nil:
		return err
	case c.files != nil:
		p.reach = func() error { return p.connect(rules, overrides) }
		return c.files(p, ctx, arguments)
	}
	p.namespace = cmp.Or(overrides.Context.Namespace, defaultNamespace)
	if err = p.connect(rules, overrides); err != nil {
		return err
	}
	return c.run(p, ctx, strings.Join(arguments, " "))
}

// connect makes the clients of a cluster.
func (p *plugin) connect(rules clientcmd.ClientConfigLoader, overrides *clientcmd.ConfigOverrides) error {
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides).ClientConfig()
	if err != nil {
		return err
	}
	scheme := runtime.NewScheme()
	if err := (&runtime.SchemeBuilder{clientscheme.AddToScheme, v1alpha1.AddToScheme}).AddToScheme(scheme); err != nil {
		return err
	}
	http, err := rest.HTTPClientFor(config)
	if err != nil {
		return err
	}
	if p.api, err = requests.Client(config, http, scheme); err != nil {
		return err
	}
	p.client, err = client.New(config, client.Options{Scheme: scheme, HTTPClient: http})
	return err
}

// commandOf finds the command, and checks its arguments and flags. It also returns the arguments.
func commandOf(flags *pflag.FlagSet, own []string) (*command, []string, error) {
	args := flags.Args()
	if len(args) == 0 {
		return nil, nil, fmt.Errorf("no command given; %w", errUsage)
	}
	all, one, two := commands(), args[0], strings.Join(args[:min(2, len(args))], " ")
	for _, name := range flagCommands {
		if word, flag, _ := strings.Cut(name, " --"); one == word && flags.Lookup(flag).Value.String() == "true" {
			one, two = name, name
			break
		}
	}
	n := slices.IndexFunc(all, func(c command) bool { return c.name == two })
	if n < 0 {
		n = slices.IndexFunc(all, func(c command) bool { return c.name == one })
	}
	if n < 0 {
		return nil, nil, fmt.Errorf("unknown command %s; %w", refusal.Quote(two), errUsage)
	}
	c, want := &all[n], 0
	if c.argument {
		want = 1
	}
	if args = args[1:]; c.name == two && one != two {
		args = args[1:]
	}
	more := c.files != nil || strings.Contains(c.arguments, "[NODE")
	if len(args) != want && (!more || len(args) < want) {
		return nil, nil, fmt.Errorf("%s takes %s; %w", c.name, refusal.OrNothing(c.arguments), errUsage)
	}
	var err error
	flags.Visit(func(f *pflag.Flag) {
		if slices.Contains(own, f.Name) && !slices.Contains(c.flags, f.Name) {
			err = fmt.Errorf("%s takes no --%s; %w", c.name, f.Name, errUsage)
		}
	})
	return c, args, err
}
