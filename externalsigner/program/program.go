// Package program is the program external-jwt-signer, for a main function that adds keys behind a
// crypto.Signer of its own:
//
//	func main() { os.Exit(program.Main(os.Args[1:], os.Stdout, os.Stderr, module)) }
package program

import (
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
)

const name = "external-jwt-signer"

// KeySource opens a key that neither a file nor a TPM holds, such as one of a PKCS #11 module.
type KeySource struct {
	// Name is the name of its section of the configuration file. The source is used if the section is
	// there, in the place of keyFile and tpm.
	Name string
	// Open opens the key. decode reads the section into a pointer to a struct whose fields have JSON
	// tags: an unknown field, or a value of the wrong type, is an error.
	Open func(decode func(into any) error) (crypto.Signer, error)
}

// Main is the program. It runs until it is told to end (SIGTERM, SIGINT) or its configuration has
// changed, and returns its exit status: 0, 1 after an error, 2 after a wrong command line.
func Main(args []string, stdout, stderr io.Writer, sources ...KeySource) int {
	if len(args) != 0 && args[0] == "kubeadm-patch" {
		return kubeadmpatch.Run(args[1:], stdout, stderr)
	}
	set := flag.NewFlagSet(name, flag.ContinueOnError)
	set.SetOutput(stderr)
	config := set.String("config", "/etc/external-jwt-signer/config.yaml", "the configuration `file`")
	tell := set.Bool("version", false, "print the version and exit")
	switch err := set.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return 2
	case set.NArg() != 0:
		fmt.Fprintf(stderr, "%s: unexpected argument %q\n", name, set.Arg(0))
		return 2
	case *tell:
		version := "unknown"
		if info, ok := debug.ReadBuildInfo(); ok {
			version = info.Main.Version
		}
		fmt.Fprintln(stdout, name, version)
		return 0
	}
	log := slog.New(slog.NewJSONHandler(stderr, nil))
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *config, sources, log); err != nil {
		log.Error("ended", "program", name, "error", err)
		return 1
	}
	return 0
}

// run serves until ctx ends.
func run(ctx context.Context, path string, sources []KeySource, log *slog.Logger) error {
	s, err := readSettings(path, sources)
	if err != nil {
		return err
	}
	s.Config.Log = log
	held, err := keys.Open(s.Config)
	if err != nil {
		return err
	}
	service, err := extsigner.NewService(extsigner.ServiceConfig{
		Issuer: s.Issuer, Signer: held, Keys: held, VerifyOnly: held.VerifyOnly(),
		RefreshHint: time.Duration(s.RefreshHint), MaxLifetime: time.Duration(s.MaxLifetime),
	})
	if err != nil {
		return err
	}
	server, err := externalsigner.NewServer(externalsigner.ServerConfig{
		Service: service, AllowedUIDs: s.AllowedUIDs, MaxWaitingCalls: s.MaxWaitingCalls, Log: log,
	})
	if err != nil {
		return err
	}
	listener, err := externalsigner.Listen(s.Socket)
	if err != nil {
		return err
	}
	ctx, end := context.WithCancel(ctx)
	defer end()
	var reloads sync.WaitGroup
	reloads.Go(func() { //goroutine: reads the files again
		if err := held.Run(ctx); err != nil {
			log.Error("files are no longer read", "error", err)
		}
	})
	defer reloads.Wait()
	defer end()
	return server.Serve(ctx, listener)
}
