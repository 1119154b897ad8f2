package authenticator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/kube/internal/nilpointer"
	"github.com/nodeattest/nodeattest/refusal"
)

// A versionError is the denial of evidence whose version the control plane does not read. Whoever
// may deny requests can write one, with any annotations: it is worth one more try in each attempt,
// in a version that the node's own configuration allows, and nothing of it is remembered.
type versionError struct {
	error
	annotations map[string]string
}

func (e *versionError) Unwrap() error { return e.error }

// versionDenied is the reason of such a denial.
var versionDenied = (&refusal.Error{Check: csr.CheckProviderVersion}).Reason()

// opener opens the evidence, to be written in one version of its data format.
type opener = func(ctx context.Context) (attest.Prover, error)

// openers are those of a kind, the newest version first.
func openers(k Kind) []opener {
	if of, ok := k.(proverKind); ok {
		return of.open
	}
	return []opener{func(ctx context.Context) (attest.Prover, error) { return k.Open(ctx) }}
}

// checkVersions refuses what no attempt can use.
func checkVersions(k Kind, minimum int) error {
	if k == nil { // a machine without evidence
		if minimum != 0 {
			return refusal.Config("MinimumVersion", strconv.Itoa(minimum), "0: without evidence there are no versions")
		}
		return nil
	}
	if all := openers(k); len(all) == 0 || slices.ContainsFunc(all, func(open opener) bool { return open == nil }) {
		return refusal.Config("Kind", refusal.Quote(k.Provider())+" without a function", "one for each version, the newest first")
	}
	if minimum < 0 {
		return refusal.Config("MinimumVersion", strconv.Itoa(minimum), "0 or more")
	}
	return nil
}

// evidence opens the evidence. To close the attester closes both.
func (a *Authenticator) evidence(ctx context.Context, open opener) (attest.Prover, *attest.Attester, error) {
	prover, err := open(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("evidence %s: %w", a.c.Kind.Provider(), err)
	}
	attester, err := attest.NewAttester(prover)
	if err != nil {
		if !nilpointer.Is(prover) {
			err = errors.Join(err, prover.Close())
		}
		return nil, nil, err
	}
	return prover, attester, nil
}

// newest opens the evidence in the newest version. Every attempt begins with it, whatever was
// denied before.
func (a *Authenticator) newest(ctx context.Context) (attest.Prover, *attest.Attester, error) {
	prover, attester, err := a.evidence(ctx, a.c.Kind.Open)
	if err != nil {
		return nil, nil, err
	}
	if v := prover.Version(); v < a.c.MinimumVersion {
		err = refusal.Config("MinimumVersion", strconv.Itoa(a.c.MinimumVersion), "at most "+strconv.Itoa(v)+", the newest that is written")
		return nil, nil, errors.Join(err, attester.Close())
	}
	return prover, attester, nil
}

// older opens the evidence in the newest version that the denial of a newer one names, if the
// configuration allows it.
func (a *Authenticator) older(ctx context.Context, newest int, why *versionError) (attest.Prover, *attest.Attester, error) {
	minimum, last := cmp.Or(a.c.MinimumVersion, newest), newest
	var speaks []string
	for _, open := range openers(a.c.Kind)[1:] {
		if minimum >= last {
			break
		}
		prover, attester, err := a.evidence(ctx, open)
		if err != nil {
			return nil, nil, err
		}
		v := prover.Version()
		if v >= last {
			return nil, nil, errors.Join(refusal.Config("Kind", fmt.Sprintf("with version %d after %d", v, last), "the newest first"), attester.Close())
		}
		format := prover.Provider() + "/v" + strconv.Itoa(v)
		if v >= minimum {
			speaks = append(speaks, format)
			if _, err := csr.ChooseVersion(why.annotations, speaks); err == nil {
				return prover, attester, nil
			}
		}
		if err := attester.Close(); err != nil {
			return nil, nil, err
		}
		last = v
	}
	_, err := csr.ChooseVersion(why.annotations, speaks)
	return nil, nil, fmt.Errorf("no older version to try, where MinimumVersion is %d: %w", a.c.MinimumVersion, err)
}
