// Token makes bootstrap tokens, and says which of a cluster's tokens are good and which
// have expired. It talks to no cluster and stores nothing: kubectl does both.
//
//	go run ./examples/token generate
//	go run ./examples/token create -ttl 1h -description "rack 7" | kubectl apply -f -
//	kubectl get secrets -n kube-system -o json | go run ./examples/token list
//	kubectl get secrets -n kube-system -o json | go run ./examples/token sweep | xargs -r kubectl delete -n kube-system
//	go run ./examples/token delete abcdef | xargs -r kubectl delete -n kube-system
//
// The commands are as in `kubeadm token`, and sweep works as Kubernetes' token cleaner
// does. The differences are: create prints the manifest of the token's Secret and, on standard
// error, the token, once; list hides the secrets unless -insecure-show-secrets is given, and names
// on standard error the Secrets that it refuses, with the reason; a token that never expires must
// be requested with -insecure-never-expires.
package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/nodeattest/nodeattest/bootstraptoken"
	"github.com/nodeattest/nodeattest/secret"
)

func main() {
	p := &program{now: time.Now(), in: os.Stdin, out: os.Stdout, errs: os.Stderr}
	if err := p.run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "token:", err)
		os.Exit(1)
	}
}

// A program is one run of a command.
type program struct {
	now       time.Time
	in        io.Reader
	out, errs io.Writer
	options   bootstraptoken.CreateOptions
	view      bootstraptoken.View
}

// run runs the command that comes first, with the flags after it.
func (p *program) run(args []string) error {
	commands := map[string]func([]string) error{
		"generate": p.generate, "create": p.create, "list": p.list, "sweep": p.sweep, "delete": p.remove,
	}
	if len(args) == 0 || commands[args[0]] == nil {
		return errors.New("want one of the commands generate, create, list, sweep and delete")
	}
	flags := p.flags(args[0])
	_ = flags.Parse(args[1:]) // which ends the program if they are wrong
	if (args[0] == "delete") != (flags.NArg() > 0) {
		return errors.New("want the tokens to delete after that command, and nothing after others")
	}
	return commands[args[0]](flags.Args())
}

func (p *program) flags(command string) *flag.FlagSet {
	flags := flag.NewFlagSet("token "+command, flag.ExitOnError)
	switch command {
	case "list":
		flags.BoolVar(&p.view.InsecureShowSecrets, "insecure-show-secrets", false, "print whole tokens")
	case "create":
		flags.DurationVar(&p.options.TTL, "ttl", 0, "how long the token lives (24h)")
		flags.BoolVar(&p.options.InsecureNeverExpires, "insecure-never-expires", false, "make a token that never expires")
		flags.StringVar(&p.options.Description, "description", "", "a description of the token, for people")
		flags.BoolVar(&p.options.Usages.Signing, "signing", false, "let it sign the discovery document, and not authenticate unless that is given too")
		flags.BoolVar(&p.options.Usages.Authentication, "authentication", false, "let it authenticate, and not sign unless that is given too")
		flags.Func("groups", "the groups that it authenticates as, as in a,b", func(text string) error {
			p.options.Groups = strings.Split(text, ",")
			return nil
		})
	}
	return flags
}

func (p *program) generate([]string) error { return p.print(bootstraptoken.Generate().Reveal()) }

// create makes a token, and prints the manifest of its Secret.
func (p *program) create([]string) error {
	made, err := bootstraptoken.Create(p.options, p.now)
	if err != nil {
		return err
	}
	object, err := made.Object()
	if err != nil {
		return err
	}
	manifest, err := object.RevealYAML()
	if err != nil {
		return err
	}
	fmt.Fprintln(p.errs, made.Token.Reveal())
	_, err = p.out.Write(manifest)
	return err
}

// list prints the tokens. A Secret that is refused makes it fail, so that the list is not
// mistaken for complete.
func (p *program) list([]string) error {
	objects, err := p.secrets()
	if err != nil {
		return err
	}
	secrets, refused := bootstraptoken.List(objects)
	_, err = io.WriteString(p.out, p.view.Table(secrets, p.now))
	return errors.Join(err, refusals(refused))
}

// sweep prints the Secrets of the tokens that have expired, and on standard error when to sweep
// again. A controller deletes each with its UID and resourceVersion as preconditions.
func (p *program) sweep([]string) error {
	objects, err := p.secrets()
	if err != nil {
		return err
	}
	found, err := bootstraptoken.Sweep(objects, p.now)
	if err != nil {
		return err
	}
	for _, expired := range found.Delete {
		err = errors.Join(err, p.print("secret/"+expired.Name))
	}
	if !found.Next.IsZero() {
		fmt.Fprintln(p.errs, "look again at", found.Next.UTC().Format(time.RFC3339))
	}
	return errors.Join(err, refusals(found.Refused))
}

// remove prints the Secrets of tokens, given by ID or in full.
func (p *program) remove(tokens []string) error {
	for _, token := range tokens {
		id, err := bootstraptoken.ParseID(token)
		if err == nil {
			err = p.print("secret/" + bootstraptoken.SecretName(id))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// secrets reads Secrets as kubectl get -o json prints them.
func (p *program) secrets() (objects []*bootstraptoken.Object, err error) {
	var list struct {
		Items []struct {
			Metadata struct {
				Namespace, Name, UID, ResourceVersion string
				DeletionTimestamp                     *time.Time
			}
			Type string
			Data map[string][]byte
		}
	}
	if err := json.NewDecoder(p.in).Decode(&list); err != nil || list.Items == nil {
		return nil, fmt.Errorf("want a list of Secrets in JSON on standard input: %w", cmp.Or(err, errors.New("no items")))
	}
	for _, s := range list.Items {
		m := s.Metadata
		objects = append(objects, &bootstraptoken.Object{Namespace: m.Namespace, Name: m.Name, UID: m.UID, ResourceVersion: m.ResourceVersion,
			Deleted: m.DeletionTimestamp, Type: s.Type, Data: secret.New(s.Data)})
	}
	return objects, nil
}

func refusals(refused []bootstraptoken.Refusal) (err error) {
	for _, r := range refused {
		err = errors.Join(err, fmt.Errorf("%q is refused: %w", r.Name, r.Err))
	}
	return err
}

func (p *program) print(line string) error {
	_, err := fmt.Fprintln(p.out, line)
	return err
}
