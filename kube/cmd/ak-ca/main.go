// Ak-ca is an operator's CA for attestation keys. It certifies the keys of the machines on its list, each
// after the machine's TPM has opened a challenge. A machine runs `kubelet-authenticator enrol`, whose
// request files the operator copies to the CA, and the replies back:
//
//	ak-ca --certificate ca.pem --key ca.key --ring ring.json --machines list [--makers roots.pem] -- FILE...
//
// The two dashes are required: file names from machines must not be taken for flags. For each FILE,
// which ends in .json, ak-ca writes FILE.reply. Instead, it can serve machines over HTTPS, at /enrol:
//
//	ak-ca … --listen :8443 --tls-certificate tls.pem --tls-key tls.key
//
// It then reads changed files within ten seconds. The server authenticates clients only by the
// endorsement key, so any client that can reach it can keep it busy: serve a trusted network only.
//
// The list has lines such as "ek:sha256:… node-1": the machine's endorsement key, and its name. With
// --makers, the endorsement key must also have a certificate under one of those roots; without it, the
// operator vouches by the list that the key is in a TPM. The ring has the keys of challenges, and is
// created if it is missing. Keep it as secret as the CA's key: with it, an attacker can impersonate every
// machine of the list.
//
// Standard output has a line for each certificate: the name, and the identity for the inventory of
// a cluster with akIssuers[].othername.issuer as --issuer. The exit status is 1 after an error,
// also after a refused request, and 2 after a wrong command line.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/safefile"
	"github.com/nodeattest/nodeattest/kube/internal/files"
	"github.com/nodeattest/nodeattest/refusal"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	status := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(status)
}

// run is the program.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	var f config
	var w web
	flags := flag.NewFlagSet("ak-ca", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&f.certificate, "certificate", "", "the CA's certificate, in PEM")
	flags.StringVar(&f.key, "key", "", "its private key, in PEM, a file of mode 0600")
	flags.StringVar(&f.ring, "ring", "", "the keys of challenges, a file of mode 0600")
	flags.StringVar(&f.machines, "machines", "", "the list of machines")
	flags.StringVar(&f.makers, "makers", "", "the roots and intermediates of the TPMs' manufacturers, in PEM")
	flags.StringVar(&f.issuer, "issuer", "", "the CA's name in clusters, akIssuers[].othername.issuer")
	flags.DurationVar(&f.lifetime, "lifetime", 30*24*time.Hour, "the lifetime of a certificate, which cannot be revoked")
	flags.StringVar(&w.address, "listen", "", "an address, such as :8443, to serve machines over HTTPS instead of files")
	flags.StringVar(&w.certificate, "tls-certificate", "", "the server's certificate and its CAs, in PEM")
	flags.StringVar(&w.key, "tls-key", "", "its private key, in PEM, a file of mode 0600")
	err := flags.Parse(args)
	n := len(args) - flags.NArg() - 1
	files := flags.NArg() != 0 && n >= 0 && args[n] == "--" && w == web{}
	serves := flags.NArg() == 0 && w.address != "" && w.certificate != "" && w.key != ""
	if err != nil || !files && !serves {
		fmt.Fprintln(stderr, "ak-ca --certificate FILE --key FILE --ring FILE --machines FILE -- FILE...")
		fmt.Fprintln(stderr, "ak-ca --certificate FILE --key FILE --ring FILE --machines FILE --listen ADDRESS --tls-certificate FILE --tls-key FILE")
		flags.PrintDefaults()
		return 2
	}
	if serves {
		s, err := newServer(&f, &w, stdout, stderr)
		if err == nil {
			err = s.run(ctx)
		}
		return exit(err, stderr)
	}
	c, err := f.open(time.Now)
	if err != nil {
		return exit(err, stderr)
	}
	status := 0
	for _, path := range flags.Args() {
		status = max(status, exit(c.serve(ctx, path, stdout), stderr))
	}
	return status
}

// exit prints an error, and returns the exit status.
func exit(err error, stderr io.Writer) int {
	if err == nil {
		return 0
	}
	for line := range strings.SplitSeq(err.Error(), "\n") {
		fmt.Fprintln(stderr, "ak-ca:", refusal.Escape(line))
	}
	return 1
}

// maxRequest bounds a file with a request, in bytes.
const maxRequest = 2 << 20

// serve writes the reply to the request in a file.
func (c *ca) serve(ctx context.Context, path string, stdout io.Writer) error {
	if !strings.HasSuffix(path, ".json") {
		return refusal.Config("FILE", refusal.Quote(path), "a file name that ends in .json")
	}
	text, err := files.ReadForeign(path, maxRequest)
	if err != nil {
		return err
	}
	reply, made, err := c.reply(ctx, text)
	if reply != nil {
		err = errors.Join(err, safefile.Replace(path+".reply", safefile.Content(reply)))
	}
	if err != nil {
		return fmt.Errorf("%s: %w", refusal.Text(path), err)
	}
	if made != "" {
		_, err = fmt.Fprintln(stdout, made)
	}
	return err
}

// reply decides the request in a text. It returns no reply if the text is not a request, or with an error
// that wraps [refusal.ErrRetry].
func (c *ca) reply(ctx context.Context, text []byte) (reply []byte, made string, err error) {
	spec := new(csr.Spec)
	if err := json.Unmarshal(text, spec); err != nil {
		return nil, "", err
	}
	status, made, err := c.decide(ctx, spec)
	if errors.Is(err, refusal.ErrRetry) {
		return nil, "", err
	}
	reply, encoding := json.Marshal(status)
	if encoding != nil {
		return nil, "", errors.Join(err, encoding)
	}
	return reply, made, err
}
