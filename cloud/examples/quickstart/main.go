// Quickstart has machines of several kinds join one control plane through one verifier: by the
// certificate of a TPM's attestation key, issued by a cloud or by the maker of the machine, by
// a TPM's endorsement key, and by the documents of clouds. Then it misuses each machine's
// evidence, and the control plane must refuse it. It needs no network: package tpmsim provides
// the TPMs and package cloudtest the clouds.
//
//	go run ./examples/quickstart
//
// This file is the story. The control plane is in plane.go, written as a program of yours
// would have it; the machines, each with the prover that one of its kind has, are in
// machines.go; and the attacks are in attacks.go.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/csr"
)

func main() {
	if err := run(context.Background(), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "quickstart:", err)
		os.Exit(1)
	}
}

// must returns v, and ends the program on an error of its set-up.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// run tells the story. It returns an error if a machine cannot join, or if an attack is not
// refused by the very check that exists for it.
func run(ctx context.Context, w io.Writer) error {
	world := newWorld()
	defer world.close()
	plane := newControlPlane(world)
	refused := 0
	for _, m := range world.machines {
		n, err := tell(ctx, w, plane, m)
		if err != nil {
			return fmt.Errorf("%s: %w", m.nodeName, err)
		}
		refused += n
	}
	_, err := fmt.Fprintf(w, "%d machines joined, %d attacks were refused.\n", len(world.machines), refused)
	return err
}

// tell has one machine join, and then attacks it. It returns how many attacks were refused.
func tell(ctx context.Context, w io.Writer, plane *controlPlane, m *machine) (refused int, err error) {
	answer, err := join(ctx, plane, m, m.nodeName)
	if err != nil {
		return 0, err
	}
	result, err := plane.verifier.Verify(ctx, answer)
	if err != nil {
		return 0, err
	}
	issued, err := plane.ca.Issue(ctx, result.Attested())
	if err != nil {
		return 0, err
	}
	_, err = fmt.Fprintf(w, "%s joins by %s\n  %s: %s\n  certificate for %s\n", m.nodeName, m.what, result.MachineStanding, result.Machine, issued.Certificate.Subject)
	if err != nil {
		return 0, err
	}
	attacks := attacksOn(plane, m, answer)
	for _, a := range attacks {
		err := a.try(ctx)
		if csr.Decide(err).Verdict != csr.VerdictDeny || !errors.Is(err, a.want) {
			return 0, fmt.Errorf("%s: got %w, want %w", a.name, err, a.want)
		}
		if _, err := fmt.Fprintf(w, "  refused: %-45s %s\n", a.name, a.want); err != nil {
			return 0, err
		}
	}
	_, err = fmt.Fprintln(w)
	return len(attacks), err
}

// join runs the protocol between a machine and the control plane: hello, challenge and answer.
// It returns the answer as filed.
func join(ctx context.Context, plane *controlPlane, m *machine, nodeName string) (*csr.Request, error) {
	return joinUnder(ctx, plane, m, nodeName, must(csr.PurposeClient.SignerName(m.provider)))
}

// lifetime is what machines ask for, in seconds.
const lifetime = 3600

// joinUnder is join with a certificate from the given signer.
func joinUnder(ctx context.Context, plane *controlPlane, m *machine, nodeName, signer string) (answer *csr.Request, err error) {
	prover, end, err := m.prover()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, end()) }()
	attester := must(attest.NewAttester(prover))
	key := newKey()
	request, err := csr.Create(csr.PurposeClient, key, nodeName, csr.CreateOptions{})
	if err != nil {
		return nil, err
	}
	subject := attest.Subject{Request: request, SignerName: signer, ClusterID: plane.clusterID, ExpirationSeconds: lifetime}
	hello, err := attester.Hello(ctx, subject)
	if err != nil {
		return nil, err
	}
	challenge, err := plane.verifier.Challenge(ctx, file(hello))
	if err != nil {
		return nil, err
	}
	spec, err := attester.Answer(ctx, challenge, key, subject)
	if err != nil {
		return nil, err
	}
	return file(spec), nil
}

// file stores a request as the API server does, with the time and the user
// that it has authenticated, here the holder of a bootstrap token.
func file(spec *csr.Spec) *csr.Request {
	by := csr.User{Username: csr.BootstrapUserPrefix + "abcdef", Groups: []string{csr.BootstrappersGroup, csr.AuthenticatedGroup}}
	return csr.Filed(spec, by, time.Now())
}
