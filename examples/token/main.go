// Token makes and looks after bootstrap tokens without a cluster: its tokens are the
// manifests of their Secrets, one file each, in a folder.
//
//	go run ./examples/token generate
//	go run ./examples/token create -o yaml | kubectl apply -f -
//	go run ./examples/token create -ttl 1h -description "rack 7"
//	go run ./examples/token list -o table
//	go run ./examples/token delete abcdef
//	go run ./examples/token sweep
//
// The commands are those of `kubeadm token`, and sweep does what Kubernetes' token cleaner
// does. What differs: list hides the secrets unless it is told -insecure-show-secrets, and
// names on standard error the Secrets that it refuses, with the reason; a token without an
// end has to be asked for by -insecure-never-expires.
//
// The exit status is 0 where all went well, 1 where something failed or was refused, and 2
// where the command line is wrong.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/nodeattest/nodeattest/bootstraptoken"
)

const usage = `usage: token [-dir tokens] generate
       token [-dir tokens] create [-ttl 24h] [-insecure-never-expires] [-description text]
                                  [-usages signing,authentication] [-groups a,b] [-o token|yaml|json]
       token [-dir tokens] list [-o table|json|yaml] [-insecure-show-secrets]
       token [-dir tokens] delete id-or-token ...
       token [-dir tokens] sweep
`

func main() {
	p := &program{now: time.Now, stdout: os.Stdout, stderr: os.Stderr}
	os.Exit(p.run(os.Args[1:]))
}

// A program is one run of a command.
type program struct {
	now            func() time.Time
	stdout, stderr io.Writer
	store          folder
}

// errUsage says that the command line is wrong; why has been printed.
var errUsage = errors.New("wrong usage")

// run returns the exit status.
func (p *program) run(args []string) int {
	flags := p.flags("token")
	flags.StringVar((*string)(&p.store), "dir", "tokens", "the folder of manifests")
	err := parse(flags, args)
	if err == nil {
		err = p.command(flags.Args())
	}
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
		return 0
	case errors.Is(err, errUsage):
		return 2
	}
	fmt.Fprintf(p.stderr, "token: %v\n", err)
	return 1
}

func (p *program) command(args []string) error {
	commands := map[string]func([]string) error{
		"generate": p.generate, "create": p.create, "list": p.list, "delete": p.remove, "sweep": p.sweep,
	}
	if len(args) == 0 || commands[args[0]] == nil {
		return p.wrong("which of generate, create, list, delete and sweep?")
	}
	return commands[args[0]](args[1:])
}

func (p *program) flags(name string) *flag.FlagSet {
	flags := flag.NewFlagSet(name, flag.ContinueOnError)
	flags.SetOutput(p.stderr)
	flags.Usage = func() { fmt.Fprint(p.stderr, usage) }
	return flags
}

// parse turns the errors of the flag package, which has printed them, into errUsage.
func parse(flags *flag.FlagSet, args []string) error {
	err := flags.Parse(args)
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		return errUsage
	}
	return err
}

func (p *program) wrong(why string) error {
	fmt.Fprintf(p.stderr, "%s\n%s", why, usage)
	return errUsage
}

// generate prints a token and stores nothing.
func (p *program) generate(args []string) error {
	flags := p.flags("generate")
	if err := parse(flags, args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return p.wrong("generate takes no arguments")
	}
	_, err := fmt.Fprintln(p.stdout, bootstraptoken.Generate().Reveal())
	return err
}

// create makes a token. By default it stores the manifest and prints the token, once;
// with -o yaml or json it prints the manifest and stores nothing.
func (p *program) create(args []string) error {
	flags := p.flags("create")
	var options bootstraptoken.CreateOptions
	flags.DurationVar(&options.TTL, "ttl", 0, "how long the token lives (24h)")
	flags.BoolVar(&options.InsecureNeverExpires, "insecure-never-expires", false, "make a token without an end")
	flags.StringVar(&options.Description, "description", "", "text for people")
	usages := flags.String("usages", "signing,authentication", "what the token may be used for")
	groups := flags.String("groups", "", "the groups that it authenticates as")
	output := flags.String("o", "token", "token, yaml or json")
	if err := parse(flags, args); err != nil {
		return err
	}
	for usage := range strings.SplitSeq(*usages, ",") {
		switch usage {
		case "signing":
			options.Usages.Signing = true
		case "authentication":
			options.Usages.Authentication = true
		default:
			return p.wrong("a usage is signing or authentication")
		}
	}
	if *groups != "" {
		options.Groups = strings.Split(*groups, ",")
	}
	if flags.NArg() > 0 {
		return p.wrong("create takes no arguments")
	}
	secret, err := bootstraptoken.Create(options, p.now())
	if err != nil {
		return err
	}
	object, err := secret.Object()
	if err != nil {
		return err
	}
	switch *output {
	case "token":
		if err := p.store.add(object); err != nil {
			return err
		}
		_, err = fmt.Fprintln(p.stdout, secret.Token.Reveal())
		return err
	case "yaml":
		return p.print(object.RevealYAML())
	case "json":
		return p.print(object.RevealJSON())
	}
	return p.wrong("create -o takes token, yaml or json")
}

// list prints the tokens of the folder. A manifest that is refused is named on standard
// error, and the exit status is 1, so that nobody takes the list for complete.
func (p *program) list(args []string) error {
	flags := p.flags("list")
	var view bootstraptoken.View
	flags.BoolVar(&view.InsecureShowSecrets, "insecure-show-secrets", false, "print whole tokens")
	output := flags.String("o", "table", "table, json or yaml")
	if err := parse(flags, args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return p.wrong("list takes no arguments")
	}
	objects, unread := p.store.read()
	secrets, refused := bootstraptoken.List(objects)
	for _, r := range refused {
		unread = errors.Join(unread, fmt.Errorf("%q is refused: %w", r.Name, r.Err))
	}
	var err error
	switch *output {
	case "table":
		err = p.print([]byte(view.Table(secrets, p.now())), nil)
	case "json":
		err = p.print(view.JSON(secrets))
	case "yaml":
		err = p.print(view.YAML(secrets))
	default:
		return p.wrong("list -o takes table, json or yaml")
	}
	return errors.Join(err, unread)
}

// remove deletes tokens, given by ID or whole.
func (p *program) remove(args []string) error {
	flags := p.flags("delete")
	if err := parse(flags, args); err != nil {
		return err
	}
	if flags.NArg() == 0 {
		return p.wrong("delete takes IDs or tokens")
	}
	for _, arg := range flags.Args() {
		id, err := bootstraptoken.ParseID(arg)
		if err != nil {
			return err
		}
		if err := p.store.remove(bootstraptoken.SecretName(id)); err != nil {
			return err
		}
		fmt.Fprintf(p.stdout, "bootstrap token %q deleted\n", id)
	}
	return nil
}

// sweep deletes the tokens that have expired, and says when to look again.
func (p *program) sweep(args []string) error {
	flags := p.flags("sweep")
	if err := parse(flags, args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return p.wrong("sweep takes no arguments")
	}
	objects, unread := p.store.read()
	found, err := bootstraptoken.Sweep(objects, p.now())
	if err != nil {
		return err
	}
	for _, d := range found.Delete {
		if err := p.store.remove(d.Name); err != nil {
			return err
		}
		fmt.Fprintf(p.stdout, "%s has expired and is deleted\n", d.Name)
	}
	for _, r := range found.Refused {
		unread = errors.Join(unread, fmt.Errorf("%q is refused: %w", r.Name, r.Err))
	}
	if found.Next.IsZero() {
		fmt.Fprintln(p.stdout, "nothing else expires")
	} else {
		fmt.Fprintf(p.stdout, "look again at %s\n", found.Next.UTC().Format(time.RFC3339))
	}
	return unread
}

// print writes what a marshalling function returns.
func (p *program) print(text []byte, err error) error {
	if err == nil {
		_, err = p.stdout.Write(text)
	}
	return err
}
