// Discovery is a cluster and a node that joins it, in one program that needs no network
// but this machine's own: the cluster publishes its discovery document, signed by a
// bootstrap token; the node, which knows a token, an address and a pin, learns from it
// where the API server is and by which CA to know it. Then three servers pass for the
// cluster, and the cluster changes its CA.
//
//	go run ./examples/discovery
//
// The API server is package bootstraptokentest's; what the two sides do is here.
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
)

func main() {
	if err := run(context.Background(), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "discovery:", err)
		os.Exit(1)
	}
}

// run tells the story. It returns an error if a step fails, or if an impostor is not
// refused by the very check that is there for it.
func run(ctx context.Context, w io.Writer) error {
	dir, err := os.MkdirTemp("", "discovery")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	out := &printer{w: w}

	cluster, err := bootstraptokentest.Open(bootstraptokentest.Options{})
	if err != nil {
		return err
	}
	defer func() { _ = cluster.Close() }()
	out.line("the cluster")
	out.line("  API server   %s", cluster.URL())
	out.line("  CA           %s", cluster.Info().CAs[0].Subject)
	out.line("  token        %s", cluster.Token()) // which does not show the secret
	out.line("  publishes    %q", slices.Sorted(maps.Keys(cluster.Data())))

	ticket := ticket{token: cluster.Token().Reveal(), address: cluster.Address(), pin: cluster.Info().Pins()[0].String()}
	found, err := join(ctx, out, ticket)
	if err != nil {
		return err
	}
	for _, attack := range attacks {
		if err := attack.run(ctx, out, cluster, ticket); err != nil {
			return err
		}
	}
	if err := rotate(ctx, out, cluster, found, filepath.Join(dir, "cluster.json")); err != nil {
		return err
	}
	return out.err
}

// A ticket is what somebody who wants to join is given, on paper for example.
type ticket struct{ token, address, pin string }

func (t ticket) discover(ctx context.Context, network bootstraptoken.Network) (*bootstraptoken.Discovered, error) {
	token, err := bootstraptoken.Parse(t.token)
	if err != nil {
		return nil, err
	}
	pin, err := bootstraptoken.ParsePin(t.pin)
	if err != nil {
		return nil, err
	}
	return bootstraptoken.Discover(ctx, bootstraptoken.DiscoverConfig{
		Token: token, Addresses: []string{t.address}, Pins: []bootstraptoken.Pin{pin}, Network: network,
	})
}

// join is the node's side.
func join(ctx context.Context, out *printer, t ticket) (*bootstraptoken.Discovered, error) {
	found, err := t.discover(ctx, bootstraptoken.Network{})
	if err != nil {
		return nil, err
	}
	out.line("a node with token, address and pin")
	out.line("  found        %s", found.Info.Server)
	out.line("  trusts       %s", found.Info.CAs[0].Subject)
	return found, nil
}

// An attack is a server that passes for the cluster, and the check that refuses it.
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
func (a *attack) run(ctx context.Context, out *printer, cluster *bootstraptokentest.Cluster, t ticket) error {
	impostor, err := cluster.Impostor(a.kind)
	if err != nil {
		return err
	}
	defer func() { _ = impostor.Close() }()
	t.address = impostor.Address()
	// Without the token anybody can answer, so it is asked again until time is up.
	_, err = t.discover(ctx, bootstraptoken.Network{Timeout: time.Second, MinBackoff: 100 * time.Millisecond})
	return out.refusal(a.what, err, a.want)
}

// rotate changes the CA under a client that looks now and then.
func rotate(ctx context.Context, out *printer, cluster *bootstraptokentest.Cluster, found *bootstraptoken.Discovered, file string) error {
	asleep := &bootstraptoken.Cache{Info: found.Info, Verified: found.Verified}
	if err := asleep.WriteFile(file); err != nil {
		return err
	}
	out.line("the cluster changes its CA, and a client refreshes its cache")
	for _, step := range []struct {
		what string
		do   func() error
	}{
		{"both CAs are published", cluster.AddCA},
		{"the API server uses the new one", cluster.UseNewCA},
		{"the old one is gone", cluster.DropOldCAs},
	} {
		if err := step.do(); err != nil {
			return err
		}
		cache, err := bootstraptoken.ReadCacheFile(file)
		if err != nil {
			return err
		}
		next, _, err := cache.Refresh(ctx, bootstraptoken.RefreshOptions{})
		if err != nil {
			return err
		}
		if err := next.WriteFile(file); err != nil {
			return err
		}
		out.line("  %-32s trusts %d, the newest %s", step.what, len(next.Info.CAs), next.Info.CAs[len(next.Info.CAs)-1].Subject)
	}
	_, _, err := asleep.Refresh(ctx, bootstraptoken.RefreshOptions{})
	return out.refusal("the cluster itself, for a client that slept through it", err, bootstraptoken.CheckCertificate)
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

// refusal prints what was refused and by which check. It returns an error if it was not
// refused, or by another check.
func (p *printer) refusal(what string, err error, want bootstraptoken.Check) error {
	var refusal *bootstraptoken.Error
	switch {
	case err == nil:
		return fmt.Errorf("%s: was taken for the cluster", what)
	case !errors.As(err, &refusal), !errors.Is(err, want):
		return fmt.Errorf("%s: refused with %w, want %s", what, err, want)
	case refusal.Check == bootstraptoken.ErrRetry: // it was asked until time was up
		errors.As(refusal.Err, &refusal)
	}
	p.line("REFUSED %s", what)
	p.line("  %v", refusal)
	return nil
}
