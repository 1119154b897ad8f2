// Package program is the program external-jwt-signer, for a main function that adds keys behind a
// crypto.Signer of its own:
//
//	func main() { os.Exit(program.Main(os.Args[1:], os.Stdout, os.Stderr, module)) }
package program

import (
	"bytes"
	"cmp"
	"context"
	"crypto"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime/debug"
	"sync"
	"syscall"
	"time"

	"github.com/nodeattest/nodeattest/claims/extsigner"
	"github.com/nodeattest/nodeattest/externalsigner"
	"github.com/nodeattest/nodeattest/externalsigner/internal/keys"
	"github.com/nodeattest/nodeattest/externalsigner/internal/kubeadmpatch"
	"github.com/nodeattest/nodeattest/refusal"
)

const (
	name = "external-jwt-signer"

	// defaultConfig is the path of the configuration file.
	defaultConfig = "/etc/external-jwt-signer/config.yaml"
)

// help is the head of the help.
const help = `external-jwt-signer [--config FILE]
  signs kube-apiserver's tokens of service accounts at a Unix socket, until it is ended
external-jwt-signer public-key [--config FILE]
  prints the public key that is to sign, for the folder of peers on the other machines
external-jwt-signer kubeadm-patch [--socket PATH] MANIFEST
  prints a patch of kube-apiserver's manifest, for the folder of kubeadm's --patches

`

// KeySource opens a key that neither a file nor a TPM holds, such as one of a PKCS #11 module.
type KeySource struct {
	// Name is the name of its section of the configuration file. The source is used if the section is
	// there, in place of keyFile and tpm.
	Name string
	// Open opens the key. decode reads the section into a pointer to a struct whose fields have JSON
	// tags: an unknown field, or a value of the wrong type, is an error.
	Open func(decode func(into any) error) (crypto.Signer, error)
}

// Main is the program. It runs until it is told to end (SIGTERM, SIGINT) or its configuration has
// changed, and returns its exit status: 0, 1 after an error, 2 after a wrong command line. Its commands
// print something and end: "public-key" the public key that is to sign, for the folders of peers, and
// "kubeadm-patch MANIFEST" a patch of kube-apiserver's manifest.
func Main(args []string, stdout, stderr io.Writer, sources ...KeySource) int {
	command := ""
	if len(args) != 0 {
		switch args[0] {
		case "kubeadm-patch":
			return kubeadmpatch.Run(args[1:], stdout, stderr)
		case publicKey:
			command, args = args[0], args[1:]
		}
	}
	set := flag.NewFlagSet(name, flag.ContinueOnError)
	set.SetOutput(stderr)
	set.Usage = func() {
		fmt.Fprint(stderr, help)
		set.PrintDefaults()
	}
	config := set.String("config", defaultConfig, "the configuration `file`")
	tell := set.Bool("version", false, "print the version and exit")
	switch err := set.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return 2
	case set.NArg() != 0:
		fmt.Fprintf(stderr, "%s: unexpected argument %q: see %[1]s --help\n", name, set.Arg(0))
		return 2
	case *tell:
		fmt.Fprintln(stdout, name, version())
		return 0
	case command == publicKey:
		return printPublicKey(*config, sources, stdout, stderr)
	}
	log := slog.New(slog.NewJSONHandler(stderr, nil))
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *config, sources, log, followInterval); err != nil {
		log.Error("ended", "program", name, "error", err)
		return 1
	}
	return 0
}

// publicKey is the name of a command.
const publicKey = "public-key"

// printPublicKey prints the public key that is to sign.
func printPublicKey(path string, sources []KeySource, stdout, stderr io.Writer) int {
	s, _, err := readSettings(path, sources)
	if err == nil {
		var text []byte
		if text, err = keys.PublicKey(s.Config); err == nil {
			_, err = stdout.Write(text)
		}
	}
	if err != nil {
		fmt.Fprintf(stderr, "%s %s: %s\n", name, publicKey, refusal.Escape(err.Error()))
		return 1
	}
	return 0
}

// run serves until ctx ends, or the configuration, which is read again at each interval, has changed.
func run(ctx context.Context, path string, sources []KeySource, log *slog.Logger, interval time.Duration) error {
	s, text, err := readSettings(path, sources)
	if err != nil {
		return err
	}
	// The socket comes first: it keeps a second process away from the state of the keys.
	listener, err := s.listen()
	if err != nil {
		return err
	}
	defer listener.Close()
	s.Log = log
	held, err := keys.Open(s.Config)
	if err != nil {
		return err
	}
	defer held.Close() // once no call is in progress
	server, err := s.server(held)
	if err != nil {
		return err
	}
	ctx, end := context.WithCancel(ctx)
	var all group
	all.run(ctx, end, "keys", held.Run)
	all.run(ctx, end, "configuration", func(ctx context.Context) error { return follow(ctx, interval, path, text, sources, log, end) })
	if s.StatusAddress != nowhere {
		st := &status{server: server, keys: held, log: log}
		all.run(ctx, end, "statusAddress", func(ctx context.Context) error { return st.serve(ctx, s.StatusAddress) })
	}
	all.run(ctx, end, "socket", func(ctx context.Context) error { return server.Serve(ctx, listener) })
	log.Info("serves", "program", name, "version", version(),
		"socket", cmp.Or(s.Socket, "@"+s.InsecureAbstract), "statusAddress", s.StatusAddress)
	return all.wait()
}

// listen listens on the socket.
func (s *settings) listen() (*externalsigner.Listener, error) {
	if s.InsecureAbstract != "" {
		return externalsigner.ListenInsecureAbstract(s.InsecureAbstract)
	}
	return externalsigner.Listen(s.Socket)
}

// server makes the server of the keys.
func (s *settings) server(held *keys.Keys) (*externalsigner.Server, error) {
	service, err := extsigner.NewService(extsigner.ServiceConfig{
		Issuer: s.Issuer, Signer: held, Keys: held, VerifyOnly: held.VerifyOnly(),
		RefreshHint: time.Duration(s.RefreshHint), MaxLifetime: time.Duration(s.MaxLifetime),
	})
	if err != nil {
		return nil, err
	}
	return externalsigner.NewServer(externalsigner.ServerConfig{
		Service: service, AllowedUIDs: s.AllowedUIDs, MaxWaitingCalls: s.MaxWaitingCalls,
		CallTimeout: time.Duration(s.CallTimeout), Log: s.Log,
	})
}

// group runs the parts of the program. The first that returns ends the others.
type group struct {
	parts sync.WaitGroup
	mu    sync.Mutex
	err   error
}

func (g *group) run(ctx context.Context, end func(), part string, f func(ctx context.Context) error) {
	g.parts.Go(func() { //goroutine: a panic ends the program, as it shall
		defer end()
		if err := f(ctx); err != nil {
			g.mu.Lock()
			defer g.mu.Unlock()
			g.err = errors.Join(g.err, fmt.Errorf("%s: %w", part, err))
		}
	})
}

func (g *group) wait() error {
	g.parts.Wait()
	return g.err
}

// followInterval is how often the configuration is read again.
const followInterval = 10 * time.Second

// follow ends the program when its configuration has changed. One that has an error is logged, once for
// each error, and changes nothing.
func follow(ctx context.Context, interval time.Duration, path string, was []byte, sources []KeySource, log *slog.Logger, end func()) error {
	checked := make([]KeySource, len(sources))
	for i, source := range sources {
		checked[i].Name = source.Name // its key is open
	}
	said := ""
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(interval):
		}
		_, text, err := readSettings(path, checked)
		switch {
		case err == nil && !bytes.Equal(text, was):
			log.Info("configuration changed: the program exits, to be started again with the new one", "file", path)
			end()
			return nil
		case err == nil:
			said = ""
		case err.Error() != said:
			said = err.Error()
			log.Error("cannot read the configuration; the last version stays in use", "error", err)
		}
	}
}

// version is that of the main module, as Go has noted it in the build.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	return info.Main.Version
}
