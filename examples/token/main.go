// Token makes and manages bootstrap tokens without a cluster: its tokens are the manifests
// of their Secrets, one file each, in a folder. By default that is one of the user's, for
// whoever has such a file can join: it is not to be committed with what lies beside it.
//
//	go run ./examples/token generate
//	go run ./examples/token create -o yaml | kubectl apply -f -
//	go run ./examples/token create -ttl 1h -description "rack 7"
//	go run ./examples/token list
//	go run ./examples/token delete abcdef
//	go run ./examples/token sweep
//
// The commands are those of `kubeadm token`, and sweep does what Kubernetes' token cleaner
// does. The differences are: list hides the secrets unless -insecure-show-secrets is given,
// and names on standard error the Secrets that it refuses, with the reason; a token that
// never expires must be requested with -insecure-never-expires.
//
// The exit status is 0 if all went well, 1 if something failed or was refused, and 2 if the
// command line is wrong.
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

const usage = `usage: token [-dir folder] generate
       token [-dir folder] create [-ttl 24h] [-insecure-never-expires] [-description text]
                                  [-usages signing,authentication] [-groups a,b] [-o token|yaml]
       token [-dir folder] list [-insecure-show-secrets]
       token [-dir folder] delete id-or-token ...
       token [-dir folder] sweep

The folder is nodeattest/tokens in the user's folder of configuration, unless -dir is given.
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
	options        bootstraptoken.CreateOptions
	view           bootstraptoken.View
	manifest       bool // create prints it
}

// run returns the exit status. Flags may come before and after the command.
func (p *program) run(args []string) int {
	flags, command := p.flags(), ""
	err := flags.Parse(args)
	if err == nil && flags.NArg() > 0 {
		command = flags.Arg(0)
		err = flags.Parse(flags.Args()[1:])
	}
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	do := map[string]func(args []string) error{
		"generate": p.generate, "create": p.create, "list": p.list, "delete": p.remove, "sweep": p.sweep,
	}[command]
	if err == nil && (do == nil || (command == "delete") != (flags.NArg() > 0)) {
		err = errors.New("no such command")
		flags.Usage()
	}
	if err != nil {
		return 2 // the reason has been printed
	}
	if p.store == "" {
		if p.store, err = usersFolder(); err != nil {
			fmt.Fprintf(p.stderr, "token: no folder for tokens: %v: give one with -dir\n", err)
			return 1
		}
	}
	if err := do(flags.Args()); err != nil {
		fmt.Fprintf(p.stderr, "token: %v\n", err)
		return 1
	}
	return 0
}

func (p *program) flags() *flag.FlagSet {
	flags := flag.NewFlagSet("token", flag.ContinueOnError)
	flags.SetOutput(p.stderr)
	flags.Usage = func() { fmt.Fprint(p.stderr, usage) }
	flags.StringVar((*string)(&p.store), "dir", "", "the folder of manifests")
	flags.BoolVar(&p.view.InsecureShowSecrets, "insecure-show-secrets", false, "print whole tokens")
	flags.DurationVar(&p.options.TTL, "ttl", 0, "how long the token lives (24h)")
	flags.BoolVar(&p.options.InsecureNeverExpires, "insecure-never-expires", false, "make a token that never expires")
	flags.StringVar(&p.options.Description, "description", "", "a description of the token, for people")
	flags.Func("usages", "what the token may be used for", func(text string) error {
		for usage := range strings.SplitSeq(text, ",") {
			switch usage {
			case "signing":
				p.options.Usages.Signing = true
			case "authentication":
				p.options.Usages.Authentication = true
			default:
				return errors.New("a usage is signing or authentication")
			}
		}
		return nil
	})
	flags.Func("groups", "the groups that it authenticates as", func(text string) error {
		p.options.Groups = strings.Split(text, ",")
		return nil
	})
	flags.Func("o", "token or yaml", func(text string) error {
		if p.manifest = text == "yaml"; !p.manifest && text != "token" {
			return errors.New("create -o takes token or yaml")
		}
		return nil
	})
	return flags
}

// generate prints a token and stores nothing.
func (p *program) generate([]string) error { return p.print(bootstraptoken.Generate().Reveal() + "\n") }

// create makes a token. By default it stores the manifest and prints the token once;
// with -o yaml it prints the manifest and stores nothing.
func (p *program) create([]string) error {
	secret, err := bootstraptoken.Create(p.options, p.now())
	if err != nil {
		return err
	}
	object, err := secret.Object()
	if err != nil {
		return err
	}
	if p.manifest {
		manifest, err := object.RevealYAML()
		return errors.Join(err, p.print(string(manifest)))
	}
	if err := p.store.add(object); err != nil {
		return err
	}
	return p.print(secret.Token.Reveal() + "\n")
}

// list prints the tokens in the folder. A manifest that is refused is named on standard
// error, and the exit status is 1, so that the list is not mistaken for complete.
func (p *program) list([]string) error {
	objects, unread := p.store.read()
	secrets, refused := bootstraptoken.List(objects)
	return errors.Join(p.print(p.view.Table(secrets, p.now())), unread, refusals(refused))
}

func refusals(refused []bootstraptoken.Refusal) (err error) {
	for _, r := range refused {
		err = errors.Join(err, fmt.Errorf("%q is refused: %w", r.Name, r.Err))
	}
	return err
}

// remove deletes tokens, given by ID or in full.
func (p *program) remove(args []string) error {
	for _, arg := range args {
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

// sweep deletes the tokens that have expired, and says when to sweep again.
func (p *program) sweep([]string) error {
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
	if found.Next.IsZero() {
		fmt.Fprintln(p.stdout, "nothing else expires")
	} else {
		fmt.Fprintf(p.stdout, "look again at %s\n", found.Next.UTC().Format(time.RFC3339))
	}
	return errors.Join(unread, refusals(found.Refused))
}

func (p *program) print(text string) error {
	_, err := io.WriteString(p.stdout, text)
	return err
}
