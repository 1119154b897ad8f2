// Discovery is a cluster and a node that joins it, in one program that needs no network
// except this machine's own: the cluster publishes its discovery document, signed with a
// bootstrap token; the node, which knows a token, an address and a pin, learns from it
// where the API server is and which CA identifies it. Then three servers impersonate the
// cluster, and the cluster changes its CA.
//
//	go run ./examples/discovery
//
// The API server is that of package bootstraptokentest; what the two sides do is here.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/nodeattest/nodeattest/bootstraptoken"
	"github.com/nodeattest/nodeattest/bootstraptoken/bootstraptokentest"
	"github.com/nodeattest/nodeattest/refusal"
)

func main() {
	if err := run(context.Background(), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "discovery:", err)
		os.Exit(1)
	}
}

// run tells the story. It returns an error if a step fails, or if an impostor is not
// refused by exactly the check that is meant for it.
func run(ctx context.Context, w io.Writer) (err error) {
	defer caught(&err)
	dir := must(os.MkdirTemp("", "discovery"))
	defer func() { _ = os.RemoveAll(dir) }()
	out := &printer{w: w}

	cluster := must(bootstraptokentest.Open(bootstraptokentest.Options{}))
	defer func() { _ = cluster.Close() }()
	out.line("the cluster")
	out.line("  API server   %s", cluster.URL())
	out.line("  CA           %s", cluster.Info().CAs[0].Subject)
	out.line("  token        %s", cluster.Token()) // which does not show the secret
	out.line("  publishes    %q", slices.Sorted(maps.Keys(cluster.Data())))

	ticket := ticket{token: cluster.Token().Reveal(), address: cluster.Address(), pin: cluster.Info().Pins()[0].String()}
	found := join(ctx, out, ticket)
	for _, attack := range attacks {
		check(attack.run(ctx, out, cluster, ticket))
	}
	check(rotate(ctx, out, cluster, found, filepath.Join(dir, "cluster.json")))
	return out.err
}

// A failure is a step that did not work. It ends the story.
type failure struct{ error }

func check(err error) {
	if err != nil {
		panic(failure{err})
	}
}

func must[T any](v T, err error) T {
	check(err)
	return v
}

// caught turns a failure into an error. It is deferred.
func caught(err *error) {
	switch r := recover().(type) {
	case nil:
	case failure:
		*err = r.error
	default:
		panic(r)
	}
}

// A ticket is what a node that wants to join is given, on paper for example.
type ticket struct{ token, address, pin string }

func (t ticket) discover(ctx context.Context, network bootstraptoken.Network) (*bootstraptoken.Discovered, error) {
	return bootstraptoken.Discover(ctx, bootstraptoken.DiscoverConfig{
		Token: must(bootstraptoken.Parse(t.token)), Addresses: []string{t.address},
		Pins: []bootstraptoken.Pin{must(bootstraptoken.ParsePin(t.pin))}, Network: network,
	})
}

// join is the node's side.
func join(ctx context.Context, out *printer, t ticket) *bootstraptoken.Discovered {
	found := must(t.discover(ctx, bootstraptoken.Network{}))
	out.line("a node with token, address and pin")
	out.line("  found        %s", found.Info.Server)
	out.line("  trusts       %s", found.Info.CAs[0].Subject)
	return found
}

// An attack is a server that impersonates the cluster, and the check that refuses it.
type attack struct {
	what string
	kind bootstraptokentest.Impostor
	want bootstraptoken.Check
}

var attacks = []attack{
	{"an impostor that does not know the secret", bootstraptokentest.WrongSecret, bootstraptoken.CheckSignature},
	{"an impostor that knows the secret, with a CA of its own", bootstraptokentest.WrongCA, bootstraptoken.CheckPinned},
	{"an impostor that changes the kubeconfig", bootstraptokentest.TamperedKubeconfig, bootstraptoken.CheckSignature},
}

// run has the node meet the impostor at the cluster's address.
func (a *attack) run(ctx context.Context, out *printer, cluster *bootstraptokentest.Cluster, t ticket) (err error) {
	defer caught(&err)
	impostor := must(cluster.Impostor(a.kind))
	defer func() { _ = impostor.Close() }()
	t.address = impostor.Address()
	// Anyone can send an answer made without the token, so the node asks again until time is up.
	_, err = t.discover(ctx, bootstraptoken.Network{Timeout: time.Second, MinBackoff: 100 * time.Millisecond})
	return out.refused(a.what, err, a.want)
}

// rotate changes the CA while a client checks from time to time.
func rotate(ctx context.Context, out *printer, cluster *bootstraptokentest.Cluster, found *bootstraptoken.Discovered, file string) error {
	asleep := &bootstraptoken.Cache{Info: found.Info, Verified: found.Verified}
	check(asleep.WriteFile(file))
	out.line("the cluster changes its CA, and a client refreshes its cache")
	for _, step := range []struct {
		what string
		do   func() error
	}{
		{"both CAs are published", cluster.AddCA},
		{"the API server uses the new one", cluster.UseNewCA},
		{"the old one is gone", cluster.DropOldCAs},
	} {
		check(step.do())
		next, _, err := must(bootstraptoken.ReadCacheFile(file)).Refresh(ctx, bootstraptoken.RefreshOptions{})
		check(err)
		check(next.WriteFile(file))
		out.line("  %-32s trusts %d, the newest %s", step.what, len(next.Info.CAs), next.Info.CAs[len(next.Info.CAs)-1].Subject)
	}
	_, _, err := asleep.Refresh(ctx, bootstraptoken.RefreshOptions{})
	return out.refused("the cluster itself, for a client that missed the change", err, bootstraptoken.CheckCertificate)
}

// printer writes lines until one fails.
type printer struct {
	w   io.Writer
	err error
}

func (p *printer) line(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.w, format+"\n", args...)
	}
}

// refused prints what was refused and by which check. It returns an error if it was not
// refused, or was refused by another check.
func (p *printer) refused(what string, err error, want bootstraptoken.Check) error {
	var failed *bootstraptoken.Error
	switch {
	case err == nil:
		return fmt.Errorf("%s: was taken for the cluster", what)
	case !errors.As(err, &failed), !errors.Is(err, want):
		return fmt.Errorf("%s: refused with %w, want %s", what, err, want)
	case failed.Check == refusal.ErrRetry: // the node asked until time was up
		errors.As(failed.Err, &failed)
	}
	p.line("REFUSED %s", what)
	p.line("  %v", failed)
	return nil
}
