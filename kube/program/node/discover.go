package node

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"time"

	"github.com/nodeattest/nodeattest/bootstraptoken"
	"github.com/nodeattest/nodeattest/internal/safefile"
	"github.com/nodeattest/nodeattest/kube/internal/configfile"
	"github.com/nodeattest/nodeattest/recovered"
	"github.com/nodeattest/nodeattest/refusal"
)

// errUndecided is the error of discover if the cluster was not found in time.
var errUndecided = errors.New("not decided")

// checkRedirect: the server of --discovery-file sent the document's reader to another address.
const checkRedirect refusal.Check = "document-redirect"

// discovery is one run of the command discover: a machine with nothing but a source finds its cluster,
// before there is a configuration file. The source is a token with addresses, or a document.
type discovery struct {
	tokenFile, document, bearerFile string
	pins                            []bootstraptoken.Pin
	skipPins, replace               bool
	addresses                       []string
	dir                             string
	network                         bootstraptoken.Network
	stdin                           io.Reader
}

const wantDiscover = "want discover [--dir FOLDER] [--timeout TIME] [--replace] --token-file FILE (--ca-cert-hash PIN... | --insecure-skip-ca-pins) ADDRESS..., " +
	"or discover [...] --discovery-file (FILE | - | URL) [--tls-bootstrap-token-file FILE]"

// newDiscovery reaches servers as the authenticator does: through the environment's proxy.
func newDiscovery(stdin io.Reader) *discovery {
	return &discovery{stdin: stdin, network: bootstraptoken.Network{Proxy: http.ProxyFromEnvironment}}
}

// command parses the command line, and runs the command.
func (d *discovery) command(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	if err := d.parse(args, stderr); err != nil {
		return fmt.Errorf("%w: %w", errCommandLine, err)
	}
	return d.run(ctx, stdout)
}

// parse parses the command line.
func (d *discovery) parse(args []string, stderr io.Writer) error {
	for _, arg := range args { // before any error can repeat it
		_, value, _ := strings.Cut(arg, "=")
		if isToken(arg) || isToken(value) {
			return refusal.Config("argument", "that is a bootstrap token", "a file with it: every user of the machine sees a process's arguments")
		}
	}
	var pins []string
	flags := d.flags(&pins)
	flags.SetOutput(stderr)
	if flags.Parse(args) != nil {
		return errors.New(wantDiscover) // the flag is on standard error already
	}
	d.addresses = flags.Args()
	for _, pin := range pins {
		parsed, err := bootstraptoken.ParsePin(pin)
		if err != nil {
			return fmt.Errorf("--ca-cert-hash: %w", err)
		}
		d.pins = append(d.pins, parsed)
	}
	return d.check()
}

// flags returns the flags, which set the fields of d and pins.
func (d *discovery) flags(pins *[]string) *flag.FlagSet {
	flags := flag.NewFlagSet("discover", flag.ContinueOnError)
	flags.StringVar(&d.tokenFile, "token-file", "", "a file of mode 0600 with the bootstrap token, by which the document at ADDRESS is verified; the node joins with it")
	flags.Func("ca-cert-hash", "the pin of a CA of the cluster, sha256:..., as kubeadm prints it; may be repeated", func(pin string) error {
		*pins = append(*pins, pin)
		return nil
	})
	flags.BoolVar(&d.skipPins, "insecure-skip-ca-pins", false, "trust the CAs that a holder of the token has signed, without pins")
	flags.StringVar(&d.document, "discovery-file", "", "the discovery document: a file, - for standard input, or an https URL of a server whose certificate the system trusts")
	flags.StringVar(&d.bearerFile, "tls-bootstrap-token-file", "", "with --discovery-file: a file of mode 0600 with the bootstrap token by which the node joins")
	flags.StringVar(&d.dir, "dir", filepath.Dir(defaultKubeconfig), "the folder of ca.crt and kubelet-authenticator.conf")
	flags.BoolVar(&d.replace, "replace", false, "replace files that are there and differ")
	flags.DurationVar(&d.network.Timeout, "timeout", 5*time.Minute, "how long to look for the cluster")
	return flags
}

// check refuses a command line without exactly one source.
func (d *discovery) check() error {
	byToken := d.tokenFile != "" || len(d.pins) != 0 || d.skipPins || len(d.addresses) != 0
	switch {
	case d.network.Timeout <= 0:
		return refusal.Config("--timeout", d.network.Timeout.String(), "a positive time")
	case byToken && d.document != "":
		return refusal.Config("two sources:", "--discovery-file, and a token with addresses", "one of them; the bearer token for a document is in --tls-bootstrap-token-file")
	case d.document == "" && d.tokenFile == "":
		return refusal.Config("source", "", "--token-file or --discovery-file")
	case d.document == "" && d.bearerFile != "":
		return refusal.Config("--tls-bootstrap-token-file", "set, with --token-file", "unset: the node joins with the token of --token-file")
	case d.document == "" && len(d.addresses) == 0:
		return refusal.Config("address", "", "the API server's, as HOST:PORT, after the flags")
	case d.document == "" && len(d.pins) == 0 && !d.skipPins:
		return refusal.Config("--ca-cert-hash", "", "the pin of a CA, or --insecure-skip-ca-pins")
	case len(d.pins) != 0 && d.skipPins:
		return refusal.Config("--ca-cert-hash", "set, with --insecure-skip-ca-pins", "one of them")
	}
	return nil
}

func isToken(text string) bool {
	_, err := bootstraptoken.Parse(text)
	return err == nil
}

// run finds the cluster and writes the files.
func (d *discovery) run(ctx context.Context, stdout io.Writer) error {
	files, err := openFiles(d.dir)
	if err != nil {
		return err
	}
	var token bootstraptoken.Token
	if path := d.tokenFile + d.bearerFile; path != "" { // one of them
		if token, err = readToken(path); err != nil {
			return err
		}
	}
	found, err := d.find(ctx, token)
	if err != nil {
		return err
	}
	if err := describe(stdout, found); err != nil {
		return err
	}
	return files.write(stdout, found.Info, token, d.replace)
}

// readToken reads a file with a bootstrap token. No error repeats it.
func readToken(path string) (bootstraptoken.Token, error) {
	text, err := safefile.Read(path, maxPassword, safefile.Private)
	if err != nil {
		return bootstraptoken.Token{}, fmt.Errorf("bootstrap token in %s: %w", path, err)
	}
	token, err := bootstraptoken.Parse(string(bytes.TrimSpace(text)))
	if err != nil {
		return bootstraptoken.Token{}, fmt.Errorf("%s: %w", path, err)
	}
	return token, nil
}

// find finds the cluster. Its error matches errCommandLine if no server was asked because of the command
// line, and errUndecided if there is no answer yet.
func (d *discovery) find(ctx context.Context, token bootstraptoken.Token) (found *bootstraptoken.Discovered, err error) {
	switch {
	case d.document == "-":
		return d.read(ctx)
	case strings.Contains(d.document, "://"):
		found, err = bootstraptoken.DiscoverURL(ctx, d.document, d.network)
	case d.document != "":
		text, err := readFile(d.document, configfile.MaxSize)
		if err != nil {
			return nil, err
		}
		return bootstraptoken.DiscoverReader(bytes.NewReader(text))
	default:
		found, err = bootstraptoken.Discover(ctx, bootstraptoken.DiscoverConfig{Token: token, Addresses: d.addresses, Pins: d.pins,
			InsecureSkipCAPins: d.skipPins, Network: d.network})
	}
	_, asked := errors.AsType[*bootstraptoken.DiscoverError](err)
	switch {
	case err == nil:
		return found, d.checkAddress(found)
	case !asked:
		return nil, fmt.Errorf("%w: %w", errCommandLine, err)
	case errors.Is(err, refusal.ErrRetry):
		return nil, fmt.Errorf("%w: %w", errUndecided, err)
	}
	return nil, err
}

// read reads the document from standard input, which may have no end.
func (d *discovery) read(ctx context.Context) (found *bootstraptoken.Discovered, err error) {
	ctx, cancel := context.WithTimeout(ctx, d.network.Timeout)
	defer cancel()
	done := recovered.Go(func() (err error) {
		found, err = bootstraptoken.DiscoverReader(d.stdin)
		return err
	})
	select {
	case err := <-done:
		return found, err
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: the end of the document on standard input: %w", errUndecided, ctx.Err())
	}
}

// checkAddress refuses a document that came from elsewhere than the URL of the command line.
func (d *discovery) checkAddress(found *bootstraptoken.Discovered) error {
	if d.document == "" {
		return nil
	}
	u, err := url.Parse(d.document)
	if err != nil {
		return err
	}
	u.RawQuery, u.ForceQuery, u.Fragment, u.RawFragment = "", false, "", "" // the query may be a secret
	if want := u.String(); found.Address != want {
		return &refusal.Error{Check: checkRedirect, Got: "a document from " + refusal.Quote(found.Address), Want: "one from " + refusal.Quote(want) + ", without a redirect"}
	}
	return nil
}

// describe says which cluster was found.
func describe(w io.Writer, found *bootstraptoken.Discovered) error {
	b := new(strings.Builder)
	fmt.Fprintf(b, "cluster: %s\n", found.Info.Server)
	for i, ca := range found.Info.CAs {
		fmt.Fprintf(b, "CA: %s, %s, until %s\n", found.Info.Pins()[i], refusal.Text(ca.Subject.String()), ca.NotAfter.UTC().Format(time.RFC3339))
	}
	if found.Info.SystemRoots {
		b.WriteString("CA: the document has none: the roots that the system trusts\n")
	}
	for _, ca := range found.Unpinned {
		fmt.Fprintf(b, "not trusted, without a pin: %s\n", refusal.Text(ca.Subject.String()))
	}
	_, err := io.WriteString(w, b.String())
	return err
}
