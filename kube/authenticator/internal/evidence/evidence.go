// Package evidence opens a machine's evidence, to be written in one of the versions of its data
// format.
package evidence

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

// Opener opens the evidence, to be written in one version.
type Opener = func(ctx context.Context) (attest.Prover, error)

// Versions are those in which a machine writes its evidence.
type Versions struct {
	// Provider is that of each.
	Provider string
	// Open has a function for each version, the newest first. It is nil for a machine without
	// evidence.
	Open []Opener
	// Minimum is the oldest that is written; 0 means the newest.
	Minimum int
}

// Check refuses what no attempt can use, with refusal.CheckConfig.
func (v *Versions) Check() error {
	switch {
	case v.Open == nil && v.Minimum != 0:
		return refusal.Config("MinimumVersion", strconv.Itoa(v.Minimum), "0: without evidence there are no versions")
	case v.Open != nil && (len(v.Open) == 0 || slices.ContainsFunc(v.Open, func(open Opener) bool { return open == nil })):
		return refusal.Config("Kind", refusal.Quote(v.Provider)+" without a function", "one for each version, the newest first")
	case v.Minimum < 0:
		return refusal.Config("MinimumVersion", strconv.Itoa(v.Minimum), "0 or more")
	}
	return nil
}

// open opens the evidence. To close the attester closes both.
func (v *Versions) open(ctx context.Context, open Opener) (attest.Prover, *attest.Attester, error) {
	prover, err := open(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("evidence %s: %w", v.Provider, err)
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

// Newest opens the evidence in the newest version. To close the attester closes both.
func (v *Versions) Newest(ctx context.Context) (attest.Prover, *attest.Attester, error) {
	prover, attester, err := v.open(ctx, v.Open[0])
	if err != nil {
		return nil, nil, err
	}
	if newest := prover.Version(); newest < v.Minimum {
		err = refusal.Config("MinimumVersion", strconv.Itoa(v.Minimum), "at most "+strconv.Itoa(newest)+", the newest that is written")
		return nil, nil, errors.Join(err, attester.Close())
	}
	return prover, attester, nil
}

// Older opens the evidence in the newest version below that which was denied that the annotations of
// the denial name, if Minimum allows it.
func (v *Versions) Older(ctx context.Context, denied int, annotations map[string]string) (attest.Prover, *attest.Attester, error) {
	minimum, last := cmp.Or(v.Minimum, denied), denied
	var speaks []string
	for _, open := range v.Open[1:] {
		if minimum >= last {
			break
		}
		prover, attester, err := v.open(ctx, open)
		if err != nil {
			return nil, nil, err
		}
		version := prover.Version()
		if version >= last {
			return nil, nil, errors.Join(refusal.Config("Kind", fmt.Sprintf("with version %d after %d", version, last), "the newest first"), attester.Close())
		}
		format := prover.Provider() + "/v" + strconv.Itoa(version)
		if version >= minimum {
			speaks = append(speaks, format)
			if _, err := (&csr.Metadata{Annotations: annotations}).ChooseVersion(speaks); err == nil {
				return prover, attester, nil
			}
		}
		if err := attester.Close(); err != nil {
			return nil, nil, err
		}
		last = version
	}
	_, err := (&csr.Metadata{Annotations: annotations}).ChooseVersion(speaks)
	return nil, nil, fmt.Errorf("no older version to try, where MinimumVersion is %d: %w", v.Minimum, err)
}

// Of is what a provider wants, for people.
func Of(provider string) string {
	if provider == csr.ProviderOf(csr.SignerClientInsecure) {
		return "no evidence"
	}
	return "evidence of " + provider
}
